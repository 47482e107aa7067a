"""The page of a card: the results of `test` and `bench`, with the conditions of each run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu import results
from benchmarks.gpu.results import OURS
from benchmarks.markdown import table
from palladio.hopper.launch.timing import FLUSHED

PAGES = Path(__file__).resolve().parents[2] / "docs" / "measured"
SECTIONS = {"points": "point", "rows": "row", "cases": "case"}
"""The sections of a file of results, and the name of a record in each."""
CONDITIONS = f"""\
Inputs are random normal numbers, drawn on the card. A time is the median of up to 30 rounds in which the contenders
take turns, each call between two events of the driver. Before each call {FLUSHED >> 20} MiB are overwritten, so that
the L2 cache (50 MiB) holds no operand. Clocks are not locked: they fall under load, for all contenders of a case alike.
A ratio is the best peer's time over ours. The last column is the least of the results of a case over its aims; the
rows are sorted by it."""
REASON = 200
"""The most characters of a reason."""


def merged(files: Iterable[Path]) -> dict[str, Any]:
    """The results of several files: the facts of each run that has records, and of a record that is repeated the last.

    Raises:
        ValueError: the files are of different cards.
    """
    runs: list[dict[str, Any]] = []
    found: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for file in files:
        data = json.loads(file.read_text(encoding="utf-8"))
        runs.append(data["facts"])
        for section, key in SECTIONS.items():
            found[section] |= {record[key]: record for record in data.get(section, [])}
    cards = {each["card"] for each in runs}
    if len(cards) != 1:
        raise ValueError(f"a page is of one card, and these files are of {', '.join(sorted(cards))}")
    return {"runs": runs, **{section: [*records.values()] for section, records in found.items()}}


def path(found: dict[str, Any]) -> Path:
    """The file of the page: `h200.md` for the card "NVIDIA H200"."""
    words = re.findall(r"[\w-]*\d[\w-]*", found["runs"][0]["card"])
    return PAGES / f"{(words or ['card'])[0].lower()}.md"


def page(found: dict[str, Any]) -> str:
    """The text of the page."""
    run = found["runs"][0]
    parts = [
        f"# Measured on {run['card']}",
        "[On a card](../hopper.md#on-a-card) describes the commands `make test-gpu` and `make bench-gpu`. This page is "
        "written by\n`python -m benchmarks.gpu page FILE...` from their results.",
        "\n".join(f"- {line}" for each in found["runs"] for line in _facts(each, each is run)),
        *_of_cases(found["cases"]),
        *_of_points(found["points"]),
        *_of_rows(found["rows"]),
    ]
    return "\n\n".join(parts) + "\n"


def _of_cases(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    calls = [record for record in cases if "microseconds" in record]
    models = [record for record in cases if "correlations" in record]
    others = [record for record in cases if record not in calls and record not in models]
    if others:
        header = ("case", "ms", "TFLOP/s", "best peer", "ms", "ratio", "aim", "of the aim")
        rows = [_row(score, record) for score, record in results.by_score(others)]
        yield from ("## Beside other libraries", CONDITIONS, table(header, rows), *_listed(_reasons(others)))
    if calls:
        rows = [row for record in calls for row in _calls(record)]
        yield from ("## Calls from Python", table(("call", "µs", "at most"), rows))
    if models:
        said = "; ".join(map(results.outcome, models))
        yield from ("## Cost models", f"Modelled against measured times: {said}.")


def _of_points(points: Sequence[dict[str, Any]]) -> Iterator[str]:
    if points:
        rows = [(each["point"], "right" if each["right"] else "**wrong**", _short(each["text"])) for each in points]
        yield from ("## Points", table(("point", "result", "details"), rows))


def _of_rows(rows: list[dict[str, Any]]) -> Iterator[str]:
    if rows:
        counts, *failures = results.row_lines(rows)
        yield from ("## Conformance", f"{len(rows)} rows: {counts}.", *_listed(failures))


def _facts(run: dict[str, Any], first: bool) -> Iterator[str]:
    """The facts of a run; the machine's are those of the first."""
    if first:
        card, count = run["card"], run["multiprocessors"]
        yield f"{card}, {count} multiprocessors, driver for {run['driver']}, NVRTC {run['nvrtc']}"
        versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
        yield f"Python {run['python']}, {versions}"
    before, after = (_clocks(run.get(key, "")) for key in ("clocks", "clocks_after"))
    ended = f"{run['seconds']} s, {run['ended']}" if "ended" in run else "not ended"
    yield f"run of {run['begun']}, {ended}: before {before}, after {after}"


def _clocks(text: str) -> str:
    """The clocks of `card.clocks` in short."""
    values = text.rpartition(": ")[2].split(", ")
    if len(values) != 6:
        return "clocks unknown"
    sm, most, memory, power, limit, heat = values
    return f"{sm} (at most {most}), memory {memory}, {power} of {limit}, {heat} °C"


def _row(score: float | None, record: dict[str, Any]) -> tuple[str, ...]:
    times = record.get("milliseconds", {})
    ours, tflops = times.get(OURS), record.get("tflops", {}).get(OURS)
    peers = {name: time for name, time in times.items() if name != OURS and name not in record.get("unjudged", ())}
    best = min(peers, key=peers.__getitem__, default=None)
    ratio, least = record.get("ratio"), record.get("least_tflops")
    aims = [f"{record['aim']:g}×"] if ratio is not None and record["aim"] is not None else []
    aims += [f"{least:.0f} TFLOP/s"] if least else []
    aims += [f"{record['least_share']:g} of {record['beside']}"] if "share" in record else []
    return (
        record["case"],
        "none" if ours is None else f"{ours:.3f}",
        "" if tflops is None else f"{tflops:.0f}",
        best or "",
        "" if best is None else f"{peers[best]:.3f}",
        ("" if ratio is None else f"{ratio:.2f}×") + (f", {record['share']:.2f}" if "share" in record else ""),
        ", ".join(aims),
        "" if score is None else f"{score:.2f}",
    )


def _calls(record: dict[str, Any]) -> list[tuple[str, ...]]:
    aims = record["most_microseconds"]
    return [
        (name, f"{value:.1f}", f"{aims[name]:g}" if name in aims else "")
        for name, value in record["microseconds"].items()
    ]


def _reasons(cases: Sequence[dict[str, Any]]) -> list[str]:
    """Why a case has no result, or lacks that of a contender; a reason that several cases have stands once."""
    found: dict[str, list[str]] = {}
    for record in cases:
        for who, why in {"": record.get("skipped", ""), **record.get("missing", {})}.items():
            if why:
                found.setdefault(f"{who}: {why}" if who else why, []).append(record["case"])
    return [f"{', '.join(names)}: {_short(why)}" for why, names in found.items()]


def _short(text: str) -> str:
    first = (text.splitlines() or [""])[0]
    return first if len(first) <= REASON else f"{first[:REASON]} …"


def _listed(lines: Sequence[str]) -> list[str]:
    return ["\n".join(f"- {line.strip()}" for line in lines)] if lines else []
