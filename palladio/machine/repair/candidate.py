"""A single change that may remove a finding."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from palladio.base.dataclass import dataclass
from palladio.ir.core import Program


@dataclass(frozen=True, eq=False)
class Candidate:
    """A single change.

    Fields:
        text: a line that the author can paste.
        program: the program with it.
        elsewhere: whether it accesses other memory, so that different results may be the intended ones.
        key: identifies it among all changes of its program; None if unknown.
    """

    text: str
    program: Program
    elsewhere: bool = False
    key: Hashable = None


Tier = Iterator[Candidate]
