"""The records of a timeline, and the words and letters that all its pictures use."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from palladio.base.dataclass import dataclass
from palladio.base.locations import Location

KINDS: dict[str, str] = {
    "copy": "TMA load",
    "store": "TMA store",
    "wgmma": "matrix product",
    "compute": "array work",
    "wait": "waiting",
    "sync": "arrive, signal",
    "launch": "launch",
}
"""The kinds of a span, with their names in a legend."""

LETTERS: dict[str, str] = {
    "copy": "C",
    "store": "S",
    "wgmma": "W",
    "compute": "E",
    "wait": ".",
    "sync": "|",
    "launch": "L",
}

MODELLED = "modelled time, not measured"


@dataclass(frozen=True, slots=True)
class Lane:
    """One row: a thread of a block (`unit` is ""), or a unit that it uses, e.g. "tensor core" or "TMA".

    A unit that a whole block shares has the thread "".
    """

    block: str
    thread: str
    unit: str = ""

    @property
    def label(self) -> str:
        return " ".join(part for part in (self.thread, self.unit) if part) or self.block

    @property
    def order(self) -> tuple[object, ...]:
        """A sort key: blocks by number, their threads by number, each followed by its units, shared units last."""
        return natural(self.block), self.thread == "", natural(self.thread), natural(self.unit.casefold())


@dataclass(frozen=True, slots=True)
class Span:
    """One step: nanoseconds of modelled time from `start` to `end`, a kind of `KINDS`, the line of its equation."""

    lane: Lane
    name: str
    start: float
    end: float
    kind: str
    location: Location | None = None
    detail: str = ""

    @property
    def length(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge that released a wait: an arrival or completion at `from_time`, and the time of resumption."""

    from_lane: Lane
    from_time: float
    to_lane: Lane
    to_time: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """A step function of time: its value from each point on, 0 before the first; times in nanoseconds."""

    name: str
    unit: str
    points: tuple[tuple[float, float], ...]

    def window(self, start: float, end: float) -> Series:
        """The part from `start` to `end`; times start at 0 again."""
        before = [value for time, value in self.points if time <= start]
        inside = [(time - start, value) for time, value in self.points if start < time < end]
        return Series(self.name, self.unit, ((0.0, before[-1]), *inside) if before else tuple(inside))


def summed(name: str, unit: str, changes: Iterable[tuple[float, float]]) -> Series:
    """The series with these changes, each at a time and by an amount, in any order."""
    total, points = 0.0, []
    for time, amounts in itertools.groupby(sorted(changes), key=lambda change: change[0]):
        total += sum(amount for _, amount in amounts)
        total = total if abs(total) > 1e-9 else 0.0
        if total != (points[-1][1] if points else 0.0):
            points.append((time, total))
    return Series(name, unit, tuple(points))


@lru_cache(maxsize=4096)
def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that orders "wg 10" after "wg 9"."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"[0-9]+|[^0-9]+", text))


def duration_text(nanoseconds: float) -> str:
    """A duration in three digits: `850 ns`, `12.3 µs`, `1.25 ms`."""
    for size, unit in ((1e6, "ms"), (1e3, "µs")):
        if nanoseconds >= 0.9995 * size:
            amount = nanoseconds / size
            return f"{amount:.{2 if amount < 9.995 else 1 if amount < 99.95 else 0}f} {unit}"
    return f"{nanoseconds:.0f} ns"


def place(location: Location | None) -> str:
    """The line of a step as `folder/file.py:12`: short, and the same on every machine."""
    if location is None:
        return ""
    return "/".join(location.file.replace("\\", "/").split("/")[-2:]) + f":{location.line}"


def whole_blocks(lanes: Sequence[Lane], limit: int) -> tuple[Lane, ...]:
    """The lanes of the first blocks that fit in `limit` lanes; at least the first block, cut to fit."""
    if len(lanes) <= limit:
        return tuple(lanes)
    while limit > 1 and lanes[limit - 1].block == lanes[limit].block != lanes[0].block:
        limit -= 1
    return tuple(lanes[:limit])
