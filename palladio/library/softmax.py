"""Softmax along the last axis: one block of whole rows for each grid point."""

from __future__ import annotations

from typing import Any

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.library.checks import dtype_of, fail, require_array, require_count, zeros


def _softmax_kernel(x_ref: Any, out_ref: Any) -> None:
    x = x_ref[...].astype(jnp.promote_types(jnp.float32, x_ref.dtype))
    shifted = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
    # One division a row. The sum is at least 1, so that its reciprocal is a plain number.
    out_ref[...] = (shifted * (1 / jnp.sum(shifted, axis=-1, keepdims=True))).astype(out_ref.dtype)


def softmax(x: Any, *, block_rows: int = 256, interpret: Any = None) -> Any:
    """`exp(x - max(x)) / sum(exp(x - max(x)))` along the last axis.

    Args:
        x: `dtype[..., n]` of floats, n at least 1. Computed in float32 (float64 for float64).
        block_rows: how many rows a grid point works on.
        interpret: as in `palladio.pallas_call`.

    Returns:
        An array of the type of `x`.

    Raises:
        PalladioTypeError: no floats. PalladioValueError: a scalar, rows of no elements, or `block_rows` below 1.
    """
    shape = require_array(x, "x", None, "[..., n]")
    if not shape or shape[-1] == 0:
        raise fail(pl.PalladioValueError, "softmax needs rows of at least one element", argument="x", got=shape)
    require_count(block_rows, "block_rows")
    if 0 in shape:
        return zeros(shape, dtype_of(x), x)
    rows = x.reshape((-1, shape[-1]))
    block = (min(block_rows, rows.shape[0]), shape[-1])
    result = pl.pallas_call(
        _softmax_kernel,
        pl.ShapeDtypeStruct(rows.shape, dtype_of(x)),
        grid=(pl.cdiv(rows.shape[0], block[0]),),
        in_specs=[pl.BlockSpec(block, lambda i: (i, 0))],
        out_specs=pl.BlockSpec(block, lambda i: (i, 0)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(rows)
    return result.reshape(shape)
