"""Dependent launches: a launch that may start before the one before it has ended must wait for what that one uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.machine.check.findings import Finding
from tests.litmus.pairs import ROW, X, only

OUT = pl.ShapeDtypeStruct(X.shape, X.dtype)
Body = Callable[..., None]


def launched(body: Body, *args: Any, threads: int = 1, scratch: Any = (), aliases: dict[int, int] | None = None) -> Any:
    call = plgpu.kernel(
        body,
        OUT,
        scratch_types=list(scratch),
        num_threads=threads,
        thread_name="wg",
        input_output_aliases=aliases or {},
    )
    return call(*args)


def first(x: Any, out: Any) -> None:
    plgpu.griddepcontrol_launch_dependents()
    out[...] = x[...] + 1


def second(wait: bool) -> Body:
    def body(x: Any, out: Any) -> None:
        if wait:
            plgpu.griddepcontrol_wait()
        out[...] = 2 * x[...]

    return body


def both(wait: bool) -> Any:
    return launched(second(wait), launched(first, X))


def findings(call: Callable[[], Any]) -> list[Finding]:
    return pl.check(call, schedules=4).findings


def test_a_launch_that_waits_has_no_finding_and_the_right_values() -> None:
    assert findings(lambda: both(True)) == []
    for executor in ("reference", "simulator", "cpu", "hopper-twin"):
        with pl.executor(executor):
            np.testing.assert_array_equal(np.asarray(both(True)), 2 * (X + 1))


def test_a_launch_that_does_not_wait_reads_too_early() -> None:
    (found,) = findings(lambda: both(False))
    assert (found.code, found.level) == ("launch-not-awaited", "error")
    load, store = (place.line for place in found.locations)
    assert found.message == (
        f"x (f32[8] in gmem) is read by the load on line {load} while the launch before may not have ended, which "
        f"writes it by the store on line {store}"
    )
    assert found.threads == ("block 0 wg 0", "block 0 wg 0 of the launch before")
    assert found.missing == (
        f"plgpu.griddepcontrol_wait() in block 0 wg 0, or in a thread that it waits for, before the load on line {load}"
    )


def test_a_wait_after_the_read_is_too_late() -> None:
    def late(x: Any, out: Any) -> None:
        found = x[...]
        plgpu.griddepcontrol_wait()
        out[...] = found

    assert [each.code for each in findings(lambda: launched(late, launched(first, X)))] == ["launch-not-awaited"]


@pytest.mark.parametrize("broken", [False, True])
def test_a_thread_learns_of_the_end_from_one_that_has_waited(broken: bool) -> None:
    def body(x: Any, out: Any, ready: Any) -> None:
        @only(0)
        def _() -> None:
            plgpu.griddepcontrol_wait()
            plgpu.barrier_arrive(ready)

        @only(1)
        def _() -> None:
            if not broken:
                plgpu.barrier_wait(ready)
            out[...] = x[...]
            if broken:
                plgpu.barrier_wait(ready)

    found = findings(lambda: launched(body, launched(first, X), threads=2, scratch=[plgpu.Barrier()]))
    assert [each.code for each in found] == ["launch-not-awaited"] * broken


@pytest.mark.parametrize("wait", [False, True])
def test_copies_need_the_wait_and_no_fence_after_it(wait: bool) -> None:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        if wait:
            plgpu.griddepcontrol_wait()
        plgpu.copy_gmem_to_smem(x, shared, full)
        plgpu.barrier_wait(full)
        out[...] = shared[...]

    scratch = [plgpu.SMEM(X.shape, X.dtype), plgpu.Barrier()]
    found = findings(lambda: launched(body, launched(first, X), scratch=scratch))
    assert [each.code for each in found] == ["launch-not-awaited"] * (not wait)


def test_only_what_the_launch_before_writes_needs_a_wait() -> None:
    def half(x: Any, out: Any) -> None:
        plgpu.griddepcontrol_launch_dependents()
        out[0:4] = x[0:4]
        out[4:8] = x[4:8]

    def prologue(y: Any, weights: Any, out: Any) -> None:
        scale = weights[...]
        plgpu.griddepcontrol_wait()
        out[...] = scale * y[...]

    assert findings(lambda: launched(prologue, launched(half, X), X)) == []


def test_a_launch_that_lets_no_other_start_early_needs_no_wait() -> None:
    def plain(x: Any, out: Any) -> None:
        out[...] = x[...] + 1

    assert findings(lambda: launched(second(False), launched(plain, X))) == []


@pytest.mark.parametrize("wait", [False, True])
def test_overwriting_in_place_waits_too(wait: bool) -> None:
    def body(x: Any, out: Any) -> None:
        if wait:
            plgpu.griddepcontrol_wait()
        out[...] = np.float32(1)

    found = findings(lambda: launched(body, launched(first, X), aliases={0: 0}))
    assert [each.code for each in found] == ["launch-not-awaited"] * (not wait)


def fill(wait: bool) -> Body:
    """Overwrites its input in place."""

    def body(x: Any, out: Any) -> None:
        if wait:
            plgpu.griddepcontrol_wait()
        out[...] = np.float32(1)

    return body


def reads(late: bool) -> Body:
    """Reads its input, before or after it lets the next launch start."""

    def body(x: Any, out: Any) -> None:
        if late:
            plgpu.griddepcontrol_launch_dependents()
        out[...] = x[...] + 1
        if not late:
            plgpu.griddepcontrol_launch_dependents()

    return body


def overwritten(before: Body, wait: bool, **options: Any) -> Callable[[], Any]:
    """A launch that reads an array, and one that overwrites it in place."""

    def call() -> Any:
        x = X.copy()
        launched(before, x, **options)
        return launched(fill(wait), x, aliases={0: 0})

    return call


def test_a_launch_overwrites_what_the_one_before_may_still_read() -> None:
    (found,) = findings(overwritten(reads(late=True), wait=False))
    assert (found.code, found.level) == ("launch-not-awaited", "error")
    store, load = (place.line for place in found.locations)
    assert found.message == (
        f"out (f32[8] in gmem) is written by the store on line {store} while the launch before may not have ended, "
        f"which reads it by the load on line {load}"
    )
    assert found.missing.startswith("plgpu.griddepcontrol_wait() in block 0 wg 0")


@pytest.mark.parametrize(("late", "wait"), [(True, True), (False, False)])
def test_what_was_read_before_the_next_launch_started_may_be_overwritten(late: bool, wait: bool) -> None:
    assert findings(overwritten(reads(late), wait)) == []


@pytest.mark.parametrize("late", [False, True])
def test_a_copy_has_read_once_it_is_awaited(late: bool) -> None:
    def body(x: Any, out: Any, shared: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, shared, full)
        if late:
            plgpu.griddepcontrol_launch_dependents()
        plgpu.barrier_wait(full)
        if not late:
            plgpu.griddepcontrol_launch_dependents()
        out[...] = shared[...]

    scratch = [plgpu.SMEM(X.shape, X.dtype), plgpu.Barrier()]
    found = findings(overwritten(body, wait=False, scratch=scratch))
    assert [each.code for each in found] == ["launch-not-awaited"] * late


@pytest.mark.parametrize("ordered", [False, True])
def test_reads_of_another_thread_are_complete_if_it_came_before_the_call(ordered: bool) -> None:
    def body(x: Any, out: Any, done: Any) -> None:
        @only(0)
        def _() -> None:
            if ordered:
                plgpu.barrier_wait(done)
            plgpu.griddepcontrol_launch_dependents()
            if not ordered:
                plgpu.barrier_wait(done)

        @only(1)
        def _() -> None:
            out[...] = x[...]
            plgpu.barrier_arrive(done)

    found = findings(overwritten(body, wait=False, threads=2, scratch=[plgpu.Barrier()]))
    assert [each.code for each in found] == ["launch-not-awaited"] * (not ordered)


def test_a_block_that_never_lets_the_next_launch_start_has_ended_by_then() -> None:
    def body(x: Any, out: Any) -> None:
        block = pl.axis_index("block")

        @pl.when(block == 0)
        def _() -> None:
            plgpu.griddepcontrol_launch_dependents()

        out[block] = 2 * x[block]

    def call(wide: bool) -> Any:
        x = np.ones((2, ROW), np.float32)
        kernel = plgpu.kernel(body, pl.ShapeDtypeStruct(x.shape, x.dtype), grid=(2,), grid_names=("block",))
        kernel(x)
        part = x[0] if wide else x[1]
        options = {"input_output_aliases": {0: 0}}
        return plgpu.kernel(fill(False), pl.ShapeDtypeStruct(part.shape, part.dtype), **options)(part)

    assert findings(lambda: call(False)) == []
    assert [each.code for each in findings(lambda: call(True))] == ["launch-not-awaited"]


def test_two_launches_may_read_the_same() -> None:
    def call() -> Any:
        launched(reads(late=True), X)
        return launched(second(False), X)

    assert findings(call) == []


@pytest.mark.parametrize("wait", [False, True])
def test_the_launch_before_the_last_is_over_once_one_has_waited(wait: bool) -> None:
    def middle(x: Any, out: Any) -> None:
        plgpu.griddepcontrol_launch_dependents()
        if wait:
            plgpu.griddepcontrol_wait()
        out[...] = np.float32(1)

    def last(y: Any, unused: Any, out: Any) -> None:
        out[...] = y[...]

    def chained() -> Any:
        y = launched(first, X)
        return launched(last, y, launched(middle, y))

    assert [each.code for each in findings(chained)] == ["launch-not-awaited"] * (not wait)


def test_a_part_of_what_was_written_is_known_again() -> None:
    def body(x: Any, out: Any) -> None:
        out[...] = np.float32(0)
        out[0:4] = x[...]

    def chained() -> Any:
        return launched(body, np.asarray(launched(first, X))[4:])

    (found,) = findings(chained)
    assert found.message.startswith(f"x (f32[{ROW - 4}] in gmem) is read")
