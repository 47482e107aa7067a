"""`python -m tools.compile_times`: the time of the kernels of `library.hopper` from Python to machine code.

Each kernel is compiled in a separate process with an empty cache; then another one finds it on disk, by a key that does
not need tracing. The columns are milliseconds of processor time: for tracing, passes and lowering; for NVRTC; for g++,
which compiles it for the host twin; for the scan of the package's sources, once for each process; and for the kernel
from disk. No GPU is needed. The exit status is 1 if a kernel misses its aim by more than half of it, which no load
explains.
"""

from __future__ import annotations

import functools
import gc
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
BF16 = np.dtype(ml_dtypes.bfloat16)
KERNELS: dict[str, tuple[str, Sequence[tuple[int, ...]], dict[str, Any]]] = {
    "matmul, 8192 cubed": ("matmul", [(8192, 8192), (8192, 8192)], {}),
    "gmm, 256 groups": ("gmm", [(262144, 6144), (256, 6144, 4096), (256,)], {}),
    "attention, 16k tokens": ("attention", [(16, 16384, 128)] * 3, {}),
    "attention, causal": ("attention", [(16, 16384, 128)] * 3, {"causal": True}),
    "softmax, 8192 squared": ("softmax", [(8192, 8192)], {}),
}
"""The functions, the shapes of their bfloat16 operands, options; an operand with one axis has the sizes of groups."""

COLD_MS, TWIN_MS, DISK_MS, MARGIN = 1000.0, 500.0, 5.0, 1.5
"""The aims of a kernel: text and NVRTC together, on the twin, from disk; and the margin by which they may be missed."""

AIMS = COLD_MS, TWIN_MS, DISK_MS


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """The milliseconds of processor time of an action, and its result."""
    start = time.process_time()
    result = action()
    return (time.process_time() - start) * 1e3, result


def one(title: str) -> None:
    """Find one kernel on disk, else compile it, and print the milliseconds of both steps."""
    sys.path.insert(0, str(ROOT))
    from palladio.hopper.compile import compiled, version
    from palladio.hopper.launch import stored
    from palladio.library import hopper
    from palladio.types.types import ShapeDtypeStruct
    from tests.hopper.kernels import lowered

    name, shapes, options = KERNELS[title]
    arrays = [ShapeDtypeStruct(shape, BF16 if len(shape) > 1 else np.int32) for shape in shapes]
    gc.collect()  # of the imports; it would be counted as a part of the first step
    known, key = timed(lambda: stored.key((name, *options.items()), arrays))
    read, found = timed(lambda: stored.find(key))
    if found is not None:
        print(f"{known} {read}")
        return
    version()  # NVRTC is loaded
    written, kernel = timed(lambda: lowered(functools.partial(getattr(hopper, name), **options), *arrays))
    made, cubin = timed(lambda: compiled(kernel))
    stored.keep(key, kernel, cubin)
    print(f"{written} {made} {for_the_twin(kernel)}")


def for_the_twin(kernel: Any) -> float:
    """The milliseconds of processor time of the compiler of the host twin; NaN where it is not installed."""
    from palladio.hopper.twin import build

    if shutil.which(build.COMPILER) is None:
        return float("nan")
    build.runtime()
    before = os.times()
    with tempfile.TemporaryDirectory() as folder:
        build._compile_kernel(kernel, Path(folder, "kernel.so"))
    after = os.times()
    return (after.children_user - before.children_user + after.children_system - before.children_system) * 1e3


def processor() -> str:
    """The processor's name in the system."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def main() -> int:
    """Print the table; returns the exit status."""
    late = []
    print(f"{processor()}, Python {platform.python_version()}; milliseconds of the processor")
    print(f"{'':24}{'text':>8}{'NVRTC':>8}{'twin':>8}{'once':>8}{'disk':>8}")
    for title in KERNELS:
        cells = []
        with tempfile.TemporaryDirectory() as cache:
            for _ in ("an empty cache", "the same again"):
                command = [sys.executable, "-m", "tools.compile_times", title]
                environment = {**os.environ, "PALLADIO_CACHE": cache}
                found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
                cells += [float(each) for each in found.stdout.split()]
        print(f"{title:24}" + "".join(f"{cell:8.1f}" for cell in cells), flush=True)
        text, machine_code, twin, _, disk = cells
        if any(found > MARGIN * aim for found, aim in zip((text + machine_code, twin, disk), AIMS, strict=True)):
            late.append(title)
    if late:
        aims = f"{COLD_MS:.0f} ms, {TWIN_MS:.0f} for the twin, or {DISK_MS:.0f} from disk"
        print(f"slower than {aims}, by more than the margin: {', '.join(late)}")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(one(sys.argv[1]) if len(sys.argv) > 1 else main())
