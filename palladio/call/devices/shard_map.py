"""Several simulated devices: `make_mesh`, and `shard_map`, which runs a function on the parts of arrays on each."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from palladio.array.convert import array_type, broadcast_to
from palladio.array.foreign import to_numpy
from palladio.array.functions.indexing import getitem
from palladio.array.functions.shape import permute_dims, reshape
from palladio.base import trees
from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.call.devices.rounds import run_in_rounds
from palladio.call.inline.written import in_device_programs
from palladio.call.launch.core_meshes import CoreMesh
from palladio.call.launch.kernel import kernel
from palladio.driver.executors import Executor, requests
from palladio.trace.functions import function_name, require_function
from palladio.trace.gpu.rounds import LaunchesTogether
from palladio.types.types import ShapeDtypeStruct


@dataclass(frozen=True)
class DeviceMesh:
    """Simulated devices along named axes; `make_mesh` makes it.

    Fields:
        axis_names, axis_sizes: one for each axis.
    """

    axis_names: tuple[str, ...]
    axis_sizes: tuple[int, ...]

    @property
    def shape(self) -> dict[str, int]:
        """The size of each axis by name."""
        return dict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.axis_sizes)


@checked_call
def make_mesh(axis_shapes: Sequence[int] | int, axis_names: Sequence[str] | str, **_: Any) -> DeviceMesh:
    """A mesh of simulated devices.

    Args:
        axis_shapes, axis_names: the size and the name of each axis.

    Raises:
        PalladioTypeError, PalladioValueError: as `CoreMesh`.
    """
    with at_call():
        cores = CoreMesh(axis_names, axis_shapes)
        return DeviceMesh(tuple(cores.axis_names), tuple(cores.sizes))


class PartitionSpec(tuple[Any, ...]):
    """The partition of an array over the devices of a mesh.

    For each array axis the name of a mesh axis, a tuple of them, or None for an axis that is not partitioned.
    """

    __slots__ = ()

    def __new__(cls, *entries: Any) -> PartitionSpec:
        return super().__new__(cls, entries)

    def __repr__(self) -> str:
        return f"PartitionSpec{tuple(self)!r}" if len(self) != 1 else f"PartitionSpec({self[0]!r})"

    def axes(self, ndim: int, mesh: DeviceMesh, argument: str) -> list[tuple[str, ...]]:
        """For each axis of an array, the mesh axes that it is partitioned over."""
        named = [() if each is None else (each,) if isinstance(each, str) else tuple(each) for each in self]
        every = [name for names in named for name in names]
        if len(named) > ndim or len(set(every)) != len(every) or not set(every) <= set(mesh.axis_names):
            raise PalladioValueError(
                "an array is spread by the names of mesh axes, each once, for its own axes",
                argument=argument,
                expected=f"at most {ndim} entries of {', '.join(mesh.axis_names)}",
                got=repr(self),
            )
        return [*named, *[()] * (ndim - len(named))]


@checked_call
def shard_map(
    f: Callable[..., Any] | None = None,
    *,
    mesh: DeviceMesh,
    in_specs: Any,
    out_specs: Any,
    check_vma: bool = True,
    interpret: Any = None,
) -> Any:
    """A function of whole arrays from a function of the parts that each device has.

    All devices run `f` at the same time. Kernels in it know their device by `axis_index(name)` and reach the others by
    remote copies and semaphores, `device_id=`; arrays of a kernel call are memory of the device. Where `f` launches on
    GPUs, or on several cores of each device, it is called several times on each device, and each launch is one for all
    of them.

    Args:
        f: takes and returns pytrees of arrays; left out, `shard_map` is a decorator.
        mesh: of `make_mesh`.
        in_specs, out_specs: a `PartitionSpec` for each argument and result, or one for all below it. Results that are
            not spread over a mesh axis are taken from its first device.
        check_vma: accepted, as JAX takes it; without effect.
        interpret: as in `pallas_call`, for the whole function; by default that of the kernel calls in it.

    Raises:
        PalladioTypeError, PalladioValueError: not a function or mesh; specs or sizes that do not fit.
    """
    if f is None:
        return functools.partial(shard_map, mesh=mesh, in_specs=in_specs, out_specs=out_specs, interpret=interpret)
    function = f
    with at_call():
        require_function(function, "what shard_map runs", "f")
        if not isinstance(mesh, DeviceMesh):
            raise PalladioTypeError(
                "devices are those of a mesh", argument="mesh", expected="pl.make_mesh(sizes, names)", got=repr(mesh)
            )
    cores = CoreMesh(mesh.axis_names, mesh.axis_sizes, device_axes=mesh.axis_names)
    axes = tuple(zip(mesh.axis_names, mesh.axis_sizes, strict=True))

    def call(*args: Any) -> Any:
        parts, structure = _taken_apart(args, in_specs, mesh)
        found: list[Any] = []
        requested: list[Executor] = []

        def run(refs: Sequence[Any]) -> list[Any]:
            with in_device_programs(), requests() as asked:
                result = function(*trees.unflatten(structure, [ref[0] for ref in refs]))
            requested[:] = asked
            outputs, form = trees.flatten(result)
            found[:] = [form, *map(array_type, outputs)]
            return outputs

        def probe(*refs: Any) -> None:
            run(refs)

        def body(*refs: Any) -> None:
            for ref, value in zip(refs[len(parts) :], run(refs[: len(parts)]), strict=True):
                ref[0] = value

        body.__name__ = probe.__name__ = function_name(function)
        in_rounds = False
        try:
            kernel(probe, (), mesh=cores).program(*parts)
        except LaunchesTogether:
            in_rounds = True
        if in_rounds:
            results, form = run_in_rounds(function, trees.unflatten(structure, parts), axes, interpret)
            types = [array_type(getitem(each, 0)) for each in results]
        else:
            form, *types = found
            out_types = tuple(ShapeDtypeStruct((mesh.size, *type.shape), type.dtype) for type in types)
            chosen = requested[0] if interpret is None and requested else interpret
            results = kernel(body, out_types, mesh=cores, interpret=chosen)(*parts)
        places = _spread(out_specs, trees.unflatten(form, list(types)), "out_specs")
        whole = [_whole(each, spec, mesh) for each, spec in zip(results or (), places, strict=True)]
        return trees.unflatten(form, whole)

    call.__name__ = function_name(function)
    return call


def _taken_apart(args: tuple[Any, ...], in_specs: Any, mesh: DeviceMesh) -> tuple[list[Any], trees.Structure]:
    """The parts of each array among the arguments, and the structure of these."""
    leaves, structure = trees.flatten(args)
    values = [leaf if hasattr(leaf, "palladio_type") else to_numpy(leaf, "args") for leaf in leaves]
    specs = _spread(in_specs if type(in_specs) in (tuple, list) else (in_specs,) * len(args), args, "in_specs")
    return [_parts(value, spec, mesh) for value, spec in zip(values, specs, strict=True)], structure


def _spread(specs: Any, tree: Any, argument: str) -> list[PartitionSpec]:
    """The spec of each leaf of a tree; a spec applies to everything below it."""
    found = trees.spread(specs, tree, lambda each: isinstance(each, PartitionSpec))
    if found is None:
        raise PalladioTypeError(
            "arrays are spread by a PartitionSpec for each, or for all below one",
            argument=argument,
            expected=trees.shown(trees.flatten(tree)[1]),
            got=repr(specs),
        )
    return found


def _parts(value: Any, spec: PartitionSpec, mesh: DeviceMesh) -> Any:
    """`dtype[devices, part...]`: the part of an array that each device has."""
    shape, sizes = array_type(value).shape, mesh.shape
    axes = spec.axes(len(shape), mesh, "in_specs")
    split: list[int] = []
    at: dict[str, int] = {}
    rest: list[int] = []
    for extent, names in zip(shape, axes, strict=True):
        count = math.prod(sizes[name] for name in names)
        if extent % count:
            raise PalladioValueError(
                "the devices divide the array", argument="in_specs", expected=f"a multiple of {count}", got=extent
            )
        for name in names:
            at[name] = len(split)
            split.append(sizes[name])
        rest.append(len(split))
        split.append(extent // count)
    cut = permute_dims(reshape(value, split), [*(at[name] for name in mesh.axis_names if name in at), *rest])
    part = [split[axis] for axis in rest]
    cut = reshape(cut, [*(sizes[name] if name in at else 1 for name in mesh.axis_names), *part])
    return reshape(broadcast_to(cut, (*mesh.axis_sizes, *part)), (mesh.size, *part))


def _whole(value: Any, spec: PartitionSpec, mesh: DeviceMesh) -> Any:
    """The array of the parts `dtype[devices, part...]`."""
    part = array_type(value).shape[1:]
    axes = spec.axes(len(part), mesh, "out_specs")
    named = [name for names in axes for name in names]
    split = reshape(value, (*mesh.axis_sizes, *part))
    split = getitem(split, tuple(slice(None) if name in named else 0 for name in mesh.axis_names))
    kept = [name for name in mesh.axis_names if name in named]
    order: list[int] = []
    shape: list[int] = []
    for axis, names in enumerate(axes):
        order += [*(kept.index(name) for name in names), len(kept) + axis]
        shape.append(part[axis] * math.prod(mesh.shape[name] for name in names))
    return reshape(permute_dims(split, order), shape)
