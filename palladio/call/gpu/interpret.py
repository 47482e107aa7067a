"""Pallas' spellings for choosing the simulator: parameter records, and modes for a block of code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.driver.executors import Executor, force, simulator, use
from palladio.driver.simulator_options import SimulatorOptions

_CHOICES: dict[str, tuple[str, ...]] = {
    "on_race": ("raise", "warn"),
    "out_of_bounds_reads": ("raise", "uninitialized"),
    "uninitialized_memory": ("nan", "zero"),
}


def require_choices(record: Any, choices: dict[str, tuple[str, ...]]) -> None:
    """Refuse a field whose value is not one of its choices."""
    with at_call():
        for name, allowed in choices.items():
            given = getattr(record, name)
            if not isinstance(given, str) or given not in allowed:
                raise PalladioValueError(
                    "no such choice", argument=name, expected=" or ".join(map(repr, allowed)), got=repr(given)
                )
        if record.ignore != ():
            # Importing the checker imports the machine, which most processes never use.
            from palladio.machine.check.findings import checked_codes

            checked_codes(record.ignore, "ignore")


@checked_call
@dataclass(frozen=True)
class InterpretGPUParams:
    """Simulator options of a kernel of the GPU dialect: `plgpu.kernel(..., interpret=InterpretGPUParams(...))`.

    Args:
        detect_races: look for races and for memory that nothing has written. Deadlocks, wrong indices, and barriers and
            semaphores used against their rules are errors in any case.
        on_race: "raise" the first finding, or "warn" of each.
        out_of_bounds_reads: "raise", or "uninitialized": they give uninitialised values.
        uninitialized_memory: "nan": reads of memory that nothing has written are findings, and give NaN or the least
            integer; "zero": such memory holds zeros, and reading it is fine.
        ignore: codes of findings that are not reported, such as ("unobserved-completion",).
        random_seed: run the random schedule of this seed rather than round robin.
        skip_floating_point_ops: arithmetic of floats is skipped and gives infinities, for a check that is faster.
        num_cores_or_threads, vector_clock_size, logging_mode, num_tma_threads_per_device, inline_mgpu: accepted, as
            Pallas takes them; without effect.

    A completion of a barrier that no thread waits for is an error, as in Pallas' interpreter, at a barrier that threads
    do wait for.

    Raises:
        PalladioTypeError, PalladioValueError: for a choice or a code that does not exist.
    """

    detect_races: bool = False
    on_race: str = "raise"
    out_of_bounds_reads: str = "raise"
    skip_floating_point_ops: bool = False
    uninitialized_memory: str = "nan"
    num_cores_or_threads: int = 1
    vector_clock_size: int | None = None
    logging_mode: Any = None
    num_tma_threads_per_device: int = 5
    inline_mgpu: str = "error"
    random_seed: int | None = None
    ignore: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        require_choices(self, _CHOICES)

    @property
    def simulator_options(self) -> SimulatorOptions:
        """The simulator's own options."""
        schedule = "round_robin" if self.random_seed is None else f"random:random:{self.random_seed}"
        return replace(options_of(self, schedule), strict=frozenset(("unobserved-completion",)))


def options_of(record: Any, schedule: str) -> SimulatorOptions:
    """The simulator's options from a record of parameters with Pallas' field names."""
    return SimulatorOptions(
        races=record.detect_races,
        on_race=record.on_race,
        out_of_bounds=record.out_of_bounds_reads,
        uninitialized_reads=record.uninitialized_memory == "nan",
        zeros=record.uninitialized_memory == "zero",
        ignore=frozenset((record.ignore,) if isinstance(record.ignore, str) else record.ignore),
        schedule=schedule,
        skip_floats=record.skip_floating_point_ops,
    )


def executor_of(params: Any, expected: str) -> Executor:
    """The simulator with a user's parameters; `expected` is their description for an error."""
    options = getattr(params, "simulator_options", None)
    if options is None:
        raise PalladioTypeError(
            "the parameters of the simulator", argument="params", expected=expected, got=repr(params)
        )
    return simulator(options)


def _executor(params: Any) -> Executor:
    return executor_of(params, "InterpretGPUParams(...)")


@contextmanager
def force_gpu_interpret_mode(params: Any = None) -> Iterator[None]:
    """Kernels called inside the block run on the simulator, with these parameters.

    Raises:
        PalladioTypeError: not an `InterpretGPUParams`.
    """
    with at_call():
        chosen = _executor(InterpretGPUParams() if params is None else params)
    with use(chosen):
        yield


def set_gpu_interpret_mode(params: Any = None) -> None:
    """From now on kernels run on the simulator with these parameters; None or False ends that.

    Raises:
        PalladioTypeError: not an `InterpretGPUParams`.
    """
    with at_call():
        chosen = InterpretGPUParams() if params is True else params
        force(None if params is None or params is False else _executor(chosen))
