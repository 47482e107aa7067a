"""Collective operations of the programs of devices, with the names of `jax.lax`, made of remote copies.

They are for functions under `palladio.shard_map`, around kernels and inside of them. Every device along the axis calls
them; each sends its array to all, which is what a definition needs and not how a fast one goes about it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import cast

import numpy as np

from palladio.array.convert import Array, ArrayLike, array_type
from palladio.array.functions.arithmetic import divide
from palladio.array.functions.compare import equal, where
from palladio.array.functions.indexing import getitem
from palladio.array.functions.reduce import max, min, sum
from palladio.array.functions.shape import moveaxis, reshape
from palladio.base.errors import PalladioValueError
from palladio.trace.array_refs import empty_ref, freeze, new_ref
from palladio.trace.dma import make_async_remote_copy
from palladio.trace.gpu.rounds import Gather, carried_out_in_rounds, result_of_round
from palladio.trace.grid import axis_index, axis_size
from palladio.trace.indices import ds
from palladio.types.scratch import SemaphoreType
from palladio.types.types import HBM, ShapeDtypeStruct

__all__ = ["all_gather", "pmax", "pmean", "pmin", "ppermute", "psum", "psum_scatter"]

AxisNames = str | Sequence[str]


def _gathered(x: ArrayLike, axis_name: str) -> Array:
    """`dtype[devices, ...]`: the arrays of all devices along one axis."""
    if carried_out_in_rounds():
        found: Array = result_of_round(Gather(axis_name), (x,))
        return found
    kind, count, me = array_type(x), axis_size(axis_name), axis_index(axis_name)
    source = new_ref(x, memory_space=HBM)
    target = empty_ref(ShapeDtypeStruct((count, *kind.shape), kind.dtype), HBM)
    sent, received = empty_ref(SemaphoreType.DMA), empty_ref(SemaphoreType.DMA)
    copies = [
        make_async_remote_copy(source, target.at[me], sent, received, {axis_name: device}) for device in range(count)
    ]
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.wait()
    gathered: Array = freeze(target)
    return gathered


def all_gather(x: ArrayLike, axis_name: AxisNames, *, axis: int = 0, tiled: bool = False) -> Array:
    """The arrays of all devices along an axis of the mesh, along a new axis, or with `tiled` along an old one."""
    names = (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
    found = functools.reduce(_gathered, reversed(names), x)
    kind = array_type(x)
    stacked = moveaxis(reshape(found, (-1, *kind.shape)), 0, axis)
    if not tiled:
        return stacked
    shape = list(kind.shape)
    shape[axis] = -1
    return reshape(stacked, shape)


def psum(x: ArrayLike, axis_name: AxisNames) -> Array:
    """The sum of the arrays of all devices along an axis of the mesh. Of a number, which all have, its multiple."""
    if isinstance(x, (int, float)):
        multiple: Array = x * axis_size(axis_name)
        return multiple
    return sum(all_gather(x, axis_name), 0, dtype=array_type(x).dtype)


def pmean(x: ArrayLike, axis_name: AxisNames) -> Array:
    """The mean of the arrays of all devices along an axis of the mesh."""
    return divide(psum(x, axis_name), axis_size(axis_name))


def pmax(x: ArrayLike, axis_name: AxisNames) -> Array:
    """The greatest elements of the arrays of all devices along an axis of the mesh."""
    return max(all_gather(x, axis_name), 0)


def pmin(x: ArrayLike, axis_name: AxisNames) -> Array:
    """The least elements of the arrays of all devices along an axis of the mesh."""
    return min(all_gather(x, axis_name), 0)


def psum_scatter(x: ArrayLike, axis_name: str, *, scatter_dimension: int = 0, tiled: bool = False) -> Array:
    """This device's part of the sum of the arrays of all devices along an axis of the mesh.

    Args:
        scatter_dimension: the axis of the array that is split; with `tiled` into parts, else it disappears.

    Raises:
        PalladioValueError: an axis that the devices do not divide, or without `tiled` another size than theirs.
    """
    total = moveaxis(psum(x, axis_name), scatter_dimension, 0)
    count, extent = axis_size(axis_name), array_type(total).shape[0]
    if extent % count or (not tiled and extent != count):
        raise PalladioValueError(
            "the devices divide the axis that is scattered",
            argument="scatter_dimension",
            expected=f"a multiple of {count}" if tiled else str(count),
            got=extent,
        )
    me = axis_index(axis_name)
    if not tiled:
        return getitem(total, me)
    kept = new_ref(total)
    return moveaxis(kept[ds(me * (extent // count), extent // count)], 0, scatter_dimension)


def ppermute(x: ArrayLike, axis_name: str, perm: Sequence[tuple[int, int]]) -> Array:
    """The array of another device along an axis of the mesh; zeros for a device that gets none.

    Args:
        perm: pairs (source, target) of indices along the axis, each target once.
    """
    arrays, me = all_gather(x, axis_name), axis_index(axis_name)
    kind = array_type(x)
    found = cast(Array, np.zeros((), kind.dtype))
    for source, target in perm:
        found = where(equal(me, operator.index(target)), getitem(arrays, operator.index(source)), found)
    return found
