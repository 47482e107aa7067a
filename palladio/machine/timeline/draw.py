"""A timeline as one SVG file: lanes by block, one bar for each step, arrows from arrivals to the released waits.

The file is self-contained: its own background, the reader's own fonts, no scripts; equal timelines give equal bytes.
Its size is bounded: blocks and time that a picture could not show are cut, and its foot lists the omissions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from palladio.base.dataclass import dataclass
from palladio.machine.timeline.data import TimelineData
from palladio.machine.timeline.records import (
    KINDS,
    MODELLED,
    Edge,
    Lane,
    Series,
    Span,
    duration_text,
    place,
    whole_blocks,
)

LANES = (48, 24, 12)  # maximum numbers: fewer if time would have to be cut
MAX_BARS = 1500
MAX_EDGES = 400
MAX_ROWS = 4  # of one lane: copies in flight beyond these share the last

# Okabe and Ito's colours, which readers with any colour vision can distinguish; waiting is hatched, without a colour.
FILLS: dict[str, str] = {
    "copy": "#56b4e9",
    "store": "#cc79a7",
    "wgmma": "#e69f00",
    "compute": "#3fb591",
    "wait": "url(#hatch)",
    "sync": "#33475b",
    "launch": "#f0e442",
}
INK, SOFT, FAINT, STRIPE = "#1f2d3a", "#5b6b7a", "#e3e8ed", "#f6f8fa"
ACCUSED = "#d62728"

MARGIN = 24.0
SHARE_WIDTH = 96.0
ROW, THIN_ROW, GAP, BLOCK_HEAD = 24.0, 15.0, 5.0, 26.0
COUNTER = 40.0
# Widths of characters relative to the font size, slightly above those of the widest font below.
NARROW, WIDE = frozenset("ijlt.,:;'|!()[]{} fr"), frozenset("mwMWQOGD@%→=+")

STYLE = """
text{font-family:"Inter","Segoe UI","Helvetica Neue","DejaVu Sans",Arial,sans-serif;fill:#1f2d3a;font-size:11px}
.h{font-size:18px;font-weight:600}
.s{fill:#5b6b7a}
.b{font-weight:600;font-size:12px}
.n{text-anchor:middle;font-size:10.5px;pointer-events:none}
.m{text-anchor:middle;font-size:9px;pointer-events:none}
.r{text-anchor:end}
.c{text-anchor:middle}
.e{fill:none;stroke:#1f2d3a;stroke-opacity:.5;stroke-width:1}
.x{fill:none;stroke:#d62728;stroke-width:2;stroke-dasharray:6 4}
.a{fill:#56b4e9;fill-opacity:.33;stroke:#2b7fb0}
g:hover>rect{stroke:#1f2d3a;stroke-width:1}
g:hover>.e{stroke-opacity:1;stroke-width:2}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle: a span, or several short adjacent ones of one kind."""

    start: float
    end: float
    kind: str
    spans: tuple[Span, ...]

    @property
    def name(self) -> str:
        names = {span.name for span in self.spans}
        if len(names) > 1:
            return f"{len(self.spans)} steps"
        return self.spans[0].name + (f" ×{len(self.spans)}" if len(self.spans) > 1 else "")

    @property
    def details(self) -> tuple[str, ...]:
        """More detailed texts than the name: slot and step, or the slot; none for several steps."""
        detail = self.spans[0].detail
        if len(self.spans) > 1 or not detail or self.kind == "wait":
            return ()
        slot, _, step = detail.partition("; ")
        return (detail.replace("; ", ", "), slot) if step else (slot,)


@dataclass(frozen=True, slots=True)
class Viewport:
    """The part of a timeline that is drawn: its lanes with their rows of bars, up to `end` nanoseconds."""

    lanes: dict[Lane, list[list[Bar]]]
    edges: tuple[Edge, ...]
    end: float
    note: str


def picture(timeline: TimelineData) -> str:
    """The whole SVG file as text."""
    view = _choose(timeline)
    return "\n".join(_Sheet(timeline, view).lines()) + "\n"


def _choose(timeline: TimelineData) -> Viewport:
    """The whole blocks, and the time from the start, that fit a picture of bounded size."""
    for limit in LANES:
        lanes = whole_blocks(timeline.lanes, limit)
        rows = {lane: _fold(timeline.rows(lane)) for lane in lanes}
        bars, end = _cut(rows, timeline.duration)
        if end == timeline.duration:
            break
    shown = {lane: found for lane, found in bars.items() if any(found)}
    edges = [e for e in timeline.edges if e.from_lane in shown and e.to_lane in shown and e.to_time <= end]
    drawn = []
    if len(lanes) < len(timeline.lanes):
        some, every = (len({lane.block for lane in found}) for found in (lanes, timeline.lanes))
        drawn.append(f"{some} of {every} blocks" if some < every else f"{len(lanes)} of {len(timeline.lanes)} lanes")
    if end < timeline.duration:
        drawn.append(f"the first {duration_text(end)} of {duration_text(timeline.duration)}")
    if len(edges) > MAX_EDGES:
        drawn.append(f"{MAX_EDGES} of {len(edges)} arrows")
    note = f"drawn: {', '.join(drawn)}; a Perfetto trace has all" if drawn else ""
    return Viewport(shown, tuple(edges[:MAX_EDGES]), end, note)


def _cut(rows: dict[Lane, list[list[Span]]], end: float) -> tuple[dict[Lane, list[list[Bar]]], float]:
    """The bars up to the maximum number, and the time at which they end."""
    while True:
        bars = {lane: [_merge(row, end) for row in found] for lane, found in rows.items()}
        count = sum(len(row) for found in bars.values() for row in found)
        if count <= MAX_BARS:
            return bars, end
        end *= max(0.25, min(0.9, MAX_BARS / count))


def _fold(rows: list[list[Span]]) -> list[list[Span]]:
    rest = sorted((span for row in rows[MAX_ROWS - 1 :] for span in row), key=lambda span: span.start)
    return [*rows[: MAX_ROWS - 1], rest] if rest else rows


def _merge(row: Sequence[Span], end: float) -> list[Bar]:
    """The bars of one row up to `end`: steps too narrow to distinguish are merged."""
    pixel = end / 1100
    bars: list[Bar] = []
    for span in row:
        if span.start > end or (span.start == end and span.length > 0):
            break
        last = bars[-1] if bars else None
        if (
            last is not None
            and last.kind == span.kind
            and span.start - last.end < 0.5 * pixel
            and max(span.length, last.spans[-1].length) < 4 * pixel
        ):
            bars[-1] = Bar(last.start, max(last.end, min(span.end, end)), span.kind, (*last.spans, span))
        else:
            bars.append(Bar(span.start, min(span.end, end), span.kind, (span,)))
    return bars


def _most(series: Series) -> str:
    """The largest value of a series."""
    return f"up to {max((value for _, value in series.points), default=0.0):.3g} {series.unit}".strip()


def _steps(series: Series, end: float, pixels: float) -> list[tuple[float, float]]:
    """The values of a series up to a time, each with its start: for each pixel the largest value, and the last one."""
    columns: dict[int, list[tuple[float, float]]] = {}
    for time, value in series.points:
        if time <= end:
            columns.setdefault(int(time / end * pixels) if end else 0, []).append((time, value))
    found: list[tuple[float, float]] = []
    for steps in columns.values():
        most = max(steps, key=lambda step: step[1])
        found += [most] if most is steps[-1] else [most, steps[-1]]
    return found


class _Sheet:
    """The layout of the page, and the lines that draw it."""

    def __init__(self, timeline: TimelineData, view: Viewport) -> None:
        self.timeline = timeline
        self.view = view
        self.accused = frozenset(timeline.accused)
        labels = [_length(_label(lane), 11) + 32 for lane in view.lanes]
        labels += [_length(words, 11) + 32 for each in timeline.counters for words in (each.name, _most(each))]
        self.left = MARGIN + min(220.0, max([*labels, *(_length(lane.block, 12) for lane in view.lanes)], default=0.0))
        busiest = max((len(row) for rows in view.lanes.values() for row in rows), default=0)
        self.plot = min(2200.0, max(1000.0, 26.0 * busiest))
        self.width = self.left + self.plot + SHARE_WIDTH + MARGIN
        self.top = 112.0
        self.lane_top: dict[Lane, float] = {}
        self.block_top: dict[str, float] = {}
        y = self.top
        for lane in view.lanes:
            if lane.block not in self.block_top:
                self.block_top[lane.block] = y
                y += BLOCK_HEAD
            self.lane_top[lane] = y
            y += self.height_of(lane) + GAP
        self.counters_top = y + 4
        self.bottom = self.counters_top + COUNTER * len(timeline.counters)
        self.height = self.bottom + 40 + 16 * len(self.foot())

    def height_of(self, lane: Lane) -> float:
        count = len(self.view.lanes[lane])
        return ROW if count == 1 else THIN_ROW * count

    def side_of(self, lane: Lane, time: float, *, below: bool) -> float:
        """The end of an arrow: the upper or lower side of the bar that ends at `time`, or contains it."""
        rows = self.view.lanes[lane]
        inside = [(bar.end != time, i) for i, row in enumerate(rows) for bar in row if bar.start <= time <= bar.end]
        row = min(inside, default=(True, len(rows) - 1 if below else 0))[1]
        height = ROW if len(rows) == 1 else THIN_ROW
        return self.lane_top[lane] + height * row + (height - 1 if below else 1)

    def x(self, time: float) -> float:
        return self.left + self.plot * (time / self.view.end if self.view.end else 0.0)

    def foot(self) -> list[str]:
        return [part for part in (self.view.note, self.timeline.note) if part]

    def lines(self) -> Iterator[str]:
        width, height = _number(self.width), _number(self.height)
        title = self.timeline.title or "Timeline"
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img">'
        )
        yield f"<title>{_safe(title)} ({MODELLED})</title>"
        yield f"<style>{STYLE}</style>"
        yield (
            '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><rect width="6" height="6" fill="#f1f3f5"/>'
            '<rect width="1.5" height="6" fill="#d3dae0"/></pattern>'
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
            f'<path d="M0 .8 8 4 0 7.2z" fill="{INK}" fill-opacity=".75"/></marker></defs>'
        )
        yield (
            f'<rect x=".5" y=".5" width="{_number(self.width - 1)}" height="{_number(self.height - 1)}" rx="6" '
            f'fill="#ffffff" stroke="#d5dce3"/>'
        )
        yield _text(MARGIN, 36, _clip(title, self.width - 2 * MARGIN, 18), "h")
        yield _text(MARGIN, 56, self.summary(), "s")
        yield from self.legend()
        yield from self.axis()
        for block in self.block_top:
            if self.block_top[block] > self.top:
                line = _number(self.block_top[block] + 1)
                yield f'<path d="M{_number(MARGIN)} {line}H{_number(self.width - MARGIN)}" stroke="{FAINT}"/>'
            yield _text(MARGIN, self.block_top[block] + 18, _clip(block, self.left - MARGIN, 12), "b")
        for lane in self.view.lanes:
            yield from self.lane(lane)
        for edge in self.view.edges:
            yield self.edge(edge)
        for edge in self.timeline.missing:
            if {edge.from_lane, edge.to_lane} <= self.view.lanes.keys() and edge.from_time <= self.view.end:
                yield self.edge(edge, missing=True)
        for number, series in enumerate(self.timeline.counters):
            yield from self.counter(series, self.counters_top + number * COUNTER)
        y = self.bottom + 28
        for row, words in enumerate((MODELLED, *self.foot())):
            yield _text(MARGIN, y + 16 * row, _clip(words, self.width - 2 * MARGIN, 11), "s")
        yield "</svg>"

    def summary(self) -> str:
        """The length of the run, the use of the tensor cores, and the share of hidden copies, over the shown blocks."""
        blocks = list(self.block_top)
        count = len({lane.block for lane in self.timeline.lanes})
        parts = [duration_text(self.timeline.duration), f"{count} block{'s' if count != 1 else ''}"]
        if not self.view.lanes:
            return "nothing ran"
        products = sum(self.timeline.time_in_flight("wgmma", block=block) for block in blocks)
        copies = sum(self.timeline.time_in_flight("copy", block=block) for block in blocks)
        both = sum(self.timeline.overlap("wgmma", "copy", block=block) for block in blocks)
        if products:
            parts.append(f"tensor cores busy {products / (self.timeline.duration * len(blocks)):.0%}")
        if products and copies:
            parts.append(f"loads hidden behind products {both / copies:.0%}")
        return "  ·  ".join(parts)

    def legend(self) -> Iterator[str]:
        used = {bar.kind for rows in self.view.lanes.values() for row in rows for bar in row}
        x, y = MARGIN, 70.0
        for kind in KINDS:
            if kind in used:
                yield _rect(x, y, 16, 11, FILLS[kind])
                yield _text(x + 22, y + 9.5, KINDS[kind])
                x += 22 + _length(KINDS[kind], 11) + 18
        if self.view.edges:
            yield f'<path class="e" d="M{_number(x)} {_number(y + 6)}h20" marker-end="url(#head)"/>'
            yield _text(x + 26, y + 9.5, "an arrival and the wait that it released")

    def axis(self) -> Iterator[str]:
        if not self.view.end:
            return
        step, scale, unit = _ticks(self.view.end, self.plot)
        top, height = self.top, self.bottom - self.top
        grid = []
        for index in range(int(self.view.end / step + 1e-9) + 1):
            x = self.x(index * step)
            grid.append(f"M{_number(x)} {_number(top)}v{_number(height)}")
            yield _text(x, top - 6, f"{_round(index * step / scale)}{f' {unit}' if index == 0 else ''}", "s c")
        yield f'<path d="{"".join(grid)}" stroke="{FAINT}" fill="none"/>'
        yield _text(self.width - MARGIN, top - 6, "busy", "s r")

    def lane(self, lane: Lane) -> Iterator[str]:
        y, height = self.lane_top[lane], self.height_of(lane)
        rows = self.view.lanes[lane]
        yield _rect(self.left, y, self.plot, height, STRIPE, extra=' fill-opacity=".7"')
        inset = 10 if lane.unit and lane.thread else 0
        style = "s" if inset else ""
        yield _text(MARGIN + 10 + inset, y + height / 2 + 4, _shorten(_label(lane), self.left - MARGIN - 24), style)
        for index, row in enumerate(rows):
            row_height = ROW if len(rows) == 1 else THIN_ROW
            for bar in row:
                yield self.bar(bar, y + index * row_height, row_height)
        yield from self.share(lane, y + height / 2)

    def share(self, lane: Lane, y: float) -> Iterator[str]:
        """The fraction of the run in which the lane was busy, as a small gauge and a number."""
        busy = self.timeline.busy(lane)
        x, length = self.left + self.plot + 12, 40.0
        yield _rect(x, y - 3, length, 6, FAINT)
        if busy:
            yield _rect(x, y - 3, max(1.0, length * busy), 6, SOFT)
        yield _text(self.width - MARGIN, y + 4, f"{busy:.0%}", "r")

    def counter(self, series: Series, top: float) -> Iterator[str]:
        """A number over time, for all blocks: the area below its steps, reduced to the maximum of each pixel."""
        steps = _steps(series, self.view.end, self.plot)
        most = max((value for _, value in steps), default=0.0)
        base, scale = top + COUNTER - 4, (COUNTER - 10) / (most or 1.0)
        yield f'<path d="M{_number(MARGIN)} {_number(top)}H{_number(self.width - MARGIN)}" stroke="{FAINT}"/>'
        yield _text(MARGIN + 10, top + 17, _shorten(series.name, self.left - MARGIN - 24))
        yield _text(MARGIN + 10, top + 32, _shorten(_most(series), self.left - MARGIN - 24), "s")
        points = [f"M{_number(self.left)} {_number(base)}"]
        points += [f"H{_number(self.x(time))}V{_number(base - value * scale)}" for time, value in steps]
        yield f'<path class="a" d="{"".join(points)}H{_number(self.left + self.plot)}V{_number(base)}Z"/>'

    def bar(self, bar: Bar, y: float, row_height: float) -> str:
        x, width = self.x(bar.start), self.x(bar.end) - self.x(bar.start)
        # A hairline of background separates adjacent steps of one kind.
        drawn = max(1.2, width - 0.8)
        fill = FILLS[bar.kind] if self.accused.isdisjoint(bar.spans) else ACCUSED
        body = _rect(x, y + 1, drawn, row_height - 2, fill, radius=min(2.5, drawn / 3))
        size = 10.5 if row_height > 18 else 9.0
        fits = (text for text in bar.details if _length(text, size) <= drawn - 4)
        name = next(fits, _clip(bar.name, drawn - 4, size)) if bar.kind != "sync" else ""
        if name:
            style = ("n" if size > 10 else "m") + (" s" if bar.kind == "wait" else "")
            body += _text(x + drawn / 2, y + row_height / 2 + 0.36 * size, name, style)
        return f"<g><title>{_safe(_tooltip(bar))}</title>{body}</g>"

    def edge(self, edge: Edge, missing: bool = False) -> str:
        """A curve that is vertical at both lanes, and does not cross the bars' names."""
        down = self.lane_top[edge.from_lane] <= self.lane_top[edge.to_lane]
        x0, x1 = self.x(edge.from_time), self.x(edge.to_time)
        y0 = self.side_of(edge.from_lane, edge.from_time, below=down)
        y1 = self.side_of(edge.to_lane, edge.to_time, below=not down)
        if edge.from_lane == edge.to_lane:
            y0 = y1
        middle = (y0 + y1) / 2 if y0 != y1 else y0 - 10
        points = " ".join(_number(v) for v in (x0, middle, x1, middle, x1, y1))
        words = f"{edge.label}: " if edge.label else ""
        words += (
            f"{edge.from_lane.label} at {_exact(edge.from_time)} → {edge.to_lane.label} at {_exact(edge.to_time)} ns"
        )
        style = "x" if missing else "e"
        path = f'<path class="{style}" d="M{_number(x0)} {_number(y0)}C{points}" marker-end="url(#head)"/>'
        words = f"missing: {words}" if missing else words
        return f"<g><title>{_safe(words)}</title>{path}</g>"


def _tooltip(bar: Bar) -> str:
    first, last = bar.spans[0], bar.spans[-1]
    lines = [f"{bar.name} ({KINDS[bar.kind]})"]
    lines.append(f"{_exact(first.start)} to {_exact(last.end)} ns: {_exact(last.end - first.start)} ns")
    if len({span.name for span in bar.spans}) > 1:
        lines.append(", ".join(dict.fromkeys(span.name for span in bar.spans)))
    lines += dict.fromkeys(span.detail for span in bar.spans[:4] if span.detail)
    lines += dict.fromkeys(place(span.location) for span in bar.spans[:4] if span.location)
    return "\n".join(line[:200] for line in lines)


def _label(lane: Lane) -> str:
    """The label of a lane; a unit is drawn below its thread, whose name is not repeated."""
    return lane.unit or lane.thread or lane.block


def _ticks(end: float, width: float) -> tuple[float, float, str]:
    """The distance of ticks in nanoseconds (1, 2 or 5 times a power of ten), the size of their unit, and its name."""
    least = end * 90 / width
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
    scale, unit = (1e6, "ms") if end >= 2e6 else (1e3, "µs") if end >= 2e3 else (1.0, "ns")
    return step, scale, unit


def _clip(text: str, width: float, size: float) -> str:
    """The text, cut to `width` pixels; empty if too little would remain."""
    if _length(text, size) <= width:
        return text
    while text and _length(text + "…", size) > width:
        text = text[:-1]
    return text.rstrip() + "…" if len(text) >= 4 else ""


def _shorten(label: str, width: float) -> str:
    """A label cut in its middle: the number at the end distinguishes threads."""
    if _length(label, 11) <= width:
        return label
    head, tail = label[:-4], label[-4:]
    while head and _length(head + "…" + tail, 11) > width:
        head = head[:-1]
    return head.rstrip() + "…" + tail.lstrip()


def _length(text: str, size: float) -> float:
    """An upper bound of a text's width in pixels: the reader's font is unknown."""
    return size * sum(0.4 if letter in NARROW else 0.88 if letter in WIDE else 0.64 for letter in text)


def _text(x: float, y: float, words: str, style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text x="{_number(x)}" y="{_number(y)}"{kind}>{_safe(words)}</text>'


def _rect(x: float, y: float, width: float, height: float, fill: str, *, radius: float = 2, extra: str = "") -> str:
    return (
        f'<rect x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{_number(height)}" '
        f'rx="{_number(radius)}" fill="{fill}"{extra}/>'
    )


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _round(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".") or "0"


def _exact(time: float) -> str:
    return f"{time:,.1f}".removesuffix(".0")


def _safe(text: str) -> str:
    """Text for XML: special characters escaped, control characters, which XML cannot express, replaced."""
    return escape(re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text), {'"': "&quot;"})
