"""The cache of calls of `library.hopper`, shared by its functions and their namesakes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import palladio.numpy as jnp
from palladio.library.checks import dtype_of
from palladio.library.staging import kept_calls

HALVES = frozenset(map(jnp.dtype, ("float16", "bfloat16")))
"""The dtypes whose products on the tensor cores have the precision that the library promises."""

KEPT = kept_calls()
"""The calls of `library.hopper` on arrays of a GPU."""


def kept_call(key: Hashable, interpret: Any, arrays: Sequence[Any], out: Any = None) -> Any:
    """The result of a cached call of `library.hopper`; None without one.

    Args:
        key: the name of the function and its other arguments, as in its cache.
        arrays: the operands, the first of them an array.
        out: the caller's array for the result.
    """
    return KEPT.on_card(key, arrays, out) if interpret is None else None


def attention_key(causal: bool, scale: float | None, config: Any, out: Any) -> Hashable:
    """The key of `attention`. The caller's array for the result is in row-major order, others are as the queries."""
    return ("attention", causal, scale, config) if out is None else ("attention", causal, scale, config, "out")


def key_of(key: Hashable, arrays: Sequence[Any]) -> Hashable:
    """The key under which a function of `library.hopper` caches a call, shared with its namesake or private.

    Its namesakes multiply 16-bit floats only, not float32 rounded to 11 bits (PTX ISA, "wgmma.mma_async", tf32), nor
    8-bit floats. Row functions multiply no matrices, and share their keys.

    Args:
        key, arrays: as in `kept_call`. The second array is an operand of the product, if there is one.
    """
    of_rows = key == "softmax" or (isinstance(key, tuple) and key[0] == "rms_norm")
    return key if of_rows or dtype_of(arrays[1]) in HALVES else own(key)


def own(key: Hashable) -> Hashable:
    """A key that only `library.hopper` looks up."""
    return "library.hopper", key
