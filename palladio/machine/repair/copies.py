"""Missing copies, and waits for copies on semaphores, derived from another copy of the program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palladio.base.errors import PalladioError
from palladio.ir.bind import form
from palladio.ir.core import Atom, Eqn, Literal, Program
from palladio.machine.repair import wording
from palladio.machine.repair.candidate import Candidate, Tier
from palladio.machine.repair.edit import replaced, shape_at, with_operand, with_params
from palladio.machine.repair.survey import Gap, Survey
from palladio.ops.threads.copy import dma_start, dma_start_remote, dma_wait
from palladio.types.transforms import Index, Operand


def copied_like_sibling(program: Program, survey: Survey, gaps: Sequence[Gap]) -> Tier:
    """A copy like another one of its program, with all constant slot indices one higher or one lower.

    A copy of a value sends the last unused value of its type, if there is one.
    """
    for spot in survey.spots:
        eqn = spot.eqn
        if eqn.op.sync is None or eqn.op.sync.issues is None or not eqn.op.sync.arrives:
            continue
        for step in (1, -1):
            moved = _one_slot_on(eqn, step)
            if moved is None:
                continue
            for gap in [gap for gap in gaps if gap.path == spot.path]:
                known = {atom for at, atom in survey.visible(gap.path, gap.index) if at == gap.path}
                copy = _sending(moved, spot.program)
                if all(isinstance(atom, Literal) or atom in known for atom in copy.inputs):
                    where = wording.between(gap.before, gap.after, gap.around)
                    text = f"start a copy like that of {wording.line(eqn)}, {step:+} in each slot, {where}"
                    changed = replaced(program, gap.path, gap.index, 0, (copy,))
                    yield Candidate(text, changed, key=(gap.path, gap.index, spot.index, step))


def _one_slot_on(eqn: Eqn, step: int) -> Eqn | None:
    """An access with all constant indices stepped; None if there are none, or one would be out of bounds."""
    stacks, changed = list(eqn.op.stacks(eqn.transforms)), False
    for position, stack in enumerate(stacks):
        for level, transform in enumerate(stack):
            if not isinstance(transform, Index):
                continue
            shape = shape_at(eqn, position, level)
            entries: list[Any] = list(transform.entries)
            for axis, entry in enumerate(entries):
                if isinstance(entry, int):
                    if not 0 <= entry + step < shape[axis]:
                        return None
                    entries[axis], changed = entry + step, True
            stack = (*stack[:level], Index(tuple(entries)), *stack[level + 1 :])
        stacks[position] = stack
    return with_params(eqn, transforms=tuple(stacks) if eqn.op.ref_count > 1 else stacks[0]) if changed else None


def _sending(eqn: Eqn, program: Program) -> Eqn:
    """A copy; if it copies a value, of an unused one of that type, if the program has one."""
    if "value" not in eqn.op.signature.operands:
        return eqn
    used = {atom for each in program.eqns for atom in each.inputs} | set(program.outputs)
    made = [var for each in program.eqns for var in each.outputs if var.type == eqn.value.type and var not in used]
    return with_operand(eqn, "value", made[-1]) if made else eqn


def copy_awaited(program: Program, survey: Survey, gaps: Sequence[Gap]) -> Tier:
    """A wait for a copy that signals a semaphore, inserted after its start in the same thread."""
    for spot in survey.spots:
        eqn = spot.eqn
        if eqn.op not in (dma_start, dma_start_remote):
            continue
        stack, operands = _alone(eqn, eqn.op.signature.operands.index("semaphore"))
        target = eqn.op.signature.operands.index("target")
        shape = shape_at(eqn, target, len(eqn.op.stacks(eqn.transforms)[target]))
        amount = math.prod(shape) * eqn.target.type.dtype.itemsize
        for gap in gaps:
            if gap.path == spot.path and gap.index > spot.index:
                try:
                    params = {"transforms": stack, "amount": amount}
                    wait = form(dma_wait, (eqn.semaphore, *operands), params, eqn.location)
                except PalladioError:  # not for this semaphore
                    continue
                where = wording.between(gap.before, gap.after, gap.around)
                text = f"wait for the copy of {wording.line(eqn)} {where}"
                yield Candidate(
                    text, replaced(program, gap.path, gap.index, 0, (wait,)), key=(gap.path, gap.index, spot.index)
                )


def _alone(eqn: Eqn, position: int) -> tuple[tuple[Any, ...], list[Atom]]:
    """The transforms of one reference of an access, and their index operands alone."""
    operands: list[Atom] = []

    def own(entry: Any) -> Any:
        if not isinstance(entry, Operand):
            return entry
        operands.append(eqn.indices[entry.position])
        return replace(entry, position=len(operands) - 1)

    stack = eqn.op.stacks(eqn.transforms)[position]
    return tuple(Index(tuple(map(own, each.entries))) if isinstance(each, Index) else each for each in stack), operands


__all__ = ["copied_like_sibling", "copy_awaited"]
