"""The fused form on Hopper: sums that begin with an accumulator, stores under masks, sorts of few elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio import lax
from palladio.hopper.emit.grids import lower_grid
from palladio.ops.kernel_calls import kernel_calls
from tests.hopper.kernels import F32, traced

WIDTH = 64
X, Y = np.random.default_rng(0).standard_normal((2, WIDTH, WIDTH)).astype(F32)


def accumulated(x: Any, y: Any, out: Any) -> None:
    out[...] = x[...]
    out[...] += x[...] @ y[...]


def some_rows(x: Any, y: Any, out: Any) -> None:
    out[...] = x[...]
    out[...] = jnp.where(jnp.arange(WIDTH)[:, None] % 3 == 1, y[...], out[...])


def some_elements(x: Any, y: Any, out: Any) -> None:
    out[...] = x[...]
    out[...] = jnp.where(y[...] > 0, y[...], out[...])


def greatest(x: Any, y: Any, out: Any) -> None:
    out[...] = jnp.zeros_like(x[...])
    out[:, :3] = lax.top_k(x[...], 3)[0]


def rounded(x: Any, y: Any, out: Any) -> None:
    out[...] = jnp.dot(x[...], y[...], preferred_element_type=np.float32).astype(np.float16).astype(F32)


def call(body: Callable[..., None], executor: str) -> Any:
    return pl.pallas_call(body, pl.ShapeDtypeStruct(X.shape, F32), interpret=executor)(X, Y)


def text(body: Callable[..., None]) -> str:
    function = pl.pallas_call(body, pl.ShapeDtypeStruct(X.shape, F32))
    (eqn,) = kernel_calls(traced(function, X, Y))
    return lower_grid(eqn.grid, eqn.kernel, eqn.input_types).text


@pytest.mark.parametrize("body", [accumulated, some_rows, some_elements, greatest, rounded])
def test_the_twin_agrees_with_the_evaluator(body: Callable[..., None]) -> None:
    np.testing.assert_allclose(call(body, "hopper-twin"), call(body, "reference"), rtol=1e-3, atol=1e-4)


def test_a_sum_begins_with_its_accumulator() -> None:
    found = text(accumulated)
    assert "float total = 0;" not in found
    assert found.count("float total = ") == 1


@pytest.mark.parametrize("body", [some_rows, some_elements])
def test_a_block_is_not_loaded_for_what_a_mask_leaves(body: Callable[..., None]) -> None:
    assert "pal::load_global" not in text(body)


def test_rows_are_stored_in_vectors() -> None:
    (store,) = [line for line in text(some_rows).splitlines() if "pal::store_global" in line and "spread" in line]
    assert "store_global<u32x4>" in store


def test_elements_that_are_not_used_are_not_sorted() -> None:
    assert f"< {WIDTH - 3}) continue;" in text(greatest)
