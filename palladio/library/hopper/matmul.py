"""Dense matrix product: persistent blocks, a pipeline of two computing warpgroups and one that moves memory.

The tiles of the result are dealt out to the blocks in an order that keeps the operands in the second-level cache. One
product stays in flight in each computing warpgroup (`delay_release=1`), and while these write a tile the memory
warpgroup fetches for the next.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
from palladio.library.checks import dtype_of, fail, float_dtype, require_array, zeros
from palladio.library.hopper.config import MatmulConfig, require_matmul_config
from palladio.library.hopper.epilogue import store_tile
from palladio.library.hopper.limits import COMPUTE_GROUPS, MEMORY_REGISTERS, require_operand

Ref = Any
Value = Any

CLUSTER_BLOCKS = 2
PEERS = ("peer",)
IN_FLIGHT = 1
"""Products of a warpgroup that are in flight while the next one is issued."""


@dataclass(frozen=True)
class _Problem:
    """The problem that a kernel is made for: `x[m, k] @ y[k, n]`."""

    m: int
    n: int
    k: int
    config: MatmulConfig

    @property
    def cluster(self) -> tuple[int, int]:
        """The blocks of a cluster along the rows and columns of the result."""
        axis = self.config.cluster
        return (CLUSTER_BLOCKS if axis == "m" else 1), (CLUSTER_BLOCKS if axis == "n" else 1)

    @property
    def plane(self) -> tuple[int, int]:
        """The result in tiles of a whole cluster."""
        rows, columns = self.cluster
        return pl.cdiv(self.m, self.config.tile_m * rows), pl.cdiv(self.n, self.config.tile_n * columns)

    @property
    def clusters(self) -> int:
        """The number of clusters, or blocks where there are none, that share the tiles."""
        rows, columns = self.plane
        return min(max(1, self.config.blocks // (self.cluster[0] * self.cluster[1])), rows * columns)

    def tile(self, step: Value) -> tuple[Value, Value]:
        """Row and column, in tiles, of this block's tile at a step."""
        row, column = self.config.raster(step, *self.plane)
        if self.config.cluster is None:
            return row, column
        peer = pl.axis_index("peer")
        return (
            (row * CLUSTER_BLOCKS + peer, column)
            if self.config.cluster == "m"
            else (row, column * CLUSTER_BLOCKS + peer)
        )


def _pipeline(problem: _Problem, row: Value, column: Value, group: Value, context: Any) -> Any:
    """The sum over k for one tile: a function of the references to x and y."""
    config = problem.config

    def multiply(_: Any, x_block: Ref, y_block: Ref, acc: Ref) -> Ref:
        plgpu.wgmma(acc, *config.own_operands(group, x_block, y_block))
        plgpu.wgmma_wait(IN_FLIGHT)
        return acc

    def spec(block: tuple[int, int], index_map: Any, shared_along: str) -> Any:
        # Blocks of a cluster with the same columns need the same part of y, those with the same rows the same of x.
        axes = PEERS if config.cluster == shared_along else ()
        return plgpu.BlockSpec(block, index_map, delay_release=IN_FLIGHT, collective_axes=axes)

    return plgpu.emit_pipeline_warp_specialized(
        multiply,
        grid=(pl.cdiv(problem.k, config.tile_k),),
        memory_registers=MEMORY_REGISTERS,
        in_specs=[
            spec((config.tile_m, config.tile_k), lambda step: (row, step), "n"),
            spec((config.tile_k, config.tile_n), lambda step: (step, column), "m"),
        ],
        max_concurrent_steps=config.stages,
        wg_axis="warpgroup",
        num_compute_wgs=COMPUTE_GROUPS,
        compute_context=context,
    )


def _matmul_kernel(x: Ref, y: Ref, out: Ref, staging: Ref, problem: _Problem) -> None:
    """One persistent block."""
    config = problem.config
    group = pl.axis_index("warpgroup")

    def walk(allocations: Any) -> None:
        @plgpu.nd_loop((problem.plane[0] * problem.plane[1],), collective_axes="block")
        def _(info: plgpu.NDLoopInfo) -> None:
            row, column = problem.tile(info.index[0])

            def compute(pipeline: Any) -> None:
                def scoped(acc: Ref) -> None:
                    pipeline(acc)
                    own_row, own_column = config.own_corner(group)
                    corner = row * config.tile_m + own_row, column * config.tile_n + own_column
                    store_tile(acc, staging.at[group], out, *corner)

                pl.run_scoped(scoped, plgpu.ACC(config.own_shape))

            _pipeline(problem, row, column, group, compute)(x, y, allocations=allocations)

        plgpu.wait_smem_to_gmem(0)

    # One set of buffers for all tiles, so that the memory warpgroup may begin with the next one on its own.
    allocations = _pipeline(problem, 0, 0, group, None).get_allocations(x, y)
    pl.run_scoped(walk, allocations, collective_axes="warpgroup")


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
    config = require_matmul_config(config, operand, dtype, clusters=True)
    if 0 in (m, k, n):
        return zeros((m, n), dtype, x, y)
    problem = _Problem(m, n, k, config)
    return plgpu.kernel(
        functools.partial(_matmul_kernel, problem=problem),
        pl.ShapeDtypeStruct((m, n), dtype),
        scratch_types=[config.staging(dtype)],
        grid=(problem.clusters,),
        grid_names=("block",),
        cluster=(CLUSTER_BLOCKS,) if config.cluster else (),
        cluster_names=PEERS if config.cluster else (),
        num_threads=COMPUTE_GROUPS + 1,
        thread_name="warpgroup",
        interpret=interpret,
        name="matmul",
    )(x, y)
