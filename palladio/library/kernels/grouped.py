"""The kernels of the grouped matrix products, each in one program with the computation of its metadata.

The kernels iterate over the tiles of rows of each group; a tile that several groups share is visited once for each of
them. The tile and group of each step are computed beforehand and prefetched as scalars (`make_group_metadata`). The
scheme is that of MegaBlocks (Gale et al., 2022, arXiv:2211.15841).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from palladio.library.checks import Tile, group_sizes_of, require_count

Array = Any
GroupMetadata = tuple[Array, Array, Array]


@pl.checked_call
def make_group_metadata(
    *,
    group_sizes: Array,
    m: int,
    tm: int,
    start_group: Any = 0,
    num_nonzero_groups: Any = None,
    visit_empty_groups: bool = True,
) -> tuple[GroupMetadata, Array]:
    """The group and the tile of rows of each step of a grouped product.

    Args:
        group_sizes: `i32[g]`, the number of rows of each group, in order.
        m: the number of rows; the sizes sum to at most m.
        tm: the number of rows of a tile; it need not divide m.
        start_group, num_nonzero_groups: only these groups are visited; all by default.
        visit_empty_groups: True if a group without rows gets one step, to store a zero result.

    Returns:
        `(group_offsets: i32[g + 1], group_ids: i32[s], m_tile_ids: i32[s]), num_steps: i32[]` with
        s = cdiv(m, tm) + g - 1: the first row of each group, and the end of the last; then the group and the tile of
        each step, of which only the first `num_steps` entries count.

    Raises:
        PalladioTypeError: group sizes that are not a vector of integers.
        PalladioValueError: sizes that are negative or sum to more than m, or m or tm that is not positive.
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
    group_ids = jnp.minimum(_reached(step.shape[0], last_step), groups - 1)
    within = step - jnp.take(last_step - tiles, group_ids)
    m_tile_ids = jnp.clip(jnp.take(first_tile, group_ids) + within, 0, tiles_m - 1)
    return (group_offsets, group_ids.astype(jnp.int32), m_tile_ids.astype(jnp.int32)), last_step[-1]


def _reached(positions: int, ends: Array) -> Array:
    """The number of ends at or before each position, from 0 to below `positions`.

    Args:
        ends: `i32[g]`, not negative.
    """
    if isinstance(ends, np.ndarray):  # a call with NumPy arrays, outside `jit`
        return np.cumsum(np.bincount(ends, minlength=positions)[:positions], dtype=np.int32)
    return jnp.cumsum(jnp.zeros((positions,), jnp.int32).at[ends].add(1, mode="drop"))


@dataclass(frozen=True)
class Problem:
    """The problem of a kernel. Sizes and tile are along m, k and n.

    Fields:
        apart: whether the groups of a tile of columns may run concurrently, on an executor that stores only the rows
            that a mask selects. Each group then has its own rows of a block of the result.
    """

    m: int
    k: int
    n: int
    groups: int
    tile: Tile
    dtype: Any
    sum_dtype: Any
    existing: bool
    apart: bool = False

    @property
    def semantics(self) -> tuple[str, str, str]:
        """The grid axes of `gmm`: tiles of columns, groups, and parts of the summed axis."""
        return "parallel", "parallel" if self.apart else "arbitrary", "arbitrary"

    @property
    def cost(self) -> pl.CostEstimate:
        """The operations of a product in which every row has a group, and the bytes of its operands and result."""
        elements = self.m * self.k + self.groups * self.k * self.n + self.m * self.n
        return pl.CostEstimate(2 * self.m * self.k * self.n, 0, elements * self.dtype.itemsize)


@functools.cache
def gmm_product(problem: Problem, transpose: bool, interpret: Any) -> Any:
    """The product and its metadata as one program, a function of sizes, offset, rows and arrays."""

    def product(
        group_sizes: Array, group_offset: Array, rows: Array, lhs: Array, rhs: Array, existing_out: Array | None = None
    ) -> Array:
        existing = () if existing_out is None else (existing_out,)
        # Rows before and after the groups of rhs form two more groups, 0 and groups + 1, with a zero product.
        metadata, steps = make_group_metadata(
            group_sizes=_with_rest(group_sizes, group_offset, problem.groups, rows),
            m=problem.m,
            tm=problem.tile[0],
            visit_empty_groups=False,
        )
        return _gmm_call(problem, transpose, steps)(*metadata, lhs, rhs, *existing)

    return pl.jit(product, interpret=interpret)


def _tile_of(tiles: int, step: Any, m_tile_ids: Any) -> Any:
    """The tile of rows of a step, clamped, so that the compiler knows its range."""
    return jnp.clip(m_tile_ids[step], 0, tiles - 1) if tiles > 1 else 0


def _gmm_call(problem: Problem, transpose: bool, steps: Array) -> Any:
    m, k, n, groups, (tm, tk, tn) = problem.m, problem.k, problem.n, problem.groups, problem.tile
    tiles_k = pl.cdiv(k, tk)

    tile_of = functools.partial(_tile_of, pl.cdiv(m, tm))

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
        compiler_params=pltpu.CompilerParams(dimension_semantics=problem.semantics),
        cost_estimate=problem.cost,
        name="gmm",
    )


@functools.cache
def tgmm_product(problem: Problem, by_rows: bool, interpret: Any) -> Any:
    """The product and its metadata as one program, a function of sizes, offset, number of groups, and arrays.

    Args:
        by_rows: True if it takes the transpose of the left operand.
    """

    def product(
        group_sizes: Array,
        group_offset: Array,
        groups: Array,
        lhs: Array,
        rhs: Array,
        existing_out: Array | None = None,
    ) -> Array:
        existing = () if existing_out is None else (existing_out,)
        metadata, steps = make_group_metadata(
            group_sizes=group_sizes,
            m=problem.m,
            tm=problem.tile[0],
            start_group=group_offset,
            num_nonzero_groups=groups,
            visit_empty_groups=True,
        )
        return _tgmm_call(problem, by_rows, steps)(*metadata, jnp.stack([group_offset, steps]), lhs, rhs, *existing)

    return pl.jit(product, interpret=interpret)


def _tgmm_call(problem: Problem, by_rows: bool, steps: Array) -> Any:
    k, n, groups, (tm, tk, tn) = problem.k, problem.n, problem.groups, problem.tile
    tiles_m = pl.cdiv(problem.m, tm)
    axis = 0 if by_rows else 1

    tile_of = functools.partial(_tile_of, tiles_m)

    def rows_of(step: Any, offsets: Any, group_ids: Any) -> tuple[Any, Any, Any]:
        group = jnp.clip(group_ids[step], 0, offsets.shape[0] - 2)
        return group, offsets[group], offsets[group + 1]

    def product(step: Any, low: Any, high: Any, m_tile_ids: Any, lhs: Any, rhs: Any) -> Array:
        first = tile_of(step, m_tile_ids) * tm
        # Mask both sides: rows of other groups may hold NaN or infinity, and zero times those is NaN. A shared
        # mask would be stored for all rows of the tile in each step, so each side computes its own.
        row, line = (first + jnp.expand_dims(jnp.arange(tm), 1 - each) for each in (axis, 0))
        x = jnp.where((row >= low) & (row < high), lhs[...], 0)
        y = jnp.where((low <= line) & (high > line), rhs[...], 0)
        summed = ((axis,), (0,)), ((), ())
        return lax.dot_general(x, y, summed, preferred_element_type=problem.sum_dtype)

    def whole(
        offsets: Any, group_ids: Any, m_tile_ids: Any, first_and_steps: Any, lhs: Any, rhs: Any, *rest: Any
    ) -> None:
        *before, out = rest
        step = pl.program_id(2)
        _, low, high = rows_of(step, offsets, group_ids)
        found = product(step, low, high, m_tile_ids, lhs, rhs)
        out[...] = (found + before[0][...].astype(found.dtype) if problem.existing else found).astype(out.dtype)

    def in_parts(
        offsets: Any, group_ids: Any, m_tile_ids: Any, first_and_steps: Any, lhs: Any, rhs: Any, *rest: Any
    ) -> None:
        *before, out, total = rest
        step, following = pl.program_id(2), pl.program_id(2) + 1
        group, low, high = rows_of(step, offsets, group_ids)
        starts = (step == 0) | (group != group_ids[jnp.maximum(step - 1, 0)])
        ends = (following == first_and_steps[1]) | (group != group_ids[jnp.minimum(following, group_ids.shape[0] - 1)])

        @pl.when(starts)
        def start() -> None:
            total[...] = jnp.zeros_like(total)

        @pl.when(low < high)
        def multiply() -> None:
            total[...] += product(step, low, high, m_tile_ids, lhs, rhs)

        @pl.when(ends)
        def finish() -> None:
            found = total[...] + before[0][...].astype(total.dtype) if problem.existing else total[...]
            out[...] = found.astype(out.dtype)

    def out_block(i: Any, j: Any, step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any, first: Any) -> Any:
        return jnp.clip(group_ids[step] - first[0], 0, groups - 1), j, i

    def lhs_block(i: Any, j: Any, step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any, first: Any) -> Any:
        place = tile_of(step, m_tile_ids), j
        return place if by_rows else place[::-1]

    def rhs_block(i: Any, j: Any, step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any, first: Any) -> Any:
        return tile_of(step, m_tile_ids), i

    out_spec = pl.BlockSpec((None, tk, tn), out_block)
    in_specs = [pl.BlockSpec((tm, tk) if by_rows else (tk, tm), lhs_block), pl.BlockSpec((tm, tn), rhs_block)]
    # A group in a single tile is one step.
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


def _inside(tile: Any, extent: int, start: Any, axis: int) -> Any:
    """A tile with zeros past the end of an axis of the array, where the elements are uninitialised."""
    size = tile.shape[axis]
    if extent % size == 0:
        return tile
    shape = (-1, 1) if axis == 0 else (1, -1)
    return jnp.where(jnp.reshape(jnp.arange(size) < extent - start, shape), tile, 0)


def _with_rest(sizes: Array, offset: Array, groups: int, m: Array) -> Array:
    """The sizes of three parts: all groups before those of rhs, those of rhs, and all rows after them up to m."""
    before = jnp.sum(jnp.where(jnp.arange(sizes.shape[0]) < offset, sizes, 0))
    own = jnp.take(sizes, offset + jnp.arange(groups), mode="clip") if groups != sizes.shape[0] else sizes
    after = m - jnp.sum(own) - before
    return jnp.concatenate([jnp.reshape(before, (1,)), own, jnp.reshape(after, (1,))]).astype(jnp.int32)
