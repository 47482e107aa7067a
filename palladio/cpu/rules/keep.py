"""Arrays on the CPU that the lowered forms mark as kept in memory, or as zero outside a range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palladio.cpu.emit.emitter import Int, V
from palladio.cpu.emit.lazy_array import LazyArray, array_in
from palladio.cpu.emit.scope import RefBinding, Rule, Scope


def _keep(scope: Scope, x: LazyArray) -> Sequence[LazyArray]:
    return (scope.keep(x),)


def _tee(scope: Scope, x: LazyArray, *into: RefBinding) -> Sequence[LazyArray]:
    """Memory that is written past the caches is not read again, so the array is kept elsewhere."""
    cached = [ref.buffer for ref in into if not ref.memory.streamed]
    buffer = cached[0] if cached else scope.arena.buffer(scope.e, x.shape, x.dtype)

    def at(index: Sequence[Int], width: int) -> V:
        value = x.at(index, width)
        buffer.put(scope.e, index, value, width)
        return value

    return replace(x, at=at), array_in(scope.e, buffer)


def _zero_outside(scope: Scope, x: LazyArray, first: LazyArray, last: LazyArray, *, axis: int) -> Sequence[LazyArray]:
    """The array itself: its zeros are already there."""
    return (replace(x, zero_ranges={**x.zero_ranges, axis: (first.at((), 1), last.at((), 1))}),)


RULES: dict[str, Rule] = {"keep": _keep, "tee": _tee, "zero_outside": _zero_outside}
