"""A timeline as one self-contained HTML page: lanes, bars and counters to pan, zoom and search.

`page.html` is the page; this module makes its data. Blocks with equal steps are shown as one until the reader opens it.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from palladio.machine.timeline.data import TimelineData
from palladio.machine.timeline.draw import FILLS
from palladio.machine.timeline.records import KINDS, MODELLED, Lane, duration_text, place

_WAITING = "#dfe5ea"  # a canvas has no hatching


def page_text(timeline: TimelineData) -> str:
    """The whole file; equal timelines give equal bytes."""
    title = timeline.title or "Timeline"
    data = json.dumps(_data(timeline, title), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return _template().replace("{{title}}", html.escape(f"{title} ({MODELLED})")).replace("{{data}}", data)


@cache
def _template() -> str:
    return (Path(__file__).parent / "page.html").read_text(encoding="utf-8")


def _data(timeline: TimelineData, title: str) -> dict[str, Any]:
    """The content of the page, with each text once."""
    words: dict[str, int] = {}
    number = {lane: index for index, lane in enumerate(timeline.lanes)}
    accused = set(timeline.accused)
    lanes, spans = [], []
    for lane in timeline.lanes:
        rows = timeline.rows(lane)
        lanes.append({"block": lane.block, "thread": lane.thread or lane.label, "unit": lane.unit, "rows": len(rows)})
        for row, found in enumerate(rows):
            for span in found:
                texts = (span.name, span.detail, place(span.location))
                numbers = [words.setdefault(text, len(words)) for text in texts]
                spans.append(
                    [number[lane], row, *map(_time, (span.start, span.end)), span.kind, *numbers, span in accused]
                )
    edges = []
    for missing, group in ((False, timeline.edges), (True, timeline.missing)):
        for each in group:
            if each.from_lane in number and each.to_lane in number:
                ends = number[each.from_lane], _time(each.from_time), number[each.to_lane], _time(each.to_time)
                edges.append([*ends, words.setdefault(each.label, len(words)), missing])
    used = {span.kind for span in timeline.spans}
    return {
        "title": title,
        "note": "; ".join(part for part in (duration_text(timeline.duration), MODELLED, timeline.note) if part),
        "duration": _time(timeline.duration),
        "focus": _focus(timeline),
        "kinds": {
            kind: {"label": label, "fill": _WAITING if kind == "wait" else FILLS[kind]}
            for kind, label in KINDS.items()
            if kind in used
        },
        "lanes": lanes,
        "groups": [{"first": blocks[0], "blocks": blocks} for blocks in equal_blocks(timeline)],
        "spans": spans,
        "edges": edges,
        "counters": [
            {"name": each.name, "unit": each.unit, "points": [[_time(at), _time(value)] for at, value in each.points]}
            for each in timeline.counters
        ],
        "words": list(words),
    }


def _time(value: float) -> float:
    return round(value, 3)


def _focus(timeline: TimelineData) -> list[float] | None:
    """The time span that is shown first: around the accesses of a finding."""
    if not timeline.accused:
        return None
    start, end = min(span.start for span in timeline.accused), max(span.end for span in timeline.accused)
    margin = max(end - start, timeline.duration / 50)
    return [_time(max(0.0, start - margin)), _time(min(timeline.duration, end + margin))]


def equal_blocks(timeline: TimelineData) -> list[list[str]]:
    """The blocks of a timeline, grouped by equal steps in equal order, regardless of their times."""
    lanes: dict[str, list[Lane]] = {}
    for lane in timeline.lanes:
        lanes.setdefault(lane.block, []).append(lane)
    accused = {span.lane.block for span in timeline.accused}
    groups: dict[Any, list[str]] = {}
    for block, mine in lanes.items():
        steps = tuple((lane.thread, lane.unit, tuple(_steps(timeline, lane))) for lane in mine)
        groups.setdefault((block if block in accused else "", steps), []).append(block)
    return list(groups.values())


def _steps(timeline: TimelineData, lane: Lane) -> Iterator[tuple[str, str]]:
    """The spans of a lane by kind and name, without waits, which differ between equal blocks that share units."""
    for span in timeline.of(lane):
        if span.kind != "wait":
            yield span.kind, span.name.replace(lane.block, "")
