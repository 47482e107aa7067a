"""Processes that share work with the one that waits for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import CancelledError, wait
from typing import Any

import pytest

from palladio.driver.checks.workers import Workers


class Stuck(Workers):
    """Workers whose other processes take nothing: this one does it all."""

    def __init__(self) -> None:
        super().__init__(2)
        self._idle = 0


@pytest.fixture
def stuck() -> Iterator[Workers]:
    with Stuck() as workers:
        yield workers


@pytest.fixture(scope="module")
def two() -> Iterator[Workers]:
    with Workers(2) as workers:
        yield workers


def failed() -> Any:
    raise ValueError("no")


def test_another_process_takes_work(two: Workers) -> None:
    work = [two.submit(os.getpid) for _ in range(3)]
    wait(work)  # which does not work itself
    assert len({each.result() for each in work} - {os.getpid()}) == 1


def test_who_waits_takes_work_that_has_not_begun(stuck: Workers) -> None:
    assert [each.result() for each in [stuck.submit(os.getpid) for _ in range(3)]] == [os.getpid()] * 3


def test_results_have_the_order_of_the_work(two: Workers) -> None:
    assert list(two.map(abs, range(-20, 0))) == [*range(20, 0, -1)]


@pytest.mark.parametrize("workers", ["two", "stuck"])
def test_an_error_comes_where_the_result_would(workers: str, request: pytest.FixtureRequest) -> None:
    ran = request.getfixturevalue(workers)
    bad, good = ran.submit(failed), ran.submit(abs, -1)
    assert good.result() == 1
    with pytest.raises(ValueError, match="no"):
        bad.result()


def test_work_that_is_cancelled_is_not_done(stuck: Workers) -> None:
    first, second = stuck.submit(failed), stuck.submit(abs, -2)
    assert first.cancel()
    assert second.result() == 2
    with pytest.raises(CancelledError):
        first.result()


def test_a_shutdown_finishes_the_work_or_cancels_it() -> None:
    with Stuck() as workers:
        done = workers.submit(abs, -3)
    assert done.done()
    assert done.result() == 3
    workers = Stuck()
    left = workers.submit(abs, -3)
    workers.shutdown(cancel_futures=True)
    with pytest.raises(CancelledError):
        left.result()
