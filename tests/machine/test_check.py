"""`palladio.check`, its report, and Pallas' own ways to choose the simulator."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu
from palladio.driver.simulation import SimulatorWarning
from palladio.machine.check.findings import CheckError
from tests.errors.shown import shows

X = np.ones((8, 8), np.float32)


def doubled(fence: bool = True, **options: Any) -> Any:
    """A tile on its way through shared memory; without the fence the store may not see it."""

    def body(x: Any, out: Any, buffer: Any) -> None:
        buffer[...] = 2 * x[...]
        if fence:
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(buffer, out)
        plgpu.wait_smem_to_gmem(0)

    scratch = [plgpu.SMEM(X.shape, X.dtype)]
    return plgpu.kernel(body, pl.ShapeDtypeStruct(X.shape, X.dtype), scratch_types=scratch, **options)


def test_a_report_of_a_correct_kernel() -> None:
    report = pl.check(doubled(), X, schedules=4)
    assert report.ok
    assert report.findings == []
    assert report.explored == 4
    assert not report.complete
    assert str(report) == "no finding in 4 schedules"


def test_a_report_of_a_broken_one() -> None:
    report = pl.check(doubled(fence=False), X, schedules=4)
    assert not report.ok
    (finding,) = report.findings
    assert finding.code == "missing-commit-smem"
    assert len(finding.locations) == 2
    assert {Path(place.file).name for place in finding.locations} == {"test_check.py"}
    assert finding.threads == ("block 0 thread", "block 0 thread")
    assert finding.schedule == "round_robin"
    assert str(report).endswith("1 finding in 4 schedules")


@pytest.mark.parametrize(("exhaustive", "made"), [(False, 100), (True, 32)])
def test_an_exhaustive_check_makes_random_schedules_for_repairs_alone(
    exhaustive: bool, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, counts = sys.modules[pl.check.__module__], []
    monkeypatch.setattr(
        module, "sampled", lambda count, seed, make=module.sampled: counts.append(count) or make(2, seed)
    )
    assert pl.check(doubled(), X, schedules=100, exhaustive=exhaustive).ok
    assert counts == [made]


def test_a_finding_is_replayed_by_its_schedule() -> None:
    (finding,) = pl.check(doubled(fence=False), X, schedules=1).findings
    (again,) = pl.check(doubled(fence=False), X, schedule=finding.schedule).findings
    assert again == finding


def test_progress_is_told() -> None:
    told: list[tuple[int, int | None]] = []
    pl.check(doubled(), X, schedules=3, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_report_draws_its_timeline(tmp_path: Path) -> None:
    timeline = pl.check(doubled(), X, schedules=1).timeline
    timeline.svg(tmp_path / "timeline.svg")
    timeline.perfetto(tmp_path / "timeline.json")
    assert "<svg" in (tmp_path / "timeline.svg").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "timeline.json").read_text(encoding="utf-8"))["traceEvents"]


def test_a_report_that_was_made_by_hand_has_no_timeline() -> None:
    with pytest.raises(pl.PalladioValueError, match="a report without its call has no timeline"):
        _ = pl.Report().timeline


def test_what_does_not_do_the_same_each_time_is_not_explored() -> None:
    calls = [0]

    def body(out: Any, done: Any) -> None:
        calls[0] += 1
        for _ in range(calls[0]):
            plgpu.semaphore_signal(done)
        plgpu.semaphore_wait(done, calls[0] * 2)
        out[0] = np.int32(1)

    def run() -> Any:
        struct = pl.ShapeDtypeStruct((1,), np.int32)
        scratch = [plgpu.SemaphoreType.REGULAR]
        mesh = {"num_threads": 2, "thread_name": "t"}
        return plgpu.kernel(body, struct, scratch_types=scratch, **mesh)()

    rule = "exhaustive exploration runs the function again and again, and it does not do the same each time"
    with pytest.raises(pl.PalladioValueError, match=rule):
        pl.check(run, exhaustive=True)


def test_the_executor_raises_the_first_finding() -> None:
    with pl.executor("simulator"), pytest.raises(CheckError) as caught:
        doubled(fence=False)(X)
    assert caught.value.finding.code == "missing-commit-smem"
    assert "missing: plgpu.commit_smem()" in str(caught.value)


def test_parameters_of_the_gpu_interpreter_choose_the_simulator() -> None:
    np.testing.assert_array_equal(doubled(fence=False, interpret=plgpu.InterpretGPUParams())(X), 2 * X)
    with pytest.raises(CheckError):
        doubled(fence=False, interpret=plgpu.InterpretGPUParams(detect_races=True))(X)


def test_findings_may_be_warnings() -> None:
    parameters = plgpu.InterpretGPUParams(detect_races=True, on_race="warn")
    with pytest.warns(SimulatorWarning, match="missing-commit-smem"):
        np.testing.assert_array_equal(doubled(fence=False, interpret=parameters)(X), 2 * X)


@pytest.mark.parametrize("memory", ["nan", "zero"])
def test_what_memory_holds_that_nothing_has_written(memory: str) -> None:
    def body(out: Any, buffer: Any) -> None:
        out[...] = buffer[...]

    scratch = [plgpu.SMEM(X.shape, X.dtype)]
    struct = pl.ShapeDtypeStruct(X.shape, X.dtype)
    parameters = plgpu.InterpretGPUParams(uninitialized_memory=memory)
    result = plgpu.kernel(body, struct, scratch_types=scratch, interpret=parameters)()
    np.testing.assert_array_equal(result, np.full_like(X, np.nan if memory == "nan" else 0))


def test_reads_outside_may_give_uninitialised_values() -> None:
    def body(x: Any, out: Any) -> None:
        out[...] = x[pl.ds(pl.axis_index("x") + 4, 8)]

    struct = pl.ShapeDtypeStruct(X.shape, X.dtype)
    grid = {"grid": (1,), "grid_names": ("x",)}
    lenient = plgpu.InterpretGPUParams(detect_races=True, out_of_bounds_reads="uninitialized")
    found = plgpu.kernel(body, struct, interpret=lenient, **grid)(X)
    assert np.isnan(found[4:]).all()
    with pytest.raises(CheckError, match="out-of-bounds"):
        plgpu.kernel(body, struct, interpret=plgpu.InterpretGPUParams(detect_races=True), **grid)(X)


def test_modes_choose_the_simulator_for_a_while() -> None:
    parameters = plgpu.InterpretGPUParams(detect_races=True)
    with plgpu.force_gpu_interpret_mode(parameters), pytest.raises(CheckError):
        doubled(fence=False)(X)
    plgpu.set_gpu_interpret_mode(parameters)
    try:
        with pytest.raises(CheckError):
            doubled(fence=False)(X)
    finally:
        plgpu.set_gpu_interpret_mode(None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        doubled(fence=False)(X)


def test_a_copy_that_meets_itself_is_told_apart_by_its_step() -> None:
    def body(x: Any, buffer: Any, landed: Any) -> None:
        @pl.loop(0, 2)
        def _(step: Any) -> None:
            plgpu.copy_gmem_to_smem(x.at[step], buffer, landed)

        plgpu.barrier_wait(landed)

    scratch = [plgpu.SMEM((8,), X.dtype), plgpu.Barrier(num_arrivals=2)]
    (finding,) = pl.check(plgpu.kernel(body, (), scratch_types=scratch), X, schedules=1).findings
    assert finding.code == "copy-target-in-use"
    assert finding.message.endswith("of an earlier step")
    assert finding.missing.endswith("again")


def test_an_ignored_code_does_not_count_and_is_counted_apart() -> None:
    report = pl.check(doubled(fence=False), X, schedules=4, ignore="missing-commit-smem")
    assert report.ok and report.findings == []
    assert [finding.code for finding in report.ignored] == ["missing-commit-smem"]
    assert str(report) == "no finding in 4 schedules; ignored: missing-commit-smem (1)"


def test_ignoring_one_code_leaves_the_others() -> None:
    report = pl.check(doubled(fence=False), X, schedules=4, exhaustive=True, ignore=["unobserved-completion"])
    assert [finding.code for finding in report.findings] == ["missing-commit-smem"]
    assert report.ignored == []


def test_a_code_that_there_is_not() -> None:
    with shows(
        ValueError,
        """
        ignore: no finding has this code
          got:      'data-races'
          hint:     did you mean data-race?
          test_check.py:N, in test_a_code_that_there_is_not
            pl.check(doubled(), X, ignore=("data-races",))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.check(doubled(), X, ignore=("data-races",))
    with pytest.raises(pl.PalladioTypeError, match="ignore: the codes of findings are strings"):
        pl.check(doubled(), X, ignore=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("params", [plgpu.InterpretGPUParams, pltpu.InterpretParams])
def test_a_run_on_the_simulator_ignores_a_code(params: Any) -> None:
    ignoring = params(detect_races=True, ignore=("missing-commit-smem",))
    with pytest.raises(CheckError):
        doubled(fence=False, interpret=params(detect_races=True))(X)
    doubled(fence=False, interpret=ignoring)(X)
    with pytest.raises(pl.PalladioValueError, match="ignore: no finding has this code"):
        params(ignore="nothing")
