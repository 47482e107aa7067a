"""The words of reports for places in a run: a part of a buffer, and the step of the loops around an access."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palladio.machine.check.regions import Bands, Region
from palladio.machine.run.buffers import Buffer
from palladio.machine.run.threads import Trail
from palladio.ops.control import loop
from palladio.types.types import ArrayType

TILE = "local_tile"
"""The index of a loop that distributes the points of a grid (`plgpu.nd_loop`), which has no name in the kernel."""

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def at_text(trail: Trail) -> str:
    """The iterations of loops, innermost first: `k = 7, second tile`."""
    parts = []
    while trail is not None:
        trail, eqn, index = trail
        parts.append(_iteration(eqn, index))
    return ", ".join(parts)


def _iteration(eqn: Any, index: Any) -> str:
    if isinstance(index, tuple):
        return f"grid point ({', '.join(map(str, index))})"
    name = eqn.body.inputs[0].hint if eqn.op is loop else ""
    if name == TILE:
        return f"{_ORDINALS[index]} tile" if index < len(_ORDINALS) else f"tile {index + 1:,}"
    return f"{name} = {index}" if name else f"iteration {index}"


def part_text(name: str, shape: Sequence[int], region: Region | None) -> str:
    """A part of a buffer in source notation: `x[3, 64:128]`; the buffer's name alone for all of it."""
    return name + _selection(shape, region)[0]


def describe(store: Buffer, region: Region | None = None) -> str:
    """The description of a buffer or a part of it in reports: `ring[1] (f16[64, 64] in smem)`."""
    text, sizes = _selection(store.type.shape, region)
    return f"{store.name}{text} ({ArrayType(sizes, store.type.dtype)} in {store.type.space})"


def common(one: Region | None, other: Region | None) -> Region | None:
    """The elements in both regions of one buffer; the second region if bands cannot express them."""
    if one is None or other is None or one.bands is None or other.bands is None or one.chosen is not None:
        return other
    bands = tuple(_both(mine, theirs) for mine, theirs in zip(one.bands, other.bands, strict=True))
    return Region(bands) if all(bands) and other.chosen is None else other


def _both(mine: Bands, theirs: Bands) -> Bands:
    overlaps = ((max(a, c), min(b, d)) for a, b in mine for c, d in theirs)
    return tuple((low, high) for low, high in overlaps if low < high)


def _selection(shape: Sequence[int], region: Region | None) -> tuple[str, tuple[int, ...]]:
    """The text of a selection in brackets, without whole axes at its end, and its shape."""
    bands = region.bands if region is not None and region.chosen is None else None
    if bands is None or all(each == ((0, extent),) for each, extent in zip(bands, shape, strict=True)):
        return "", tuple(shape)
    texts: list[str] = []
    sizes: list[int] = []
    for each, extent in zip(bands, shape, strict=True):
        low, high = each[0][0], each[-1][1]
        if high - low == 1 and extent > 1:
            texts.append(str(low))
            continue
        sizes.append(sum(last - first for first, last in each))
        texts.append(":" if (low, high) == (0, extent) and len(each) == 1 else f"{low}:{high}")
    while texts and texts[-1] == ":":
        texts.pop()
    return f"[{', '.join(texts)}]", tuple(sizes)


__all__ = ["TILE", "at_text", "common", "describe", "part_text"]
