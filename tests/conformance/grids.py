"""Rows: blocks and grids."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.types import dtypes
from tests.conformance.rows import ALL, NUMBERS, Case, draw, row, wide, wrapped

TILES = pl.BlockSpec((4, 8), lambda i, j: (i, j))
SAME = {"grid": (3, 2), "in_specs": [TILES], "out_specs": (TILES,)}


def copy(x_ref: Any, o_ref: Any) -> None:
    """Every block as it is."""
    o_ref[...] = x_ref[...]


@row("grid", ALL)
def blocks_of_two_axes(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (12, 16))
    return Case(copy, [x], [wide(x)], [dtype], SAME, slack=0)


@row("grid", ALL)
def ragged_edges(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (10, 13))
    return Case(copy, [x], [wide(x)], [dtype], SAME, slack=0)


@row("grid", ALL)
def blocks_exchanged(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (12, 16))
    options = SAME | {"out_specs": (pl.BlockSpec((4, 8), lambda i, j: (2 - i, 1 - j)),)}
    expected = np.block([[wide(x)[8 - 4 * i :, 8 - 8 * j :][:4, :8] for j in range(2)] for i in range(3)])
    return Case(copy, [x], [expected], [dtype], options, slack=0)


@row("grid", ALL)
def squeezed_axes(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (3, 8, 2))
    options = {
        "grid": (2, 3),
        "in_specs": [pl.BlockSpec((None, 8, pl.Squeezed()), lambda i, j: (j, 0, i))],
        "out_specs": (pl.BlockSpec((None, None, 8), lambda i, j: (i, j, 0)),),
    }
    return Case(copy, [x], [wide(x).transpose(2, 0, 1)], [dtype], options, slack=0)


@row("grid", ALL)
def element_offsets_with_padding(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """Windows of four around every second element; outside is uninitialised."""
    x = draw(rng, dtype, (7,))
    options = {
        "grid": (4,),
        "in_specs": [pl.BlockSpec((pl.Element(4, (1, 2)),), lambda i: (2 * i,))],
        "out_specs": (pl.BlockSpec((None, 4), lambda i: (i, 0)),),
    }
    around = np.full((12,), wide(np.array(dtypes.uninitialized(dtype), dtype)), wide(x).dtype)
    around[1:8] = wide(x)
    return Case(copy, [x], [np.array([around[2 * i : 2 * i + 4] for i in range(4)])], [dtype], options, slack=0)


@row("grid", ALL)
def bounded_slices(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """Rows 0 to 2, 3 and 4, of a block of three."""
    x = draw(rng, dtype, (5, 2))
    options = {
        "grid": (2,),
        "in_specs": [pl.BlockSpec((pl.BoundedSlice(3), 2), lambda i: (pl.ds(3 * i, 3 - i), 0))],
        "out_specs": (pl.BlockSpec((pl.BoundedSlice(3), 2), lambda i: (pl.ds(3 * i, 3 - i), 0)),),
    }
    return Case(copy, [x], [wide(x)], [dtype], options, slack=0)


@row("grid", ALL)
def indirect_rows_by_prefetched_scalars(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, at = draw(rng, dtype, (7, 4)), rng.integers(0, 7, (6,)).astype(np.int32)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(3,),
        in_specs=[pl.BlockSpec((pl.Indirect(2), 4), lambda i, at: (at[pl.ds(2 * i, 2)], 0))],
        out_specs=(pl.BlockSpec((2, 4), lambda i, at: (i, 0)),),
    )

    def kernel(at_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    return Case(kernel, [at, x], [wide(x)[at]], [dtype], {"grid_spec": spec}, slack=0)


@row("grid", NUMBERS)
def a_revisited_output_accumulates(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (3, 4, 8), 0.25, 1)
    options = {
        "grid": (2, 3),
        "in_specs": [pl.BlockSpec((None, 2, 8), lambda i, k: (k, i, 0))],
        "out_specs": (pl.BlockSpec((2, 8), lambda i, k: (i, 0)),),
    }

    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    return Case(kernel, [x], [wrapped(wide(x).sum(0), dtype)], [dtype], options, slack=2)


@row("grid", NUMBERS)
def scratch_persists(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """Running sums of rows, carried from step to step."""
    x = draw(rng, dtype, (5, 4), 0.25, 1)
    options = {
        "grid": (5,),
        "in_specs": [pl.BlockSpec((1, 4), lambda i: (i, 0))],
        "out_specs": (pl.BlockSpec((1, 4), lambda i: (i, 0)),),
        "scratch_shapes": [pltpu.VMEM((1, 4), dtype)],
    }

    def kernel(x_ref: Any, o_ref: Any, sum_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            sum_ref[...] = jnp.zeros_like(sum_ref)

        sum_ref[...] += x_ref[...]
        o_ref[...] = sum_ref[...]

    return Case(kernel, [x], [np.cumsum(wide(x), 0)], [dtype], options, slack=3)


@row("grid", ALL)
def an_aliased_output_starts_as_its_input(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, y = draw(rng, dtype, (6, 4)), draw(rng, dtype, (2, 4))
    options = {
        "grid": (1,),
        "in_specs": [pl.BlockSpec((2, 4), lambda i: (1, 0)), pl.BlockSpec((2, 4), lambda i: (0, 0))],
        "out_specs": (pl.BlockSpec((2, 4), lambda i: (1, 0)),),
        "input_output_aliases": {0: 0},
    }
    expected = wide(x)
    expected[2:4] = wide(y)

    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = y_ref[...]

    return Case(kernel, [x, y], [expected], [dtype], options, slack=0)


@row("grid", ALL)
def a_dynamic_grid(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """Two of three blocks are copied; the third is unwritten."""
    x = draw(rng, dtype, (6, 4))
    options = {
        "grid": (np.array(2),),
        "in_specs": [pl.BlockSpec((2, 4), lambda i: (i, 0))],
        "out_specs": (pl.BlockSpec((2, 4), lambda i: (i, 0)),),
    }
    expected = np.full((6, 4), wide(np.array(dtypes.uninitialized(dtype), dtype)), wide(x).dtype)
    expected[:4] = wide(x)[:4]
    return Case(copy, [x], [expected], [dtype], options, slack=0)


@row("grid", NUMBERS)
def program_ids(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (1,))

    def kernel(x_ref: Any, o_ref: Any) -> None:
        number = pl.program_id(0) * pl.num_programs(1) + pl.program_id(1)
        o_ref[...] = jnp.full((1, 1), number, dtype) + x_ref[...] * 0

    options = {
        "grid": (2, 3),
        "in_specs": [pl.BlockSpec((1,), lambda i, j: (0,))],
        "out_specs": (pl.BlockSpec((1, 1), lambda i, j: (i, j)),),
    }
    return Case(kernel, [x], [np.arange(6).reshape(2, 3)], [dtype], options)


@row("grid", ALL)
def arrays_of_no_elements(rng: np.random.Generator, dtype: np.dtype) -> Case:
    return Case(copy, [np.zeros((0, 4), dtype)], [np.zeros((0, 4))], [dtype], slack=0)


@row("grid", ALL)
def scalars(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, ())
    return Case(copy, [np.asarray(x)], [wide(np.asarray(x))], [dtype], slack=0)


@row("grid", ALL)
def a_kernel_call_inside_a_kernel(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """Each half is turned upside down by rows; its last rows are past the edge of a block."""
    x = draw(rng, dtype, (2, 5, 4))

    def turned(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    def kernel(x_ref: Any, o_ref: Any) -> None:
        rows = pl.BlockSpec((1, 3), lambda i, j: (4 - i, j))
        inner = pl.pallas_call(
            turned,
            pl.ShapeDtypeStruct((5, 4), dtype),
            grid=(5, 2),
            in_specs=[rows],
            out_specs=pl.BlockSpec((1, 3), lambda i, j: (i, j)),
        )
        o_ref[...] = inner(x_ref[...])

    half = pl.BlockSpec((None, 5, 4), lambda i: (i, 0, 0))
    options = {"grid": (2,), "in_specs": [half], "out_specs": (half,)}
    return Case(kernel, [x], [wide(x)[:, ::-1]], [dtype], options, slack=0)
