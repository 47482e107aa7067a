"""Dtypes that are also functions: `int32` names the dtype, and `int32(x)` is `x` in it, traced or not."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from palladio.array.functions.kinds import asarray
from palladio.types.dtypes import DType

__all__ = [
    "bfloat16",
    "bool_",
    "float16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float4_e2m1fn",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "int2",
    "int4",
    "uint2",
    "uint4",
]


class ScalarType(type):
    """The type of `int32` and its kin.

    NumPy's scalar types cannot replace them: `np.int32(x)` needs the elements of a traced `x`. These compare equal to
    NumPy's, and NumPy takes them wherever it takes a dtype.
    """

    dtype: DType

    def __call__(cls, x: Any) -> Any:
        """`x`, a traced value, an array or a scalar, in this dtype."""
        return asarray(x, cls.dtype)

    @property
    def __numpy_dtype__(cls) -> DType:
        """The dtype, as NumPy reads it from 2.4 on; older versions read `dtype`."""
        return cls.dtype

    def __eq__(cls, other: object) -> bool:
        return cls is other or cls.dtype.type is other or (isinstance(other, np.dtype) and cls.dtype == other)

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)

    def __repr__(cls) -> str:
        return f"palladio.numpy.{cls.__name__}"


def _scalar_type(name: str, scalar: type) -> ScalarType:
    doc = f"The dtype {name}; called, its argument in that dtype."
    return ScalarType(name, (), {"dtype": np.dtype(scalar), "__module__": "palladio.numpy", "__doc__": doc})


bool_ = _scalar_type("bool_", np.bool_)
int8 = _scalar_type("int8", np.int8)
int16 = _scalar_type("int16", np.int16)
int32 = _scalar_type("int32", np.int32)
int64 = _scalar_type("int64", np.int64)
uint8 = _scalar_type("uint8", np.uint8)
uint16 = _scalar_type("uint16", np.uint16)
uint32 = _scalar_type("uint32", np.uint32)
uint64 = _scalar_type("uint64", np.uint64)
float16 = _scalar_type("float16", np.float16)
bfloat16 = _scalar_type("bfloat16", ml_dtypes.bfloat16)
float32 = _scalar_type("float32", np.float32)
float64 = _scalar_type("float64", np.float64)
float8_e4m3fn = _scalar_type("float8_e4m3fn", ml_dtypes.float8_e4m3fn)
float8_e5m2 = _scalar_type("float8_e5m2", ml_dtypes.float8_e5m2)
float4_e2m1fn = _scalar_type("float4_e2m1fn", ml_dtypes.float4_e2m1fn)
float8_e3m4 = _scalar_type("float8_e3m4", ml_dtypes.float8_e3m4)
float8_e4m3 = _scalar_type("float8_e4m3", ml_dtypes.float8_e4m3)
float8_e4m3b11fnuz = _scalar_type("float8_e4m3b11fnuz", ml_dtypes.float8_e4m3b11fnuz)
float8_e4m3fnuz = _scalar_type("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz)
float8_e5m2fnuz = _scalar_type("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz)
float8_e8m0fnu = _scalar_type("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu)
int2 = _scalar_type("int2", ml_dtypes.int2)
int4 = _scalar_type("int4", ml_dtypes.int4)
uint2 = _scalar_type("uint2", ml_dtypes.uint2)
uint4 = _scalar_type("uint4", ml_dtypes.uint4)
