"""LLVM's version, and its names for the host's processor, on disk too: few processes need to import LLVM for them.

Importing LLVM takes longer than everything else about a small kernel whose machine code is on disk. An entry holds for
what the CPUID instruction tells of the processor, and for one file of llvmlite.
"""

from __future__ import annotations

import functools
import hashlib
import os

import llvmlite
from llvmlite.utils import get_library_name

from palladio.base import object_store
from palladio.base.dataclass import dataclass
from palladio.base.signals import uninterrupted
from palladio.cpu.runtime import cpuid
from palladio.cpu.runtime.executable import SUPPORTED


@dataclass(frozen=True)
class Detected:
    """What LLVM detects.

    Fields:
        triple, cpu, features: of the host, as LLVM writes them.
        version: LLVM's own, e.g. `20.1.8`.
    """

    triple: str
    cpu: str
    features: str
    version: str

    @property
    def has(self) -> frozenset[str]:
        """The features that the host has."""
        return frozenset(each[1:] for each in self.features.split(",") if each.startswith("+"))


@functools.cache
def detected() -> Detected:
    """What LLVM detects, read from the store or asked of LLVM."""
    return uninterrupted(_found)


def _found() -> Detected:
    store = object_store.current()
    key = _key() if store is not None and SUPPORTED else None
    if store is None or key is None:
        return _detect()
    kept = store.get(key)
    if kept is not None:
        return Detected(*kept.decode().split("\n"))
    found = _detect()
    store.put(key, "\n".join((found.triple, found.cpu, found.features, found.version)).encode())
    return found


def _detect() -> Detected:
    import llvmlite.binding as llvm

    version = ".".join(map(str, llvm.llvm_version_info))
    return Detected(
        llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), version
    )


def _key() -> str | None:
    """The key of the entry; None if the processor or the file cannot be examined."""
    try:
        library = os.path.join(os.path.dirname(llvmlite.__file__), "binding", get_library_name())
        file = os.stat(library)
        known = library, file.st_size, file.st_mtime_ns, llvmlite.__version__, cpuid.described()
    except OSError:
        return None
    return hashlib.sha256(repr(known).encode()).hexdigest()
