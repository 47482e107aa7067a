"""Staged, the array functions compute what they compute at once; so do operators and NumPy's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio.numpy as jnp
from palladio import lax
from palladio.array.functions import arithmetic, bits, compare, math, order, reduce
from palladio.call.jit import jit

F = np.array([[0.5, -1.5, 2.0], [0.25, np.nan, -0.75]], np.float32)
G = np.array([[1.5, 0.5, -2.0], [0.25, 3.0, 1.0]], np.float32)
I = np.array([[5, -7, 0], [2, 3, -1]], np.int32)  # noqa: E741
J = np.array([[2, 3, 4], [-1, 0, 5]], np.int32)
SPECIAL: dict[str, Callable[..., Any]] = {
    "astype": lambda x, y: jnp.astype(x, np.float16),
    "clip": lambda x, y: jnp.clip(x, -1, y),
    "where": lambda x, y: jnp.where(x < y, x, 0),
    "select": lambda x, y: jnp.select([x < 0, x < y], [x, y], 2),
    "average": lambda x, y: jnp.average(x, 1, y),
    "lexsort": lambda x, y: jnp.lexsort((x, y)),
}
NAMES = [(family, name) for family in (arithmetic, math, compare, bits, reduce, order) for name in family.__all__]


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            same(*pair)
        return
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


@pytest.mark.parametrize(("family", "name"), NAMES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_staged_function_is_the_function(family: Any, name: str) -> None:
    function = SPECIAL.get(name) or getattr(family, name)
    integers = family is bits
    x, y = (I, J) if integers else (F, G)
    binary = name in SPECIAL
    if not binary:
        parameters = list(function.__annotations__)
        binary = parameters[1:2] in (["y"], ["x"], ["b"], ["a2"]) and name != "logsumexp"
    arguments = (x, y) if binary else (x,)
    same(jit(function, interpret=True)(*arguments), function(*arguments))


@pytest.mark.parametrize("name", [name for name in lax.elementwise.__all__ if name not in ("RoundingMethod",)])
def test_a_staged_function_of_lax_is_the_function(name: str) -> None:
    function = getattr(lax, name)
    integers = name.startswith(("bitwise", "shift", "pop", "clz"))
    x, y = (I, J) if integers else (F, G)
    special: dict[str, Callable[..., Any]] = {
        "bitcast_convert_type": lambda x, y: function(x, np.int32),
        "convert_element_type": lambda x, y: function(x, np.int8),
        "clamp": lambda x, y: function(-1, x, y),
        "integer_pow": lambda x, y: function(x, 3),
        "select": lambda x, y: function(x < y, x, y),
        "select_n": lambda x, y: function(x < y, x, y),
    }
    if name in special:
        same(jit(special[name], interpret=True)(x, y), special[name](x, y))
        return
    arguments = (x, y) if len(function.__annotations__) == 3 and name != "round" else (x,)
    same(jit(function, interpret=True)(*arguments), function(*arguments))


OPERATORS: dict[str, Callable[..., Any]] = {
    "x + y": lambda x, y: x + y,
    "2 - x": lambda x, y: 2 - x,
    "x / y": lambda x, y: x / y,
    "x // y": lambda x, y: x // y,
    "x % 3": lambda x, y: x % 3,
    "x ** 2": lambda x, y: x**2,
    "2 ** y": lambda x, y: 2**y,
    "-x": lambda x, y: -x,
    "abs(x)": lambda x, y: abs(x),
    "x < y": lambda x, y: x < y,
    "x == 1": lambda x, y: x == 1,
    "x.sum(0)": lambda x, y: x.sum(0),
    "x.max(axis=1, keepdims=True)": lambda x, y: x.max(axis=1, keepdims=True),
    "x.mean()": lambda x, y: x.mean(),
    "x.argmin(1)": lambda x, y: x.argmin(1),
    "np.maximum(x, y)": np.maximum,
    "np.where(x < y, x, y)": lambda x, y: np.where(x < y, x, y),
    "np.exp2(x)": lambda x, y: np.exp2(x),
    "np.absolute(x)": lambda x, y: np.absolute(x),
    "np.divide(x, y)": np.divide,
    "np.arctan2(x, y)": np.arctan2,
    "np.sum(x, axis=1)": lambda x, y: np.sum(x, axis=1),
    "np.clip(x, -1, 1)": lambda x, y: np.clip(x, -1, 1),
    "np.cumsum(x, axis=0)": lambda x, y: np.cumsum(x, axis=0),
    "np.sort(y)": lambda x, y: np.sort(y),
    "np.add.reduce(x)": lambda x, y: np.add.reduce(x, axis=0),
    "np.round(x, 1)": lambda x, y: np.round(x, 1),
    "np.isnan(x)": lambda x, y: np.isnan(x),
    "np.std(x, axis=1)": lambda x, y: np.std(x, axis=1),
}


@pytest.mark.parametrize("text", OPERATORS)
def test_operators_and_functions_of_numpy_on_traced_values(text: str) -> None:
    with np.errstate(all="ignore"):
        expected = np.asarray(OPERATORS[text](F, G))
    found = np.asarray(jit(OPERATORS[text])(F, G))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_comes_of_python_scalars_alone_stays_weak() -> None:
    x = F.astype(np.float16)
    assert jit(lambda x: x * jnp.sqrt(2.0))(x).dtype == np.float16
    assert jit(lambda x: x * jnp.where(x[0, 0] > 0, 1.0, 2.0))(x).dtype == np.float16
    assert jit(lambda x: x * jnp.astype(jnp.sqrt(2.0), np.float32))(x).dtype == np.float32
    assert jit(lambda x: x * jnp.sum(2.0))(x).dtype == np.float32  # as in JAX, a reduction decides


def test_an_integer_array_and_a_python_float_are_a_weak_float() -> None:
    assert jit(lambda x, n: x * (n + 1.5))(F.astype(np.float16), I).dtype == np.float16


def test_bools_are_no_weak_numbers() -> None:
    assert jit(lambda x: x + (x > 0))(I).dtype == np.int32
