"""Random products of one value with itself: transposed, sliced, reversed, repeated, in either position.

The elements are small integers, so that every sum is exact in every dtype and a result is either right or wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio import lax
from palladio.base.errors import NotCompiledWarning

SUMS = {
    np.float32: np.float32,
    np.float64: np.float64,
    np.float16: np.float32,
    ml_dtypes.bfloat16: np.float32,
    np.int32: np.int32,
    np.int8: np.int32,
}
"""The dtypes of the elements, and those in which their products are summed."""

SIZES = (1, 5, 17, 32, 48, 64, 64)
STORES = ("plain", "added", "masked", "rounded", "twice")
"""What is done with the product before it is stored."""


@dataclass(frozen=True)
class View:
    """One step from an array to a view of it; the same for NumPy's arrays and for those of a kernel."""

    name: str
    axis: int
    start: int
    step: int

    def of(self, x: Any) -> Any:
        axis = self.axis % x.ndim
        start = self.start % x.shape[axis]
        lead = (slice(None),) * axis
        if self.name == "transposed":
            return jnp.swapaxes(x, axis, x.ndim - 1 if axis < x.ndim - 1 else 0)
        if self.name == "reversed":
            return jnp.flip(x, axis)
        if self.name == "repeated":
            return jnp.broadcast_to(x[(*lead, slice(start, start + 1))], x.shape)
        if self.name == "sliced":
            return x[(*lead, slice(start, None, self.step))]
        if self.name == "sliced backwards":
            return x[(*lead, slice(None, None, -self.step))]
        if self.name == "rolled":
            return jnp.roll(x, start, axis)
        if self.name == "computed":
            return 1 - x
        return x


NAMES = ("transposed", "reversed", "repeated", "sliced", "sliced backwards", "rolled", "computed", "as it is")


@dataclass(frozen=True)
class Case:
    """One product.

    Fields:
        loaded: by a strided slice of the reference along an axis, or as a whole.
        both: the view that both operands are made of.
        sides: the views of it that are the left and the right operand.
        summed: the summed axis of each.
        shared: whether the first axes are batch axes, for arrays of three axes.
        grid: the steps of the grid; the rows are cut into as many blocks.
    """

    dtype: Any
    shape: tuple[int, ...]
    loaded: tuple[int, int] | None
    both: Sequence[View]
    sides: tuple[Sequence[View], Sequence[View]]
    summed: tuple[int, int]
    shared: bool
    store: str
    grid: int

    def operands(self, x: Any) -> tuple[Any, Any]:
        """Both operands, cut so that what is summed and what is shared fits."""
        left, right = (reduce(lambda value, step: step.of(value), (*self.both, *side), x) for side in self.sides)
        axes = [(summed % x.ndim) or (1 if self.shared else 0) for summed in self.summed]
        pairs = [(axes[0], axes[1])] + ([(0, 0)] if self.shared else [])
        for one, other in pairs:
            size = min(left.shape[one], right.shape[other])
            left = left[(slice(None),) * one + (slice(0, size),)]
            right = right[(slice(None),) * other + (slice(0, size),)]
        return left, right

    def numbers(self) -> tuple[Any, Any]:
        """The dimension numbers of the product."""
        axes = [(summed % len(self.shape)) or (1 if self.shared else 0) for summed in self.summed]
        batch = (0,) if self.shared else ()
        return ((axes[0],), (axes[1],)), (batch, batch)

    def expected(self, x: np.ndarray) -> np.ndarray:
        """The product of one block in float64."""
        left, right = self.operands(self.load(x.astype(np.float64)))
        ((one,), (other,)), _ = self.numbers()
        letters = "abc"[: x.ndim], "def"[: x.ndim]
        second = letters[1].replace(letters[1][other], letters[0][one])
        second = second.replace("d", "a") if self.shared else second
        out = "a" * self.shared + "".join(
            c for c in letters[0] + second if c != letters[0][one] and c != "a" * self.shared
        )
        product = np.einsum(f"{letters[0]},{second}->{out}", left, right)
        return self.finish(product, product.shape, np.where)

    def load(self, x: Any) -> Any:
        if self.loaded is None:
            return x[...]
        axis, step = self.loaded
        return x[(slice(None),) * axis + (slice(None, None, step),)]

    def finish(self, product: Any, shape: tuple[int, ...], where: Callable[..., Any]) -> Any:
        if self.store == "added":
            return product + 3
        if self.store == "masked":
            return where(product > 1, product, -7)
        return product * 2 if self.store == "twice" else product

    def kernel(self, x_ref: Any, out: Any) -> None:
        left, right = self.operands(self.load(x_ref))
        sums = SUMS[self.dtype]
        if self.store == "added":
            out[...] = jnp.full(out.shape, 3, sums)
            out[...] += lax.dot_general(left, right, self.numbers(), preferred_element_type=sums)
            return
        product = lax.dot_general(left, right, self.numbers(), preferred_element_type=sums)
        out[...] = self.finish(product, out.shape, jnp.where).astype(out.dtype)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """The array, for all steps of the grid."""
        return rng.integers(-2, 3, (self.shape[0] * self.grid, *self.shape[1:])).astype(self.dtype)

    def run(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The compiled result, and what it should be."""
        blocks = np.split(x, self.grid)
        expected = np.concatenate([self.expected(block) for block in blocks])
        rounded = ml_dtypes.bfloat16 if self.store == "rounded" and SUMS[self.dtype] == np.float32 else SUMS[self.dtype]
        block = (expected.shape[0] // self.grid, *expected.shape[1:])
        call = pl.pallas_call(
            self.kernel,
            pl.ShapeDtypeStruct(expected.shape, rounded),
            grid=(self.grid,),
            in_specs=[pl.BlockSpec(self.shape, lambda i: (i,) + (0,) * (len(self.shape) - 1))],
            out_specs=pl.BlockSpec(block, lambda i: (i,) + (0,) * (len(block) - 1)),
            interpret="cpu",
        )
        return call(x), expected.astype(rounded)


def views(rng: np.random.Generator, most: int) -> tuple[View, ...]:
    """A few views, one after the other."""
    return tuple(
        View(str(rng.choice(NAMES)), int(rng.integers(3)), int(rng.integers(64)), int(rng.integers(1, 4)))
        for _ in range(rng.integers(most + 1))
    )


def random_case(rng: np.random.Generator) -> Case:
    """Products of arrays of two axes, or of three with or without a batch axis."""
    axes = 3 if rng.random() < 0.2 else 2
    shape = tuple(int(size) for size in rng.choice(SIZES, 2))
    return Case(
        list(SUMS)[rng.integers(len(SUMS))],
        (int(rng.integers(1, 4)), *shape) if axes == 3 else shape,
        (int(rng.integers(axes)), int(rng.integers(2, 4))) if rng.random() < 0.2 else None,
        views(rng, 2),
        (views(rng, 1), views(rng, 1)),
        (int(rng.integers(axes)), int(rng.integers(axes))),
        axes == 3 and rng.random() < 0.5,
        str(rng.choice(STORES)),
        3 if rng.random() < 0.3 else 1,
    )


def check(seed: int) -> None:
    """Run the case of a seed and compare every element."""
    rng = np.random.default_rng(seed)
    case = random_case(rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotCompiledWarning)
        found, expected = case.run(case.draw(rng))
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64), f"seed {seed}: {case}")


@pytest.mark.parametrize("first", range(60, 120, 20))
def test_a_product_of_a_value_with_itself_is_exact(first: int) -> None:
    for seed in range(first, first + 20):
        check(seed)
