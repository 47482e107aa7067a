"""Mathematical functions, their special values, and what they are at half precision."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import ShapeDtypeStruct, lax
from jax.experimental import pallas as pl

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 2.5, 3.5, -2.5], np.float32)


def apply(functions, dtype, *arrays):
    """Each function of the arrays' values, as an output of its own."""

    def kernel(*refs):
        values = [ref[...] for ref in refs[: len(arrays)]]
        for function, out_ref in zip(functions, refs[len(arrays) :]):
            out_ref[...] = function(*values)

    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    return pl.pallas_call(kernel, out_shape=[ShapeDtypeStruct(shape, dtype)] * len(functions), interpret=True)(*arrays)


def case_exponentials(rng):
    x = rng.normal(size=(16, 32)).astype(np.float32) * 4
    return apply([jnp.exp, jnp.exp2, jnp.expm1, lax.exp, lax.exp2, lax.expm1], np.float32, x)


def case_logarithms(rng):
    x = rng.uniform(1e-3, 100, (16, 32)).astype(np.float32)
    return apply([jnp.log, jnp.log2, jnp.log1p, lax.log, lax.log1p, jnp.log10], np.float32, x)


def case_roots(rng):
    x = rng.uniform(1e-3, 100, (16, 32)).astype(np.float32)
    functions = [jnp.sqrt, lax.rsqrt, lax.sqrt, jnp.cbrt, lambda x: 1.0 / jnp.sqrt(x), jnp.reciprocal]
    return apply(functions, np.float32, x)


def case_trigonometry(rng):
    x = rng.normal(size=(16, 32)).astype(np.float32) * 3
    return apply([jnp.sin, jnp.cos, jnp.tan, lax.sin, lax.cos, lax.tan], np.float32, x)


def case_inverse_trigonometry(rng):
    x, y = rng.uniform(-0.99, 0.99, (2, 16, 32)).astype(np.float32)
    functions = [
        lambda x, y: jnp.arcsin(x),
        lambda x, y: jnp.arccos(x),
        lambda x, y: jnp.arctan(x),
        jnp.arctan2,
        lax.atan2,
        jnp.hypot,
    ]
    return apply(functions, np.float32, x, y)


def case_hyperbolic_functions(rng):
    x = rng.normal(size=(16, 32)).astype(np.float32)
    return apply([jnp.tanh, lax.tanh, jnp.sinh, jnp.cosh, jnp.arcsinh, lambda x: jnp.arctanh(x / 8)], np.float32, x)


def case_error_functions(rng):
    x = rng.normal(size=(16, 32)).astype(np.float32)
    p = rng.uniform(-0.99, 0.99, (16, 32)).astype(np.float32)
    return apply([lax.erf, lax.erfc], np.float32, x), apply([lax.erf_inv], np.float32, p)


def case_logistic_and_friends(rng):
    x = rng.normal(size=(16, 32)).astype(np.float32) * 3
    functions = [
        lax.logistic,
        lambda x: x * lax.logistic(x),
        lambda x: jnp.maximum(x, 0.0),
        lambda x: jnp.logaddexp(x, 0.0),
        lambda x: 0.5 * x * (1 + lax.erf(x / np.sqrt(2.0).astype(np.float32))),
        lambda x: 0.5 * x * (1 + jnp.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    ]
    return apply(functions, np.float32, x)


def case_rounding(rng):
    x = (rng.normal(size=(8, 12)) * 5).astype(np.float32)
    x[0], x[1] = SPECIAL, SPECIAL * 3
    functions = [
        jnp.floor,
        jnp.ceil,
        jnp.round,
        jnp.trunc,
        jnp.rint,
        lax.floor,
        lax.ceil,
        lax.round,
        lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    ]
    return apply(functions, np.float32, x)


def case_special_values_of_functions(rng):
    functions = [
        jnp.exp,
        jnp.log,
        jnp.log1p,
        jnp.expm1,
        jnp.sqrt,
        lax.rsqrt,
        jnp.tanh,
        lax.logistic,
        lax.erf,
        jnp.abs,
        jnp.sin,
        lambda x: 1.0 / x,
        lambda x: x - x,
        lambda x: x / x,
        lambda x: x**0.0,
        lambda x: 0.0 * x,
    ]
    return apply(functions, np.float32, SPECIAL)


def case_classifying_numbers(rng):
    return apply([jnp.isnan, jnp.isinf, jnp.isfinite, lax.is_finite, jnp.signbit], np.bool_, SPECIAL)


def case_replacing_nan(rng):
    functions = [jnp.nan_to_num, lambda x: jnp.where(jnp.isnan(x), 0, x), lambda x: jnp.copysign(x, -1.0)]
    return apply(functions, np.float32, SPECIAL)


def case_functions_of_float16(rng):
    x = rng.uniform(0.05, 4, (16, 32)).astype(np.float16)
    functions = [jnp.exp, jnp.log, jnp.sqrt, jnp.sin, jnp.tanh, lax.rsqrt, lax.logistic, lax.erf, lambda x: x**1.5]
    return apply(functions, np.float16, x)


def case_functions_of_bfloat16(rng):
    x = rng.uniform(0.05, 4, (16, 32)).astype(ml_dtypes.bfloat16)
    functions = [jnp.exp, jnp.log, jnp.sqrt, jnp.cos, jnp.tanh, lax.rsqrt, lax.logistic, jnp.floor, lambda x: x**1.5]
    return apply(functions, ml_dtypes.bfloat16, x)


def case_functions_of_integers_are_floats(rng):
    x = rng.integers(1, 20, (8, 16)).astype(np.int32)
    return apply([jnp.exp, jnp.log, jnp.sqrt, jnp.sin, jnp.tanh], np.float32, x)


def case_angles_and_hyperbolic_inverses(rng):
    x = rng.normal(size=(8, 16)).astype(np.float32) * 90
    angles = apply([jnp.deg2rad, jnp.radians, jnp.rad2deg, jnp.degrees], np.float32, x)
    inside, above = np.tanh(x / 90), 1 + np.abs(x)
    functions = [jnp.arcsinh, jnp.asinh, lax.asinh, lax.asin, lax.acos, lax.atan]
    inverses = apply([*functions, jnp.atanh, lax.atanh, jnp.asin, jnp.acos, jnp.atan], np.float32, inside)
    return angles, inverses, apply([jnp.arccosh, jnp.acosh, lax.acosh], np.float32, above)


def case_two_floats_and_their_kinds(rng):
    x, y = rng.normal(size=(2, 4, 16)).astype(np.float32) * 3
    x[0, :12], y[0, :12] = SPECIAL, SPECIAL[::-1]
    functions = [
        jnp.logaddexp2,
        jnp.nextafter,
        lax.nextafter,
        jnp.float_power,
        lambda x, y: jnp.fabs(x),
        lambda x, y: jnp.trunc(y),
        lambda x, y: jnp.around(x, 1),
        jnp.subtract,
    ]
    kinds = [jnp.isclose, lambda x, y: jnp.isneginf(x), lambda x, y: jnp.isposinf(y), jnp.equal, jnp.greater]
    kinds += [jnp.greater_equal, jnp.less_equal, lax.lt, lax.le, lax.gt, lax.ne]
    return apply(functions, np.float32, x, y), apply(kinds, np.bool_, x, y)


def case_limits_and_constants(rng):
    wide, narrow = jnp.finfo(jnp.float32), jnp.finfo(jnp.bfloat16)
    limits = [wide.max, wide.eps, narrow.max, narrow.tiny, jnp.iinfo(jnp.int16).min, jnp.pi, jnp.e, -jnp.inf, jnp.nan]
    functions = [lambda x, limit=limit: jnp.full_like(x, float(limit)) for limit in limits]
    return apply(functions, np.float32, np.zeros((2, 4), np.float32))


def case_steps_and_polynomials(rng):
    x, y = rng.normal(size=(2, 4, 16)).astype(np.float32)
    x[0, :12] = SPECIAL
    functions = [jnp.heaviside, lambda x, y: jnp.sinc(y), lambda x, y: jnp.polyval(y[:, 0], y)]
    return apply(functions, np.float32, x, y), apply([jnp.sinc], np.float32, np.zeros((4,), np.float32))
