"""Conversions of values and reinterpretations of bits."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import ShapeDtypeStruct, lax
from jax.experimental import pallas as pl


def convert(array, dtypes, method=lambda value, dtype: value.astype(dtype)):
    """The array in each of the dtypes."""

    def kernel(in_ref, *out_refs):
        for dtype, out_ref in zip(dtypes, out_refs):
            out_ref[...] = method(in_ref[...], dtype)

    return pl.pallas_call(kernel, out_shape=[ShapeDtypeStruct(array.shape, dtype) for dtype in dtypes], interpret=True)(
        array
    )


def case_float_to_integer_truncates(rng):
    x = rng.uniform(-120, 120, (8, 16)).astype(np.float32)
    x[0, :4] = 2.5, -2.5, -0.9, 0.9
    return convert(x, [np.int8, np.int16, np.int32]), convert(np.abs(x), [np.uint8, np.uint16, np.uint32])


def case_float_to_integer_saturates(rng):
    x = np.array([1e10, -1e10, np.inf, -np.inf, np.nan, 2.0**31, -(2.0**31), 300.0], np.float32)
    return convert(x, [np.int32])


def case_integers_to_floats(rng):
    x = rng.integers(-(2**31), 2**31, (8, 16)).astype(np.int32)
    return (
        convert(x, [np.float32, ml_dtypes.bfloat16]),
        convert(x >> 17, [np.float16, np.float32]),
        convert(x.view(np.uint32), [np.float32]),
    )


def case_narrowing_integers_keeps_the_low_bits(rng):
    x = rng.integers(-(2**31), 2**31, (8, 16)).astype(np.int32)
    return convert(x, [np.int16, np.int8, np.uint8, np.uint16, np.uint32])


def case_widening_integers_extends_the_sign(rng):
    x = rng.integers(-128, 128, (8, 16)).astype(np.int8)
    return convert(x, [np.int16, np.int32, np.uint32]), convert(x.view(np.uint8), [np.int16, np.int32, np.int8])


def case_casts_from_and_to_bool(rng):
    x = np.array([0.0, -0.0, 0.1, -2.0, np.nan, np.inf], np.float32)
    flag = rng.integers(0, 2, (8, 16)).astype(np.bool_)
    return convert(x, [np.bool_]), convert(flag, [np.int8, np.uint32, np.float32, ml_dtypes.bfloat16])


def case_rounding_to_half_precision(rng):
    x = (rng.normal(size=(8, 16)) * 1000).astype(np.float32)
    x[0, :6] = 1e6, -1e6, 1e-8, 65504, 65520, np.nan
    back = convert(x, [np.float32], lambda value, dtype: value.astype(jnp.float16).astype(dtype))
    return convert(x, [np.float16, ml_dtypes.bfloat16]), back


def case_eight_bit_floats(rng):
    x = rng.normal(size=(8, 16)).astype(np.float32) * 3
    kinds = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
    small = convert(x, kinds)
    wide = [convert(x.astype(kind), [np.float32, ml_dtypes.bfloat16, np.float16]) for kind in kinds]
    return small, wide


def case_convert_element_type(rng):
    x = rng.uniform(-120, 120, (8, 16)).astype(np.float32)
    return convert(x, [np.int32, np.float16, np.int8], lax.convert_element_type)


def case_dtype_as_a_function(rng):
    def kernel(x_ref, i_ref, f_ref):
        i_ref[...] = jnp.int32(x_ref[...])
        f_ref[...] = jnp.float32(i_ref[...]) + jnp.asarray(x_ref[...], jnp.float32)

    x = (rng.normal(size=(8, 16)) * 9).astype(np.float32)
    out_shape = [ShapeDtypeStruct(x.shape, jnp.int32), ShapeDtypeStruct(x.shape, jnp.float32)]
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True)(x)


def case_bitcast_to_the_same_width(rng):
    x = rng.normal(size=(8, 16)).astype(np.float32)
    half = rng.normal(size=(8, 16)).astype(np.float16)
    back = rng.integers(0, 2**15, (8, 16)).astype(np.uint16) & 0x7BFF
    return (
        convert(x, [np.int32, np.uint32], lax.bitcast_convert_type),
        convert(half, [np.int16, np.uint16], lax.bitcast_convert_type),
        convert(back, [ml_dtypes.bfloat16, np.float16], lax.bitcast_convert_type),
    )


def case_bitcast_to_another_width(rng):
    def kernel(x_ref, narrow_ref, wide_ref):
        narrow_ref[...] = lax.bitcast_convert_type(x_ref[...], jnp.uint8)
        wide_ref[...] = lax.bitcast_convert_type(narrow_ref[...].reshape(4, 8, 2, 2), jnp.int16).reshape(4, 16)

    x = rng.integers(-(2**31), 2**31, (4, 8)).astype(np.int32)
    out_shape = [ShapeDtypeStruct((4, 8, 4), np.uint8), ShapeDtypeStruct((4, 16), np.int16)]
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True)(x)


def case_view_of_bits(rng):
    x = rng.normal(size=(8, 16)).astype(np.float32)
    return convert(x, [np.int32], lambda value, dtype: value.view(dtype))


def case_fast_inverse_square_root(rng):
    """The classic of bit tricks: a guess from the exponent, then two steps of Newton's method."""

    def kernel(x_ref, o_ref):
        x = x_ref[...]
        bits = lax.bitcast_convert_type(x, jnp.int32)
        y = lax.bitcast_convert_type(0x5F3759DF - (bits >> 1), jnp.float32)
        for _ in range(2):
            y = y * (1.5 - 0.5 * x * y * y)
        o_ref[...] = y

    x = rng.uniform(0.01, 100, (8, 16)).astype(np.float32)
    return pl.pallas_call(kernel, out_shape=ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)


def case_every_dtype_as_a_function(rng):
    kinds = [jnp.bool_, jnp.int8, jnp.uint16, jnp.uint32, jnp.float16, jnp.bfloat16, jnp.float8_e5m2]

    def kernel(x_ref, *out_refs):
        for kind, out_ref in zip(kinds, out_refs):
            out_ref[...] = kind(x_ref[...]) if kind == jnp.bool_ else kind(x_ref[...]) * kind(1)

    x = rng.uniform(0, 100, (4, 8)).astype(np.float32)
    x[0, 0] = 0
    return pl.pallas_call(kernel, out_shape=[ShapeDtypeStruct(x.shape, kind) for kind in kinds], interpret=True)(x)


def case_view_of_another_width(rng):
    def kernel(x_ref, bytes_ref, words_ref):
        bytes_ref[...] = x_ref[...].view(jnp.uint8)
        words_ref[...] = bytes_ref[...].view(jnp.int16)

    x = rng.normal(size=(4, 8)).astype(np.float32)
    out_shape = [ShapeDtypeStruct((4, 32), np.uint8), ShapeDtypeStruct((4, 16), np.int16)]
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True)(x)
