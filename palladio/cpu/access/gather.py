"""Accesses element by element, for what no view of memory shows.

Indices by integer arrays, axes joined of what lies apart, masks and atomic operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from palladio.cpu.access.bits import bits_at, from_bits, put_bits, to_bits
from palladio.cpu.access.views import index_of, renumbered
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Index, V
from palladio.cpu.emit.lazy_array import Buffer, LazyArray, array_in, write
from palladio.cpu.emit.scope import RefBinding, Rule, Scope
from palladio.lower.views import views
from palladio.ops.references.memory import Transforms
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType
from palladio.types.views import Coordinate, View, whole

# Conditions under which an element is inside, each with the value that is read where it fails.
Conditions = list[tuple[V, object, DType]]
Combine = Callable[..., V]


class Selection:
    """A selection of elements of a buffer by a stack of transforms, one element at a time."""

    def __init__(self, scope: Scope, root: Buffer, stack: Transforms, operands: Sequence[LazyArray]) -> None:
        self.e = scope.e
        self.scope = scope
        self.operands = operands
        self.views = views(root.type, stack, [tile.shape for tile in operands]) or (whole(root.type),)
        self.type = self.views[-1].type
        # Whether an element is a part of one of the buffer's, or made of several.
        self.recast = any(view.base.dtype.itemsize != root.dtype.itemsize for view in self.views)
        self.whole = root
        self.root = Buffer(root.base, root.strides, root.shape, self.type.dtype)

    def nothing(self, dtype: DType) -> object:
        """The value that reads outside the array give, for elements of a dtype."""
        return dtypes.uninitialized(dtype)

    def taken_of(self, level: int) -> ArrayType:
        """The array that a view is taken of: the buffer, or what the view before selects."""
        return self.views[level - 1].type if level else self.whole.type

    def locate(self, index: Sequence[Index]) -> tuple[list[Index], Conditions]:
        """The position in the buffer of the element at an index, clamped inside, and whether it was inside."""
        conditions: Conditions = []
        found = list(index)
        for level in reversed(range(len(self.views))):
            found, more = self.back(level, found)
            conditions = [*more, *conditions]
            found = renumbered(self.e, found, self.views[level].base.shape, self.taken_of(level).shape)
        return found, conditions

    def back(self, level: int, index: Sequence[Index]) -> tuple[list[Index], Conditions]:
        """The position in the base of a view of the element at an index, clamped inside, and whether it was inside."""
        e, view = self.e, self.views[level]
        found: list[Index] = []
        inside: list[V] = []
        for limit in view.limits:
            at = self.at(limit.coordinate, view, index)
            if limit in view.guards:
                inside.append(e.compare("icmp ult", e.index(at), V(str(limit.extent), "i64")))
                at = e.select(inside[-1], e.index(at), V("0", "i64"))
            found.append(at)
        others = [guard for guard in view.guards if guard not in view.limits]
        for guard in others:
            at = e.index(self.at(guard.coordinate, view, index))
            inside.append(e.compare("icmp ult", at, V(str(guard.extent), "i64")))
        condition = e.truth(inside)
        if condition is None:
            return found, []
        if others:  # where one of them is outside, so may be the coordinates of the base
            found = [e.select(condition, at, V("0", "i64")) if isinstance(at, V) else at for at in found]
        return found, [(condition, self.nothing(view.base.dtype), view.base.dtype)]

    def at(self, row: Coordinate, view: View, index: Sequence[Index]) -> Index:
        """A coordinate of an element of the selection of a view."""
        found = row.first(self.e, row.start, lambda operand: self.number(operand, view, index))
        for position, stride in zip(index, row.strides, strict=True):
            found = self.e.add(found, self.e.mul(position, stride))
        return found

    def number(self, operand: int, view: View, index: Sequence[Index]) -> V:
        """An index operand at an element of the selection of a view."""
        tile = self.operands[operand]
        mine = [index[axis] for axis in view.gathered[len(view.gathered) - len(tile.shape) :]]
        place = [0 if extent == 1 else position for extent, position in zip(tile.shape, mine, strict=True)]
        return index_of(self.e, tile.at(place, 1), tile)

    def load(self, index: Sequence[Index]) -> V:
        """The element at an index; where a condition fails, what the last one that does says."""
        if self.recast:
            return from_bits(self.e, bits_at(self, len(self.views), index), self.type.dtype)
        place, conditions = self.locate(index)
        value = self.root.at(self.e, place, 1)
        for condition, nothing, dtype in conditions:
            bits = np.asarray(nothing, dtype).view(self.type.dtype)
            value = self.e.select(condition, value, registers.constant(self.e, bits, self.type.dtype))
        return value

    def read(self) -> LazyArray:
        """All elements, in a buffer of their own."""
        target = self.scope.arena.buffer(self.e, self.type.shape, self.type.dtype)
        self.copy_to(target)
        return array_in(self.e, target)

    def copy_to(self, target: Buffer) -> None:
        """Copy all elements to a buffer."""
        one_by_one(self.e, self.type.shape, lambda index: target.put(self.e, index, self.load(index), 1))

    def update(self, step: Callable[[Sequence[Index], Cell], None], mask: LazyArray | None = None) -> None:
        """Run `step(index, cell)` for each element that is inside and under the mask, in row-major order."""
        e = self.e

        def element(index: Sequence[Index]) -> None:
            chosen = [] if mask is None else [mask.at(index, 1)]
            if self.recast:  # of some, only parts may be inside
                with e.when(e.truth(chosen)):
                    step(index, Cell(self, index, None))
                return
            place, conditions = self.locate(index)
            with e.when(e.truth([*(condition for condition, _, _ in conditions), *chosen])):
                step(index, Cell(self, index, self.root.address(e, place)))

        one_by_one(e, self.type.shape, element)


@dataclass(frozen=True)
class Cell:
    """One element that is changed, and its address, if it has one for itself."""

    chosen: Selection
    index: Sequence[Index]
    address: V | None

    def load(self) -> V:
        """The element."""
        if self.address is None:
            return self.chosen.load(self.index)
        return registers.load(self.chosen.e, self.address, self.chosen.type.dtype, 1)

    def store(self, value: V) -> None:
        """Replace the element."""
        e, dtype = self.chosen.e, self.chosen.type.dtype
        if self.address is None:
            put_bits(self.chosen, len(self.chosen.views), self.index, to_bits(e, value, dtype))
        else:
            registers.store(e, value, self.address, dtype)


def one_by_one(
    e: Emitter, shape: Sequence[int], body: Callable[[tuple[Index, ...]], None], index: tuple[Index, ...] = ()
) -> None:
    """Run `body(index)` for each element."""
    if len(index) == len(shape):
        body(index)
        return
    with e.loop(0, shape[len(index)]) as position:
        one_by_one(e, shape, body, (*index, position))


def combined(scope: Scope, kind: str, dtype: DType, old: V, new: V) -> V:
    """Two elements combined."""
    from_tile = {"exchange": None, "set": None, "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}
    name = from_tile.get(kind, kind)
    if name is None:
        return new
    tiles = [LazyArray(ArrayType((), dtype), lambda index, width, value=value: value) for value in (old, new)]
    (result,) = scope.function.rules[name](scope, *tiles)
    return result.at((), 1)


def settled(scope: Scope, tile: LazyArray) -> LazyArray:
    """A tile in memory, or a scalar in a register, whatever happens to what it is computed from."""
    return scope.keep(tile) if tile.reads or tile.buffer is None or tile.fill is not None else tile


def store_combined(
    scope: Scope,
    root: Buffer,
    value: LazyArray,
    indices: Sequence[LazyArray],
    stack: Transforms,
    kind: str = "set",
    mask: LazyArray | None = None,
) -> None:
    """Combine a value with the selected elements, each as often as it is selected, in order."""
    value = settled(scope, value)
    mask = None if mask is None else settled(scope, mask)
    chosen = Selection(scope, root, stack, [settled(scope, tile) for tile in indices])

    def step(index: Sequence[Index], cell: Cell) -> None:
        new = value.at(index, 1)
        cell.store(new if kind == "set" else combined(scope, kind, value.dtype, cell.load(), new))

    chosen.update(step, mask)


def _load_masked(
    scope: Scope, ref: RefBinding, mask: LazyArray, other: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    (part,) = scope.function.rules["load"](scope, ref, *indices, transforms=transforms)
    return scope.function.rules["select"](scope, mask, part, other)


def _store_masked(
    scope: Scope, ref: RefBinding, value: LazyArray, mask: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    store_combined(scope, ref.buffer, value, indices, transforms, mask=mask)
    return ()


def _insert_masked(
    scope: Scope, x: LazyArray, value: LazyArray, mask: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    copy = copied(scope, x)
    store_combined(scope, copy, value, indices, transforms, mask=mask)
    return (array_in(scope.e, copy),)


def copied(scope: Scope, x: LazyArray) -> Buffer:
    """The elements of a tile in a new buffer."""
    copy = scope.arena.buffer(scope.e, x.shape, x.dtype)
    write(scope.e, x, copy)
    return copy


Step = Callable[[V, Sequence[Index]], V]


def _each(
    scope: Scope, root: Buffer, dtype: DType, indices: Sequence[LazyArray], stack: Transforms, step: Step, atomic: bool
) -> LazyArray:
    """Replace each selected element by `step(old, index)`; returns the old ones, uninitialised where outside."""
    e = scope.e
    chosen = Selection(scope, root, stack, [settled(scope, tile) for tile in indices])
    old = scope.arena.buffer(e, chosen.type.shape, dtype)
    nothing = registers.constant(e, dtypes.uninitialized(dtype), dtype)
    one_by_one(e, chosen.type.shape, lambda index: old.put(e, index, nothing, 1))

    def element(index: Sequence[Index], cell: Cell) -> None:
        if atomic and cell.address is not None:
            found = _exchanged(scope, cell.address, dtype, lambda value: step(value, index))
        else:
            found = cell.load()
            cell.store(step(found, index))
        old.put(e, index, found, 1)

    chosen.update(element)
    tile = array_in(e, old)
    return tile if tile.shape else scope.keep(tile)


def _exchanged(scope: Scope, address: V, dtype: DType, step: Callable[[V], V]) -> V:
    """Replace one element, of memory that other threads change too; returns the old one."""
    e, word, stored = scope.e, f"i{dtype.itemsize * 8}", registers.stored(dtype)
    again, done = e.fresh("again"), e.fresh("done")
    e.jump(again)
    e.label(again)
    bits = e.value(word, f"load atomic {word}, ptr {address.text} monotonic, align {dtype.itemsize}")
    old = registers.from_memory(e, e.convert("bitcast", bits, stored), dtype)
    new = e.convert("bitcast", registers.to_memory(e, step(old), dtype), word)
    pair = f"{{ {word}, i1 }}"
    # A weak exchange may fail for no reason, and is then tried again as any other.
    found = e.value(pair, f"cmpxchg weak ptr {address.text}, {bits}, {new} seq_cst seq_cst")
    e.branch(e.value("i1", f"extractvalue {found}, 1"), done, again)
    e.label(done)
    return old


def _atomic(
    scope: Scope, ref: RefBinding, value: LazyArray, *indices: LazyArray, transforms: Transforms, kind: str
) -> Sequence[LazyArray]:
    given = settled(scope, value)
    step: Step = lambda old, index: combined(scope, kind, value.dtype, old, given.at(index, 1))  # noqa: E731
    return (_each(scope, ref.buffer, value.dtype, indices, transforms, step, True),)


def _combine_each(
    scope: Scope, x: LazyArray, value: LazyArray, *indices: LazyArray, transforms: Transforms, kind: str
) -> Sequence[LazyArray]:
    copy, given = copied(scope, x), settled(scope, value)
    step: Step = lambda old, index: combined(scope, kind, value.dtype, old, given.at(index, 1))  # noqa: E731
    old = _each(scope, copy, value.dtype, indices, transforms, step, False)
    return (_result(scope, copy), old)


def _result(scope: Scope, buffer: Buffer) -> LazyArray:
    tile = array_in(scope.e, buffer)
    return tile if tile.shape else scope.keep(tile)


def _if_equal(scope: Scope, compare: LazyArray, value: LazyArray) -> Step:
    e = scope.e
    expected, given = settled(scope, compare), settled(scope, value)
    op = "fcmp oeq" if dtypes.is_float(value.dtype) else "icmp eq"
    return lambda old, index: e.select(e.compare(op, old, expected.at(index, 1)), given.at(index, 1), old)


def _atomic_cas(
    scope: Scope, ref: RefBinding, compare: LazyArray, value: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    step = _if_equal(scope, compare, value)
    return (_each(scope, ref.buffer, value.dtype, indices, transforms, step, True),)


def _exchange_each(
    scope: Scope, x: LazyArray, compare: LazyArray, value: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    copy = copied(scope, x)
    old = _each(scope, copy, value.dtype, indices, transforms, _if_equal(scope, compare, value), False)
    return (_result(scope, copy), old)


RULES: dict[str, Rule] = {
    "load_masked": _load_masked,
    "store_masked": _store_masked,
    "insert_masked": _insert_masked,
    "atomic": _atomic,
    "combine_each": _combine_each,
    "atomic_cas": _atomic_cas,
    "exchange_each": _exchange_each,
}
