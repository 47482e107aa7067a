"""One launch on several GPUs: its grid numbers the devices, and global memory is stacked over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from palladio.base import trees
from palladio.base.errors import PalladioNotImplementedError
from palladio.call.launch.launch_call import LaunchCall
from palladio.call.launch.mesh import Mesh
from palladio.call.outputs import Outputs
from palladio.trace.functions import named_as
from palladio.trace.gpu.peers import Devices, among_gpus, own_part
from palladio.types.scratch import SemaphoreKind
from palladio.types.types import COUNTING, GMEM, HBM, MemoryRef, ShapeDtypeStruct


def on_all_gpus(call: LaunchCall, structure: trees.Structure, devices: Devices, interpret: Any) -> LaunchCall:
    """A launch of one device, extended to all devices.

    Raises:
        PalladioNotImplementedError: several programs.
    """
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

    named_as(program, body, -1 if isinstance(call.scratch, Mapping) else len(described) + inputs + count)
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
