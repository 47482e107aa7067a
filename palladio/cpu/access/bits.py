"""Elements after a bitcast that changes the width: parts of an element, or several elements joined.

An element is followed through the views one by one, as its bits after each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from palladio.cpu.access.views import renumbered
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V
from palladio.cpu.emit.llvm_types import I64, LlvmType
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType
from palladio.types.views import View


class Selected(Protocol):
    """The selection of a stack of transforms in a buffer, `gather.Selection`.

    Fields:
        whole: the buffer.
        taken_of: the array that a view is taken of.
        back: the position of an element in the base of a view, and the conditions under which it is inside.
    """

    e: Emitter
    whole: Any
    views: Sequence[View]
    taken_of: Callable[[int], ArrayType]
    back: Callable[[int, Sequence[Int]], tuple[list[Int], Any]]


def from_bits(e: Emitter, bits: V, dtype: DType) -> V:
    """The element of some bits, in a register."""
    return registers.from_memory(e, e.convert("bitcast", bits, registers.stored(dtype)), dtype)


def to_bits(e: Emitter, value: V, dtype: DType) -> V:
    """The bits of an element in a register."""
    return e.convert("bitcast", registers.to_memory(e, value, dtype), registers.word(dtype))


def _constant_bits(value: object, dtype: DType) -> V:
    bits = int.from_bytes(np.asarray(value, dtype).tobytes(), "little")
    return V(str(bits), registers.word(dtype))


def _cut(e: Emitter, place: Sequence[Int], base: ArrayType, array: ArrayType) -> tuple[list[list[Int]], Int | None]:
    """The positions of the elements that a wider one joins; or of the one that holds a narrower one, and its part."""
    old, new = array.dtype.itemsize, base.dtype.itemsize
    if new < old and base.shape[:-1] == array.shape:
        return [list(place[:-1])], place[-1]
    if new > old and array.shape[:-1] == base.shape:
        return [[*place, part] for part in range(new // old)], None
    (number,), line = renumbered(e, place, base.shape, (base.size,)), (array.size,)
    if new < old:
        whole, part = _divided(e, number, old // new)
        return [renumbered(e, [whole], line, array.shape)], part
    first = e.mul(number, new // old)
    return [renumbered(e, [e.add(first, part)], line, array.shape) for part in range(new // old)], None


def _divided(e: Emitter, index: Int, count: int) -> tuple[Int, Int]:
    """The quotient and the remainder of an index by a count."""
    if isinstance(index, int):
        return divmod(index, count)
    return e.binary("udiv", index, e.index(count)), e.binary("urem", index, e.index(count))


def _shift(e: Emitter, part: Int, itemsize: int, wide: LlvmType) -> V:
    """The number of bits before one of the parts of a wide element."""
    bits = e.index(e.mul(part, itemsize * 8))
    return bits if wide == I64 else V(bits.text, wide) if isinstance(part, int) else e.convert("trunc", bits, wide)


def bits_at(chosen: Selected, level: int, index: Sequence[Int]) -> V:
    """The bits of an element of the selection of the first `level` views."""
    e = chosen.e
    if not level:
        root = chosen.whole
        return e.load(registers.word(root.dtype), root.address(e, index), root.dtype.itemsize)
    place, conditions = chosen.back(level - 1, index)
    value = _bits_of(chosen, level - 1, place)
    for condition, nothing, dtype in conditions:
        value = e.select(condition, value, _constant_bits(nothing, dtype))
    return value


def _bits_of(chosen: Selected, level: int, place: Sequence[Int]) -> V:
    """The bits of an element of the base of a view."""
    e, base, array = chosen.e, chosen.views[level].base, chosen.taken_of(level)
    old, new = array.dtype.itemsize, base.dtype.itemsize
    own, wanted = registers.word(array.dtype), registers.word(base.dtype)
    if old == new:
        return bits_at(chosen, level, renumbered(e, place, base.shape, array.shape))
    parts, part = _cut(e, place, base, array)
    if part is not None:
        value = bits_at(chosen, level, parts[0])
        return e.convert(
            "trunc",
            e.binary("lshr", value, _shift(e, part, new, own)),
            wanted,
        )
    result: V | None = None
    for n, at in enumerate(parts):
        value = e.convert("zext", bits_at(chosen, level, at), wanted)
        value = e.binary("shl", value, _shift(e, n, old, wanted))
        result = value if result is None else e.binary("or", result, value)
    return result  # type: ignore[return-value]  # a wide element has parts


def put_bits(chosen: Selected, level: int, index: Sequence[Int], bits: V) -> None:
    """Replace the bits of an element of the selection of the first `level` views; those outside are dropped."""
    e = chosen.e
    if not level:
        e.store(bits, chosen.whole.address(e, index), chosen.whole.dtype.itemsize)
        return
    place, conditions = chosen.back(level - 1, index)
    with e.when(e.truth([condition for condition, _, _ in conditions])):
        _put_bits_of(chosen, level - 1, place, bits)


def _put_bits_of(chosen: Selected, level: int, place: Sequence[Int], bits: V) -> None:
    """Replace the bits of an element of the base of a view."""
    e, base, array = chosen.e, chosen.views[level].base, chosen.taken_of(level)
    old, new = array.dtype.itemsize, base.dtype.itemsize
    own, wanted = registers.word(array.dtype), registers.word(base.dtype)
    if old == new:
        put_bits(chosen, level, renumbered(e, place, base.shape, array.shape), bits)
        return
    parts, part = _cut(e, place, base, array)
    if part is not None:
        shift = _shift(e, part, new, own)
        hole = e.binary("shl", V(str((1 << new * 8) - 1), own), shift)
        kept = e.binary("and", bits_at(chosen, level, parts[0]), e.binary("xor", hole, V("-1", own)))
        moved = e.binary("shl", e.convert("zext", bits, own), shift)
        put_bits(chosen, level, parts[0], e.binary("or", kept, moved))
        return
    for n, at in enumerate(parts):
        value = e.convert("trunc", e.binary("lshr", bits, _shift(e, n, old, wanted)), own)
        put_bits(chosen, level, at, value)
