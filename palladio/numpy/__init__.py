"""The array functions a kernel may call, with NumPy's names and JAX's promotion.

    import palladio.numpy as jnp

They work on traced values inside kernels and staged functions, and on NumPy arrays outside. Python numbers are weak:
they take the dtype of the array they meet; alone they are float32 and int32.
"""

from typing import Any

import ml_dtypes
import numpy as _np

from palladio.array import FUNCTIONS as _FUNCTIONS

bool_ = _np.bool_
int8, int16, int32, int64 = _np.int8, _np.int16, _np.int32, _np.int64
uint8, uint16, uint32, uint64 = _np.uint8, _np.uint16, _np.uint32, _np.uint64
float16, float32, float64 = _np.float16, _np.float32, _np.float64
bfloat16 = ml_dtypes.bfloat16
float8_e4m3fn, float8_e5m2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
floating, integer, signedinteger, unsignedinteger = _np.floating, _np.integer, _np.signedinteger, _np.unsignedinteger
inexact, number, generic = _np.inexact, _np.number, _np.generic
ndarray = _np.ndarray
pi, e, inf, nan, newaxis = _np.pi, _np.e, _np.inf, _np.nan, None

_KINDS = (
    "bfloat16 bool_ e float16 float32 float64 float8_e4m3fn float8_e5m2 floating generic inexact inf int16 int32 "
    "int64 int8 integer nan "
    "ndarray newaxis number pi signedinteger uint16 uint32 uint64 uint8 unsignedinteger"
)
globals().update(_FUNCTIONS)
__all__ = sorted([*_KINDS.split(), *_FUNCTIONS])  # noqa: PLE0605  the functions are listed once, in palladio.array


def __getattr__(name: str) -> Any:
    raise AttributeError(f"palladio.numpy has no {name!r}: it holds what kernels may call; see palladio.numpy.__all__")
