"""Functions of arrays in palladio.tpu."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.tpu as pltpu

X = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize("shift", [0, 1, 5, 6, 13])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_roll_is_numpys(shift: int, axis: int) -> None:
    assert np.array_equal(pltpu.roll(X, shift, axis), np.roll(X, shift, axis))


@pytest.mark.parametrize("shift", [0, 3, 8])
def test_roll_takes_a_shift_that_the_kernel_computes(shift: int) -> None:
    def kernel(shift_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = pltpu.roll(x_ref[...], shift_ref[0], 1)

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((4, 6), np.float32))
    assert np.array_equal(call(np.array([shift], np.int32), X), np.roll(X, shift, 1))


@pytest.mark.parametrize(("axis", "stride_axis"), [(1, 0), (0, 1)])
def test_roll_with_a_stride_moves_each_row_further(axis: int, stride_axis: int) -> None:
    rows = np.moveaxis(X, stride_axis, 0)
    expected = np.moveaxis(np.stack([np.roll(row, 1 + 2 * n) for n, row in enumerate(rows)]), 0, stride_axis)
    assert np.array_equal(pltpu.roll(X, 1, axis, stride=2, stride_axis=stride_axis), expected)


def test_bitcast_to_the_same_width_keeps_the_shape() -> None:
    assert np.array_equal(pltpu.bitcast(X, np.int32), X.view(np.int32))


def test_bitcast_to_half_the_width_doubles_the_last_but_one_axis() -> None:
    found = pltpu.bitcast(X, np.uint16)
    assert found.shape == (8, 6)
    words = X.view(np.uint32)
    assert np.array_equal(found[0::2], words & 0xFFFF)
    assert np.array_equal(found[1::2], words >> 16)
    assert np.array_equal(pltpu.bitcast(found, np.float32), X)


def test_bitcast_of_a_reference_is_what_it_is_of_an_array() -> None:
    def kernel(x_ref: Any, a_ref: Any, b_ref: Any) -> None:
        a_ref[...] = pltpu.bitcast(x_ref, np.uint16)[...]
        b_ref[...] = pltpu.bitcast(x_ref[...], np.uint16)

    first, second = pl.pallas_call(kernel, [pl.ShapeDtypeStruct((8, 6), np.uint16)] * 2)(X)
    assert np.array_equal(first, second)


def test_reciprocal_is_exact() -> None:
    assert np.array_equal(pltpu.reciprocal(X + 1, approx=True), 1 / (X + 1))


def test_what_is_advice_changes_nothing() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pltpu.touch(x_ref)
        o_ref[...] = pltpu.with_memory_space_constraint(x_ref[...], pltpu.VMEM)

    assert np.array_equal(pl.pallas_call(kernel, pl.ShapeDtypeStruct((4, 6), np.float32))(X), X)


@pytest.mark.parametrize("semantics", [pltpu.CORE_PARALLEL, "core_parallel", pltpu.SUBCORE_PARALLEL])
def test_axes_of_a_grid_may_be_parallel_over_cores(semantics: Any) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + pl.program_id(0)

    row = pl.BlockSpec((1, 6), lambda i: (i, 0))
    params = pltpu.CompilerParams(dimension_semantics=(semantics,))
    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((4, 6), np.float32),
        grid=(4,),
        in_specs=[row],
        out_specs=row,
        compiler_params=params,
    )
    assert np.array_equal(call(X), X + np.arange(4)[:, None])


def test_parameters_are_replaced() -> None:
    params = pltpu.CompilerParams(dimension_semantics=("parallel",), vmem_limit_bytes=1)
    changed = params.replace(vmem_limit_bytes=2, has_side_effects=True)
    advice = {"dimension_semantics": ("parallel",), "vmem_limit_bytes": 2, "has_side_effects": True}
    assert dict(changed.advice) == advice
    assert dict(params.advice)["vmem_limit_bytes"] == 1
