"""Copies whose size only the run knows: `ref.at[pl.ds(start, size)]`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.tpu as pltpu

X = np.arange(64, dtype=np.float32).reshape(8, 8)
OUT = pl.ShapeDtypeStruct((8, 8), np.float32)
DMA = pltpu.SemaphoreType.DMA
MAIN = pl.BlockSpec(memory_space=pl.ANY)
NUMBERS = pl.BlockSpec(memory_space=pltpu.SMEM)
EXECUTORS = pytest.mark.parametrize(
    "interpret", ["reference", "simulator", "cpu", pltpu.InterpretParams(detect_races=True)], ids=str
)


def call(kernel: Any, interpret: Any = None, scratch: Any = (DMA,)) -> Any:
    """A kernel of (numbers in SMEM, x and out in main memory, where out begins with zeros)."""
    made = pl.pallas_call(
        kernel,
        OUT,
        in_specs=[NUMBERS, MAIN, MAIN],
        out_specs=MAIN,
        scratch_shapes=list(scratch),
        input_output_aliases={2: 0},
        interpret=interpret,
    )
    return lambda *numbers: made(np.array(numbers, np.int32), X, np.zeros_like(X))


def rows(numbers: Any, x: Any, _: Any, out: Any, arrived: Any) -> None:
    """Copies `size` rows from row `source` to row `target`."""
    source, target, size = numbers[0], numbers[1], numbers[2]
    pltpu.async_copy(x.at[pl.ds(source, size)], out.at[pl.ds(target, size)], arrived).wait()


def moved(source: int, target: int, size: int) -> Any:
    expected = np.zeros_like(X)
    expected[target : target + size] = X[source : source + size]
    return expected


@pytest.mark.one_executor
@EXECUTORS
@pytest.mark.parametrize("numbers", [(0, 0, 8), (2, 5, 3), (7, 0, 1), (3, 3, 0), (0, 0, -2)])
def test_as_many_rows_as_the_run_says(interpret: Any, numbers: tuple[int, int, int]) -> None:
    assert np.array_equal(call(rows, interpret)(*numbers), moved(*numbers[:2], max(numbers[2], 0)))


@pytest.mark.one_executor
@EXECUTORS
def test_a_size_that_is_read_twice(interpret: Any) -> None:
    def kernel(numbers: Any, x: Any, _: Any, out: Any, arrived: Any) -> None:
        source = x.at[pl.ds(numbers[0], numbers[2])]
        pltpu.async_copy(source, out.at[pl.ds(numbers[1], numbers[2])], arrived).wait()

    assert np.array_equal(call(kernel, interpret)(2, 5, 3), moved(2, 5, 3))


def test_a_size_that_may_have_changed_between_two_reads() -> None:
    def kernel(numbers: Any, x: Any, _: Any, out: Any, size: Any, arrived: Any) -> None:
        source = x.at[pl.ds(0, size[0])]
        size[0] = numbers[0]
        pltpu.async_copy(source, out.at[pl.ds(0, size[0])], arrived).wait()

    with pytest.raises(pl.PalladioValueError, match="read a dynamic size once, and use this value for both"):
        call(kernel, scratch=[pltpu.SMEM((1,), np.int32), DMA])(2)


@pytest.mark.one_executor
@EXECUTORS
def test_dynamic_sizes_along_two_axes_beside_static_indices(interpret: Any) -> None:
    def kernel(numbers: Any, x: Any, _: Any, out: Any, buffer: Any, arrived: Any) -> None:
        high, wide = numbers[0], numbers[1]
        part = buffer.at[1, pl.ds(0, high), pl.ds(2, wide)]
        first = pltpu.make_async_copy(x.at[pl.ds(1, high), pl.ds(0, wide)], part, arrived.at[1])
        first.start()
        first.wait()
        pltpu.sync_copy(part, out.at[pl.ds(0, high), pl.ds(4, wide)])

    scratch = [pltpu.VMEM((2, 8, 8), np.float32), DMA((2,))]
    expected = np.zeros_like(X)
    expected[:3, 4:6] = X[1:4, :2]
    assert np.array_equal(call(kernel, interpret, scratch)(3, 2), expected)


@pytest.mark.one_executor
@EXECUTORS
def test_a_wait_through_another_descriptor_of_as_many_bytes(interpret: Any) -> None:
    def kernel(numbers: Any, x: Any, _: Any, out: Any, arrived: Any) -> None:
        first, second = numbers[0], numbers[1]
        pltpu.async_copy(x.at[pl.ds(0, first)], out.at[pl.ds(0, first)], arrived)
        pltpu.async_copy(x.at[pl.ds(first, second)], out.at[pl.ds(first, second)], arrived)
        both = out.at[pl.ds(0, first + second)]
        pltpu.make_async_copy(both, both, arrived).wait()

    assert np.array_equal(call(kernel, interpret)(2, 4), moved(0, 0, 6))


@pytest.mark.one_executor
@EXECUTORS
def test_a_strided_part(interpret: Any) -> None:
    def kernel(numbers: Any, x: Any, _: Any, out: Any, arrived: Any) -> None:
        size = numbers[0]
        pltpu.async_copy(x.at[pl.ds(1, size, 2)], out.at[pl.ds(0, size)], arrived).wait()

    expected = np.zeros_like(X)
    expected[:3] = X[1:7:2]
    assert np.array_equal(call(kernel, interpret)(3), expected)


@pytest.mark.parametrize(("numbers", "name"), [((6, 0, 3), "x"), ((0, 6, 3), "out"), ((-1, 0, 3), "x")])
def test_an_element_outside_of_an_array_is_reported(numbers: tuple[int, int, int], name: str) -> None:
    with pytest.raises(pl.PalladioError) as error:
        call(rows, pltpu.InterpretParams())(*numbers)
    text = str(error.value)
    assert text.startswith(f"out-of-bounds: {name} ") and "pltpu.async_copy(x.at[pl.ds(source, size)]" in text


def test_a_wait_for_fewer_bytes_than_were_copied_is_reported() -> None:
    def kernel(numbers: Any, x: Any, _: Any, out: Any, arrived: Any) -> None:
        size, less = numbers[0], numbers[1]
        pltpu.async_copy(x.at[pl.ds(0, size)], out.at[pl.ds(0, size)], arrived)
        part = out.at[pl.ds(0, less)]
        pltpu.make_async_copy(part, part, arrived).wait()

    params = pltpu.InterpretParams(detect_races=True)
    assert np.array_equal(call(kernel, params)(4, 4), moved(0, 0, 4))
    with pytest.raises(pl.PalladioError, match=r"semaphore-not-drained: .* ends at 32"):
        call(kernel, params)(4, 3)


def test_memory_read_before_the_wait_is_a_race() -> None:
    def kernel(numbers: Any, x: Any, _: Any, out: Any, buffer: Any, arrived: Any) -> None:
        size = numbers[0]
        copy = pltpu.async_copy(x.at[pl.ds(0, size)], buffer.at[pl.ds(0, size)], arrived)
        pltpu.sync_copy(buffer.at[pl.ds(numbers[1], 1)], out.at[pl.ds(0, 1)])
        copy.wait()

    scratch = [pltpu.VMEM((8, 8), np.float32), DMA]
    with pytest.raises(pl.PalladioError, match=r"copy-not-awaited: buffer\[1\]"):
        call(kernel, pltpu.InterpretParams(detect_races=True), scratch)(3, 1)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda part: part[...], "is there for copies"),
        (lambda part: part.reshape(8), "is there for copies"),
        (lambda part: pltpu.make_async_copy(part, part, part), "no such semaphore|one semaphore"),
    ],
)
def test_only_copies_take_a_dynamic_size(use: Any, words: str) -> None:
    def kernel(numbers: Any, x: Any, _: Any, out: Any, arrived: Any) -> None:
        use(x.at[pl.ds(0, numbers[0])])

    with pytest.raises(TypeError, match=words):
        call(kernel)(1)


def test_both_sides_have_the_same_size() -> None:
    def kernel(numbers: Any, x: Any, _: Any, out: Any, arrived: Any) -> None:
        pltpu.async_copy(x.at[pl.ds(0, numbers[0])], out.at[pl.ds(0, numbers[1])], arrived).wait()

    with pytest.raises(ValueError, match=r"(?s)one shape and dtype.*f32\[dynamic,8\].*read a dynamic size once"):
        call(kernel)(1, 1)


@pytest.mark.parametrize("size", [np.float32(1), [1, 2]])
def test_a_size_is_a_scalar_integer(size: Any) -> None:
    def kernel(numbers: Any, x: Any, _: Any, out: Any, arrived: Any) -> None:
        x.at[pl.ds(0, numbers[0].astype(np.float32) if isinstance(size, np.float32) else numbers[...])]

    with pytest.raises(TypeError, match="the size of a slice is a scalar integer"):
        call(kernel)(1, 2)
