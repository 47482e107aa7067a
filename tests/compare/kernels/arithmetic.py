"""Element-wise arithmetic, comparison and bit operations, and what mixed dtypes promote to."""

import itertools

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import ShapeDtypeStruct, lax
from jax.experimental import pallas as pl


def apply(functions, dtype, *arrays):
    """Each function of the arrays' values, as an output of its own."""

    def kernel(*refs):
        values = [ref[...] for ref in refs[: len(arrays)]]
        for function, out_ref in zip(functions, refs[len(arrays) :]):
            out_ref[...] = function(*values)

    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    return pl.pallas_call(kernel, out_shape=[ShapeDtypeStruct(shape, dtype)] * len(functions), interpret=True)(*arrays)


def dtypes_of(functions, *arrays):
    """The names of the dtypes that the functions of the arrays' values have."""
    names = {}

    def kernel(*refs):
        values = [ref[...] for ref in refs[:-1]]
        for index, function in enumerate(functions):
            names[index] = np.dtype(function(*values).dtype).name
        refs[-1][...] = jnp.zeros((1,), jnp.int32)

    pl.pallas_call(kernel, out_shape=ShapeDtypeStruct((1,), np.int32), interpret=True)(*arrays)
    return np.array([names[index] for index in range(len(functions))])


def signed(rng, dtype, shape=(8, 16)):
    """Integers of both signs, none of them zero."""
    return (rng.integers(1, 100, shape) * rng.choice([-1, 1], shape)).astype(dtype)


def case_float_operators(rng):
    x, y = rng.normal(size=(2, 16, 32)).astype(np.float32)
    functions = [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: x / y,
        lambda x, y: -x,
        lambda x, y: abs(x),
        lambda x, y: 2.0 - x,
        lambda x, y: 1 / y,
        lambda x, y: x**2,
        lambda x, y: x**3 + y**-1,
        lambda x, y: +x * 3,
    ]
    return apply(functions, np.float32, x, y)


def case_float_floor_division_and_remainder(rng):
    x, y = (rng.normal(size=(2, 8, 16)) * 7).astype(np.float32)
    x[0, :4], y[0, :4] = [6, -6, 7.5, -7.5], [3, 3, -2.5, 2.5]
    functions = [
        lambda x, y: x // y,
        lambda x, y: x % y,
        jnp.floor_divide,
        jnp.mod,
        jnp.remainder,
        jnp.fmod,
        lax.rem,
        jnp.true_divide,
        lambda x, y: 5.0 % y,
    ]
    return apply(functions, np.float32, x, y)


def case_integer_operators_wrap_around(rng):
    x = rng.integers(-(2**31), 2**31, (8, 16)).astype(np.int32)
    y = rng.integers(-(2**31), 2**31, (8, 16)).astype(np.int32)
    x[0, :2] = -(2**31), 2**31 - 1
    functions = [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: -x,
        lambda x, y: abs(x),
        lambda x, y: x**3,
    ]
    return apply(functions, np.int32, x, y)


def case_small_integers_wrap_around(rng):
    x, y = rng.integers(-128, 128, (2, 4, 32)).astype(np.int8)
    u, v = rng.integers(0, 256, (2, 4, 32)).astype(np.uint8)
    functions = [lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: -x]
    return apply(functions, np.int8, x, y), apply(functions, np.uint8, u, v)


def case_integer_division_rounds_down_or_to_zero(rng):
    x, y = signed(rng, np.int32), signed(rng, np.int32) % 9 + 1
    y *= rng.choice([-1, 1], y.shape).astype(np.int32)
    functions = [
        lambda x, y: x // y,
        lambda x, y: x % y,
        lax.div,
        lax.rem,
        jnp.floor_divide,
        jnp.mod,
        jnp.fmod,
        lambda x, y: x // 4,
        lambda x, y: x % -4,
        lambda x, y: 100 // y,
        lambda x, y: pl.cdiv(abs(x), abs(y)),
    ]
    return apply(functions, np.int32, x, y)


def case_true_division_of_integers(rng):
    x, y = signed(rng, np.int32), signed(rng, np.int32)
    return apply([lambda x, y: x / y, jnp.divide, lambda x, y: x / 8], np.float32, x, y)


def case_divmod_of_small_and_unsigned_integers(rng):
    x, y = signed(rng, np.int8), signed(rng, np.int8)
    u, v = rng.integers(0, 2**32, (8, 16), np.uint32), rng.integers(1, 1000, (8, 16)).astype(np.uint32)
    functions = [lambda x, y: divmod(x, y)[0], lambda x, y: divmod(x, y)[1], lax.div, lax.rem]
    return apply(functions, np.int8, x, y), apply(functions, np.uint32, u, v)


def case_comparisons(rng):
    x, y = rng.integers(-3, 4, (2, 8, 16)).astype(np.int32)
    f, g = x.astype(np.float32), y.astype(np.float32)
    f[0, :3], g[0, 1:4] = np.nan, np.inf
    functions = [
        lambda x, y: x < y,
        lambda x, y: x <= y,
        lambda x, y: x > y,
        lambda x, y: x >= y,
        lambda x, y: x == y,
        lambda x, y: x != y,
        jnp.less,
        jnp.not_equal,
        lax.eq,
        lax.ge,
        lambda x, y: 0 < y,  # noqa: SIM300 - the scalar on the left is what this is about
        lambda x, y: x == 1,
    ]
    return apply(functions, np.bool_, x, y), apply(functions, np.bool_, f, g)


def case_comparison_of_unlike_dtypes(rng):
    x = rng.integers(-3, 4, (8, 16)).astype(np.int8)
    y = rng.integers(-3, 4, (8, 16)).astype(np.float32)
    u = rng.integers(0, 255, (8, 16)).astype(np.uint8)
    functions = [lambda x, y, u: x < y, lambda x, y, u: x < u, lambda x, y, u: u >= y, lambda x, y, u: x == 2.0]
    return apply(functions, np.bool_, x, y, u)


def case_logical_functions(rng):
    p, q = rng.integers(0, 2, (2, 8, 16)).astype(np.bool_)
    x = rng.integers(-1, 2, (8, 16)).astype(np.int32)
    functions = [
        lambda p, q, x: p & q,
        lambda p, q, x: p | q,
        lambda p, q, x: p ^ q,
        lambda p, q, x: ~p,
        lambda p, q, x: jnp.logical_and(p, x),
        lambda p, q, x: jnp.logical_or(x, q),
        lambda p, q, x: jnp.logical_xor(p, x),
        lambda p, q, x: jnp.logical_not(x),
        lambda p, q, x: p == q,
        lambda p, q, x: p < q,
    ]
    return apply(functions, np.bool_, p, q, x)


def case_bitwise_functions(rng):
    x, y = rng.integers(-(2**15), 2**15, (2, 8, 16)).astype(np.int16)
    functions = [
        lambda x, y: x & y,
        lambda x, y: x | y,
        lambda x, y: x ^ y,
        lambda x, y: ~x,
        jnp.bitwise_and,
        jnp.bitwise_or,
        jnp.bitwise_xor,
        lambda x, y: jnp.bitwise_not(y),
        lambda x, y: jnp.invert(y),
        lambda x, y: x & 0xFF,
    ]
    return apply(functions, np.int16, x, y), apply(functions, np.uint16, x.view(np.uint16), y.view(np.uint16))


def case_shifts_of_every_kind(rng):
    x = rng.integers(-(2**31), 2**31, (8, 16)).astype(np.int32)
    by = rng.integers(0, 32, (8, 16)).astype(np.int32)
    functions = [
        lambda x, by: x << by,
        lambda x, by: x >> by,
        lambda x, by: x >> 3,
        lambda x, by: 1 << by,
        lax.shift_left,
        lax.shift_right_arithmetic,
        lax.shift_right_logical,
        jnp.left_shift,
        jnp.right_shift,
    ]
    return apply(functions, np.int32, x, by), apply(functions, np.uint32, x.view(np.uint32), by.view(np.uint32))


def case_shifts_past_the_width(rng):
    x = rng.integers(-(2**31), 2**31, (4, 16)).astype(np.int32)
    by = rng.integers(30, 40, (4, 16)).astype(np.int32)
    return apply([lax.shift_left, lax.shift_right_arithmetic, lax.shift_right_logical], np.int32, x, by)


def case_counting_bits(rng):
    x = rng.integers(-(2**31), 2**31, (8, 16)).astype(np.int32) >> rng.integers(0, 32, (8, 16)).astype(np.int32)
    small = rng.integers(0, 256, (8, 16)).astype(np.uint8)
    functions = [lax.population_count, lax.clz]
    return apply(functions, np.int32, x), apply(functions, np.uint8, small)


def case_minimum_and_maximum_keep_nan(rng):
    x, y = rng.normal(size=(2, 8, 16)).astype(np.float32)
    x[0, :4], y[0, 2:6] = np.nan, np.nan
    x[1, :2], y[1, :2] = np.inf, -np.inf
    functions = [jnp.minimum, jnp.maximum, lax.min, lax.max, lambda x, y: jnp.maximum(x, 0), jnp.fmin, jnp.fmax]
    return apply(functions, np.float32, x, y)


def case_sign_and_absolute_value(rng):
    f = rng.normal(size=(8, 16)).astype(np.float32)
    f[0, :5] = 0.0, -0.0, np.nan, np.inf, -np.inf
    i = rng.integers(-2, 3, (8, 16)).astype(np.int8)
    u = rng.integers(0, 3, (8, 16)).astype(np.uint16)
    functions = [jnp.sign, jnp.abs, jnp.negative, jnp.square, jnp.positive, lax.sign, lax.abs, lax.neg]
    return apply(functions, np.float32, f), apply(functions, np.int8, i), apply(functions[:4], np.uint16, u)


def case_clip_and_clamp(rng):
    x = rng.normal(size=(8, 16)).astype(np.float32)
    i = rng.integers(-100, 100, (8, 16)).astype(np.int32)
    floats = [
        lambda x: jnp.clip(x, -0.5, 0.5),
        lambda x: jnp.clip(x, min=0.0),
        lambda x: jnp.clip(x, max=0.25),
        lambda x: lax.clamp(-1.0, x, 1.0),
        lambda x: lax.clamp(jnp.zeros_like(x), x, jnp.full_like(x, 0.75)),
        lambda x: jnp.clip(x, 1.0, -1.0),
    ]
    integers = [lambda i: jnp.clip(i, -10, 10), lambda i: lax.clamp(0, i, 50)]
    return apply(floats, np.float32, x), apply(integers, np.int32, i)


def case_half_precision_arithmetic(rng):
    functions = [lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x / y, lambda x, y: x - 1.5, jnp.maximum]
    x, y = rng.normal(size=(2, 8, 32))
    return [apply(functions, dtype, x.astype(dtype), y.astype(dtype)) for dtype in (np.float16, ml_dtypes.bfloat16)]


def case_powers(rng):
    x = rng.uniform(0.1, 4, (8, 16)).astype(np.float32)
    y = rng.normal(size=(8, 16)).astype(np.float32)
    i = rng.integers(-5, 6, (8, 16)).astype(np.int32)
    n = rng.integers(0, 5, (8, 16)).astype(np.int32)
    floats = [
        lambda x, y: x**y,
        jnp.power,
        lax.pow,
        lambda x, y: lax.integer_pow(y, 5),
        lambda x, y: lax.integer_pow(x, -2),
        lambda x, y: y**0,
        lambda x, y: 2.0**y,
        lambda x, y: x**0.5,
    ]
    integers = [lambda i, n: i**n, jnp.power, lambda i, n: lax.integer_pow(i, 4)]
    return apply(floats, np.float32, x, y), apply(integers, np.int32, i, n)


def case_select_by_condition(rng):
    p = rng.integers(0, 2, (8, 16)).astype(np.bool_)
    x, y = rng.normal(size=(2, 8, 16)).astype(np.float32)
    functions = [
        jnp.where,
        lambda p, x, y: jnp.where(x > 0, x, 0),
        lambda p, x, y: jnp.where(p, 1.0, y),
        lambda p, x, y: jnp.where(p[:1], x, y[:, :1]),
        lax.select,
        lax.select_n,
        lambda p, x, y: lax.select_n((x > 0).astype(jnp.int32) + (y > 0).astype(jnp.int32), x, y, x * y),
        lambda p, x, y: jnp.where(jnp.isnan(jnp.log(x)), y, x),
    ]
    return apply(functions, np.float32, p, x, y)


LATTICE = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "bfloat16", "float32"]


def case_promotion_of_every_pair_of_dtypes(rng):
    """All but those that meet in int64, which JAX has to be configured for."""
    arrays = [np.ones((2, 2), ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in LATTICE]
    pairs = [
        (a, b)
        for a, b in itertools.product(range(len(LATTICE)), repeat=2)
        if not (LATTICE[a] == "uint32" and LATTICE[b].startswith("int"))
        and not (LATTICE[b] == "uint32" and LATTICE[a].startswith("int"))
    ]
    return dtypes_of([lambda *values, a=a, b=b: jnp.add(values[a], values[b]) for a, b in pairs], *arrays)


def case_promotion_with_python_scalars(rng):
    arrays = [np.ones((2, 2), ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in LATTICE]
    scalars = [True, 2, 2.5]
    pairs = itertools.product(range(len(LATTICE)), scalars)
    return dtypes_of([lambda *values, a=a, scalar=scalar: values[a] * scalar for a, scalar in pairs], *arrays)


def case_promotion_by_functions(rng):
    """Functions that return something else than what their arguments promote to."""
    arrays = [np.ones((2, 2), ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in LATTICE]
    functions = [
        lambda v: v / v,
        jnp.exp,
        jnp.mean,
        jnp.sum,
        jnp.prod,
        jnp.max,
        jnp.any,
        jnp.argmax,
        jnp.isfinite,
        lambda v: jnp.cumsum(v, axis=0),
        lambda v: jnp.where(v > 0, v, 0),
        lambda v: v @ v,
    ]
    pairs = itertools.product(range(len(LATTICE)), functions)
    return dtypes_of([lambda *values, a=a, function=function: function(values[a]) for a, function in pairs], *arrays)


def case_mixed_dtype_values(rng):
    i8 = rng.integers(-128, 128, (8, 16)).astype(np.int8)
    u8 = rng.integers(0, 256, (8, 16)).astype(np.uint8)
    b16 = rng.normal(size=(8, 16)).astype(ml_dtypes.bfloat16)
    f32 = rng.normal(size=(8, 16)).astype(np.float32)
    flag = rng.integers(0, 2, (8, 16)).astype(np.bool_)
    return (
        apply([lambda a, b: a + b, lambda a, b: a * b], np.int16, u8, i8),
        apply([lambda a, b: a + b, lambda a, b: a * b], ml_dtypes.bfloat16, i8, b16),
        apply([lambda a, b: a + b, lambda a, b: a - b], np.float32, f32, b16),
        apply([lambda a, b: a + b, lambda a, b: a * b, lambda a, b: b * 3], np.int8, flag, i8),
        apply([lambda a, b: a * b + 1.0], np.float32, flag, f32),
    )


def case_numpy_scalars_and_arrays_are_not_weak(rng):
    x = rng.normal(size=(4, 8)).astype(np.float16)
    half = apply([lambda x: x * 2.0, lambda x: x * np.float16(2.0)], np.float16, x)
    single = apply([lambda x: x * np.float32(2.0), lambda x: x + jnp.float32(1)], np.float32, x)
    return half, single
