"""Shared libraries for the twin: its runtime, compiled once, and kernels, compiled quickly without optimisation."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from palladio.base.errors import InternalError, PalladioNotImplementedError
from palladio.hopper.lowered import HEADER, Lowered
from palladio.hopper.wgmma import Wgmma

SOURCES = Path(__file__).parent
COMPILER = "g++"
_COMMON = ("-std=c++17", "-fPIC", "-shared", "-w")
_RUNTIME = (*_COMMON, "-O2", "-fno-strict-aliasing")
# No stack reuse between scopes: the runtime identifies accumulators by address.
_KERNEL = (*_COMMON, "-O0", "-fno-exceptions", "-fno-rtti", "-fstack-reuse=none", "-nostdlib", "-x", "c++")
_OWN_NAMES = "-Wl,-Bsymbolic"  # a kernel may have the name of a C library function
_KEPT_KERNELS = 2000


def runtime() -> ctypes.CDLL:
    """The runtime of the twin, loaded.

    Raises:
        PalladioNotImplementedError: there is no compiler for C++.
    """
    return _load(_folder() / f"runtime-{_digest_of_sources()}.so", _compile_runtime)


def kernel(lowered: Lowered) -> ctypes.CDLL:
    """A kernel, compiled against the runtime and loaded. Its entry point is `palladio_twin_entry`.

    Raises:
        PalladioNotImplementedError: there is no compiler for C++.
        InternalError: the text does not compile; the message is the compiler's.
    """
    runtime()
    text = "\n".join([lowered.name, lowered.text, header(lowered.products)])
    digest = hashlib.sha256((_digest_of_sources() + text).encode()).hexdigest()[:24]
    return _load(_folder() / f"kernel-{digest}.so", functools.partial(_compile_kernel, lowered))


def header(products: Iterable[Wgmma]) -> str:
    """The text of `palladio.cuh` for a kernel on the twin: the primitives, and the products that it uses."""
    functions = [_product(each) for each in sorted(set(products))]
    include = f'#include "{SOURCES / "device.hpp"}"'
    return "\n".join(["#pragma once", include, "namespace pal {", *functions, "}  // namespace pal", ""])


_NUMBERS = {"f32": "F32", "f16": "F16", "s32": "S32", "bf16": "BF16", "tf32": "TF32"} | {
    name: name.upper() for name in ("e4m3", "e5m2", "s8", "u8")
}


def _product(each: Wgmma) -> str:
    flags = ["right"] if each.registers else ["left", "right"]
    template = f"template <{', '.join(f'int {flag}' for flag in flags)}> " if each.transposes else ""
    left, right = ("left", "right") if each.transposes else ("0", "0")
    operand = ", ".join(f"twin::Left a{r}" for r in range(4)) if each.registers else "u64 a"
    kind = [f"twin::{_NUMBERS[name]}" for name in (each.result, each.left, each.right)]
    body = [f"static const twin::ProductKind kind = {{{each.columns}, {each.depth}, {', '.join(kind)}}};"]
    if each.registers:
        body.append("const twin::Left a[] = {a0, a1, a2, a3};")
    operands = f"0, a, b, accumulate, 0, {right}" if each.registers else f"a, 0, b, accumulate, {left}, {right}"
    body.append(f"twin::wgmma(kind, acc, {operands}, site, twin::here());")
    return (
        f"{template}TWIN_INLINE void {each.name}({each.element} (&acc)[{each.accumulators}], {operand}, u64 b, "
        f"int accumulate, TWIN_SITE) {{ {' '.join(body)} }}"
    )


def _compile_runtime(target: Path) -> None:
    _compile([*_RUNTIME, str(SOURCES / "runtime.cpp"), "-o", str(target)], "the runtime of the host twin")


def _compile_kernel(lowered: Lowered, target: Path) -> None:
    target.with_name(HEADER).write_text(header(lowered.products))
    text = f"{lowered.text}\nTWIN_ENTRY({lowered.name})\n"
    _compile(
        [*_KERNEL, _OWN_NAMES, "-I", str(target.parent), "-", "-o", str(target)], f"the text of {lowered.name}", text
    )


def _compile(arguments: list[str], what: str, text: str = "") -> None:
    command = ["env", "LC_ALL=C", _compiler(), *arguments]  # messages in English
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if result.returncode:
        raise InternalError(f"{COMPILER} does not compile {what}:\n{result.stderr.strip()}")


def _compiler() -> str:
    found = shutil.which(COMPILER)
    if found is None:
        raise PalladioNotImplementedError(
            f"the host twin compiles kernels with {COMPILER}, which is not installed",
            hint=f"install {COMPILER} to test kernels for Hopper without a GPU; running them on one does not need it",
        )
    return found


@functools.cache
def _folder() -> Path:
    """The folder of libraries for later runs. It must be private to the user, since its contents are loaded."""
    folder = Path(tempfile.gettempdir()) / f"palladio-twin-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or not folder.is_dir() or folder.is_symlink():
        return Path(tempfile.mkdtemp(prefix="palladio-twin-"))
    return folder


@functools.cache
def _digest_of_sources() -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(SOURCES.glob("*.[ch]pp")):
        digest.update(path.read_bytes())
    version = subprocess.run([_compiler(), "-dumpfullversion", "-dumpmachine"], capture_output=True, check=True)
    digest.update(version.stdout)
    return digest.hexdigest()[:24]


_loaded: dict[Path, ctypes.CDLL] = {}


def _load(path: Path, make: Callable[[Path], None]) -> ctypes.CDLL:
    if path not in _loaded:
        _make(path, make)
        mode = ctypes.RTLD_GLOBAL if path.name.startswith("runtime") else ctypes.RTLD_LOCAL
        _loaded[path] = ctypes.CDLL(str(path), mode=mode)
    return _loaded[path]


def _make(path: Path, make: Callable[[Path], None]) -> None:
    """Make a library and rename it into place: processes may make it concurrently, and the last one remains."""
    if path.exists():
        return
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        unfinished = Path(folder, path.name)
        make(unfinished)
        unfinished.replace(path)
    _remove_oldest(path.parent)


def _remove_oldest(folder: Path) -> None:
    def age(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except FileNotFoundError:  # removed by another process
            return 0.0

    for path in sorted(folder.glob("kernel-*.so"), key=age)[:-_KEPT_KERNELS]:
        path.unlink(missing_ok=True)
