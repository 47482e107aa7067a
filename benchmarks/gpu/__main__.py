"""`python -m benchmarks.gpu test|bench`: test or measure on a card, in one command that ends within ten minutes.

Exit status: 0; 1 if something is wrong or an aim is missed; 2 without a card.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu import results
from benchmarks.gpu.children import Part, say

POINT_S, CASE_S = 60.0, 75.0
"""Time limits of one point and one case, in seconds."""
TEST_S, BENCH_S = 480.0, 500.0
"""Seconds after which no new part starts."""
WORKERS = 8
_LOST = "ended with status 3"
"""The message of a process that has lost its CUDA context."""
NO_CARD = """
Nothing was tested: {reason}
These need a Hopper GPU (H100, H200, GH200) and pip install 'palladio[hopper]'; make bench-gpu also PyTorch for CUDA.
Without a card, make test runs every kernel on the host twin (docs/twin.md); palladio doctor says what is missing.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("test", "bench"):
        command = commands.add_parser(name)
        command.add_argument("--output", type=Path, default=results.FOLDER / f"gpu-{name}.json")
        command.add_argument("--only", action="append", help="this point or case only; may be repeated")
        command.add_argument("--scale", type=float, default=1.0, help="of the sizes: less than 1 to try the command")
        command.add_argument("--rows", type=int, default=None, help="conformance rows of each process, all by default")
        command.add_argument("--workers", type=int, default=min(WORKERS, os.cpu_count() or 1))
    point = commands.add_parser("point")
    point.add_argument("name")
    rows = commands.add_parser("rows")
    for name in ("number", "of", "skip"):
        rows.add_argument(name, type=int)
    rows.add_argument("--most", type=int, default=None)
    case = commands.add_parser("case")
    case.add_argument("name")
    case.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args(arguments)
    return _COMMANDS[options.command](options)


def _point(options: argparse.Namespace) -> int:
    from benchmarks.gpu.points import POINTS

    try:
        say(point=options.name, right=True, text=POINTS[options.name]())
    except Exception as error:  # any failure is the result of the point
        say(point=options.name, right=False, text=f"{type(error).__name__}: {error}")
        return 1
    return 0


def _rows(options: argparse.Namespace) -> int:
    from benchmarks.gpu import rows

    return rows.run(options.number, options.of, options.skip, options.most)


def _case(options: argparse.Namespace) -> int:
    from benchmarks.gpu import table

    return table.run(options.name, options.scale)


def _begun(options: argparse.Namespace) -> results.Results | None:
    """The file of results with the facts of the card; None without a card."""
    from benchmarks.gpu import card
    from palladio.base.errors import PalladioError

    try:
        facts = card.facts()
    except PalladioError as error:
        print(NO_CARD.format(reason=error))
        return None
    facts["begun"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    print(
        f"{facts['card']}, {facts['multiprocessors']} multiprocessors, driver for {facts['driver']}; {facts['clocks']}"
    )
    return results.Results(options.output, facts)


def _finished(found: results.Results, begun: float, right: bool) -> int:
    from benchmarks.gpu import card

    found.note(seconds=round(time.monotonic() - begun, 1), clocks_after=card.clocks())
    print(f"\nwritten to {found.path}")
    return 0 if right else 1


def _test(options: argparse.Namespace) -> int:
    from benchmarks.gpu.points import POINTS

    begun = time.monotonic()
    found = _begun(options)
    if found is None:
        return 2
    right = True
    for name in options.only or POINTS:
        part = Part(["point", name], POINT_S)
        said = list(part.records()) or [{"point": name, "right": False, "text": part.ended or "said nothing"}]
        found.add("points", said[0])
        print(results.point_line(said[0]), flush=True)
        right &= said[0]["right"]
    rows = _conformance(options, begun + TEST_S)
    for record in rows:
        found.add("rows", record)
    print("\n".join(["", "conformance", *results.row_lines(rows)]))
    right &= all(record["outcome"] in ("right", "refused") and not record["text"] for record in rows)
    return _finished(found, begun, right)


def _conformance(options: argparse.Namespace, end: float) -> list[dict[str, Any]]:
    """The rows of the conformance suite, in several processes; one whose context is lost is replaced by another."""
    of = options.workers
    parts = {number: Part(_share(number, of, 0, options.rows), end - time.monotonic()) for number in range(of)}
    done = dict.fromkeys(parts, 0)
    found: list[dict[str, Any]] = []
    while parts:
        number, part = parts.popitem()
        mine = list(part.records())
        found += mine
        done[number] += len(mine)
        if part.ended is None:
            continue
        if mine and time.monotonic() < end and part.ended.startswith(_LOST):
            parts[number] = Part(_share(number, of, done[number], options.rows), end - time.monotonic())
        else:
            found.append({"row": f"the rest of share {number}", "outcome": "error", "text": part.ended})
    return found


def _share(number: int, of: int, skip: int, most: int | None) -> list[str]:
    return ["rows", str(number), str(of), str(skip), *([] if most is None else ["--most", str(most)])]


def _bench(options: argparse.Namespace) -> int:
    from benchmarks.gpu import table

    begun = time.monotonic()
    found = _begun(options)
    if found is None:
        return 2
    right = True
    for name in options.only or table.names():
        left = begun + BENCH_S - time.monotonic()
        if left <= 0:
            said = {"case": name, "skipped": "no time was left"}
        else:
            part = Part(["case", name, "--scale", str(options.scale)], min(CASE_S, left))
            said = next(iter(list(part.records())), {"case": name, "skipped": part.ended or "it said nothing"})
        found.add("cases", said)
        print(results.case_line(said), flush=True)
        right &= (said.get("ratio") or 0.0) >= (said.get("aim") or 0.0)
    return _finished(found, begun, right)


_COMMANDS = {"test": _test, "bench": _bench, "point": _point, "rows": _rows, "case": _case}


if __name__ == "__main__":
    sys.exit(main())
