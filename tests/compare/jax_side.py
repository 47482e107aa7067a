"""`python -m tests.compare.jax_side [part of a case's name]` runs the cases in JAX alone and prints a line for each.

For those who write a case: it has to be a Pallas program that JAX accepts before the comparison can mean anything.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Sequence

from tests.compare.sides import Outcome, cases, run_jax


def main(arguments: Sequence[str]) -> int:
    wanted = [case for case in cases() if all(word in f"{case.family}:{case.name}" for word in arguments)]
    failures = 0
    for case in wanted:
        start = time.perf_counter()
        try:
            line = _summary(run_jax(case))
        except Exception as error:
            failures += 1
            last = traceback.extract_tb(error.__traceback__)
            places = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in last if "kernels" in frame.filename]
            line = f"FAILED {type(error).__name__} at {', '.join(places)}: {str(error)[:500]}"
        print(f"{time.perf_counter() - start:6.2f} s  {case.family:12} {case.name:40} {line}", flush=True)
    print(f"{len(wanted) - failures} of {len(wanted)} cases run in JAX")
    return failures > 0


def _summary(outcome: Outcome) -> str:
    return " ".join(f"{array.dtype}{list(array.shape)}" for _, array in outcome.arrays)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
