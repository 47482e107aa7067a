"""The fused form: its rules, with the reason that is given for a violation."""

from __future__ import annotations

from palladio.ir.core import Eqn, Program, subprograms
from palladio.lower.fusion.products import starts
from palladio.passes.pipeline import Form

ADDED_LATER = "a product is computed before the addition to it, which can be the start of its sums"


def _broken(program: Program) -> tuple[Eqn | None, str] | None:
    for _, addition in starts(program):
        return addition, ADDED_LATER
    inner = (_broken(each) for eqn in program.eqns for each in subprograms(eqn))
    return next((found for found in inner if found is not None), None)


FUSED = Form("fused", _broken)
