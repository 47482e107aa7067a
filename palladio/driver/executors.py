"""Executors and the choice among them.

The call's own argument decides, else the context (`with palladio.executor("reference")`), else the environment
(`PALLADIO_EXECUTOR`), else the default.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from contextvars import ContextVar, Token
from typing import Any, Protocol

from palladio.array.foreign import all_to_numpy
from palladio.array.on_card import Conditions, all_on_card, card_of
from palladio.base import knobs
from palladio.base.calls import did_you_mean
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.base.signals import uninterrupted
from palladio.driver.blas_threads import multiplies_tiles_only, one_thread
from palladio.driver.simulator_options import SimulatorOptions
from palladio.ir.core import Program, walk
from palladio.ir.evaluate import DEFINITION, Evaluator, Runner
from palladio.ops.threads.launch import concurrent
from palladio.passes.skip_float_arithmetic import skip_float_arithmetic
from palladio.trace.trace import current_trace
from palladio.types.types import ArrayType


class KernelRunner(Runner, Protocol):
    """Runs a program that is one kernel."""

    @property
    def results(self) -> Sequence[ArrayType]:
        """The types of its results."""
        ...


class Stored(Protocol):
    """A program that may be on disk in runnable form, under a key that is known before tracing."""

    def find(self) -> KernelRunner | None:
        """The program, if it is on disk."""
        ...

    def keep(self, program: Any) -> None:
        """Store a program that the executor has loaded."""
        ...


@dataclass(frozen=True)
class Executor:
    """A way to run programs: `load` makes a prepared program, already through the executor's passes, into a function
    of values. The passes of an executor that `lowers` programs stand in `palladio/driver/compile.py`; others have none.
    The values of an executor with `on_card` may be arrays in the memory of a GPU. `stored` finds a program by
    everything that it depends on and the types of its operands, if the executor stores programs.
    """

    name: str
    doc: str
    load: Callable[[Program], Runner]
    lowers: bool = False
    on_card: bool = False
    stored: Callable[[Hashable, Sequence[ArrayType]], Stored] | None = None

    def arrays(self, leaves: Sequence[Any], tree: Any, root: str) -> list[Any]:
        """The leaves of a tree of arguments, converted for the executor: NumPy arrays, or arrays of a card.

        Args:
            tree, root: for the name of a leaf in an error.

        Raises:
            PalladioTypeError, PalladioValueError: not an array, an unsupported dtype, or not in the executor's memory.
        """
        return (all_on_card if self.on_card else all_to_numpy)(leaves, tree, root)

    @property
    def key(self) -> Hashable:
        """Its part in the key of a prepared call: its name, unless another executor is registered under it."""
        if self is CPU:
            return self.name, knobs.instructions.get()
        return self.name if EXECUTORS.get(self.name) is self else self


def _evaluated(program: Program, evaluator: Evaluator) -> Runner:
    """Runs a program on an evaluator."""
    evaluator.prepare(program)
    evaluated = evaluator.runner(program)
    if not multiplies_tiles_only(program):
        return evaluated
    return _OnOneThread(evaluated)


@dataclass(frozen=True)
class _OnOneThread:
    """Runs a program with NumPy's products on one thread."""

    run: Runner

    def __call__(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        with one_thread():
            return self.run(values, out)


def _evaluator(program: Program, options: SimulatorOptions | None = None) -> Evaluator:
    """The evaluator of a program, with its launches on machines; on the simulator's if there are options."""
    if not (options is not None and options.cores) and not any(map(concurrent, walk(program))):
        return DEFINITION
    # Importing the machine would double the import time, and most processes have no concurrent kernel.
    from palladio.driver.simulation import on_machines

    return on_machines(options)


def _load_reference(program: Program) -> Runner:
    return _evaluated(program, _evaluator(program))


REFERENCE = Executor("reference", "The evaluator on NumPy: the definition of what a program means.", _load_reference)


@dataclass(frozen=True)
class _Simulated:
    """Loads programs for the simulator with some options."""

    options: SimulatorOptions

    def __call__(self, program: Program) -> Runner:
        if self.options.skip_floats:
            program = skip_float_arithmetic.run(program)
        return _evaluated(program, _evaluator(program, self.options))


def simulator(options: SimulatorOptions) -> Executor:
    """The simulator with these options."""
    doc = "Concurrent kernels on the machine that checks every access; raises on the first finding."
    return Executor("simulator", doc, _Simulated(options))


SIMULATOR = simulator(SimulatorOptions())


def _import_cpu() -> Any:
    from palladio.cpu.executor import load_compiled  # takes a quarter of Palladio's import time

    return load_compiled


@functools.cache
def _cpu_loader() -> Any:
    """The loader, imported on another thread: a signal handler that calls a kernel meanwhile waits for it."""
    return uninterrupted(_import_cpu)


def _load_cpu(program: Program) -> Runner:
    return _cpu_loader()(program, _evaluator(program))  # type: ignore[no-any-return]


def _stored_for_cpu(parts: Hashable, types: Sequence[ArrayType]) -> Stored:
    from palladio.cpu.stored import Stored as OnDisk  # without the emission, which a program on disk does not need

    return OnDisk(parts, types)


CPU = Executor(
    "cpu", "Kernels compiled for the host's processor through LLVM.", _load_cpu, lowers=True, stored=_stored_for_cpu
)


def _load_hopper_twin(program: Program) -> Runner:
    from palladio.hopper.twin.executor import load_on_twin  # with what writes CUDA, which few processes need

    return load_on_twin(program)


HOPPER_TWIN = Executor(
    "hopper-twin",
    "Kernels as CUDA for Hopper, run on a model of its instructions that needs no GPU: slow, for tests.",
    _load_hopper_twin,
    lowers=True,
)


def _stored_for_hopper(parts: Hashable, types: Sequence[ArrayType]) -> Stored:
    from palladio.hopper.launch.executor import Stored as OnDisk

    return OnDisk(parts, types)


def _load_hopper(program: Program) -> Runner:
    from palladio.hopper.launch.executor import OnCard  # with what writes CUDA, which few processes need

    return OnCard(program)


HOPPER = Executor(
    "hopper",
    "Kernels as CUDA on a Hopper GPU; the default where the arrays live on one. Others are copied there and back.",
    _load_hopper,
    lowers=True,
    on_card=True,
    stored=_stored_for_hopper,
)

EXECUTORS: dict[str, Executor] = {each.name: each for each in (REFERENCE, SIMULATOR, CPU, HOPPER_TWIN, HOPPER)}
DEFAULT = CPU
"""The executor of arrays in host memory."""

_forced: dict[str, Executor] = {}
_FORCED = "executor"
"""The key of the executor in `_forced`: machine code looks for it."""
_chosen: ContextVar[Executor | None] = ContextVar("palladio_executor", default=None)


def find(name: str, argument: str) -> Executor:
    """The executor with a name.

    Raises:
        PalladioValueError: if there is none.
    """
    if not isinstance(name, str) or name not in EXECUTORS:
        raise PalladioValueError(
            "no executor has this name",
            argument=argument,
            expected=", ".join(EXECUTORS),
            got=repr(name),
            hint=did_you_mean(name, EXECUTORS) if isinstance(name, str) else None,
        )
    return EXECUTORS[name]


class _Choice(ContextDecorator):
    """The context manager of `use`.

    It is entered and left around single calls, and after a long kernel or a rest all of its code comes from memory: a
    generator as a context manager takes several times as long.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.tokens: list[Token[Executor | None]] = []

    def __enter__(self) -> None:
        self.tokens.append(_chosen.set(self.executor))

    def __exit__(self, *error: object) -> None:
        _chosen.reset(self.tokens.pop())

    def _recreate_cm(self) -> _Choice:
        """Each call of a decorated function enters an object of its own, in the context of its thread."""
        return _Choice(self.executor)


def use(executor: Executor) -> AbstractContextManager[None]:
    """A context manager: kernels called inside the block run on this executor."""
    return _Choice(executor)


def executor(name: str) -> Any:
    """A context manager: kernels called inside the block run on the executor of this name.

    Raises:
        PalladioValueError: if there is no such executor.
    """
    found = EXECUTORS.get(name) if type(name) is str else None
    if found is None:
        with at_call():
            found = find(name, "name")
    return _Choice(found)


def force(executor: Executor | None) -> None:
    """Run kernels on this executor from now on unless a call or a context names another; None ends that."""
    if executor is None:
        _forced.pop(_FORCED, None)
    else:
        _forced[_FORCED] = executor


def follows_arrays() -> bool:
    """True if a call that names no executor runs where its arrays live: no context and no setting names one."""
    return _chosen.get() is None and not _forced and knobs.executor.get() is None


FOLLOWING = Conditions(absent=((_forced, _FORCED), knobs.executor.place), chosen=((_chosen, None),))
"""The conditions of `follows_arrays`, where the variable of the environment is not set."""


_requested: ContextVar[list[Executor] | None] = ContextVar("palladio_requested_executors", default=None)


@contextmanager
def requests() -> Iterator[list[Executor]]:
    """Collect the executors that calls inside a function request while the function is staged."""
    found: list[Executor] = []
    token = _requested.set(found)
    try:
        yield found
    finally:
        _requested.reset(token)


def request(interpret: Any) -> None:
    """Request an executor for the program that a call becomes part of.

    Raises:
        PalladioValueError: if another call of the same program has requested a different one.
    """
    found = _requested.get()
    if found is None or interpret is None or interpret is False:
        return
    wanted = choose(interpret)
    if found and found[0] != wanted:
        raise PalladioValueError(
            "the calls of one staged function select different executors",
            argument="interpret",
            expected=f"{found[0].name}, as an earlier call asks",
            got=f"{wanted.name}: {interpret!r}",
            hint="stage them apart, or pass one interpret= to pl.jit",
        )
    found.append(wanted)


def cores_of_grids(executor: Executor) -> int:
    """The number of cores that share the parallel axes of grids on an executor."""
    return executor.load.options.cores if isinstance(executor.load, _Simulated) else 1


def choose(interpret: Any = None, arrays: Sequence[Any] = ()) -> Executor:
    """The executor for a call, given its `interpret` argument: True is the evaluator, a string an executor's name.

    Args:
        arrays: the arrays of the call; they determine the executor if nothing else does.
    """
    if interpret is True:
        return REFERENCE
    if isinstance(interpret, Executor):
        return interpret
    if isinstance(interpret, str):
        return find(interpret, "interpret")
    options = getattr(interpret, "simulator_options", None)
    if options is not None:
        return simulator(options)
    if interpret not in (None, False):
        raise PalladioTypeError("True, False or the name of an executor", argument="interpret", got=repr(interpret))
    chosen = _chosen.get() or _forced.get(_FORCED)
    if chosen is not None:
        return chosen
    named = knobs.executor.get()
    if named is not None:
        return find(named, knobs.executor.name)
    return DEFAULT if card_of(arrays) is None else HOPPER


_staged_for: ContextVar[tuple[Executor, Any] | None] = ContextVar("palladio_staged_for", default=None)


@contextmanager
def staged_for(executor: Executor) -> Iterator[None]:
    """The program of the current trace will run on this executor, unless a call in it requests another one."""
    token = _staged_for.set((executor, current_trace()))
    try:
        yield
    finally:
        _staged_for.reset(token)


def chosen_executor(interpret: Any = None, arrays: Sequence[Any] = ()) -> str:
    """The name of the executor that a call runs on; in a function under `jit`, the one that it is staged for.

    Args:
        interpret: the argument of the call, as in `pallas_call`.
        arrays: the arrays of the call.

    Raises:
        PalladioTypeError, PalladioValueError: an `interpret` that does not name an executor.
    """
    staged = _staged_for.get()
    if interpret is None and staged is not None and staged[1] is current_trace():
        return staged[0].name
    with at_call():
        return choose(interpret, arrays).name
