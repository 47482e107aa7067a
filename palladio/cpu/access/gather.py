"""Accesses element by element, for selections that are not views of memory.

These are indices by integer arrays, joins of axes that are not contiguous, masks and atomic operations. If neighbours
along the last axis are neighbours in memory, e.g. in a gather of whole rows, the elements are accessed in vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.cpu.access.bits import bits_at, from_bits, put_bits, to_bits
from palladio.cpu.access.views import index_of, renumbered
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import Allocation, LazyArray, StridedArray, array_in, cut, fill, for_each, write
from palladio.cpu.emit.llvm_types import I1, LlvmType
from palladio.cpu.emit.scope import RefBinding, Rule, Scope
from palladio.ir.core import Var
from palladio.lower.refused import Refused
from palladio.lower.views import views
from palladio.ops.references.memory import Transforms
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType
from palladio.types.views import Coordinate, View, whole

LONG, TOGETHER = 64, 4
"""The extent of the last axis from which several elements are accessed in each turn of a loop, and their number: to
count and branch takes as many instructions as to access one."""

# Conditions under which an element is inside, each with the value that is read if it fails.
Conditions = list[tuple[V, object, DType]]
Combine = Callable[..., V]


class Selection:
    """A selection of elements of a buffer by a stack of transforms, one element at a time."""

    def __init__(self, scope: Scope, root: StridedArray, stack: Transforms, operands: Sequence[LazyArray]) -> None:
        self.e = scope.e
        self.scope = scope
        self.operands = operands
        self.views = views(root.type, stack, [array.shape for array in operands]) or (whole(root.type),)
        self.type = self.views[-1].type
        # True if an element is a part of a buffer element, or joins several.
        self.recast = any(view.base.dtype.itemsize != root.dtype.itemsize for view in self.views)
        self.whole = root
        self.root = StridedArray(root.base, root.strides, root.shape, self.type.dtype)

    @property
    def is_gathered(self) -> bool:
        """True if arrays of numbers choose the elements."""
        return any(view.gathered for view in self.views)

    @property
    def in_vectors(self) -> bool:
        """True if neighbours along the last axis are neighbours in memory, all inside or all outside."""
        if len(self.views) > 1 or self.recast or not self.type.shape or self.root.strides[-1:] != (1,):
            return False
        (view,) = self.views
        last = len(view.sizes) - 1
        if last in view.gathered or view.base.shape != self.root.shape:
            return False
        *others, along = (row.strides[last] for row in view.coordinates)
        guards = [guard.coordinate.strides[last] for guard in view.guards]
        return along == 1 and not any(others) and not any(guards)

    def each(self, body: Callable[[Sequence[Int], int], None]) -> None:
        """Run `body(index, width)` for all elements in row-major order, in vectors where possible."""
        if self.in_vectors:
            for_each(self.e, self.type.shape, body)
        else:
            one_by_one(self.e, self.type.shape, lambda index: body(index, 1), self.together)

    @property
    def together(self) -> int:
        """The elements along the last axis that are accessed in each turn of a loop, one after the other."""
        return TOGETHER if self.type.shape and self.type.shape[-1] >= LONG and not self.recast else 1

    def nothing(self, dtype: DType) -> object:
        """The value of a read outside the array, for elements of a dtype."""
        return dtypes.uninitialized(dtype)

    def taken_of(self, level: int) -> ArrayType:
        """The array that a view is taken of: the buffer, or the selection of the view before."""
        return self.views[level - 1].type if level else self.whole.type

    def locate(self, index: Sequence[Int]) -> tuple[list[Int], Conditions]:
        """The position in the buffer of the element at an index, clamped inside, and the conditions of being inside."""
        conditions: Conditions = []
        found = list(index)
        for level in reversed(range(len(self.views))):
            found, more = self.back(level, found)
            conditions = [*more, *conditions]
            found = renumbered(self.e, found, self.views[level].base.shape, self.taken_of(level).shape)
        return found, conditions

    def back(self, level: int, index: Sequence[Int]) -> tuple[list[Int], Conditions]:
        """The position of an element in the base of a view, clamped inside, and the conditions of being inside."""
        e, view = self.e, self.views[level]
        found: list[Int] = []
        inside: list[V] = []
        for limit in view.limits:
            at = self.at(limit.coordinate, view, index)
            if limit in view.guards:
                inside.append(e.compare("icmp ult", e.index(at), i64(limit.extent)))
                at = e.select(inside[-1], e.index(at), i64(0))
            found.append(at)
        others = [guard for guard in view.guards if guard not in view.limits]
        for guard in others:
            at = e.index(self.at(guard.coordinate, view, index))
            inside.append(e.compare("icmp ult", at, i64(guard.extent)))
        condition = e.truth(inside)
        if condition is None:
            return found, []
        if others:  # if one of them fails, the coordinates in the base may be outside too
            found = [e.select(condition, at, i64(0)) if isinstance(at, V) else at for at in found]
        return found, [(condition, self.nothing(view.base.dtype), view.base.dtype)]

    def at(self, row: Coordinate, view: View, index: Sequence[Int]) -> Int:
        """A coordinate of an element of the selection of a view."""
        found = row.first(self.e, row.start, lambda operand: self.number(operand, view, index))
        for position, stride in zip(index, row.strides, strict=True):
            found = self.e.add(found, self.e.mul(position, stride))
        return found

    def number(self, operand: int, view: View, index: Sequence[Int]) -> V:
        """An index operand at an element of the selection of a view."""
        array = self.operands[operand]
        mine = [index[axis] for axis in view.gathered[len(view.gathered) - len(array.shape) :]]
        place = [0 if extent == 1 else position for extent, position in zip(array.shape, mine, strict=True)]
        return index_of(self.e, array.at(place, 1), array)

    def load(self, index: Sequence[Int], width: int = 1) -> V:
        """The elements from an index on; if conditions fail, the value of the last one that does."""
        if self.recast:
            return from_bits(self.e, bits_at(self, len(self.views), index), self.type.dtype)
        place, conditions = self.locate(index)
        value = self.root.at(self.e, place, width)
        for condition, nothing, dtype in conditions:
            bits = np.asarray(nothing, dtype).view(self.type.dtype)
            value = self.e.select(condition, value, registers.constant(self.e, bits, self.type.dtype, width))
        return value

    def read(self) -> LazyArray:
        """All elements, in a new buffer."""
        target = self.scope.arena.buffer(self.e, self.type.shape, self.type.dtype)
        self.copy_to(target)
        return array_in(self.e, target)

    def copy_to(self, target: StridedArray) -> None:
        """Copy all elements to a buffer."""
        self.each(lambda index, width: target.put(self.e, index, self.load(index, width), width))

    def update(self, step: Callable[[Cell], None], mask: LazyArray | None = None, lone: bool = False) -> None:
        """Run `step(cell)` for each element that is inside and under the mask, in row-major order.

        Args:
            lone: whether each cell is one element, even if neighbours could be changed together.
        """
        e = self.e

        def element(index: Sequence[Int], width: int = 1) -> None:
            chosen = [] if mask is None else [mask.at(index, 1)]
            if self.recast:  # only parts of an element may be inside
                with e.when(e.truth(chosen)):
                    step(Cell(self, index, None))
                return
            place, conditions = self.locate(index)
            with e.when(e.truth([*(condition for condition, _, _ in conditions), *chosen])):
                step(Cell(self, index, self.root.address(e, place), width))

        if mask is None and not lone and self.in_vectors:
            self.each(element)
            return
        one_by_one(e, self.type.shape, element, 1 if lone else self.together)


@dataclass(frozen=True)
class Cell:
    """An element to change, or some neighbours along the last axis, with their address, if they have one."""

    chosen: Selection
    index: Sequence[Int]
    address: V | None
    width: int = 1

    def load(self) -> V:
        """The elements."""
        if self.address is None:
            return self.chosen.load(self.index)
        return registers.load(self.chosen.e, self.address, self.chosen.type.dtype, self.width)

    def store(self, value: V) -> None:
        """Replace the elements."""
        e, dtype = self.chosen.e, self.chosen.type.dtype
        if self.address is None:
            put_bits(self.chosen, len(self.chosen.views), self.index, to_bits(e, value, dtype))
        else:
            registers.store(e, value, self.address, dtype)


def one_by_one(
    e: Emitter,
    shape: Sequence[int],
    body: Callable[[tuple[Int, ...]], None],
    together: int = 1,
    index: tuple[Int, ...] = (),
) -> None:
    """Run `body(index)` for each element, with some neighbours along the last axis in each turn of its loop."""
    if len(index) == len(shape):
        body(index)
        return
    most = together if len(index) == len(shape) - 1 else 1
    for first, stop, count in cut(shape[len(index)], most):
        with e.loop(first, stop, count) as position:
            for n in range(count):
                one_by_one(e, shape, body, together, (*index, e.add(position, n)))


def combined(scope: Scope, kind: str, dtype: DType, old: V, new: V) -> V:
    """Two elements combined, or two vectors of them."""
    of_arrays = {"exchange": None, "set": None, "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}
    name = of_arrays.get(kind, kind)
    if name is None:
        return new
    width = old.type.width
    type = ArrayType((width,), dtype) if width > 1 else ArrayType((), dtype)
    arrays = [LazyArray(type, lambda index, width, value=value: value) for value in (old, new)]
    (result,) = scope.function.rules[name](scope, *arrays)
    return result.at((0,) if width > 1 else (), width)


def settled(scope: Scope, array: LazyArray) -> LazyArray:
    """An array in memory that nothing changes meanwhile; scalars and uniform arrays stay in a register."""
    if array.shape and array.uniform:
        return array
    changes = any(not memory.steady for memory in array.reads)
    return scope.keep(array) if changes or array.buffer is None or array.fill is not None else array


def store_combined(
    scope: Scope,
    root: StridedArray,
    value: LazyArray,
    indices: Sequence[LazyArray],
    stack: Transforms,
    kind: str = "set",
    mask: LazyArray | None = None,
) -> None:
    """Combine a value with the selected elements, each as often as it is selected, in order."""
    value = settled(scope, value)
    mask = None if mask is None else settled(scope, mask)
    chosen = Selection(scope, root, stack, [settled(scope, array) for array in indices])

    def step(cell: Cell) -> None:
        new = value.at(cell.index, cell.width)
        cell.store(new if kind == "set" else combined(scope, kind, value.dtype, cell.load(), new))

    chosen.update(step, mask)


def _load_masked(
    scope: Scope, ref: RefBinding, mask: LazyArray, other: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    (part,) = scope.function.rules["load"](scope, ref, *indices, transforms=transforms)
    part = part if part.fill is None else scope.keep(part)
    return scope.function.rules["select"](scope, mask, part, other)


def _insert_masked(
    scope: Scope, x: LazyArray, value: LazyArray, mask: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    copy = copied(scope, x)
    store_combined(scope, copy, value, indices, transforms, mask=mask)
    return (array_in(scope.e, copy),)


def copied(scope: Scope, x: LazyArray) -> StridedArray:
    """The elements of an array in a new buffer."""
    copy = scope.arena.buffer(scope.e, x.shape, x.dtype)
    write(scope.e, x, copy)
    return copy


Step = Callable[[V, Cell], V]
"""From the old elements of a cell and the cell to the new ones."""


def _each(
    scope: Scope, place: RefBinding, indices: Sequence[LazyArray], stack: Transforms, step: Step, result: Var | None
) -> LazyArray:
    """Replace each selected element by `step(old, cell)`; returns the old ones, uninitialised where outside.

    Args:
        result: the variable of the old elements: if it is unused, they are not stored.
    """
    e = scope.e
    chosen = Selection(scope, place.buffer, stack, [settled(scope, array) for array in indices])
    dtype = chosen.type.dtype
    used = result is None or scope.uses[result] > 0
    old = scope.arena.buffer(e, chosen.type.shape, dtype) if used else None
    if old is not None:
        fill(e, old, dtypes.uninitialized(dtype))
    contended = not place.memory.exclusive

    def element(cell: Cell) -> None:
        if contended and cell.address is not None:
            found = _exchanged(scope, cell.address, dtype, lambda value: step(value, cell))
        else:
            found = cell.load()
            cell.store(step(found, cell))
        if old is not None:
            old.put(e, cell.index, found, cell.width)

    chosen.update(element, lone=contended)
    if old is None:
        return LazyArray(chosen.type, _unused)
    array = array_in(e, old)
    return array if array.shape else scope.keep(array)


def _unused(index: Sequence[Int], width: int) -> V:
    raise Refused("nothing uses these elements")


def _exchanged(scope: Scope, address: V, dtype: DType, step: Callable[[V], V]) -> V:
    """Atomically replace one element of memory that other threads change too; returns the old one."""
    e, word = scope.e, registers.word(dtype)
    again, done = e.fresh("again"), e.fresh("done")
    e.jump(again)
    e.label(again)
    bits = e.value(word, f"load atomic {word}, ptr {address.text} monotonic, align {dtype.itemsize}")
    old = registers.from_memory(e, e.convert("bitcast", bits, registers.stored(dtype)), dtype)
    new = e.convert("bitcast", registers.to_memory(e, step(old), dtype), word)
    # A weak exchange may fail spuriously, and is then retried like any other.
    found = e.value(LlvmType(f"{{ {word}, i1 }}"), f"cmpxchg weak ptr {address.text}, {bits}, {new} seq_cst seq_cst")
    e.branch(e.value(I1, f"extractvalue {found}, 1"), done, again)
    e.label(done)
    return old


def _atomic(
    scope: Scope, ref: RefBinding, value: LazyArray, *indices: LazyArray, transforms: Transforms, kind: str
) -> Sequence[LazyArray]:
    return (_each(scope, ref, indices, transforms, _combining(scope, value, kind), _result_of(scope, 0)),)


def _combine_each(
    scope: Scope, x: LazyArray, value: LazyArray, *indices: LazyArray, transforms: Transforms, kind: str
) -> Sequence[LazyArray]:
    copy = _own(copied(scope, x))
    old = _each(scope, copy, indices, transforms, _combining(scope, value, kind), _result_of(scope, 1))
    return (_result(scope, copy.buffer), old)


def _own(buffer: StridedArray) -> RefBinding:
    return RefBinding(Allocation("copy", exclusive=True), buffer)


def _result_of(scope: Scope, number: int) -> Var | None:
    """The variable of an output of the current equation."""
    return None if scope.function.eqn is None else scope.function.eqn.outputs[number]


def _result(scope: Scope, buffer: StridedArray) -> LazyArray:
    array = array_in(scope.e, buffer)
    return array if array.shape else scope.keep(array)


def _combining(scope: Scope, value: LazyArray, kind: str) -> Step:
    given = settled(scope, value)
    return lambda old, cell: combined(scope, kind, value.dtype, old, given.at(cell.index, cell.width))


def _if_equal(scope: Scope, compare: LazyArray, value: LazyArray) -> Step:
    e = scope.e
    expected, given = settled(scope, compare), settled(scope, value)
    op = "fcmp oeq" if dtypes.is_float(value.dtype) else "icmp eq"

    def step(old: V, cell: Cell) -> V:
        wanted, new = (array.at(cell.index, cell.width) for array in (expected, given))
        return e.select(e.compare(op, old, wanted), new, old)

    return step


def _atomic_cas(
    scope: Scope, ref: RefBinding, compare: LazyArray, value: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    return (_each(scope, ref, indices, transforms, _if_equal(scope, compare, value), _result_of(scope, 0)),)


def _exchange_each(
    scope: Scope, x: LazyArray, compare: LazyArray, value: LazyArray, *indices: LazyArray, transforms: Transforms
) -> Sequence[LazyArray]:
    copy = _own(copied(scope, x))
    old = _each(scope, copy, indices, transforms, _if_equal(scope, compare, value), _result_of(scope, 1))
    return (_result(scope, copy.buffer), old)


RULES: dict[str, Rule] = {
    "load_masked": _load_masked,
    "insert_masked": _insert_masked,
    "atomic": _atomic,
    "combine_each": _combine_each,
    "atomic_cas": _atomic_cas,
    "exchange_each": _exchange_each,
}
