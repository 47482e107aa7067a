"""A single change that may remove a finding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from palladio.ir.core import Program


@dataclass(frozen=True, eq=False)
class Candidate:
    """A single change.

    Fields:
        text: a line that the author can paste.
        program: the program with it.
        elsewhere: whether it reaches other memory, so that other results may be those that were meant.
    """

    text: str
    program: Program
    elsewhere: bool = False


Tier = Iterator[Candidate]
