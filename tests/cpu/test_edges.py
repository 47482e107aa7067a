"""Blocks, reads and stores that reach past the edge of their array are copied row by row, with the same bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
from palladio.cpu.runtime.machine_code import MachineCode

Array = np.ndarray[Any, Any]

DTYPES = [np.float32, np.float64, ml_dtypes.bfloat16, np.bool_, np.int64, ml_dtypes.int4, ml_dtypes.float8_e4m3fn]


def numbers(shape: tuple[int, ...], dtype: Any) -> Array:
    return np.random.default_rng(0).integers(0, 7, shape).astype(dtype)


def copied(x: Any, out: Any) -> None:
    out[...] = x[...]


def blocks(x: Array, block: tuple[int, ...], executor: str) -> Array:
    spec = pl.BlockSpec(block, lambda *ids: ids)
    grid = tuple(map(pl.cdiv, x.shape, block))
    shape = pl.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(copied, shape, grid=grid, in_specs=[spec], out_specs=spec, interpret=executor)(x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "block"),
    [((50,), (16,)), ((5,), (8,)), ((9, 37), (4, 20)), ((9, 37), (12, 37)), ((3, 5, 18), (2, 4, 17))],
)
def test_blocks(shape: tuple[int, ...], block: tuple[int, ...], dtype: Any) -> None:
    x = numbers(shape, dtype)
    assert blocks(x, block, "cpu").tobytes() == x.tobytes()
    assert blocks(x.T, block[::-1], "cpu").tobytes() == x.T.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_that_begin_before_their_array(dtype: Any) -> None:
    x = numbers((10, 30), dtype)
    padded = pl.BlockSpec((pl.Element(8, (3, 4)), pl.Element(20, (5, 7))), lambda i, j: (i * 8, j * 20))
    spec, shape = pl.BlockSpec((8, 20), lambda i, j: (i, j)), pl.ShapeDtypeStruct((16, 40), dtype)
    found = [
        pl.pallas_call(copied, shape, grid=(2, 2), in_specs=[padded], out_specs=spec, interpret=executor)(x)
        for executor in ("reference", "cpu")
    ]
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("start", [(0, 0), (-2, 3), (7, -1), (5, 25), (12, 40)])
def test_reads_and_stores(start: tuple[int, int], stride: int, dtype: Any) -> None:
    def kernel(at: Any, x: Any, y: Any, part: Any, out: Any) -> None:
        part[...] = x[pl.ds(at[0], 6), pl.ds(at[1], 20, stride)]
        out[...] = x[...]
        out[pl.ds(at[0], 6), pl.ds(at[1], 20, stride)] = y[...]

    given = np.array(start, np.int32), numbers((10, 30), dtype), numbers((6, 20), dtype)
    shapes = [pl.ShapeDtypeStruct(shape, dtype) for shape in ((6, 20), (10, 30))]
    expected, found = (pl.pallas_call(kernel, shapes, interpret=name)(*given) for name in ("reference", "cpu"))
    assert [array.tobytes() for array in found] == [array.tobytes() for array in expected]


def test_a_start_beyond_every_axis() -> None:
    def kernel(at: Any, x: Any, out: Any) -> None:
        out[...] = x[...]
        out[pl.ds(at[0], 8, 2)] = x[pl.ds(0, 8, 2)] + 1

    x, at = numbers((30,), np.float32), np.array([2**64 - 3], np.uint64)
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), interpret="cpu")
    assert call(at, x).tobytes() == x.tobytes()


def test_a_store_of_shifted_elements_reads_them_first() -> None:
    def kernel(at: Any, x: Any, out: Any) -> None:
        out[...] = x[...]
        out[pl.ds(at[0], 20)] = out[pl.ds(at[0] - 1, 20)]

    x = numbers((24,), np.float32)
    shape = pl.ShapeDtypeStruct(x.shape, x.dtype)
    for start in (1, 3, 10):
        given = np.array([start], np.int32), x
        expected, found = (pl.pallas_call(kernel, shape, interpret=name)(*given) for name in ("reference", "cpu"))
        assert found.tobytes() == expected.tobytes()


def test_no_element_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each element was, which took seven times as long as a block inside."""
    texts: list[str] = []
    make = MachineCode.__init__

    def remember(self: MachineCode, text: str, *args: Any, **options: Any) -> None:
        texts.append(text)
        make(self, text, *args, **options)

    monkeypatch.setattr(MachineCode, "__init__", remember)
    x = numbers((100, 100), np.float32)
    assert blocks(x, (64, 64), "cpu").tobytes() == x.tobytes()
    (text,) = texts
    assert text.count("call void @llvm.memcpy") == 3  # the input to its copy, the output to its copy, and that back
    assert "icmp ult" not in text
