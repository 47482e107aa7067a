"""Stores under masks that select whole rows of a matrix: they write those rows and do not touch the others.

Rows are stored in vectors, without reading the elements that the mask leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator

from palladio.ir.core import Atom, Eqn, Program
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.lower.ranges import constants
from palladio.ops.arrays.shape import broadcast, iota
from palladio.ops.arrays.zeros import zero_outside
from palladio.ops.references.initialization import store_rows
from palladio.ops.references.masked import store_masked


def row_stores(program: Program, given: frozenset[Atom] = frozenset()) -> Iterator[Eqn]:
    """The stores under masks of whole rows, in a program and in those that it runs.

    Args:
        given: the inputs whose elements are the same in each row.
    """
    rows = _same_in_rows(program, given)
    for eqn in program.eqns:
        if eqn.op is store_masked and not eqn.transforms and eqn.mask in rows:
            yield eqn
        for inner in eqn.subprograms:
            yield from row_stores(inner, _passed(eqn, inner, rows))


def rows_in(program: Program) -> Program:
    """The program with stores of rows in place of those under masks that select rows."""
    found = {*row_stores(program)}
    return _with_rows(program, found) if found else program


def _with_rows(program: Program, found: set[Eqn]) -> Program:
    return with_body(program, (_stored(eqn, found) for eqn in program.eqns), program.outputs)


def _stored(eqn: Eqn, found: set[Eqn]) -> Eqn:
    if eqn not in found:
        return with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, lambda inner: _with_rows(inner, found)))
    return Eqn(store_rows, eqn.inputs, (), {"marks": False}, eqn.effects, eqn.location)


def _passed(eqn: Eqn, inner: Program, rows: set[Atom]) -> frozenset[Atom]:
    return frozenset(var for var, atom in constants(eqn, inner) if atom in rows)


def _same_in_rows(program: Program, given: frozenset[Atom]) -> set[Atom]:
    """The matrices whose rows are constant: all elements of a row are the same."""
    found = {*given}
    for eqn in program.eqns:
        if len(eqn.outputs) == 1 and len(eqn.outputs[0].type.shape) == 2 and _repeats(eqn, found):
            found.add(eqn.outputs[0])
    return found


def _repeats(eqn: Eqn, found: set[Atom]) -> bool:
    if eqn.op is broadcast:
        return eqn.array in found or all(axis != 1 or eqn.array.type.shape[n] == 1 for n, axis in enumerate(eqn.axes))
    if eqn.op is iota:
        return bool(eqn.axis != 1)
    if eqn.op is zero_outside:
        return eqn.array in found
    return eqn.op.elementwise and all(atom in found for atom in eqn.inputs if atom.type.shape)
