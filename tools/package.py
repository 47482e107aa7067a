"""Builds the sdist, the wheel from it, and runs the wheel from an empty environment of each Python: `make package`.

python -m tools.package python3.11 python3.12 python3.13
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

KERNEL = """
import numpy as np
import palladio as pl
from palladio.library import gmm
lhs, rhs = np.ones((5, 3), np.float32), np.ones((2, 3, 4), np.float32)
assert (gmm(lhs, rhs, [2, 3]) == 3).all()
assert pl.processor().threads >= 1
print("kernels run")
"""

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("-m", "pip", "check"),
    ("-c", KERNEL),
    ("-m", "palladio", "--version"),
    ("-m", "palladio", "doctor"),
    ("-m", "palladio", "explain", "data-race"),
)
"""The commands of each environment, run outside the checkout."""


def build(folder: Path) -> Path:
    """Build the sdist and the wheel in a folder; returns the wheel."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def tried(python: str, wheel: Path, folder: Path) -> str:
    """The version of a Python in which the wheel was installed and runs.

    Raises:
        CalledProcessError: the installation or a command fails.
    """
    own = folder / "environment"
    shutil.rmtree(own, ignore_errors=True)
    subprocess.run([python, "-m", "venv", own], check=True)
    run = str(own / "bin/python")
    subprocess.run([run, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel], check=True)
    for command in COMMANDS:
        # Isolated: neither the checkout nor the caller's variables.
        subprocess.run([run, "-I", *command], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    found = subprocess.run([run, "--version"], check=True, capture_output=True, text=True)
    return found.stdout.strip()


def main(pythons: Sequence[str]) -> int:
    """Run the tool; the exit status is 1 if none of these Pythons is installed."""
    present = [found for found in map(shutil.which, pythons) if found]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder)
        print(f"built {wheel.name} and its sdist")
        for python in present:
            print(f"{tried(python, wheel, folder)}: installed, and runs")
    missing = [python for python in pythons if shutil.which(python) is None]
    if missing:
        print(f"not tried: {', '.join(missing)}, not installed")
    return 0 if present else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["python3"]))
