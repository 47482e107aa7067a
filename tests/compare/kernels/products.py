"""Matrix products: dot, matmul, dot_general, einsum."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import ShapeDtypeStruct, lax
from jax.experimental import pallas as pl


def outputs(functions, *arrays, shapes, dtype=np.float32):
    """Each function of the arrays' values, as an output of its own of the shape that stands beside it."""

    def kernel(*refs):
        values = [ref[...] for ref in refs[: len(arrays)]]
        for function, out_ref in zip(functions, refs[len(arrays) :]):
            out_ref[...] = function(*values)

    out_shape = [ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True)(*arrays)


def case_matrix_product_spellings(rng):
    x, y = rng.normal(size=(16, 24)).astype(np.float32), rng.normal(size=(24, 8)).astype(np.float32)
    functions = [
        lambda x, y: x @ y,
        jnp.dot,
        jnp.matmul,
        lax.dot,
        lambda x, y: x.dot(y),
        lambda x, y: jnp.tensordot(x, y, 1),
        lambda x, y: jnp.dot(x, y, preferred_element_type=jnp.float32),
        lambda x, y: jnp.dot(x, y, precision=lax.Precision.HIGHEST),
    ]
    return outputs(functions, x, y, shapes=[(16, 8)] * len(functions))


def case_products_of_vectors(rng):
    x, v, w = (rng.normal(size=shape).astype(np.float32) for shape in [(8, 16), (16,), (8,)])
    functions = [
        lambda x, v, w: x @ v,
        lambda x, v, w: w @ x,
        lambda x, v, w: jnp.dot(v, v),
        lambda x, v, w: jnp.vdot(w, w),
        lambda x, v, w: jnp.outer(w, v),
        lambda x, v, w: jnp.inner(x, v),
    ]
    return outputs(functions, x, v, w, shapes=[(8,), (16,), (), (), (8, 16), (8,)])


def case_batched_products(rng):
    x, y = rng.normal(size=(3, 2, 8, 16)).astype(np.float32), rng.normal(size=(2, 16, 4)).astype(np.float32)
    functions = [lambda x, y: x @ y, lambda x, y: jnp.matmul(x[0], y), lambda x, y: lax.batch_matmul(x[1], y)]
    return outputs(functions, x, y, shapes=[(3, 2, 8, 4), (2, 8, 4), (2, 8, 4)])


def case_dot_general_contractions(rng):
    x, y = rng.normal(size=(8, 16, 4)).astype(np.float32), rng.normal(size=(4, 8, 16)).astype(np.float32)
    functions = [
        lambda x, y: lax.dot_general(x, y, (((2,), (0,)), ((), ()))),
        lambda x, y: lax.dot_general(x, y, (((0,), (1,)), ((1,), (2,)))),
        lambda x, y: lax.dot_general(x, y, (((0, 1), (1, 2)), ((), ()))),
        lambda x, y: lax.dot_general(x, y, (((1,), (2,)), ((2, 0), (0, 1)))),
        lambda x, y: lax.dot_general(x[0], y[0], (((), ()), ((), ()))),
    ]
    return outputs(functions, x, y, shapes=[(8, 16, 8, 16), (16, 4, 4), (4, 4), (4, 8), (16, 4, 8, 16)])


def case_products_of_transposed_operands(rng):
    x, y = rng.normal(size=(24, 16)).astype(np.float32), rng.normal(size=(8, 24)).astype(np.float32)
    functions = [
        lambda x, y: x.T @ y.T,
        lambda x, y: lax.dot_general(x, y, (((0,), (1,)), ((), ()))),
        lambda x, y: jnp.dot(x.T, y.T),
    ]
    return outputs(functions, x, y, shapes=[(16, 8)] * 3)


def case_half_precision_products_accumulate_wide(rng):
    results = []
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x, y = rng.normal(size=(16, 64)).astype(dtype), rng.normal(size=(64, 8)).astype(dtype)
        wide = [
            lambda x, y: jnp.dot(x, y, preferred_element_type=jnp.float32),
            lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32),
            lambda x, y: jnp.matmul(x, y, preferred_element_type=jnp.float32),
        ]
        results.append(outputs(wide, x, y, shapes=[(16, 8)] * 3))
        results.append(outputs([lambda x, y: x @ y], x, y, shapes=[(16, 8)], dtype=dtype))
    return results


def case_integer_products(rng):
    x, y = rng.integers(-128, 128, (16, 32)).astype(np.int8), rng.integers(-128, 128, (32, 8)).astype(np.int8)
    wide = [
        lambda x, y: jnp.dot(x, y, preferred_element_type=jnp.int32),
        lambda x, y: x.astype(jnp.int32) @ y.astype(jnp.int32),
    ]
    return outputs(wide, x, y, shapes=[(16, 8)] * 2, dtype=np.int32), outputs(
        [jnp.matmul], x, y, shapes=[(16, 8)], dtype=np.int8
    )


def case_products_of_mixed_dtypes(rng):
    x = rng.normal(size=(16, 32)).astype(ml_dtypes.bfloat16)
    y = rng.normal(size=(32, 8)).astype(np.float32)
    i = rng.integers(-8, 8, (32, 8)).astype(np.int8)
    return (
        outputs([lambda x, y: x @ y, jnp.dot], x, y, shapes=[(16, 8)] * 2),
        outputs([lambda x, i: x @ i], x, i, shapes=[(16, 8)], dtype=ml_dtypes.bfloat16),
        outputs(
            [lambda x, i: jnp.dot(x, i.astype(x.dtype), preferred_element_type=jnp.float32)], x, i, shapes=[(16, 8)]
        ),
    )


def case_eight_bit_float_products(rng):
    x, y = (rng.normal(size=shape).astype(ml_dtypes.float8_e4m3fn) for shape in [(16, 32), (32, 8)])
    functions = [
        lambda x, y: jnp.dot(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), preferred_element_type=jnp.float32),
        lambda x, y: x.astype(jnp.float32) @ y.astype(jnp.float32),
    ]
    return outputs(functions, x, y, shapes=[(16, 8)] * 2)


def case_einsum(rng):
    x, y = rng.normal(size=(3, 8, 16)).astype(np.float32), rng.normal(size=(3, 16, 4)).astype(np.float32)
    functions = [
        lambda x, y: jnp.einsum("bij,bjk->bik", x, y),
        lambda x, y: jnp.einsum("bij,bjk->kib", x, y),
        lambda x, y: jnp.einsum("bij,bjk->ik", x, y),
        lambda x, y: jnp.einsum("ij,jk", x[0], y[0]),
        lambda x, y: jnp.einsum("...ij,...jk->...ik", x, y),
        lambda x, y: jnp.einsum("bij->bji", x),
        lambda x, y: jnp.einsum("bij->b", x),
        lambda x, y: jnp.einsum("i,j->ij", x[0, :, 0], y[0, 0]),
        lambda x, y: jnp.einsum("bij,bij->bi", x, x),
    ]
    shapes = [(3, 8, 4), (4, 8, 3), (8, 4), (8, 4), (3, 8, 4), (3, 16, 8), (3,), (8, 4), (3, 8)]
    return outputs(functions, x, y, shapes=shapes)


def case_products_along_the_last_axes(rng):
    x, y = rng.normal(size=(3, 8, 16)).astype(np.float32), rng.normal(size=(3, 16)).astype(np.float32)
    functions = [
        lambda x, y: jnp.vecdot(x, x[:1]),
        lambda x, y: jnp.vecdot(x, x, axis=1),
        jnp.matvec,
        lambda x, y: jnp.vecmat(x[:, :, 0], x),
    ]
    return outputs(functions, x, y, shapes=[(3, 8), (3, 16), (3, 8), (3, 16)])


def case_a_preferred_dtype_of_floats_that_promote_to_none(rng):
    """bfloat16 and the 8-bit floats: multiplied as they are."""
    x = rng.normal(size=(8, 16)).astype(ml_dtypes.bfloat16)
    kinds = (ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
    found = []

    def kernel(x_ref, y_ref, dot_ref, sum_ref):
        dot_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)
        sum_ref[...] = jnp.einsum("mk,kn->nm", x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    for kind in kinds:
        y = rng.normal(size=(16, 4)).astype(kind)
        shapes = [ShapeDtypeStruct(shape, np.float32) for shape in ((8, 4), (4, 8))]
        found += pl.pallas_call(kernel, out_shape=shapes, interpret=True)(x, y)
    return found
