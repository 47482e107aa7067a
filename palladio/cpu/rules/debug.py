"""Printing and checking on the CPU, by Python, on copies of the values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.cpu.emit.emitter import V
from palladio.cpu.emit.lazy_array import LazyArray, scalar_array, write
from palladio.cpu.emit.llvm_types import I64
from palladio.cpu.emit.scope import Rule, Scope
from palladio.cpu.runtime.callbacks import Callback
from palladio.ir.core import Op
from palladio.ops import debug
from palladio.types import dtypes


def _call_python(scope: Scope, op: Op, arrays: Sequence[LazyArray], params: dict[str, Any]) -> None:
    """Have Python perform an operation."""
    e, function = scope.e, scope.function
    addresses: list[V] = []
    for array in arrays:
        target = scope.arena.buffer(e, array.shape, array.dtype)
        write(e, array, target)
        addresses.append(e.value(I64, f"ptrtoint {target.base} to i64"))
    location = None if function.eqn is None else function.eqn.location
    function.callbacks.append(Callback(op, [array.type for array in arrays], params, location))
    function.call_back(len(function.callbacks) - 1, addresses)


def _python_rule(op: Op) -> Rule:
    """A rule that has Python perform the operation."""

    def rule(scope: Scope, *arrays: LazyArray, **params: Any) -> Sequence[LazyArray]:
        _call_python(scope, op, arrays, params)
        return ()

    return rule


def _promise(scope: Scope, x: LazyArray, *, values: tuple[int, ...]) -> Sequence[LazyArray]:
    """A promise of a scalar is checked here, and reported by Python if it is broken; those of arrays are trusted."""
    if x.shape or scope.function.caller is None:
        return (x,)
    e = scope.e
    number = x.at((), 1)
    kept = scalar_array(e, number, x.dtype)
    for factor in values:
        if factor > np.iinfo(x.dtype).max:
            continue
        rest = e.binary("srem" if dtypes.is_signed(x.dtype) else "urem", number, e.constant(factor, number.type))
        with e.when(e.compare("icmp ne", rest, e.constant(0, rest.type))):
            _call_python(scope, debug.multiple_of, [kept], {"values": values})
    return (kept,)


RULES: dict[str, Rule] = {
    debug.debug_print.name: _python_rule(debug.debug_print),
    debug.debug_check.name: _python_rule(debug.debug_check),
    debug.multiple_of.name: _promise,
}
