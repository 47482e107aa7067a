"""The declaration and typing of element-by-element operations, shared by their families."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.core import Op, Work
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType, Type

Accepts = Callable[[DType], bool]


def is_number(dtype: DType) -> bool:
    """True for any dtype but bool."""
    return dtype != dtypes.BOOL


def is_bits(dtype: DType) -> bool:
    """True for integers and bool, the dtypes of bitwise operations."""
    return not dtypes.is_float(dtype)


def anything(dtype: DType) -> bool:
    """True for every dtype."""
    return True


_WANTED: dict[Accepts, str] = {
    is_number: "an integer or float dtype",
    is_bits: "an integer dtype or bool",
    dtypes.is_float: "a float dtype",
    dtypes.is_integer: "an integer dtype",
}

DTYPES: dict[Accepts, str] = {
    is_number: "integer or float",
    is_bits: "integer or bool",
    dtypes.is_float: "float",
    dtypes.is_integer: "integer",
    anything: "any",
}
"""The description of the accepted dtypes in an operation's record."""

_OPERANDS = {1: ("x",), 2: ("x", "y")}


def require_alike(name: str, accepts: Accepts, inputs: Sequence[Type]) -> ArrayType:
    """The one type of the inputs, if the operation accepts its dtype. A scalar (rank 0) fits any shape."""
    shape: tuple[int, ...] = ()
    first = inputs[0]
    for array in inputs:
        shape = shape or array.shape
        if not isinstance(array, ArrayType) or array.dtype != first.dtype or array.shape not in ((), shape):
            got = ", ".join(map(str, inputs))
            raise PalladioValueError(f"{name} takes arrays of one dtype and one shape (or scalars)", got=got)
    if not accepts(first.dtype):
        raise PalladioTypeError(f"{name} is not defined for this dtype", expected=_WANTED[accepts], got=str(first))
    return ArrayType(shape, first.dtype)


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy function that computes floats narrower than float32 in float32 and rounds once.

    Integers narrower than int8 are computed in int32 and wrap around at the end.
    """

    def rounded(*values: Any) -> Any:
        dtype = values[0].dtype
        wide = computing_dtype(dtype)
        if wide == dtype:
            return function(*values)
        return np.asarray(function(*(value.astype(wide) for value in values))).astype(dtype)

    return rounded


@cache
def computing_dtype(dtype: DType) -> DType:
    """The dtype in which values of a dtype are computed: float32 and int32 for narrow ones, else itself."""
    if is_small_float(dtype):
        return dtypes.FLOAT32
    return dtypes.INT32 if dtypes.is_narrow(dtype) else dtype


def is_small_float(dtype: DType) -> bool:
    """True if the dtype is a float narrower than float32, which is computed in float32."""
    return dtype.itemsize < 4 and dtypes.is_float(dtype)


def elementwise(
    name: str,
    doc: str,
    function: Callable[..., Any],
    arity: int,
    accepts: Accepts,
    *,
    result: DType | None = None,
    operands: tuple[str, ...] = (),
    work: Work = Work.ELEMENT,
    commutative: bool = False,
    injective: bool = False,
    bitwise: bool = False,
    nonnegative_if: Callable[[Iterable[bool]], bool] | None = None,
) -> Op:
    """An operation on arrays of one shape and dtype that gives that shape, with dtype `result` or the same one.

    Args:
        function: on NumPy arrays of the dtype, or of float32 for the floats narrower than that.
        operands: their names; x, and y for a second one, if none are given.
        bitwise: `function` needs the narrow floats as they are, since its result depends on their bits.
        nonnegative_if: as in `Op`.
    """
    as_given, rounded = bitwise or result is not None, in_float32(function)

    def type(*inputs: Type) -> Sequence[Type]:
        if len(inputs) != arity:
            raise PalladioValueError(f"{name} takes {arity} inputs", got=len(inputs))
        array = require_alike(name, accepts, inputs)
        return (array if result is None else ArrayType(array.shape, result),)

    type.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(each, inspect.Parameter.POSITIONAL_ONLY) for each in operands or _OPERANDS[arity]]
    )

    def eval(*values: Any) -> Sequence[Any]:
        dtype = values[0].dtype
        if as_given or computing_dtype(dtype) == dtype:  # the evaluator's most frequent call
            return (function(*values),)
        return (rounded(*values),)

    return Op(
        name,
        doc,
        type,
        eval,
        work=work,
        dtypes=DTYPES[accepts],
        elementwise=True,
        commutative=commutative,
        injective=injective,
        nonnegative_if=nonnegative_if,
    )
