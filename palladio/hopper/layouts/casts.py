"""The layouts that a kernel requests by `layout_cast`, as layouts of registers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from palladio.base.dataclass import dataclass
from palladio.hopper.layouts import registers
from palladio.hopper.layouts.registers import LANES, THREADS, Digit, Layout
from palladio.lower.refused import Refused
from palladio.types import dtypes
from palladio.types.layouts import PARAMETERS, RegisterLayout, Replicated, Tiling
from palladio.types.types import ArrayType

_ANY = frozenset(("WG_SPLAT", "SMEM_GMEM_COPY", "TMA_INDICES", "TMA_INDICES_4"))
"""Layouts of what moves between memories, for which any layout of registers serves here."""


@dataclass(frozen=True)
class _Tiled:
    """A layout in tiles.

    Fields:
        tile: the least array, which repeats along the last axes; along other axes, whole arrays repeat in registers.
        make: the layout of an array of as many axes.
    """

    tile: tuple[int, ...]
    make: Callable[[tuple[int, ...]], Layout]


def requested(layout: RegisterLayout, type: ArrayType) -> Layout | None:
    """The layout that a kernel requests; None if any layout serves.

    Raises:
        Refused: the layout does not divide the array, or is not one of Hopper's threads.
    """
    if layout.name in _ANY:
        return None
    if layout.name == "WG_STRIDED" and not layout.reduced:
        given = dict(zip(PARAMETERS[layout.name], layout.parameters, strict=False))
        return registers.strided(type.shape, math.gcd(given.get("vec_size", 1), type.shape[-1]))
    if layout.name == "WG_STRIDED":
        return None
    found = _tiled(layout, type)
    shape = _before_reductions(layout, type, found.tile)
    inner = shape[len(shape) - len(found.tile) :]
    if len(inner) < len(found.tile) or any(size % least for size, least in zip(inner, found.tile)):
        sizes = [f"{size} {name}" for size, name in zip(found.tile, ("rows", "columns"))]
        wanted = " and one of ".join(sizes) if len(found.tile) == 2 else f"{'x'.join(map(str, found.tile))} elements"
        raise Refused(
            f"an array of layout {layout.name} has a multiple of {wanted} on Hopper",
            argument="new_layout",
            got=str(type),
        )
    made = _stacked(found.make(inner), shape[: len(shape) - len(inner)])
    for axes in layout.reduced:
        made = made.reduced(axes)
    return made


def _before_reductions(layout: RegisterLayout, type: ArrayType, tile: Sequence[int]) -> tuple[int, ...]:
    """The shape of the array that is reduced to one of a type: along the reduced axes it has the size of a tile."""
    rank = type.ndim + sum(map(len, layout.reduced))
    kept = list(range(rank))
    for axes in layout.reduced:
        kept = [axis for n, axis in enumerate(kept) if n not in axes]
    sizes = dict(zip(kept, type.shape, strict=False))
    tiled = dict(enumerate(tile, rank - len(tile)))
    return tuple(sizes.get(axis, tiled.get(axis, 1)) for axis in range(rank))


def _stacked(layout: Layout, outer: tuple[int, ...]) -> Layout:
    """The layout of a stack of arrays, which the registers go through."""

    def moved(digits: Sequence[Digit]) -> tuple[Digit, ...]:
        return tuple(d if d.axis is None else Digit(d.size, d.axis + len(outer), d.stride) for d in digits)

    stack = tuple(Digit(size, axis) for axis, size in reversed(list(enumerate(outer))))
    shape = (*outer, *layout.shape)
    return Layout(shape, moved(layout.threads), (*moved(layout.registers), *stack), layout.name)


def _matrix(make: Callable[[int, int], Layout]) -> Callable[[tuple[int, ...]], Layout]:
    return lambda shape: make(*shape)


def _transposed(columns: int, rows: int) -> Layout:
    return registers.wgmma(rows, columns).transposed()


_WGMMA = _Tiled((64, 8), _matrix(registers.wgmma))
_LEFT = {
    1: _Tiled((64, 16), _matrix(registers.wgmma_left_8bit)),
    2: _WGMMA,
    4: _Tiled((64, 4), _matrix(registers.wgmma_left_32bit)),
}
_FRAGMENTS: dict[str, _Tiled] = {
    **dict.fromkeys(("WGMMA", "WGMMA_UPCAST_2X", "WGMMA_UPCAST_4X", "MMA_ACC"), _WGMMA),
    "WGMMA_8BIT": _LEFT[1],
    "WGMMA_TRANSPOSED": _Tiled((8, 64), _matrix(_transposed)),
}
"""The layouts of the tensor cores. A register holds one element of any width, so that one stays where it is widened.

The four warps of a warpgroup hold rows of a product by `mma` as they hold those of one by `wgmma`.
"""


def _tiled(layout: RegisterLayout, type: ArrayType) -> _Tiled:
    if layout.name in _FRAGMENTS:
        return _FRAGMENTS[layout.name]
    if layout.name == "TILED":
        return _of_tiling(layout)
    itemsize = (layout.parameters[0] if layout.parameters else type.dtype).itemsize
    if itemsize not in _LEFT:
        raise Refused(
            "operands of mma have 8, 16 or 32 bits",
            argument="new_layout",
            got=dtypes.short_name(layout.parameters[0] if layout.parameters else type.dtype),
        )
    if layout.name == "MMA_LHS":
        return _LEFT[itemsize]
    return _Tiled((32 // itemsize, 8), lambda shape: registers.mma_right(*shape, 4 // itemsize))


def _of_tiling(layout: RegisterLayout) -> _Tiled:
    """The layout of `TILED(tiling, warp_dims, lane_dims, vector_dim)`."""
    tiling, warps, lanes, vector = (*layout.parameters, *(None,) * 4)[:4]
    complete = isinstance(tiling, Tiling) and isinstance(warps, tuple) and isinstance(lanes, tuple)
    if not complete or not isinstance(vector, int) or not _spreads(tiling, warps, lanes, vector):
        raise Refused(
            "a tiled layout spreads its tiles over the 4 warps and 32 lanes of a warpgroup",
            argument="new_layout",
            expected="tiles that divide the ones before, and dimensions of them, counted from the last one, -1: "
            "warp_dims of 4 elements, lane_dims of 32, and a vector_dim, each dimension once",
            got=str(layout),
        )

    def make(shape: tuple[int, ...]) -> Layout:
        digits = _cut([Digit(size, axis) for axis, size in enumerate(shape)], tiling)
        threads = (*lanes[::-1], *warps[::-1])
        used = {len(digits) + each for each in (*warps, *lanes, vector) if isinstance(each, int)}
        rest = [digit for n, digit in reversed(list(enumerate(digits))) if n not in used]
        of_threads = tuple(Digit(each.times) if isinstance(each, Replicated) else digits[each] for each in threads)
        return Layout(shape, of_threads, (digits[vector], *rest), "TILED")

    return _Tiled(tiling.tiles[0], make)


def _cut(digits: list[Digit], tiling: Tiling) -> list[Digit]:
    """The dimensions of an array in nested tiles: the counts of the outermost tiles first."""
    for tile in tiling.tiles:
        before, cut = digits[: -len(tile)], digits[-len(tile) :]
        outer = [Digit(digit.size // size, digit.axis, digit.stride * size) for digit, size in zip(cut, tile)]
        inner = [Digit(size, digit.axis, digit.stride) for digit, size in zip(cut, tile)]
        digits = [*before, *outer, *inner]
    return digits


def _spreads(
    tiling: Tiling, warps: tuple[int | Replicated, ...], lanes: tuple[int | Replicated, ...], vector: int
) -> bool:
    """True if each thread of a warpgroup has a place in the tiles."""
    tile = tiling.tiles[0]
    nested = all(
        size % inner == 0
        for outer, tile in pairwise(tiling.tiles)
        for size, inner in zip(outer[-len(tile) :], tile, strict=True)
    )
    digits = _cut([Digit(size, axis) for axis, size in enumerate(tile)], tiling) if nested else []
    dims = [each for each in (*warps, *lanes, vector) if not isinstance(each, Replicated)]
    if not nested or len(set(dims)) < len(dims) or not all(-len(digits) <= each < 0 for each in dims):
        return False

    def count(dims: Sequence[int | Replicated]) -> int:
        return math.prod(each.times if isinstance(each, Replicated) else digits[each].size for each in dims)

    return count(warps) == THREADS // LANES and count(lanes) == LANES
