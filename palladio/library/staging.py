"""Staged calls of the library's functions: for how many rows they are staged, under which keys they are kept, and the
forms in which they take arrays and return results.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
from palladio.library.checks import dtype_of, fail, found_dtype, require_array

Array = Any

_KEPT: list[pl.KeptCalls] = []


def kept_calls() -> pl.KeptCalls:
    """A new cache of calls for a function of the library."""
    _KEPT.append(pl.KeptCalls())
    return _KEPT[-1]


def forget_calls() -> None:
    """Clear the caches of all functions, after tiles have been measured."""
    for kept in _KEPT:
        kept.clear()


STAGED_BYTES = 1 << 22
"""The largest left operand that is copied into one with more rows, so that one compiled kernel serves many sizes."""

LEAST_STAGED_ROWS = 16
"""The fewest rows for which a product is compiled, except for up to four, which pack nothing."""

MOST_DOUBLED_ROWS = 256
"""Up to this number of rows, each size for which a product is compiled is twice the one before."""


def staged_rows(m: int) -> int:
    """The next number of rows for which a product is compiled: a power of two, or one of four up to each beyond 256.

    Rows that a copy adds take memory, and time in kernels that compute them. Beyond 256 rows, where this matters more
    than a few more kernels, they are at most a quarter of the rows.
    """
    power = max(LEAST_STAGED_ROWS, 1 << (m - 1).bit_length())
    step = power if power <= MOST_DOUBLED_ROWS else power // 8
    return -(-m // step) * step


def row_parts(m: int, size: int) -> list[tuple[slice, int]]:
    """m rows split into parts for few compiled kernels, each with the number of rows of its kernel.

    A server's batch size changes at every step, and compiling takes some tenths of a second. So kernels are compiled
    for a few numbers of rows. A small operand is one part, which is copied into an array with the next of these
    numbers. A large operand is split: the largest power of two comes first, without a copy, and so on; the remainder
    is copied into an array with the largest power of two of rows that may be copied.

    Args:
        size: the bytes of a row that is copied.
    """
    parts: list[tuple[slice, int]] = []
    first = 0
    while True:
        rest = m - first
        rows, power = staged_rows(rest), 1 << (rest - 1).bit_length()
        if rest <= LEAST_STAGED_ROWS or rest == power or rows * size <= STAGED_BYTES:
            most = max(LEAST_STAGED_ROWS, 1 << (max(1, STAGED_BYTES // size).bit_length() - 1))
            return [*parts, (slice(first, m), most if parts and rest < most else rows)]
        parts.append((slice(first, first + power // 2), power // 2))
        first += power // 2


def rows_for(m: int, size: int, tiling: Any) -> int:
    """The number of rows for which a product of m rows is compiled, m itself if it has several parts.

    Args:
        size: the bytes of a row that is copied.
    """
    if m <= 4:
        return m
    if tiling is not None:
        rows = tiled_rows(m, tiling[0])
        return rows if rows * size <= STAGED_BYTES else m
    rows = staged_rows(m)
    return rows if rows == LEAST_STAGED_ROWS or rows * size <= STAGED_BYTES else m


def tiled_rows(m: int, tm: Any) -> int:
    """The number of rows for which a product of m rows is compiled, with tiles of tm rows that its caller chose.

    Many tiles are rounded up by at most an eighth, few are not; within one tile, rows are rounded up slightly.
    """
    if not isinstance(tm, int) or tm < 1:  # a later check raises the error
        return m
    if m <= tm:
        step = max(LEAST_STAGED_ROWS, (1 << (m - 1).bit_length()) // 16)
        return int(min(tm, pl.cdiv(m, step) * step))
    tiles = pl.cdiv(m, tm)
    step = max(1, (1 << (tiles - 1).bit_length()) // 16)
    return int(pl.cdiv(tiles, step) * step * tm)


def rows_of_tiles(m: int, n: int, size: int) -> int:
    """The number of rows for which the tiles of a grouped product of m rows and n columns are chosen.

    Args:
        size: the bytes of a row that is copied, if rows are.
    """
    return staged_rows(m) if min(m, n) > 4 else rows_for(m, size, None)


def rows_together(m: int, size: int) -> int:
    """The number of rows for which a function of all m rows is compiled, if it cannot be computed in parts.

    Beyond the limit of `rows_for`, it is at most an eighth more than m, since copies of large arrays take memory.
    The time of the copy is small compared with that of the products of each row.

    Args:
        size: the bytes of a row that is copied.
    """
    rows = rows_for(m, size, None)
    step = 1 << max((m - 1).bit_length() - 4, 0)
    return rows if rows > m or m <= LEAST_STAGED_ROWS else -(-m // step) * step


def in_parts(m: int, arrays: Sequence[Array], n: int, dtype: Any, out: Array | None) -> tuple[Any, Any]:
    """The parts of the rows of a large product, and the array for the results of all parts.

    There are no parts if one is enough, if slices of the library's arrays cannot be written to, or if the caller's
    array for the result may overlap an operand of later parts.

    Args:
        arrays: the operands, the one with the rows first.
        n: the columns of the result.
    """
    lhs = arrays[0]
    parts = row_parts(m, row_bytes(lhs))
    if len(parts) == 1:
        return (), out
    if all(isinstance(array, np.ndarray) for array in arrays):
        if out is None:
            return parts, np.empty((m, n), dtype)
        apart = isinstance(out, np.ndarray) and not any(np.may_share_memory(out, array) for array in arrays)
    elif all(hasattr(array, "new_empty") for array in arrays):
        if out is None:
            return parts, lhs.new_empty((m, n), dtype=getattr(sys.modules["torch"], str(dtype)))
        memory = {array.untyped_storage().data_ptr() for array in arrays}
        apart = hasattr(out, "new_empty") and out.untyped_storage().data_ptr() not in memory
    else:
        return (), out
    return (parts, reshaped(out, (m, n), (m, n))) if apart else ((), out)


def arrays_of(*values: Any) -> list[Any] | None:
    """PyTorch's tensors in host memory as NumPy arrays on it; None for other values, and for dtypes that NumPy lacks.

    The checks and look-ups before a small product take half the time with arrays: each attribute of a tensor is a call.
    """
    torch: Any = sys.modules.get("torch")
    kind: Any = getattr(torch, "Tensor", None)
    if kind is None or "torch.distributed.fsdp" in sys.modules:  # it resizes memory, which NumPy does not let it do
        return None
    if torch.autograd.forward_ad._current_level >= 0:  # tensors may have tangents, which a later check refuses
        return None
    found = []
    for value in values:
        if type(value) is not kind or not value.is_cpu or not _is_of_numpy(value.dtype):
            return None
        try:
            if not value.data_ptr():  # it is empty, or its memory was freed, which a later check refuses
                return None
            found.append(value.numpy())
        except (RuntimeError, TypeError):  # e.g. its gradient is recorded, which a later check refuses
            return None
    return found


@functools.cache
def _is_of_numpy(dtype: Any) -> bool:
    try:
        return bool(found_dtype(dtype)[0].kind != "V")
    except pl.PalladioTypeError:
        return False


def again(kept: pl.KeptCalls, arrays: tuple[Any, ...], transposed: bool, out: Array | None) -> Any:
    """The product by default options of arrays like earlier ones, NumPy's or tensors, without checks; None if no such
    call was kept by `keep_again`.

    The matrices of a few experts push what the checks read out of the caches, so that they take 0.15 ms in each call.

    Args:
        arrays: the operands, and the sizes of groups, if there are any. Matrices in column-major order are multiplied
            as the transposes that they are in memory.
        transposed: True to multiply with the transpose of the right operand.
        out: an array for the result, or None. One that cannot be used as it is has no such call.
    """
    find = kept.again if type(arrays[0]) is np.ndarray else kept.again_in_memory
    done = find(arrays, transposed, out)
    if done is not None or not kept.usable:
        return done
    lhs, rhs, *sizes = arrays
    turned = in_memory_order(rhs, None)
    return None if turned is None else find((lhs, turned, *sizes), not transposed, out)


def memory_of(out: Array | None) -> Array | None:
    """The caller's array for a result of arrays: a plain tensor as the NumPy array on it, anything else as it is."""
    found = None if out is None else arrays_of(out)
    return out if found is None else found[0]


def tensor_of(array: Any) -> Any:
    """A result as a tensor on its memory."""
    return sys.modules["torch"].from_numpy(array)


def call_key(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    dtype: Any,
    tiling: Any,
    *options: Any,
    summed: bool = False,
    filled: bool = False,
    rows: int | None = None,
) -> Hashable | None:
    """The arguments for which a product is staged, as a key.

    None for values that are not arrays, for arrays of a GPU, whose kernels have another cache, and for a look-up of
    tiles, whose result may change.

    Args:
        summed: True if the rows are the contracted axis: `[k, m]` times `[m, n]`.
        filled: True if a product of fewer, padded rows needs a different key, unless tiles are given.
        rows: the number of rows for which it is staged, if decided already.
    """
    if callable(tiling) or pl.is_on_gpu(lhs):
        return None
    try:
        if rows is None:
            rows = rows_summed(lhs, rhs, tiling) if summed else rows_for(lhs.shape[0], row_bytes(lhs), tiling)
        fixed = (lhs.shape[0], rhs.shape[1]) if summed else (lhs.shape[1], *rhs.shape)
        kinds = type(lhs), type(rhs), lhs.dtype, rhs.dtype
        fewer = filled and tiling is None and lhs.shape[0] < rows
        key = kinds, rows, fewer, fixed, len(group_sizes), dtype, tiling, options
        hash(key)
    except (AttributeError, IndexError, TypeError, ValueError, pl.PalladioError):
        return None
    return key


def row_bytes(array: Array) -> int:
    """The bytes of a row of a matrix of any library."""
    return int(array.shape[1]) * int(array.dtype.itemsize)


def rows_summed(lhs: Array, rhs: Array, tiling: Any) -> int:
    """The number of rows for which `[k, m]` times `[m, n]` is compiled."""
    k, m = lhs.shape
    if rhs.shape[0] != m:
        raise ValueError(m)  # there is no key
    return m if tiling is not None else rows_together(m, max(k * lhs.dtype.itemsize, row_bytes(rhs)))


def described(array: Array, rows: int | None = None) -> pl.ShapeDtypeStruct:
    """The shape and dtype of an array of any library, optionally with another number of rows."""
    shape = tuple(array.shape)
    return pl.ShapeDtypeStruct(shape if rows is None else (rows, *shape[1:]), dtype_of(array))


def stored(result: Array, out: Array | None) -> Array:
    """The result, or the caller's array with its values.

    Raises:
        PalladioTypeError, PalladioValueError: `out` has another dtype or shape, or the result is traced.
    """
    if out is None:
        return result
    if pl.is_traced(result):
        rule = "a call on traced values has no arrays to write to"
        raise fail(pl.PalladioTypeError, rule, argument="out", got=type(out).__name__)
    pl.note_copy(result, "the result is copied to out", "without out it is returned as it is")
    return pl.jit(lambda same: same).ahead(described(result))(result, out=out)


def reshaped(out: Array, shape: tuple[int, ...], flat: tuple[int, ...]) -> Array:
    """The caller's array for a result, reshaped without a copy.

    Raises:
        PalladioTypeError, PalladioValueError: `out` is not an array, has another shape, or has gaps.
    """
    found = require_array(out, "out", len(shape), str(shape))
    if found != shape:
        raise fail(pl.PalladioValueError, "not the shape of the output", argument="out", expected=shape, got=found)
    gapless = out.flags.c_contiguous if isinstance(out, np.ndarray) else getattr(out, "is_contiguous", lambda: True)()
    if not gapless:
        raise fail(pl.PalladioValueError, "the array is not in row-major order without gaps", argument="out")
    return out.reshape(flat)


def in_memory_order(array: Array, interpret: Any) -> Array | None:
    """The transposes of matrices as a view in row-major order, if they are in column-major order; else None.

    Kernels for CPUs multiply with such transposes in place, where they would copy the matrices. PyTorch calls products
    with them: `x @ weight.T`.

    Args:
        array: `dtype[..., k, n]`, of any library.
        interpret: as in `pallas_call`.
    """
    if isinstance(array, np.ndarray):
        if array.ndim < 2 or array.flags.c_contiguous:
            return None
        view = array.swapaxes(-1, -2)
        found = view if view.flags.c_contiguous else None
    else:
        found = transposed_tensor(array) if getattr(array, "is_cpu", False) else None
    return found if found is not None and pl.chosen_executor(interpret) == "cpu" else None


def transposed_tensor(tensor: Any, axes: tuple[int, int] = (-2, -1)) -> Any:
    """The row-major tensor of PyTorch whose transpose along two axes this is; None if this is row-major itself, or
    something else.
    """
    kind: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    if kind is None or not isinstance(tensor, kind) or tensor.ndim < -min(axes):
        return None
    with contextlib.suppress(RuntimeError, TypeError):  # e.g. of a graph with unknown sizes, which may be 1
        if tensor.is_contiguous():
            return None
    try:
        view = tensor.transpose(*axes)
        return view if view.is_contiguous() else None
    except (RuntimeError, TypeError):  # e.g. sparse and nested tensors, which a later check refuses
        return None


def tokens_first(x: Any) -> Any:
    """The row-major tensor `[..., tokens, heads, depth]` for its transpose `x`, `[..., heads, tokens, depth]`, as
    `transposed_tensor` gives it.
    """
    return transposed_tensor(x, (-3, -2))


def in_shape(array: Array, shape: tuple[int, ...]) -> Array:
    """An array in another shape; a copy if its strides require one, of which `PALLADIO_WARN_COPIES` warns."""
    found = array.reshape(shape)
    why = "leading axes become one, which their strides do not allow"
    pl.note_copy(array, why, "an array in row-major order is taken as it is", made=found)
    return found


def zeros(shape: tuple[int, ...], dtype: Any, *like: Array) -> Array:
    """Zeros, as an array of the same library as a kernel's result on the arrays `like`."""
    return pl.jit(lambda *arrays: jnp.zeros(shape, dtype))(*like)
