"""The cost of a first call. In a fresh process, `python -m benchmarks.cold` prints one line of JSON.

Installing a package compiles its Python to bytecode; here it is in a folder, filled before the measured processes run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PREPARES_ONLY = "prepares only"
COMPILED, SMALL, CALLS = "compiled", "small", "calls"
IMPORTS = {"import_s": "palladio", "library_s": "palladio, palladio.library"}

LIMITS_S = {"import_s": 0.3, "library_s": 0.3, "prepare_s": 0.1}
"""The most seconds that a measurement may take: the run fails beyond them."""

GOALS_S = {
    "compiled_first_s": 0.3,
    "compiled_again_s": 50e-3,
    "compiled_call_s": 15e-6,
    "two_rows_s": 25e-6,
    "two_tensor_rows_s": 30e-6,
    "new_rows_s": 1e-3,
}
"""The most seconds that a measurement should take: the run lists what takes longer."""


@dataclass(frozen=True)
class Cold:
    """Medians over several fresh processes; of imports the least, which other load affects least.

    Fields:
        import_s: `import palladio`, NumPy included.
        library_s: `import palladio, palladio.library`, NumPy included.
        prepare_s: the first `gmm` call without the grid's run: checks, metadata, tracing, preparing.
        prepared_first, prepared_second: the number of programs that the first and the second full call prepared.
        first_s, second_s: those two calls.
        compiled_first_s: the extra time of the first compiled `gmm` call over the next ones, with nothing on disk, and
            LLVM being imported already.
        compiled_again_s: the same in a second process, for which the machine code is on disk.
        small_first_s: the first call of a nearly empty compiled kernel, importing LLVM included.
        small_again_s: the same in a second process, which does not import LLVM.
        compiled_call_s: one call of a prepared, nearly empty compiled kernel.
        two_rows_s, two_tensor_rows_s: a call of `gmm` with 2 rows, 8 groups of 64×64, in NumPy arrays and in tensors.
        torch_two_rows_s: the same in PyTorch's grouped product.
        new_rows_s: the extra time of the first call of `gmm` with a new number of rows over the second of one row
            fewer, the median of some pairs.
    """

    import_s: float
    library_s: float
    prepare_s: float
    prepared_first: int
    prepared_second: int
    first_s: float
    second_s: float
    compiled_first_s: float = 0.0
    compiled_again_s: float = 0.0
    small_first_s: float = 0.0
    small_again_s: float = 0.0
    compiled_call_s: float = 0.0
    two_rows_s: float = 0.0
    two_tensor_rows_s: float = 0.0
    torch_two_rows_s: float = 0.0
    new_rows_s: float = 0.0

    @property
    def failures(self) -> list[str]:
        """The failures, in words."""
        found = []
        for name, limit in LIMITS_S.items():
            if (took := getattr(self, name)) >= limit:
                what = f"import {IMPORTS[name]}" if name in IMPORTS else "preparing gmm"
                found.append(f"{what} takes {took * 1e3:.0f} ms, must be under {limit * 1e3:.0f}")
        if self.prepared_second:
            found.append(f"a second call of gmm prepares {self.prepared_second} programs, must be 0")
        if not self.prepared_first:
            found.append("the first call of gmm prepares nothing: the count does not see what it prepares")
        return found


def measure(processes: int = 5) -> Cold:
    """Start fresh processes one after another."""
    with tempfile.TemporaryDirectory() as bytecode:
        settings = {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
        _run(settings)
        runs = [_run(settings) for _ in range(processes)]
    found = {name: [run[name] for run in runs] for name in runs[0]}
    return Cold(**{name: min(of) if name in IMPORTS else statistics.median(of) for name, of in found.items()})


def _run(settings: dict[str, str]) -> dict[str, Any]:
    """The measurements of fresh processes, one for each event that happens once in a process."""
    run = _started(settings, "-m", "benchmarks.cold") | _started(settings, "-m", "benchmarks.cold", CALLS)
    for name, modules in IMPORTS.items():
        program = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"
        run[name] = _started(settings, "-c", program)
    with tempfile.TemporaryDirectory() as folder:
        kept = settings | {"PALLADIO_CACHE": folder}
        for when in ("first_s", "again_s"):
            run[f"compiled_{when}"] = _started(kept, "-m", "benchmarks.cold", COMPILED)
            small = _started(kept, "-m", "benchmarks.cold", SMALL)
            run[f"small_{when}"], run["compiled_call_s"] = small["first_s"], small["call_s"]
    return run


def _started(settings: dict[str, str], *arguments: str) -> Any:
    """The measurements of a fresh Python process."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | settings)
    return json.loads(done.stdout)


def _register() -> None:
    """Add an executor that prepares as the evaluator does and returns zeros."""
    import numpy as np

    from palladio.driver.executors import EXECUTORS, REFERENCE, Executor, Runner
    from palladio.ir.core import Program

    def load(program: Program) -> Runner:
        REFERENCE.load(program)
        return lambda values: [np.zeros(type.shape, type.dtype) for type in program.output_types]

    EXECUTORS[PREPARES_ONLY] = Executor(PREPARES_ONLY, "The evaluator without its run.", load)


def _process() -> dict[str, Any]:
    from benchmarks.inputs import grouped
    from palladio.call.staged import CALLS
    from palladio.library import gmm

    def prepared() -> int:
        # The library stages its products; a kernel inside of a staged function is prepared with it.
        return int(CALLS.prepared)

    lhs, rhs, sizes = grouped()
    _register()
    start = time.perf_counter()
    gmm(lhs, rhs, sizes, interpret=PREPARES_ONLY)
    found: dict[str, Any] = {"prepare_s": time.perf_counter() - start}
    for call in ("first", "second"):
        before, start = prepared(), time.perf_counter()
        gmm(lhs, rhs, sizes, interpret=True)
        found[f"{call}_s"] = time.perf_counter() - start
        found[f"prepared_{call}"] = prepared() - before
    return found


def _compiled_process() -> float:
    import llvmlite.binding  # noqa: F401  the measurement begins after the imports, of LLVM too

    import palladio.cpu.executor  # noqa: F401
    from benchmarks.inputs import grouped
    from palladio.library import gmm

    lhs, rhs, sizes = grouped()
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        gmm(lhs, rhs, sizes, interpret="cpu")
        seconds.append(time.perf_counter() - start)
    return seconds[0] - min(seconds[1:])


def _median(call: Callable[[], Any], calls: int = 300) -> float:
    """The seconds of a call, the median of several means."""
    seconds = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        seconds.append((time.perf_counter() - start) / calls)
    return statistics.median(seconds)


def _small_process() -> dict[str, float]:
    import numpy as np

    import palladio as pl

    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] + 1

    x = np.zeros((8, 128), np.float32)
    start = time.perf_counter()
    add_one = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), interpret="cpu")
    add_one(x)
    first_s = time.perf_counter() - start
    return {"first_s": first_s, "call_s": _median(lambda: add_one(x), 500)}


def _calls_process() -> dict[str, float]:
    import numpy as np
    import torch

    from benchmarks.inputs import normal
    from palladio.library import gmm

    (lhs, rhs), sizes = normal((2, 64), (8, 64, 64)), np.array([1, 0, 0, 1, 0, 0, 0, 0], np.int32)
    x, y, counts = (torch.from_numpy(array) for array in (lhs, rhs, sizes))
    ends = counts.cumsum(0, dtype=torch.int32)
    found = {
        "two_rows_s": _median(lambda: gmm(lhs, rhs, sizes)),
        "two_tensor_rows_s": _median(lambda: gmm(x, y, counts)),
        "torch_two_rows_s": _median(lambda: torch.nn.functional.grouped_mm(x, y, offs=ends)),
    }
    many, matrices = normal((2000, 512), (8, 512, 512))

    def timed(m: int) -> float:
        start = time.perf_counter()
        gmm(many[:m], matrices, [m // 2, 0, 0, m - m // 2, 0, 0, 0, 0])
        return time.perf_counter() - start

    timed(2000)
    longer = []
    for m in range(100, 1900, 37):
        second = [timed(m), timed(m)][1]
        longer.append(timed(m + 1) - second)
    return found | {"new_rows_s": statistics.median(longer)}


PROCESSES: dict[str, Callable[[], Any]] = {
    "": _process,
    COMPILED: _compiled_process,
    SMALL: _small_process,
    CALLS: _calls_process,
}

if __name__ == "__main__":
    print(json.dumps(PROCESSES["".join(sys.argv[1:])]()))
