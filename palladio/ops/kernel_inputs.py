"""The inputs of a kernel's program by role; grids and launches have them in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from palladio.base.dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True)
class KernelInputs(Generic[T]):
    """The inputs of a kernel's program in order, or for each of them a type, a position or a value.

    Fields:
        indices: along each axis of the grid or mesh.
        sizes: of the axes whose size is known only at the call.
        operands: references to the operands of the call, or the operands themselves.
        outputs: references to the outputs.
        scratch: references to the scratch buffers.
    """

    indices: Sequence[T]
    sizes: Sequence[T]
    operands: Sequence[T]
    outputs: Sequence[T]
    scratch: Sequence[T]

    @classmethod
    def split(cls, values: Sequence[T], axes: int, dynamic: int, outputs: int, scratch: int) -> KernelInputs[T]:
        """Split values by the number of axes, of those with a dynamic size, of outputs and of scratch buffers."""
        first, after, last = axes + dynamic, len(values) - outputs - scratch, len(values) - scratch
        return cls(values[:axes], values[axes:first], values[first:after], values[after:last], values[last:])

    @property
    def arrays(self) -> tuple[T, ...]:
        """The operands, then the outputs."""
        return (*self.operands, *self.outputs)
