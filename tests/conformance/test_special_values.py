"""Elementwise operations, reductions and scans on the host twin as on the evaluator: special values, any shape.

By default each runs in every third dtype; with `--every-dtype` (`make cubins`) in all, and in several shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio import lax
from palladio.base.errors import PalladioError
from palladio.ir.core import walk
from palladio.ops import ALL_OPS
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types import dtypes
from palladio.types.types import ArrayType
from tests.conformance.rows import TOLERANCES

Operation = Callable[..., Any]
"""Of three arrays of a dtype and one of truth values."""

EXACT = (
    *("neg", "abs", "sign", "bitwise_not", "population_count", "clz", "floor", "ceil", "is_finite", "sqrt"),
    *("add", "sub", "mul", "div", "rem", "nextafter", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or"),
    *("bitwise_xor", "shift_left", "shift_right_logical", "shift_right_arithmetic", "round", "round_away", "where"),
)
"""Operations whose results have the same bits on every executor. `max` and `min` may give a zero of either sign."""
_MATH = (
    *("exp", "exp2", "expm1", "log", "log1p", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh"),
    *("cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erf_inv", "logistic", "max", "min", "pow", "atan2"),
)
_NAMES = [name for name in (*EXACT, *_MATH) if name not in ("round", "round_away", "where")]
_TWO = (
    "add",
    "sub",
    "mul",
    "div",
    "rem",
    "max",
    "min",
    "pow",
    "atan2",
    "nextafter",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
)


def _named(name: str) -> Operation:
    function = getattr(lax, name)
    both = name in _TWO or name.startswith(("bitwise_a", "bitwise_o", "bitwise_x", "shift"))
    return lambda x, y, z, test: function(x, y) if both else function(x)


def _along(name: str, axis: int) -> Operation:
    return lambda x, y, z, test: getattr(jnp, name)(x, axis=axis)


def _scan(name: str, axis: int) -> Operation:
    return lambda x, y, z, test: getattr(lax, name)(x, axis=axis, reverse=axis == 1)


OPERATIONS: dict[str, Operation] = {
    **{name: _named(name) for name in _NAMES},
    "round": lambda x, y, z, test: jnp.round(x),
    "round_away": lambda x, y, z, test: lax.round(x),
    "where": lambda x, y, z, test: jnp.where(test, x, y),
    "clamp": lambda x, y, z, test: lax.clamp(x, y, z),
    **{f"power {n}": lambda x, y, z, test, n=n: lax.integer_pow(x, n) for n in (0, 2, 3, 9, -1, -3)},
    **{f"to {dtype}": lambda x, y, z, test, dtype=dtype: x.astype(dtype) for dtype in dtypes.ALL},
    **{f"{name} {n}": _along(name, n) for name in ("max", "min", "all", "any", "argmax", "argmin") for n in (0, 1)},
    **{f"{name} {n}": _scan(name, n) for name in ("cummax", "cummin") for n in (0, 1)},
    "sum": lambda x, y, z, test: jnp.sum(x, axis=0) if dtypes.is_integer(x.dtype) else x[0],
    "sort": lambda x, y, z, test: lax.sort(x, dimension=0),
}
BY_POSITION = ("multiple_of",)
"""Operations that are elementwise by their records and compute nothing."""

SPECIAL = (
    *(np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 2.0, 255.5, 256.0, -129.0, 127.5),
    *(32768.0, 65535.5, *(sign * 2.0**n for sign in (1, -1) for n in (31, 32, 63, 64))),
)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Limits of the dtype, special values, and others."""
    if dtypes.is_bool(dtype):
        return rng.integers(0, 2, shape).astype(bool)
    if dtypes.is_integer(dtype):
        limits = np.iinfo(dtype)
        every = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        small = rng.integers(-9 if limits.min else 0, 70, shape).astype(dtype)
        edges = np.array([limits.min, limits.max, 0, 1, limits.max - 1], dtype)[rng.integers(0, 5, shape)]
        return np.choose(rng.integers(0, 3, shape), [every, small, edges]).astype(dtype)
    limits = ml_dtypes.finfo(dtype)
    special = [*SPECIAL, *map(float, (limits.max, limits.min, limits.tiny))]
    values = rng.standard_normal(shape) * rng.choice([1, 10, 1e-3, 100], shape)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(rng.random(shape) < 0.6, rng.choice(special, shape), values).astype(dtype)


def accepted(types: list[ArrayType]) -> dict[str, tuple[ArrayType, set[str]]]:
    """The operations that take a dtype: the type of the result, and the names of the equations."""
    found = {}
    for name, operation in OPERATIONS.items():
        try:
            program = stage(lambda *given, of=operation: [of(*given)], types, wrap, name="operation").program
        except PalladioError:
            continue
        found[name] = program.outputs[0].type, {eqn.op.name for eqn in walk(program)}
    return found


def different(name: str, got: np.ndarray, wanted: np.ndarray) -> bool:
    """True if results differ: in a bit, or beyond the precision of the dtype."""
    if not dtypes.is_float(got.dtype):
        return not np.array_equal(got, wanted)
    with np.errstate(invalid="ignore"):
        got, wanted, dtype = got.astype(np.float64), wanted.astype(np.float64), got.dtype
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    if name in EXACT or name.startswith("to"):
        return not (same & ((np.signbit(got) == np.signbit(wanted)) | np.isnan(got))).all()
    precision = TOLERANCES[str(dtype)]
    with np.errstate(invalid="ignore"):
        near = np.abs(got - wanted) <= 8 * precision * np.abs(wanted) + 4 * float(ml_dtypes.finfo(dtype).tiny)
    return not (same | near).all()


def operands(dtype: np.dtype, seed: int) -> list[np.ndarray]:
    """Three arrays of a random shape, and one of truth values."""
    rng = np.random.default_rng([seed, dtypes.ALL.index(dtype)])
    shape = (int(rng.integers(1, 20)), int(rng.integers(1, 40)))
    return [*(drawn(rng, shape, dtype) for _ in range(3)), drawn(rng, shape, dtypes.BOOL)]


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=dtypes.short_name)
def test_results_are_those_of_the_evaluator(dtype: np.dtype, request: pytest.FixtureRequest) -> None:
    wrong, every = [], request.config.getoption("--every-dtype")
    for seed in range(3 if every else 1):
        arrays = operands(dtype, seed)
        found = accepted([ArrayType(x.shape, x.dtype) for x in arrays])
        step, first = (1, 0) if every else (3, dtypes.ALL.index(dtype) % 3)
        types = {name: found[name][0] for name in list(OPERATIONS)[first::step] if name in found}

        def kernel(x: Any, y: Any, z: Any, test: Any, *outs: Any, names: tuple[str, ...] = tuple(types)) -> None:
            for name, out in zip(names, outs, strict=True):
                out[...] = OPERATIONS[name](x[...], y[...], z[...], test[...])

        shapes = tuple(pl.ShapeDtypeStruct(type.shape, type.dtype) for type in types.values())
        with np.errstate(all="ignore"):
            got, wanted = (
                pl.pallas_call(kernel, shapes, interpret=executor)(*arrays) for executor in ("hopper-twin", "reference")
            )
        wrong += [f"{name}: {a}, expected {b}" for name, a, b in zip(types, got, wanted) if different(name, a, b)]
    assert not wrong, "\n".join(wrong)


def test_every_elementwise_operation_is_among_them() -> None:
    of = [ArrayType((2, 3), dtype) for dtype in dtypes.ALL]
    made = [names for each in of for _, names in accepted([each] * 3 + [ArrayType((2, 3), dtypes.BOOL)]).values()]
    missing = {op.name for op in ALL_OPS if op.elementwise} - set.union(*made) - set(BY_POSITION)
    assert not missing
