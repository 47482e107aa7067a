"""Integers with only one possible value become constants, so that branches on them are resolved."""

from __future__ import annotations

from palladio.ir.core import Literal, Program, Var
from palladio.lower.forms import FOLDED
from palladio.lower.ranges import Range, RangeRewriting
from palladio.passes.pipeline import ANY, Pass


class _Folding(RangeRewriting):
    """Replaces scalars of one possible value by literals."""

    def constant(self, var: Var, found: Range) -> Literal | None:
        if found.value is None or var.type.shape != ():
            return None
        return Literal(found.value, var.type.dtype)


def _fold(program: Program) -> Program:
    return _Folding().program(program)


fold_ranges = Pass(
    name="fold_ranges",
    consumes=ANY,
    produces=FOLDED,
    run=_fold,
    doc="Writes scalars whose range is one value as constants: signs of what is not negative, decided comparisons. "
    "Wants `simplify` and `remove_dead_code` after it, for the choices that fall away.",
)
