"""Arrays on the CPU of which the pass `fuse` says that they are kept in memory, or where they are zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palladio.cpu.emit.lazy_array import LazyArray
from palladio.cpu.emit.scope import RefBinding, Rule, Scope


def _keep(scope: Scope, x: LazyArray, *into: RefBinding, passing: bool) -> Sequence[LazyArray]:
    """In passing: the scope does it, when the next equation goes through the elements."""
    return (x if passing else scope.keep(x),)


def _zero_outside(scope: Scope, x: LazyArray, first: LazyArray, last: LazyArray, *, axis: int) -> Sequence[LazyArray]:
    """The array as it is: it has its zeros already."""
    return (replace(x, zero_ranges={**x.zero_ranges, axis: (first.at((), 1), last.at((), 1))}),)


RULES: dict[str, Rule] = {"keep": _keep, "zero_outside": _zero_outside}
