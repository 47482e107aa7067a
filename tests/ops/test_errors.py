"""What element-by-element functions, reductions, scans and sorts say about wrong arguments, as the user reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio.numpy as jnp
from palladio import lax
from palladio.base.errors import PalladioError

F = np.ones((2, 3), np.float32)
I = np.ones((2, 3), np.int32)  # noqa: E741
B = np.ones((2, 3), bool)

CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "subtraction of bools": (
        lambda: jnp.subtract(B, B),
        TypeError,
        "sub is not defined for this dtype\n  expected: an integer or float dtype\n  got:      bool[2,3]",
    ),
    "bits of floats": (
        lambda: jnp.bitwise_and(F, F),
        TypeError,
        "bitwise_and is not defined for this dtype\n  expected: an integer dtype or bool\n  got:      f32[2,3]",
    ),
    "shapes that do not broadcast": (
        lambda: jnp.add(F, np.ones(2, np.float32)),
        ValueError,
        "the shapes do not broadcast together\n  got:      (2, 3), (2,)",
    ),
    "an integer that does not fit": (
        lambda: jnp.add(np.ones(2, np.int8), 300),
        ValueError,
        "the integer does not fit into int8\n  got:      300",
    ),
    "an integer in a list that does not fit": (
        lambda: jnp.asarray([1, 2**40]),
        ValueError,
        "the integer does not fit into int32\n  got:      1099511627776",
    ),
    "an integer in a list that does not fit the dtype": (
        lambda: jnp.asarray([-1, 300], np.int8),
        ValueError,
        "the integer does not fit into int8\n  got:      300",
    ),
    "lists of different lengths": (
        lambda: jnp.asarray([[1], [1, 2]]),
        TypeError,
        "x: lists of different lengths are not an array\n  got:      [[1], [1, 2]]",
    ),
    "a list of strings": (
        lambda: jnp.asarray(["a"]),
        TypeError,
        "x: an array of a dtype that Palladio does not have\n  expected: bool, int8-64, uint8-64, float16, bfloat16, "
        "float32, float64, float8_e4m3fn, float8_e5m2\n  got:      <U1",
    ),
    "no common dtype": (
        lambda: jnp.add(F.astype("float8_e5m2"), F),
        TypeError,
        "the dtypes do not promote to a common one\n  got:      float8_e5m2, float32\n"
        "  hint:     convert one explicitly with .astype(dtype)",
    ),
    "a negative power of integers": (
        lambda: jnp.power(I, -1),
        ValueError,
        "integers cannot be raised to negative powers\n  got:      i32[2,3] to the power -1",
    ),
    "an exponent that is not an integer": (
        lambda: lax.integer_pow(F, 0.5),  # type: ignore[arg-type]
        TypeError,
        "the exponent of integer_pow is a static integer\n  got:      float: 0.5",
    ),
    "where with one argument": (
        lambda: jnp.where(B),
        NotImplementedError,
        "where takes a condition and two cases: the shape of where(condition) depends on values",
    ),
    "select with a choice missing": (
        lambda: jnp.select([B, B], [F]),
        ValueError,
        "select takes one choice for each condition, and at least one\n  expected: 2 choices\n  got:      1",
    ),
    "rounding integers to tens": (
        lambda: jnp.round(I, -1),
        NotImplementedError,
        "decimals: integers are not rounded to tens\n  got:      -1",
    ),
    "an axis out of range": (
        lambda: jnp.sum(F, axis=2),
        IndexError,
        "axis: the array has no such axis, its rank is 2\n  expected: -2 <= axis < 2\n  got:      2",
    ),
    "an axis of a scalar": (
        lambda: jnp.cumsum(np.float32(1), 0),
        IndexError,
        "axis: the array has no such axis, its rank is 0\n  expected: an array of rank 1 or more\n  got:      0",
    ),
    "an axis named twice": (
        lambda: jnp.max(F, axis=(0, -2)),
        ValueError,
        "axis: an axis is named twice\n  got:      (0, -2)",
    ),
    "an axis that is not an integer": (
        lambda: jnp.mean(F, axis=1.0),  # type: ignore[arg-type]
        TypeError,
        "axis: an axis is a static integer\n  got:      float: 1.0",
    ),
    "the greatest of nothing": (
        lambda: jnp.max(np.ones((0, 3), np.float32), 0),
        ValueError,
        "a: max of no elements has no value\n  got:      f32[0,3]\n  hint:     pass initial=",
    ),
    "the greatest of perhaps nothing": (
        lambda: jnp.min(F, where=B),
        ValueError,
        "where: min of no elements has no value, and where= may leave none\n  hint:     pass initial=",
    ),
    "the position in nothing": (
        lambda: jnp.argmax(np.ones((0, 3), np.float32), 0),
        ValueError,
        "argmax of no elements\n  got:      axis 0 of f32[0,3]",
    ),
    "an index that is not an integer": (
        lambda: lax.argmax(F, 0, np.float32),
        TypeError,
        "the result of argmax is an index\n  expected: an integer dtype\n  got:      float32",
    ),
    "weights of another size": (
        lambda: jnp.average(F, 0, np.ones(3, np.float32)),
        ValueError,
        "weights: a vector of weights goes along one axis and has its size\n  got:      f32[3] for axis 0 of f32[2,3]",
    ),
    "sorting arrays of two shapes": (
        lambda: lax.sort((F, F[0])),
        ValueError,
        "sort takes arrays of one shape\n  got:      f32[2,3], f32[3]",
    ),
    "more keys than arrays": (
        lambda: lax.sort((F, F), num_keys=3),
        ValueError,
        "num_keys of sort counts its first arrays\n  expected: 1 to 2 keys\n  got:      3",
    ),
    "more of the greatest than there are": (
        lambda: lax.top_k(F, 4),
        ValueError,
        "k: top_k finds no more elements than there are\n  got:      4 of f32[2,3]",
    ),
    "no keys": (lambda: jnp.lexsort([]), ValueError, "keys: lexsort takes one key or more"),
    "a cumulative sum of bools": (
        lambda: lax.cumsum(B),
        TypeError,
        "cumsum is not defined for this dtype\n  expected: an integer or float dtype\n  got:      bool[2,3]",
    ),
    "lax does not promote": (
        lambda: lax.add(F, I),
        TypeError,
        "lax.add takes arguments of one dtype\n  got:      f32[2,3], i32[2,3]\n"
        "  hint:     convert one with .astype(dtype); the functions of palladio.numpy promote",
    ),
    "lax does not make floats of integers": (
        lambda: lax.add(I, 1.5),
        TypeError,
        "lax.add takes arguments of one dtype\n  got:      i32[2,3], f32[]\n"
        "  hint:     convert one with .astype(dtype); the functions of palladio.numpy promote",
    ),
    "lax does not broadcast": (
        lambda: lax.mul(F, F[0]),
        ValueError,
        "mul takes arrays of one dtype and one shape (or scalars)\n  got:      f32[2,3], f32[3]",
    ),
    "mathematics of integers in lax": (
        lambda: lax.exp(I),
        TypeError,
        "exp is not defined for this dtype\n  expected: a float dtype\n  got:      i32[2,3]",
    ),
    "a predicate that is not a bool": (
        lambda: lax.select(I, F, F),
        TypeError,
        "the predicate of select is a bool array\n  got:      i32[2,3]",
    ),
    "a predicate of another shape": (
        lambda: lax.select(B[0], F, F),
        ValueError,
        "select takes a predicate of the shape of its cases (or scalars)\n  got:      bool[3], f32[2,3], f32[2,3]",
    ),
    "too many cases for a bool": (
        lambda: lax.select_n(B, F, F, F),
        ValueError,
        "cases: a bool chooses between two cases\n  got:      3 cases",
    ),
    "choosing by floats": (
        lambda: lax.select_n(F, F, F),
        TypeError,
        "which: select_n chooses by bool or int32\n  expected: bool or i32\n  got:      f32[2,3]",
    ),
    "the bits of bool": (
        lambda: lax.bitcast_convert_type(B, np.uint8),
        TypeError,
        "the bits of bool have no other meaning\n  got:      bool[2,3] to uint8",
    ),
    "a last axis that does not join": (
        lambda: lax.bitcast_convert_type(np.ones((2, 3), np.uint8), np.float32),
        ValueError,
        "a bitcast to a wider dtype joins the elements of the last axis\n"
        "  expected: a last axis of size 4\n  got:      u8[2,3] to float32",
    ),
    "a dtype that there is not": (
        lambda: lax.convert_element_type(F, np.complex64),
        TypeError,
        "not a dtype that Palladio has\n  expected: ",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_message(case: str) -> None:
    call, kind, text = CASES[case]
    with pytest.raises(PalladioError) as caught:
        call()
    assert isinstance(caught.value, kind)
    assert str(caught.value).startswith(text)


def test_an_error_of_an_operation_shows_the_line_of_its_user() -> None:
    with pytest.raises(PalladioError) as caught:
        jnp.subtract(B, B)
    assert "jnp.subtract(B, B)\n" in str(caught.value)
    assert __file__ in str(caught.value)
