"""Builds the sdist, the wheel from it, and runs the wheel from empty environments: `make package`.

python -m tools.package python3.11 python3.12 python3.13
python -m tools.package --extra torch --extra jax --constraint pins.txt python3.12

The package alone is tried with every Python, each extra with the first one: in an environment that has nothing else,
outside the checkout, with the code of the pages that describe the extra.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

KERNEL = """
import numpy as np
import palladio as pl
from palladio.library import gmm
lhs, rhs = np.ones((5, 3), np.float32), np.ones((2, 3, 4), np.float32)
assert (gmm(lhs, rhs, [2, 3]) == 3).all()
assert pl.processor().threads >= 1
"""

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("-m", "pip", "check"),
    ("-c", KERNEL),
    ("-m", "palladio", "--version"),
    ("-m", "palladio", "doctor"),
    ("-m", "palladio", "explain", "data-race"),
)
"""The commands of each environment, run outside the checkout."""

CUBIN = """
import numpy as np
from palladio.driver.capture import prepared_programs
from palladio.driver.compile import PIPELINES
from palladio.hopper.compile import compiled
from palladio.hopper.kernels import lowered
from palladio.library import hopper
from palladio.ops.kernel_calls import kernel_calls
from palladio.passes import run_passes
with prepared_programs() as programs:
    hopper.matmul(np.ones((64, 64), np.float16), np.ones((64, 64), np.float16))
(call,) = kernel_calls(run_passes(programs[0], PIPELINES["hopper-twin"]))
assert compiled(lowered(call)).registers > 0
"""


@dataclass(frozen=True)
class Extra:
    """The trial of an extra.

    Fields:
        pages: pages of docs whose code runs as one program, each with the titles of its sections; all without any.
        commands: further arguments of Python.
    """

    pages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    commands: tuple[tuple[str, ...], ...] = ()


EXTRAS = {
    "torch": Extra(
        {"pytorch.md": ("A layer", "Compiled, exported, batched", "A kernel of your own", "On many processes")}
    ),
    "transformers": Extra({"pytorch.md": ()}),
    "distributed": Extra({"pytorch.md": ("A layer", "On many processes"), "interop.md": ("Checks on many processes",)}),
    "jax": Extra({"interop.md": ("JAX",)}),
    "hopper": Extra(commands=(("-c", CUBIN),)),
    "plot": Extra(commands=(("-c", "import matplotlib"),)),
    "demo": Extra(commands=(("-m", "palladio.demo", "--plot", "digits.png"), ("-c", "open('digits.png')"))),
}
"""The extras that a user may install; the others are for work on Palladio itself."""

CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(page: str, *titles: str) -> str:
    """The code of a page of docs, or of its sections with these titles.

    Raises:
        KeyError: the page has no such section.
    """
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in re.split(r"^## ", text, flags=re.MULTILINE)}
    return "\n".join(CODE.findall("".join(sections[title] for title in titles or sections)))


def build(folder: Path) -> Path:
    """Build the sdist and the wheel in a folder; returns the wheel."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


class Environment:
    """A virtual environment with one requirement and what that needs, and commands run in it outside the checkout.

    Raises:
        CalledProcessError: the installation or a command fails.
    """

    def __init__(self, python: str, folder: Path, requirement: str, options: Sequence[str]) -> None:
        own = folder / "environment"
        shutil.rmtree(own, ignore_errors=True)
        subprocess.run([python, "-m", "venv", own], check=True)
        self.python = str(own / "bin/python")
        self.folder = folder
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options)
        self.run(*pip, requirement)
        for command in COMMANDS:
            self.run(*command)

    def run(self, *arguments: str) -> str:
        """The standard output of Python with these arguments; isolated from the checkout and the caller's variables."""
        done = subprocess.run([self.python, "-I", *arguments], check=True, cwd=self.folder, stdout=subprocess.PIPE)
        return done.stdout.decode().strip()


def try_extra(name: str, environment: Environment) -> None:
    """Run what the pages say of an extra in an environment that has it.

    Raises:
        CalledProcessError: a command fails.
        RuntimeError: `palladio doctor` reports the extra as missing.
    """
    if re.search(rf"^  {name} .*not installed", environment.run("-m", "palladio", "doctor"), re.MULTILINE):
        raise RuntimeError(f"palladio doctor does not find what the extra {name} brings")
    extra = EXTRAS[name]
    if extra.pages:
        script = environment.folder / f"{name}.py"
        script.write_text("\n".join(snippets(page, *titles) for page, titles in extra.pages.items()), encoding="utf-8")
        environment.run(str(script))
    for command in extra.commands:
        environment.run(*command)


def main(arguments: Sequence[str]) -> int:
    """Run the tool; the exit status is 1 if none of the Pythons is installed."""
    parser = argparse.ArgumentParser(prog="python -m tools.package", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--extra", action="append", choices=EXTRAS, help="an extra to try (default: all)")
    parser.add_argument("--constraint", type=Path, metavar="FILE", help="versions for pip to install")
    parser.add_argument("pythons", nargs="*", default=["python3"], metavar="PYTHON")
    options = parser.parse_args(arguments)
    pip = ["--constraint", str(options.constraint.absolute())] if options.constraint else []
    present = [found for found in map(shutil.which, options.pythons) if found]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel = build(folder)
        print(f"built {wheel.name} and its sdist", flush=True)
        for python in present:
            version = Environment(python, folder, str(wheel), pip).run("--version")
            print(f"{version}: installed, and runs", flush=True)
        for name in (options.extra or EXTRAS) if present else ():
            try_extra(name, Environment(present[0], folder, f"palladio[{name}] @ {wheel.as_uri()}", pip))
            print(f"{present[0]}: palladio[{name}] installed, and runs", flush=True)
    missing = [python for python in options.pythons if shutil.which(python) is None]
    if missing:
        print(f"not tried: {', '.join(missing)}, not installed")
    return 0 if present else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
