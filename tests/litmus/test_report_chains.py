"""The chain of synchronisation in a report, up to the edge that fails; and which races are one mistake."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
from palladio.driver.checks.runs import run_once
from palladio.machine.check.findings import Finding
from palladio.machine.run.policies import RoundRobin
from tests.litmus.pairs import ROW, Case, X, case, only, row

STEPS, STAGES = 6, 2
ROWS = np.arange(STEPS * ROW, dtype=np.float32).reshape(STEPS, ROW)
BARRIERS = plgpu.Barrier(num_barriers=STAGES)


def only_finding(found: Case, schedules: int = 6) -> Finding:
    (finding,) = pl.check(found, schedules=schedules).findings
    return finding


def order(finding: Finding) -> str:
    """The chain without numbers of lines."""
    return re.sub(r"line \d+", "line N", finding.order)


def rings(releases: str) -> Case:
    """Two rings, each with a thread that fills it; `releases` are those whose slots are given back too early."""

    def body(x: Any, out: Any, a: Any, b: Any, full_a: Any, full_b: Any, free_a: Any, free_b: Any) -> None:
        names, buffers, full, free = "ab", (a, b), (full_a, full_b), (free_a, free_b)

        @pl.loop(0, STEPS)
        def _(k: Any) -> None:
            slot = k % STAGES
            for ring in range(2):

                @only(ring)
                def _(ring: int = ring) -> None:
                    pl.when(k >= STAGES)(lambda: plgpu.barrier_wait(free[ring].at[slot]))
                    plgpu.copy_gmem_to_smem(x.at[k], buffers[ring].at[slot], full[ring].at[slot])

            @only(2)
            def _() -> None:
                for ring in range(2):
                    plgpu.barrier_wait(full[ring].at[slot])
                early, late = [
                    [n for n in range(2) if (names[n] in releases) == is_early] for is_early in (True, False)
                ]
                for ring in early:
                    plgpu.barrier_arrive(free[ring].at[slot], predicate=k < STEPS - STAGES)
                out[k] = a[slot] + b[slot]
                for ring in {0, 1}.difference(early):
                    plgpu.barrier_arrive(free[ring].at[slot], predicate=k < STEPS - STAGES)

    return case(body, ROWS, out=2 * ROWS, threads=3, scratch=[row(STAGES), row(STAGES), *[BARRIERS] * 4])


def shared_release(early: bool) -> Case:
    """Two operands that one barrier gives back."""

    def body(x: Any, out: Any, a: Any, b: Any, full: Any, free: Any) -> None:
        @pl.loop(0, STEPS)
        def _(k: Any) -> None:
            slot = k % STAGES

            @only(0)
            def _() -> None:
                pl.when(k >= STAGES)(lambda: plgpu.barrier_wait(free.at[slot]))
                plgpu.copy_gmem_to_smem(x.at[k], a.at[slot], full.at[slot])
                plgpu.copy_gmem_to_smem(x.at[k], b.at[slot], full.at[slot])

            @only(1)
            def _() -> None:
                plgpu.barrier_wait(full.at[slot])
                if early:
                    plgpu.barrier_arrive(free.at[slot], predicate=k < STEPS - STAGES)
                left = a[slot]
                right = b[slot]
                out[k] = left + right
                if not early:
                    plgpu.barrier_arrive(free.at[slot], predicate=k < STEPS - STAGES)

    scratch = [row(STAGES), row(STAGES), plgpu.Barrier(num_arrivals=2, num_barriers=STAGES), BARRIERS]
    return case(body, ROWS, out=2 * ROWS, threads=2, scratch=scratch)


def test_a_release_that_comes_too_early_is_named_in_the_chain() -> None:
    found = only_finding(shared_release(True))
    assert found.code == "copy-target-in-use"
    assert order(found) == "load line N → arrive line N (too early) → wait line N → copy line N"
    assert f"  order:   {found.order}\n  missing: " in found.render()
    loaded, arrives, waits, copied = map(int, re.findall(r"line (\d+)", found.order))
    assert waits < copied < arrives < loaded


def test_operands_of_one_mistake_are_one_finding_that_lists_them() -> None:
    found = only_finding(shared_release(True))
    assert [each.name for each in found.operands] == ["a", "b"]
    (line,) = [line for line in found.render().splitlines() if line.startswith("  also:")]
    assert line == f"  also:    {found.also[0].message}"
    assert found.also[0].message.startswith("b[")


def test_operands_with_releases_of_their_own_are_two_mistakes() -> None:
    assert pl.check(rings("")).ok
    assert [each.name for each in only_finding(rings("a")).operands] == ["a"]
    assert [each.name for each in only_finding(rings("b")).operands] == ["b"]
    assert {each.operand for each in pl.check(rings("ab"), schedules=6).findings} == {"a", "b"}


def test_operands_of_one_line_are_listed_too() -> None:
    def body(x: Any, out: Any, a: Any, b: Any) -> None:
        for shared in (a, b):
            shared[...] = x[...]
        out[...] = x[...]

    found = pl.check(case(body, X, out=X, threads=2, scratch=[row(), row()]), schedules=1).findings[0]
    assert [each.name for each in found.operands] == ["a", "b"]


def test_an_arrival_of_an_older_step_says_which_one() -> None:
    def body(x: Any, out: Any, shared: Any, ready: Any) -> None:
        @only(0)
        def _() -> None:
            @pl.loop(0, 2)
            def _(k: Any) -> None:
                shared[k] = x[...]
                plgpu.barrier_arrive(ready, predicate=k == 0)

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(ready)
            out[...] = shared[1]

    (found,) = run_once(case(body, X, out=X, threads=2, scratch=[row(2), plgpu.Barrier()]), (), RoundRobin).findings
    assert order(found) == "store line N → arrive line N (k = 0, too early) → wait line N → load line N"


def test_an_arrival_that_is_not_waited_for_is_named() -> None:
    def body(x: Any, out: Any, shared: Any, ready: Any) -> None:
        @only(0)
        def _() -> None:
            shared[...] = x[...]
            plgpu.barrier_arrive(ready)

        @only(1)
        def _() -> None:
            out[...] = shared[...]
            plgpu.barrier_wait(ready)

    found = run_once(case(body, X, out=X, threads=2, scratch=[row(), plgpu.Barrier()]), (), RoundRobin).findings[0]
    assert order(found) == "store line N → arrive line N (not awaited) → load line N"


def test_a_copy_whose_barrier_is_not_waited_for_names_the_barrier() -> None:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, shared, full.at[1])
        out[...] = shared[...]
        plgpu.barrier_wait(full.at[1])

    found = only_finding(case(body, X, out=X, scratch=[row(), BARRIERS]))
    assert order(found) == "copy line N → full[1] (not awaited) → load line N"


def test_a_fence_that_is_missing_stands_after_the_edges_that_are_there() -> None:
    def body(x: Any, out: Any, shared: Any, ready: Any) -> None:
        @only(0)
        def _() -> None:
            shared[...] = x[...]
            plgpu.barrier_arrive(ready)

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(ready)
            plgpu.copy_smem_to_gmem(shared, out)
            plgpu.wait_smem_to_gmem(0)

    found = only_finding(case(body, X, out=X, threads=2, scratch=[row(), plgpu.Barrier()]))
    edges = "store line N → arrive line N → wait line N → copy line N"
    assert order(found) == f"{edges} (no commit_smem on the way)"


def test_a_chain_may_lead_through_a_third_thread() -> None:
    def body(x: Any, out: Any, shared: Any, first: Any, second: Any) -> None:
        @only(0)
        def _() -> None:
            plgpu.barrier_arrive(first)
            shared[...] = x[...]

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(first)
            plgpu.barrier_arrive(second)

        @only(2)
        def _() -> None:
            plgpu.barrier_wait(second)
            out[...] = shared[...]

    launch = case(body, X, out=X, threads=3, scratch=[row(), plgpu.Barrier(), plgpu.Barrier()])
    (found,) = run_once(launch, (), RoundRobin).findings
    steps = ["arrive line N (too early)", "wait line N", "arrive line N", "wait line N"]
    assert order(found) == " → ".join(["store line N", *steps, "load line N"])


def test_semaphores_and_atomics_are_edges() -> None:
    def signalled(x: Any, out: Any, shared: Any, ready: Any) -> None:
        @only(0)
        def _() -> None:
            pl.semaphore_signal(ready)
            shared[...] = x[...]

        @only(1)
        def _() -> None:
            pl.semaphore_wait(ready)
            out[...] = shared[...]

    launch = case(signalled, X, out=X, threads=2, scratch=[row(), plgpu.SemaphoreType.REGULAR])
    (found,) = run_once(launch, (), RoundRobin).findings
    assert order(found) == "store line N → signal line N (too early) → wait line N → load line N"


def test_one_mistake_is_one_finding_in_all_schedules() -> None:
    assert len(pl.check(shared_release(True), schedules=24).findings) == 1
