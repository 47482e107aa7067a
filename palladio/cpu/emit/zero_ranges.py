"""Zero ranges: the positions outside of which all elements of an array are zero, from masks by comparison.

`where(first <= arange(n) + at, ...)` and the like leave zeros outside a span of positions along an axis, which products
need not multiply. The analysis is conservative: a range may be too wide, never too narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from palladio.cpu.emit.emitter import Emitter, Int, V
from palladio.ir.core import Eqn, Literal, Op
from palladio.ops.arrays.arithmetic import add, sub
from palladio.ops.arrays.bits import bitwise_and
from palladio.ops.arrays.casts import convert
from palladio.ops.arrays.compare import eq, ge, gt, le, lt, select
from palladio.ops.arrays.shape import broadcast, iota, reshape, transpose
from palladio.types import dtypes
from palladio.types.types import Shape

if TYPE_CHECKING:
    from palladio.cpu.emit.lazy_array import LazyArray
else:
    LazyArray = Any

Spans = dict[int, tuple[Int, Int]]


def annotate(e: Emitter, eqn: Eqn, inputs: Sequence[Any], outputs: Sequence[LazyArray]) -> None:
    """Say of the result of an equation what its inputs tell."""
    rule = _RULES.get(eqn.op)
    if rule is not None and len(outputs) == 1 and outputs[0].shape:
        rule(e, eqn, inputs, outputs[0])


def _count(e: Emitter, eqn: Eqn, inputs: Sequence[Any], out: LazyArray) -> None:
    if out.dtype == dtypes.INT32:
        out.ramp = (eqn.axis, 0)


def _shift(e: Emitter, eqn: Eqn, inputs: Sequence[Any], out: LazyArray) -> None:
    """The ramp of `x + y` or `x - y`, one of them a ramp and the other a scalar."""
    x, y = inputs
    if eqn.op is add and y.ramp is not None:
        x, y = y, x
    if x.ramp is not None and not y.shape:
        axis, start = x.ramp
        out.ramp = axis, (e.add if eqn.op is add else e.sub)(start, e.convert("sext", y.at((), 1), "i64"))


def _compare(e: Emitter, eqn: Eqn, inputs: Sequence[Any], out: LazyArray) -> None:
    """The range in which a comparison of a ramp with a scalar may be true."""
    (x, y), bounds = inputs, _BOUNDS[eqn.op]
    if x.ramp is None:
        x, y, bounds = y, x, _BOUNDS[_MIRRORED[eqn.op]]
    if x.ramp is None or y.shape:
        return
    axis, start = x.ramp
    extent = x.shape[axis]
    # The position at which the ramp has the value of the scalar.
    equal = e.sub(e.convert("sext", y.at((), 1), "i64"), start)
    low, high = (None if bound is None else e.add(equal, bound) for bound in bounds)
    # A ramp that leaves the int32 goes on at the other end: anything may be true.
    top = e.compare("icmp sle", e.index(start), V(str(2**31 - extent), "i64"))
    bottom = e.compare("icmp sge", e.index(start), V(str(-(2**31)), "i64"))
    straight = e.binary("and", top, bottom)
    first, last = _between(e, 0 if low is None else low, extent), _between(e, extent if high is None else high, extent)
    out.zero_ranges = {axis: (e.choose(straight, first, 0), e.choose(straight, last, extent))}


def _conjunction(e: Emitter, eqn: Eqn, inputs: Sequence[Any], out: LazyArray) -> None:
    if out.dtype == dtypes.BOOL:
        out.zero_ranges = _both(e, inputs[0].zero_ranges, inputs[1].zero_ranges)


def _choice(e: Emitter, eqn: Eqn, inputs: Sequence[Any], out: LazyArray) -> None:
    mask, value, _ = inputs
    other = eqn.on_false
    if isinstance(other, Literal) and other.value == 0 and mask.shape == out.shape:
        out.zero_ranges = _both(e, mask.zero_ranges, value.zero_ranges)
        out.near = value.buffer


def _conversion(e: Emitter, eqn: Eqn, inputs: Sequence[Any], out: LazyArray) -> None:
    out.zero_ranges = dict(inputs[0].zero_ranges)


def _rearranged(e: Emitter, eqn: Eqn, inputs: Sequence[Any], out: LazyArray) -> dict[int, int]:
    axes = _AXES[eqn.op](inputs[0].shape, out.shape, eqn.params)
    out.zero_ranges = {axes[axis]: span for axis, span in inputs[0].zero_ranges.items() if axis in axes}
    if inputs[0].ramp is not None and inputs[0].ramp[0] in axes:
        out.ramp = (axes[inputs[0].ramp[0]], inputs[0].ramp[1])
    return axes


def _spread(e: Emitter, eqn: Eqn, inputs: Sequence[Any], out: LazyArray) -> None:
    axes = _rearranged(e, eqn, inputs, out)
    out.alike = frozenset(range(len(out.shape))).difference(axes.values())


def _between(e: Emitter, value: Int, most: int) -> Int:
    """A position moved into [0, most]."""
    if isinstance(value, int):
        return min(max(value, 0), most)
    return e.intrinsic("smin", "i64", e.intrinsic("smax", "i64", value, V("0", "i64")), V(str(most), "i64"))


def _both(e: Emitter, x: Spans, y: Spans) -> Spans:
    """The spans of what is zero where either of two is."""
    found = {**x, **y}
    for axis in x.keys() & y.keys():
        (low, high), (lower, higher) = x[axis], y[axis]
        low = e.intrinsic("smax", "i64", e.index(low), e.index(lower))
        found[axis] = low, e.intrinsic("smin", "i64", e.index(high), e.index(higher))
    return found


def _reshaped(before: Shape, after: Shape, params: dict[str, Any]) -> dict[int, int]:
    """The new position of each axis that is not of size 1, if no others come or go."""
    kept = [axis for axis, extent in enumerate(before) if extent != 1]
    places = [axis for axis, extent in enumerate(after) if extent != 1]
    same = [before[axis] for axis in kept] == [after[axis] for axis in places]
    return dict(zip(kept, places, strict=True)) if same else {}


def _broadcast(before: Shape, after: Shape, params: dict[str, Any]) -> dict[int, int]:
    return {n: axis for n, axis in enumerate(params["axes"]) if before[n] == after[axis]}


def _transposed(before: Shape, after: Shape, params: dict[str, Any]) -> dict[int, int]:
    return {axis: place for place, axis in enumerate(params["permutation"])}


_AXES: dict[Op, Callable[[Shape, Shape, dict[str, Any]], dict[int, int]]] = {
    reshape: _reshaped,
    broadcast: _broadcast,
    transpose: _transposed,
}

_BOUNDS: dict[Op, tuple[int | None, int | None]] = {
    lt: (None, 0),
    le: (None, 1),
    gt: (1, None),
    ge: (0, None),
    eq: (0, 1),
}
"""The range in which `ramp op scalar` may be true: the first position and that after the last."""

_MIRRORED: dict[Op, Op] = {lt: gt, le: ge, gt: lt, ge: le, eq: eq}

_RULES: dict[Op, Callable[[Emitter, Eqn, Sequence[Any], LazyArray], Any]] = {
    iota: _count,
    add: _shift,
    sub: _shift,
    **dict.fromkeys(_BOUNDS, _compare),
    bitwise_and: _conjunction,
    select: _choice,
    convert: _conversion,
    reshape: _rearranged,
    transpose: _rearranged,
    broadcast: _spread,
}
