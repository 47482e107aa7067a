"""What the simulator says of programs that do not wait for each other as they should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.tpu as pltpu
from tests.errors.shown import shown
from tests.mpmd.calls import LEFT, OUT, RIGHT, X, nothing

REGULAR = pltpu.SemaphoreType.REGULAR
SCRATCH = {"rows": pltpu.HBM((2, 4), np.float32), "full": REGULAR @ RIGHT, "free": REGULAR @ LEFT}
STEPS = 3


def produce(x_ref: Any, o_ref: Any, *, rows: Any, full: Any, free: Any, waits: bool = True) -> None:
    @pl.loop(0, STEPS)
    def _(step: Any) -> None:
        if waits:

            @pl.when(step > 0)
            def _() -> None:
                pl.semaphore_wait(free, 2)

        rows[...] = x_ref[...] * step
        for core in range(2):
            pl.semaphore_signal(full, device_id={"right": core})


def consume(x_ref: Any, o_ref: Any, *, rows: Any, full: Any, free: Any, waits: bool = True) -> None:
    me = pl.axis_index("right")
    o_ref[me] = x_ref[me]

    @pl.loop(0, STEPS)
    def _(step: Any) -> None:
        if waits:
            pl.semaphore_wait(full)
        o_ref[me] = o_ref[me] + rows[me]

        @pl.when(step < STEPS - 1)
        def _() -> None:
            pl.semaphore_signal(free, device_id={"left": 0})


def call(left: Any = produce, right: Any = consume) -> Any:
    return pl.mpmd_map([(LEFT, left), (RIGHT, right)], OUT, scratch_types=SCRATCH)


def codes(report: Any) -> set[str]:
    return {finding.code for finding in report.findings}


def programs(finding: Any) -> set[str]:
    return {participant.thread.split()[-1] for participant in finding.participants}


def lines(finding: Any) -> set[str]:
    return {participant.location.function for participant in finding.participants}


def test_programs_that_wait_for_each_other_share_their_rows() -> None:
    assert np.array_equal(call()(X), X * 4)


@pytest.mark.one_executor
def test_programs_that_wait_for_each_other_have_no_finding() -> None:
    assert pl.check(call(), X, schedules=200).ok


@pytest.mark.one_executor
def test_a_producer_that_does_not_wait_races() -> None:
    def hasty(*refs: Any, **scratch: Any) -> None:
        produce(*refs, **scratch, waits=False)

    def alone(*refs: Any, **scratch: Any) -> None:
        consume(*refs, **scratch)

    report = pl.check(call(hasty, alone), X)
    race = next(each for each in report.findings if each.code in ("global-race", "data-race"))
    assert programs(race) == {"hasty", "alone"}
    assert all(participant.location is not None for participant in race.participants)


@pytest.mark.one_executor
def test_a_consumer_that_does_not_wait_races() -> None:
    def hasty(*refs: Any, **scratch: Any) -> None:
        consume(*refs, **scratch, waits=False)

    report = pl.check(call(right=hasty), X)
    assert codes(report) & {"global-race", "data-race", "uninitialized-read"}
    assert any(programs(finding) == {"produce", "hasty"} for finding in report.findings)


def test_the_evaluator_names_both_programs_of_a_deadlock() -> None:
    def left(x_ref: Any, o_ref: Any, *, rows: Any, full: Any, free: Any) -> None:
        pl.semaphore_wait(free)
        pl.semaphore_signal(full, device_id={"right": 0})

    def right(x_ref: Any, o_ref: Any, *, rows: Any, full: Any, free: Any) -> None:
        pl.semaphore_wait(full)
        pl.semaphore_signal(free, device_id={"left": 0})

    with pytest.raises(ValueError) as error:
        call(left, right)(X)
    text = shown(error.value)
    assert text.startswith("deadlock: all 3 threads that have not ended wait, and nothing is in flight")
    assert "left 0 left waits until semaphore free is 1: it is 0" in text
    assert "right 0 right and right 1 right wait until semaphore full is 1: it is 0" in text
    assert "pl.semaphore_wait(free)" in text


@pytest.mark.one_executor
def test_a_deadlock_between_two_programs_is_a_finding_with_both_lines() -> None:
    def left(x_ref: Any, o_ref: Any, *, rows: Any, full: Any, free: Any) -> None:
        pl.semaphore_wait(free)
        pl.semaphore_signal(full, device_id={"right": 0})

    def right(x_ref: Any, o_ref: Any, *, rows: Any, full: Any, free: Any) -> None:
        @pl.when(pl.axis_index("right") == 0)
        def first() -> None:
            pl.semaphore_wait(full)
            pl.semaphore_signal(free, device_id={"left": 0})

    report = pl.check(call(left, right), X)
    (deadlock,) = (each for each in report.findings if each.code == "deadlock")
    assert programs(deadlock) == {"left", "right"}
    assert lines(deadlock) == {"left", "first"}


@pytest.mark.one_executor
def test_a_semaphore_that_is_left_raised_is_a_finding() -> None:
    def raises(x_ref: Any, o_ref: Any, *, rows: Any, full: Any, free: Any) -> None:
        pl.semaphore_signal(full, device_id={"right": 1})

    report = pl.check(call(raises, nothing), X)
    assert codes(report) == {"semaphore-not-drained"}


def test_the_simulator_raises_the_first_finding() -> None:
    def hasty(*refs: Any, **scratch: Any) -> None:
        produce(*refs, **scratch, waits=False)

    with pl.executor("simulator"), pytest.raises(pl.PalladioError):
        for _ in range(2):
            call(hasty)(X)


def hand_over(x_ref: Any, o_ref: Any, ready: Any) -> None:
    o_ref[0] = x_ref[0]
    pl.semaphore_signal(ready, device_id={"right": 1})


def read_and_add(x_ref: Any, o_ref: Any, ready: Any) -> None:
    @pl.when(pl.axis_index("right") == 1)
    def _() -> None:
        pl.semaphore_wait(ready)
        o_ref[1] = o_ref[0] + 1


@pytest.mark.one_executor
def test_exhaustive_exploration_of_the_smallest_is_complete() -> None:
    smallest = pl.mpmd_map([(LEFT, hand_over), (RIGHT, read_and_add)], OUT, scratch_types=[REGULAR @ RIGHT])
    report = pl.check(smallest, X, exhaustive=True)
    assert report.ok and report.complete


def replicated(by_core: int) -> Any:
    """Each of four sub-cores copies x plus its number times `by_core` to the whole output."""

    def body(x_ref: Any, o_ref: Any, row: Any) -> None:
        pltpu.sync_copy(x_ref, row)
        row[...] = row[...] + pl.axis_index("subcore") * by_core
        pltpu.sync_copy(row, o_ref)

    return pl.kernel(
        body,
        pl.ShapeDtypeStruct((16,), np.int32),
        mesh=pltpu.VectorSubcoreMesh("core", "subcore", 1, 4),
        scratch_types=[pltpu.VMEM((16,), np.int32)],
    )


@pytest.mark.one_executor
def test_sub_cores_that_copy_the_same_bytes_to_one_place_are_a_hint() -> None:
    x = np.arange(16, dtype=np.int32)
    report = pl.check(replicated(0), x)
    assert report.ok
    assert [(each.code, each.level) for each in report.findings] == [("global-race", "hint")]
    assert "in no order, with the same bytes" in str(report)
    with pl.executor("simulator"):
        assert np.array_equal(replicated(0)(x), x)


@pytest.mark.one_executor
def test_sub_cores_that_copy_other_bytes_to_one_place_race() -> None:
    x = np.arange(16, dtype=np.int32)
    assert ("global-race", "error") in [(each.code, each.level) for each in pl.check(replicated(1), x).findings]
    with pl.executor("simulator"), pytest.raises(pl.PalladioError, match="global-race: o_ref"):
        replicated(1)(x)


@pytest.mark.one_executor
@pytest.mark.parametrize(("turned", "level"), [(False, "hint"), (True, "error")])
def test_sub_cores_that_scatter_the_same_bytes_by_the_same_indices_are_a_hint(turned: bool, level: str) -> None:
    def body(x_ref: Any, at_ref: Any, o_ref: Any, row: Any, at: Any) -> None:
        pltpu.sync_copy(x_ref, row)
        pltpu.sync_copy(at_ref, at)
        places = at[...]
        if turned:  # the same elements, in another order on each core
            places = (places + pl.axis_index("subcore")) % 16
        pltpu.sync_copy(row, o_ref.at[places])

    call = pl.kernel(
        body,
        pl.ShapeDtypeStruct((16,), np.int32),
        mesh=pltpu.VectorSubcoreMesh("core", "subcore", 1, 4),
        scratch_types=[pltpu.VMEM((16,), np.int32)] * 2,
    )
    x, at = np.arange(16, dtype=np.int32), np.arange(16, dtype=np.int32)[::-1].copy()
    found = pl.check(call, x, at).findings
    assert [(each.code, each.level) for each in found] == [("global-race", level)]


@pytest.mark.one_executor
def test_sub_cores_that_copy_the_same_bytes_by_two_copies_race() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.axis_index("subcore") == 0)
        def _() -> None:
            pltpu.sync_copy(x_ref, o_ref)

        @pl.when(pl.axis_index("subcore") == 1)
        def _() -> None:
            pltpu.sync_copy(x_ref, o_ref)

    mesh = pltpu.VectorSubcoreMesh("core", "subcore", 1, 2)
    report = pl.check(pl.kernel(body, pl.ShapeDtypeStruct((16,), np.int32), mesh=mesh), np.arange(16, dtype=np.int32))
    assert ("global-race", "error") in [(each.code, each.level) for each in report.findings]


def test_a_later_write_races_with_each_of_the_copies_of_the_same_bytes() -> None:
    """It is ordered after the last one only; the simulator runs one schedule."""

    def body(x_ref: Any, o_ref: Any, row: Any, copied: Any) -> None:
        core = pl.axis_index("subcore")

        @pl.when(core < 2)
        def _() -> None:
            pltpu.sync_copy(x_ref, o_ref)

        @pl.when(core == 1)
        def _() -> None:
            pl.semaphore_signal(copied, device_id={"subcore": 2})

        @pl.when(core == 2)
        def _() -> None:
            pltpu.sync_copy(x_ref, row)
            row[...] = row[...] + 1
            pl.semaphore_wait(copied)
            pltpu.sync_copy(row, o_ref)

    call = pl.kernel(
        body,
        pl.ShapeDtypeStruct((16,), np.int32),
        mesh=pltpu.VectorSubcoreMesh("core", "subcore", 1, 3),
        scratch_types=[pltpu.VMEM((16,), np.int32), REGULAR],
    )
    with pl.executor("simulator"), pytest.raises(pl.PalladioError, match="global-race: o_ref"):
        call(np.arange(16, dtype=np.int32))
