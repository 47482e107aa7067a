"""Persistent matrix products: blocks iterate over tiles of a result, with prefetched operands.

A block has a memory warpgroup and two compute warpgroups. Both sides iterate over the same tiles and count the steps of
the sum from the start of the kernel, so that the memory warpgroup runs ahead across tile boundaries: while the others
store one tile, the ring already fills with the operands of the next. One product of each compute warpgroup stays in
flight while the next is issued.
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
        group: its group, i32[]; 0 if there is only one.
        first_row, rows: in tgmm, the rows of the sum; otherwise, the rows of the result. i32[].
        row, column: the position of the tile in the result. i32[].
        steps: the number of steps of the sum.
        active: True if there is anything to store.
        skipped: the first of `rows` that are not in the sum, in tgmm.
    """

    group: Value
    first_row: Value
    rows: Value
    row: Value
    column: Value
    steps: Value
    active: Value
    skipped: Value = 0


@dataclass(frozen=True)
class PersistentProduct:
    """The program of a persistent block.

    Fields:
        grid: the grid whose steps the blocks share.
        tile_at: gives the tile of a step through the grid.
        sources: (tile, step) -> the sources of copies into the ring; (tile, step, known) if there is `known`.
        multiply: (acc, tile, step, *blocks), issues the product of one step.
        store: (acc, tile), starts the store of the result.
        registers: the registers of a compute thread and of a memory thread.
        sums: the dtype of the accumulator.
        factor: (tile, step, *blocks) -> the factor of one step's product before it is added to the sum, which
            broadcasts to the accumulator. With it, the sum over the steps is in float32 registers, outside the tensor
            cores; with `promote` in the configuration, the sum over groups of steps is.
        known: (tile) -> data of a tile for `sources` that is loaded once.
    """

    config: MatmulConfig
    ring: Ring
    grid: tuple[int, ...]
    tile_at: Callable[[plgpu.NDLoopInfo], OutputTile]
    sources: Callable[..., tuple[Ref, ...]]
    multiply: Callable[..., None]
    store: Callable[[Ref, OutputTile], None]
    registers: tuple[int, int]
    sums: Any = jnp.float32
    factor: Callable[..., Value] | None = None
    known: Callable[[OutputTile], Value] | None = None

    def run(self, group: Value) -> None:
        """The program of each of the block's warpgroups."""
        computing, moving = self.registers

        @pl.when(group == MEMORY_GROUP)
        def _() -> None:
            plgpu.set_max_registers(moving, action="decrease")
            self.ring.await_drained(self.dealt(self.fill_ring))

        @pl.when(group < COMPUTE_GROUPS)
        def _() -> None:
            plgpu.set_max_registers(computing, action="increase")
            self.dealt(self.compute)
            plgpu.wait_smem_to_gmem(0)

    def dealt(self, visit: Callable[[OutputTile, Value], None]) -> Value:
        """Visit this block's tiles, each with the number of steps before it; returns the number of all steps."""

        @plgpu.nd_loop(self.grid, collective_axes="block", init_carry=jnp.int32(0))
        def steps(info: plgpu.NDLoopInfo, before: Value) -> Value:
            tile = self.tile_at(info)
            # Range analysis proves that a product of static steps is at least 0, unlike a loop's carry.
            known = isinstance(tile.steps, int)
            visit(tile, info.local_index * tile.steps if known else before)
            return before + tile.steps

        return steps

    def fill_ring(self, tile: OutputTile, before: Value) -> None:
        """Fill the ring with the operands of a tile."""
        known = () if self.known is None else (self.known(tile),)

        @pl.loop(0, tile.steps)
        def _(step: Value) -> None:
            self.ring.fill(before + step, *self.sources(tile, step, *known))

    def compute(self, tile: OutputTile, before: Value) -> None:
        """Compute a warpgroup's part of a tile."""

        promoted = self.promoted if self.config.promote else self.sum
        add = promoted if self.factor is None else self.scaled

        @pl.when(tile.active)
        def _() -> None:
            pl.run_scoped(lambda acc: add(acc, tile, before), plgpu.ACC(self.config.own_shape, self.sums))

    def scaled(self, total: Ref, tile: OutputTile, before: Value) -> None:
        """Sum the products of all steps, each by its factor, outside the tensor cores and store the result.

        The two compute warpgroups alternate: one adds while the products of the other are in flight.
        """

        @pl.loop(0, tile.steps)
        def _(step: Value) -> None:
            blocks = self.ring.take(before + step)
            factor = self.factor(tile, step, *blocks)  # type: ignore[misc]

            def scoped(acc: Ref) -> None:
                self.multiply(acc, tile, step, *blocks)
                plgpu.wgmma_wait(0)
                self.ring.give_back(before + step)
                total[...] = total[...] + acc[...] * factor

            pl.run_scoped(scoped, plgpu.ACC(self.config.own_shape, self.sums))

        self.store(total, tile)

    def promoted(self, total: Ref, tile: OutputTile, before: Value) -> None:
        """Sum the products of a few steps on the tensor cores, these sums outside of them, and store the result."""
        count = int(self.config.promote)
        whole, rest = tile.steps // count, tile.steps % count

        def add(first: Value, steps: Value) -> None:
            def scoped(acc: Ref) -> None:
                self.multiplied(acc, tile, before, first, steps)
                total[...] = total[...] + acc[...]

            pl.run_scoped(scoped, plgpu.ACC(self.config.own_shape, self.sums))

        pl.loop(0, whole)(lambda part: add(part * count, count))
        if not isinstance(rest, int):
            pl.when(rest > 0)(lambda: add(whole * count, rest))
        elif rest:
            add(whole * count, rest)
        self.store(total, tile)

    def sum(self, acc: Ref, tile: OutputTile, before: Value) -> None:
        """Sum the products of all steps on the tensor cores and store the result."""
        self.multiplied(acc, tile, before, 0, tile.steps)
        self.store(acc, tile)

    def multiplied(self, acc: Ref, tile: OutputTile, before: Value, first: Value, steps: Value) -> None:
        """Add the products of steps from `first`, and wait for them."""
        before = before + first

        @pl.loop(0, steps)
        def _(step: Value) -> None:
            self.multiply(acc, tile, first + step, *self.ring.take(before + step))
            # One product stays in flight: the buffers of the previous one are free.
            plgpu.wgmma_wait(1)
            pl.when(step > 0)(lambda: self.ring.give_back(before + step - 1))

        plgpu.wgmma_wait(0)
        pl.when(steps > 0)(lambda: self.ring.give_back(before + steps - 1))
