"""From LLVM text to machine code, kept on disk so that no process compiles what another has compiled.

An entry is keyed by the text, the processor that it is for and the version of LLVM. It is written beside its place and
moved there, so that readers see whole entries only; one that was damaged all the same does not match its checksum, and
is compiled again. What cannot be written is not kept; nobody needs to know.
"""

from __future__ import annotations

import ctypes
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
from palladio.cpu import host
from palladio.cpu.host import Processor

_lock = threading.Lock()
_CHECKSUM = hashlib.sha256().digest_size


def _target_machine(processor: Processor) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(processor.triple)
    return target.create_target_machine(cpu=processor.cpu, features=processor.features, opt=2, jit=True)


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


def _key(text: str, processor: Processor) -> str:
    maker = (processor.triple, processor.cpu, processor.features, llvmlite.__version__, str(llvm.llvm_version_info))
    return hashlib.sha256("\0".join((*maker, text)).encode()).hexdigest()


class MachineCode:
    """The machine code of a module with one function `kernel`. It lives as long as this object."""

    def __init__(self, text: str, signature: Callable[[int], Any]) -> None:
        self.text = text
        self.processor = host.current()
        store, key = _store(), _key(text, self.processor)
        with _lock:
            code = None if store is None else store.get(key)
            self.compiled_here = code is None
            if code is None:
                machine = _target_machine(self.processor)
                code = machine.emit_object(_optimised(text, machine))
                if store is not None:
                    store.put(key, code)
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(self.processor))
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()
            self.call = signature(self._engine.get_function_address("kernel"))

    def assembly(self) -> str:
        """The machine code as text."""
        with _lock:
            return assembly(self.text, self.processor)


def assembly(text: str, processor: Processor) -> str:
    """The machine code of a module for a processor, as text."""
    machine = _target_machine(processor)
    return str(machine.emit_assembly(_optimised(text, machine)))


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
