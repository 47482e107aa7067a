"""The layout of a block's shared memory: its buffers and barriers, and the owners of the hardware's barriers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioValueError
from palladio.base.locations import Location
from palladio.hopper.emit.uses import Use
from palladio.hopper.layouts.shared import GROUP, SharedLayout, swizzle_for
from palladio.ir.core import Var
from palladio.lower.place import arrivals_of
from palladio.lower.refused import Refused
from palladio.types.attributes import SwizzleTransform
from palladio.types.device import H100_SXM
from palladio.types.types import RefType

SHARED_BYTES = H100_SXM.shared_bytes
HARDWARE_BARRIERS = H100_SXM.named_barriers
BARRIER_BYTES = H100_SXM.barrier_bytes
WARPGROUP_THREADS = 128


@dataclass(frozen=True)
class Initialised:
    """Barriers that the prologue initialises: their offset, number, and arrivals of each phase."""

    offset: int
    number: int
    arrivals: int
    name: str


Owned = tuple[Var, tuple[int, ...]]
"""An allocation and the warpgroups that have it for themselves, each a copy; none if the block shares it.

Roles have the variables of their scopes in common.
"""


@dataclass
class Plan:
    """The shared memory allocated so far.

    Fields:
        warpgroups: of a block.
        blocks: the number of blocks of a cluster along each of its axes.
        bytes: the allocated bytes.
    """

    warpgroups: int
    blocks: dict[str, int]
    bytes: int = 0
    barriers: list[Initialised] = field(default_factory=list)
    buffers: list[tuple[str, int, SharedLayout]] = field(default_factory=list)
    placed: dict[Owned, tuple[int, SharedLayout]] = field(default_factory=dict)
    named: int = 0

    def take(self, size: int, alignment: int) -> int:
        """Allocate aligned bytes; returns their offset."""
        offset = math.ceil(self.bytes / alignment) * alignment
        self.bytes = offset + size
        return offset

    def buffer(self, var: Var, use: Use, owners: tuple[int, ...] = ()) -> tuple[int, SharedLayout]:
        """The offset and layout of a buffer; the copies of its owners are adjacent.

        Raises:
            Refused: the uses of the buffer need different layouts.
        """
        key = var, owners
        if key not in self.placed:
            layout = layout_of(var.type, use)
            size = math.ceil(layout.bytes / layout.alignment) * layout.alignment
            self.placed[key] = self.take(size * max(1, len(owners)), layout.alignment), layout
            self.buffers.append((var.hint or "buffer", self.placed[key][0], layout))
        return self.placed[key]

    def barrier(self, var: Var, use: Use, owners: tuple[int, ...] = ()) -> int:
        """The offset of an array of barriers; the copies of its owners are adjacent."""
        key = var, owners
        if key not in self.placed:
            number, copies = max(1, var.type.size), max(1, len(owners))
            arrivals = arrivals_of(var.type, self.blocks) * use.unit
            offset = self.take(BARRIER_BYTES * number * copies, BARRIER_BYTES)
            self.barriers.append(Initialised(offset, number * copies, arrivals, var.hint or "barriers"))
            self.placed[key] = offset, SharedLayout((number,), BARRIER_BYTES)
        return self.placed[key][0]

    def named_barriers(self, var: Var, location: Location | None = None) -> int:
        """The number of the first of an array of hardware barriers.

        Raises:
            PalladioValueError: there are more of them than the hardware has.
        """
        key = var, ()
        if key not in self.placed:
            number = max(1, var.type.size)
            first = 1 + self.warpgroups + self.named
            if first + number > HARDWARE_BARRIERS:
                raise PalladioValueError(
                    "a block has 16 barriers of the hardware: one of its own, one for each warpgroup, and named ones",
                    argument=var.hint or "NamedBarrier",
                    expected=f"at most {HARDWARE_BARRIERS - 1 - self.warpgroups} named barriers",
                    got=self.named + number,
                    location=location,
                )
            self.named += number
            self.placed[key] = first, SharedLayout((number,), 1)
        return self.placed[key][0]

    def check(self) -> None:
        """Refuse buffers that do not fit.

        Raises:
            PalladioValueError: they exceed the shared memory of a block.
        """
        if self.bytes > SHARED_BYTES:
            listed = ", ".join(f"{name} {layout.bytes}" for name, _, layout in self.buffers)
            raise PalladioValueError(
                "the buffers of a block do not fit into its shared memory",
                expected=f"at most {SHARED_BYTES} bytes",
                got=f"{self.bytes} bytes: {listed}, and {sum(each.number for each in self.barriers)} barriers",
                hint="take fewer stages or smaller blocks",
            )


def layout_of(type: RefType, use: Use) -> SharedLayout:
    """The layout of a buffer in shared memory: swizzled for wgmma operands and TMA copies of matrices, else row-major.

    Raises:
        PalladioValueError: the kernel requests a swizzle that does not divide the buffer's rows.
    """
    plain = SharedLayout(type.shape, type.dtype.itemsize)
    requested = type.attribute(SwizzleTransform)
    if type.ndim < 2:
        return plain
    if requested is not None:
        if type.shape[-1] * type.dtype.itemsize % requested.swizzle:
            raise PalladioValueError(
                "the rows of a buffer are not made of whole rows of its swizzle",
                argument="transforms",
                expected=f"a multiple of {requested.swizzle} bytes",
                got=f"{type.shape[-1] * type.dtype.itemsize} bytes of {type.array}",
            )
        return SharedLayout(type.shape, type.dtype.itemsize, requested.swizzle)
    swizzle = swizzle_for(type.shape[-1], type.dtype.itemsize)
    if use.products and not swizzle:
        raise Refused(
            "an operand of the tensor cores has rows of 32 or 64 bytes, or of a multiple of 128",
            argument="wgmma",
            expected="a last axis of a multiple of 32 bytes",
            got=f"{type.shape[-1] * type.dtype.itemsize} bytes of {type.array}",
            location=use.products[0],
            other=next(iter(use.copies), None),
            other_label="the buffer is filled here",
        )
    if use.products or (use.copies and type.shape[-2] % GROUP == 0):
        return SharedLayout(type.shape, type.dtype.itemsize, swizzle)
    return plain


def registers_fit(counts: Sequence[tuple[tuple[int, ...], int | None]], warpgroups: int) -> None:
    """Refuse register counts over the block's pool, which is fixed at launch and shared by its warpgroups.

    Args:
        counts: for each role its warpgroups, and the count that they request, if any.

    Raises:
        PalladioValueError: the counts of all warpgroups exceed the pool.
    """
    begins = H100_SXM.registers_at_launch(warpgroups)
    total = sum(len(groups) * (count or begins) for groups, count in counts)
    if total > begins * warpgroups:
        most = f"{begins * warpgroups} for a thread of each warpgroup, together: {begins} each as the kernel begins"
        raise PalladioValueError(
            "the warpgroups of a block request more registers than there are",
            argument="set_max_registers",
            expected=f"at most {most}",
            got=" + ".join(f"{len(groups)} * {count or begins}" for groups, count in counts),
        )
