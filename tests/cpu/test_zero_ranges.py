"""Products of masked operands: what is skipped because it is zero on both sides, and what must not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio.cpu.products import product

Array = Any
DEPTH = 64
MOST = 2**31 - 1


def spans(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each product of a kernel knows a span; filled while it is compiled."""
    found: list[bool] = []
    original = product.Product.run

    def run(self: Any, *arguments: Any) -> None:
        found.append(self.blocking.span is not None)
        original(self, *arguments)

    monkeypatch.setattr(product.Product, "run", run)
    return found


def call(kernel: Callable[..., None], bounds: Any, x: Array, y: Array) -> Array:
    out = pl.ShapeDtypeStruct((x.shape[0], y.shape[1]), np.float32)
    return pl.pallas_call(kernel, out, interpret="cpu")(np.array(bounds, np.int32), x, y)


def operands(dtype: Any = np.float32, depth: int = DEPTH) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(dtype) for shape in ((20, depth), (depth, 48)))
    return x, y


def masked(chosen: Callable[[Any, Any], Any]) -> Callable[..., None]:
    """A kernel that multiplies the chosen part of both operands; `chosen` gets positions and two bounds."""

    def kernel(bounds: Any, x: Any, y: Any, out: Any) -> None:
        mask = chosen(jnp.arange(x.shape[1]), bounds)
        left, right = jnp.where(mask[None, :], x[...], 0), jnp.where(mask[:, None], y[...], 0)
        out[...] = jnp.dot(left, right, preferred_element_type=np.float32)

    return kernel


CHOICES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], slice]]] = {
    "from, below": (lambda at, b: (at >= b[0]) & (at < b[1]), lambda low, high: slice(max(low, 0), max(high, 0))),
    "after, up to": (lambda at, b: (b[0] < at) & (b[1] >= at), lambda low, high: slice(low + 1, high + 1)),
    "moved": (lambda at, b: (at + 7 >= b[0]) & (at - 5 < b[1]), lambda low, high: slice(max(low - 7, 0), high + 5)),
    "one": (lambda at, b: at == b[0], lambda low, high: slice(low, low + 1)),
}


@pytest.mark.parametrize("bounds", [(0, 64), (3, 60), (17, 18), (15, 33), (20, 20), (40, 9), (0, 16)], ids=str)
@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_only_a_span_is_multiplied(name: str, dtype: Any, bounds: Any) -> None:
    chosen, part = CHOICES[name]
    x, y = operands(dtype)
    cut = part(*bounds)
    # What is not a number stands outside.
    inside = np.zeros(DEPTH, bool)
    inside[cut] = True
    x[:, ~inside], y[~inside] = np.nan, np.inf
    expected = x[:, cut].astype(np.float64) @ y[cut].astype(np.float64)
    np.testing.assert_allclose(call(masked(chosen), bounds, x, y), expected, atol=1e-4)


@pytest.mark.parametrize("name", CHOICES)
def test_the_span_of_a_mask_is_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = spans(monkeypatch)
    call(masked(CHOICES[name][0]), (0, 9), *operands(depth=96))
    assert known == [True]


@pytest.mark.parametrize("bounds", [(-5, 5), (60, 200), (-9, -3), (70, 90), (-MOST - 1, MOST)], ids=str)
def test_a_span_may_reach_past_the_ends(bounds: Any) -> None:
    x, y = operands()
    low, high = np.clip(bounds, 0, DEPTH)
    expected = x[:, low:high] @ y[low:high]
    chosen, _ = CHOICES["from, below"]
    np.testing.assert_allclose(call(masked(chosen), bounds, x, y), expected, atol=1e-4)


@pytest.mark.parametrize("start", [MOST - 10, MOST - DEPTH + 1, -MOST - 1])
def test_positions_that_wrap_around_are_compared_as_what_they_are(start: int) -> None:
    x, y = operands()
    with np.errstate(over="ignore"):
        at = np.int32(start) + np.arange(DEPTH, dtype=np.int32)
    mask = at < 5
    found = call(masked(lambda at, b: at + b[0] < b[1]), (start, 5), x, y)
    np.testing.assert_allclose(found, x[:, mask] @ y[mask], atol=1e-4)


def test_zeros_on_one_side_only_are_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero times infinity is not a number."""

    def kernel(bounds: Any, x: Any, y: Any, out: Any) -> None:
        left = jnp.where((jnp.arange(DEPTH) < bounds[0])[None, :], x[...], 0)
        out[...] = jnp.dot(left, y[...])

    known = spans(monkeypatch)
    x, y = operands()
    y[-1, 3] = np.inf
    found = call(kernel, (5, 0), x, y)
    assert np.isnan(found[:, 3]).all()
    assert np.isfinite(np.delete(found, 3, 1)).all()
    assert known == [False]


@pytest.mark.parametrize("depth", [1, 24, 33])
def test_masks_along_an_axis_of_any_size(depth: int) -> None:
    x, y = operands(depth=depth)
    chosen, _ = CHOICES["from, below"]
    np.testing.assert_allclose(call(masked(chosen), (1, 20), x, y), x[:, 1:20] @ y[1:20], atol=1e-4)


def test_spans_of_both_sides_may_differ() -> None:
    def kernel(bounds: Any, x: Any, y: Any, out: Any) -> None:
        at = jnp.arange(DEPTH)
        left, right = jnp.where((at < bounds[0])[None, :], x[...], 0), jnp.where((at >= bounds[1])[:, None], y[...], 0)
        out[...] = jnp.dot(left, right)

    x, y = operands()
    np.testing.assert_allclose(call(kernel, (40, 20), x, y), x[:, 20:40] @ y[20:40], atol=1e-4)
    np.testing.assert_allclose(call(kernel, (20, 40), x, y), np.zeros((20, 48)))


def test_the_transpose_of_a_masked_operand_is_masked_along_the_other_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(bounds: Any, x: Any, y: Any, out: Any) -> None:
        mask = jnp.arange(DEPTH) < bounds[0]
        left, right = jnp.where(mask[:, None], x[...].T, 0), jnp.where(mask[:, None], y[...], 0)
        out[...] = jnp.dot(left.T, right)

    known = spans(monkeypatch)
    x, y = operands()
    np.testing.assert_allclose(call(kernel, (37, 0), x, y), x[:, :37] @ y[:37], atol=1e-4)
    assert known == [True]
