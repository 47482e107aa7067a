"""What is loaded when: importing Palladio takes what a first small kernel needs; the rest comes when it is used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from palladio.cpu.runtime.executable import SUPPORTED

EVALUATED = """
import numpy as np
import palladio as pl

def kernel(x_ref, out_ref):
    out_ref[...] = x_ref[...] + 1

x = np.zeros(8, np.float32)
pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), interpret={executor!r})(x)
"""

PRODUCT = """
import numpy as np
from palladio.library import gmm

gmm(np.ones((4, 64), np.float32), np.ones((2, 64, 64), np.float32), [1, 3])
"""

COMPILERS = ("llvmlite", "palladio.cpu", "palladio.lower")
MACHINE = ("palladio.machine", "palladio.driver.checks", "palladio.driver.simulation")
ABOVE = ("palladio.library", "palladio.interop", "palladio.cli", "palladio.demo", "palladio.gpu", "palladio.tpu")
OTHERS = ("scipy", "torch", "jax", "matplotlib", "rich", "click", "PIL")
SLOW = ("urllib.request", "http", "ssl", "email", "xml", "json", "asyncio", "multiprocessing", "unittest", "random")
"""Modules of Python that bring many others."""


FORKS = """
import os, sys
import palladio
for program in map(eval, sys.stdin):
    if not os.fork():
        exec(program, {})
        print(*sys.modules, flush=True)
        os._exit(0)
    if os.wait()[1]:
        print(flush=True)
"""
"""A process that has imported Palladio and no more, and runs each program in a fork of it: importing takes a second."""


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", FORKS], stdin=PIPE, stdout=PIPE, text=True) as process:
        yield process
        process.stdin.close()


Loaded = Callable[[str], set[str]]


@pytest.fixture
def loaded(forks: subprocess.Popen[str]) -> Loaded:
    """The modules that a fresh process has loaded after it imported Palladio and ran a program."""

    def run(program: str) -> set[str]:
        print(repr(program), file=forks.stdin, flush=True)
        found = set(forks.stdout.readline().split())
        assert found, "the program failed"
        return found

    return run


def among(found: set[str], names: tuple[str, ...]) -> list[str]:
    """What of these modules, and of what lies in them, was loaded."""
    return sorted(each for each in found if each.startswith(tuple(f"{name}." for name in names)) or each in names)


def test_the_package_loads_no_compiler_and_no_machine(loaded: Loaded) -> None:
    found = loaded("")
    text = "import numpy, ml_dtypes, optree, threadpoolctl, sys; print(*sys.modules)"
    brought_by_others = set(subprocess.check_output([sys.executable, "-c", text], text=True).split())
    assert among(found, (*COMPILERS, *MACHINE, *ABOVE)) == []
    assert among(found - brought_by_others, (*OTHERS, *SLOW)) == []


def test_the_library_loads_no_kernels_for_gpus(loaded: Loaded) -> None:
    found = loaded("import palladio.library")
    assert "palladio.library.matmul" in found
    assert among(found, (*COMPILERS, *MACHINE, *OTHERS, "palladio.gpu", "palladio.library.hopper")) == []
    assert among(found, ("palladio.call.tpu.interpret", "palladio.pipeline.tpu")) == []


def test_an_evaluated_kernel_needs_no_compiler_and_no_machine(loaded: Loaded) -> None:
    assert among(loaded(EVALUATED.format(executor="reference")), (*COMPILERS, *MACHINE, *OTHERS)) == []


def test_a_compiled_kernel_needs_no_machine(loaded: Loaded) -> None:
    found = loaded(EVALUATED.format(executor="cpu"))
    assert "palladio.cpu.executor" in found
    assert among(found, (*MACHINE, *OTHERS)) == []


def test_a_kernel_that_is_on_disk_needs_no_llvm(loaded: Loaded, tmp_path: Path) -> None:
    here = f"import os\nos.environ['PALLADIO_CACHE'] = {str(tmp_path)!r}\n"
    first, second = (loaded(here + EVALUATED.format(executor="cpu")) for _ in range(2))
    assert "llvmlite.binding" in first
    assert ("llvmlite.binding" in second) != SUPPORTED


def test_a_product_that_is_on_disk_needs_no_emission(loaded: Loaded, tmp_path: Path) -> None:
    here = f"import os\nos.environ['PALLADIO_CACHE'] = {str(tmp_path)!r}\n"
    first, second = (loaded(here + PRODUCT) for _ in range(2))
    assert {"palladio.cpu.lower", "palladio.lower"} <= first
    assert "palladio.cpu.engine" in second
    emission = "palladio.cpu.lower", "palladio.cpu.emit", "palladio.cpu.rules", "palladio.cpu.executor"
    assert among(second, ("palladio.lower", *emission)) == []


@pytest.mark.parametrize(
    ("use", "module"),
    [
        ("import palladio; palladio.check", "palladio.machine.check.checker"),
        ("from palladio import Report", "palladio.machine.check.checker"),
        ("from palladio import *; check", "palladio.machine.check.checker"),
        ("import palladio.tpu as pltpu; pltpu.emit_pipeline", "palladio.pipeline.tpu"),
        ("from palladio.tpu import InterpretParams", "palladio.call.tpu.interpret"),
        ("import palladio.library; palladio.library.hopper.gmm", "palladio.library.hopper.grouped_matmul"),
        ("from palladio.library import hopper", "palladio.library.hopper.grouped_matmul"),
    ],
)
def test_what_is_left_out_comes_when_it_is_used(loaded: Loaded, use: str, module: str) -> None:
    assert module in loaded(use)


@pytest.mark.parametrize("module", ["palladio", "palladio.library", "palladio.tpu"])
def test_what_is_left_out_is_listed(loaded: Loaded, module: str) -> None:
    loaded(f"import {module} as module\nassert set(module.__all__) <= set(dir(module))")


@pytest.mark.parametrize("module", ["palladio", "palladio.library"])
def test_a_name_that_is_not_there_is_an_attribute_error(loaded: Loaded, module: str) -> None:
    loaded(
        f"import {module} as module\n"
        "try:\n    module.chekc\n"
        f"except AttributeError as error:\n    assert str(error) == \"module {module!r} has no attribute 'chekc'\"\n"
        "else:\n    raise SystemExit(1)"
    )
