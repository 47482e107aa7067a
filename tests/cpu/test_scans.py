"""Scans along every axis: columns in vectors, several lines beside each other; each element as the evaluator has it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
from palladio import lax

SHAPES = [(9,), (3, 7, 19), (4, 0), (2, 1100)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.int32], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bits_are_the_evaluators_along_every_axis(shape: tuple[int, ...], dtype: Any, reverse: bool) -> None:
    x = (10 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)

    def kernel(x_ref: Any, *outs: Any) -> None:
        for axis in range(len(shape)):
            outs[2 * axis][...] = lax.cumsum(x_ref[...], axis=axis, reverse=reverse)
            outs[2 * axis + 1][...] = lax.cummax(x_ref[...], axis=axis, reverse=reverse)

    out = [pl.ShapeDtypeStruct(shape, dtype)] * (2 * len(shape))
    for got, meant in zip(
        *(pl.pallas_call(kernel, out, interpret=each)(x) for each in ("cpu", "reference")), strict=True
    ):
        np.testing.assert_array_equal(got.view(np.uint8), meant.view(np.uint8))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_scan_of_what_its_output_replaces_reads_it_first(axis: int) -> None:
    def kernel(x_ref: Any, out: Any) -> None:
        out[...] = x_ref[...]
        out[...] = lax.cumsum(out[...], axis=axis) + np.flip(out[...], 0)

    x = np.arange(6 * 20, dtype=np.int32).reshape(6, 20)
    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), interpret="cpu")(x)
    np.testing.assert_array_equal(found, np.cumsum(x, axis) + x[::-1])
