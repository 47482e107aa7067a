"""Products of one warpgroup on the host twin: every dtype, both majors, parts, operands in registers."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio import lax
from palladio.hopper.twin.run import SCHEDULES, run
from tests.hopper.kernels import BF16, F32, error, kernel, lowered, normal, on_twin, shaped

F16 = np.dtype(np.float16)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
E5M2 = np.dtype(ml_dtypes.float8_e5m2)
I8, U8 = np.dtype(np.int8), np.dtype(np.uint8)
SCHEDULE = (SCHEDULES[2],)
TF32 = 1e-3
"""Relative error where operands are cut to 10 bits of fraction."""


def whole(*shape: int, dtype: Any, seed: int = 0) -> np.ndarray:
    """Small whole numbers, which every dtype holds."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def product(
    a: Any, b: Any, out: Any, a_tile: Any, b_tile: Any, full: Any, transposes: str = "", dtype: Any = F32
) -> None:
    """out = a @ b, or with `transposes` of the tiles in shared memory."""
    plgpu.copy_gmem_to_smem(a, a_tile, full)
    plgpu.copy_gmem_to_smem(b, b_tile, full)
    plgpu.barrier_wait(full)

    def multiply(acc: Any) -> Any:
        left = a_tile.T if "a" in transposes else a_tile
        right = b_tile.T if "b" in transposes else b_tile
        plgpu.wgmma(acc, left, right)
        return acc[...]

    out[...] = pl.run_scoped(multiply, plgpu.ACC(out.shape, dtype))


def multiplied(a: np.ndarray, b: np.ndarray, transposes: str = "", dtype: Any = F32) -> np.ndarray:
    shape = (a.shape["a" in transposes], b.shape["b" not in transposes])
    scratch = [plgpu.SMEM(a.shape, a.dtype), plgpu.SMEM(b.shape, b.dtype), plgpu.Barrier(num_arrivals=2)]

    def body(*references: Any) -> None:
        product(*references, transposes=transposes, dtype=dtype)

    return on_twin(kernel(body, shape, dtype, scratch), a, b, schedules=SCHEDULE)[0]


def expected(a: np.ndarray, b: np.ndarray, transposes: str = "") -> np.ndarray:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a.T if "a" in transposes else a) @ (b.T if "b" in transposes else b)


@pytest.mark.parametrize("transposes", ["", "a", "b", "ab"])
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_operands_of_16_bits_lie_either_way(dtype: np.dtype, transposes: str) -> None:
    a, b = normal(128, 64, dtype=dtype), normal(64, 128, dtype=dtype, seed=1)
    a = a.T.copy() if "a" in transposes else a
    b = b.T.copy() if "b" in transposes else b
    a = a[:, :64] if "a" in transposes else a[:64]
    assert error(multiplied(a, b, transposes), expected(a, b, transposes)) < 1e-6


@pytest.mark.parametrize("columns", [32, 16, 96])
def test_rows_of_64_and_32_bytes_are_swizzled_less(columns: int) -> None:
    a, b = normal(64, columns), normal(columns, columns, seed=1)
    assert error(multiplied(a, b), expected(a, b)) < 1e-6


@pytest.mark.parametrize(("left", "right"), [(E4M3, E4M3), (E5M2, E4M3), (E4M3, E5M2)], ids=str)
def test_floats_of_8_bits(left: np.dtype, right: np.dtype) -> None:
    a, b = whole(64, 128, dtype=left), whole(64, 128, dtype=right, seed=1)
    assert error(multiplied(a, b, "b"), expected(a, b, "b")) == 0


def test_integers_of_8_bits() -> None:
    a, b = whole(64, 64, dtype=I8), whole(32, 64, dtype=I8, seed=1)
    assert error(multiplied(a, b, "b", np.dtype(np.int32)), expected(a, b, "b")) == 0


def test_float32_is_cut_to_tf32() -> None:
    a, b = normal(64, 64, dtype=F32), normal(32, 64, dtype=F32, seed=1)
    assert error(multiplied(a, b, "b"), expected(a, b, "b")) < TF32


def test_more_than_256_columns_and_64_rows_are_several_products() -> None:
    a, b = normal(128, 32), normal(32, 384, seed=1)
    assert error(multiplied(a, b), expected(a, b)) < 1e-6


def left_in_registers(dtype: np.dtype, rows: int = 64) -> Any:
    def body(a: Any, b: Any, out: Any, b_tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(b, b_tile, full)
        left = (a[...] * 2).astype(dtype)
        plgpu.barrier_wait(full)

        def multiply(acc: Any) -> Any:
            plgpu.wgmma(acc, left, b_tile.T)
            return acc[...]

        out[...] = pl.run_scoped(multiply, plgpu.ACC(out.shape, out.dtype))

    result = np.dtype(np.int32) if dtype.kind in "iu" else F32
    return kernel(body, (rows, 32), result, [plgpu.SMEM((32, 64), dtype), plgpu.Barrier()])


@pytest.mark.parametrize("dtype", [BF16, F16, F32])
def test_a_left_operand_in_registers(dtype: np.dtype) -> None:
    a, b = normal(64, 64, dtype=F32), normal(32, 64, dtype=dtype, seed=1)
    wanted = expected((2 * a).astype(dtype), b, "b")
    assert error(on_twin(left_in_registers(dtype), a, b, schedules=SCHEDULE)[0], wanted) < TF32


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("dtype", [E4M3, E5M2, I8, U8], ids=str)
def test_a_left_operand_of_8_bits_in_registers(dtype: np.dtype, rows: int) -> None:
    a, b = whole(rows, 64, dtype=F32), whole(32, 64, dtype=dtype, seed=1)
    a = np.abs(a) if dtype == U8 else a
    found = on_twin(left_in_registers(dtype, rows), a, b, schedules=SCHEDULE)[0]
    np.testing.assert_array_equal(found, expected((2 * a).astype(dtype), b, "b"))


def carried_left(dtype: np.dtype) -> Any:
    """Loops carry two left operands, which change places; each is changed while a product with the other is in flight.

    The results: all products together, and one of the operands after the loop.
    """

    def body(a: Any, b: Any, out: Any, last: Any, b_tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(b, b_tile, full)
        plgpu.barrier_wait(full)

        def multiply(acc: Any) -> Any:
            def step(n: Any, carry: Any) -> Any:
                left, other = carry
                plgpu.wgmma(acc, left, b_tile.T)
                changed = (other.astype(F32) * 0.5 + n).astype(dtype)
                plgpu.wgmma_wait(0)
                return changed, left

            left, other = lax.fori_loop(0, 3, step, (a[...], (a[...].astype(F32) * 2).astype(dtype)))
            plgpu.wgmma(acc, other, b_tile.T)
            last[...] = left
            return acc[...]

        out[...] = pl.run_scoped(multiply, plgpu.ACC(out.shape, F32))

    shapes = pl.ShapeDtypeStruct((64, 32), F32), pl.ShapeDtypeStruct((64, 64), dtype)
    return plgpu.kernel(body, shapes, scratch_types=[plgpu.SMEM((32, 64), dtype), plgpu.Barrier()])


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
def test_left_operands_that_a_loop_carries_in_registers(dtype: np.dtype) -> None:
    call = carried_left(dtype)
    a, b = 4 * whole(64, 64, dtype=dtype), whole(32, 64, dtype=dtype, seed=1)  # all sums are exact
    a += np.asarray(np.finfo(F32).eps * 8 if dtype == F32 else 0, dtype)  # what tf32 cuts off stays in the carry
    compiled = lowered(call, a, b)
    assert re.findall(r"u32 carry_packed\w*\[(\d+)\];", compiled.text) == 2 * [str(32 // (4 // dtype.itemsize))]
    with pl.executor("reference"):
        wanted, last = call(a, b)
    for schedule in SCHEDULES:
        found = run(compiled, shaped(compiled, [a, b]), schedule).outputs
        assert error(found[0], wanted) <= (TF32 if dtype == F32 else 0)
        np.testing.assert_array_equal(found[1], last)


def test_a_part_of_an_accumulator_is_added_to_and_read() -> None:
    def body(a: Any, b: Any, out: Any, a_tile: Any, b_tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(a, a_tile, full)
        plgpu.copy_gmem_to_smem(b, b_tile, full)
        plgpu.barrier_wait(full)

        def multiply(acc: Any) -> Any:
            plgpu.wgmma(acc.at[:, 64:128], a_tile, b_tile)
            plgpu.wgmma(acc.at[:, 0:64], a_tile, b_tile)
            plgpu.wgmma(acc.at[:, 0:64], a_tile, b_tile)
            plgpu.wgmma_wait(0)
            return acc[:, 0:64] - acc[:, 64:128]

        out[...] = pl.run_scoped(multiply, plgpu.ACC((64, 128)))

    a, b = normal(64, 64), normal(64, 64, seed=1)
    scratch = [plgpu.SMEM(a.shape, BF16), plgpu.SMEM(b.shape, BF16), plgpu.Barrier(num_arrivals=2)]
    assert error(on_twin(kernel(body, (64, 64), F32, scratch), a, b, schedules=SCHEDULE)[0], expected(a, b)) < 1e-6


def test_rows_and_columns_of_a_fragment_are_reduced_and_spread_again() -> None:
    def body(a: Any, b: Any, out: Any, a_tile: Any, b_tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(a, a_tile, full)
        plgpu.copy_gmem_to_smem(b, b_tile, full)
        plgpu.barrier_wait(full)

        def multiply(acc: Any) -> Any:
            plgpu.wgmma(acc, a_tile, b_tile)
            x = acc[...]
            return x - x.max(axis=1)[:, None] + x.sum(axis=0)[None, :]

        out[...] = pl.run_scoped(multiply, plgpu.ACC((64, 64)))

    a, b = normal(64, 64), normal(64, 64, seed=1)
    x = expected(a, b)
    scratch = [plgpu.SMEM(a.shape, BF16), plgpu.SMEM(b.shape, BF16), plgpu.Barrier(num_arrivals=2)]
    wanted = x - x.max(1)[:, None] + x.sum(0)[None, :]
    assert error(on_twin(kernel(body, (64, 64), F32, scratch), a, b, schedules=SCHEDULE)[0], wanted) < 1e-6


def test_the_results_of_a_sort_may_be_used_in_different_layouts() -> None:
    def body(a: Any, b: Any, keys: Any, values: Any, out: Any, a_tile: Any, b_tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(a, a_tile, full)
        plgpu.copy_gmem_to_smem(b, b_tile, full)
        plgpu.barrier_wait(full)

        def multiply(acc: Any) -> Any:
            plgpu.wgmma(acc, a_tile, b_tile)
            return acc[...]

        ordered, moved = lax.sort((keys[...], values[...]), dimension=1, num_keys=1)
        out[0] = ordered
        out[1] = moved + pl.run_scoped(multiply, plgpu.ACC((64, 16)))

    a, b = normal(64, 64), normal(64, 16, seed=1)
    keys, values = normal(64, 16, dtype=F32, seed=2), normal(64, 16, dtype=F32, seed=3)
    scratch = [plgpu.SMEM(a.shape, BF16), plgpu.SMEM(b.shape, BF16), plgpu.Barrier(num_arrivals=2)]
    found = on_twin(kernel(body, (2, 64, 16), F32, scratch), a, b, keys, values, schedules=SCHEDULE)[0]
    moved = np.take_along_axis(values, np.argsort(keys, axis=1), 1)
    assert np.array_equal(found[0], np.sort(keys, axis=1))
    assert error(found[1], moved + expected(a, b)) < 1e-6
