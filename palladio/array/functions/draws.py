"""Random numbers of a distribution, made of random bits as `jax.random` makes them.

`draw(dtype)` gives random bits in an unsigned dtype, one element for each element of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.convert import Array, ArrayLike
from palladio.array.functions import arithmetic, bits
from palladio.base.errors import PalladioTypeError
from palladio.ops.arrays import math
from palladio.types import dtypes

Draw = Callable[[Any], Array]

_BITS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def _float(dtype: Any) -> Any:
    kind = dtypes.canonical(dtype)
    if not dtypes.is_float(kind):
        raise PalladioTypeError(
            "the numbers of this distribution are floats",
            argument="dtype",
            got=dtypes.short_name(kind),
            jax="must be a float dtype",
        )
    return kind


def uniform(draw: Draw, dtype: Any, minval: ArrayLike, maxval: ArrayLike) -> Array:
    """Uniform on [minval, maxval), made of as many random bits as the dtype has in its mantissa."""
    kind = _float(dtype)
    info = dtypes.finfo(kind)
    word = _BITS[info.bits]
    drawn = draw(np.uint8 if info.nmant < 8 else word)
    mantissa = convert.cast(drawn, np.dtype(word)) >> word((8 if info.nmant < 8 else info.bits) - info.nmant)
    one = np.ones((), kind)
    values = bits.view(mantissa | one.view(word), kind) - one
    low, high = convert.cast(minval, kind), convert.cast(maxval, kind)
    return arithmetic.maximum(low, values * (high - low) + low)


def normal(draw: Draw, dtype: Any) -> Array:
    """The standard normal distribution, by the inverse of its distribution function."""
    kind = _float(dtype)
    low = np.nextafter(np.array(-1, kind), np.array(0, kind), dtype=kind)
    drawn = uniform(draw, kind, low, np.ones((), kind))
    found: Array = np.array(np.sqrt(2), kind) * convert.call(math.erf_inv, drawn)
    return found
