"""Allocations within a program: global memory and semaphores that each block or warpgroup has for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio import lax
from palladio.base.errors import PalladioNotImplementedError
from tests.hopper.kernels import F32, kernel, lowered, normal, on_twin
from tests.hopper.test_messages import said

I32 = np.dtype(np.int32)
S = plgpu.SemaphoreType.REGULAR
X = normal(4, 64, dtype=F32)
BLOCKS = {"grid": (2,), "grid_names": ("b",)}
GROUPS = {"num_threads": 2, "thread_name": "wg"}


def same_as_evaluated(body: Callable[..., None], shape: tuple[int, ...], *inputs: Any, **options: Any) -> None:
    want = kernel(body, shape, interpret="reference", **options)(*inputs)
    for found in on_twin(kernel(body, shape, **options), *inputs):
        np.testing.assert_array_equal(found, want)


def seen_by_another(own: Any, mine: Any, first: Any, second: Any, out: Any, at: Any, signal: Any = 1) -> None:
    """The second thread signals its own semaphores, between which the first one reads its own."""

    @pl.when(mine == 1)
    def _() -> None:
        pl.semaphore_signal(own, signal)
        pl.semaphore_signal(first)
        pl.semaphore_wait(second)
        pl.semaphore_wait(own, signal)
        out[at] = 0

    @pl.when(mine == 0)
    def _() -> None:
        pl.semaphore_wait(first)
        out[at] = pl.semaphore_read(own)
        pl.semaphore_signal(second)


@pytest.mark.parametrize("options", [{}, {"collective_axes": "wg"}])
def test_each_block_has_its_own_semaphores(options: dict[str, str]) -> None:
    def body(out: Any, first: Any, second: Any) -> None:
        def inner(own: Any) -> None:
            @pl.when(pl.axis_index("wg") == 0)
            def _() -> None:
                seen_by_another(own.at[1], pl.axis_index("b"), first, second, out, pl.axis_index("b"))

        pl.run_scoped(inner, S((3,)), **options)

    same_as_evaluated(body, (2,), dtype=I32, scratch=[S, S], **BLOCKS, **GROUPS)


def test_each_warpgroup_has_its_own_semaphores() -> None:
    def body(out: Any, first: Any, second: Any) -> None:
        b, group = pl.axis_index("b"), pl.axis_index("wg")
        pl.run_scoped(lambda own: seen_by_another(own, group, first.at[b], second.at[b], out, (b, group), 1 + b), S)

    same_as_evaluated(body, (2, 2), dtype=I32, scratch=[S((2,)), S((2,))], **BLOCKS, **GROUPS)


def test_each_block_has_its_own_global_memory() -> None:
    def body(x: Any, out: Any, first: Any, second: Any) -> None:
        b = pl.axis_index("b")

        def inner(own: Any, tile: Any, full: Any) -> None:
            own[...] = x[pl.ds(2 * b, 2)]
            pl.semaphore_signal(first.at[1 - b])
            pl.semaphore_wait(first.at[b])
            out[pl.ds(2 * b, 1)] = own[pl.ds(1, 1)]
            plgpu.copy_gmem_to_smem(own, tile, full)
            plgpu.barrier_wait(full)
            out[2 * b + 1] = tile[0]

        pl.run_scoped(inner, plgpu.GMEM((2, 64), F32), plgpu.SMEM((2, 64), F32), plgpu.Barrier())

    same_as_evaluated(body, X.shape, X, scratch=[S((2,)), S], **BLOCKS)


def test_each_warpgroup_has_its_own_global_memory() -> None:
    def body(x: Any, out: Any) -> None:
        group = pl.axis_index("wg")

        def inner(own: Any) -> None:
            own[...] = x[group]
            out[group] = own[...]

        pl.run_scoped(inner, plgpu.GMEM((64,), F32))

    same_as_evaluated(body, (2, 64), X, **GROUPS)


TURNS = 6


def each_turn(step: Callable[[Any], None]) -> None:
    lax.fori_loop(0, TURNS, lambda turn, nothing: (step(turn), nothing)[1], 0)


@pytest.mark.parametrize("options", [{}, {"collective_axes": "wg"}])
def test_semaphores_are_zero_at_each_entry(options: dict[str, str]) -> None:
    def body(out: Any) -> None:
        def step(turn: Any) -> None:
            def inner(own: Any, one: Any) -> None:
                @pl.when(pl.axis_index("wg") == 0)
                def _() -> None:
                    out[turn] = pl.semaphore_read(own.at[1]) + pl.semaphore_read(one)
                    pl.semaphore_signal(own.at[1], turn + 1)
                    pl.semaphore_signal(one)

            pl.run_scoped(inner, S((3,)), S, **options)

        each_turn(step)

    same_as_evaluated(body, (TURNS,), dtype=I32, **GROUPS)


def test_threads_meet_at_a_scope_that_they_share() -> None:
    """Earlier writes of one thread are seen in the scope, and a buffer is not overwritten while another reads it."""

    def body(x: Any, out: Any, before: Any) -> None:
        group = pl.axis_index("wg")

        def step(turn: Any) -> None:
            @pl.when(group == 0)
            def _() -> None:
                before[turn] = x[turn]

            def inner(tile: Any, full: Any) -> None:
                @pl.when(group == 0)
                def _() -> None:
                    tile[...] = x[turn] * 2
                    plgpu.barrier_arrive(full)

                @pl.when(group == 1)
                def _() -> None:
                    plgpu.barrier_wait(full)
                    out[turn] = before[turn] + tile[...]

            pl.run_scoped(inner, plgpu.SMEM((64,), F32), plgpu.Barrier(), collective_axes="wg")

        each_turn(step)

    x = normal(TURNS, 64, dtype=F32)
    same_as_evaluated(body, x.shape, x, scratch=[plgpu.SMEM(x.shape, F32)], **GROUPS)


def test_a_role_of_one_warp_meets_too() -> None:
    def body(x: Any, out: Any) -> None:
        group = pl.axis_index("wg")

        def step(turn: Any) -> None:
            def inner(tile: Any, full: Any) -> None:
                @pl.when(group == 1)
                def _() -> None:
                    plgpu.copy_gmem_to_smem(x.at[turn], tile, full)

                @pl.when(group == 0)
                def _() -> None:
                    plgpu.barrier_wait(full)
                    out[turn] = tile[...]

            pl.run_scoped(inner, plgpu.SMEM((64,), F32), plgpu.Barrier(), collective_axes="wg")

        each_turn(step)

    x = normal(TURNS, 64, dtype=F32)
    same_as_evaluated(body, x.shape, x, **GROUPS)
    assert "pal::sync_named(0, 160);" in lowered(kernel(body, x.shape, **GROUPS), x).text


def test_threads_wait_in_turn_at_the_barriers_of_a_scope() -> None:
    """A thread that waits has not seen the phases of earlier entries, at which the other one waited."""

    def body(out: Any) -> None:
        def step(turn: Any) -> None:
            def inner(first: Any, full: Any) -> None:
                @pl.when(pl.axis_index("wg") == 2)
                def _() -> None:
                    plgpu.barrier_arrive(full.at[1])

                @pl.when(pl.axis_index("wg") == turn % 2)
                def _() -> None:
                    plgpu.barrier_wait(full.at[1])
                    out[turn] = turn

            pl.run_scoped(inner, plgpu.Barrier(), plgpu.Barrier(num_barriers=2), collective_axes="wg")

        each_turn(step)

    same_as_evaluated(body, (TURNS,), dtype=I32, num_threads=3, thread_name="wg")


def test_a_barrier_may_complete_without_a_wait() -> None:
    """Each entry has barriers of no phase yet, also where an earlier one has arrived at them and not waited."""

    def body(out: Any) -> None:
        def step(turn: Any) -> None:
            def inner(full: Any) -> None:
                plgpu.barrier_arrive(full)

                @pl.when(turn % 2 == 1)
                def _() -> None:
                    plgpu.barrier_wait(full)

                out[turn] = turn

            pl.run_scoped(inner, plgpu.Barrier())

        each_turn(step)

    same_as_evaluated(body, (TURNS,), dtype=I32)


def test_warps_wait_in_turn_at_the_barriers_of_a_scope() -> None:
    def body(out: Any) -> None:
        def step(turn: Any) -> None:
            def inner(full: Any) -> None:
                @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
                def _() -> None:
                    @pl.when(pl.axis_index("warp") == 3)
                    def _() -> None:
                        plgpu.barrier_arrive(full)

                    @pl.when(pl.axis_index("warp") == turn % 2)
                    def _() -> None:
                        plgpu.barrier_wait(full)
                        out[turn] = turn

            pl.run_scoped(inner, plgpu.Barrier())

        each_turn(step)

    same_as_evaluated(body, (TURNS,), dtype=I32)


USED: dict[str, tuple[Any, Callable[[Any, Any], None]]] = {
    "semaphores": (S, lambda out, own: pl.semaphore_signal(own)),
    "global memory": (plgpu.GMEM((64,), F32), lambda out, own: out.__setitem__(0, own[...])),
}


@pytest.mark.parametrize("kind", USED)
def test_without_the_number_of_blocks_it_says_what_to_do(kind: str) -> None:
    allocated, use = USED[kind]

    def body(x: Any, out: Any) -> None:
        pl.run_scoped(lambda own: use(out, own), allocated)

    options = {"grid": (np.asarray(2, np.int32),), "grid_names": ("b",)}
    lines = said(kernel(body, (2, 64), F32, **options), X, kind=PalladioNotImplementedError)
    assert lines[0] == "global memory or semaphores of each block are not compiled for Hopper in a grid of unknown size"
    assert lines[3] == (
        "hint:     make the kernel with sizes as ints, or allocate for all blocks: scratch_types of plgpu.kernel"
    )
    assert "pl.run_scoped(lambda own: use(out, own), allocated)" in lines
