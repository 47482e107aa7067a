"""`python -m tests.compare.jax_side [part of a case's name]` runs the cases in JAX alone and prints a line for each.

For those who write a case: it has to be a Pallas program that JAX accepts before the comparison can mean anything.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.compare.sides import KERNELS, Outcome, cases, run_jax


def main(arguments: Sequence[str]) -> int:
    wanted = [case for case in cases() if all(word in f"{case.family}:{case.name}" for word in arguments)]
    failures = 0
    for case in wanted:
        try:
            line = _summary(run_jax(case))
        except Exception as error:
            failures += 1
            line = f"FAILED {type(error).__name__} at {_places(error)}: {str(error)[:500]}"
        print(f"{case.family:12} {case.name:40} {line}", flush=True)
    print(f"{len(wanted) - failures} of {len(wanted)} cases run in JAX")
    return failures > 0


def _places(error: Exception) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == KERNELS]
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)


def _summary(outcome: Outcome) -> str:
    return " ".join(f"{array.dtype}{list(array.shape)}" for _, array in outcome.arrays)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
