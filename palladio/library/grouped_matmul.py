"""Grouped matrix products for mixture-of-experts models: rows sorted by group, one matrix for each group.

gmm:   out[rows of g] = lhs[rows of g] @ rhs[g]
tgmm:  out[g] = lhs[:, rows of g] @ rhs[rows of g]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
from palladio.library.card_calls import kept_call
from palladio.library.checks import (
    FORWARD,
    LEFT_GRADIENT,
    RIGHT_GRADIENT,
    Tiling,
    dtype_of,
    fail,
    group_count,
    group_offset_of,
    group_sizes_of,
    grouped_sizes,
    one_tiling,
    require_array,
    require_existing,
    require_flag,
    require_interpret,
    result_dtype,
    sum_dtype,
    tile_for,
)
from palladio.library.kernels.grouped import Problem, gmm_product, tgmm_product
from palladio.library.namesakes import on_hopper, require_hint
from palladio.library.staging import (
    again,
    arrays_of,
    call_key,
    described,
    in_memory_order,
    in_parts,
    kept_calls,
    memory_of,
    row_bytes,
    rows_for,
    rows_of_tiles,
    rows_summed,
    stored,
    tensor_of,
    zeros,
)
from palladio.library.tilings import (
    MOST_VECTORS,
    ROWS_READ,
    gmm_tiling,
    groups_are_spread,
    tgmm_tiling,
    threads_of,
    tuned,
)

Array = Any

_GMM, _TGMM = kept_calls(), kept_calls()
_INSTEAD = "convert them, or call palladio.library.hopper, which multiplies float32 rounded to tf32"
_ZERO = jnp.zeros((), jnp.int32)
_COUNTED = (np.dtype(np.int32), np.dtype(np.int64))
"""The dtypes of group sizes that later calls read without checks: those of kernels and of `bincount`."""

ANY_ROWS = 1 << 16
"""The number of rows for which products of any number are staged; for more rows, it is the next power of two."""

LEAST_SUMMED_ROWS = 1 << 10
"""The number of rows for which a sum over at most this many rows is staged."""

LEAST_TILES = 64
"""The number of tiles of rows for which a product of at most this many tiles is staged."""

LEAST_GROUPS, MOST_GROUPS = 8, 1024
"""Products of several groups are staged for a power of two in this range; of more groups, for their exact number."""


@pl.checked_call
def gmm(
    lhs: Array,
    rhs: Array,
    group_sizes: Array,
    preferred_element_type: Any = None,
    tiling: Tiling | None = None,
    group_offset: Array | None = None,
    existing_out: Array | None = None,
    transpose_rhs: bool = False,
    interpret: Any = None,
    *,
    out: Array | None = None,
) -> Array:
    """Grouped matrix product: each row of `lhs` times the matrix of its group.

    Args:
        lhs: `dtype[m, k]`, float16, bfloat16, float32, float64, float8_e4m3fn or float8_e5m2, rows sorted by
            group.
        rhs: `dtype[g, k, n]`, or `dtype[g, n, k]` with `transpose_rhs`; its dtype may differ from that of `lhs`. On the
            CPU, transposes of matrices in row-major order are read in place: groups of few rows then sum in another
            order than with a copy, and bits may differ.
        group_sizes: `i32[groups]`, the number of rows of each group; they sum to at most m and may be zero. Traced
            sizes are checked at run time, only with `palladio.enable_debug_checks`.
        preferred_element_type: the dtype of the result; by default that of `existing_out`, or the promoted dtype of
            `lhs` and `rhs`. Products are summed in float32 (float64 for float64).
        tiling: `(tm, tk, tn)`, a look-up function of (m, k, n), or one of these for each of the forward product, the
            left and the right gradient, of which the first is used here. Tiles need not divide the sizes. By default
            `gmm_tiling` chooses. On Hopper, `library.hopper.gmm` has its own tiles.
        group_offset: `i32[]`: `rhs` holds the matrices of groups `[group_offset, group_offset + g)` of a longer
            `group_sizes`.
        existing_out: `preferred_element_type[m, n]`: rows of no group of `rhs` keep its values. It is not changed.
        transpose_rhs: multiply with the transposes of the matrices.
        interpret: as in `palladio.pallas_call`.
        out: an array for the result, of its shape and dtype, in row-major order; it is returned.

    Returns:
        `preferred_element_type[m, n]`. Rows that belong to no group of `rhs`, e.g. those past the last group, are
        zero.

    Raises:
        PalladioValueError, PalladioTypeError: shapes, dtypes or sizes that do not fit; a tiling that is not three
            positive integers.
    """
    transpose_rhs = require_flag(transpose_rhs, "transpose_rhs")
    plain = group_offset is None and existing_out is None
    usual = plain and preferred_element_type is None and tiling is None and interpret is None
    done = None
    if plain and type(lhs) is not np.ndarray:
        known = "gmm", preferred_element_type, None, transpose_rhs, None, True, True
        done = kept_call(known, interpret, (group_sizes, lhs, rhs), out)
    if done is None and usual:
        done = again(_GMM, (lhs, rhs, group_sizes), transpose_rhs, out)
    if done is not None:
        return done
    tiling = one_tiling(tiling, FORWARD)
    rhs, transpose_rhs = _in_memory_order(lhs, rhs, transpose_rhs, interpret)
    arrays = arrays_of(lhs, rhs, group_sizes) if plain and preferred_element_type is None else None
    if arrays is not None and _GMM.usable:
        x, y, sizes = arrays
        into = memory_of(out)
        key = call_key(x, y, sizes, None, tiling, transpose_rhs)
        found = _kept_gmm(key, interpret, x, y, sizes, into)
        if found is None:
            found = gmm(x, y, sizes, None, tiling, transpose_rhs=transpose_rhs, interpret=interpret, out=into)
        elif usual:
            _remember(key, lhs, rhs, group_sizes, transpose_rhs)
        return tensor_of(found) if out is None else out
    more = () if plain else _more(group_offset, existing_out)
    key = call_key(lhs, rhs, group_sizes, preferred_element_type, tiling, transpose_rhs, *more)
    done = None if more else _kept_gmm(key, interpret, lhs, rhs, group_sizes, out)
    if done is not None:
        if usual:
            _remember(key, lhs, rhs, group_sizes, transpose_rhs)
        return done
    if (hopper := _hopper(interpret, lhs, rhs, tiling)) is not None:
        sizes = _sizes_on_device_of(group_sizes, lhs, lhs.shape[0])
        given = lhs, rhs, sizes, preferred_element_type, None, transpose_rhs
        return hopper.gmm(*given, interpret, group_offset=group_offset, existing_out=existing_out, out=out)
    options = preferred_element_type, tiling, group_offset, existing_out, transpose_rhs, interpret, out
    return _gmm_of_grid(key, more, lhs, rhs, group_sizes, *options)


def _in_memory_order(lhs: Array, rhs: Array, transpose_rhs: bool, interpret: Any) -> tuple[Array, bool]:
    """The matrices as a view in row-major order if there is one, and whether to multiply with their transposes."""
    if type(rhs) is np.ndarray and rhs.flags.c_contiguous:
        return rhs, transpose_rhs
    turned = in_memory_order(rhs, interpret) if _GMM.usable else None
    k = tuple(getattr(lhs, "shape", ()))[-1:]
    if turned is None or turned.ndim != 3 or (turned.shape[1 if transpose_rhs else 2],) != k:
        return rhs, transpose_rhs  # shapes that do not fit are refused as they were given
    return turned, not transpose_rhs


def _kept_gmm(key: Any, interpret: Any, lhs: Array, rhs: Array, group_sizes: Array, out: Array | None) -> Array | None:
    """The grouped product by a call that was staged before; None if there is none."""
    kept = _GMM.find(key, interpret)
    if kept is None:
        return None
    m = lhs.shape[0]
    return kept(group_sizes_of(group_sizes, m), _ZERO, np.array(m, np.int32), lhs, rhs, out=out, rows=m)


def _remember(key: Any, lhs: Array, rhs: Array, group_sizes: Array, transpose_rhs: bool) -> None:
    """Keep the call under a key for operands like these, if it can do without checks."""
    kept = _GMM.find(key)
    dtype = dtype_of(group_sizes) if hasattr(group_sizes, "dtype") else None
    if kept is None or dtype not in _COUNTED:
        return
    m = len(lhs)
    count = np.array(m, np.int32)
    wide = dtype != np.int32
    operands = np.zeros(len(group_sizes), np.int32) if wide else group_sizes, _ZERO, count, lhs, rhs
    are_arrays = type(group_sizes) is np.ndarray
    run = kept.prepared(operands, m) if are_arrays else kept.in_memory(operands, m)
    if run is None:
        return

    def fit(counts: list[int]) -> bool:
        return min(counts) >= 0 and sum(counts) <= m  # others are to be refused by the checks

    def product(x: Array, y: Array, sizes: Array, out: Array | None = None) -> Array | None:
        counts = sizes.tolist()
        if not fit(counts):
            return None
        return run((np.array(counts, np.int32) if wide else sizes, _ZERO, count, x, y), out)

    def product_in_memory(x: Array, y: Array, sizes: Array, addresses: list[int], out: Any = None) -> Array | None:
        counts = sizes.tolist()
        if not fit(counts):
            return None
        of_x, of_y, of_sizes = addresses
        given: Any = of_sizes
        if wide:
            given = sizes = np.array(counts, np.int32)
        return run((given, _ZERO, count, of_x, of_y), (sizes, _ZERO, count, x, y), out)

    if are_arrays:
        _GMM.keep_again((lhs, rhs, group_sizes), transpose_rhs, product)
    else:
        _GMM.keep_again_in_memory((lhs, rhs, group_sizes), transpose_rhs, product_in_memory)


def product_of_one_group(lhs: Array, rhs: Array, transpose_rhs: bool, of_tensors: bool) -> Callable[..., Any] | None:
    """The function of one matrix and all rows, without checks, for a call by default options that was kept; or None.

    Args:
        of_tensors: True for a function of addresses and tensors, as `in_memory` of a staged function; else it is one
            of NumPy arrays, as `prepared`.
    """
    m = len(lhs)
    sizes, count = np.array([m], np.int32), np.array(m, np.int32)
    kept = _GMM.find(call_key(lhs, rhs, sizes, None, None, transpose_rhs))
    if kept is None:
        return None
    first, operands = (sizes, _ZERO, count), (sizes, _ZERO, count, lhs, rhs)
    if of_tensors:
        run = kept.in_memory(operands, m)
        return run and (lambda given, values, out=None: run((*first, *given), (*first, *values), out))
    run = kept.prepared(operands, m)
    return run and (lambda arrays, out=None: run((*first, *arrays), out))


def _gmm_of_grid(
    key: Any,
    more: tuple[Any, ...],
    lhs: Array,
    rhs: Array,
    group_sizes: Array,
    preferred_element_type: Any,
    tiling: Any,
    group_offset: Array | None,
    existing_out: Array | None,
    transpose_rhs: bool,
    interpret: Any,
    out: Array | None,
) -> Array:
    """`gmm` by a kernel over a grid, cached under a key for further calls; `more` is a part of the key."""
    m, k, n, groups = grouped_sizes(lhs, rhs, transpose_rhs)
    sizes = group_sizes_of(group_sizes, m)
    offset = _offset(group_offset, groups, len(sizes))
    dtype = result_dtype(preferred_element_type, lhs, rhs, existing_out)
    require_existing(existing_out, (m, n), dtype)
    if 0 in (m, n):
        tile_for(tiling, FORWARD, m, k, n, gmm_tiling)
        return stored(zeros((m, n), dtype, lhs, rhs), out)
    if k == 0:
        one_zero = zeros((m, 1), dtype, lhs), zeros((groups, 1, n), dtype, rhs)  # an empty sum equals a sum over it
        return gmm(*one_zero, sizes, dtype, tiling, offset, existing_out, interpret=interpret, out=out)
    existing = () if existing_out is None else (existing_out,)

    def problem(rows: int) -> Problem:
        model = functools.partial(gmm_tiling, groups=groups)
        tile = tile_for(tiling, FORWARD, rows, k, n, tuned(model, "gmm", lhs, rhs, groups, transpose_rhs))
        return Problem(rows, k, n, groups, tile, dtype, sum_dtype(lhs, rhs), existing_out is not None)

    if key is None or not _GMM.usable:
        product = gmm_product(problem(m), transpose_rhs, require_interpret(interpret))
        return stored(product(sizes, offset, np.array(m, np.int32), lhs=lhs, rhs=rhs, existing_out=existing_out), out)

    def product_of(rows: int) -> Any:
        key = call_key(lhs, rhs, group_sizes, preferred_element_type, tiling, transpose_rhs, *more, rows=rows)
        found = _GMM.find(key, interpret)
        if found is None:
            types = (described(lhs, rows), described(rhs), *(described(array, rows) for array in existing))
            mine = problem(rows)
            product = gmm_product(mine, transpose_rhs, require_interpret(interpret))
            found = product.ahead(sizes, offset, _ZERO, *types, made_of=("gmm", mine, transpose_rhs))
            _GMM.keep(key, found, interpret)
        return found

    rows = m if tiling is not None else rows_of_tiles(m, n, row_bytes(lhs))
    found = _of_any_rows(problem(rows), transpose_rhs, interpret, (sizes, offset, lhs, rhs))
    if found is not None and tiling is None and groups_are_spread(rows, k, n, groups):
        divided = replace(problem(rows), tile=gmm_tiling(rows, k, n))
        described_operands = np.asarray(sizes), offset, described(lhs), described(rhs)
        found = _Balanced(found, lambda: _of_any_rows(divided, transpose_rhs, interpret, described_operands))
    if found is not None:
        _GMM.keep(key, found, interpret)
        return found(sizes, offset, np.array(m, np.int32), lhs, rhs, out=out, rows=m)

    return _by_rows(product_of, (lhs, rhs, *existing), (sizes, offset), tiling, dtype, out, n)


def _hopper(interpret: Any, lhs: Array, rhs: Array, tiling: Any) -> Any:
    """`palladio.library.hopper`, if it computes the product; else None."""
    found = on_hopper(interpret, (lhs, rhs), instead=_INSTEAD)
    if found is not None:
        require_hint(tiling)
    return found


def _sizes_on_device_of(group_sizes: Any, array: Array, m: int) -> Array:
    """Group sizes in the memory of an array: those of the host are checked and copied to the array's GPU."""
    if pl.is_on_gpu(group_sizes) or not pl.is_on_gpu(array):
        return group_sizes
    return pl.to_device_of(group_sizes_of(group_sizes, m), array)


def _by_rows(
    product_of: Callable[[int], Any],
    arrays: Sequence[Array],
    groups: tuple[Array, Array],
    tiling: Any,
    dtype: Any,
    out: Array | None,
    n: int,
) -> Array:
    """The product of rows, in parts if there are too many for a copy.

    Args:
        product_of: the staged product of a number of rows.
        arrays: the operands, and the values of other rows, if any.
        groups: the sizes of the groups, and the first group with a matrix.
        n: the columns of the result.
    """
    lhs, rhs, *existing = arrays
    sizes, offset = groups
    m = lhs.shape[0]
    found: tuple[Any, Any] = in_parts(m, arrays, n, dtype, out) if tiling is None else ((), out)
    parts, whole = found
    for part, rows in parts:
        mine, count = (lhs[part], rhs, *(array[part] for array in existing)), part.stop - part.start
        of_part = _sizes_of_rows(sizes, part), offset, np.array(count, np.int32)
        product_of(rows)(*of_part, *mine, out=whole[part], rows=count)
    if parts:
        return whole if out is None else out
    product = product_of(rows_for(m, row_bytes(lhs), tiling))
    return product(sizes, offset, np.array(m, np.int32), *arrays, out=out, rows=m)


def _of_any_rows(problem: Problem, transpose: bool, interpret: Any, operands: Sequence[Any]) -> Any:
    """The staged product of any number of rows and groups, with the tile of a problem; None without one.

    On the CPU, a kernel accesses only rows of groups, and matrices of groups with rows: its arrays may have any number
    of them.

    Args:
        operands: the operands for which it is staged, the left and the right one last.
    """
    tm, tk, tn = problem.tile
    # Few rows have a kernel of their own, but for matrices in row-major order one of any rows takes less time.
    own = min(problem.m, tm) <= MOST_VECTORS and (transpose or tm < problem.m)
    if problem.existing or tk < problem.k or own or tn <= MOST_VECTORS:
        return None
    if pl.chosen_executor(interpret) != "cpu":
        return None
    sizes, offset, lhs, rhs = operands
    groups = _staged_groups(problem.groups, len(sizes))
    # Where several threads compute a product, each takes the next group when it is free. A brief product is one task.
    spread = tn < problem.n or threads_of(problem.m, problem.k, problem.n, problem.groups) > 1
    apart = tm >= problem.m and spread
    if tm >= problem.m:
        tm = rows = max(ANY_ROWS, _power_of_two(problem.m))
    else:
        rows = tm * max(LEAST_TILES, _power_of_two(pl.cdiv(problem.m, tm)))
    problem = replace(problem, m=rows, groups=groups, tile=(tm, tk, tn), apart=apart)
    key = problem, transpose, max(groups, len(sizes)), lhs.dtype, rhs.dtype
    found = _GMM.find(key, interpret)
    if found is None:
        product = gmm_product(problem, transpose, require_interpret(interpret))
        arrays = described(lhs, rows), described(rhs, groups)
        made_of = "gmm", problem, transpose
        found = product.ahead(_filled(sizes, groups), offset, _ZERO, *arrays, own_rows=((3,), (4,)), made_of=made_of)
        _GMM.keep(key, found, interpret)
    return _of_groups(found, groups, len(sizes)) if found.is_in_place(has_rows=True) else None


def _power_of_two(count: int) -> int:
    """The least power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def _staged_groups(groups: int, total: int) -> int:
    """The number of groups for which a product of this many is staged: it also serves fewer groups.

    Args:
        total: the number of group sizes; with an offset, more than groups.
    """
    if groups != total or groups == 1 or groups > MOST_GROUPS:
        return groups
    return max(LEAST_GROUPS, _power_of_two(groups))


def _filled(sizes: Array, groups: int) -> Array:
    """Group sizes, padded with groups without rows."""
    if len(sizes) >= groups:
        return sizes
    whole = np.zeros(groups, np.int32)
    whole[: len(sizes)] = sizes
    return whole


def _of_groups(product: Any, groups: int, own: int) -> Any:
    """A product that is staged for `groups` groups, for `own` groups."""
    return product if own >= groups else _Padded(product, groups)


@dataclass(frozen=True)
class _Padded:
    """A product of fewer groups than it is staged for."""

    product: Any
    groups: int

    def __call__(self, sizes: Array, *arrays: Array, **more: Any) -> Array:
        return self.product(_filled(sizes, self.groups), *arrays, **more)

    def prepared(self, arrays: Sequence[Array], rows: int) -> Callable[..., Array] | None:
        """As `prepared` of the product."""
        run = self.product.prepared((_filled(arrays[0], self.groups), *arrays[1:]), rows)
        return run and (lambda arrays, out=None: run((_filled(arrays[0], self.groups), *arrays[1:]), out))

    def in_memory(self, arrays: Sequence[Array], rows: int) -> Callable[..., Array] | None:
        """As `in_memory` of the product."""
        run = self.product.in_memory((_filled(arrays[0], self.groups), *arrays[1:]), rows)
        if run is None:
            return None

        def padded(given: Sequence[Any], arrays: Sequence[Array], out: Array | None = None) -> Array:
            sizes = _filled(arrays[0], self.groups)
            return run((sizes, *given[1:]), (sizes, *arrays[1:]), out)

        return padded


class _Balanced:
    """A product whose groups are spread over the threads, and one whose columns are, for calls in which few groups
    have most of the rows.

    Args:
        by_groups: the product whose groups are spread.
        divided: stages the other one.
    """

    def __init__(self, by_groups: Any, divided: Callable[[], Any]) -> None:
        self.by_groups = by_groups
        self.divided = divided
        self.threads = pl.processor().threads

    @functools.cached_property
    def by_columns(self) -> Any:
        return self.divided() or self.by_groups

    def __call__(self, sizes: Array, offset: Array, *arrays: Array, rows: int, **more: Any) -> Array:
        groups = len(arrays[-1])  # those with a matrix
        mine = sizes if len(sizes) == groups else sizes[int(offset) :][:groups]
        product = self.by_groups if self.is_even(mine, rows) else self.by_columns
        return product(sizes, offset, *arrays, rows=rows, **more)

    def is_even(self, sizes: Array, rows: int) -> bool:
        """True if no group takes a thread longer than its share of all groups.

        Up to `ROWS_READ` rows, a group takes as long as its matrix takes to arrive.
        """
        counts = sizes.tolist()  # the matrices of the last call have pushed NumPy's functions out of the caches
        if rows <= ROWS_READ:
            some = len(counts) - counts.count(0)
            return bool(some == 0 or some >= self.threads)
        if max([ROWS_READ, *counts]) * self.threads <= sum(counts):  # most often so, and the times add up to no less
            return True
        times = [max(count, ROWS_READ) for count in counts if count]
        return bool(max(times, default=0) * self.threads <= sum(times))

    def prepared(self, arrays: Sequence[Array], rows: int) -> Callable[..., Array] | None:
        """As `prepared` of the product."""
        run = self.by_groups.prepared(arrays, rows)
        if run is None:
            return None

        def balanced(arrays: Sequence[Array], out: Array | None = None) -> Array:
            if self.is_even(arrays[0], rows):
                return run(arrays, out)
            return self.by_columns(*arrays, out=out, rows=rows)

        return balanced

    def in_memory(self, arrays: Sequence[Array], rows: int) -> Callable[..., Array | None] | None:
        """As `in_memory` of the product whose groups are spread; for other calls, the function returns None."""
        run = self.by_groups.in_memory(arrays, rows)
        if run is None:
            return None

        def balanced(given: Sequence[Any], values: Sequence[Array], out: Array | None = None) -> Array | None:
            return run(given, values, out) if self.is_even(values[0], rows) else None

        return balanced


def _offset(group_offset: Array | None, groups: int, total: int) -> Array:
    """The first group with a matrix; group 0 if every group has one."""
    if group_offset is None and groups != total:
        raise fail(
            pl.PalladioValueError,
            "without group_offset, there is one matrix for each group",
            argument="group_sizes",
            expected=f"{groups} sizes",
            got=f"{total} sizes",
        )
    return group_offset_of(group_offset, groups, total)


def _more(group_offset: Array | None, existing_out: Array | None) -> tuple[Any, ...]:
    """The optional arguments of a product, as parts of its key."""
    return group_offset is not None, type(existing_out), getattr(existing_out, "dtype", None)


def _sizes_of_rows(sizes: Array, rows: slice) -> Array:
    """The group sizes of some of the rows."""
    ends = np.cumsum(sizes)
    inside = [np.clip(each, rows.start, rows.stop) for each in (ends - sizes, ends)]
    return (inside[1] - inside[0]).astype(np.int32)


@pl.checked_call
def tgmm(
    lhs: Array,
    rhs: Array,
    group_sizes: Array,
    preferred_element_type: Any = None,
    tiling: Tiling | None = None,
    group_offset: Array | None = None,
    num_actual_groups: int | None = None,
    existing_out: Array | None = None,
    interpret: Any = None,
    *,
    out: Array | None = None,
) -> Array:
    """Transposed grouped matrix product: for each group, its columns of `lhs` times its rows of `rhs`.

    Args:
        lhs: `dtype[k, m]`, float16, bfloat16, float32, float64, float8_e4m3fn or float8_e5m2, columns sorted by
            group.
        rhs: `dtype[m, n]`, rows sorted by group; its dtype may differ from that of `lhs`.
        group_sizes: `i32[groups]`, the number of rows of each group; they sum to at most m and may be zero. Traced
            sizes are checked at run time, only with `palladio.enable_debug_checks`.
        preferred_element_type: the dtype of the result; by default that of `existing_out`, or the promoted dtype of
            `lhs` and `rhs`. Products are summed in float32 (float64 for float64).
        tiling: as in `gmm`; of three entries, the third is used. A look-up gets (m, k, n); tiles are along m, k and
            n. By default, `tgmm_tiling` chooses.
        group_offset: `i32[]`, the first group to compute.
        num_actual_groups: the number of groups to compute; by default all from `group_offset`.
        existing_out: `preferred_element_type[num_actual_groups, k, n]`, to which the products are added. It is not
            changed.
        interpret: as in `palladio.pallas_call`.
        out: an array for the result, as in `gmm`.

    Returns:
        `preferred_element_type[num_actual_groups, k, n]`. The matrix of a group without rows is zero.

    Raises:
        PalladioValueError, PalladioTypeError: shapes, dtypes or sizes that do not fit; a tiling that is not three
            positive integers.
    """
    known = "tgmm", preferred_element_type, None, None, num_actual_groups, True
    plain = group_offset is None and existing_out is None
    done = kept_call(known, interpret, (group_sizes, lhs, rhs), out) if plain else None
    if done is not None:
        return done
    tiling, plain = one_tiling(tiling, RIGHT_GRADIENT), plain and _are_all(num_actual_groups, group_sizes)
    key = call_key(lhs, rhs, group_sizes, preferred_element_type, tiling, summed=True) if plain else None
    kept = _TGMM.find((key, _in_place(lhs, rhs, interpret)), interpret) if key is not None else None
    if kept is not None:
        return kept(group_sizes_of(group_sizes, rhs.shape[0]), _ZERO, lhs, rhs, out)
    further = {"group_offset": group_offset, "existing_out": existing_out, "interpret": interpret, "out": out}
    if (hopper := _hopper(interpret, lhs, rhs, tiling)) is not None:
        sizes = _sizes_on_device_of(group_sizes, lhs, rhs.shape[0])
        return hopper.tgmm(lhs, rhs, sizes, preferred_element_type, num_actual_groups=num_actual_groups, **further)
    k, m = require_array(lhs, "lhs", 2, "[k, m]")
    rows, n = require_array(rhs, "rhs", 2, "[m, n]")
    if rows != m:
        rule, wanted = "does not multiply with lhs", f"[{m}, n]"
        raise fail(pl.PalladioValueError, rule, argument="rhs", expected=wanted, got=(rows, n))
    sizes = group_sizes_of(group_sizes, m)
    groups = group_count(num_actual_groups, sizes.shape[0], group_offset)
    offset = group_offset_of(group_offset, groups, sizes.shape[0])
    dtype = result_dtype(preferred_element_type, lhs, rhs, existing_out)
    require_existing(existing_out, (groups, k, n), dtype)
    usable = key is not None and _TGMM.usable
    columns = rows_summed(lhs, rhs, tiling) if usable else m
    measured = tuned(functools.partial(tgmm_tiling, groups=groups), "tgmm", lhs, rhs, groups)
    tile = tile_for(tiling, RIGHT_GRADIENT, columns, k, n, measured)
    if 0 in (k, n):
        return stored(zeros((groups, k, n), dtype, lhs, rhs), out)
    if m == 0:
        # Replace zero rows by one row of no group.
        lhs, rhs = zeros((k, 1), dtype, lhs), zeros((1, n), dtype, rhs)
        return tgmm(lhs, rhs, sizes, dtype, tile, offset, groups, existing_out, interpret, out=out)
    problem = Problem(columns, k, n, groups, tile, dtype, sum_dtype(lhs, rhs), existing_out is not None)
    if not usable:
        product = tgmm_product(problem, False, require_interpret(interpret))
        count = np.array(groups, np.int32)
        return stored(product(sizes, offset, count, lhs=lhs, rhs=rhs, existing_out=existing_out), out)
    kept = _staged_tgmm(key, problem, interpret, (sizes, offset, lhs, rhs))
    return kept(sizes, offset, lhs, rhs, out)


def _are_all(groups: int | None, group_sizes: Any) -> bool:
    """True if a number of groups is that of all, which a derivative names."""
    if type(groups) is not int:  # True and 8.0 equal numbers of groups, but are refused
        return groups is None
    shape = (len(group_sizes),) if isinstance(group_sizes, (list, tuple)) else getattr(group_sizes, "shape", None)
    return shape == (groups,)


@dataclass(frozen=True)
class _Sum:
    """A staged `tgmm`, which takes the transpose of its left operand if both operands are used in place.

    Fields:
        staged: the number of groups for which it is staged.
    """

    product: Any
    groups: int
    staged: int
    in_place: bool

    def __call__(self, sizes: Array, offset: Array, lhs: Array, rhs: Array, out: Array | None) -> Array:
        count = np.array(self.groups, np.int32)
        if not self.in_place:
            return self.product(sizes, offset, count, lhs, rhs, out=out)
        return self.product(_filled(sizes, self.staged), offset, count, lhs.T, rhs, out=out, rows=self.groups)


def _staged_tgmm(key: Any, problem: Problem, interpret: Any, operands: Sequence[Any]) -> _Sum:
    """The staged product, cached under a key."""
    sizes, offset, lhs, rhs = operands
    in_place = _in_place(lhs, rhs, interpret)
    kept = _tgmm_in_place(problem, interpret, operands) if in_place else None
    if kept is None:
        left = pl.ShapeDtypeStruct((problem.k, problem.m), dtype_of(lhs))
        product = tgmm_product(problem, False, require_interpret(interpret))
        arrays = sizes, offset, _ZERO, left, described(rhs, problem.m)
        found = product.ahead(*arrays, growing=(0, 0, 0, 1, 0), made_of=("tgmm", problem, False))
        kept = _Sum(found, problem.groups, problem.groups, False)
    _TGMM.keep((key, in_place), kept, interpret)
    return kept


def _in_place(lhs: Array, rhs: Array, interpret: Any) -> bool:
    """True if the columns of the left operand of `tgmm` are contiguous, so that they are rows of its transpose, which
    a kernel for any number of rows can take.

    False for an odd number of rows of bfloat16, which are read in pairs, past the last one.
    """
    pairs = lhs.dtype == rhs.dtype and str(lhs.dtype).endswith("bfloat16")
    if pl.chosen_executor(interpret) != "cpu" or (pairs and rhs.shape[0] % 2):
        return False
    if isinstance(lhs, np.ndarray):
        return lhs.T.flags.c_contiguous
    return hasattr(lhs, "new_empty") and lhs.T.is_contiguous()


def _tgmm_in_place(problem: Problem, interpret: Any, operands: Sequence[Any]) -> _Sum | None:
    """`tgmm` with the transpose of its left operand, for any number of groups, and of rows up to a power of two; None
    without one.

    On the CPU, a kernel whose tile has all rows accesses only rows of groups: its arrays may have any number of them.
    """
    tm, tk, tn = problem.tile
    if tm < problem.m or min(tk, tn) <= MOST_VECTORS:
        return None
    sizes, offset, lhs, rhs = operands
    rows, groups = max(LEAST_SUMMED_ROWS, _power_of_two(problem.m)), _staged_groups(problem.groups, len(sizes))
    whole = replace(problem, m=rows, groups=groups, tile=(rows, tk, tn))
    key = whole, lhs.dtype, rhs.dtype
    found = _TGMM.find(key, interpret)
    if found is None:
        left = pl.ShapeDtypeStruct((rows, problem.k), dtype_of(lhs))
        product = tgmm_product(whole, True, require_interpret(interpret))
        arrays = _filled(sizes, groups), offset, _ZERO, left, described(rhs, rows)
        found = product.ahead(*arrays, own_rows=((), (3, 4)), made_of=("tgmm", whole, True))
        _TGMM.keep(key, found, interpret)
    return _Sum(found, problem.groups, groups, True) if found.is_in_place(has_rows=True) else None


@pl.checked_call
def gmm_vjp(
    lhs: Array,
    rhs: Array,
    group_sizes: Array,
    preferred_element_type: Any = None,
    tiling: Tiling | None = None,
    group_offset: Array | None = None,
    transpose_rhs: bool = False,
    interpret: Any = None,
) -> tuple[Array, Callable[[Array], tuple[Array, Array]]]:
    """`gmm` with its gradients, for callers without automatic differentiation.

    Args:
        tiling: as in `gmm`. Of three entries, the second is for `grad_lhs`, the third for `grad_rhs`; m, k and n of
            each entry, and of a look-up, are those of its product. With (m, k, n) of `gmm`, the left gradient is a
            product of (m, n, k), and the right one of (m, k, n), with `transpose_rhs` of (m, n, k).
        lhs, rhs, group_sizes, preferred_element_type, group_offset, transpose_rhs, interpret: as in `gmm`.

    Returns:
        `(out, pullback)`: `out: preferred_element_type[m, n]` is the product, and `pullback(grad_out: dtype[m, n])`
        gives `(grad_lhs, grad_rhs)`, the gradients of `sum(out * grad_out)`, in the shapes and dtypes of `lhs` and
        `rhs`. Rows of no group have the gradient zero, for any values of `grad_out`.

    Raises:
        PalladioValueError, PalladioTypeError: as `gmm`; from the pullback, if `grad_out` does not have the shape of
            `out`.
    """
    out = gmm(
        lhs,
        rhs,
        group_sizes,
        preferred_element_type,
        tiling,
        group_offset,
        transpose_rhs=transpose_rhs,
        interpret=interpret,
    )

    transpose_rhs = bool(transpose_rhs)

    def pullback(grad_out: Array) -> tuple[Array, Array]:
        shape = require_array(grad_out, "grad_out", 2, "[m, n]")
        if shape != tuple(out.shape):
            rule, wanted = "not the shape of the product", tuple(out.shape)
            raise fail(pl.PalladioValueError, rule, argument="grad_out", expected=wanted, got=shape)
        grad_lhs = gmm(
            grad_out,
            rhs,
            group_sizes,
            dtype_of(lhs),
            tile_for(tiling, LEFT_GRADIENT, shape[0], shape[1], lhs.shape[1], gmm_tiling),
            group_offset,
            transpose_rhs=not transpose_rhs,
            interpret=interpret,
        )
        x, y = (grad_out, lhs) if transpose_rhs else (lhs, grad_out)
        grad_rhs = tgmm(x.T, y, group_sizes, dtype_of(rhs), tiling, group_offset, rhs.shape[0], interpret=interpret)
        return grad_lhs, grad_rhs

    return out, pullback
