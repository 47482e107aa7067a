"""Timelines: what they measure, and the three pictures of them."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import palladio as pl
from palladio.base.errors import InternalError
from palladio.base.locations import Location
from palladio.machine.timeline import draw
from palladio.machine.timeline.records import KINDS, Edge, Lane, Series, Span, duration_text, place, whole_blocks
from palladio.machine.timeline.timeline import Timeline
from tests.machine.pipelines import warp_specialised

WORKER, CORE, PATH = (Lane("block (0,)", "wg 0", unit) for unit in ("", "tensor core", "TMA"))


def span(lane: Lane, start: float, end: float, kind: str = "compute", name: str = "step") -> Span:
    return Span(lane, name, start, end, kind)


def svg_of(timeline: Timeline, tmp_path: Path) -> ElementTree.Element:
    timeline.svg(tmp_path / "out.svg")
    return ElementTree.parse(tmp_path / "out.svg").getroot()


SVG = "{http://www.w3.org/2000/svg}"


def texts(root: ElementTree.Element, tag: str = "text") -> list[str]:
    return [element.text or "" for element in root.iter(f"{{http://www.w3.org/2000/svg}}{tag}")]


def events_of(timeline: Timeline, tmp_path: Path, phase: str) -> list[dict[str, Any]]:
    timeline.perfetto(tmp_path / "out.json")
    trace = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


class TestMeasures:
    def test_the_duration_is_the_end_of_the_last_step(self) -> None:
        assert Timeline([span(WORKER, 0, 70), span(CORE, 20, 50)]).duration == 70

    def test_a_run_without_steps_takes_no_time(self) -> None:
        assert Timeline([]).duration == 0
        assert Timeline([]).busy(WORKER) == 0

    def test_waiting_is_not_being_busy(self) -> None:
        assert Timeline([span(WORKER, 0, 25), span(WORKER, 25, 100, "wait")]).busy(WORKER) == 0.25

    def test_steps_that_overlap_keep_a_lane_busy_once(self) -> None:
        copies = [span(PATH, 0, 40, "copy"), span(PATH, 20, 60, "copy"), span(PATH, 80, 100, "copy")]
        assert Timeline(copies).busy(PATH) == 0.8

    def test_overlap_is_the_time_in_which_both_kinds_are_in_flight(self) -> None:
        timeline = Timeline(
            [
                span(PATH, 0, 40, "copy"),
                span(PATH, 30, 60, "copy"),
                span(CORE, 20, 50, "wgmma"),
                span(CORE, 60, 70, "wgmma"),
            ]
        )
        assert timeline.overlap("copy", "wgmma") == timeline.overlap("wgmma", "copy") == 30
        assert timeline.time_in_flight("copy") == 60

    def test_a_kind_overlaps_itself_where_two_of_its_steps_do(self) -> None:
        assert Timeline([span(PATH, 0, 40, "copy"), span(PATH, 30, 60, "copy")]).overlap("copy", "copy") == 10

    def test_overlap_can_be_that_of_one_block(self) -> None:
        other = Lane("block (1,)", "wg 0", "tensor core")
        timeline = Timeline([span(PATH, 0, 40, "copy"), span(other, 0, 40, "wgmma")])
        assert timeline.overlap("copy", "wgmma") == 40
        assert timeline.overlap("copy", "wgmma", block="block (0,)") == 0

    def test_an_unknown_kind_is_refused(self) -> None:
        with pytest.raises(pl.PalladioError) as error:
            Timeline([]).overlap("copy", "wgma")
        assert str(error.value).startswith(
            "kind_b: there is no such kind of step\n"
            "  expected: copy, store, wgmma, compute, wait, sync, launch\n"
            "  got:      'wgma'"
        )

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (span(WORKER, 5, 4), "a span that ends before it starts: step, 5 to 4 ns"),
            (span(WORKER, 0, float("nan")), "a span that ends before it starts"),
            (span(WORKER, 0, 1, "nap"), "a span of unknown kind 'nap'"),
        ],
    )
    def test_a_span_that_cannot_be_is_a_defect_of_the_machine(self, wrong: Span, message: str) -> None:
        with pytest.raises(InternalError, match=message):
            Timeline([wrong])


class TestOrder:
    def test_lanes_are_sorted_by_number_and_units_stand_below_their_thread(self) -> None:
        lanes = [
            Lane("block (0, 0)", "wg 0"),
            Lane("block (0, 0)", "wg 0", "tensor core"),
            Lane("block (0, 0)", "wg 0", "TMA"),
            Lane("block (0, 0)", "wg 10"),
            Lane("block (0, 0)", "", "TMA"),
            Lane("block (2, 0)", "wg 0"),
            Lane("block (10, 0)", "wg 0"),
        ]
        shuffled = random.Random(0).sample(lanes, len(lanes))
        assert Timeline([span(lane, 0, 1) for lane in shuffled]).lanes == tuple(lanes)

    def test_copies_in_flight_lie_in_rows_of_their_own(self) -> None:
        first, second, third = (span(PATH, start, start + 40, "copy") for start in (0, 20, 40))
        assert Timeline([third, second, first]).rows(PATH) == [[first, third], [second]]

    def test_whole_blocks_are_kept(self) -> None:
        lanes = [Lane(block, f"wg {thread}") for block in ("a", "b", "c") for thread in range(3)]
        assert whole_blocks(lanes, 8) == tuple(lanes[:6])
        assert whole_blocks(lanes, 9) == tuple(lanes)
        assert whole_blocks(lanes, 2) == tuple(lanes[:2])


class TestWindow:
    def test_times_start_again_and_spans_are_cut(self) -> None:
        timeline = Timeline([span(WORKER, 0, 50), span(WORKER, 50, 120), span(CORE, 130, 140)], title="t")
        cut = timeline.window(40, 100)
        assert [(s.start, s.end) for s in cut.spans] == [(0, 10), (10, 60)]
        assert cut.note == "from 40 ns to 100 ns of 140 ns"

    def test_edges_inside_are_kept(self) -> None:
        edges = [Edge(PATH, 5, WORKER, 15), Edge(PATH, 45, WORKER, 50)]
        cut = Timeline([span(PATH, 0, 100), span(WORKER, 0, 100)], edges).window(10, 60)
        assert [(e.from_time, e.to_time) for e in cut.edges] == [(35, 40)]

    def test_an_empty_window_is_refused(self) -> None:
        with pytest.raises(pl.PalladioError) as error:
            Timeline([]).window(5, 5)
        assert str(error.value).startswith("end: a window ends after it starts\n  expected: more than 5\n  got:      5")


class TestPicture:
    def test_it_names_blocks_threads_units_kinds_and_steps(self, tmp_path: Path) -> None:
        words = texts(svg_of(warp_specialised(), tmp_path))
        for word in (
            "matmul, 128×256×64 tiles, 4 stages",
            "block (0, 0)",
            "wg 1",
            "tensor core",
            "TMA",
            "k = 3",
            "waiting",
        ):
            assert word in words
        assert "modelled time, not measured" in words
        assert "schedule: round robin, copies complete latest" in words

    def test_the_share_of_each_lane_stands_at_its_right(self, tmp_path: Path) -> None:
        timeline = Timeline([span(WORKER, 0, 25), span(WORKER, 25, 100, "wait"), span(CORE, 0, 100, "wgmma")])
        assert [word for word in texts(svg_of(timeline, tmp_path)) if word.endswith("%")][1:] == ["25%", "100%"]

    def test_the_summary_says_how_well_loads_are_hidden(self, tmp_path: Path) -> None:
        timeline = Timeline([span(PATH, 0, 40, "copy"), span(CORE, 30, 80, "wgmma")])
        summary = "80 ns  ·  1 block  ·  tensor cores busy 62%  ·  loads hidden behind products 25%"
        assert summary in texts(svg_of(timeline, tmp_path))

    def test_a_tooltip_gives_name_times_detail_and_line(self, tmp_path: Path) -> None:
        at = Location("/there/kernels/matmul.py", 12, 12, 0, 4, "kernel")
        step = Span(CORE, "wgmma", 1000, 1280.5, "wgmma", at, "64×256×64 bf16")
        tooltip = "wgmma (matrix product)\n1,000 to 1,280.5 ns: 280.5 ns\n64×256×64 bf16\nkernels/matmul.py:12"
        assert tooltip in texts(svg_of(Timeline([step]), tmp_path), "title")

    def test_an_arrow_leads_from_the_arrival_to_the_wait(self, tmp_path: Path) -> None:
        spans = [span(PATH, 0, 40, "copy"), span(WORKER, 0, 45, "wait")]
        titles = texts(svg_of(Timeline(spans, [Edge(PATH, 40, WORKER, 45, "full[0]")]), tmp_path), "title")
        assert "full[0]: wg 0 TMA at 40 → wg 0 at 45 ns" in titles

    def test_ticks_are_round(self, tmp_path: Path) -> None:
        words = texts(svg_of(Timeline([span(WORKER, 0, 1234)]), tmp_path))
        assert [word for word in words if word[0].isdigit()][1:] == [
            "0 ns",
            "200",
            "400",
            "600",
            "800",
            "1000",
            "1200",
            "100%",
        ]

    def test_bars_cover_their_time(self, tmp_path: Path) -> None:
        root = svg_of(Timeline([span(WORKER, 0, 50), span(WORKER, 50, 100, "wgmma")]), tmp_path)
        rects = {r.get("fill"): r for r in root.iter("{http://www.w3.org/2000/svg}rect") if r.get("height") == "22"}
        first, second = (rects[draw.FILLS[kind]] for kind in ("compute", "wgmma"))
        assert float(second.get("x", 0)) - float(first.get("x", 0)) == pytest.approx(500)
        assert float(first.get("width", 0)) == pytest.approx(500, abs=1)

    def test_a_counter_is_an_area_below_the_lanes(self, tmp_path: Path) -> None:
        full = Series("full stages", "", ((25.0, 1.0), (50.0, 2.0), (75.0, 0.0)))
        root = svg_of(Timeline([span(WORKER, 0, 100)], counters=[full]), tmp_path)
        words = texts(root)
        assert words.index("step") < words.index("full stages") == words.index("up to 2") - 1
        (area,) = (path.get("d", "") for path in root.iter(f"{SVG}path") if path.get("class") == "a")
        levels = [(float(x), float(y)) for x, y in re.findall(r"H([\d.]+)V([\d.]+)", area)]
        left, base = map(float, re.findall(r"[\d.]+", area)[:2])
        width, height = levels[-1][0] - left, base - levels[1][1]
        assert [(round((x - left) / width, 3), (base - y) / height) for x, y in levels] == [
            (0.25, 0.5),
            (0.5, 1.0),
            (0.75, 0.0),
            (1.0, 0.0),
        ]

    def test_a_counter_keeps_its_peaks_and_stays_small(self, tmp_path: Path) -> None:
        points = [(float(time), 900.0 if time == 5_001 else float(time % 2)) for time in range(100_000)]
        timeline = Timeline([span(WORKER, 0, 100_000)], counters=[Series("copied", "bytes per ns", tuple(points))])
        timeline.svg(tmp_path / "out.svg")
        assert "up to 900 bytes per ns" in (tmp_path / "out.svg").read_text(encoding="utf-8")
        assert (tmp_path / "out.svg").stat().st_size < 60_000

    def test_equal_runs_give_equal_bytes_in_whatever_order_they_were_noted(self, tmp_path: Path) -> None:
        timeline = warp_specialised(blocks=2)
        spans, edges = list(timeline.spans), list(timeline.edges)
        random.Random(1).shuffle(spans)
        random.Random(2).shuffle(edges)
        timeline.svg(tmp_path / "a.svg")
        Timeline(spans, edges, timeline.title, timeline.note).svg(tmp_path / "b.svg")
        assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()

    def test_what_users_name_is_escaped(self, tmp_path: Path) -> None:
        timeline = Timeline([span(WORKER, 0, 9, name='<b> & "c" \x00')], title="</svg>", note="a < b")
        root = svg_of(timeline, tmp_path)
        assert {"</svg>", "a < b", '<b> & "c" \ufffd'} <= set(texts(root))

    def test_a_name_that_does_not_fit_is_cut_and_one_that_cannot_is_left_out(self, tmp_path: Path) -> None:
        long = "a name of a step that does not fit into it"
        steps = [span(WORKER, 0, 10, name=long), span(WORKER, 10, 11, name=long), span(WORKER, 11, 100, "sync")]
        words = texts(svg_of(Timeline(steps), tmp_path))
        assert [word for word in words if word.startswith("a name")] == ["a name of a ste…"]

    def test_a_long_label_keeps_the_number_at_its_end(self, tmp_path: Path) -> None:
        lanes = [Lane("block (0,)", f"a warpgroup whose name its author made too long {i}") for i in range(2)]
        words = texts(svg_of(Timeline([span(lane, 0, 1) for lane in lanes]), tmp_path))
        assert [word[-6:] for word in words if word.startswith("a warpgroup")] == ["t…ng 0", "t…ng 1"]

    def test_a_run_without_steps_says_so(self, tmp_path: Path) -> None:
        assert "nothing ran" in texts(svg_of(Timeline([], title="empty"), tmp_path))

    def test_steps_of_no_length_are_drawn(self, tmp_path: Path) -> None:
        assert "step (array work)\n0 to 0 ns: 0 ns" in texts(svg_of(Timeline([span(WORKER, 0, 0)]), tmp_path), "title")

    def test_steps_too_short_to_be_told_apart_share_a_bar(self, tmp_path: Path) -> None:
        tiny = [span(WORKER, i, i + 1, name=f"op {i % 2}") for i in range(4)]
        titles = texts(svg_of(Timeline([*tiny, span(WORKER, 4, 10_000, "wait")]), tmp_path), "title")
        assert "4 steps (array work)\n0 to 4 ns: 4 ns\nop 0, op 1" in titles

    def test_many_blocks_are_cut_to_some_and_the_foot_says_so(self, tmp_path: Path) -> None:
        words = texts(svg_of(warp_specialised(blocks=40, steps=4), tmp_path))
        assert [word for word in words if word.startswith("block (")] == [f"block ({i}, 0)" for i in range(6)]
        assert "drawn: 6 of 40 blocks; a Perfetto trace has all" in words

    def test_a_long_run_is_cut_in_time_and_stays_small(self, tmp_path: Path) -> None:
        steps = [span(WORKER, 10 * i, 10 * i + 9, ("compute", "wait")[i % 2]) for i in range(20_000)]
        edges = [Edge(WORKER, 10 * i, WORKER, 10 * i + 5) for i in range(20_000)]
        words = texts(svg_of(Timeline(steps, edges), tmp_path))
        assert (tmp_path / "out.svg").stat().st_size < 1_000_000
        assert any(w.startswith("drawn: the first ") and " of 200 µs, 400 of " in w for w in words)

    def test_the_kinds_have_colours_of_their_own(self) -> None:
        assert list(draw.FILLS) == list(KINDS)
        assert len(set(draw.FILLS.values())) == len(KINDS)


class TestPerfetto:
    def test_a_block_is_a_process_and_a_lane_a_thread(self, tmp_path: Path) -> None:
        names = events_of(warp_specialised(blocks=2), tmp_path, "M")
        processes = [e["args"]["name"] for e in names if e["name"] == "process_name"]
        threads = [e["args"]["name"] for e in names if e["name"] == "thread_name" and e["pid"] == 1]
        assert processes == ["block (0, 0)", "block (1, 0)"]
        assert threads == [
            *("wg 0", "wg 0 tensor core", "wg 0 TMA"),
            *("wg 1", "wg 1 tensor core", "wg 1 TMA"),
            *("wg 2", "wg 2 TMA", "wg 2 TMA (2)"),
        ]

    def test_a_step_is_a_complete_event_in_microseconds(self, tmp_path: Path) -> None:
        at = Location("/there/kernels/matmul.py", 12, 12, 0, 4, "kernel")
        (event,) = events_of(Timeline([Span(CORE, "k = 0", 1500, 1780.25, "wgmma", at, "bf16")]), tmp_path, "X")
        assert (event["name"], event["cat"], event["ts"], event["dur"]) == ("k = 0", "wgmma", 1.5, 0.28025)
        assert event["args"] == {"kind": "matrix product", "at": "kernels/matmul.py:12", "detail": "bf16"}

    def test_every_step_is_there(self, tmp_path: Path) -> None:
        timeline = warp_specialised(blocks=40)
        assert len(events_of(timeline, tmp_path, "X")) == len(timeline.spans)

    def test_the_steps_of_a_thread_do_not_overlap(self, tmp_path: Path) -> None:
        before: dict[tuple[int, int], float] = {}
        for event in events_of(warp_specialised(), tmp_path, "X"):
            key = event["pid"], event["tid"]
            assert event["ts"] >= before.get(key, 0) - 1e-6
            before[key] = event["ts"] + event["dur"]

    def test_an_edge_is_a_flow_between_the_steps_that_it_joins(self, tmp_path: Path) -> None:
        spans = [span(PATH, 0, 40, "copy"), span(WORKER, 0, 45, "wait"), span(WORKER, 45, 90)]
        timeline = Timeline(spans, [Edge(PATH, 40, WORKER, 45, "full[0]")])
        (start,), (finish,) = (events_of(timeline, tmp_path, phase) for phase in "sf")
        assert start["id"] == finish["id"]
        assert start["name"] == finish["name"] == "full[0]"
        assert finish["bp"] == "e"
        # Inside of the copy and of the wait: at their ends, the next steps would enclose them.
        assert (start["ts"], finish["ts"]) == (0.039, 0.044)

    def test_an_edge_without_a_step_at_its_end_is_left_out(self, tmp_path: Path) -> None:
        assert events_of(Timeline([span(WORKER, 0, 9)], [Edge(PATH, 3, WORKER, 5)]), tmp_path, "s") == []

    def test_it_says_that_the_time_is_modelled(self, tmp_path: Path) -> None:
        warp_specialised().perfetto(tmp_path / "out.json")
        trace = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
        assert trace["otherData"]["time"] == "modelled time, not measured"
        assert trace["displayTimeUnit"] == "ns"

    def test_a_run_without_steps_is_a_trace_too(self, tmp_path: Path) -> None:
        assert events_of(Timeline([]), tmp_path, "X") == []


class TestText:
    def test_a_lane_is_a_row_and_a_kind_a_letter(self) -> None:
        timeline = Timeline(
            [
                span(PATH, 0, 50, "copy"),
                span(WORKER, 0, 50, "wait"),
                span(WORKER, 90, 100),
                span(CORE, 50, 90, "wgmma"),
            ],
            title="tiny",
        )
        assert timeline.text(width=46).splitlines() == [
            "tiny",
            "block (0,)",
            "  wg 0              ..........        EE  10%",
            "  wg 0 tensor core            WWWWWWWW    40%",
            "  wg 0 TMA          CCCCCCCCCC            50%",
            "",
            "C TMA load   W matrix product   E array work   . waiting",
            "20 columns = 100 ns; modelled time, not measured",
        ]

    def test_no_row_is_wider_than_requested(self) -> None:
        assert max(map(len, warp_specialised(blocks=2).text(90).splitlines()[:-2])) <= 90

    def test_many_lanes_are_cut(self) -> None:
        lines = warp_specialised(blocks=10).text().splitlines()
        assert lines[-4] == "… and 40 more lanes"

    def test_a_run_without_steps_says_so(self) -> None:
        assert Timeline([]).text() == "nothing ran (modelled time, not measured)"


@pytest.mark.parametrize(
    ("nanoseconds", "words"),
    [(0, "0 ns"), (850, "850 ns"), (999.9, "1.00 µs"), (12_345, "12.3 µs"), (999_990, "1.00 ms"), (2.5e8, "250 ms")],
)
def test_durations_are_for_reading(nanoseconds: float, words: str) -> None:
    assert duration_text(nanoseconds) == words


def test_a_place_is_the_same_on_every_machine() -> None:
    assert place(Location("C:\\there\\kernels\\matmul.py", 3, 3, 0, 1, "f")) == "kernels/matmul.py:3"
    assert place(None) == ""
