"""Reductions on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from palladio.cpu import registers
from palladio.cpu.emit import Emitter, Index, V, vector, width_of
from palladio.cpu.rules import arithmetic
from palladio.cpu.scope import Rule, Scope
from palladio.cpu.tiles import Buffer, Tile, for_each, tile_of, widths
from palladio.types import dtypes
from palladio.types.dtypes import DType

Combine = Callable[[Emitter, DType, Sequence[V]], V]


def _sum(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    return e.binary("fadd" if dtypes.is_float(dtype) else "add", *values)


def _product(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
    return e.binary("fmul" if dtypes.is_float(dtype) else "mul", *values)


def _extreme(better: str, otherwise: Combine) -> Combine:
    """The larger or smaller; a NaN stays. Which of 0 and -0 is left does not matter, and asking would cost the most."""

    def combine(e: Emitter, dtype: DType, values: Sequence[V]) -> V:
        if not dtypes.is_float(dtype):
            return otherwise(e, dtype, values)
        old, new = values
        # A new NaN is no better and is taken; an old one is put back.
        chosen = e.select(e.compare(f"fcmp {better}", old, new), old, new)
        return e.select(e.compare("fcmp uno", old, old), old, chosen)

    return combine


def _bitwise(op: str) -> Combine:
    return lambda e, dtype, values: e.binary(op, *values)


_ALL_BITS = -1


CHAINS = 4
"""Accumulators along the last axis: each waits for its own last result only, so several are faster than one."""


class Reducer:
    """Combines the elements of a tile over some axes into a buffer."""

    def __init__(self, scope: Scope, x: Tile, axes: Sequence[int], combine: Combine, start: object) -> None:
        self.e = scope.e
        self.x = x
        self.axes = tuple(axes)
        self.combine = combine
        self.start = start
        self.kept = [axis for axis in range(len(x.shape)) if axis not in self.axes]
        shape = tuple(x.shape[axis] for axis in self.kept)
        self.target = scope.arena.buffer(self.e, shape, x.dtype)
        self.slots = {
            (width, chain): scope.function.slot(vector(registers.register(x.dtype), width))
            for width in self.lanes()
            for chain in range(CHAINS)
        }

    def lanes(self) -> set[int]:
        """The widths that an accumulator may have."""
        return {1, *(width for _, _, width in widths(self.x.shape[-1]))} if self.x.shape else {1}

    def run(self) -> Buffer:
        """Emit the loops."""
        last = len(self.x.shape) - 1
        body = self.across if last in self.axes else self.beside
        if last in self.axes:
            with ExitStack() as stack:
                index = tuple(stack.enter_context(self.e.loop(0, self.x.shape[axis])) for axis in self.kept)
                body(index, 1)
        else:
            for_each(self.e, self.target.shape, body)
        return self.target

    def place(self, index: Sequence[Index], inner: Sequence[Index]) -> list[Index]:
        """The index of an element from those along the kept and the reduced axes."""
        found: list[Index] = [0] * len(self.x.shape)
        for axis, position in zip(self.kept, index, strict=True):
            found[axis] = position
        for axis, position in zip(self.axes, inner, strict=True):
            found[axis] = position
        return found

    def begin(self, width: int, chain: int = 0) -> V:
        slot = self.slots[width, chain]
        first = registers.constant(self.e, self.start, self.x.dtype, width)
        self.e.line(f"store {first}, ptr {slot.text}")
        return slot

    def take(self, slot: V, value: V) -> None:
        """Combine a value with the accumulator."""
        old = self.e.value(value.type, f"load {value.type}, ptr {slot.text}")
        new = self.combine(self.e, self.x.dtype, (old, value))
        self.e.line(f"store {new}, ptr {slot.text}")

    def beside(self, index: Sequence[Index], width: int) -> None:
        """Neighbouring results side by side."""
        slot = self.begin(width)
        with ExitStack() as stack:
            inner = [stack.enter_context(self.e.loop(0, self.x.shape[axis])) for axis in self.axes]
            self.take(slot, self.x.at(self.place(index, inner), width))
        self.finish(index, slot, width)

    def across(self, index: Sequence[Index], width: int) -> None:
        """One result from whole vectors along the last axis."""
        last = self.axes[-1]
        whole = self.begin(1)
        for start, end, lanes in widths(self.x.shape[last]):
            if lanes == 1:
                self.along(index, start, end, 1, [whole])
                continue
            slots = [self.begin(lanes, chain) for chain in range(min(CHAINS, (end - start) // lanes))]
            self.along(index, start, end, lanes, slots)
            type = vector(registers.register(self.x.dtype), lanes)
            for slot in slots[1:]:
                self.take(slots[0], self.e.value(type, f"load {type}, ptr {slot.text}"))
            self.take(whole, self.folded(self.e.value(type, f"load {type}, ptr {slots[0].text}")))
        self.finish(index, whole, 1)

    def along(self, index: Sequence[Index], start: int, end: int, lanes: int, slots: Sequence[V]) -> None:
        """Combine vectors from `start` to `end` with the accumulators in turn."""
        stride = lanes * len(slots)
        middle = start + (end - start) // stride * stride
        with ExitStack() as stack:
            inner = [stack.enter_context(self.e.loop(0, self.x.shape[axis])) for axis in self.axes[:-1]]
            with self.e.loop(start, middle, stride) as first:
                for chain, slot in enumerate(slots):
                    position = self.e.add(first, chain * lanes)
                    self.take(slot, self.x.at(self.place(index, (*inner, position)), lanes))
            if middle < end:
                with self.e.loop(middle, end, lanes) as position:
                    self.take(slots[0], self.x.at(self.place(index, (*inner, position)), lanes))

    def folded(self, value: V) -> V:
        """All lanes combined into one, halves with halves."""
        element = registers.register(self.x.dtype)
        while (half := width_of(value.type) // 2) > 1:
            parts = []
            for first in (0, half):
                chosen = ", ".join(f"i32 {first + lane}" for lane in range(half))
                shuffled = f"shufflevector {value}, {value.type} poison, <{half} x i32> <{chosen}>"
                parts.append(self.e.value(vector(element, half), shuffled))
            value = self.combine(self.e, self.x.dtype, parts)
        return self.combine(self.e, self.x.dtype, [self.e.lane(value, lane) for lane in (0, 1)])

    def finish(self, index: Sequence[Index], slot: V, width: int) -> None:
        type = vector(registers.register(self.x.dtype), width)
        total = self.e.value(type, f"load {type}, ptr {slot.text}")
        self.target.put(self.e, index, registers.rounded(self.e, total, self.x.dtype), width)


def reduction(combine: Combine, start: Callable[[DType], object]) -> Rule:
    """A reduction over the axes in `axes`."""

    def rule(scope: Scope, x: Tile, *, axes: tuple[int, ...]) -> Sequence[Tile]:
        if not axes or not x.shape:
            return (x,)
        tile = tile_of(scope.e, Reducer(scope, x, axes, combine, start(x.dtype)).run())
        return (tile if tile.shape else scope.keep(tile),)

    return rule


RULES: dict[str, Rule] = {
    "reduce_sum": reduction(_sum, lambda dtype: 0),
    "reduce_prod": reduction(_product, lambda dtype: 1),
    "reduce_max": reduction(_extreme("ogt", arithmetic.maximum), dtypes.least),
    "reduce_min": reduction(_extreme("olt", arithmetic.minimum), dtypes.greatest),
    "reduce_and": reduction(_bitwise("and"), lambda dtype: 1 if dtype == dtypes.BOOL else _ALL_BITS),
    "reduce_or": reduction(_bitwise("or"), lambda dtype: 0),
    "reduce_xor": reduction(_bitwise("xor"), lambda dtype: 0),
}
