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
from palladio.hopper.twin.run import TwinError
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


def test_threads_of_different_programs_have_their_own_scopes() -> None:
    """The programs of the first thread and of the others have the variables of their scope in common."""

    def body(x: Any, out: Any) -> None:
        group = pl.axis_index("wg")

        def inner(tile: Any, full: Any) -> None:
            pl.when(group == 0)(lambda: plgpu.copy_gmem_to_smem(x.at[0], tile, full))
            pl.when(group > 0)(lambda: plgpu.copy_gmem_to_smem(x.at[3 - group], tile, full))
            plgpu.barrier_wait(full)

            @pl.loop(0, 3)
            def _(step: Any) -> None:
                tile[...] += group.astype(F32)

            out[group] = tile[...]

        pl.run_scoped(inner, plgpu.SMEM((64,), F32), plgpu.Barrier())

    options = {"num_threads": 3, "thread_name": "wg"}
    same_as_evaluated(body, (3, 64), X[:3], **options)


def test_each_warpgroup_has_its_own_barriers() -> None:
    def body(x: Any, out: Any) -> None:
        group = pl.axis_index("wg")

        def inner(tile: Any, full: Any) -> None:
            @pl.loop(0, 4)
            def _(step: Any) -> None:
                plgpu.copy_gmem_to_smem(x.at[step], tile, full.at[step % 2])
                plgpu.barrier_wait(full.at[step % 2])
                out[group, step] = tile[...] * (1 + group)

        pl.run_scoped(inner, plgpu.SMEM((64,), F32), plgpu.Barrier(num_barriers=2))

    same_as_evaluated(body, (2, 4, 64), X, **GROUPS)


def test_an_array_may_have_more_barriers_than_a_register_has_bits() -> None:
    """Each thread keeps the phases of 70 barriers, selected by numbers known or computed, in three words."""
    count = 70

    def body(x: Any, out: Any, full: Any) -> None:
        @pl.when(pl.axis_index("wg") == 0)
        def _() -> None:
            for first in (0, 33, 69):
                plgpu.barrier_arrive(full.at[first])
                plgpu.barrier_wait(full.at[first])
            for _ in range(2):
                pl.loop(0, count)(lambda number: plgpu.barrier_arrive(full.at[number]))

                @pl.loop(0, count)
                def _(number: Any) -> None:
                    plgpu.barrier_wait(full.at[number])
                    out[number] = x[number % 4]

        pl.when(pl.axis_index("wg") == 1)(lambda: None)

    same_as_evaluated(body, (count, 64), X, scratch=[plgpu.Barrier(num_barriers=count)], **GROUPS)


def test_barriers_of_a_scope_in_a_loop_may_be_many() -> None:
    def body(out: Any) -> None:
        def step(turn: Any) -> None:
            def inner(full: Any) -> None:
                plgpu.barrier_arrive(full.at[40])
                pl.when(turn % 2 == 1)(lambda: plgpu.barrier_wait(full.at[40]))
                out[turn] = turn

            pl.run_scoped(inner, plgpu.Barrier(num_barriers=41))

        each_turn(step)

    same_as_evaluated(body, (TURNS,), dtype=I32)


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


CLUSTER = {"cluster": (2,), "cluster_names": ("c",)}
THREE = {"num_threads": 3, "thread_name": "wg", **CLUSTER}
SHARED = {"collective_axes": "wg"}
Waits = Callable[[Any, Any, Any], None]


def in_a_cluster(waits: Waits, count: int | None = None, others: int = 0, more: int = 0) -> Callable[..., None]:
    """Blocks of a cluster that wait at the barriers of a scope in a loop.

    Args:
        count: of the barriers, an array; None for a single one.
        others: the number of threads that arrive in `waits`; where none does, the last thread arrives once at each.
        more: how much more often the second block enters the scope.
    """

    def body(out: Any) -> None:
        block, group = pl.axis_index("c"), pl.axis_index("wg")

        def step(turn: Any) -> None:
            def inner(first: Any, full: Any) -> None:
                @pl.when(group == 2)
                def _() -> None:
                    for number in range(0 if others else count or 1):
                        plgpu.barrier_arrive(full if count is None else full.at[number])

                waits(turn, group, full)

                @pl.when(group == 1)
                def _() -> None:
                    out[turn, block] = turn

            number = {} if count is None else {"num_barriers": count}
            full = plgpu.ClusterBarrier(collective_axes=("c",), num_arrivals=others or 1, **number)
            pl.run_scoped(inner, plgpu.Barrier(), full, **SHARED)

        lax.fori_loop(0, TURNS + more * block, lambda turn, nothing: (step(turn), nothing)[1], 0)

    return body


def wait_once(turn: Any, group: Any, full: Any) -> None:
    pl.when(group < 2)(lambda: plgpu.barrier_wait(full))


def wait_equally_often(turn: Any, group: Any, full: Any) -> None:
    """One of the threads in a loop."""
    pl.when(group == 0)(lambda: pl.loop(0, 3)(lambda _: plgpu.barrier_arrive_and_wait(full)))

    @pl.when(group == 1)
    def _() -> None:
        for _ in range(3):
            plgpu.barrier_arrive_and_wait(full)


def wait_at_own(turn: Any, group: Any, full: Any) -> None:
    pl.when(group == 0)(lambda: plgpu.barrier_wait(full.at[0]))
    pl.when(group == 1)(lambda: plgpu.barrier_wait(full.at[1]))


def wait_as_often_as_it_takes(turn: Any, group: Any, full: Any) -> None:
    pl.when(group == 1)(lambda: pl.loop(turn, 2 * turn + 1)(lambda _: plgpu.barrier_arrive_and_wait(full)))


ALLOWED: dict[str, tuple[Waits, int | None, int]] = {
    "two threads, once": (wait_once, None, 0),
    "two threads, equally often": (wait_equally_often, None, 2),
    "each thread at its own": (wait_at_own, 2, 0),
    "one thread, in a loop": (wait_as_often_as_it_takes, None, 1),
}


@pytest.mark.parametrize("how", ALLOWED)
def test_threads_wait_at_the_cluster_barriers_of_a_scope_in_each_entry(how: str) -> None:
    """The phases go on from one entry to the next, also where there is an odd number of them."""
    same_as_evaluated(in_a_cluster(*ALLOWED[how]), (TURNS, 2), dtype=I32, **THREE)


def wait_in_turn(turn: Any, group: Any, full: Any) -> None:
    pl.when(group == turn % 2)(lambda: plgpu.barrier_wait(full))


def wait_in_some_entries(turn: Any, group: Any, full: Any) -> None:
    pl.when((group == 1) & (turn % 2 == 1))(lambda: plgpu.barrier_wait(full))


def both_wait_in_a_loop(turn: Any, group: Any, full: Any) -> None:
    pl.when(group < 2)(lambda: pl.loop(turn, 2 * turn)(lambda _: plgpu.barrier_wait(full)))


def wait_unequally_often(turn: Any, group: Any, full: Any) -> None:
    pl.when(group == 0)(lambda: pl.loop(0, 2)(lambda _: plgpu.barrier_wait(full)))
    pl.when(group == 1)(lambda: plgpu.barrier_wait(full))


def wait_at_a_computed_one(turn: Any, group: Any, full: Any) -> None:
    pl.when(group < 2)(lambda: plgpu.barrier_wait(full.at[(turn + group) % 2]))


def ask(turn: Any, group: Any, full: Any) -> None:
    @pl.when(group == 1)
    def _() -> None:
        plgpu.barrier_test(full)


def warps_wait_in_turn(turn: Any, group: Any, full: Any) -> None:
    @pl.when(group == 1)
    def _() -> None:
        @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
        def _() -> None:
            pl.when(pl.axis_index("warp") == turn % 2)(lambda: plgpu.barrier_wait(full))


CONDITION = "a wait under a condition, or in a loop of unknown length"
REENTERED: dict[str, tuple[Waits, int | None, str]] = {
    "threads in turn": (wait_in_turn, None, CONDITION),
    "one thread in some entries": (wait_in_some_entries, None, CONDITION),
    "two threads in a loop": (both_wait_in_a_loop, None, CONDITION),
    "a test": (ask, None, CONDITION),
    "warps in turn": (warps_wait_in_turn, None, CONDITION),
    "unequally often": (wait_unequally_often, None, "2 and 1 waits of different threads"),
    "at a computed barrier": (wait_at_a_computed_one, 2, "waits of 2 threads at a computed barrier of several"),
}


@pytest.mark.parametrize("how", REENTERED)
def test_cluster_barriers_of_which_threads_may_miss_a_phase_are_refused(how: str) -> None:
    """Where the blocks of a cluster enter a scope differently often, they cannot meet at its entry."""
    waits, count, got = REENTERED[how]
    call = kernel(in_a_cluster(waits, count, more=1), (TURNS, 2), I32, **THREE)
    lines = said(call, kind=PalladioNotImplementedError)
    assert lines[:4] == [
        "full: a barrier of the cluster that a scope in a loop allocates is not compiled for Hopper where its blocks "
        "may enter the scope differently often, unless each waiting thread observes all phases of each entry",
        "expected: in each entry the same number of waits of each of these threads, under no condition",
        f"got:      {got}",
        "hint:     let the loops and conditions around the scope not depend on the block, let each of these threads "
        "wait for every phase, or allocate the barrier outside of the loop",
    ]


def wait_once_or_twice(turn: Any, group: Any, full: Any) -> None:
    """The other threads have not seen as many phases of the entry before."""
    pl.when(group == 1)(lambda: pl.loop(0, 1 + turn % 2)(lambda _: plgpu.barrier_arrive_and_wait(full)))


MEETING: dict[str, tuple[Waits, int | None, int]] = {
    "threads in turn": (wait_in_turn, None, 0),
    "one thread in some entries": (wait_in_some_entries, None, 0),
    "a test": (ask, None, 0),
    "warps in turn": (warps_wait_in_turn, None, 0),
    "at a computed barrier": (wait_at_a_computed_one, 2, 0),
    "as often as it takes": (wait_once_or_twice, None, 1),
}


@pytest.mark.parametrize("how", MEETING)
def test_the_blocks_of_a_cluster_meet_at_a_scope_with_its_barriers(how: str) -> None:
    """Each entry begins with phases that no thread has observed, also where threads have missed some before."""
    same_as_evaluated(in_a_cluster(*MEETING[how]), (TURNS, 2), dtype=I32, **THREE)


def test_a_block_does_not_run_ahead_of_its_peers() -> None:
    """One block signals the other one in each entry, and waits for nothing itself."""

    def body(out: Any) -> None:
        block, group = pl.axis_index("c"), pl.axis_index("wg")

        def step(turn: Any) -> None:
            def inner(full: Any) -> None:
                first, second = (block == 0) & (group == 0), (block == 1) & (group == 1)
                pl.when(first)(lambda: plgpu.barrier_arrive(plgpu.cluster_ref(full, {"c": 1})))
                pl.when(second)(lambda: plgpu.barrier_wait(full))
                pl.when(group == 1)(lambda: out.__setitem__((turn, block), turn))

            pl.run_scoped(inner, plgpu.Barrier(), **SHARED)

        each_turn(step)

    same_as_evaluated(body, (TURNS, 2), dtype=I32, **GROUPS, **CLUSTER)


def nobody_waits(turn: Any, group: Any, full: Any) -> None:
    pass


def wait_for_the_first_of_two(turn: Any, group: Any, full: Any) -> None:
    pl.when(group == 0)(lambda: plgpu.barrier_arrive(full))
    pl.when(group == 2)(lambda: plgpu.barrier_arrive(full))
    pl.when(group == 1)(lambda: plgpu.barrier_wait(full))


@pytest.mark.parametrize("waits", [nobody_waits, wait_for_the_first_of_two])
def test_a_phase_at_a_cluster_barrier_that_no_thread_observes_is_for_the_checker(waits: Waits) -> None:
    others = 0 if waits is nobody_waits else 1
    call = kernel(in_a_cluster(waits, None, others), (TURNS, 2), I32, **THREE)
    assert "unobserved-completion" in {finding.code for finding in pl.check(call).findings}
    if others:
        with pytest.raises(TwinError, match="deadlock"):
            on_twin(call)
    else:
        for found in on_twin(call):
            np.testing.assert_array_equal(found, np.repeat(np.arange(TURNS)[:, None], 2, 1))


def test_a_barrier_at_which_peers_arrive_is_one_of_the_cluster() -> None:
    def body(out: Any) -> None:
        block = pl.axis_index("c")

        def step(turn: Any) -> None:
            def inner(full: Any) -> None:
                plgpu.barrier_arrive(plgpu.cluster_ref(full, {"c": 1 - block}))
                pl.when(turn % 2 == 1)(lambda: plgpu.barrier_wait(full))
                out[turn, block] = turn

            pl.run_scoped(inner, plgpu.Barrier())

        lax.fori_loop(0, TURNS + block, lambda turn, nothing: (step(turn), nothing)[1], 0)

    lines = said(kernel(body, (TURNS, 2), I32, **CLUSTER), kind=PalladioNotImplementedError)
    assert f"got:      {CONDITION}" in lines


def test_threads_wait_as_often_as_it_takes_at_a_cluster_barrier_outside_of_the_loop() -> None:
    def body(out: Any) -> None:
        block, group = pl.axis_index("c"), pl.axis_index("wg")

        def inner(full: Any) -> None:
            def step(turn: Any) -> None:
                pl.when(group < 2)(lambda: pl.loop(0, turn)(lambda _: plgpu.barrier_arrive_and_wait(full)))
                pl.when(group == 1)(lambda: out.__setitem__((turn, block), turn))

            each_turn(step)

        pl.run_scoped(inner, plgpu.ClusterBarrier(collective_axes=("c",), num_arrivals=2), **SHARED)

    same_as_evaluated(body, (TURNS, 2), dtype=I32, **THREE)


@pytest.mark.parametrize("known", [True, False], ids=["known steps", "computed steps"])
def test_a_pipeline_of_a_cluster_runs_in_a_loop(known: bool) -> None:
    def body(x: Any, out: Any, total: Any) -> None:
        block, group = pl.axis_index("c"), pl.axis_index("wg")

        def step(turn: Any) -> None:
            def add(_: Any, part: Any) -> None:
                @pl.when(group == 0)
                def _() -> None:
                    total[...] += part[...]

            pl.when(group == 0)(lambda: total.__setitem__(..., x[pl.ds(0, 64)] * 0))
            plgpu.emit_pipeline_warp_specialized(
                add,
                grid=(3 if known else turn + 1,),
                memory_registers=40,
                in_specs=[plgpu.BlockSpec((64,), lambda step: (step,), collective_axes="c")],
                max_concurrent_steps=2,
                wg_axis="wg",
                num_compute_wgs=2,
            )(x)
            pl.when(group == 0)(lambda: out.__setitem__((turn, block), total[...]))

        each_turn(step)

    x = normal(64 * TURNS, dtype=F32)
    total = plgpu.SMEM((64,), F32)
    same_as_evaluated(body, (TURNS, 2, 64), x, scratch=[total], **THREE)


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
