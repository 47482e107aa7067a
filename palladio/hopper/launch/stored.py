"""Kernels on disk under keys that are known before tracing: text, tensor maps and cubin in one entry.

A key covers the parts that the caller names, the types of the operands, the sources of this package and the compiler.
If a source changed after this process imported the package, there is no key. The folder's contents are trusted as
machine code is (`palladio.base.object_store`).
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path

import numpy as np

from palladio.base import object_store
from palladio.base.version import IMPORTED_NS, VERSION
from palladio.hopper import compile as nvrtc
from palladio.hopper.compile import Cubin
from palladio.hopper.launch.calls import KernelCall
from palladio.hopper.lowered import Lowered
from palladio.types.types import ArrayType

_COMPILERS = "nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
"""NVRTC in its wheels, relative to a folder of packages; loading it takes longer than reading a kernel."""

_ELSEWHERE = frozenset(("__pycache__", "cpu", "machine", "interop", "compat", "demo", "cli"))
"""Folders whose modules do not affect a kernel's text."""

_PLAIN = (type(None), bool, int, float, str, bytes)


class _Undescribed(Exception):
    """A value without a text that is the same in every process."""


def key(parts: Hashable, types: Sequence[ArrayType]) -> str | None:
    """The key of a kernel with these parts and types of operands; None if it cannot be stored.

    Args:
        parts: everything that the kernel depends on: plain values, dtypes, classes, tuples and dataclasses of them.
    """
    made_by = None if object_store.current() is None else _made_by()
    if made_by is None:
        return None
    try:
        described = _described((parts, tuple((type.shape, type.dtype) for type in types)))
    except _Undescribed:
        return None
    return hashlib.sha256("\0".join((made_by, described)).encode()).hexdigest()


def find(key: str) -> KernelCall | None:
    """The kernel stored under a key, or None."""
    store = object_store.current()
    data = None if store is None else store.get(key)
    if data is None:
        return None
    lowered, log, code = pickle.loads(data)
    return KernelCall(lowered, Cubin(code, log))


def keep(key: str, lowered: Lowered, cubin: Cubin) -> None:
    """Store a kernel under a key."""
    store = object_store.current()
    if store is not None:
        store.put(key, pickle.dumps((lowered, cubin.log, cubin.code), pickle.HIGHEST_PROTOCOL))


def _described(value: object) -> str:
    """A text of a value that is the same in every process."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, np.dtype):
        return f"dtype {value.name}"
    if isinstance(value, type):
        return f"class {value.__module__}.{value.__qualname__}"
    if isinstance(value, Enum):
        return f"{_described(type(value))} {value.name}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_described, value))})"
    if is_dataclass(value):
        inner = ", ".join(f"{each.name}={_described(getattr(value, each.name))}" for each in fields(value))
        return f"{_described(type(value))}({inner})"
    raise _Undescribed


@cache
def _made_by() -> str | None:
    """A text of the version, the sources' and the compiler's times and sizes, and the interpreter's version.

    None if a source has changed since this process imported the package.
    """
    found = sorted((path, *_facts(path)) for path in _sources(Path(__file__).parents[2]))
    if max(times[0] for _, *times in found if times) >= IMPORTED_NS:
        return None
    compilers = [(name, *_facts(os.path.join(folder, name))) for folder in sys.path for name in _COMPILERS]
    wheels = [each for each in compilers if len(each) > 1]
    return repr((VERSION, found, wheels or _installed(), sys.version))


def _installed() -> tuple[int, int] | None:
    """The version of a compiler outside a wheel; None without one."""
    try:
        return nvrtc.version()
    except nvrtc.MissingCompilerError:
        return None


def _sources(folder: Path) -> Iterator[str]:
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".cuh")):
                    yield entry.path
                elif entry.name not in _ELSEWHERE and entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _facts(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size
