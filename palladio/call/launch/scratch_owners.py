"""Scratch ownership: the mesh that owns each buffer of a launch; use of another mesh's buffer is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from palladio.base.errors import PalladioNotImplementedError, PalladioTypeError, PalladioValueError
from palladio.ir.core import Eqn, Program, walk
from palladio.ops.threads.launch import CORES, Launch, MeshShape
from palladio.ops.threads.owners import core_axes
from palladio.types.attributes import Owner
from palladio.types.transforms import Peer
from palladio.types.types import (
    ANY,
    CMEM,
    DMA_SEMAPHORE,
    GMEM,
    HBM,
    HOST,
    SEMAPHORE,
    VMEM_SHARED,
    MemorySpace,
    Owned,
    RefType,
)

SHARED = frozenset({ANY, CMEM, GMEM, HBM, HOST, VMEM_SHARED})
"""Memory that the programs of all meshes can access."""


def _on_cores(mesh: Any) -> bool:
    return any(kind in CORES for _, _, kind in mesh.axes)


def scratch_type(leaf: Any, argument: str, meshes: Sequence[Any]) -> RefType:
    """The type of one entry of `scratch_types`, with its owner where there are several meshes.

    Raises:
        PalladioTypeError: not a description of memory.
        PalladioValueError: an owner that is not one of the meshes.
        PalladioNotImplementedError: with several meshes, no owner.
    """
    found = getattr(leaf, "ref_type", None)
    if not isinstance(found, RefType):
        raise PalladioTypeError(
            "scratch is described by a memory space, a shape and a dtype",
            argument=argument,
            expected="such as plgpu.SMEM(shape, dtype), plgpu.ACC((m, n)) or plgpu.Barrier()",
            got=repr(leaf),
        )
    if not isinstance(leaf, Owned):
        if len(meshes) > 1 and not _is_shared(found.space, meshes):
            raise PalladioNotImplementedError(
                "with several meshes, scratch belongs to one of them or lies in memory that all of them reach",
                argument=argument,
                expected=f"{found.space} @ mesh, or one of {', '.join(sorted(map(str, SHARED)))}",
                got=str(found),
                jax="MPMD map with more than one mesh requires scratch_type to have a mesh",
            )
        return found
    owner = _owner(leaf, meshes)
    if owner is None:
        raise PalladioValueError(
            "scratch belongs to a mesh that the launch does not have", argument=argument, got=repr(leaf.mesh)
        )
    return found if len(meshes) == 1 else replace(found, attributes=(*found.attributes, Owner(owner)))


def _owner(leaf: Owned, meshes: Sequence[Any]) -> int | None:
    same = [n for n, mesh in enumerate(meshes) if mesh is leaf.mesh]
    equal = same or [n for n, mesh in enumerate(meshes) if mesh == leaf.mesh]
    return equal[0] if equal else None


def owners(leaves: Sequence[Any], meshes: Sequence[Any]) -> tuple[int | None, ...]:
    """For each entry of `scratch_types` the position of its mesh in the launch."""
    return tuple(_owner(leaf, meshes) if isinstance(leaf, Owned) else None for leaf in leaves)


def _is_shared(space: MemorySpace, meshes: Sequence[Any]) -> bool:
    """Semaphores of GPU kernels are in global memory."""
    return space in SHARED or (space in (SEMAPHORE, DMA_SEMAPHORE) and not any(map(_on_cores, meshes)))


def check_owners(launch: Launch, number: int, program: Program, kinds: Sequence[str]) -> None:
    """Refuse uses of another mesh's scratch that do not name the core.

    Args:
        kinds: JAX's names of the cores of each mesh.

    Raises:
        PalladioValueError: at such an operation.
    """
    if len(launch.meshes) == 1:
        return
    for eqn in walk(program):
        for type, stack in _foreign(eqn, number):
            position = type.attribute(Owner).mesh  # type: ignore[union-attr]
            owner = launch.meshes[position]
            lacking = _lacking(owner, launch.meshes[number], type.space, stack)
            if lacking is None:
                raise PalladioValueError(
                    f"{program.name} uses scratch of another mesh, whose threads alone reach it",
                    got=str(type),
                    location=eqn.location,
                )
            if lacking:
                raise PalladioValueError(
                    f"{program.name} uses scratch of the cores of another mesh without saying of which core",
                    expected=f"an index along {', '.join(lacking)}",
                    got=str(type),
                    hint=f"pltpu.core_ref(ref, {{{', '.join(f'{name!r}: ...' for name in lacking)}}}), or device_id=",
                    jax=f"When addressing {kinds[position]} from {kinds[number]} and specifying a device_id, "
                    f"the following axes are missing from the mesh: {{{', '.join(map(repr, lacking))}}}",
                    location=eqn.location,
                )


def _foreign(eqn: Eqn, number: int) -> Iterator[tuple[RefType, Any]]:
    """The references of an equation to scratch of other meshes, with the transforms through which it reaches them."""
    if not eqn.op.index_start:
        return  # it passes them to a program that it runs
    stacks = eqn.op.stacks(eqn.params["transforms"])
    for position, type in enumerate(eqn.input_types[: len(stacks)]):
        owner = type.attribute(Owner) if isinstance(type, RefType) else None
        if owner is not None and owner.mesh != number:
            yield type, stacks[position]  # type: ignore[misc]


def _lacking(owner: MeshShape, mine: MeshShape, space: MemorySpace, stack: Any) -> list[str] | None:
    """The axes along which an access does not name the owner's index; None if it cannot access the memory at all."""
    if not owner.has_cores:
        return None
    named = {name for name, _ in stack[0].blocks} if stack and isinstance(stack[0], Peer) else set()
    named |= {axis.name for axis in mine.axes}
    axes = core_axes(space, [owner])
    return [axis.name for axis in axes if axis.size != 1 and axis.name not in named]
