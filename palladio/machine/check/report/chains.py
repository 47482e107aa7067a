"""The chain of synchronisation between two accesses that race, up to the edge that is missing or too early.

`wgmma line 141 → arrive line 144 (too early) → wait line 115 → copy line 116`
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from palladio.base.locations import Location
from palladio.machine.check.order.history import Event, History
from palladio.machine.check.report.naming import at_text
from palladio.machine.check.shadow import Access
from palladio.machine.run.clocks import Clock, Component


class Chain(NamedTuple):
    """A line for a report, and the key of the mistake: the failing edge. Races with one key have one cause."""

    text: str = ""
    mistake: Hashable = None


class Ends(NamedTuple):
    """Two accesses in the order that the program intends.

    Fields:
        known: the clock of the second one's thread at that access; None if it was not recorded.
        landing: whether the first is a copy, and the second needs a wait at its barrier.
        fence: the fence between the two, if only that is missing.
    """

    first: Access
    second: Access
    known: Clock | None
    landing: bool = False
    fence: str = ""


def chain(history: History, ends: Ends) -> Chain:
    """The edges between two accesses that race; empty if none is known or a single thread makes both."""
    source, target = _thread(ends.first), _thread(ends.second)
    if not all(_has_line(access.site) for access in ends[:2]):
        return Chain()
    until = ends.second.issue.epoch if ends.second.asynchronous else None
    before = [event for event in history.acquired(target) if until is None or event.epoch <= until]
    last = _place(before[-1]) if before else None
    if ends.landing and ends.first.issue.arrives:
        return _unawaited_copy(ends, last)
    if source == target:
        same = ends.first.asynchronous and not ends.fence
        return Chain("", ("one thread", _line(ends.first.site.location), last) if same else None)
    if ends.known is None:
        return Chain()
    path = history.path(source, ends.known.epoch(source), target, until)
    started = ends.first.issue.epoch if ends.first.asynchronous else ends.first.epoch
    later = next((event for event in history.released(source) if event.epoch >= started), None)
    if ends.fence:
        return _unfenced(ends, path) if path and path[0].epoch >= started else Chain()
    if not path and later is None:
        copy = ends.second.issue if ends.second.asynchronous else None
        at = copy and copy.arrives and (copy.arrives.partition("[")[0], _line(ends.first.site.location), last)
        return Chain("", at and ("no edge", *at))
    if later is not None and (not path or _array(later) != _array(path[0])) and not _covers(path, later):
        parts = [_access(ends.first, ends), f"{_event(later, ends.first, ends)} (not awaited)"]
        return Chain(_joined([*parts, _access(ends.second, ends)]), ("not awaited", _place(later), last))
    return _too_early(ends, path) if path else Chain()


def _covers(path: list[Event], event: Event) -> bool:
    return bool(path) and path[0].epoch >= event.epoch


def _too_early(ends: Ends, path: list[Event]) -> Chain:
    sides = [ends.first, *[None] * (len(path) - 2), ends.second]
    parts = [_event(event, side, ends) for event, side in zip(path, sides, strict=True)]
    parts[0] = parts[0][:-1] + ", too early)" if parts[0].endswith(")") else f"{parts[0]} (too early)"
    text = _joined([_access(ends.first, ends), *parts, _access(ends.second, ends)])
    return Chain(text, ("too early", *map(_place, path)))


def _unfenced(ends: Ends, path: list[Event]) -> Chain:
    parts = [_event(event, None, ends) for event in path]
    text = _joined([_access(ends.first, ends), *parts, _access(ends.second, ends)])
    return Chain(f"{text} (no {ends.fence} on the way)", (ends.fence, *map(_place, path)))


def _unawaited_copy(ends: Ends, last: Any) -> Chain:
    name = ends.first.issue.arrives
    text = _joined([_access(ends.first, ends), f"{name} (not awaited)", _access(ends.second, ends)])
    return Chain(text, ("landing", name.partition("[")[0], last))


def _thread(access: Access) -> Component:
    return access.issue.component if access.asynchronous else access.component


def _has_line(site: Any) -> bool:
    return getattr(site, "location", None) is not None


def _joined(parts: list[str]) -> str:
    return " → ".join(parts)


def _place(event: Event) -> Any:
    return event.eqn.op.name, _line(event.eqn.location), _array(event)


def _line(location: Location | None) -> Any:
    return location and (location.file, location.line, location.column)


def _array(event: Event) -> str:
    return event.thing.name.partition("[")[0]


def _access(access: Access, ends: Ends) -> str:
    return _at_line(access.site, ends)


def _event(event: Event, side: Access | None, ends: Ends) -> str:
    """An event, with its iteration if that differs from the iteration of its thread's access."""
    at = at_text(event.trail)
    apart = f" ({at})" if side is not None and at and at != at_text(side.trail) else ""
    return _at_line(event.eqn, ends) + apart


def _at_line(eqn: Any, ends: Ends) -> str:
    """The text of an event, e.g. `arrive line 144`, with the file if it differs from that of the first access."""
    place: Location | None = eqn.location
    if place is None:
        return _word(eqn.op.name)
    elsewhere = place.file != ends.first.site.location.file
    return f"{_word(eqn.op.name)} line {place.line}" + (f" of {place.file.rpartition('/')[2]}" if elsewhere else "")


def _word(name: str) -> str:
    """An operation in one word."""
    if name.startswith("copy_"):
        return "copy"
    if name.startswith("dma_"):
        return "wait" if name == "dma_wait" else "copy"
    return name.removeprefix("barrier_").removeprefix("semaphore_").replace("_", " ")


__all__ = ["Chain", "Ends", "chain"]
