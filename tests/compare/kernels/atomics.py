"""Read-modify-write operations that other programs cannot come between, and masked access."""

import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


def case_atomic_arithmetic(rng):
    """Each operation leaves its result and returns what was there before."""

    def kernel(x_ref, y_ref, *out_refs):
        for operation, new_ref, old_ref in zip(operations, out_refs[::2], out_refs[1::2]):
            new_ref[...] = x_ref[...]
            old_ref[...] = operation(new_ref, (pl.ds(0, 8),), y_ref[...])

    operations = [plgpu.atomic_add, plgpu.atomic_max, plgpu.atomic_min]
    results = []
    for dtype in (np.float32, np.int32):
        x, y = (rng.normal(size=(2, 8)) * 10).astype(dtype)
        results.append(pl.pallas_call(kernel, [ShapeDtypeStruct((8,), dtype)] * 6, interpret=True)(x, y))
    return results


def case_atomic_counter_and_maximum(rng):
    """A work counter and a maximum over all steps of a grid, in one element each."""

    def kernel(x_ref, count_ref, largest_ref, ticket_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            count_ref[...] = jnp.zeros_like(count_ref)
            largest_ref[...] = jnp.full_like(largest_ref, -100)

        ticket_ref[...] = plgpu.atomic_add(count_ref, (pl.ds(0, 1),), jnp.full((1,), 2, jnp.int32))
        plgpu.atomic_max(largest_ref, (pl.ds(0, 1),), jnp.max(x_ref[...], axis=1))

    x = rng.integers(-50, 50, (6, 8)).astype(np.int32)
    one = pl.BlockSpec((1,), lambda i: (0,))
    return pl.pallas_call(
        kernel,
        [ShapeDtypeStruct((1,), np.int32), ShapeDtypeStruct((1,), np.int32), ShapeDtypeStruct((6,), np.int32)],
        grid=(6,),
        in_specs=[pl.BlockSpec((1, 8), lambda i: (i, 0))],
        out_specs=[one, one, pl.BlockSpec((1,), lambda i: (i,))],
        interpret=True,
    )(x)


def case_atomic_compare_and_swap(rng):
    def kernel(o_ref, old_ref):
        o_ref[...] = jnp.zeros((), jnp.int32)
        for step, (compare, value) in enumerate([(0, 5), (0, 7), (5, 9)]):
            old_ref[step] = plgpu.atomic_cas(o_ref, jnp.int32(compare), jnp.int32(value))

    return pl.pallas_call(kernel, [ShapeDtypeStruct((), np.int32), ShapeDtypeStruct((3,), np.int32)], interpret=True)()


def case_masked_load_and_store(rng):
    """A ragged tail: what the mask leaves out is neither read nor written."""

    def kernel(x_ref, o_ref):
        at = pl.program_id(0) * 4 + jnp.arange(4)
        mask = at < 10
        x = plgpu.load(x_ref.at[pl.ds(pl.program_id(0) * 4, 4)], mask=mask, other=-1.0, eviction_policy="evict_last")
        plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * 4, 4)], x * 2, mask=mask | (at == 11))

    x = rng.normal(size=(12,)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(3,),
        input_output_aliases={0: 0},
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        interpret=True,
    )(x)


def case_masked_access_past_the_end(rng):
    """A row in a block of the next power of two: the mask keeps loads and stores inside the row."""

    def softmax(x_ref, o_ref):
        mask = jnp.arange(128) < x_ref.shape[0]
        row = plgpu.load(x_ref.at[pl.ds(0, 128)], mask=mask, other=-float("inf"))
        powers = jnp.exp(row - jnp.max(row))
        plgpu.store(o_ref.at[pl.ds(0, 128)], powers / jnp.sum(powers), mask=mask)

    x = rng.normal(size=100).astype(np.float32)
    return pl.pallas_call(softmax, ShapeDtypeStruct((100,), np.float32), interpret=True)(x)
