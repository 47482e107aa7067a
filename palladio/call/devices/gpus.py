"""`shard_map` of functions that launch on GPUs: the launches of all devices are one, whose grid numbers the devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from palladio.array.functions.creation import stack
from palladio.array.functions.indexing import getitem
from palladio.base import trees
from palladio.base.errors import PalladioNotImplementedError, PalladioValueError
from palladio.call.devices.replay import Arrived, in_rounds
from palladio.call.launch.launch_call import LaunchCall
from palladio.call.launch.mesh import Mesh
from palladio.call.outputs import Outputs
from palladio.ir.text import print_program
from palladio.trace.functions import positional_names
from palladio.trace.gpu.peers import Devices, among_gpus, own_part
from palladio.trace.grid import GridAxes, grid_axes
from palladio.trace.reference import Reference
from palladio.types.scratch import SemaphoreKind
from palladio.types.types import COUNTING, GMEM, HBM, MemoryRef, ShapeDtypeStruct

Axes = tuple[tuple[str, int], ...]


def run_on_gpus(function: Callable[..., Any], args: Sequence[Any], axes: Axes, interpret: Any) -> tuple[list[Any], Any]:
    """The results of a function that all devices run: flat, each a stack over the devices; and their structure.

    Args:
        args: those of the function, each leaf a stack over the devices.
        axes: those of the devices.

    Raises:
        PalladioValueError: devices that launch different kernels.
        PalladioNotImplementedError: a launch that GPUs do not carry out together.
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
    """The results of one launch on each device."""
    call, flat = arrived[0].call, [trees.flatten(tuple(each.given)) for each in arrived]
    if any(isinstance(leaf, Reference) for leaves, _ in flat for leaf in leaves):
        raise PalladioNotImplementedError("on several GPUs a launch takes arrays", argument="args", got="a reference")
    launches = [_on_all(each.call, structure, devices, interpret) for each, (_, structure) in zip(arrived, flat)]
    stacked = [stack(parts) for parts in zip(*(leaves for leaves, _ in flat), strict=True)]
    programs = {print_program(each.program(*stacked)) for each in launches}
    if len(programs) > 1:
        raise PalladioValueError(
            "the devices launch different programs; what differs by device is asked for in the kernel",
            argument="f",
            got=f"{len(programs)} programs of {call.__name__}",
            hint="lax.axis_index(name) inside of the kernel",
        )
    results = launches[0](*stacked) or ()
    structure = call.outputs.structure
    if not call.outputs.types:
        return [None] * devices.count
    return [trees.unflatten(structure, [getitem(each, n) for each in results]) for n in range(devices.count)]


def _on_all(call: LaunchCall, structure: trees.Structure, devices: Devices, interpret: Any) -> LaunchCall:
    """The launch on all devices of what one device launches."""
    (mesh, *others) = call.meshes
    if others or not isinstance(mesh, Mesh):
        raise PalladioNotImplementedError(
            "on several GPUs a launch is of one program", argument="mesh", got=", ".join(map(repr, call.meshes))
        )
    (body,), count = call.bodies, len(call.outputs.types)
    inputs = structure.num_leaves
    described, form = trees.flatten(call.scratch)

    def program(*refs: Any, **keywords: Any) -> None:
        given, outs = list(refs[:inputs]), list(refs[inputs : inputs + count])
        scratch = keywords or refs[inputs + count :]
        buffers, form = trees.flatten(scratch)
        shared = [ref for ref, type in zip(buffers, described, strict=True) if _is_global(type)]
        stacks = (*given, *outs, *shared)
        with among_gpus(Devices(devices.axes)):
            own = {id(ref): own_part(ref) for ref in stacks}
            made = trees.unflatten(form, [own.get(id(ref), ref) for ref in buffers])
            out_tree = trees.flatten(call.outputs.tree if count else ())[1]
            results = trees.unflatten(out_tree, [own[id(ref)] for ref in outs])
            args = trees.unflatten(structure, [own[id(ref)] for ref in given])
            body(*args, *results, *(() if keywords else made), **(made if keywords else {}))

    program.__name__ = call.__name__
    named = positional_names(body)
    if len(named) == len(described) + inputs + count and not isinstance(call.scratch, Mapping):  # one reference each
        program.__signature__ = Signature([Parameter(name, Parameter.POSITIONAL_ONLY) for name in named])  # type: ignore[attr-defined]
    grid = [(name, size) for name, size, kind in mesh.axes if kind == "grid"]
    names, sizes = zip(*grid, *devices.axes, strict=True)
    wide = replace(mesh, grid=sizes, grid_names=names)
    types = tuple(ShapeDtypeStruct((devices.count, *type.shape), type.dtype) for type in call.outputs.types)
    scratch = trees.unflatten(form, [_stacked(type, devices.count) for type in described])
    launch = LaunchCall(
        [program],
        [wide],
        Outputs(types),
        scratch,
        call.aliases,
        what=call.what,
        name=call.__name__,
        debug=call.debug,
        interpret=call.interpret if interpret is None else interpret,
    )
    launch.advice, launch.gpus = call.advice, devices.count
    return launch


def _space(type: Any) -> Any:
    return type.space if isinstance(type, SemaphoreKind) else getattr(type, "memory_space", None)


def _is_global(type: Any) -> bool:
    """True of scratch in the global memory of a device."""
    return _space(type) in COUNTING or _space(type) in (GMEM, HBM)


def _stacked(type: Any, count: int) -> Any:
    """Scratch of every device, one after the other, if it is global memory."""
    if not _is_global(type):
        return type
    found: MemoryRef = type() if isinstance(type, SemaphoreKind) else type
    return replace(found, shape=(count, *found.shape))
