"""Calls after a rest, when the threads of OpenMP may sleep and be woken on the caller's core.

One thread plays all parts here: the others begin where the caller lets them, or at its end.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from palladio.cpu.runtime import native

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="OpenMP's threads are used on Linux")

TASKS = 100
MOVED = [("set", 0b1110), ("set", 0b1111)]


class Machine:
    """A machine with four cores, its C library and OpenMP.

    Fields:
        number: of the OpenMP thread that runs now.
        core: of each thread.
        cores: the set of those that they may use, by bits; empty where the system does not tell.
        lets: a thread begins where the caller lets it.
        waiting: the threads that have not begun.
        woken: the looks at the clock after which the next one begins by itself, or -1.
        steps: what the calls did, in order.
        done: the tasks that ran.
    """

    def __init__(self, threads: int = 2) -> None:
        self.threads = threads
        self.number = 0
        self.core = [0] * threads
        self.cores = 0b1111
        self.lets = True
        self.waiting: list[Callable[[], None]] = []
        self.woken = -1
        self.steps: list[Any] = []
        self.done: list[int] = []
        self.nanoseconds = 10**10
        pointer, integer, number = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        self.functions: dict[str, Any] = {
            "kernel": ctypes.CFUNCTYPE(integer, *3 * [pointer], ctypes.c_int64, ctypes.c_int64)(self.work),
            "parallel": ctypes.CFUNCTYPE(None, pointer, pointer, integer, integer)(self.parallel),
            "number": ctypes.CFUNCTYPE(integer)(lambda: self.number),
            "most": ctypes.CFUNCTYPE(integer)(lambda: self.threads),
            "clock_gettime": ctypes.CFUNCTYPE(integer, integer, ctypes.POINTER(ctypes.c_int64))(self.clock),
            "sched_yield": ctypes.CFUNCTYPE(integer)(self.let),
            "sched_getcpu": ctypes.CFUNCTYPE(integer)(lambda: self.core[self.number]),
            "sched_getaffinity": ctypes.CFUNCTYPE(integer, integer, number, pointer)(self.get),
            "sched_setaffinity": ctypes.CFUNCTYPE(integer, integer, number, pointer)(self.set),
        }
        self.addresses = {name: ctypes.cast(each, pointer).value or 0 for name, each in self.functions.items()}

    def parallel(self, member: int, job: int, most: int, flags: int) -> None:
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(member)

        def begin(number: int) -> None:
            before, self.number = self.number, number
            self.steps.append(number)
            run(job)
            self.number = before

        self.waiting = [lambda number=number: begin(number) for number in range(1, most)]
        begin(0)
        while self.waiting:
            self.waiting.pop(0)()

    def work(self, arrays: int, sizes: int, arena: int, begin: int, end: int) -> int:
        self.done.extend(range(begin, end))
        return 0

    def clock(self, kind: int, time: Any) -> int:
        if self.waiting and self.woken >= 0:
            self.woken -= 1
            if self.woken < 0:
                self.waiting.pop(0)()
        self.nanoseconds += 1
        time[0], time[1] = divmod(self.nanoseconds, 10**9)
        return 0

    def let(self) -> int:
        self.steps.append("let")
        if self.lets:
            self.waiting.pop(0)()
        else:
            self.nanoseconds += int(native.GATHER_S * 1e9 / 2)
        return 0

    def get(self, thread: int, size: int, place: int) -> int:
        assert thread == 0
        ctypes.memmove(place, self.cores.to_bytes(size, "little"), size)
        return 0 if self.cores else -1

    def set(self, thread: int, size: int, place: int) -> int:
        assert thread == 0
        self.steps.append(("set", int.from_bytes(ctypes.string_at(place, size), "little")))
        return 0

    def call(self) -> list[Any]:
        """The steps of a call on all threads, which must run each task once."""
        self.steps, self.done = [], []
        table, sizes = (ctypes.c_void_p * 1)(), (ctypes.c_int64 * 1)()
        call = native.Call(self.addresses["kernel"], 0, 0, None, (), ctypes.c_int64(), table, sizes, TASKS)
        assert native.spread(call, self.threads) is not None
        assert sorted(self.done) == list(range(TASKS))
        return self.steps


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    """Makes a machine, on which the threads have never worked."""

    def made(threads: int = 2, **other: int) -> Machine:
        machine = Machine(threads)
        real = native._address
        addresses = {**machine.addresses, **other}
        openmp = {word: addresses[word] for word in native._OF_OPENMP}
        monkeypatch.setattr(native, "_address", lambda name: addresses[name] if name in addresses else real(name))
        monkeypatch.setattr(native, "_of_openmp", lambda: openmp)
        monkeypatch.setattr(native, "_forked", ctypes.c_int64())
        monkeypatch.setattr(native, "_last", ctypes.c_int64())
        monkeypatch.setattr(native, "_IDLE", [])
        return machine

    return made


Made = Callable[..., Machine]


def test_the_caller_lets_a_thread_begin_on_its_core_which_goes_to_another_one(made: Made) -> None:
    assert made().call() == [0, "let", 1, *MOVED]


def test_so_with_all_threads(made: Made) -> None:
    assert made(4).call() == [0, "let", 1, *MOVED, "let", 2, *MOVED, "let", 3, *MOVED]


def test_soon_after_a_call_the_threads_poll_and_none_is_moved(made: Made) -> None:
    machine = made()
    rested = machine.call()
    machine.nanoseconds += int(native.RESTED_S * 1e9) - 1
    assert machine.call() == [0, 1]
    machine.nanoseconds += int(native.RESTED_S * 1e9)
    assert machine.call() == rested


def test_a_thread_on_another_core_stays_there(made: Made) -> None:
    machine = made()
    machine.core[1] = 3
    assert machine.call() == [0, "let", 1]


def test_the_caller_lets_no_other_program_run_if_the_threads_begin_meanwhile(made: Made) -> None:
    machine = made()
    machine.woken = 100
    assert machine.call() == [0, 1, *MOVED]
    assert machine.woken == -1


def test_the_caller_does_not_wait_for_long(made: Made) -> None:
    machine = made()
    machine.lets = False
    assert machine.call() == [0, "let", "let", 1, *MOVED]


@pytest.mark.parametrize("cores", [0, 0b1, 0b11])
def test_none_is_moved_where_there_is_no_core_for_each_or_they_are_unknown(made: Made, cores: int) -> None:
    machine = made(3)
    machine.cores = cores
    assert machine.call() == [0, "let", 1, "let", 2]


def test_a_caller_of_unknown_core_moves_none(made: Made) -> None:
    machine = made()
    machine.core = [-1, -1]
    assert machine.call() == [0, 1]


@pytest.mark.parametrize("missing", ["sched_yield", "sched_getcpu", "sched_getaffinity", "sched_setaffinity"])
def test_a_system_without_such_a_function_has_calls_as_before(made: Made, missing: str) -> None:
    assert made(**{missing: 0}).call() == [0, 1]


@pytest.mark.parametrize("core", [63, 64, 1023])
def test_the_set_of_cores_loses_only_the_callers(made: Made, core: int) -> None:
    machine = made()
    machine.core, machine.cores = [core, core], (1 << 1024) - 1
    assert machine.call() == [0, "let", 1, ("set", machine.cores ^ (1 << core)), ("set", machine.cores)]


def test_a_moved_thread_may_use_the_cores_that_it_could_use_before(made: Made) -> None:
    """With the functions of this system; all parts are played by this thread."""
    names = "sched_getcpu", "sched_getaffinity", "sched_setaffinity"
    before = os.sched_getaffinity(0)
    machine = made(**{name: native._address(name) for name in names})
    assert machine.call() == [0, "let", 1]
    assert os.sched_getaffinity(0) == before
