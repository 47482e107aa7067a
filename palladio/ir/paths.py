"""Access paths (a stack of transforms with its index operands) brought to a shorter form with the same meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palladio.ir.core import Atom, Literal
from palladio.types.transforms import (
    Bitcast,
    Index,
    IndexEntry,
    Operand,
    Peer,
    Reshape,
    SliceEntry,
    Transform,
    Transpose,
    transformed,
)
from palladio.types.types import ArrayType
from palladio.types.views import View

Path = tuple[tuple[Transform, ...], tuple[Atom, ...]]


def is_static(transforms: Sequence[Transform]) -> bool:
    """True if a path selects each element once, inside the axes: it has no index operand."""
    return not any(_operands(transform) for transform in transforms)


def _operands(transform: Transform) -> list[Operand]:
    if isinstance(transform, Peer):
        return [block for _, block in transform.blocks if isinstance(block, Operand)]
    if isinstance(transform, View):
        return [Operand(position) for position in transform.operands]
    if not isinstance(transform, Index):
        return []
    starts = (entry.start if isinstance(entry, SliceEntry) else entry for entry in transform.entries)
    return [start for start in starts if isinstance(start, Operand)]


def concatenated(first: Path, second: Path) -> Path:
    """The path that goes through one and then through another."""
    shift = len(first[1])
    moved = (renumbered(transform, lambda operand: Operand(operand.position + shift)) for transform in second[0])
    return (*first[0], *moved), (*first[1], *second[1])


def shortened(array: ArrayType, transforms: Sequence[Transform], indices: Sequence[Atom]) -> Path:
    """The path without the transforms that change nothing, and with constant indices inside the axes made static.

    Args:
        array: the type of what the path starts from.
        transforms, indices: the path and its index operands.
    """
    kept: list[Transform] = []
    types = [atom.type for atom in indices]
    for transform in transforms:
        if isinstance(transform, Index):
            entries = (
                _static(entry, extent, indices) for entry, extent in zip(transform.entries, array.shape, strict=True)
            )
            transform = Index(tuple(entries))
        if not _changes_nothing(transform, array):
            kept.append(transform)
        array = transformed(array, [transform], types)  # type: ignore[arg-type]
    return _compacted(kept, indices)


def _static(entry: IndexEntry, extent: int, indices: Sequence[Atom]) -> IndexEntry:
    start = entry.start if isinstance(entry, SliceEntry) else entry
    atom = indices[start.position] if isinstance(start, Operand) else None
    if not isinstance(atom, Literal):
        return entry
    first = int(atom.value)
    if not isinstance(entry, SliceEntry):
        return first if 0 <= first < extent else entry
    if entry.size == 0:
        return SliceEntry(0, 0, entry.stride)
    return (
        SliceEntry(first, entry.size, entry.stride)
        if 0 <= first <= extent - 1 - (entry.size - 1) * entry.stride
        else entry
    )


def _changes_nothing(transform: Transform, array: ArrayType) -> bool:
    match transform:
        case Index(entries):
            return all(
                isinstance(entry, SliceEntry) and entry.is_whole(extent)
                for entry, extent in zip(entries, array.shape, strict=True)
            )
        case Reshape(shape):
            return shape == array.shape
        case Bitcast(dtype):
            return dtype == array.dtype
        case Transpose(permutation):
            return permutation == tuple(range(array.ndim))
        case Peer() | View():
            return False


def _compacted(transforms: Sequence[Transform], indices: Sequence[Atom]) -> Path:
    """The path without the index operands that it does not use."""
    used = sorted({operand.position for transform in transforms for operand in _operands(transform)})
    number = {old: new for new, old in enumerate(used)}
    moved = (renumbered(transform, lambda operand: Operand(number[operand.position])) for transform in transforms)
    return tuple(moved), tuple(indices[position] for position in used)


def renumbered(transform: Transform, renumber: Callable[[Operand], Operand]) -> Transform:
    """The transform with its index operands numbered otherwise."""
    if isinstance(transform, Peer):
        blocks = ((axis, renumber(block) if isinstance(block, Operand) else block) for axis, block in transform.blocks)
        return Peer(tuple(blocks))
    if isinstance(transform, View):
        return transform.renumbered(lambda position: renumber(Operand(position)).position)
    if not isinstance(transform, Index):
        return transform
    return Index(tuple(_renumbered_entry(entry, renumber) for entry in transform.entries))


def _renumbered_entry(entry: IndexEntry, renumber: Callable[[Operand], Operand]) -> IndexEntry:
    if isinstance(entry, SliceEntry):
        return (
            SliceEntry(renumber(entry.start), entry.size, entry.stride) if isinstance(entry.start, Operand) else entry
        )
    return renumber(entry) if isinstance(entry, Operand) else entry
