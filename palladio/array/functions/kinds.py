"""Questions about dtypes with NumPy's names, where bfloat16 and the float8 kinds are floats like the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.foreign import to_numpy
from palladio.array.functions.compare import astype
from palladio.array.functions.creation import stack
from palladio.base.errors import PalladioTypeError
from palladio.types import dtypes
from palladio.types.dtypes import DType

__all__ = ["array", "asarray", "dtype", "finfo", "iinfo", "isdtype", "issubdtype", "promote_types", "result_type"]


def dtype(kind: Any) -> DType:
    """The dtype that `kind` names: a dtype, a scalar type or a name.

    Raises:
        PalladioTypeError: if Palladio does not have it.
    """
    return dtypes.canonical(kind)


def finfo(kind: Any) -> Any:
    """The limits of a float dtype."""
    return dtypes.finfo(kind)


def iinfo(kind: Any) -> Any:
    """The limits of an integer dtype."""
    return dtypes.iinfo(kind)


def issubdtype(kind: Any, category: Any) -> bool:
    """True if a dtype is in a category such as `floating`, `integer`, `signedinteger`, `number`, or is a dtype."""
    found = dtypes.canonical(kind)
    if category in (np.floating, np.inexact):
        return dtypes.is_float(found)
    if category is np.number:
        return found != dtypes.BOOL
    if (
        isinstance(category, type)
        and issubclass(category, np.generic)
        and category in (np.integer, np.signedinteger, np.unsignedinteger)
    ):
        if category is np.integer:
            return dtypes.is_integer(found)
        return dtypes.is_signed(found) if category is np.signedinteger else dtypes.is_unsigned(found)
    if category is np.generic:
        return True
    return found == dtypes.canonical(category)


def isdtype(kind: Any, category: str) -> bool:
    """True if a dtype is in a category of the array API: "bool", "integral", "real floating", "numeric", …"""
    found = dtypes.canonical(kind)
    tests = {
        "bool": dtypes.is_bool,
        "signed integer": dtypes.is_signed,
        "unsigned integer": dtypes.is_unsigned,
        "integral": dtypes.is_integer,
        "real floating": dtypes.is_float,
        "numeric": lambda each: not dtypes.is_bool(each),
    }
    return bool(tests[category](found))


def promote_types(a: Any, b: Any) -> DType:
    """The dtype in which two dtypes meet."""
    return dtypes.promote((dtypes.canonical(a), False), (dtypes.canonical(b), False))[0]


def result_type(*values: Any) -> DType:
    """The dtype in which arrays, scalars and dtypes meet; Python scalars are weak."""
    return dtypes.promote(*map(_kind, values))[0]


def _kind(value: Any) -> tuple[DType, bool]:
    if isinstance(value, (np.dtype, type, str)):
        return dtypes.canonical(value), False
    if hasattr(value, "shape") and getattr(value, "palladio_type", None) is None:
        return dtypes.canonical(str(value.dtype).removeprefix("torch.")), False
    return convert.array_type(value).dtype, convert.is_weak(value)


def asarray(x: Any, dtype: Any = None) -> Any:
    """`x`, a traced value, an array of any library, a scalar or nested lists of scalars, as an array.

    Args:
        dtype: the dtype of the result; that of `x` by default, float32 and int32 for Python numbers.

    Raises:
        PalladioTypeError: if it is not an array.
        PalladioValueError: for a Python integer that the dtype cannot hold.
    """
    if isinstance(x, (list, tuple)):
        x = _from_nested(x, None if dtype is None else dtypes.canonical(dtype))
    elif getattr(x, "palladio_type", None) is not None:
        convert.array_type(x)  # no reference
    elif dtype is None or dtypes.of_scalar(x) is None:
        x = np.asarray(to_numpy(x, "x"))
    return x if dtype is None else astype(x, dtype)


def _from_nested(x: Any, dtype: DType | None) -> Any:
    """Nested lists as an array, of the dtype if one is given: float32 does not come between a list and float64."""
    if any(getattr(part, "palladio_type", None) is not None for part in x):
        return stack([asarray(part) for part in x])
    try:
        found = np.asarray(x)
    except ValueError:
        raise PalladioTypeError("lists of different lengths are not an array", argument="x", got=f"{x!r:.60}") from None
    integers = found.dtype in (np.int64, np.uint64) or (
        found.dtype == object and all(_is_integer(n) for n in found.flat)
    )
    if not integers:
        found = np.asarray(to_numpy(found, "x"))
    default = {np.dtype(np.int64): dtypes.INT32, np.dtype(object): dtypes.INT32, np.dtype(np.float64): dtypes.FLOAT32}
    dtype = default.get(found.dtype, found.dtype) if dtype is None else dtype
    if integers and dtypes.is_integer(dtype):
        for extreme in (found.min(), found.max()) if found.size else ():
            convert.cast(int(extreme), dtype)  # or it does not fit
    if dtypes.is_float(found.dtype) and dtypes.is_integer(dtype):
        return found  # converted by `astype`, which has a rule for what integers cannot hold
    with np.errstate(all="ignore"):  # as of a single number
        return found.astype(dtype, copy=False)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int)


def array(object: Any, dtype: Any = None) -> Any:
    """As `asarray`, but the result is always a copy."""
    found = asarray(object, dtype)
    return np.array(found) if isinstance(found, np.ndarray) else found
