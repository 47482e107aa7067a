"""Repeatable calls of concurrent kernels, and the comparison of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioError
from palladio.driver.executors import REFERENCE, Executor, use
from palladio.ir.core import Program, walk
from palladio.ops.threads.launch import launch

Results = Sequence[Any]


@dataclass(frozen=True)
class Call:
    """A program that launches threads, with its argument values.

    Fields:
        definition: its results on the evaluator; None if it does not terminate there.
    """

    program: Program
    values: Sequence[Any]
    definition: Results | None


def recorded(run: Callable[[], Any]) -> list[Call]:
    """The calls of programs with launches that a function makes, run on the evaluator."""
    calls: list[Call] = []

    def load(program: Program) -> Any:
        runner = REFERENCE.load(program)

        def noted(values: Sequence[Any], out: Sequence[Any] | None = None) -> Results:
            launches = any(eqn.op is launch for eqn in walk(program))
            given = [np.array(value) for value in values] if launches else values
            results = None
            try:
                results = runner(values, out)
                return results
            finally:
                if launches:
                    calls.append(Call(program, given, results and [np.array(each) for each in results]))

        return noted

    try:
        with use(Executor("reference", "The evaluator, noting what it runs.", load)):
            run()
    except PalladioError:  # perhaps a deadlock: the calls before it are recorded
        pass
    return calls


def agree(found: Results | None, wanted: Results | None) -> bool:
    """True if two results are the same, up to the order in which atomics add."""
    return found is not None and wanted is not None and all(map(_same, found, wanted))


def _same(found: Any, wanted: Any) -> bool:
    a, b = np.asarray(found), np.asarray(wanted)
    if a.tobytes() == b.tobytes():
        return True
    if a.dtype.kind in "biu" or a.shape != b.shape:
        return False
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    epsilon = float(np.finfo(np.float32).eps)
    return bool(np.linalg.norm(a[finite] - b[finite]) <= 64 * epsilon * np.linalg.norm(b[finite]))
