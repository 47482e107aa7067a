"""A module imports only from lower floors or its own package, and no package is a knot inside."""

from __future__ import annotations

import graphlib
from collections import Counter

from tests.architecture.source import ROOT, Module, imports, modules

FLOORS: tuple[tuple[str, ...], ...] = (
    ("base",),  # locations, errors and their rendering, knobs
    ("types",),  # dtypes and promotion, shapes, memory spaces, transforms, effects
    ("ir",),  # Var Eqn Program, Op, bind, verify, text, walk
    ("ops",),  # the closed set of ops
    ("array",),  # functions on array-likes: what numpy and lax re-export
    ("trace",),  # tracer, NumPy protocol, ref indexing, control-flow sugar
    ("passes", "pipeline", "lax"),  # programs to programs; block maps, kernel-side pipelines; strict array functions
    ("lower",),  # further forms of the IR that every executor of kernels shares: placements
    ("machine", "cpu", "hopper"),  # simulator; kernels compiled for the host; for Hopper GPUs
    ("driver",),  # the spine: compile, cache, executor choice
    ("call",),  # BlockSpec, pallas_call, jit: the user's calls
    ("numpy", "nn", "tpu", "gpu"),  # public facades: re-exports
    ("library",),  # ordinary user code
    ("interop", "compat"),
    ("cli",),
    ("demo",),
)
"""From the ground up. This is the one list of floors; the picture in `palladio/architecture.py` shows it."""

FLOOR = {unit: floor for floor, units in enumerate(FLOORS) for unit in units}
FLOOR[""] = FLOOR["demo"]  # palladio/__init__.py, the facade: it may import every floor below the demo's
FLOOR["__main__"] = FLOOR["demo"]  # `python -m palladio`, the command line

USER_LIKE = ("library", "demo")  # only these use the facade as users do
NAMES = ("gpu", "tpu", "tpu.sparse_core", "numpy", "nn", "lax", "library", "interop", "interop.torch")
PUBLIC = {"palladio", *(f"palladio.{name}" for name in NAMES)}


def test_every_package_on_disk_has_a_floor() -> None:
    strangers = {module.unit for module in modules()} - {*FLOOR, "architecture"}
    assert not strangers, "give these packages a floor in FLOORS"


def test_a_package_does_not_hide_a_module() -> None:
    counts = Counter(module.name for module in modules())
    hidden = [name for name, count in counts.items() if count > 1]
    assert not hidden, "a module beside a package of its name is never read"


def test_imports_go_down() -> None:
    wrong = [
        f"{module.at(node)} ({module.name}) imports {target}"
        for module in modules()
        if module.unit in FLOOR
        for node, target in imports(module)
        if not _allowed(module, target)
    ]
    assert not wrong, "an import goes up or sideways:\n" + "\n".join(wrong)


def _allowed(module: Module, target: str) -> bool:
    there = (target + ".").split(".")[1]
    if there == module.unit or (there == "" and module.unit in USER_LIKE):
        return True
    return there in FLOOR and FLOOR[there] < FLOOR[module.unit]


def test_the_architecture_page_imports_nothing() -> None:
    found = [module.at(node) for module in modules() if module.unit == "architecture" for node, _ in imports(module)]
    assert not found


def test_the_library_and_the_demo_use_only_public_modules() -> None:
    wrong = [
        f"{module.at(node)} ({module.name}) imports {target}"
        for module in modules()
        if module.unit in USER_LIKE
        for node, target in imports(module)
        if target not in PUBLIC and not f"{target}.".startswith(f"palladio.{module.unit}.")
    ]
    assert not wrong, "library and demo are ordinary user code:\n" + "\n".join(wrong)


def test_no_package_has_an_import_cycle() -> None:
    edges = {
        module.name: {target for _, target in imports(module) if _same_package(module, target)} for module in modules()
    }
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        raise AssertionError("an import cycle: " + " -> ".join(reversed(error.args[1]))) from None


def _same_package(module: Module, target: str) -> bool:
    return module.unit != "" and f"{target}.".startswith(f"palladio.{module.unit}.") and target != module.name


MODULES_OF_A_FOLDER = 14


def test_no_folder_is_crowded() -> None:
    folders = Counter(module.path.parent for module in modules() if module.path.name != "__init__.py")
    crowded = {str(folder.relative_to(ROOT)): count for folder, count in folders.items() if count > MODULES_OF_A_FOLDER}
    assert not crowded, "sort these modules into folders by their kind"
