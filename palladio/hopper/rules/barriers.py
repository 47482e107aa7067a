"""Barriers. Each warp of a thread of the launch arrives separately, so that no warp waits for its warpgroup."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from palladio.hopper.emit.scalars import Scalar
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.uses import WARPS
from palladio.hopper.emit.values import Barriers, Entry, NamedBarriers
from palladio.hopper.layouts.integers import Index, added, bracketed, times
from palladio.ir.core import Atom, Eqn
from palladio.lower.refused import Refused
from palladio.types import dtypes
from palladio.types.transforms import Transform


def slot(
    scope: Scope, root: Atom, stack: Sequence[Transform], indices: Sequence[Atom], remote: bool = False
) -> tuple[Barriers, Index]:
    """The barriers, and the number of the selected one."""
    found = scope.entry(root)
    if not isinstance(found, Barriers):
        raise Refused("a barrier from outside of the block is not compiled for Hopper")
    chosen = scope.view(found.type, stack, indices)
    if chosen.peer and not remote:
        raise Refused("a thread waits at the barriers of its own block only")
    strides = [math.prod(found.type.shape[n + 1 :]) for n in range(found.type.ndim)]
    return found, added(*(times(start.at, stride) for start, stride in zip(chosen.starts, strides, strict=True)))


def address(barriers: Barriers, number: Index) -> Index:
    """The address of a barrier."""
    return added(barriers.base, times(number, 8))


def _phase(scope: Scope, barriers: Barriers, number: Index) -> str:
    """The parity of the next wait: of the warpgroup, or of a single warp, which may have observed more phases."""
    word, bit = barriers.phase(number)
    shifted = word if bit == 0 else f"{word} >> {bracketed(bit)}"
    if scope.warps and barriers.ahead is not None:
        return f"{bracketed(shifted)} + {barriers.ahead}[{number}] & 1"
    return f"{shifted} & 1"


def _next_phase(scope: Scope, barriers: Barriers, number: Index) -> str:
    """The statement that exchanges the parity of the next wait."""
    if scope.warps and barriers.ahead is not None:
        return f"++{barriers.ahead}[{number}];"
    word, bit = barriers.phase(number)
    return f"{word} ^= {hex(1 << bit) if isinstance(bit, int) else f'1u << {bracketed(bit)}'};"


def _wait(scope: Scope, eqn: Eqn) -> None:
    root, *indices = eqn.inputs
    barriers, number = slot(scope, root, eqn.transforms, indices)
    wait = "wait_cluster" if barriers.clustered and scope.kernel.publishes else "wait"
    scope.w.line(f"pal::{wait}({address(barriers, number)}, {_phase(scope, barriers, number)});")
    scope.w.line(_next_phase(scope, barriers, number))
    if barriers.of_rows:
        scope.w.line("pal::fence_async();")
    scope.sites.read.add(barriers.root)


def _test(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    """Test a barrier with one answer for all warps of a thread: True when every warp observes the completion."""
    root, *indices = eqn.inputs
    barriers, number = slot(scope, root, eqn.transforms, indices)
    test = "try_wait_cluster" if barriers.clustered and scope.kernel.publishes else "test"
    seen = f"pal::{test}({address(barriers, number)}, {_phase(scope, barriers, number)})"
    come = scope.w.fresh("come")
    scope.w.line(f"const bool {come} = {scope.agreed(seen)};")
    scope.w.line(f"if ({come}) {_next_phase(scope, barriers, number)}")
    if barriers.of_rows:
        scope.w.line("pal::fence_async();")
    return [Scalar(come, dtypes.BOOL, 1, come)]


def _arrive(scope: Scope, eqn: Eqn) -> None:
    root, predicate, *indices = eqn.inputs
    if isinstance(scope.entry(root), NamedBarriers):
        _arrive_named(scope, eqn)
        return
    barriers, number = slot(scope, root, eqn.transforms, indices, remote=True)
    condition = scope.condition(predicate)
    where = address(barriers, number)
    tests = [] if condition is None else [condition]
    w = scope.w
    w.line("pal::sync_warp();")
    if barriers.cluster_axes:
        count, rank = reached(scope, barriers.cluster_axes)
        lanes = count * (WARPS if scope.one_warp else 1)  # a single warp arrives in place of all four
        test = " && ".join([f"lane < {lanes}", *tests])
        w.line(f"if ({test}) {_arrival_of_peer(scope, where, rank)}")
        return
    peer = scope.view(barriers.type, eqn.transforms, indices).peer
    if peer:
        arrive_at(scope, barriers, where, scope.rank(peer), tests)
        return
    test = " && ".join(["lane == 0", *tests])
    call = f"pal::arrive_many({where}, {WARPS})" if scope.one_warp else f"pal::arrive({where})"
    w.line(f"if ({test}) {call};")


def arrive_at(scope: Scope, barriers: Barriers, where: Index, rank: Index, tests: Sequence[str] = ()) -> None:
    """Each warp arrives at the barrier of another block of the cluster; a single warp, in place of all four."""
    lanes = WARPS if scope.one_warp else 1
    test = " && ".join([f"lane < {lanes}", *tests])
    scope.w.line(f"if ({test}) {_arrival_of_peer(scope, where, rank)}")


def _arrival_of_peer(scope: Scope, where: Index, rank: Index) -> str:
    """An arrival at a barrier of another block.

    One with release for the cluster waits for all earlier accesses of the thread to global memory.
    """
    return f"pal::arrive_{'cluster' if scope.kernel.publishes else 'peer'}({where}, {rank});"


def reached(scope: Scope, groups: Sequence[Sequence[str]]) -> tuple[int, str]:
    """The number of blocks that an arrival signals, and the rank of the block that a lane signals.

    They are the thread's own block and each block that differs from it along exactly one of the groups of axes.
    """
    sizes = scope.kernel.axis("cluster")
    names, blocks = list(sizes), math.prod(sizes.values())
    if len(groups) == 1 and set(groups[0]) == set(names):
        return blocks, f"lane % {blocks}"
    extents = [math.prod(sizes[name] for name in group) for group in groups]
    count = 1 + sum(extent - 1 for extent in extents)
    number, text, before = f"lane % {count}", "", 0
    for n, (group, extent) in enumerate(zip(groups, extents, strict=True)):
        moved = _moved(sizes, [name for name in names if name in group], f"{number} - {before}")
        before += extent - 1
        text += f"{number} <= {before} ? {moved} : " if n < len(groups) - 1 else moved
    return count, f"({text})"


def _moved(sizes: Mapping[str, int], group: Sequence[str], steps: str) -> str:
    """The rank of the block that is some steps further along a group of axes, from the last block to the first."""
    names, rank = list(sizes), "pal::cluster_rank()"
    weights = {name: math.prod(list(sizes.values())[n + 1 :]) for n, name in enumerate(names)}
    own = {name: f"({rank} / {weights[name]} % {sizes[name]})" for name in group}
    if len(group) == 1:
        (axis,) = group
        return f"{rank} + (({own[axis]} + {steps}) % {sizes[axis]} - {own[axis]}) * {weights[axis]}"
    places = {name: math.prod(sizes[each] for each in group[n + 1 :]) for n, name in enumerate(group)}
    index = added(*(times(own[name], places[name]) for name in group))
    place = f"(({index} + {steps}) % {math.prod(sizes[name] for name in group)})"
    terms = (f"({place} / {places[name]} % {sizes[name]} - {own[name]}) * {weights[name]}" for name in group)
    return " + ".join([rank, *terms])


def _named(scope: Scope, root: Atom, stack: Sequence[Transform], indices: Sequence[Atom]) -> tuple[Index, int]:
    found = scope.entry(root)
    if not isinstance(found, NamedBarriers):
        raise Refused("threads wait in one step at named barriers only")
    chosen = scope.view(found.type, stack, indices)
    strides = [math.prod(found.type.shape[n + 1 :]) for n in range(found.type.ndim)]
    number = added(*(times(start.at, stride) for start, stride in zip(chosen.starts, strides, strict=True)))
    return added(found.first, number), found.threads


def _sync(scope: Scope, eqn: Eqn) -> None:
    root, *indices = eqn.inputs
    number, threads = _named(scope, root, eqn.transforms, indices)
    scope.w.line(f"pal::sync_named({number}, {threads});")


def _arrive_named(scope: Scope, eqn: Eqn) -> None:
    root, predicate, *indices = eqn.inputs
    number, threads = _named(scope, root, eqn.transforms, indices)
    condition = scope.condition(predicate)
    test = "" if condition is None else f"if ({condition}) "
    scope.w.line(f"{test}pal::arrive_named({number}, {threads});")


RULES: dict[str, Rule] = {
    "barrier_wait": _wait,
    "barrier_arrive": _arrive,
    "barrier_sync": _sync,
    "barrier_test": _test,
}
