"""Control flow with the names of `jax.lax`, and the axes of a named grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palladio.array.axes import normalize_axis
from palladio.array.convert import array_type
from palladio.base import trees
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.lax.shape import concatenate, rev
from palladio.lax.slicing import slice_in_dim
from palladio.trace.control import cond, fori_loop, scan, switch, while_loop
from palladio.trace.grid import axis_index, axis_size

__all__ = [
    "associative_scan",
    "axis_index",
    "axis_size",
    "cond",
    "fori_loop",
    "map",
    "scan",
    "switch",
    "while_loop",
]


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """`f` of each element along the first axis of `xs`, a pytree of arrays; the results stacked."""
    return scan(lambda _, x: (None, f(x)), None, xs)[1]


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """The running results of an associative function: `fn` of all elements up to each one along an axis.

    Args:
        fn: combines two pytrees like `elems`, whose arrays are parts of `elems` along the axis, element by element.
        elems: a pytree of arrays of one size along the axis.
        reverse: start with the last element.

    Raises:
        PalladioTypeError: if `fn` returns another structure.
        PalladioValueError: if the sizes differ.
    """
    leaves, structure = trees.flatten(elems)
    axes = [normalize_axis(axis, array_type(leaf).ndim) for leaf in leaves]
    sizes = {array_type(leaf).shape[n] for leaf, n in zip(leaves, axes, strict=True)}
    if len(sizes) != 1:
        raise PalladioValueError("the arrays have one size along the axis", argument="elems", got=sorted(sizes))
    size = sizes.pop()

    def turned(arrays: list[Any]) -> list[Any]:
        return [rev(array, (n,)) for array, n in zip(arrays, axes, strict=True)] if reverse else arrays

    def part(arrays: list[Any], start: int, stop: int) -> list[Any]:
        return [slice_in_dim(array, start, stop, axis=n) for array, n in zip(arrays, axes, strict=True)]

    found, reach = turned(leaves), 1
    # Each element holds the result of the `reach` elements up to it; a round doubles that.
    while reach < size:
        earlier, later = part(found, 0, size - reach), part(found, reach, size)
        combined, form = trees.flatten(fn(trees.unflatten(structure, earlier), trees.unflatten(structure, later)))
        if form != structure:
            raise PalladioTypeError(
                "the function returns the structure that it takes",
                expected=trees.shown(structure),
                got=trees.shown(form),
            )
        parts = zip(part(found, 0, reach), combined, axes, strict=True)
        found = [concatenate([first, rest], n) for first, rest, n in parts]
        reach *= 2
    return trees.unflatten(structure, turned(found))
