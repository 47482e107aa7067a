"""Products of which only some rows are stored: those alone are computed, and nothing else shows in the result."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio.cpu.products import product
from palladio.library import gmm, matmul, tgmm
from tests.pairs import every_pair

Array = Any
BFLOAT16 = ml_dtypes.bfloat16
ROWS, DEPTH, COLUMNS = 47, 64, 96


def whole_numbers(seed: int, *shape: int) -> Array:
    """Small enough for all sums to be exact."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


@functools.cache
def storing(chosen: Callable[..., Any], dtype: Any) -> Callable[..., Array]:
    """A kernel that stores the chosen rows of a product, between bounds that it is given."""

    def kernel(bounds: Any, x_ref: Any, y_ref: Any, before: Any, out: Any) -> None:
        mask = chosen(jnp.arange(ROWS)[:, None], jnp.arange(COLUMNS)[None, :], bounds[0], bounds[1])
        found = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=np.float32)
        out[...] = jnp.where(mask, found.astype(out.dtype), out[...])

    return pl.pallas_call(
        kernel, pl.ShapeDtypeStruct((ROWS, COLUMNS), dtype), input_output_aliases={3: 0}, interpret="cpu"
    )


def stored(
    chosen: Callable[..., Any], low: int, high: int, dtype: Any = np.float32, old: Array | None = None, poison: Any = 0
) -> tuple[Array, Array, Array]:
    """What a kernel leaves in its output that stores the chosen rows of a product; the product; what was there.

    Args:
        chosen: from the rows, the columns and two bounds, the mask; its shape goes with the product's.
        poison: what the rows of the left operand are outside of the bounds.
    """
    x, y = whole_numbers(0, ROWS, DEPTH), whole_numbers(1, DEPTH, COLUMNS)
    expected = x @ y
    x[: max(low, 0)] += poison
    x[max(high, 0) :] += poison
    old = whole_numbers(2, ROWS, COLUMNS) if old is None else old
    given = [array.astype(dtype) for array in (x, y, old)]
    found = storing(chosen, dtype)(np.array([low, high], np.int32), *given)
    return found.astype(np.float32), expected, old


def rows_between(row: Any, column: Any, low: Any, high: Any) -> Any:
    return (row >= low) & (row < high)


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
@pytest.mark.parametrize("count", [*range(31), ROWS])
def test_any_number_of_rows_is_computed(count: int, dtype: Any) -> None:
    for low in (0, min(5, ROWS - count), ROWS - count):
        found, expected, old = stored(rows_between, low, low + count, dtype)
        old[low : low + count] = expected[low : low + count].astype(dtype)
        np.testing.assert_array_equal(found, old)


@pytest.mark.parametrize("transposed", [False, True], ids=["by rows", "by columns"])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_the_sums_of_any_number_of_rows_begin_at_given_values(dtype: Any, transposed: bool) -> None:
    """There are more than 32, which are multiplied in panels, and last ones whose number is known at the call only."""
    rows, sums = 70, np.float32 if dtype == np.float32 else np.int32
    x, y, begin = whole_numbers(0, rows, DEPTH), whole_numbers(1, DEPTH, COLUMNS), whole_numbers(2, rows, COLUMNS)

    def kernel(bounds: Any, x_ref: Any, y_ref: Any, begin_ref: Any, out: Any) -> None:
        mask = rows_between(jnp.arange(rows)[:, None], 0, bounds[0], bounds[1])
        left = x_ref[...].T if transposed else x_ref[...]
        found = jnp.dot(left, y_ref[...], preferred_element_type=sums) + begin_ref[...]
        out[...] = jnp.zeros((rows, COLUMNS), sums)
        out[...] = jnp.where(mask, found, out[...])

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((rows, COLUMNS), sums), interpret="cpu")
    given = (x.T.copy() if transposed else x).astype(dtype), y.astype(dtype), begin.astype(sums)
    for low, count in [(0, rows), (2, 68), *((3, count) for count in range(33, 47))]:
        expected = np.zeros((rows, COLUMNS), sums)
        expected[low : low + count] = (x @ y + begin)[low : low + count]
        np.testing.assert_array_equal(call(np.array([low, low + count], np.int32), *given), expected)


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_what_is_no_number_in_other_rows_does_not_show(poison: float, dtype: Any) -> None:
    found, expected, old = stored(rows_between, 11, 32, dtype, poison=poison)
    old[11:32] = expected[11:32].astype(dtype)
    np.testing.assert_array_equal(found, old)


@pytest.mark.parametrize(("low", "high"), [(-5, 9), (40, 99), (20, 20), (30, 10), (-9, -1), (-9, 99)])
def test_bounds_may_lie_outside_and_cross(low: int, high: int) -> None:
    found, expected, old = stored(rows_between, low, high)
    rows = np.arange(ROWS)
    chosen = (rows >= low) & (rows < high)
    np.testing.assert_array_equal(found, np.where(chosen[:, None], expected, old))


MASKS: dict[str, Callable[..., Any]] = {
    "columns": lambda row, column, low, high: (column >= low) & (column < high),
    "both": lambda row, column, low, high: (row >= low) & (row < high) & (column < 2 * high),
    "every other row": lambda row, column, low, high: (row >= low) & (row < high) & (row % 2 == 0),
    "not a span": lambda row, column, low, high: (row < low) | (row >= high),
    "a diagonal": lambda row, column, low, high: row + low <= column,
}


@pytest.mark.parametrize("name", MASKS)
def test_any_mask_chooses_elements(name: str) -> None:
    found, expected, old = stored(MASKS[name], 11, 30)
    mask = MASKS[name](np.arange(ROWS)[:, None], np.arange(COLUMNS)[None, :], 11, 30)
    np.testing.assert_array_equal(found, np.where(mask, expected, old))


def test_a_mask_between_two_other_values_is_no_store_of_some_rows() -> None:
    x, y = whole_numbers(0, ROWS, DEPTH), whole_numbers(1, DEPTH, COLUMNS)

    def kernel(x_ref: Any, y_ref: Any, before: Any, out: Any) -> None:
        mask = jnp.arange(ROWS)[:, None] < 20
        out[...] = jnp.where(mask, jnp.dot(x_ref[...], y_ref[...]), before[...])

    out = pl.ShapeDtypeStruct((ROWS, COLUMNS), np.float32)
    before = whole_numbers(2, ROWS, COLUMNS)
    found = pl.pallas_call(kernel, out, interpret="cpu")(x, y, before)
    np.testing.assert_array_equal(found, np.where(np.arange(ROWS)[:, None] < 20, x @ y, before))


def test_a_product_whose_operand_is_the_output_is_computed_before_it_changes() -> None:
    x = whole_numbers(0, 40, 40)

    def kernel(x_ref: Any, out: Any) -> None:
        mask = jnp.arange(40)[:, None] >= 13
        out[...] = jnp.where(mask, jnp.dot(out[...], x_ref[...]), out[...])

    call = pl.pallas_call(
        kernel, pl.ShapeDtypeStruct((40, 40), np.float32), input_output_aliases={0: 0}, interpret="cpu"
    )
    np.testing.assert_array_equal(call(x), np.where(np.arange(40)[:, None] >= 13, x @ x, x))


def test_a_chosen_product_that_is_needed_twice_is_right_twice() -> None:
    x, y = whole_numbers(0, ROWS, DEPTH), whole_numbers(1, DEPTH, COLUMNS)

    def kernel(x_ref: Any, y_ref: Any, out: Any, other: Any) -> None:
        mask = jnp.arange(ROWS)[:, None] < 20
        out[...] = jnp.zeros_like(out)
        chosen = jnp.where(mask, jnp.dot(x_ref[...], y_ref[...]), out[...])
        out[...] = chosen
        other[...] = chosen.sum(axis=1)

    outs = pl.ShapeDtypeStruct((ROWS, COLUMNS), np.float32), pl.ShapeDtypeStruct((ROWS,), np.float32)
    found, sums = pl.pallas_call(kernel, outs, interpret="cpu")(x, y)
    expected = np.where(np.arange(ROWS)[:, None] < 20, x @ y, 0)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(sums, expected.sum(1))


def test_rows_that_nothing_stores_are_uninitialised() -> None:
    x, y = whole_numbers(0, ROWS, DEPTH), whole_numbers(1, DEPTH, COLUMNS)

    def kernel(x_ref: Any, y_ref: Any, out: Any) -> None:
        out[...] = jnp.where(jnp.arange(ROWS)[:, None] < 20, jnp.dot(x_ref[...], y_ref[...]), out[...])

    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct((ROWS, COLUMNS), np.float32), interpret="cpu")(x, y)
    np.testing.assert_array_equal(found[:20], (x @ y)[:20])
    assert np.isnan(found[20:]).all()


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
@pytest.mark.parametrize("scalar", [False, True])
def test_what_no_step_stores_is_uninitialised_whatever_the_mask(scalar: bool, dtype: Any) -> None:
    """Blocks of which some rows are stored, by some steps; others that no step visits."""
    x, y = whole_numbers(0, 60, DEPTH).astype(dtype), whole_numbers(1, DEPTH, 64).astype(dtype)

    def kernel(x_ref: Any, y_ref: Any, out: Any) -> None:
        step = pl.program_id(1)
        found = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=np.float32).astype(out.dtype)
        mask = step == 1 if scalar else (jnp.arange(20)[:, None] + 1) // 7 == step
        out[...] = jnp.where(mask, found, out[...])

    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((60, 64), dtype),
        grid=(2, 2),
        in_specs=[pl.BlockSpec((20, DEPTH), lambda i, j: (2 * i, 0)), pl.BlockSpec((DEPTH, 64), lambda i, j: (0, 0))],
        out_specs=pl.BlockSpec((20, 64), lambda i, j: (2 * i, 0)),
    )
    with pl.executor("cpu"):
        found = call(x, y).astype(np.float32)
    with pl.executor("reference"):
        np.testing.assert_array_equal(found, call(x, y).astype(np.float32))
    assert np.isnan(found[20:40]).all()


def test_a_block_that_is_read_after_some_of_its_rows_were_stored() -> None:
    def kernel(x_ref: Any, out: Any, other: Any) -> None:
        out[...] = jnp.where(jnp.arange(20)[:, None] < 7, x_ref[...], out[...])
        other[...] = out[...] * 2
        out[...] = jnp.where(jnp.arange(20)[:, None] >= 15, x_ref[...], out[...])

    x = whole_numbers(0, 20, 64)
    outs = (pl.ShapeDtypeStruct(x.shape, x.dtype),) * 2
    expected = pl.pallas_call(kernel, outs, interpret="reference")(x)
    for one, two in zip(pl.pallas_call(kernel, outs, interpret="cpu")(x), expected, strict=True):
        np.testing.assert_array_equal(one, two)
    assert np.isnan(expected[0]).sum() == 8 * 64


def test_an_output_of_no_elements_beside_one_that_nothing_stores() -> None:
    def kernel(n: Any, x: Any, empty: Any, out: Any) -> None:
        @pl.when(n[0] > 0)
        def store() -> None:
            out[...] = x[...]

    block = pl.BlockSpec((10, 64), lambda i: (i, 0))
    call = pl.pallas_call(
        kernel,
        (pl.ShapeDtypeStruct((0, 64), np.float32), pl.ShapeDtypeStruct((20, 64), np.float32)),
        grid=(2,),
        in_specs=[pl.BlockSpec((1,), lambda i: (0,)), block],
        out_specs=[block, block],
        interpret="cpu",
    )
    empty, out = call(np.zeros(1, np.int32), np.ones((20, 64), np.float32))
    assert empty.shape == (0, 64)
    assert np.isnan(out).all()


def test_only_the_rows_of_a_span_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    original = product.Product.by_panels

    def by_panels(self: Any, use: Any, init: Any, rows: Any, into: Any) -> None:
        seen.append(rows)
        original(self, use, init, rows, into)

    monkeypatch.setattr(product.Product, "by_panels", by_panels)
    stored(lambda row, column, low, high: (row >= low) & (row < high) & (row != 3), 11, 30)
    assert len(seen) == 1
    assert seen[0] is not None


@pytest.mark.parametrize(("tm", "dtype", "existing"), every_pair([8, 40, 100], [np.float32, BFLOAT16], [False, True]))
def test_grouped_products_are_those_of_the_definition(tm: int, dtype: Any, existing: bool) -> None:
    sizes = np.array([17, 0, 40, 3, 14, 1], np.int32)  # 25 rows of no group
    lhs, rhs = whole_numbers(0, 100, 32).astype(dtype), whole_numbers(1, 6, 32, 96).astype(dtype)
    old = whole_numbers(2, 100, 96).astype(dtype) if existing else None
    lhs[75:] = np.nan

    def run(executor: str) -> Array:
        options = {"existing_out": old, "interpret": executor, "tiling": (tm, 32, 96)}
        return gmm(lhs, rhs, sizes, preferred_element_type=dtype, **options).astype(np.float32)

    np.testing.assert_array_equal(run("cpu"), run("reference"))


@pytest.mark.parametrize(("tm", "dtype", "existing"), every_pair([32, 112, 128], [np.float32, BFLOAT16], [False, True]))
def test_transposed_grouped_products_are_those_of_the_definition(tm: int, dtype: Any, existing: bool) -> None:
    sizes = np.array([17, 0, 40, 3, 14, 1], np.int32)
    lhs, rhs = whole_numbers(0, 45, 112).astype(dtype), whole_numbers(1, 112, 96).astype(dtype)
    old = whole_numbers(2, 6, 45, 96).astype(dtype) if existing else None
    lhs[:, 75:], rhs[75:] = np.inf, np.nan

    def run(executor: str) -> Array:
        options = {"existing_out": old, "interpret": executor, "tiling": (tm, 45, 96)}
        return tgmm(lhs, rhs, sizes, preferred_element_type=dtype, **options).astype(np.float32)

    np.testing.assert_array_equal(run("cpu"), run("reference"))


@pytest.mark.parametrize(("rows", "depth", "dtype"), every_pair([3, 14, 15, 29], [2, 66, 2100], [np.float32, BFLOAT16]))
def test_the_right_operand_is_packed_by_the_first_rows_wherever_it_lies(rows: int, depth: int, dtype: Any) -> None:
    x, y = whole_numbers(0, 2 * rows, depth), whole_numbers(1, depth, 128)
    room = np.zeros(depth * 128 + 64, dtype)
    for shift in (0, 3, 8):
        given = room[shift : shift + y.size].reshape(y.shape)
        given[...] = y
        found = matmul(x.astype(dtype), given, tiling=(rows, depth, 64), interpret="cpu").astype(np.float32)
        np.testing.assert_array_equal(found, (x @ y).astype(dtype).astype(np.float32))


def test_sums_of_pairs_are_rounded_to_the_nearest_and_special_values_stay() -> None:
    x = np.zeros((16, 32), BFLOAT16)
    x[:, 0] = [1, -1, 1.5, 3, -3, np.inf, -np.inf, np.nan, 2.0**-126, 0.0, 2.0**127, -(2.0**127), 1, 1, 1, 1]
    x[12:, 1] = [2.0**-8, 2.0**-9, -(2.0**-9), 3 * 2.0**-9]
    y = np.zeros((32, 32), BFLOAT16)
    y[:2] = [[1], [1]]
    y[0, 1] = 2
    found, expected = (matmul(x, y, tiling=(16, 32, 32), interpret=name) for name in ("cpu", "reference"))
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))
