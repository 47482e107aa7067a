"""Tensor maps on the twin, checked by the documented rules of the driver's `cuTensorMapEncodeTiled`."""

from __future__ import annotations

import ctypes
import math

import numpy as np

from palladio.base.errors import PalladioValueError
from palladio.hopper.lowered import MapSpec
from palladio.types import dtypes

MAGIC = 0x70616C6C6164696F
"""The first word of an encoded map; `copies.cpp` has the same."""

MOST_AXES, MOST_BOX, ALIGNMENT = 5, 256, 16
SWIZZLES = (0, 32, 64, 128)

_ELEMENTS = ("u8", "i8", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "tf32", "f32", "f64")
"""The order of `Number` in `types.hpp`. Elements that maps do not support are copied as integers of their size."""
_MAP_TYPES = {"bool": "u8", "i8": "u8", "f8e4m3fn": "u8", "f8e5m2": "u8", "i16": "u16"}


class TensorSpec(ctypes.Structure):
    """`TensorSpec` of `copies.cpp`: axes are innermost first."""

    _fields_ = [
        ("magic", ctypes.c_uint64),
        ("base", ctypes.c_void_p),
        ("dims", ctypes.c_uint64 * MOST_AXES),
        ("strides", ctypes.c_uint64 * (MOST_AXES - 1)),
        ("box", ctypes.c_uint32 * MOST_AXES),
        ("rank", ctypes.c_uint32),
        ("element", ctypes.c_uint32),
        ("item", ctypes.c_uint32),
        ("swizzle", ctypes.c_uint32),
        ("fill_nan", ctypes.c_uint32),
    ]


def element_of(spec: MapSpec) -> int:
    """The number of an element's type in tensor maps."""
    name = dtypes.short_name(spec.dtype)
    return _ELEMENTS.index(_MAP_TYPES.get(name, name))


def encode(spec: MapSpec, array: np.ndarray) -> TensorSpec:
    """The map of an array.

    Raises:
        PalladioValueError: a rule of the driver is broken, or the map reaches outside of the array.
    """
    check(spec, array)
    dims, box = tuple(reversed(spec.dims)), tuple(reversed(spec.box))
    strides = tuple(reversed(spec.strides))
    encoded = TensorSpec(MAGIC, array.ctypes.data)
    encoded.dims[: len(dims)] = dims
    encoded.strides[: len(strides)] = strides
    encoded.box[: len(box)] = box
    encoded.rank, encoded.element, encoded.item = spec.rank, element_of(spec), spec.dtype.itemsize
    encoded.swizzle, encoded.fill_nan = spec.swizzle, spec.fill == "nan"
    return encoded


def check(spec: MapSpec, array: np.ndarray) -> None:
    """Check a map of an array.

    Raises:
        PalladioValueError: a rule of the driver is broken, or the map reaches outside of the array.
    """
    _check_axes(spec)
    if array.ctypes.data % ALIGNMENT:
        _refuse("the array must begin at a multiple of 16 bytes", f"address {array.ctypes.data:#x}")
    for stride in spec.strides:
        if stride % ALIGNMENT or not 0 <= stride < 1 << 40:
            _refuse("strides are multiples of 16 bytes, below 2^40", stride)
    _check_box(spec)
    last = sum((dim - 1) * stride for dim, stride in zip(spec.dims, (*spec.strides, spec.dtype.itemsize)))
    if last + spec.dtype.itemsize > array.nbytes:
        _refuse(f"the map reaches byte {last} of an array of {array.nbytes} bytes", (spec.dims, spec.strides))


def _check_axes(spec: MapSpec) -> None:
    if not 1 <= spec.rank <= MOST_AXES:
        _refuse("a map has 1 to 5 axes", spec.rank)
    if (len(spec.box), len(spec.strides)) != (spec.rank, spec.rank - 1):
        _refuse("a map has a box size for each axis, and a stride for each but the last", (spec.box, spec.strides))
    if not all(1 <= dim <= 1 << 32 for dim in spec.dims):
        _refuse("each axis of a map has 1 to 2^32 elements", spec.dims)
    if spec.fill not in ("zeros", "nan") or (spec.fill == "nan" and element_of(spec) < _ELEMENTS.index("f16")):
        _refuse("outside of the array there are zeros, or NaN for floating-point elements", (spec.fill, spec.dtype))


def _check_box(spec: MapSpec) -> None:
    if not all(1 <= size <= MOST_BOX for size in spec.box):
        _refuse("a box has 1 to 256 elements along each axis", spec.box)
    inner = spec.box[-1] * spec.dtype.itemsize
    if inner % ALIGNMENT:
        _refuse("the last axis of a box is a multiple of 16 bytes", f"{inner} bytes")
    if spec.swizzle not in SWIZZLES:
        _refuse("a swizzle has 0, 32, 64 or 128 bytes", spec.swizzle)
    if spec.swizzle and inner > spec.swizzle:
        _refuse("the last axis of a box is at most as wide as the swizzle", f"{inner} bytes, swizzle {spec.swizzle}")
    if spec.swizzle and inner < spec.swizzle and math.prod(spec.box[:-1]) > 1:
        # The programming guide requires space for whole swizzles here, and does not describe the layout.
        _refuse("the twin has boxes exactly as wide as their swizzle", f"{inner} bytes, swizzle {spec.swizzle}")


def _refuse(rule: str, got: object) -> None:
    raise PalladioValueError(rule, argument="tensor map", got=got)
