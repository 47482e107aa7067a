"""Persistent matrix products: blocks that walk through tiles of a result, their operands fetched ahead of them.

A block has a warpgroup that moves memory and two that compute. Both sides walk through the same tiles and count the
steps of the sum from the start of the kernel, so that the memory warpgroup runs ahead across the bounds of tiles: while
the others write one tile, the ring already fills with the operands of the next. One product of each computing
warpgroup stays in flight while the next is issued.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.library.hopper.config import MatmulConfig
from palladio.library.hopper.limits import COMPUTE_GROUPS, MEMORY_GROUP
from palladio.library.hopper.ring import Ring

Ref = Any
Value = Any


@dataclass(frozen=True)
class OutputTile:
    """A tile of the result.

    Fields:
        group: the group it belongs to, i32[]; 0 where there is only one.
        first_row, rows: of tgmm, the rows that are summed over; of the others, the rows of the result. i32[].
        row, column: where the tile begins in the result. i32[].
        steps: how many steps the sum takes.
        active: whether there is anything to write.
    """

    group: Value
    first_row: Value
    rows: Value
    row: Value
    column: Value
    steps: Value
    active: Value


@dataclass(frozen=True)
class PersistentProduct:
    """The program of a persistent block.

    Fields:
        grid: the grid whose steps the blocks share.
        tile_at: gives the tile of a step through the grid.
        sources: (tile, step), gives what is copied into the ring.
        multiply: (acc, tile, step, *blocks), issues the product of one step.
        store: (acc, tile), starts to write the result.
        registers: of a thread that computes, and of one that moves memory.
    """

    config: MatmulConfig
    ring: Ring
    grid: tuple[int, ...]
    tile_at: Callable[[plgpu.NDLoopInfo], OutputTile]
    sources: Callable[..., tuple[Ref, ...]]
    multiply: Callable[..., None]
    store: Callable[[Ref, OutputTile], None]
    registers: tuple[int, int]

    def run(self, group: Value) -> None:
        """The program of each of the block's warpgroups."""
        computing, moving = self.registers

        @pl.when(group == MEMORY_GROUP)
        def _() -> None:
            plgpu.set_max_registers(moving, action="decrease")
            self.ring.await_drained(self.dealt(self.bring))

        @pl.when(group < COMPUTE_GROUPS)
        def _() -> None:
            plgpu.set_max_registers(computing, action="increase")
            self.dealt(self.compute)
            plgpu.wait_smem_to_gmem(0)

    def dealt(self, visit: Callable[[OutputTile, Value], None]) -> Value:
        """Visit this block's tiles, each with the number of steps before it; the number of all steps."""

        @plgpu.nd_loop(self.grid, collective_axes="block", init_carry=jnp.int32(0))
        def steps(info: plgpu.NDLoopInfo, before: Value) -> Value:
            tile = self.tile_at(info)
            visit(tile, before)
            return before + tile.steps

        return steps

    def bring(self, tile: OutputTile, before: Value) -> None:
        """Fill the ring with the operands of a tile."""

        @pl.loop(0, tile.steps)
        def _(step: Value) -> None:
            self.ring.fill(before + step, *self.sources(tile, step))

    def compute(self, tile: OutputTile, before: Value) -> None:
        """Compute a warpgroup's part of a tile."""

        @pl.when(tile.active)
        def _() -> None:
            pl.run_scoped(lambda acc: self.sum(acc, tile, before), plgpu.ACC(self.config.own_shape))

    def sum(self, acc: Ref, tile: OutputTile, before: Value) -> None:
        """Sum up the products of all steps and write the result."""

        @pl.loop(0, tile.steps)
        def _(step: Value) -> None:
            self.multiply(acc, tile, step, *self.ring.take(before + step))
            # One product stays in flight: the buffers of the one before it are free.
            plgpu.wgmma_wait(1)
            pl.when(step > 0)(lambda: self.ring.give_back(before + step - 1))

        plgpu.wgmma_wait(0)
        pl.when(tile.steps > 0)(lambda: self.ring.give_back(before + tile.steps - 1))
        self.store(acc, tile)
