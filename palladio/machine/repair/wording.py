"""The wording of repairs: source text of calls and operands, and positions by line."""

from __future__ import annotations

import ast
import linecache
from pathlib import Path

from palladio.base.locations import Location
from palladio.ir.core import Eqn


def source(location: Location | None) -> str:
    """The text of a call or access on one line; empty if there is none."""
    if location is None or location.end_line != location.line:
        return ""
    line = linecache.getline(location.file, location.line).encode()
    return line[location.column : location.end_column].decode(errors="ignore").strip()


def parsed(location: Location | None) -> ast.expr | None:
    """The expression of a location."""
    try:
        return ast.parse(source(location), mode="eval").body
    except SyntaxError:
        return None


def operand(eqn: Eqn, position: int) -> ast.expr | None:
    """The source expression of the reference at an input of an equation."""
    found = parsed(eqn.location)
    if isinstance(found, ast.Call):
        name = found.func.attr if isinstance(found.func, ast.Attribute) else getattr(found.func, "id", "")
        if name in (eqn.op.name, *ALIASES.get(eqn.op.name, ())) and position < len(found.args):
            hint = getattr(eqn.inputs[position], "hint", "")
            named = [each for each in found.args if isinstance(of := base(each), ast.Name) and of.id == hint]
            return named[0] if named else found.args[position]
        return None
    if isinstance(found, ast.Subscript) and position == 0:
        return found
    return None


ALIASES = {"semaphore_signal": ("signal",), "semaphore_wait": ("wait",)}


def base(expression: ast.expr | None) -> ast.expr | None:
    """The reference itself: `ring` of `ring.at[slot]` and of `ring[slot]`."""
    while isinstance(expression, ast.Subscript):
        expression = expression.value
        if isinstance(expression, ast.Attribute) and expression.attr == "at":
            expression = expression.value
    return expression


def index(expression: ast.expr | None, axis: int) -> ast.expr | None:
    """The index along an axis of the first subscript of a reference."""
    found = None
    while isinstance(expression, ast.Subscript):
        found = expression.slice
        expression = expression.value.value if isinstance(expression.value, ast.Attribute) else expression.value
    if isinstance(found, ast.Tuple):
        return found.elts[axis] if axis < len(found.elts) else None
    return found if axis == 0 and not isinstance(found, ast.Slice) else None


def line(eqn: Eqn) -> str:
    """The line of an equation: `line 144 of kernels.py`."""
    return f"line {eqn.location.line} of {Path(eqn.location.file).name}" if eqn.location else eqn.op.name


def between(before: Eqn | None, after: Eqn | None, around: Eqn | None) -> str:
    """The position between two equations, or inside one: `after line 144 of kernels.py`."""
    if before is not None and before.location is not None and not before.op.control:
        return f"after {line(before)}"
    if after is not None and after.location is not None:
        return f"before {line(after)}"
    if before is not None and before.location is not None:
        return f"after the block at {line(before)}"
    return f"in the block at {line(around)}" if around is not None and around.location is not None else "there"


def call(eqn: Eqn) -> str:
    """The source text of an equation's call, or its operation."""
    return source(eqn.location) or eqn.op.name


def with_number(eqn: Eqn, old: int, new: int) -> str:
    """The call of an equation with one number replaced; empty unless the old one occurs once in its text."""
    found = parsed(eqn.location)
    if not isinstance(found, ast.Call):
        return ""
    given = [each for each in (*found.args, *(word.value for word in found.keywords)) if isinstance(each, ast.Constant)]
    places = [each for each in given if type(each.value) is int and each.value == old]
    if len(places) != 1:
        return ""
    places[0].value = new
    return ast.unparse(found)
