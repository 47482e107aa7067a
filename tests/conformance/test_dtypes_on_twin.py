"""The rows in other dtypes than float32 on the host twin, many of them in one kernel, which is compiled once.

By default each row runs in one dtype of each of `CLASSES`, in turn, one of a grid or launch in one of every other
class; with `--every-dtype` (`make cubins`) in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType

import numpy as np
import pytest

from palladio.types import dtypes
from palladio.types.dtypes import SHORT_NAMES
from tests.conformance import arrays, concurrent, elementwise, grids, memory
from tests.conformance.executors import HOPPER_TWIN
from tests.conformance.rows import Case, Row, fault, merged, rows_of

CLASSES = (
    ("bool",),
    ("i8", "u16", "u8", "i16"),
    ("i32", "u64", "u32", "i64"),
    ("f16", "f8e4m3fn", "bf16", "f8e5m2"),
    ("f64",),
)
"""The dtypes by the code that is generated for them; float32 is in `executors.HOPPER_TWIN`."""

MODULES = (elementwise, arrays, memory, grids, concurrent)
MOST = 40
"""Rows of one kernel."""


def chosen(number: int, row: Row, classes: Sequence[Sequence[str]]) -> Iterator[np.dtype]:
    """One dtype of each class for a row of some number."""
    for each in classes:
        accepted = [SHORT_NAMES[name] for name in each if SHORT_NAMES[name] in row.dtypes]
        if accepted:
            yield accepted[number % len(accepted)]


def rows(module: ModuleType, dtype: np.dtype, every: bool) -> list[Row]:
    """The rows of a module that run in a dtype. Each launch is a kernel of its own: they run in every other class."""
    found = [row for row in rows_of(vars(module)) if row.family not in HOPPER_TWIN.all_dtypes]
    step = 2 if module in (grids, concurrent) else 1
    chosen_of = {row.title: list(chosen(n // step, row, CLASSES[n % step :: step])) for n, row in enumerate(found)}
    found = [row for row in found if dtype in (row.dtypes if every else chosen_of[row.title])]
    return [row for row in found if HOPPER_TWIN.reason(row.title, dtype) is None]


def faults(named: Sequence[Row], case: Case, parts: Sequence[Case]) -> Iterator[str]:
    """The wrong outputs of the parts of a case, by the names of their rows."""
    results = iter(case.call("hopper-twin")(*case.inputs))
    for row, part in zip(named, parts, strict=True):
        for expected, dtype in zip(part.expected, part.outputs, strict=True):
            if found := fault(next(results), expected, dtype, part.slack):
                yield f"{row.title}: {found}"


@pytest.mark.parametrize("dtype", [SHORT_NAMES[name] for each in CLASSES for name in each], ids=dtypes.short_name)
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_rows_in_other_dtypes(module: ModuleType, dtype: np.dtype, request: pytest.FixtureRequest) -> None:
    found = rows(module, dtype, request.config.getoption("--every-dtype"))
    cases = {row.title: row.case(dtype) for row in found}
    plain = [row for row in found if type(cases[row.title]) is Case and not cases[row.title].options]
    wrong: list[str] = []
    with HOPPER_TWIN.ways[0]():  # threads in order, which decides what an atomic operation finds at a repeated index
        for start in range(0, len(plain), MOST):
            together = plain[start : start + MOST]
            parts = [cases[row.title] for row in together]
            wrong += faults(together, merged(parts), parts)
    for row in found:
        if row not in plain:
            for way in HOPPER_TWIN.ways:
                with way():
                    wrong += faults([row], cases[row.title], [cases[row.title]])
    assert not wrong, "\n".join(wrong)


def test_every_dtype_has_a_class() -> None:
    listed = {SHORT_NAMES[name] for each in CLASSES for name in each}
    assert listed | set(HOPPER_TWIN.dtypes) == set(dtypes.ALL)
