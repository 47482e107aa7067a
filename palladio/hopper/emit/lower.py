"""Lowering of a launch to the text of a kernel.

The steps: find the roles of the threads; collect the uses of references in all roles, which determine the arrival
counts of barriers and the layouts of buffers; write each role as a branch of the kernel, which allocates shared memory;
write the kernel's prologue, which initialises the barriers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from palladio.hopper.emit.exchange import through_shared
from palladio.hopper.emit.plan import WARPGROUP_THREADS, Plan, registers_fit
from palladio.hopper.emit.scalars import Scalar, memory_type, register_type
from palladio.hopper.emit.scope import Kernel, Scope, global_reference
from palladio.hopper.emit.uses import uses
from palladio.hopper.emit.values import Global
from palladio.hopper.emit.writer import kernel_name
from palladio.hopper.layouts.infer import Layouts
from palladio.hopper.lowered import HEADER, Array, Lowered, MapParameter, Registers, ScalarParameter
from palladio.hopper.rules import REFUSED, RULES
from palladio.hopper.rules.control import allocated
from palladio.ir.core import Atom, Eqn, Program, Var, walk
from palladio.lower.ranges import Range
from palladio.lower.refused import Refused
from palladio.lower.roles import Role, roles_of
from palladio.ops.threads.launch import Launch, MeshShape
from palladio.ops.threads.launch import launch as launch_of_warps
from palladio.types import dtypes
from palladio.types.device import H100_SXM
from palladio.types.effects import AsyncKind
from palladio.types.types import ANY, BARRIER, GMEM, ArrayType, RefType, Type

MOST_THREADS = 1024


def lower_launch(launch: Launch, programs: Sequence[Program], operands: Sequence[Type]) -> Lowered:
    """The kernel of a launch.

    Args:
        programs: one for each mesh, after the passes.
        operands: the types of the launch's operands.

    Raises:
        Refused: the launch uses a feature that is not compiled for Hopper.
        PalladioValueError: the launch exceeds a limit of Hopper GPUs.
    """
    if len(programs) != 1:
        raise Refused("programs on several meshes are not compiled for Hopper yet")
    if launch.gpus:
        raise Refused("a launch on several GPUs is not compiled for Hopper yet")
    (program,), (mesh,) = programs, launch.meshes
    _check_mesh(mesh, launch)
    warpgroups = math.prod(axis.size or 1 for axis in mesh.axes if axis.kind == "thread")
    found = roles_of(launch, 0, program)
    used = uses(role.program for role in found)
    blocks = {axis.name or str(n): axis.size or 1 for n, axis in enumerate(mesh.axes) if axis.kind == "cluster"}
    kernel = Kernel(mesh, Plan(warpgroups, blocks), used)
    shared = operands[launch.dynamic :]
    kernel.arrays = [*arrays_of("operand", shared, launch.dynamic), *arrays_of("output", launch.output_types)]
    parts = [_role(kernel, launch, role) for role in found]
    kernel.plan.check()
    counts = [(role.threads, scope.registers[0]) for role, scope in zip(found, parts, strict=True) if scope.registers]
    if counts:
        asked = [
            (role.threads, scope.registers and scope.registers[0]) for role, scope in zip(found, parts, strict=True)
        ]
        registers_fit(asked, warpgroups)
    name = kernel_name(program.name)
    cluster = math.prod(blocks.values())
    return Lowered(
        name=name,
        text=kernel_text(name, kernel, found, parts, warpgroups, cluster),
        products=tuple(sorted(kernel.products)),
        parameters=kernel.parameters(),
        arrays=tuple(kernel.arrays),
        grid=math.prod(axis.size or 1 for axis in mesh.axes if axis.kind in ("grid", "cluster")),
        cluster=cluster,
        threads=warpgroups * WARPGROUP_THREADS,
        shared_bytes=kernel.plan.bytes,
        aliases=tuple((launch.dynamic + source, target) for source, target in launch.aliases),
        dynamic=tuple(range(launch.dynamic)),
        registers=tuple(Registers(threads, count) for threads, count in counts),
    )


def arrays_of(role: str, types: Sequence[Type], first: int = 0) -> list[Array]:
    """The arrays of a launch: its operands or outputs, numbered from `first`."""
    return [Array(role, n, type.shape, type.dtype) for n, type in enumerate(types, first)]


def _check_mesh(mesh: MeshShape, launch: Launch) -> None:
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
    threads = math.prod(axis.size or 1 for axis in mesh.axes if axis.kind == "thread") * WARPGROUP_THREADS
    if threads > MOST_THREADS:
        raise Refused("a block has at most 8 warpgroups", got=f"{threads // WARPGROUP_THREADS} warpgroups")


def _role(kernel: Kernel, launch: Launch, role: Role) -> Scope:
    """The text of one role."""
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
    inputs = launch.split(0, role.program.inputs)
    scope.env.update(zip(inputs.indices, _indices(kernel, scope), strict=True))
    scope.env.update(zip(inputs.sizes, sizes, strict=True))
    for number, var in enumerate(inputs.arrays):
        scope.env[var] = argument = _argument(kernel, var, number)
        scope.w.names.add(argument.name)
    scope.env.update((var, allocated(scope, var)) for var in inputs.scratch)
    scope.run(role.program)
    scope.w.flush()
    return scope


def _argument(kernel: Kernel, var: Var, number: int) -> Global:
    """The value of an operand or output of the launch."""
    if isinstance(var.type, RefType) and var.type.space in (GMEM, ANY):
        return global_reference(var, number, kernel.use(var))
    if isinstance(var.type, ArrayType):
        raise Refused("a number passed to a kernel is not compiled for Hopper yet", got=str(var.type))
    raise Refused(f"a reference in {var.type.space} passed to a kernel is not compiled for Hopper", got=str(var.type))


def _sizes(kernel: Kernel) -> dict[int, str]:
    """The parameters with sizes of the mesh's axes, by axis."""
    unknown = [n for n, axis in enumerate(kernel.mesh.axes) if axis.size is None]
    return {axis: kernel.size(operand) for operand, axis in enumerate(unknown)}


def _indices(kernel: Kernel, scope: Scope) -> list[Scalar]:
    """The indices along the axes of the mesh."""
    axes, sizes = kernel.mesh.axes, _sizes(kernel)
    clustered = any(axis.kind == "cluster" for axis in axes)
    start = {"grid": "cluster_index" if clustered else "block_index", "cluster": "cluster_rank"}
    found = []
    for n, axis in enumerate(axes):
        if axis.kind == "thread":
            inner = math.prod(each.size or 1 for each in axes[n + 1 :] if each.kind == "thread")
            outer = all(each.kind != "thread" for each in axes[:n])
            found.append(Scalar(digit(scope.group, [inner], axis.size or 1, outer), dtypes.INT32))
            continue
        weight = [sizes.get(m, axes[m].size or 1) for m in range(n + 1, len(axes)) if axes[m].kind == axis.kind]
        outer = all(each.kind != axis.kind for each in axes[:n])
        name = scope.w.fresh(axis.name or axis.kind)
        number = digit(f"pal::{start[axis.kind]}()", weight, sizes.get(n, axis.size or 1), outer)
        scope.prologue.append((name, f"const int {name} = {number};"))
        found.append(Scalar(name, dtypes.INT32))
    return found


def digit(number: str, inner: Sequence[int | str], size: int | str, first: bool) -> str:
    """The index along an axis, extracted from the number of a block or thread, as a C expression.

    Args:
        inner: the sizes of the faster axes, numbers or names.
        first: this is the slowest axis.
    """
    known = math.prod(each for each in inner if isinstance(each, int))
    names = [each for each in inner if isinstance(each, str)]
    weight = " * ".join([*names, *([str(known)] if known > 1 or not names else [])])
    text = number if weight == "1" else f"{number} / {f'({weight})' if ' ' in weight else weight}"
    return text if first or (size == 1 and weight == "1") else f"{text} % {size}"


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


# The text.


def kernel_text(
    name: str, kernel: Kernel, found: Sequence[Role], parts: Sequence[Scope], groups: int, cluster: int = 1
) -> str:
    """The text of a kernel, from the text of its roles."""
    parameters = ",\n    ".join(_parameter(kernel, each) for each in kernel.parameters())
    bounds = f"PAL_BOUNDS({groups * WARPGROUP_THREADS})" + (f" PAL_CLUSTER({cluster})" if cluster > 1 else "")
    lines = [
        f'#include "{HEADER}"',
        "",
        *_layout_of_memory(kernel),
        f"PAL_KERNEL void {bounds} {name}(",
        f"    {parameters}) {{",
    ]
    body = _initialised(kernel, cluster)
    for number, (role, scope) in enumerate(zip(found, parts, strict=True)):
        body += _branch(role, scope, number == len(found) - 1, number == 0, groups)
    if cluster > 1:
        body.append("  pal::sync_cluster();  // no block ends while others may still reach it")
    return "\n".join([*lines, *_numbers(body), *body, "}", ""])


NUMBERS = {
    "smem": "const u32 smem = pal::shared_base();",
    "warpgroup": "const int warpgroup = pal::uniform((int)pal::thread_index() / 128);",
    "thread": "const int thread = (int)pal::thread_index() % 128;",
    "warp": "const int warp = pal::uniform(thread / 32);",
    "lane": "const int lane = thread % 32;",
}
"""The start of the block's shared memory, and the numbers of a thread; later ones may need earlier ones."""


def _numbers(body: Sequence[str]) -> list[str]:
    """The definitions that a kernel needs."""
    needed: list[str] = []
    for name, definition in reversed(NUMBERS.items()):
        if any(re.search(rf"\b{name}\b", line) for line in (*body, *needed)):
            needed.insert(0, f"  {definition}")
    return needed


def _parameter(kernel: Kernel, each: object) -> str:
    if isinstance(each, MapParameter):
        return f"PAL_MAP {each.name}"
    if isinstance(each, ScalarParameter):
        return f"const {register_type(each.dtype)} {each.name}"
    array = kernel.arrays[each.array]  # type: ignore[attr-defined]
    constant = "const " if array.role == "operand" else ""
    return f"{constant}{memory_type(array.dtype)}* {each.name}"  # type: ignore[attr-defined]


def _layout_of_memory(kernel: Kernel) -> list[str]:
    """A comment with the map of shared memory."""
    plan = kernel.plan
    rows = [
        f"//   {offset:6}  {name}: {'x'.join(map(str, layout.shape))} of {layout.itemsize} bytes"
        + (f", swizzled by {layout.swizzle}" if layout.swizzle else "")
        for name, offset, layout in plan.buffers
    ]
    rows += [f"//   {each.offset:6}  {each.name}: {each.number} barriers of {each.arrivals}" for each in plan.barriers]
    return [f"// {plan.bytes} bytes of shared memory:", *sorted(rows, key=lambda row: int(row.split()[1]))]


def _initialised(kernel: Kernel, cluster: int) -> list[str]:
    """Initialise the barriers and make them visible to all threads."""
    barriers = kernel.plan.barriers
    if not barriers and cluster == 1:
        return []
    sync = "  pal::sync_cluster();" if cluster > 1 else "  pal::sync_block();"
    if not barriers:
        return [sync]
    lines = ["  if (pal::thread_index() == 0) {"]
    for each in barriers:
        if each.number == 1:
            lines.append(f"    pal::barrier_init(smem + {each.offset}, {each.arrivals});")
        else:
            call = f"pal::barrier_init(smem + {each.offset} + 8 * n, {each.arrivals});"
            lines.append(f"    for (int n = 0; n < {each.number}; ++n) {call}")
    return [*lines, "    pal::fence_barrier_init();", "  }", sync]


def _branch(role: Role, scope: Scope, last: bool, first: bool, groups: int) -> list[str]:
    """The branch of a role."""
    test = " || ".join(f"warpgroup == {group}" for group in role.threads)
    if role.threads == tuple(range(len(role.threads))) and len(role.threads) > 1:
        test = f"warpgroup < {len(role.threads)}"
    head = "{" if first and last else "else {" if last else f"if ({test}) {{" if first else f"else if ({test}) {{"
    lines = [f"  {head}" if first else f"  }} {head}"]
    if scope.registers and _changes(scope, groups):
        count, action = scope.registers
        lines.append(f"    pal::registers_{action}<{count}>();")
    written = "\n".join(scope.w.lines)
    needed = [text for name, text in scope.prologue if re.search(rf"\b{name}\b", written)]
    body = [*(f"    {line}" for line in needed), *_indented(scope.w.lines)]
    if scope.one_warp:
        body = ["    if (warp == 0) {", *(line if line.startswith("#") else f"  {line}" for line in body), "    }"]
    lines += body
    return [*lines, "  }"] if last else lines


def _changes(scope: Scope, groups: int) -> bool:
    """True if a role's register count differs from that at launch, in the direction that it requests."""
    begins = H100_SXM.registers_at_launch(groups)
    count, action = scope.registers or (begins, "")
    return count > begins if action == "increase" else count < begins


def _indented(lines: Sequence[str]) -> list[str]:
    return [line if line.startswith("#") else f"  {line}" for line in lines]
