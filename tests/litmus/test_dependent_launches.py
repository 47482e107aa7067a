"""Dependent launches: a launch that may start before the one before it has ended must wait for what that one writes."""

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


def test_a_wait_behind_the_read_is_too_late() -> None:
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
def test_copies_need_the_wait_and_no_fence_behind_it(wait: bool) -> None:
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
