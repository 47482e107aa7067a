"""Indices outside of a reference, and names that the text around has: the evaluator's results on the twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu

F32 = np.dtype(np.float32)
X = np.arange(48, dtype=F32).reshape(6, 8)
STARTS = np.int32([-1, 1, 2, 9])
EACH = range(len(STARTS))


def rows_of_a_part(at: Any, x: Any, out: Any) -> None:
    for n in EACH:
        out[n] = x.at[1:4][pl.ds(at[n], 2)]


def columns_of_a_part(at: Any, x: Any, out: Any) -> None:
    for n in EACH:
        out[n] = x.at[0:2, 0:6][:, pl.ds(at[n], 4)]


def rows_seen_in_another_shape(at: Any, x: Any, out: Any) -> None:
    for n in EACH:
        out[n] = x.at[pl.ds(at[n], 2)].reshape(4, 4)[...]


def one_number(at: Any, x: Any, out: Any) -> None:
    for n in EACH:
        out[n] = x.at[1:4, 2:5][at[n], at[n]]


def rows_written(at: Any, x: Any, out: Any) -> None:
    for n in EACH:
        out[n] = zeros_like(x)
        out.at[n, 1:4][pl.ds(at[n], 2)] = x[0:2]


def buffers_beside_each_other(at: Any, x: Any, out: Any, first: Any, second: Any, third: Any) -> None:
    for n in EACH:
        for buffer in (first, second, third):
            buffer[...] = zeros_like(x)
        second[pl.ds(at[n], 4)] = x[0:4] + 1
        out[n] = first[...] + 2 * second[...] + 3 * third[...]


def read(at: Any, x: Any, out: Any) -> None:
    """The name of a function of the C library; `x` and `at` are also names of numbers."""
    x_2 = x[0, 0]
    for n in EACH:
        out[n] = x[0, n] + x_2


def zeros_like(x: Any) -> Any:
    return x[...] * 0


def whole(*shape: int) -> tuple[int, ...]:
    return (len(STARTS), *shape)


CASES: list[tuple[Callable[..., None], tuple[int, ...], Sequence[Any]]] = [
    (rows_of_a_part, whole(2, 8), ()),
    (columns_of_a_part, whole(2, 4), ()),
    (rows_seen_in_another_shape, whole(4, 4), ()),
    (one_number, whole(), ()),
    (rows_written, whole(6, 8), ()),
    (buffers_beside_each_other, whole(6, 8), [plgpu.SMEM((6, 8), F32)] * 3),
    (read, whole(), ()),
]


@pytest.mark.parametrize(("kernel", "shape", "scratch"), CASES, ids=[case[0].__name__ for case in CASES])
def test_outside_is_uninitialised_when_read_and_dropped_when_written(
    kernel: Callable[..., None], shape: tuple[int, ...], scratch: Sequence[Any]
) -> None:
    def call(executor: str) -> Any:
        out = pl.ShapeDtypeStruct(shape, F32)
        return pl.pallas_call(kernel, out, scratch_shapes=scratch, interpret=executor)(STARTS, X)

    np.testing.assert_array_equal(call("hopper-twin"), call("reference"))


# Copies by the copy engine, which clips at the edges of arrays only.


def part_of_a_part_loaded(at: Any, x: Any, out: Any, tile: Any, full: Any) -> None:
    for n in EACH:
        plgpu.copy_gmem_to_smem(x.at[1:4].at[pl.ds(at[n], 2)], tile.at[0:2], full)
        plgpu.barrier_wait(full)
        out[n] = tile[0:2]


def rows_beside_a_buffer_loaded(at: Any, x: Any, out: Any, tile: Any, full: Any) -> None:
    for n in EACH:
        tile[...] = zeros_like(x)
        plgpu.commit_smem()
        plgpu.copy_gmem_to_smem(x.at[0:2], tile.at[1:4].at[pl.ds(at[n], 2)], full)
        plgpu.barrier_wait(full)
        out[n] = tile[...]


def part_of_a_part_stored(at: Any, x: Any, out: Any, tile: Any, full: Any) -> None:
    for n in EACH:
        tile[...] = zeros_like(x)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(tile, out.at[n])
        plgpu.wait_smem_to_gmem(0)
        tile[...] = x[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(tile.at[1:3], out.at[n, 1:4].at[pl.ds(at[n], 2)])
        plgpu.wait_smem_to_gmem(0)


@pytest.mark.parametrize(
    ("body", "shape"),
    [(part_of_a_part_loaded, (2, 8)), (rows_beside_a_buffer_loaded, X.shape), (part_of_a_part_stored, X.shape)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_copies_stay_inside_of_every_slice_on_the_way(body: Callable[..., None], shape: tuple[int, ...]) -> None:
    scratch = [plgpu.SMEM(X.shape, F32), plgpu.Barrier()]

    def call(executor: str) -> Any:
        out = pl.ShapeDtypeStruct(whole(*shape), F32)
        return plgpu.kernel(body, out, scratch_types=scratch, interpret=executor)(STARTS, X)

    np.testing.assert_array_equal(call("hopper-twin"), call("reference"))


@pytest.mark.parametrize("rows", [1, 2])
def test_a_copy_that_adds_stays_inside_of_its_slice(rows: int) -> None:
    """The copy engine adds whole boxes; the threads add to one that lies partly inside."""

    def adds(at: Any, x: Any, out: Any, tile: Any) -> None:
        out[...] = zeros_like(x)
        tile[...] = x[...]
        plgpu.commit_smem()
        part = pl.ds(at[0], rows)
        plgpu.copy_smem_to_gmem(tile.at[0:rows], out.at[1:4].at[part], reduction_op="add")
        plgpu.wait_smem_to_gmem(0)

    def call(executor: str) -> Any:
        out = pl.ShapeDtypeStruct(X.shape, F32)
        return plgpu.kernel(adds, out, scratch_types=[plgpu.SMEM(X.shape, F32)], interpret=executor)(STARTS, X)

    np.testing.assert_array_equal(call("hopper-twin"), call("reference"))
