"""The report of a check: its findings and its coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import field, fields
from functools import cached_property
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioValueError
from palladio.driver.checks.pictures import picture, timeline
from palladio.machine.check.findings import LEVELS, Finding
from palladio.machine.timeline.timeline import Timeline


@dataclass
class Report:
    """The report of a check.

    Fields:
        findings: each mistake once, in the order of detection.
        explored: the number of schedules that ran.
        complete: whether these were all distinguishable schedules, in this model, with these sizes and inputs.
        ignored: each mistake with an ignored code, once.
        strict: whether warnings and hints count like errors.
        sizes: the number of combinations of sizes with which the function ran.
        beyond: the sizes for which the verdict follows by induction, e.g. "k ≥ 3"; empty if there are none.
        limit: why it follows for no larger ones; empty if it does, and where no sizes were given.
    """

    findings: list[Finding] = field(default_factory=list)
    explored: int = 0
    complete: bool = False
    ignored: list[Finding] = field(default_factory=list)
    strict: bool = False
    sizes: int = 1
    beyond: str = ""
    limit: str = ""
    ignore: frozenset[str] = field(default=frozenset(), repr=False)
    call: Callable[[], Any] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """The state of a copy: the findings without the call, which the timeline needs and which is not pickled."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"call": None}

    @cached_property
    def timeline(self) -> Timeline:
        """The modelled timeline of the call: `.svg(path)`, `.perfetto(path)`, `.text()`.

        Raises:
            PalladioValueError: if the call launches nothing.
        """
        if self.call is None:
            raise PalladioValueError("a report without its call has no timeline")
        return timeline(self.call)

    def picture(self, finding: Finding | None = None) -> Timeline:
        """The modelled timeline of a finding's schedule: its accesses in red, the missing edge dashed.

        Args:
            finding: one of the report; by default the first error, or else the first finding.

        Raises:
            PalladioValueError: if nothing was found, or the report has no call.
        """
        found = finding or next(iter(self.ordered), None)
        if found is None or self.call is None:
            raise PalladioValueError(
                "a report without a finding or without its call has no picture", argument="finding"
            )
        return picture(self.call, (), found)

    def add(self, findings: Iterable[Finding]) -> bool:
        """Add new mistakes; true if there were any."""
        anything = False
        for finding in findings:
            kept = self.ignored if finding.code in self.ignore else self.findings
            number = next((n for n, each in enumerate(kept) if each.covers(finding)), None)
            if number is None:
                kept.append(finding)
            elif LEVELS.index(finding.level) < LEVELS.index(kept[number].level):  # worse than in other schedules
                del kept[number]
                kept.append(finding)
            else:
                joined = kept[number].joined(finding)
                if joined is kept[number]:
                    continue
                kept[number] = joined
            anything = True
        return anything

    @property
    def ok(self) -> bool:
        """True if no finding counts: no error, and no finding at all if the check is strict."""
        return not (self.findings if self.strict else self.of_level("error"))

    def of_level(self, level: str) -> list[Finding]:
        """The findings of one level: "error", "warning" or "hint"."""
        return [finding for finding in self.findings if finding.level == level]

    @property
    def summary(self) -> str:
        """The numbers of findings and of schedules, and of ignored findings by code."""
        ran = f"{self.explored} schedule{'' if self.explored == 1 else 's'}"
        sizes = f"{self.sizes} sizes" if self.sizes > 1 else "sizes"
        if self.complete:
            ran = "the only schedule there is" if self.explored == 1 else f"all {ran} that can differ"
            ran += f", in this model, with these {sizes} and inputs"
        elif self.sizes > 1:
            ran += f" of {sizes}"
        if self.beyond:
            ran += f", by induction for all {self.beyond}"
        found = f"{self._count} in {ran}"
        times = Counter(finding.code for finding in self.ignored)
        ignored = ", ".join(f"{code} ({count})" for code, count in sorted(times.items()))
        return f"{found}; ignored: {ignored}" if ignored else found

    @property
    def _count(self) -> str:
        counts = {level: len(self.of_level(level)) for level in LEVELS}
        if not any(counts[level] for level in LEVELS[1:]):
            return _counted(counts["error"], "finding")
        parts = [_counted(counts["error"], "error")]
        return ", ".join([*parts, *(_counted(counts[level], level) for level in LEVELS[1:] if counts[level])])

    @property
    def ordered(self) -> list[Finding]:
        """The findings, errors first, then warnings, then hints."""
        return [finding for level in LEVELS for finding in self.of_level(level)]

    def render(self) -> str:
        """The report as text."""
        last = "\n".join(filter(None, (self.summary, self.limit)))
        return "\n\n".join([*(finding.render() for finding in self.ordered), last])

    def __str__(self) -> str:
        return self.render()


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'s' if count > 1 else ''}"
