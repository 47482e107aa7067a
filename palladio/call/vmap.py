"""`vmap`: a function of arrays applied to each element along axes of its arguments, in a loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.axes import normalize_axis
from palladio.array.functions.shape import moveaxis
from palladio.base import trees
from palladio.base.calls import checked_call
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.call.jit import jit
from palladio.trace.control import scan
from palladio.trace.functions import function_name, require_function
from palladio.trace.trace import current_trace


@checked_call
def vmap(
    fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, axis_size: int | None = None
) -> Callable[..., Any]:
    """A function that applies `fun` to each element along an axis of its arguments and stacks the results.

    `fun` is traced once and runs in a loop, one element after the other; it may launch kernels.

    Args:
        fun: takes and returns pytrees of arrays.
        in_axes: the axis of every argument, or a tuple with one entry for each: an axis, None for one that is passed
            whole, or a pytree of those.
        out_axes: the axis along which each result is stacked, in a structure that results have or begin with.
        axis_size: the size of that axis, where no argument has it.

    Returns:
        A function of arrays `dtype[..., n, ...]`, with one n for all.

    Raises:
        PalladioTypeError: not a function, an axis or a size; axes of another structure than the arguments.
        PalladioValueError: no axis at all; axes of different sizes; a negative size.
    """
    with at_call():
        require_function(fun, "what vmap applies", "fun")
        _check_size(axis_size)
    mapped = over_slices(fun, in_axes, out_axes, axis_size, scan)
    staged = jit(mapped)

    @functools.wraps(fun, updated=())
    def call(*args: Any) -> Any:
        return mapped(*args) if current_trace() is not None else staged(*args)

    return call


def over_slices(
    fun: Callable[..., Any], in_axes: Any, out_axes: Any, axis_size: int | None, loop: Callable[..., Any]
) -> Callable[..., Any]:
    """`vmap` by a loop with the arguments and the results of `scan`."""

    def mapped(*args: Any) -> Any:
        leaves, structure = trees.flatten(args)
        axes = _spread(in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args), args, "in_axes")
        along = [n for n, axis in enumerate(axes) if axis is not None]
        sizes = {_extent(leaves[n], axes[n], n) for n in along}
        if axis_size is not None:
            sizes.add(axis_size)
        if len(sizes) != 1:
            raise PalladioValueError(
                "vmap needs one size, that of the axes that it goes along",
                argument="in_axes",
                got=", ".join(map(str, sorted(sizes))) or "no axis",
            )

        def step(_: Any, elements: Any) -> Any:
            given = list(leaves)
            for n, element in zip(along, elements, strict=True):
                given[n] = element
            return None, fun(*trees.unflatten(structure, given))

        moved = [moveaxis(leaves[n], axes[n], 0) if axes[n] else leaves[n] for n in along]
        results = loop(step, None, moved, length=axis_size)[1]
        stacked, form = trees.flatten(results)
        places = _spread(out_axes, results, "out_axes")
        return trees.unflatten(
            form, [moveaxis(each, 0, place) if place else each for each, place in zip(stacked, places, strict=True)]
        )

    mapped.__name__ = function_name(fun)
    return mapped


def _check_size(size: Any) -> None:
    if size is None:
        return
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
        raise PalladioTypeError("the size of a mapped axis is an integer", argument="axis_size", got=repr(size))
    if size < 0:
        raise PalladioValueError("the size of a mapped axis is at least 0", argument="axis_size", got=size)


def _extent(leaf: Any, axis: int, number: int) -> int:
    kind = convert.array_type(leaf)
    if kind.ndim == 0:
        raise PalladioTypeError(
            "vmap goes along an axis, which a scalar does not have",
            argument=f"argument {number}",
            got=str(kind),
            hint="in_axes=None passes it whole",
        )
    return kind.shape[normalize_axis(axis, kind.ndim)]


def _spread(axes: Any, tree: Any, argument: str) -> list[Any]:
    """The axis of each leaf of a tree; an axis applies to everything below it."""
    found = trees.spread(axes, tree, lambda each: each is None or isinstance(each, int))
    if found is None:
        raise PalladioTypeError(
            "the axes have another structure than what they are axes of",
            argument=argument,
            expected=trees.shown(trees.flatten(tree)[1]),
            got=repr(axes),
        )
    return found
