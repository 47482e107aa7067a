"""`shard_map` of functions with one launch for all devices: on GPUs, and on several cores of each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.array.functions.creation import stack
from palladio.array.functions.indexing import getitem
from palladio.base import trees
from palladio.base.errors import PalladioNotImplementedError, PalladioValueError
from palladio.call.devices.cores import on_all_cores
from palladio.call.devices.gpus import on_all_gpus
from palladio.ir.text import print_program
from palladio.trace.gpu.peers import Devices
from palladio.trace.gpu.rounds import Arrived, Gather, in_rounds
from palladio.trace.grid import GridAxes, grid_axes
from palladio.trace.reference import Reference

Axes = tuple[tuple[str, int], ...]


def run_in_rounds(
    function: Callable[..., Any], args: Sequence[Any], axes: Axes, interpret: Any
) -> tuple[list[Any], Any]:
    """The results of a function that all devices run: flat, each a stack over the devices; and their structure.

    Args:
        args: those of the function, each leaf a stack over the devices.
        axes: those of the devices.

    Raises:
        PalladioValueError: devices that launch different kernels.
        PalladioNotImplementedError: a launch that the devices do not carry out together.
    """
    sizes = tuple(size for _, size in axes)
    leaves, structure = trees.flatten(tuple(args))
    done: list[list[Any]] = []
    while True:
        found: list[Any] = []
        arrived: list[Arrived] = []
        for number, place in enumerate(np.ndindex(*sizes)):
            around = GridAxes(place, sizes, tuple(name for name, _ in axes), ("device",) * len(axes))
            with grid_axes(around), in_rounds([results[number] for results in done]):
                try:
                    given = trees.unflatten(structure, [getitem(leaf, number) for leaf in leaves])
                    found.append(trees.flatten(function(*given)))
                except Arrived as launch:
                    arrived.append(launch)
        if not arrived:
            return [stack(parts) for parts in zip(*(flat for flat, _ in found), strict=True)], found[0][1]
        if found:
            raise PalladioValueError("some devices launch a kernel that others do not", argument="f")
        done.append(_together(Devices(axes), arrived, interpret))


def _together(devices: Devices, arrived: Sequence[Arrived], interpret: Any) -> list[Any]:
    """The results of one launch, or one exchange, on each device."""
    call, flat = arrived[0].call, [trees.flatten(tuple(each.given)) for each in arrived]
    exchanges = {each.call if isinstance(each.call, Gather) else None for each in arrived}
    if len(exchanges) > 1:
        raise _different(len(exchanges), "steps")
    if isinstance(call, Gather):
        return _gathered(devices, call.axis_name, [leaves[0] for leaves, _ in flat])
    if any(isinstance(leaf, Reference) for leaves, _ in flat for leaf in leaves):
        raise PalladioNotImplementedError(
            "on several devices a launch takes arrays", argument="args", got="a reference"
        )
    on_all = on_all_gpus if call.meshes[0].core_type == "gpu" else on_all_cores
    launches = [on_all(each.call, structure, devices, interpret) for each, (_, structure) in zip(arrived, flat)]
    stacked = [stack(parts) for parts in zip(*(leaves for leaves, _ in flat), strict=True)]
    programs = {tuple(map(print_program, each.programs(*stacked))) for each in launches}
    if len(programs) > 1:
        raise _different(len(programs), f"programs of {call.__name__}")
    results = launches[0](*stacked) or ()
    structure = call.outputs.structure
    if not call.outputs.types:
        return [None] * devices.count
    return [trees.unflatten(structure, [getitem(each, n) for each in results]) for n in range(devices.count)]


def _different(count: int, what: str) -> PalladioValueError:
    return PalladioValueError(
        "the devices launch different programs; what differs by device is asked for in the kernel",
        argument="f",
        got=f"{count} {what}",
        hint="lax.axis_index(name) inside of the kernel",
    )


def _gathered(devices: Devices, name: str, parts: Sequence[Any]) -> list[Any]:
    """For each device the arrays of those along an axis, stacked."""
    names, sizes = zip(*devices.axes, strict=True)
    along, numbers = names.index(name), np.arange(devices.count).reshape(sizes)
    lines = np.moveaxis(numbers, along, -1)
    found: list[Any] = [None] * devices.count
    for line in lines.reshape(-1, sizes[along]):
        together = stack([parts[number] for number in line])
        for number in line:
            found[number] = together
    return found
