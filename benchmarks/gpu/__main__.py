"""`python -m benchmarks.gpu test|bench`: test or measure on a card, in one command that ends within ten minutes.

`python -m benchmarks.gpu page FILE...` writes the page of the card in docs/measured from files of results.

Exit status: 0; 1 if something is wrong or an aim is missed; 2 without a card.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import importlib
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.gpu import children, results
from benchmarks.gpu.children import LOST, Part, say

POINT_S, ROW_S, CASE_S, MODELS_S = 40.0, 30.0, 50.0, 90.0
"""Time limits of one point, one conformance row, one case and the cost models, in seconds."""
SECONDS = 480.0
"""Seconds after which nothing new starts and what runs is ended, by default."""
END_S = 95.0
"""Further seconds, after which a run ends with the results that it has, even if something in it does not."""
GRACE_S = 10.0
"""Seconds for that, after which the process ends at once."""
WORKERS = 12
CRASHES = 5
"""Processes in a row that end before their first conformance row is done, after which no further one starts."""
NO_TIME = "no time was left"
_LOST = f"ended with status {LOST}"
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
        command.add_argument("--seconds", type=float, default=SECONDS, help="nothing new starts after these")
    point = commands.add_parser("point")
    point.add_argument("names", nargs="+")
    rows = commands.add_parser("rows")
    for name in ("number", "of", "skip"):
        rows.add_argument(name, type=int)
    rows.add_argument("--most", type=int, default=None)
    case = commands.add_parser("case")
    case.add_argument("names", nargs="+")
    case.add_argument("--scale", type=float, default=1.0)
    case.add_argument("--without", default=None, help="a contender to leave out")
    page = commands.add_parser("page")
    page.add_argument("files", nargs="+", type=Path, help="results of test and bench; of repeated ones the last count")
    page.add_argument("--output", type=Path, default=None, help="docs/measured/CARD.md by default")
    options = parser.parse_args(arguments)
    return _COMMANDS[options.command](options)


def _point(options: argparse.Namespace) -> int:
    from benchmarks.gpu.points import POINTS
    from benchmarks.gpu.poison import poisoned

    for name in options.names:
        print(f"{name} begins", flush=True)
        try:
            with poisoned():
                text = POINTS[name]()
            say(point=name, right=True, text=text)
        except Exception as error:  # any failure is the result of the point
            say(point=name, right=False, text=f"{type(error).__name__}: {error}")
            return LOST  # an error of a kernel destroys the context
    return 0


def _rows(options: argparse.Namespace) -> int:
    from benchmarks.gpu import rows

    return rows.run(options.number, options.of, options.skip, options.most)


def _case(options: argparse.Namespace) -> int:
    from benchmarks.gpu import table

    with suppress(ImportError):
        importlib.import_module("torch")  # before the first line, so that it does not count as a part of the case
    for name in options.names:
        print(f"{name} begins", flush=True)
        table.run(name, options.scale, without=options.without)
        if not table.is_context_sound():
            return LOST
    return 0


def _page(options: argparse.Namespace) -> int:
    from benchmarks.gpu import page

    found = page.merged(options.files)
    path = options.output or page.path(found)
    path.write_text(page.page(found), encoding="utf-8")
    print(f"written to {path}")
    return 0


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


def _run(options: argparse.Namespace, parts: Callable[[argparse.Namespace, results.Results, float], bool]) -> int:
    """Run the parts of a command; returns the exit status. An interrupted run keeps its results and kills its parts."""
    begun = time.monotonic()
    with _ended_in_time(options.seconds + END_S) as watched:
        found = _begun(options)
        if found is None:
            return 2
        watched.append(found)
        return _finished(options, parts, found, begun)


@contextmanager
def _ended_in_time(limit_s: float) -> Iterator[list[results.Results]]:
    """A block that ends the process at a time limit, whatever hangs, and notes that in the results.

    A driver that does not return may hold Python's lock, so that no thread can note anything: then the process ends a
    little later, with the results as they were written last.
    """
    watched: list[results.Results] = []

    def end() -> None:
        print(f"\nthe run did not end in {limit_s:.0f} s", flush=True)
        children.kill_all()
        for each in watched:
            each.note(seconds=limit_s, ended="at its time limit")
        os._exit(1)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=sys.__stderr__)
    try:
        yield watched
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()


def _finished(
    options: argparse.Namespace,
    parts: Callable[[argparse.Namespace, results.Results, float], bool],
    found: results.Results,
    begun: float,
) -> int:
    """Run the parts of a command; arguments and result as those of `_run`."""
    from benchmarks.gpu import card

    right, ended = False, "interrupted"
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # raises KeyboardInterrupt
    try:
        with children.killed_at_end():
            right = parts(options, found, begun)
            ended = "complete"
    except KeyboardInterrupt:
        print("\ninterrupted")
    finally:
        signal.signal(signal.SIGTERM, before)
        found.note(seconds=round(time.monotonic() - begun, 1), ended=ended, clocks_after=card.clocks())
    print(f"\nwritten to {found.path}")
    return 0 if right else 1


def _test(options: argparse.Namespace) -> int:
    return _run(options, _test_parts)


def _test_parts(options: argparse.Namespace, found: results.Results, begun: float) -> bool:
    """The points, one after the other, then the conformance suite; returns True if everything is right."""
    right, end = True, begun + options.seconds
    for name, said in _each("point", options.only or _points(), POINT_S, end):
        record = {"point": name, "right": False, "text": said} if isinstance(said, str) else said
        found.add("points", record)
        print(results.point_line(record), flush=True)
        right &= record["right"]
    rows = _conformance(options, found, end)
    print("\n".join(["", "conformance", *results.row_lines(rows)]))
    return right and all(record["outcome"] in ("right", "refused") and not record["text"] for record in rows)


def _points() -> list[str]:
    """The names of the points; one that stands for all if they cannot be imported, which its process reports."""
    try:
        from benchmarks.gpu.points import POINTS
    except Exception:
        return ["points"]
    return list(POINTS)


def _row_name(number: int, of: int, position: int) -> str:
    """The name of a row of a share; its place if the rows cannot be imported, which their processes report."""
    try:
        from benchmarks.gpu.rows import name_of

        return name_of(number, of, position)
    except Exception:
        return f"row {position} of share {number}"


def _each(
    kind: str, names: Sequence[str], limit_s: float, end: float, options: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """The record of each point or case, or the reason why there is none.

    They share a process. One that fails, hangs or loses its context is replaced, after that point or case.
    """
    left = [*names]
    while left:
        if time.monotonic() >= end:
            yield left.pop(0), NO_TIME
            continue
        part = Part([kind, *left, *options], end - time.monotonic(), limit_s)
        said = 0
        for record in part.records():
            said += 1
            yield left.pop(0), record
        if left and not (said and (part.ended or "").startswith(_LOST)):
            yield left.pop(0), part.ended or "said nothing"


def _conformance(options: argparse.Namespace, found: results.Results, end: float) -> list[dict[str, Any]]:
    """The rows of the conformance suite, in several processes."""
    rows: list[dict[str, Any]] = []
    lock = threading.Lock()

    def keep(record: dict[str, Any]) -> None:
        with lock:
            rows.append(record)
            found.add("rows", record)

    pool = ThreadPoolExecutor(options.workers)
    try:
        for share in [pool.submit(_run_share, number, options, end, keep) for number in range(options.workers)]:
            share.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return rows


def _run_share(number: int, options: argparse.Namespace, end: float, keep: Callable[[dict[str, Any]], None]) -> None:
    """Run a share of the rows. A process that crashes, hangs or loses its context is replaced after that row."""
    done = crashes = 0
    while crashes < CRASHES and end - time.monotonic() > 0:
        try:
            part = Part(_share(number, options.workers, done, options.rows), end - time.monotonic(), ROW_S)
        except children.Interrupted:
            return
        before = done
        for record in part.records():
            keep(record)
            done += 1
        if part.ended is None or children.all_killed():
            return
        crashes = 0 if done > before else crashes + 1
        if not (done > before and part.ended.startswith(_LOST)) and time.monotonic() < end:
            keep({"row": _row_name(number, options.workers, done), "outcome": "error", "text": part.ended})
            done += 1
    why = NO_TIME if crashes < CRASHES else f"{CRASHES} processes in a row ended at their first row"
    keep({"row": f"the rest of share {number}", "outcome": "error", "text": why})


def _share(number: int, of: int, skip: int, most: int | None) -> list[str]:
    return ["rows", str(number), str(of), str(skip), *([] if most is None else ["--most", str(most)])]


def _bench(options: argparse.Namespace) -> int:
    return _run(options, _bench_parts)


def _bench_parts(options: argparse.Namespace, found: results.Results, begun: float) -> bool:
    """The cases, one after the other; returns True if no aim is missed."""
    from benchmarks.gpu import card

    table = _table()
    speeds: dict[str, float] = {}
    end, scale = begun + options.seconds, ["--scale", str(options.scale)]
    names = options.only or (["cases"] if table is None else list(table.names()))
    of_models = [] if table is None else [name for name in names if name == table.cost_model.NAME]
    cases = _each("case", [name for name in names if name not in of_models], CASE_S, end, scale)
    models = _each("case", of_models, MODELS_S, end, scale)
    records: list[dict[str, Any]] = []
    for name, said in itertools.chain(cases, models):
        record = {"case": name, "skipped": said} if isinstance(said, str) else said
        record = _of_the_others(record, end, scale)
        if "skipped" not in record:
            record["clocks"] = card.clocks()
        if table is not None:
            _beside(record, table, speeds)
        records.append(record)
        found.add("cases", record)
        print(results.case_line(record), flush=True)
    print("\n".join(["", "results over aims", *results.summary(records)]))
    return all(map(results.meets_aims, records))


def _of_the_others(record: dict[str, Any], end: float, scale: Sequence[str]) -> dict[str, Any]:
    """The record of a case. If a contender ended its process, the others are measured in a further process."""
    name, why = record["case"], record.get("skipped", "")
    failed = record.pop("failed", None) or results.begun_last(why)
    if failed in (None, name, "timing") or time.monotonic() >= end:
        return record
    part = Part(["case", name, "--without", failed, *scale], end - time.monotonic(), CASE_S)
    others = next(iter([*part.records()]), {"skipped": ""})
    return record if "skipped" in others else {**others, "missing": {**others["missing"], failed: why}}


def _table() -> Any:
    """The module of the cases; None if it cannot be imported, which the process of the cases reports."""
    try:
        return importlib.import_module("benchmarks.gpu.table")
    except Exception:
        return None


def _beside(record: dict[str, Any], table: Any, speeds: dict[str, float]) -> None:
    """Add the share of the rate of the case that this one is compared with; keeps this one's rate."""
    name, rate = record["case"], record.get("tflops", {}).get(table.OURS)
    base = table.CASES[name].beside if name in table.CASES else None
    if rate is not None:
        speeds[name] = rate
        if base in speeds:
            record |= {"beside": base, "share": rate / speeds[base], "least_share": table.SHARE}


_COMMANDS = {"test": _test, "bench": _bench, "point": _point, "rows": _rows, "case": _case, "page": _page}


if __name__ == "__main__":
    status = main()
    if status == LOST:
        sys.stdout.flush()
        os._exit(LOST)  # what libraries do at the end of a process may crash without a context
    sys.exit(status)
