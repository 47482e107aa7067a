"""References that kernels and staged functions make for themselves, or are given."""

import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct, empty_ref, freeze, jit, lax, new_ref
from jax.experimental import pallas as pl


def case_memory_made_inside_a_kernel(rng):
    def kernel(x_ref, o_ref):
        total = new_ref(jnp.zeros((4,), jnp.float32))

        def body(i, _):
            row = empty_ref(ShapeDtypeStruct((4,), jnp.float32))
            row[...] = x_ref[i] * 2
            total[...] += row[...]

        lax.fori_loop(0, 3, body, None)
        o_ref[...] = total[...]

    x = rng.normal(size=(9, 4)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct((12,), jnp.float32),
        grid=(3,),
        in_specs=[pl.BlockSpec((3, 4), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((4,), lambda i: (i,)),
        interpret=True,
    )(x)


def case_references_in_a_staged_function(rng):
    @jit
    def function(x):
        ref = new_ref(x)
        ref[1] = ref[2] + x[0]

        def body(i, _):
            ref[0] = ref[0] + ref[i]

        lax.fori_loop(1, 4, body, None)
        return freeze(ref)

    return function(rng.integers(0, 9, (4, 3)).astype(np.int32))


def case_a_staged_function_writes_to_references_of_its_caller(rng):
    given, around = new_ref(jnp.arange(4, dtype=jnp.int32)), new_ref(np.ones((2,), np.float32))

    @jit
    def function(ref, x):
        ref[1:3] = ref[0:2] + x
        around[1] = around[0] * 3
        return ref[1]

    return function(given, np.int32(5)), function(given, np.int32(7)), freeze(given), freeze(around)
