"""Kernels on disk under keys that are known before tracing: text, tensor maps and cubin in one entry.

A key covers the parts that the caller names, the types of the operands, the sources of this package and the compiler.
If a source changed after this process imported the package, there is no key. The folder's contents are trusted as
machine code is (`palladio.base.object_store`).
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Hashable, Sequence
from functools import cache

from palladio.base import object_store, stored_keys
from palladio.hopper import compile as nvrtc
from palladio.hopper.compile import Cubin
from palladio.hopper.launch.calls import KernelCall
from palladio.hopper.lowered import Lowered
from palladio.types.types import ArrayType

_COMPILERS = "nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
"""NVRTC in its wheels, relative to a folder of packages; loading it takes longer than reading a kernel."""

_ELSEWHERE = frozenset(("__pycache__", "cpu", "machine", "interop", "compat", "demo", "cli"))
"""Folders whose modules do not affect a kernel's text."""


def key(parts: Hashable, types: Sequence[ArrayType]) -> str | None:
    """The key of a kernel with these parts and types of operands; None if it cannot be stored.

    Args:
        parts: everything that the kernel depends on: plain values, dtypes, classes, tuples and dataclasses of them.
    """
    return stored_keys.key((parts, _compilers()), types, _ELSEWHERE)


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


@cache
def _compilers() -> Hashable:
    """The times and sizes of the compilers in wheels, or the version of one elsewhere."""
    found = [(name, *stored_keys.facts(os.path.join(folder, name))) for folder in sys.path for name in _COMPILERS]
    wheels = tuple(each for each in found if len(each) > 1)
    return wheels or _installed()


def _installed() -> tuple[int, int] | None:
    """The version of a compiler outside a wheel; None without one."""
    try:
        return nvrtc.version()
    except nvrtc.MissingCompilerError:
        return None
