"""Functions of LLVM that take long, without the lock of llvmlite: two threads can compile at once.

llvmlite lets one thread at a time call LLVM, because all modules are in one context unless another one is given. LLVM
itself asks that each thread uses a context of its own (LLVM Programmer's Manual, "Threads and LLVM"). So modules are
parsed into contexts of their own here, and one thread uses each, with its own target machine.
"""

from __future__ import annotations

import contextvars
import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from palladio.base.holding import HOLDING
from palladio.base.signals import start_thread

T = TypeVar("T")


class Helping(threading.local):
    """True in a thread that compiles for one that holds the lock of compilations, and waits."""

    now = False


HELPING = Helping()


def at_once(first: Callable[[], T], *others: Callable[[], T]) -> list[T]:
    """The results of functions; all but the first one run in other threads if there can be some.

    A destructor may run in such a thread, and call kernels: so the thread waits neither for what others prepare
    (`palladio.base.holding`), nor for the lock of compilations, which the thread that waits for it holds.
    """
    if not others:
        return [first()]
    *before, last = others
    outcome: list[tuple[Any, BaseException | None]] = []
    ended = threading.Lock()
    ended.acquire()

    def run() -> None:
        HOLDING.count += 1
        HELPING.now = True
        try:
            outcome.append((last(), None))
        except BaseException as error:
            outcome.append((None, error))
        finally:
            ended.release()

    try:
        start_thread(contextvars.copy_context().run, run)
    except (RuntimeError, MemoryError):  # the system gives no more threads
        return [each() for each in (first, *others)]
    try:
        found = at_once(first, *before)
    finally:
        ended.acquire()
    (theirs, error) = outcome[0]
    if error is not None:
        raise error
    return [*found, theirs]


@functools.cache
def _function(name: str) -> Any:
    """A function of llvmlite's library, with the types that llvmlite declares."""
    from llvmlite.binding import ffi

    locked, found = getattr(ffi.lib, name), getattr(_library(), name)
    found.argtypes, found.restype = locked.argtypes, locked.restype
    return found


@functools.cache
def _library() -> ctypes.CDLL:
    from llvmlite.binding import ffi

    return ctypes.CDLL(ffi.lib._name)


def parsed(text: str) -> Any:
    """A module in a context of its own.

    Raises:
        RuntimeError: if LLVM does not know the text.
    """
    import llvmlite.binding as llvm
    from llvmlite.binding import ffi

    context = llvm.create_context()
    with ffi.OutputString() as message:
        module = llvm.ModuleRef(_function("LLVMPY_ParseAssembly")(context, text.encode(), message), context)
        if message:
            module.close()
            raise RuntimeError(f"LLVM IR parsing error\n{message}")
    return module


def copied(module: Any) -> Any:
    """A copy of a module in a context of its own."""
    import llvmlite.binding as llvm

    return llvm.parse_bitcode(module.as_bitcode(), llvm.create_context())


def run(manager: Any, part: Any, builder: Any) -> None:
    """Run the passes of a manager on a module or a function."""
    from llvmlite.binding.newpassmanagers import ModulePassManager

    kind = "Module" if isinstance(manager, ModulePassManager) else "Function"
    _function(f"LLVMPY_RunNew{kind}PassManager")(manager, part, builder)


def object_code(machine: Any, module: Any) -> bytes:
    """The object file of a module.

    Raises:
        RuntimeError: if LLVM cannot compile it.
    """
    from llvmlite.binding import ffi

    with ffi.OutputString() as message:
        buffer = _function("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, message)
        if not buffer:
            raise RuntimeError(str(message))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
