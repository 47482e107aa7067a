"""From LLVM text to machine code, kept on disk so that no process compiles what another has compiled.

An entry is keyed by the text, the host's processor and the version of LLVM. It is written beside its place and moved
there, so that readers see whole entries only; one that was damaged all the same does not match its checksum, and is
compiled again. What cannot be written is not kept; nobody needs to know.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from palladio.base import knobs

_lock = threading.Lock()
_CHECKSUM = hashlib.sha256().digest_size


@functools.cache
def _features() -> str:
    return str(llvm.get_host_cpu_features().flatten())


def _target_machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=_features(), opt=2, jit=True)


class ObjectStore:
    """Object files in a folder, by key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """Where the entry of a key is."""
        return self.folder / f"{key}.o"

    def get(self, key: str) -> bytes | None:
        """The entry of a key, or None where there is none that is whole."""
        try:
            data = self.path(key).read_bytes()
        except OSError:
            return None
        code = data[_CHECKSUM:]
        return code if code and hashlib.sha256(code).digest() == data[:_CHECKSUM] else None

    def put(self, key: str, code: bytes) -> None:
        """Keep an entry."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder) as beside:
                whole = Path(beside) / "entry"
                whole.write_bytes(hashlib.sha256(code).digest() + code)
                os.replace(whole, self.path(key))
        except OSError:
            return


def _store() -> ObjectStore | None:
    folder = knobs.cache_folder()
    return None if folder is None else ObjectStore(folder)


def _key(text: str) -> str:
    host = (llvm.get_host_cpu_name(), _features(), llvmlite.__version__, str(llvm.llvm_version_info))
    return hashlib.sha256("\0".join((*host, text)).encode()).hexdigest()


class MachineCode:
    """The machine code of a module with one function `kernel`. It lives as long as this object."""

    def __init__(self, text: str, signature: Callable[[int], Any]) -> None:
        self.text = text
        store, key = _store(), _key(text)
        with _lock:
            code = None if store is None else store.get(key)
            self.compiled_here = code is None
            if code is None:
                machine = _target_machine()
                code = machine.emit_object(_optimised(text, machine))
                if store is not None:
                    store.put(key, code)
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()
            self.call = signature(self._engine.get_function_address("kernel"))

    def assembly(self) -> str:
        """The machine code as text."""
        with _lock:
            machine = _target_machine()
            return str(machine.emit_assembly(_optimised(self.text, machine)))


def _optimised(text: str, machine: Any) -> Any:
    """The module, through LLVM's passes. Vectors and unrolling are the lowering's own work."""
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.slp_vectorization = False
    options.loop_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)
"""`i32 kernel(ptr arrays, ptr sizes, ptr arena, i64 first, i64 last)`. Calling it lets other Python threads run."""
