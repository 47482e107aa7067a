"""Control flow: branches, loops, scopes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from palladio.hopper.emit.scalars import Scalar, register_type
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.values import (
    Accumulator,
    Barriers,
    Computed,
    Entry,
    Packed,
    Registers,
    Semaphores,
    Sites,
    Splat,
)
from palladio.hopper.layouts.registers import splat
from palladio.hopper.rules.tensor_cores import carry_packed, is_carried_packed, unpacked
from palladio.ir.core import Atom, Eqn, Program, Var, walk
from palladio.lower.refused import Refused
from palladio.ops.threads.wgmma import wgmma
from palladio.types import dtypes
from palladio.types.types import ACC, ArrayType


def _variable(scope: Scope, var: Var, initial: Atom | None) -> Entry:
    """A C variable for the result of branches or a loop's carry, with an optional initial value."""
    type = var.type
    if not isinstance(type, ArrayType):
        raise Refused("a reference that a branch chooses is not compiled for Hopper")
    if not type.shape:
        name = scope.name(var, "carry")
        start = f" = {scope.text(initial)}" if initial is not None else ""
        scope.w.line(f"{register_type(type.dtype)} {name}{start};")
        return Scalar(name, type.dtype, 1, name if dtypes.is_bool(type.dtype) else None)
    layout = scope.layout(var)
    target = scope.declare(var.hint or "carry", layout, type.dtype)
    if initial is not None:
        _assign(scope, target, initial)
    return target


def _carries(scope: Scope, carry: Sequence[Var], initial: Sequence[Atom]) -> list[Entry | Packed]:
    """C variables for the carry of a loop, with their initial values."""
    targets: list[Entry | Packed] = []
    for var, atom in zip(carry, initial, strict=True):
        if is_carried_packed(scope, var):
            target = Packed(scope.w.fresh(f"{var.hint or 'carry'}_packed"), scope.layout(var), var.type.dtype)
            carry_packed(scope, target, atom, declared=False)
            targets.append(target)
        else:
            targets.append(_variable(scope, var, atom))
    return targets


def _values(scope: Scope, targets: Sequence[Entry | Packed]) -> list[Entry]:
    """The values of a loop's variables at this point."""
    return [unpacked(scope, target) if isinstance(target, Packed) else target for target in targets]


def _assign(scope: Scope, target: Entry | Packed, atom: Atom) -> None:
    """Give a C variable a value."""
    if isinstance(target, Packed):
        carry_packed(scope, target, atom)
    elif isinstance(target, Scalar):
        scope.w.line(f"{target.text} = {scope.text(atom)};")
    elif isinstance(target, Registers):
        value = scope.array(atom, target.layout)
        if value is not target:
            scope.fill(target, lambda r: scope.element(value, r, target.layout))


def _assign_all(scope: Scope, targets: Sequence[Entry | Packed], atoms: Sequence[Atom]) -> None:
    """Assign to C variables in parallel: all new values are computed from the old ones."""
    entries = [scope.entry(atom) for atom in atoms]
    moving = [n for n, (target, entry) in enumerate(zip(targets, entries, strict=True)) if target is not entry]
    for place, n in enumerate(moving):
        if _mentions(entries[n], [targets[earlier] for earlier in moving[:place]]):
            entries[n] = _kept(scope, entries[n], targets[n])
    for n in moving:
        target, entry = targets[n], entries[n]
        if isinstance(target, Scalar) and isinstance(entry, Scalar):
            scope.w.line(f"{target.text} = {entry.text};")
        elif isinstance(target, (Registers, Packed)):
            stand_in = Var(ArrayType(target.layout.shape, target.dtype))
            scope.env[stand_in] = entry
            _assign(scope, target, stand_in)


def _mentions(entry: Entry, variables: Sequence[Entry | Packed]) -> bool:
    """True if the C expressions of a value read one of these variables."""
    names = [re.escape(_name(each)) for each in variables]
    text = entry.at(splat(entry.shape), "r", "thread") if isinstance(entry, Computed) else _name(entry)
    return bool(names) and re.search(rf"\b(?:{'|'.join(names)})\b", text) is not None


def _name(entry: Entry | Packed) -> str:
    """The C expression of a number, or the name of an array."""
    return entry.text if isinstance(entry, (Scalar, Splat)) else entry.name  # type: ignore[union-attr]


def _kept(scope: Scope, entry: Entry, target: Entry | Packed) -> Entry:
    """A value that later assignments do not change, for a variable."""
    if isinstance(entry, (Scalar, Splat)):
        name = scope.w.fresh("before")
        scope.w.line(f"const {register_type(entry.dtype)} {name} = {entry.text};")
        return Scalar(name, entry.dtype) if isinstance(entry, Scalar) else replace(entry, text=name)
    if isinstance(entry, Registers):
        copy = scope.declare("before", entry.layout, entry.dtype)
        return scope.fill(copy, entry.at)
    layout = target.layout  # type: ignore[union-attr]
    copy = scope.declare("before", layout, target.dtype)  # type: ignore[union-attr]
    return scope.fill(copy, lambda r: scope.element(entry, r, layout))  # type: ignore[arg-type]


def _unordered(scope: Scope, *programs: Program) -> None:
    """Assume that all accesses of code that may run any number of times are unordered, inside it and after it."""
    scope.sites = Sites(set(scope.sites.read) | scope.accessed_roots, set(scope.sites.written) | scope.stored_roots)
    if any(eqn.op is wgmma for program in programs for eqn in walk(program)):
        scope.flight, scope.before = [], True


def _branch(scope: Scope, branch: Program, atoms: Sequence[Atom], targets: Sequence[Entry]) -> None:
    scope.bind(branch.inputs, atoms)
    scope.run(branch)
    for target, atom in zip(targets, branch.outputs, strict=True):
        _assign(scope, target, atom)


def _is_empty(branch: Program) -> bool:
    return not branch.eqns and not branch.outputs


def _cond(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    index, *atoms = eqn.inputs
    branches = eqn.branches
    targets = [_variable(scope, var, None) for var in eqn.outputs]
    number = scope.scalar(index)
    before = Sites(set(scope.sites.read), set(scope.sites.written))
    flight, older = list(scope.flight), scope.before
    ends = []
    for head, branch in _arms(number, branches):
        scope.sites = Sites(set(before.read), set(before.written))
        scope.flight, scope.before = list(flight), older
        with scope.w.block(head):
            _branch(scope, branch, atoms, targets)
        ends.append((scope.sites, scope.flight, scope.before))
    ends.append((before, flight, older))
    scope.sites = Sites(
        set().union(*(sites.read for sites, _, _ in ends)), set().union(*(sites.written for sites, _, _ in ends))
    )
    longest = max((names for _, names, _ in ends), key=len)
    same = all(names == longest for _, names, _ in ends)
    scope.flight, scope.before = (longest, any(b for _, _, b in ends)) if same else (_common_tail(ends), True)
    return targets


def _common_tail(ends: Sequence[tuple[Sites, list[str], bool]]) -> list[str]:
    """The latest products in flight that all branches have in common."""
    tail: list[str] = []
    for names in zip(*(reversed(flight) for _, flight, _ in ends)):
        if len(set(names)) > 1:
            break
        tail.insert(0, names[0])
    return tail


def _arms(number: Scalar, branches: Sequence[Program]) -> list[tuple[str, Program]]:
    """The branches with their conditions, without empty ones where possible."""
    if len(branches) == 1:
        return [("", branches[0])]
    if len(branches) == 2:
        test = number.truth or f"{number.text} > 0"
        if _is_empty(branches[0]):
            return [] if _is_empty(branches[1]) else [(f"if ({test})", branches[1])]
        if _is_empty(branches[1]):
            return [(f"if (!({test}))", branches[0])]
        return [(f"if ({test})", branches[1]), ("else", branches[0])]
    last = len(branches) - 1
    tests = [f"{number.text} <= 0", *(f"{number.text} == {n}" for n in range(1, last))]
    heads = [f"{'else ' if n else ''}if ({test})" for n, test in enumerate(tests)]
    return list(zip([*heads, "else"], branches, strict=True))


def _loop(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    lower, upper, *rest = eqn.inputs
    body, constants = eqn.body, eqn.constants
    step, unroll = eqn.step, eqn.unroll
    scope.bind(body.inputs[1 : 1 + constants], rest[:constants])
    carry = body.inputs[1 + constants :]
    targets = _carries(scope, carry, rest[constants:])
    dtype = lower.type.dtype
    index = scope.name(body.inputs[0], "step")
    scope.env[body.inputs[0]] = Scalar(index, dtype)
    _unordered(scope, body)
    scope.w.line({0: "PAL_UNROLL", 1: "PAL_ROLLED"}.get(unroll, f'_Pragma("unroll {unroll}")'))
    advance = f"++{index}" if step == 1 else f"{index} += {step}"
    head = f"{register_type(dtype)} {index} = {scope.text(lower)}; {index} < {scope.text(upper)}; {advance}"
    with scope.w.block(f"for ({head})"), scope.loop():
        scope.env.update(zip(carry, _values(scope, targets), strict=True))
        scope.run(body)
        _assign_all(scope, targets, body.outputs)
    _unordered(scope, body)
    return _values(scope, targets)


def _repeat(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    condition, body, constants = eqn.condition, eqn.body, eqn.constants
    carry = body.inputs[constants:]
    targets = [_variable(scope, var, atom) for var, atom in zip(carry, eqn.inputs[constants:], strict=True)]
    for program in (condition, body):
        scope.bind(program.inputs[:constants], eqn.inputs[:constants])
        scope.env.update(zip(program.inputs[constants:], targets, strict=True))
    _unordered(scope, body)
    scope.w.line("PAL_ROLLED")
    with scope.w.block("while (true)"), scope.loop():
        scope.run(condition)
        scope.w.line(f"if (!({scope.text(condition.outputs[0])})) break;")
        scope.run(body)
        _assign_all(scope, targets, body.outputs)
    _unordered(scope, body)
    return targets


def _scope(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    """Private allocations of each thread."""
    body = eqn.body
    count = len(eqn.inputs)
    scope.bind(body.inputs[:count], eqn.inputs)
    known = set(scope.accumulators)
    with nullcontext() if eqn.outputs else scope.w.block(""):
        for var in body.inputs[count:]:
            if var.type.space is ACC:
                scope.env[var] = _accumulator(scope, var, replaced=_is_replaced_first(body, var))
            else:
                scope.env[var] = scope.place_of_each(var)
        _begin_again(scope, body.inputs[count:], "thread == 0", shared=False)
        scope.run(body)
    outputs = [scope.entry(atom) for atom in body.outputs]
    for name in set(scope.accumulators) - known:
        del scope.accumulators[name]
        scope.flight = [busy for busy in scope.flight if busy != name]
    return outputs


def allocated(scope: Scope, var: Var, of_block: bool = False) -> Entry:
    """The allocation of a reference that a block's threads share, or of an accumulator, which each thread has.

    Args:
        of_block: other blocks do not share it.
    """
    if var.type.space is ACC:
        return _accumulator(scope, var)
    return scope.place_of_block(var) if of_block else scope.place(var)


def _is_replaced_first(body: Program, acc: Var) -> bool:
    """True if the first use of an accumulator is a product that covers it, which can overwrite instead of add."""
    first = next((eqn for eqn in body.eqns if acc in eqn.inputs), None)
    return first is not None and first.op is wgmma and not first.transforms[0]


def _accumulator(scope: Scope, var: Var, replaced: bool = False) -> Accumulator:
    """Registers for an accumulator, initialised to zero unless the first product overwrites them."""
    rows, columns = var.type.shape
    if rows % 64 or columns % 8 or columns > 512:
        raise Refused(
            "an accumulator has a multiple of 64 rows and one of 8 columns", got=str(var.type), hint="pad the block"
        )
    name = scope.name(var, "acc")
    made = Accumulator(name, var.type)
    tiles, tile = rows // 64, made.tile
    scope.w.line(f"{made.kind} {name}[{tiles}][{tile}];")
    keeps = " ".join(f"pal::keep({name}[{n}]);" for n in range(tiles))
    if replaced:
        scope.replaced.add(name)
    else:
        scope.w.line(f"PAL_UNROLL for (int r = 0; r < {tiles * tile}; ++r) {name}[r / {tile}][r % {tile}] = 0;")
        scope.w.line(keeps)  # the zeros are in registers before a product starts; otherwise ptxas serialises it
    scope.accumulators[name] = keeps
    return made


def _begin_again(scope: Scope, allocations: Sequence[Var], first: str | None, shared: bool) -> None:
    """Give a scope in a loop the semaphores and barriers of a first entry: the launch prepares them only once.

    Peers may complete phases of a cluster's barriers at any time. So its blocks meet first; where they cannot, threads
    have observed all phases (`emit/phases.py`).

    Args:
        first: true in the thread that zeroes semaphores, a C expression; None if another role does it.
        shared: the threads of the block share the allocations, and have met. Otherwise one thread has them, which
            signals and waits with the same lane that zeroes semaphores.
    """
    found = [scope.env[var] for var in allocations] if scope.loops else []
    semaphores = [each for each in found if isinstance(each, Semaphores)]
    met = any(isinstance(each, Barriers) and each.root in scope.kernel.met for each in found)
    barriers = [
        each for each in found if isinstance(each, Barriers) and (not each.clustered or each.root in scope.kernel.met)
    ]
    if met:
        scope.meet_cluster()
    elif barriers and not shared:
        scope.sync()  # all warps have arrived in the entry before, also where none has waited
    for each in semaphores if first is not None else ():
        count = max(1, each.type.size)
        loop = f" for (int element = 0; element < {count}; ++element)" if count > 1 else ""
        scope.w.line(f"if ({first}){loop} pal::store_global<int>({each.name}{' + element' if loop else ''}, 0);")
    for each in barriers:
        count = max(1, each.type.size)
        for n in range(each.words):
            scope.w.line(f"{each.phase(32 * n)[0]} = 0;")
        if each.ahead is not None:
            scope.w.line(f"PAL_UNROLL for (int element = 0; element < {count}; ++element) {each.ahead}[element] = 0;")
        head = f"PAL_UNROLL for (int element = 0; element < {count}; ++element)"
        word, bit = each.phase("element")
        scope.w.line(f"{head} {word} |= (u32)pal::test({each.base} + 8 * element, 0) << {bit};")
    if met:
        scope.meet_cluster()
    elif shared and (semaphores or barriers):
        scope.meet()
    elif barriers:
        scope.sync()


def _collective_scope(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    """Allocations that the threads of a block share. They meet at its entry: all have left it before, in a loop."""
    body = eqn.body
    count = len(eqn.inputs)
    scope.bind(body.inputs[:count], eqn.inputs)
    scope.meet()
    for var in body.inputs[count:]:
        scope.env[var] = allocated(scope, var, of_block=True)
    first = "thread == 0" if len(scope.threads) == 1 else "warpgroup == 0 && thread == 0"
    _begin_again(scope, body.inputs[count:], first if 0 in scope.threads else None, shared=True)
    scope.run(body)
    return [scope.entry(atom) for atom in body.outputs]


RULES: dict[str, Rule] = {
    "cond": _cond,
    "loop": _loop,
    "repeat": _repeat,
    "scope": _scope,
    "collective_scope": _collective_scope,
}
