"""The file of results: rewritten after each record, so that an interrupted run keeps its records."""

from __future__ import annotations

import json
import math
import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any

OURS = "Palladio"
FOLDER = Path(__file__).resolve().parents[1] / "results"


class Results:
    """Results of one run, in a file of JSON."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path = path
        self.data: dict[str, Any] = {"facts": facts}
        self._lock = threading.Lock()
        self._write()

    def add(self, section: str, record: dict[str, Any]) -> None:
        """Add a record."""
        with self._lock:
            self.data.setdefault(section, []).append(record)
            self._write()

    def note(self, **values: Any) -> None:
        """Add a fact."""
        with self._lock:
            self.data["facts"].update(values)
            self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".tmp")
        beside.write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")
        beside.replace(self.path)


def point_line(record: dict[str, Any]) -> str:
    """The line of one point."""
    state = "right" if record["right"] else "WRONG"
    return f"{record['point']:20} {state}  {record['text']}"


def row_lines(records: list[dict[str, Any]]) -> list[str]:
    """Counts of the conformance rows, and a line for each failure or unlisted refusal."""
    counts = Counter(record["outcome"] for record in records)
    lines = [", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "no rows"]
    wanted = [record for record in records if record["outcome"] in ("wrong", "error") or record["text"]]
    return lines + [f"  {record['row']}: {record['outcome']} {record['text']}" for record in wanted]


def begun_last(ended: str) -> str | None:
    """The contender or case that began last, if the reason for the end of a process ends with that line."""
    last = re.split(r": | \| ", ended)[-1]
    return last.removesuffix(" begins") if last.endswith(" begins") else None


def score(record: dict[str, Any]) -> float | None:
    """The result of a case over its aim, of several aims the least: of the ratio to its peer, TFLOP/s, its share of
    another case, and times of calls. 0 without a result, None without an aim."""
    if "skipped" in record or OURS in record.get("missing", {}):
        return 0.0
    times = record.get("microseconds", {})
    found = [aim / times[name] for name, aim in record.get("most_microseconds", {}).items()]
    if "share" in record:
        found.append(record["share"] / record["least_share"])
    if record.get("ratio") is not None and record["aim"] is not None:
        found.append(record["ratio"] / record["aim"])
    if record.get("least_tflops"):
        found.append(record["tflops"].get(OURS, 0.0) / record["least_tflops"])
    return min(found, default=None)


def meets_aims(record: dict[str, Any]) -> bool:
    """True unless a case has no result or is slower than one of its aims."""
    found = score(record)
    return found is None or found >= 1


def by_score(records: list[dict[str, Any]]) -> list[tuple[float | None, dict[str, Any]]]:
    """The cases with the result over the aim of each: the farthest from its aim first, those without an aim last."""
    found = [(score(record), record) for record in records]
    return sorted(found, key=lambda pair: math.inf if pair[0] is None else pair[0])


def summary(records: list[dict[str, Any]]) -> list[str]:
    """A line for each case, the farthest from its aim first."""
    return [
        f"{'' if found is None else f'{found:.2f}':>6}  {record['case']:38} {outcome(record)[:120]}"
        for found, record in by_score(records)
    ]


def case_line(record: dict[str, Any]) -> str:
    """One line of the table."""
    missing = "".join(f"\n    {who}: {why}" for who, why in record.get("missing", {}).items())
    times = ", ".join(
        f"{who} {time:.3f} ms ({record['tflops'][who]:.0f} TFLOP/s)"
        for who, time in record.get("milliseconds", {}).items()
    )
    return f"{record['case']:32} {outcome(record)}{': ' if times else ''}{times}{missing}"


def outcome(record: dict[str, Any]) -> str:
    """The result of a case in words, without the times of the contenders."""
    if "skipped" in record:
        return f"skipped: {record['skipped']}"
    if "correlations" in record:
        found = ", ".join(f"{who} {_two(value)}" for who, value in record["correlations"].items())
        return f"rank correlation over {record['configurations']} configurations: {found}"
    if "microseconds" in record:
        aims = record["most_microseconds"]
        return ", ".join(
            f"{who} {value:.1f} µs" + (f" (at most {aims[who]:.0f})" if who in aims else "")
            for who, value in record["microseconds"].items()
        )
    if "milliseconds" not in record:
        return "not measured"
    share = f"; {record['share']:.2f} of {record['beside']}" if "share" in record else ""
    if record["ratio"] is None:
        return f"no ratio{share}"
    return f"{record['ratio']:.2f}x" + ("" if record["aim"] is None else f" (aim {record['aim']})") + share


def _two(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
