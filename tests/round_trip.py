"""The promise that every program keeps: its text reads back as the same program."""

from __future__ import annotations

from palladio.ir.program import Program
from palladio.ir.text import print_program
from palladio.ops import parse


def check_round_trip(program: Program) -> Program:
    """Print, parse and print again, and return what was parsed."""
    text = print_program(program)
    again = parse(text)
    assert print_program(again) == text
    assert (again.input_types, again.output_types, again.effects) == (
        program.input_types,
        program.output_types,
        program.effects,
    )
    return again
