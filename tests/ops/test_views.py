"""`x.view(dtype)` and `divmod(x, y)` of traced values: what NumPy's arrays do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palladio as pl
from palladio.types import dtypes

NUMBERS = [dtype for dtype in dtypes.ALL if dtype != dtypes.BOOL]


@given(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS), st.integers(1, 3), st.integers(0, 2**32))
def test_a_view_has_the_bits_of_the_array(old: Any, new: Any, rows: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, 256, (rows, 16), np.uint8).view(old)
    found = pl.jit(lambda x: x.view(new))(x)
    assert (found.shape, found.dtype) == (x.view(new).shape, new)
    np.testing.assert_array_equal(found.view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize(
    ("array", "dtype", "error", "message"),
    [
        (np.zeros((2, 3), np.int8), np.int16, pl.PalladioValueError, "whole number of elements"),
        (np.zeros((), np.int32), np.int8, pl.PalladioValueError, "whole number of elements"),
        (np.zeros(3, np.int8), np.bool_, pl.PalladioTypeError, "the bits of bool"),
    ],
)
def test_what_has_no_view(array: Any, dtype: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pl.jit(lambda x: x.view(dtype))(array)


@given(st.integers(-100, 100), st.integers(1, 20), st.booleans(), st.sampled_from([np.int8, np.int32, np.float32]))
def test_divmod_is_the_quotient_rounded_down_and_the_rest(x: int, y: int, negative: bool, dtype: Any) -> None:
    divisor = -y if negative else y
    arrays = np.array([x], dtype), np.array([divisor], dtype)
    assert [int(part[0]) for part in pl.jit(divmod)(*arrays)] == list(divmod(x, divisor))
    assert [int(part[0]) for part in pl.jit(lambda v: divmod(x, v))(arrays[1])] == list(divmod(x, divisor))
