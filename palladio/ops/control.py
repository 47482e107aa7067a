"""Control flow: operations that run sub-programs. Captured values are passed as operands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.core import Atom, ControlEval, DischargeContext, Discharged, Op, Program, Run
from palladio.types import dtypes
from palladio.types.effects import Effect, EffectKind
from palladio.types.types import ArrayType, RefType, Type

INDEX = ArrayType((), dtypes.INT32)


def _require_inputs(what: str, program: Program, given: Sequence[Type]) -> None:
    if program.input_types != tuple(given):
        raise PalladioTypeError(
            f"{what} is called with other types than it takes",
            expected=", ".join(map(str, program.input_types)),
            got=", ".join(map(str, given)),
        )


def _moved(program: Program, shift: int) -> Iterator[Effect]:
    """The effects of a sub-program whose input n is operand n + shift."""
    for effect in program.effects:
        yield effect if effect.position is None else Effect(effect.kind, effect.position + shift)


# cond


def _cond_type(index: Type, *operands: Type, branches: tuple[Program, ...]) -> Sequence[Type]:
    if index != INDEX:
        raise PalladioTypeError("the branch index is a scalar int32", got=str(index))
    for number, branch in enumerate(branches):
        _require_inputs(f"branch {number}", branch, operands)
        if branch.output_types != branches[0].output_types:
            raise PalladioTypeError(
                f"branch {number} returns other types than branch 0",
                expected=", ".join(map(str, branches[0].output_types)),
                got=", ".join(map(str, branch.output_types)),
            )
    return branches[0].output_types


def _cond_eval(index: Any, *operands: Any, branches: tuple[Program, ...]) -> ControlEval:
    return (yield Run(branches[min(max(int(index), 0), len(branches) - 1)], operands))


def _cond_effects(_: Type, *operands: Type, branches: tuple[Program, ...]) -> Iterator[Effect]:
    for branch in branches:
        yield from _moved(branch, 1)


def _cond_discharge(
    context: DischargeContext, index: Atom, *operands: Atom, branches: tuple[Program, ...]
) -> Discharged:
    """All branches return the last value of each reference that one of them changes."""
    changed = sorted(context.changed)
    positions, returned = [p - 1 for p in context.discharged], [p - 1 for p in changed]
    inner = tuple(context.discharge(branch, positions, returned) for branch in branches)
    results = context.emit(cond, index, *operands, branches=inner)
    return _split(results, len(branches[0].outputs), changed)


def _split(results: Sequence[Atom], count: int, changed: Sequence[int]) -> Discharged:
    """Split results into the original outputs and the new values of the changed references, which follow them."""
    return Discharged(results[:count], dict(zip(changed, results[count:], strict=True)))


cond = Op(
    "cond",
    "Runs branch number `index: i32[]` (clamped into range) on the operands and returns its outputs.",
    _cond_type,
    _cond_eval,
    effects=_cond_effects,
    discharge=_cond_discharge,
    control=True,
    own_operands=1,
)


# loop: a counted loop


def _carry_types(operands: Sequence[Type], constants: int) -> Sequence[Type]:
    carry = operands[constants:]
    for type in carry:
        if isinstance(type, RefType):
            raise PalladioTypeError("a reference cannot be a loop carry; use it from inside the body", got=str(type))
    return carry


def _loop_type(
    lower: Type, upper: Type, *operands: Type, body: Program, constants: int, step: int, unroll: int
) -> Sequence[Type]:
    if not isinstance(lower, ArrayType) or lower.shape != () or not dtypes.is_integer(lower.dtype) or lower != upper:
        raise PalladioTypeError("the bounds of a loop are scalar integers of one dtype", got=f"{lower}, {upper}")
    if step < 1 or unroll < 0:
        raise PalladioValueError("the step is at least 1 and the unrolling at least 0", got=f"{step}, {unroll}")
    _require_inputs("the loop body", body, (lower, *operands))
    carry = _carry_types(operands, constants)
    if body.output_types != tuple(carry):
        raise PalladioTypeError(
            "the loop body must return the types of its carry",
            expected=", ".join(map(str, carry)),
            got=", ".join(map(str, body.output_types)),
        )
    return carry


def _loop_eval(
    lower: Any, upper: Any, *operands: Any, body: Program, constants: int, step: int, unroll: int
) -> ControlEval:
    fixed, carry = operands[:constants], operands[constants:]
    integer = np.asarray(lower).dtype.type
    for index in range(int(lower), int(upper), step):
        carry = yield Run(body, (integer(index), *fixed, *carry))
    return carry


def _loop_effects(
    lower: Type, upper: Type, *operands: Type, body: Program, constants: int, step: int, unroll: int
) -> Iterator[Effect]:
    return _moved(body, 1)


def _carried(operands: Sequence[Atom], constants: int, changed: Iterable[int]) -> tuple[list[int], int]:
    """The order of a discharged loop's operands, and the number of constants: changed references end the carry."""
    joining = sorted(changed)
    kept = [n for n in range(constants) if n not in joining]
    return [*kept, *range(constants, len(operands)), *joining], len(kept)


def _reordered(program: Program, leading: int, order: Sequence[int]) -> Program:
    """The program with its inputs after the first `leading` ones in another order."""
    inputs = (*program.inputs[:leading], *(program.inputs[n + leading] for n in order))
    return Program(inputs, program.eqns, program.outputs, program.name, program.location)


def _loop_discharge(
    context: DischargeContext, lower: Atom, upper: Atom, *operands: Atom, body: Program, constants: int, **params: Any
) -> Discharged:
    changed = sorted(context.changed)
    inner = context.discharge(body, [p - 1 for p in context.discharged], [p - 1 for p in changed])
    order, kept = _carried(operands, constants, [p - 2 for p in changed])
    inputs = (operands[n] for n in order)
    results = context.emit(loop, lower, upper, *inputs, body=_reordered(inner, 1, order), constants=kept, **params)
    return _split(results, len(operands) - constants, changed)


loop = Op(
    "loop",
    "Runs `body(i, *constants, *carry) -> carry` for i from `lower` below `upper` in steps of `step` and returns the"
    " last carry. "
    "The first `constants` operands after the bounds are the same in every iteration. `unroll` is advice: 0 means "
    "whole.",
    _loop_type,
    _loop_eval,
    effects=_loop_effects,
    discharge=_loop_discharge,
    control=True,
    own_operands=1,
)


# repeat: a while loop


def _repeat_type(*operands: Type, condition: Program, body: Program, constants: int) -> Sequence[Type]:
    _require_inputs("the loop condition", condition, operands)
    _require_inputs("the loop body", body, operands)
    if any(effect.kind is not EffectKind.READ for effect in condition.effects if effect.position is not None):
        raise PalladioTypeError("a loop condition may read a reference but not write it")
    carry = _carry_types(operands, constants)
    if condition.output_types != (ArrayType((), dtypes.BOOL),):
        raise PalladioTypeError(
            "the loop condition returns one scalar bool", got=", ".join(map(str, condition.output_types)) or "nothing"
        )
    if body.output_types != tuple(carry):
        raise PalladioTypeError(
            "the loop body must return the types of its carry",
            expected=", ".join(map(str, carry)),
            got=", ".join(map(str, body.output_types)),
        )
    return carry


def _repeat_eval(*operands: Any, condition: Program, body: Program, constants: int) -> ControlEval:
    fixed, carry = operands[:constants], operands[constants:]
    while (yield Run(condition, (*fixed, *carry)))[0]:
        carry = yield Run(body, (*fixed, *carry))
    return carry


def _repeat_effects(*operands: Type, condition: Program, body: Program, constants: int) -> Iterator[Effect]:
    yield from _moved(condition, 0)
    yield from _moved(body, 0)


def _repeat_discharge(
    context: DischargeContext, *operands: Atom, condition: Program, body: Program, constants: int
) -> Discharged:
    changed = sorted(context.changed)
    test = context.discharge(condition, context.discharged, ())
    inner = context.discharge(body, context.discharged, changed)
    order, kept = _carried(operands, constants, changed)
    inputs = (operands[n] for n in order)
    programs = {"condition": _reordered(test, 0, order), "body": _reordered(inner, 0, order)}
    results = context.emit(repeat, *inputs, **programs, constants=kept)
    return _split(results, len(operands) - constants, changed)


repeat = Op(
    "repeat",
    "Runs `body(*constants, *carry) -> carry` while `condition(*constants, *carry) -> bool[]` holds; returns the "
    "last carry. "
    "The first `constants` operands are the same in every iteration.",
    _repeat_type,
    _repeat_eval,
    effects=_repeat_effects,
    discharge=_repeat_discharge,
    control=True,
    own_operands=0,
)


# scope: run_scoped


def _scope_type(*operands: Type, body: Program, allocations: tuple[RefType, ...]) -> Sequence[Type]:
    _require_inputs("the scope", body, (*operands, *allocations))
    for type in body.output_types:
        if isinstance(type, RefType):
            raise PalladioTypeError("no references are allowed to escape a scope", got=str(type))
    return body.output_types


def _scope_eval(*operands: Any, body: Program, allocations: tuple[RefType, ...]) -> ControlEval:
    buffers = (np.full(ref.shape, ref.initial, ref.dtype) for ref in allocations)
    return (yield Run(body, (*operands, *buffers)))


def _scope_effects(*operands: Type, body: Program, allocations: tuple[RefType, ...]) -> Iterator[Effect]:
    for effect in body.effects:
        if effect.position is None or effect.position < len(operands):
            yield effect


def _scope_discharge(
    context: DischargeContext, *operands: Atom, body: Program, allocations: tuple[RefType, ...]
) -> Discharged:
    """Allocations become uninitialised values too; a scope without remaining allocations is removed."""
    count = len(operands)
    turned = [n for n, ref in enumerate(allocations) if context.wants(ref)]
    kept = [n for n in range(len(allocations)) if n not in turned]
    changed = sorted(context.changed)
    inner = context.discharge(body, [*context.discharged, *(count + n for n in turned)], changed)
    values = [*operands, *(context.uninitialized(allocations[n]) for n in turned)]
    if kept:
        order = [*range(count), *(count + n for n in turned), *(count + n for n in kept)]
        inner = _reordered(inner, 0, order)
        results = context.emit(scope, *values, body=inner, allocations=tuple(allocations[n] for n in kept))
    else:
        results = context.inline(inner, values)
    return _split(results, len(body.outputs), changed)


scope = Op(
    "scope",
    "Allocates uninitialised buffers and runs `body(*operands, *references)`; the buffers end with it. Returns the "
    "body's outputs.",
    _scope_type,
    _scope_eval,
    effects=_scope_effects,
    discharge=_scope_discharge,
    control=True,
    own_operands=0,
)
