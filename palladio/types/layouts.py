"""Layouts of arrays in the registers of a warpgroup's threads, as kernels request them.

A layout changes no value. The evaluator, the simulator and the CPU ignore it; a GPU target obeys it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from itertools import pairwise
from numbers import Integral
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioNotImplementedError, PalladioTypeError, PalladioValueError, at_call
from palladio.types import dtypes


@dataclass(frozen=True)
class Tiling:
    """Nested tiles: the last axes are cut into tiles of the first shape, these into tiles of the second, and so on.

    Args:
        tiles: shapes, each with as many sizes as the next or more.

    Raises:
        PalladioTypeError: sizes that are not integers.
        PalladioValueError: no tiles, sizes below 1, a tile of more axes than the one before it.
    """

    tiles: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        with at_call():
            try:
                found = tuple(tuple(map(operator.index, tile)) for tile in self.tiles)
            except TypeError:
                raise PalladioTypeError(
                    "tiles are sequences of integers",
                    argument="tiles",
                    expected="such as ((64, 8), (16, 8))",
                    got=repr(self.tiles),
                ) from None
            if not found or any(not tile or min(tile) < 1 for tile in found):
                raise PalladioValueError("tiles have sizes of at least 1", argument="tiles", got=found)
            if any(len(inner) > len(outer) for outer, inner in pairwise(found)):
                raise PalladioValueError(
                    "a tile has at most the axes of the one before it", argument="tiles", got=found
                )
        object.__setattr__(self, "tiles", found)


@dataclass(frozen=True)
class Replicated:
    """A replicated axis of warps or lanes: `times` of them hold the same elements.

    Raises:
        PalladioValueError: fewer than 1.
    """

    times: int

    def __post_init__(self) -> None:
        with at_call():
            if not isinstance(self.times, int) or self.times < 1:
                raise PalladioValueError("elements are held at least once", argument="times", got=repr(self.times))


@dataclass(frozen=True)
class RegisterLayout:
    """A layout with its parameters, and the axes that reductions have taken from it.

    Fields:
        name: of `Layout`.
        parameters: what it was called with, in the order of `PARAMETERS`.
        reduced: for each `reduce`, its axes.
    """

    name: str
    parameters: tuple[Any, ...] = ()
    reduced: tuple[tuple[int, ...], ...] = ()

    def reduce(self, axes: int | Sequence[int]) -> RegisterLayout:
        """The layout of the result of a reduction, along these axes, of an array in this layout."""
        return replace(self, reduced=(*self.reduced, _axes(axes)))

    @property
    def ndim(self) -> int | None:
        """The number of axes of an array of this layout; None where any number will do."""
        rank = _RANKS.get(self.name)
        return None if rank is None else rank - sum(map(len, self.reduced))

    def fits(self, ndim: int) -> bool:
        """True if an array of this number of axes can have the layout. That of a matrix also fits a stack of them."""
        stacks = self.name in _MATRICES and not self.reduced
        return self.ndim is None or ndim == self.ndim or (stacks and ndim > self.ndim)

    def __str__(self) -> str:
        given = f"({', '.join(map(str, self.parameters))})" if self.parameters else ""
        return self.name + given + "".join(f".reduce({', '.join(map(str, axes))})" for axes in self.reduced)


def _axes(axes: Any) -> tuple[int, ...]:
    found = axes if isinstance(axes, (tuple, list)) else (axes,)
    if not found or not all(isinstance(axis, int) and axis >= 0 for axis in found) or len(set(found)) != len(found):
        raise PalladioValueError(
            "a layout is reduced along axes counted from 0, each once", argument="axes", got=repr(axes)
        )
    return tuple(found)


class Layout(Enum):
    """The layouts that a kernel can request.

    WGMMA is how the tensor cores hold an accumulator `f32[m, n]` and take a left operand of 16 bits (PTX ISA,
    "Register Fragments for wgmma.mma_async.m64nNk16"); WGMMA_8BIT one of 8 bits; WGMMA_UPCAST_2X and _4X hold narrow
    elements where they are after widening to 16 bits; WGMMA_TRANSPOSED is WGMMA with the axes exchanged. WG_SPLAT holds
    one element for all, `WG_STRIDED(shape, vec_size)` vectors of elements in turn. SMEM_GMEM_COPY moves whole rows of
    shared memory; TMA_INDICES and TMA_INDICES_4 hold the rows that a copy gathers. MMA_LHS, MMA_RHS and MMA_ACC are the
    operands of `mma`. `TILED(tiling, warp_dims, lane_dims, vector_dim)` says it in full. A kernel that uses
    one of the TCGEN05 layouts is refused: they need a Blackwell GPU.
    """

    WGMMA = "WGMMA"
    WGMMA_8BIT = "WGMMA_8BIT"
    WGMMA_UPCAST_2X = "WGMMA_UPCAST_2X"
    WGMMA_UPCAST_4X = "WGMMA_UPCAST_4X"
    WGMMA_TRANSPOSED = "WGMMA_TRANSPOSED"
    WG_SPLAT = "WG_SPLAT"
    WG_STRIDED = "WG_STRIDED"
    TILED = "TILED"
    SMEM_GMEM_COPY = "SMEM_GMEM_COPY"
    TMA_INDICES = "TMA_INDICES"
    TMA_INDICES_4 = "TMA_INDICES_4"
    MMA_LHS = "MMA_LHS"
    MMA_RHS = "MMA_RHS"
    MMA_ACC = "MMA_ACC"
    TCGEN05 = "TCGEN05"
    TCGEN05_TRANSPOSED = "TCGEN05_TRANSPOSED"
    TCGEN05_M64_COLLECTIVE = "TCGEN05_M64_COLLECTIVE"
    TCGEN05_TMEM_NATIVE = "TCGEN05_TMEM_NATIVE"
    TCGEN05_M64_COLLECTIVE_NATIVE = "TCGEN05_M64_COLLECTIVE_NATIVE"

    def __call__(self, *parameters: Any, **named: Any) -> RegisterLayout:
        """The layout with its parameters."""
        with at_call():
            if not parameters and not named:
                raise PalladioValueError("a layout is called with its parameters", got=f"{self.name}()")
            return RegisterLayout(self.name, tuple(map(_frozen, _in_order(self.name, parameters, named))))

    def reduce(self, axes: int | Sequence[int]) -> RegisterLayout:
        """The layout of the result of a reduction, along these axes, of an array in this layout."""
        with at_call():
            return RegisterLayout(self.name).reduce(axes)


PARAMETERS: dict[str, tuple[str, ...]] = {
    "WG_SPLAT": ("shape",),
    "WG_STRIDED": ("shape", "vec_size"),
    "TILED": ("tiling", "warp_dims", "lane_dims", "vector_dim"),
    "SMEM_GMEM_COPY": ("shape", "dtype", "swizzle"),
    "MMA_LHS": ("dtype",),
    "MMA_RHS": ("dtype",),
    "MMA_ACC": ("dtype",),
    "TCGEN05_TMEM_NATIVE": ("vector_length",),
    "TCGEN05_M64_COLLECTIVE": ("columns",),
    "TCGEN05_M64_COLLECTIVE_NATIVE": ("columns",),
}
"""The names of the parameters of a layout, in order."""


def _in_order(name: str, parameters: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
    """The parameters of a layout, those given by name in their places."""
    known = PARAMETERS.get(name, ())
    given = {**dict(zip(known, parameters, strict=False)), **named}
    unknown = [each for each in named if each not in known[len(parameters) :]]
    missing = [each for each in known[: len(given)] if each not in given]
    if unknown or missing or len(parameters) > len(known):
        raise PalladioTypeError(
            "a layout is called with other parameters than it has",
            expected=f"{name}({', '.join(known)})" if known else f"{name} without parameters",
            got=f"{name}({', '.join([*map(repr, parameters), *map('{0[0]}={0[1]!r}'.format, named.items())])})",
        )
    return tuple(given[each] for each in known[: len(given)])


def _frozen(value: Any) -> Any:
    """A parameter as programs hold it: tuples of integers, records, dtypes."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    if value is None or isinstance(value, (Integral, str, Tiling, Replicated)):
        return int(value) if isinstance(value, Integral) else value
    return dtypes.canonical(value)


_MATRICES = (
    *("WGMMA", "WGMMA_8BIT", "WGMMA_UPCAST_2X", "WGMMA_UPCAST_4X", "WGMMA_TRANSPOSED"),
    *("MMA_LHS", "MMA_RHS", "MMA_ACC"),
)
_RANKS = {**dict.fromkeys(_MATRICES, 2), "TMA_INDICES": 1, "TMA_INDICES_4": 1}


def described_layout(layout: Any, argument: str = "layout") -> RegisterLayout:
    """The layout that a user gives.

    Raises:
        PalladioTypeError: for what is none.
        PalladioNotImplementedError: for a layout of Blackwell's tensor memory.
    """
    if not isinstance(layout, (Layout, RegisterLayout)):
        raise PalladioTypeError(
            "this is not a layout", argument=argument, expected="such as plgpu.Layout.WGMMA", got=repr(layout)
        )
    if layout.name.startswith("TCGEN05"):
        raise PalladioNotImplementedError(
            f"Layout.{layout.name} needs a Blackwell GPU (sm_100), which no executor of Palladio has",
            hint="on Hopper an accumulator has plgpu.Layout.WGMMA",
        )
    return layout if isinstance(layout, RegisterLayout) else RegisterLayout(layout.name)


def find_swizzle(minor_dim_bits: int, what: str = "") -> int:
    """The widest swizzle, in bytes, of shared memory whose last axis has this many bits: 128, 64, 32, or 16 for none.

    `SwizzleTransform` takes all of them but 16, which permutes nothing.

    Args:
        minor_dim_bits: the elements of the last axis times the bits of each.
        what: what an error calls the memory.

    Raises:
        PalladioTypeError: bits that are not an integer.
        PalladioValueError: bits that are not a positive multiple of 128.
    """
    with at_call():
        if not isinstance(minor_dim_bits, Integral):
            raise PalladioTypeError(
                "a number of bits is an integer", argument="minor_dim_bits", got=repr(minor_dim_bits)
            )
        for swizzle in (128, 64, 32, 16):
            if minor_dim_bits > 0 and minor_dim_bits % (8 * swizzle) == 0:
                return swizzle
        of = f" of {what}" if what else ""
        raise PalladioValueError(
            f"the last axis{of} holds no whole number of 16-byte pieces",
            argument="minor_dim_bits",
            expected="a positive multiple of 128",
            got=minor_dim_bits,
        )


RECORDS: dict[str, type] = {record.__name__: record for record in (RegisterLayout, Tiling, Replicated)}
