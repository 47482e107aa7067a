"""Elements whose bits are parts of others, or of several: what a bitcast that changes the width selects.

An element is followed through the transforms one by one, as the bits that it has behind each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Index, V
from palladio.types.dtypes import DType
from palladio.types.transforms import Bitcast, bitcast_axis


class Selected(Protocol):
    """Elements that a stack of transforms selects of a buffer, `gather.Selection`.

    Fields:
        whole: the buffer.
        steps: each transform, and the type of what it is applied to.
        back: the place of an element before one transform, and the conditions under which it is inside.
    """

    e: Emitter
    whole: Any
    steps: list[Any]
    back: Callable[[Any, Any, Sequence[Index]], tuple[list[Index], Any]]


def word(itemsize: int) -> str:
    """The LLVM type of the bits of an element."""
    return f"i{itemsize * 8}"


def from_bits(e: Emitter, bits: V, dtype: DType) -> V:
    """The element of some bits, in a register."""
    return registers.from_memory(e, e.convert("bitcast", bits, registers.stored(dtype)), dtype)


def to_bits(e: Emitter, value: V, dtype: DType) -> V:
    """The bits of an element in a register."""
    return e.convert("bitcast", registers.to_memory(e, value, dtype), word(dtype.itemsize))


def _constant_bits(value: object, dtype: DType) -> V:
    bits = int.from_bytes(np.asarray(value, dtype).tobytes(), "little")
    return V(str(bits), word(dtype.itemsize))


def _divided(e: Emitter, index: Index, count: int) -> tuple[Index, Index]:
    """An index by a count, and the rest."""
    if isinstance(index, int):
        return divmod(index, count)
    return e.binary("udiv", index, e.index(count)), e.binary("urem", index, e.index(count))


def _at(index: Sequence[Index], axis: int, position: Index) -> list[Index]:
    return [*index[:axis], position, *index[axis + 1 :]]


def _shift(e: Emitter, part: Index, itemsize: int, wide: str) -> V:
    """The number of bits before one of the parts of a wide element."""
    bits = e.index(e.mul(part, itemsize * 8))
    return bits if wide == "i64" else V(bits.text, wide) if isinstance(part, int) else e.convert("trunc", bits, wide)


def bits_at(chosen: Selected, level: int, index: Sequence[Index]) -> V:
    """The bits of an element of what the first transforms select."""
    e = chosen.e
    if not level:
        root = chosen.whole
        return e.load(word(root.dtype.itemsize), root.address(e, index), root.dtype.itemsize)
    transform, type = chosen.steps[level - 1]
    if not isinstance(transform, Bitcast):
        place, conditions = chosen.back(transform, type, index)
        value = bits_at(chosen, level - 1, place)
        for condition, nothing, dtype in conditions:
            value = e.select(condition, value, _constant_bits(nothing, dtype))
        return value
    old, new = type.dtype.itemsize, transform.dtype.itemsize
    if old == new:
        return bits_at(chosen, level - 1, index)
    axis = bitcast_axis(len(index))
    if new < old:
        whole, part = _divided(e, index[axis], old // new)
        value = bits_at(chosen, level - 1, _at(index, axis, whole))
        return e.convert("trunc", e.binary("lshr", value, _shift(e, part, new, word(old))), word(new))
    first = e.mul(index[axis], new // old)
    result: V | None = None
    for part in range(new // old):
        value = e.convert("zext", bits_at(chosen, level - 1, _at(index, axis, e.add(first, part))), word(new))
        value = e.binary("shl", value, _shift(e, part, old, word(new)))
        result = value if result is None else e.binary("or", result, value)
    return result  # type: ignore[return-value]  # a wide element has parts


def put_bits(chosen: Selected, level: int, index: Sequence[Index], bits: V) -> None:
    """Replace the bits of an element of what the first transforms select; those outside are dropped."""
    e = chosen.e
    if not level:
        e.store(bits, chosen.whole.address(e, index), chosen.whole.dtype.itemsize)
        return
    transform, type = chosen.steps[level - 1]
    if not isinstance(transform, Bitcast):
        place, conditions = chosen.back(transform, type, index)
        with e.when(e.truth([condition for condition, _, _ in conditions])):
            put_bits(chosen, level - 1, place, bits)
        return
    old, new = type.dtype.itemsize, transform.dtype.itemsize
    if old == new:
        put_bits(chosen, level - 1, index, bits)
        return
    axis = bitcast_axis(len(index))
    if new < old:
        whole, part = _divided(e, index[axis], old // new)
        place, shift = _at(index, axis, whole), _shift(e, part, new, word(old))
        hole = e.binary("shl", V(str((1 << new * 8) - 1), word(old)), shift)
        kept = e.binary("and", bits_at(chosen, level - 1, place), e.binary("xor", hole, V("-1", word(old))))
        moved = e.binary("shl", e.convert("zext", bits, word(old)), shift)
        put_bits(chosen, level - 1, place, e.binary("or", kept, moved))
        return
    first = e.mul(index[axis], new // old)
    for part in range(new // old):
        value = e.convert("trunc", e.binary("lshr", bits, _shift(e, part, old, word(new))), word(old))
        put_bits(chosen, level - 1, _at(index, axis, e.add(first, part)), value)
