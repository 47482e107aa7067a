"""Kernel calls inlined into the programs of devices: their arrays are device memory that other devices can access.

A function under `shard_map` is one program of each device. A `pallas_call` in it is not a separate operation: the
kernel's equations are inlined in loops over the grid, so that the kernel can access the buffers of its peers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from palladio.base import trees
from palladio.base.errors import PalladioNotImplementedError
from palladio.call.inline.semaphores import local_semaphores, with_semaphores, with_values
from palladio.driver.executors import choose, cores_of_grids
from palladio.ops.grid import Blocked, Element, Squeezed, require_parallel_first
from palladio.ops.threads.launch import MeshAxis
from palladio.pipeline.block_maps import specs_for
from palladio.pipeline.specs import no_block_spec
from palladio.trace.array_refs import empty_ref, freeze, new_ref
from palladio.trace.control import fori_loop, when
from palladio.trace.dma import Cores, among_cores, enclosing_cores
from palladio.trace.gpu.rounds import LaunchesTogether
from palladio.trace.grid import GridAxes, enclosing_axes, grid_axes
from palladio.trace.indices import ds
from palladio.trace.reference import Reference
from palladio.types.types import HBM, SCALAR, Owned

_devices: ContextVar[bool] = ContextVar("palladio_device_programs", default=False)


@contextmanager
def in_device_programs() -> Iterator[None]:
    """Kernel calls inside the block, where the program of a device is traced, are inlined."""
    token = _devices.set(True)
    try:
        yield
    finally:
        _devices.reset(token)


def is_inlining() -> bool:
    """True where kernel calls are inlined."""
    return _devices.get()


def cores_of_grid(call: Any) -> int:
    """The number of cores that share the parallel axes of the grid of a `pallas_call`.

    Raises:
        PalladioValueError: several cores, and a parallel axis after one that is not parallel.
    """
    shared = any(call.parallel) and all(isinstance(size, int) for size in call.grid.sizes)
    cores = cores_of_grids(choose(call.interpret)) if shared else 1
    if cores > 1:
        require_parallel_first(call.parallel)
    return cores


def inlined_grid(call: Any, args: Sequence[Any]) -> Any:
    """The results of a `pallas_call` on values of a device, its kernel inlined in loops over the grid.

    Raises:
        LaunchesTogether: several cores share the parallel axes of the grid.
    """
    if cores_of_grid(call) > 1:
        raise LaunchesTogether
    count = call.spec.num_scalar_prefetch
    prefetched = [new_ref(value, memory_space=SCALAR) for value in trees.flatten(tuple(args[:count]))[0]]
    inputs = [new_ref(value, memory_space=HBM) for value in trees.flatten(tuple(args[count:]))[0]]
    sources = {target: source - len(prefetched) for source, target in call.aliases}
    outputs = [
        inputs[sources[n]] if n in sources else empty_ref(type, HBM) for n, type in enumerate(call.outputs.types)
    ]
    buffers, keywords = _scratch(call.spec.scratch_shapes)
    written_grid(call, args, (prefetched, inputs, outputs), buffers, keywords)
    return trees.unflatten(call.outputs.structure, [freeze(ref) for ref in outputs])


def written_grid(
    call: Any,
    args: Sequence[Any],
    refs: tuple[Sequence[Any], Sequence[Any], Sequence[Any]],
    buffers: Sequence[Any],
    keywords: Mapping[str, Any],
    core: tuple[Any, int] = (0, 1),
) -> None:
    """Inline the kernel of a `pallas_call` in loops over the grid.

    Args:
        args: of the call, for their structure.
        refs: references to the prefetched scalars, the inputs and the outputs, each flat.
        buffers, keywords: the scratch.
        core: the number of the core, and of how many that share the parallel axes.
    """
    spec, count = call.spec, call.spec.num_scalar_prefetch
    prefetched, inputs, outputs = refs
    in_specs = _specs(spec.in_specs, tuple(args[count:]), len(inputs))
    out_specs = call.outputs.specs(spec.out_specs, len(outputs))
    given = trees.unflatten(trees.flatten(tuple(args[:count]))[1], prefetched)
    form, out_tree = trees.flatten(tuple(args[count:]))[1], trees.flatten(call.outputs.tree)[1]
    inputs, outputs, leaving = with_semaphores((inputs, in_specs), (outputs, out_specs))

    def step(ids: tuple[Any, ...]) -> None:
        outer, rank = enclosing_axes(), len(ids)
        kinds = (*("grid",) * rank, *outer.kinds)
        names = (*call.grid.names, *outer.names)
        with grid_axes(GridAxes((*ids, *outer.ids), (*call.grid.sizes, *outer.sizes), names, kinds)):
            blocks = [_block(ref, each, (*ids, *given)) for ref, each in zip(inputs, in_specs, strict=True)]
            made = [_block(ref, each, (*ids, *given)) for ref, each in zip(outputs, out_specs, strict=True)]
            call.kernel(*given, *trees.unflatten(form, blocks), *trees.unflatten(out_tree, made), *buffers, **keywords)

    with leaving():
        if core[1] == 1:
            _for_each(call.grid.sizes, step)
        else:
            _for_each_of_core(call.grid.sizes, sum(call.parallel), step, core)


def inlined_launch(call: Any, args: Sequence[Any]) -> Any:
    """The results of a launch of one program on one core, inlined.

    Raises:
        LaunchesTogether: several programs or cores, or a GPU.
    """
    (mesh, *others) = call.meshes
    if mesh.core_type == "gpu" or others or any(size != 1 for _, size, _ in mesh.axes):
        raise LaunchesTogether
    leaves, form = trees.flatten(tuple(args))
    inputs = [leaf if isinstance(leaf, Reference) else new_ref(leaf, memory_space=HBM) for leaf in leaves]
    sources = {target: source for source, target in call.aliases}
    outputs = [
        inputs[sources[n]] if n in sources else empty_ref(type, HBM) for n, type in enumerate(call.outputs.types)
    ]
    buffers, keywords = _scratch(call.scratch)
    outer = enclosing_axes()
    names, kinds = zip(*((name, kind) for name, _, kind in mesh.axes), strict=True)
    ones = (1,) * len(names)
    axes = GridAxes(
        (*(0,) * len(names), *outer.ids), (*ones, *outer.sizes), (*names, *outer.names), (*kinds, *outer.kinds)
    )
    around = enclosing_cores()
    reached = Cores((*around.axes, *map(MeshAxis, names, ones, kinds)), around.barrier) if around is not None else None
    with grid_axes(axes), among_cores(reached):
        out_tree = trees.flatten(call.outputs.tree if call.outputs.types else ())[1]
        given, made = trees.unflatten(form, inputs), trees.unflatten(out_tree, outputs)
        with local_semaphores(given, made, call.outputs.semaphores) as (given, made):
            call.bodies[0](*given, *made, *buffers, **keywords)
    results = [freeze(ref) for ref in outputs]
    return with_values(call.outputs, trees.unflatten(call.outputs.structure, results)) if outputs else None


def _scratch(described: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The scratch buffers of a call, by position or by keyword."""
    leaves, structure = trees.flatten(described)
    refs = [empty_ref(leaf.what if isinstance(leaf, Owned) else leaf) for leaf in leaves]
    found = trees.unflatten(structure, refs)
    if isinstance(found, Mapping):
        return (), found
    return (found if isinstance(found, (tuple, list)) else (found,)), {}


def _specs(specs: Any, tree: Any, count: int) -> Sequence[Any]:
    return [None] * count if specs is no_block_spec else specs_for("in_specs", specs, tree, count, semaphores=True)


def _for_each(sizes: Sequence[Any], step: Callable[[tuple[Any, ...]], None], ids: tuple[Any, ...] = ()) -> None:
    """Run a step for every point of a grid, the last axis fastest."""
    if len(ids) == len(sizes):
        step(ids)
        return
    fori_loop(0, sizes[len(ids)], lambda i, _: _for_each(sizes, step, (*ids, i)), None)


def _for_each_of_core(
    sizes: Sequence[int], parallel: int, step: Callable[[tuple[Any, ...]], None], core: tuple[Any, int]
) -> None:
    """Run a step for a core's share of the points along the parallel axes, which are the first ones of the grid."""
    total = math.prod(sizes[:parallel])
    share = -(-total // core[1])

    def run(n: Any, _: None) -> None:
        point = core[0] * share + n
        ids: list[Any] = []
        rest = point
        for size in reversed(sizes[:parallel]):
            ids.insert(0, rest % size)
            rest = rest // size
        when(point < total)(lambda: _for_each(sizes, step, tuple(ids)))

    fori_loop(0, share, run, None)


def _block(ref: Any, spec: Any, indices: Sequence[Any]) -> Any:
    """The part of an array that a block specification selects; the array itself if that is all of it."""
    if spec is None or (spec.dims is None and spec.index_map is None):
        return ref
    dims = tuple(Blocked(extent) for extent in ref.shape) if spec.dims is None else spec.dims
    whole = all(
        isinstance(dim, Blocked) and dim.block_size == extent for dim, extent in zip(dims, ref.shape, strict=True)
    )
    if whole:
        return ref
    found = (0,) * len(dims) if spec.index_map is None else spec.index_map(*indices)
    places = found if isinstance(found, (tuple, list)) else (found,)
    key: list[Any] = []
    for dim, place, extent in zip(dims, places, ref.shape, strict=True):
        if isinstance(dim, Squeezed):
            key.append(place)
        elif isinstance(dim, Element) or (isinstance(dim, Blocked) and extent % dim.block_size == 0):
            start = place if isinstance(dim, Element) else place * dim.block_size
            key.append(ds(start, dim.block_size))
        else:
            raise PalladioNotImplementedError(
                "under shard_map blocks divide their array",
                argument="block_shape",
                got=f"{math.prod(ref.shape)} elements in {spec.block_shape} of {ref.shape}",
            )
    return ref.at[tuple(key)]
