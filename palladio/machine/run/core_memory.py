"""The memory of cores: private memory, memory that the cores of a device share, and accesses to peers.

A buffer exists once for a device (global memory), once for a core and its sub-cores, or once for every core. So it is a
store at each index along those axes; the stores of one buffer are siblings, like those of the blocks of a cluster.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from palladio.ops.threads.launch import MeshAxis

Coordinates = tuple[int, ...]


def split(shape: Sequence[int], axes: Sequence[MeshAxis], index: Mapping[str, int]) -> tuple[slice, ...]:
    """The part of an array, split along its first axis, that the device at an index sees."""
    number, count = 0, 1
    for axis in axes:
        if axis.kind == "device":
            number, count = number * (axis.size or 1) + index[axis.name], count * (axis.size or 1)
    extent = shape[0] // count
    return (slice(number * extent, (number + 1) * extent),)


class CoreSite:
    """The home of a store: an index along some axes of the meshes. Its memory lives as long as the launch."""

    ended = False

    def __init__(self, axes: Sequence[str], place: Coordinates, cluster: Any) -> None:
        self.axes = tuple(axes)
        self.place = place
        self.cluster = cluster
        self.shared_bytes = 0
        self.retired: list[Any] = []

    @property
    def label(self) -> str:
        """Its name in reports."""
        return " ".join(f"{axis} {n}" for axis, n in zip(self.axes, self.place, strict=True)) or "the launch"

    def peer(self, blocks: Mapping[str, int]) -> Coordinates:
        """The place that differs from this one along the named axes; axes that it lacks are ignored."""
        return tuple(blocks.get(axis, here) for axis, here in zip(self.axes, self.place, strict=True))

    @property
    def extents(self) -> dict[str, int]:
        """No axes: a barrier of cores counts the arrivals at one core only."""
        return {}

    def neighbours(self, groups: Sequence[tuple[str, ...]]) -> list[Coordinates]:
        """None: a barrier of cores counts the arrivals at one core only."""
        return []


class PerCore:
    """The stores of one buffer, by place along some axes.

    Args:
        axes: the axes and their sizes.
        make: makes the store of a site.
        cluster: the cores of its mesh, if it belongs to one mesh.
    """

    def __init__(self, axes: Mapping[str, int], make: Callable[[CoreSite], Any], cluster: Any = None) -> None:
        self.axes = tuple(axes)
        self.stores: dict[Coordinates, Any] = {}
        for place in itertools.product(*map(range, axes.values())):
            store = make(CoreSite(self.axes, place, cluster))
            store.siblings = self.stores
            self.stores[place] = store

    def at(self, index: Mapping[str, Any]) -> Any:
        """The store for a program at an index; along axes that the program's mesh lacks it must name one itself."""
        return self.stores[tuple(int(index.get(axis, 0)) for axis in self.axes)]


def part(array: np.ndarray[Any, Any], shape: Sequence[int], axes: Sequence[MeshAxis], site: CoreSite) -> Any:
    """The part of an array that the programs of a site's device see, or all of it."""
    if array.shape == tuple(shape):
        return array
    return array[split(array.shape, axes, dict(zip(site.axes, site.place, strict=True)))]
