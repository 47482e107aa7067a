"""Initialisation of the blocks of outputs that start uninitialised.

The schedule gives each of these outputs initialisation marks. An access to a block must find it initialised, and a
store marks the part that it initialises. Blocks are initialised before the first access of each program, so that later
equations need not test the marks again: there would be a branch, and a loop that fills the block, for each access. One
whose first access is in the body of a loop is initialised before that loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from palladio.ir.core import Atom, Eqn, Program
from palladio.ir.rewrite import Builder, map_subprograms, with_body, with_parts
from palladio.lower.fusion.keep_arrays import ARRAYS_KEPT
from palladio.lower.initialization import stores_all
from palladio.lower.ranges import constants
from palladio.ops.control import loop, repeat
from palladio.ops.grid import InitMarks, grid_call
from palladio.ops.references.initialization import initialize as initialize_op
from palladio.ops.references.initialization import store_rows
from palladio.passes.pipeline import Form, Pass

Begun = Mapping[Atom, InitMarks]
"""The references to blocks that may be uninitialised, with their marks."""

NO_VALUES = "a block may be accessed before it has values"
IN_EACH_STEP = "each step of a loop looks at the marks of a block"
NOT_STORED = "a block counts as stored, and the next access to it does not store all of it"
NOT_MARKED = "rows are stored to a block that begins without values, and not marked"
NO_MARKS = "rows are marked of a block that has no marks of rows, or has all its values"


class _Initializing:
    """Initialises the blocks of kernels.

    Fields:
        found: the equations of the program that need an initialisation before them, or are wrong, each with the reason.
        filled: what `fills` has found, so that each level of nested loops is looked at once.
    """

    def __init__(self) -> None:
        self.found: list[tuple[Eqn, str]] = []
        self.filled: dict[tuple[Program, Atom, InitMarks], bool] = {}

    def calls(self, program: Program) -> Program:
        """The program with initialised blocks in each kernel that it calls."""
        return with_body(program, map(self.call, program.eqns), program.outputs)

    def call(self, eqn: Eqn) -> Eqn:
        """An equation with initialised blocks in the kernels that it calls, itself or in its sub-programs."""
        if eqn.op is not grid_call:
            return with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, self.calls))
        outputs = eqn.grid.split(eqn.kernel.inputs).outputs
        starts = zip(outputs, eqn.grid.scheduled.starts, strict=True)
        kernel = self.kernel(eqn.kernel, {ref: start.marks for ref, start in starts if start.marks is not None})
        return with_parts(eqn, eqn.inputs, eqn.params if kernel is eqn.kernel else {**eqn.params, "kernel": kernel})

    def kernel(self, program: Program, begun: Begun) -> Program:
        """A kernel, or a program that it runs, with its blocks initialised."""
        begun, builder = dict(begun), Builder()
        for number, eqn in enumerate(program.eqns):
            builder.location = eqn.location
            if eqn.op is initialize_op:
                if eqn.stored and not _stored_next(program.eqns[number + 1 :], eqn.ref):
                    self.found.append((eqn, NOT_STORED))
                begun.pop(eqn.ref, None)
            elif eqn.op.control:
                for ref in self.begun_in_steps(eqn, begun):
                    self.found.append((eqn, IN_EACH_STEP))
                    builder.emit(initialize_op, ref, stored=False)
                    del begun[ref]
                eqn = self.inner(eqn, begun)
            elif eqn.op is store_rows and eqn.ref in begun and begun[eqn.ref].rows > 1:
                eqn = self.marked(eqn)
            else:
                for ref in [ref for ref in dict.fromkeys(eqn.inputs) if ref in begun]:
                    self.found.append((eqn, NO_VALUES))
                    builder.emit(initialize_op, ref, stored=stores_all(eqn, ref))
                    del begun[ref]
                if eqn.op is store_rows and eqn.marks:
                    self.found.append((eqn, NO_MARKS))
            builder.eqns.append(eqn)
        return with_body(program, builder.eqns, program.outputs)

    def inner(self, eqn: Eqn, begun: Begun) -> Eqn:
        """An equation that runs programs, with the blocks initialised in these."""

        def change(program: Program) -> Program:
            return self.kernel(program, {var: begun[atom] for var, atom in constants(eqn, program) if atom in begun})

        return (
            self.call(eqn) if eqn.op is grid_call else with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, change))
        )

    def begun_in_steps(self, eqn: Eqn, begun: Begun) -> list[Atom]:
        """The references to blocks that each step of a loop would initialise, which is done once before it."""
        if eqn.op not in (loop, repeat):
            return []
        given = [(var, atom) for var, atom in constants(eqn, eqn.body) if atom in begun]
        return list(dict.fromkeys(atom for var, atom in given if self.fills(eqn.body, var, begun[atom])))

    def fills(self, program: Program, ref: Atom, marks: InitMarks) -> bool:
        """True if a block is initialised in a program, outside of branches, and not by a store of all of it."""
        key = (program, ref, marks)
        if key not in self.filled:
            self.filled[key] = self.first_fills(program, ref, marks)
        return self.filled[key]

    def first_fills(self, program: Program, ref: Atom, marks: InitMarks) -> bool:
        """`fills`, by the first equation that initialises the block."""
        for eqn in program.eqns:
            if eqn.op.control:
                if self.begun_in_steps(eqn, {ref: marks}):
                    return True
            elif eqn.op is initialize_op:
                if eqn.ref is ref:
                    return not eqn.stored
            elif ref in eqn.inputs and not (eqn.op is store_rows and eqn.ref is ref and marks.rows > 1):
                return not stores_all(eqn, ref)
        return False

    def marked(self, eqn: Eqn) -> Eqn:
        """A store of rows that marks them."""
        if eqn.marks:
            return eqn
        self.found.append((eqn, NOT_MARKED))
        return with_parts(eqn, eqn.inputs, {**eqn.params, "marks": True})


def _stored_next(eqns: tuple[Eqn, ...], ref: Atom) -> bool:
    """True if the first of some equations that accesses a reference stores all of it."""
    first = next((eqn for eqn in eqns if ref in eqn.inputs), None)
    return first is not None and stores_all(first, ref)


def _broken(program: Program) -> tuple[Eqn | None, str] | None:
    walk = _Initializing()
    walk.calls(program)
    return next(iter(walk.found), None)


INITIALIZED = Form("initialised", _broken)

initialize = Pass(
    name="initialize",
    consumes=ARRAYS_KEPT,
    produces=INITIALIZED,
    run=lambda program: _Initializing().calls(program),
    doc="Initialises the blocks of outputs that begin without values, where a kernel first accesses them, and has "
    "stores of whole rows mark these. Wants `fuse` before it, which removes loads.",
)
