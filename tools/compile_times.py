"""`python -m tools.compile_times`: the time of the kernels of `library.hopper` from Python to machine code.

Each kernel is compiled in a separate process with an empty cache; then another one finds it on disk, by a key that does
not need tracing. The columns are milliseconds of processor time: for tracing, passes and lowering; for NVRTC; for the
scan of the package's sources, once for each process; and for the kernel from disk. No GPU is needed.
"""

from __future__ import annotations

import os
import platform
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
SHAPES: dict[str, tuple[str, Sequence[tuple[int, ...]]]] = {
    "matmul, 8192 cubed": ("matmul", [(8192, 8192), (8192, 8192)]),
    "gmm, 256 groups": ("gmm", [(262144, 6144), (256, 6144, 4096), (256,)]),
    "attention, 16k tokens": ("attention", [(16, 16384, 128)] * 3),
    "softmax, 8192 squared": ("softmax", [(8192, 8192)]),
}
"""The functions and the shapes of their bfloat16 operands; an operand with one axis has the sizes of groups."""


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

    name, shapes = SHAPES[title]
    arrays = [ShapeDtypeStruct(shape, BF16 if len(shape) > 1 else np.int32) for shape in shapes]
    known, key = timed(lambda: stored.key(name, arrays))
    read, found = timed(lambda: stored.find(key))
    if found is not None:
        print(f"{known} {read}")
        return
    version()  # NVRTC is loaded
    written, kernel = timed(lambda: lowered(getattr(hopper, name), *arrays))
    made, cubin = timed(lambda: compiled(kernel))
    stored.keep(key, kernel, cubin)
    print(f"{written} {made}")


def processor() -> str:
    """The processor's name in the system."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def main() -> None:
    """Print the table."""
    print(f"{processor()}, Python {platform.python_version()}; milliseconds of the processor")
    print(f"{'':24}{'text':>8}{'NVRTC':>8}{'once':>8}{'disk':>8}")
    for title in SHAPES:
        cells = []
        with tempfile.TemporaryDirectory() as cache:
            for _ in ("an empty cache", "the same again"):
                command = [sys.executable, "-m", "tools.compile_times", title]
                environment = {**os.environ, "PALLADIO_CACHE": cache}
                found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
                cells += [float(each) for each in found.stdout.split()]
        print(f"{title:24}" + "".join(f"{cell:8.1f}" for cell in cells))


if __name__ == "__main__":
    one(sys.argv[1]) if len(sys.argv) > 1 else main()
