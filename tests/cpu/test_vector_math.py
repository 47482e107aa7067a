"""Functions of vectors are within a few units in the last place of a wider type, over all of float32 and float64."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import palladio as pl
from palladio import lax
from palladio.call.staged import CALLS
from palladio.driver.capture import prepared_programs
from palladio.driver.compile import PIPELINES, llvm
from palladio.driver.executors import CPU
from palladio.passes import run_passes

FUNCTIONS = {
    "exp": (lax.exp, np.exp, 2),
    "exp2": (lax.exp2, np.exp2, 2),
    "log": (lax.log, np.log, 2),
    "log1p": (lax.log1p, np.log1p, 4),
    "expm1": (lax.expm1, np.expm1, 4),
    "tanh": (lax.tanh, np.tanh, 2),
    "erf": (lax.erf, lambda x: np.array([math.erf(v) for v in x]), 3),
    "sin": (lax.sin, np.sin, 2),
    "cos": (lax.cos, np.cos, 2),
    "tan": (lax.tan, np.tan, 2),
    "sinh": (lax.sinh, np.sinh, 2),
    "cosh": (lax.cosh, np.cosh, 2),
    "asin": (lax.asin, np.arcsin, 2),
    "acos": (lax.acos, np.arccos, 2),
    "atan": (lax.atan, np.arctan, 2),
    "atan2": (lax.atan2, np.arctan2, 2),
    "cbrt": (lax.cbrt, np.cbrt, 2),
    "logistic": (lax.logistic, lambda x: np.exp(-np.logaddexp(0, -x)), 4),
}
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1.2e-38,
    3.4e38,
    -3.4e38,
    88.7,
    88.8,
    -87.4,
    -104,
    89.4,
    -89.4,
    89.5,
    0.5,
    -0.5,
    np.pi,
    np.pi / 2,
    131071.99,
    131072,
    -131072,
]


@functools.cache
def inputs() -> np.ndarray:
    """Special values, every exponent of both signs, values near where functions change, or multiples of pi/2."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 1_000_000, np.uint64).astype(np.uint32).view(np.float32)
    near = rng.uniform(-5, 5, 100_000).astype(np.float32)
    wide = rng.uniform(-110, 110, 50_000).astype(np.float32)
    turns = (rng.integers(-90_000, 90_000, 20_000) * (np.pi / 2)).astype(np.float32)
    around = [np.nextafter(turns, np.float32(side)) for side in (-np.inf, np.inf)]
    many = rng.uniform(-140_000, 140_000, 50_000).astype(np.float32)
    every = np.concatenate([np.array(SPECIAL, np.float32), bits, near, wide, turns, *around, many])
    return every[: len(every) // 16 * 16]


@functools.lru_cache(maxsize=1)
def arguments(name: str) -> list[np.ndarray]:
    """What a function is called with: of two arguments, all pairs of special values and others of like size too."""
    x = inputs()
    if name != "atan2":
        return [x]
    special = np.array(SPECIAL, np.float32)
    with np.errstate(all="ignore"):
        like = x * np.random.default_rng(1).uniform(-4, 4, len(x)).astype(np.float32)
    y = np.concatenate([np.repeat(special, len(special)), x, x])
    other = np.concatenate([np.tile(special, len(special)), x[::-1], like])
    return [v[: len(y) // 16 * 16] for v in (y, other)]


def computed(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    def kernel(*refs: Any) -> None:
        *sources, out_ref = refs
        out_ref[...] = function(*(ref[...] for ref in sources))

    return pl.pallas_call(kernel, pl.ShapeDtypeStruct(arrays[0].shape, np.float32), interpret="cpu")(*arrays)


class Expected(NamedTuple):
    """A function in float64.

    Fields:
        exact: its values.
        rounded: those as float32, whose last places have these units.
        near_largest: where the largest finite number and infinity are neighbours.
        signed_zero: where a zero gives a zero.
    """

    exact: np.ndarray
    rounded: np.ndarray
    unit: np.ndarray
    undefined: np.ndarray
    infinite: np.ndarray
    finite: np.ndarray
    near_largest: np.ndarray
    signed_zero: np.ndarray


@functools.lru_cache(maxsize=1)
def expected(name: str) -> Expected:
    """The exact results of a function at its arguments, with what the tests read off them."""
    given = arguments(name)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name][1](*(x.astype(np.float64) for x in given))
        rounded = exact.astype(np.float32)
    unit = np.spacing(np.maximum(np.abs(rounded), np.float32(2**-126)))
    masks = np.isnan(rounded), np.isinf(rounded), np.isfinite(rounded), np.abs(exact) > 3.4028e38
    return Expected(exact, rounded, unit, *masks, (given[0] == 0) & (rounded == 0))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_is_right_over_its_whole_range(name):
    function, _, limit = FUNCTIONS[name]
    given = arguments(name)
    found = computed(function, *given)
    wanted = expected(name)
    exact, rounded = wanted.exact, wanted.rounded
    with np.errstate(all="ignore"):
        error = np.abs(found - exact) / wanted.unit
    np.testing.assert_array_equal(np.isnan(found), wanted.undefined)
    infinite = wanted.infinite & ~wanted.near_largest
    np.testing.assert_array_equal(found[infinite], rounded[infinite])
    finite = np.isfinite(found)
    worst = int(np.argmax(np.where(wanted.finite & finite, error, 0)))
    at = ", ".join(repr(x[worst]) for x in given)
    assert error[worst] <= limit, f"{name}({at}) = {found[worst]!r}, not {exact[worst]!r}: {error[worst]} ulp"
    assert finite[wanted.finite & ~wanted.near_largest].all()
    zero = wanted.signed_zero
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(rounded[zero]))


@pytest.mark.parametrize("function", [lax.sin, lax.cos, lax.tan])
@pytest.mark.parametrize("huge", [2.0**17, -1e30, np.inf, np.nan])
def test_a_huge_argument_changes_nothing_for_its_neighbours(function: Callable[..., Any], huge: float) -> None:
    x = np.linspace(-9, 9, 100, dtype=np.float32)
    alone = computed(function, x)
    x[::7] = huge
    beside = np.arange(100) % 7 != 0
    np.testing.assert_array_equal(computed(function, x)[beside], alone[beside])


WIDE = [name for name in FUNCTIONS if name not in ("erf", "cbrt")]
EXTREME = [710.4, 709.79, -745.2, -746, 1024, -1075, 5e-324, -5e-324, 2.2e-308, 1.7e308, -1.7e308, 2.0**30, 1e300]


@functools.lru_cache(maxsize=1)
def wide_arguments(name: str) -> list[np.ndarray]:
    """Special values, every exponent, values near where functions change, and multiples of pi/2, in float64."""
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2**64, 20_000, np.uint64).view(np.float64)
    near = np.concatenate([rng.uniform(-5, 5, 20_000), rng.uniform(-750, 750, 9_000), rng.uniform(-1, 1, 9_000)])
    turns = rng.integers(-(2**29), 2**29, 4_000) * (np.pi / 2)
    around = [turns, np.nextafter(turns, -np.inf), np.nextafter(turns, np.inf)]
    x = np.concatenate([np.array(SPECIAL + EXTREME, np.float64), bits, near, *around])
    x = x[: len(x) // 8 * 8]
    return [x, x[::-1].copy()] if name == "atan2" else [x]


@functools.lru_cache(maxsize=1)
def exact(name: str) -> np.ndarray:
    """The function in floating-point numbers with 64 bits of significand."""
    reference = FUNCTIONS[name][1]
    with np.errstate(all="ignore"):
        return reference(*(x.astype(np.longdouble) for x in wide_arguments(name)))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no type is wider than float64 here")
@pytest.mark.parametrize("name", WIDE)
def test_float64_is_right_over_its_whole_range(name: str) -> None:
    given = wide_arguments(name)

    def kernel(*refs: Any) -> None:
        *sources, out_ref = refs
        out_ref[...] = FUNCTIONS[name][0](*(ref[...] for ref in sources))

    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct(given[0].shape, np.float64), interpret="cpu")(*given)
    expected = exact(name)
    with np.errstate(all="ignore"):
        rounded = expected.astype(np.float64)
        unit = np.spacing(np.maximum(np.abs(rounded), 2.0**-1022)).astype(np.longdouble)
        error = np.abs(found - expected) / unit
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
    near_largest = np.abs(expected) > 1.7976e308
    infinite = np.isinf(rounded) & ~near_largest
    np.testing.assert_array_equal(found[infinite], rounded[infinite])
    checked = np.isfinite(rounded) & np.isfinite(found)
    worst = int(np.argmax(np.where(checked, error, 0)))
    at = ", ".join(repr(x[worst]) for x in given)
    assert error[worst] <= FUNCTIONS[name][2], f"{name}({at}) = {found[worst]!r}, not {expected[worst]!r}"
    assert np.isfinite(found[np.isfinite(rounded) & ~near_largest]).all()
    signed_zero = (given[0] == 0) & (rounded == 0)
    np.testing.assert_array_equal(np.signbit(found[signed_zero]), np.signbit(rounded[signed_zero]))


@pytest.mark.parametrize("name", WIDE)
def test_float64_is_computed_in_vectors(name: str) -> None:
    def kernel(*refs: Any) -> None:
        *sources, out_ref = refs
        out_ref[...] = FUNCTIONS[name][0](*(ref[...] for ref in sources))

    given = [np.ones(64)] * (2 if name == "atan2" else 1)
    CALLS.clear()
    with prepared_programs() as programs:
        pl.jit(pl.pallas_call(kernel, pl.ShapeDtypeStruct((64,), np.float64)))(*given)
    (eqn,) = run_passes(programs[-1], PIPELINES[CPU.name]).eqns
    text = llvm(eqn).text
    assert "<16 x double>" in text
    assert "extractelement" not in text and "call double" not in text
