"""The parts of the soak, each in a process of its own, and a table of their counts."""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from tools.soak.changes import changes
from tools.soak.first_calls import first_calls
from tools.soak.forks import forks
from tools.soak.frame import Counts, Part, Soak
from tools.soak.handlers import handlers
from tools.soak.interrupts import interrupts
from tools.soak.library import library
from tools.soak.products import products
from tools.soak.threads import threads

PARTS: dict[str, Part] = {
    part.__name__: part for part in (interrupts, first_calls, handlers, threads, forks, changes, library, products)
}

PATIENCE_S = 60.0
"""The time beyond its limit after which a part counts as hung."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts; the status is 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which: {', '.join(PARTS)}; all by default")
    parser.add_argument("--seconds", type=float, default=600, help="for how long, all together (default: 600)")
    parser.add_argument("--rounds", type=float, default=math.inf, help="how many in each part, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices (default: 0)")
    parser.add_argument("--here", action="store_true", help="run one part in this process and print its counts as JSON")
    given = parser.parse_args(arguments)
    names = given.parts or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]}; there are {', '.join(PARTS)}")
    if given.here:
        return _here(names[0], given.seconds, given.rounds, given.seed)
    print(f"{'part':<12}{'calls':>10}{'interrupts':>12}{'faults':>8}{'wrong':>8}", flush=True)
    total = Counts()
    for name in names:
        counts, notes = _apart(name, given.seconds / len(names), given.rounds, given.seed)
        total += counts
        _print(name, counts)
        for note in notes:
            print(f"  {note}", flush=True)
    _print("all", total)
    return 1 if total.faults or total.wrong else 0


def _print(name: str, counts: Counts) -> None:
    print(f"{name:<12}{counts.calls:>10}{counts.interrupts:>12}{counts.faults:>8}{counts.wrong:>8}", flush=True)


def _here(name: str, seconds: float, rounds: float, seed: int) -> int:
    faulthandler.dump_traceback_later(seconds + PATIENCE_S - 5)
    soak = Soak(seconds, rounds, np.random.default_rng(seed))
    PARTS[name](soak)
    print(json.dumps({"counts": asdict(soak.counts), "notes": soak.notes}))
    return 0


def _apart(name: str, seconds: float, rounds: float, seed: int) -> tuple[Counts, list[str]]:
    """The counts and notes of a part, run in a separate process."""
    limits = f"--seconds={seconds}", f"--rounds={rounds}", f"--seed={seed}"
    command = [sys.executable, "-m", "tools.soak", "--here", name, *limits]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds + PATIENCE_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as hung:
        return Counts(faults=1), [f"hung: {_text(hung.stderr)[-3000:]}"]
    try:
        told = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return Counts(faults=1), [f"ended with status {done.returncode}: {done.stderr[-3000:]}"]
    notes = [*told["notes"], *([f"said: {done.stderr[-500:]}"] if done.stderr else [])]
    return Counts(**told["counts"]), notes


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


if __name__ == "__main__":
    sys.exit(main())
