"""Row groups: equations over the rows of one block that a compiler may run together, row by row.

A normalisation with its gradients reduces each row, stores results computed from a row and its sums, and adds up the
rows. One equation after the other reads the whole block, each time from the second-level cache; row by row, all of them
find it in the first-level one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from palladio.base.dataclass import dataclass
from palladio.ir.core import Atom, Eqn, Var, Work
from palladio.lower.fusion.values import gathers
from palladio.ops.arrays.keep import keep
from palladio.ops.arrays.shape import broadcast, iota, reshape
from palladio.ops.references.initialization import initialize
from palladio.ops.references.memory import load, store
from palladio.types.types import Shape

LEAST_PASSES = 3
"""The least equations of a group: fewer leave a block in the caches of the one before."""


@dataclass
class RowGroup:
    """Equations of one program that run together.

    Fields:
        shape: of the block, [rows, columns].
        eqns: reductions of rows, stores of the block and sums of its rows, and the equations in between.
        passes: those of them that read or write the block.
        rest: the other equations, in order, which run afterwards.
    """

    shape: Shape
    eqns: list[Eqn] = field(default_factory=list)
    passes: list[Eqn] = field(default_factory=list)
    rest: list[Eqn] = field(default_factory=list)


def is_lazy(eqn: Eqn) -> bool:
    """True if an equation computes elements of arrays where they are used."""
    if eqn.op is reshape:
        before, after = eqn.array.type.shape, eqn.shape
        return [n for n in before if n != 1] == [n for n in after if n != 1]
    return len(eqn.outputs) == 1 and (eqn.op.elementwise or eqn.op in (broadcast, iota))


def block_of(eqn: Eqn) -> Shape | None:
    """The shape of the matrix that an equation traverses row by row; None for other equations."""
    if eqn.op is store and not eqn.transforms:
        shape = eqn.value.type.shape
    elif eqn.op.work is Work.REDUCTION and len(eqn.inputs) == 1 and eqn.params.get("axes") in ((0,), (1,)):
        shape = eqn.array.type.shape
    else:
        return None
    return shape if len(shape) == 2 and shape[0] > 1 else None


def adds_rows(eqn: Eqn) -> bool:
    """True if an equation that traverses rows combines them with one another."""
    return eqn.op is not store and eqn.axes == (0,)


def row_group(eqns: Sequence[Eqn], first: int = 0, least: int = LEAST_PASSES) -> RowGroup | None:
    """The equations that may run together with the one at `first`; None if fewer than `least` are passes."""
    shape = block_of(eqns[first])
    if shape is None:
        return None
    search = _Search(RowGroup(shape))
    for number, eqn in enumerate(eqns[first:], first):
        if not search.takes(eqn):
            search.group.rest += eqns[number:]
            break
    return search.group if len(search.group.passes) >= least else None


class _Search:
    """The search for the equations of a group, in order.

    Attributes:
        late: arrays that are available only when the group has ended, and those of equations that run after it.
        of_row: arrays of which a row is available after the passes through that row.
        written: the references that the group or an equation after it writes.
    """

    def __init__(self, group: RowGroup) -> None:
        self.group = group
        self.late: set[Atom] = set()
        self.of_row: set[Atom] = set()
        self.written: set[Var] = set()

    def takes(self, eqn: Eqn) -> bool:
        """Sort an equation into the group or after it; False if the group ends before it."""
        group = self.group
        if self.late.isdisjoint(eqn.inputs) and self.runs(eqn):
            group.eqns.append(eqn)
            return True
        if eqn.op in (keep, load, store, initialize) or is_lazy(eqn):
            self.late.update(eqn.outputs)
            self.written.update(eqn.written)
            group.rest.append(eqn)
            return True
        return False

    def runs(self, eqn: Eqn) -> bool:
        """True if an equation belongs to the group."""
        if block_of(eqn) == self.group.shape:
            if eqn.op is store and (self.group.rest or not self.written.isdisjoint(eqn.written)):
                return False
            self.written.update(eqn.written)
            self.group.passes.append(eqn)
            (self.late if eqn.op is not store and adds_rows(eqn) else self.of_row).update(eqn.outputs)
            return True
        if eqn.op in (load, initialize):
            gathered = eqn.op is load and gathers(eqn)
            return not gathered and self.written.isdisjoint(eqn.inputs) and self.of_row.isdisjoint(eqn.inputs)
        if not is_lazy(eqn):
            return False
        if self.of_row.isdisjoint(eqn.inputs):
            return True
        self.of_row.update(eqn.outputs)
        return _keeps_rows(eqn, self.group.shape[0])


def _keeps_rows(eqn: Eqn, rows: int) -> bool:
    """True if row i of the result is computed from rows i of the operands."""
    (out,) = eqn.outputs
    if eqn.op is broadcast:
        return eqn.axes[:1] == (0,) and out.type.shape[0] == rows == eqn.array.type.shape[0]
    return out.type.shape[:1] == (rows,) and all(atom.type.shape[:1] in ((), (rows,)) for atom in eqn.inputs)
