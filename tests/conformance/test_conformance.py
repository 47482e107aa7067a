"""Every executor does what every row says, for every dtype that both have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from palladio.driver.compile import PIPELINES
from palladio.driver.executors import CPU
from palladio.ir.core import Program, walk
from palladio.ops import ALL_OPS
from palladio.passes import run_passes
from palladio.passes.discharge import discharge
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types import dtypes
from palladio.types.types import ArrayType
from tests.conformance import arrays, concurrent, elementwise, grids, memory
from tests.conformance.executors import EXECUTORS, Entry
from tests.conformance.rows import Case, Row, draw, fault, rows_of

ROWS = [row for module in (elementwise, arrays, memory, grids, concurrent) for row in rows_of(vars(module))]


def _runs() -> Iterator[tuple[Entry, Row, np.dtype]]:
    for entry in EXECUTORS:
        for row in ROWS:
            for dtype in row.dtypes:
                if dtype in entry.dtypes or row.family in entry.all_dtypes:
                    yield entry, row, dtype


RUNS = [pytest.param(*run, id=f"{run[0].name}-{run[1].title}-{dtypes.short_name(run[2])}") for run in _runs()]


@pytest.mark.parametrize(("entry", "row", "dtype"), RUNS)
def test_row(entry: Entry, row: Row, dtype: np.dtype) -> None:
    case = row.case(dtype)
    before = [np.array(array) for array in case.inputs]
    call = case.call(entry.name)
    reason = entry.reason(row.title, dtype)
    if reason is not None:
        with pytest.raises(entry.refusal, match=re.escape(reason)):
            call(*case.inputs)
        return
    for runs in entry.ways:
        with runs():
            results = call(*case.inputs)
        for number, (got, expected, wanted) in enumerate(zip(results, case.expected, case.outputs, strict=True)):
            found = fault(got, expected, wanted, case.slack)
            assert not found, f"output {number}: {found}"
    for array, kept in zip(case.inputs, before, strict=True):
        assert array.tobytes() == kept.tobytes(), "the call changed an input"


def _programs(case: Case) -> Iterator[Program]:
    """The program of a case's call, as traced and as the CPU compiles it, and the discharged forms of its kernels."""
    call = case.call("reference")
    types = [ArrayType(array.shape, array.dtype) for array in case.inputs]
    program = stage(call, types, wrap, name="case").program
    yield program
    yield run_passes(program, PIPELINES[CPU.name])
    for eqn in program.eqns:
        if "kernel" in eqn.params:
            yield discharge.run(eqn.params["kernel"])


def _coverage() -> dict[str, str]:
    """Operation -> the row that shows it with the fewest others."""
    found: dict[str, tuple[int, str]] = {}
    for row in ROWS:
        names = {eqn.op.name for program in _programs(row.case(row.dtypes[-1])) for eqn in walk(program)}
        for name in names:
            found[name] = min((len(names), row.title), found.get(name, (len(ALL_OPS), "")))
    return {name: title for name, (_, title) in found.items()}


def test_every_operation_is_in_a_row(golden: Callable[[str], None]) -> None:
    coverage = _coverage()
    missing = [op.name for op in ALL_OPS if op.name not in coverage]
    assert not missing, f"no row of the conformance suite has {', '.join(missing)}"
    golden("\n".join(f"{name}: {coverage[name]}" for name in sorted(coverage)))


def test_rows_have_names_of_their_own() -> None:
    assert len({row.title for row in ROWS}) == len(ROWS)


def test_a_refusal_is_looked_up_from_the_narrowest_name() -> None:
    entry = Entry("some", refused={"sort": "a", "sort.argsort": "b", "sort.argsort-f16": "c"})
    f16, f32 = np.dtype(np.float16), np.dtype(np.float32)
    found = [entry.reason(*of) for of in (("sort.sort", f16), ("sort.argsort", f32), ("sort.argsort", f16))]
    assert found == ["a", "b", "c"]
    assert entry.reason("dot.matmul", f16) is None


def test_what_an_executor_refuses_is_a_row_or_family() -> None:
    known = {row.title for row in ROWS} | {row.family for row in ROWS}
    known |= {f"{row.title}-{dtypes.short_name(dtype)}" for row in ROWS for dtype in row.dtypes}
    assert not [name for entry in EXECUTORS for name in entry.refused if name not in known]


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=dtypes.short_name)
def test_a_wrong_element_is_found(dtype: np.dtype) -> None:
    x = draw(np.random.default_rng(0), dtype, (5, 8))
    wrong = np.array(x)
    wrong[2, 3] = dtypes.uninitialized(dtype) if dtypes.is_float(dtype) else not x[2, 3]
    assert not fault(x, x, dtype)
    assert fault(wrong, x, dtype)


@pytest.mark.parametrize("dtype", [dtype for dtype in dtypes.ALL if dtypes.is_float(dtype)], ids=dtypes.short_name)
def test_the_results_of_a_narrower_float_are_too_coarse(dtype: np.dtype) -> None:
    coarser = {"float64": "float32", "float32": "float16", "float16": "float8_e4m3fn", "bfloat16": "float8_e4m3fn"}
    if str(dtype) in coarser:
        x = draw(np.random.default_rng(0), dtype, (5, 8))
        assert fault(x.astype(dtypes.canonical(coarser[str(dtype)])).astype(dtype), x, dtype)
