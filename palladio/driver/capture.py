"""Observing prepared calls, for tools that show the compiled forms of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from palladio.ir.core import Program

_watching: ContextVar[list[Program] | None] = ContextVar("palladio_watching", default=None)


@contextmanager
def prepared_programs() -> Iterator[list[Program]]:
    """A list of every program that is prepared inside the block, as traced, in order.

    Programs prepared before are not prepared again, and are not in the list.
    """
    found: list[Program] = []
    token = _watching.set(found)
    try:
        yield found
    finally:
        _watching.reset(token)


def is_watched() -> bool:
    """True if prepared programs are collected: then none may come from disk without being prepared."""
    return _watching.get() is not None


def note(program: Program) -> None:
    """Record that a program is being prepared."""
    found = _watching.get()
    if found is not None:
        found.append(program)
