"""Dense matrix product: persistent blocks with prefetched operands, in clusters of two.

The tiles of the result are assigned to the blocks in an order that keeps the operands in the L2 cache.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.library.checks import dtype_of, fail, require_array, require_flag
from palladio.library.hopper.config import SPLITS, MatmulConfig, require_matmul_config
from palladio.library.hopper.epilogue import partial_scratch, store_tile, store_with_partial
from palladio.library.hopper.kept import Divided, RowBucket, called, counting, kept_call
from palladio.library.hopper.limits import (
    COMPUTE_GROUPS,
    COMPUTE_REGISTERS,
    FLOATS,
    INTEGER,
    MEMORY_REGISTERS,
    NARROW,
    as_in_memory,
    product_dtype,
    require_last_axis,
    require_operand,
)
from palladio.library.hopper.model import Product
from palladio.library.hopper.persistent import OutputTile, PersistentProduct
from palladio.library.hopper.ring import Ring, ring_scratch
from palladio.library.hopper.scales import (
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

Ref = Any
Value = Any


@dataclass(frozen=True)
class _Problem:
    """The problem of a kernel: `x[m, k] @ y[k, n]`, or `x @ y.T` of `y[n, k]`, or with `x.T` of `x[k, m]`."""

    m: int
    n: int
    k: int
    config: MatmulConfig
    transpose_rhs: bool
    scales: Scales
    sums: Any
    transpose_lhs: bool = False

    @property
    def plane(self) -> tuple[int, int]:
        """The result in tiles of a whole cluster."""
        return self.config.plane(pl.cdiv(self.m, self.config.tile_m), pl.cdiv(self.n, self.config.tile_n))

    @property
    def registers(self) -> tuple[int, int]:
        """Registers of a compute thread and of a memory thread."""
        return COMPUTE_REGISTERS, MEMORY_REGISTERS

    def blocks(self, x: Any, y: Any) -> list[Any]:
        """The blocks of a stage of the ring, for operands of these dtypes."""
        config = self.config
        y_shape = (config.tile_n, config.tile_k) if self.transpose_rhs else (config.tile_k, config.tile_n)
        x_shape = (config.tile_k, config.tile_m) if self.transpose_lhs else (config.tile_m, config.tile_k)
        found = [pl.ShapeDtypeStruct(x_shape, x), pl.ShapeDtypeStruct(y_shape, y)]
        return [*found, factor_block(config.tile_m)] if self.scales.of_blocks else found

    def tile(self, info: plgpu.NDLoopInfo) -> OutputTile:
        """This block's tile at a step of its loop."""
        config = self.config
        row, column = config.raster(info.index[0], *self.plane)
        first = row * config.tile_m
        steps = pl.cdiv(self.k, config.tile_k)
        return OutputTile(jnp.int32(0), first, config.tile_m, first, column * config.tile_n, steps, True)


def _matmul_kernel(*refs: Ref, problem: _Problem, present: Value, **scratch: Any) -> None:
    """One persistent block; `refs` are x, y, their factors, and the result.

    Args:
        present: the number of rows that have factors.
    """
    x, y, *factors, out = refs
    config, scales = problem.config, problem.scales
    scale = dict(zip(scales.given, factors, strict=True))
    group = pl.axis_index("warpgroup")
    own_row, own_column = config.own_corner(group)
    own_rows = config.own_shape[0]

    def sources(tile: OutputTile, step: Value) -> tuple[Ref, ...]:
        rows, columns = pl.ds(tile.row, config.tile_m), pl.ds(tile.column, config.tile_n)
        depth = pl.ds(step * config.tile_k, config.tile_k)
        left = x.at[depth, rows] if problem.transpose_lhs else x.at[rows, depth]
        blocks = left, y.at[columns, depth] if problem.transpose_rhs else y.at[depth, columns]
        if not scales.of_blocks:
            return blocks
        return *blocks, block_rows(scale["x"], step, tile.row, config.tile_m, present)

    def multiply(acc: Ref, tile: OutputTile, step: Value, x_block: Ref, y_block: Ref, *_: Ref) -> None:
        left = x_block.T if problem.transpose_lhs else x_block
        right = y_block.T if problem.transpose_rhs else y_block
        plgpu.wgmma(acc, *config.own_operands(group, left, right))

    def factor(tile: OutputTile, step: Value, x_block: Ref, y_block: Ref, x_factors: Ref) -> Value:
        start = step * present + tile.row
        return block_factor(scale["y"], x_factors, start, own_row, own_rows, tile.column, step)

    def store(acc: Ref, tile: OutputTile) -> None:
        row, column = tile.row + own_row, tile.column + own_column
        applied = None
        if scales.given and not scales.of_blocks:
            applied = epilogue_factor(scales, scale, row, own_rows, column, present)

        def put(partial: Ref | None = None) -> None:
            staging = scratch["staging"].at[group if config.storing > 1 else 0]
            store_tile(acc, staging, out, row, column, scale=applied, partial=partial)

        if config.split == "k":
            store_with_partial(acc, group, scratch, put)
        else:
            put()

    ring = Ring.of(scratch, "operands", (*config.shared, ())[: 3 if scales.of_blocks else 2])
    PersistentProduct(
        config,
        ring,
        grid=(math.prod(problem.plane),),
        tile_at=problem.tile,
        sources=sources,
        multiply=multiply,
        store=store,
        registers=problem.registers,
        sums=problem.sums,
        factor=factor if scales.of_blocks else None,
    ).run(group)


@pl.checked_call
def matmul(
    x: Any,
    y: Any,
    *,
    preferred_element_type: Any = None,
    config: MatmulConfig | None = None,
    transpose_rhs: bool = False,
    x_scale: Any = None,
    y_scale: Any = None,
    interpret: Any = None,
    out: Any = None,
) -> Any:
    """The product `x @ y`, or `x @ y.T`.

    Args:
        x: `dtype[m, k]`, float16, bfloat16, float32, float8_e4m3fn, float8_e5m2 or int8.
        y: `dtype[k, n]`, or `dtype[n, k]` with `transpose_rhs`, which 8-bit numbers require. The two 8-bit floats may
            be mixed. Floats of 16 bits are read in place, too, where x or y is the transposed view of a tensor of
            PyTorch in row-major order.
        preferred_element_type: the dtype of the result. By default that of `x`; bfloat16 for 8-bit floats and scaled
            integers, int32 for other integers. Products are summed in float32, those of integers in int32.
        config: the division of the product.
        transpose_rhs: multiply with the transpose of `y`.
        x_scale, y_scale: factors, float32: one for the array, `f32[]`; one for each row or column of the result,
            `f32[m]` and `f32[n]`; or one for each 128 of k, for each row of x, `f32[k / 128, m]`, and for each 128
            columns of the result for y, `f32[n / 128, k / 128]`, rounded up.
        interpret: as in `palladio.gpu.kernel`.
        out: an array for the result, of its shape and dtype, in row-major order; it is returned.

    Returns:
        `preferred_element_type[m, n]`.

    Raises:
        PalladioValueError, PalladioTypeError: shapes or dtypes that cannot be multiplied, factors that do not match
            them, a configuration that is invalid or does not fit into a block.
    """
    transpose_rhs = require_flag(transpose_rhs, "transpose_rhs")
    arrays = (x, y, *(each for each in (x_scale, y_scale) if each is not None))
    key = "matmul", preferred_element_type, config, transpose_rhs, x_scale is None
    kept = kept_call(key, interpret, arrays, out)
    if kept is not None:
        return kept
    m, k = require_array(x, "x", 2, "[m, k]", floats=False)
    n, rows = _matrix(y, transpose_rhs)
    if rows != k:
        rule, wanted = "the matrices do not multiply", f"[n, {k}]" if transpose_rhs else f"[{k}, n]"
        raise fail(pl.PalladioValueError, rule, argument="y", expected=wanted, got=tuple(y.shape))
    require_operand(x, "x", dtypes=(*FLOATS, *NARROW))
    require_operand(y, "y", like=x, dtypes=(*FLOATS, *NARROW))
    require_last_axis(dtype_of(x), transpose_rhs, "y", f"[n, {k}]")
    scales, factors = scales_of(x_scale, y_scale, m, n, k)
    dtype = product_dtype(preferred_element_type, dtype_of(x), bool(factors))
    if config is not None:
        config = require_matmul_config(config, dtype_of(x), dtype, splits=SPLITS)
    if 0 in (m, k, n):
        return stored(zeros((m, n), dtype, x, y), out)
    operands, sums = (dtype_of(x), dtype_of(y)), jnp.int32 if dtype_of(x) == INTEGER else jnp.float32
    (left, by_columns), (right, transposed) = as_in_memory(x), as_in_memory(y, transpose_rhs)

    def kernel(rows: int, counted: bool = False) -> Any:
        product = Product(rows, n, k, dtype_of(x), dtype, splits=SPLITS, scaled=scales.of_blocks)
        chosen = division("matmul", product, transposed) if config is None else config
        chosen = require_matmul_config(chosen, dtype_of(x), dtype, splits=SPLITS)
        if scales.of_blocks:
            require_scaled_config(chosen)
        problem = _Problem(rows, n, k, chosen, transposed, scales, sums, by_columns)
        launch = functools.partial(_kernel, problem, *operands, dtype, interpret)
        return Divided(counting(launch) if counted else launch(m), chosen)

    widths = (m if by_columns else k) * operands[0].itemsize, n * dtype.itemsize
    bucket = RowBucket.of(m, {0: int(by_columns)}, widths, kernel)
    if bucket is not None and scales.of_rows:
        bucket = bucket.counting({2: (0, factors[0].shape[0] // m)}, functools.partial(kernel, counted=True))
    whole = functools.partial(kernel, m)
    made_of = *key[:3], transposed, key[-1], *(["transpose_lhs"] if by_columns else [])
    given = left, right, *factors
    return called(key, whole, interpret, arrays, (m, n), out, operands=given, bucket=bucket, made_of=made_of)


def _matrix(y: Any, transposed: bool) -> tuple[int, int]:
    """The columns and rows of the right operand."""
    shape = require_array(y, "y", 2, "[n, k]" if transposed else "[k, n]", floats=False)
    return (shape[0], shape[1]) if transposed else (shape[1], shape[0])


def _kernel(problem: _Problem, x: Any, y: Any, dtype: Any, interpret: Any, present: Value) -> Any:
    """The launch, a function of `x`, `y` and their factors.

    Args:
        x, y: the dtypes of the operands.
        present: the number of rows that have factors, at most `problem.m`.
    """
    config = problem.config
    peers = config.mesh.get("cluster_names", ())
    scratch = {
        **ring_scratch("operands", problem.blocks(x, y), config.stages, peers),
        "staging": config.staging(dtype),
        **(partial_scratch(*config.own_shape, problem.sums) if config.split == "k" else {}),
    }
    return plgpu.kernel(
        functools.partial(_matmul_kernel, problem=problem, present=present),
        pl.ShapeDtypeStruct((problem.m, problem.n), dtype),
        scratch_types=scratch,
        grid=(config.clusters(math.prod(problem.plane)),),
        grid_names=("block",),
        **config.mesh,
        num_threads=COMPUTE_GROUPS + 1,
        thread_name="warpgroup",
        interpret=interpret,
        name="matmul",
    )
