"""Observing prepared calls, for tools that show the compiled forms of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from palladio.ir.core import Program

_watching: ContextVar[list[Program] | None] = ContextVar("palladio_watching", default=None)


@contextmanager
def prepared_programs() -> Iterator[list[Program]]:
    """A list that gets every program that is prepared inside the block, as it was traced, in order.

    What had been prepared before is not prepared again, and not in the list.
    """
    found: list[Program] = []
    token = _watching.set(found)
    try:
        yield found
    finally:
        _watching.reset(token)


def note(program: Program) -> None:
    """Say that a program is being prepared."""
    found = _watching.get()
    if found is not None:
        found.append(program)
