"""Scalar prefetch: index maps that read arrays."""

import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def case_rows_gathered_by_index(rng):
    def kernel(at_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    x, at = rng.normal(size=(10, 16)).astype(np.float32), rng.integers(0, 10, (6,)).astype(np.int32)
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(6,),
        in_specs=[pl.BlockSpec((1, 16), lambda i, at: (at[i], 0))],
        out_specs=pl.BlockSpec((1, 16), lambda i, at: (i, 0)),
    )
    return pl.pallas_call(kernel, ShapeDtypeStruct((6, 16), x.dtype), grid_spec=grid_spec, interpret=True)(at, x)


def case_rows_scattered_by_index(rng):
    def kernel(at_ref, x_ref, start_ref, o_ref):
        o_ref[...] = x_ref[...] + at_ref[pl.program_id(0)].astype(jnp.float32)

    x, at = rng.normal(size=(6, 16)).astype(np.float32), rng.permutation(10)[:6].astype(np.int32)
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(6,),
        in_specs=[pl.BlockSpec((1, 16), lambda i, at: (i, 0)), pl.BlockSpec((1, 16), lambda i, at: (at[i], 0))],
        out_specs=pl.BlockSpec((1, 16), lambda i, at: (at[i], 0)),
    )
    call = pl.pallas_call(
        kernel, ShapeDtypeStruct((10, 16), x.dtype), grid_spec=grid_spec, input_output_aliases={2: 0}, interpret=True
    )
    return call(at, x, np.zeros((10, 16), np.float32))


def case_two_prefetched_arrays_of_two_axes(rng):
    def kernel(rows_ref, columns_ref, x_ref, o_ref, scratch_ref):
        scratch_ref[...] = x_ref[...]
        o_ref[...] = scratch_ref[...] + rows_ref[pl.program_id(0), 0] * columns_ref[0]

    x = rng.normal(size=(12, 16)).astype(np.float32)
    rows, columns = rng.integers(0, 3, (4, 2)).astype(np.int32), rng.integers(0, 2, (3,)).astype(np.int32)
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(4, 2),
        in_specs=[pl.BlockSpec((4, 8), lambda i, j, rows, columns: (rows[i, j], columns[i % 3]))],
        out_specs=pl.BlockSpec((4, 8), lambda i, j, rows, columns: (i, j)),
        scratch_shapes=[pltpu.VMEM((4, 8), jnp.float32)],
    )
    return pl.pallas_call(kernel, ShapeDtypeStruct((16, 16), x.dtype), grid_spec=grid_spec, interpret=True)(
        rows, columns, x
    )


def case_block_sparse_product(rng):
    """Only the blocks of the left matrix that are not zero are stored, in order of their rows."""

    def kernel(row_ref, column_ref, blocks_ref, y_ref, o_ref):
        step = pl.program_id(1)
        first = (step == 0) | (row_ref[jnp.maximum(step - 1, 0)] != row_ref[step])

        @pl.when(first)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += jnp.dot(blocks_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    present = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 1]])
    row, column = (axis.astype(np.int32) for axis in np.nonzero(present))
    blocks = rng.normal(size=(len(row), 4, 8)).astype(np.float32)
    y = rng.normal(size=(24, 16)).astype(np.float32)
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(2, len(row)),
        in_specs=[
            pl.BlockSpec((None, 4, 8), lambda j, s, row, column: (s, 0, 0)),
            pl.BlockSpec((8, 8), lambda j, s, row, column: (column[s], j)),
        ],
        out_specs=pl.BlockSpec((4, 8), lambda j, s, row, column: (row[s], j)),
    )
    call = pl.pallas_call(kernel, ShapeDtypeStruct((16, 16), np.float32), grid_spec=grid_spec, interpret=True)
    return call(row, column, blocks, y)


def case_grouped_product_by_hand(rng):
    """Rows sorted by group, whole tiles of rows to a group: a tile's group picks the right matrix."""

    def kernel(group_ref, x_ref, w_ref, o_ref, acc_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            acc_ref[...] = jnp.zeros_like(acc_ref)

        acc_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o_ref[...] = acc_ref[...].astype(o_ref.dtype)

    group = np.array([0, 0, 2, 3, 3, 3], np.int32)
    x, w = rng.normal(size=(24, 16)).astype(np.float32), rng.normal(size=(4, 16, 16)).astype(np.float32)
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(6, 2, 2),
        in_specs=[
            pl.BlockSpec((4, 8), lambda i, j, k, group: (i, k)),
            pl.BlockSpec((None, 8, 8), lambda i, j, k, group: (group[i], k, j)),
        ],
        out_specs=pl.BlockSpec((4, 8), lambda i, j, k, group: (i, j)),
        scratch_shapes=[pltpu.VMEM((4, 8), jnp.float32)],
    )
    return pl.pallas_call(kernel, ShapeDtypeStruct((24, 16), np.float32), grid_spec=grid_spec, interpret=True)(
        group, x, w
    )


def case_paged_rows(rng):
    """Pages of a cache in an order of their own, with a length that cuts the last one."""

    def kernel(pages_ref, length_ref, page_ref, o_ref):
        step = pl.program_id(0)

        @pl.when(step == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        rows = step * 4 + lax.broadcasted_iota(jnp.int32, (4, 8), 0)
        o_ref[...] += jnp.sum(jnp.where(rows < length_ref[0], page_ref[...], 0.0), axis=0, keepdims=True)

    cache, pages = rng.normal(size=(6, 4, 8)).astype(np.float32), np.array([4, 1, 3], np.int32)
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(3,),
        in_specs=[pl.BlockSpec((None, 4, 8), lambda s, pages, length: (pages[s], 0, 0))],
        out_specs=pl.BlockSpec((1, 8), lambda s, pages, length: (0, 0)),
    )
    call = pl.pallas_call(kernel, ShapeDtypeStruct((1, 8), np.float32), grid_spec=grid_spec, interpret=True)
    return call(pages, np.array([10], np.int32), cache)


def case_prefetch_with_a_dynamic_grid(rng):
    def kernel(at_ref, x_ref, start_ref, o_ref):
        o_ref[...] = x_ref[...] * 3

    x, at = rng.normal(size=(8, 16)).astype(np.float32), np.array([5, 2, 7, 0], np.int32)
    results = []
    for steps in (2, 4):
        grid_spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(jnp.int32(steps),),
            in_specs=[pl.BlockSpec((1, 16), lambda i, at: (at[i], 0)), pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec((1, 16), lambda i, at: (i, 0)),
        )
        call = pl.pallas_call(
            kernel, ShapeDtypeStruct((4, 16), x.dtype), grid_spec=grid_spec, input_output_aliases={2: 0}, interpret=True
        )
        results.append(call(at, x, np.zeros((4, 16), np.float32)))
    return results
