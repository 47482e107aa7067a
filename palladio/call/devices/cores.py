"""One launch on the cores of several devices: each device has its part of every array and its own global memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from palladio.array import convert
from palladio.base import trees
from palladio.base.dataclass import dataclass
from palladio.call.launch.core_meshes import MeshOfCores
from palladio.call.launch.launch_call import LaunchCall
from palladio.call.outputs import Outputs
from palladio.trace.array_refs import DeviceRef
from palladio.trace.functions import named_as
from palladio.trace.gpu.peers import Devices
from palladio.trace.gpu.rounds import Arrived
from palladio.types.types import MemorySpace, ShapeDtypeStruct


@dataclass(frozen=True)
class _OnDevices(MeshOfCores):
    """The cores of a mesh on each of several devices."""

    devices: tuple[tuple[str, int], ...]
    mesh: MeshOfCores

    @property
    def axes(self) -> tuple[tuple[str, int, str], ...]:  # type: ignore[override]
        """The device axes, then the axes of the cores of each device."""
        return (*((name, size, "device") for name, size in self.devices), *self.mesh.axes)

    @property
    def core_type(self) -> Any:
        """The kind of the cores."""
        return self.mesh.core_type  # type: ignore[attr-defined]

    @property
    def default_memory_space(self) -> MemorySpace:
        """The memory space of the inputs and outputs of its programs."""
        return self.mesh.default_memory_space


def on_all_cores(call: LaunchCall, arrived: Arrived, devices: Devices, interpret: Any) -> LaunchCall:
    """A launch of one device, extended to the cores of all devices.

    It takes the arrays among the arguments, then those of the references of the function around it, which are outputs
    too: inside, each is a reference to memory of its device.
    """
    leaves, structure = trees.flatten(tuple(arrived.given))
    refs = arrived.refs
    arrays = [n for n, leaf in enumerate(leaves) if not isinstance(leaf, DeviceRef)]
    first, last = len(arrays) + len(refs), len(arrays) + len(refs) + len(call.outputs.types)
    count = last + len(refs)

    def of_own_device(body: Callable[..., Any]) -> Callable[..., Any]:
        def program(*parameters: Any, **keywords: Any) -> None:
            own = [ref.at[0] for ref in parameters[:count]]
            for ref, memory in zip(refs, own[last:], strict=True):
                ref.memory = memory
            try:
                parts = {n: own[place] for place, n in enumerate(arrays)}
                given = trees.unflatten(structure, [parts.get(n, leaf) for n, leaf in enumerate(leaves)])
                tree = trees.flatten(call.outputs.tree if call.outputs.types else ())[1]
                results = trees.unflatten(tree, own[first:last])
                body(*given, *results, *parameters[count:], **keywords)
            finally:
                for ref in refs:
                    ref.memory = None

        scratch = trees.flatten(call.scratch)[0]
        named_as(program, body, -1 if isinstance(call.scratch, Mapping) or refs else count + len(scratch))
        return program

    wanted = (*call.outputs.types, *(convert.array_type(ref.value) for ref in refs))
    types = tuple(ShapeDtypeStruct((devices.count, *type.shape), type.dtype) for type in wanted)
    aliases = [(arrays.index(source), target) for source, target in call.aliases]
    aliases += [(len(arrays) + n, len(call.outputs.types) + n) for n in range(len(refs))]
    meshes = [_OnDevices(devices.axes, mesh) for mesh in call.meshes]
    launch = LaunchCall(
        [of_own_device(body) for body in call.bodies],
        meshes,
        Outputs(types),
        _owned_by(meshes, call),
        tuple(aliases),
        what=call.what,
        name=call.__name__,
        debug=call.debug,
        interpret=call.interpret if interpret is None else interpret,
    )
    launch.advice = call.advice
    return launch


def _owned_by(meshes: Sequence[_OnDevices], call: LaunchCall) -> Any:
    """The scratch of a launch; what belongs to one of its meshes belongs to that mesh on all devices."""
    leaves, structure = trees.flatten(call.scratch)
    return trees.unflatten(
        structure,
        [
            leaf if owner is None else replace(leaf, mesh=meshes[owner])
            for leaf, owner in zip(leaves, call.owners, strict=True)
        ],
    )
