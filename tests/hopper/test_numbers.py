"""Numbers that a kernel captures are parameters by value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.hopper.lowered import ScalarParameter
from tests.hopper.kernels import F32, lowered

INTEGERS = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32"]
FLOATS = ["float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"]
X = np.arange(24, dtype=F32).reshape(6, 4)


def scaled(number: Any, x: Any, interpret: Any = None) -> Any:
    """The rows of `x` before `number`, plus that number; the others are zero."""

    def body(x: Any, out: Any) -> None:
        row = pl.axis_index("row")
        shift = number.astype(F32)
        out[row] = pl.numpy.where(row < shift, x[row] + shift, 0.0)

    return plgpu.kernel(
        body, pl.ShapeDtypeStruct(X.shape, F32), grid=(6,), grid_names=("row",), interpret=interpret, name="scaled"
    )(x)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_a_number_of_each_dtype(dtype: str) -> None:
    number = np.asarray(3).astype(pl.numpy.dtype(dtype))
    found = pl.jit(scaled, static_argnames=("interpret",))(number, X, interpret="hopper-twin")
    kept = np.arange(6)[:, None] < np.float32(number)
    np.testing.assert_array_equal(found, np.where(kept, X + np.float32(number), 0))


def test_a_number_is_one_parameter_and_no_memory() -> None:
    kernel = lowered(scaled, np.int32(3), X)
    (number,) = (each for each in kernel.parameters if isinstance(each, ScalarParameter))
    assert f"const int {number.name}" in kernel.text and f"{number.name}[" not in kernel.text


def test_one_text_for_all_numbers() -> None:
    assert lowered(scaled, np.int32(3), X).text == lowered(scaled, np.int32(5), X).text
