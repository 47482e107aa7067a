"""Loops of the threads of a kernel over one grid of steps: persistent loops, work stealing, and visiting orders."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.base.arguments import axis_names, entries
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.trace.control import fori_loop, loop
from palladio.trace.functions import call_user, require_function
from palladio.trace.grid import axis_index, axis_size
from palladio.types import dtypes

Axes = str | Sequence[str]


@dataclass(frozen=True)
class NDLoopInfo:
    """The position of a loop over a grid.

    Fields:
        index: the point of the grid, a scalar i32 for each of its axes.
        local_index: the number of points that this thread has visited before, i32[].
        num_local_steps: the number of points that it visits, an int or i32[]; None if known only at run time.
    """

    index: tuple[Any, ...]
    local_index: Any
    num_local_steps: Any


def nd_loop(
    grid: Sequence[Any], *, collective_axes: Axes, tiling: Sequence[int] | None = None, init_carry: Any = None
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that runs its function once for each point of a grid, the points distributed along mesh axes.

    The thread with index `t` of the `n` along `collective_axes` visits points t, t + n, t + 2n, … in row-major order,
    the last axis fastest: a persistent kernel. Where `n` does not divide the number of points, only the first threads
    take part in the last wave.

    Without `init_carry` the function is called as `f(info)` and returns nothing; with it, as `f(info, carry)`, it
    returns the next carry, and the decorated name becomes the last one.

    Args:
        grid: the sizes of the grid, integers of at least 0 or scalar int32 that are known when the kernel runs.
        collective_axes: the name of a mesh axis, or several, the last one fastest.
        tiling: visit the points tile by tile: the size of a tile along each axis of a static grid, which it divides.
        init_carry: a pytree of arrays.

    Raises:
        PalladioTypeError: sizes that are not integers; a function that cannot be called, or returns something else.
        PalladioValueError: a negative size; an axis that the mesh does not have; a tiling that does not fit.
    """
    sizes = _grid_sizes(grid)
    tiles = None if tiling is None else _tiles(sizes, tiling)
    number, count = _linear(collective_axes)
    points = functools.reduce(operator.mul, sizes, 1)
    whole, rest = points // count, points % count
    steps = whole + convert.cast(number < rest, dtypes.INT32) if not _is_known(rest) or rest else whole

    def info(local: Any) -> NDLoopInfo:
        return NDLoopInfo(_point(local * count + number, sizes, tiles), local, steps)

    def decorate(function: Callable[..., Any]) -> Any:
        require_function(function, "what nd_loop runs")
        if init_carry is None:
            return loop(0, steps)(lambda local_tile: _called("nd_loop", function, info(local_tile)))
        return fori_loop(
            0, steps, lambda local_tile, carry: _called("nd_loop", function, info(local_tile), carry), init_carry
        )

    return decorate


def _called(name: str, function: Callable[..., Any], *args: Any) -> Any:
    expected = "1 argument: an NDLoopInfo" if len(args) == 1 else "2 arguments: an NDLoopInfo, the carry"
    return call_user(function, args, {}, f"the function that {name} runs", expected)


def _is_known(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _grid_sizes(grid: Any) -> tuple[Any, ...]:
    entries = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    found = []
    for entry in entries:
        kind = convert.array_type(entry)
        if kind.shape != () or not dtypes.is_integer(kind.dtype):
            raise PalladioTypeError("the size of a grid axis is a scalar integer", argument="grid", got=repr(entry))
        size = int(entry) if _is_known(entry) else convert.cast(entry, dtypes.INT32)
        if _is_known(size) and size < 0:
            raise PalladioValueError("the size of a grid axis is at least 0", argument="grid", got=size)
        found.append(size)
    return tuple(found)


def _tiles(sizes: Sequence[Any], tiling: Sequence[int]) -> tuple[int, ...]:
    tiles = entries(tiling, "tiling", "a size for each axis of the grid")
    fits = len(tiles) == len(sizes) and all(
        isinstance(tile, int) and tile > 0 and _is_known(size) and size % tile == 0
        for tile, size in zip(tiles, sizes, strict=True)
    )
    if not fits:
        raise PalladioValueError(
            "a tile has a size for each axis of a static grid, which it divides",
            argument="tiling",
            expected=f"divisors of {', '.join(map(str, sizes))}",
            got=tiles,
        )
    return tiles


def _linear(axes: Axes) -> tuple[Any, Any]:
    """The linear index of this thread along some mesh axes, the last one fastest, and their total size."""
    names = axis_names(axes, "collective_axes")
    if not names:
        raise PalladioValueError("a loop is dealt out along at least one mesh axis", argument="collective_axes")
    number: Any = 0
    count: Any = 1
    for name in names:
        number = number * axis_size(name) + axis_index(name)
        count = count * axis_size(name)
    return number, count


def _unravelled(number: Any, sizes: Sequence[Any]) -> list[Any]:
    index: list[Any] = []
    for size in reversed(sizes):
        index.append(number % size)
        number = number // size
    return index[::-1]


def _point(number: Any, sizes: Sequence[Any], tiles: Sequence[int] | None) -> tuple[Any, ...]:
    if tiles is None:
        return tuple(_unravelled(number, sizes))
    area = math.prod(tiles)
    outer = _unravelled(number // area, [size // tile for size, tile in zip(sizes, tiles, strict=True)])
    inner = _unravelled(number % area, tiles)
    return tuple(o * tile + i for o, i, tile in zip(outer, inner, tiles, strict=True))


def dynamic_scheduling_loop(
    grid_names: Axes, thread_axis: str | None = None, cluster_axes: Axes = (), init_carry: Any = None
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that runs its function for this block's point of the kernel's grid, and then for points of blocks
    that have not started and never will: work stealing.

    The contract: every point of the grid is visited by exactly one cluster, a cluster visits its own point first,
    all its threads visit the same points in the same order, and nothing else is guaranteed. The schedule here is
    static: every cluster starts, and visits its own point only. A kernel may not rely on that.

    Without `init_carry` the function is called as `f(info)` and returns nothing; with it, as `f(info, carry)`, it
    returns the next carry, and the decorated name becomes the last one. `info.num_local_steps` is None.

    Args:
        grid_names: the names of all grid axes, in order.
        thread_axis: the name of the thread axis, of a kernel that has one.
        cluster_axes: the names of all cluster axes.

    Raises:
        PalladioValueError: an axis that the mesh does not have.
        PalladioTypeError: a function that is not callable, or that returns a wrong result.
    """
    names = axis_names(grid_names, "grid_names")
    others = axis_names(cluster_axes, "cluster_axes")
    index = tuple(axis_index(name) for name in names)
    for name in (*others, *(() if thread_axis is None else (thread_axis,))):
        axis_index(name)

    def decorate(function: Callable[..., Any]) -> Any:
        name = "dynamic_scheduling_loop"
        require_function(function, f"what {name} runs")
        if init_carry is None:
            return loop(0, 1)(lambda local_tile: _called(name, function, NDLoopInfo(index, local_tile, None)))
        return fori_loop(
            0,
            1,
            lambda local_tile, carry: _called(name, function, NDLoopInfo(index, local_tile, None), carry),
            init_carry,
        )

    return decorate


def planar_snake(lin_idx: Any, shape: Sequence[int], minor_dim: int, tile_width: int) -> tuple[Any, Any]:
    """The `lin_idx`-th point of a plane in snake order, in which consecutive points are neighbours.

    The plane is cut into bands of `tile_width` along axis `minor_dim`. Within a band the other axis moves slowly, and
    every second band is traversed backwards along it. Consecutive steps then read overlapping rows and columns
    of a product's operands, which stay in the second-level cache.

        >>> [planar_snake(step, (4, 3), 0, 2) for step in range(8)]
        [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2), (3, 2)]

    Args:
        lin_idx: a scalar integer below `shape[0] * shape[1]`.
        shape: the sizes of the plane, integers or i32[].
        minor_dim: 0 or 1, the axis that is cut into bands.
        tile_width: the width of a band, at least 1; the last one may be narrower.

    Returns:
        The indices along axes 0 and 1.

    Raises:
        PalladioValueError: no plane, no such axis, a width below 1.
    """
    sizes = [int(size) if _is_known(size) else size for size in entries(shape, "shape", "two sizes")]
    if len(sizes) != 2 or not all(size > 0 for size in sizes if _is_known(size)):
        raise PalladioValueError("a plane has two sizes of at least 1", argument="shape", got=tuple(sizes))
    if minor_dim not in (0, 1):
        raise PalladioValueError("a plane has the axes 0 and 1", argument="minor_dim", got=minor_dim)
    if not isinstance(tile_width, int) or tile_width < 1:
        raise PalladioValueError("a band is at least 1 wide", argument="tile_width", got=tile_width)
    minor, major = sizes[minor_dim], sizes[1 - minor_dim]
    band, within = lin_idx // (tile_width * major), lin_idx % (tile_width * major)
    first = band * tile_width
    whole = _is_known(minor) and minor % tile_width == 0
    width = tile_width if whole else _least(tile_width, minor - first)
    forwards, across = within // width, first + within % width
    odd = band % 2
    along = forwards + odd * (major - 1 - 2 * forwards)
    return (across, along) if minor_dim == 0 else (along, across)


def _least(first: Any, second: Any) -> Any:
    return min(first, second) if _is_known(second) else np.minimum(first, second)
