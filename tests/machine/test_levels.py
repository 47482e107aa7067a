"""Errors, warnings and hints: what counts, and what only a strict check counts."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.base.errors import PalladioTypeError
from palladio.driver.executors import simulator, use
from palladio.driver.simulation import SimulatorWarning
from palladio.driver.simulator_options import SimulatorOptions
from tests.litmus import barriers, races  # noqa: F401
from tests.litmus.pairs import PAIRS

RELEASED = PAIRS["no_stage_is_released_without_a_fill"].make(True)
UNWRITTEN = PAIRS["the_last_rows_are_written_too"].make(True)
COPIED = PAIRS["the_last_copy_is_awaited"].make(True)


def levels(call: Any) -> list[tuple[str, str]]:
    """The codes of a check with their levels."""
    return [(finding.code, finding.level) for finding in pl.check(call, schedules=6).findings]


def test_a_release_without_a_wait_is_a_hint() -> None:
    assert levels(RELEASED) == [("unobserved-completion", "hint")]


def test_a_copy_without_a_wait_is_an_error() -> None:
    assert levels(COPIED) == [("unobserved-completion", "error")]


def test_an_unwritten_output_is_a_warning() -> None:
    assert levels(UNWRITTEN) == [("unwritten-output", "warning")]


@pytest.mark.parametrize("call", [RELEASED, UNWRITTEN])
def test_only_errors_count_unless_a_check_is_strict(call: Any) -> None:
    assert pl.check(call, schedules=1).ok
    assert not pl.check(call, schedules=1, strict=True).ok
    assert not pl.check(COPIED, schedules=1).ok


def test_a_report_counts_each_level_and_shows_errors_first() -> None:
    def both() -> None:
        UNWRITTEN()
        RELEASED()
        COPIED()

    report = pl.check(both, schedules=1)
    assert report.summary == "1 error, 1 warning, 1 hint in 1 schedule"
    heads = [line for line in str(report).splitlines() if line.startswith("un")]
    assert [head.partition(":")[0] for head in heads] == [
        "unobserved-completion",
        "unwritten-output (warning)",
        "unobserved-completion (hint)",
    ]


@pytest.mark.parametrize("call", [RELEASED, UNWRITTEN])
def test_a_run_on_the_simulator_raises_errors_only(call: Any) -> None:
    with pl.executor("simulator"), warnings.catch_warnings():
        warnings.simplefilter("error")
        call()


def warned(call: Any) -> None:
    """Run on the simulator, which is to warn."""
    with use(simulator(SimulatorOptions(on_race="warn"))):
        call()


def test_a_run_that_warns_does_so_of_errors_and_warnings() -> None:
    with pytest.warns(SimulatorWarning, match="unwritten-output"):
        warned(UNWRITTEN)
    with pytest.warns(SimulatorWarning, match="unobserved-completion"):
        warned(COPIED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warned(RELEASED)


def test_a_warning_may_be_made_an_error() -> None:
    with warnings.catch_warnings(), pytest.raises(SimulatorWarning, match="unwritten-output"):
        warnings.simplefilter("error")
        warned(UNWRITTEN)


def test_an_element_that_a_mask_leaves_out_is_not_written() -> None:
    def body(x: Any, out: Any) -> None:
        plgpu.store(out, x[...], mask=x[...] != 5)

    call = plgpu.kernel(body, pl.ShapeDtypeStruct((8,), np.float32))
    (finding,) = pl.check(call, np.arange(8, dtype=np.float32), schedules=1).findings
    assert finding.message == "1 of 8 elements of out (f32[8]) are not written; the first is [5]"


def test_where_there_is_an_error_outputs_are_not_looked_at() -> None:
    call = PAIRS["threads_share_a_row_of_global_memory"].make(True)
    assert levels(call) == [("data-race", "error")]


def test_strict_is_a_bool() -> None:
    with pytest.raises(PalladioTypeError, match="strict: strict is a bool"):
        pl.check(RELEASED, strict="yes")  # type: ignore[arg-type]
