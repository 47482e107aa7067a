"""A timeline as a trace in Chrome's JSON format, for ui.perfetto.dev: blocks are processes, lanes are threads.

Format: "Trace Event Format" of the Chromium project. Complete events (`X`) in microseconds, flow events (`s`, `f`) from
an arrival to the wait that it released, metadata events (`M`) for names and their order.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator
from typing import Any

from palladio.machine.timeline.data import TimelineData
from palladio.machine.timeline.records import KINDS, MODELLED, Edge, Lane, Span, place

Event = dict[str, Any]


def trace_text(timeline: TimelineData) -> str:
    """The whole file: one event on each line, equal bytes for equal timelines."""
    events = ",\n".join(json.dumps(event, ensure_ascii=False, separators=(",", ":")) for event in _events(timeline))
    other = json.dumps({"title": timeline.title, "time": MODELLED, "note": timeline.note}, ensure_ascii=False)
    return f'{{"displayTimeUnit":"ns","otherData":{other},"traceEvents":[\n{events}\n]}}\n'


def _events(timeline: TimelineData) -> Iterator[Event]:
    process = {block: number for number, block in enumerate(dict.fromkeys(lane.block for lane in timeline.lanes), 1)}
    for block, number in process.items():
        yield _name("process", number, 0, block)
        yield {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}
    accused = set(timeline.accused)
    where: dict[Lane, list[tuple[int, list[Span]]]] = {}
    thread = 0
    for lane in timeline.lanes:
        # Steps of one thread must nest, so copies in flight together get a thread each.
        for index, row in enumerate(timeline.rows(lane)):
            thread += 1
            where.setdefault(lane, []).append((thread, row))
            pid = process[lane.block]
            yield _name("thread", pid, thread, lane.label + (f" ({index + 1})" if index else ""))
            yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": thread, "args": {"sort_index": thread}}
            for span in row:
                yield _complete(span, pid, thread, span in accused)
    for number, edge in enumerate((*timeline.edges, *timeline.missing), 1):
        yield from _flow(number, edge, where, process)
    for counter in timeline.counters:
        for time, value in counter.points:
            name = f"{counter.name} ({counter.unit})" if counter.unit else counter.name
            yield {"ph": "C", "name": name, "pid": 1, "ts": _microseconds(time), "args": {"value": round(value, 3)}}


def _name(what: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": f"{what}_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _complete(span: Span, pid: int, tid: int, accused: bool) -> Event:
    colour = {"cname": "terrible"} if accused else {}
    details = {"kind": KINDS[span.kind], "at": place(span.location), "detail": span.detail}
    return {
        "ph": "X",
        "name": span.name,
        "cat": span.kind,
        "ts": _microseconds(span.start),
        "dur": round(_microseconds(span.end) - _microseconds(span.start), 6),
        "pid": pid,
        "tid": tid,
        "args": {key: value for key, value in details.items() if value},
        **colour,
    }


def _flow(
    number: int, edge: Edge, where: dict[Lane, list[tuple[int, list[Span]]]], process: dict[str, int]
) -> Iterator[Event]:
    """The two ends of an arrow, each inside its step; none if a lane has no such step."""
    ends = []
    for lane, time in ((edge.from_lane, edge.from_time), (edge.to_lane, edge.to_time)):
        found = _inside(where.get(lane, []), time)
        if found is None:
            return
        ends.append((process[lane.block], *found))
    (from_pid, from_tid, from_time), (to_pid, to_tid, to_time) = ends
    common: Event = {"cat": "edge", "name": edge.label or "arrival", "id": number}
    yield {"ph": "s", **common, "pid": from_pid, "tid": from_tid, "ts": _microseconds(from_time)}
    yield {"ph": "f", "bp": "e", **common, "pid": to_pid, "tid": to_tid, "ts": _microseconds(to_time)}


def _inside(rows: list[tuple[int, list[Span]]], time: float) -> tuple[int, float] | None:
    """The thread of the step that ends at `time` or contains it, and the time, at most a nanosecond before its end.

    The viewer binds an arrow to the step that encloses it, and a step does not enclose its end.
    """
    best: tuple[bool, int, Span] | None = None
    for thread, row in rows:
        place_after = bisect.bisect_right(row, time, key=lambda span: span.start)
        for span in row[max(0, place_after - 2) : place_after]:
            if span.end >= time and (best is None or (span.end == time and not best[0])):
                best = (span.end == time, thread, span)
    if best is None:
        return None
    _, thread, span = best
    return thread, max(span.start, min(time, span.end - 1))


def _microseconds(nanoseconds: float) -> float:
    return round(nanoseconds / 1000, 6)
