"""Products of the tensor cores: operands and accumulators in flight, and products without a wait."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
from tests.litmus.pairs import Case, case, only, pair

STEPS = 4
A = np.stack([np.arange(n, n + 64, dtype=np.float16).reshape(8, 8) / 16 for n in range(STEPS)])
TILE = plgpu.SMEM((8, 8), np.float16)
TILES = plgpu.SMEM((2, 8, 8), np.float16)
ACC = plgpu.ACC((8, 8))


def _sum(*steps: int) -> Any:
    """The sum of the squares of some tiles."""
    wide = A.astype(np.float32)
    return sum((wide[n] @ wide[n] for n in steps), np.zeros((8, 8), np.float32))


ONE, ALL = _sum(0), _sum(*range(STEPS))


@pair("wgmma-operand-overwritten")
def a_copy_overwrites_the_operand(broken: bool) -> Case:
    def body(a: Any, out: Any, tile: Any, full: Any, acc: Any) -> None:
        @pl.loop(0, STEPS)
        def _(step: Any) -> None:
            plgpu.copy_gmem_to_smem(a.at[step], tile, full)
            plgpu.barrier_wait(full)
            plgpu.wgmma(acc, tile, tile)
            if not broken:
                plgpu.wgmma_wait(0)

        plgpu.wgmma_wait(0)
        out[...] = acc[...]

    return case(body, A, out=ALL, scratch=[TILE, plgpu.Barrier(), ACC])


@pair("wgmma-operand-overwritten")
def a_store_overwrites_the_operand(broken: bool) -> Case:
    def body(a: Any, out: Any, tile: Any, acc: Any) -> None:
        @pl.loop(0, STEPS)
        def _(step: Any) -> None:
            tile[...] = a[step]
            plgpu.commit_smem()
            plgpu.wgmma(acc, tile, tile)
            if not broken:
                plgpu.wgmma_wait(0)

        plgpu.wgmma_wait(0)
        out[...] = acc[...]

    return case(body, A, out=ALL, scratch=[TILE, ACC])


@pair("wgmma-operand-overwritten")
def the_left_operand_is_taken_from_registers(broken: bool) -> Case:
    def body(a: Any, out: Any, left: Any, right: Any, acc: Any) -> None:
        left[...] = a[0]
        right[...] = a[0]
        plgpu.commit_smem()
        plgpu.wgmma(acc, left if broken else left[...], right)
        left[...] = a[1]
        plgpu.wgmma_wait(0)
        out[...] = acc[...]

    return case(body, A, out=ONE, scratch=[TILE, TILE, ACC])


@pair("wgmma-operand-overwritten")
def as_many_products_may_be_in_flight_as_there_are_tiles_to_spare(broken: bool) -> Case:
    def body(a: Any, out: Any, tiles: Any, full: Any, acc: Any) -> None:
        @pl.loop(0, STEPS)
        def _(step: Any) -> None:
            plgpu.wgmma_wait(2 if broken else 1)
            tile = tiles.at[step % 2]
            plgpu.copy_gmem_to_smem(a.at[step], tile, full)
            plgpu.barrier_wait(full)
            plgpu.wgmma(acc, tile, tile)

        plgpu.wgmma_wait(0)
        out[...] = acc[...]

    return case(body, A, out=ALL, scratch=[TILES, plgpu.Barrier(), ACC])


def _ring(wait: int, delay: int) -> Case:
    """A producer, and a consumer that waits until `wait` products are in flight and releases `delay` steps later."""

    def body(a: Any, out: Any, tiles: Any, full: Any, empty: Any, acc: Any) -> None:
        @only(0)
        def _() -> None:
            @pl.loop(0, STEPS)
            def _(step: Any) -> None:
                slot = step % 2

                @pl.when(step >= 2)
                def _() -> None:
                    plgpu.barrier_wait(empty.at[slot])

                plgpu.copy_gmem_to_smem(a.at[step], tiles.at[slot], full.at[slot])

        @only(1)
        def _() -> None:
            @pl.loop(0, STEPS)
            def _(step: Any) -> None:
                slot = step % 2
                plgpu.barrier_wait(full.at[slot])
                plgpu.wgmma(acc, tiles.at[slot], tiles.at[slot])
                plgpu.wgmma_wait(wait)
                done = step - delay

                @pl.when((done >= 0) & (done < STEPS - 2))
                def _() -> None:
                    plgpu.barrier_arrive(empty.at[done % 2])

            plgpu.wgmma_wait(0)
            out[...] = acc[...]

    barriers = plgpu.Barrier(num_barriers=2)
    return case(body, A, out=ALL, threads=2, scratch=[TILES, barriers, barriers, ACC])


@pair("wgmma-operand-overwritten")
def a_stage_is_released_after_the_wait(broken: bool) -> Case:
    return _ring(wait=1 if broken else 0, delay=0)


@pair("wgmma-operand-overwritten")
def with_one_product_in_flight_the_release_is_delayed(broken: bool) -> Case:
    return _ring(wait=1, delay=0 if broken else 1)


@pair("wgmma-operand-overwritten")
def another_thread_stores_the_next_operand(broken: bool) -> Case:
    def body(a: Any, out: Any, tile: Any, full: Any, empty: Any, acc: Any) -> None:
        @only(0)
        def _() -> None:
            @pl.loop(0, 2)
            def _(step: Any) -> None:
                tile[...] = a[step]
                plgpu.commit_smem()
                plgpu.barrier_arrive(full)
                plgpu.barrier_wait(empty)

        @only(1)
        def _() -> None:
            @pl.loop(0, 2)
            def _(step: Any) -> None:
                plgpu.barrier_wait(full)
                plgpu.wgmma(acc, tile, tile)
                if not broken:
                    plgpu.wgmma_wait(0)
                plgpu.barrier_arrive(empty)

            plgpu.wgmma_wait(0)
            out[...] = acc[...]

    return case(body, A, out=_sum(0, 1), threads=2, scratch=[TILE, plgpu.Barrier(), plgpu.Barrier(), ACC])


@pair("accumulator-in-flight")
def an_accumulator_is_read_without_a_wait(broken: bool) -> Case:
    def body(a: Any, out: Any, tile: Any, acc: Any) -> None:
        tile[...] = a[0]
        plgpu.commit_smem()
        plgpu.wgmma(acc, tile, tile)
        out[...] = plgpu.wgmma_accumulator_load(acc, wait_n=None if broken else 0)
        plgpu.wgmma_wait(0)

    return case(body, A, out=ONE, scratch=[TILE, ACC])


@pair("accumulator-in-flight")
def an_accumulator_is_reset_after_the_wait(broken: bool) -> Case:
    def body(a: Any, out: Any, tile: Any, acc: Any) -> None:
        tile[...] = a[0]
        plgpu.commit_smem()
        plgpu.wgmma(acc, tile, tile)
        if not broken:
            plgpu.wgmma_wait(0)
        acc[...] = 0 * a[0].astype(np.float32)
        plgpu.wgmma_wait(0)
        plgpu.wgmma(acc, tile, tile)
        out[...] = acc[...]

    return case(body, A, out=ONE, scratch=[TILE, ACC])


@pair("accumulator-in-flight")
def the_wait_reaches_the_last_product_of_the_accumulator(broken: bool) -> Case:
    def body(a: Any, out: Any, tile: Any, first: Any, second: Any) -> None:
        tile[...] = a[0]
        plgpu.commit_smem()
        plgpu.wgmma(first, tile, tile)
        plgpu.wgmma(second, tile, tile)
        out[0] = plgpu.wgmma_accumulator_load(second if broken else first, wait_n=1)
        plgpu.wgmma_wait(0)
        out[1] = plgpu.wgmma_accumulator_load(first if broken else second, wait_n=None)

    return case(body, A, out=np.stack([ONE, ONE]), scratch=[TILE, ACC, ACC])


@pair("unawaited-wgmma")
def products_are_awaited_at_the_end(broken: bool) -> Case:
    def body(a: Any, out: Any, tile: Any, acc: Any) -> None:
        tile[...] = a[0]
        out[...] = a[1]
        plgpu.commit_smem()
        plgpu.wgmma(acc, tile, tile)
        if not broken:
            plgpu.wgmma_wait(0)

    return case(body, A, out=A[1], scratch=[TILE, ACC])


@pair("unawaited-wgmma")
def the_last_product_is_awaited(broken: bool) -> Case:
    def body(a: Any, out: Any, tile: Any, acc: Any, other: Any) -> None:
        tile[...] = a[0]
        plgpu.commit_smem()
        plgpu.wgmma(acc, tile, tile)
        plgpu.wgmma(other, tile, tile)
        out[...] = plgpu.wgmma_accumulator_load(acc, wait_n=1 if broken else 0)

    return case(body, A, out=ONE, scratch=[TILE, ACC, ACC])


# scope-in-use


@pair("scope-in-use", level="hint")
def products_are_awaited_inside_the_scope_of_their_operand(broken: bool) -> Case:
    def body(a: Any, out: Any, acc: Any) -> None:
        def scoped(tile: Any) -> None:
            tile[...] = a[0]
            plgpu.commit_smem()
            plgpu.wgmma(acc, tile, tile)
            if not broken:
                plgpu.wgmma_wait(0)

        pl.run_scoped(scoped, TILE)
        plgpu.wgmma_wait(0)
        out[...] = acc[...]

    return case(body, A, out=ONE, scratch=[ACC])


@pair("scope-in-use")
def products_are_awaited_inside_the_scope_of_their_accumulator(broken: bool) -> Case:
    def body(a: Any, out: Any, tile: Any) -> None:
        tile[...] = a[0]
        plgpu.commit_smem()

        def scoped(acc: Any) -> None:
            plgpu.wgmma(acc, tile, tile)
            if not broken:
                plgpu.wgmma_wait(0)

        pl.run_scoped(scoped, ACC)
        plgpu.wgmma_wait(0)
        out[...] = a[0]

    return case(body, A, out=A[0], scratch=[TILE])


@pair("scope-in-use")
def the_next_scope_does_not_take_memory_in_use(broken: bool) -> Case:
    """A tile on its way to global memory, and another that lies where it lay."""

    def body(a: Any, out: Any) -> None:
        def first(tile: Any) -> None:
            tile[...] = a[0]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(tile, out)
            if not broken:
                plgpu.wait_smem_to_gmem(0)

        def second(tile: Any) -> None:
            tile[...] = a[1]

        pl.run_scoped(first, TILE)
        pl.run_scoped(second, TILE)
        plgpu.wait_smem_to_gmem(0)

    return case(body, np.stack([A[0], A[0]]), out=A[0])


@pair("scope-in-use")
def a_scope_that_is_entered_again_does_not_find_its_memory_in_use(broken: bool) -> Case:
    def body(a: Any, out: Any) -> None:
        @pl.loop(0, 2)
        def _(step: Any) -> None:
            def scoped(tile: Any) -> None:
                tile[...] = a[step]
                plgpu.commit_smem()
                plgpu.copy_smem_to_gmem(tile, out.at[step])
                if not broken:
                    plgpu.wait_smem_to_gmem(0, wait_read_only=True)

            pl.run_scoped(scoped, TILE)

        plgpu.wait_smem_to_gmem(0)

    both = np.stack([A[0], A[0]])
    return case(body, both, out=both)


@pair("scope-in-use", level="hint")
def a_copy_out_is_awaited_inside_the_scope(broken: bool) -> Case:
    def body(a: Any, out: Any) -> None:
        def scoped(tile: Any) -> None:
            tile[...] = a[0]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(tile, out)
            if not broken:
                plgpu.wait_smem_to_gmem(0)

        pl.run_scoped(scoped, TILE)
        plgpu.wait_smem_to_gmem(0)

    return case(body, A, out=A[0])


@pair("scope-in-use", level="hint")
def a_copy_in_is_awaited_inside_the_scope(broken: bool) -> Case:
    def body(a: Any, out: Any, full: Any) -> None:
        def scoped(tile: Any) -> None:
            plgpu.copy_gmem_to_smem(a.at[0], tile, full)
            if not broken:
                plgpu.barrier_wait(full)

        pl.run_scoped(scoped, TILE)
        if broken:
            plgpu.barrier_wait(full)
        out[...] = a[0]

    return case(body, A, out=A[0], scratch=[plgpu.Barrier()])


@pair("scope-in-use", level="hint")
def a_copy_of_another_thread_is_awaited_inside_the_shared_scope(broken: bool) -> Case:
    def body(a: Any, out: Any, full: Any) -> None:
        def scoped(tile: Any) -> None:
            @only(0)
            def _() -> None:
                plgpu.copy_gmem_to_smem(a.at[0], tile, full)

            @only(1)
            def _() -> None:
                if not broken:
                    plgpu.barrier_wait(full)

        pl.run_scoped(scoped, TILE, collective_axes="wg")

        @only(1)
        def _() -> None:
            if broken:
                plgpu.barrier_wait(full)
            out[...] = a[0]

    return case(body, A, out=A[0], threads=2, scratch=[plgpu.Barrier()])


@pair("scope-in-use", level="hint")
def a_copy_out_is_awaited_inside_the_shared_scope_that_another_thread_leaves_last(broken: bool) -> Case:
    def body(a: Any, out: Any, busy: Any) -> None:
        def scoped(tile: Any) -> None:
            @only(0)
            def _() -> None:
                tile[...] = a[0]
                plgpu.commit_smem()
                plgpu.copy_smem_to_gmem(tile, out)
                if not broken:
                    plgpu.wait_smem_to_gmem(0)

            @only(1)
            def _() -> None:
                for _ in range(3):
                    plgpu.barrier_arrive(busy)
                    plgpu.barrier_wait(busy)

        pl.run_scoped(scoped, TILE, collective_axes="wg")
        plgpu.wait_smem_to_gmem(0)

    return case(body, A, out=A[0], threads=2, scratch=[plgpu.Barrier()])
