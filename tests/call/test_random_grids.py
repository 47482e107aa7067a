"""Random grids against a plain loop: any shapes, any order of axes, blocks that stick out of their array or miss it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palladio as pl

pytestmark = pytest.mark.filterwarnings("error")  # an executor that leaves the kernel to another says so

EXECUTORS = ["reference", "cpu"]
LEAST = np.iinfo(np.int32).min


@dataclass(frozen=True)
class Axis:
    """How one axis of an array is cut.

    Fields:
        kind: what the block shape says: blocked, squeezed, element or bounded.
        extent: of the array.
        size: of the block.
        source: the grid axis that moves the block, or None.
        step, offset: the index is `grid index * step + offset`.
        padding: in front of an element block.
        bound: the size of a bounded slice.
    """

    kind: str
    extent: int
    size: int
    source: int | None
    step: int
    offset: int
    padding: int
    bound: int

    @property
    def entry(self) -> Any:
        """The entry of the block shape."""
        if self.kind == "squeezed":
            return None
        kinds = {"blocked": self.size, "bounded": pl.BoundedSlice(self.size)}
        return kinds.get(self.kind) or pl.Element(self.size, (self.padding, 2))

    def index(self, ids: Any) -> Any:
        """The index of the block, from the grid indices: integers or traced ones."""
        return self.offset if self.source is None else ids[self.source] * self.step + self.offset

    def mapped(self, ids: Any) -> Any:
        """What the index map gives for this axis."""
        return pl.ds(self.index(ids), self.bound) if self.kind == "bounded" else self.index(ids)

    def elements(self, ids: tuple[int, ...]) -> list[int | None]:
        """The elements of the block, None for those outside."""
        first = self.index(ids)
        if self.kind == "blocked":
            first *= self.size
        if self.kind == "element":
            first -= self.padding
        found = range(first, first + self.size)
        inside = [at if 0 <= at < self.extent else None for at in found]
        return inside[: self.bound] + [None] * (self.size - self.bound) if self.kind == "bounded" else inside


@st.composite
def axes(draw: st.DrawFn, grid: tuple[int, ...]) -> Axis:
    kind = draw(st.sampled_from(["blocked", "blocked", "squeezed", "element", "bounded"]))
    size = 1 if kind == "squeezed" else draw(st.integers(1, 4))
    source = draw(st.sampled_from([None, *range(len(grid))])) if grid else None
    return Axis(
        kind,
        draw(st.integers(0, 6)),
        size,
        source,
        draw(st.integers(-1, 2)),
        draw(st.integers(-1, 3)),
        draw(st.integers(0, 2)),
        draw(st.integers(0, size)),
    )


@st.composite
def calls(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Axis], list[Axis]]:
    """A grid, the axes of an input, and those of an output whose block has as many elements as there is room for."""
    grid = tuple(draw(st.lists(st.integers(1, 3), min_size=0, max_size=3)))
    source = draw(st.lists(axes(grid), min_size=0, max_size=3))
    return grid, source, draw(st.lists(axes(grid), min_size=0, max_size=3))


def spec_of(cut: list[Axis]) -> pl.BlockSpec:
    return pl.BlockSpec(tuple(axis.entry for axis in cut), lambda *ids: tuple(axis.mapped(ids) for axis in cut))


def read(array: np.ndarray, cut: list[Axis], ids: tuple[int, ...]) -> np.ndarray:
    """The block that a step reads, element by element."""
    block = np.full([axis.size for axis in cut], LEAST, np.int32)
    for place in np.ndindex(block.shape):
        at = [axis.elements(ids)[n] for axis, n in zip(cut, place)]
        if None not in at:
            block[place] = array[tuple(at)]
    return block


def write(array: np.ndarray, cut: list[Axis], ids: tuple[int, ...], block: np.ndarray) -> None:
    """Put a block back, what is outside dropped."""
    for place in np.ndindex(block.shape):
        at = [axis.elements(ids)[n] for axis, n in zip(cut, place)]
        if None not in at:
            array[tuple(at)] = block[place]


@settings(max_examples=150)
@given(call=calls())
def test_any_grid_is_a_loop(call: tuple[tuple[int, ...], list[Axis], list[Axis]]) -> None:
    """Each step adds the sum of its input block, and its own number, to its output block, which starts at zero."""
    grid, source, target = call
    x = np.arange(int(np.prod([axis.extent for axis in source])), dtype=np.int32)
    x = x.reshape([axis.extent for axis in source])
    zeros = np.zeros([axis.extent for axis in target], np.int32)

    expected = np.array(zeros)
    for number, ids in enumerate(itertools.product(*map(range, grid))):
        with np.errstate(over="ignore"):
            total = read(x, source, ids).sum(dtype=np.int32)
            write(expected, target, ids, read(expected, target, ids) + total + np.int32(number))

    def kernel(x_ref: Any, zero_ref: Any, o_ref: Any) -> None:
        number = 0
        for axis, size in enumerate(grid):
            number = number * size + pl.program_id(axis)
        o_ref[...] = o_ref[...] + x_ref[...].sum() + number

    for executor in EXECUTORS:
        result = pl.pallas_call(
            kernel,
            pl.ShapeDtypeStruct(zeros.shape, zeros.dtype),
            grid=grid,
            in_specs=[spec_of(source), pl.BlockSpec()],
            out_specs=spec_of(target),
            input_output_aliases={1: 0},
            interpret=executor,
        )(x, zeros)
        np.testing.assert_array_equal(result, expected, executor)


@settings(max_examples=60)
@given(data=st.data())
def test_a_permuted_tiling_is_a_permutation(data: st.DataObject) -> None:
    """Blocks of any size cover an array; the grid runs over them with its axes in any order; nothing is lost."""
    rank = data.draw(st.integers(1, 3), "rank")
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=rank, max_size=rank), "shape"))
    block = tuple(data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank), "block"))
    order = data.draw(st.permutations(range(rank)), "order")
    moved = data.draw(st.permutations(range(rank)), "moved")
    grid = tuple(pl.cdiv(shape[axis], block[axis]) for axis in order)
    position = [order.index(axis) for axis in range(rank)]
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...].transpose(*moved)

    for executor in EXECUTORS:
        result = pl.pallas_call(
            kernel,
            pl.ShapeDtypeStruct(tuple(shape[axis] for axis in moved), x.dtype),
            grid=grid,
            in_specs=[pl.BlockSpec(block, lambda *ids: tuple(ids[at] for at in position))],
            out_specs=pl.BlockSpec(
                tuple(block[axis] for axis in moved), lambda *ids: tuple(ids[position[axis]] for axis in moved)
            ),
            interpret=executor,
        )(x)
        np.testing.assert_array_equal(result, x.transpose(moved), executor)
