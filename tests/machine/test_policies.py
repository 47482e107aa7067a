"""Schedules: they differ, their names replay them, and findings carry the name of theirs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.machine.run.policies import (
    COMPLETIONS,
    Choices,
    Lazy,
    Policy,
    Priorities,
    Random,
    RoundRobin,
    named,
    packed,
    schedules,
    unpacked,
)
from palladio.machine.run.threads import Group
from tests.dialect.kernels import kernel
from tests.machine.tiny import Run, Threads

# Four threads that each touch one thing a few times: 16!/(4!)^4 = 63,063,000 orders.
CROWD: Threads = [[("add", "m")] * 4] * 4
COPIES: Threads = [[("copy", "pair"), ("copy", "pair"), ("wait", "pair"), ("add", "m"), ("signal", "s")]] * 2


def order(policy: Policy, threads: Threads = CROWD) -> Any:
    """The steps of a run as they touched each thing."""
    return {name: [who for _, who in touched] for name, touched in Run(threads, {"pair": 2}, policy).touched.items()}


@pytest.mark.parametrize("make", [Random, Priorities])
def test_seeds_give_different_orders(make: Callable[[int], Policy]) -> None:
    orders = {str(order(make(seed))) for seed in range(40)}
    assert len(orders) >= 30


def test_priorities_change_who_runs_a_few_times_only() -> None:
    turns = []
    for seed in range(40):
        who = [thread for thread, _ in order(Priorities(seed))["m"]]
        turns.append(sum(before != after for before, after in pairwise(who)))
    assert max(turns) <= 3 + 3, "a thread goes on until it ends or falls"
    assert sum(count > 3 for count in turns) > 12, "many runs have a change of priority"


def test_completions_are_early_late_or_anywhere() -> None:
    found = {kind: {str(order(Random(seed, kind), COPIES)["pair"]) for seed in range(20)} for kind in COMPLETIONS}
    assert min(map(len, found.values())) >= 2
    assert len(found["random"]) > len(found["earliest"])


@pytest.mark.parametrize("policy", [*schedules(14, 0), Choices([2, 0, 1])], ids=lambda policy: policy.name)
def test_the_name_of_a_schedule_replays_it(policy: Policy) -> None:
    name = policy.name
    assert named(name).name == name
    assert order(named(name), COPIES) == order(policy, COPIES)


def test_a_check_runs_one_schedule_of_each_kind_before_it_repeats_one() -> None:
    kinds = [policy.name.rpartition(":")[0] or policy.name for policy in schedules(6, 0)]
    assert len(set(kinds)) == 6
    assert [type(policy) for policy in schedules(2, 0)] == [RoundRobin, Lazy]
    assert len({policy.name for policy in schedules(1000, 7)}) == 1000


@pytest.mark.parametrize(
    "numbers, text",
    [([], "0"), ([0, 0, 0], "0"), ([2], "2"), ([0, 0, 0, 2, 1, 1, 0], "0x3.2.1x2"), ([0, 1, 0, 1], "0.1.0.1")],
)
def test_choices_have_a_short_form(numbers: list[int], text: str) -> None:
    assert packed(numbers) == text
    while numbers and numbers[-1] == 0:
        numbers.pop()
    assert (unpacked(text) or [0]) == (numbers or [0])


def test_choices_take_the_option_of_each_number_and_threads_in_turn_after_the_end() -> None:
    assert [thread for thread, _ in order(Choices([]))["m"]] == [0, 1, 2, 3] * 4
    assert [thread for thread, _ in order(Choices([3, 2, 1]))["m"]][:4] == [3, 2, 1, 0]


def test_a_number_beyond_the_options_takes_the_last_one() -> None:
    assert [thread for thread, _ in order(Choices([99]))["m"]][0] == 3


def test_the_schedule_of_a_finding_gives_it_again() -> None:
    def body(o_ref: Any, one: Any, token: Any) -> None:
        me = pl.axis_index("thread")

        @pl.when(me == 0)
        def _() -> None:
            pl.semaphore_signal(token)

        @pl.when(me != 0)
        def _() -> None:
            pl.semaphore_wait(token)
            pl.when(me == 1)(lambda: pl.semaphore_wait(one))
            pl.semaphore_signal(token)
            pl.when(me == 2)(lambda: pl.semaphore_signal(one))

    scratch = [plgpu.SemaphoreType.REGULAR, plgpu.SemaphoreType.REGULAR]
    call = kernel(body, num_threads=3, thread_name="thread", scratch_types=scratch)
    report = pl.check(call)
    (found,) = [finding for finding in report.findings if finding.code == "deadlock"]
    again = pl.check(call, schedule=found.schedule)
    assert again.explored == 1
    assert [finding.render() for finding in again.findings if finding.code == "deadlock"] == [found.render()]
    assert f'schedule="{found.schedule}"' in found.render()


def nothing() -> None:
    """What is not run."""


NO_SCHEDULES = ["fastest", "random", "random:soon:1", "random:latest:1:2", "round_robin:3", "pct:x", "pct:", "", 3]
NO_CHOICES = ["choices", "choices:", "choices:1.x", "choices:1x", "choices:-1", "choices:1x99999999999"]


@pytest.mark.parametrize("name", [*NO_SCHEDULES, *NO_CHOICES])
def test_names_of_no_schedule_are_refused(name: Any) -> None:
    with pytest.raises(PalladioValueError) as caught:
        pl.check(nothing, schedule=name)
    text = str(caught.value)
    assert text.startswith("schedule: no schedule has this name")
    assert "round_robin, latest, random:latest:7, pct:3" in text
    assert f"got:      {name!r}" in text


def test_numbers_of_schedules_are_at_least_one() -> None:
    with pytest.raises(PalladioValueError, match="schedules: at least one schedule runs"):
        pl.check(nothing, schedules=0)


@pytest.mark.parametrize("seed", ["1", 1.5, None])
def test_a_seed_is_an_integer(seed: Any) -> None:
    with pytest.raises(PalladioTypeError, match="seed: a seed is an integer"):
        pl.check(nothing, seed=seed)


def test_progress_is_a_function() -> None:
    with pytest.raises(PalladioTypeError, match="progress: progress is a function of two numbers"):
        pl.check(nothing, progress=3)  # type: ignore[arg-type]


def test_what_is_checked_is_a_function() -> None:
    with pytest.raises(PalladioTypeError, match="fn: check runs a function"):
        pl.check(np.zeros(3))  # type: ignore[arg-type]


def comers(grid: int, schedule: str) -> Any:
    """The place in which each block came, by a count that all raise, with room for 132 of them."""

    def body(out: Any, count: Any) -> None:
        out[pl.axis_index("x")] = plgpu.atomic_add(count, 0, 1)

    def call() -> Any:
        zero = np.zeros(1, np.int32)
        places = pl.ShapeDtypeStruct((grid,), np.int32)
        outs = [places, pl.ShapeDtypeStruct((1,), np.int32)]
        run = plgpu.kernel(lambda _, *refs: body(*refs), outs, grid=(grid,), grid_names=("x",), **ALIASED)
        found.append(run(zero)[0])

    found: list[Any] = []
    assert pl.check(call, schedule=schedule).findings == []
    return found[0].tolist()


ALIASED: Any = {"input_output_aliases": {0: 1}}


@pytest.mark.parametrize("kind", ["random:random:", "pct:"])
def test_any_block_may_come_first(kind: str) -> None:
    first = {comers(4, f"{kind}{seed}").index(0) for seed in range(20)}
    assert first == {0, 1, 2, 3}


@pytest.mark.parametrize("schedule", ["random:random:1", "pct:1"])
def test_blocks_start_in_any_order_only_as_far_as_there_is_room(schedule: str) -> None:
    started: list[int] = []
    group = Group(None, iter([partial(started.append, number) for number in range(9)]), 4)
    policy = named(schedule)
    while group.start_next(policy.random.randrange):  # type: ignore[attr-defined]
        pass
    assert sorted(started) == [0, 1, 2, 3]
    group.resident -= 2
    while group.start_next(policy.random.randrange):  # type: ignore[attr-defined]
        pass
    assert sorted(started[4:]) == [4, 5]
