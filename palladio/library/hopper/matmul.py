"""Dense matrix product: persistent blocks whose operands are fetched ahead of them, in clusters of two.

The tiles of the result are dealt out to the blocks in an order that keeps the operands in the second-level cache.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.library.checks import dtype_of, fail, float_dtype, require_array, zeros
from palladio.library.hopper.config import MatmulConfig, default_config, require_matmul_config
from palladio.library.hopper.epilogue import store_tile
from palladio.library.hopper.limits import COMPUTE_GROUPS, COMPUTE_REGISTERS, MEMORY_REGISTERS, require_operand
from palladio.library.hopper.persistent import OutputTile, PersistentProduct
from palladio.library.hopper.ring import Ring, ring_scratch

Ref = Any
Value = Any


@dataclass(frozen=True)
class _Problem:
    """The problem that a kernel is made for: `x[m, k] @ y[k, n]`."""

    m: int
    n: int
    k: int
    config: MatmulConfig

    @property
    def plane(self) -> tuple[int, int]:
        """The result in tiles of a whole cluster."""
        return self.config.plane(pl.cdiv(self.m, self.config.tile_m), pl.cdiv(self.n, self.config.tile_n))

    def tile(self, info: plgpu.NDLoopInfo) -> OutputTile:
        """This block's tile at a step of the walk."""
        config = self.config
        row, column = config.raster(info.index[0], *self.plane)
        first = row * config.tile_m
        steps = pl.cdiv(self.k, config.tile_k)
        return OutputTile(jnp.int32(0), first, config.tile_m, first, column * config.tile_n, steps, True)


def _matmul_kernel(x: Ref, y: Ref, out: Ref, problem: _Problem, **scratch: Any) -> None:
    """One persistent block."""
    config = problem.config
    group = pl.axis_index("warpgroup")

    def sources(tile: OutputTile, step: Value) -> tuple[Ref, Ref]:
        depth = pl.ds(step * config.tile_k, config.tile_k)
        return x.at[pl.ds(tile.row, config.tile_m), depth], y.at[depth, pl.ds(tile.column, config.tile_n)]

    def multiply(acc: Ref, tile: OutputTile, step: Value, x_block: Ref, y_block: Ref) -> None:
        plgpu.wgmma(acc, *config.own_operands(group, x_block, y_block))

    def store(acc: Ref, tile: OutputTile) -> None:
        row, column = config.own_corner(group)
        store_tile(acc, scratch["staging"].at[group], out, tile.row + row, tile.column + column)

    ring = Ring.of(scratch, "operands", config.shared)
    grid = (math.prod(problem.plane),)
    registers = COMPUTE_REGISTERS, MEMORY_REGISTERS
    PersistentProduct(config, ring, grid, problem.tile, sources, multiply, store, registers).run(group)


@pl.checked_call
def matmul(
    x: Any, y: Any, *, preferred_element_type: Any = None, config: MatmulConfig | None = None, interpret: Any = None
) -> Any:
    """The product `x @ y`.

    Args:
        x: `dtype[m, k]`, float16, bfloat16 or float32.
        y: `dtype[k, n]`.
        preferred_element_type: the dtype of the result, that of `x` by default. Products are summed in float32.
        config: how the product is divided.
        interpret: as in `palladio.gpu.kernel`.

    Returns:
        `preferred_element_type[m, n]`.

    Raises:
        PalladioValueError, PalladioTypeError: shapes that do not multiply, dtypes that the tensor cores do not, a
            configuration that makes no sense or does not fit into a block.
    """
    m, k = require_array(x, "x", 2, "[m, k]")
    rows, n = require_array(y, "y", 2, "[k, n]")
    if rows != k:
        rule, wanted = "the matrices do not multiply", f"[{k}, n]"
        raise fail(pl.PalladioValueError, rule, argument="y", expected=wanted, got=(rows, n))
    require_operand(x, "x")
    require_operand(y, "y", like=x)
    operand = dtype_of(x)
    dtype = operand if preferred_element_type is None else float_dtype(preferred_element_type, "preferred_element_type")
    config = require_matmul_config(config, default_config(m, n, operand), operand, dtype)
    if 0 in (m, k, n):
        return zeros((m, n), dtype, x, y)
    problem = _Problem(m, n, k, config)
    return _kernel(problem, operand, dtype, interpret)(x, y)


def _kernel(problem: _Problem, operand: Any, dtype: Any, interpret: Any) -> Any:
    """The launch, a function of `x` and `y`."""
    config = problem.config
    blocks = [(config.tile_m, config.tile_k), (config.tile_k, config.tile_n)]
    peers = config.mesh.get("cluster_names", ())
    scratch = {
        **ring_scratch("operands", blocks, operand, config.stages, peers),
        "staging": config.staging(dtype),
    }
    return plgpu.kernel(
        functools.partial(_matmul_kernel, problem=problem),
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
