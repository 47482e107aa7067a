"""The error of a compiler that rejects a program: its message is the reason, for the user."""

from __future__ import annotations

from palladio.base.errors import PalladioNotImplementedError


class Refused(PalladioNotImplementedError):
    """A program that a target does not compile."""

    op: str | None = None

    def name(self, op: str, target: str) -> None:
        """Name the operation in the message, unless one is named already."""
        if self.op is None:
            self.op, self.rule = op, f"{op} is not compiled for {target}: {self.rule}"
