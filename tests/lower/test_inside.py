"""Proofs that an access stays inside its array, and what they leave to be guarded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.lower import fold_ranges, prove_inside
from palladio.ops.grid import Grid
from palladio.passes import run_passes
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types.types import ArrayType
from tests.passes.ir import check, check_unchanged

F32 = np.dtype(np.float32)


def grid_of(extent: int, block: Any, index_map: Any, grid: Any) -> Grid:
    """The grid of a call that copies blocks, after the pass."""

    def copy(x: Any, out: Any) -> None:
        out[...] = x[...]

    call = pl.pallas_call(
        copy,
        pl.ShapeDtypeStruct((1024,), F32),
        grid=grid,
        in_specs=[pl.BlockSpec(block, index_map)],
        out_specs=pl.BlockSpec(block, lambda i: (i,)),
    )
    program = stage(lambda x: (call(x),), [ArrayType((extent,), F32)], wrap, name="call").program
    found: Grid = run_passes(program, [fold_ranges, prove_inside]).eqns[0].grid
    return found


def test_blocks_of_a_grid_that_divides_its_array_are_inside() -> None:
    found = grid_of(16, (4,), lambda i: (i,), (4,))
    assert (found.inputs[0].inside, found.outputs[0].inside) == ((True,), (True,))


@pytest.mark.parametrize(
    ("extent", "index_map", "grid"),
    [(15, lambda i: (i,), (4,)), (16, lambda i: (i + 1,), (4,)), (16, lambda i: (i - 1,), (4,))],
)
def test_blocks_that_may_leave_their_array_are_not_marked(extent: int, index_map: Any, grid: Any) -> None:
    assert grid_of(extent, (4,), index_map, grid).inputs[0].inside == ()


def test_index_arithmetic_is_followed() -> None:
    assert grid_of(64, (4,), lambda i: (3 - i % 4 + i // 4 * 4,), (16,)).inputs[0].inside == (True,)


def test_a_slice_at_a_loop_index_is_marked_and_reads_back() -> None:
    check(
        prove_inside,
        """
        program f(x:ref<any, f32[8]>, o:ref<any, f32[4]>) {
          loop 0:i32, 5:i32, x, o {body=program step(i:i32[], x:ref<any, f32[8]>, o:ref<any, f32[4]>) {
            a:f32[4] = load x[i:+4]
            b:f32[] = load x[i]
            store o, a
            return
          }, constants=2, step=1, unroll=1}
          return
        }
        """,
        """
        program f(x:ref<any, f32[8]>, o:ref<any, f32[4]>) {
          loop 0:i32, 5:i32, x, o {body=program step(i:i32[], x:ref<any, f32[8]>, o:ref<any, f32[4]>) {
            a:f32[4] = load x[i!:+4]
            b:f32[] = load x[i!]
            store o, a
            return
          }, constants=2, step=1, unroll=1}
          return
        }
        """,
    )


def test_a_slice_that_may_reach_past_the_end_is_not_marked() -> None:
    check_unchanged(
        prove_inside,
        """
        program f(x:ref<any, f32[8]>) {
          loop 0:i32, 6:i32, x {body=program step(i:i32[], x:ref<any, f32[8]>) {
            a:f32[4] = load x[i:+4]
            return
          }, constants=1, step=1, unroll=1}
          return
        }
        """,
    )


def test_an_index_from_outside_is_not_marked() -> None:
    check_unchanged(
        prove_inside,
        """
        program f(x:ref<any, f32[8]>, n:i32[]) {
          a:f32[] = load x[n]
          return
        }
        """,
    )
