"""Kernels whose equations go through the rows of a block together."""

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
from palladio.cpu.lower import lower_grid
from palladio.cpu.runtime import host
from palladio.driver.capture import prepared_programs
from palladio.driver.compile import PIPELINES
from palladio.driver.executors import CPU
from palladio.passes import run_passes

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True, params=[0, 1 << 40], ids=["past_the_caches", "in_the_caches"])
def large(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every output is large, or none is."""
    CALLS.clear()
    with host.compiling_for(replace(host.current(), streamed_bytes=request.param)):
        yield
    CALLS.clear()


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def run(kernel: Callable[..., None], shapes: list[tuple[int, ...]], *arrays: Array, dtype: Any) -> list[Array]:
    """The results of a kernel on whole arrays of a dtype."""
    call = pl.pallas_call(kernel, [pl.ShapeDtypeStruct(shape, dtype) for shape in shapes])
    with pl.executor("cpu"):
        return [np.asarray(each) for each in call(*(array.astype(dtype) for array in arrays))]


def close(found: Array, expected: Array, dtype: Any) -> None:
    tolerance = {np.float64: 1e-13, np.float32: 1e-5}.get(dtype, 3e-2)
    assert np.abs(found.astype(np.float64) - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(7, 512), (64, 300), (3, 33), (32, 1024)])
def test_gradients_of_a_normalisation(shape: tuple[int, int], dtype: Any) -> None:
    def kernel(x_ref: Any, g_ref: Any, w_ref: Any, dx: Any, dw: Any, db: Any) -> None:
        x, g = x_ref[...], g_ref[...]
        given = g * w_ref[...]
        mean, slope = (jnp.mean(each, axis=1, keepdims=True) for each in (given, given * x))
        dx[...] = given - mean - x * slope
        dw[...] += jnp.sum(g * x, axis=0)
        db[...] += jnp.sum(g, axis=0)

    def started(x: Any, g: Any, w: Any, dx: Any, dw: Any, db: Any) -> None:
        dw[...] = jnp.ones_like(dw)
        db[...] = jnp.zeros_like(db)
        kernel(x, g, w, dx, dw, db)

    x, g, w = (
        each.astype(dtype).astype(np.float64) for each in (normal(0, *shape), normal(1, *shape), normal(2, shape[1]))
    )
    found = run(started, [shape, shape[1:], shape[1:]], x, g, w, dtype=dtype)
    given = g * w
    expected = (
        given - given.mean(1, keepdims=True) - x * (given * x).mean(1, keepdims=True),
        1 + (g * x).sum(0),
        g.sum(0),
    )
    for each, its in zip(found, expected, strict=True):
        close(each, its, dtype)


@pytest.mark.parametrize("columns", [256, 300])
def test_reductions_that_depend_on_one_another(columns: int) -> None:
    def kernel(x_ref: Any, out: Any, most: Any) -> None:
        x = x_ref[...]
        shifted = x - jnp.mean(x, axis=1, keepdims=True)
        variance = jnp.mean(shifted * shifted, axis=1, keepdims=True)
        out[...] = shifted / jnp.sqrt(variance + 1e-5)
        most[...] = jnp.max(x, axis=1)

    x = normal(0, 20, columns)
    found, most = run(kernel, [x.shape, (20,)], x, dtype=np.float32)
    shifted = x - x.mean(1, keepdims=True)
    close(found, shifted / np.sqrt((shifted * shifted).mean(1, keepdims=True) + 1e-5), np.float32)
    np.testing.assert_array_equal(most, x.astype(np.float32).max(1))


def test_extremes_of_rows_with_nans() -> None:
    def kernel(x_ref: Any, least: Any, most: Any, out: Any) -> None:
        x = x_ref[...]
        least[...], most[...] = jnp.min(x, axis=1), jnp.max(x, axis=1)
        out[...] = x - jnp.sum(x, axis=1, keepdims=True)

    x = normal(0, 9, 320)
    x[3, 7], x[5, 319] = np.nan, np.nan
    least, most, found = run(kernel, [(9,), (9,), x.shape], x, dtype=np.float64)
    np.testing.assert_array_equal(least, x.min(1))
    np.testing.assert_array_equal(most, x.max(1))
    np.testing.assert_allclose(found, x - x.sum(1, keepdims=True), rtol=1e-12, atol=1e-12)


def test_sums_of_rows_that_become_columns_are_whole_before() -> None:
    def kernel(x_ref: Any, out: Any, total: Any) -> None:
        x = x_ref[...]
        sums, extremes = jnp.sum(x, axis=1), jnp.max(x, axis=1)
        total[...] = jnp.sum(x, axis=0)
        out[...] = x * sums[None, :] + extremes[:, None]

    x = normal(0, 256, 256)
    found, total = run(kernel, [x.shape, (256,)], x, dtype=np.float64)
    close(found, x * x.sum(1)[None, :] + x.max(1)[:, None], np.float64)
    close(total, x.sum(0), np.float64)


@pytest.mark.parametrize("turned", [False, True])
def test_rows_that_are_replaced_are_read_before(turned: bool) -> None:
    """Each row is replaced by what is computed of it, or of another one."""

    def kernel(x_ref: Any, out: Any, total: Any) -> None:
        out[...] = x_ref[...]
        x = jnp.flip(out[...], 0) if turned else out[...]
        sums, extremes = jnp.sum(x, axis=1, keepdims=True), jnp.max(x, axis=1, keepdims=True)
        out[...] = x - sums * extremes
        total[...] = jnp.sum(out[...], axis=0)

    x = normal(0, 16, 320)
    given = x[::-1] if turned else x
    expected = given - given.sum(1, keepdims=True) * given.max(1, keepdims=True)
    found, total = run(kernel, [x.shape, (320,)], x, dtype=np.float64)
    close(found, expected, np.float64)
    close(total, expected.sum(0), np.float64)


def test_a_product_is_reduced_after_it_is_computed() -> None:
    def kernel(x_ref: Any, y_ref: Any, out: Any, total: Any) -> None:
        product = x_ref[...] @ y_ref[...]
        shifted = product - jnp.sum(product, axis=1, keepdims=True)
        out[...] = shifted / jnp.max(product, axis=1, keepdims=True)
        total[...] = jnp.sum(shifted, axis=0)

    x, y = normal(0, 24, 40), normal(1, 40, 256)
    product = x @ y
    shifted = product - product.sum(1, keepdims=True)
    found, total = run(kernel, [(24, 256), (256,)], x, y, dtype=np.float64)
    close(found * product.max(1, keepdims=True), shifted, np.float64)
    close(total, shifted.sum(0), np.float64)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(1, 320), (2, 256), (5, 320), (3, 336), (4, 300)])
@pytest.mark.parametrize("start", [0, 1, 8])
def test_a_row_is_reduced_while_the_one_before_is_stored(shape: tuple[int, int], dtype: Any, start: int) -> None:
    """Results begin `start` elements after whole vectors."""

    def kernel(x_ref: Any, out: Any) -> None:
        x = x_ref[...]
        out[...] = x / jnp.sqrt(jnp.mean(x * x, axis=1, keepdims=True))

    x = normal(0, *shape).astype(dtype)
    room = np.zeros(x.size + 128, dtype)
    start += -(room.ctypes.data // room.itemsize) % 64
    with pl.executor("cpu"):
        pl.pallas_call(kernel, pl.ShapeDtypeStruct(shape, dtype))(x, out=room[start : start + x.size].reshape(shape))
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide * wide).mean(1, keepdims=True))
    close(room[start : start + x.size].reshape(shape), expected, dtype)
    assert not room[:start].any() and not room[start + x.size :].any()


@pytest.mark.parametrize("exponential", [False, True])
def test_only_rows_that_are_not_prefetched_are_reduced_beside_stores(exponential: bool) -> None:
    def kernel(x_ref: Any, out: Any) -> None:
        x = x_ref[...]
        total = jnp.sum(x, axis=1, keepdims=True)
        out[...] = (jnp.exp(x) if exponential else x) - total

    rows = pl.BlockSpec((8, 256), lambda i: (i, 0))
    call = pl.pallas_call(
        kernel, pl.ShapeDtypeStruct((32, 256), np.float32), grid=(4,), in_specs=[rows], out_specs=rows
    )
    with prepared_programs() as programs:
        pl.jit(call)(normal(0, 32, 256).astype(np.float32))
    (eqn,) = run_passes(programs[0], PIPELINES[CPU.name]).eqns
    text = lower_grid(eqn.grid, eqn.kernel, eqn.input_types).text
    beside = host.current().streamed_bytes == 0 and not exponential
    # The loop that reduces a row in four chains stores four vectors of the row before.
    assert text.count("!nontemporal !0") == (5 if beside else host.current().streamed_bytes == 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(1, 64), (5, 33), (8, 320)])
def test_rows_that_are_replaced_in_place(shape: tuple[int, int], dtype: Any) -> None:
    """A softmax of the block that it is stored to: exponentials are kept while they are summed."""

    def kernel(x_ref: Any, out: Any) -> None:
        x = out[...]
        shifted = jnp.exp(x - jnp.max(x, axis=1, keepdims=True))
        out[...] = shifted / jnp.sum(shifted, axis=1, keepdims=True)

    x = normal(0, 2 * shape[0], shape[1]).astype(dtype)
    rows = pl.BlockSpec(shape, lambda i: (i, 0))
    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct(x.shape, dtype),
        grid=(2,),
        in_specs=[rows],
        out_specs=rows,
        input_output_aliases={0: 0},
        interpret="cpu",
    )
    wide = x.astype(np.float64)
    shifted = np.exp(wide - wide.max(1, keepdims=True))
    close(call(x), shifted / shifted.sum(1, keepdims=True), dtype)


@pytest.mark.parametrize("first", [False, True])
def test_rows_by_their_numbers_are_stored_beside_a_group(first: bool) -> None:
    """Also by numbers that the group computes."""

    def kernel(x: Any, y: Any, once: Any, twice: Any, chosen: Any, more: Any) -> None:
        largest = jnp.max(x[...], axis=1)
        if first:
            chosen[...] = y[x[:, 0]]
        once[...] = x[...] - largest[:, None]
        twice[...] = x[...] + 1
        if not first:
            chosen[...] = y[largest]
        more[...] = y[largest] + x[...]

    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, (6, 16)).astype(np.int32)
    y = np.arange(96, dtype=np.int32).reshape(6, 16)
    out = [pl.ShapeDtypeStruct(x.shape, x.dtype)] * 4
    found, expected = (pl.pallas_call(kernel, out, interpret=name)(x, y) for name in ("cpu", "reference"))
    np.testing.assert_array_equal(found, expected)
