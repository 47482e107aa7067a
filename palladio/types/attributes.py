"""Attributes of a reference's type: layout, barrier counts, owner.

An attribute is a small frozen record; program text shows it as its constructor call.
"""

from __future__ import annotations

from numbers import Integral

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.types.device import H100_SXM


@dataclass(frozen=True)
class TilingTransform:
    """Shared memory in tiles: the last axes of the buffer are cut into tiles of this shape, stored one after another.

    Kernels see the buffer untiled. `wgmma` wants (8, elements of one swizzle).

    Raises:
        PalladioValueError: a tile without sizes, or with one below 1.
    """

    tiling: tuple[int, ...]

    def __post_init__(self) -> None:
        with at_call():
            if not isinstance(self.tiling, (tuple, list)) or not all(isinstance(size, int) for size in self.tiling):
                raise PalladioTypeError(
                    "a tile is described by integers", argument="tiling", expected="such as (8, 64)", got=self.tiling
                )
            if not self.tiling or min(self.tiling) < 1:
                raise PalladioValueError("a tile has sizes of at least 1", argument="tiling", got=self.tiling)
        object.__setattr__(self, "tiling", tuple(self.tiling))


@dataclass(frozen=True)
class SwizzleTransform:
    """Shared memory whose 16-byte pieces are permuted within rows of this many bytes, against bank conflicts.

    Raises:
        PalladioValueError: for a number of bytes that the hardware does not swizzle.
    """

    swizzle: int

    def __post_init__(self) -> None:
        with at_call():
            if not isinstance(self.swizzle, Integral) or self.swizzle not in H100_SXM.swizzles:
                raise PalladioValueError(
                    "the hardware swizzles rows of 32, 64 or 128 bytes", argument="swizzle", got=self.swizzle
                )


@dataclass(frozen=True)
class Arrivals:
    """The number of arrivals that complete a phase of a barrier.

    Fields:
        count: arrivals of one block.
        cluster_axes: the cluster axes along which an arrival counts in other blocks too, a tuple for several as one;
            empty for a block's own.
    """

    count: int = 1
    cluster_axes: tuple[str | tuple[str, ...], ...] = ()

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The cluster axes, each as a tuple of those that are one."""
        return tuple((each,) if isinstance(each, str) else each for each in self.cluster_axes)


@dataclass(frozen=True)
class Named:
    """The barriers are the hardware's named ones, at which a thread arrives and waits in one step."""


@dataclass(frozen=True)
class Global:
    """Semaphores that a program obtained from `get_global`: they need not end at zero."""


@dataclass(frozen=True)
class Owner:
    """The mesh that an allocation belongs to, by its place among the meshes of the launch."""

    mesh: int


Attribute = TilingTransform | SwizzleTransform | Arrivals | Named | Global | Owner
RECORDS: dict[str, type] = {
    record.__name__: record for record in (TilingTransform, SwizzleTransform, Arrivals, Named, Global, Owner)
}
