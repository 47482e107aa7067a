"""`get_global`: semaphores allocated at their use in a kernel, one for all blocks of the launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from palladio.base.errors import PalladioNotImplementedError, PalladioValueError
from palladio.trace.gpu.peers import enclosing_gpus, own_part
from palladio.types.attributes import Global
from palladio.types.types import COUNTING, RefType


class GlobalNeeded(Exception):
    """A program needs memory that its launch lacks: the launch is traced again with it."""

    def __init__(self, type: RefType) -> None:
        super().__init__()
        self.type = type


_given: ContextVar[Iterator[Any] | None] = ContextVar("palladio_globals", default=None)


@contextmanager
def with_globals(refs: Sequence[Any] | None) -> Iterator[None]:
    """Supply these references, one at each call of `get_global`, while a program is traced; None allows no call."""
    token = _given.set(None if refs is None else iter(refs))
    try:
        yield
    finally:
        _given.reset(token)


def get_global(what: Any) -> Any:
    """New semaphores in global memory, one or several, shared by all blocks of a launch and initially zero.

    Args:
        what: a kind of `plgpu.SemaphoreType`, or `kind(shape)`.

    Raises:
        PalladioNotImplementedError: other memory.
        PalladioValueError: outside of a kernel of the GPU dialect.
    """
    type = getattr(what, "ref_type", None)
    if type is None or type.space not in COUNTING:
        raise PalladioNotImplementedError(
            "a call leaves no memory behind: only semaphores are global",
            argument="what",
            got=repr(what),
            hint="a reference that calls are given: pl.new_ref(array)",
        )
    given = _given.get()
    if given is None:
        raise PalladioValueError("get_global has a meaning only inside a kernel of palladio.gpu")
    devices = enclosing_gpus()
    shape = type.shape if devices is None else (devices.count, *type.shape)
    wanted = RefType(shape, type.dtype, type.space, (*type.attributes, Global()))
    ref = next(given, None)
    if ref is None:
        raise GlobalNeeded(wanted)
    return ref if devices is None else own_part(ref)
