"""A check with several sizes, and one whose schedules an executor spreads."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
from collections.abc import Callable, Generator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import Any

import distributed
import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.driver.checks.runs import run_named
from palladio.driver.checks.workers import Workers
from palladio.machine.run.policies import schedules
from tests.machine.test_explore import hasty_kernel

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def ring(k: int, stages: int = 2, released: bool = True) -> Any:
    """Rows go through a ring of stages; without the release the third row overwrites the first."""

    def body(x: Any, out: Any, buffer: Any, full: Any, empty: Any) -> None:
        @pl.when(pl.axis_index("wg") == 0)
        def _() -> None:
            @pl.loop(0, k)
            def _(step: Any) -> None:
                @pl.when((step >= stages) & released)
                def _() -> None:
                    plgpu.barrier_wait(empty.at[step % stages])

                plgpu.copy_gmem_to_smem(x.at[step], buffer.at[step % stages], full.at[step % stages])

        @pl.when(pl.axis_index("wg") == 1)
        def _() -> None:
            @pl.loop(0, k)
            def _(step: Any) -> None:
                plgpu.barrier_wait(full.at[step % stages])
                out[step] = buffer[step % stages]
                plgpu.barrier_arrive(empty.at[step % stages], predicate=(step < k - stages) & released)

    scratch = [
        plgpu.SMEM((stages, 8), np.float32),
        plgpu.Barrier(num_barriers=stages),
        plgpu.Barrier(num_barriers=stages),
    ]
    out = pl.ShapeDtypeStruct((k, 8), np.float32)
    return plgpu.kernel(body, out, scratch_types=scratch, num_threads=2, thread_name="wg")(X[:k])


def broken(k: int) -> Any:
    """The ring that releases nothing: right up to two rows."""
    return ring(k, released=False)


def test_a_check_runs_for_every_size() -> None:
    report = pl.check(ring, schedules=3, sizes={"k": range(1, 6)})
    assert report.ok
    assert report.summary == "no finding in 15 schedules of 5 sizes"


def test_a_finding_names_the_size_that_it_was_met_with() -> None:
    report = pl.check(broken, schedules=2, sizes={"k": range(1, 6)})
    assert not report.ok
    assert {finding.details for finding in report.findings} == {("with k = 3",)}


def test_sizes_are_combined() -> None:
    seen = []

    def called(k: int, stages: int) -> Any:
        seen.append((k, stages))
        return ring(k, stages)

    assert pl.check(called, schedules=1, sizes={"k": (2, 4), "stages": (1, 2)}).ok
    assert seen == [(2, 1), (2, 2), (4, 1), (4, 2)]


def test_an_exhaustive_check_is_complete_for_its_sizes() -> None:
    report = pl.check(ring, exhaustive=True, sizes={"k": (1, 3)})
    assert report.complete
    found = "no finding in all 2 schedules that can differ"
    assert report.summary == f"{found}, in this model, with these 2 sizes and inputs"


@pytest.mark.parametrize("sizes", [3, {3: (1, 2)}])
def test_sizes_are_values_for_names(sizes: Any) -> None:
    with pytest.raises(PalladioTypeError, match="sizes: sizes are values for keyword arguments of the function"):
        pl.check(ring, sizes=sizes)


def test_each_size_has_a_value() -> None:
    with pytest.raises(PalladioValueError, match="sizes: each size has at least one value"):
        pl.check(ring, sizes={"k": ()})


@contextlib.contextmanager
def dask() -> Generator[Executor]:
    """The executor of a Dask cluster with one process for workers."""
    settings = {"n_workers": 1, "threads_per_worker": 2, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        yield client.get_executor()


ENGINES: dict[str, Callable[[], Any]] = {
    "threads": partial(ThreadPoolExecutor, 2),
    "processes": partial(ProcessPoolExecutor, 2, multiprocessing.get_context("spawn")),
    "dask": dask,
    "workers": partial(Workers, 2),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_executor_gives_the_same_report(engine: str) -> None:
    done: list[tuple[int, int | None]] = []
    with ENGINES[engine]() as executor:
        for fn in (ring, broken):
            alone = pl.check(fn, 5, schedules=10)
            done.clear()
            tell = lambda n, total: done.append((n, total))
            spread = pl.check(fn, 5, schedules=10, executor=executor, progress=tell)
            assert str(spread) == str(alone)
            assert spread.explored == alone.explored == 10
            assert done == [(n, 10) for n in (1, 4, 6, 7, 8, 9, 10)]


def turns(rounds: int) -> Any:
    """Two threads that take turns at a lock; the second may keep the first from ending."""
    return hasty_kernel(rounds)()


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_an_exhaustive_check_is_the_same_whoever_runs_it(engine: str) -> None:
    alone, spread, told = [], [], []
    with ENGINES[engine]() as executor:
        for fn, size in ((turns, 4), (broken, 3)):
            alone.append(pl.check(fn, size, exhaustive=True))
            spread.append(pl.check(fn, size, exhaustive=True, executor=executor, progress=lambda n, _: told.append(n)))
    assert [str(report) for report in spread] == [str(report) for report in alone]
    assert [(report.complete, report.explored) for report in spread] == [(True, 70 + 1), (True, 4)]
    assert max(told) == 70 + 1


def test_what_a_worker_gets_and_gives_can_be_pickled() -> None:
    names = [policy.name for policy in schedules(3, 0)]
    sent = pickle.loads(pickle.dumps((run_named, (broken, (5,), names))))
    found = pickle.loads(pickle.dumps(sent[0](*sent[1])))
    assert found
    assert [each.render() for each in found] == [each.render() for each in run_named(broken, (5,), names)]


def ring_of(size: Callable[[], int]) -> Any:
    return ring(size())


def test_a_function_that_does_not_get_to_other_processes_is_refused() -> None:
    lonely = lambda: ring(5)
    with ENGINES["processes"]() as executor:
        for fn, args, argument in ((lonely, (), "fn"), (ring_of, (lambda: 5,), "args")):
            for exhaustive in (False, True):
                with pytest.raises(pl.PalladioTypeError) as caught:
                    pl.check(fn, *args, schedules=10, executor=executor, exhaustive=exhaustive)
                first, got, hint, place, *_ = str(caught.value).splitlines()
                assert first == (
                    f"{argument}: the processes of the executor are sent a pickle of the function and its arguments"
                )
                assert got.startswith("  got:      ") and "lambda" in got
                assert hint.startswith("  hint:     define functions at the top of a module")
                assert place.startswith(f"  {__file__}:")


def test_what_is_no_executor_is_refused() -> None:
    text = (
        "executor: schedules are spread over an executor\n"
        "  expected: one of concurrent.futures, or its like\n"
        "  got:      3"
    )
    with pytest.raises(pl.PalladioTypeError, match=text):
        pl.check(ring, 5, executor=3)  # type: ignore[arg-type]
