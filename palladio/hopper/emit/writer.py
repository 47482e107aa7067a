"""The text of one role of a kernel: lines, names, blocks, and regions of one elected thread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from palladio.base.locations import Location

WIDTH = 2
RESERVED = frozenset(
    {
        *("asm", "auto", "bool", "break", "case", "catch", "char", "class", "const", "continue", "default"),
        *("delete", "do", "double", "else", "enum", "extern", "false", "float", "for", "friend", "goto", "if"),
        *("inline", "int", "long", "namespace", "new", "operator", "private", "public", "register", "return"),
        *("short", "signed", "sizeof", "static", "struct", "switch", "template", "this", "throw", "true"),
        *("try", "typedef", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while"),
        *("and", "or", "not", "xor", "u8", "u16", "u32", "u64", "i64", "u32x2", "u32x4", "pal", "smem"),
        *("warpgroup", "thread", "lane", "warp", "main", "r", "t", "min", "max", "abs", "exp", "log", "sin"),
        *("cos", "pow", "round", "floor", "ceil", "sqrt", "erf", "y0", "y1", "yn", "j0", "j1", "jn", "gamma"),
        *("index", "signal", "div", "printf", "sum", "step", "other", "at", "bits", "byte", "byte_at", "place"),
        *("inside", "element", "left", "right"),
    }
)
"""Names that C++, the header or generated code uses."""


def kernel_name(name: str) -> str:
    """The name of a kernel as a C++ function."""
    found = re.sub(r"\W", "_", name).strip("_") or "kernel"
    return f"{found}_" if found in RESERVED else f"k{found}" if found[0].isdigit() else found


class Writer:
    """Writes lines.

    Adjacent lines for one elected thread are collected into one region, which is written before the next ordinary line.
    Lines that compute scalars may be moved before it.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: set[str] = set(RESERVED)
        self.waiting: list[str] = []
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
            self.lines.append(f'#line {line} "{file}"')
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
        self.waiting += texts

    def flush(self) -> None:
        """Write the region of the elected thread, if one is open."""
        if not self.waiting:
            return
        region, self.waiting = self.waiting, []
        with self.block(f"if ({self.elected})"):
            for text in region:
                self.compute(text)

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

    def fresh(self, hint: str, otherwise: str = "v") -> str:
        """An unused name, derived from the hint."""
        name = re.sub(r"\W", "_", hint or otherwise).strip("_") or otherwise
        if name[0].isdigit():
            name = f"v{name}"
        found, count = name, 1
        while found in self.names:
            count += 1
            found = f"{name}_{count}"
        self.names.add(found)
        return found
