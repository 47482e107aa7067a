"""Rows by their numbers, gathered and combined in vectors, and atomic operations where no other worker can be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu

NUMBERS = np.array([3, 0, 3, 11, -1, 4, 100, 3], np.int32)
"""Twice the same, one counted from the end, and numbers outside."""


def on_both(kernel: Callable[..., None], shape: tuple[int, ...], dtype: Any, *given: Any, **params: Any) -> list[Any]:
    out = pl.ShapeDtypeStruct(shape, dtype)
    return [pl.pallas_call(kernel, out, interpret=name, **params)(*given) for name in ("cpu", "reference")]


def gathered(x: Any, numbers: Any, out: Any) -> None:
    out[...] = x[numbers[...]]


def parts(x: Any, numbers: Any, out: Any) -> None:
    out[...] = x[numbers[...], 5:42]


def across(x: Any, numbers: Any, out: Any) -> None:
    out[...] = x[:8, numbers[...]]


def strided(x: Any, numbers: Any, out: Any) -> None:
    out[...] = x[numbers[...], ::2]


def added(x: Any, numbers: Any, out: Any) -> None:
    out[...] = jnp.zeros((12, x.shape[1]), x.dtype).at[numbers[...]].add(x[:8])


def replaced(x: Any, numbers: Any, out: Any) -> None:
    out[...] = x[...]
    out[numbers[...]] = x[:8]


def atomically(x: Any, numbers: Any, out: Any) -> None:
    out[...] = x[...]
    plgpu.atomic_add(out, (numbers[...], slice(None)), x[:8])


def exchanged(x: Any, numbers: Any, out: Any) -> None:
    old = plgpu.atomic_max(x.at[numbers[...] % 12], x[:8])
    out[...] = old + x[:8]


KERNELS = [(gathered, 8, 45), (parts, 8, 37), (across, 8, 8), (strided, 8, 23), (added, 12, 45), (replaced, 12, 45)]
KERNELS += [(atomically, 12, 45), (exchanged, 8, 45)]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.int32], ids=str)
@pytest.mark.parametrize(("kernel", "rows", "columns"), KERNELS, ids=lambda each: getattr(each, "__name__", str(each)))
def test_rows_by_their_numbers(kernel: Callable[..., None], rows: int, columns: int, dtype: Any) -> None:
    x = (4 * np.random.default_rng(0).standard_normal((12, 45))).astype(dtype)
    compiled, meant = on_both(kernel, (rows, columns), dtype, x, NUMBERS)
    np.testing.assert_array_equal(compiled.view(np.uint8), meant.view(np.uint8))


def test_rows_are_read_and_combined_in_vectors(texts: list[str]) -> None:
    x = np.ones((12, 48), np.float32)
    on_both(added, (12, 48), np.float32, x, NUMBERS)
    body = texts[0].split("}")[0]
    assert "load <16 x float>" in body and "fadd <16 x float>" in body
    assert "load float" not in body


def counted(numbers: Any, out: Any) -> None:
    @pl.when(pl.program_id(0) == 0)
    def start() -> None:
        out[...] = jnp.zeros_like(out)

    plgpu.atomic_add(out, (numbers[...],), jnp.ones(numbers.shape, np.int32))


@pytest.mark.parametrize(("order", "exchanges"), [("arbitrary", 0), ("parallel", 1)])
def test_only_steps_on_several_workers_exchange(texts: list[str], order: str, exchanges: int) -> None:
    numbers = np.random.default_rng(0).integers(0, 8, 256).astype(np.int32)
    call = pl.pallas_call(
        counted,
        pl.ShapeDtypeStruct((8,), np.int32),
        grid=(4,),
        in_specs=[pl.BlockSpec((64,), lambda i: (i,))],
        out_specs=pl.BlockSpec((8,), lambda i: (0,)),
        compiler_params=pl.CompilerParams(dimension_semantics=(order,)),
        interpret="cpu",
    )
    found = call(numbers)
    assert texts[-1].count("cmpxchg") == exchanges
    if not exchanges:
        np.testing.assert_array_equal(found, np.bincount(numbers, minlength=8))


def test_old_elements_that_nothing_uses_are_not_written_down(texts: list[str]) -> None:
    def kept(numbers: Any, out: Any, old: Any) -> None:
        out[...] = jnp.zeros_like(out)
        old[...] = plgpu.atomic_add(out, (numbers[...],), jnp.ones(numbers.shape, np.int32))

    def dropped(numbers: Any, out: Any) -> None:
        out[...] = jnp.zeros_like(out)
        plgpu.atomic_add(out, (numbers[...],), jnp.ones(numbers.shape, np.int32))

    out = pl.ShapeDtypeStruct((8,), np.int32)
    for kernel, outs in ((kept, [out, pl.ShapeDtypeStruct((8,), np.int32)]), (dropped, out)):
        pl.pallas_call(kernel, outs, interpret="cpu")(NUMBERS)
    assert texts[0].count("-2147483648") > texts[1].count("-2147483648")


def test_one_value_for_all_elements_is_not_written_to_memory(texts: list[str]) -> None:
    def kernel(numbers: Any, out: Any) -> None:
        out[...] = jnp.zeros_like(out)
        plgpu.atomic_add(out, (numbers[...],), jnp.ones((4096,), np.int32))

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((8,), np.int32), interpret="cpu")
    numbers = np.random.default_rng(0).integers(-8, 8, 4096).astype(np.int32)
    np.testing.assert_array_equal(call(numbers), np.bincount(numbers % 8, minlength=8))
    found = re.search(r"@arena_size = internal constant i64 (\d+)", texts[-1])
    assert found and 4096 * 4 <= int(found[1]) < 2 * 4096 * 4  # the indices only


def scattered(numbers: Any, values: Any, out: Any) -> None:
    out[...] = jnp.zeros_like(out)
    out[numbers[...]] = values[...]


def scattered_where(numbers: Any, values: Any, out: Any) -> None:
    out[...] = jnp.zeros_like(out)
    pltpu.store(out.at[numbers[...] % 8], values[...], mask=values[...] > 40)


def maximal(numbers: Any, values: Any, out: Any) -> None:
    out[...] = jnp.zeros_like(out)
    old = plgpu.atomic_max(out, (numbers[...],), values[...])
    out[0] += jnp.sum(jnp.where((numbers[...] >= -8) & (numbers[...] < 8), old, 0))


@pytest.mark.parametrize("kernel", [scattered, scattered_where, maximal], ids=lambda each: each.__name__)
@pytest.mark.parametrize("shape", [(63,), (64,), (67,), (2, 65)], ids=str)
def test_several_elements_in_a_turn_are_changed_in_order(kernel: Callable[..., None], shape: tuple[int, ...]) -> None:
    """Long axes with and without a remainder, elements chosen often, and numbers outside."""
    generator = np.random.default_rng(0)
    numbers, values = (generator.integers(low, 99, shape).astype(np.int32) for low in (-12, 1))
    numbers //= 9
    np.testing.assert_array_equal(*on_both(kernel, (8,), np.int32, numbers, values))


def test_a_turn_of_a_long_loop_changes_several_elements(texts: list[str]) -> None:
    for count in (48, 64):
        on_both(scattered, (8,), np.int32, np.zeros(count, np.int32), np.zeros(count, np.int32))
    short, long = (len(re.findall(r"store i32", text)) for text in texts)
    assert long == short + 3
