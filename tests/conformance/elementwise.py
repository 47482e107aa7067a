"""Rows: arithmetic, mathematics, comparison and bits, element by element."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

import palladio.numpy as jnp
from palladio import lax
from palladio.types import dtypes
from tests.conformance.rows import (
    ALL,
    BITS,
    FLOATS,
    INTEGERS,
    NUMBERS,
    SIGNED,
    Array,
    Case,
    Row,
    bits,
    draw,
    row,
    wide,
    wrapped,
)

Function = Callable[..., Any]


def each(function: Function, *, result: type = float) -> Function:
    """A function of Python numbers, of arrays."""
    applied = np.frompyfunc(function, 1, 1)
    return lambda x: applied(x).astype(object if result is int else result)


def applied(function: Function, *inputs: Array, expected: Array, dtype: np.dtype, slack: float = 1) -> Case:
    """The case of a function of values whose result goes to the one output."""

    def kernel(*refs: Any) -> None:
        *sources, target = refs
        target[...] = function(*(ref[...] for ref in sources))

    return Case(kernel, inputs, [expected], [dtype], slack=slack)


def unary(
    name: str, function: Function, reference: Function, low: float = -3, high: float = 3, slack: float = 1
) -> Row:
    """A function of one float array."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x = draw(rng, dtype, low=low, high=high)
        return applied(function, x, expected=reference(wide(x)), dtype=dtype, slack=slack)

    return Row("math", name, FLOATS, make)


def _inverse_error(x: float) -> float:
    return statistics.NormalDist().inv_cdf((x + 1) / 2) / math.sqrt(2)


def _half_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


MATH = [
    unary("exp", lax.exp, np.exp),
    unary("exp2", lax.exp2, np.exp2),
    unary("expm1", lax.expm1, np.expm1),
    unary("log", lax.log, np.log, 0.125, 9),
    unary("log1p", lax.log1p, np.log1p, -0.5, 3),
    unary("sqrt", lax.sqrt, np.sqrt, 0, 9),
    unary("rsqrt", lax.rsqrt, lambda x: 1 / np.sqrt(x), 0.125, 9),
    unary("cbrt", lax.cbrt, np.cbrt),
    unary("sin", lax.sin, np.sin),
    unary("cos", lax.cos, np.cos),
    unary("tan", lax.tan, np.tan, -1.25, 1.25),
    unary("asin", lax.asin, np.arcsin, -1, 1),
    unary("acos", lax.acos, np.arccos, -1, 1),
    unary("atan", lax.atan, np.arctan),
    unary("sinh", lax.sinh, np.sinh),
    unary("cosh", lax.cosh, np.cosh),
    unary("tanh", lax.tanh, np.tanh),
    unary("asinh", lax.asinh, np.arcsinh),
    unary("acosh", lax.acosh, np.arccosh, 1, 9),
    unary("atanh", lax.atanh, np.arctanh, -0.875, 0.875),
    unary("erf", lax.erf, each(math.erf)),
    unary("erfc", lax.erfc, each(math.erfc)),
    unary("erf_inv", lax.erf_inv, each(_inverse_error), -0.875, 0.875),
    unary("logistic", lax.logistic, lambda x: 1 / (1 + np.exp(-x))),
    unary("floor", lax.floor, np.floor),
    unary("ceil", lax.ceil, np.ceil),
    unary("round_half_to_even", jnp.round, np.round),
    unary("round_half_away", lax.round, _half_away),
    unary("reciprocal", lax.reciprocal, lambda x: 1 / x, 0.5, 3),
    unary("negative_power", lambda x: lax.integer_pow(x, -2), lambda x: x**-2.0, 0.5, 3, slack=2),
    unary("pow_of_floats", lambda x: x**2.5, lambda x: x**2.5, 0.25, 3),
]


@row("math", FLOATS)
def atan2(rng: np.random.Generator, dtype: np.dtype) -> Case:
    y, x = draw(rng, dtype), draw(rng, dtype)
    return applied(lax.atan2, y, x, expected=np.arctan2(wide(y), wide(x)), dtype=dtype)


@row("math", FLOATS)
def is_finite(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype)
    x[1, ::3] = np.nan
    return applied(lax.is_finite, x, expected=np.isfinite(wide(x)), dtype=dtypes.BOOL)


@row("math", FLOATS)
def not_a_number_goes_through(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype)
    x[2, ::2] = np.nan
    return applied(
        lambda x: jnp.maximum(jnp.abs(x) * 2, 1), x, expected=np.maximum(np.abs(wide(x)) * 2, 1), dtype=dtype
    )


@row("math", FLOATS)
def nextafter(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """Towards a greater value: the bits of a positive float, plus one."""
    x = draw(rng, dtype, low=0.5, high=3)
    word = np.dtype(f"u{dtype.itemsize}")
    above = (x.view(word) + word.type(1)).view(dtype)
    return applied(lambda x: lax.nextafter(x, x + x), x, expected=wide(above), dtype=dtype, slack=0)


def binary(
    name: str,
    function: Function,
    reference: Function,
    accepted: tuple[np.dtype, ...],
    *,
    nonzero: bool = False,
    whole: bool = True,
) -> Row:
    """A function of two arrays; integers of their whole range unless told otherwise."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        drawn = bits if whole and not dtypes.is_float(dtype) else draw
        x, y = drawn(rng, dtype), drawn(rng, dtype)
        if nonzero:
            y = np.where(y == 0, dtype.type(1), y)
        return applied(function, x, y, expected=wrapped(reference(wide(x), wide(y)), dtype), dtype=dtype)

    return Row("arithmetic", name, accepted, make)


def _truncated(x: Array, y: Array) -> Array:
    if x.dtype != object:
        return x / y
    return np.frompyfunc(lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), 2, 1)(x, y)


def _remaining(x: Array, y: Array) -> Array:
    return np.fmod(x, y) if x.dtype != object else x - _truncated(x, y) * y


ARITHMETIC = [
    binary("add", lambda x, y: x + y, lambda x, y: x + y, NUMBERS),
    binary("sub", lambda x, y: x - y, lambda x, y: x - y, NUMBERS),
    binary("mul", lambda x, y: x * y, lambda x, y: x * y, NUMBERS),
    binary("div", lax.div, _truncated, NUMBERS, nonzero=True),
    binary("rem", lax.rem, _remaining, NUMBERS, nonzero=True),
    binary("floor_divide", lambda x, y: x // y, lambda x, y: x // y, INTEGERS, nonzero=True),
    binary("mod", lambda x, y: x % y, lambda x, y: x % y, INTEGERS, nonzero=True),
    binary("max", jnp.maximum, np.maximum, ALL),
    binary("min", jnp.minimum, np.minimum, ALL),
]


def one(name: str, function: Function, reference: Function, accepted: tuple[np.dtype, ...]) -> Row:
    """An arithmetic function of one array, integers of their whole range."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x = draw(rng, dtype) if dtypes.is_float(dtype) else bits(rng, dtype)
        return applied(function, x, expected=wrapped(reference(wide(x)), dtype), dtype=dtype)

    return Row("arithmetic", name, accepted, make)


ARITHMETIC_OF_ONE = [
    one("neg", lambda x: -x, lambda x: -x, NUMBERS),
    one("abs", abs, abs, NUMBERS),
    one("sign", lax.sign, lambda x: (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype), NUMBERS),
    one("cube", lambda x: lax.integer_pow(x, 3), lambda x: x * x * x, NUMBERS),
]


@row("arithmetic", INTEGERS)
def pow_of_integers(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, y = draw(rng, dtype), draw(rng, dtype, low=0, high=5)
    return applied(lax.pow, x, y, expected=wrapped(wide(x) ** wide(y), dtype), dtype=dtype)


@row("arithmetic", NUMBERS)
def clamp(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, low=-9, high=9)
    low, high = (1, 2) if dtypes.is_unsigned(dtype) else (-1, 2)
    limits = (dtype.type(low), dtype.type(high))
    return applied(lambda x: lax.clamp(limits[0], x, limits[1]), x, expected=np.clip(wide(x), low, high), dtype=dtype)


@row("arithmetic", SIGNED)
def the_least_integer_divided_by_minus_one(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = np.full((4,), np.iinfo(dtype).min, dtype)
    return applied(lambda x: lax.div(x, jnp.full_like(x, -1)), x, expected=wide(x), dtype=dtype)


@row("arithmetic", INTEGERS)
def division_by_zero_sets_all_bits(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = bits(rng, dtype)
    expected = wrapped(np.full(x.shape, -1, object), dtype)
    return applied(lambda x: lax.div(x, jnp.zeros_like(x)), x, expected=expected, dtype=dtype)


def comparison(name: str, function: Function) -> Row:
    """A comparison of arrays that agree in about half of their elements."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x, y = draw(rng, dtype), draw(rng, dtype)
        x = np.where(rng.integers(0, 2, x.shape) == 1, x, y)
        return applied(function, x, y, expected=function(wide(x), wide(y)).astype(bool), dtype=dtypes.BOOL)

    return Row("compare", name, ALL, make)


COMPARE = [
    comparison("eq", lambda x, y: x == y),
    comparison("ne", lambda x, y: x != y),
    comparison("lt", lambda x, y: x < y),
    comparison("le", lambda x, y: x <= y),
    comparison("gt", lambda x, y: x > y),
    comparison("ge", lambda x, y: x >= y),
]


@row("compare", ALL)
def where(rng: np.random.Generator, dtype: np.dtype) -> Case:
    chosen, x, y = draw(rng, dtypes.BOOL), draw(rng, dtype), draw(rng, dtype)
    return applied(jnp.where, chosen, x, y, expected=np.where(chosen, wide(x), wide(y)), dtype=dtype)


def bitwise(name: str, function: Function, reference: Function, accepted: tuple[np.dtype, ...] = BITS) -> Row:
    """A function of the bits of two arrays."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x, y = bits(rng, dtype), bits(rng, dtype)
        return applied(function, x, y, expected=reference(wide(x), wide(y)), dtype=dtype)

    return Row("bits", name, accepted, make)


def shift(name: str, function: Function, reference: Callable[[int, int, int, int], int]) -> Row:
    """A shift; `reference(value, its bits as unsigned, count, width)`, for counts up to the width."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        width = 8 * dtype.itemsize
        x, y = bits(rng, dtype), rng.integers(0, width, (5, 8), endpoint=True).astype(dtype)
        shifted = np.frompyfunc(lambda value, count: reference(value, value % (1 << width), count, width), 2, 1)
        return applied(function, x, y, expected=wrapped(shifted(wide(x), wide(y)), dtype), dtype=dtype)

    return Row("bits", name, INTEGERS, make)


def _sign_filled(value: int, unsigned: int, count: int, width: int) -> int:
    return (unsigned - ((unsigned >> (width - 1)) << width)) >> count


def counted(name: str, function: Function, reference: Callable[[int, int], int]) -> Row:
    """A count of bits; `reference(bits as unsigned, width)`."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        width = 8 * dtype.itemsize
        x = bits(rng, dtype) >> rng.integers(0, width, (5, 8)).astype(dtype)
        of_all = np.frompyfunc(lambda value: reference(value % (1 << width), width), 1, 1)
        return applied(function, x, expected=of_all(wide(x)), dtype=dtype)

    return Row("bits", name, INTEGERS, make)


BIT_ROWS = [
    bitwise("and", lambda x, y: x & y, lambda x, y: x & y),
    bitwise("or", lambda x, y: x | y, lambda x, y: x | y),
    bitwise("xor", lambda x, y: x ^ y, lambda x, y: x ^ y),
    shift("shift_left", lax.shift_left, lambda value, unsigned, count, width: unsigned << count),
    shift("shift_right_logical", lax.shift_right_logical, lambda value, unsigned, count, width: unsigned >> count),
    shift("shift_right_arithmetic", lax.shift_right_arithmetic, _sign_filled),
    counted("population_count", lax.population_count, lambda unsigned, width: unsigned.bit_count()),
    counted("clz", lax.clz, lambda unsigned, width: width - unsigned.bit_length()),
]


@row("bits", BITS)
def bitwise_not(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = bits(rng, dtype)
    inverted = ~x if dtypes.is_bool(dtype) else wrapped(-wide(x) - 1, dtype)
    return applied(lambda x: ~x, x, expected=inverted, dtype=dtype)


def cast(target: np.dtype) -> Row:
    """From every dtype to one; fractions are cut off, anything but 0 is true."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x = draw(rng, dtype, low=0 if dtypes.is_unsigned(target) else -7, high=7)
        values = wide(x).astype(np.float64)
        if dtypes.is_bool(target):
            expected = values != 0
        else:
            expected = np.trunc(values).astype(np.int64) if dtypes.is_integer(target) else values
        return applied(lambda x: x.astype(target), x, expected=expected, dtype=target)

    return Row("cast", f"to_{target}", ALL, make)


CASTS = [cast(target) for target in ALL]


@row("cast", INTEGERS)
def integers_keep_their_low_bits(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = bits(rng, np.dtype(np.int64))
    return applied(lambda x: x.astype(dtype), x, expected=wrapped(wide(x), dtype), dtype=dtype)


@row("cast", tuple(dtype for dtype in NUMBERS))
def bits_in_other_pieces(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """To words of another width and back: the first one has the lowest bits."""
    width = 2 if dtype.itemsize == 1 else 1
    x, word = draw(rng, dtype, (3, 5, width)), np.dtype(f"u{2 if width == 2 else dtype.itemsize // 2}")

    def kernel(x_ref: Any, o_ref: Any, back_ref: Any) -> None:
        words = lax.bitcast_convert_type(x_ref[...] if width == 2 else x_ref[..., 0], word)
        o_ref[...] = words
        back = lax.bitcast_convert_type(words, dtype)
        back_ref[...] = back if width == 2 else back[..., None]

    expected = x.view(word)[..., 0] if width == 2 else x.view(word)
    return Case(kernel, [x], [wide(expected), wide(x)], [word, dtype], slack=0)


@row("cast", tuple(dtype for dtype in NUMBERS))
def bitcast(rng: np.random.Generator, dtype: np.dtype) -> Case:
    word = np.dtype(f"u{dtype.itemsize}")
    x = draw(rng, dtype)
    expected = [int.from_bytes(value.tobytes(), "little") for value in x.astype(dtype.newbyteorder("<")).ravel()]
    return applied(
        lambda x: lax.bitcast_convert_type(x, word), x, expected=np.array(expected, object).reshape(x.shape), dtype=word
    )
