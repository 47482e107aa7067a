"""Softmax along the last axis: one block of whole rows for each grid point."""

from __future__ import annotations

import functools
from typing import Any

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.library.card_calls import kept_call
from palladio.library.checks import dtype_of, fail, require_array, require_count, require_interpret, wide_dtype
from palladio.library.namesakes import FLOATS, on_hopper
from palladio.library.row_blocks import rows_of_block, staged
from palladio.library.staging import in_shape, kept_calls, reshaped, stored, zeros


def _softmax_kernel(x_ref: Any, out_ref: Any) -> None:
    x = x_ref[...].astype(wide_dtype(x_ref.dtype))
    shifted = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
    # One division for each row. The sum is at least 1, so that its reciprocal does not overflow.
    out_ref[...] = (shifted * (1 / jnp.sum(shifted, axis=-1, keepdims=True))).astype(out_ref.dtype)


_KEPT = kept_calls()


@functools.cache
def _softmax_call(shape: tuple[int, int], dtype: Any, block_rows: int, interpret: Any) -> Any:
    block = pl.BlockSpec((block_rows, shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        _softmax_kernel,
        pl.ShapeDtypeStruct(shape, dtype),
        grid=(pl.cdiv(shape[0], block_rows),),
        in_specs=[block],
        out_specs=block,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )


@pl.checked_call
def softmax(x: Any, *, block_rows: int | None = None, interpret: Any = None, out: Any = None) -> Any:
    """`exp(x - max(x)) / sum(exp(x - max(x)))` along the last axis.

    Args:
        x: `dtype[..., n]` of floats, n at least 1. Computed in float32 (float64 for float64).
        block_rows: the number of rows of a grid point; by default as many as fit a first-level cache.
            `library.hopper.softmax`, which runs on Hopper, chooses its own.
        interpret: as in `palladio.pallas_call`.
        out: an array for the result, of its shape and dtype, in row-major order; it is returned.

    Returns:
        An array of the type of `x`.

    Raises:
        PalladioTypeError: not floats. PalladioValueError: a scalar, rows of no elements, or `block_rows` below 1.
    """
    done = kept_call("softmax", interpret, (x,), out)
    if done is not None:
        return done
    hopper = on_hopper(interpret, (x,), FLOATS)
    if hopper is not None:
        if block_rows is not None:
            require_count(block_rows, "block_rows")
        return hopper.softmax(x, interpret=interpret, out=out)
    shape = require_array(x, "x", None, "[..., n]")
    if not shape or shape[-1] == 0:
        raise fail(pl.PalladioValueError, "softmax needs rows of at least one element", argument="x", got=shape)
    if block_rows is not None:
        block_rows = require_count(block_rows, "block_rows")
    if 0 in shape:
        return stored(zeros(shape, dtype_of(x), x), out)
    rows = in_shape(x, (-1, shape[-1]))
    flat = None if out is None else reshaped(out, shape, tuple(rows.shape))
    if _KEPT.usable and not pl.is_on_gpu(x):

        def call_of(whole: tuple[int, int], size: int) -> Any:
            return _softmax_call(whole, dtype_of(x), size, require_interpret(interpret))

        kept = staged(_KEPT, None, call_of, rows, interpret, block_rows)
        found = kept(rows, out=flat, rows=rows.shape[0])
    else:
        size = block_rows or rows_of_block(int(rows.shape[0]), shape[-1], dtype_of(x).itemsize)
        call = _softmax_call(rows.shape, dtype_of(x), min(size, rows.shape[0]), interpret)
        found = call(rows) if flat is None else call(rows, out=flat)
    return found.reshape(shape) if out is None else out
