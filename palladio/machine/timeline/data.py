"""The data of every picture and trace of a run: the activity of each part of the machine, in modelled nanoseconds.

A run passes its spans in any order; they are sorted, so that a picture does not depend on the order in which the
scheduler recorded them. `draw` makes the SVG, `perfetto` the trace for a browser.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from palladio.base.dataclass import dataclass
from palladio.base.errors import InternalError, PalladioValueError
from palladio.machine.timeline.records import (
    KINDS,
    LETTERS,
    MODELLED,
    Edge,
    Lane,
    Series,
    Span,
    duration_text,
    whole_blocks,
)

TEXT_LANES = 40  # of the text picture


@dataclass(frozen=True)
class TimelineData:
    """The spans and edges of one run.

    Args:
        spans: in any order; those of one lane may overlap, as copies in flight do.
        edges: from arrivals to the waits that they released.
        title: the heading of the picture.
        note: a sentence for its foot, e.g. the schedule or omitted parts.
        accused: the spans of a finding; pictures show them in red.
        missing: the missing edges of a finding, from one access to the other.
        counters: numbers over time, e.g. bytes per nanosecond.
    """

    spans: Sequence[Span]
    edges: Sequence[Edge] = ()
    title: str = ""
    note: str = ""
    accused: Sequence[Span] = ()
    missing: Sequence[Edge] = ()
    counters: Sequence[Series] = ()

    def __post_init__(self) -> None:
        for span in self.spans:
            if span.kind not in KINDS:
                raise InternalError(f"a span of unknown kind {span.kind!r}: {span.name}")
            if not (math.isfinite(span.start) and math.isfinite(span.end) and 0 <= span.start <= span.end):
                raise InternalError(f"a span that ends before it starts: {span.name}, {span.start} to {span.end} ns")
        lanes = {span.lane for span in self.spans} | {lane for edge in self.edges for lane in _ends(edge)}
        rank = {lane: place for place, lane in enumerate(sorted(lanes, key=lambda lane: lane.order))}
        spans = sorted(
            self.spans, key=lambda span: (span.start, -span.end, rank[span.lane], span.name, span.kind, span.detail)
        )
        edges = sorted(self.edges, key=lambda e: (e.from_time, e.to_time, rank[e.from_lane], rank[e.to_lane], e.label))
        object.__setattr__(self, "spans", tuple(spans))
        object.__setattr__(self, "edges", tuple(edges))

    @cached_property
    def duration(self) -> float:
        """Nanoseconds from the launch to the end of the last step."""
        return max((span.end for span in self.spans), default=0.0)

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """Every lane that has a span, in the order of a picture."""
        return tuple(self._of_lane)

    @cached_property
    def _of_lane(self) -> dict[Lane, tuple[Span, ...]]:
        found: dict[Lane, list[Span]] = {}
        for span in self.spans:
            found.setdefault(span.lane, []).append(span)
        return {lane: tuple(found[lane]) for lane in sorted(found, key=lambda lane: lane.order)}

    def of(self, lane: Lane) -> tuple[Span, ...]:
        """The spans of one lane by their start; none for an idle lane."""
        return self._of_lane.get(lane, ())

    def busy(self, lane: Lane) -> float:
        """The fraction of the run in which the lane was busy. Waiting does not count; overlap counts once."""
        if self.duration == 0:
            return 0.0
        return _covered((span.start, span.end) for span in self.of(lane) if span.kind != "wait") / self.duration

    def time_in_flight(self, kind: str, *, block: str | None = None) -> float:
        """Nanoseconds in which a span of this kind is in progress, anywhere or in one block.

        Raises:
            PalladioValueError: there is no such kind.
        """
        _check_kind("kind", kind)
        spans = (span for span in self.spans if span.kind == kind and (block is None or span.lane.block == block))
        return _covered((span.start, span.end) for span in spans)

    def overlap(self, kind_a: str, kind_b: str, *, block: str | None = None) -> float:
        """Nanoseconds in which a span of each kind is in progress; at least two spans if the kinds are equal.

        Args:
            block: only spans of this block; None for the whole run, in which blocks hide each other's waits.

        Raises:
            PalladioValueError: there is no such kind.
        """
        _check_kind("kind_a", kind_a)
        _check_kind("kind_b", kind_b)
        changes: list[tuple[float, int, int]] = []
        for span in self.spans:
            if block is None or span.lane.block == block:
                is_a, is_b = int(span.kind == kind_a), int(span.kind == kind_b)
                changes += [(span.start, is_a, is_b), (span.end, -is_a, -is_b)]
        needed = 2 if kind_a == kind_b else 1
        total, before, count_a, count_b = 0.0, 0.0, 0, 0
        for time, a, b in sorted(changes):
            if count_a >= needed and count_b >= needed:
                total += time - before
            before, count_a, count_b = time, count_a + a, count_b + b
        return total

    def window(self, start: float, end: float) -> TimelineData:
        """The events from `start` to `end` nanoseconds; spans that extend beyond are cut, times start at 0 again.

        Raises:
            PalladioValueError: the window is empty.
        """
        if not start < end:
            raise PalladioValueError(
                "a window ends after it starts", argument="end", expected=f"more than {start}", got=str(end)
            )

        def cut(spans: Sequence[Span]) -> list[Span]:
            return [
                replace(span, start=max(span.start, start) - start, end=min(span.end, end) - start)
                for span in spans
                if span.start < end and (span.end > start or span.start >= start)
            ]

        def inside(edges: Sequence[Edge]) -> list[Edge]:
            return [
                replace(edge, from_time=edge.from_time - start, to_time=edge.to_time - start)
                for edge in edges
                if start <= edge.from_time and edge.to_time <= end
            ]

        counters = [each.window(start, end) for each in self.counters]
        here = f"from {duration_text(start)} to {duration_text(end)} of {duration_text(self.duration)}"
        note = "; ".join(part for part in (here, self.note) if part)
        found = replace(self, spans=cut(self.spans), edges=inside(self.edges), note=note, counters=counters)
        return replace(found, accused=cut(self.accused), missing=inside(self.missing))

    def rows(self, lane: Lane) -> list[list[Span]]:
        """The spans of a lane in as few rows as possible without overlap: several if copies are in flight."""
        rows: list[list[Span]] = []
        for span in self.of(lane):
            for row in rows:
                if row[-1].end <= span.start:
                    row.append(span)
                    break
            else:
                rows.append([span])
        return rows

    def text(self, width: int = 100) -> str:
        """The picture as text: a row for each lane, a letter for each kind; `width` columns, more for long labels."""
        if not self.spans:
            return f"nothing ran ({MODELLED})"
        labels = max(len(lane.label) for lane in self.lanes) + 2
        columns = max(20, width - labels - 8)
        lines = [self.title] if self.title else []
        block = None
        shown = whole_blocks(self.lanes, TEXT_LANES)
        for lane in shown:
            if lane.block != block:
                block = lane.block
                lines.append(block)
            lines.append(f"  {lane.label:{labels}}{self._letters(lane, columns)} {self.busy(lane):4.0%}")
        if len(shown) < len(self.lanes):
            lines.append(f"… and {len(self.lanes) - len(shown)} more lanes")
        used = [kind for kind in KINDS if any(span.kind == kind for span in self.spans)]
        scale = f"{columns} columns = {duration_text(self.duration)}"
        legend = "   ".join(f"{LETTERS[kind]} {KINDS[kind]}" for kind in used)
        return "\n".join([*lines, "", legend, "; ".join(part for part in (scale, MODELLED, self.note) if part)])

    def _letters(self, lane: Lane, columns: int) -> str:
        """For each column the kind with most of its time; in a tie, work before waiting."""
        step = self.duration / columns or 1.0
        shares: list[dict[str, float]] = [{} for _ in range(columns)]
        for span in self.of(lane):
            first = min(int(span.start / step), columns - 1)
            for column in range(first, min(int(span.end / step), columns - 1) + 1):
                inside = min(span.end, (column + 1) * step) - max(span.start, column * step)
                shares[column][span.kind] = shares[column].get(span.kind, 0.0) + inside
        return "".join(
            LETTERS[max(share, key=lambda kind: (share[kind], kind != "wait"))] if any(share.values()) else " "
            for share in shares
        )


def _check_kind(argument: str, kind: str) -> None:
    if kind not in KINDS:
        raise PalladioValueError(
            "there is no such kind of step", argument=argument, expected=", ".join(KINDS), got=repr(kind)
        )


def _ends(edge: Edge) -> tuple[Lane, Lane]:
    return edge.from_lane, edge.to_lane


def _covered(intervals: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in merged(intervals))


def merged(intervals: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The union of intervals as disjoint ones in order."""
    start, end = math.inf, -math.inf
    for first, last in sorted(intervals):
        if first > end:
            if end > start:
                yield start, end
            start, end = first, last
        end = max(end, last)
    if end > start:
        yield start, end
