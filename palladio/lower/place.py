"""Placement of the allocations of a launch: the location of each buffer, and the arrivals that complete a barrier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from palladio.ir.core import Atom, Eqn, Program
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.lower.forms import PLACED
from palladio.ops.threads.launch import CORES, Launch, MeshAxis, MeshShape, Placement, launch
from palladio.ops.threads.owners import OF_BLOCKS, OF_CORES, OF_THREADS, core_axes, kinds_of
from palladio.passes.pipeline import ANY, Pass
from palladio.types.attributes import Arrivals, Named, Owner, SwizzleTransform
from palladio.types.device import H100_SXM
from palladio.types.transforms import Peer
from palladio.types.types import (
    BARRIER,
    SMEM,
    RefType,
)


def owner_of(type: RefType) -> int | None:
    """The mesh that an allocation belongs to, if to one."""
    owner = type.attribute(Owner)
    return None if owner is None else owner.mesh


def arrivals_of(type: RefType, extents: Mapping[str, int]) -> int:
    """The arrivals that complete a phase of a barrier.

    A cluster barrier counts arrivals of its own block and of each block that differs from it along one of its axes, or
    along one group of its axes.

    Args:
        extents: the sizes of the cluster's axes by name; along others there is one block.
    """
    arrivals = type.attribute(Arrivals) or Arrivals()
    sizes = (math.prod(extents.get(axis, 1) for axis in group) for group in arrivals.groups)
    return arrivals.count * (1 + sum(size - 1 for size in sizes))


def alignment_of(type: RefType) -> int:
    """The multiple of bytes at which a buffer begins: for bulk tensor copies, or for its swizzle."""
    return H100_SXM.copy_alignment if type.attribute(SwizzleTransform) is None else H100_SXM.shared_alignment


def aligned_bytes(type: RefType) -> int:
    """The bytes of a buffer, padded to its alignment."""
    alignment = alignment_of(type)
    return -(-type.size * type.dtype.itemsize // alignment) * alignment


def shared_bytes(type: RefType) -> int:
    """The bytes that an allocation takes of a block's shared memory. The hardware's named barriers need none."""
    if type.space is SMEM:
        return aligned_bytes(type)
    if type.space is BARRIER and type.attribute(Named) is None:
        return type.size * H100_SXM.barrier_bytes
    return 0


def placements(params: Launch, meshes: Sequence[MeshShape] | None = None) -> tuple[Placement, ...]:
    """The placement of each scratch buffer of a launch.

    Args:
        meshes: its meshes, with the sizes that are known only at the call.
    """
    meshes = params.meshes if meshes is None else meshes
    if any(mesh.has_cores for mesh in meshes):
        return tuple(_on_cores(type, meshes) for type in params.scratch)
    ends = [0] * len(meshes)
    return tuple(_of_blocks(type, meshes, ends) for type in params.scratch)


def _on_cores(type: RefType, meshes: Sequence[MeshShape]) -> Placement:
    owner = owner_of(type)
    of_one = owner is not None or type.space in OF_CORES
    axes = core_axes(type.space, [meshes[owner or 0]] if of_one else meshes)
    return Placement(
        "device" if kinds_of(type.space) == CORES[:1] else "core",
        (owner or 0) if of_one else None,
        axes,
        math.prod(type.shape) * type.dtype.itemsize,
        arrivals=_arrivals(type, ()),
    )


def _of_blocks(type: RefType, meshes: Sequence[MeshShape], ends: list[int]) -> Placement:
    """Shared memory is allocated in the order of the buffers; `ends` are the bytes in use in a block of each mesh."""
    owner = owner_of(type) or 0
    size = math.prod(type.shape) * type.dtype.itemsize
    if type.space in OF_THREADS:
        return Placement("thread", owner, (), size)
    if type.space not in OF_BLOCKS:
        return Placement("launch", None, (), size)
    cluster = meshes[owner].of("cluster")
    taken = shared_bytes(type)
    if not taken:
        return Placement("block", owner, cluster, size, arrivals=_arrivals(type, cluster))
    is_barrier = type.space is BARRIER
    alignment = H100_SXM.barrier_bytes if is_barrier else alignment_of(type)
    offset = -(-ends[owner] // alignment) * alignment
    ends[owner] = offset + taken
    return Placement(
        "block", owner, cluster, taken if is_barrier else size, alignment, offset, _arrivals(type, cluster)
    )


def _arrivals(type: RefType, cluster: Sequence[MeshAxis]) -> int | None:
    """None for anything but a barrier, and where the cluster size is known only at the call."""
    groups = (type.attribute(Arrivals) or Arrivals()).groups
    extents = {axis.name: axis.size for axis in cluster}
    if type.space is not BARRIER or any(extents.get(axis, 1) is None for group in groups for axis in group):
        return None
    return arrivals_of(type, extents)  # type: ignore[arg-type]


def reached_at_peers(program: Program) -> frozenset[int]:
    """The positions of the inputs that a program, or one that it runs, reaches at other blocks or cores."""
    found: set[Atom] = set()
    for eqn in program.eqns:
        if eqn.op.index_start:
            stacks = eqn.op.stacks(eqn.params["transforms"])
            found.update(atom for atom, stack in zip(eqn.inputs, stacks) if stack and isinstance(stack[0], Peer))
        if eqn.op.own_operands is not None:
            passed = eqn.inputs[eqn.op.own_operands :]
            for inner in eqn.subprograms:
                found.update(passed[n] for n in reached_at_peers(inner) if n < len(passed))
    return frozenset(n for n, var in enumerate(program.inputs) if var in found)


def place_in(program: Program) -> Program:
    """The program with a placement for each scratch buffer of its launches."""
    return with_body(program, map(_placed, program.eqns), program.outputs)


def _placed(eqn: Eqn) -> Eqn:
    params = map_subprograms(eqn.params, place_in)
    if eqn.op is launch and not eqn.launch.placements and eqn.launch.scratch:
        params = {**params, "launch": replace(eqn.launch, placements=placements(eqn.launch))}
    return with_parts(eqn, eqn.inputs, params)


place = Pass(
    name="place",
    consumes=ANY,
    produces=PLACED,
    run=place_in,
    doc="Gives each scratch buffer of a launch its placement: who has one of it, bytes, alignment, offset, arrivals.",
)
