"""Loops whose conditions read references, and scopes as decorators."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax


def test_the_condition_of_a_while_loop_sees_what_the_body_wrote() -> None:
    def kernel(count_ref: Any, left_ref: Any) -> None:
        left_ref[0] = 5

        def body(count: Any) -> Any:
            left_ref[0] -= 2
            return count + 1

        count_ref[0] = lax.while_loop(lambda _: left_ref[0] > 0, body, 0)

    call = pl.pallas_call(kernel, [pl.ShapeDtypeStruct((1,), np.int32)] * 2)
    count, left = call()
    assert (count[0], left[0]) == (3, -1)


def test_each_call_of_a_scoped_function_passes_its_arguments_and_fresh_references() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.with_scoped(pltpu.VMEM((4,), jnp.float32), flag_ref=pltpu.SMEM((1,), jnp.int32))
        def doubled(row: Any, scratch_ref: Any, flag_ref: Any) -> Any:
            """Twice the row."""
            was_written = scratch_ref[0] == scratch_ref[0]  # uninitialised memory reads as NaN
            flag_ref[0] = 2
            scratch_ref[...] = row * flag_ref[0]
            return jnp.where(was_written, 0.0, scratch_ref[...])

        assert doubled.__doc__ == "Twice the row."
        o_ref[0] = doubled(x_ref[0])
        o_ref[1] = doubled(x_ref[1])

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(pl.pallas_call(kernel, pl.ShapeDtypeStruct((2, 4), np.float32))(x), x * 2)
