"""Sums of products whose left operands are shifted rows of the same memory: each row is split into pieces once."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from palladio.cpu.products import blocking
from palladio.types.types import Shape
from tests.cpu.test_split import assert_near, exact, kinds, normal, on_the_model, splits
from tests.cpu.tiles import FLOAT32, Array, Texts, poison


class Shifted:
    """The sum of the products of some rows of an array with a matrix each; its memory had NaN in it before.

    Fields:
        shape: of the rows.
        others: where the rows of each product start along the other axes; along the first one the kernel reads it.
        lead: axes before the rows, whose index is 0.
        out: the function of the sum that is written.
    """

    def __init__(self, shape: Shape, others: Sequence[Shape], lead: int = 0, out: Any = None) -> None:
        self.shape = shape
        self.others = others
        self.lead = lead
        self.out = out or (lambda total: total)
        self.call: Any = None

    def part(self, x: Any, n: int, start: Any, depth: int) -> Any:
        """The rows of a product."""
        later = zip(self.others[n], (*self.shape[1:], depth), strict=True)
        places = pl.ds(start, self.shape[0]), *(slice(begin, begin + size) for begin, size in later)
        return x[(0,) * self.lead + places].reshape(math.prod(self.shape), depth)

    def kernel(self, starts: Any, x: Any, matrices: Any, out: Any) -> None:
        count, depth, columns = matrices.shape
        total = jnp.zeros((math.prod(self.shape), columns), FLOAT32)
        for n in range(count):
            start = jnp.clip(starts[n], 0, x.shape[self.lead] - self.shape[0])  # inside, so that nothing is copied
            total += jnp.dot(self.part(x, n, start, depth), matrices[n], preferred_element_type=FLOAT32)
        out[...] = self.out(total)

    def __call__(self, starts: Sequence[int], x: Array, matrices: Array) -> Array:
        given = np.array(starts, np.int32), x, matrices
        if self.call is None:
            shape = pl.ShapeDtypeStruct((math.prod(self.shape), matrices.shape[2]), FLOAT32)
            self.call = pl.pallas_call(self.kernel, shape, interpret="cpu")
            self.call(given[0], *map(poison, given[1:]))
        return self.call(*given)

    def exact(self, starts: Sequence[int], x: Array, matrices: Array) -> Array:
        total = np.zeros(())
        for n, (start, matrix) in enumerate(zip(starts, matrices, strict=True)):
            later = zip(self.others[n], (*self.shape[1:], len(matrix)), strict=True)
            places = slice(start, start + self.shape[0]), *(slice(begin, begin + size) for begin, size in later)
            total = total + exact(x[(0,) * self.lead + places].reshape(-1, len(matrix)), matrix)
        return total


def once(texts: Texts) -> bool:
    """True if a kernel that was compiled multiplies rows that were split before, in place."""
    return any(re.search(r"multiply_split_\w+_in_place", text) for text in texts)


NEAR, WHOLE = [0, 1, 2, 7], [(0,)] * 4


@pytest.mark.parametrize(
    ("starts", "columns"),
    [
        (NEAR, WHOLE),
        ([60, 61, 58, 60], WHOLE),
        ([0, 300, 3, 120], [(64,)] * 4),
        ([9, 9, 10, 0], [(0,), (32,), (7,), (64,)]),
    ],
    ids=["near", "in another order", "far apart", "not whole rows apart"],
)
def test_shifted_rows(starts: list[int], columns: list[Shape], tiles: Texts) -> None:
    rng = np.random.default_rng(0)
    x, matrices = normal(rng, (345, 128)), normal(rng, (4, 64, 48))
    product = Shifted((45,), columns)
    assert_near(product(starts, x, matrices), product.exact(starts, x, matrices))
    assert once(tiles)


@on_the_model
def test_one_kernel_takes_rows_near_each_other_and_far_apart(tiles: Texts) -> None:
    """With the same bits, wherever the same numbers are."""
    rng = np.random.default_rng(1)
    near, matrices = normal(rng, (52, 64)), normal(rng, (4, 64, 32))
    other = np.full((90, 64), np.nan, FLOAT32)
    far = np.concatenate([part for start in NEAR for part in (near[start : start + 45], other)])
    x = np.zeros_like(far)
    x[:52] = near
    product = Shifted((45,), WHOLE)
    found = product(NEAR, x, matrices)
    np.testing.assert_array_equal(product([135 * n for n in range(4)], far, matrices), found)
    assert_near(found, product.exact(NEAR, x, matrices))
    assert once(tiles)


@pytest.mark.parametrize(
    ("shape", "columns", "apart", "width"),
    [((3, 40), 32, 1, 3), ((2, 37), 48, 2, 3), ((2, 2, 13), 16, 1, 2)],
    ids=["2-D", "dilated", "3-D"],
)
def test_convolutions(shape: Shape, columns: int, apart: int, width: int, tiles: Texts) -> None:
    rng = np.random.default_rng(2)
    x = normal(rng, (1, *(n + 2 * apart for n in shape), 32))
    places = [[apart * n for n in place] for place in np.ndindex(*(width for _ in shape))]
    matrices = normal(rng, (len(places), 32, columns))
    product, starts = Shifted(shape, [(*place[1:], 0) for place in places], lead=1), [place[0] for place in places]
    assert_near(product(starts, x, matrices), product.exact(starts, x, matrices))
    assert once(tiles)


@on_the_model
def test_several_k_blocks(tiles: Texts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "SPLIT_STEPS", 64)
    rng = np.random.default_rng(3)
    x, matrices, starts = normal(rng, (60, 64)), normal(rng, (5, 64, 32)), [3, 0, 7, 1, 15]
    product = Shifted((45,), [(0,)] * 5)
    assert_near(product(starts, x, matrices), product.exact(starts, x, matrices))
    assert once(tiles)


@on_the_model
def test_sums_that_a_kernel_uses_row_by_row(tiles: Texts) -> None:
    rng = np.random.default_rng(4)
    x, matrices = normal(rng, (60, 64)), normal(rng, (4, 64, 32))
    product = Shifted(
        (45,), WHOLE, out=lambda total: jnp.maximum(total, 0) / jnp.sum(jnp.abs(total), axis=1, keepdims=True)
    )
    total = product.exact(NEAR, x, matrices)
    assert_near(product(NEAR, x, matrices), np.maximum(total, 0) / np.abs(total).sum(1, keepdims=True))
    assert splits(tiles)


@on_the_model
def test_some_rows_of_sums(tiles: Texts) -> None:
    """Their pieces are copied to panels."""
    rng = np.random.default_rng(8)
    x, matrices, product = normal(rng, (60, 64)), normal(rng, (3, 64, 32)), Shifted((45,), WHOLE)

    def kernel(ends: Any, x: Any, matrices: Any, begin: Any, out: Any) -> None:
        total = jnp.zeros((45, 32), FLOAT32)
        for n in range(3):
            total += jnp.dot(product.part(x, n, 5 * n, 64), matrices[n], preferred_element_type=FLOAT32)
        row = lax.broadcasted_iota(jnp.int32, (45, 32), 0)
        out[...] = begin[...]
        pltpu.store(out, total, mask=jnp.logical_and(row >= ends[0], row < ends[1]))

    begin, shape = normal(rng, (45, 32)), pl.ShapeDtypeStruct((45, 32), FLOAT32)
    found = pl.pallas_call(kernel, shape, interpret="cpu")(np.array([7, 42], np.int32), x, matrices, begin)
    assert_near(found[7:42], product.exact([0, 5, 10], x, matrices)[7:42])
    np.testing.assert_array_equal(np.delete(found, np.s_[7:42], 0), np.delete(begin, np.s_[7:42], 0))
    assert splits(tiles) and not once(tiles)


@on_the_model
def test_what_is_not_finite(tiles: Texts) -> None:
    rng = np.random.default_rng(5)
    x, matrices = (np.abs(normal(rng, shape)) + 1 for shape in ((60, 64), (4, 64, 32)))
    x[5, 3], x[30, 63], x[50, 20], x[51, 20], matrices[2, 7, 9] = np.inf, -np.inf, np.inf, -np.inf, np.nan
    product = Shifted((45,), WHOLE)
    with np.errstate(invalid="ignore"):
        found, expected = product(NEAR, x, matrices), product.exact(NEAR, x, matrices)
    np.testing.assert_array_equal(kinds(found), kinds(expected))
    np.testing.assert_allclose(found[np.isfinite(expected)], expected[np.isfinite(expected)], rtol=1e-5)
    assert once(tiles)


@on_the_model
@pytest.mark.parametrize(
    ("rows", "depth", "count", "found"),
    [(45, 64, 2, False), (20, 64, 4, False), (45, 48, 4, False), (45, 192, 4, False), (45, 64, 3, True)],
    ids=["two", "many rows of tiles empty", "not whole tiles", "long rows", "none"],
)
def test_operands_that_are_split_apart(rows: int, depth: int, count: int, found: bool, tiles: Texts) -> None:
    rng = np.random.default_rng(6)
    x, matrices = normal(rng, (60, depth)), normal(rng, (count, depth, 32))
    product = Shifted((rows,), WHOLE)
    assert_near(product(NEAR[:count], x, matrices), product.exact(NEAR[:count], x, matrices))
    assert once(tiles) == found


@on_the_model
@pytest.mark.parametrize("others", [0, 40])
def test_operands_whose_rows_are_far_apart_are_split_apart(others: int, tiles: Texts) -> None:
    """Half of the rows between the first and the last one, or fewer, are an operand's."""
    rng = np.random.default_rng(9)
    x, matrices = normal(rng, (5, 16 + others, 32)), normal(rng, (3, 32, 16))
    product, starts = Shifted((3, 16), [(0, 0)] * 3), [0, 1, 2]
    assert_near(product(starts, x, matrices), product.exact(starts, x, matrices))
    assert once(tiles) == (others == 0)


@on_the_model
def test_operands_in_different_memory_are_split_apart(tiles: Texts) -> None:
    rng = np.random.default_rng(7)
    arrays, matrices = normal(rng, (3, 40, 64)), normal(rng, (3, 64, 32))

    def kernel(a: Any, b: Any, c: Any, matrices: Any, out: Any) -> None:
        total = jnp.zeros((40, 32), FLOAT32)
        for n, x in enumerate((a, b, c)):
            total += jnp.dot(x[...], matrices[n], preferred_element_type=FLOAT32)
        out[...] = total

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((40, 32), FLOAT32), interpret="cpu")
    assert_near(call(*arrays, matrices), sum(exact(x, y) for x, y in zip(arrays, matrices, strict=True)))
    assert not once(tiles)
