"""Dead-code elimination: remove equations with unused results.

An equation stays if one of its outputs is used, or if it has a visible effect: a write to a reference
that is an input of the program or is read later on, printing, checking. Writes to an allocation that is never read are
not visible. Sub-programs lose their unused outputs, carries and inputs, so that equations that feed only those are
removed too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from palladio.ir.core import Atom, Eqn, Program, Var
from palladio.ir.rewrite import map_subprograms, with_body, with_parts, with_signature
from palladio.passes.pipeline import ANY, Pass
from palladio.types.effects import EffectKind

Used = Sequence[bool]


def remove_dead_code_from(program: Program, unseen: Iterable[Var] = ()) -> Program:
    """The program without unneeded equations.

    Args:
        unseen: references whose final contents are not visible, e.g. those that a scope allocates.
    """
    needed: set[Atom] = set(program.outputs)
    ignored = set(unseen)
    kept: list[Eqn] = []
    for eqn in reversed(program.eqns):
        if not any(var in needed for var in eqn.outputs) and not _is_seen(eqn, ignored):
            continue
        eqn = _narrowed(eqn, [var in needed for var in eqn.outputs])
        needed.update(eqn.inputs)
        ignored -= {var for kind, var in eqn.effects if kind is EffectKind.READ}
        kept.append(eqn)
    return with_body(program, reversed(kept), program.outputs)


def _is_seen(eqn: Eqn, ignored: set[Var]) -> bool:
    """True if an effect of the equation matters, given the references that are not read after it."""
    return any(kind is not EffectKind.READ and (var is None or var not in ignored) for kind, var in eqn.effects)


def _narrowed(eqn: Eqn, used: Used) -> Eqn:
    """The equation with its sub-programs cleaned, and without unused outputs and inputs."""
    narrow = _NARROW.get(eqn.op.name)
    if narrow is not None:
        return narrow(eqn, used)
    params = map_subprograms(eqn.params, remove_dead_code_from)
    return with_parts(eqn, eqn.inputs, params)


def _pick(items: Sequence[Any], flags: Used) -> tuple[Any, ...]:
    return tuple(item for item, flag in zip(items, flags, strict=True) if flag)


def _uses(program: Program) -> list[bool]:
    """For each input of a program, whether it is used."""
    found: set[Atom] = {atom for eqn in program.eqns for atom in eqn.inputs} | set(program.outputs)
    return [var in found for var in program.inputs]


def _any_of(*flags: Used) -> list[bool]:
    return [any(column) for column in zip(*flags, strict=True)]


def _replaced(eqn: Eqn, inputs: Sequence[Atom], params: dict[str, Any], used: Used) -> Eqn:
    """The equation with other inputs and parameters and only its used outputs; the same object if nothing changed."""
    same = all(used) and len(inputs) == len(eqn.inputs)
    if same and all(params[key] == value for key, value in eqn.params.items()):
        return eqn
    narrowed = Eqn(eqn.op, tuple(inputs), _pick(eqn.outputs, used), params, (), eqn.location)
    effects = eqn.op.effects_of(narrowed.input_types, params)
    bound = tuple((e.kind, None if e.position is None else inputs[e.position]) for e in effects)
    return Eqn(eqn.op, narrowed.inputs, narrowed.outputs, params, bound, eqn.location)  # type: ignore[arg-type]


def _cond(eqn: Eqn, used: Used) -> Eqn:
    branches = [
        remove_dead_code_from(with_signature(branch, branch.inputs, _pick(branch.outputs, used)))
        if not all(used)
        else remove_dead_code_from(branch)
        for branch in eqn.branches
    ]
    taken = _any_of(*map(_uses, branches))
    if not all(taken):
        branches = [with_signature(branch, _pick(branch.inputs, taken), branch.outputs) for branch in branches]
    params = {**eqn.params, "branches": tuple(branches)}
    return _replaced(eqn, (eqn.index, *_pick(eqn.operands, taken)), params, used)


def _scope(eqn: Eqn, used: Used) -> Eqn:
    body: Program = eqn.body
    operands = len(eqn.inputs)
    if not all(used):
        body = with_signature(body, body.inputs, _pick(body.outputs, used))
    body = remove_dead_code_from(body, body.inputs[operands:])
    taken = _uses(body)
    if not all(taken):
        body = with_signature(body, _pick(body.inputs, taken), body.outputs)
    allocations = _pick(eqn.allocations, taken[operands:])
    params = {**eqn.params, "body": body, "allocations": allocations}
    return _replaced(eqn, _pick(eqn.inputs, taken[:operands]), params, used)


def _needed_carries(programs: Sequence[Program], leading: int, constants: int, used: Used) -> list[bool]:
    """One flag for each carry: needed after the loop, or by a needed carry or effect in it.

    The last of the programs is the body.
    """
    needed = list(used)
    body = programs[-1]
    while True:
        trimmed = [
            remove_dead_code_from(with_signature(program, program.inputs, _pick(program.outputs, needed)))
            if program is body
            else program
            for program in programs
        ]
        uses = _any_of(*(_uses(program)[leading + constants :] for program in trimmed))
        more = _any_of(needed, uses)
        if more == needed:
            return needed
        needed = more


def _counted(eqn: Eqn, used: Used) -> Eqn:
    return _loop(eqn, used, ("body",), 2, 1)


def _repeated(eqn: Eqn, used: Used) -> Eqn:
    return _loop(eqn, used, ("condition", "body"), 0, 0)


def _loop(eqn: Eqn, used: Used, names: Sequence[str], bounds: int, leading: int) -> Eqn:
    """Narrow a loop: its first `bounds` inputs are bounds, and its body's first `leading` inputs are counters."""
    constants: int = eqn.constants
    programs = [remove_dead_code_from(eqn.params[name]) for name in names]
    carries = _needed_carries(programs, leading, constants, used)
    if not all(carries):
        body = programs[-1]
        programs[-1] = remove_dead_code_from(with_signature(body, body.inputs, _pick(body.outputs, carries)))
    fixed = _any_of(*(_uses(program)[leading : leading + constants] for program in programs))
    taken = [*fixed, *carries]
    if not all(taken):
        flags = [True] * leading + taken
        programs = [with_signature(each, _pick(each.inputs, flags), each.outputs) for each in programs]
    params = {**eqn.params, **dict(zip(names, programs, strict=True)), "constants": sum(fixed)}
    return _replaced(eqn, (*eqn.inputs[:bounds], *_pick(eqn.inputs[bounds:], taken)), params, carries)


_NARROW: dict[str, Callable[[Eqn, Used], Eqn]] = {
    "cond": _cond,
    "loop": _counted,
    "repeat": _repeated,
    "scope": _scope,
}
"""The rule that narrows each control-flow operation, by name. An operation without one keeps its inputs and outputs."""


remove_dead_code = Pass(
    name="remove_dead_code",
    consumes=ANY,
    produces=ANY,
    run=remove_dead_code_from,
    doc="Removes equations whose outputs are unused and whose effects are not seen. Wants to come last: the other "
    "passes only redirect uses, and leave what they no longer need to this one.",
)
