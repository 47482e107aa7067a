"""Exhaustive exploration: every schedule that can differ, each once, and nothing else."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from palladio.base.errors import PalladioValueError
from palladio.driver.checks.report import Report
from tests.dialect.kernels import kernel
from tests.litmus import barriers, copies, deadlocks, products, races
from tests.litmus.pairs import PAIRS
from tests.machine.tiny import Threads, by_brute_force, explored

# Counted by hand: the schedules of a program that some thread can tell apart.
COUNTED: dict[str, tuple[Threads, int]] = {
    "threads that share nothing": ([[("signal", "s"), ("add", "m")], [("signal", "t"), ("arrive", "x")]], 1),
    "two signals of one semaphore": ([[("signal", "s")], [("signal", "s")]], 1),
    "a message": ([[("signal", "s")], [("take", "s")]], 1),
    "a signal, and a thread that reads the count": ([[("signal", "s")], [("read", "s")]], 2),
    "two who look at one signal": ([[("signal", "s")], [("look", "s")], [("look", "s")]], 1),
    "two who want what one signal gives": ([[("signal", "s")], [("take", "s")], [("take", "s")]], 2),
    "a producer one ahead or not": ([[("signal", "s")] * 2, [("take", "s")] * 2], 2),
    "a producer up to three ahead": ([[("signal", "s")] * 4, [("take", "s")] * 4], 14),
    "a lock that two take": ([[("signal", "l")]] + [[("take", "l"), ("signal", "l")]] * 2, 2),
    "a lock that three take": ([[("signal", "l")]] + [[("take", "l"), ("signal", "l")]] * 3, 6),
    "three atomics": ([[("add", "m")]] * 3, 6),
    "two arrivals of one phase": ([[("arrive", "pair")], [("arrive", "pair")], [("wait", "pair")]], 1),
    "three arrivals, two to a phase": ([[("arrive", "pair")]] * 3, 3),
    "an arrival and a test": ([[("arrive", "x")], [("test", "x")]], 2),
    "a ring of two barriers": ([[("arrive", "x"), ("wait", "y")] * 3, [("wait", "x"), ("arrive", "y")] * 3], 1),
    "an overrun": ([[("arrive", "x"), ("arrive", "x")], [("wait", "x")]], 2),
    "copies to one barrier": ([[("copy", "pair"), ("copy", "pair"), ("wait", "pair")], [("wait", "pair")]], 1),
    "copies to one semaphore": ([[("dma", "s"), ("dma", "s"), ("take", "s", 2)]], 1),
    "copies to one semaphore, waited for one by one": ([[("dma", "s"), ("dma", "s"), ("take", "s"), ("take", "s")]], 3),
    "rounds of a barrier of all": ([[("arrive", "pair"), ("wait", "pair")] * 4] * 2, 1),
    "rounds of a named barrier": ([[("sync", "pair")] * 4] * 2, 1),
    "a scope between two who would race": ([[("read", "s"), ("meet", "m")], [("meet", "m"), ("signal", "s")]], 1),
    "a scope that orders one side only": ([[("read", "s"), ("meet", "m")], [("signal", "s"), ("meet", "m")]], 2),
}


@pytest.mark.parametrize("name", COUNTED)
def test_as_many_schedules_run_as_can_differ(name: str) -> None:
    threads, count = COUNTED[name]
    exploration, runs = explored(threads, pair=2)
    assert exploration.complete
    assert exploration.explored == len(runs) == count
    assert {run.order for run in runs} == {run.order for run in by_brute_force(threads, pair=2)}


STEPS = [
    *[("signal", "s"), ("signal", "s", 2), ("take", "s"), ("take", "s", 2), ("look", "s"), ("look", "s", 2)],
    *[("signal", "t"), ("take", "t"), ("dma", "s"), ("dma", "t", 2), ("add", "m"), ("add", "n"), ("meet", "w")],
    *[("arrive", "x"), ("wait", "x"), ("copy", "x"), ("test", "x"), ("arrive", "y"), ("wait", "y"), ("sync", "z")],
]


def drawn(seed: int) -> tuple[Threads, dict[str, int]]:
    """Threads of a few steps over a few things, and how many arrivals the barriers need."""
    chance = random.Random(seed)
    threads, length = chance.choice([(2, 5), (2, 5), (3, 3), (4, 2)])
    steps = chance.sample(STEPS, chance.randint(2, 6))
    found = [[chance.choice(steps) for _ in range(chance.randint(1, length))] for _ in range(threads)]
    needed = {"x": chance.choice([1, 2, 2, 3]), "y": chance.choice([1, 2]), "z": chance.choice([2, threads])}
    once = [[step for n, step in enumerate(steps) if step[0] != "meet" or step not in steps[:n]] for steps in found]
    return once, needed


@pytest.mark.parametrize("seed", range(120))
def test_the_same_outcomes_as_by_brute_force_and_no_schedule_twice(seed: int) -> None:
    threads, needed = drawn(seed)
    every = by_brute_force(threads, most=400, **needed)
    exploration, runs = explored(threads, limit=500, **needed)
    if every is None:  # too many to enumerate: what was explored is still different
        assert len({run.order for run in runs}) == len(runs)
        return
    assert {run.sees for run in runs} == {run.sees for run in every}
    if exploration.complete:
        assert {run.order for run in runs} == {run.order for run in every}
        assert len({run.order for run in runs}) == len(runs)
    else:
        assert any(step[0] == "test" for steps in threads for step in steps)


def hasty(rounds: int) -> Threads:
    """Two threads that take turns at a lock in any order; the first takes a token for good when it is done.

    The second needs the token from its beginning to its end, so it waits for ever if it begins after the other's end.
    """
    turns = [("take", "lock"), ("signal", "lock")] * rounds
    return [
        [("signal", "lock"), ("signal", "token")],
        [*turns, ("take", "token")],
        [("take", "token"), *turns, ("signal", "token")],
    ]


def test_a_deadlock_of_one_schedule_in_hundreds_is_found() -> None:
    exploration, runs = explored(hasty(5))
    assert exploration.complete
    assert len(runs) == 252 + 1
    assert len({run.order for run in runs}) == len(runs)
    assert [run.seen[2] for run in runs if run.seen[2][-1:] != ["end"]] == [[]]


def hasty_kernel(rounds: int) -> Any:
    """The same as a kernel."""

    def body(o_ref: Any, lock: Any, token: Any) -> None:
        me = pl.axis_index("thread")

        def turns() -> None:
            for _ in range(rounds):
                pl.semaphore_wait(lock)
                pl.semaphore_signal(lock)

        @pl.when(me == 0)
        def _() -> None:
            pl.semaphore_signal(lock)
            pl.semaphore_signal(token)

        @pl.when(me == 1)
        def _() -> None:
            turns()
            pl.semaphore_wait(token)

        @pl.when(me == 2)
        def _() -> None:
            pl.semaphore_wait(token)
            turns()
            pl.semaphore_signal(token)

    scratch = [plgpu.SemaphoreType.REGULAR, plgpu.SemaphoreType.REGULAR]
    return kernel(body, num_threads=3, thread_name="thread", scratch_types=scratch)


def test_a_deadlock_found_by_exploring_is_replayed_by_its_schedule() -> None:
    call = hasty_kernel(3)
    report = pl.check(call, exhaustive=True)
    assert (report.complete, report.explored) == (True, 20 + 1)
    (found,) = [finding for finding in report.findings if finding.code == "deadlock"]
    again = pl.check(call, schedule=found.schedule)
    assert [finding.render() for finding in again.findings if finding.code == "deadlock"] == [found.render()]
    assert "deadlock" not in {finding.code for finding in pl.check(call, schedule="choices:0").findings}


def test_a_report_says_that_all_schedules_have_run() -> None:
    def body(o_ref: Any, flags: Any) -> None:
        me = pl.axis_index("thread")
        pl.semaphore_signal(flags.at[1 - me])
        pl.semaphore_wait(flags.at[me])

    scratch = [plgpu.SemaphoreType.REGULAR((2,))]
    seen: list[tuple[int, int | None]] = []
    call = kernel(body, num_threads=2, thread_name="thread", scratch_types=scratch)
    report = pl.check(call, exhaustive=True, progress=lambda done, total: seen.append((done, total)))
    assert report.render() == "no finding in the only schedule there is, in this model, with these sizes and inputs"
    assert seen == [(1, None)]


def test_an_exploration_stops_at_its_bound_and_says_so() -> None:
    seen: list[tuple[int, int | None]] = []
    progress = lambda done, total: seen.append((done, total))
    report = pl.check(hasty_kernel(3), exhaustive=True, schedules=5, progress=progress)
    assert (report.complete, report.explored) == (False, 5)
    assert [total for _, total in seen] == [None] * 5
    assert "in 5 schedules" in report.render()


def test_launches_that_follow_each_other_are_explored_together() -> None:
    def body(o_ref: Any, lock: Any) -> None:
        @pl.when(pl.axis_index("thread") == 0)
        def _() -> None:
            pl.semaphore_signal(lock)
            pl.semaphore_wait(lock, 3)

        @pl.when(pl.axis_index("thread") != 0)
        def _() -> None:
            pl.semaphore_wait(lock)
            pl.semaphore_signal(lock, 2)

    call = kernel(body, num_threads=3, thread_name="thread", scratch_types=[plgpu.SemaphoreType.REGULAR])
    one = pl.check(call, exhaustive=True)
    two = pl.check(lambda: [call(), call()], exhaustive=True)
    assert one.complete
    assert two.complete
    assert one.explored > 1
    assert two.explored == one.explored**2


def test_a_function_that_changes_from_run_to_run_is_refused() -> None:
    kernels = iter([hasty_kernel(2), hasty_kernel(2), hasty_kernel(1)])

    def restless() -> Any:
        return next(kernels)()

    with pytest.raises(PalladioValueError) as caught:
        pl.check(restless, exhaustive=True)
    text = str(caught.value)
    assert "fn (restless): exhaustive exploration runs the function again and again" in text
    assert "it does not do the same each time" in text
    assert "hint:     take random numbers, the time and other state of the program out of it" in text


def test_threads_that_poll_make_no_claim_of_completeness() -> None:
    exploration, runs = explored([[("arrive", "x")], [("test", "x"), ("test", "x"), ("wait", "x")]])
    assert not exploration.complete
    assert {run.seen[1][0][0] for run in runs} == {False, True}


def test_loops_without_waits_add_no_schedules() -> None:
    def body(o_ref: Any, done: Any) -> None:
        steps = pl.axis_index("thread") + 2

        def count(n: Any) -> Any:
            return n + 1

        signals = lax.while_loop(lambda n: n < steps, count, jnp.int32(0))
        pl.semaphore_signal(done, signals)
        pl.semaphore_wait(done, steps)

    call = kernel(body, num_threads=2, thread_name="thread", scratch_types=[plgpu.SemaphoreType.REGULAR])
    report = pl.check(call, exhaustive=True)
    assert report.complete
    assert report.explored == 4


def test_a_flag_that_a_thread_polls_makes_no_claim_of_completeness() -> None:
    def body(flag_ref: Any, o_ref: Any) -> None:
        me = pl.axis_index("thread")

        @pl.when(me == 0)
        def _() -> None:
            lax.while_loop(lambda seen: seen == 0, lambda _: plgpu.atomic_or(flag_ref, (0,), 0), jnp.int32(0))

        @pl.when(me == 1)
        def _() -> None:
            plgpu.atomic_or(flag_ref, (0,), 1)

    call = kernel(body, num_threads=2, thread_name="thread")
    report = pl.check(call, np.zeros(1, np.int32), exhaustive=True, schedules=100)
    assert not report.complete
    assert report.explored < 10


def warp_specialised(computes: int = 2, steps: int = 4, stages: int = 2, **drop: bool) -> tuple[Any, ...]:
    """A matmul f32[4 c, 8 s] @ f32[8 s, 8] with `computes` warpgroups and one that copies, through a ring."""
    rows, k_tile = 4, 8

    def body(a: Any, b: Any, o: Any, a_s: Any, b_s: Any, o_s: Any, full: Any, empty: Any) -> None:
        me = pl.axis_index("wg")

        @pl.when(me == computes)
        def _() -> None:
            @pl.loop(0, steps)
            def _(k: Any) -> None:
                slot, columns = k % stages, pl.ds(k * k_tile, k_tile)
                if not drop.get("empty"):
                    pl.when(k >= stages)(lambda: plgpu.barrier_wait(empty.at[slot]))
                plgpu.copy_gmem_to_smem(a.at[:, columns], a_s.at[slot], full.at[slot])
                plgpu.copy_gmem_to_smem(b.at[columns], b_s.at[slot], full.at[slot])

            for late in range(0 if drop.get("empty") else stages):
                plgpu.barrier_wait(empty.at[(steps + late) % stages])

        @pl.when(me < computes)
        def _() -> None:
            mine = pl.ds(me * rows, rows)

            def product(acc: Any) -> None:
                @pl.loop(0, steps)
                def _(k: Any) -> None:
                    slot = k % stages
                    plgpu.barrier_wait(full.at[slot])
                    plgpu.wgmma(acc, a_s.at[slot, mine], b_s.at[slot])
                    plgpu.wgmma_wait(0)
                    if not drop.get("empty"):
                        plgpu.barrier_arrive(empty.at[slot])

                o_s[mine] = acc[...]
                plgpu.commit_smem()
                plgpu.copy_smem_to_gmem(o_s.at[mine], o.at[mine])
                plgpu.wait_smem_to_gmem(0)

            pl.run_scoped(product, plgpu.ACC((rows, 8)))

    shape = (rows * computes, 8)
    scratch = [
        plgpu.SMEM((stages, rows * computes, k_tile), jnp.float32),
        plgpu.SMEM((stages, k_tile, 8), jnp.float32),
        plgpu.SMEM(shape, jnp.float32),
        plgpu.Barrier(num_arrivals=2, num_barriers=stages),
        plgpu.Barrier(num_arrivals=computes, num_barriers=stages),
    ]
    mesh = {"num_threads": computes + 1, "thread_name": "wg", "scratch_types": scratch}
    call = plgpu.kernel(body, pl.ShapeDtypeStruct(shape, jnp.float32), **mesh)
    return call, np.ones((shape[0], k_tile * steps), np.float32), np.ones((k_tile * steps, 8), np.float32)


@pytest.mark.parametrize("computes, steps, stages", [(1, 3, 2), (2, 4, 2), (3, 4, 3)])
def test_a_ring_of_stages_has_one_schedule(computes: int, steps: int, stages: int) -> None:
    report = pl.check(*warp_specialised(computes, steps, stages), exhaustive=True)
    assert report.ok, report.render()
    assert report.complete
    assert report.explored == 1


def test_a_ring_without_a_way_back_is_found_out() -> None:
    report = pl.check(*warp_specialised(empty=True), exhaustive=True, schedules=50)
    assert {"copy-target-in-use", "barrier-overrun"} <= {finding.code for finding in report.findings}


FAMILIES = (races, copies, products, barriers, deadlocks)  # they register the pairs


LARGE = {"all_blocks_that_wait_for_each_other_are_resident", "no_thread_waits_for_a_block_that_cannot_start"}
"""Pairs of more than a hundred blocks, whose explorations do not end: a schedule takes a tenth of a second."""


@pytest.mark.parametrize("name", PAIRS)
def test_of_litmus_pairs_one_has_no_finding_in_any_schedule_and_the_other_has_its_own(name: str) -> None:
    schedules = 20 if name in LARGE else 200
    right = pl.check(PAIRS[name].make(False), exhaustive=True, schedules=schedules)
    assert right.ok, right.render()
    wrong = pl.check(PAIRS[name].make(True), exhaustive=True, schedules=schedules)
    assert {finding.code for finding in wrong.findings} == set(PAIRS[name].codes)


def test_the_blocks_of_a_cluster_that_meet_do_so_in_one_way() -> None:
    def body(x_ref: Any, o_ref: Any, met: Any) -> None:
        @pl.loop(0, 4)
        def _(step: Any) -> None:
            plgpu.barrier_arrive_and_wait(met)

        o_ref[pl.axis_index("c")] = x_ref[0]

    call = plgpu.kernel(
        body,
        pl.ShapeDtypeStruct((4,), np.float32),
        scratch_types=[plgpu.ClusterBarrier(collective_axes="c")],
        cluster=(4,),
        cluster_names=("c",),
    )
    report = pl.check(call, np.ones(1, np.float32), exhaustive=True, schedules=50)
    assert (report.complete, report.explored, report.findings) == (True, 1, [])


def counted(used: bool, apart: bool) -> Report:
    """An exploration of four threads that raise counts, each its own or all the same, and look at it or do not."""

    def body(zeros_ref: Any, o_ref: Any, count_ref: Any) -> None:
        me = pl.axis_index("thread")
        before = plgpu.atomic_add(count_ref, me if apart else 0, 1)
        o_ref[me] = before if used else me

    outs = [pl.ShapeDtypeStruct((4,), np.int32), pl.ShapeDtypeStruct((4,), np.int32)]
    call = plgpu.kernel(body, outs, num_threads=4, thread_name="thread", input_output_aliases={0: 1})
    return pl.check(call, np.zeros(4, np.int32), exhaustive=True)


@pytest.mark.parametrize(("used", "apart", "classes"), [(True, False, 24), (False, False, 1), (True, True, 1)])
def test_atomics_commute_where_the_result_is_unused_or_on_elements_of_their_own(
    used: bool, apart: bool, classes: int
) -> None:
    report = counted(used, apart)
    assert (report.complete, report.explored, report.findings) == (True, classes, [])


def test_an_atomic_with_an_unused_result_learns_nothing() -> None:
    def body(x_ref: Any, zeros_ref: Any, o_ref: Any, count_ref: Any) -> None:
        @pl.when(pl.axis_index("thread") == 0)
        def _() -> None:
            o_ref[0] = x_ref[0]
            plgpu.atomic_add(count_ref, 0, 1)

        @pl.when(pl.axis_index("thread") == 1)
        def _() -> None:
            plgpu.atomic_add(count_ref, 0, 1)
            o_ref[1] = o_ref[0]

    outs = [pl.ShapeDtypeStruct((2,), np.float32), pl.ShapeDtypeStruct((1,), np.int32)]
    call = plgpu.kernel(body, outs, num_threads=2, thread_name="thread", input_output_aliases={1: 1})
    args = np.ones(1, np.float32), np.zeros(1, np.int32)
    for schedule in ("round_robin", "choices:0", "choices:1"):
        assert "data-race" in {finding.code for finding in pl.check(call, *args, schedule=schedule).findings}
