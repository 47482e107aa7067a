"""What a pipeline means, in NumPy: steps in order, a block kept for as long as its index stays the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu

Array = np.ndarray[Any, Any]


@dataclass
class Blocks:
    """An array's blocks: a block shape, and an index map that works on integers and on traced scalars."""

    shape: tuple[Any, ...]
    index_map: Callable[..., Any]

    def points(self, point: Sequence[int], extents: Sequence[int]) -> list[Array]:
        """The elements along each axis of the block of a point; -1 for none."""
        index = self.index_map(*point)
        found = []
        for entry, at, extent in zip(self.shape, index, extents, strict=True):
            if entry is None:
                part = np.array([at])
            elif isinstance(entry, pl.Element):
                part = at - entry.padding[0] + np.arange(entry.block_size)
            elif isinstance(entry, pl.BoundedSlice):
                steps = np.arange(entry.block_size)
                part = np.where(steps < at.size, at.start + steps, -1)
            elif isinstance(entry, pl.Indirect):
                part = np.asarray(at)
            else:
                part = at * entry + np.arange(entry)
            found.append(np.where((part >= 0) & (part < extent), part, -1))
        return found

    def key(self, point: Sequence[int]) -> Any:
        """What tells one block from another."""
        index = self.index_map(*point)
        return [
            (each.start, each.size) if hasattr(each, "start") else tuple(np.ravel(np.asarray(each))) for each in index
        ]

    def read(self, array: Array, point: Sequence[int]) -> Array:
        """The block, zeros outside."""
        points = self.points(point, array.shape)
        found = array[np.ix_(*points)]
        for axis, part in enumerate(points):
            found = np.where(np.expand_dims(part >= 0, [n for n in range(len(points)) if n != axis]), found, 0)
        return found.reshape([len(part) for part, e in zip(points, self.shape, strict=True) if e is not None])

    def write(self, array: Array, point: Sequence[int], value: Array) -> None:
        """Store a block; what is outside is dropped."""
        points = self.points(point, array.shape)
        spread = value.reshape([len(part) for part in points])
        inside = [np.flatnonzero(part >= 0) for part in points]
        array[np.ix_(*[part[good] for part, good in zip(points, inside, strict=True)])] = spread[np.ix_(*inside)]


def expected(
    grid: Sequence[int], inputs: Sequence[tuple[Array, Blocks]], output: Array, blocks: Blocks, combine: Any
) -> Array:
    """The output of a pipeline whose body adds `combine(step, *input blocks)` to its block, which starts as zeros."""
    found, held, before = output.copy(), None, None
    for step, point in enumerate(itertools.product(*map(range, grid))):
        if held is None or blocks.key(point) != blocks.key(before):
            held = 0
        held = held + combine(step, *(each.read(array, point) for array, each in inputs))
        blocks.write(found, point, held)
        before = point
    return found


def begins(grid: Sequence[int], blocks: Blocks) -> Array:
    """For each step, whether another block begins there: i32[steps]."""
    points = list(itertools.product(*map(range, grid)))
    changed = [n == 0 or blocks.key(points[n - 1]) != blocks.key(points[n]) for n in range(len(points))]
    return np.array(changed, np.int32)


def linear(indices: Sequence[Any], grid: Sequence[int]) -> Any:
    """The number of a step."""
    number = indices[0] * 0
    for index, size in zip(indices, grid, strict=True):
        number = number * size + index
    return number


def passed() -> plgpu.BlockSpec:
    """The spec of an array that the body gets whole."""
    return plgpu.BlockSpec(memory_space=plgpu.GMEM)


def check_everywhere(call: Any, *args: Any, schedules: int) -> Any:
    """The result of a kernel, which is the same by its definition and compiled, and has no finding in some schedules.

    A test that calls this is marked `one_executor`.
    """
    found = []
    for each in ("reference", "cpu"):
        with pl.executor(each):
            found.append(call(*args))
    np.testing.assert_array_equal(*found)
    report = pl.check(call, *args, schedules=schedules, seed=0)
    assert report.ok, report
    return found[0]
