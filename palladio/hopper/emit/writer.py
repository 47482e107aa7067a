"""The text of one role of a kernel: lines, names, blocks, and regions of one elected thread."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from palladio.base.locations import Location
from palladio.hopper.emit.names import Names, identifier, quoted, unused

WIDTH = 2


def mentions(name: str, lines: Iterable[str]) -> bool:
    """True if lines of code have a name, other than in string literals, or in the paths of `#line`."""
    code = (re.sub(r'"(?:\\.|[^"\\])*"', '""', line) for line in lines if not line.startswith("#"))
    return any(re.search(rf"\b{name}\b", line) for line in code)


class Writer:
    """Writes lines.

    Adjacent lines for one elected thread are collected into one region, which is written before the next ordinary line.
    Lines that compute scalars may be moved before it.
    """

    def __init__(self, names: Names) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names = names
        self.own = names.of_role()
        self.waiting: list[tuple[tuple[str, int] | None, str]] = []
        self.elected = "warp == 0 && pal::elect()"
        self.place: tuple[str, int] | None = None
        self.noted: tuple[str, int] | None = None

    def at(self, location: Location | None) -> None:
        """Assign the following lines to a line of the user's source."""
        if location is not None:
            self.place = location.file, location.line

    def _note(self) -> None:
        if self.place is not None and self.place != self.noted:
            file, line = self.place
            self.lines.append(f"#line {line} {quoted(file)}")
            self.noted = self.place

    def compute(self, text: str) -> None:
        """Write a line without side effects, which may precede the elected thread's pending region."""
        self._note()
        self.lines.append(" " * WIDTH * self.depth + text)

    def line(self, text: str) -> None:
        """Write a line in order, after the pending region."""
        self.flush()
        self.compute(text)

    def elect(self, *texts: str) -> None:
        """Add lines to the pending region of the elected thread."""
        self.waiting += [(self.place, text) for text in texts]

    def flush(self) -> None:
        """Write the region of the elected thread, if one is open."""
        if not self.waiting:
            return
        region, self.waiting = self.waiting, []
        place, self.place = self.place, region[0][0]
        with self.block(f"if ({self.elected})"):
            for self.place, text in region:
                self.compute(text)
        self.place = place

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """`head { … }`."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        try:
            yield
            self.flush()
        finally:
            self.depth -= 1
        self.compute("}")

    @contextmanager
    def declaring(self, name: str, text: str) -> Iterator[None]:
        """Declare a name before the lines written inside, if they mention it."""
        self.flush()
        start, depth = len(self.lines), self.depth
        yield
        self.flush()
        if mentions(name, self.lines[start:]):
            self.lines.insert(start, " " * WIDTH * depth + text)

    def fresh(self, hint: str, otherwise: str = "v") -> str:
        """An unused name, derived from the hint."""
        found = unused(lambda name: name in self.own or name in self.names.parameters, identifier(hint) or otherwise)
        self.own.add(found)
        return found
