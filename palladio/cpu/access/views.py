"""Views of buffers: a shifted address and other strides, and the conditions under which all of it is inside.

A view is `palladio.types.views.View`, evaluated over 64-bit values of generated code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palladio.base.dataclass import dataclass
from palladio.cpu.emit.emitter import FALSE, Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import LazyArray, StridedArray
from palladio.cpu.emit.llvm_types import I64
from palladio.cpu.emit.scope import Scope
from palladio.lower.views import views
from palladio.ops.references.memory import Transforms
from palladio.types import dtypes
from palladio.types.types import ArrayType, Shape
from palladio.types.views import Guard, View, row_major


def as_index(scope: Scope, array: LazyArray) -> V:
    """A scalar integer as an index."""
    return index_of(scope.e, array.at((), 1), array)


def index_of(e: Emitter, value: V, array: LazyArray) -> V:
    """An element of an array as an index. A value beyond 2⁶² becomes that, outside every axis."""
    if array.dtype.itemsize == 8:
        return value if dtypes.is_signed(array.dtype) else e.intrinsic("umin", I64, value, i64(1 << 62))
    return e.convert("sext" if dtypes.is_signed(array.dtype) else "zext", value, I64)


@dataclass(frozen=True)
class Bound:
    """A coordinate of the elements of a view, and the extent of its axis.

    Fields:
        first: of the first element.
        strides: from neighbour to neighbour along each axis of the view.
        guarded: whether it may be outside.
    """

    first: Int
    strides: tuple[int, ...]
    extent: Int
    guarded: bool = True

    def at(self, e: Emitter, index: Sequence[Int]) -> Int:
        """The coordinate of an element."""
        found = self.first
        for position, stride in zip(index, self.strides, strict=True):
            found = e.add(found, e.mul(position, stride))
        return found


class BufferView:
    """A buffer seen through transforms.

    Fields:
        guards: the conditions under which all of it is inside.
        bounds: the bounds checks of each element; empty if all are inside, None if only one check for all elements is
            known, since they have been reordered after a guard.
        recast: whether a guard comes before a bitcast, so that what is read outside has the bits of another dtype.
    """

    def __init__(self, buffer: StridedArray) -> None:
        self.buffer = buffer
        self.guards: list[V] = []
        self.bounds: list[Bound] | None = []
        self.recast = False

    def inside(self, e: Emitter, index: Sequence[Int]) -> V | None:
        """True if an element is inside."""
        found = (bound.at(e, index) for bound in self.bounds or ())
        tests = zip(found, self.bounds or (), strict=True)
        return e.truth([e.compare("icmp ult", at, e.index(bound.extent)) for at, bound in tests if isinstance(at, V)])

    @property
    def by_axis(self) -> bool:
        """True if the elements inside are a range of positions along each axis."""
        return self.bounds is not None and all(sum(map(bool, bound.strides)) <= 1 for bound in self.bounds)


def viewed(scope: Scope, buffer: StridedArray, stack: Transforms, operands: Sequence[LazyArray]) -> BufferView | None:
    """A stack of transforms as a view of a buffer; None if it gathers, or joins axes that are not contiguous."""
    found = BufferView(buffer)
    for view in views(buffer.type, stack, [array.shape for array in operands]):
        recast = None if view.gathered else _recast(found.buffer, view.base)
        if recast is None:
            return None
        before = found.bounds
        found.recast |= bool(found.guards) and recast.dtype != found.buffer.dtype
        found.buffer = recast
        bounds = _select(scope, found, view, operands)
        found.bounds = _joined(before, bounds, len(view.sizes)) if found.guards else []
    return found


def _joined(before: list[Bound] | None, bounds: list[Bound], rank: int) -> list[Bound] | None:
    """The bounds of a view and of the one before, whose elements it reorders; None if those differ between elements.

    Bounds of coordinates that need no guard, e.g. of whole axes, are dropped.
    """
    kept = [bound for bound in before or () if bound.guarded]
    if before is None or any(any(bound.strides) for bound in kept):
        return None
    return [*(replace(bound, strides=(0,) * rank) for bound in kept), *bounds]


def _select(scope: Scope, found: BufferView, view: View, operands: Sequence[LazyArray]) -> list[Bound]:
    """Apply one view to the buffer found so far; returns its bounds."""
    e, old = scope.e, found.buffer
    known: dict[int, V] = {}

    def operand(position: int) -> V:
        if position not in known:
            known[position] = as_index(scope, operands[position])
        return known[position]

    def bound(guard: Guard) -> Bound:
        row = guard.coordinate
        return Bound(row.first(e, row.start, operand), row.strides, guard.extent, guard in view.guards)

    offset: Int = 0
    strides: list[Int] = [0] * len(view.sizes)
    bounds: list[Bound] = []
    for guard, stride in zip(view.limits, old.strides, strict=True):
        row = guard.coordinate
        bounds.append(bound(guard))
        offset = e.add(offset, e.mul(bounds[-1].first, stride))
        if guard in view.guards:
            found.guards.append(between(e, bounds[-1].first, guard.extent - 1 - row.reach(view.sizes)))
        for axis, step in enumerate(row.strides):
            if step:
                strides[axis] = e.mul(stride, step)
    for guard in view.guards:
        if guard not in view.limits:
            bounds.append(bound(guard))
            found.guards.append(between(e, bounds[-1].first, guard.extent - 1 - guard.coordinate.reach(view.sizes)))
    for axis in reversed(range(len(strides))):
        if strides[axis] == 0 and view.sizes[axis] == 1:  # one element: the stride of a contiguous array
            inner = strides[axis + 1] if axis + 1 < len(strides) else 1
            strides[axis] = inner * (*view.sizes, 1)[axis + 1] if isinstance(inner, int) else 0
    found.buffer = StridedArray(e.pointer(old.base, offset, old.dtype.itemsize), tuple(strides), view.sizes, old.dtype)
    return bounds


def between(e: Emitter, value: Int, last: int) -> V:
    """0 <= value <= last, in one unsigned comparison."""
    if last < 0:
        return FALSE
    return e.compare("icmp ule", e.index(value), i64(last))


def _recast(buffer: StridedArray, base: ArrayType) -> StridedArray | None:
    """The same bytes as another array. If its element width or shape differs, they must be contiguous."""
    if buffer.shape == base.shape and buffer.dtype.itemsize == base.dtype.itemsize:
        return StridedArray(buffer.base, buffer.strides, buffer.shape, base.dtype)
    return StridedArray(buffer.base, row_major(base.shape), base.shape, base.dtype) if buffer.contiguous else None


def renumbered(e: Emitter, index: Sequence[Int], old: Shape, new: Shape) -> list[Int]:
    """The index of an element after a reshape in row-major order."""
    if old == new:
        return list(index)
    number: Int = 0
    for position, stride in zip(index, row_major(old), strict=True):
        number = e.add(number, e.mul(position, stride))
    if len(new) == 1:
        return [number]
    found: list[Int] = []
    for extent, stride in zip(new, row_major(new), strict=True):
        whole = 0 if extent == 1 else e.binary("udiv", e.index(number), e.index(max(stride, 1)))
        found.append(0 if extent == 1 else e.binary("urem", e.index(whole), e.index(max(extent, 1))))
    return found
