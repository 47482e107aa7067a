"""The two sides of the comparison: a file of kernels as it stands, and the same file with its import lines swapped.

A *case* is a function `case_<name>(rng)` of a file in `kernels/`. It draws its inputs from the NumPy generator, runs
one or more kernels with `interpret=True`, or Pallas' TPU interpreter, and returns an array or nested tuples, lists and
dictionaries of arrays. Both sides get generators of the same seed. What a kernel prints is part of its result.

What JAX's interpret mode cannot run, and what therefore is not compared here:

* `pl.BoundedSlice` and `pl.Indirect` blocks, and `pl.Element` with padding beside `input_output_aliases`;
* transposed references, writes through a reshaped or bitcast one, and a step beside an integer in one index;
* arrays without elements; `lax.axis_index` of a named grid; types of 64 bits, which are off by default;
* a `while_loop` whose condition reads a reference that its body changes: there it sees the value before the loop;
* `pl.cdiv` of negative numbers, which rounds up only here;
* atomic operations on bits, and any atomic operation at an integer index;
* `debug_check`, which does nothing there, and NumPy functions on traced values (`np.exp(x)`), which JAX refuses;
* a wait for a copy of no elements, where JAX looks for races: an assertion fails there;
* `gmm` with `m` that the tile does not divide, and rows past the last group, which are uninitialised there.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

KERNELS = Path(__file__).parent / "kernels"

IMPORTS = {
    "import jax.numpy as jnp": "import palladio.numpy as jnp",
    "from jax import ShapeDtypeStruct": "from palladio import ShapeDtypeStruct",
    "from jax import ShapeDtypeStruct, lax": "from palladio import ShapeDtypeStruct, lax",
    "from jax import ShapeDtypeStruct, empty_ref, freeze, jit, lax, new_ref": (
        "from palladio import ShapeDtypeStruct, empty_ref, freeze, jit, lax, new_ref"
    ),
    "from jax import lax": "from palladio import lax",
    "from jax.experimental import pallas as pl": "import palladio as pl",
    "from jax.experimental.pallas import mosaic_gpu as plgpu": "import palladio.gpu as plgpu",
    "from jax.experimental.pallas import tpu as pltpu": "import palladio.tpu as pltpu",
    "from jax.experimental.pallas import tpu_sc as plsc": "import palladio.tpu.sparse_core as plsc",
    "from jax.experimental.pallas import triton as plgpu": "import palladio.gpu as plgpu",
    "from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm, tgmm": "from palladio.library import gmm, tgmm",
}
"""Import line of a Pallas program -> the line that stands for it here. Any other import of JAX is an error."""


class ImportLineError(Exception):
    """A file of kernels imports something of JAX that the table of import lines does not know."""


def swap_imports(text: str, name: str) -> str:
    """The program `text` with every import of JAX replaced. Line numbers stay as they are."""
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if not _imports_jax(node):
            continue
        line = lines[node.lineno - 1]
        if node.lineno != node.end_lineno or line not in IMPORTS:
            raise ImportLineError(f"{name}, line {node.lineno}: no import line to swap with for: {line}")
        lines[node.lineno - 1] = IMPORTS[line]
    return "\n".join(lines)


def _imports_jax(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] in ("jax", "jaxlib") for alias in node.names)
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("jax", "jaxlib")


@dataclass(frozen=True)
class Case:
    """One kernel program: the function `case_<name>` of the file `kernels/<family>.py`."""

    family: str
    name: str

    @property
    def seed(self) -> list[int]:
        return list(self.name.encode())


def cases() -> list[Case]:
    """Every case, found without running or importing anything."""
    found = []
    for path in sorted(KERNELS.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("case_"):
                found.append(Case(path.stem, node.name.removeprefix("case_")))
    return found


@functools.cache
def load(family: str, ours: bool) -> dict[str, Any]:
    """The names of a file of kernels, as it stands or with its import lines swapped."""
    path = KERNELS / f"{family}.py"
    text = path.read_text(encoding="utf-8")
    if ours:
        text = swap_imports(text, path.name)
    module = types.ModuleType(f"{'palladio' if ours else 'jax'}_side_{family}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module.__dict__


@dataclass(frozen=True)
class Outcome:
    """What a case returned, flattened in order with the path of each array, and what it printed."""

    arrays: tuple[tuple[str, np.ndarray], ...]
    printed: str


def run_jax(case: Case) -> Outcome:
    """The case in JAX's interpret mode, on its CPU, with its usual 32-bit types."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    with jax.enable_x64(False):
        return _run(case, ours=False, settle=jax.effects_barrier)


def run_ours(case: Case) -> Outcome:
    """The same program with its import lines swapped."""
    return _run(case, ours=True, settle=lambda: None)


def _run(case: Case, *, ours: bool, settle: Any) -> Outcome:
    function = load(case.family, ours)[f"case_{case.name}"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = function(np.random.default_rng(case.seed))
        arrays = tuple(_flatten(result, "result"))
        settle()
    return Outcome(arrays, printed.getvalue())


def _flatten(result: Any, place: str) -> list[tuple[str, np.ndarray]]:
    if isinstance(result, dict):
        return [leaf for key in sorted(result) for leaf in _flatten(result[key], f"{place}[{key!r}]")]
    if isinstance(result, tuple | list):
        return [leaf for index, part in enumerate(result) for leaf in _flatten(part, f"{place}[{index}]")]
    return [(place, np.asarray(result))]


TOLERANCES = {
    "float32": 5e-6,
    "float16": 2e-3,
    "bfloat16": 1e-2,
    "float8_e4m3fn": 4e-2,
    "float8_e5m2": 8e-2,
}
"""dtype -> largest norm of the differences, divided by the norm of the values. Anything else agrees exactly."""

OUTLIER = 16
"""How many tolerances a single element may be off, measured by its own size and the mean size of all together."""


def differences(ours: Outcome, theirs: Outcome) -> list[str]:
    """Everything in which two outcomes disagree, one line each."""
    found = []
    if ours.printed != theirs.printed:
        found.append(f"printed {ours.printed!r}, expected {theirs.printed!r}")
    if [place for place, _ in ours.arrays] != [place for place, _ in theirs.arrays]:
        names = [", ".join(place for place, _ in side.arrays) for side in (ours, theirs)]
        return [*found, f"the results are {names[0]}, expected {names[1]}"]
    for (place, got), (_, expected) in zip(ours.arrays, theirs.arrays):
        reason = _difference(got, expected)
        if reason:
            found.append(f"{place}: {reason}")
    return found


def _difference(got: np.ndarray, expected: np.ndarray) -> str:
    if got.dtype.kind == expected.dtype.kind == "U":
        unequal = [f"{a} for {b}" for a, b in zip(got.ravel(), expected.ravel()) if a != b]
        return "" if got.shape == expected.shape and not unequal else "texts differ: " + ", ".join(unequal)
    if (got.shape, got.dtype) != (expected.shape, expected.dtype):
        return f"{got.dtype}{list(got.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if got.dtype.name not in TOLERANCES:
        return _first("values", got != expected, got, expected)
    wide, wide_expected = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(wide_expected)
    unequal = ~((wide == wide_expected) | (np.isnan(wide) & np.isnan(wide_expected)))
    reason = _first("NaN or infinity", unequal & ~(finite & np.isfinite(wide)), got, expected)
    if reason:
        return reason
    reason = _too_far(wide[finite], wide_expected[finite], TOLERANCES[got.dtype.name])
    return reason and _first(reason, unequal, got, expected)


def _too_far(got: np.ndarray, expected: np.ndarray, tolerance: float) -> str:
    error, size = np.abs(got - expected), np.abs(expected)
    if not error.any():
        return ""
    norm = np.linalg.norm(size)
    if np.linalg.norm(error) > tolerance * norm:
        ratio = np.linalg.norm(error) / norm if norm else np.inf
        return f"relative error {ratio:.2e} is over {tolerance:.0e}; values"
    if (error > OUTLIER * tolerance * (size + size.mean())).any():
        return "single values"
    return ""


def _first(what: str, wrong: np.ndarray, got: np.ndarray, expected: np.ndarray) -> str:
    """`what` differs where `wrong` is true: how often, and an example. Empty where nothing is wrong."""
    if not wrong.any():
        return ""
    index = tuple(int(axis[0]) for axis in np.nonzero(wrong)) if wrong.ndim else ()
    place = f"{int(wrong.sum())} of {wrong.size}; at {list(index)}"
    return f"{what} differ in {place} {got[index]}, expected {expected[index]}"
