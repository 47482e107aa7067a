"""The file of results: rewritten after each record, so that an interrupted run keeps its records."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

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


def meets_aims(record: dict[str, Any]) -> bool:
    """True unless a measured case is slower than its aims: the ratio to its peer, TFLOP/s, and its share of another."""
    if record.get("share", 1.0) < record.get("least_share", 0.0):
        return False
    if record.get("ratio") is not None and record["ratio"] < record["aim"]:
        return False
    most = record.get("most_microseconds", {})
    if any(record["microseconds"][name] > aim for name, aim in most.items()):
        return False
    least = record.get("least_tflops")
    return not least or record["tflops"].get("Palladio", 0.0) >= least


def case_line(record: dict[str, Any]) -> str:
    """One line of the table."""
    name = f"{record['case']:32}"
    missing = "".join(f"\n    {who}: {why}" for who, why in record.get("missing", {}).items())
    if "skipped" in record:
        return f"{name} skipped: {record['skipped']}"
    if "correlations" in record:
        found = ", ".join(f"{who} {_two(value)}" for who, value in record["correlations"].items())
        return f"{name} rank correlation over {record['configurations']} configurations: {found}{missing}"
    if "microseconds" in record:
        aims = record["most_microseconds"]
        found = (
            f"{who} {value:.1f} µs" + (f" (at most {aims[who]:.0f})" if who in aims else "")
            for who, value in record["microseconds"].items()
        )
        return f"{name} {', '.join(found)}"
    if "milliseconds" not in record:
        return f"{name} not measured{missing}"
    times = ", ".join(
        f"{who} {time:.3f} ms ({record['tflops'][who]:.0f} TFLOP/s)" for who, time in record["milliseconds"].items()
    )
    ratio = "no ratio" if record["ratio"] is None else f"{record['ratio']:.2f}x (aim {record['aim']})"
    share = f"; {record['share']:.2f} of {record['beside']}" if "share" in record else ""
    return f"{name} {ratio}: {times}{share}{missing}"


def _two(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
