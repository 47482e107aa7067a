"""The grouped matrix products that ship with Pallas, against ours."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm, tgmm

TILING = (8, 16, 16)


def operands(rng, m=32, k=32, n=32, groups=4, dtype=np.float32):
    return rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(groups, k, n)).astype(dtype)


def sizes(*values):
    return np.array(values, np.int32)


def case_gmm(rng):
    lhs, rhs = operands(rng)
    return gmm(lhs, rhs, sizes(8, 16, 0, 8), np.float32, TILING, interpret=True)


def case_gmm_of_groups_that_share_tiles(rng):
    lhs, rhs = operands(rng)
    return [
        gmm(lhs, rhs, sizes(*each), jnp.float32, TILING, interpret=True)
        for each in [(3, 10, 12, 7), (0, 0, 31, 1), (32, 0, 0, 0), (0, 0, 0, 32), (1, 1, 1, 29)]
    ]


def case_gmm_of_one_group(rng):
    lhs, rhs = operands(rng, groups=1)
    return gmm(lhs, rhs, sizes(32), jnp.float32, TILING, interpret=True)


def case_gmm_of_fewer_rows(rng):
    """The rows past the last group are cut off: JAX leaves them uninitialised."""
    lhs, rhs = operands(rng)
    return gmm(lhs, rhs, sizes(5, 0, 9, 4), jnp.float32, TILING, interpret=True)[:18]


def case_gmm_of_transposed_right_side(rng):
    lhs, rhs = operands(rng, k=32, n=16)
    return gmm(
        lhs,
        np.ascontiguousarray(rhs.swapaxes(1, 2)),
        sizes(3, 10, 12, 7),
        jnp.float32,
        TILING,
        transpose_rhs=True,
        interpret=True,
    )


def case_gmm_of_sizes_the_tiles_do_not_divide(rng):
    lhs, rhs = operands(rng, k=20, n=23)
    return gmm(lhs, rhs, sizes(3, 10, 12, 7), jnp.float32, TILING, interpret=True)


def case_gmm_of_bfloat16(rng):
    lhs, rhs = operands(rng, dtype=ml_dtypes.bfloat16)
    wide = gmm(lhs, rhs, sizes(3, 10, 12, 7), jnp.float32, TILING, interpret=True)
    return wide, gmm(lhs, rhs, sizes(3, 10, 12, 7), jnp.bfloat16, TILING, interpret=True)


def case_gmm_of_some_groups(rng):
    """Two of five groups are here; the rows of the others come out zero."""
    lhs, rhs = operands(rng, groups=2)
    return gmm(
        lhs, rhs, sizes(6, 7, 8, 9, 2), jnp.float32, TILING, group_offset=jnp.array(1, jnp.int32), interpret=True
    )


def case_gmm_onto_an_existing_result(rng):
    lhs, rhs = operands(rng, groups=2)
    existing = rng.normal(size=(32, 32)).astype(np.float32)
    return gmm(
        lhs,
        rhs,
        sizes(6, 7, 8, 9, 2),
        jnp.float32,
        TILING,
        group_offset=jnp.array(2, jnp.int32),
        existing_out=jnp.array(existing),
        interpret=True,
    )


def case_gmm_with_a_look_up_of_tilings(rng):
    lhs, rhs = operands(rng)
    table = {(32, 32, 32): (16, 32, 16)}
    return gmm(lhs, rhs, sizes(3, 10, 12, 7), jnp.float32, lambda m, k, n: table.get((m, k, n)), interpret=True)


def case_tgmm(rng):
    lhs, rhs = rng.normal(size=(32, 32)).astype(np.float32), rng.normal(size=(32, 16)).astype(np.float32)
    return [
        tgmm(lhs, rhs, sizes(*each), jnp.float32, TILING, interpret=True)
        for each in [(8, 8, 8, 8), (3, 0, 22, 7), (32, 0, 0, 0), (5, 0, 9, 4)]
    ]


def case_tgmm_of_bfloat16_and_uneven_sizes(rng):
    lhs, rhs = (
        rng.normal(size=(20, 32)).astype(ml_dtypes.bfloat16),
        rng.normal(size=(32, 23)).astype(ml_dtypes.bfloat16),
    )
    return tgmm(lhs, rhs, sizes(3, 10, 12, 7), jnp.float32, TILING, interpret=True)


def case_tgmm_of_some_groups(rng):
    lhs, rhs = rng.normal(size=(16, 32)).astype(np.float32), rng.normal(size=(32, 16)).astype(np.float32)
    return tgmm(
        lhs,
        rhs,
        sizes(6, 7, 8, 9, 2),
        jnp.float32,
        TILING,
        group_offset=jnp.array(1, jnp.int32),
        num_actual_groups=2,
        interpret=True,
    )
