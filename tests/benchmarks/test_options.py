"""The options of `python -m benchmarks`."""

import os

import pytest

from benchmarks import __main__ as command

NAMES = ["gmm", "routed-mixtral-1", "routed-mixtral-16", "cold"]


def test_cases_are_chosen_by_name_or_pattern_and_keep_their_order():
    parser = command._parser()
    assert command._chosen(None, NAMES, parser) == NAMES
    assert command._chosen(["routed-*", "gmm"], NAMES, parser) == NAMES[:3]


def test_a_pattern_without_a_case_is_refused(capsys):
    with pytest.raises(SystemExit):
        command._chosen(["gmn"], NAMES, command._parser())
    assert capsys.readouterr().err.splitlines()[-1] == (
        "python -m benchmarks: error: --only: no case matches 'gmn'; the cases are "
        "gmm, routed-mixtral-1, routed-mixtral-16, cold"
    )


def test_the_process_stays_on_the_first_of_its_cores(monkeypatch, capsys):
    kept = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {7, 3, 5}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: kept.append(cores), raising=False)
    command._stay_on(2, command._parser())
    assert kept == [[3, 5]]
    with pytest.raises(SystemExit):
        command._stay_on(4, command._parser())
    assert capsys.readouterr().err.splitlines()[-1] == (
        "python -m benchmarks: error: --cores: 4, where this process may run on 1 to 3"
    )
