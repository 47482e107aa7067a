"""Threads that look again and again: others get their turn, and a wait without end is a deadlock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from palladio.machine.run import machine
from palladio.machine.run.policies import schedules


def polled(arrives: bool) -> Any:
    """One thread polls a barrier that the other arrives at."""

    def body(out: Any, barrier: Any) -> None:
        @pl.when(pl.axis_index("wg") == 0)
        def _() -> None:
            lax.while_loop(lambda done: ~done, lambda done: plgpu.barrier_test(barrier), jnp.bool_(False))
            out[0] = jnp.int32(1)

        if arrives:

            @pl.when(pl.axis_index("wg") == 1)
            def _() -> None:
                plgpu.barrier_arrive(barrier)

    out = pl.ShapeDtypeStruct((1,), np.int32)
    return plgpu.kernel(body, out, scratch_types=[plgpu.Barrier()], num_threads=2, thread_name="wg")


def flagged(blocks: int, raises: bool) -> Any:
    """Block 0 waits, by atomics, for a flag that the last block raises."""

    def body(flag: Any, out: Any, result: Any) -> None:
        @pl.when(pl.axis_index("x") == 0)
        def _() -> None:
            lax.while_loop(lambda seen: seen == 0, lambda seen: plgpu.atomic_add(result, 0, 0), jnp.int32(0))
            out[0] = jnp.int32(1)

        if raises:

            @pl.when(pl.axis_index("x") == blocks - 1)
            def _() -> None:
                plgpu.atomic_add(result, 0, 1)

    struct = pl.ShapeDtypeStruct((1,), np.int32)
    call = plgpu.kernel(body, (struct, struct), grid=(blocks,), grid_names=("x",), input_output_aliases={0: 1})
    return lambda: call(np.zeros(1, np.int32))


@pytest.mark.parametrize("policy", schedules(8, 0), ids=lambda policy: policy.name)
def test_who_polls_lets_the_others_go_on(policy: Any) -> None:
    assert pl.check(polled(arrives=True), schedule=policy.name).ok


@pytest.mark.parametrize("policy", schedules(8, 0), ids=lambda policy: policy.name)
def test_a_flag_between_blocks_is_seen(policy: Any) -> None:
    assert pl.check(flagged(3, raises=True), schedule=policy.name).ok


@pytest.mark.parametrize("policy", schedules(4, 0), ids=lambda policy: policy.name)
def test_a_flag_that_is_never_raised_is_a_deadlock(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MOST_SPINS", 1000)  # as many as are needed by default take seconds
    (finding,) = pl.check(flagged(3, raises=False), schedule=policy.name).findings
    assert finding.code == "deadlock"
    assert {each.did for each in finding.participants} == {"polls repeatedly"}
    assert finding.locations


def test_polling_without_end_is_a_deadlock() -> None:
    (finding,) = pl.check(polled(arrives=False), schedules=1).findings
    assert finding.code == "deadlock"
    assert "threads poll for an event that no remaining thread can cause" in str(finding)


def test_without_the_checker_it_is_an_error() -> None:
    with pytest.raises(pl.PalladioValueError, match="deadlock: threads poll for an event"):
        polled(arrives=False)()


def test_exploring_finds_polling_without_end() -> None:
    report = pl.check(flagged(2, raises=False), exhaustive=True, schedules=2)
    assert {finding.code for finding in report.findings} == {"deadlock"}
    assert not report.complete


def test_a_loop_that_reads_for_long_is_no_deadlock() -> None:
    def body(x: Any, out: Any) -> None:
        out[0] = lax.while_loop(lambda i: x[i] == 0, lambda i: i + 1, jnp.int32(0))

    x = np.zeros(2000, np.int32)
    x[-1] = 1
    call = plgpu.kernel(body, pl.ShapeDtypeStruct((1,), np.int32))
    assert pl.check(call, x, schedules=2).ok
    assert pl.check(call, x, exhaustive=True).ok
    assert call(x)[0] == 1999
