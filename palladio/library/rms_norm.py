"""RMSNorm along the last axis: one block of whole rows for each grid point."""

from __future__ import annotations

import functools
from typing import Any

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from palladio.library.card_calls import kept_call
from palladio.library.checks import (
    dtype_of,
    fail,
    require_array,
    require_count,
    require_interpret,
    require_number,
    wide_dtype,
)
from palladio.library.namesakes import FLOATS, on_hopper
from palladio.library.row_blocks import rows_of_block, staged
from palladio.library.staging import in_shape, kept_calls, reshaped, stored, zeros

_KEPT = kept_calls()


def _rms_norm_kernel(x_ref: Any, weight_ref: Any, out_ref: Any, *, epsilon: float) -> None:
    wide = wide_dtype(x_ref.dtype)
    x = x_ref[...].astype(wide)
    mean = jnp.sum(x * x, axis=-1, keepdims=True) / x.shape[-1]
    out_ref[...] = (x * lax.rsqrt(mean + epsilon) * weight_ref[...].astype(wide)[None, :]).astype(out_ref.dtype)


@functools.cache
def _rms_norm_call(shape: tuple[int, int], dtype: Any, block_rows: int, epsilon: float, interpret: Any) -> Any:
    block = pl.BlockSpec((block_rows, shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        functools.partial(_rms_norm_kernel, epsilon=epsilon),
        pl.ShapeDtypeStruct(shape, dtype),
        grid=(pl.cdiv(shape[0], block_rows),),
        in_specs=[block, pl.BlockSpec((shape[1],), lambda i: (0,))],
        out_specs=block,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
        name="rms_norm",
    )


@pl.checked_call
def rms_norm(
    x: Any,
    weight: Any,
    *,
    epsilon: float = 1e-6,
    block_rows: int | None = None,
    interpret: Any = None,
    out: Any = None,
) -> Any:
    """`x / sqrt(mean(x * x) + epsilon) * weight` along the last axis (Zhang and Sennrich, 2019).

    Args:
        x: `dtype[..., n]` of floats, n at least 1. Computed in float32 (float64 for float64).
        weight: `dtype[n]` of floats.
        epsilon: added to the mean of the squares.
        block_rows: the number of rows of a grid point; by default as many as fit a first-level cache.
            `library.hopper.rms_norm`, which runs on Hopper, chooses its own.
        interpret: as in `palladio.pallas_call`.
        out: an array for the result, of its shape and dtype, in row-major order; it is returned.

    Returns:
        An array of the type of `x`.

    Raises:
        PalladioTypeError: not floats. PalladioValueError: a scalar, rows of no elements, a weight of another size, or
            `block_rows` below 1.
    """
    done = kept_call(("rms_norm", epsilon), interpret, (x, weight), out)
    if done is not None:
        return done
    if block_rows is not None:
        block_rows = require_count(block_rows, "block_rows")
    hopper = on_hopper(interpret, (x,), FLOATS)
    if hopper is not None and dtype_of(weight) in FLOATS:
        return hopper.rms_norm(x, weight, epsilon=epsilon, interpret=interpret, out=out)
    shape = require_array(x, "x", None, "[..., n]")
    if not shape or shape[-1] == 0:
        raise fail(pl.PalladioValueError, "RMSNorm needs rows of at least one element", argument="x", got=shape)
    found = require_array(weight, "weight", 1, f"[{shape[-1]}]")
    if found != shape[-1:]:
        rule = "there is one weight for each element of a row"
        raise fail(pl.PalladioValueError, rule, argument="weight", expected=shape[-1:], got=found)
    if 0 in shape:
        return stored(zeros(shape, dtype_of(x), x), out)
    rows = in_shape(x, (-1, shape[-1]))
    flat = None if out is None else reshaped(out, shape, tuple(rows.shape))
    epsilon = require_number(epsilon, "epsilon")
    if _KEPT.usable and not pl.is_on_gpu(x):

        def call_of(whole: tuple[int, int], size: int) -> Any:
            return _rms_norm_call(whole, dtype_of(x), size, epsilon, require_interpret(interpret))

        call = staged(_KEPT, epsilon, call_of, rows, interpret, block_rows, weight)
        result = call(rows, weight, out=flat, rows=rows.shape[0])
    else:
        size = block_rows or rows_of_block(int(rows.shape[0]), shape[-1], dtype_of(x).itemsize)
        call = _rms_norm_call(rows.shape, dtype_of(x), min(size, rows.shape[0]), epsilon, interpret)
        result = call(rows, weight) if flat is None else call(rows, weight, out=flat)
    return result.reshape(shape) if out is None else out
