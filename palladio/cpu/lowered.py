"""A lowered kernel, apart from the lowering: a process that finds its kernels on disk does not import the emission."""

from __future__ import annotations

from collections.abc import Sequence

from palladio.base.dataclass import dataclass
from palladio.cpu.runtime.callbacks import Callback
from palladio.ir.core import Program
from palladio.ops.grid import InitMarks


@dataclass(frozen=True)
class LoweredGrid:
    """One compiled kernel.

    Fields:
        text: a module with one function `kernel`.
        arena: the bytes of it that a thread needs.
        words: the number of words at its beginning that must be 0 when a call begins.
        noted: the initialisation marks of outputs that are uninitialised before the call: bytes in one array after the
            others, output by output.
        callbacks: the operations that it calls Python for.
        caller: the offset in the arena of the address of the callback function; None for a kernel that never calls it.
        order: the parallel axes of the grid, the fastest-varying first.
        maps_by_data: the index maps whose blocks no call may come back to after it has left them.
    """

    text: str
    arena: int
    words: int
    noted: dict[int, InitMarks]
    callbacks: Sequence[Callback]
    caller: int | None
    order: tuple[int, ...]
    maps_by_data: Sequence[Program]
