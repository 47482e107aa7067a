"""`palladio doctor`: what works on this machine, and what to install for the rest."""

from __future__ import annotations

import ctypes
import platform
import shutil
from argparse import Namespace
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from palladio.base import object_store
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioError
from palladio.base.version import VERSION
from palladio.call.pallas_call import pallas_call
from palladio.driver.executors import CPU, DEFAULT, EXECUTORS, HOPPER_TWIN, Executor
from palladio.driver.processor import processor
from palladio.hopper import compile as nvrtc
from palladio.hopper.twin.build import COMPILER
from palladio.types.types import ShapeDtypeStruct

EXTRAS: dict[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "transformers": ("torch", "transformers"),
    "distributed": ("torch", "distributed"),
    "jax": ("jax",),
    "hopper": ("cuda-bindings", "nvidia-cuda-nvrtc"),
    "plot": ("matplotlib",),
    "demo": ("matplotlib", "scikit-learn"),
}
"""The distributions that each extra brings, and that a user may do without."""


@dataclass(frozen=True)
class Row:
    """A line of the report.

    Fields:
        name: what the line is about.
        text: its state.
        works: None for a fact, which is neither good nor bad.
        advice: what to do, or why nothing has to be done.
    """

    name: str
    text: str
    works: bool | None = True
    advice: str = ""


def add(subparsers: Any) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "doctor",
        help="say what works on this machine, and what to install for the rest",
        description="Runs a small kernel on each executor, and looks for the processor, GPUs, caches and extras. The "
        "exit status is 1 if kernels do not run on the default executor.",
    )
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Print the report."""
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"palladio {VERSION}, Python {platform.python_version()}, {_system()}")
    executors = list(_executors())
    for title, rows in (
        ("Executors", executors),
        ("Processor", list(_processor())),
        ("GPU", list(_gpu())),
        ("Cache", list(_cache())),
        ("Extras", list(_extras())),
    ):
        _print(console, title, rows)
    return 0 if next(row for row in executors if row.name == DEFAULT.name).works else 1


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"


def _print(console: Console, title: str, rows: list[Row]) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    width = max(len(row.name) for row in rows)
    for row in rows:
        style = {True: "green", False: "yellow", None: ""}[row.works]
        console.print(Text(f"  {row.name:{width}}  "), Text(row.text, style=style), sep="", end="")
        console.print(Text(f"; {row.advice}" if row.advice else ""))


def _executors() -> Iterator[Row]:
    for executor in EXECUTORS.values():
        works, text = _tried(executor)
        default = ", the default" if executor is DEFAULT else ""
        yield Row(executor.name, f"{text}{default if works else ''}", works)


def _tried(executor: Executor) -> tuple[bool, str]:
    """True and a word if a kernel runs on an executor, else False and the reason."""
    if executor is HOPPER_TWIN:  # its first kernel takes seconds
        found = shutil.which(COMPILER) is not None
        return found, f"has {COMPILER}, its compiler" if found else f"needs {COMPILER}, which is not installed"

    def double(x: Any, out: Any) -> None:
        out[...] = x[...] + x[...]

    x = np.arange(4, dtype=np.float32)
    try:
        found = pallas_call(double, ShapeDtypeStruct(x.shape, x.dtype), interpret=executor.name)(x)
    except (PalladioError, ImportError, OSError) as error:
        return False, f"does not work: {str(error).splitlines()[0]}"
    return (True, "works") if np.array_equal(found, x + x) else (False, f"does not work: computed {found} of {x + x}")


def _processor() -> Iterator[Row]:
    try:
        found = processor()
        from palladio.cpu.runtime import host  # few processes need it before they compile
    except (PalladioError, ImportError, OSError) as error:
        yield Row(CPU.name, str(error).splitlines()[0], works=False)
        return
    yield Row("kind", f"{found.name}, vectors of {found.vector_bytes} bytes", None)
    yield Row("instructions", ", ".join(host.available()), None)
    yield Row("caches", ", ".join(map(_size, found.cache_bytes)), None)
    yield Row("threads", str(found.threads), None)


def _size(count: int) -> str:
    """Bytes in the largest unit that gives at least one."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"


def _gpu() -> Iterator[Row]:
    driver = _driver()
    if driver is None:
        advice = "kernels for GPUs are compiled and tested without one"
        yield Row("driver", "none that starts", works=False, advice=advice)
    else:
        yield from _cards(driver)
    try:
        yield Row("NVRTC", ".".join(map(str, nvrtc.version())))
    except (PalladioError, OSError):
        yield Row("NVRTC", "not installed", works=False, advice=_advice("hopper"))


def _driver() -> ctypes.CDLL | None:
    """NVIDIA's driver, where it is installed and starts."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def _cards(driver: ctypes.CDLL) -> Iterator[Row]:
    """The version of the driver, and each card with its compute capability (CUDA driver API, cuDeviceGetAttribute)."""
    number = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(number))
    yield Row("driver", f"of CUDA {number.value // 1000}.{number.value % 1000 // 10}")
    driver.cuDeviceGetCount(ctypes.byref(number))
    for each in range(number.value):
        name, capability = ctypes.create_string_buffer(256), []
        driver.cuDeviceGetName(name, len(name), each)
        for attribute in (75, 76):  # COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR
            driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, each)
            capability.append(number.value)
        hopper = capability == [9, 0]
        kind = "Hopper" if hopper else "not a Hopper GPU"
        yield Row(f"card {each}", f"{name.value.decode()}, {kind}", works=hopper)


def _cache() -> Iterator[Row]:
    store = object_store.current()
    if store is None:
        yield Row("folder", "none: compiled kernels are not kept", works=False, advice="PALLADIO_CACHE names a folder")
        return
    risk = store.risk()
    if risk is not None:
        yield Row("folder", f"{store.folder}, not used: {risk}", works=False, advice="PALLADIO_CACHE names another one")
        return
    count, size = store.usage()
    kernels = "1 kernel" if count == 1 else f"{count:,} kernels"
    yield Row("folder", f"{store.folder}, {kernels}, {_size(size)} of {_size(store.limit)}")


def _extras() -> Iterator[Row]:
    for extra, names in EXTRAS.items():
        versions = {name: _version(name) for name in names}
        missing = [name for name, version in versions.items() if version is None]
        if missing:
            yield Row(extra, f"{', '.join(missing)} not installed", works=False, advice=_advice(extra))
        else:
            yield Row(extra, ", ".join(f"{name} {version}" for name, version in versions.items()))


def _version(name: str) -> str | None:
    """The version of a distribution, without importing it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _advice(extra: str) -> str:
    return f"pip install 'palladio[{extra}]'"
