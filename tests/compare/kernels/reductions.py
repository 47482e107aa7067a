"""Reductions, running reductions and sorting."""

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


def case_sums_over_axes(rng):
    x = rng.normal(0.5, 1, (4, 6, 8)).astype(np.float32)
    functions = [
        jnp.sum,
        lambda x: x.sum(axis=0),
        lambda x: jnp.sum(x, axis=-1),
        lambda x: jnp.sum(x, axis=(0, 2)),
        lambda x: jnp.sum(x, axis=1, keepdims=True),
        lambda x: x.sum(axis=(0, 1, 2), keepdims=True),
        lambda x: jnp.sum(x, axis=()),
        lambda x: jnp.sum(x, axis=2, where=x > 0),
    ]
    return outputs(functions, x, shapes=[(), (6, 8), (4, 6), (6,), (4, 1, 8), (1, 1, 1), (4, 6, 8), (4, 6)])


def case_extremes_over_axes(rng):
    x = rng.normal(size=(4, 6, 8)).astype(np.float32)
    x[1, 2, 3], x[2] = np.nan, -np.inf
    functions = [
        lambda x: jnp.max(x, axis=0),
        lambda x: jnp.min(x, axis=(1, 2)),
        lambda x: x.max(axis=-1, keepdims=True),
        lambda x: x.min(),
        lambda x: jnp.max(x[0]),
        lambda x: jnp.max(x, axis=2, initial=0.5),
    ]
    return outputs(functions, x, shapes=[(6, 8), (4,), (4, 6, 1), (), (), (4, 6)])


def case_products_and_means(rng):
    x = rng.uniform(0.5, 2, (4, 6, 8)).astype(np.float32)
    functions = [
        lambda x: jnp.prod(x, axis=1),
        lambda x: x.prod(axis=(0, 2)),
        jnp.mean,
        lambda x: x.mean(axis=-1, keepdims=True),
        lambda x: jnp.var(x, axis=2),
        lambda x: jnp.std(x, axis=0),
    ]
    return outputs(functions, x, shapes=[(4, 8), (6,), (), (4, 6, 1), (4, 6), (6, 8)])


def case_any_and_all(rng):
    p = rng.random((4, 6, 8)) < 0.8
    x = rng.integers(0, 2, (4, 6, 8)).astype(np.int32)
    functions = [
        lambda p, x: jnp.any(p, axis=0),
        lambda p, x: jnp.all(p, axis=(1, 2)),
        lambda p, x: jnp.all(p),
        lambda p, x: (x > 0).any(axis=-1, keepdims=True),
        lambda p, x: jnp.any(x, axis=1),
        lambda p, x: x.all(axis=0),
    ]
    return outputs(functions, p, x, shapes=[(6, 8), (4,), (), (4, 6, 1), (4, 8), (6, 8)], dtype=np.bool_)


def case_positions_of_extremes(rng):
    x = rng.integers(-5, 5, (8, 16)).astype(np.float32)
    x[3, 4:6] = np.nan
    functions = [
        lambda x: jnp.argmax(x, axis=1),
        lambda x: jnp.argmin(x, axis=0),
        lambda x: x.argmax(axis=-1),
        jnp.argmax,
        lambda x: jnp.argmin(x, axis=1, keepdims=True),
        lambda x: lax.argmax(x, 0, jnp.int32),
        lambda x: lax.argmin(x, 1, jnp.int32),
    ]
    return outputs(functions, x, shapes=[(8,), (16,), (8,), (), (8, 1), (16,), (8,)], dtype=np.int32)


def case_integer_reductions(rng):
    x = rng.integers(-(2**31), 2**31, (4, 16)).astype(np.int32)
    small = rng.integers(-128, 128, (4, 16)).astype(np.int8)
    functions = [
        lambda x: x.sum(axis=1),
        lambda x: x.max(axis=1),
        lambda x: x.min(axis=1),
        lambda x: jnp.prod(x, axis=1),
    ]
    of_small = [lambda x: jnp.sum(x, axis=1), lambda x: jnp.prod(x, axis=1, dtype=jnp.int32)]
    narrow = [lambda x: jnp.max(x, axis=1), lambda x: jnp.sum(x, axis=1, dtype=jnp.int8)]
    return (
        outputs(functions, x, shapes=[(4,)] * 4, dtype=np.int32),
        outputs(of_small, small, shapes=[(4,)] * 2, dtype=np.int32),
        outputs(narrow, small, shapes=[(4,)] * 2, dtype=np.int8),
        outputs(
            [lambda x: (x > 0).sum(axis=1), lambda x: jnp.count_nonzero(x > 5, axis=1)],
            small,
            shapes=[(4,)] * 2,
            dtype=np.int32,
        ),
    )


def case_half_precision_reductions(rng):
    functions = [lambda x: x.sum(axis=1), lambda x: x.max(axis=1), lambda x: x.mean(axis=1), jnp.sum]
    shapes = [(8,), (8,), (8,), ()]
    x = rng.uniform(0, 1, (8, 64))
    wide = outputs([lambda x: jnp.sum(x, axis=0, dtype=jnp.float32)], x.astype(np.float16), shapes=[(64,)])
    halves = [
        outputs(functions, x.astype(dtype), shapes=shapes, dtype=dtype) for dtype in (np.float16, ml_dtypes.bfloat16)
    ]
    return wide, halves


def case_lax_reductions(rng):
    x = rng.normal(size=(4, 6, 8)).astype(np.float32)
    i = rng.integers(0, 256, (4, 16)).astype(np.int32)
    floats = [
        lambda x: lax.reduce_max(x, (1,)),
        lambda x: lax.reduce_min(x, (0, 2)),
        lambda x: lax.reduce_sum(x, (2,)),
    ]
    bits = [lambda i: lax.reduce_or(i, (1,)), lambda i: lax.reduce_and(i, (1,)), lambda i: lax.reduce_xor(i, (1,))]
    return (
        outputs(floats, x, shapes=[(4, 8), (6,), (4, 6)]),
        outputs(bits, i, shapes=[(4,)] * 3, dtype=np.int32),
    )


def case_running_sums(rng):
    x = rng.normal(size=(4, 6, 8)).astype(np.float32)
    functions = [
        lambda x: jnp.cumsum(x, axis=0),
        lambda x: jnp.cumsum(x, axis=-1),
        lambda x: lax.cumsum(x, axis=1),
        lambda x: lax.cumsum(x, axis=2, reverse=True),
        lambda x: x.cumsum(axis=1),
        lambda x: jnp.cumsum(x).reshape(4, 6, 8),
    ]
    return outputs(functions, x, shapes=[(4, 6, 8)] * len(functions))


def case_running_products_and_extremes(rng):
    x = rng.uniform(-1.5, 1.5, (6, 8)).astype(np.float32)
    functions = [
        lambda x: jnp.cumprod(x, axis=1),
        lambda x: lax.cumprod(x, axis=0),
        lambda x: lax.cummax(x, axis=1),
        lambda x: lax.cummin(x, axis=0),
        lambda x: lax.cummax(x, axis=0, reverse=True),
        lambda x: lax.cumlogsumexp(x, axis=1),
    ]
    return outputs(functions, x, shapes=[(6, 8)] * len(functions))


def case_running_sums_of_integers(rng):
    x = rng.integers(-(2**31), 2**31, (4, 16)).astype(np.int32)
    p = rng.integers(0, 2, (4, 16)).astype(np.bool_)
    functions = [
        lambda x, p: jnp.cumsum(x, axis=1),
        lambda x, p: jnp.cumsum(p, axis=1),
        lambda x, p: lax.cummax(x, axis=1),
        lambda x, p: jnp.cumsum(p.astype(jnp.int32), axis=0) - 1,
    ]
    return outputs(functions, x, p, shapes=[(4, 16)] * len(functions), dtype=np.int32)


def case_sort(rng):
    x = rng.normal(size=(6, 16)).astype(np.float32)
    x[0, 3], x[1, :4] = np.nan, (0.0, -0.0, np.inf, -np.inf)
    functions = [
        jnp.sort,
        lambda x: jnp.sort(x, axis=0),
        lambda x: lax.sort(x, dimension=1),
        lambda x: -jnp.sort(-x[2:], axis=1),
        lambda x: jnp.sort(x[2:], axis=1, descending=True),
    ]
    return outputs(functions, x, shapes=[(6, 16), (6, 16), (6, 16), (4, 16), (4, 16)])


def case_sort_integers_and_positions(rng):
    x = rng.integers(-4, 4, (6, 16)).astype(np.int32)
    functions = [
        lambda x: jnp.sort(x, axis=1),
        lambda x: jnp.argsort(x, axis=1),
        lambda x: jnp.argsort(x, axis=0, stable=True),
    ]
    return outputs(functions, x, shapes=[(6, 16)] * 3, dtype=np.int32)


def case_sort_several_arrays_by_key(rng):
    def kernel(key_ref, value_ref, sorted_ref, permuted_ref):
        sorted_ref[...], permuted_ref[...] = lax.sort((key_ref[...], value_ref[...]), dimension=1, num_keys=1)

    key = rng.integers(0, 4, (6, 16)).astype(np.int32)
    value = rng.normal(size=(6, 16)).astype(np.float32)
    out_shape = [ShapeDtypeStruct(key.shape, key.dtype), ShapeDtypeStruct(value.shape, value.dtype)]
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True)(key, value)


def case_top_k(rng):
    def kernel(x_ref, values_ref, positions_ref):
        values_ref[...], positions_ref[...] = lax.top_k(x_ref[...], 3)

    x = rng.normal(size=(6, 16)).astype(np.float32)
    out_shape = [ShapeDtypeStruct((6, 3), np.float32), ShapeDtypeStruct((6, 3), np.int32)]
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True)(x)


def case_softmax_by_hand_over_each_axis(rng):
    def softmax(x, axis):
        e = jnp.exp(x - jnp.max(x, axis=axis, keepdims=True))
        return e / jnp.sum(e, axis=axis, keepdims=True)

    x = rng.normal(size=(4, 6, 8)).astype(np.float32) * 10
    functions = [lambda x, axis=axis: softmax(x, axis) for axis in (0, 1, 2, (1, 2))]
    return outputs(functions, x, shapes=[x.shape] * 4)


def case_reductions_that_skip_nan(rng):
    x = rng.normal(1, 1, (4, 6)).astype(np.float32)
    x[rng.uniform(size=x.shape) < 0.3] = np.nan
    x[:, 0] = 2
    functions = [jnp.nansum, jnp.nanprod, jnp.nanmax, jnp.nanmin, jnp.nanmean, jnp.nanvar, jnp.nanstd]
    along = [lambda x, f=f: f(x, axis=1) for f in functions]
    return outputs(functions, x, shapes=[()] * 7), outputs(along, x, shapes=[(4,)] * 7)


def case_averages_and_ranges(rng):
    x, w = rng.normal(1, 1, (2, 4, 6)).astype(np.float32)
    w = np.abs(w)
    functions = [
        lambda x, w: jnp.average(x, axis=0),
        lambda x, w: jnp.average(x, weights=w),
        lambda x, w: jnp.average(x, axis=1, weights=w),
        lambda x, w: jnp.ptp(x, axis=1),
        lambda x, w: jnp.amax(x, axis=0) - jnp.amin(x, axis=0),
    ]
    return outputs(functions, x, w, shapes=[(6,), (), (4,), (4,), (6,)])


def case_sorting_by_several_keys(rng):
    keys, values = rng.integers(0, 4, (2, 24)).astype(np.int32)
    functions = [
        lambda k, v: jnp.lexsort((v, k)),
        lambda k, v: lax.sort_key_val(k, v)[0],
        lambda k, v: lax.sort_key_val(k, v)[1],
        lambda k, v: lax.sort((k, v), num_keys=2)[1],
    ]
    return outputs(functions, keys, values, shapes=[(24,)] * 4, dtype=np.int32)


def case_differences_and_running_reductions(rng):
    x = rng.normal(1, 1, (4, 6)).astype(np.float32)
    functions = [
        jnp.diff,
        lambda x: jnp.diff(x, 2, axis=0),
        lambda x: jnp.cumulative_sum(x, axis=1),
        lambda x: jnp.cumulative_sum(x, axis=0, include_initial=True),
        lambda x: jnp.cumulative_prod(x[0], include_initial=True),
        lambda x: jnp.nancumsum(jnp.where(x < 0.5, jnp.nan, x), axis=1),
        lambda x: jnp.nancumprod(jnp.where(x < 0.5, jnp.nan, x), axis=1),
    ]
    return outputs(functions, x, shapes=[(4, 5), (2, 6), (4, 6), (5, 6), (7,), (4, 6), (4, 6)])


def case_medians(rng):
    x = rng.normal(1, 1, (4, 5)).astype(np.float32)
    y = x.copy()
    y[1, 2] = np.nan
    functions = [
        jnp.median,
        lambda x: jnp.median(x, axis=0),
        lambda x: jnp.median(x, axis=1, keepdims=True),
        lambda x: jnp.median(x.astype(jnp.int32)),
    ]
    shapes = [(), (5,), (4, 1), ()]
    return outputs(functions, x, shapes=shapes), outputs(functions[:3], y, shapes=shapes[:3])


def case_search(rng):
    a, v = np.sort(rng.integers(0, 20, (10,))).astype(np.int32), rng.integers(-2, 23, (3, 8)).astype(np.int32)
    functions = [
        jnp.searchsorted,
        lambda a, v: jnp.searchsorted(a, v, side="right"),
        lambda a, v: jnp.searchsorted(a * 1.5, v * 1.5),
        lambda a, v: jnp.isin(v, a).astype(jnp.int32),
        lambda a, v: jnp.isin(v, a, invert=True).astype(jnp.int32),
        lambda a, v: jnp.unravel_index(v, (3, 6))[0],
        lambda a, v: jnp.unravel_index(v, (3, 6))[1],
    ]
    return outputs(functions, a, v, shapes=[(3, 8)] * 7, dtype=np.int32)
