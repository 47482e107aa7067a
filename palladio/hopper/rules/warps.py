"""Launches inside a kernel: programs that the warps of a warpgroup run concurrently (`warp_map`).

Each warp is then a thread of the launch, as in a role of one warp: `thread` is the lane's number, and the warp arrives
at barriers for four warps. Its registers keep the phases that it has observed from one launch to the next. Where the
warpgroup waits at the same barrier, it has observed those that all its warps have, and each warp counts those beyond.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from palladio.hopper.emit import exchange
from palladio.hopper.emit.scalars import Scalar
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.uses import WARPS
from palladio.hopper.emit.values import EXCHANGE, Barriers, Sites
from palladio.hopper.layouts.infer import Layouts
from palladio.ir.core import Eqn, Program, walk
from palladio.lower.refused import Refused
from palladio.ops import control
from palladio.ops.threads.copy import copy_smem_to_gmem
from palladio.ops.threads.launch import collective_scope
from palladio.types import dtypes
from palladio.types.attributes import Named
from palladio.types.effects import AsyncKind
from palladio.types.types import ACC, RefType


def _launch(scope: Scope, eqn: Eqn) -> None:
    launch = eqn.launch
    plain = not (scope.warps or eqn.outputs or launch.scratch)
    if not plain or any(axis.kind != "warp" for mesh in launch.meshes for axis in mesh.axes):
        raise Refused("a launch inside of a kernel is one of the warps of a warpgroup on Hopper, without scratch")
    scope.sync()
    first = 0
    for number, mesh in enumerate(launch.meshes):
        count = mesh.axes[0].size or WARPS
        whole = count == WARPS
        with scope.w.block("" if whole else f"if (warp >= {first} && warp < {first + count})"):
            _program(scope, eqn, number, "warp" if whole else f"(warp - {first})")
        first += count
    scope.sync()
    for each in _waited(scope, eqn):
        _observe(scope, each, first)


def _waited(scope: Scope, eqn: Eqn) -> Iterator[Barriers]:
    """The barriers of a launch at which both single warps and their warpgroup wait."""
    references = [atom for atom in eqn.inputs if isinstance(atom.type, RefType)]
    found = dict.fromkeys(each for atom in references if isinstance(each := scope.entry(atom), Barriers))
    yield from (each for each in found if each.ahead is not None)


def _observe(scope: Scope, barriers: Barriers, warps: int) -> None:
    """The warpgroup has observed the phases that all its warps have, the first `warps` of the four."""
    base, w, count = scope.w.fresh("observed"), scope.w, max(1, barriers.type.size)
    ahead = f"{barriers.ahead}[element]"
    loop = f"PAL_UNROLL for (int element = 0; element < {count}; ++element)"
    w.line(f"const u32 {base} = {exchange.room(scope, 4 * WARPS * count)};")
    w.line(f"{loop} if (lane == 0) pal::store_shared<u32>({base} + 16 * element + 4 * warp, {ahead});")
    scope.sites.written.add(EXCHANGE)
    scope.before_read(EXCHANGE)
    scope.sites.read.add(EXCHANGE)
    with w.block(loop):
        w.line("u32 all = 0;")
        with w.block(f"PAL_UNROLL for (int other = 0; other < {warps}; ++other)"):
            w.line(f"const u32 seen = pal::load_shared<u32>({base} + 16 * element + 4 * other);")
            w.line("all = other == 0 || seen < all ? seen : all;")
        word, bit = barriers.phase("element")
        w.line(f"{word} ^= (all & 1) << {bit};")
        w.line(f"{'' if warps == WARPS else f'if (warp < {warps}) '}{ahead} -= all;")


def _program(scope: Scope, eqn: Eqn, number: int, index: str) -> None:
    """Write the program of some warps; `index` is a warp's number among them, a C expression."""
    program = eqn.programs[number]
    _check(program)
    inner, inputs = _of_warps(scope, program), eqn.launch.split(number, program.inputs)
    inner.env[inputs.indices[0]] = Scalar(index, dtypes.INT32)
    inner.bind(inputs.operands, eqn.inputs)
    scope.w.elected, before = "pal::elect()", scope.w.elected
    with scope.w.declaring("thread", "const int thread = lane;"):
        inner.run(program)
        if any(each.op is copy_smem_to_gmem for each in walk(program)):
            # The warpgroup waits for these copies later, but a thread can wait only for the copies that it issued.
            scope.w.elect("pal::bulk_commit();", "pal::bulk_wait<0>();")
    scope.w.elected = before


def _check(program: Program) -> None:
    """Refuse operations that single warps do not support: products, accumulators, named barriers and allocations."""
    for eqn in walk(program):
        sync, references = eqn.op.sync, [atom.type for atom in eqn.inputs if isinstance(atom.type, RefType)]
        together = sync is not None and (sync.registers or AsyncKind.WGMMA in (sync.issues, sync.waits))
        shared = any(type.space is ACC or type.attribute(Named) for type in references)
        allocates = eqn.op in (control.scope, collective_scope) and len(eqn.body.inputs) > len(eqn.inputs)
        if together or shared or allocates:
            raise Refused(f"{eqn.op.name} of a single warp is not compiled for Hopper", location=eqn.location)


def _of_warps(scope: Scope, program: Program) -> Scope:
    """The scope of a program that warps run, with the same writer."""
    inner = copy.copy(scope)
    inner.one_warp = inner.warps = True
    inner.layouts = Layouts(program, one_warp=True)
    inner.env = dict(scope.env)
    inner.sites, inner.room, inner.flight, inner.accumulators = Sites(), None, [], {}
    return inner


RULES: dict[str, Rule] = {"launch": _launch}
