"""Grids whose parallel axes several cores of a TPU share, under Pallas' TPU interpreter.

A case is right; a kernel `racy_...` is not, and both sides say so.
"""

import numpy as np
from jax import ShapeDtypeStruct
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def on_cores(cores, semantics, **params):
    return {
        "interpret": pltpu.InterpretParams(num_cores_or_threads=cores, **params),
        "compiler_params": pltpu.CompilerParams(dimension_semantics=semantics),
    }


def count_steps(count_ref, x_ref, o_ref, scratch):
    count = count_ref[0]
    count_ref[0] = count + 1
    scratch[...] = x_ref[...] + count
    o_ref[...] = scratch[...]


def numbered(cores, seed, x):
    """The number of each step on its core, which the shares and the order of the points give."""
    return pl.pallas_call(
        count_steps,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(5, 2),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec((8, 128), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((8, 128), lambda i, j: (i, j)),
        scratch_shapes=[pltpu.VMEM((8, 128), np.int32)],
        **on_cores(cores, ("parallel", "arbitrary"), random_seed=seed, detect_races=True),
    )(np.zeros((1,), np.int32), x)[::8, ::128]


def case_shares_of_cores(rng):
    x = np.zeros((40, 256), np.int32)
    return [numbered(cores, 12345, x) for cores in (1, 2, 3, 5, 7)]


def case_orders_of_parallel_axes(rng):
    x = np.zeros((40, 256), np.int32)
    return [numbered(2, seed, x) for seed in (None, 0, 1, 2)]


def case_two_parallel_axes(rng):
    x = np.zeros((40, 256), np.int32)
    call = pl.pallas_call(
        count_steps,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(5, 2),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec((8, 128), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((8, 128), lambda i, j: (i, j)),
        scratch_shapes=[pltpu.VMEM((8, 128), np.int32)],
        **on_cores(4, ("parallel", "parallel")),
    )
    return call(np.zeros((1,), np.int32), x)[::8, ::128]


def case_a_product_on_two_cores(rng):
    def kernel(x_ref, y_ref, o_ref, total):
        @pl.when(pl.program_id(1) == 0)
        def _():
            total[...] = x_ref[...] * 0

        total[...] += x_ref[...] * y_ref[...]

        @pl.when(pl.program_id(1) == 2)
        def _():
            o_ref[...] = total[...]

    x, y = (rng.standard_normal((32, 384)).astype(np.float32) for _ in range(2))
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct((32, 128), np.float32),
        grid=(4, 3),
        in_specs=[pl.BlockSpec((8, 128), lambda i, k: (i, k))] * 2,
        out_specs=pl.BlockSpec((8, 128), lambda i, k: (i, 0)),
        scratch_shapes=[pltpu.VMEM((8, 128), np.float32)],
        **on_cores(2, ("parallel", "arbitrary"), detect_races=True),
    )(x, y)


def case_prefetched_scalars_and_copies(rng):
    def kernel(rows_ref, x_ref, o_ref, held, arrived):
        copy = pltpu.make_async_copy(x_ref.at[rows_ref[pl.program_id(0)]], held, arrived)
        copy.start()
        copy.wait()
        o_ref[0] = held[...]

    x = rng.standard_normal((4, 8, 128)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(4,),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec((1, 8, 128), lambda i, rows: (i, 0, 0)),
            scratch_shapes=[pltpu.VMEM((8, 128), np.float32), pltpu.SemaphoreType.DMA],
        ),
        **on_cores(2, ("parallel",), detect_races=True),
    )(np.array([2, 0, 3, 1], np.int32), x)


def case_aliased_blocks_on_two_cores(rng):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + pl.program_id(0)

    x = rng.integers(-9, 9, (32, 128)).astype(np.int32)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(4,),
        in_specs=[pl.BlockSpec((8, 128), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
        input_output_aliases={0: 0},
        **on_cores(2, ("parallel",), detect_races=True),
    )(x)


def row_of_a_shared_block(x_ref, o_ref):
    o_ref[pl.program_id(0)] = x_ref[0]


def doubled(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


def copied_to_main_memory(x_ref, o_ref):
    pltpu.sync_copy(x_ref, o_ref.at[pl.ds(pl.program_id(0) // 2, 1)])


ROW = pl.BlockSpec((1, 8, 128), lambda i: (i, 0, 0))
WHOLE = pl.BlockSpec((2, 8, 128), lambda i: (0, 0, 0))
SWAPPED = pl.BlockSpec((1, 8, 128), lambda i: (1 - i, 0, 0))
MAIN = pl.BlockSpec(memory_space=pl.ANY)


def racy(kernel, in_spec, out_spec, aliases, params):
    x = np.ones((2, 8, 128), np.float32)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(2,),
        in_specs=[in_spec],
        out_specs=out_spec,
        input_output_aliases=aliases,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=params,
    )(x)


def racy_block_of_two_cores(params):
    return racy(row_of_a_shared_block, ROW, WHOLE, {}, params)


def racy_whole_output(params):
    return racy(doubled, pl.BlockSpec(memory_space=pltpu.VMEM), pl.BlockSpec(), {}, params)


def racy_aliased_blocks(params):
    return racy(doubled, SWAPPED, ROW, {0: 0}, params)


def racy_main_memory(params):
    return racy(copied_to_main_memory, ROW, MAIN, {}, params)
