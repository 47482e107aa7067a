"""Softmax and RMSNorm: each row is read once, held in registers by one warpgroup, and written once.

Both are bound by memory. Blocks are small, so that several on a multiprocessor keep enough loads in flight while others
reduce; accesses of a thread have 16 bytes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from palladio.library.checks import dtype_of, fail, require_array, require_number
from palladio.library.hopper.kept import Divided, RowBucket, called, kept_call
from palladio.library.hopper.limits import FLOATS
from palladio.library.staging import stored, zeros

Ref = Any
Value = Any

HELD = 8192
"""The most elements that a warpgroup holds, 64 in each thread; longer rows are read twice, in parts of this size."""


def _softmax_kernel(x: Ref, out: Ref, *, rows: int) -> None:
    first = pl.axis_index("block") * rows

    def whole(part: Value) -> Value:
        powers = jnp.exp(part - jnp.max(part, axis=1)[:, None])
        return powers * (1 / jnp.sum(powers, axis=1))[:, None]

    def gather(carry: tuple[Value, Value], part: Value) -> tuple[Value, Value]:
        before, total = carry
        largest = jnp.maximum(before, jnp.max(part, axis=1))
        return largest, total * jnp.exp(before - largest) + jnp.sum(jnp.exp(part - largest[:, None]), axis=1)

    def finish(carry: tuple[Value, Value], part: Value, _: Value) -> Value:
        largest, total = carry
        return jnp.exp(part - largest[:, None]) * (1 / total)[:, None]

    start = jnp.full((rows,), -jnp.inf, jnp.float32), jnp.zeros((rows,), jnp.float32)
    _by_rows(x, out, first, rows, whole, start, gather, finish)


def _rms_norm_kernel(x: Ref, weight: Ref, out: Ref, *, rows: int, epsilon: float) -> None:
    first, n = pl.axis_index("block") * rows, x.shape[1]

    def whole(part: Value) -> Value:
        mean = jnp.sum(part * part, axis=1) / n
        return part * lax.rsqrt(mean + epsilon)[:, None] * weight[...].astype(jnp.float32)[None, :]

    def gather(total: Value, part: Value) -> Value:
        return total + jnp.sum(part * part, axis=1)

    def finish(total: Value, part: Value, columns: Any) -> Value:
        return part * lax.rsqrt(total / n + epsilon)[:, None] * weight[columns].astype(jnp.float32)[None, :]

    _by_rows(x, out, first, rows, whole, jnp.zeros((rows,), jnp.float32), gather, finish)


def _by_rows(
    x: Ref,
    out: Ref,
    first: Value,
    rows: int,
    whole: Callable[[Value], Value],
    start: Value,
    gather: Callable[[Any, Value], Any],
    finish: Callable[[Any, Value, Any], Value],
) -> None:
    """Map some rows: as a whole if they are short, else in two passes: accumulate over the parts, then finish each.

    Args:
        whole: f32[rows, n] -> their result.
        gather: (carry, f32[rows, columns]) -> the next carry, which starts as `start`.
        finish: (carry, part, its columns) -> the result of the part.
    """
    n, own = x.shape[1], pl.ds(first, rows)
    if rows * n <= HELD:
        out[own, :] = whole(x[own, :].astype(jnp.float32)).astype(out.dtype)
        return
    width = math.gcd(n, HELD)
    parts = n // width

    def load(number: Value) -> tuple[Any, Value]:
        columns = pl.ds(pl.multiple_of(number * width, width), width)
        return columns, x[own, columns].astype(jnp.float32)

    carry = lax.fori_loop(0, parts, lambda number, carry: gather(carry, load(number)[1]), start)

    @pl.loop(0, parts)
    def _(number: Value) -> None:
        columns, part = load(number)
        out[own, columns] = finish(carry, part, columns).astype(out.dtype)


def _call(key: Hashable, kernel: Any, arrays: Sequence[Any], interpret: Any, out: Any, **options: Any) -> Any:
    """The result of a kernel over the rows, along the last axis, of the first array."""
    x, *others = arrays
    shape = tuple(x.shape)
    if 0 in shape:
        return stored(zeros(shape, dtype_of(x), x), out)
    m, n = math.prod(shape[:-1]), shape[-1]
    # The most rows that are held together; a divisor, so that all blocks are full.
    rows = math.gcd(m, 1 << max(0, (HELD // n).bit_length() - 1))

    def make(count: int) -> Any:
        call = plgpu.kernel(
            functools.partial(kernel, rows=rows, **options),
            pl.ShapeDtypeStruct((count, n), dtype_of(x)),
            grid=(count // rows,),
            grid_names=("block",),
            compiler_params=plgpu.CompilerParams(approx_math=dtype_of(x).itemsize == 2),
            interpret=interpret,
            name=kernel.__name__.strip("_").removesuffix("_kernel"),
        )
        return Divided(call, rows)

    operands, bucket = (x.reshape((m, n)), *others), RowBucket.in_blocks(m, rows, make)
    whole = functools.partial(make, m)
    return called(key, whole, interpret, arrays, shape, out, operands=operands, flat=(m, n), bucket=bucket)


def _require_float(value: Any, argument: str) -> None:
    if dtype_of(value) not in FLOATS:
        rule, expected = "rows are of floats of 16 or 32 bits", "float16, bfloat16 or float32"
        raise fail(pl.PalladioTypeError, rule, argument=argument, expected=expected, got=str(dtype_of(value)))


def _row_axis(x: Any) -> int:
    shape = require_array(x, "x", None, "[..., n]")
    _require_float(x, "x")
    if not shape or shape[-1] == 0:
        rule = "there is nothing to normalise along the last axis"
        raise fail(pl.PalladioValueError, rule, argument="x", expected="[..., n] with n at least 1", got=shape)
    return shape[-1]


@pl.checked_call
def softmax(x: Any, *, interpret: Any = None, out: Any = None) -> Any:
    """`exp(x - max(x)) / sum(exp(x - max(x)))` along the last axis.

    Args:
        x: `dtype[..., n]`, float16, bfloat16 or float32, n at least 1.
        interpret: as in `palladio.gpu.kernel`.
        out: an array for the result, which is returned: of its shape and dtype, in row-major order.

    Returns:
        `dtype[..., n]`, computed in float32.

    Raises:
        PalladioTypeError, PalladioValueError: another dtype, nothing along the last axis.
    """
    kept = kept_call("softmax", interpret, (x,), out)
    if kept is not None:
        return kept
    _row_axis(x)
    return _call("softmax", _softmax_kernel, (x,), interpret, out)


@pl.checked_call
def rms_norm(x: Any, weight: Any, *, epsilon: float = 1e-6, interpret: Any = None, out: Any = None) -> Any:
    """`x / sqrt(mean(x * x) + epsilon) * weight` along the last axis (Zhang and Sennrich, 2019).

    Args:
        x: `dtype[..., n]`, float16, bfloat16 or float32, n at least 1.
        weight: `dtype[n]`, of any of these dtypes.
        epsilon: added to the mean of the squares.
        interpret: as in `palladio.gpu.kernel`.
        out: an array for the result, which is returned: of its shape and dtype, in row-major order.

    Returns:
        `dtype[..., n]`, computed in float32.

    Raises:
        PalladioTypeError, PalladioValueError: another dtype, nothing along the last axis, a weight of another size.
    """
    key, arrays = ("rms_norm", epsilon), (x, weight)
    kept = kept_call(key, interpret, arrays, out)
    if kept is not None:
        return kept
    n = _row_axis(x)
    (found,) = require_array(weight, "weight", 1, f"[{n}]")
    _require_float(weight, "weight")
    if found != n:
        rule = "there is one weight for each element of a row"
        raise fail(pl.PalladioValueError, rule, argument="weight", expected=f"[{n}]", got=(found,))
    epsilon = require_number(epsilon, "epsilon")
    return _call(("rms_norm", epsilon), _rms_norm_kernel, arrays, interpret, out, epsilon=epsilon)
