"""Large outputs that are written once go to memory past the caches, and blocks of the next task are fetched early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio.call.staged import CALLS
from palladio.cpu.runtime import host
from palladio.driver.capture import prepared_programs
from palladio.driver.compile import PIPELINES, llvm
from palladio.passes import run_passes

ROWS = 6
GUARD = 7


@pytest.fixture(autouse=True)
def every_output_is_large() -> Iterator[None]:
    """No kernel was compiled before or is later."""
    CALLS.clear()
    with host.compiling_for(replace(host.current(), streamed_bytes=0)):
        yield
    CALLS.clear()


def text(call: Any, x: Any) -> str:
    """The LLVM text of a call."""
    CALLS.clear()
    with prepared_programs() as programs:
        pl.jit(call)(x)
    (eqn,) = run_passes(programs[-1], PIPELINES["cpu"]).eqns
    return llvm(eqn).text


def streams(call: Any, x: Any) -> bool:
    """True if a call writes past the caches."""
    return "!nontemporal" in text(call, x)


def doubled(x: Any, out: Any) -> None:
    out[...] = x[...] + x[...]


def normalised(x: Any, out: Any) -> None:
    powers = jnp.exp(x[...] - jnp.max(x[...], axis=-1, keepdims=True))
    out[...] = powers * (1 / jnp.sum(powers, axis=-1, keepdims=True))


def scaled(x: Any, out: Any) -> None:
    """One root for each row: little work for each element."""
    out[...] = x[...] / jnp.sqrt(jnp.sum(x[...] * x[...], axis=-1, keepdims=True))


def test_an_array_that_begins_inside_an_element_is_written_too() -> None:
    memory = np.zeros(ROWS * 256 * 4 + 1, np.uint8)
    out = memory[1:].view(np.float32).reshape(ROWS, 256)
    x = np.arange(ROWS * 256, dtype=np.float32).reshape(ROWS, 256)
    call = pl.pallas_call(doubled, pl.ShapeDtypeStruct(x.shape, x.dtype))
    with pl.executor("cpu"):
        assert call(x, out=out) is out
    np.testing.assert_array_equal(out, x + x)


def out_is_read(x: Any, out: Any) -> None:
    out[...] = x[...]
    out[...] = out[...] + x[...]


def stored_in_two_parts(x: Any, out: Any) -> None:
    out[0] = x[0] * 2
    out[1:] = x[1:] * 2


def called(kernel: Callable[..., None], x: Any, rows: int = 2, **options: Any) -> Any:
    """The kernel on blocks of some rows."""
    block = pl.BlockSpec((rows, x.shape[1]), lambda i: (i, 0))
    grid = (pl.cdiv(x.shape[0], rows),)
    return pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct(x.shape, x.dtype),
        grid=grid,
        in_specs=[block],
        out_specs=block,
        interpret="cpu",
        compiler_params=pl.CompilerParams(dimension_semantics=("parallel",)),
        **options,
    )


def numbers(columns: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).integers(-50, 50, (ROWS, columns)).astype(dtype)


@pytest.mark.parametrize("columns", [1, 100, 128, 144, 145, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.float16, np.int8, np.bool_])
def test_every_element_is_written_wherever_the_output_begins(columns, dtype):
    x = numbers(columns, dtype)
    expected = x + x
    call = called(doubled, x)
    for shift in range(0, 20, 3):
        room = np.zeros(x.size + 64 + GUARD, dtype)
        out = room[shift : shift + x.size].reshape(x.shape)
        call(x, out=out)
        np.testing.assert_array_equal(out, expected)
        assert not room[:shift].any()
        assert not room[shift + x.size :].any()


def test_long_rows_are_written_past_the_caches_and_short_ones_are_not():
    long, short = (text(called(doubled, numbers(columns)), numbers(columns)) for columns in (128, 100))
    assert "!nontemporal" in long and "fence seq_cst" in long
    assert "!nontemporal" not in short


@pytest.mark.parametrize("kernel", [out_is_read, stored_in_two_parts])
def test_what_is_read_again_or_written_in_parts_stays_in_the_caches(kernel):
    x = numbers(256)
    np.testing.assert_array_equal(called(kernel, x)(x), 2 * x)
    assert not streams(called(kernel, x), x)


def test_an_output_that_shares_memory_with_an_input_stays_in_the_caches():
    x = numbers(256)
    call = called(doubled, x, input_output_aliases={0: 0})
    np.testing.assert_array_equal(call(x), 2 * x)
    assert not streams(call, x)


def test_a_block_that_several_steps_write_stays_in_the_caches():
    x = numbers(256)
    block = pl.BlockSpec((ROWS, 256), lambda i: (0, 0))
    out = pl.ShapeDtypeStruct(x.shape, x.dtype)
    call = pl.pallas_call(doubled, out, grid=(3,), in_specs=[block], out_specs=block, interpret="cpu")
    np.testing.assert_array_equal(call(x), 2 * x)
    assert not streams(call, x)


def test_small_outputs_stay_in_the_caches():
    x = numbers(256)
    size = 2 * x.size * x.dtype.itemsize
    for streamed, expected in ((size, True), (size + 1, False)):
        with host.compiling_for(replace(host.current(), streamed_bytes=streamed)):
            assert streams(called(doubled, x), x) == expected


def test_a_small_output_of_a_call_with_large_inputs_stays_in_the_caches() -> None:
    def first(x: Any, out: Any) -> None:
        out[...] = x[:ROWS]

    x = numbers(256).repeat(10, 0)
    call = pl.pallas_call(first, pl.ShapeDtypeStruct((ROWS, 256), x.dtype), interpret="cpu")
    with host.compiling_for(replace(host.current(), streamed_bytes=x.nbytes)):
        assert not streams(call, x)


@pytest.mark.parametrize("rows", [1, 2, 4, 6])
def test_values_that_a_reduction_passes_are_kept_where_the_output_is_not_read_back(rows):
    """Four rows do not divide six: the last block is a copy that is written back."""
    x = numbers(272) / np.float32(16)
    powers = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    np.testing.assert_allclose(called(normalised, x, rows)(x), powers / powers.sum(-1, keepdims=True), rtol=1e-6)
    assert streams(called(normalised, x, rows), x)


def test_the_last_pass_over_a_block_fetches_the_next_one():
    found = text(called(normalised, numbers(256)), numbers(256))
    assert found.count("call void @llvm.prefetch") == 4  # one for each of the four sums that are formed side by side


def test_a_kernel_of_one_task_or_of_large_blocks_or_that_computes_little_fetches_nothing():
    x = numbers(256)
    assert "llvm.prefetch" not in text(called(doubled, x), x)
    assert "llvm.prefetch" not in text(called(scaled, x), x)
    assert "llvm.prefetch" not in text(called(normalised, x, ROWS), x)
    with host.compiling_for(replace(host.current(), fetched_bytes=2 * 256 * 4 - 1)):
        assert "llvm.prefetch" not in text(called(normalised, x, 2), x)
