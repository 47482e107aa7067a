"""What a first call costs. In a fresh process, `python -m benchmarks.cold` prints one line of JSON."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

PREPARE_LIMIT_S = 0.1
PREPARES_ONLY = "prepares only"


@dataclass(frozen=True)
class Cold:
    """Medians over several fresh processes.

    Fields:
        import_s: `import palladio.library`, NumPy being imported already.
        prepare_s: the first `gmm` call without the grid's run: checks, metadata, tracing, preparing.
        prepared_first, prepared_second: how many programs the first and the second full call prepared.
        first_s, second_s: those two calls.
    """

    import_s: float
    prepare_s: float
    prepared_first: int
    prepared_second: int
    first_s: float
    second_s: float

    @property
    def failures(self) -> list[str]:
        """What is not as it must be, in words."""
        found = []
        if self.prepare_s >= PREPARE_LIMIT_S:
            took, limit = self.prepare_s * 1e3, PREPARE_LIMIT_S * 1e3
            found.append(f"preparing gmm takes {took:.0f} ms, must be under {limit:.0f}")
        if self.prepared_second:
            found.append(f"a second call of gmm prepares {self.prepared_second} programs, must be 0")
        if not self.prepared_first:
            found.append("the first call of gmm prepares nothing: the count does not see what it prepares")
        return found


def measure(processes: int = 5) -> Cold:
    """Start fresh processes one after another."""
    runs = []
    for _ in range(processes):
        done = subprocess.run([sys.executable, "-m", "benchmarks.cold"], check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout))
    middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    return Cold(**middle)


def _register() -> None:
    """Add an executor that prepares as the evaluator does and returns zeros."""
    import numpy as np

    from palladio.driver.compile import PIPELINES
    from palladio.driver.executors import EXECUTORS, REFERENCE, Executor, Runner
    from palladio.ir.program import Program

    def load(program: Program) -> Runner:
        REFERENCE.load(program)
        return lambda values: [np.zeros(type.shape, type.dtype) for type in program.output_types]

    EXECUTORS[PREPARES_ONLY] = Executor(PREPARES_ONLY, "The evaluator without its run.", load)
    PIPELINES[PREPARES_ONLY] = PIPELINES[REFERENCE.name]


def _process() -> dict[str, Any]:
    from benchmarks.inputs import grouped

    lhs, rhs, sizes = grouped()
    start = time.perf_counter()
    from palladio.library import gmm

    import_s = time.perf_counter() - start
    from palladio.call.jit import STAGED
    from palladio.call.pallas_call import PREPARED

    def prepared() -> int:
        # The library stages its products; a kernel inside of a staged function is prepared with it.
        return int(PREPARED.prepared + STAGED.prepared)

    _register()
    start = time.perf_counter()
    gmm(lhs, rhs, sizes, interpret=PREPARES_ONLY)
    found: dict[str, Any] = {"import_s": import_s, "prepare_s": time.perf_counter() - start}
    for call in ("first", "second"):
        before, start = prepared(), time.perf_counter()
        gmm(lhs, rhs, sizes, interpret=True)
        found[f"{call}_s"] = time.perf_counter() - start
        found[f"prepared_{call}"] = prepared() - before
    return found


if __name__ == "__main__":
    print(json.dumps(_process()))
