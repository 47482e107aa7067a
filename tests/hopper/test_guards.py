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
