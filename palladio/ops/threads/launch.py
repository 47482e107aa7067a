"""`launch`, formed by `kernel` and `mpmd_map`: programs that run concurrently, one on each thread of a mesh."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.core import Atom, DischargeContext, Discharged, Eqn, Op, Program
from palladio.ops import control, grid
from palladio.ops.kernel_inputs import KernelInputs, T
from palladio.ops.threads.copy import only_among_threads, stays_a_reference
from palladio.types import dtypes
from palladio.types.effects import AsyncKind, Effect, Sync
from palladio.types.types import ArrayType, RefType, Type

INDEX = ArrayType((), dtypes.INT32)
CORES = ("device", "core", "subcore")
MEMORY_KINDS = ("cluster", *CORES)
"""The kinds of axes that number the blocks of a cluster, or cores, which run concurrently with private memory."""
THREAD_KINDS = ("thread", "warp")
KINDS = ("grid", "cluster", *THREAD_KINDS, *CORES)


@dataclass(frozen=True)
class MeshAxis:
    """One axis of a mesh.

    Fields:
        name: as `axis_index` takes it; "" for an axis without one.
        size: None for a size known only at the call.
        kind: grid (clusters of blocks), cluster (blocks of a cluster), thread (warpgroups of a block), warp (warps of
            a warpgroup), device (which has part of every array), core, or subcore (of a core).
    """

    name: str
    size: int | None
    kind: str


@dataclass(frozen=True)
class MeshShape:
    """The axes of a mesh, the outermost first; the last axis runs fastest. `label` names its threads in reports."""

    label: str
    axes: tuple[MeshAxis, ...]

    @property
    def dynamic(self) -> int:
        """The number of axes whose size is known only at the call."""
        return sum(axis.size is None for axis in self.axes)

    @property
    def has_cores(self) -> bool:
        """True if its threads are cores with private memory rather than threads of blocks."""
        return bool(self.of(*CORES))

    def of(self, *kinds: str) -> tuple[MeshAxis, ...]:
        """The axes of these kinds."""
        return tuple(axis for axis in self.axes if axis.kind in kinds)


@dataclass(frozen=True)
class Placement:
    """The placement of an allocation of a launch.

    Fields:
        scope: the owner: the launch, each device, core, block or thread.
        mesh: the mesh whose threads have it; None for memory that all of them share.
        axes: the axes along which there is one for each index, its siblings: of the cluster, or of devices and cores.
        bytes: its size; a barrier in shared memory has 8 bytes.
        alignment: the multiple of bytes at which it begins.
        offset: the byte of the block's shared memory at which it begins; None for other memory.
        arrivals: the arrivals that complete a phase of a barrier; None for other memory, and for a barrier of a cluster
            whose size is known only at the call.
    """

    scope: str
    mesh: int | None
    axes: tuple[MeshAxis, ...]
    bytes: int
    alignment: int = 1
    offset: int | None = None
    arrivals: int | None = None


@dataclass(frozen=True, eq=False)
class Launch:
    """The parameters of a `launch` besides its programs.

    The operands are the sizes of dynamic mesh axes, mesh after mesh, then the shared operands. The inputs of
    program n are the indices of its mesh's axes, the sizes of its dynamic axes, then, for all programs alike: for each
    shared operand a reference to it (a reference or scalar that is passed in stays one), references to the
    outputs, and references to the scratch buffers.

    Fields:
        meshes: one for each program.
        output_types: the arrays that the launch returns.
        output_refs: the types of the programs' references to them.
        scratch: buffers that end with the launch. Each thread has private accumulators, each block its shared
            memory and barriers; global memory and its semaphores are shared by all. Each core has its memory and
            semaphores, each device its global memory. A buffer with an `Owner` belongs to the threads of that mesh.
        aliases: pairs (shared operand, output) in one memory.
        placements: one for each scratch buffer, after the pass `place`.
        roles: for each mesh the number of each warpgroup's role, after the pass `split_roles`; the
            program is then one branch between the programs of the roles, in this order. () for a mesh whose
            threads all run its unchanged program.
        advice: hints of the caller for a compiler, pairs of a name and a value. Results do not depend on it, except
            for the accuracy that `approx_math` allows.
        gpus: the devices that the last axes of the grid number, each with its own multiprocessors; 0 for one.
    """

    meshes: tuple[MeshShape, ...]
    output_types: tuple[ArrayType, ...]
    output_refs: tuple[RefType, ...]
    scratch: tuple[RefType, ...]
    aliases: tuple[tuple[int, int], ...]
    placements: tuple[Placement, ...] = field(default=(), metadata={"printed": "if set"})
    roles: tuple[tuple[int, ...], ...] = field(default=(), metadata={"printed": "if set"})
    advice: tuple[tuple[str, Any], ...] = field(default=(), metadata={"printed": "if set"})
    gpus: int = field(default=0, metadata={"printed": "if set"})

    @property
    def dynamic(self) -> int:
        """The number of operands that are sizes of mesh axes."""
        return sum(mesh.dynamic for mesh in self.meshes)

    @property
    def devices(self) -> int:
        """The number of devices that the arrays are split over, along their first axis."""
        return math.prod(axis.size or 1 for axis in self.meshes[0].axes if axis.kind == "device")

    def part(self, type: ArrayType) -> ArrayType:
        """The part of a shared array that a program sees."""
        if self.devices == 1 or not type.shape:
            return type
        return ArrayType((type.shape[0] // self.devices, *type.shape[1:]), type.dtype)

    def indices(self, mesh: int) -> int:
        """The number of inputs of a mesh's program before the inputs that all programs have."""
        return len(self.meshes[mesh].axes) + self.meshes[mesh].dynamic

    def split(self, mesh: int, values: Sequence[T]) -> KernelInputs[T]:
        """The inputs of a mesh's program, or one value for each of them, by role."""
        shape = self.meshes[mesh]
        return KernelInputs.split(values, len(shape.axes), shape.dynamic, len(self.output_types), len(self.scratch))

    def written(self, programs: Sequence[Program]) -> frozenset[int]:
        """The positions, among the shared operands, of the references that a program writes, or that an output
        aliases.
        """
        found = {position - self.indices(n) for n, program in enumerate(programs) for position in program.written}
        return frozenset(found | {source for source, _ in self.aliases})


def _launch_type(*operands: Type, launch: Launch, programs: tuple[Program, ...]) -> Sequence[Type]:
    sizes, shared = operands[: launch.dynamic], operands[launch.dynamic :]
    if any(type != INDEX for type in sizes):
        raise PalladioTypeError("the size of a mesh axis is a scalar int32", got=", ".join(map(str, sizes)))
    if len(programs) != len(launch.meshes):
        raise PalladioValueError("a launch has one program for each mesh", expected=len(launch.meshes))
    for number, program in enumerate(programs):
        first = launch.indices(number)
        given = program.input_types
        if any(type != INDEX for type in given[:first]):
            raise PalladioTypeError(f"program {number} takes the indices of its mesh first, scalars of int32")
        seen, rest = given[first : first + len(shared)], given[first + len(shared) :]
        if rest != (*launch.output_refs, *launch.scratch) or not all(
            _is_seen_as(launch, *each) for each in zip(shared, seen, strict=True)
        ):
            raise PalladioTypeError(
                f"program {number} takes other references than the launch gives it",
                expected=", ".join(map(str, (*shared, *launch.output_refs, *launch.scratch))),
                got=", ".join(map(str, given[first:])),
            )
        if program.outputs:
            raise PalladioTypeError(f"program {number} of a launch returns nothing")
    return launch.output_types


def _is_seen_as(launch: Launch, operand: Type, seen: Type) -> bool:
    if isinstance(operand, ArrayType) and isinstance(seen, RefType):
        return seen.array == launch.part(operand)
    return operand == seen


def _launch_effects(*operands: Type, launch: Launch, programs: tuple[Program, ...]) -> Iterator[Effect]:
    """The effects of the programs on references that are passed in."""
    for number, program in enumerate(programs):
        for effect in program.effects:
            if effect.position is None:
                yield effect
                continue
            operand = effect.position - launch.indices(number) + launch.dynamic
            if launch.dynamic <= operand < len(operands) and isinstance(operands[operand], RefType):
                yield Effect(effect.kind, operand)


def _launch_discharge(context: DischargeContext, *operands: Atom, **params: Any) -> Discharged:
    """A launch on arrays is unchanged: its references are memory that its threads share."""
    if context.discharged:
        return stays_a_reference(context)
    return Discharged(context.emit(launch, *operands, **params))


launch = Op(
    "launch",
    "Runs each program once for every thread of its mesh, all of them at once, on references to the shared arrays. "
    "Returns the outputs, which start uninitialised or as a copy of the operand that they alias.",
    _launch_type,
    only_among_threads("launch"),
    effects=_launch_effects,
    sync=Sync(issues=AsyncKind.LAUNCH, waits=AsyncKind.LAUNCH),
    discharge=_launch_discharge,
)


def concurrent(eqn: Eqn) -> bool:
    """True if only a machine can run an equation: a launch, or a grid whose kernel synchronises."""
    if eqn.op is grid.grid_call:
        return eqn.kernel.synchronises  # type: ignore[no-any-return]
    return eqn.op is launch


def _shared_type(*operands: Type, body: Program, allocations: tuple[RefType, ...]) -> Sequence[Type]:
    return control.scope.type(*operands, body=body, allocations=allocations)


def _shared_effects(*operands: Type, body: Program, allocations: tuple[RefType, ...]) -> Iterator[Effect]:
    yield from control.scope.effects_of(operands, {"body": body, "allocations": allocations})


def _shared_discharge(
    context: DischargeContext, *operands: Atom, body: Program, allocations: tuple[RefType, ...]
) -> Discharged:
    """Its allocations are visible to other threads, so only references from outside become values."""
    changed = sorted(context.changed)
    inner = context.discharge(body, context.discharged, changed)
    results = context.emit(collective_scope, *operands, body=inner, allocations=allocations)
    count = len(body.outputs)
    return Discharged(results[:count], dict(zip(changed, results[count:], strict=True)))


collective_scope = Op(
    "collective_scope",
    "Allocates uninitialised buffers that the threads of a block share and runs `body(*operands, *references)` in each "
    "of them, when all have come; the buffers end when the last one leaves. Returns the body's outputs.",
    _shared_type,
    only_among_threads("collective_scope"),
    effects=_shared_effects,
    sync=Sync(meets=True),
    discharge=_shared_discharge,
    control=True,
    own_operands=0,
)

RECORDS: dict[str, type] = {record.__name__: record for record in (MeshAxis, MeshShape, Placement, Launch)}
