"""The single changes that may remove a finding, in tiers: the first tier with one that is clean gives the repair."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from palladio.base.errors import PalladioError
from palladio.ir.bind import form
from palladio.ir.core import Atom, Eqn, Literal, Op, Program, Var
from palladio.machine.check.findings import Finding
from palladio.machine.repair import wording
from palladio.machine.repair.candidate import Candidate, Tier
from palladio.machine.repair.copies import copied_like_sibling, copy_awaited
from palladio.machine.repair.edit import (
    Path,
    Spot,
    first_part,
    part_at,
    passed_in,
    reindexed,
    replaced,
    with_operand,
    with_params,
    with_part_at,
)
from palladio.machine.repair.other_accesses import made_atomic, made_reduction, other_peers
from palladio.machine.repair.references import launches, recounted
from palladio.machine.repair.survey import Gap, Survey, Use, remainder
from palladio.ops import OPS
from palladio.ops.threads.barrier import barrier_arrive, barrier_wait
from palladio.ops.threads.copy import (
    commit_gmem,
    commit_smem,
    commit_smem_to_gmem_group,
    copy_smem_to_gmem,
    wait_smem_to_gmem,
)
from palladio.ops.threads.semaphore import semaphore_signal, semaphore_wait
from palladio.ops.threads.wgmma import accumulator_load, accumulator_store, set_max_registers, wgmma, wgmma_wait
from palladio.types.attributes import Arrivals, Named
from palladio.types.transforms import Index, Operand, Peer
from palladio.types.types import BARRIER, SEMAPHORE, SMEM, RefType

NEAR = 8
"""The number of gaps around each line of a finding in which a wait or fence is tried."""

FEWEST = 24
"""The number of nearest gaps that always count as near: all gaps of a small kernel."""

FORMS = 3
"""The number of indices that are tried for one of several barriers."""


def _never(path: Path, index: int, awaited: Var | None = None) -> bool:
    return False


class Candidates:
    """The candidates for one finding of a program.

    Args:
        hopeless: true for a point of the program at which no change, or no wait for a barrier, can remove the finding.
    """

    def __init__(self, program: Program, finding: Finding, hopeless: Callable[..., bool] = _never) -> None:
        self.program = program
        self.code = finding.code
        self.hopeless = hopeless
        self.survey = Survey(program)
        self.guilty = self.survey.at(finding.locations)
        self.orders = [self.survey.order(spot) for spot in self.guilty]
        touched = [root for spot in self.guilty for root in self.survey.roots_at(spot)]
        self.flags = {root for spot in self.survey.spots if spot.eqn.op.atomic for root in self.survey.roots_at(spot)}
        self.signals = [root for root in dict.fromkeys(touched) if _space(root) in _CALLS or root in self.flags]

    def rounds(self) -> Iterator[Iterator[Tier]]:
        """The candidates in rounds: the changes near to the lines of the finding, then all others."""
        if self.guilty:
            yield self._near()
            yield self._far()

    def _near(self) -> Iterator[Tier]:
        """The changes near the finding; first those that preserve the kernel's structure."""
        yield self._own_waits()
        yield self._counts_of_arrivals()
        if self.code == "deadlock":  # a copy rather than an arrival at a barrier of copies
            yield copied_like_sibling(self.program, self.survey, self.near)
        yield self._between_threads()
        yield self._moved_away()
        yield self._elsewhere()
        yield self._flags_raised()  # last: a flag may be raised at the wrong index, and flags are not counted

    def _far(self) -> Iterator[Tier]:
        yield self._between_threads_anywhere()
        yield self._removed(spot for spot in self._synchronising() if _only_synchronises(spot.eqn))

    @property
    def may_lack_arrivals(self) -> bool:
        """True if an arrival or a signal may be missing; other findings need a wait."""
        return self.code in ("deadlock", "barrier-pending-arrivals")

    # Points of insertion.

    @cached_property
    def gaps(self) -> list[Gap]:
        """The places for another equation, those nearest to the lines of the finding first."""
        return [gap for gap in sorted(self.survey.gaps, key=self._distance) if not self.hopeless(gap.path, gap.index)]

    @cached_property
    def near(self) -> list[Gap]:
        """The gaps near the lines of the finding."""
        ordered = sorted(self.survey.gaps, key=self._distance)
        near = {id(gap) for n, gap in enumerate(ordered) if n < FEWEST or self._distance(gap) < NEAR / 2}
        return [gap for gap in self.gaps if id(gap) in near]

    def _distance(self, gap: Gap) -> float:
        """The number of equations between a gap and the nearest line of the finding."""
        return min(abs(gap.order - each) for each in self.orders)

    def _synchronising(self) -> list[Spot]:
        """The equations that synchronise, those nearest to the lines of the finding first."""
        spots = [spot for spot in self.survey.spots if _synchronises(spot.eqn)]
        spots = [spot for spot in spots if any(step[1] == "programs" for step in spot.path)]
        spots = [spot for spot in spots if not self.hopeless(spot.path, spot.index)]
        return sorted(spots, key=lambda spot: min(abs(self.survey.order(spot) - each) for each in self.orders))

    def _of(self, *ops: Op) -> list[Spot]:
        return [spot for spot in self._synchronising() if spot.eqn.op in ops]

    def _inserted(self, gap: Gap, eqn: Eqn, text: str) -> Candidate:
        program = replaced(self.program, gap.path, gap.index, 0, (eqn,))
        where = wording.between(gap.before, gap.after, gap.around)
        return Candidate(f"add `{text}` {where}", program, key=(gap.path, gap.index, text))

    def _changed(self, spot: Spot, text: str, *eqns: Eqn, key: Hashable = None) -> Candidate:
        program = replaced(self.program, spot.path, spot.index, 1, eqns)
        return Candidate(text, program, key=(spot.path, spot.index, text, key))

    # The first tier: waits of a thread for its own operations, and duplicates.

    def _own_waits(self) -> Tier:
        yield from self._removed(self._doubled())
        ops = {spot.eqn.op for spot in self.guilty}
        for waits, codes, shared, insertions in _OWN:
            if self.code in codes or (self.code in shared and ops.intersection(_ISSUES)):
                for spot in self._of(*waits):
                    yield from self._strengthened(spot)
                for gap in self.near:
                    for op, params, text in insertions:
                        place = (gap.before or gap.after or self.guilty[0].eqn).location
                        yield self._inserted(gap, form(op, (), params, place), text)
        if self.code in ("data-race", "global-race"):
            for spot in self.guilty:
                yield from made_atomic(self.program, spot)
                yield from made_reduction(self.program, spot)
        if self.code in ("deadlock", "registers-exceeded"):
            yield from self._registers()

    def _doubled(self) -> Iterator[Spot]:
        """Synchronising equations that repeat the previous one."""
        for spot in self._synchronising():
            before = spot.program.eqns[: spot.index]
            last = next((eqn for eqn in reversed(before) if eqn.op.sync is not None), None)
            eqn = spot.eqn
            if last is not None and (last.op, last.inputs, last.params) == (eqn.op, eqn.inputs, eqn.params):
                yield spot

    def _strengthened(self, spot: Spot) -> Tier:
        """A wait that leaves fewer operations in flight."""
        eqn, line = spot.eqn, wording.line(spot.eqn)
        name = "wait_n" if eqn.op is accumulator_load else "n"
        n = eqn.params[name]
        if n:
            text = wording.with_number(eqn, n, n - 1)
            text = f"write `{text}` in {line}" if text else f"wait in {line} until at most {n - 1} are in flight"
            yield self._changed(spot, text, with_params(eqn, **{name: n - 1}))
        if eqn.params.get("read_only"):
            text = f"leave out `wait_read_only=True` in {line}"
            yield self._changed(spot, text, with_params(eqn, read_only=False))

    def _registers(self) -> Tier:
        counts: set[int] = set()
        for spot in self._of(set_max_registers):
            eqn = spot.eqn
            counts.add(eqn.count)
            if eqn.action == "increase" and eqn.count >= 32:
                count = eqn.count - 8
                text = f'write `plgpu.set_max_registers({count}, action="increase")` in {wording.line(eqn)}'
                yield self._changed(spot, text, with_params(eqn, count=count))
        if not counts:
            return
        for gap in self.gaps:
            if not isinstance(gap.before, Eqn):
                for count in (24, 40):
                    params = {"count": count, "action": "decrease"}
                    place = None if gap.after is None else gap.after.location
                    eqn = form(set_max_registers, (), params, place)
                    yield self._inserted(gap, eqn, f'plgpu.set_max_registers({count}, action="decrease")')

    # The second tier: waits, arrivals and counts between threads.

    def _between_threads(self) -> Tier:
        for root in dict.fromkeys((*self.signals, *self._related())):
            if root in self.flags:
                continue
            arrival, wait = _CALLS[_space(root)]
            if not self.may_lack_arrivals:
                yield from self._signalled_in(self.near, root, wait)
            elif root in self.signals and not self._only_copies_arrive(root):
                yield from self._signalled_in(self.near, root, arrival)
        if self.code == "copy-not-awaited":
            yield from copy_awaited(self.program, self.survey, self.near)
        yield from self._swapped()
        for spot in self._of(semaphore_wait, semaphore_signal):
            amount = spot.eqn.amount
            if isinstance(amount, Literal):
                more = Literal(int(amount.value) + 1, amount.type.dtype)
                text = f"count {more.value} signals in {wording.line(spot.eqn)}"
                yield self._changed(spot, text, with_operand(spot.eqn, "amount", more))

    def _flags_raised(self) -> Tier:
        for root in self.signals:
            if root in self.flags:
                yield from self._raised(root, [gap for gap in self.near if not self._doubles(gap, OPS["atomic"], root)])

    def _between_threads_anywhere(self) -> Tier:
        """The other waits and arrivals: far from the finding, and next to those of the same reference."""
        for root in self.signals:
            if root in self.flags:
                yield from self._raised(root, self.gaps)
                continue
            arrival, wait = _CALLS[_space(root)]
            for gap in self.gaps:
                yield from self._signalled(gap, root, arrival if self.may_lack_arrivals else wait)
        for root in dict.fromkeys((*self.signals, *self._related())) if self.may_lack_arrivals else ():
            if root not in self.flags:
                yield from self._signalled_in(self.near, root, _CALLS[_space(root)][1])

    def _signalled_in(self, gaps: Iterable[Gap], root: Var, op: Op) -> Tier:
        for gap in gaps:
            if not self._doubles(gap, op, root):
                yield from self._signalled(gap, root, op)

    def _only_copies_arrive(self, root: Var) -> bool:
        """True if all arrivals at a barrier are made by copies: then a copy is missing."""
        ops = [
            spot.eqn.op
            for spot in self.survey.spots
            if any(self.survey.roots[spot.path].get(atom) is root for atom in spot.eqn.arrivals)
        ]
        return bool(ops) and all(op.sync is not None and op.sync.issues is not None for op in ops)

    def _doubles(self, gap: Gap, op: Op, root: Var) -> bool:
        """True if the same operation on this reference is already there: then its index may be wrong."""
        for eqn in (gap.before, gap.after):
            if eqn is not None and eqn.op is op:
                (reached,) = eqn.synchronised or (eqn.ref,)
                if self.survey.roots[gap.path].get(reached) is root:
                    return True
        return False

    def _related(self) -> list[Var]:
        """The barriers and semaphores used together with the memory of the finding, then all others."""
        touched = {root for spot in self.guilty for root in self.survey.roots_at(spot)}
        found: list[Var] = []
        for spot in self.survey.spots:
            roots = self.survey.roots_at(spot)
            if touched.intersection(roots):
                found += [root for root in roots if _space(root) in _CALLS]
        found += [root for root in self.survey.all_roots if _space(root) in _CALLS]
        return [root for root in dict.fromkeys(found) if root.type.attribute(Named) is None]  # type: ignore[union-attr]

    def _counts_of_arrivals(self) -> Tier:
        for root in dict.fromkeys((*self.signals, *self._related())):
            yield from self._recounted(root)

    def _recounted(self, root: Var) -> Tier:
        arrivals: Any = root.type.attribute(Arrivals)  # type: ignore[union-attr]
        for count in (arrivals.count - 1, arrivals.count + 1) if arrivals is not None else ():
            if count >= 1:
                name = self._name(root)
                text = f"let barrier `{name}` count {count}: `num_arrivals={count}`"
                yield Candidate(text, recounted(self.program, root, count), key=(root, count))

    def _signalled(self, gap: Gap, root: Var, op: Op) -> Tier:
        """Insertions of an arrival or a wait."""
        known = self.survey.known_as(root, gap.path, gap.index)
        if known is None or (op is barrier_wait and self.hopeless(gap.path, gap.index, root)):
            return
        extra, spelling, params = _SIGNALS[op]
        given = [(extra, spelling)]
        if op is semaphore_wait:
            given += [((Literal(count, "int32"),), f"pl.semaphore_wait({{}}, {count})") for count in self._counts]
        for stack, atoms, shown in self._forms(gap, root):
            for more, text in given:
                operands = [known, *((gap.path, each) for each in more), *atoms]
                yield from self._formed(gap, op, operands, {"transforms": stack, **params}, text.format(shown))

    def _formed(
        self, gap: Gap, op: Op, operands: Sequence[tuple[Path, Atom]], params: dict[str, Any], text: str
    ) -> Tier:
        """Insertions of an operation on atoms of outer programs."""
        found = self._with_atoms(gap.path, operands)
        if found is None:
            return
        program, names = found
        place = (gap.before or gap.after or self.guilty[0].eqn).location
        try:
            eqn = form(op, names, params, place)
        except PalladioError:  # not for these types
            return
        where = wording.between(gap.before, gap.after, gap.around)
        atoms = [atom.value if isinstance(atom, Literal) else atom for _, atom in operands]
        key = gap.path, gap.index, text, *atoms
        yield Candidate(f"add `{text}` {where}", replaced(program, gap.path, gap.index, 0, (eqn,)), key=key)

    @cached_property
    def _counts(self) -> list[int]:
        """The known numbers of blocks and of threads of the launches."""
        sizes = [[axis.size or 0 for axis in mesh.axes] for made in launches(self.program) for mesh in made.meshes]
        return [count for count in dict.fromkeys(map(math.prod, sizes)) if count > 1]

    def _raised(self, root: Var, gaps: Iterable[Gap]) -> Tier:
        """Insertions of an atomic access that raises a flag to signal a thread's progress."""
        kinds = [spot.eqn.params.get("kind") for spot in self.survey.spots if spot.eqn.op.atomic]
        for gap in gaps:
            known = self.survey.known_as(root, gap.path, gap.index)
            for stack, atoms, shown in self._forms(gap, root) if known is not None else ():
                for kind in dict.fromkeys(each for each in kinds if each is not None):
                    value = gap.path, Literal(1, root.type.dtype)  # type: ignore[union-attr]
                    name, _, index = shown.partition(".at[")
                    text = f"plgpu.atomic_{kind}({name}, {index[:-1] or '()'}, 1)"
                    params = {"transforms": stack, "kind": kind}
                    yield from self._formed(gap, OPS["atomic"], [known, value, *atoms], params, text)

    def _with_atoms(self, path: Path, operands: Sequence[tuple[Path, Atom]]) -> tuple[Program, list[Atom]] | None:
        """The program with atoms of outer programs passed in, and their names."""
        program, names = self.program, []
        for where, atom in operands:
            found = passed_in(part_at(program, where), path[len(where) :], atom)
            if found is None:
                return None
            part, name = found
            program = with_part_at(program, where, part)
            names.append(name)
        return program, names

    def _forms(self, gap: Gap, root: Var) -> Iterator[tuple[Any, list[tuple[Path, Atom]], str]]:
        """The forms of a reference to one of several barriers in a gap: transforms, index operands, and text."""
        name, shape = self._name(root), root.type.shape  # type: ignore[union-attr]
        if not shape:
            yield (), [], name
        if len(shape) != 1:
            return
        there = {atom: where for where, atom in reversed(self.survey.visible(gap.path, gap.index))}
        shown: dict[Any, str] = {}
        uses = [use for spot in self._by_distance(gap) for use in self.survey.uses(spot) if use.extent == shape[0]]
        uses += [use for spot in self.guilty for use in self.survey.uses(spot) if use.extent == shape[0] + 1]
        for use in uses:
            static = isinstance(use.index, int) and use.spot.path == gap.path
            if (static or use.index in there) and len(shown) < FORMS + (use.extent > shape[0]):
                shown.setdefault(use.index, self._index(use))
        for atom, text in (*self._remainders(gap, shape[0]), *self._places(gap, shape[0])):
            shown.setdefault(atom, text)
        for index, text in shown.items():
            if isinstance(index, int):
                yield (Index((index,)),), [], f"{name}.at[{index}]"
            else:
                yield (Index((Operand(0),)),), [(there[index], index)], f"{name}.at[{text}]"

    def _remainders(self, gap: Gap, extent: int) -> Iterator[tuple[Atom, str]]:
        """The remainders by a number of slots that a gap's program computes before the gap."""
        for eqn in part_at(self.program, gap.path).eqns[: gap.index]:
            if eqn.op is OPS["rem"] and isinstance(eqn.y, Literal) and eqn.y.value == extent:
                yield eqn.outputs[0], wording.source(eqn.location) or f"the remainder of {wording.line(eqn)}"

    def _places(self, gap: Gap, extent: int) -> Iterator[tuple[Atom, str]]:
        """The indices of a thread along the axes of its mesh that are as long as a reference, or longer by one."""
        for depth, (at, key, place) in enumerate(gap.path):
            if key == "programs" and extent > 1:
                mesh = part_at(self.program, gap.path[:depth]).eqns[at].launch.meshes[place]
                for axis, var in zip(mesh.axes, part_at(self.program, gap.path[: depth + 1]).inputs, strict=False):
                    if axis.size in (extent, extent + 1):
                        yield var, f'pl.axis_index("{axis.name}")'

    def _by_distance(self, gap: Gap) -> list[Spot]:
        return sorted(self.survey.spots, key=lambda spot: abs(self.survey.order(spot) - gap.order))

    def _swapped(self) -> Tier:
        """Equations that synchronise, moved over the next one."""
        for spot in self._synchronising():
            steps = [n for n, eqn in enumerate(spot.program.eqns) if eqn.op.sync is not None or eqn.synchronises]
            later = next((n for n in steps if n > spot.index), None)
            if later is None or spot.eqn.outputs:
                continue
            eqns = spot.program.eqns
            moved = (*eqns[spot.index + 1 : later + 1], spot.eqn)
            text = f"move `{wording.call(spot.eqn)}` ({wording.line(spot.eqn)}) after {wording.line(eqns[later])}"
            program = replaced(self.program, spot.path, spot.index, len(moved), moved)
            yield Candidate(text, program, key=(spot.path, spot.index, later + 1))

    # The third tier: misplaced equations.

    def _moved_away(self) -> Tier:
        """Equations that only synchronise, moved elsewhere in their program, near the lines of the finding."""
        for spot in [each for each in self._synchronising() if _only_synchronises(each.eqn)][:NEAR]:
            gaps = [gap for gap in self.gaps if gap.path == spot.path]
            for gap in [each for each in gaps if each.index not in (spot.index, spot.index + 1)][:NEAR]:
                moved = self._to(spot, gap)
                if moved is not None:
                    where = wording.between(gap.before, gap.after, gap.around)
                    text = f"move `{wording.call(spot.eqn)}` ({wording.line(spot.eqn)}): {where}"
                    yield Candidate(text, moved, key=(spot.path, spot.index, gap.index))

    def _to(self, spot: Spot, gap: Gap) -> Program | None:
        """The program with an equation moved within its sub-program; None if its operands are not available there."""
        eqns = spot.program.eqns
        if gap.index > spot.index:
            between = eqns[spot.index + 1 : gap.index]
            return replaced(self.program, spot.path, spot.index, len(between) + 1, (*between, spot.eqn))
        between = eqns[gap.index : spot.index]
        if {atom for eqn in between for atom in eqn.outputs}.intersection(spot.eqn.inputs):
            return None
        return replaced(self.program, spot.path, gap.index, len(between) + 1, (spot.eqn, *between))

    # The fourth tier: other slots, elements and blocks.

    def _elsewhere(self) -> Tier:
        for candidate in self._reached():
            yield replace(candidate, elsewhere=True)

    def _reached(self) -> Tier:
        signals = set(self.signals)
        touching = [s for s in self._synchronising() if signals.intersection(self.survey.roots_at(s))]
        guilty = sorted(self.guilty, key=self.survey.order)
        near = self._synchronising()[: 2 * NEAR]
        seen: set[tuple[Path, int]] = set()
        spots: list[Spot] = []
        memory = {root for spot in self.guilty for root in self.survey.roots_at(spot)}
        others = [spot for spot in self.survey.spots if memory.intersection(self.survey.roots_at(spot))]
        others = [spot for spot in others if not self.hopeless(spot.path, spot.index)]
        for spot in (*guilty, *touching, *near, *others):
            if (spot.path, spot.index) not in seen:
                seen.add((spot.path, spot.index))
                spots.append(spot)
        for (root, extent), uses in self._rings().items():
            yield from self._in_turn(root, uses, extent)
        for spot in spots:
            yield from self._as_neighbours(spot)
            yield from other_peers(self.program, self.survey, spot)
        for spot in spots:
            yield from self._other_slots(spot)
        yield from self._turned()

    def _turned(self) -> Tier:
        """All indices of one ring of slots replaced by those of another ring, or widened to all of its slots."""
        used = self._rings()
        for (root, extent), uses in used.items():
            for other, same in used:
                if other is not root and same == extent:
                    yield from self._along(root, uses, used[other, extent])
            others = [
                use for (other, same), uses in used.items() if other is not root and same == extent for use in uses
            ]
            yield from self._widened(uses, extent, f"`{self._name(root)}`", others)
        for extent in dict.fromkeys(extent for _, extent in used):
            together = [use for (_, same), uses in used.items() if same == extent for use in uses]
            yield from self._widened(together, extent, "the ring", ())

    def _rings(self) -> dict[tuple[Var, int], list[Use]]:
        """The indices of slots, by the reference and the number of its slots."""
        used: dict[tuple[Var, int], list[Use]] = {}
        for spot in self.survey.spots:
            for use in self.survey.uses(spot):
                root = self.survey.root(spot, use.position)
                if root is not None and _space(root) in (SMEM, BARRIER):
                    used.setdefault((root, use.extent), []).append(use)
        return used

    def _in_turn(self, root: Var, uses: Sequence[Use], extent: int) -> Tier:
        """The next slot for each write after a read, if only one of several slots along an axis is ever used."""
        for axis in dict.fromkeys(map(_own_axis, uses)):
            mine = sorted((use for use in uses if _own_axis(use) == axis), key=self._order)
            if len(mine) < 2 or {type(use.index) for use in mine} != {int} or len({use.index for use in mine}) > 1:
                continue
            program, slot, filled = self.program, 0, True
            for use in mine:
                writes = use.spot.eqn.inputs[use.position] in use.spot.eqn.written
                slot += writes and not filled
                filled = writes
                program = _in_place(program, use, slot % extent)
            yield Candidate(f"use the {extent} slots of `{self._name(root)}` in turn", program)

    def _order(self, use: Use) -> int:
        return self.survey.order(use.spot)

    def _along(self, root: Var, uses: Sequence[Use], others: Sequence[Use]) -> Tier:
        """The slots of one reference indexed like those of another, by the nearest access of the other."""
        program, changed = self.program, False
        for use in uses:
            there = self._atoms_at(use.spot)
            near = [other for other in others if other.spot.path == use.spot.path]
            near = [other for other in near if isinstance(other.index, int) or other.index in there]
            if not near:
                continue
            order = self.survey.order(use.spot)
            nearest = min(near, key=lambda other: abs(self.survey.order(other.spot) - order - 0.25))
            program = _in_place(program, use, nearest.index)
            changed = changed or nearest.index != use.index
        if changed:
            donor = self._name(self.survey.root(others[0].spot, others[0].position))
            yield Candidate(f"index `{self._name(root)}` as `{donor}` is indexed beside it", program)

    def _widened(self, uses: Sequence[Use], extent: int, what: str, others: Sequence[Use]) -> Tier:
        """Indices modulo the number of slots, where they were modulo fewer.

        Constant indices are replaced by those of another ring near them.
        """
        program, old = self.program, 0
        for use in uses:
            if isinstance(use.index, int):
                order = self.survey.order(use.spot)
                near = [each for each in others if isinstance(each.index, int) and each.spot.path == use.spot.path]
                nearest = min(near, key=lambda each: abs(self.survey.order(each.spot) - order), default=use)
                program = _in_place(program, use, nearest.index)
                continue
            eqn = remainder(use.spot.program, use.index)
            if eqn is not None and int(eqn.y.value) < extent:
                old = int(eqn.y.value)
                program = _modulo(program, use, eqn, extent)
        if old:
            yield Candidate(f"let {what} turn through {extent} slots, not {old}", program)

    def _as_neighbours(self, spot: Spot) -> Tier:
        """An index replaced by that of a near access."""
        there = self._atoms_at(spot)
        near = [use for other in self._by_distance(self._gap_at(spot)) for use in self.survey.uses(other)]
        for use in self.survey.uses(spot):
            others: dict[Any, str] = {}
            for other in near:
                fits = other.extent == use.extent and other.index != use.index
                if fits and (isinstance(other.index, int) or other.index in there) and len(others) < FORMS:
                    others.setdefault(other.index, self._index(other))
            name = self._name(self.survey.root(spot, use.position))
            for index, text in others.items():
                text = f"use `{name}.at[{text}]` in {wording.line(spot.eqn)}"
                key = use.position, use.level, use.axis, index
                yield self._changed(spot, text, _with_index(spot.eqn, use, index), key=key)

    def _other_slots(self, spot: Spot) -> Tier:
        """An index or a slice moved by one in either direction, modulo the extent."""
        eqn = spot.eqn
        axes = {(use.position, use.level, use.axis): (1, use.extent) for use in self.survey.uses(spot)}
        for position in range(len(eqn.op.stacks(eqn.transforms)) if eqn.op.index_start else 0):
            part = first_part(eqn, position) if isinstance(eqn.inputs[position].type, RefType) else None
            if part is not None:
                axes.setdefault((position, *part[:2]), part[2:])
        for (position, level, axis), (size, extent) in axes.items():
            name = self._name(self.survey.root(spot, position))
            yield from self._moved(spot, position, level, axis, size, extent, name)

    def _moved(self, spot: Spot, position: int, level: int, axis: int, size: int, extent: int, name: str) -> Tier:
        """An index moved by one slot in either direction, modulo the extent."""
        for step in dict.fromkeys((extent - size, size)):
            steps = [("add", step), ("rem", extent)]
            eqns = reindexed(spot.eqn, {position}, level, axis, lambda n, step=step: (n + step) % extent, steps)
            by = f"{step - extent if step == extent - size else step:+}"
            text = f"move the index of `{name}` in {wording.line(spot.eqn)} by {by}, modulo {extent}"
            yield self._changed(spot, text, *eqns, key=(position, level, axis))

    def _atoms_at(self, spot: Spot) -> set[Atom]:
        """The variables of the equation's sub-program that it may use."""
        return {atom for where, atom in self.survey.visible(spot.path, spot.index) if where == spot.path}

    def _gap_at(self, spot: Spot) -> Gap:
        return Gap(spot.path, spot.index, None, None, None, self.survey.order(spot))

    # The last tier: superfluous equations.

    def _removed(self, spots: Iterable[Spot]) -> Tier:
        for spot in spots:
            if not spot.eqn.outputs:
                text = f"remove `{wording.call(spot.eqn)}`, {wording.line(spot.eqn)}"
                yield self._changed(spot, text)

    # Words.

    def _name(self, root: Var | None) -> str:
        """The reference as written in the source if that can be read, else its name."""
        for spot in self.survey.spots if root is not None else ():
            for position in range(len(spot.eqn.inputs)):
                if self.survey.root(spot, position) is root and not spot.eqn.op.control:
                    found = wording.base(wording.operand(spot.eqn, position))
                    if found is not None:
                        return ast.unparse(found)
        return (root.hint if root is not None else "") or "it"

    def _index(self, use: Use) -> str:
        """An index as written in the source."""
        if isinstance(use.index, int):
            return str(use.index)
        found = wording.index(wording.operand(use.spot.eqn, use.position), use.axis)
        return ast.unparse(found) if found is not None else f"the index of {wording.line(use.spot.eqn)}"


def _space(root: Var) -> Any:
    return root.type.space if isinstance(root.type, RefType) else None


def _own_axis(use: Use) -> tuple[int, int]:
    """The level and axis of an index within the buffer, without a transform to another block."""
    stack = use.spot.eqn.op.stacks(use.spot.eqn.transforms)[use.position]
    return use.level - isinstance(stack[0], Peer), use.axis


def _with_index(eqn: Eqn, use: Use, index: Any) -> Eqn:
    """An equation with another index for one of its uses."""
    stacks, inputs = list(eqn.op.stacks(eqn.transforms)), list(eqn.inputs)
    stack = stacks[use.position]
    entries: list[Any] = list(stack[use.level].entries)
    if isinstance(index, int):
        entries[use.axis] = index
    else:
        entries[use.axis] = Operand(len(inputs) - eqn.op.index_start)
        inputs.append(index)
    stacks[use.position] = (*stack[: use.level], Index(tuple(entries)), *stack[use.level + 1 :])
    transforms = tuple(stacks) if eqn.op.ref_count > 1 else stacks[0]
    return replace(with_params(eqn, transforms=transforms), inputs=tuple(inputs))


def _in_place(program: Program, use: Use, index: Any) -> Program:
    """The program with another index for a use, whose equation may already have been changed for another use."""
    eqn = part_at(program, use.spot.path).eqns[use.spot.index]
    return replaced(program, use.spot.path, use.spot.index, 1, (_with_index(eqn, use, index),))


def _modulo(program: Program, use: Use, old: Eqn, count: int) -> Program:
    """The program with a use's index taken modulo another number, at the equation of the old remainder."""
    part = part_at(program, use.spot.path)
    at = next(number for number, eqn in enumerate(part.eqns) if eqn.outputs == old.outputs)
    new = with_operand(old, "y", Literal(count, old.y.type.dtype))
    return replaced(program, use.spot.path, at, 1, (new,))


_TRUE = Literal(True, bool)
_ONE = Literal(1, "int32")
_CALLS = {BARRIER: (barrier_arrive, barrier_wait), SEMAPHORE: (semaphore_signal, semaphore_wait)}
_SIGNALS: dict[Op, tuple[tuple[Atom, ...], str, dict[str, Any]]] = {
    barrier_arrive: ((_TRUE,), "plgpu.barrier_arrive({})", {}),
    barrier_wait: ((), "plgpu.barrier_wait({})", {}),
    semaphore_signal: ((_ONE,), "pl.semaphore_signal({})", {}),
    semaphore_wait: ((_ONE,), "pl.semaphore_wait({})", {"decrement": True}),
}
"""Operands and parameters of an inserted operation, besides the barrier or semaphore, and its text."""


def _synchronises(eqn: Eqn) -> bool:
    """True if an equation orders its thread's steps and those of others."""
    return not eqn.op.control and (eqn.op.sync is not None or eqn.op.atomic)


def _only_synchronises(eqn: Eqn) -> bool:
    """True if an equation synchronises, and computes and moves nothing."""
    return not eqn.outputs and not eqn.written and eqn.op.sync is not None and eqn.op.sync.issues is None


_Insertion = tuple[Op, dict[str, Any], str]
_STORES: tuple[_Insertion, ...] = (
    (wait_smem_to_gmem, {"n": 0, "read_only": True}, "plgpu.wait_smem_to_gmem(0, wait_read_only=True)"),
    (wait_smem_to_gmem, {"n": 0, "read_only": False}, "plgpu.wait_smem_to_gmem(0)"),
    (commit_smem_to_gmem_group, {}, "plgpu.commit_smem_to_gmem_group()"),
)
_ISSUES = (wgmma, accumulator_load, accumulator_store, copy_smem_to_gmem)
_OWN: tuple[tuple[tuple[Op, ...], tuple[str, ...], tuple[str, ...], tuple[_Insertion, ...]], ...] = (
    ((), ("missing-commit-smem",), (), ((commit_smem, {}, "plgpu.commit_smem()"),)),
    ((), ("missing-commit-gmem",), (), ((commit_gmem, {}, "plgpu.commit_gmem()"),)),
    (
        (wgmma_wait, accumulator_load),
        ("wgmma-operand-overwritten", "accumulator-in-flight", "unawaited-wgmma"),
        ("scope-in-use", "data-race"),
        ((wgmma_wait, {"n": 0}, "plgpu.wgmma_wait(0)"),),
    ),
    (
        (wait_smem_to_gmem,),
        ("store-source-overwritten", "unawaited-copy"),
        ("scope-in-use", "copy-not-awaited", "global-race"),
        _STORES,
    ),
)
"""The ways in which a thread orders its own operations.

The waits that may be strengthened; the codes of findings that it applies to, always or if such an operation takes part;
and the possible insertions.
"""
