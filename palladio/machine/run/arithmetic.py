"""Memoised index arithmetic: its results are kept for the next thread or run that needs them.

Most equations of a kernel compute the next tile, slot or row from a few small integers. Every thread computes them
again, in every schedule of a check. This module joins connected ones of a program into one equation, whose results are
looked up by the values of its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import numpy as np

from palladio.ir.core import Atom, Eqn, Op, Program, Var
from palladio.types import dtypes
from palladio.types.types import ArrayType, Type

MOST_BYTES = 1024
"""The maximum size of a group's operands and results together."""

MOST_KEPT = 4096
"""The maximum number of results that a group keeps."""

FEWEST = 4
"""The least number of equations that makes a look-up worthwhile."""

MOST_GROUPS = 8
"""The maximum number of groups kept with their first equation."""

_KEPT = "_groups"

Values = Sequence[Any]
Run = Callable[..., Values]


def _type(*inputs: Type, body: Program) -> Sequence[Type]:
    return [atom.type for atom in body.outputs]


def _eval(*values: Any, body: Program) -> Values:
    raise NotImplementedError("the machine makes groups, and runs them by a rule of its own")


group = Op("group", "The outputs of `body`, pure equations on small integers.", _type, _eval)


def grouped(program: Program, apart: Container[str]) -> Program:
    """The program with its index arithmetic in groups, each equation as early as its operands allow.

    Args:
        apart: the names of operations that are never grouped, regardless of their types.

    Returns:
        A new program, or this one if no group is large enough.
    """
    parts: list[Eqn | list[Eqn]] = []
    made: dict[Atom, int] = {}
    for eqn in program.eqns:
        groups = eqn.op.name not in apart and _is_index_arithmetic(eqn)
        place = _place(eqn, parts, made) if groups else len(parts)
        if place == len(parts):
            parts.append([] if groups else eqn)
        part = parts[place]
        if isinstance(part, list):
            part.append(eqn)
        made.update(dict.fromkeys(eqn.outputs, place))
    eqns = tuple(_equations(program, parts))
    if len(eqns) == len(program.eqns):
        return program
    return Program(program.inputs, eqns, program.outputs, program.name, program.location)


def _is_index_arithmetic(eqn: Eqn) -> bool:
    if eqn.effects or eqn.op.control or not eqn.outputs:
        return False
    return _are_small([*eqn.input_types, *(var.type for var in eqn.outputs)])


def _are_small(types: Sequence[Type]) -> bool:
    arrays = [type for type in types if isinstance(type, ArrayType) and not dtypes.is_float(type.dtype)]
    return len(arrays) == len(types) and sum(type.size * type.dtype.itemsize for type in arrays) <= MOST_BYTES


def _place(eqn: Eqn, parts: Sequence[Eqn | list[Eqn]], made: dict[Atom, int]) -> int:
    """The number of the first group in which all operands are available; that of a new last one if there is none."""
    first = max((made.get(atom, 0) for atom in eqn.inputs), default=0)
    return next((place for place in range(first, len(parts)) if isinstance(parts[place], list)), len(parts))


def _equations(program: Program, parts: Sequence[Eqn | list[Eqn]]) -> Iterator[Eqn]:
    """The equations of the parts in order; a group becomes one equation if that is worthwhile."""
    users: dict[Atom, set[int]] = {atom: {len(parts)} for atom in program.outputs}
    for number, part in enumerate(parts):
        for eqn in part if isinstance(part, list) else (part,):
            for atom in eqn.inputs:
                users.setdefault(atom, set()).add(number)
    for number, part in enumerate(parts):
        if not isinstance(part, list):
            yield part
            continue
        own = [var for eqn in part for var in eqn.outputs]
        inputs = {atom: None for eqn in part for atom in eqn.inputs if isinstance(atom, Var)}
        given = tuple(atom for atom in inputs if atom not in set(own))
        results = tuple(var for var in own if users.get(var, set()) - {number})
        if len(part) < FEWEST or not _are_small([var.type for var in (*given, *results)]):
            yield from part
        elif results:
            yield _group(program, tuple(part), given, results)


def _group(program: Program, eqns: tuple[Eqn, ...], given: tuple[Var, ...], results: tuple[Var, ...]) -> Eqn:
    """The group of these equations; programs that differ elsewhere share it, with its cached results."""
    kept: dict[Any, Eqn] = eqns[0].__dict__.setdefault(_KEPT, {})
    key = program.name, eqns, given, results
    found = kept.get(key)
    if found is None:
        if len(kept) >= MOST_GROUPS:
            kept.clear()
        body = Program(given, eqns, results, program.name, eqns[0].location)
        found = kept[key] = Eqn(group, given, results, {"body": body}, (), eqns[0].location)
    return found


def remembering(run: Run, types: Sequence[Type]) -> Run:
    """A function of small integers and arrays of them, memoised.

    Args:
        types: the types of its operands.
    """
    scalars = all(type.shape == () for type in types if isinstance(type, ArrayType))
    kept: dict[tuple[Any, ...], Values] = {}

    def run_once(*values: Any) -> Values:
        key = tuple([value.item() for value in values] if scalars else [value.tobytes() for value in values])
        found = kept.get(key)
        if found is None:
            if len(kept) >= MOST_KEPT:
                kept.clear()
            found = kept[key] = [value[()] if isinstance(value, np.ndarray) else value for value in run(*values)]
        return found

    return run_once


__all__ = ["group", "grouped", "remembering"]
