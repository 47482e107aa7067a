"""Grouped matrix products: rows sorted by group, one matrix for each group, the sizes of groups known only on the GPU.

    gmm:   out[rows of g] = lhs[rows of g] @ rhs[g]
    tgmm:  out[g] = lhs[:, rows of g] @ rhs[rows of g]

Persistent blocks of three warpgroups walk through tiles of the result; each finds the group of its tile by itself, from
the group sizes in global memory. The memory warpgroup runs ahead of the computing ones across the bounds of tiles.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.library.checks import dtype_of, fail, group_sizes_of, require_array, zeros
from palladio.library.hopper.config import MatmulConfig, require_matmul_config
from palladio.library.hopper.epilogue import store_tile
from palladio.library.hopper.kept import call_key, called, kept_call
from palladio.library.hopper.limits import (
    COMPUTE_GROUPS,
    FLOATS,
    FLOATS_OF_8_BITS,
    product_dtype,
    require_last_axis,
    require_operand,
)
from palladio.library.hopper.model import Product, choose
from palladio.library.hopper.persistent import OutputTile, PersistentProduct
from palladio.library.hopper.ring import Ring, ring_scratch

REGISTERS = 224, 56
"""Registers of each thread that computes, and of each that moves memory: 2 * 224 + 56 of the 504 that three warpgroups
begin with. The memory warpgroup, too, keeps the sizes of all groups in registers; with 40 it has no room for 256."""

Array = Any
Ref = Any
Value = Any


@dataclass(frozen=True)
class _Problem:
    """The problem that a kernel is made for: `rows` sorted by group, a sum over `depth`, and `columns`.

    For tgmm the result has `depth` rows, and the sum goes over the rows of a group.
    """

    rows: int
    depth: int
    columns: int
    groups: int
    config: MatmulConfig
    transpose_rhs: bool = False

    @property
    def visits(self) -> int:
        """The most tiles of rows: each group begins one of its own, and so do rows of no group."""
        return int(pl.cdiv(self.rows, self.config.tile_m)) + self.groups

    @property
    def gmm_plane(self) -> tuple[int, int]:
        """The tiles of gmm along its rows and columns, in tiles of a whole cluster."""
        return self.config.plane(self.visits, pl.cdiv(self.columns, self.config.tile_n))

    @property
    def tgmm_plane(self) -> tuple[int, int]:
        """The tiles of one group's matrix in tgmm, in tiles of a whole cluster."""
        config = self.config
        return config.plane(pl.cdiv(self.depth, config.tile_m), pl.cdiv(self.columns, config.tile_n))


# gmm.


def _gmm_tile(problem: _Problem, sizes: Value, visit: Value, column: Value) -> OutputTile:
    """The tile of gmm that is visited: of groups in order, each cut into tiles from its own first row on.

    Behind the last group come the rows of none, which take no steps, and then visits of no rows.
    """
    tile = problem.config.tile_m
    tiles = (sizes + (tile - 1)) // tile
    passed = visit >= jnp.cumsum(tiles)
    group = jnp.sum(passed.astype(jnp.int32))
    start = jnp.sum(jnp.where(passed, sizes, 0))
    within = visit - jnp.sum(jnp.where(passed, tiles, 0))
    own = jnp.sum(jnp.where(jnp.arange(problem.groups) == group, sizes, 0))
    grouped = group < problem.groups
    size = jnp.where(grouped, own, problem.rows - start)
    first_row = start + within * tile
    rows = jnp.clip(size - within * tile, 0, tile)
    return OutputTile(
        group=jnp.minimum(group, problem.groups - 1),
        first_row=first_row,
        rows=rows,
        row=first_row,
        column=column * problem.config.tile_n,
        steps=jnp.where(grouped, pl.cdiv(problem.depth, problem.config.tile_k), 0),
        active=rows > 0,
    )


def _gmm_kernel(sizes: Ref, lhs: Ref, rhs: Ref, out: Ref, problem: _Problem, **scratch: Any) -> None:
    """One persistent block of gmm."""
    config = problem.config
    plane = problem.gmm_plane
    ring = Ring.of(scratch, "operands", config.shared)
    known_sizes = sizes[...]
    group = pl.axis_index("warpgroup")

    def tile_at(info: plgpu.NDLoopInfo) -> OutputTile:
        return _gmm_tile(problem, known_sizes, *config.raster(info.index[0], *plane))

    def sources(tile: OutputTile, step: Value) -> tuple[Ref, Ref]:
        depth = pl.ds(step * config.tile_k, config.tile_k)
        columns = pl.ds(tile.column, config.tile_n)
        matrix = rhs.at[tile.group, columns, depth] if problem.transpose_rhs else rhs.at[tile.group, depth, columns]
        return lhs.at[pl.ds(tile.first_row, config.tile_m), depth], matrix

    def multiply(acc: Ref, tile: OutputTile, step: Value, lhs_block: Ref, rhs_block: Ref) -> None:
        right = rhs_block.T if problem.transpose_rhs else rhs_block
        plgpu.wgmma(acc, *config.own_operands(group, lhs_block, right))

    def store(acc: Ref, tile: OutputTile) -> None:
        row, column = config.own_corner(group)
        rows = jnp.clip(tile.rows - row, 0, config.own_shape[0])
        store_tile(acc, scratch["staging"].at[group], out, tile.row + row, tile.column + column, rows)

    grid = (math.prod(plane),)
    PersistentProduct(config, ring, grid, tile_at, sources, multiply, store, REGISTERS).run(group)


# tgmm.


def _tgmm_tile(problem: _Problem, sizes: Value, group: Value, row: Value, column: Value) -> OutputTile:
    """The tile of tgmm at a row and column, in tiles, of a group's matrix."""
    config = problem.config
    number = jnp.arange(problem.groups)
    size = jnp.sum(jnp.where(number == group, sizes, 0))
    return OutputTile(
        group=group,
        first_row=jnp.sum(jnp.where(number < group, sizes, 0)),
        rows=size,
        row=row * config.tile_m,
        column=column * config.tile_n,
        steps=(size + (config.tile_k - 1)) // config.tile_k,
        active=True,  # the matrix of a group without rows is zero
    )


def _tgmm_kernel(sizes: Ref, lhs: Ref, rhs: Ref, out: Ref, problem: _Problem, **scratch: Any) -> None:
    """One persistent block of tgmm."""
    config = problem.config
    plane = problem.tgmm_plane
    ring = Ring.of(scratch, "operands", config.shared)
    known_sizes = sizes[...]
    group = pl.axis_index("warpgroup")

    def tile_at(info: plgpu.NDLoopInfo) -> OutputTile:
        return _tgmm_tile(problem, known_sizes, info.index[0], *config.raster(info.index[1], *plane))

    def sources(tile: OutputTile, step: Value) -> tuple[Ref, Ref]:
        rows = pl.ds(tile.first_row + step * config.tile_k, config.tile_k)
        return lhs.at[pl.ds(tile.row, config.tile_m), rows], rhs.at[rows, pl.ds(tile.column, config.tile_n)]

    def multiply(acc: Ref, tile: OutputTile, step: Value, lhs_block: Ref, rhs_block: Ref) -> None:
        rest = tile.rows - step * config.tile_k

        @pl.when(rest < config.tile_k)
        def _() -> None:
            # Rows of the next group: both operands, since no factor of 0 makes an infinity disappear.
            pl.when(group == 0)(lambda: _clear(lhs_block, 1, rest))
            pl.when(group == 1)(lambda: _clear(rhs_block, 0, rest))
            plgpu.commit_smem()
            plgpu.barrier_arrive_and_wait(scratch["cleared"])

        plgpu.wgmma(acc, *config.own_operands(group, lhs_block, rhs_block))

    def store(acc: Ref, tile: OutputTile) -> None:
        row, column = config.own_corner(group)
        target = out.at[tile.group]
        store_tile(acc, scratch["staging"].at[group], target, tile.row + row, tile.column + column)

    grid = (problem.groups, math.prod(plane))
    PersistentProduct(config, ring, grid, tile_at, sources, multiply, store, REGISTERS).run(group)


def _clear(block: Ref, axis: int, first: Value) -> None:
    """Write zeros to a block from an index on along an axis."""
    number = jnp.reshape(jnp.arange(block.shape[axis]), (-1, 1) if axis == 0 else (1, -1))
    plgpu.store(block, jnp.zeros(block.shape, block.dtype), mask=jnp.broadcast_to(number >= first, block.shape))


@pl.checked_call
def gmm(
    lhs: Array,
    rhs: Array,
    group_sizes: Array,
    preferred_element_type: Any = None,
    config: MatmulConfig | None = None,
    transpose_rhs: bool = False,
    interpret: Any = None,
) -> Array:
    """Grouped matrix product: each row of `lhs` times the matrix of its group.

    Args:
        lhs: `dtype[m, k]`, float16, bfloat16, float32, float8_e4m3fn or float8_e5m2, rows sorted by group.
        rhs: `dtype[g, k, n]`, or `dtype[g, n, k]` with `transpose_rhs`; with floats of 8 bits only that.
        group_sizes: `i32[g]`, the number of rows of each group; they sum to at most m and may be zero. What is traced
            is checked only with `palladio.enable_debug_checks`, while the program runs.
        preferred_element_type: the dtype of the result. By default that of `lhs`; bfloat16 of floats of 8 bits.
            Products are summed in float32.
        config: how the product is divided; tiles are along m, n and k.
        transpose_rhs: multiply with the transposes of the matrices.
        interpret: as in `palladio.gpu.kernel`.

    Returns:
        `preferred_element_type[m, n]`. Rows after the last group are zero.

    Raises:
        PalladioValueError, PalladioTypeError: shapes, dtypes or sizes that do not fit; a configuration that makes no
            sense or does not fit into a block.
    """
    arrays = group_sizes, lhs, rhs
    key = call_key("gmm", arrays, preferred_element_type, config, transpose_rhs)
    kept = kept_call(key, interpret, arrays)
    if kept is not None:
        return kept(*arrays)
    m, k = require_array(lhs, "lhs", 2, "[m, k]")
    groups, *matrix = require_array(rhs, "rhs", 3, "[g, n, k]" if transpose_rhs else "[g, k, n]")
    inner, n = reversed(matrix) if transpose_rhs else matrix
    if inner != k:
        wanted = f"[g, n, {k}]" if transpose_rhs else f"[g, {k}, n]"
        rule = "does not multiply with lhs"
        raise fail(pl.PalladioValueError, rule, argument="rhs", expected=wanted, got=tuple(rhs.shape))
    sizes = group_sizes_of(group_sizes, m)
    if groups != sizes.shape[0]:
        rule, got = "there is one matrix for each group", f"{sizes.shape[0]} sizes"
        raise fail(pl.PalladioValueError, rule, argument="group_sizes", expected=f"{groups} sizes", got=got)
    require_last_axis(dtype_of(lhs), transpose_rhs, "rhs", f"[g, n, {k}]")
    dtype, config = _checked(
        lhs,
        rhs,
        preferred_element_type,
        config,
        (pl.cdiv(m, max(groups, 1)), n, k, groups),
        ("n",),
        (*FLOATS, *FLOATS_OF_8_BITS),
    )
    if 0 in (m, n):
        return zeros((m, n), dtype, lhs, rhs)
    problem = _Problem(m, k, n, groups, config, bool(transpose_rhs))
    rhs_block = (config.tile_n, config.tile_k) if transpose_rhs else (config.tile_k, config.tile_n)
    blocks = [
        pl.ShapeDtypeStruct((config.tile_m, config.tile_k), dtype_of(lhs)),
        pl.ShapeDtypeStruct(rhs_block, dtype_of(rhs)),
    ]
    tiles = math.prod(problem.gmm_plane)
    call = _kernel(_gmm_kernel, problem, (m, n), dtype, blocks, tiles, interpret)
    return called(key, call, interpret, (sizes, lhs, rhs))


@pl.checked_call
def tgmm(
    lhs: Array,
    rhs: Array,
    group_sizes: Array,
    preferred_element_type: Any = None,
    config: MatmulConfig | None = None,
    interpret: Any = None,
) -> Array:
    """Transposed grouped matrix product: for each group, its columns of `lhs` times its rows of `rhs`.

    Args:
        lhs: `dtype[k, m]`, float16, bfloat16 or float32, columns sorted by group.
        rhs: `dtype[m, n]`, rows sorted by group.
        group_sizes: `i32[g]`, the number of rows of each group; they sum to at most m and may be zero. What is traced
            is checked only with `palladio.enable_debug_checks`, while the program runs.
        preferred_element_type: the dtype of the result, that of `lhs` by default. Products are summed in float32.
        config: how the product is divided; `tile_m` and `tile_n` are along k and n, of the result, and `tile_k` is
            along m, which is summed over.
        interpret: as in `palladio.gpu.kernel`.

    Returns:
        `preferred_element_type[g, k, n]`. The matrix of a group without rows is zero.

    Raises:
        PalladioValueError, PalladioTypeError: shapes, dtypes or sizes that do not fit; a configuration that makes no
            sense or does not fit into a block.
    """
    arrays = group_sizes, lhs, rhs
    key = call_key("tgmm", arrays, preferred_element_type, config)
    kept = kept_call(key, interpret, arrays)
    if kept is not None:
        return kept(*arrays)
    k, m = require_array(lhs, "lhs", 2, "[k, m]")
    rows, n = require_array(rhs, "rhs", 2, "[m, n]")
    if rows != m:
        rule, wanted = "does not multiply with lhs", f"[{m}, n]"
        raise fail(pl.PalladioValueError, rule, argument="rhs", expected=wanted, got=(rows, n))
    sizes = group_sizes_of(group_sizes, m)
    groups = sizes.shape[0]
    dtype, config = _checked(
        lhs, rhs, preferred_element_type, config, (k, n, pl.cdiv(m, max(groups, 1)), groups), ("m", "n")
    )
    if 0 in (k, n):
        return zeros((groups, k, n), dtype, lhs, rhs)
    problem = _Problem(m, k, n, groups, config)
    shapes = (config.tile_m, config.tile_k), (config.tile_k, config.tile_n)
    blocks = [pl.ShapeDtypeStruct(shape, dtype_of(lhs)) for shape in shapes]
    tiles = groups * math.prod(problem.tgmm_plane)
    call = _kernel(_tgmm_kernel, problem, (groups, k, n), dtype, blocks, tiles, interpret)
    return called(key, call, interpret, (sizes, lhs, rhs))


def _checked(
    lhs: Array,
    rhs: Array,
    preferred: Any,
    config: Any,
    matrix: tuple[int, int, int, int],
    clusters: Sequence[str],
    operands: Sequence[Any] = FLOATS,
) -> tuple[Any, MatmulConfig]:
    """The dtype of the result and the configuration.

    Args:
        matrix: the rows and columns of the result of a group, what is summed over, and the number of groups.
        clusters: the axes along which clusters may lie.
        operands: the dtypes that it multiplies.
    """
    require_operand(lhs, "lhs", dtypes=operands)
    require_operand(rhs, "rhs", like=lhs, dtypes=operands)
    operand = dtype_of(lhs)
    dtype = product_dtype(preferred, operand, scaled=False)
    if config is None:
        m, n, k, groups = matrix
        config = choose(Product(m, n, k, operand, dtype, groups, clusters))
    return dtype, require_matmul_config(config, operand, dtype, clusters)


def _kernel(
    body: Any,
    problem: _Problem,
    shape: tuple[int, ...],
    dtype: Any,
    blocks: Sequence[Any],
    tiles: int,
    interpret: Any,
) -> Any:
    """The launch, a function of the group sizes and the operands."""
    config = problem.config
    scratch = {
        **ring_scratch("operands", blocks, config.stages, config.mesh.get("cluster_names", ())),
        "staging": config.staging(dtype),
        "cleared": plgpu.Barrier(num_arrivals=COMPUTE_GROUPS),
    }
    return plgpu.kernel(
        functools.partial(body, problem=problem),
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
