"""The promise that every program keeps: its text reads back as the same program."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from palladio.base.errors import InternalError
from palladio.ir.core import Program, walk
from palladio.ir.text import print_program
from palladio.ir.verify import verify
from palladio.ops import OPS, parse


def check_round_trip(program: Program, text: str | None = None) -> Program:
    """Print, unless the text is given, parse and print again, and return what was parsed."""
    text = print_program(program) if text is None else text
    again = parse(text)
    assert print_program(again) == text
    assert (again.input_types, again.output_types, again.effects) == (
        program.input_types,
        program.output_types,
        program.effects,
    )
    return again


@contextmanager
def uncollected() -> Iterator[None]:
    """A `with` block that makes much that stays or has no cycles, which the garbage collector does not look through."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


NUMBERS_AND_VARIABLES = re.compile(r"(?<!\w)\d+|(?<!= )\b[a-z]{1,2}\b(?!=)|\b\w+(?=:(?:ref<|\w+\[))")
"""Most programs of a run differ from an earlier one only in these. A name after `= ` is an operation's, e.g. `eq`. A
longer variable is kept where it is used."""

SEPARATOR = re.compile(r"\s*(?:[\n,({]| = )\s*")

_known: set[str] = set()
"""The parts of the programs checked in this run, without numbers and variables: operations, parameters, types."""

_lines: set[str] = set()
"""The lines of the programs of this run: most of another program are among them, and have no new part."""

MANY = 100
"""Programs of one test; of more, alike as those of a property are, some between the first and the last are checked."""


def check_all(programs: Sequence[Program]) -> None:
    """Check those of these programs that have a part which no program of this run had before, numbers aside.

    Only the outermost are, which hold the others. Reading a text takes six times as long as printing it. The programs
    that a test of the machinery makes ill-formed, or of operations of its own, have no text to read back.
    """
    with uncollected():
        _check_outermost(programs)


def _check_outermost(programs: Sequence[Program]) -> None:
    inner = {id(part) for program in programs for eqn in program.eqns for part in _parts(eqn.params)}
    outermost = [program for program in programs if id(program) not in inner]
    for program in outermost[:: -(-len(outermost) // MANY) or 1]:
        try:
            text = print_program(program)
        except Exception:
            if _is_proper(program):
                raise
            continue
        lines = {line.strip() for line in text.split("\n")} - _lines
        parts = {part for line in lines for part in SEPARATOR.split(NUMBERS_AND_VARIABLES.sub("0", line))}
        if not _known.issuperset(parts):
            if not _is_proper(program):
                continue
            check_round_trip(program, text)
            _known.update(parts)
        _lines.update(lines)


def _parts(params: dict[str, Any]) -> Iterator[Program]:
    for value in params.values():
        yield from (part for part in (value if isinstance(value, tuple) else (value,)) if isinstance(part, Program))


def _is_proper(program: Program) -> bool:
    if any(OPS.get(eqn.op.name) is not eqn.op for eqn in walk(program)):
        return False
    try:
        verify(program)
    except InternalError:
        return False
    return True
