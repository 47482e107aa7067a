"""The page of a timeline, and pictures of findings: both accesses in red, the missing edge, waits that never end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.driver.checks.pictures import timeline
from palladio.machine.timeline.page import equal_blocks
from palladio.machine.timeline.records import Edge, Lane, Series, Span, summed
from palladio.machine.timeline.timeline import Timeline
from tests.errors.shown import shows

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def ring(released: bool = True, awaited: bool = True) -> Any:
    """Rows go through a ring of two slots, from one thread to another."""

    def body(x: Any, out: Any, slots: Any, full: Any, empty: Any) -> None:
        thread = pl.axis_index("thread")

        @pl.loop(0, 4)
        def step(k: Any) -> None:
            slot = k % 2

            @pl.when(thread == 0)
            def _() -> None:
                pl.when(k >= 2)(lambda: plgpu.barrier_wait(empty.at[slot]))
                plgpu.copy_gmem_to_smem(x.at[k], slots.at[slot], full.at[slot])

            @pl.when(thread == 1)
            def _() -> None:
                if awaited:
                    plgpu.barrier_wait(full.at[slot])
                out[k] = slots[slot]
                if released:
                    plgpu.barrier_arrive(empty.at[slot], predicate=k < 2)

    barriers = plgpu.Barrier(num_barriers=2)
    scratch = [plgpu.SMEM((2, 8), np.float32), barriers, barriers]
    out = pl.ShapeDtypeStruct(X.shape, X.dtype)
    return plgpu.kernel(body, out, scratch_types=scratch, num_threads=2, thread_name="thread")(X)


def data_of(timeline: Timeline, tmp_path: Path) -> dict[str, Any]:
    timeline.html(tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


# Steps, slots and counters.


def test_bars_have_their_slot_and_step() -> None:
    copies = [span.detail for span in timeline(ring).spans if span.kind == "copy"]
    assert copies == [f"slots[{k % 2}]; k = {k}" for k in range(4)]


def test_counters_have_full_stages_and_bytes_per_nanosecond() -> None:
    full, copied = timeline(ring).counters
    assert (full.name, copied.name, copied.unit) == ("full stages", "copied", "bytes per ns")
    assert full.points[-1][1] == copied.points[-1][1] == 0
    assert 1 <= max(value for _, value in full.points) <= 2
    area = sum(
        value * (after[0] - time) for (time, value), after in zip(copied.points, copied.points[1:], strict=False)
    )
    assert abs(area - X.nbytes) < 1e-6 * X.nbytes


def test_a_series_adds_up_its_changes() -> None:
    assert summed("n", "", [(5, 1), (1, 2), (5, -3)]) == Series("n", "", ((1, 2), (5, 0)))
    assert summed("n", "", [(1, 1), (1, -1)]).points == ()
    assert Series("n", "", ((1, 2), (5, 0), (9, 3))).window(2, 8).points == ((0, 2), (3, 0))


# Findings.


def test_a_race_shows_both_accesses_and_the_missing_edge() -> None:
    report = pl.check(ring, True, False, schedules=2)
    finding = next(each for each in report.findings if each.code == "copy-not-awaited")
    shown = report.picture(finding)
    lines = {each.line for each in finding.locations}
    assert {span.location.line for span in shown.accused if span.location} == lines
    assert {span.lane.thread for span in shown.accused} == {"thread 0", "thread 1"}
    (edge,) = shown.missing
    assert {edge.from_lane, edge.to_lane} == {span.lane for span in shown.accused}
    assert shown.title.endswith(": copy-not-awaited")
    assert shown.note == f"schedule {finding.schedule}"


def test_waits_that_never_end_reach_the_edge() -> None:
    report = pl.check(ring, False, schedules=1)
    shown = report.picture()
    assert report.findings[0].code == "deadlock"
    endless = [span for span in shown.accused if span.detail == "never ends"]
    assert {span.lane.thread for span in endless} == {"thread 0", "thread 1"}
    assert {span.end for span in endless} == {shown.duration}


def test_a_report_without_findings_has_no_picture() -> None:
    report = pl.check(ring, schedules=1)
    with shows(
        ValueError,
        """
        finding: a report without a finding or without its call has no picture
          test_timeline_page.py:N, in test_a_report_without_findings_has_no_picture
            report.picture()
            ^^^^^^^^^^^^^^^^
        """,
    ):
        report.picture()


TIMELINE = Timeline(
    [
        Span(Lane("block 0", "wg 0"), "store", 0, 40, "compute"),
        Span(Lane("block 0", "wg 0", "TMA"), "out", 60, 100, "store", detail="out[1]; k = 3"),
    ],
    title="a <title>",
    accused=[Span(Lane("block 0", "wg 0"), "store", 0, 40, "compute")],
    missing=[Edge(Lane("block 0", "wg 0"), 40, Lane("block 0", "wg 0", "TMA"), 60, "a fence")],
    counters=[Series("full stages", "", ((10, 1), (20, 0)))],
)


def test_the_picture_has_the_accused_in_red_and_the_missing_edge_dashed(tmp_path: Path) -> None:
    TIMELINE.svg(tmp_path / "out.svg")
    text = (tmp_path / "out.svg").read_text(encoding="utf-8")
    assert text.count('fill="#d62728"') == 1
    assert '<title>missing: a fence: wg 0 at 40 → wg 0 TMA at 60 ns</title><path class="x"' in text


def test_a_trace_has_the_accused_and_the_counters(tmp_path: Path) -> None:
    TIMELINE.perfetto(tmp_path / "out.json")
    events = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["traceEvents"]
    assert [event["name"] for event in events if event.get("cname") == "terrible"] == ["store"]
    values = [(event["name"], event["ts"], event["args"]["value"]) for event in events if event["ph"] == "C"]
    assert values == [("full stages", 0.01, 1), ("full stages", 0.02, 0)]


def test_a_window_has_what_it_cuts() -> None:
    part = TIMELINE.window(20, 80)
    assert [(span.start, span.end) for span in part.accused] == [(0, 20)]
    assert [(edge.from_time, edge.to_time) for edge in part.missing] == [(20, 40)]


# The page.


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    data_of(TIMELINE, tmp_path)
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|href)=|https?:|@import|url\(", text)
    assert "<title>a &lt;title&gt; (modelled time, not measured)</title>" in text
    assert text.count("<title>") == 1


def test_the_page_has_every_step(tmp_path: Path) -> None:
    data = data_of(TIMELINE, tmp_path)
    assert [lane["unit"] for lane in data["lanes"]] == ["", "TMA"]
    assert [data["words"][number] for number in data["spans"][1][5:8]] == ["out", "out[1]; k = 3", ""]
    assert [span[-1] for span in data["spans"]] == [True, False]
    assert data["edges"] == [[0, 40, 1, 60, data["words"].index("a fence"), True]]
    assert data["focus"] == [0, 80]


def test_text_cannot_end_the_script(tmp_path: Path) -> None:
    name = "</script><script>alert(1)</script>"
    data = data_of(Timeline([Span(Lane("block 0", "wg 0"), name, 0, 1, "compute")]), tmp_path)
    assert name in data["words"]


def block(number: int, *kinds: str, start: float = 0) -> list[Span]:
    lane = Lane(f"block {number}", "wg 0")
    return [
        Span(lane, f"{kind} of block {number}", start + 10 * n, start + 10 * n + 9, kind)
        for n, kind in enumerate(kinds)
    ]


def test_blocks_that_do_the_same_are_one() -> None:
    spans = [*block(0, "copy", "compute"), *block(1, "copy", "wait", "compute", start=3), *block(2, "copy")]
    assert equal_blocks(Timeline(spans)) == [["block 0", "block 1"], ["block 2"]]


def test_a_block_of_a_finding_stands_alone() -> None:
    spans = [span for number in range(3) for span in block(number, "copy")]
    assert equal_blocks(Timeline(spans, accused=spans[1:2])) == [["block 0", "block 2"], ["block 1"]]


@pytest.mark.parametrize("suffix", [".svg", ".html", ".json"])
def test_a_check_draws_its_first_finding(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from palladio.cli.command import main

    target, output = f"{__file__}::deadlocked", tmp_path / f"out{suffix}"
    assert main(["check", target, "--schedules", "1", "--picture", str(output)]) == 1
    assert "never ends" in output.read_text(encoding="utf-8")
    assert capsys.readouterr().out.endswith(f"{output}: the schedule round_robin\n")


def deadlocked() -> Any:
    """What the command above runs."""
    return ring(released=False)


def test_a_picture_of_another_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from palladio.cli.command import main

    with pytest.raises(SystemExit):
        main(["check", f"{__file__}::deadlocked", "--picture", "out.png"])
    assert "out.png should end in .svg or .html or .json" in capsys.readouterr().err
