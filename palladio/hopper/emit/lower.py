"""Lowering of a launch to the text of a kernel.

The steps: find the roles of the threads; collect the uses of references in all roles, which determine the arrival
counts of barriers and the layouts of buffers; write each role as a branch of the kernel, which allocates shared memory;
write the kernel's prologue, which initialises the barriers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from palladio.hopper.emit.exchange import through_shared
from palladio.hopper.emit.names import kernel_name
from palladio.hopper.emit.phases import barriers_to_meet_for
from palladio.hopper.emit.plan import WARPGROUP_THREADS, Plan, registers_fit
from palladio.hopper.emit.scalars import Scalar
from palladio.hopper.emit.scope import Kernel, Scope
from palladio.hopper.emit.text import MeshCode, kernel_text
from palladio.hopper.emit.uses import publishes, uses
from palladio.hopper.emit.values import Global
from palladio.hopper.layouts.infer import Layouts
from palladio.hopper.layouts.integers import Index
from palladio.hopper.lowered import Array, Lowered, Registers
from palladio.hopper.rules import REFUSED, RULES
from palladio.hopper.rules.control import allocated
from palladio.ir.core import Atom, Eqn, Program, Var, walk
from palladio.ir.rewrite import substituted
from palladio.lower.place import owner_of
from palladio.lower.ranges import Range
from palladio.lower.refused import Refused
from palladio.lower.roles import Role, roles_of
from palladio.ops.threads.launch import Launch, MeshShape
from palladio.ops.threads.launch import launch as launch_of_warps
from palladio.types import dtypes
from palladio.types.effects import AsyncKind
from palladio.types.types import ANY, BARRIER, GMEM, ArrayType, RefType, Type

MOST_THREADS = 1024
MOST_BLOCKS = 8
"""The blocks of a cluster on every card (CUDA C++ Programming Guide, "Thread Block Clusters")."""


def lower_launch(launch: Launch, programs: Sequence[Program], operands: Sequence[Type]) -> Lowered:
    """The kernel of a launch.

    The blocks of several meshes are numbered one mesh after another, and branch on their number.

    Args:
        programs: one for each mesh, after the passes.
        operands: the types of the launch's operands.

    Raises:
        Refused: the launch uses a feature that is not compiled for Hopper.
        PalladioValueError: the launch exceeds a limit of Hopper GPUs.
    """
    _check(launch)
    warpgroups = max(map(_warpgroups, launch.meshes))
    found = _roles(launch, programs)
    used = uses(role.program for roles in found for role in roles)
    shared = Kernel(launch.meshes[0], Plan(1, {}), used, _blocks(launch))
    shared.approximate = dict(launch.advice).get("approx_math", False)
    meetings = (barriers_to_meet_for(mesh, roles, used) for mesh, roles in zip(launch.meshes, found, strict=True))
    shared.met = frozenset().union(*meetings)
    given = operands[launch.dynamic :]
    shared.arrays = [*arrays_of("operand", given, launch.dynamic), *arrays_of("output", launch.output_types)]
    arguments = launch.split(0, programs[0].inputs).arrays
    shared.name_arrays(arguments)
    count = len(given)
    shared.publishes = publishes(used, ((arguments[n], arguments[count + out]) for n, out in launch.aliases))
    meshes: list[MeshCode] = []
    for number, roles in enumerate(found):
        first = meshes[-1].first + meshes[-1].blocks if meshes else 0
        meshes.append(_mesh(shared, launch, number, roles, first))
    counts = [
        (role.threads, scope.registers and scope.registers[0])
        for each in meshes
        for role, scope in zip(each.roles, each.scopes, strict=True)
    ]
    for each in meshes:
        each.kernel.plan.check()
        _check_registers(each, warpgroups)
    name = kernel_name(programs[0].name)
    cluster = math.prod(meshes[0].kernel.plan.blocks.values())
    return Lowered(
        name=name,
        text=kernel_text(name, meshes, warpgroups, cluster),
        products=tuple(sorted(shared.products)),
        parameters=shared.parameters(),
        arrays=tuple(shared.arrays),
        grid=sum(each.blocks for each in meshes),
        cluster=cluster,
        threads=warpgroups * WARPGROUP_THREADS,
        shared_bytes=max(each.kernel.plan.bytes for each in meshes),
        aliases=tuple((launch.dynamic + source, target) for source, target in launch.aliases),
        dynamic=tuple(range(launch.dynamic)),
        registers=tuple(Registers(threads, count) for threads, count in counts if count),
    )


def arrays_of(role: str, types: Sequence[Type], first: int = 0) -> list[Array]:
    """The arrays of a launch: its operands or outputs, numbered from `first`."""
    return [Array(role, n, type.shape, type.dtype) for n, type in enumerate(types, first)]


def _check(launch: Launch) -> None:
    """Refuse launches that are not meshes of blocks of warpgroups on one GPU."""
    if launch.gpus:
        raise Refused("a launch on several GPUs is not compiled for Hopper yet")
    if len(launch.meshes) > 1 and launch.dynamic:
        raise Refused(
            "the sizes of several meshes are compiled into a kernel for Hopper",
            expected="sizes that are known when the kernel is made",
            got=f"{launch.dynamic} known only at the call",
            hint="make the meshes with sizes as ints, or launch each mesh by itself",
        )
    for mesh in launch.meshes:
        _check_mesh(mesh)


def _check_mesh(mesh: MeshShape) -> None:
    """Refuse meshes that are not blocks of warpgroups."""
    strange = [axis.kind for axis in mesh.axes if axis.kind not in ("grid", "cluster", "thread")]
    if strange:
        raise Refused(f"a mesh of {strange[0]}s is not compiled for Hopper")
    unknown = [axis.kind for axis in mesh.axes if axis.size is None and axis.kind != "grid"]
    if unknown:
        raise Refused(
            "the size of a cluster or block is compiled into a kernel for Hopper",
            expected="sizes of the grid's axes, if known only at the call",
            got=f"the size of a {unknown[0]} axis",
            hint="make the kernel with the size as an int, cluster=(2,), or one kernel for each size",
        )
    blocks = math.prod(axis.size or 1 for axis in mesh.of("cluster"))
    if blocks > MOST_BLOCKS:
        raise Refused(f"a cluster has at most {MOST_BLOCKS} blocks", got=f"{blocks} blocks")
    if _warpgroups(mesh) * WARPGROUP_THREADS > MOST_THREADS:
        raise Refused("a block has at most 8 warpgroups", got=f"{_warpgroups(mesh)} warpgroups")


def _check_registers(mesh: MeshCode, warpgroups: int) -> None:
    """Refuse register counts of a block's warpgroups that exceed its pool. Warpgroups without a role keep theirs."""
    requested = [
        (role.threads, scope.registers and scope.registers[0])
        for role, scope in zip(mesh.roles, mesh.scopes, strict=True)
    ]
    idle = tuple(range(mesh.warpgroups, warpgroups))
    if any(count for _, count in requested):
        registers_fit([*requested, (idle, None)] if idle else requested, warpgroups)


def _warpgroups(mesh: MeshShape) -> int:
    return math.prod(axis.size or 1 for axis in mesh.axes if axis.kind == "thread")


def _blocks(launch: Launch) -> int | None:
    """The number of blocks of a launch; None if it is known only at the call."""
    sizes = [[axis.size for axis in mesh.axes if axis.kind in ("grid", "cluster")] for mesh in launch.meshes]
    known = [[size for size in each if size is not None] for each in sizes]
    return sum(map(math.prod, known)) if known == sizes else None


def _roles(launch: Launch, programs: Sequence[Program]) -> list[list[Role]]:
    """The roles of each mesh; all programs have the variables of the first for the references that they share."""
    shared = programs[0].inputs[launch.indices(0) :]
    found = []
    for number, program in enumerate(programs):
        roles = roles_of(launch, number, program)
        first = launch.indices(number)
        found.append([Role(role.threads, _renamed(role.program, first, shared)) for role in roles])
    return found


def _renamed(program: Program, first: int, names: Sequence[Var]) -> Program:
    """The program with other variables for its inputs from the first of these on."""
    own, others = program.inputs[:first], program.inputs[first:]
    if all(old is new for old, new in zip(others, names, strict=True)):
        return program
    known: dict[Atom, Atom] = dict(zip(others, names, strict=True))
    eqns = tuple(substituted(eqn, known) for eqn in program.eqns)
    return Program((*own, *names), eqns, program.outputs, program.name, program.location)


def _mesh(shared: Kernel, launch: Launch, number: int, roles: Sequence[Role], first: int) -> MeshCode:
    """The code of a mesh's blocks; `first` is the number of the first one."""
    mesh = launch.meshes[number]
    blocks = {axis.name or str(n): axis.size or 1 for n, axis in enumerate(mesh.axes) if axis.kind == "cluster"}
    running = sum(len(role.threads) * (32 if _needs_one_warp(role.program) else WARPGROUP_THREADS) for role in roles)
    kernel = replace(shared, mesh=mesh, plan=Plan(_warpgroups(mesh), blocks), running=running)
    return MeshCode(kernel, roles, [_role(kernel, launch, number, role, first) for role in roles], first)


def _role(kernel: Kernel, launch: Launch, number: int, role: Role, first: int) -> Scope:
    """The text of one role of a mesh."""
    one_warp = _needs_one_warp(role.program)
    axes = list(zip(role.program.inputs, kernel.mesh.axes, strict=False))
    ranges = {var: Range(0, (axis.size or 1) - 1) for var, axis in axes}
    threads = [var for var, axis in axes if axis.kind == "thread"]
    if len(threads) == 1:
        ranges[threads[0]] = Range(role.threads[0], role.threads[-1])
    scope = Scope(kernel, role, Layouts(role.program, one_warp), RULES, through_shared, one_warp, ranges)
    scope.refused = REFUSED
    if one_warp:
        scope.w.elected = "pal::elect()"
    sizes = [Scalar(name, dtypes.INT32) for name in _sizes(kernel).values()]
    inputs = launch.split(number, role.program.inputs)
    for n, var in enumerate(inputs.arrays):
        scope.env[var] = _argument(kernel, var, n)
    scope.env.update(zip(inputs.indices, _indices(kernel, scope, first), strict=True))
    scope.env.update(zip(inputs.sizes, sizes, strict=True))
    own = [var for var in inputs.scratch if owner_of(var.type) in (None, number)]
    scope.env.update((var, allocated(scope, var)) for var in own)
    scope.run(role.program)
    scope.w.flush()
    return scope


def _argument(kernel: Kernel, var: Var, number: int) -> Global | Scalar:
    """The value of an operand or output of the launch."""
    if isinstance(var.type, RefType) and var.type.space in (GMEM, ANY):
        return kernel.array(var, number)
    if isinstance(var.type, ArrayType):
        return kernel.number(var, number)
    raise Refused(f"a reference in {var.type.space} passed to a kernel is not compiled for Hopper", got=str(var.type))


def _sizes(kernel: Kernel) -> dict[int, str]:
    """The parameters with sizes of the mesh's axes, by axis."""
    unknown = [n for n, axis in enumerate(kernel.mesh.axes) if axis.size is None]
    return {axis: kernel.size(operand) for operand, axis in enumerate(unknown)}


def _indices(kernel: Kernel, scope: Scope, first: int) -> list[Scalar]:
    """The indices along the axes of the mesh, whose first block has this number."""
    axes, sizes = kernel.mesh.axes, _sizes(kernel)
    clustered = any(axis.kind == "cluster" for axis in axes)
    before = first // math.prod(kernel.plan.blocks.values())
    place = "pal::cluster_index()" if clustered else "pal::block_index()"
    start = {"grid": f"({place} - {before})" if before else place, "cluster": "pal::cluster_rank()"}
    found = []
    for n, axis in enumerate(axes):
        if axis.kind == "thread":
            inner = math.prod(each.size or 1 for each in axes[n + 1 :] if each.kind == "thread")
            outer = all(each.kind != "thread" for each in axes[:n])
            found.append(Scalar.index(digit(scope.group, [inner], axis.size or 1, outer)))
            continue
        weight = [sizes.get(m, axes[m].size or 1) for m in range(n + 1, len(axes)) if axes[m].kind == axis.kind]
        outer = all(each.kind != axis.kind for each in axes[:n])
        name = scope.w.fresh(axis.name or axis.kind)
        number = digit(start[axis.kind], weight, sizes.get(n, axis.size or 1), outer)
        scope.prologue.append((name, f"const int {name} = {number};"))
        found.append(Scalar(name, dtypes.INT32))
    return found


def digit(number: Index, inner: Sequence[Index], size: Index, first: bool) -> Index:
    """The index along an axis, extracted from the number of a block or thread.

    Args:
        inner: the sizes of the faster axes, numbers or names.
        first: this is the slowest axis.
    """
    if size == 1:
        return 0
    known = math.prod(each for each in inner if isinstance(each, int))
    names = [each for each in inner if isinstance(each, str)]
    if not names and known == 1:
        return number if first else f"{number} % {size}"
    weight = " * ".join([*names, *([str(known)] if known > 1 or not names else [])])
    text = f"{number} / {f'({weight})' if ' ' in weight else weight}"
    return text if first else f"{text} % {size}"


def _needs_one_warp(program: Program) -> bool:
    """True if a role only waits, starts copies and computes numbers, for which one warp is enough."""
    synchronises = False
    for eqn in walk(program):
        if eqn.op is launch_of_warps:
            return False
        if _is_for_one_warp(eqn):
            synchronises = True
        elif not eqn.op.control and (eqn.effects or any(map(_has_elements, eqn.outputs))):
            return False
    return synchronises


def _is_for_one_warp(eqn: Eqn) -> bool:
    """True if an operation copies between memories, waits or arrives at barriers, or sets the number of registers."""
    sync = eqn.op.sync
    if sync is None or any(map(_has_elements, eqn.inputs)):
        return False
    copies = not {sync.issues, sync.commits, sync.waits}.isdisjoint({AsyncKind.COPY, AsyncKind.STORE})
    meets = sync.waits in sync.arrives
    at_barriers = bool(eqn.synchronised) and all(atom.type.space is BARRIER for atom in eqn.synchronised)
    return sync.registers or copies or (at_barriers and not meets)


def _has_elements(atom: Atom) -> bool:
    """True for an array other than a number."""
    return isinstance(atom.type, ArrayType) and atom.type.shape != ()
