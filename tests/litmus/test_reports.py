"""What reports say: who is named, which threads stand together, which findings are one and which follow from others."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.machine.check.findings import CheckError, Finding
from tests.litmus import test_litmus
from tests.litmus.pairs import PAIRS, Case, X, case, only, row

assert test_litmus.FAMILIES


def the_finding(call: Any, *, schedules: int = 4) -> Finding:
    """The one finding of a check."""
    (found,) = pl.check(call, schedules=schedules).findings
    return found


def shown(finding: Finding) -> str:
    """The report without the places of its files."""
    return re.sub(r"\S*/(\w+\.py):\d+", r"\1:N", finding.render())


@pytest.mark.parametrize("name", PAIRS)
def test_a_broken_kernel_raises_on_the_simulator(name: str) -> None:
    broken = PAIRS[name].make(True)
    if PAIRS[name].level != "error":
        with pl.executor("simulator"):
            broken()
        return
    with pl.executor("simulator"), pytest.raises(CheckError) as raised:
        broken()
    # The first finding ends the run: a read that races may have found nothing written yet.
    assert raised.value.finding.code in (*PAIRS[name].codes, "uninitialized-read")
    assert str(raised.value).startswith(raised.value.finding.render())


def test_threads_that_wait_at_one_place_are_one_entry() -> None:
    def body(x: Any, out: Any, met: Any) -> None:
        plgpu.barrier_arrive_and_wait(met)
        out[...] = x[...]

    report = the_finding(case(body, X, out=X, threads=6, scratch=[plgpu.Barrier(num_arrivals=7)]))
    assert shown(report) == textwrap.dedent(
        """\
        deadlock: all 6 threads that have not ended wait, and nothing is in flight that could wake one
          block (0) wg 0, block (0) wg 1, block (0) wg 2 and 3 more: wait for completion 1 of barrier met: \
6 of 7 arrivals have come, by wg 0, wg 1, wg 2 and 3 more
            test_reports.py:N, in body
              plgpu.barrier_arrive_and_wait(met)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          missing: 1 more arrival at met
          try:     see who waits for whom: an arrival is missing, one barrier too many is waited for, or a copy was \
not started
          see:     palladio explain deadlock
          replay:  palladio.check(..., schedule="round_robin")"""
    )


def test_a_deadlock_says_who_could_end_each_wait_and_who_has_ended() -> None:
    def body(x: Any, out: Any, ping: Any, pong: Any) -> None:
        @only(0)
        def _() -> None:
            plgpu.barrier_wait(pong)
            plgpu.barrier_arrive(ping)

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(ping)
            plgpu.barrier_arrive(pong)

        @only(2)
        def _() -> None:
            out[...] = x[...]

    report = the_finding(case(body, X, out=X, threads=3, scratch=[plgpu.Barrier(), plgpu.Barrier()]))
    assert [participant.did for participant in report.participants] == [
        "waits for completion 1 of barrier pong: 0 of 1 arrivals have come",
        "waits for completion 1 of barrier ping: 0 of 1 arrivals have come",
    ]
    assert report.details == (
        "block (0) wg 1 could end the wait for pong, and waits too",
        "block (0) wg 0 could end the wait for ping, and waits too",
        "a cycle of waits: block (0) wg 0 waits for pong, which block (0) wg 1 could end; "
        "block (0) wg 1 waits for ping, which block (0) wg 0 could end",
        "ended already: block (0) wg 2",
    )
    assert report.missing == "1 more arrival at pong, or 1 more arrival at ping"


def test_a_reduction_that_races_with_a_copy_is_named() -> None:
    def body(x: Any, zeros: Any, out: Any, shared: Any) -> None:
        shared[...] = x[...]
        plgpu.commit_smem()

        @pl.when(pl.axis_index("x") == 0)
        def _() -> None:
            plgpu.copy_smem_to_gmem(shared, out)

        @pl.when(pl.axis_index("x") == 1)
        def _() -> None:
            plgpu.copy_smem_to_gmem(shared, out, reduction_op="max")

        plgpu.wait_smem_to_gmem(0)

    report = the_finding(case(body, X, np.zeros_like(X), out=X, grid=2, scratch=[row()], aliases={1: 0}))
    assert report.code == "global-race"
    assert {participant.did for participant in report.participants} == {
        "starts copy_smem_to_gmem, which writes it",
        "starts copy_smem_to_gmem, which reduces into it by max",
    }


def ends_named(found: Case) -> list[str]:
    return [line for line in the_finding(found).details if "could end the wait" in line]


def test_only_threads_that_can_end_a_wait_are_named() -> None:
    """One that is past its arrival cannot, nor one that takes another branch, arrives at another barrier of the array,
    or at that of another block."""

    def body(x: Any, out: Any, ring: Any, gate: Any) -> None:
        @only(0)
        def _() -> None:
            plgpu.barrier_arrive(ring.at[1])
            plgpu.barrier_wait(ring.at[0])

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(ring.at[1])
            plgpu.barrier_wait(ring.at[1])
            plgpu.barrier_arrive(gate)

        @only(2)
        def _() -> None:
            plgpu.barrier_wait(gate)
            plgpu.barrier_arrive(ring.at[0])

    assert ends_named(case(body, X, out=X, threads=3, scratch=[plgpu.Barrier(num_barriers=2), plgpu.Barrier()])) == [
        "block (0) wg 2 could end the wait for ring[0], and waits too",
        "block (0) wg 1 could end the wait for gate, and waits too",
    ]


def test_in_a_loop_an_arrival_may_come_again() -> None:
    def body(x: Any, out: Any, full: Any, free: Any) -> None:
        @only(0)
        def _() -> None:
            @pl.loop(0, 3)
            def _(_: Any) -> None:
                plgpu.barrier_arrive(full)
                plgpu.barrier_wait(free)

        @only(1)
        def _() -> None:
            @pl.loop(0, 3)
            def _(step: Any) -> None:
                plgpu.barrier_wait(full)
                plgpu.barrier_arrive(free, predicate=step == 0)

    assert ends_named(case(body, X, out=X, threads=2, scratch=[plgpu.Barrier(), plgpu.Barrier()])) == [
        "block (0) wg 1 could end the wait for free, and waits too",
        "block (0) wg 0 could end the wait for full, and waits too",
    ]


def test_the_barrier_of_another_block_is_not_meant() -> None:
    def body(x: Any, out: Any, ready: Any) -> None:
        c = pl.axis_index("c")

        @pl.when(c == 0)
        def _() -> None:
            plgpu.barrier_wait(ready)
            plgpu.barrier_arrive(plgpu.cluster_ref(ready, {"c": 1}))

        @pl.when(c == 1)
        def _() -> None:
            plgpu.barrier_wait(ready)
            plgpu.barrier_arrive(ready)

    assert ends_named(case(body, X, out=X, cluster=2, scratch=[plgpu.Barrier()])) == [
        "block (0, 0) thread could end the wait for ready, and waits too"
    ]


def test_one_mistake_of_many_threads_is_one_finding() -> None:
    def body(x: Any, out: Any) -> None:
        out[0] = x[0]

    assert the_finding(case(body, X, out=X[:1], grid=8), schedules=8).code == "global-race"


def test_the_order_in_which_a_race_was_met_makes_no_second_finding() -> None:
    def body(x: Any, out: Any, shared: Any, met: Any) -> None:
        shared[pl.axis_index("wg")] = x[...]
        plgpu.barrier_arrive_and_wait(met)

        @only(0)
        def _() -> None:
            shared[0] = x[...] + 1

        @only(1)
        def _() -> None:
            out[...] = shared[0]

    launch = case(body, X, out=X, threads=2, scratch=[row(2), plgpu.Barrier(num_arrivals=2)])
    assert the_finding(launch, schedules=24).code == "data-race"


def test_a_race_of_two_lines_names_both() -> None:
    def body(x: Any, out: Any, shared: Any) -> None:
        @only(0)
        def _() -> None:
            shared[...] = x[...]

        @only(1)
        def _() -> None:
            shared[...] = x[...] + 1

    found = the_finding(case(body, X, out=X, threads=2, scratch=[row()]))
    first, second = sorted(place.line for place in found.locations)
    assert re.fullmatch(
        rf"shared \(f32\[8\] in smem\) is written by the store on line ({first}|{second}) and written by the store on "
        rf"line ({first}|{second}), in no order",
        found.message,
    )


def test_a_race_of_one_line_with_itself_says_so() -> None:
    def body(x: Any, out: Any) -> None:
        out[...] = x[...]

    found = the_finding(case(body, X, out=X, grid=2))
    (line,) = {place.line for place in found.locations}
    assert found.message == f"out (f32[8] in gmem) is written by the store on line {line} in two blocks, in no order"
    assert found.threads == ("block (1) thread", "block (0) thread")


def test_several_unobserved_completions_are_counted() -> None:
    def body(x: Any, out: Any, full: Any, back: Any) -> None:
        out[...] = x[...]

        @pl.loop(0, 3)
        def _(step: Any) -> None:
            plgpu.barrier_arrive(full.at[step])

    found = the_finding(case(body, X, out=X, scratch=[plgpu.Barrier(num_barriers=3), plgpu.Barrier()]))
    assert found.code == "unobserved-completion"
    assert found.message == "full[0] of block (0) has completed phase 1, which no thread has waited for"


def test_what_follows_from_a_deadlock_is_not_reported() -> None:
    def body(x: Any, out: Any, shared: Any, full: Any, ready: Any) -> None:
        plgpu.semaphore_signal(ready)
        plgpu.copy_gmem_to_smem(x, shared, full)
        plgpu.barrier_wait(full)
        out[...] = shared[...]

    scratch = [row(), plgpu.Barrier(num_arrivals=2), plgpu.SemaphoreType.REGULAR]
    assert the_finding(case(body, X, out=X, scratch=scratch)).code == "deadlock"


def test_a_finding_renders_with_the_command_that_replays_it() -> None:
    def body(x: Any, out: Any, shared: Any) -> None:
        out[...] = shared[...] * np.float32(0)

    found = the_finding(case(body, X, out=X, scratch=[row()]))
    assert found.render("make it so").splitlines()[-1] == "  replay:  make it so"
    assert {kind for kind, _ in found.lines()} == {
        "code",
        "participant",
        "place",
        "source",
        "caret",
        "try",
        "see",
        "replay",
    }


def test_an_allocation_without_a_name_is_called_what_it_is() -> None:
    def body(x: Any, out: Any) -> None:
        def scoped(*allocations: Any) -> None:
            plgpu.barrier_wait(allocations[0].at[1])

        pl.run_scoped(scoped, plgpu.Barrier(num_barriers=2))

    assert "of barrier barrier[1]: 0 of 1 arrivals" in shown(the_finding(case(body, X, out=X)))


def test_a_deadlock_is_one_finding_whoever_arrived_first() -> None:
    def body(x: Any, out: Any, full: Any) -> None:
        @pl.when(pl.axis_index("wg") < 2)
        def _() -> None:
            plgpu.barrier_arrive(full)

        @pl.when(pl.axis_index("wg") == 2)
        def _() -> None:
            plgpu.barrier_wait(full)

    report = shown(the_finding(case(body, X, out=X, threads=3, scratch=[plgpu.Barrier(num_arrivals=3)]), schedules=12))
    assert "2 of 3 arrivals have come, by wg 0 and wg 1" in report


def test_memory_that_stands_for_an_output_has_the_outputs_name() -> None:
    def body(x: Any, start: Any, total: Any) -> None:
        total[...] = total[...] + x[...]

    (found,) = pl.check(case(body, X, X, out=X, threads=2, aliases={1: 0}), schedules=1).findings[:1]
    assert found.message.startswith("total (f32[8] in gmem) is ")


def test_barriers_of_one_name_in_two_kernels_are_two() -> None:
    def first(x: Any, out: Any, done: Any) -> None:
        plgpu.barrier_arrive(done)
        out[...] = x[...]

    def second(x: Any, out: Any, done: Any) -> None:
        plgpu.barrier_arrive(done)
        out[...] = x[...] + 1

    kernels = [case(body, X, out=X, scratch=[plgpu.Barrier(num_arrivals=2)]) for body in (first, second)]
    found = pl.check(lambda: [kernel() for kernel in kernels], schedules=2).findings
    assert [each.code for each in found] == ["barrier-pending-arrivals"] * 2


def test_barriers_of_a_tuple_have_names_of_their_own() -> None:
    def body(x: Any, out: Any, barriers: Any) -> None:
        for barrier in barriers:
            plgpu.barrier_arrive(barrier)
        out[...] = x[...]

    twice = (plgpu.Barrier(num_arrivals=2), plgpu.Barrier(num_arrivals=2))
    found = pl.check(case(body, X, out=X, scratch=[twice]), schedules=1).findings
    assert [each.message.split()[0] for each in found] == ["barriers_0", "barriers_1"]
