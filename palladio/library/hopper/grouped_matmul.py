"""Grouped matrix products: rows sorted by group, one matrix for each group, group sizes known only on the GPU.

    gmm:   out[rows of g] = lhs[rows of g] @ rhs[g]
    tgmm:  out[g] = lhs[:, rows of g] @ rhs[rows of g]

Persistent blocks of three warpgroups iterate over tiles of the result; each derives the group of its tile from the
group sizes in global memory. The memory warpgroup runs ahead of the compute warpgroups across tile boundaries.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from palladio.library.checks import (
    dtype_of,
    fail,
    group_count,
    group_offset_of,
    group_sizes_of,
    grouped_sizes,
    offset_on_gpu,
    require_array,
    require_existing,
    require_flag,
)
from palladio.library.hopper.config import MatmulConfig, require_matmul_config
from palladio.library.hopper.epilogue import store_tile
from palladio.library.hopper.kept import Divided, RowBucket, called, counting, kept_call
from palladio.library.hopper.limits import (
    COMPUTE_GROUPS,
    COPIED_BYTES,
    FLOATS,
    FLOATS_OF_8_BITS,
    as_in_memory,
    product_dtype,
    require_last_axis,
    require_operand,
)
from palladio.library.hopper.model import Product
from palladio.library.hopper.persistent import OutputTile, PersistentProduct
from palladio.library.hopper.ring import Ring, ring_scratch
from palladio.library.hopper.scales import (
    TENSOR,
    Scales,
    block_factor,
    block_rows,
    epilogue_factor,
    factor_block,
    require_scaled_config,
    scales_of,
)
from palladio.library.hopper.tuned import division
from palladio.library.staging import stored, zeros

REGISTERS = 224, 56
"""Registers of each compute and memory thread: 2 * 224 + 56 are the 504 that three warpgroups have at launch. The
memory warpgroup also holds the sizes of all groups in registers; with 40 it would not fit 256 sizes."""

CLEARED = 16
"""Rows or columns of a block that are cleared together: two vectors of 16-bit elements."""

Array = Any
Ref = Any
Value = Any


@dataclass(frozen=True)
class Selection:
    """The groups to compute, among all groups with sizes, and the contents of the other rows.

    Fields:
        total: the number of all groups.
        first: the first group to compute; None if it is an operand.
        existing: True for an operand of existing values: in gmm for rows of other groups, in tgmm to add to.
    """

    total: int
    first: int | None = 0
    existing: bool = False

    @property
    def of_all(self) -> bool:
        """True if all groups are computed, without existing values."""
        return self.first == 0 and not self.existing

    def refs(self, given: Sequence[Ref]) -> tuple[Value, Ref | None, Sequence[Ref]]:
        """The optional operands of a kernel: the first group, the existing values, and the rest."""
        rest = list(given)
        first = self.first if self.first is not None else rest.pop(0)[...]
        return first, rest.pop(0) if self.existing else None, rest


@dataclass(frozen=True)
class GroupedProblem:
    """The problem of a kernel: `rows` sorted by group, a sum over `depth`, and `columns`.

    For tgmm the result has `depth` rows, and the sum is over the rows of a group. There, `by_rows` is True for a left
    operand `[m, k]`, with the same rows as the right one, and `gathered` is 0 or 1 for an operand whose rows are
    gathered by a list of indices.
    """

    rows: int
    depth: int
    columns: int
    groups: int
    config: MatmulConfig
    transpose_rhs: bool = False
    selection: Selection = field(default_factory=lambda: Selection(0))
    scales: Scales = field(default_factory=lambda: Scales(None, None))
    by_rows: bool = False
    gathered: int | None = None

    def gmm_blocks(self, lhs: Any, rhs: Any) -> list[Any]:
        """The blocks of a stage of gmm's ring, for operands of these dtypes."""
        config = self.config
        matrix = (config.tile_n, config.tile_k) if self.transpose_rhs else (config.tile_k, config.tile_n)
        found = [pl.ShapeDtypeStruct((config.tile_m, config.tile_k), lhs), pl.ShapeDtypeStruct(matrix, rhs)]
        return [*found, factor_block(config.tile_m)] if self.scales.of_blocks else found

    def tgmm_blocks(self, dtype: Any) -> list[Any]:
        """The blocks of a stage of tgmm's ring, for operands of a dtype."""
        config = self.config
        left = (config.tile_k, config.tile_m) if self.by_rows else (config.tile_m, config.tile_k)
        return [pl.ShapeDtypeStruct(shape, dtype) for shape in (left, (config.tile_k, config.tile_n))]

    @property
    def visits(self) -> int:
        """The most tiles of rows: each group starts a new tile, and so do rows of no group."""
        return int(pl.cdiv(self.rows, self.config.tile_m)) + self.selection.total

    @property
    def gmm_plane(self) -> tuple[int, int]:
        """The tiles of gmm along its rows and columns, in tiles of a whole cluster."""
        return self.config.plane(self.visits, pl.cdiv(self.columns, self.config.tile_n))

    @property
    def tgmm_plane(self) -> tuple[int, int]:
        """The tiles of one group's matrix in tgmm, in tiles of a whole cluster."""
        config = self.config
        return config.plane(pl.cdiv(self.depth, config.tile_m), pl.cdiv(self.columns, config.tile_n))


def _parts(sizes: Value, extent: int) -> Value:
    """The parts of an extent that cover each of the sizes, which are at least 0: so division may truncate."""
    return lax.div(sizes + (extent - 1), jnp.int32(extent))


# gmm.


def gmm_tile(
    problem: GroupedProblem,
    sizes: Value,
    first: Value,
    step: Value,
    plane: tuple[int, int],
    width: int,
    present: Value | None = None,
) -> OutputTile:
    """The tile of a step in gmm: groups are in order, each divided into tiles from its first row.

    All tiles of a group follow each other, so that its matrix is read from main memory once, or once for each band. The
    rows of no group follow the last group, then empty steps. Groups without a matrix take no steps of the sum.

    Args:
        plane: the tiles along rows and columns, in tiles of a whole cluster.
        width: the columns of the result in a tile.
        present: the number of rows that there are, at most `problem.rows`; None for all.
    """
    present = problem.rows if present is None else present
    total, (_, across) = problem.selection.total, plane
    tile = problem.config.tile_m
    tiles = _parts(sizes, tile)
    passed = step >= jnp.cumsum(tiles) * across
    group = jnp.sum(passed.astype(jnp.int32))
    start = jnp.sum(jnp.where(passed, sizes, 0))
    before = jnp.sum(jnp.where(passed, tiles, 0)) * across
    own = jnp.sum(jnp.where(jnp.arange(total) == group, sizes, 0))
    grouped = group < total
    chosen, matrix = grouped, group
    if problem.groups != total:
        chosen, matrix = (group >= first) & (group < first + problem.groups), jnp.maximum(group - first, 0)
    size = jnp.where(grouped, own, present - start)
    within, column = problem.config.group_raster(step - before, _parts(jnp.maximum(size, 0), tile), across)
    first_row = start + within * tile
    rows = jnp.clip(size - within * tile, 0, tile)
    return OutputTile(
        group=jnp.minimum(matrix, problem.groups - 1),
        first_row=first_row,
        rows=rows,
        row=first_row,
        column=column * width,
        steps=jnp.where(chosen, pl.cdiv(problem.depth, problem.config.tile_k), 0),
        active=rows > 0,
    )


def _gmm_kernel(
    sizes: Ref,
    lhs: Ref,
    rhs: Ref,
    out: Ref,
    problem: GroupedProblem,
    first: Value = 0,
    existing: Ref | None = None,
    factors: Sequence[Ref] = (),
    present: Value | None = None,
    **scratch: Any,
) -> None:
    """One persistent block of gmm, for the groups from `first`, with optional existing values and scale factors.

    Args:
        present: as in `gmm_tile`; existing values and factors of further rows are not accessed.
    """
    config, scales = problem.config, problem.scales
    plane = problem.gmm_plane
    ring = Ring.of(scratch, "operands", (*config.shared, ())[: 3 if scales.of_blocks else 2])
    known_sizes = sizes[...]
    group = pl.axis_index("warpgroup")
    own_row, own_column = config.own_corner(group)
    own_rows = config.own_shape[0]
    all_rows = problem.rows if present is None else present

    def scale(tile: OutputTile) -> dict[str, Ref]:
        found = dict(zip(scales.given, factors, strict=True))
        return found if scales.y in (None, TENSOR) else {**found, "y": found["y"].at[tile.group]}

    def tile_at(info: plgpu.NDLoopInfo) -> OutputTile:
        return gmm_tile(problem, known_sizes, first, info.index[0], plane, config.tile_n, present)

    def sources(tile: OutputTile, step: Value) -> tuple[Ref, ...]:
        depth = pl.ds(step * config.tile_k, config.tile_k)
        columns = pl.ds(tile.column, config.tile_n)
        matrix = rhs.at[tile.group, columns, depth] if problem.transpose_rhs else rhs.at[tile.group, depth, columns]
        rows = pl.ds(tile.first_row, config.tile_m)
        blocks = lhs.at[rows, depth], matrix
        if not scales.of_blocks:
            return blocks
        return *blocks, block_rows(factors[0], step, tile.first_row, config.tile_m, all_rows)

    def multiply(acc: Ref, tile: OutputTile, step: Value, lhs_block: Ref, rhs_block: Ref, *_: Ref) -> None:
        right = rhs_block.T if problem.transpose_rhs else rhs_block
        plgpu.wgmma(acc, *config.own_operands(group, lhs_block, right))

    def factor(tile: OutputTile, step: Value, lhs_block: Ref, rhs_block: Ref, lhs_factors: Ref) -> Value:
        start = step * all_rows + tile.first_row
        return block_factor(scale(tile)["y"], lhs_factors, start, own_row, own_rows, tile.column, step)

    def store(acc: Ref, tile: OutputTile) -> None:
        rows = jnp.clip(tile.rows - own_row, 0, own_rows)
        row, column = tile.row + own_row, tile.column + own_column
        applied = None
        if scales.given and not scales.of_blocks:
            applied = epilogue_factor(scales, scale(tile), row, own_rows, column, all_rows)
        if existing is not None:
            other = tile.steps == 0
            pl.when(other)(lambda: _set(acc, _part(existing, row, column, acc.shape, all_rows)))
            applied = applied and _where_not(other, applied)
        store_tile(acc, scratch["staging"].at[group], out, row, column, rows, applied)

    grid = (math.prod(plane),)
    brought = factor if scales.of_blocks else None
    PersistentProduct(config, ring, grid, tile_at, sources, multiply, store, REGISTERS, factor=brought).run(group)


def _where_not(other: Value, factor: Callable[[int, int], Value]) -> Callable[[int, int], Value]:
    """A factor that is replaced by 1 where a condition holds: earlier sums are scaled already."""
    return lambda first, count: jnp.where(other, 1.0, factor(first, count))


def _gmm_of_some_kernel(
    sizes: Ref,
    lhs: Ref,
    rhs: Ref,
    *refs: Ref,
    problem: GroupedProblem,
    present: Value | None = None,
    **scratch: Any,
) -> None:
    *others, out = refs
    _gmm_kernel(sizes, lhs, rhs, out, problem, *problem.selection.refs(others), present, **scratch)


# tgmm.


def _set(acc: Ref, value: Value) -> None:
    acc[...] = value


def _part(array: Ref, row: Value, column: Value, shape: tuple[int, int], end: Value | None = None) -> Value:
    """f32 of this shape: a part of a matrix in global memory, 0 outside the matrix, and in rows from `end`."""
    ends = array.shape[0] if end is None else end, array.shape[1]
    inside = [first + jnp.arange(count) < extent for first, count, extent in zip((row, column), shape, ends)]
    mask = jnp.broadcast_to(inside[0][:, None], shape) & jnp.broadcast_to(inside[1][None, :], shape)
    part = array.at[pl.ds(row, shape[0]), pl.ds(column, shape[1])]
    return plgpu.load(part, mask=mask, other=0.0).astype(jnp.float32)


def _tgmm_tile(
    problem: GroupedProblem, sizes: Value, first: Value, group: Value, row: Value, column: Value, unit: int
) -> OutputTile:
    """The tile of tgmm at a row and column, in tiles, of a group's matrix.

    Args:
        unit: the sum begins at a multiple of as many rows, with rows of earlier groups.
    """
    config = problem.config
    number = jnp.arange(problem.selection.total)
    chosen = group + first
    size = jnp.sum(jnp.where(number == chosen, sizes, 0))
    first_row = jnp.sum(jnp.where(number < chosen, sizes, 0))
    skipped = lax.rem(first_row, jnp.int32(unit)) if unit > 1 else 0
    rows = jnp.where(size > 0, size + skipped, 0)
    return OutputTile(
        group=group,
        first_row=pl.multiple_of(first_row - skipped, unit),
        skipped=skipped,
        rows=rows,
        row=row * config.tile_m,
        column=column * config.tile_n,
        steps=_parts(rows, config.tile_k),
        active=True,  # the matrix of a group without rows is zero
    )


def _tgmm_kernel(
    sizes: Ref,
    lhs: Ref,
    rhs: Ref,
    out: Ref,
    problem: GroupedProblem,
    first: Value = 0,
    existing: Ref | None = None,
    row_of: Ref | None = None,
    **scratch: Any,
) -> None:
    """One persistent block of tgmm, for the groups from `first`, with optional existing values and a list of rows."""
    config, by_rows = problem.config, problem.by_rows
    plane = problem.tgmm_plane
    ring = Ring.of(scratch, "operands", config.shared)
    known_sizes = sizes[...]
    group = pl.axis_index("warpgroup")
    # Rows are the last axis of `lhs`, along which the copy engine begins at a multiple of 16 bytes.
    unit = 1 if by_rows else COPIED_BYTES // lhs.dtype.itemsize

    def tile_at(info: plgpu.NDLoopInfo) -> OutputTile:
        return _tgmm_tile(problem, known_sizes, first, info.index[0], *config.raster(info.index[1], *plane), unit)

    def rows_of(operand: int, tile: OutputTile, step: Value) -> Value:
        rows = pl.ds(tile.first_row + step * config.tile_k, config.tile_k)
        if row_of is None or operand != problem.gathered:
            return rows
        inside = jnp.arange(config.tile_k) < tile.rows - step * config.tile_k
        return plgpu.load(row_of.at[rows], mask=inside, other=0)

    def sources(tile: OutputTile, step: Value) -> tuple[Ref, Ref]:
        rows, columns = rows_of(0, tile, step), pl.ds(tile.row, config.tile_m)
        left = lhs.at[rows, columns] if by_rows else lhs.at[columns, rows]
        return left, rhs.at[rows_of(1, tile, step), pl.ds(tile.column, config.tile_n)]

    def multiply(acc: Ref, tile: OutputTile, step: Value, lhs_block: Ref, rhs_block: Ref) -> None:
        skipped, rest = tile.skipped - step * config.tile_k, tile.rows - step * config.tile_k

        @pl.when((skipped > 0) | (rest < config.tile_k))
        def _() -> None:
            # Zero the rows of other groups in both operands, since 0 times an infinity is a NaN.
            pl.when(group == 0)(lambda: _clear(lhs_block, 0 if by_rows else 1, skipped, rest))
            pl.when(group == 1)(lambda: _clear(rhs_block, 0, skipped, rest))
            plgpu.commit_smem()
            plgpu.barrier_arrive_and_wait(scratch["cleared"])

        plgpu.wgmma(acc, *config.own_operands(group, lhs_block.T if by_rows else lhs_block, rhs_block))

    def store(acc: Ref, tile: OutputTile) -> None:
        row, column = config.own_corner(group)
        row, column = tile.row + row, tile.column + column
        if existing is not None:
            _set(acc, acc[...] + _part(existing.at[tile.group], row, column, acc.shape))
        store_tile(acc, scratch["staging"].at[group], out.at[tile.group], row, column)

    grid = (problem.groups, math.prod(plane))
    PersistentProduct(config, ring, grid, tile_at, sources, multiply, store, REGISTERS).run(group)


def _tgmm_of_some_kernel(sizes: Ref, lhs: Ref, rhs: Ref, *refs: Ref, problem: GroupedProblem, **scratch: Any) -> None:
    *others, out = refs
    first, existing, _ = problem.selection.refs(others)
    _tgmm_kernel(sizes, lhs, rhs, out, problem, first, existing, **scratch)


def _tgmm_gathered_kernel(
    sizes: Ref, row_of: Ref, lhs: Ref, rhs: Ref, out: Ref, problem: GroupedProblem, **scratch: Any
) -> None:
    _tgmm_kernel(sizes, lhs, rhs, out, problem, row_of=row_of, **scratch)


def _clear(block: Ref, axis: int, first: Value, end: Value) -> None:
    """Write zeros to a block outside of a range along an axis.

    Parts of a few rows or columns inside of the range are left alone. The others are read and written by vectors, which
    takes less time than the products in flight; a store under a mask has single elements.
    """
    extent = block.shape[axis]
    count = math.gcd(extent, CLEARED)
    for start in range(0, extent, count):

        @pl.when((start < first) | (start + count > end))
        def _(start: int = start) -> None:
            part = block.at[pl.ds(start, count)] if axis == 0 else block.at[:, pl.ds(start, count)]
            number = start + lax.broadcasted_iota(jnp.int32, part.shape, axis)
            inside = (number >= first) & (number < end)
            part[...] = jnp.where(inside, part[...], jnp.zeros((), block.dtype))


@pl.checked_call
def gmm(
    lhs: Array,
    rhs: Array,
    group_sizes: Array,
    preferred_element_type: Any = None,
    config: MatmulConfig | None = None,
    transpose_rhs: bool = False,
    interpret: Any = None,
    *,
    lhs_scale: Any = None,
    rhs_scale: Any = None,
    group_offset: Any = None,
    existing_out: Array | None = None,
    out: Array | None = None,
) -> Array:
    """Grouped matrix product: each row of `lhs` times the matrix of its group.

    Args:
        lhs: `dtype[m, k]`, float16, bfloat16, float32, float8_e4m3fn or float8_e5m2, rows sorted by group.
        rhs: `dtype[g, k, n]`, or `dtype[g, n, k]` with `transpose_rhs`, which 8-bit floats require. Transposed views of
            tensors of 16-bit floats are read in place.
        group_sizes: `i32[groups]`, the number of rows of each group; they sum to at most m and may be zero. What is
            traced is checked only with `palladio.enable_debug_checks`, while the program runs.
        preferred_element_type: the dtype of the result. By default that of `existing_out`, or of `lhs`; bfloat16 for
            8-bit floats. Products are summed in float32.
        config: the division of the product; tiles are along m, n and k.
        transpose_rhs: multiply with the transposes of the matrices.
        interpret: as in `palladio.gpu.kernel`.
        lhs_scale, rhs_scale: factors, float32, as in `matmul`: one for the array, `f32[]`; for each row of `lhs`,
            `f32[m]`, and for each matrix, `f32[g]`, or each column of it, `f32[g, n]`; or one for each 128 of k,
            `f32[k / 128, m]` and `f32[g, n / 128, k / 128]`, rounded up.
        group_offset: `i32[]`: `rhs` holds the matrices of groups `[group_offset, group_offset + g)` of a longer
            `group_sizes`. For a number, the kernel is specialised; an array on a GPU is read there, unchecked.
        existing_out: `preferred_element_type[m, n]`: rows of no group of `rhs` keep its values. It is not changed.
        out: an array for the result, which is returned: of its shape and dtype, in row-major order.

    Returns:
        `preferred_element_type[m, n]`. Rows that belong to no group of `rhs` are zero, or those of `existing_out`.

    Raises:
        PalladioValueError, PalladioTypeError: shapes, dtypes or sizes that do not fit; an invalid configuration.
    """
    transpose_rhs = require_flag(transpose_rhs, "transpose_rhs")
    number, further = _further(group_offset, existing_out)
    factors = [each for each in (lhs_scale, rhs_scale) if each is not None]
    arrays = group_sizes, lhs, rhs, *further, *factors
    key = "gmm", preferred_element_type, config, transpose_rhs, number, existing_out is None, lhs_scale is None
    if (kept := kept_call(key, interpret, arrays, out)) is not None:
        return kept
    m, k, n, groups = grouped_sizes(lhs, rhs, transpose_rhs)
    matrices, transposed = as_in_memory(rhs, transpose_rhs)
    sizes = group_sizes_of(group_sizes, m)
    selection, further = _selection(group_offset, existing_out, groups, sizes.shape[0])
    require_last_axis(dtype_of(lhs), transpose_rhs, "rhs", f"[g, n, {k}]")
    scales, factors = scales_of(lhs_scale, rhs_scale, m, n, k, groups, ("lhs_scale", "rhs_scale"))
    dtype = _result_dtype(lhs, rhs, preferred_element_type, (*FLOATS, *FLOATS_OF_8_BITS), existing_out)

    def divided(rows: int) -> MatmulConfig:
        each = pl.cdiv(rows, max(selection.total, 1))
        product = Product(each, n, k, dtype_of(lhs), dtype, groups, ("n",), scales.of_blocks)
        return _divided("gmm", config, product, transposed)

    if config is not None:
        divided(m)  # checks it
    require_existing(existing_out, (m, n), dtype)
    if 0 in (m, n):
        return stored(zeros((m, n), dtype, lhs, rhs), out)
    body = _gmm_kernel if selection.of_all and not factors else _gmm_of_some_kernel

    def kernel(rows: int, counted: bool = False) -> Any:
        problem = GroupedProblem(rows, k, n, groups, divided(rows), transposed, selection, scales)
        blocks, tiles = problem.gmm_blocks(dtype_of(lhs), dtype_of(rhs)), math.prod(problem.gmm_plane)
        launch = functools.partial(_kernel, body, problem, (rows, n), dtype, blocks, tiles, interpret)
        return Divided(counting(launch) if counted else launch(), problem.config)

    bucket = RowBucket.of(m, {1: 0}, (k * dtype_of(lhs).itemsize, n * dtype.itemsize), kernel)
    if bucket is not None and (counted := _counted_rows(selection, scales, len(further), m, factors)):
        bucket = bucket.counting(counted, functools.partial(kernel, counted=True))
    seen = {"operands": (sizes, lhs, matrices, *further, *factors), "made_of": (*key[:3], transposed, *key[4:])}
    return called(key, functools.partial(kernel, m), interpret, arrays, (m, n), out, bucket=bucket, **seen)


def _counted_rows(
    selection: Selection, scales: Scales, further: int, m: int, factors: Sequence[Array]
) -> dict[int, tuple[int, int]]:
    """The operands of gmm whose rows threads access, as in `RowBucket`.

    Args:
        further: the number of operands between the matrices and the factors, existing values last.
    """
    found = {2 + further: (0, 1)} if selection.existing else {}
    return {**found, 3 + further: (0, factors[0].shape[0] // m)} if scales.of_rows else found


@pl.checked_call
def tgmm(
    lhs: Array,
    rhs: Array,
    group_sizes: Array,
    preferred_element_type: Any = None,
    config: MatmulConfig | None = None,
    interpret: Any = None,
    *,
    group_offset: Any = None,
    num_actual_groups: int | None = None,
    existing_out: Array | None = None,
    out: Array | None = None,
) -> Array:
    """Transposed grouped matrix product: for each group, its columns of `lhs` times its rows of `rhs`.

    Args:
        lhs: `dtype[k, m]`, float16, bfloat16 or float32, columns sorted by group. Floats of 16 bits are read in place,
            too, where it is `x.T` of a tensor of PyTorch `x[m, k]` in row-major order.
        rhs: `dtype[m, n]`, rows sorted by group.
        group_sizes: `i32[groups]`, the number of rows of each group; they sum to at most m and may be zero. What is
            traced is checked only with `palladio.enable_debug_checks`, while the program runs.
        preferred_element_type: the dtype of the result, that of `existing_out` or `lhs` by default. Products are summed
            in float32.
        config: the division of the product; `tile_m` and `tile_n` are along k and n, of the result, and `tile_k` is
            along m, the contracted axis.
        interpret: as in `palladio.gpu.kernel`.
        group_offset: `i32[]`, the first group to compute, as in `gmm`.
        num_actual_groups: the number of groups to compute; by default all from `group_offset`.
        existing_out: `preferred_element_type[g, k, n]`, to which the products are added. It is not changed.
        out: an array for the result, which is returned: of its shape and dtype, in row-major order.

    Returns:
        `preferred_element_type[g, k, n]` of `g = num_actual_groups`. The product of a group without rows is zero.

    Raises:
        PalladioValueError, PalladioTypeError: shapes, dtypes or sizes that do not fit; a configuration that makes no
            sense or does not fit into a block.
    """
    number, further = _further(group_offset, existing_out)
    arrays = group_sizes, lhs, rhs, *further
    key = "tgmm", preferred_element_type, config, number, num_actual_groups, existing_out is None
    kept = kept_call(key, interpret, arrays, out)
    if kept is not None:
        return kept
    k, m = require_array(lhs, "lhs", 2, "[k, m]")
    rows, n = require_array(rhs, "rhs", 2, "[m, n]")
    if rows != m:
        rule, wanted = "does not multiply with lhs", f"[{m}, n]"
        raise fail(pl.PalladioValueError, rule, argument="rhs", expected=wanted, got=(rows, n))
    sizes = group_sizes_of(group_sizes, m)
    groups = group_count(num_actual_groups, sizes.shape[0], group_offset)
    selection, further = _selection(group_offset, existing_out, groups, sizes.shape[0])

    dtype = _result_dtype(lhs, rhs, preferred_element_type, FLOATS, existing_out)

    def divided(rows: int) -> MatmulConfig:
        sizes = k, n, pl.cdiv(rows, max(selection.total, 1))
        return _divided("tgmm", config, Product(*sizes, dtype_of(lhs), dtype, groups))

    if config is not None:
        divided(m)  # checks it
    require_existing(existing_out, (groups, k, n), dtype)
    if 0 in (k, n):
        return stored(zeros((groups, k, n), dtype, lhs, rhs), out)
    left, by_rows = as_in_memory(lhs)
    body, operand = _tgmm_kernel if selection.of_all else _tgmm_of_some_kernel, dtype_of(lhs)

    def kernel(rows: int) -> Any:
        problem = GroupedProblem(rows, k, n, groups, divided(rows), selection=selection, by_rows=by_rows)
        return Divided(_tgmm_call(body, problem, operand, dtype, interpret), problem.config)

    widths = (k if by_rows else m) * operand.itemsize, n * operand.itemsize
    bucket = RowBucket.of(m, {1: 0 if by_rows else 1, 2: 0}, widths, kernel, result=None)
    given, whole = (sizes, left, rhs, *further), functools.partial(kernel, m)
    made_of = (*key, "by_rows") if by_rows else key
    return called(key, whole, interpret, arrays, (groups, k, n), out, operands=given, bucket=bucket, made_of=made_of)


def _tgmm_call(body: Any, problem: GroupedProblem, operand: Any, dtype: Any, interpret: Any) -> Any:
    """The launch of tgmm, a function of the group sizes and the operands."""
    tiles = problem.groups * math.prod(problem.tgmm_plane)
    shape, blocks = (problem.groups, problem.depth, problem.columns), problem.tgmm_blocks(operand)
    return _kernel(body, problem, shape, dtype, blocks, tiles, interpret)


def gathered_tgmm(
    sizes: Array, row_of: Array, lhs: Array, rhs: Array, gathered: int, dtype: Any, interpret: Any
) -> Array:
    """For each group, the transpose of its rows of `lhs` times its rows of `rhs`, both with 16-bit elements.

    Args:
        sizes: `i32[g]`, the rows of each group.
        row_of: `i32[m]`, for each row of the sum its row of the operand that is `gathered`.
        lhs, rhs: `dtype[m, k]` and `dtype[m, n]`.
        gathered: 0 or 1, the operand with gathered rows, which may have another number of rows.

    Returns:
        `dtype[g, k, n]`; zero for a group without rows.
    """
    (m,), groups, (k, n) = row_of.shape, sizes.shape[0], (each.shape[1] for each in (lhs, rhs))
    dtype, operand = _result_dtype(lhs, rhs, dtype), dtype_of(lhs)
    config = _divided("gathered_tgmm", None, Product(k, n, pl.cdiv(m, groups), operand, dtype, groups, ()))
    problem = GroupedProblem(m, k, n, groups, config, selection=Selection(groups), by_rows=True, gathered=gathered)
    return _tgmm_call(_tgmm_gathered_kernel, problem, operand, dtype, interpret)(sizes, row_of, lhs, rhs)


def _further(group_offset: Any, existing_out: Array | None) -> tuple[Any, list[Array]]:
    """The first group if it is a number of the host, and the optional arrays of a call."""
    number = None if hasattr(group_offset, "dtype") else group_offset
    further = [] if group_offset is number else [group_offset]
    return number, further if existing_out is None else [*further, existing_out]


def _selection(group_offset: Any, existing_out: Array | None, groups: int, total: int) -> tuple[Selection, list[Array]]:
    """The groups to compute, and the optional operands of the kernel."""
    existing = [] if existing_out is None else [existing_out]
    if group_offset is None and groups != total:
        rule, got = "there is one matrix for each group", f"{total} sizes"
        raise fail(pl.PalladioValueError, rule, argument="group_sizes", expected=f"{groups} sizes", got=got)
    if pl.is_on_gpu(group_offset):
        return Selection(total, None, bool(existing)), [offset_on_gpu(group_offset), *existing]
    offset = group_offset_of(group_offset, groups, total)
    if pl.is_traced(offset):
        return Selection(total, None, bool(existing)), [offset, *existing]
    return Selection(total, int(offset), bool(existing)), existing


def _result_dtype(
    lhs: Array, rhs: Array, preferred: Any, operands: Sequence[Any] = FLOATS, existing_out: Array | None = None
) -> Any:
    """The dtype of the result, after checks of the operands.

    Args:
        operands: the supported dtypes of operands.
    """
    require_operand(lhs, "lhs", dtypes=operands)
    require_operand(rhs, "rhs", like=lhs, dtypes=operands)
    if preferred is None and existing_out is not None:
        preferred = existing_out.dtype
    return product_dtype(preferred, dtype_of(lhs), scaled=False)


def _divided(function: str, config: MatmulConfig | None, product: Product, transposed: bool = False) -> MatmulConfig:
    """The checked configuration of a product, `division`'s for None; arguments as in `division`."""
    chosen = division(function, product, transposed) if config is None else config
    if product.scaled:
        require_scaled_config(chosen)
    return require_matmul_config(chosen, product.operand, product.result, product.clusters)


def _kernel(
    body: Any,
    problem: GroupedProblem,
    shape: tuple[int, ...],
    dtype: Any,
    blocks: Sequence[Any],
    tiles: int,
    interpret: Any,
    present: Value | None = None,
) -> Any:
    """The launch, a function of the group sizes and the operands; `present` as in `_gmm_kernel`."""
    config, count = problem.config, {} if present is None else {"present": present}
    scratch = {
        **ring_scratch("operands", blocks, config.stages, config.mesh.get("cluster_names", ())),
        "staging": config.staging(dtype),
        "cleared": plgpu.Barrier(num_arrivals=COMPUTE_GROUPS),
    }
    return plgpu.kernel(
        functools.partial(body, problem=problem, **count),
        pl.ShapeDtypeStruct(shape, dtype),
        scratch_types=scratch,
        grid=(config.clusters(tiles),),
        grid_names=("block",),
        **config.mesh,
        num_threads=COMPUTE_GROUPS + 1,
        thread_name="warpgroup",
        interpret=interpret,
        name=body.__name__.strip("_").removesuffix("_kernel"),
    )
