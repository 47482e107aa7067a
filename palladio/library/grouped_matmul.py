"""Grouped matrix product, the heart of mixture-of-experts models: rows sorted by group, one matrix for each group.

    gmm:   out[rows of g] = lhs[rows of g] @ rhs[g]
    tgmm:  out[g] = lhs[:, rows of g] @ rhs[rows of g]

The kernels walk over the tiles of rows that a group has a part in; a tile that several groups share is visited once
for each of them. Which tile and group a step works on is computed beforehand and prefetched as scalars
(`make_group_metadata`). The scheme is that of MegaBlocks (Gale et al., 2022, arXiv:2211.15841).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from palladio.library.card_calls import kept_call
from palladio.library.checks import (
    FORWARD,
    LEFT_GRADIENT,
    RIGHT_GRADIENT,
    Tile,
    Tiling,
    call_key,
    described,
    dtype_of,
    fail,
    group_count,
    group_offset_of,
    group_sizes_of,
    in_parts,
    kept_calls,
    one_tiling,
    require_array,
    require_count,
    require_existing,
    require_interpret,
    result_dtype,
    row_bytes,
    rows_for,
    rows_summed,
    stored,
    sum_dtype,
    tile_for,
    zeros,
)
from palladio.library.namesakes import on_hopper, require_hint
from palladio.library.tilings import gmm_tiling, tgmm_tiling, tuned

Array = Any
GroupMetadata = tuple[Array, Array, Array]

_GMM, _TGMM = kept_calls(), kept_calls()
_INSTEAD = "convert them, or call palladio.library.hopper, which multiplies float32 rounded to tf32"
_ZERO = jnp.zeros((), jnp.int32)

ANY_ROWS = 1 << 16
"""The number of rows that a product of any number is staged for; one of more rows is for the next power of two."""

LEAST_SUMMED_ROWS = 1 << 10
"""The number of rows that a sum over any number up to this one is staged for."""

MOST_VECTORS = 4
"""Products of so few rows or columns go through all of the other operand, whichever rows a group has."""


@pl.checked_call
def make_group_metadata(
    *,
    group_sizes: Array,
    m: int,
    tm: int,
    start_group: Any = 0,
    num_nonzero_groups: int | None = None,
    visit_empty_groups: bool = True,
) -> tuple[GroupMetadata, Array]:
    """Which group and which tile of rows each step of a grouped product works on.

    Args:
        group_sizes: `i32[g]`, the number of rows of each group, in order.
        m: the number of rows; the sizes sum to at most m.
        tm: the number of rows of a tile; it need not divide m.
        start_group, num_nonzero_groups: only these groups are visited; all by default.
        visit_empty_groups: whether a group without rows gets one step, to write a zero result.

    Returns:
        `(group_offsets: i32[g + 1], group_ids: i32[s], m_tile_ids: i32[s]), num_steps: i32[]` with
        s = cdiv(m, tm) + g - 1: the first row of each group, and the end of the last; then the group and the tile of
        each step, of which only the first `num_steps` entries count.

    Raises:
        PalladioTypeError: group sizes that are not a vector of integers.
        PalladioValueError: sizes that are negative or sum past m, or m or tm that is not positive.
    """
    tiles_m = pl.cdiv(require_count(m, "m"), require_count(tm, "tm"))
    sizes = group_sizes_of(group_sizes, m)
    groups = sizes.shape[0]
    count = groups if num_nonzero_groups is None else num_nonzero_groups
    ends = jnp.cumsum(sizes)
    starts = ends - sizes
    group_offsets = jnp.concatenate([jnp.zeros((1,), jnp.int32), ends])
    first_tile = starts // tm
    tiles = jnp.where(sizes == 0, int(visit_empty_groups), (ends + (tm - 1)) // tm - first_tile)
    group = jnp.arange(groups)
    tiles = jnp.where((group >= start_group) & (group < start_group + count), tiles, 0).astype(jnp.int32)
    last_step = jnp.cumsum(tiles)
    step = jnp.arange(tiles_m + groups - 1)
    group_ids = jnp.sum((step[:, None] >= last_step[None, :]).astype(jnp.int32), axis=1)
    group_ids = jnp.minimum(group_ids, groups - 1)
    within = step - jnp.take(last_step - tiles, group_ids)
    m_tile_ids = jnp.clip(jnp.take(first_tile, group_ids) + within, 0, tiles_m - 1)
    return (group_offsets, group_ids.astype(jnp.int32), m_tile_ids.astype(jnp.int32)), last_step[-1]


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
        lhs: `dtype[m, k]`, float16, bfloat16, float32 (or float64), rows sorted by group.
        rhs: `dtype[g, k, n]`, or `dtype[g, n, k]` with `transpose_rhs`; its dtype may differ from that of `lhs`.
        group_sizes: `i32[groups]`, the number of rows of each group; they sum to at most m and may be zero. What is
            traced is checked only with `palladio.enable_debug_checks`, while the program runs.
        preferred_element_type: the dtype of the result; by default that of `existing_out`, or that of `lhs` and `rhs`
            together. Products are summed in float32 (float64 for float64).
        tiling: `(tm, tk, tn)`, a look-up function of (m, k, n), or one of these for each of the forward product, the
            left and the right gradient, of which the first serves here. Tiles need not divide the sizes. By default
            `gmm_tiling` chooses. On Hopper `library.hopper.gmm` has tiles of its own.
        group_offset: `i32[]`: `rhs` holds the matrices of groups `[group_offset, group_offset + g)` of a longer
            `group_sizes`.
        existing_out: `preferred_element_type[m, n]`: rows of no group of `rhs` keep its values. It is not changed.
        transpose_rhs: multiply with the transposes of the matrices.
        interpret: as in `palladio.pallas_call`.
        out: an array for the result, which is returned: of its shape and dtype, in row-major order.

    Returns:
        `preferred_element_type[m, n]`. Rows that belong to no group of `rhs`, those past the last group among them,
        are zero.

    Raises:
        PalladioValueError, PalladioTypeError: shapes, dtypes or sizes that do not fit; a tiling that is not three
            positive integers.
    """
    plain = group_offset is None and existing_out is None
    known = "gmm", preferred_element_type, None, transpose_rhs, None, True, True
    done = kept_call(known, interpret, (group_sizes, lhs, rhs), out) if plain else None
    if done is not None:
        return done
    tiling = one_tiling(tiling, FORWARD)
    more = () if plain else _more(group_offset, existing_out)
    key = call_key(lhs, rhs, group_sizes, preferred_element_type, tiling, transpose_rhs, *more)
    kept = _GMM.find(key, interpret)
    if kept is not None and not more:
        m = lhs.shape[0]
        return kept(group_sizes_of(group_sizes, m), _ZERO, np.array(m, np.int32), lhs, rhs, out=out, rows=m)
    if (hopper := _hopper(interpret, lhs, rhs, tiling)) is not None:
        given = lhs, rhs, _sizes_beside(group_sizes, lhs, lhs.shape[0]), preferred_element_type, None, transpose_rhs
        return hopper.gmm(*given, interpret, group_offset=group_offset, existing_out=existing_out, out=out)
    options = preferred_element_type, tiling, group_offset, existing_out, transpose_rhs, interpret, out
    return _gmm_of_grid(key, more, lhs, rhs, group_sizes, *options)


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
    """`gmm` by a kernel over a grid, which is kept under a key for further calls; `more` is a part of that."""
    m, k, n, groups = _product_sizes(lhs, rhs, transpose_rhs)
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

    def problem(rows: int) -> _Problem:
        model = functools.partial(gmm_tiling, groups=groups)
        tile = tile_for(tiling, FORWARD, rows, k, n, tuned(model, "gmm", lhs, rhs, groups, transpose_rhs))
        return _Problem(rows, k, n, groups, tile, dtype, sum_dtype(lhs, rhs), existing_out is not None)

    if key is None or not _GMM.usable:
        product = _gmm(problem(m), transpose_rhs, require_interpret(interpret))
        return stored(product(sizes, offset, np.array(m, np.int32), lhs=lhs, rhs=rhs, existing_out=existing_out), out)

    def product_of(rows: int) -> Any:
        key = call_key(lhs, rhs, group_sizes, preferred_element_type, tiling, transpose_rhs, *more, rows=rows)
        found = _GMM.find(key, interpret)
        if found is None:
            types = (described(lhs, rows), described(rhs), *(described(array, rows) for array in existing))
            product = _gmm(problem(rows), transpose_rhs, require_interpret(interpret))
            found = product.ahead(sizes, offset, _ZERO, *types)
            _GMM.keep(key, found, interpret)
        return found

    rows = rows_for(m, row_bytes(lhs), tiling)
    found = _of_any_rows(problem(rows), transpose_rhs, interpret, (sizes, offset, lhs, rhs))
    if found is not None:
        _GMM.keep(key, found, interpret)
        return found(sizes, offset, np.array(m, np.int32), lhs, rhs, out=out, rows=m)

    return _by_rows(product_of, (lhs, rhs, *existing), (sizes, offset), tiling, dtype, out, n)


def _hopper(interpret: Any, lhs: Array, rhs: Array, tiling: Any) -> Any:
    """`palladio.library.hopper` for a product that it computes."""
    found = on_hopper(interpret, (lhs, rhs), instead=_INSTEAD)
    if found is not None:
        require_hint(tiling)
    return found


def _sizes_beside(group_sizes: Any, array: Array, m: int) -> Array:
    """Group sizes where an array lives: those of the host are checked, and copied to its GPU."""
    if pl.is_on_gpu(group_sizes) or not pl.is_on_gpu(array):
        return group_sizes
    return pl.put_beside(group_sizes_of(group_sizes, m), array)


def _by_rows(
    product_of: Callable[[int], Any],
    arrays: Sequence[Array],
    groups: tuple[Array, Array],
    tiling: Any,
    dtype: Any,
    out: Array | None,
    n: int,
) -> Array:
    """The product of many rows, in parts if they are too many for a copy.

    Args:
        product_of: the staged product of a number of rows.
        arrays: what is multiplied, and the values of other rows, if there are some.
        groups: their sizes, and the first one that there is a matrix for.
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


def _of_any_rows(problem: _Problem, transpose: bool, interpret: Any, operands: Sequence[Any]) -> Any:
    """The staged product of any number of rows, if there is one; it has the tile of a problem.

    On the CPU a kernel whose tile has all rows touches only those of groups: its arrays may have any number of them.

    Args:
        operands: what it is staged for, the left and the right operand last.
    """
    tm, tk, tn = problem.tile
    if problem.existing or tm < problem.m or tk < problem.k or min(problem.m, tn) <= MOST_VECTORS:
        return None
    if pl.chosen_executor(interpret) != "cpu":
        return None
    rows = max(ANY_ROWS, 1 << (problem.m - 1).bit_length())
    problem = replace(problem, m=rows, tile=(rows, tk, tn))
    sizes, offset, lhs, rhs = operands
    key = problem, transpose, len(sizes), lhs.dtype, rhs.dtype
    found = _GMM.find(key, interpret)
    if found is None:
        product = _gmm(problem, transpose, require_interpret(interpret))
        arrays = described(lhs, rows), described(rhs)
        found = product.ahead(sizes, offset, _ZERO, *arrays, own_rows=(3,))
        _GMM.keep(key, found, interpret)
    return found if found.is_in_place(has_rows=True) else None


def _offset(group_offset: Array | None, groups: int, total: int) -> Array:
    """The first group that there is a matrix for; the first of all if there is one for each."""
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
    """The further arguments of a product, as parts of its key."""
    return group_offset is not None, type(existing_out), getattr(existing_out, "dtype", None)


def _sizes_of_rows(sizes: Array, rows: slice) -> Array:
    """The group sizes of some of the rows."""
    ends = np.cumsum(sizes)
    inside = [np.clip(each, rows.start, rows.stop) for each in (ends - sizes, ends)]
    return (inside[1] - inside[0]).astype(np.int32)


def _product_sizes(lhs: Array, rhs: Array, transpose_rhs: bool) -> tuple[int, int, int, int]:
    """The sizes m, k and n of a product, and the number of matrices."""
    m, k = require_array(lhs, "lhs", 2, "[m, k]")
    groups, *matrix = require_array(rhs, "rhs", 3, "[g, n, k]" if transpose_rhs else "[g, k, n]")
    rows, n = reversed(matrix) if transpose_rhs else matrix
    if rows != k:
        wanted = f"[g, n, {k}]" if transpose_rhs else f"[g, {k}, n]"
        raise fail(
            pl.PalladioValueError, "does not multiply with lhs", argument="rhs", expected=wanted, got=tuple(rhs.shape)
        )
    if groups == 0:
        raise fail(pl.PalladioValueError, "at least one matrix is needed", argument="rhs", got=tuple(rhs.shape))
    return m, k, n, groups


@dataclass(frozen=True)
class _Problem:
    """The problem that a kernel is made for. Sizes and tile are along m, k and n."""

    m: int
    k: int
    n: int
    groups: int
    tile: Tile
    dtype: Any
    sum_dtype: Any
    existing: bool

    @property
    def cost(self) -> pl.CostEstimate:
        """The operations of a product in which every row has a group, and the bytes of what goes in and comes out."""
        elements = self.m * self.k + self.groups * self.k * self.n + self.m * self.n
        return pl.CostEstimate(2 * self.m * self.k * self.n, 0, elements * self.dtype.itemsize)


@functools.cache
def _gmm(problem: _Problem, transpose: bool, interpret: Any) -> Any:
    """The product with all that goes before it as one program, a function of sizes, offset, rows and arrays."""

    def product(
        group_sizes: Array, group_offset: Array, rows: Array, lhs: Array, rhs: Array, existing_out: Array | None = None
    ) -> Array:
        existing = () if existing_out is None else (existing_out,)
        # Rows before and after the groups of rhs make two more groups, number 0 and groups + 1, whose product is zero.
        metadata, steps = make_group_metadata(
            group_sizes=_with_rest(group_sizes, group_offset, problem.groups, rows),
            m=problem.m,
            tm=problem.tile[0],
            visit_empty_groups=False,
        )
        return _gmm_call(problem, transpose, steps)(*metadata, lhs, rhs, *existing)

    return pl.jit(product, interpret=interpret)


def _tile_of(several: bool, step: Any, m_tile_ids: Any) -> Any:
    """The tile of rows of a step, where there are several."""
    return m_tile_ids[step] if several else 0


def _gmm_call(problem: _Problem, transpose: bool, steps: Array) -> Any:
    m, k, n, groups, (tm, tk, tn) = problem.m, problem.k, problem.n, problem.groups, problem.tile
    tiles_k = pl.cdiv(k, tk)

    tile_of = functools.partial(_tile_of, tm < m)

    def rows_of(step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any) -> Array:
        row, group = tile_of(step, m_tile_ids) * tm + jnp.arange(tm), group_ids[step]
        return ((row >= offsets[group]) & (row < offsets[group + 1]))[:, None]

    def product(lhs: Any, rhs: Any, depth: Any, dtype: Any) -> Array:
        x, y = _inside(lhs[...], k, depth * tk, 1), _inside(rhs[...], k, depth * tk, 1 if transpose else 0)
        return jnp.dot(x, y.T if transpose else y, preferred_element_type=dtype)

    def whole(offsets: Any, group_ids: Any, m_tile_ids: Any, lhs: Any, rhs: Any, *rest: Any) -> None:
        out, step = rest[-1], pl.program_id(1)
        group = group_ids[step]
        active = (group >= 1) & (group <= groups)
        prefetched = step, offsets, group_ids, m_tile_ids

        @pl.when(active)
        def multiply() -> None:
            found = product(lhs, rhs, 0, problem.sum_dtype).astype(out.dtype)
            out[...] = jnp.where(rows_of(*prefetched), found, out[...])

        if not problem.existing:

            @pl.when(~active)
            def clear() -> None:
                out[...] = jnp.where(rows_of(*prefetched), 0, out[...])

    def in_parts(offsets: Any, group_ids: Any, m_tile_ids: Any, lhs: Any, rhs: Any, *rest: Any) -> None:
        *_, out, total = rest
        step, depth = pl.program_id(1), pl.program_id(2)
        group = group_ids[step]
        active = (group >= 1) & (group <= groups)

        @pl.when(depth == 0)
        def start() -> None:
            total[...] = jnp.zeros_like(total)

        @pl.when(active)
        def multiply() -> None:
            total[...] += product(lhs, rhs, depth, total.dtype)

        @pl.when((depth == tiles_k - 1) & active if problem.existing else depth == tiles_k - 1)
        def finish() -> None:
            chosen = rows_of(step, offsets, group_ids, m_tile_ids)
            out[...] = jnp.where(chosen, total[...].astype(out.dtype), out[...])

    def rhs_block(i: Any, step: Any, depth: Any, offsets: Any, group_ids: Any, m_tile_ids: Any) -> Any:
        group = jnp.clip(group_ids[step] - 1, 0, groups - 1)
        return (group, i, depth) if transpose else (group, depth, i)

    def lhs_block(i: Any, step: Any, depth: Any, offsets: Any, group_ids: Any, m_tile_ids: Any) -> Any:
        return tile_of(step, m_tile_ids), depth

    def out_block(i: Any, step: Any, depth: Any, offsets: Any, group_ids: Any, m_tile_ids: Any) -> Any:
        return tile_of(step, m_tile_ids), i

    out_spec = pl.BlockSpec((tm, tn), out_block)
    in_specs = [
        pl.BlockSpec((tm, tk), lhs_block),
        pl.BlockSpec((None, tn, tk) if transpose else (None, tk, tn), rhs_block),
    ]
    return pl.pallas_call(
        whole if tiles_k == 1 else in_parts,
        pl.ShapeDtypeStruct((m, n), problem.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(pl.cdiv(n, tn), steps, tiles_k),
            in_specs=[*in_specs, *([out_spec] if problem.existing else [])],
            out_specs=out_spec,
            scratch_shapes=[pltpu.VMEM((tm, tn), problem.sum_dtype)] if tiles_k > 1 else [],
        ),
        input_output_aliases={5: 0} if problem.existing else {},
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary", "arbitrary")),
        cost_estimate=problem.cost,
        name="gmm",
    )


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
        lhs: `dtype[k, m]`, float16, bfloat16, float32 (or float64), columns sorted by group.
        rhs: `dtype[m, n]`, rows sorted by group; its dtype may differ from that of `lhs`.
        group_sizes: `i32[groups]`, the number of rows of each group; they sum to at most m and may be zero. What is
            traced is checked only with `palladio.enable_debug_checks`, while the program runs.
        preferred_element_type: the dtype of the result; by default that of `existing_out`, or that of `lhs` and `rhs`
            together. Products are summed in float32 (float64 for float64).
        tiling: as in `gmm`; of three entries, the third serves. A look-up gets (m, k, n), tiles are along m, k and n.
            Where none is given, `tgmm_tiling` chooses.
        group_offset: `i32[]`, the first group to compute.
        num_actual_groups: how many groups to compute, all from `group_offset` on by default.
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
    tiling, plain = one_tiling(tiling, RIGHT_GRADIENT), plain and num_actual_groups is None
    key = call_key(lhs, rhs, group_sizes, preferred_element_type, tiling, summed=True) if plain else None
    kept = _TGMM.find((key, _in_place(lhs, rhs, interpret)), interpret) if key is not None else None
    if kept is not None:
        left = lhs.T if kept.is_in_place(has_rows=False) else lhs
        return kept(group_sizes_of(group_sizes, rhs.shape[0]), _ZERO, left, rhs, out=out)
    further = {"group_offset": group_offset, "existing_out": existing_out, "interpret": interpret, "out": out}
    if (hopper := _hopper(interpret, lhs, rhs, tiling)) is not None:
        sizes = _sizes_beside(group_sizes, lhs, rhs.shape[0])
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
        # No rows at all are one row of no group.
        lhs, rhs = zeros((k, 1), dtype, lhs), zeros((1, n), dtype, rhs)
        return tgmm(lhs, rhs, sizes, dtype, tile, offset, groups, existing_out, interpret, out=out)
    problem = _Problem(columns, k, n, groups, tile, dtype, sum_dtype(lhs, rhs), existing_out is not None)
    if not usable:
        product = _tgmm(problem, False, require_interpret(interpret))
        return stored(product(sizes, offset, lhs=lhs, rhs=rhs, existing_out=existing_out), out)
    kept = _staged_tgmm(key, problem, interpret, (sizes, offset, lhs, rhs))
    return kept(sizes, offset, lhs.T if kept.is_in_place(has_rows=False) else lhs, rhs, out=out)


def _staged_tgmm(key: Any, problem: _Problem, interpret: Any, operands: Sequence[Any]) -> Any:
    """The staged product, which is kept under a key."""
    sizes, offset, lhs, rhs = operands
    in_place = _in_place(lhs, rhs, interpret)
    kept = _tgmm_in_place(problem, interpret, operands) if in_place else None
    if kept is None:
        left = pl.ShapeDtypeStruct((problem.k, problem.m), dtype_of(lhs))
        product = _tgmm(problem, False, require_interpret(interpret))
        kept = product.ahead(sizes, offset, left, described(rhs, problem.m), growing=(0, 0, 1, 0))
    _TGMM.keep((key, in_place), kept, interpret)
    return kept


def _in_place(lhs: Array, rhs: Array, interpret: Any) -> bool:
    """True if the columns of the left operand of `tgmm` each lie in one piece, so that they are rows of its transpose,
    which a kernel of any number of rows takes.

    An odd number of bfloat16, which are multiplied in pairs, is read past the last one.
    """
    pairs = lhs.dtype == rhs.dtype and str(lhs.dtype).endswith("bfloat16")
    if pl.chosen_executor(interpret) != "cpu" or (pairs and rhs.shape[0] % 2):
        return False
    if isinstance(lhs, np.ndarray):
        return lhs.T.flags.c_contiguous
    return hasattr(lhs, "new_empty") and lhs.T.is_contiguous()


def _tgmm_in_place(problem: _Problem, interpret: Any, operands: Sequence[Any]) -> Any:
    """`tgmm` of the transpose of its left operand, of any number of rows up to a power of two; None if there is none.

    On the CPU a kernel whose tile has all rows touches only those of groups: its arrays may have any number of them.
    """
    tm, tk, tn = problem.tile
    if tm < problem.m or min(tk, tn) <= MOST_VECTORS:
        return None
    rows = max(LEAST_SUMMED_ROWS, 1 << (problem.m - 1).bit_length())
    problem = replace(problem, m=rows, tile=(rows, tk, tn))
    sizes, offset, lhs, rhs = operands
    key = problem, len(sizes), lhs.dtype, rhs.dtype
    found = _TGMM.find(key, interpret)
    if found is None:
        left = pl.ShapeDtypeStruct((rows, problem.k), dtype_of(lhs))
        product = _tgmm(problem, True, require_interpret(interpret))
        found = product.ahead(sizes, offset, left, described(rhs, rows), own_rows=(2, 3))
        _TGMM.keep(key, found, interpret)
    return found if found.is_in_place(has_rows=False) else None


@functools.cache
def _tgmm(problem: _Problem, by_rows: bool, interpret: Any) -> Any:
    """The product with all that goes before it as one program, a function of sizes, offset and arrays.

    Args:
        by_rows: it takes the transpose of the left operand.
    """

    def product(
        group_sizes: Array, group_offset: Array, lhs: Array, rhs: Array, existing_out: Array | None = None
    ) -> Array:
        existing = () if existing_out is None else (existing_out,)
        metadata, steps = make_group_metadata(
            group_sizes=group_sizes,
            m=problem.m,
            tm=problem.tile[0],
            start_group=group_offset,
            num_nonzero_groups=problem.groups,
            visit_empty_groups=True,
        )
        return _tgmm_call(problem, by_rows, steps)(*metadata, jnp.stack([group_offset, steps]), lhs, rhs, *existing)

    return pl.jit(product, interpret=interpret)


def _tgmm_call(problem: _Problem, by_rows: bool, steps: Array) -> Any:
    k, n, groups, (tm, tk, tn) = problem.k, problem.n, problem.groups, problem.tile
    tiles_m = pl.cdiv(problem.m, tm)
    axis = 0 if by_rows else 1

    def tile_of(step: Any, m_tile_ids: Any) -> Any:
        return m_tile_ids[step] if tiles_m > 1 else 0

    def product(step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any, lhs: Any, rhs: Any) -> Array:
        group, first = group_ids[step], tile_of(step, m_tile_ids) * tm
        low, high = offsets[group], offsets[group + 1]
        # Both sides: rows of other groups may hold NaN or infinity, and zero times those is NaN. One mask
        # for both would be kept in memory, of all rows of the tile in each step, so it is computed in two ways.
        row, line = (first + jnp.expand_dims(jnp.arange(tm), 1 - each) for each in (axis, 0))
        x = jnp.where((row >= low) & (row < high), lhs[...], 0)
        y = jnp.where((low <= line) & (high > line), rhs[...], 0)
        summed = ((axis,), (0,)), ((), ())
        return lax.dot_general(x, y, summed, preferred_element_type=problem.sum_dtype)

    def whole(
        offsets: Any, group_ids: Any, m_tile_ids: Any, first_and_steps: Any, lhs: Any, rhs: Any, *rest: Any
    ) -> None:
        *before, out = rest
        found = product(pl.program_id(2), offsets, group_ids, m_tile_ids, lhs, rhs)
        out[...] = (found + before[0][...].astype(found.dtype) if problem.existing else found).astype(out.dtype)

    def in_parts(
        offsets: Any, group_ids: Any, m_tile_ids: Any, first_and_steps: Any, lhs: Any, rhs: Any, *rest: Any
    ) -> None:
        *before, out, total = rest
        step, last = pl.program_id(2), first_and_steps[1] - 1
        group = group_ids[step]
        starts = (step == 0) | (group != group_ids[jnp.maximum(step - 1, 0)])
        ends = (step == last) | (group != group_ids[jnp.minimum(step + 1, last)])

        @pl.when(starts)
        def start() -> None:
            total[...] = jnp.zeros_like(total)

        @pl.when(offsets[group] < offsets[group + 1])
        def multiply() -> None:
            total[...] += product(step, offsets, group_ids, m_tile_ids, lhs, rhs)

        @pl.when(ends)
        def finish() -> None:
            found = total[...] + before[0][...].astype(total.dtype) if problem.existing else total[...]
            out[...] = found.astype(out.dtype)

    def out_block(i: Any, j: Any, step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any, first: Any) -> Any:
        return group_ids[step] - first[0], j, i

    def lhs_block(i: Any, j: Any, step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any, first: Any) -> Any:
        place = tile_of(step, m_tile_ids), j
        return place if by_rows else place[::-1]

    def rhs_block(i: Any, j: Any, step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any, first: Any) -> Any:
        return tile_of(step, m_tile_ids), i

    out_spec = pl.BlockSpec((None, tk, tn), out_block)
    in_specs = [pl.BlockSpec((tm, tk) if by_rows else (tk, tm), lhs_block), pl.BlockSpec((tm, tn), rhs_block)]
    # A group whose rows are all in one tile is one step.
    return pl.pallas_call(
        whole if tiles_m == 1 else in_parts,
        pl.ShapeDtypeStruct((groups, k, n), problem.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(pl.cdiv(n, tn), pl.cdiv(k, tk), steps),
            in_specs=[*in_specs, *([out_spec] if problem.existing else [])],
            out_specs=out_spec,
            scratch_shapes=[pltpu.VMEM((tk, tn), problem.sum_dtype)] if tiles_m > 1 else [],
        ),
        input_output_aliases={6: 0} if problem.existing else {},
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        cost_estimate=problem.cost,
        name="tgmm",
    )


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
        tiling: as in `gmm`. Of three entries, the second serves `grad_lhs`, the third `grad_rhs`; each speaks of m, k
            and n of its own product, and so does a look-up. With (m, k, n) those of `gmm`, the left gradient is a
            product of (m, n, k), and the right one of (m, k, n), with `transpose_rhs` of (m, n, k).
        lhs, rhs, group_sizes, preferred_element_type, group_offset, transpose_rhs, interpret: as in `gmm`.

    Returns:
        `(out, pullback)`: `out: preferred_element_type[m, n]` is the product, and `pullback(grad_out: dtype[m, n])`
        gives `(grad_lhs, grad_rhs)`, the gradients of `sum(out * grad_out)`, in the shapes and dtypes of `lhs` and
        `rhs`. Rows of no group have the gradient zero, whatever `grad_out` holds there.

    Raises:
        PalladioValueError, PalladioTypeError: as `gmm`; from the pullback, a `grad_out` that is not of the shape of
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


def _inside(tile: Any, extent: int, start: Any, axis: int) -> Any:
    """A tile with zeros past the end of an axis of the array, where the elements are not numbers."""
    size = tile.shape[axis]
    if extent % size == 0:
        return tile
    shape = (-1, 1) if axis == 0 else (1, -1)
    return jnp.where(jnp.reshape(jnp.arange(size) < extent - start, shape), tile, 0)


def _with_rest(sizes: Array, offset: Array, groups: int, m: Array) -> Array:
    """The sizes of: everything before the groups of rhs, those groups, and everything after them up to row m."""
    before = jnp.sum(jnp.where(jnp.arange(sizes.shape[0]) < offset, sizes, 0))
    own = jnp.take(sizes, offset + jnp.arange(groups), mode="clip") if groups != sizes.shape[0] else sizes
    after = m - jnp.sum(own) - before
    return jnp.concatenate([jnp.reshape(before, (1,)), own, jnp.reshape(after, (1,))]).astype(jnp.int32)
