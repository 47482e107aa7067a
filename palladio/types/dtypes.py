"""The dtypes of Palladio, their short names, and the promotion lattice.

Promotion is JAX's: `int32 + float32` is `float32`, `float16 + bfloat16` is `float32`, Python scalars are *weak* (they
take the dtype of the array they meet), float8 kinds and the integers of two and four bits meet only themselves and weak
scalars. NumPy's own 64-bit scalars
(`np.float64(2)`, `np.int64(3)`, what `np.sqrt(64)` or `np.prod(shape)` give) are weak too: a scale factor computed on
the host does not widen a kernel.
Weak values alone are `int32` and `float32`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from typing import Any

import ml_dtypes
import numpy as np

from palladio.base.errors import PalladioTypeError

DType = np.dtype[Any]
DTypeLike = Any

SHORT_NAMES: dict[str, DType] = {
    "bool": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "i2": np.dtype(ml_dtypes.int2),
    "i4": np.dtype(ml_dtypes.int4),
    "u2": np.dtype(ml_dtypes.uint2),
    "u4": np.dtype(ml_dtypes.uint4),
    "f4e2m1fn": np.dtype(ml_dtypes.float4_e2m1fn),
    "f8e3m4": np.dtype(ml_dtypes.float8_e3m4),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3),
    "f8e4m3b11fnuz": np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    "f8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
}
_SHORT_OF: dict[DType, str] = {dtype: name for name, dtype in SHORT_NAMES.items()}
ALL: tuple[DType, ...] = tuple(SHORT_NAMES.values())[:15]
"""The dtypes that every executor computes with."""

NARROW: tuple[DType, ...] = tuple(SHORT_NAMES.values())[15:]
"""Dtypes to keep numbers in, one byte each. Compilers take few operations on them, or none."""

BOOL = SHORT_NAMES["bool"]
INT8 = SHORT_NAMES["i8"]
UINT8 = SHORT_NAMES["u8"]
INT32 = SHORT_NAMES["i32"]
INT64 = SHORT_NAMES["i64"]
FLOAT16 = SHORT_NAMES["f16"]
BFLOAT16 = SHORT_NAMES["bf16"]
FLOAT32 = SHORT_NAMES["f32"]
FLOAT64 = SHORT_NAMES["f64"]
FLOAT8_E4M3FN = SHORT_NAMES["f8e4m3fn"]
FLOAT8_E5M2 = SHORT_NAMES["f8e5m2"]

_SIGNED = frozenset(SHORT_NAMES[name] for name in ("i2", "i4", "i8", "i16", "i32", "i64"))
_UNSIGNED = frozenset(SHORT_NAMES[name] for name in ("u2", "u4", "u8", "u16", "u32", "u64"))
_FLOAT8 = frozenset(dtype for name, dtype in SHORT_NAMES.items() if name.startswith(("f8", "f4")))
_FLOATS = frozenset(SHORT_NAMES[name] for name in ("f16", "bf16", "f32", "f64")) | _FLOAT8
_NARROW = frozenset(NARROW)


LISTED = "bool, int8-64, uint8-64, float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2"
"""The dtypes that every executor computes with, as errors name them."""


def canonical(dtype: DTypeLike) -> DType:
    """The Palladio dtype that `dtype` names. Python's `int` and `float` mean `int64` and `float64`, as in NumPy.

    Raises:
        PalladioTypeError: for a dtype that Palladio does not have.
    """
    if dtype is int:
        return INT64
    if dtype is float:
        return FLOAT64
    if dtype is bool:
        return BOOL
    if type(dtype).__module__ == "torch":
        dtype = str(dtype).removeprefix("torch.")
    if isinstance(dtype, str) and dtype in SHORT_NAMES:
        return SHORT_NAMES[dtype]
    try:
        found = None if dtype is None else np.dtype(dtype)  # NumPy takes None for float64
    except TypeError:
        found = None
    if found is None or found.newbyteorder("=") not in _SHORT_OF:
        raise PalladioTypeError(
            "not a dtype that Palladio has",
            expected=LISTED,
            got=getattr(dtype, "__name__", str(dtype)),
        ) from None
    return found.newbyteorder("=")


def is_supported(dtype: DType) -> bool:
    """True if arrays of this dtype may enter a kernel."""
    return dtype in _SHORT_OF


def short_name(dtype: DType) -> str:
    """`f32` for float32, `bf16` for bfloat16, as programs print it."""
    return _SHORT_OF[dtype]


def is_bool(dtype: DType) -> bool:
    """True if the dtype is bool."""
    return dtype == BOOL


def is_integer(dtype: DType) -> bool:
    """True if the dtype is a signed or unsigned integer; bool is not."""
    return dtype in _SIGNED or dtype in _UNSIGNED


def is_signed(dtype: DType) -> bool:
    """True if the dtype is a signed integer."""
    return dtype in _SIGNED


def is_unsigned(dtype: DType) -> bool:
    """True if the dtype is an unsigned integer."""
    return dtype in _UNSIGNED


def is_float(dtype: DType) -> bool:
    """True if the dtype is a floating-point kind, the float8 ones included."""
    return dtype in _FLOATS


def cast(array: Any, dtype: DType) -> Any:
    """A NumPy array in another dtype, as `astype`, also between narrow dtypes that NumPy has no cast for."""
    if array.dtype != dtype and is_narrow(dtype) and (is_narrow(array.dtype) or array.dtype in _FLOAT8):
        array = array.astype(np.int8 if is_integer(dtype) and is_integer(array.dtype) else np.float32)
    elif array.dtype in _NARROW and dtype in _FLOAT8:
        array = array.astype(np.float32)
    return array.astype(dtype)


def is_narrow(dtype: DType) -> bool:
    """True if the dtype is to keep numbers in: int4, float8_e4m3b11fnuz, …"""
    return dtype in _NARROW


_SUB_BYTE = {SHORT_NAMES[name]: bits for name, bits in (("i2", 2), ("u2", 2), ("i4", 4), ("u4", 4), ("f4e2m1fn", 4))}


def bits_of(dtype: DType) -> int:
    """The bits of an element, without the padding of one that is narrower than a byte."""
    return _SUB_BYTE.get(dtype, dtype.itemsize * 8)


def require_whole_bytes(old: DType, new: DType) -> None:
    """Refuse to read the memory of elements that are narrower than a byte as another dtype: each takes one byte here.

    Raises:
        PalladioTypeError: for two dtypes one of which is so narrow.
    """
    if old != new and (old in _SUB_BYTE or new in _SUB_BYTE):
        raise PalladioTypeError(
            "elements narrower than a byte are kept in one each, so their memory cannot be read as another dtype",
            got=f"{old} as {new}",
            hint="load the values, then pltpu.bitcast",
        )


def widened(array: Any, dtype: DType) -> Any:
    """An array of floats as another float dtype, as `astype`.

    NumPy widens float16 one element after another; looking its 65,536 values up takes a third of the time.
    """
    if array.dtype != FLOAT16 or dtype != FLOAT32 or not array.ndim or not _is_row_major(array):
        return array.astype(dtype)
    return _halves().take(array.view(np.uint16))


def _is_row_major(array: Any) -> bool:
    """True if `astype` gives rows of elements, as `take` does, rather than columns."""
    return bool(array.dtype.isnative) and array.strides == tuple(sorted(array.strides, reverse=True))


@cache
def _halves() -> Any:
    """Every float16 as float32, by its bits."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def is_narrow_float(dtype: DType) -> bool:
    """True if the dtype is a float that NumPy computes through a scalar library: bfloat16 and the float8 kinds."""
    return dtype == BFLOAT16 or dtype in _FLOAT8


def finfo(dtype: DTypeLike) -> Any:
    """Machine limits of a float dtype, as `np.finfo`."""
    return _finfo(canonical(dtype))


def iinfo(dtype: DTypeLike) -> Any:
    """Machine limits of an integer dtype, as `np.iinfo`."""
    return _iinfo(canonical(dtype))


_finfo, _iinfo = cache(ml_dtypes.finfo), cache(ml_dtypes.iinfo)


@cache
def least(dtype: DType) -> Any:
    """The least value of the dtype: -inf where the float has one, the least finite or the least integer otherwise."""
    if is_bool(dtype):
        return np.False_
    if is_integer(dtype):
        return dtype.type(iinfo(dtype).min)
    found = dtype.type(-np.inf)
    return found if np.isinf(float(found)) else finfo(dtype).min


@cache
def greatest(dtype: DType) -> Any:
    """The greatest value of the dtype.

    Inf where the float has one, the greatest finite or the greatest integer otherwise.
    """
    if is_bool(dtype):
        return np.True_
    if is_integer(dtype):
        return dtype.type(iinfo(dtype).max)
    found = dtype.type(np.inf)
    return found if np.isinf(float(found)) else finfo(dtype).max


@cache
def uninitialized(dtype: DType) -> Any:
    """The value that uninitialised memory reads as: NaN, the least integer, False."""
    if is_float(dtype):
        return dtype.type(np.nan)
    return least(dtype)


def unwritten(shape: Sequence[int], dtype: DType) -> np.ndarray[Any, Any]:
    """Memory that nothing has been written to."""
    array = np.empty(shape, dtype)
    array.fill(uninitialized(dtype))
    return array


# The lattice, as edges from each node to the nodes directly above it; "i*" and "f*" are the weak kinds.
_ABOVE: dict[str, tuple[str, ...]] = {
    "bool": ("i*",),
    "i*": ("u2", "u4", "u8", "i2", "i4", "i8"),
    **dict.fromkeys(("i2", "i4", "u2", "u4"), ()),
    "u8": ("i16", "u16"),
    "u16": ("i32", "u32"),
    "u32": ("i64", "u64"),
    "u64": ("f*",),
    "i8": ("i16",),
    "i16": ("i32",),
    "i32": ("i64",),
    "i64": ("f*",),
    "f*": (*(name for name in SHORT_NAMES if name.startswith(("f8", "f4"))), "bf16", "f16"),
    **{name: () for name in SHORT_NAMES if name.startswith(("f8", "f4"))},
    "bf16": ("f32",),
    "f16": ("f32",),
    "f32": ("f64",),
    "f64": (),
}


@cache
def _upper_bounds(node: str) -> frozenset[str]:
    return frozenset({node}).union(*(_upper_bounds(above) for above in _ABOVE[node]))


@cache
def _join(a: str, b: str) -> str | None:
    common = _upper_bounds(a) & _upper_bounds(b)
    for node in common:
        if common <= _upper_bounds(node):
            return node
    return None


def _node(dtype: DType, weak: bool) -> str:
    if weak and dtype != BOOL:
        return "f*" if is_float(dtype) else "i*"
    return _SHORT_OF[dtype]


def promote(*kinds: tuple[DType, bool]) -> tuple[DType, bool]:
    """The dtype in which values of these (dtype, weak) kinds meet, and whether the result is weak.

    Raises:
        PalladioTypeError: if there is none (a float8 kind with another float).
    """
    if len({dtype for dtype, _ in kinds}) == 1:
        return kinds[0][0], all(weak for _, weak in kinds)
    node = reduce(lambda a, b: None if a is None else _join(a, b), (_node(*kind) for kind in kinds))
    if node is None:
        raise PalladioTypeError(
            "the dtypes do not promote to a common one",
            got=", ".join(str(dtype) for dtype, _ in kinds),
            hint="convert one explicitly with .astype(dtype)",
        )
    if node in ("i*", "f*"):
        return (INT32 if node == "i*" else FLOAT32), True
    return SHORT_NAMES[node], False


def of_scalar(value: Any) -> tuple[DType, bool] | None:
    """The (dtype, weak) kind of a Python or NumPy scalar, or None for anything else."""
    if isinstance(value, (bool, np.bool_)):
        return BOOL, False
    if isinstance(value, (float, np.float64)):
        return FLOAT32, True
    if isinstance(value, (int, np.int64)):
        return INT32, True
    if isinstance(value, np.generic) and value.dtype in _SHORT_OF:
        return value.dtype, False
    return None
