"""Rows of the benchmarks in processes of their own."""

from __future__ import annotations

import os

import numpy as np

from benchmarks import rows
from benchmarks.measure import OURS, Comparison, Contender, Floor, Outcome


def row(name: str) -> Outcome:
    if name == "ends":
        os._exit(3)
    value = np.float64(os.getpid())
    contenders = [Contender(OURS, lambda: np.ones(1), 3), Contender("Peer", lambda: np.ones(1), 2)]
    missing = Contender("Missing", None, missing="not there")
    comparison = Comparison(f"{name} {value:.0f}", [*contenders, missing], np.ones(1), 1e-5, floor=Floor("Peer", 0.0))
    return rows.run(comparison)


def test_each_row_has_a_process_and_gives_back_times_without_arrays() -> None:
    said: list[str] = []
    outcomes, failures = rows.measured(["first", "ends", "second"], said.append, row)
    assert said == ["first", "ends", "second"]
    assert failures == ["ends: its process has ended before its result"]
    processes = {int(each.comparison.name.split()[1]) for each in outcomes}
    assert len(processes) == 2 and os.getpid() not in processes
    for each in outcomes:
        assert [len(timing.seconds) for timing in each.timings] == [3, 2, 0]
        assert each.comparison.expected.size == 0 and each.judge is each.timings[1]
        assert each.failures == [] and each.timings[2].contender.missing == "not there"
