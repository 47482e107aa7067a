"""Programs on disk under keys that are known before tracing, for processes that call the same function again.

A key covers everything that tracing, the passes and the emission read: the parts that the caller names, the types of
the operands, the processor that kernels are compiled for, LLVM, and the sources. An entry holds the calls of a chain;
their machine code is on disk under its own keys. The folder's contents are trusted as machine code is
(`palladio.base.object_store`).
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Sequence
from typing import Any

import llvmlite

from palladio.base import object_store, stored_keys
from palladio.cpu.chain import Chain
from palladio.cpu.runtime import host
from palladio.cpu.runtime.detected import detected
from palladio.cpu.runtime.machine_code import NotOnDiskError
from palladio.types.types import ArrayType

_LEFT_OUT = frozenset(("__pycache__", "hopper", "machine", "interop", "compat", "demo", "cli"))
"""Folders whose modules do not affect the code of a kernel."""


class Stored:
    """A program that may be on disk, under a key of its parts."""

    def __init__(self, parts: Hashable, types: Sequence[ArrayType]) -> None:
        made_for = host.current(), detected().version, llvmlite.__version__
        self._key = stored_keys.key((parts, made_for), types, _LEFT_OUT)

    def find(self) -> Chain | None:
        """The program, if it is there."""
        store = object_store.current()
        data = None if store is None or self._key is None else store.get(self._key)
        if data is None:
            return None
        try:
            found: Chain = pickle.loads(data)
        except NotOnDiskError:
            return None
        return found

    def keep(self, program: Any) -> None:
        """Store a program that is a chain of kernels without callbacks to Python."""
        store = object_store.current()
        if store is None or self._key is None or not isinstance(program, Chain):
            return
        calls_python = any(step.call.compiled.callbacks for step in program.steps)
        if not calls_python and stored_keys.are_current(_LEFT_OUT):
            store.put(self._key, pickle.dumps(program, pickle.HIGHEST_PROTOCOL))
