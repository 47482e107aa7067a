"""Checks of the arguments of the library's functions, with their messages."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import palladio as pl
import palladio.numpy as jnp
from palladio.library.activations import require_activation

Array = Any
Tile = tuple[int, int, int]
LookUp = Callable[[int, int, int], "Tile | None"]
Tiling = Tile | LookUp | Sequence["Tile | LookUp"]

_KEPT: list[pl.KeptCalls] = []


def kept_calls() -> pl.KeptCalls:
    """A new cache of calls for a function of the library."""
    _KEPT.append(pl.KeptCalls())
    return _KEPT[-1]


def forget_calls() -> None:
    """Clear the caches of all functions, after tiles have been measured."""
    for kept in _KEPT:
        kept.clear()


FORWARD, LEFT_GRADIENT, RIGHT_GRADIENT = range(3)


def fail(kind: type[pl.PalladioError], rule: str, **details: Any) -> pl.PalladioError:
    """An error of a kind, located at the caller's line."""
    return kind(rule, location=pl.caller_location(), **details)


def float_dtype(kind: Any, argument: str) -> Any:
    """The float dtype of `kind`: a dtype of any library, or a name."""
    try:
        find = _found if isinstance(kind, Hashable) else _found.__wrapped__
        dtype, is_float = find(kind)
    except pl.PalladioTypeError as error:
        raise fail(
            pl.PalladioTypeError, error.rule, argument=argument, expected="a float dtype", got=str(kind)
        ) from None
    if not is_float:
        raise fail(
            pl.PalladioTypeError, "floats are needed", argument=argument, expected="a float dtype", got=str(kind)
        )
    return dtype


def result_dtype(preferred: Any, x: Array, y: Array, existing_out: Array | None = None) -> Any:
    """The dtype of a product: the preferred one, that of an existing result, or the operands' promoted dtype."""
    if preferred is None:
        preferred = getattr(existing_out, "dtype", None) or _common(x.dtype, y.dtype)
    return float_dtype(preferred, "preferred_element_type")


@functools.cache
def _common(x: Any, y: Any) -> Any:
    try:
        return jnp.promote_types(_found(x)[0], _found(y)[0])
    except pl.PalladioTypeError as error:
        raise fail(pl.PalladioTypeError, error.rule, got=error.got, hint=error.hint) from None


@functools.cache
def _found(kind: Any) -> tuple[Any, bool]:
    """Our dtype for a dtype of any library or a name, and True if it is a float."""
    name = str(kind)
    dtype = jnp.dtype(name.removeprefix("torch.") if name.startswith("torch.") else kind)
    return dtype, bool(jnp.issubdtype(dtype, jnp.floating))


def dtype_of(value: Array) -> Any:
    """The dtype of an array of any library."""
    return _found(value.dtype)[0]


def sum_dtype(x: Array, y: Array) -> Any:
    """The dtype in which products of elements of two arrays are summed: float64 if one of them is, else float32."""
    return _sums_of(x.dtype, y.dtype)


@functools.cache
def _sums_of(x: Any, y: Any) -> Any:
    return wide_dtype(_common(x, y))


def wide_dtype(dtype: Any) -> Any:
    """The dtype in which elements of a float dtype are summed: float64 for float64, else float32."""
    return jnp.dtype(jnp.float64 if dtype == jnp.float64 else jnp.float32)


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
            found.append(value.numpy())
        except (RuntimeError, TypeError):  # e.g. its gradient is recorded, which a later check refuses
            return None
    return found


@functools.cache
def _is_of_numpy(dtype: Any) -> bool:
    try:
        return bool(_found(dtype)[0].kind != "V")
    except pl.PalladioTypeError:
        return False


def again(kept: pl.KeptCalls, arrays: tuple[Any, ...], option: Hashable = None) -> Any:
    """The result of a call that was kept by `keep_again` for arrays like these, NumPy's or tensors; None without one.

    The matrices of a few experts push what the checks read out of the caches, so that they take 0.15 ms in each call.
    """
    find = kept.again if type(arrays[0]) is np.ndarray else kept.again_in_memory
    return find(arrays, option)


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
        found = _tensor_in_memory_order(array)
    return found if found is not None and pl.chosen_executor(interpret) == "cpu" else None


def _tensor_in_memory_order(tensor: Any) -> Any:
    """`in_memory_order` of a strided tensor of PyTorch in host memory."""
    kind: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    if kind is None or not isinstance(tensor, kind) or not tensor.is_cpu or tensor.ndim < 2:
        return None
    try:
        view = None if tensor.is_contiguous() else tensor.mT
        return view if view is not None and view.is_contiguous() else None
    except (RuntimeError, TypeError):  # e.g. sparse and nested tensors, which a later check refuses
        return None


def in_shape(array: Array, shape: tuple[int, ...]) -> Array:
    """An array in another shape; a copy if its strides require one, of which `PALLADIO_WARN_COPIES` warns."""
    found = array.reshape(shape)
    why = "leading axes become one, which their strides do not allow"
    pl.note_copy(array, why, "an array in row-major order is taken as it is", made=found)
    return found


def zeros(shape: tuple[int, ...], dtype: Any, *like: Array) -> Array:
    """Zeros, as an array of the same library as a kernel's result on the arrays `like`."""
    return pl.jit(lambda *arrays: jnp.zeros(shape, dtype))(*like)


def require_array(value: Any, argument: str, rank: int | None, meaning: str, floats: bool = True) -> tuple[int, ...]:
    """The shape of an array, after checks of its rank, unless this is None, and with `floats` of its dtype."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        raise fail(
            pl.PalladioTypeError,
            "not an array",
            argument=argument,
            expected=f"an array {meaning}",
            got=type(value).__name__,
        )
    if rank is not None and len(shape) != rank:
        raise fail(
            pl.PalladioValueError, "an array of another rank", argument=argument, expected=meaning, got=tuple(shape)
        )
    if floats:
        float_dtype(dtype, argument)
    return tuple(int(extent) for extent in shape)


def grouped_sizes(lhs: Any, rhs: Any, transpose_rhs: bool) -> tuple[int, int, int, int]:
    """The sizes m, k and n of a grouped product, and the number of matrices."""
    m, k = require_array(lhs, "lhs", 2, "[m, k]")
    groups, *matrix = require_array(rhs, "rhs", 3, "[g, n, k]" if transpose_rhs else "[g, k, n]")
    rows, n = reversed(matrix) if transpose_rhs else matrix
    if rows != k:
        raise fail(
            pl.PalladioValueError,
            "does not multiply with lhs",
            argument="rhs",
            expected=f"[g, n, {k}]" if transpose_rhs else f"[g, {k}, n]",
            got=(groups, *matrix),
            hint=f"transpose_rhs={not transpose_rhs} takes matrices in this order" if n == k else None,
        )
    if groups == 0:
        raise fail(pl.PalladioValueError, "at least one matrix is needed", argument="rhs", got=(groups, *matrix))
    return m, k, n, groups


def require_existing(existing_out: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """Check that `existing_out`, if given, has the shape and dtype of the result."""
    if existing_out is None:
        return
    found = require_array(existing_out, "existing_out", len(shape), str(shape))
    if found != shape:
        raise fail(
            pl.PalladioValueError, "not the shape of the result", argument="existing_out", expected=shape, got=found
        )
    if dtype_of(existing_out) != dtype:
        raise fail(
            pl.PalladioTypeError,
            "not the dtype of the result",
            argument="existing_out",
            expected=str(dtype),
            got=str(existing_out.dtype),
        )


def _is_integer(value: Any) -> bool:
    return hasattr(type(value), "__index__") and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_integer(value) and operator.index(value) > 0


def require_count(value: Any, argument: str, most: int | None = None) -> int:
    """Check for a positive integer, up to `most`."""
    if not _is_count(value) or (most is not None and value > most):
        expected = "1 or more" if most is None else f"1 to {most}"
        raise fail(pl.PalladioValueError, "a positive integer", argument=argument, expected=expected, got=repr(value))
    return int(value)


def require_flag(value: Any, argument: str) -> bool:
    """Check for True or False, or a number that stands for one."""
    if type(value) is bool:  # at once: later calls of kept kernels check flags too
        return value
    if not isinstance(value, (int, np.bool_)):
        got = f"an array of shape {tuple(value.shape)}" if hasattr(value, "shape") else repr(value)
        raise fail(pl.PalladioTypeError, "not a truth value", argument=argument, expected="True or False", got=got)
    return bool(value)


def require_number(value: Any, argument: str) -> float:
    """Check for a real number."""
    try:
        if isinstance(value, str):
            raise TypeError
        return float(value)
    except pl.PalladioError:  # of a traced value
        raise
    except (TypeError, ValueError):
        raise fail(
            pl.PalladioTypeError, "not a number", argument=argument, expected="a real number", got=repr(value)
        ) from None


def require_interpret(interpret: Any) -> Any:
    """Check the corresponding argument of `pallas_call`."""
    if interpret is not None and not isinstance(interpret, (bool, str)):
        rule = "True, False or the name of an executor"
        raise fail(pl.PalladioTypeError, rule, argument="interpret", got=repr(interpret))
    return interpret


def require_tiling(tiling: Any) -> Tile:
    """Check for three positive integers."""
    if not isinstance(tiling, (tuple, list)) or len(tiling) != 3 or not all(map(_is_count, tiling)):
        raise fail(
            pl.PalladioValueError,
            "a tiling is three positive integers",
            argument="tiling",
            expected="(tm, tk, tn)",
            got=repr(tiling),
        )
    tm, tk, tn = tiling
    return int(tm), int(tk), int(tn)


def one_tiling(tiling: Any, product: int) -> Any:
    """The tiling of a product, if there may be separate ones for the forward product and the two gradients."""
    if isinstance(tiling, (tuple, list)) and len(tiling) == 3 and not any(map(_is_integer, tiling)):
        tiling = tiling[product]
    return tuple(tiling) if isinstance(tiling, list) else tiling


def tile_for(tiling: Any, product: int, m: int, k: int, n: int, choose: LookUp) -> Tile:
    """The tile of a product, limited to the sizes of its problem.

    Args:
        tiling: three positive integers; a look-up function of (m, k, n); or one of these for each of the forward
            product, the left and the right gradient. None to use `choose`.
        product: one of these three, by number.

    Raises:
        PalladioValueError: the tiling is not three positive integers, or the look-up found nothing.
    """
    tiling = one_tiling(tiling, product)
    if tiling is None:
        tiling = choose(max(m, 1), max(k, 1), max(n, 1))
    found = tiling(m, k, n) if callable(tiling) else tiling
    if found is None:
        raise fail(pl.PalladioValueError, f"no tuned tiling found for (m, k, n) = ({m}, {k}, {n})", argument="tiling")
    tm, tk, tn = require_tiling(found)
    return min(tm, max(m, 1)), min(tk, max(k, 1)), min(tn, max(n, 1))


def as_array(value: Any, argument: str, expected: str) -> Array:
    """An array, from one of any library or nested lists; errors name the argument."""
    try:
        return jnp.asarray(value)
    except pl.PalladioError as error:
        rule, details = error.rule, {"got": error.got}
        if not hasattr(value, "dtype") and not isinstance(value, (list, tuple)):
            rule, details = "not an array", {"expected": expected, "got": type(value).__name__}
        raise fail(type(error), rule, argument=argument, **details, hint=error.hint) from None


def _integers(value: Any, argument: str, rank: int, expected: str) -> Array:
    """An array of integers, from an array or nested lists, after a check of its rank."""
    found = as_array(value, argument, expected)
    if not jnp.issubdtype(found.dtype, jnp.integer):
        rule, got = "integers are needed", str(found.dtype)
        raise fail(pl.PalladioTypeError, rule, argument=argument, expected=expected, got=got)
    if found.ndim != rank:
        rule, shape = "an array of another rank", tuple(found.shape)
        raise fail(pl.PalladioValueError, rule, argument=argument, expected=expected, got=shape)
    return found


def _known_sizes(group_sizes: Any, m: int) -> Array | None:
    """Group sizes that pass a quick check, as `i32[groups]`; None for those that need a complete one."""
    if isinstance(group_sizes, list):
        values = group_sizes
        if {*map(type, values)} != {int}:
            return None
    # The complete check refuses a mask. `np.ma` would import its module, which takes 20 ms.
    elif isinstance(group_sizes, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        return None
    elif getattr(group_sizes, "ndim", None) == 1 and not pl.is_traced(group_sizes) and _is_index(group_sizes.dtype):
        try:
            values = group_sizes.tolist()
        except (RuntimeError, TypeError):  # inside a transformation of PyTorch or JAX: the complete check says so
            return None
    else:
        return None
    if not values or min(values) < 0 or sum(values) > m:
        return None
    if type(group_sizes) is np.ndarray and group_sizes.dtype == np.int32:
        return group_sizes
    return np.array(values, np.int32)


@functools.cache
def _is_index(dtype: Any) -> bool:
    return str(dtype).removeprefix("torch.") in ("int32", "int64")


def group_sizes_of(group_sizes: Any, m: int) -> Array:
    """Group sizes as `i32[groups]`; traced values are checked at run time, if debug checks are on."""
    if pl.is_on_gpu(group_sizes):
        return _sizes_on_gpu(group_sizes)
    known = _known_sizes(group_sizes, m)
    if known is not None:
        return known
    sizes = _integers(group_sizes, "group_sizes", 1, "i32[groups]")
    if sizes.shape[0] == 0:
        raise fail(
            pl.PalladioValueError, "at least one group is needed", argument="group_sizes", got=tuple(sizes.shape)
        )
    if pl.is_traced(sizes):
        pl.debug_check(jnp.all(sizes >= 0), "group_sizes: a group size is negative")
        pl.debug_check(jnp.sum(sizes) <= m, "group_sizes: the group sizes sum to more than the number of rows")
    else:
        if sizes.min() < 0:
            raise fail(pl.PalladioValueError, "a group size is negative", argument="group_sizes", got=sizes.tolist())
        total = sum(sizes.tolist())
        if total > m:
            raise fail(
                pl.PalladioValueError,
                "the group sizes sum to more than the number of rows",
                argument="group_sizes",
                expected=f"at most {m}",
                got=total,
            )
    return sizes.astype(jnp.int32)


def require_ids(expert_ids: Any) -> Array:
    """The experts of tokens, `[tokens, k]`, as a NumPy array."""
    is_tensor = type(expert_ids) is getattr(sys.modules.get("torch"), "Tensor", None) and expert_ids.is_cpu
    if is_tensor and expert_ids.ndim == 2 and _is_index(expert_ids.dtype):
        try:
            return expert_ids.numpy()  # integers have no gradient, and a plain tensor is not resized
        except RuntimeError:
            pass  # inside a transformation of PyTorch, which is reported below
    return np.asarray(_integers(expert_ids, "expert_ids", 2, "integers [t, k]"))


def _sizes_on_gpu(sizes: Any) -> Any:
    """Group sizes on a GPU, without a check of their values, which would wait for the GPU."""
    dtype, shape = dtype_of(sizes), tuple(sizes.shape)
    if dtype != jnp.int32:
        raise fail(
            pl.PalladioTypeError,
            "group sizes on a GPU are int32",
            argument="group_sizes",
            got=str(dtype),
            hint="group_sizes.int() in PyTorch, group_sizes.astype('int32') elsewhere",
        )
    if len(shape) != 1 or shape[0] == 0:
        rule = "an array of another rank" if len(shape) != 1 else "at least one group is needed"
        raise fail(pl.PalladioValueError, rule, argument="group_sizes", expected="i32[groups]", got=shape)
    return sizes


def group_count(num_actual_groups: int | None, total: int, group_offset: Array | None) -> int:
    """The number of groups to compute, of `total`: the requested number, else all from an offset."""
    if num_actual_groups is not None:
        return require_count(num_actual_groups, "num_actual_groups", most=total)
    if group_offset is None:
        return total
    for unknown, kind in ((pl.is_traced, "a traced"), (pl.is_on_gpu, "a GPU's")):
        if unknown(group_offset):
            raise fail(
                pl.PalladioValueError,
                f"the shape of the result depends on {kind} group_offset",
                argument="num_actual_groups",
                expected="the number of groups to compute",
                got=None,
            )
    return max(1, total - int(group_offset_of(group_offset, 0, total)))


def offset_on_gpu(offset: Any) -> Any:
    """A first group on a GPU, without a check of its value, which would wait for the GPU."""
    dtype, shape = dtype_of(offset), tuple(offset.shape)
    if dtype != jnp.int32 or shape:
        rule = "a first group on a GPU is one number, int32"
        raise fail(pl.PalladioTypeError, rule, argument="group_offset", expected="i32[]", got=f"{dtype}{list(shape)}")
    return offset


def group_offset_of(group_offset: Any, groups: int, total: int) -> Array:
    """The first of `groups` groups among `total`, an `i32[]`; checked unless it is traced."""
    offset = _integers(0 if group_offset is None else group_offset, "group_offset", 0, "i32[]")
    if not pl.is_traced(offset) and not 0 <= int(offset) <= total - groups:
        raise fail(
            pl.PalladioValueError,
            "the groups from here on are not all there",
            argument="group_offset",
            expected=f"0 to {total - groups}" if groups <= total else f"group_sizes of at least {groups} groups",
            got=int(offset),
        )
    return offset.astype(jnp.int32)


@dataclass(frozen=True)
class ExpertShapes:
    """`dtype[tokens, h]` through `each` of `experts` of inner size i.

    Fields:
        biased: for each product, True if a bias is added.
    """

    tokens: int
    each: int
    h: int
    i: int
    experts: int
    dtype: Any
    biased: tuple[bool, bool]

    @property
    def is_empty(self) -> bool:
        """True if the result is empty or zero."""
        return 0 in (self.tokens, self.h, self.i, self.each)


def expert_shapes(
    tokens: Array,
    expert_ids: Array,
    expert_weights: Array,
    gate_up: Array,
    down: Array,
    activation: str,
    biases: tuple[Array | None, Array | None],
    transposed: bool,
) -> ExpertShapes:
    """The sizes of a layer.

    Args:
        those of `palladio.library.moe_mlp`; `biases` are the biases of both products.

    Raises:
        PalladioValueError, PalladioTypeError: shapes or dtypes that do not match, or an unknown activation.
    """
    act = require_activation(activation)
    t, h = require_array(tokens, "tokens", 2, "[t, h]")
    experts, *matrix = require_array(gate_up, "gate_up", 3, "[e, 2 i, h]" if transposed else "[e, h, 2 i]")
    wide, summed = matrix if transposed else reversed(matrix)
    if act.gated and wide % 2:
        rule = "a gated activation takes two columns for each of the results"
        raise fail(pl.PalladioValueError, rule, argument="gate_up", expected="an even number of columns", got=wide)
    if experts == 0:
        raise fail(pl.PalladioValueError, "at least one expert is needed", argument="gate_up", got=tuple(gate_up.shape))
    i = wide // 2 if act.gated else wide
    other_order = f"transposed={not transposed} takes weights in the other order" if summed != h == wide else None
    require_shape(gate_up, (experts, wide, h) if transposed else (experts, h, wide), "gate_up", other_order)
    require_shape(down, (experts, h, i) if transposed else (experts, i, h), "down")
    for bias, columns, name in zip(biases, (wide, h), ("gate_up_bias", "down_bias"), strict=True):
        if bias is not None:
            require_shape(bias, (experts, columns), name)
    rows, each = require_array(expert_ids, "expert_ids", 2, "integers [t, k]", floats=False)
    if rows != t:
        rule, wanted = "not the experts of each token", f"[{t}, k]"
        raise fail(pl.PalladioValueError, rule, argument="expert_ids", expected=wanted, got=(rows, each))
    require_shape(expert_weights, (t, each), "expert_weights")
    biased = biases[0] is not None, biases[1] is not None
    return ExpertShapes(t, each, h, i, experts, dtype_of(tokens), biased)


class ExpertGradients(NamedTuple):
    """The gradients of the arguments of `moe_mlp`, each of the shape and dtype of its argument.

    None for an absent bias, and for a gradient that was not requested.
    """

    tokens: Array | None = None
    expert_weights: Array | None = None
    gate_up: Array | None = None
    down: Array | None = None
    gate_up_bias: Array | None = None
    down_bias: Array | None = None


def require_gradient(grad: Array, shape: tuple[int, ...], dtype: Any) -> None:
    """Check the shape and dtype of a result's gradient."""
    require_shape(grad, shape, "grad_out")
    if dtype_of(grad) != dtype:
        rule, got = "not the dtype of the result", str(grad.dtype)
        raise fail(pl.PalladioTypeError, rule, argument="grad_out", expected=str(dtype), got=got)


def require_shape(value: Array, shape: tuple[int, ...], argument: str, hint: str | None = None) -> None:
    """Check the shape of an array of floats."""
    found = require_array(value, argument, len(shape), str(shape))
    if found != shape:
        rule = "does not go with the other arrays"
        raise fail(pl.PalladioValueError, rule, argument=argument, expected=shape, got=found, hint=hint)
