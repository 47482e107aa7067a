"""The simulator with its checks, beside JAX's interpreter of GPU kernels with its race detector."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import palladio.gpu as plgpu
from benchmarks import inputs
from benchmarks.measure import OURS, Comparison, Contender, Floor
from palladio.library import hopper

Array = np.ndarray[Any, Any]

SIZE = 1024
JAX_INTERPRETER = "JAX's GPU interpreter, detect_races=True"
PYTHON = Path(sys.prefix) / "jax" / "bin" / "python"
"""The Python with the newest JAX, which `make bench` installs; `JAX_PYTHON` names the Python to create it with."""
HALF = 1e-3  # of float16 results


def matmul() -> Comparison:
    """A product of halves in tiles of 128×128×64, every access checked."""
    a, b = (array.astype(np.float16) for array in inputs.normal((SIZE, SIZE), (SIZE, SIZE)))
    config = hopper.MatmulConfig(tile_m=128, tile_n=128, tile_k=64)
    checked = plgpu.InterpretGPUParams(detect_races=True)
    contenders = [
        Contender(OURS, lambda: hopper.matmul(a, b, config=config, interpret=checked)),
        jax_interpreter(a, b),
    ]
    expected = a.astype(np.float64) @ b.astype(np.float64)
    name = f"race detection: matmul f16, {SIZE}³, tiles 128×128×64"
    return Comparison(name, contenders, expected, HALF, 2 * SIZE**3, Floor(JAX_INTERPRETER, 10))


def jax_interpreter(a: Array, b: Array, rounds: int = 3) -> Contender:
    """`hopper_matmul_mgpu` of a JAX that has a public GPU interpreter, in a separate process."""
    if not PYTHON.exists():
        return Contender(JAX_INTERPRETER, None, missing="not installed: make bench JAX_PYTHON=python3.12")
    folder = tempfile.mkdtemp(prefix="palladio-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    np.savez(Path(folder) / "operands.npz", a=a, b=b)
    script = Path(__file__).with_name("jax_simulator.py")
    process = subprocess.Popen(
        [str(PYTHON), str(script), folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    atexit.register(process.kill)
    if not process.stdout or not process.stdin or not process.stdout.readline():
        reason = process.stderr.read().strip().splitlines()[-1:] if process.stderr else []
        return Contender(JAX_INTERPRETER, None, missing=" ".join(reason) or "it does not start")
    write, read = process.stdin, process.stdout

    def run() -> Array:
        write.write("go\n")
        write.flush()
        if read.readline() != "done\n":
            raise RuntimeError("JAX's interpreter ended")
        return np.load(Path(folder) / "result.npy")

    return Contender(JAX_INTERPRETER, run, rounds)


CASES: dict[str, Callable[[], Comparison]] = {"simulator": matmul}
