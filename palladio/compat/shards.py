"""The parts of an array of JAX that lie on the simulated devices of a mesh."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass


class AxisType(Enum):
    """The use of a mesh axis; it has no effect here."""

    Auto = "auto"
    Explicit = "explicit"
    Manual = "manual"


@dataclass(frozen=True)
class Shard:
    """The part of an array on one device.

    Fields:
        device: the number of the device.
        index: the slices of the array, one for each axis.
        replica_id: how many devices before this one have the same part.
        data: the part itself.
    """

    device: int
    index: tuple[slice, ...]
    replica_id: int
    data: Any


def shards(array: Any, mesh: Any, spec: Any) -> list[Shard]:
    """The part of each device of a mesh, by a partition, in the order of the devices.

    Args:
        array: a whole array, whose axes the partition divides evenly.
    """
    sizes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True))
    axes = spec.axes(array.ndim, mesh, "spec")
    seen: dict[tuple[int, ...], int] = {}
    found = []
    for device, place in enumerate(np.ndindex(*mesh.axis_sizes)):
        where = dict(zip(mesh.axis_names, place, strict=True))
        slices, parts = [], []
        for extent, names in zip(array.shape, axes, strict=True):
            count, part = math.prod(sizes[name] for name in names), 0
            for name in names:
                part = part * sizes[name] + where[name]
            length = extent // count
            slices.append(slice(part * length, (part + 1) * length) if names else slice(None))
            parts.append(part)
        replica = seen.get(tuple(parts), 0)
        seen[tuple(parts)] = replica + 1
        found.append(Shard(device, tuple(slices), replica, array[tuple(slices)]))
    return found
