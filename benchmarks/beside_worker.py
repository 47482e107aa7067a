"""The process that times one checkout for `benchmarks.beside`: it imports `palladio` and `benchmarks` from there alone.

It reads the name of a case, makes it, checks its result, and answers with a line of JSON; then it times the case once
for each line `time`. An empty line ends the case.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

AT_LEAST_S = 0.02
"""One timing makes as many calls as take this long."""


def main() -> None:
    """Answer requests until there are none."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of other code is not an answer

    import palladio
    from benchmarks.cases import CASES

    if Path.cwd() not in Path(palladio.__file__).parents:
        raise SystemExit(f"palladio was imported from {palladio.__file__}, not from {Path.cwd()}")
    _answer(answers, names=list(CASES))
    for line in sys.stdin:
        _time_case(CASES[line.strip()], answers)


def _answer(answers: TextIO, **fields: Any) -> None:
    print(json.dumps(fields), file=answers, flush=True)


def _time_case(make: Callable[[], Any], answers: TextIO) -> None:
    """Time our contender of one comparison, once for each request."""
    from benchmarks.measure import OURS, error_norm

    comparison = make()
    run = next(each.run for each in comparison.contenders if each.name == OURS)
    error = error_norm(run(), comparison.expected)
    seconds = min(_seconds(run, 1) for _ in range(3))
    calls = max(1, math.ceil(AT_LEAST_S / seconds))
    _answer(answers, name=comparison.name, wrong=not error <= comparison.tolerance, error=error)
    for line in sys.stdin:
        if not line.strip():
            return
        _answer(answers, seconds=_seconds(run, calls))


def _seconds(run: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


if __name__ == "__main__":
    main()
