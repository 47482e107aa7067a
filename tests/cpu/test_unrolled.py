"""Kernels with hundreds of unrolled accesses: the work of compiling grows with their number, not with its square."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.call.staged import CALLS
from palladio.cpu import lower
from palladio.driver.capture import prepared_programs
from palladio.driver.compile import PIPELINES
from palladio.driver.executors import CPU
from palladio.ir.core import Program
from palladio.lower.fusion.keep_arrays import _ProgramKeeping
from palladio.passes import run_passes


def pairs(count: int) -> Program:
    """A kernel that adds pairs of rows, each by equations of its own, and stores parts of its output."""

    def kernel(x: Any, out: Any) -> None:
        for n in range(count):
            out[n] = x[2 * n] + x[2 * n + 1]

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((count, 16), np.float32))
    CALLS.clear()
    with prepared_programs() as programs:
        pl.jit(call)(np.ones((2 * count, 16), np.float32))
    return programs[0]


def text(program: Program) -> str:
    (eqn,) = run_passes(program, PIPELINES[CPU.name]).eqns
    return lower.lower_grid(eqn.grid, eqn.kernel, eqn.input_types).text


def test_a_block_is_initialised_once() -> None:
    found = text(pairs(40))
    assert found.count("icmp eq i8") == 1  # its mark
    assert found.count("fadd") == 40


def test_a_block_that_a_branch_may_begin_is_read_after_it() -> None:
    def kernel(x: Any, out: Any) -> None:
        @pl.when(x[0] > 0)
        def some() -> None:
            out[0] = x[0]
            out[1] = x[1]

        out[2] = x[2]
        out[3] = x[3]

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((5,), np.float32), interpret="cpu")
    for first in (1.0, -1.0):
        x = np.array([first, 1, 2, 3], np.float32)
        meant = np.array([*(x[:2] if first > 0 else [np.nan] * 2), *x[2:], np.nan], np.float32)
        np.testing.assert_array_equal(call(x), meant)


def test_arrays_that_nothing_uses_again_are_not_looked_at_before_each_store(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    original = _ProgramKeeping.stale

    def stale(walk: Any, eqn: Any) -> Any:
        looked_at.append(len(walk.reading))
        return original(walk, eqn)

    monkeypatch.setattr(_ProgramKeeping, "stale", stale)
    text(pairs(30))
    assert len(looked_at) > 90 and max(looked_at) <= 3
