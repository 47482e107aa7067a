"""Reductions: first over the registers of a thread, then over the lanes of a warp, then over warps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from palladio.hopper.emit import exchange
from palladio.hopper.emit.scalars import Scalar, literal, narrow, register_type, rounded
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.values import EXCHANGE, Entry, Registers, Splat, splat_of
from palladio.hopper.layouts.registers import LANES, THREADS, Layout
from palladio.hopper.rules.elementwise import WRAPPING, maximum, minimum, wraps
from palladio.ir.core import Eqn, Op
from palladio.lower.refused import Refused
from palladio.ops.arrays import arithmetic, bits
from palladio.types import dtypes
from palladio.types.dtypes import DType

Combine = Callable[[DType, str, str], str]
"""`(dtype, x, y) -> combination of two partial results`, as a C expression."""


def _infix(sign: str) -> Combine:
    return lambda dtype, x, y: f"{x} {sign} {y}"


def _wrapping(name: str, sign: str) -> Combine:
    """Partial sums of signed integers may overflow, even if the total does not."""
    return lambda dtype, x, y: WRAPPING[name](dtype, x, y) if wraps(dtype) else f"{x} {sign} {y}"


def _and(dtype: DType, x: str, y: str) -> str:
    return f"{x} & {y}"


COMBINE: dict[Op, Combine] = {
    arithmetic.add: _wrapping("add", "+"),
    arithmetic.mul: _wrapping("mul", "*"),
    arithmetic.max: maximum,
    arithmetic.min: minimum,
    bits.bitwise_and: _and,
    bits.bitwise_or: _infix("|"),
    bits.bitwise_xor: _infix("^"),
}
"""The combinations by operation."""


def _identity(joins: Op, dtype: DType) -> str:
    """The identity element of an operation."""
    if joins is arithmetic.max:
        return literal(_limit(dtype, least=True), dtype)
    if joins is arithmetic.min:
        return literal(_limit(dtype, least=False), dtype)
    if joins is bits.bitwise_and:
        return "true" if dtypes.is_bool(dtype) else f"({register_type(dtype)})-1"
    return literal(1 if joins is arithmetic.mul else 0, dtype)


def _limit(dtype: DType, least: bool) -> object:
    if dtypes.is_bool(dtype):
        return not least
    if dtypes.is_float(dtype):
        return -np.inf if least else np.inf
    limits = np.iinfo(dtype)
    return limits.min if least else limits.max


def _reduce(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    (atom,), (out,) = eqn.inputs, eqn.outputs
    axes = eqn.axes
    joins, dtype = eqn.op.joins, out.type.dtype
    if not axes:
        return [scope.entry(atom)]
    found = scope.entry(atom)
    layout = found.layout if isinstance(found, Registers) else scope.layout(atom)  # type: ignore[arg-type]
    x = scope.array(atom, layout)
    total = folded(scope, joins, lambda r: scope.element(x, r, layout), layout, axes, dtype, out.hint or "folded")
    _across_lanes(scope, total, joins, layout, axes)
    total = _across_warps(scope, total, joins, layout, axes)
    if narrow(dtype):
        scope.fill(total, lambda r: rounded(f"{total.name}[{r}]", dtype))
    if not out.type.shape:
        return [Scalar(f"{total.name}[0]", dtype, 1, f"{total.name}[0]" if dtypes.is_bool(dtype) else None)]
    return [scope.array(_atom(scope, total, out), scope.layout(out))]


def _atom(scope: Scope, value: Entry, like):  # type: ignore[no-untyped-def]
    """Bind a value to a variable, so that `Scope.array` can convert it."""
    scope.env[like] = value
    return like


def folded(
    scope: Scope,
    joins: Op,
    element: Callable[[str], str],
    layout: Layout,
    axes: Sequence[int],
    dtype: DType,
    hint: str,
) -> Registers:
    """The partial result of each thread from its own registers, in the reduced layout."""
    kept = layout.reduced(axes)
    total = scope.declare(hint, kept, dtype)
    start = _identity(joins, dtype)
    scope.fill(total, lambda r: start)
    place = layout.projected(axes, "r")
    value = element("r")
    guard = layout.guard("r", "thread")
    if guard is not None:
        value = f"({guard} ? {value} : {start})"
    joined = COMBINE[joins](dtype, f"{total.name}[{place}]", value)
    scope.w.line(f"PAL_UNROLL for (int r = 0; r < {layout.count}; ++r) {total.name}[{place}] = {joined};")
    return total


def _across_lanes(scope: Scope, total: Registers, joins: Op, layout: Layout, axes: Sequence[int]) -> None:
    """Combine the partial results of lanes of a warp along the axes; one instruction adds integers of a whole warp."""
    steps = []
    for weight, size in layout.owners(axes):
        step = weight
        while step < weight * size and step < LANES:
            if size & (size - 1):
                raise Refused("a reduction over a number of lanes that is not a power of two")
            steps.append(step)
            step *= 2
    if 2 ** len(steps) == LANES and joins is arithmetic.add and register_type(total.dtype) in ("int", "u32"):
        scope.fill(total, lambda r: f"pal::warp_sum({total.name}[{r}])")
        return
    for step in steps:
        _shuffle(scope, total, joins, step)


def _shuffle(scope: Scope, total: Registers, joins: Op, step: int) -> None:
    """Combine the values of lanes whose numbers differ by a step. All lanes shuffle before any selects a value."""
    mine, kind = f"{total.name}[r]", register_type(total.dtype)
    small = kind in ("bool", "signed char", "short", "u8", "u16")
    other = f"({kind})pal::shuffle_xor((int){mine}, {step})" if small else f"pal::shuffle_xor({mine}, {step})"
    joined = COMBINE[joins](total.dtype, mine, "other")
    scope.w.line(
        f"PAL_UNROLL for (int r = 0; r < {total.layout.count}; ++r) "
        f"{{ const {kind} other = {other}; {mine} = {joined}; }}"
    )


def _across_warps(scope: Scope, total: Registers, joins: Op, layout: Layout, axes: Sequence[int]) -> Registers:
    """Combine the partial results of warps along the axes, through shared memory."""
    warps = 1
    for weight, size in layout.owners(axes):
        if weight * size > LANES:
            warps *= weight * size // max(weight, LANES)
    if warps == 1:
        return total
    # Each warp stores its values; a warp's number determines the warps at the same position along the other axes.
    dtype, count = total.dtype, total.layout.count
    kind = register_type(dtype)
    memory = "u8" if kind == "bool" else kind
    width = 4 if narrow(dtype) else dtype.itemsize
    base = scope.w.fresh("parts")
    scope.w.line(f"const u32 {base} = {exchange.room(scope, count * THREADS * width)};")
    scope.w.line(
        f"PAL_UNROLL for (int r = 0; r < {count}; ++r) "
        f"pal::store_shared<{memory}>({base} + (r * {THREADS} + thread) * {width}, ({memory}){total.name}[r]);"
    )
    scope.sites.written.add(EXCHANGE)
    scope.before_read(EXCHANGE)
    joined = scope.declare("joined", total.layout, dtype)
    weights = _warp_digits(layout, axes)
    own = " - ".join(["(int)thread", *(f"thread / {w} % {n} * {w}" for w, n in weights)])
    first = scope.w.fresh("first")
    scope.w.line(f"const int {first} = {own};")
    places = [0]
    for weight, number in weights:
        places = [place + weight * n for place in places for n in range(number)]

    def text(r: str) -> str:
        parts = [
            f"({kind})pal::load_shared<{memory}>({base} + ({r} * {THREADS} + {first} + {place}) * {width})"
            for place in places
        ]
        result = parts[0]
        for part in parts[1:]:
            result = f"({COMBINE[joins](dtype, result, part)})"
        return result

    scope.fill(joined, text)
    scope.sites.read.add(EXCHANGE)
    return joined


def _warp_digits(layout: Layout, axes: Sequence[int]) -> list[tuple[int, int]]:
    """The digits of the warp's number that move along axes: (weight in the thread's number, size)."""
    found = []
    for weight, size in layout.owners(axes):
        if weight >= LANES:
            found.append((weight, size))
        elif weight * size > LANES:
            found.append((LANES, weight * size // LANES))
    return found


def scan_of_warp(scope: Scope, eqn: Eqn) -> Sequence[Entry] | None:
    """A scan of a vector that every warp holds, over its lanes and then its registers; None for other arrays."""
    (atom,), (out,) = eqn.inputs, eqn.outputs
    layout, dtype = scope.layout(out), out.type.dtype
    held = len(layout.shape) == 1 and layout.threads[0].size == LANES and layout.threads[0].axis == 0
    if not held or eqn.reverse or dtype.itemsize < 4 or eqn.op.joins is None:
        return None
    joins = eqn.op.joins
    x = scope.array(atom, layout)
    target = scope.declare(out.hint or "scan", layout, dtype)
    kind = register_type(dtype)
    before = scope.w.fresh("before")
    scope.w.line(f"{kind} {before} = {_identity(joins, dtype)};")
    with scope.w.block(f"PAL_UNROLL for (int r = 0; r < {layout.count}; ++r)"):
        scope.w.line(f"{kind} sum = {scope.element(x, 'r', layout)};")
        with scope.w.block("PAL_UNROLL for (int step = 1; step < 32; step *= 2)"):
            scope.w.line(f"const {kind} other = pal::shuffle_up(sum, step);")
            scope.w.line(f"if (lane >= step) sum = {COMBINE[joins](dtype, 'other', 'sum')};")
        scope.w.line(f"{target.name}[r] = {COMBINE[joins](dtype, before, 'sum')};")
        scope.w.line(f"{before} = pal::shuffle({target.name}[r], 31);")
    return [target]


def _idempotent(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    """An idempotent reduction: of a splat, it returns the element."""
    found = scope.entry(eqn.array)
    if isinstance(found, Splat):
        (out,) = eqn.outputs
        return [splat_of(found, out.type.shape, out.type.dtype)]
    return _reduce(scope, eqn)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("reduce_sum", "reduce_prod", "reduce_xor"), _reduce),
    **dict.fromkeys(("reduce_max", "reduce_min", "reduce_and", "reduce_or"), _idempotent),
}
