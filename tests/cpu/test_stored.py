"""Products of the library that are on disk are neither traced nor lowered, in any process."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio import tpu as pltpu
from palladio.base import stored_keys
from palladio.call import jit
from palladio.call.ahead import forget_calls
from palladio.cpu.runtime import host
from palladio.cpu.runtime.machine_code import MachineCode
from palladio.cpu.stored import Stored
from palladio.driver.capture import prepared_programs
from palladio.library import gmm, tgmm
from palladio.library.kernels.grouped import Problem
from palladio.types.types import ArrayType
from tests.library.references import normal

SIZES = np.array([20, 0, 44], np.int32)
X, Y, Z = normal(0, 64, 96), normal(1, 3, 96, 80), normal(2, 64, 80)
BF16 = np.dtype(ml_dtypes.bfloat16)
FIND = Stored.find
CALLS: dict[str, Callable[[], Any]] = {
    "gmm": lambda: gmm(X, Y, SIZES),
    "gmm-bf16": lambda: gmm(X.astype(BF16), Y.astype(BF16), SIZES),
    "gmm-tiles": lambda: gmm(X, Y, SIZES, tiling=(16, 32, 40)),
    "tgmm": lambda: tgmm(X.T, Z, SIZES),
    "tgmm-copied": lambda: tgmm(np.ascontiguousarray(X.T), Z, SIZES),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Stored, "find", FIND)
    forget_calls()
    return tmp_path / "cache"


def fails(*_: Any, **__: Any) -> Any:
    raise AssertionError("traced")


@pytest.mark.parametrize("name", CALLS)
def test_a_stored_product_is_not_traced_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = CALLS[name]()
    forget_calls()
    monkeypatch.setattr(jit, "_stage", fails)
    for _ in range(2):
        np.testing.assert_array_equal(CALLS[name](), first)


def test_a_stored_product_serves_other_numbers_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = gmm(X[:30], Y, [10, 20, 0])
    forget_calls()
    monkeypatch.setattr(jit, "_stage", fails)
    out = np.empty_like(expected)
    assert gmm(X[:30], Y, [10, 20, 0], out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert gmm(X, Y, SIZES).shape == (64, 80)


def test_a_product_is_stored_after_it_was_evaluated(folder: Path) -> None:
    """Evaluation keeps functions with the programs of index maps, which kernels share."""
    x, y = normal(0, 45, 112), normal(1, 112, 96)
    for executor in ("reference", "cpu"):
        for rows in (112, 128):
            tgmm(x, y, SIZES, tiling=(rows, 45, 96), interpret=executor)
    assert any(b"palladio.cpu.chain" in path.read_bytes() for path in folder.iterdir())


def test_a_product_of_other_types_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    gmm(X, Y, SIZES)
    monkeypatch.setattr(jit, "_stage", fails)
    with pytest.raises(AssertionError, match="traced"):
        gmm(X, Y, SIZES, np.float64)


@pytest.mark.parametrize("change", ["sources", "processor", "checks", "entries", "code"])
def test_it_is_traced_again_where_something_else_is_requested(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    gmm(X, Y, SIZES)
    forget_calls()
    stored_keys.sources.cache_clear()
    if change == "sources":
        monkeypatch.setattr(stored_keys, "facts", lambda path: (1, 2))
    elif change == "processor":
        monkeypatch.setenv("PALLADIO_CPU", "portable")
    elif change == "checks":
        monkeypatch.setenv("PALLADIO_DEBUG_CHECKS", "1")
    else:
        entries = {path: path.read_bytes() for path in folder.iterdir()}
        for path, content in entries.items():
            if (b"palladio.cpu.chain" in content) == (change == "entries"):
                path.unlink()
    monkeypatch.setattr(jit, "_stage", fails)
    with pytest.raises(AssertionError, match="traced"):
        gmm(X, Y, SIZES)
    stored_keys.sources.cache_clear()


def test_programs_that_are_collected_are_traced() -> None:
    gmm(X, Y, SIZES)
    forget_calls()
    with prepared_programs() as found:
        gmm(X, Y, SIZES)
    assert [program.name for program in found] == ["product"]


def test_a_kernel_that_reads_the_described_tpu_is_stored_for_it() -> None:
    def scaled(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] * pltpu.get_tpu_info().num_lanes

    call = pl.pallas_call(scaled, pl.ShapeDtypeStruct((4,), np.float32))
    for lanes in (128, 64):
        with pltpu.described_tpu(pltpu.TpuInfo(num_lanes=lanes)):
            staged = pl.jit(lambda x: call(call(x))).ahead(np.ones(4, np.float32), made_of="scaled")
        assert staged(np.ones(4, np.float32)).tolist() == [lanes**2] * 4


def test_a_kernel_with_callbacks_is_not_stored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def talks(x_ref: Any, out_ref: Any) -> None:
        pl.debug_print("x is {}", x_ref[0])
        out_ref[...] = x_ref[...]

    call = pl.pallas_call(talks, pl.ShapeDtypeStruct((4,), np.float32))
    for _ in range(2):
        staged = pl.jit(lambda x: call(call(x))).ahead(np.ones(4, np.float32), made_of="talks")
        staged(np.ones(4, np.float32))
    assert capsys.readouterr().out.count("x is 1.0") == 4
    assert not any(b"palladio.cpu.chain" in path.read_bytes() for path in folder.iterdir())


def empty_grids(count: Any) -> Any:
    """Numbers plus 1, by two kernels; the first has an inner grid of `count` steps."""

    def fills(out: Any) -> None:
        out[...] = jnp.zeros(out.shape, np.int32)

    def kernel(count: Any, out: Any) -> None:
        out[...] = pl.pallas_call(fills, pl.ShapeDtypeStruct((4,), np.int32), grid=(count[0],))()

    def add(x: Any, out: Any) -> None:
        out[...] = x[...] + 1

    four = pl.ShapeDtypeStruct((4,), np.int32)
    return pl.pallas_call(add, four)(pl.pallas_call(kernel, four)(count))


def test_a_stored_program_leaves_calls_to_the_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    known, none = np.array([2], np.int32), np.array([0], np.int32)
    pl.jit(empty_grids).ahead(known, made_of="empty grids")
    forget_calls()
    monkeypatch.setattr(jit, "_stage", fails)
    found = pl.jit(empty_grids).ahead(known, made_of="empty grids")
    prepared = found.prepared((known,), None)
    for staged in (found, pickle.loads(pickle.dumps(found)), lambda count: prepared((count,))):
        assert staged(known).tolist() == [1] * 4
        with pytest.raises(pl.PalladioValueError, match="a grid size is at least 1") as raised:
            staged(none)
        assert raised.value.location is not None and raised.value.location.file == __file__


def test_nothing_is_stored_if_a_source_changes_while_it_is_traced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_of()
    monkeypatch.setattr(stored_keys, "facts", lambda path: (1, 2))
    gmm(X, Y, SIZES)
    assert not any(b"palladio.cpu.chain" in path.read_bytes() for path in folder.iterdir())


def test_machine_code_by_its_key_alone_has_to_be_on_disk(folder: Path) -> None:
    with pytest.raises(LookupError):
        MachineCode("", "0" * 64)


# The key.


def key_of(parts: Any = "f", types: Any = (((2,), np.float32),)) -> str | None:
    return Stored(parts, [ArrayType(shape, np.dtype(dtype)) for shape, dtype in types])._key


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, tuple):
        return (changed(value[0]), *value[1:])
    return BF16


@pytest.mark.parametrize("field", [each.name for each in fields(host.Processor)])
def test_every_field_of_the_processor_is_in_the_key(field: str) -> None:
    here = host.current()
    with host.compiling_for(replace(here, **{field: changed(getattr(here, field))})):
        other = key_of()
    assert None is not key_of() != other


@pytest.mark.parametrize("field", [each.name for each in fields(Problem)])
def test_every_field_of_a_problem_is_in_the_key(field: str) -> None:
    problem = Problem(64, 96, 80, 3, (64, 96, 80), np.dtype(np.float32), np.dtype(np.float32), False)
    other = replace(problem, **{field: changed(getattr(problem, field))})
    assert None is not key_of(problem) != key_of(other)


def test_the_types_of_operands_are_in_the_key() -> None:
    types = (
        [((2,), np.float32)],
        [((2,), np.float32)] * 2,
        [((3,), np.float32)],
        [((2,), np.int32)],
        [((2, 1), np.float32)],
    )
    assert len({key_of(types=each) for each in types}) == 5


def test_versions_and_sources_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {
        "palladio.base.stored_keys.VERSION": "9",
        "sys.version": "9",
        "numpy.__version__": "9",
        "ml_dtypes.__version__": "9",
        "llvmlite.__version__": "9",
        "palladio.base.stored_keys.facts": lambda path: (1, len(path)),
    }
    found = {key_of()}
    for name, value in changes.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(name, value)
            stored_keys.sources.cache_clear()
            found.add(key_of())
    stored_keys.sources.cache_clear()
    assert None not in found
    assert len(found) == 1 + len(changes)


def test_dtypes_of_the_other_byte_order_and_unknown_objects_have_no_key() -> None:
    assert key_of(np.dtype(">f4")) is None
    assert key_of(object()) is None


LOWERING = ("array", "ir", "lax", "lower", "numpy", "ops", "passes", "pipeline", "trace", "types", "cpu")
RUNNING = ("cpu/chain.py", "cpu/engine.py", "cpu/launches/engine.py", "cpu/runtime/workers.py", "cpu/runtime/memory.py")
"""Modules that run kernels, or move arrays."""


def test_tracing_and_lowering_read_no_setting_that_is_not_in_the_key() -> None:
    """The knobs that the stages before machine code read, by module; the key covers what they decide."""
    package = stored_keys.PACKAGE
    found = set()
    for folder in LOWERING:
        for path in (package / folder).rglob("*.py"):
            name = path.relative_to(package).as_posix()
            if name not in RUNNING:
                found |= {(name, read) for read in settings(ast.parse(path.read_text(encoding="utf-8")))}
    assert found == {
        ("array/copies.py", "knobs.copies"),  # a warning
        ("cpu/runtime/host.py", "knobs.instructions"),  # `host.current`
        ("passes/pipeline.py", "knobs.verify"),  # an error
        ("trace/debug.py", "knobs.debug_checks"),  # `chosen_checks`
    }


def settings(module: ast.Module) -> set[str]:
    """The knobs and the environment that a module mentions."""
    names = ("knobs", "os.environ", "os.getenv")
    attributes = {ast.unparse(node) for node in ast.walk(module) if isinstance(node, ast.Attribute)}
    return {each for each in attributes if each.startswith(names) and each.count(".") == 1}
