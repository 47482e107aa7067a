"""Operations in which each thread computes its elements independently, from arrays in shared memory.

They support every shape and layout, and are slow for large ones: a fast kernel multiplies on the tensor cores and scans
vectors that a warp holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from palladio.hopper.emit import exchange
from palladio.hopper.emit.scalars import register_type, rounded
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.values import Entry, Registers
from palladio.hopper.layouts.integers import added, times
from palladio.hopper.layouts.registers import splat
from palladio.hopper.rules.reduce import COMBINE, scan_of_warp
from palladio.hopper.rules.shape import held
from palladio.ir.core import Atom, Eqn, Op
from palladio.ops.arrays.reduce import argmax
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.views import row_major


def _elements(scope: Scope, target: Registers, body: Callable[[list[str]], list[str]]) -> None:
    """Write a loop over a thread's elements; `body` gives its lines, from an element's indices."""
    layout = target.layout
    guard = layout.guard("r", "thread")
    index = [f"({layout.coordinate(axis, 'r', 'thread')})" for axis in range(len(layout.shape))]
    with scope.w.block(f"PAL_UNROLL for (int r = 0; r < {layout.count}; ++r)"):
        if guard:
            scope.w.line(f"if (!({guard})) continue;")
        for line in body(index):
            scope.w.line(line)


def _flat(index: Sequence[str], shape: Sequence[int]) -> str:
    return added(*map(times, index, row_major(shape)))


def _result(scope: Scope, eqn: Eqn, number: int = 0) -> Registers:
    """Registers for the result of an operation."""
    out = eqn.outputs[number]
    layout = scope.layout(out) if out.type.shape else splat(())
    return scope.declare(out.hint or "found", layout, out.type.dtype)


def _given(scope: Scope, eqn: Eqn, target: Registers, number: int = 0) -> Entry:
    out = eqn.outputs[number]
    return target if out.type.shape else scope.number(out, f"{target.name}[0]")


# Positions of extrema.


def _position(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    (atom,), axis = eqn.inputs, eqn.axis
    x, layout = held(scope, atom)
    base = exchange.put(scope, x, layout)
    target = _result(scope, eqn)
    kind, sign = register_type(x.dtype), ">" if eqn.op is argmax else "<"

    def body(index: list[str]) -> list[str]:
        place = [*index[:axis], "along", *index[axis:]]
        found = exchange.get(scope, base, _flat(place, layout.shape), x.dtype)
        better = f"value {sign} best"
        if dtypes.is_float(x.dtype):
            better = f"(best == best && !(value {'<=' if sign == '>' else '>='} best))"
        return [
            f"{kind} best = 0; int first = 0;",
            f"PAL_ROLLED for (int along = 0; along < {layout.shape[axis]}; ++along) {{",
            f"  const {kind} value = {found};",
            f"  if (along == 0 || {better}) {{ best = value; first = along; }}",
            "}",
            f"{target.name}[r] = ({register_type(target.dtype)})first;",
        ]

    _elements(scope, target, body if eqn.outputs[0].type.shape else lambda index: body([]))
    return [_given(scope, eqn, target)]


# Scans.


def _scan(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    by_warp = scan_of_warp(scope, eqn)
    if by_warp is not None:
        return by_warp
    (atom,), axis = eqn.inputs, eqn.axis
    x, layout = held(scope, atom)
    base = exchange.put(scope, x, layout)
    target = _result(scope, eqn)
    dtype, kind = x.dtype, register_type(x.dtype)
    first, last, step = ("0", "end", "++along") if not eqn.reverse else (str(layout.shape[axis] - 1), "end", "--along")
    sign = "<=" if not eqn.reverse else ">="

    def body(index: list[str]) -> list[str]:
        place = [*index[:axis], "along", *index[axis + 1 :]]
        value = exchange.get(scope, base, _flat(place, layout.shape), dtype)
        return [
            f"const int end = {index[axis]};",
            f"{kind} total = 0;",
            f"PAL_ROLLED for (int along = {first}; along {sign} end; {step}) {{",
            f"  const {kind} value = {value};",
            f"  total = along == {first} ? value : {_joined(eqn.op.joins, dtype)};",
            "}",
            f"{target.name}[r] = {rounded('total', dtype)};",
        ]

    _elements(scope, target, body)
    return [target]


def _joined(joins: Op | None, dtype: DType) -> str:
    """The running total combined with the next element; for None, by logaddexp."""
    if joins is not None:
        return COMBINE[joins](dtype, "total", "value")
    f = "" if dtype == dtypes.FLOAT64 else "f"
    larger = "pal::maximum(total, value)"
    smaller = f"-fabs{f}(total - value)"
    return f"(total == value ? total + log{f}(2.0{f}) : {larger} + log1p{f}(exp{f}({smaller})))"


# Sorting: the position of each element is the number of elements that come before it.


def _sort(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    axis, keys = eqn.axis, eqn.num_keys
    parts = [held(scope, atom) for atom in eqn.inputs]
    bases = exchange.put_all(scope, parts)
    shape = parts[0][1].shape
    unused = 0 if eqn.params.get("last") is None else shape[axis] - eqn.last
    wanted = [n for n, out in enumerate(eqn.outputs) if out in scope.used] or [0]
    targets = {n: _result(scope, eqn, n) for n in wanted}
    kinds = [register_type(x.dtype) for x, _ in parts]

    def load(number: int, index: Sequence[str]) -> str:
        return exchange.get(scope, bases[number], _flat(index, shape), parts[number][0].dtype)

    def body(index: list[str]) -> list[str]:
        # The element at this position is the one whose rank, the number of elements before it, equals the position.
        candidate = [*index[:axis], "candidate", *index[axis + 1 :]]
        other = [*index[:axis], "along", *index[axis + 1 :]]
        before = _before(kinds, [x.dtype for x, _ in parts[:keys]])
        mine = [f"  const {kinds[n]} own{n} = {load(n, candidate)};" for n in range(keys)]
        theirs = [f"    const {kinds[n]} other{n} = {load(n, other)};" for n in range(keys)]
        found = [f"    {target.name}[r] = {load(n, candidate)};" for n, target in targets.items()]
        return [
            *([f"if ({index[axis]} < {unused}) continue;"] if unused else []),
            f"PAL_ROLLED for (int candidate = 0; candidate < {shape[axis]}; ++candidate) {{",
            *mine,
            "  int rank = 0;",
            f"  PAL_ROLLED for (int along = 0; along < {shape[axis]}; ++along) {{",
            *theirs,
            f"    rank += {before};",
            "  }",
            f"  if (rank == {index[axis]}) {{",
            *found,
            "  }",
            "}",
        ]

    first = targets[wanted[0]]
    _elements(scope, first, body)
    return [targets.get(n, first) for n in range(len(eqn.outputs))]  # nothing reads the others


def _before(kinds: Sequence[str], keys: Sequence[DType]) -> str:
    """True if the other element comes before this one: by the keys, then by position; NaN comes last."""
    text = "(along < candidate)"
    for n in reversed(range(len(keys))):
        less = f"other{n} < own{n}"
        same = f"other{n} == own{n}"
        if dtypes.is_float(keys[n]):
            less = f"({less} || (own{n} != own{n} && other{n} == other{n}))"
            same = f"({same} || (own{n} != own{n} && other{n} != other{n}))"
        text = f"({less} || ({same} && {text}))"
    return text


# Products.


def _dot(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    return _product(scope, eqn, eqn.dtype, "0")


def _dot_accumulate(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    """A product whose sums start with the thread's elements of the accumulator."""
    layout = scope.layout(eqn.outputs[0])
    return _product(scope, eqn, eqn.acc.type.dtype, scope.element(scope.array(eqn.acc, layout), "r", layout))


def _product(scope: Scope, eqn: Eqn, dtype: DType, first: str) -> Sequence[Entry]:
    """A product. `first` is the initial value of the sum of a thread's element r, as a C expression."""
    contracting, batch = eqn.contracting, eqn.batch
    left, right = (held(scope, atom) for atom in (eqn.lhs, eqn.rhs))
    a, b = exchange.put_all(scope, [left, right])
    target = _result(scope, eqn)
    kind = _sum_type((eqn.lhs, eqn.rhs), dtype)
    shapes = left[1].shape, right[1].shape
    depth = [shapes[0][axis] for axis in contracting[0]]

    def body(index: list[str]) -> list[str]:
        places = _places(index, shapes, contracting, batch, depth)
        x, y = (
            exchange.get(scope, base, _flat(place, shape), part[0].dtype)
            for base, place, shape, part in zip((a, b), places, shapes, (left, right), strict=True)
        )
        head = f"PAL_ROLLED for (int along = 0; along < {math.prod(depth)}; ++along)"
        return [
            f"{kind} total = {first};",
            f"{head} total += ({kind})({x}) * ({kind})({y});",
            f"{target.name}[r] = {rounded(f'({register_type(dtype)})total', dtype)};",
        ]

    _elements(scope, target, body if eqn.outputs[0].type.shape else lambda index: body([]))
    return [_given(scope, eqn, target)]


def _sum_type(atoms: Sequence[Atom], dtype: DType) -> str:
    kinds = [*(atom.type.dtype for atom in atoms), dtype]  # type: ignore[union-attr]
    if any(map(dtypes.is_float, kinds[:2])):
        return "double" if dtypes.FLOAT64 in kinds else "float"
    return "i64"


def _places(index, shapes, contracting, batch, depth):  # type: ignore[no-untyped-def]
    """The indices of both factors of the terms of an element's sum."""
    strides = row_major(depth)
    inner = [f"(along / {stride} % {extent})" for stride, extent in zip(strides, depth, strict=True)]
    rest = iter(index[len(batch[0]) :])
    found = []
    for side in range(2):
        place = []
        for axis in range(len(shapes[side])):
            if axis in batch[side]:
                place.append(index[batch[side].index(axis)])
            elif axis in contracting[side]:
                place.append(inner[contracting[side].index(axis)])
            else:
                place.append(next(rest))
        found.append(place)
    return found


RULES: dict[str, Rule] = {
    "argmax": _position,
    "argmin": _position,
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _scan),
    "sort": _sort,
    "dot_general": _dot,
    "dot_accumulate": _dot_accumulate,
}
