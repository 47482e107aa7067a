"""Consecutive calls of kernels as one native call, which spreads their tasks over the OpenMP threads of PyTorch.

After an operation, PyTorch's threads poll for the next one, for some milliseconds, so that they begin with it within
microseconds. Threads of our own take 0.1 ms to wake on the cores where those poll, and then share these with them. So a
process that has loaded PyTorch uses its threads. In another one, a call with enough work for several threads comes
back, for `palladio.cpu.runtime.workers`.

After a rest these threads sleep, and the system may wake one on the core of its waker, above all in a virtual machine:
there it shares the core with the caller, or waits until the caller's turn ends, for milliseconds. So the caller lets it
begin, and it goes to another core.

Python takes part only where a kernel calls back, and ten times a second to handle interrupts. It would take longer than
many kernels, above all where large operands have evicted its code from the caches.

Sources: the entry points of GNU libgomp, `libgomp_g.h`, which LLVM's and Intel's runtimes have too.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.cpu.runtime import entry, workers
from palladio.cpu.runtime.callbacks import POLL, Callback, Responder, Stopped
from palladio.cpu.runtime.elf import Unknown, external
from palladio.cpu.runtime.machine_code import LIGHT, SOON, MachineCode
from palladio.cpu.runtime.memory import ALIGNMENT, POOL, address_of
from palladio.cpu.runtime.status import Deadlocked, Status

TURNS = 16
"""The number of times that a thread takes tasks in a call: all end together, and interrupts are noticed soon."""

BRIEF_S, BRIEF_SPREAD_S = 300e-6, 450e-6
"""Seconds of work for which waking another thread does not pay: of one thread, and of several together.

Another one of OpenMP begins some 100 µs later, and is slower on data in the caches of the caller's core. Several
threads need more time together than one, so the second limit is higher: a kernel at the limit does not alternate
between calls.
"""

SMALL_ARENA = 1 << 14
"""Bytes that a kernel may keep while it is not called."""

POLL_S = 0.1
"""The time between two polls for interrupts by the caller."""

SPINS, NAP_US = 4096, 50
"""The turns in which the caller polls for the end of the other threads, and its sleep in each later turn."""

RESTED_S, PATIENCE_S, GATHER_S = 1e-3, 30e-6, 100e-6
"""The time after which the other threads may no longer poll for work, and for which the caller then waits for them to
begin: as most do in the second one, it lets others run on its core only from then until the third one.

On a busy system these others may be another program, for milliseconds.
"""

CORE_WORDS = 16
"""The words of a set of cores, as in the C library's `cpu_set_t`; machines with more cores are left to the system."""

SPREAD, EMPTY_GRID = 10, 11
"""The status of a call with enough work for several threads, where there are none; and of a grid without steps."""

FLOATING_POINT_WORDS = 8
"""As many as the C library's `fenv_t` takes on any processor, or more."""

LEFT_BEHIND = b"palladio: this process was forked in the middle of a call, and lacks its OpenMP threads; it ends here\n"

_OF_OPENMP = {"parallel": "GOMP_parallel", "number": "omp_get_thread_num", "most": "omp_get_max_threads"}
_OF_THE_C_LIBRARY = {
    "clock": "clock_gettime",
    "sleep": "usleep",
    "get_environment": "fegetenv",
    "set_environment": "fesetenv",
}
_OF_CORES = {
    "yield": "sched_yield",
    "core_of": "sched_getcpu",
    "get_cores": "sched_getaffinity",
    "set_cores": "sched_setaffinity",
}
_WORDS = (
    *("kernel", "arrays", "sizes"),
    *("arenas", "stride"),  # the memory of all threads, and the distance from one to the next
    *("cleared", "caller"),  # of an arena, the words that are 0 at first, and the place of the callback's address or -1
    *("known", "dynamic", "axes"),  # the tasks of the axes of known size; the other axes, and their number
    *("first", "weight", "brief", "most_threads"),
    "alone_ns",  # of work by the caller alone for which waking another thread does not pay
    *("tasks", "chunk", "threads", "next", "entered", "ended", "busy", "core"),  # the native code's own
    *("failure", "responders", "poll", "forked", "last", *_OF_OPENMP, *_OF_THE_C_LIBRARY, *_OF_CORES, "environment"),
)
Array = np.ndarray[Any, Any]

_PLACES = {name: place for place, name in enumerate(_WORDS)}
_SIZE = len(_WORDS) - 1 + FLOATING_POINT_WORDS

_VALUES = {
    "POLL_NS": int(POLL_S * 1e9),
    "RESTED_NS": int(RESTED_S * 1e9),
    "PATIENCE_NS": int(PATIENCE_S * 1e9),
    "GATHER_NS": int(GATHER_S * 1e9),
    "CORE_WORDS": CORE_WORDS,
    "CORE_BYTES": 8 * CORE_WORDS,
    "BRIEF_SPREAD_NS": int(BRIEF_SPREAD_S * 1e9),
    "CLOCK": getattr(time, "CLOCK_MONOTONIC", 0),
    "SPINS": SPINS,
    "NAP_US": NAP_US,
    "SPREAD": SPREAD,
    "EMPTY_GRID": EMPTY_GRID,
    "TURNS": TURNS,
    "WORDS": _SIZE,
    "ENVIRONMENT": FLOATING_POINT_WORDS,
    "CALLBACK_FAILED": Status.CALLBACK_FAILED,
    "PAUSE": "call void @llvm.x86.sse2.pause()" if platform.machine() == "x86_64" else "",
}

_DECLARED = f"""declare void @llvm.x86.sse2.pause()
declare <{CORE_WORDS} x i64> @llvm.ctpop(<{CORE_WORDS} x i64>)
declare i64 @llvm.vector.reduce.add(<{CORE_WORDS} x i64>)"""


def text() -> str:
    """The module that runs calls: its `kernel` takes the words of some, and the numbers of the first and of the end.
    `enter` is that of `palladio.cpu.runtime.entry`.
    """
    body = Path(__file__).with_name("native.ll").read_text(encoding="utf-8")
    filled = re.sub(r"\b[A-Z_]{5,}\b", lambda found: str(_VALUES[found[0]]), body)
    functions = [_DECLARED]
    for function in filled[filled.index("define") :].strip().split("\n\n"):
        head, body = function.split("{\n", 1)
        lines = [head + "{", "entry:"]
        for name, place in _PLACES.items():
            if f"%{name}.place" in body:
                lines.append(f"  %{name}.place = getelementptr i64, ptr %job, i64 {place}")
        if "%failure" in body:  # the status of the first thread that fails, which all calls share
            place = _PLACES["failure"]
            lines.append(f"  %failure.place = getelementptr i64, ptr %job, i64 {place}")
            lines.append("  %failure = load ptr, ptr %failure.place")
        functions.append("\n".join([*lines, body]))
    return re.sub(r"(?m)^(define .*) \{$", rf"\1 {LIGHT} {{", "\n\n".join([*functions, entry.text()]))


def _is_forked() -> bool:
    """True if this process was forked and has executed no other program since; False where the system does not tell."""
    with contextlib.suppress(OSError, IndexError):
        flags = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[6]
        return bool(int(flags) & _PF_FORKNOEXEC)
    return False


_PF_FORKNOEXEC = 0x40  # Linux, include/linux/sched.h
_forked = ctypes.c_int64(_is_forked())
"""1 in a forked process, where OpenMP would wait without end for threads that have stayed in the parent. The process
may have been forked before this module was imported."""

_last = ctypes.c_int64()
"""The time at which a call last used several threads, on any thread of Python's."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=functools.partial(setattr, _forked, "value", 1))


class _Failure(ctypes.Structure):
    """The first failure of a thread of the call; true if there is one.

    A process that was forked while OpenMP's threads worked for the call ends here.
    """

    _fields_ = (("status", ctypes.c_int64), ("is_spread", ctypes.c_int64))

    def __bool__(self) -> bool:
        if self.is_spread and _forked.value:
            os.write(2, LEFT_BEHIND)
            os._exit(1)
        return self.status != 0


@dataclass(frozen=True)
class Call:
    """A call of a kernel.

    Fields:
        kernel: the address of the function.
        arena, cleared, caller, callbacks: as in `palladio.cpu.lowered.LoweredGrid`; `cleared` is its `words`.
        brief: the amount of work up to which waking another thread does not pay, `ctypes.c_int64`. It is adapted.
        table, sizes: of the arrays' addresses, and of the axes of the grid and the rows.
        tasks: their number, without the axes in `dynamic`.
        dynamic: each axis whose size is in memory, and whether it is an axis of tasks.
        first: the number of the first task.
    """

    kernel: int
    arena: int
    cleared: int
    caller: int | None
    callbacks: Sequence[Callback]
    brief: Any
    table: Any
    sizes: Any
    tasks: int
    dynamic: Sequence[tuple[int, bool]] = ()
    first: int = 0


class Calls:
    """The state of consecutive calls, for one thread at a time."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.code = _code()  # kept alive: threads that race to compile it get one each, and the cache holds only one
        self.native = self.code.call
        self.words = (ctypes.c_int64 * (_SIZE * len(calls)))()
        self.address = ctypes.addressof(self.words)
        self.stopped = ctypes.c_int64()
        self.place_of_at = ctypes.addressof(self.stopped)
        self.failure = _Failure()
        self.responders: list[Responder] = []
        self.memory: Array | None = None
        self.calls = list(calls)
        self.dynamic = [(ctypes.c_int64 * (3 * len(call.dynamic)))() for call in calls]
        self.given: tuple[int, ...] = ()
        self.is_connected = False
        self.set(poll=POLL, **{word: _address(name) for word, name in _OF_THE_C_LIBRARY.items()})
        of_cores = {word: _address(name) for word, name in _OF_CORES.items()}
        if all(of_cores.values()):
            self.set(**of_cores)
        self.set(failure=ctypes.addressof(self.failure), forked=ctypes.addressof(_forked), last=ctypes.addressof(_last))
        for number, call in enumerate(calls):
            self.place(number, call)

    def set(self, **values: int) -> None:
        """Set words of all calls."""
        for name, value in values.items():
            for number in range(len(self.calls)):
                self.words[number * _SIZE + _PLACES[name]] = value

    def place(self, number: int, call: Call) -> None:
        """Replace a call by another one with as many dynamic axes."""
        self.calls[number] = call
        for each, (axis, counts) in enumerate(call.dynamic):
            self.dynamic[number][3 * each + 1 : 3 * each + 3] = [axis, counts]
        caller = -1 if call.caller is None else call.caller
        own = {
            "kernel": call.kernel,
            "arrays": ctypes.addressof(call.table),
            "sizes": ctypes.addressof(call.sizes),
            "stride": _stride(call.arena),
            "cleared": call.cleared,
            "caller": caller,
            "known": call.tasks,
            "dynamic": ctypes.addressof(self.dynamic[number]),
            "axes": len(call.dynamic),
            "first": call.first,
            "brief": ctypes.addressof(call.brief),
        }
        for name, value in own.items():
            self.words[number * _SIZE + _PLACES[name]] = value
        self.stride = max(_stride(each.arena) for each in self.calls)

    def locate(self, number: int, axis: int, address: int) -> None:
        """Set the address of the size of a dynamic axis, `i32[]`."""
        self.dynamic[number][3 * axis] = address

    def place_of_size(self, number: int, axis: int) -> int:
        """The place of the address that `locate` sets."""
        return ctypes.addressof(self.dynamic[number]) + 3 * axis * ctypes.sizeof(ctypes.c_int64)

    def tasks(self, number: int) -> int:
        """The tasks of a call that has stopped; the size of its first empty axis, for an empty grid."""
        return self.words[number * _SIZE + _PLACES["tasks"]]

    def seconds(self, number: int) -> float:
        """The seconds that the threads worked for a call, together."""
        return self.words[number * _SIZE + _PLACES["busy"]] * 1e-9

    @property
    def at(self) -> int:
        """The number of the call that the last run has stopped at."""
        return self.stopped.value

    def entry(self, first: int, last: int, slots: Sequence[tuple[int, int]]) -> entry.Entry:
        """The function of arrays that writes their addresses to some places, and runs calls; for as long as this object
        lives.

        Args:
            first, last, slots: as in `palladio.cpu.runtime.entry.made`.
        """
        return entry.made(self.code, self.address, self.place_of_at, first, last, slots)

    def run(
        self,
        first: int,
        last: int,
        threads: int,
        weight: int = 1,
        enter: entry.Entry | None = None,
        arrays: Sequence[Any] = (),
    ) -> int:
        """Run some calls; one with callbacks runs alone. Returns DONE, or the status of the call that it stopped at:
        EMPTY_GRID; SPREAD, for enough work for several threads.

        Args:
            first, last: the number of the first call, and the end.
            threads: as many as a call may use.
            weight: a factor that the work of a task is proportional to, if it differs between runs.
            enter: runs these calls, given arrays, as `entry` makes it.

        Raises:
            Deadlocked: a kernel ended early without an exception.
            BaseException: of a callback; of a signal handler, in the main thread.
        """
        size = self.stride * threads
        memory = self.memory
        if memory is None or memory.nbytes < size:
            memory = POOL.take(size)
        try:
            given = address_of(memory), threads, weight, has_openmp()
            if given != self.given:
                self.give(*given)
            self.responders[0].callbacks = self.calls[first].callbacks
            status: int = (
                self.native(self.address, None, self.place_of_at, first, last) if enter is None else enter(*arrays)
            )
            if status == SPREAD and self.connects(threads):
                status = self.native(self.address, None, self.place_of_at, self.at, last)
        finally:
            if size <= SMALL_ARENA:
                self.memory = memory
            else:
                POOL.give(memory)
        if status in (Status.DONE, SPREAD, EMPTY_GRID):
            return status
        raise self.error()

    def give(self, memory: int, threads: int, weight: int, openmp: bool) -> None:
        """Set the words that may differ between runs.

        Args:
            openmp: whether the threads may be those of OpenMP; else they are Python's.
        """
        self.given = ()
        alone, _ = brief_seconds(openmp)
        self.set(arenas=memory, most_threads=threads, weight=weight, alone_ns=int(alone * 1e9))
        self.respond(threads if self.is_connected else 1)
        self.given = memory, threads, weight, openmp

    def respond(self, threads: int) -> None:
        """Have responders for some threads."""
        if threads > len(self.responders):
            self.responders += [Responder.take((), self.failure) for _ in range(len(self.responders), threads)]
            self.table = (ctypes.c_void_p * threads)(*(each.address for each in self.responders))
            self.set(responders=ctypes.addressof(self.table))

    def connects(self, threads: int) -> bool:
        """Use the threads of OpenMP from now on; False if there are none, or they are used already."""
        functions = None if self.is_connected or _forked.value else _of_openmp()
        if functions is None:
            return False
        self.respond(threads)
        self.set(**functions)
        for number, call in enumerate(self.calls):
            if call.callbacks:  # any Python may run in one, also a fork
                self.words[number * _SIZE + _PLACES["parallel"]] = 0
        self.is_connected = True
        return True

    def error(self) -> BaseException:
        """The exception of the last run, which failed."""
        found = [each.error for each in self.responders if each.error is not None]
        for each in self.responders:
            each.error = None
        ended: BaseException = Deadlocked() if self.failure.status == Status.DEADLOCKED else Stopped()
        return next((error for error in found if not isinstance(error, Stopped)), ended)


def _stride(arena: int) -> int:
    """The bytes of a thread's memory, so that the next one's is aligned too."""
    return max(1, -(-arena // ALIGNMENT)) * ALIGNMENT


@functools.cache
def _code() -> MachineCode:
    SOON.clear()  # this is its compilation
    return MachineCode(text())


def _make_code() -> None:
    with contextlib.suppress(Exception):  # the first call says so
        _code()


SOON.append(_make_code)


@functools.cache
def _address(name: str) -> int:
    """The address of a function of the C library; 0 if there is none."""
    try:
        return external(name) if os.name == "posix" else 0
    except Unknown:
        return 0


_found: dict[str, int] = {}


def _of_openmp() -> Mapping[str, int] | None:
    """The addresses of functions of the OpenMP that PyTorch has loaded, by their words; None if there is none."""
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if not _found and torch is not None and sys.platform == "linux":
        library = str(Path(torch).parent / "lib" / "libtorch_cpu.so")
        with contextlib.suppress(OSError, AttributeError):
            loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            each = {word: ctypes.cast(getattr(loaded, name), ctypes.c_void_p) for word, name in _OF_OPENMP.items()}
            _found.update({word: function.value or 0 for word, function in each.items()})
    return _found or None


_IDLE: list[Calls] = []


def has_openmp() -> bool:
    """True if the threads of a call may be those of OpenMP."""
    return "torch" in sys.modules and sys.platform == "linux"


def brief_seconds(openmp: bool) -> tuple[float, float]:
    """Seconds of work for which waking another thread does not pay, of one thread and of several together.

    Args:
        openmp: whether the threads are OpenMP's.
    """
    return (BRIEF_S, BRIEF_SPREAD_S) if openmp else (workers.BRIEF_S, workers.BRIEF_SPREAD_S)


def spread(call: Call, threads: int) -> float | None:
    """Spread the tasks of a call; returns the seconds of all threads together, or None without OpenMP threads.

    Raises:
        Deadlocked, BaseException: as `Calls.run`.
    """
    if call.callbacks or _forked.value or _of_openmp() is None:
        return None
    call = replace(call, brief=ctypes.c_int64(-1))  # the caller has decided
    try:
        calls = _IDLE.pop()
        calls.place(0, call)
    except IndexError:
        calls = Calls([call])
    status = calls.run(0, 1, threads)
    seconds = None if status == SPREAD else calls.seconds(0)
    _IDLE.append(calls)
    return seconds
