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
from palladio.trace.array_refs import DeviceRef
from palladio.trace.gpu.peers import Devices
from palladio.trace.gpu.rounds import Arrived, Gather, Result, in_rounds
from palladio.trace.grid import GridAxes, grid_axes
from palladio.trace.reference import Reference

Axes = tuple[tuple[str, int], ...]


def run_in_rounds(
    function: Callable[..., Any], args: Sequence[Any], axes: Axes, interpret: Any
) -> tuple[list[Any], Any]:
    """The results of a function that all devices run: flat, each a stack over the devices; and their structure.

    Args:
        args: the function's arguments, each leaf a stack over the devices.
        axes: of the devices.

    Raises:
        PalladioValueError: devices that launch different kernels.
        PalladioNotImplementedError: a launch that the devices do not carry out together.
    """
    sizes = tuple(size for _, size in axes)
    leaves, structure = trees.flatten(tuple(args))
    done: list[list[Result]] = []
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


def _together(devices: Devices, arrived: Sequence[Arrived], interpret: Any) -> list[Result]:
    """The results of one launch, or one exchange, on each device."""
    call, flat = arrived[0].call, [trees.flatten(tuple(each.given)) for each in arrived]
    exchanges = {each.call if isinstance(each.call, Gather) else None for each in arrived}
    if len(exchanges) > 1:
        raise _different(len(exchanges), "steps")
    if isinstance(call, Gather):
        return [(found, ()) for found in _gathered(devices, call.axis_name, [leaves[0] for leaves, _ in flat])]
    on_gpus = call.meshes[0].core_type == "gpu"
    arrays = [n for n, leaf in enumerate(flat[0][0]) if not isinstance(leaf, DeviceRef)]
    if (on_gpus and len(arrays) < len(flat[0][0])) or any(isinstance(flat[0][0][n], Reference) for n in arrays):
        raise PalladioNotImplementedError(
            "on several devices a launch takes arrays", argument="args", got="a reference"
        )
    stacked = [stack([leaves[n] for leaves, _ in flat]) for n in arrays]
    if on_gpus:
        launches = [
            on_all_gpus(each.call, structure, devices, interpret)
            for each, (_, structure) in zip(arrived, flat, strict=True)
        ]
    else:
        launches = [on_all_cores(each.call, each, devices, interpret) for each in arrived]
        stacked += [stack([ref.value for ref in refs]) for refs in zip(*(each.refs for each in arrived), strict=True)]
    programs = {tuple(map(print_program, each.programs(*stacked))) for each in launches}
    if len(programs) > 1:
        raise _different(len(programs), f"programs of {call.__name__}")
    results = launches[0](*stacked) or ()
    structure, count = call.outputs.structure, len(call.outputs.types)
    found: list[Result] = []
    for number in range(devices.count):
        own = [getitem(each, number) for each in results]
        found.append((trees.unflatten(structure, own[:count]) if count else None, own[count:]))
    return found


def _different(count: int, what: str) -> PalladioValueError:
    return PalladioValueError(
        "the devices launch different programs; the kernel itself must read what differs by device",
        argument="f",
        got=f"{count} {what}",
        hint="lax.axis_index(name) inside of the kernel",
    )


def _gathered(devices: Devices, name: str, parts: Sequence[Any]) -> list[Any]:
    """For each device, the stacked arrays of all devices along an axis."""
    names, sizes = zip(*devices.axes, strict=True)
    along, numbers = names.index(name), np.arange(devices.count).reshape(sizes)
    lines = np.moveaxis(numbers, along, -1)
    found: list[Any] = [None] * devices.count
    for line in lines.reshape(-1, sizes[along]):
        together = stack([parts[number] for number in line])
        for number in line:
            found[number] = together
    return found
