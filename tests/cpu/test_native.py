"""Calls on the OpenMP threads of PyTorch, each in a process that has loaded it and has called no kernel before."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import weakref
from collections.abc import Callable, Iterator

import pytest

from palladio.cpu.runtime import native
from palladio.cpu.runtime.callbacks import POLL, SIGNATURE, Responder
from palladio.cpu.runtime.machine_code import MachineCode
from tests.forked import Forks, forks

HEAD = """
import _thread, atexit, os, signal, sys, threading, warnings
import numpy as np
import palladio as pl
import palladio.numpy as jnp
from palladio.cpu.runtime import workers
import torch

torch.set_num_threads(int(os.environ["OPENMP"]))

warnings.simplefilter("ignore", DeprecationWarning)  # of Python, where a process with threads forks
x = np.ones((64, 1024), np.float32)

def kernel(n_ref, x_ref, o_ref):
    o_ref[...] = pl.fori_loop(0, n_ref[0], lambda _, value: value * 0.5 + 2.0, x_ref[...])

spec = pl.BlockSpec((1, 1024), lambda i: (i, 0))
call = pl.pallas_call(
    kernel, pl.ShapeDtypeStruct(x.shape, x.dtype), grid=(64,),
    in_specs=[pl.BlockSpec((1,), lambda i: (0,)), spec], out_specs=spec,
    compiler_params=pl.CompilerParams(dimension_semantics=["parallel"]),
)

def right(count=2000):
    return bool(np.all(call(np.array([count], np.int32), x) == 4))
"""
LONG = 400_000
"""Steps of a loop with which the call takes long enough for several polls."""

ENDLESS = 2**31 - 1


def settings(threads: int, openmp: int) -> dict[str, str]:
    """The environment of a program.

    Args:
        threads, openmp: those that a call may use, and those that OpenMP has.
    """
    chosen = {"PALLADIO_NUM_THREADS": str(threads), "OPENMP": str(openmp), "PALLADIO_EXECUTOR": "cpu"}
    return {**os.environ, **chosen}


@pytest.fixture(scope="module")
def with_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    imports = "import numpy, torch\nfrom palladio.cpu import executor\nfrom palladio.cpu.runtime import native"
    with forks(imports, tmp_path_factory.mktemp("forks")) as found:
        yield found


@pytest.fixture(scope="module")
def without_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    imports = "import numpy, torch, palladio\nfrom palladio.cpu.runtime import workers"
    with forks(imports, tmp_path_factory.mktemp("without_compiler")) as found:
        yield found


Run = Callable[..., subprocess.CompletedProcess[str]]
Printed = Callable[..., str]


@pytest.fixture
def run(with_torch: Forks) -> Run:
    """Runs a program as in a process of its own.

    It is forked of one in which OpenMP has begun no threads, so it can have threads of its own, and is told so.
    """
    as_if_new = "native._forked.value = 0\n"

    def run(program: str, threads: int = 4, openmp: int = 4) -> subprocess.CompletedProcess[str]:
        return with_torch.run(as_if_new + HEAD + program, settings(threads, openmp))

    return run


@pytest.fixture
def printed(run: Run) -> Printed:
    """Returns the output of a program, which must not warn."""

    def printed(program: str, threads: int = 4, openmp: int = 4) -> str:
        done = run(program, threads, openmp)
        assert done.stderr == ""
        return done.stdout

    return printed


NOT_FORKED = """
import pathlib
bytes_of = pathlib.Path.read_bytes
never = b"1 (python) S 0 0 0 0 0 0 "
pathlib.Path.read_bytes = lambda path: never if str(path) == "/proc/self/stat" else bytes_of(path)
"""
"""The system says of this process that it was not forked, as of one that has started a program."""


@pytest.fixture
def printed_first(without_compiler: Forks) -> Printed:
    """Returns the output of a program whose first call imports the compiler, in what passes for a fresh process."""

    def printed_first(program: str, told: str = NOT_FORKED) -> str:
        unused = "import sys\nassert not {'palladio.cpu.runtime.native', 'palladio.cpu.executor'} & set(sys.modules)\n"
        done = without_compiler.run(told + HEAD + unused + program, settings(4, 4))
        assert done.stderr == ""
        return done.stdout

    return printed_first


@pytest.mark.parametrize(("openmp", "workers"), [(4, 0), (6, 0), (2, 3)])
def test_a_call_uses_openmp_where_it_has_enough_threads_and_workers_elsewhere(
    printed: Printed, openmp: int, workers: int
) -> None:
    program = "print([right() for _ in range(5)] == [True] * 5, workers._HELPERS.size)"
    assert printed(program, openmp=openmp) == f"True {workers}\n"


def test_library_functions_use_openmp(printed_first: Printed) -> None:
    program = """
from palladio.library import gmm
rng = np.random.default_rng(0)
rows, matrices = (rng.standard_normal(shape, np.float32) for shape in ((64, 256), (8, 256, 512)))
sizes = np.array([5, 0, 20, 8, 1, 0, 20, 10], np.int32)
expected = np.concatenate([
    part @ matrix for part, matrix in zip(np.split(rows, np.cumsum(sizes)[:-1]), matrices)
])
print([np.allclose(gmm(rows, matrices, sizes), expected, atol=1e-4) for _ in range(5)] == [True] * 5)
print(workers._HELPERS.size)
"""
    assert printed_first(program) == "True\n0\n"


def test_all_threads_round_as_the_caller_does_and_as_before_afterwards(printed: Printed) -> None:
    program = """
import ctypes, platform
library = ctypes.PyDLL(None)
upward = {"x86_64": 0x800, "aarch64": 0x400000}.get(platform.machine())
thirds, third = torch.ones(1 << 20), pl.pallas_call(
    lambda x_ref, o_ref: o_ref.__setitem__(..., pl.fori_loop(0, 4000, lambda _, v: v * 0.7 + 0.1, x_ref[...])),
    pl.ShapeDtypeStruct(x.shape, x.dtype), grid=(64,), in_specs=[spec], out_specs=spec,
    compiler_params=pl.CompilerParams(dimension_semantics=["parallel"]),
)
before = third(x)
if upward is not None:
    library.fesetround(upward)
    up = third(x)
    library.fesetround(0)
    print(len(np.unique(up)), bool(up[0, 0] > before[0, 0]))
else:
    print(1, True)
print(len(torch.unique(thirds / 3)), np.array_equal(third(x), before))
"""
    assert printed(program) == "1 True\n1 True\n"


def test_an_interrupt_ends_a_call(printed: Printed) -> None:
    """Whole, the call takes hours."""
    program = f"""
signal.signal(signal.SIGINT, signal.default_int_handler)
right()
threading.Timer(0.3, _thread.interrupt_main).start()
try:
    right({ENDLESS})
except KeyboardInterrupt:
    print("interrupted", right(), workers._HELPERS.size)
"""
    assert printed(program) == "interrupted True 0\n"


def test_an_interrupt_ends_a_call_of_many_brief_tasks(printed: Printed) -> None:
    program = """
signal.signal(signal.SIGINT, signal.default_int_handler)
many = pl.pallas_call(
    lambda n_ref, o_ref: kernel(n_ref, o_ref, o_ref), pl.ShapeDtypeStruct((1 << 20, 64), np.float32), grid=(1 << 20,),
    in_specs=[pl.BlockSpec((1,), lambda i: (0,))], out_specs=pl.BlockSpec((1, 64), lambda i: (i, 0)),
    compiler_params=pl.CompilerParams(dimension_semantics=["parallel"]),
)
warnings.simplefilter("ignore")
many(np.array([1], np.int32))
threading.Timer(0.3, _thread.interrupt_main).start()
try:
    many(np.array([100_000], np.int32))
except KeyboardInterrupt:
    print("interrupted", right())
"""
    assert printed(program) == "interrupted True\n"


def test_an_interrupt_ends_a_call_of_one_thread_before_its_last_task(printed: Printed) -> None:
    """The kernel has no loop, so that it does not poll itself; whole, the call takes seconds."""
    program = """
signal.signal(signal.SIGINT, signal.default_int_handler)
sums = pl.pallas_call(
    lambda x_ref, o_ref: o_ref.__setitem__(..., jnp.sum(jnp.exp(jnp.sin(x_ref[...])), keepdims=True)),
    pl.ShapeDtypeStruct((1 << 16, 1), np.float32), grid=(1 << 16,),
    in_specs=[pl.BlockSpec(x.shape, lambda i: (0, 0))], out_specs=pl.BlockSpec((1, 1), lambda i: (i, 0)),
    compiler_params=pl.CompilerParams(dimension_semantics=["parallel"]),
)
found = np.zeros((1 << 16, 1), np.float32)

def interrupt():
    while found[0] == 0:
        os.sched_yield()
    _thread.interrupt_main()

threading.Thread(target=interrupt).start()
try:
    sums(x, out=found)
except KeyboardInterrupt:
    print("interrupted", bool(found[-1] == 0))
"""
    assert printed(program, threads=1) == "interrupted True\n"


def test_a_signal_handler_calls_kernels_in_a_call(printed: Printed) -> None:
    program = f"""
inside = []
signal.signal(signal.SIGALRM, lambda *_: inside.append(right()))
signal.setitimer(signal.ITIMER_REAL, 0.2)
print(right({LONG}), inside)
"""
    assert printed(program) == "True [True]\n"


def test_several_threads_call_at_once(printed_first: Printed) -> None:
    """Their first calls import the compiler, and compile, at the same time."""
    program = """
found = []
callers = [threading.Thread(target=lambda: found.extend(right() for _ in range(20))) for _ in range(4)]
for each in callers: each.start()
for each in callers: each.join()
print(found == [True] * 80)
"""
    assert printed_first(program) == "True\n"


def test_calls_keep_the_code_that_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads that begin at once compile it each for itself, and only one finds its own again."""
    made = []

    def compiled() -> MachineCode:
        code = MachineCode(native.text())
        made.append(weakref.ref(code))
        return code

    monkeypatch.setattr(native, "_code", compiled)
    calls = native.Calls([])
    gc.collect()
    (code,) = made
    assert code() is not None and calls.native is not None


@pytest.mark.parametrize("before", ["", "right()"])
def test_kernels_are_called_when_the_process_ends(printed: Printed, printed_first: Printed, before: str) -> None:
    program = """
def later():
    main.join()
    print([right() for _ in range(20)] == [True] * 20)

main = threading.main_thread()
threading.Thread(target=later).start()
atexit.register(lambda: print(right()))
"""
    show = printed if before else printed_first  # the first call imports the compiler
    assert show(before + program) == "True\nTrue\n"


def test_a_forked_process_uses_workers_of_its_own(printed: Printed) -> None:
    program = """
right()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if right() and right() and workers._HELPERS.size == 3 else 1)
print(os.waitpid(child, 0)[1], right(), workers._HELPERS.size)
"""
    assert printed(program) == "0 True 0\n"


def test_so_does_one_that_was_forked_before_its_first_call(printed_first: Printed) -> None:
    program = """
torch.ones(1 << 20).exp()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if right() and right() and workers._HELPERS.size == 3 else 1)
print(os.waitpid(child, 0)[1], "palladio.cpu.runtime.native" in sys.modules)
"""
    assert printed_first(program, told="") == "0 False\n"


def test_the_first_exception_is_kept_where_a_failed_call_polls_again() -> None:
    class Raises:
        def run(self, table: int) -> None:
            raise ZeroDivisionError

    failed: list[BaseException] = []
    responder = Responder.take((Raises(),), failed)  # type: ignore[arg-type]
    for number in (0, POLL):
        table = ctypes.c_int64(number)
        assert SIGNATURE(responder.address)(ctypes.addressof(table)) == 1
        assert isinstance(responder.error, ZeroDivisionError)
        failed.append(responder.error)
    responder.give()


FORKS = f"""
def fork(*_):
    global child
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        if ENDS:
            os._exit(0 if right() else 1)

right()
child = None
signal.signal(signal.SIGALRM, fork)
signal.setitimer(signal.ITIMER_REAL, 0.2)
result = right({LONG})
print(os.waitpid(child, 0)[1], result, right())
"""


def test_a_signal_handler_forks_in_a_call(printed: Printed) -> None:
    assert printed(FORKS.replace("ENDS", "True")) == "0 True True\n"


def test_a_process_that_would_go_on_with_a_call_of_its_parent_ends_with_a_message(run: Run) -> None:
    done = run(FORKS.replace("ENDS", "False"))
    message = "palladio: this process was forked in the middle of a call, and lacks its OpenMP threads; it ends here\n"
    assert (done.stdout, done.stderr) == ("256 True True\n", message)


def test_a_process_forked_in_a_kernel_runs_the_next_ones_without_the_threads_of_its_parent(printed: Printed) -> None:
    """The first kernel has one task, the next one those of several threads; both are one native call."""
    first = """
def count(n_ref, o_ref):
    odd = pl.fori_loop(0, n_ref[0], lambda i, value: (value * 3) ^ i, 1) & 1
    o_ref[...] = jnp.full((1,), 2000 + odd)

counted = pl.pallas_call(count, pl.ShapeDtypeStruct((1,), np.int32))
both = pl.jit(lambda n, x: call(counted(n), x))
right = lambda count=1: bool(np.all(both(np.array([count], np.int32), x) == 4))
"""
    forks = FORKS.replace("ENDS", "False").replace(f"right({LONG})", f"right({2000 * LONG})")
    ends = "if child == 0: os._exit(0 if result and right() and workers._HELPERS.size == 3 else 1)\nprint"
    assert printed(first + forks.replace("print", ends)) == "0 True True\n"
