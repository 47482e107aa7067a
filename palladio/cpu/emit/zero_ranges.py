"""Where the elements of a tile are surely zero: what masks by comparisons of positions tell.

`where(first <= arange(n) + at, ...)` and the like leave zeros outside a span of positions along an axis, which products
need not multiply. What is said of a tile is always true, never all that is: a span may be too wide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from palladio.cpu.emit.emitter import Emitter, Index, V
from palladio.ir.core import Eqn, Literal
from palladio.types import dtypes
from palladio.types.types import Shape

if TYPE_CHECKING:
    from palladio.cpu.emit.lazy_array import LazyArray

Spans = dict[int, tuple[Index, Index]]

_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


def annotate(e: Emitter, eqn: Eqn, inputs: Sequence[Any], outputs: Sequence[LazyArray]) -> None:
    """Say of the result of an equation what its inputs tell."""
    if len(outputs) != 1 or not outputs[0].shape:
        return
    (out,) = outputs
    name, params = eqn.op.name, eqn.params
    if name == "iota":
        if out.dtype == dtypes.INT32:
            out.ramp = (params["axis"], 0)
    elif name in ("add", "sub"):
        out.ramp = _moved(e, name, *inputs)
    elif name in _MIRRORED:
        out.zero_ranges = _compared(e, name, *inputs)
    elif name == "bitwise_and" and out.dtype == dtypes.BOOL:
        out.zero_ranges = _both(e, inputs[0].zero_ranges, inputs[1].zero_ranges)
    elif name == "select":
        mask, value, rest = inputs
        other = eqn.inputs[2]
        if isinstance(other, Literal) and other.value == 0 and mask.shape == out.shape:
            out.zero_ranges = _both(e, mask.zero_ranges, value.zero_ranges)
            out.near = value.buffer
        if rest.buffer is not None and mask.shape == rest.shape:
            out.unless = mask, value, rest.buffer
    elif name == "convert":
        out.zero_ranges = dict(inputs[0].zero_ranges)
    elif name in _REARRANGED:
        axes = _REARRANGED[name](inputs[0].shape, out.shape, params)
        out.zero_ranges = {axes[axis]: span for axis, span in inputs[0].zero_ranges.items() if axis in axes}
        if name == "broadcast":
            out.alike = frozenset(range(len(out.shape))).difference(axes.values())
        if inputs[0].ramp is not None and inputs[0].ramp[0] in axes:
            out.ramp = (axes[inputs[0].ramp[0]], inputs[0].ramp[1])


def _moved(e: Emitter, name: str, x: LazyArray, y: LazyArray) -> tuple[int, Index] | None:
    """The ramp of `x + y` or `x - y`, one of them a ramp and the other a scalar."""
    if name == "add" and y.ramp is not None:
        x, y = y, x
    if x.ramp is None or y.shape:
        return None
    axis, start = x.ramp
    return axis, (e.add if name == "add" else e.sub)(start, e.convert("sext", y.at((), 1), "i64"))


def _compared(e: Emitter, name: str, x: LazyArray, y: LazyArray) -> Spans:
    """Where a comparison of a ramp with a scalar may be true."""
    if x.ramp is None:
        x, y, name = y, x, _MIRRORED[name]
    if x.ramp is None or y.shape:
        return {}
    axis, start = x.ramp
    extent = x.shape[axis]
    # The position at which the ramp has the value of the scalar.
    equal = e.sub(e.convert("sext", y.at((), 1), "i64"), start)
    low: Index = 0
    high: Index = extent
    if name in ("gt", "ge", "eq"):
        low = e.add(equal, 1 if name == "gt" else 0)
    if name in ("lt", "le", "eq"):
        high = e.add(equal, 0 if name == "lt" else 1)
    # A ramp that leaves the int32 goes on at the other end: anything may be true.
    top = e.compare("icmp sle", e.index(start), V(str(2**31 - extent), "i64"))
    bottom = e.compare("icmp sge", e.index(start), V(str(-(2**31)), "i64"))
    straight = e.binary("and", top, bottom)
    bounds = [_between(e, bound, extent) for bound in (low, high)]
    return {axis: (e.choose(straight, bounds[0], 0), e.choose(straight, bounds[1], extent))}


def _between(e: Emitter, value: Index, most: int) -> Index:
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
    """Where axes go that are not of size 1, if no others come or go."""
    kept = [axis for axis, extent in enumerate(before) if extent != 1]
    places = [axis for axis, extent in enumerate(after) if extent != 1]
    same = [before[axis] for axis in kept] == [after[axis] for axis in places]
    return dict(zip(kept, places, strict=True)) if same else {}


def _broadcast(before: Shape, after: Shape, params: dict[str, Any]) -> dict[int, int]:
    return {n: axis for n, axis in enumerate(params["axes"]) if before[n] == after[axis]}


def _transposed(before: Shape, after: Shape, params: dict[str, Any]) -> dict[int, int]:
    return {axis: place for place, axis in enumerate(params["permutation"])}


_REARRANGED: dict[str, Callable[[Shape, Shape, dict[str, Any]], dict[int, int]]] = {
    "reshape": _reshaped,
    "broadcast": _broadcast,
    "transpose": _transposed,
}
