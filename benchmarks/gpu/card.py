"""The card of a run: its name, clocks and driver, and the versions of the software."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from typing import Any

from palladio.hopper import compile as nvrtc
from palladio.hopper.launch.driver import driver

DISTRIBUTIONS = (
    "palladio",
    "numpy",
    "torch",
    "triton",
    "cuda-bindings",
    "nvidia-cuda-nvrtc",
    "deep_gemm",
    "transformers",
)
CLOCKS = "clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu"


def facts() -> dict[str, Any]:
    """The card and the versions.

    Raises:
        CardError: there is no Hopper card, or no driver.
    """
    known = driver()
    device = known.hopper(0)
    version = known.call("cuDriverGetVersion")
    return {
        "card": device.name,
        "architecture": device.architecture,
        "multiprocessors": device.multiprocessors,
        "driver": f"CUDA {version // 1000}.{version % 1000 // 10}",
        "nvrtc": ".".join(map(str, nvrtc.version())),
        "clocks": clocks(),
        "python": platform.python_version(),
        "versions": {name: found for name in DISTRIBUTIONS if (found := _version(name)) is not None},
    }


def clocks() -> str:
    """The current clocks, power and temperature, by nvidia-smi."""
    command = ["nvidia-smi", f"--query-gpu={CLOCKS}", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"not known: {type(error).__name__}"
    return f"{CLOCKS}: {done.stdout.strip()}"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
