"""Copies that the copy engine cannot do: the threads copy the widest pieces that lie together, with the same result."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.hopper.twin.run import SCHEDULES
from tests.hopper.kernels import BF16, F32, kernel, lowered, on_twin

BYTES = {"u8": np.dtype(np.uint8), "e5m2": np.dtype(ml_dtypes.float8_e5m2), "bf16": BF16, "f32": F32}
ROWS, COLUMNS = 5, 16
STARTS = (0, 1, 2, 3, 4, 6, 8, 12)


def numbers(dtype: np.dtype, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 100, shape).astype(np.uint8).astype(dtype)


def there_and_back(dtype: np.dtype, width: int) -> Any:
    """A copy from each of the columns `STARTS` on into shared memory, and from there to its place in the result."""

    def body(x: Any, out: Any, *scratch: Any) -> None:
        full = scratch[-1]
        for number, (start, tile) in enumerate(zip(STARTS, scratch, strict=False)):
            part = pl.ds(1, ROWS), pl.ds(start, COLUMNS)
            plgpu.copy_gmem_to_smem(x.at[part], tile, full)
            plgpu.barrier_wait(full)
            plgpu.copy_smem_to_gmem(tile, out.at[number, *part])
        plgpu.wait_smem_to_gmem(0)

    tiles = [plgpu.SMEM((ROWS, COLUMNS), dtype) for _ in STARTS]
    return kernel(body, (len(STARTS), ROWS + 2, width), dtype, [*tiles, plgpu.Barrier()])


@pytest.mark.parametrize("width", [28, 29, 30, 36])
@pytest.mark.parametrize("dtype", BYTES.values(), ids=BYTES.keys())
def test_pieces_are_copied_from_any_column(dtype: np.dtype, width: int) -> None:
    x = numbers(dtype, ROWS + 2, width)
    (found,) = on_twin(there_and_back(dtype, width), x, schedules=SCHEDULES[2:3])
    for start, copied in zip(STARTS, found, strict=True):
        rows, columns = slice(1, 1 + ROWS), slice(start, start + COLUMNS)
        np.testing.assert_array_equal(copied[rows, columns].view(np.uint8), x[rows, columns].copy().view(np.uint8))


def pieces(dtype: np.dtype, width: int, start: int) -> str:
    """The type of what a thread moves at a time."""

    def body(x: Any, out: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x.at[:, pl.ds(start, COLUMNS)], tile, full)
        plgpu.barrier_wait(full)
        out[...] = tile[...].astype(F32)

    call = kernel(body, (ROWS, COLUMNS), F32, [plgpu.SMEM((ROWS, COLUMNS), dtype), plgpu.Barrier()])
    (found,) = set(
        re.findall(r"pal::store_shared<(\w+)>\(byte, inside", lowered(call, numbers(dtype, ROWS, width)).text)
    )
    return found


@pytest.mark.parametrize(
    ("dtype", "width", "start", "wanted"),
    [
        (BF16, 28, 8, "u32x2"),  # rows of 56 bytes
        (BF16, 30, 8, "u32"),
        (BF16, 31, 8, "u16"),
        (BF16, 28, 2, "u32"),  # from 4 bytes on
        (F32, 30, 4, "u32x2"),
        (F32, 31, 4, "float"),
        (BYTES["u8"], 24, 8, "u32x2"),
        (BYTES["u8"], 26, 8, "u16"),
        (BYTES["u8"], 25, 8, "u8"),
    ],
)
def test_pieces_are_as_wide_as_rows_and_start_allow(dtype: np.dtype, width: int, start: int, wanted: str) -> None:
    assert pieces(dtype, width, start) == wanted


def test_a_column_that_is_promised_to_be_a_multiple_is_copied_in_wide_pieces() -> None:
    def body(first: Any, x: Any, out: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x.at[:, pl.ds(pl.multiple_of(first[0], 4), COLUMNS)], tile, full)
        plgpu.barrier_wait(full)
        out[...] = tile[...].astype(F32)

    call = kernel(body, (ROWS, COLUMNS), F32, [plgpu.SMEM((ROWS, COLUMNS), BF16), plgpu.Barrier()])
    x = numbers(BF16, ROWS, 36)
    assert "pal::store_shared<u32x2>(byte" in lowered(call, np.int32([4]), x).text
    for first in (0, 4, 24, -4):
        (found,) = on_twin(call, np.int32([first]), x, schedules=SCHEDULES[2:3])
        wanted = np.zeros((ROWS, COLUMNS), np.float32)
        inside = range(max(first, 0), min(first + COLUMNS, 36))
        wanted[:, inside.start - first : inside.stop - first] = x[:, inside.start : inside.stop]
        np.testing.assert_array_equal(found, wanted)


def test_the_copy_engine_copies_from_multiples_of_16_bytes_only() -> None:
    def body(first: Any, x: Any, out: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x.at[:, pl.ds(first[0], COLUMNS)], tile, full)
        plgpu.barrier_wait(full)
        plgpu.copy_smem_to_gmem(tile, out.at[:, pl.ds(first[0], COLUMNS)])
        plgpu.wait_smem_to_gmem(0)

    x = numbers(BF16, ROWS, 32)
    call = kernel(body, x.shape, BF16, [plgpu.SMEM((ROWS, COLUMNS), BF16), plgpu.Barrier()])
    text = lowered(call, np.int32([0]), x).text
    assert "pal::tma_load" in text and "pal::tma_store" in text
    for first in (0, 8, 3, 5):
        (found,) = on_twin(call, np.int32([first]), x, schedules=SCHEDULES[2:3])
        part = slice(first, first + COLUMNS)
        np.testing.assert_array_equal(found[:, part].view(np.uint16), x[:, part].view(np.uint16))


def test_a_copy_from_a_known_odd_column_is_made_by_the_threads() -> None:
    assert pieces(BF16, 32, 3) == "u16"
