"""Inputs that an output aliases, under Pallas' TPU interpreter: one memory.

Its other interpreter, `interpret=True`, agrees in JAX 0.12, and lets the input keep its values in JAX 0.10.
"""

import numpy as np
from jax import ShapeDtypeStruct
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def case_blocks_are_fetched_when_the_grid_comes_to_them(rng):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + (3 * pl.program_id(0) + pl.program_id(1))
        o_ref[...] = o_ref[...] * 2 + x_ref[...]

    x = rng.integers(-9, 9, (24, 384)).astype(np.int32)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(3, 3),
        in_specs=[pl.BlockSpec((8, 128), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((8, 128), lambda i, j: (j, i)),
        input_output_aliases={0: 0},
        interpret=pltpu.InterpretParams(),
    )(x)


def case_a_block_that_stays_is_fetched_once(rng):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + pl.program_id(0) + 1

    x = rng.integers(-9, 9, (24, 128)).astype(np.int32)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(3,),
        in_specs=[pl.BlockSpec((8, 128), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
        input_output_aliases={0: 0},
        interpret=pltpu.InterpretParams(),
    )(x)


def case_arrays_that_stay_in_main_memory_are_one(rng):
    def kernel(x_ref, o_ref, held):
        pltpu.sync_copy(x_ref.at[0], held)
        held[...] = held[...] * 2 + pl.program_id(0)
        pltpu.sync_copy(held, o_ref.at[0])
        pltpu.sync_copy(held, o_ref.at[1 + pl.program_id(0)])

    x = rng.integers(-9, 9, (4, 8, 128)).astype(np.int32)
    spec = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(3,),
        in_specs=[spec],
        out_specs=spec,
        scratch_shapes=[pltpu.VMEM((8, 128), np.int32)],
        input_output_aliases={0: 0},
        interpret=pltpu.InterpretParams(),
    )(x)


def _shifted(rng, read, write):
    """Ten times each block and the number of the step, at the block that `write` names."""

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 10 + pl.program_id(0)

    x = rng.integers(-9, 9, (32, 128)).astype(np.int32)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(6,),
        in_specs=[pl.BlockSpec((8, 128), read)],
        out_specs=pl.BlockSpec((8, 128), write),
        input_output_aliases={0: 0},
        interpret=pltpu.InterpretParams(),
    )(x)


def case_a_step_reads_the_block_of_the_step_before(rng):
    return _shifted(rng, lambda i: (i % 4, 0), lambda i: ((i + 1) % 4, 0))


def case_a_grid_that_comes_back_to_its_blocks(rng):
    return _shifted(rng, lambda i: (i % 3, 0), lambda i: (i % 3, 0))
