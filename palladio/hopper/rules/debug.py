"""Printing and checks, by one of the threads that run the program together."""

from __future__ import annotations

import re
import string

from palladio.hopper.emit.names import quoted
from palladio.hopper.emit.scope import Rule, Scope
from palladio.ir.core import Atom, Eqn
from palladio.lower.refused import Refused
from palladio.types import dtypes

SPECIFICATION = re.compile(r"([<>]?)([+ ]?)(0?)(\d*)(\.\d+)?([dxXofFeEgG]?)")
"""The format specifications of Python that printf supports too: alignment, sign, zeros, width, precision, type."""

FLOATING = "fFeEgG"


def _one(scope: Scope) -> str:
    """True in one of the threads that run the program together, as a C expression."""
    return "lane == 0" if scope.warps else "thread == 0"


def _field(scope: Scope, atom: Atom, specification: str) -> tuple[str, str]:
    """A field of printf's format, and its argument in C."""
    type, found = atom.type, SPECIFICATION.fullmatch(specification)
    if type.shape:
        raise Refused(
            "debug_print of an array is not compiled for Hopper",
            got=str(type),
            hint="print a number, e.g. jnp.sum(x) or a loaded element, or run on the simulator: interpret='simulator'",
        )
    if found is None:
        raise Refused(
            "debug_print on Hopper prints as printf does",
            expected="{}, or a width, a precision and a type: {:5d}, {:.3f}, {:x}",
            got=f"{{:{specification}}}",
        )
    side, sign, zeros, width, precision, kind = found.groups("")
    head = f"%{'-' if side == '<' else ''}{sign}{zeros}{width}{precision}"
    text = scope.text(atom)
    if dtypes.is_bool(type.dtype) and not specification:
        return "%s", f'({text} ? "True" : "False")'
    if dtypes.is_float(type.dtype) or (kind and kind in FLOATING):
        return f"{head}{kind or 'g'}", f"(double)({text})"
    wide, letter = type.dtype.itemsize == 8, kind if kind != "d" else ""
    letter = letter or ("d" if dtypes.is_signed(type.dtype) else "u")
    cast = ("i64" if wide else "int") if letter == "d" else ("u64" if wide else "u32")
    return f"{head}{'ll' if wide else ''}{letter}", f"({cast})({text})"


def _print(scope: Scope, eqn: Eqn) -> None:
    """Write a call of `printf`, with the numbers as its arguments."""
    atoms = iter(eqn.inputs)
    text, values = "", []
    for before, field, specification, _ in string.Formatter().parse(eqn.format):
        text += before.replace("%", "%%")
        if field is not None:
            name, value = _field(scope, next(atoms), specification or "")
            text += name
            values.append(value)
    arguments = ", ".join([quoted(f"{text}\n"), *values])
    scope.w.line(f"if ({_one(scope)}) pal::print({arguments});")


def _check(scope: Scope, eqn: Eqn) -> None:
    """Check a condition, which is equal in all threads."""
    (condition,) = eqn.inputs
    failed = f"pal::check_failed({quoted(eqn.message)}, __FILE__, __LINE__)"
    scope.w.line(f"if ({_one(scope)} && !({scope.text(condition)})) {failed};")


RULES: dict[str, Rule] = {"debug_print": _print, "debug_check": _check}
