"""Scans, positions of extremes, and sorting on the CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence

from palladio.cpu import registers
from palladio.cpu.emit import Emitter, Index, V
from palladio.cpu.rules import arithmetic
from palladio.cpu.rules.selection import copied, one_by_one, settled
from palladio.cpu.scope import Rule, Scope
from palladio.cpu.tiles import Tile, tile_of
from palladio.types import dtypes
from palladio.types.dtypes import DType


def _with(index: Sequence[Index], axis: int, position: Index) -> tuple[Index, ...]:
    return (*index[:axis], position, *index[axis:])


def _is_nan(e: Emitter, x: V) -> V:
    return e.compare("fcmp uno", x, x)


def _add(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    return e.binary("fadd" if dtypes.is_float(dtype) else "add", *values)


def _multiply(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    return e.binary("fmul" if dtypes.is_float(dtype) else "mul", *values)


def _log_add(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    """The greater plus log1p(exp(-difference)); equal ones, infinities among them, have no difference."""
    x, y = values
    apart = e.binary("fsub", x, y)
    apart = e.select(e.compare("fcmp oeq", x, y), e.constant(0, x.type), apart)
    size = e.value(x.type, f"fneg {e.intrinsic('fabs', x.type, apart)}")
    name = "log1p" if x.type == "double" else "log1pf"
    e.declared[name] = f"declare {x.type} @{name}({x.type})"
    more = e.value(x.type, f"call {x.type} @{name}({e.intrinsic('exp', x.type, size)})")
    return e.binary("fadd", arithmetic.maximum(e, dtype, (x, y)), more)


def _scan(combine: arithmetic.Combine, start: object) -> Rule:
    def rule(scope: Scope, x: Tile, *, axis: int, reverse: bool) -> Sequence[Tile]:
        e, register = scope.e, registers.register(x.dtype)
        x = settled(scope, x)
        first = start(x.dtype) if callable(start) else start
        target = scope.arena.buffer(e, x.shape, x.dtype)
        slot = scope.function.slot(register)
        extent = x.shape[axis]

        def line(others: tuple[Index, ...]) -> None:
            e.line(f"store {registers.constant(e, first, x.dtype)}, ptr {slot.text}")
            with e.loop(0, extent) as step:
                index = _with(others, axis, e.sub(extent - 1, step) if reverse else step)
                old = e.value(register, f"load {register}, ptr {slot.text}")
                new = combine(e, x.dtype, (old, x.at(index, 1)))
                e.line(f"store {new}, ptr {slot.text}")
                target.put(e, index, registers.rounded(e, new, x.dtype), 1)

        one_by_one(e, (*x.shape[:axis], *x.shape[axis + 1 :]), line)
        return (tile_of(e, target),)

    return rule


def _position(greatest: bool) -> Rule:
    def rule(scope: Scope, x: Tile, *, axis: int, dtype: DType) -> Sequence[Tile]:
        e, register = scope.e, registers.register(x.dtype)
        x = settled(scope, x)
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        target = scope.arena.buffer(e, shape, dtype)
        best, place = scope.function.slot(register), scope.function.slot("i64")

        def line(others: tuple[Index, ...]) -> None:
            e.line(f"store {x.at(_with(others, axis, 0), 1)}, ptr {best.text}")
            e.line(f"store i64 0, ptr {place.text}")
            with e.loop(0, x.shape[axis]) as position:
                value = x.at(_with(others, axis, position), 1)
                old = e.value(register, f"load {register}, ptr {best.text}")
                pair = (old, value) if greatest else (value, old)
                better = arithmetic.less(e, x.dtype, *pair)
                if dtypes.is_float(x.dtype):
                    number = e.compare("fcmp ord", old, old)
                    better = e.binary("and", number, e.binary("or", better, _is_nan(e, value)))
                with e.when(better):
                    e.line(f"store {value}, ptr {best.text}")
                    e.line(f"store {e.index(position)}, ptr {place.text}")
            found = e.load("i64", place, 8)
            wanted = registers.register(dtype)
            target.put(e, others, found if wanted == "i64" else e.convert("trunc", found, wanted), 1)

        one_by_one(e, shape, line)
        tile = tile_of(e, target)
        return (tile if shape else scope.keep(tile),)

    return rule


def _before(e: Emitter, dtype: DType, x: V, y: V) -> V:
    """Whether x is sorted before y: NaN comes last."""
    less = arithmetic.less(e, dtype, x, y)
    if not dtypes.is_float(dtype):
        return less
    return e.binary("or", less, e.binary("and", _is_nan(e, y), e.compare("fcmp ord", x, x)))


def _sort(scope: Scope, *operands: Tile, axis: int, num_keys: int, stable: bool) -> Sequence[Tile]:
    """By insertion, which keeps the order of equals, along each line in place."""
    e = scope.e
    targets = [copied(scope, tile) for tile in operands]
    place = scope.function.slot("i64")

    def out_of_order(here: Sequence[Index], lower: Sequence[Index]) -> V:
        result: V = V("false", "i1")
        for key in reversed(targets[:num_keys]):
            x, y = key.at(e, here, 1), key.at(e, lower, 1)
            before, behind = _before(e, key.dtype, x, y), _before(e, key.dtype, y, x)
            result = e.select(before, V("true", "i1"), e.select(behind, V("false", "i1"), result))
        return result

    def line(others: tuple[Index, ...]) -> None:
        with e.loop(0, operands[0].shape[axis]) as first:
            e.line(f"store {e.index(first)}, ptr {place.text}")
            head, check, swap, done = (e.fresh(stem) for stem in ("head", "check", "swap", "done"))
            e.jump(head)
            e.label(head)
            at = e.load("i64", place, 8)
            e.branch(e.compare("icmp sgt", at, V("0", "i64")), check, done)
            e.label(check)
            below = e.sub(at, 1)
            here, lower = _with(others, axis, at), _with(others, axis, below)
            e.branch(out_of_order(here, lower), swap, done)
            e.label(swap)
            for target in targets:
                x, y = target.at(e, here, 1), target.at(e, lower, 1)
                target.put(e, here, y, 1)
                target.put(e, lower, x, 1)
            e.line(f"store {e.index(below)}, ptr {place.text}")
            e.jump(head)
            e.label(done)

    shape = operands[0].shape
    one_by_one(e, (*shape[:axis], *shape[axis + 1 :]), line)
    return [tile_of(e, target) for target in targets]


RULES: dict[str, Rule] = {
    "cumsum": _scan(_add, lambda dtype: -0.0 if dtypes.is_float(dtype) else 0),
    "cumprod": _scan(_multiply, 1),
    "cummax": _scan(arithmetic.maximum, dtypes.least),
    "cummin": _scan(arithmetic.minimum, dtypes.greatest),
    "cumlogsumexp": _scan(_log_add, -math.inf),
    "argmax": _position(True),
    "argmin": _position(False),
    "sort": _sort,
}
