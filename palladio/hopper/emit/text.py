"""The text of a kernel, from the text of its roles: parameters, the initialisation of barriers, and branches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from palladio.base.dataclass import dataclass
from palladio.hopper.emit.names import identifier
from palladio.hopper.emit.plan import WARPGROUP_THREADS
from palladio.hopper.emit.scalars import memory_type, register_type
from palladio.hopper.emit.scope import Kernel, Scope
from palladio.hopper.emit.writer import mentions
from palladio.hopper.lowered import HEADER, MapParameter, ScalarParameter
from palladio.lower.roles import Role
from palladio.types.device import H100_SXM


@dataclass(frozen=True)
class MeshCode:
    """The code of the blocks of one mesh.

    Fields:
        kernel: with the shared memory of these blocks.
        roles, scopes: the roles of their warpgroups, each with its text.
        first: the number of the first of these blocks in the launch.
    """

    kernel: Kernel
    roles: Sequence[Role]
    scopes: Sequence[Scope]
    first: int = 0

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return math.prod(axis.size or 1 for axis in self.kernel.mesh.axes if axis.kind in ("grid", "cluster"))

    @property
    def warpgroups(self) -> int:
        """The number of warpgroups that have a role."""
        return sum(len(role.threads) for role in self.roles)


def kernel_text(name: str, meshes: Sequence[MeshCode], groups: int, cluster: int = 1) -> str:
    """The text of a kernel.

    Args:
        groups: the warpgroups of a block; the blocks of some meshes may use fewer.
        cluster: the blocks of a cluster.
    """
    kernel = meshes[0].kernel
    parameters = ",\n    ".join(_parameter(kernel, each) for each in kernel.parameters())
    bounds = f"PAL_BOUNDS({groups * WARPGROUP_THREADS})" + (f" PAL_CLUSTER({cluster})" if cluster > 1 else "")
    comments = [line for each in meshes for line in _layout_of_memory(each, len(meshes) > 1)]
    lines = [f'#include "{HEADER}"', "", *comments, f"PAL_KERNEL void {bounds} {name}(", f"    {parameters}) {{"]
    body = []
    for number, each in enumerate(meshes):
        own = _of_mesh(each, groups, cluster)
        if len(meshes) == 1:
            body += own
            continue
        test = f"if (pal::block_index() < {each.first + each.blocks}) {{"
        body.append(f"  {test}" if number == 0 else f"  }} else {test}" if number < len(meshes) - 1 else "  } else {")
        body += _indented(own)
    if len(meshes) > 1:
        body.append("  }")
    if cluster > 1:
        body.append("  pal::sync_cluster();  // no block ends while others may still reach it")
    return "\n".join([*lines, *_numbers(body), *body, "}", ""])


def _of_mesh(mesh: MeshCode, groups: int, cluster: int) -> list[str]:
    """The code of the blocks of a mesh."""
    body = _initialised(mesh.kernel, cluster)
    complete = mesh.warpgroups == groups
    for number, (role, scope) in enumerate(zip(mesh.roles, mesh.scopes, strict=True)):
        body += _branch(role, scope, number == 0, complete and number == len(mesh.roles) - 1, groups)
    return [*body, "  }"]


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
        if mentions(name, (*body, *needed)):
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


def _layout_of_memory(mesh: MeshCode, numbered: bool) -> list[str]:
    """A comment with the map of shared memory."""
    plan = mesh.kernel.plan
    rows = [
        f"//   {offset:6}  {identifier(name)}: {'x'.join(map(str, layout.shape))} of {layout.itemsize} bytes"
        + (f", swizzled by {layout.swizzle}" if layout.swizzle else "")
        for name, offset, layout in plan.buffers
    ]
    rows += [
        f"//   {each.offset:6}  {identifier(each.name)}: {each.number} barriers of {each.arrivals}"
        for each in plan.barriers
    ]
    whose = f" of blocks {mesh.first} to {mesh.first + mesh.blocks - 1}" if numbered else ""
    return [f"// {plan.bytes} bytes of shared memory{whose}:", *sorted(rows, key=lambda row: int(row.split()[1]))]


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
            call = f"pal::barrier_init(smem + {each.offset} + 8 * step, {each.arrivals});"
            lines.append(f"    for (int step = 0; step < {each.number}; ++step) {call}")
    return [*lines, "    pal::fence_barrier_init();", "  }", sync]


def _branch(role: Role, scope: Scope, first: bool, rest: bool, groups: int) -> list[str]:
    """The branch of a role, without the brace that ends it; `rest` if all remaining warpgroups run it."""
    test = " || ".join(f"warpgroup == {group}" for group in role.threads)
    if role.threads == tuple(range(len(role.threads))) and len(role.threads) > 1:
        test = f"warpgroup < {len(role.threads)}"
    head = "{" if first and rest else "else {" if rest else f"if ({test}) {{" if first else f"else if ({test}) {{"
    lines = [f"  {head}" if first else f"  }} {head}"]
    if scope.registers and _changes(scope, groups):
        count, action = scope.registers
        lines.append(f"    pal::registers_{action}<{count}>();")
    needed = [text for name, text in scope.prologue if mentions(name, scope.w.lines)]
    body = [*(f"    {line}" for line in needed), *_indented(scope.w.lines)]
    if scope.one_warp:
        body = ["    if (warp == 0) {", *(line if line.startswith("#") else f"  {line}" for line in body), "    }"]
    return [*lines, *body]


def _changes(scope: Scope, groups: int) -> bool:
    """True if a role's register count differs from that at launch, in the direction that it requests."""
    begins = H100_SXM.registers_at_launch(groups)
    count, action = scope.registers or (begins, "")
    return count > begins if action == "increase" else count < begins


def _indented(lines: Sequence[str]) -> list[str]:
    return [line if line.startswith("#") else f"  {line}" for line in lines]
