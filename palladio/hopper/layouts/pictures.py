"""Layouts as text pictures: the thread and register of each element, the position of each piece of a swizzled row."""

from __future__ import annotations

from collections.abc import Iterator

from palladio.hopper.layouts.registers import THREADS, Layout
from palladio.hopper.layouts.shared import GROUP, SharedLayout

ROWS, COLUMNS = 10, 12
"""The shown elements of an array, from its first corner."""
PIECE = 16
"""The unit of a swizzle in bytes."""


def of_registers(layout: Layout) -> str:
    """`thread:register` of the elements in the corner of an array; the first of several holders."""
    shape = layout.shape or (1,)
    rows, columns = (1, shape[-1]) if len(shape) == 1 else shape[-2:]
    shown = min(rows, ROWS), min(columns, COLUMNS)
    holders = _holders(layout, shown)
    head = "".join(f"{column:>8}" for column in range(shown[1]))
    lines = [f"{layout}: {layout.count} registers of each thread, thread:register", f"     {head}"]
    for row in range(shown[0]):
        cells = "".join(f"{holders.get((row, column), '-'):>8}" for column in range(shown[1]))
        lines.append(f"{row:>5}{cells}{' ...' if shown[1] < columns else ''}")
    return "\n".join([*lines, *(["  ..."] if shown[0] < rows else [])])


def _holders(layout: Layout, shown: tuple[int, int]) -> dict[tuple[int, int], str]:
    """The first holder of each shown element, from the first matrix of an array with more axes."""
    found: dict[tuple[int, int], str] = {}
    elements = layout.elements()
    for thread in range(THREADS):
        for register in range(layout.count):
            place = [int(index) for index in elements[thread, register]]
            *outer, row, column = [0, 0, *place][-max(2, len(place)) :]
            if not any(outer) and row < shown[0] and column < shown[1]:
                found.setdefault((row, column), f"{thread}:{register}")
    return found


def of_shared(layout: SharedLayout) -> str:
    """The 16-byte pieces of a buffer's first rows, in the order of their addresses."""
    what = f"{'x'.join(map(str, layout.shape))} of {layout.itemsize} bytes, {layout.bytes} bytes"
    if not layout.swizzle:
        return f"{what}, row-major"
    return "\n".join([f"{what}, swizzled in rows of {layout.swizzle} bytes; pieces of {PIECE} bytes", *_pieces(layout)])


def _pieces(layout: SharedLayout) -> Iterator[str]:
    addresses = layout.addresses()[(0,) * (len(layout.shape) - 2)]
    each = PIECE // layout.itemsize
    for row in range(min(GROUP, layout.shape[-2])):
        starts = {int(addresses[row, column]): column // each for column in range(0, layout.span, each)}
        first = min(starts)
        order = " ".join(f"{starts[address]:>2}" for address in sorted(starts))
        yield f"{row:>5}  byte {first:>5}  {order}"
    if layout.shape[-1] > layout.span:
        yield f"  the next {layout.span} columns begin {layout.block_bytes} bytes later"
