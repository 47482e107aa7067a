"""Functions that the families of element-by-element operations share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V
from palladio.cpu.emit.lazy_array import LazyArray, merged
from palladio.cpu.emit.scope import Rule, Scope
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType

# An operation on registers; the dtype is that of its inputs.
Compute = Callable[..., V]


def at(array: LazyArray, index: Sequence[Int], width: int) -> V:
    """Elements of an operand: a scalar is the same at every index."""
    return array.at(index if array.shape else (), width)


def mapped(scope: Scope, dtype: DType, compute: Callable[..., V], *arrays: LazyArray) -> LazyArray:
    """An array computed from the elements of others at the same index; `compute` gets registers."""
    shape = next((array.shape for array in arrays if array.shape), ())

    def element(index: Sequence[Int], width: int) -> V:
        return compute(*(at(array, index, width) for array in arrays))

    result = LazyArray(ArrayType(shape, dtype), element, merged(arrays))
    # A scalar is computed immediately: its use might be inside a loop.
    return result if shape else scope.keep(result)


def elementwise(compute: Callable[[Emitter, DType, Sequence[V]], V], result: DType | None = None) -> Rule:
    """A rule from a function of (emitter, dtype, registers)."""

    def rule(scope: Scope, *arrays: LazyArray) -> Sequence[LazyArray]:
        dtype = arrays[0].dtype

        def element(*values: V) -> V:
            found = compute(scope.e, dtype, values)
            return found if result is not None else registers.rounded(scope.e, found, dtype)

        return (mapped(scope, result or dtype, element, *arrays),)

    return rule
