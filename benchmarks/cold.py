"""What a first call costs. In a fresh process, `python -m benchmarks.cold` prints one line of JSON."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

PREPARE_LIMIT_S = 0.1
PREPARES_ONLY = "prepares only"
COMPILED = "compiled"


@dataclass(frozen=True)
class Cold:
    """Medians over several fresh processes.

    Fields:
        import_s: `import palladio.library`, NumPy being imported already.
        prepare_s: the first `gmm` call without the grid's run: checks, metadata, tracing, preparing.
        prepared_first, prepared_second: how many programs the first and the second full call prepared.
        first_s, second_s: those two calls.
        compiled_first_s: what the first compiled `gmm` call takes longer than the next ones, with nothing on disk.
        compiled_again_s: the same in a second process, for which the machine code is on disk.
        compiled_call_s: one call of a prepared compiled kernel of next to nothing.
    """

    import_s: float
    prepare_s: float
    prepared_first: int
    prepared_second: int
    first_s: float
    second_s: float
    compiled_first_s: float = 0.0
    compiled_again_s: float = 0.0
    compiled_call_s: float = 0.0

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
        run = _started({})
        with tempfile.TemporaryDirectory() as folder:
            for name in ("compiled_first_s", "compiled_again_s"):
                found = _started({"PALLADIO_CACHE": folder}, COMPILED)
                run[name], run["compiled_call_s"] = found["longer_s"], found["call_s"]
        runs.append(run)
    middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    return Cold(**middle)


def _started(settings: dict[str, str], *arguments: str) -> dict[str, Any]:
    """What a fresh process found."""
    command = [sys.executable, "-m", "benchmarks.cold", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | settings)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


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


def _compiled_process() -> dict[str, Any]:
    import numpy as np

    import palladio as pl
    from benchmarks.inputs import grouped
    from palladio.library import gmm

    lhs, rhs, sizes = grouped()
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        gmm(lhs, rhs, sizes, interpret="cpu")
        seconds.append(time.perf_counter() - start)

    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] + 1

    x, calls = np.zeros((8, 128), np.float32), 2000
    add_one = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), interpret="cpu")
    for _ in range(calls):
        add_one(x)
    start = time.perf_counter()
    for _ in range(calls):
        add_one(x)
    return {"longer_s": seconds[0] - min(seconds[1:]), "call_s": (time.perf_counter() - start) / calls}


if __name__ == "__main__":
    print(json.dumps(_compiled_process() if sys.argv[1:] == [COMPILED] else _process()))
