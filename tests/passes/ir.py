"""How the tests of passes read and compare programs."""

from __future__ import annotations

from textwrap import dedent

from palladio.ir.text import print_program
from palladio.ops import parse
from palladio.passes import Pass, run_passes


def after(text: str, *passes: Pass) -> str:
    """The text of a program after some passes."""
    return print_program(run_passes(parse(dedent(text)), passes, verify_each=True))


def check(each: Pass, before: str, expected: str) -> None:
    """Compare what a pass makes of a program with what it should, as text."""
    assert after(before, each) == dedent(expected).strip()


def check_unchanged(each: Pass, text: str) -> None:
    """Require that a pass returns the same object."""
    program = parse(dedent(text))
    assert each.run(program) is program
