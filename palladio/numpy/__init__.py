"""The array functions a kernel may call, with NumPy's names and JAX's promotion.

    import palladio.numpy as jnp

They work on traced values inside kernels and staged functions, and on NumPy arrays outside. Python numbers are weak:
they take the dtype of the array they meet; alone they are float32 and int32.
"""

import sys as _sys
from typing import TYPE_CHECKING, Any

import numpy as _np

from palladio.array import FUNCTIONS as _FUNCTIONS
from palladio.array import scalar_types as _types

bool = bool_ = _types.bool_
int8, int16, int32, int64 = _types.int8, _types.int16, _types.int32, _types.int64
uint8, uint16, uint32, uint64 = _types.uint8, _types.uint16, _types.uint32, _types.uint64
float16, float32, float64 = _types.float16, _types.float32, _types.float64
bfloat16, float8_e4m3fn, float8_e5m2 = _types.bfloat16, _types.float8_e4m3fn, _types.float8_e5m2
int2, int4, uint2, uint4 = _types.int2, _types.int4, _types.uint2, _types.uint4
float4_e2m1fn, float8_e3m4, float8_e4m3 = _types.float4_e2m1fn, _types.float8_e3m4, _types.float8_e4m3
float8_e4m3b11fnuz, float8_e4m3fnuz = _types.float8_e4m3b11fnuz, _types.float8_e4m3fnuz
float8_e5m2fnuz, float8_e8m0fnu = _types.float8_e5m2fnuz, _types.float8_e8m0fnu
floating, integer, signedinteger, unsignedinteger = _np.floating, _np.integer, _np.signedinteger, _np.unsignedinteger
inexact, number, generic = _np.inexact, _np.number, _np.generic
ndarray = _np.ndarray
pi, e, inf, nan, newaxis = _np.pi, _np.e, _np.inf, _np.nan, None

_KINDS = (
    "bfloat16 bool bool_ e float16 float32 float64 float8_e4m3fn float8_e5m2 floating generic inexact inf int16 int32 "
    "int64 int8 integer nan "
    "float4_e2m1fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu "
    "int2 int4 uint2 uint4 "
    "ndarray newaxis number pi signedinteger uint16 uint32 uint64 uint8 unsignedinteger"
)
globals().update(_FUNCTIONS)
if TYPE_CHECKING:  # what a type checker sees of the functions; running code takes them from palladio.array
    from palladio.array.functions.arithmetic import *  # noqa: F403
    from palladio.array.functions.bits import *  # noqa: F403
    from palladio.array.functions.compare import *  # noqa: F403
    from palladio.array.functions.creation import *  # noqa: F403
    from palladio.array.functions.derived import *  # noqa: F403
    from palladio.array.functions.indexing import *  # noqa: F403
    from palladio.array.functions.kinds import *  # noqa: F403
    from palladio.array.functions.math import *  # noqa: F403
    from palladio.array.functions.order import *  # noqa: F403
    from palladio.array.functions.products import *  # noqa: F403
    from palladio.array.functions.reduce import *  # noqa: F403
    from palladio.array.functions.shape import *  # noqa: F403
__all__ = sorted([*_KINDS.split(), *_FUNCTIONS])  # noqa: PLE0605  the functions are listed once, in palladio.array


def __getattr__(name: str) -> Any:
    text = f"palladio.numpy has no {name!r}: it holds what kernels may call; see palladio.numpy.__all__"
    raise AttributeError(text, name=name, obj=_sys.modules[__name__])  # Python suggests others
