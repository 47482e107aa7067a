"""Control flow of threads: branches and loops are entered, and errors in them have the line that failed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.base.errors import PalladioIndexError
from palladio.base.locations import Location

OUT = pl.ShapeDtypeStruct((8,), np.float32)


@pytest.mark.parametrize("executor", ["reference", "simulator"])
def test_an_error_in_a_branch_of_a_loop_has_the_line_of_the_inner_equation(executor: str) -> None:
    def body(out: Any, arrived: Any) -> None:
        @pl.loop(0, 3)
        def _(step: Any) -> None:
            @pl.when(step < 2)
            def _() -> None:
                plgpu.barrier_arrive(arrived.at[step + 1])  # the failing line
                plgpu.barrier_wait(arrived.at[step + 1])

        out[...] = np.zeros_like(out[...])

    kernel = plgpu.kernel(body, OUT, scratch_types=[plgpu.Barrier(num_barriers=2)])
    with pl.executor(executor), pytest.raises(PalladioIndexError) as raised:
        kernel()
    location: Any = raised.value.location
    assert isinstance(location, Location)
    with open(__file__) as file:
        assert "# the failing line" in file.read().splitlines()[location.line - 1]


def test_loops_and_branches_with_and_without_steps_carry_values() -> None:
    def body(out: Any, arrived: Any) -> None:
        def step(n: Any, carry: Any) -> Any:
            total, last = carry

            def meet() -> Any:
                plgpu.barrier_arrive(arrived)
                plgpu.barrier_wait(arrived)
                return total + n

            return pl.cond(n % 2 == 0, meet, lambda: total - 1), n

        total, last = pl.fori_loop(0, 5, step, (np.int32(0), np.int32(0)))
        out[0], out[1] = total, last

    out = pl.ShapeDtypeStruct((2,), np.int32)
    kernel = plgpu.kernel(body, out, scratch_types=[plgpu.Barrier()])
    for executor in ("reference", "simulator"):
        with pl.executor(executor):
            np.testing.assert_array_equal(kernel(), [0 + 2 + 4 - 2, 4])
