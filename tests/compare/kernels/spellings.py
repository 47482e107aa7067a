"""Spellings of kernels in the wild: index maps, prefetched pytrees, narrow dtypes, functions of traced numbers."""

import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def case_index_maps_that_read_the_size_of_the_grid(rng):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + pl.num_programs(0)

    x = rng.normal(size=(12, 8)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, jnp.float32),
        grid=(3,),
        in_specs=[pl.BlockSpec((4, 8), lambda i: (pl.num_programs(0) - 1 - i, 0))],
        out_specs=pl.BlockSpec((4, 8), lambda i: (i, 0)),
        interpret=True,
    )(x)


def case_pytrees_of_prefetched_scalars(rng):
    def kernel(scalars, x_ref, o_ref):
        o_ref[...] = x_ref[...] + scalars["shift"][0]

    x = rng.normal(size=(12, 8)).astype(np.float32)
    scalars = {"order": np.int32([2, 0, 1]), "shift": np.int32([7])}
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, jnp.float32),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(3,),
            in_specs=[pl.BlockSpec((4, 8), lambda i, scalars: (scalars["order"][i], 0))],
            out_specs=pl.BlockSpec((4, 8), lambda i, scalars: (i, 0)),
        ),
        interpret=True,
    )(scalars, x)


def case_weights_of_four_bits(rng):
    def kernel(x_ref, w_ref, o_ref, packed_ref):
        weights = w_ref[...].astype(jnp.float32)
        o_ref[...] = jnp.dot(x_ref[...], weights)
        packed_ref[...] = (weights + 1).astype(jnp.int4)

    x = rng.normal(size=(8, 4)).astype(np.float32)
    w = rng.integers(-8, 8, (4, 8)).astype(np.int8)
    out, packed = pl.pallas_call(
        kernel,
        (ShapeDtypeStruct((8, 8), jnp.float32), ShapeDtypeStruct((4, 8), jnp.int4)),
        interpret=True,
    )(x, lax.convert_element_type(w, jnp.int4))
    return out, lax.convert_element_type(packed, jnp.int32)


def case_functions_of_traced_numbers(rng):
    def kernel(n_ref, x_ref, rolled_ref, repeated_ref):
        step = pl.program_id(0)
        rolled_ref[...] = jnp.roll(x_ref[...], n_ref[step], axis=1)
        repeated_ref[...] = jnp.repeat(x_ref[...], n_ref[...], axis=1, total_repeat_length=6)

    x = rng.normal(size=(6, 3)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        (ShapeDtypeStruct((6, 3), jnp.float32), ShapeDtypeStruct((6, 6), jnp.float32)),
        grid=(3,),
        in_specs=[pl.BlockSpec((3,), lambda i: (0,)), pl.BlockSpec((2, 3), lambda i: (i, 0))],
        out_specs=(pl.BlockSpec((2, 3), lambda i: (i, 0)), pl.BlockSpec((2, 6), lambda i: (i, 0))),
        interpret=True,
    )(np.int32([1, 3, 0]), x)


def case_ragged_products(rng):
    lhs, rhs = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(3, 4, 5)).astype(np.float32)
    counts, edges = jnp.histogram(lhs, bins=5)
    return lax.ragged_dot(lhs, rhs, np.int32([2, 0, 6])), counts, edges
