"""Floor 4: the array functions a kernel may call, with NumPy's names and JAX's promotion.

They take traced values, NumPy arrays and scalars, and apply operations through `palladio.ir.bind`. `FUNCTIONS` maps a
NumPy name to its function: `palladio.numpy` offers them, and `np.exp(x)` on a traced value finds them there.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from palladio.array import scalar_types
from palladio.array.functions import (
    arithmetic,
    bits,
    compare,
    creation,
    derived,
    indexing,
    kinds,
    math,
    order,
    products,
    reduce,
    shape,
)
from palladio.array.scalar_types import ScalarType

_FAMILIES = (arithmetic, math, compare, bits, reduce, order, creation, shape, indexing, products, kinds, derived)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(family, name) for family in _FAMILIES for name in family.__all__
}

SCALAR_TYPES: dict[str, ScalarType] = {name: getattr(scalar_types, name) for name in scalar_types.__all__}

# What `x.__array_namespace__()` gives.
NAMESPACE = SimpleNamespace(**FUNCTIONS, **SCALAR_TYPES, bool=scalar_types.bool_)
