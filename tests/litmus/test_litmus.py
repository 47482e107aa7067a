"""Litmus pairs: a kernel is found right, and wrong once one thing in it is changed, in every schedule.

A pair stands in one of the modules beside this one. Happens-before does not depend on the schedule, so neither does
the verdict: the broken kernel has its codes, all of them and no others, in each schedule that is tried.
"""

from __future__ import annotations

import numpy as np
import pytest

import palladio as pl
from palladio.driver.checks.runs import run_once
from palladio.machine.check.findings import CODES, LEVELS
from palladio.machine.run.policies import RoundRobin, named, schedules
from tests.litmus import barriers, copies, cores, deadlocks, products, races
from tests.litmus.pairs import PAIRS

FAMILIES = (races, copies, products, barriers, deadlocks, cores)
SCHEDULES = [policy.name for policy in schedules(18, seed=0)]


@pytest.mark.parametrize("name", PAIRS)
def test_the_correct_kernel_has_no_finding_and_the_right_values_in_any_schedule(name: str) -> None:
    case = PAIRS[name].make(False)
    results = []
    for schedule in SCHEDULES:
        run = run_once(lambda: results.append(case()), (), lambda schedule=schedule: named(schedule))
        assert [finding.render() for finding in run.findings] == [], schedule
        for result, expected in zip(results.pop(), case.expected, strict=True):
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", PAIRS)
def test_the_broken_kernel_has_its_codes_in_every_schedule(name: str) -> None:
    case = PAIRS[name].make(True)
    found = {}
    for schedule in SCHEDULES:
        run = run_once(case, (), lambda schedule=schedule: named(schedule))
        found[schedule] = {finding.code for finding in run.findings}
    assert found == {schedule: set(PAIRS[name].codes) for schedule in SCHEDULES}


@pytest.mark.parametrize("name", PAIRS)
def test_the_report_shows_both_places_and_the_fix(name: str) -> None:
    report = pl.check(PAIRS[name].make(True), schedules=1)
    for finding in report.findings:
        text = finding.render()
        level = "" if finding.level == "error" else f" ({finding.level})"
        assert text.startswith(f"{finding.code}{level}: ")
        assert "  try:     " in text
        assert finding.locations, "every finding has a place in the kernel"
        assert all(place.file.startswith(str(__file__).rpartition("/")[0]) for place in finding.locations)


@pytest.mark.parametrize("name", PAIRS)
def test_a_broken_kernel_is_as_bad_as_its_pair_says(name: str) -> None:
    found = {finding.level for finding in run_once(PAIRS[name].make(True), (), RoundRobin).findings}
    assert next(level for level in LEVELS if level in found) == PAIRS[name].level


def test_every_code_has_a_pair() -> None:
    elsewhere = {"launch-not-awaited"}  # it takes two launches: test_dependent_launches.py
    assert {pair.codes[0] for pair in PAIRS.values()} | elsewhere == set(CODES)


def test_there_are_enough_pairs() -> None:
    assert len(PAIRS) >= 60
