"""From LLVM text to machine code, kept on disk so that processes share it.

Code is keyed by everything that determines it: the text, the target processor, and the version and options of LLVM.
Palladio's version is not in the key: a version that writes another text finds no entry, and one that writes the same
text can use the same code.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

from palladio.base import object_store
from palladio.base.holding import HOLDING
from palladio.base.signals import uninterrupted
from palladio.cpu.runtime import host
from palladio.cpu.runtime.host import Processor

_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    # LLVM has locks too: a forked process would find them held for ever by a thread that it does not have.
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

_LEVEL = 2
_TUNING = {"slp_vectorization": False, "loop_vectorization": False, "loop_unrolling": False}
"""The lowering vectorises and unrolls itself."""


_OPTION = "-dag-maps-huge-region=200"
"""Memory accesses in straight-line code beyond which LLVM's schedulers compare each with only a few others, not all:
kernels with hundreds of unrolled accesses took quadratic time. LLVM's default is 1000."""


@functools.cache
def _set_option() -> None:
    llvm.set_option("palladio", _OPTION)  # a second time would be an error


def _target_machine(processor: Processor) -> Any:
    _set_option()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(processor.triple)
    return target.create_target_machine(cpu=processor.cpu, features=processor.features, opt=_LEVEL, jit=True)


def _key(text: str, processor: Processor) -> str:
    target = processor.triple, processor.cpu, processor.features
    maker = llvmlite.__version__, llvm.llvm_version_info, _LEVEL, _TUNING, _OPTION
    return hashlib.sha256("\0".join((*target, repr(maker), text)).encode()).hexdigest()


_dead: deque[Any] = deque()
"""Execution engines that are no longer used. The next compilation frees them, where no interrupt can occur."""


class _Owner:
    """An object whose destructor is a C function."""

    __slots__ = ("__del__",)


class MachineCode:
    """The machine code of a module with one function `kernel`. It lives as long as this object."""

    def __init__(self, text: str, signature: Callable[[int], Any]) -> None:
        self.text = text
        self.processor = host.current()
        # llvmlite's lock around each of its functions would stay held after an interrupt at the wrong moment.
        uninterrupted(functools.partial(self._make_alone, signature))

    def _make_alone(self, signature: Callable[[int], Any]) -> None:
        with _lock:
            HOLDING.count += 1
            try:
                _dead.clear()
                self._make(signature)
            finally:
                HOLDING.count -= 1

    def _make(self, signature: Callable[[int], Any]) -> None:
        """Compile, or load code that another process has compiled. LLVM's intermediate objects are freed at the end."""
        code, self.compiled_here = object_store.compiled_once(_key(self.text, self.processor), self._code)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(self.processor))
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        self.call = signature(engine.get_function_address("kernel"))
        self._owner = _Owner()
        self._owner.__del__ = functools.partial(_dead.append, engine)

    def _code(self) -> bytes:
        machine = _target_machine(self.processor)
        return machine.emit_object(_optimised(self.text, machine))  # type: ignore[no-any-return]

    def assembly(self) -> str:
        """The machine code as text."""
        return uninterrupted(self._assembly_alone)

    def _assembly_alone(self) -> str:
        with _lock:
            return assembly(self.text, self.processor)


def assembly(text: str, processor: Processor) -> str:
    """The machine code of a module for a processor, as text."""
    machine = _target_machine(processor)
    return str(machine.emit_assembly(_optimised(text, machine)))


def _optimised(text: str, machine: Any) -> Any:
    """The module after LLVM's passes."""
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=_LEVEL)
    for name, wanted in _TUNING.items():
        setattr(options, name, wanted)
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    try:
        manager.run(module, builder)
    finally:
        # Closing it frees nothing: `ObjectRef._dispose`, which is empty, comes first among its bases. A pass manager
        # and the state of its passes take some 50 to 100 KiB.
        NewPassManager._dispose(manager)
        manager.detach()
    return module


KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)
"""`i32 kernel(ptr arrays, ptr sizes, ptr arena, i64 first, i64 last)`. Calling it lets other Python threads run."""
