"""Arrays that are kept in memory on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

from palladio.cpu.emit.lazy_array import LazyArray
from palladio.cpu.emit.scope import RefBinding, Rule, Scope


def _keep(scope: Scope, x: LazyArray, *into: RefBinding, passing: bool) -> Sequence[LazyArray]:
    """In passing: the scope does it, when the next equation goes through the elements."""
    return (x if passing else scope.keep(x),)


RULES: dict[str, Rule] = {"keep": _keep}
