"""Grouped matrix product, the heart of mixture-of-experts models: rows sorted by group, one matrix for each group.

    gmm:   out[rows of g] = lhs[rows of g] @ rhs[g]
    tgmm:  out[g] = lhs[:, rows of g] @ rhs[rows of g]

The kernels walk over the tiles of rows that a group has a part in; a tile that several groups share is visited once
for each of them. Which tile and group a step works on is computed beforehand and prefetched as scalars
(`make_group_metadata`). The
scheme is that of MegaBlocks (Gale et al., 2022, arXiv:2211.15841).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.library.checks import (
    FORWARD,
    LEFT_GRADIENT,
    RIGHT_GRADIENT,
    Tile,
    Tiling,
    dtype_of,
    fail,
    require_array,
    tiling_for,
)

Array = Any
GroupMetadata = tuple[Array, Array, Array]


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
        `(group_offsets: i32[g + 1], group_ids: i32[s], m_tile_ids: i32[s]), num_steps: i32[]` with s = cdiv(m, tm) +
            g - 1: the first row of each group, then the group and the tile of each step. Only the first `num_steps`
            entries count.
    """
    groups = group_sizes.shape[0]
    count = groups if num_nonzero_groups is None else num_nonzero_groups
    tiles_m = pl.cdiv(m, tm)
    sizes = jnp.asarray(group_sizes).astype(jnp.int32)
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


def gmm(
    lhs: Array,
    rhs: Array,
    group_sizes: Array,
    preferred_element_type: Any = jnp.float32,
    tiling: Tiling = (128, 128, 128),
    group_offset: Array | None = None,
    existing_out: Array | None = None,
    transpose_rhs: bool = False,
    interpret: Any = None,
) -> Array:
    """Grouped matrix product: each row of `lhs` times the matrix of its group.

    Args:
        lhs: `dtype[m, k]`, float16, bfloat16, float32 (or float64), rows sorted by group.
        rhs: `dtype[g, k, n]`, or `dtype[g, n, k]` with `transpose_rhs`; its dtype may differ from that of `lhs`.
        group_sizes: `i32[groups]`, the number of rows of each group; they sum to at most m and may be zero.
        preferred_element_type: the dtype of the result. Products are summed in float32 (float64 for float64).
        tiling: `(tm, tk, tn)`, a look-up function of (m, k, n), or one of these for each of the forward product, the
            left and the right gradient. Tiles need not divide the sizes.
        group_offset: `i32[]`: `rhs` holds the matrices of groups `[group_offset, group_offset + g)` of a longer
            `group_sizes`.
        existing_out: `preferred_element_type[m, n]`: rows of no group of `rhs` keep its values. It is not changed.
        transpose_rhs: multiply with the transposes of the matrices.
        interpret: as in `palladio.pallas_call`.

    Returns:
        `preferred_element_type[m, n]`. Rows that belong to no group of `rhs`, those past the last group among them,
        are zero.

    Raises:
        PalladioValueError, PalladioTypeError: shapes, dtypes or sizes that do not fit; a tiling that is not three
            positive integers.
    """
    m, k = require_array(lhs, "lhs", 2, "[m, k]")
    groups, *matrix = require_array(rhs, "rhs", 3, "[g, n, k]" if transpose_rhs else "[g, k, n]")
    rows, n = reversed(matrix) if transpose_rhs else matrix
    if rows != k:
        wanted = f"[g, n, {k}]" if transpose_rhs else f"[g, {k}, n]"
        raise fail(
            pl.PalladioValueError, "does not multiply with lhs", argument="rhs", expected=wanted, got=tuple(rhs.shape)
        )
    sizes = _checked_sizes(group_sizes, m)
    offset = _checked_offset(group_offset, groups, sizes.shape[0])
    dtype = jnp.dtype(preferred_element_type)
    _check_existing(existing_out, (m, n), dtype)
    tile = tiling_for(tiling, FORWARD, m, k, n)
    if 0 in (m, k, n):
        return existing_out if existing_out is not None else jnp.zeros_like(lhs, shape=(m, n), dtype=dtype)
    call = _gmm_call(
        m, k, n, groups, tile, dtype, _sum_dtype(lhs, rhs), existing_out is not None, transpose_rhs, interpret
    )
    # Rows before and behind the groups of rhs make two more groups, number 0 and groups + 1, whose product is zero.
    metadata, steps = make_group_metadata(
        group_sizes=_with_rest(sizes, offset, groups, m), m=m, tm=tile[0], visit_empty_groups=False
    )
    inputs = (lhs, rhs) if existing_out is None else (lhs, rhs, existing_out)
    return call(steps)(*metadata, *inputs)


def _gmm_call(
    m: int,
    k: int,
    n: int,
    groups: int,
    tile: Tile,
    dtype: Any,
    sum_dtype: Any,
    existing: bool,
    transpose: bool,
    interpret: Any,
) -> Callable[[Array], Any]:
    """The kernel call for a number of steps."""
    tm, tk, tn = tile
    tiles_k = pl.cdiv(k, tk)

    def kernel(offsets: Any, group_ids: Any, m_tile_ids: Any, lhs: Any, rhs: Any, *rest: Any) -> None:
        *_, out, total = rest
        step, depth = pl.program_id(1), pl.program_id(2)
        group = group_ids[step]
        active = (group >= 1) & (group <= groups)

        @pl.when(depth == 0)
        def start() -> None:
            total[...] = jnp.zeros((tm, tn), sum_dtype)

        @pl.when(active)
        def multiply() -> None:
            x, y = _inside(lhs[...], k, depth * tk, 1), _inside(rhs[...], k, depth * tk, 1 if transpose else 0)
            total[...] += jnp.dot(x, y.T if transpose else y, preferred_element_type=sum_dtype)

        @pl.when(depth == tiles_k - 1)
        def finish() -> None:
            row = m_tile_ids[step] * tm + jnp.arange(tm)
            chosen = (row >= offsets[group]) & (row < offsets[group + 1])
            if existing:
                chosen &= active
            out[...] = jnp.where(chosen[:, None], total[...].astype(dtype), out[...])

    def rhs_block(i: Any, step: Any, depth: Any, offsets: Any, group_ids: Any, m_tile_ids: Any) -> Any:
        group = jnp.clip(group_ids[step] - 1, 0, groups - 1)
        return (group, i, depth) if transpose else (group, depth, i)

    out_spec = pl.BlockSpec((tm, tn), lambda i, step, depth, offsets, group_ids, m_tile_ids: (m_tile_ids[step], i))
    in_specs = [
        pl.BlockSpec((tm, tk), lambda i, step, depth, offsets, group_ids, m_tile_ids: (m_tile_ids[step], depth)),
        pl.BlockSpec((None, tn, tk) if transpose else (None, tk, tn), rhs_block),
    ]
    return lambda steps: pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((m, n), dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(pl.cdiv(n, tn), steps, tiles_k),
            in_specs=[*in_specs, *([out_spec] if existing else [])],
            out_specs=out_spec,
            scratch_shapes=[pltpu.VMEM((tm, tn), sum_dtype)],
        ),
        input_output_aliases={5: 0} if existing else {},
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary", "arbitrary")),
        cost_estimate=pl.CostEstimate(2 * m * k * n, 0, 0),
        interpret=interpret,
        name="gmm",
    )


def tgmm(
    lhs: Array,
    rhs: Array,
    group_sizes: Array,
    preferred_element_type: Any = jnp.float32,
    tiling: Tiling = (128, 128, 128),
    group_offset: Array | None = None,
    num_actual_groups: int | None = None,
    existing_out: Array | None = None,
    interpret: Any = None,
) -> Array:
    """Transposed grouped matrix product: for each group, its columns of `lhs` times its rows of `rhs`.

    Args:
        lhs: `dtype[k, m]`, float16, bfloat16, float32 (or float64), columns sorted by group.
        rhs: `dtype[m, n]`, rows sorted by group; its dtype may differ from that of `lhs`.
        group_sizes: `i32[groups]`, the number of rows of each group; they sum to at most m and may be zero.
        preferred_element_type: the dtype of the result. Products are summed in float32 (float64 for float64).
        tiling: as in `gmm`; a look-up gets (m, k, n), tiles are along m, k and n.
        group_offset: `i32[]`, the first group to compute.
        num_actual_groups: how many groups to compute, all from `group_offset` on by default.
        existing_out: `preferred_element_type[num_actual_groups, k, n]`, to which the products are added. It is not
            changed.
        interpret: as in `palladio.pallas_call`.

    Returns:
        `preferred_element_type[num_actual_groups, k, n]`. The matrix of a group without rows is zero.

    Raises:
        PalladioValueError, PalladioTypeError: shapes, dtypes or sizes that do not fit; a tiling that is not three
            positive integers.
    """
    k, m = require_array(lhs, "lhs", 2, "[k, m]")
    rows, n = require_array(rhs, "rhs", 2, "[m, n]")
    if rows != m:
        raise fail(
            pl.PalladioValueError, "does not multiply with lhs", argument="rhs", expected=f"[{m}, n]", got=(rows, n)
        )
    sizes = _checked_sizes(group_sizes, m)
    groups = _checked_count(num_actual_groups, sizes.shape[0], group_offset)
    offset = _checked_offset(group_offset, groups, sizes.shape[0])
    dtype = jnp.dtype(preferred_element_type)
    _check_existing(existing_out, (groups, k, n), dtype)
    tile = tiling_for(tiling, FORWARD, m, k, n)
    if 0 in (m, k, n, groups):
        return existing_out if existing_out is not None else jnp.zeros_like(lhs, shape=(groups, k, n), dtype=dtype)
    metadata, steps = make_group_metadata(
        group_sizes=sizes, m=m, tm=tile[0], start_group=offset, num_nonzero_groups=groups, visit_empty_groups=True
    )
    call = _tgmm_call(m, k, n, groups, tile, dtype, _sum_dtype(lhs, rhs), existing_out is not None, interpret)
    first, inputs = jnp.reshape(offset, (1,)), (lhs, rhs) if existing_out is None else (lhs, rhs, existing_out)
    return call(steps)(*metadata, first, jnp.reshape(steps, (1,)), *inputs)


def _tgmm_call(
    m: int, k: int, n: int, groups: int, tile: Tile, dtype: Any, sum_dtype: Any, existing: bool, interpret: Any
) -> Callable[[Array], Any]:
    """The kernel call for a number of steps."""
    tm, tk, tn = tile

    def kernel(
        offsets: Any, group_ids: Any, m_tile_ids: Any, first: Any, steps: Any, lhs: Any, rhs: Any, *rest: Any
    ) -> None:
        *before, out, total = rest
        step = pl.program_id(2)
        group = group_ids[step]
        starts = (step == 0) | (group != group_ids[jnp.maximum(step - 1, 0)])
        last = steps[0] - 1
        ends = (step == last) | (group != group_ids[jnp.minimum(step + 1, last)])

        @pl.when(starts)
        def start() -> None:
            total[...] = jnp.zeros((tk, tn), sum_dtype)

        @pl.when(offsets[group] < offsets[group + 1])
        def multiply() -> None:
            row = m_tile_ids[step] * tm + jnp.arange(tm)
            chosen = (row >= offsets[group]) & (row < offsets[group + 1])
            x, y = jnp.where(chosen[None, :], lhs[...], 0), jnp.where(chosen[:, None], rhs[...], 0)
            total[...] += jnp.dot(x, y, preferred_element_type=sum_dtype)

        @pl.when(ends)
        def finish() -> None:
            found = total[...] + before[0][...].astype(sum_dtype) if existing else total[...]
            out[...] = found.astype(dtype)

    def out_block(
        i: Any, j: Any, step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any, first: Any, steps: Any
    ) -> Any:
        return group_ids[step] - first[0], j, i

    out_spec = pl.BlockSpec((None, tk, tn), out_block)
    in_specs = [
        pl.BlockSpec((tk, tm), lambda i, j, step, offsets, group_ids, m_tile_ids, first, steps: (j, m_tile_ids[step])),
        pl.BlockSpec((tm, tn), lambda i, j, step, offsets, group_ids, m_tile_ids, first, steps: (m_tile_ids[step], i)),
    ]
    return lambda steps: pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((groups, k, n), dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=5,
            grid=(pl.cdiv(n, tn), pl.cdiv(k, tk), steps),
            in_specs=[*in_specs, *([out_spec] if existing else [])],
            out_specs=out_spec,
            scratch_shapes=[pltpu.VMEM((tk, tn), sum_dtype)],
        ),
        input_output_aliases={7: 0} if existing else {},
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        cost_estimate=pl.CostEstimate(2 * m * k * n, 0, 0),
        interpret=interpret,
        name="tgmm",
    )


def gmm_vjp(
    lhs: Array,
    rhs: Array,
    group_sizes: Array,
    preferred_element_type: Any = jnp.float32,
    tiling: Tiling = (128, 128, 128),
    group_offset: Array | None = None,
    transpose_rhs: bool = False,
    interpret: Any = None,
) -> tuple[Array, Callable[[Array], tuple[Array, Array]]]:
    """`gmm` with its gradients, for those who bring no automatic differentiation.

    Args:
        As in `gmm`.

    Returns:
        `(out, pullback)`: `out: preferred_element_type[m, n]` is the product, and `pullback(grad_out: dtype[m, n])`
            gives `(grad_lhs, grad_rhs)`, the gradients of `sum(out * grad_out)`, in the shapes and dtypes of `lhs`
            and `rhs`.
        With a `tiling` of three entries, the second serves `grad_lhs`, the third `grad_rhs`.
    """
    options = {"group_offset": group_offset, "interpret": interpret}
    out = gmm(lhs, rhs, group_sizes, preferred_element_type, tiling, transpose_rhs=transpose_rhs, **options)

    def pullback(grad_out: Array) -> tuple[Array, Array]:
        (m, k), groups = lhs.shape, rhs.shape[0]
        if tuple(grad_out.shape) != (m, out.shape[1]):
            got = tuple(grad_out.shape)
            raise fail(
                pl.PalladioValueError,
                "not the shape of the product",
                argument="grad_out",
                expected=tuple(out.shape),
                got=got,
            )
        n = out.shape[1]
        left = tiling_for(tiling, LEFT_GRADIENT, m, n, k)
        right = tiling_for(tiling, RIGHT_GRADIENT, m, k, n)
        grad_lhs = gmm(grad_out, rhs, group_sizes, dtype_of(lhs), left, transpose_rhs=not transpose_rhs, **options)
        x, y = (grad_out, lhs) if transpose_rhs else (lhs, grad_out)
        if transpose_rhs:
            right = (right[0], right[2], right[1])
        grad_rhs = tgmm(x.T, y, group_sizes, dtype_of(rhs), right, num_actual_groups=groups, **options)
        return grad_lhs, grad_rhs

    return out, pullback


def _sum_dtype(lhs: Array, rhs: Array) -> Any:
    """Sums are float64 for float64 inputs, else float32."""
    return jnp.promote_types(jnp.float32, jnp.promote_types(dtype_of(lhs), dtype_of(rhs)))


def _inside(tile: Any, extent: int, start: Any, axis: int) -> Any:
    """A tile with zeros past the end of an axis of the array, where the elements are no numbers."""
    size = tile.shape[axis]
    if extent % size == 0:
        return tile
    shape = (-1, 1) if axis == 0 else (1, -1)
    return jnp.where(jnp.reshape(jnp.arange(size) < extent - start, shape), tile, 0)


def _with_rest(sizes: Array, offset: Array, groups: int, m: int) -> Array:
    """The sizes of: everything before the groups of rhs, those groups, and everything behind them up to row m."""
    before = jnp.sum(jnp.where(jnp.arange(sizes.shape[0]) < offset, sizes, 0))
    own = jnp.take(sizes, offset + jnp.arange(groups), mode="clip") if groups != sizes.shape[0] else sizes
    behind = m - jnp.sum(own) - before
    return jnp.concatenate([jnp.reshape(before, (1,)), own, jnp.reshape(behind, (1,))]).astype(jnp.int32)


def _checked_sizes(group_sizes: Array, m: int) -> Array:
    """The group sizes as an i32 vector; their values are checked where they are known."""
    sizes = jnp.asarray(group_sizes)
    if sizes.ndim != 1 or sizes.shape[0] == 0:
        raise fail(
            pl.PalladioValueError,
            "one size per group is needed",
            argument="group_sizes",
            expected="i32[groups]",
            got=tuple(sizes.shape),
        )
    if not jnp.issubdtype(sizes.dtype, jnp.integer):
        raise fail(
            pl.PalladioTypeError,
            "group sizes are integers",
            argument="group_sizes",
            expected="int32",
            got=str(sizes.dtype),
        )
    if not pl.is_traced(sizes):
        if sizes.min() < 0:
            raise fail(pl.PalladioValueError, "a group size is negative", argument="group_sizes", got=sizes.tolist())
        if sizes.sum() > m:
            raise fail(
                pl.PalladioValueError,
                "the group sizes sum to more than the number of rows",
                argument="group_sizes",
                expected=f"at most {m}",
                got=int(sizes.sum()),
            )
    return sizes.astype(jnp.int32)


def _checked_offset(group_offset: Array | None, groups: int, total: int) -> Array:
    """The first group, an i32 scalar; without one, `rhs` has a matrix for every group."""
    if group_offset is None:
        if groups != total:
            raise fail(
                pl.PalladioValueError,
                "without group_offset, there is one matrix for each group",
                argument="group_sizes",
                expected=f"{groups} sizes",
                got=f"{total} sizes",
            )
        return jnp.asarray(0, dtype=jnp.int32)
    offset = jnp.asarray(group_offset)
    if offset.ndim != 0 or not jnp.issubdtype(offset.dtype, jnp.integer):
        raise fail(
            pl.PalladioTypeError,
            "a scalar integer",
            argument="group_offset",
            expected="i32[]",
            got=f"{offset.dtype}{list(offset.shape)}",
        )
    if not pl.is_traced(offset) and not 0 <= int(offset) <= total - groups:
        raise fail(
            pl.PalladioValueError,
            "the groups from here on are not all there",
            argument="group_offset",
            expected=f"0 to {total - groups}",
            got=int(offset),
        )
    return offset.astype(jnp.int32)


def _checked_count(count: int | None, total: int, group_offset: Array | None) -> int:
    if count is None:
        return total if group_offset is None or pl.is_traced(group_offset) else max(0, total - int(group_offset))
    if not isinstance(count, int) or not 0 < count <= total:
        raise fail(
            pl.PalladioValueError,
            "a number of groups",
            argument="num_actual_groups",
            expected=f"1 to {total}",
            got=count,
        )
    return count


def _check_existing(existing_out: Array | None, shape: tuple[int, ...], dtype: Any) -> None:
    if existing_out is None:
        return
    if tuple(existing_out.shape) != shape:
        raise fail(
            pl.PalladioValueError,
            "not the shape of the result",
            argument="existing_out",
            expected=shape,
            got=tuple(existing_out.shape),
        )
    if dtype_of(existing_out) != dtype:
        raise fail(
            pl.PalladioTypeError,
            "not the dtype of the result",
            argument="existing_out",
            expected=str(dtype),
            got=str(existing_out.dtype),
        )
