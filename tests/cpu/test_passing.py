"""Values that a reduction passes and that are needed again: computed once, and where they end if nothing is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio.driver.capture import prepared_programs
from palladio.driver.compile import PIPELINES
from palladio.ir.core import walk
from palladio.ops.arrays.keep import tee
from palladio.passes.pipeline import run_passes

ROWS, COLUMNS = 6, 37


def normalised(x: Any, out: Any) -> None:
    powers = jnp.exp(x[...] - jnp.max(x[...], axis=-1, keepdims=True))
    out[...] = powers * (1 / jnp.sum(powers, axis=-1, keepdims=True))


def through_several(x: Any, out: Any) -> None:
    powers = jnp.exp(x[...])
    out[...] = jnp.maximum(2.0 - powers / jnp.sum(powers, axis=-1, keepdims=True), 0.5) * x[...]


def both_ways(x: Any, out: Any) -> None:
    powers = jnp.exp(x[...])
    out[...] = powers * jnp.sum(powers, axis=-1, keepdims=True) + jnp.max(powers, axis=0)


def out_is_read(x: Any, out: Any) -> None:
    out[...] = x[...] * 3.0
    powers = jnp.exp(x[...])
    total = jnp.sum(powers, axis=-1, keepdims=True)
    out[...] = powers * (total + jnp.sum(out[...], axis=-1, keepdims=True))


def out_is_pending(x: Any, out: Any) -> None:
    out[...] = x[...] * 3.0
    before = out[...] + 1.0
    powers = jnp.exp(x[...])
    out[...] = powers * jnp.sum(powers, axis=-1, keepdims=True) + before


def out_is_written_between(x: Any, out: Any) -> None:
    powers = jnp.exp(x[...])
    total = jnp.sum(powers, axis=-1, keepdims=True)
    out[0, :] = jnp.zeros((out.shape[1],), np.float32)
    out[...] = powers * total


def stored_conditionally(x: Any, out: Any) -> None:
    out[...] = x[...]
    powers = jnp.exp(x[...])
    total = jnp.sum(powers, axis=-1, keepdims=True)

    @pl.when(total[0, 0] < 0)
    def _() -> None:
        out[...] = powers


def moved(x: Any, out: Any) -> None:
    powers = jnp.exp(x[...])
    out[...] = (powers * jnp.sum(powers, axis=-1, keepdims=True))[:, ::-1]


KERNELS: list[Callable[..., None]] = [
    normalised,
    through_several,
    both_ways,
    out_is_read,
    out_is_pending,
    out_is_written_between,
    stored_conditionally,
    moved,
]


def result(kernel: Callable[..., None], executor: str, block: int = ROWS, columns: int = COLUMNS) -> Any:
    x = np.random.default_rng(0).standard_normal((ROWS, columns)).astype(np.float32)
    spec = pl.BlockSpec((block, columns), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(ROWS, block),),
        in_specs=[spec],
        out_specs=spec,
        interpret=executor,
    )(x)


@pytest.mark.parametrize("block", [ROWS, 4], ids=["whole", "reaching past the edge"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_value_that_is_needed_after_a_reduction(kernel: Callable[..., None], block: int) -> None:
    np.testing.assert_allclose(result(kernel, "cpu", block), result(kernel, "reference", block), rtol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "in_place"),
    [
        (normalised, True),
        (through_several, True),
        (both_ways, False),
        (out_is_read, False),
        (out_is_pending, False),
        (out_is_written_between, False),
        (stored_conditionally, False),
        (moved, False),
    ],
)
def test_it_is_written_where_it_ends_only_if_nothing_is_in_the_way(kernel: Callable[..., None], in_place: bool) -> None:
    with prepared_programs() as programs:
        result(kernel, "cpu", columns=COLUMNS + 1)
    eqns = walk(run_passes(programs[0], PIPELINES["cpu"]))
    assert any(eqn.into for eqn in eqns if eqn.op is tee) == in_place
