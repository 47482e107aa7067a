"""Pallas' spellings for choosing the simulator for kernels of cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioValueError, at_call
from palladio.call.gpu.interpret import executor_of, options_of, require_choices
from palladio.driver.executors import Executor, force, use
from palladio.driver.simulator_options import SimulatorOptions

_CHOICES: dict[str, tuple[str, ...]] = {
    "dma_execution_mode": ("on_wait", "eager"),
    "on_race": ("raise", "warn"),
    "out_of_bounds_reads": ("raise", "uninitialized"),
    "uninitialized_memory": ("nan", "zero"),
    "buffer_bounds": ("logical", "padded"),
}


@checked_call
@dataclass(frozen=True)
class InterpretParams:
    """Simulator options of a kernel: `pl.pallas_call(..., interpret=pltpu.InterpretParams(...))`.

    Args:
        dma_execution_mode: "on_wait": a copy takes effect when something waits for it, as late as it can; "eager":
            as soon as it starts.
        detect_races: look for races and for memory that nothing has written. Deadlocks, wrong indices, and barriers and
            semaphores used against their rules are errors in any case.
        on_race: "raise" the first finding, or "warn" of each.
        out_of_bounds_reads: "raise", or "uninitialized": they give uninitialised values. With "raise", blocks that lie
            outside of their array are errors too.
        uninitialized_memory: "nan": reads of memory that nothing has written are findings where races are looked for,
            and give NaN or the least integer; "zero": such memory holds zeros.
        ignore: codes of findings that are not reported.
        random_seed: run the cores in the random order of this seed, which is that of parallel grid axes too.
        skip_floating_point_ops: arithmetic of floats is skipped and gives infinities, for a check that is faster.
        num_cores_or_threads: how many cores share the parallel axes of a grid, each with private memory for blocks,
            prefetched scalars and scratch. Meshes of cores have their own number.
        grid_point_recorder: called at each point of a grid with a token, the point, and the number of the core.
        vector_clock_size, logging_mode, allow_hbm_allocation_in_run_scoped, buffer_bounds: accepted, as Pallas takes
            them; without effect.

    The axes of a grid that `dimension_semantics` calls parallel must be its first ones. The indices along each are
    taken in a random order, Pallas' own.

    A block of an output that a grid leaves and visits again is an error, as in Pallas' interpreter.

    Raises:
        PalladioTypeError, PalladioValueError: for a choice or a code that does not exist.
    """

    dma_execution_mode: str = "on_wait"
    detect_races: bool = False
    on_race: str = "raise"
    out_of_bounds_reads: str = "raise"
    skip_floating_point_ops: bool = False
    uninitialized_memory: str = "nan"
    random_seed: int | None = None
    num_cores_or_threads: int = 1
    vector_clock_size: int | None = None
    logging_mode: Any = None
    grid_point_recorder: Any = None
    allow_hbm_allocation_in_run_scoped: bool = True
    buffer_bounds: str = "logical"
    ignore: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        require_choices(self, _CHOICES)
        with at_call():
            cores, clocks = self.num_cores_or_threads, self.vector_clock_size
            if cores < 1:
                raise PalladioValueError(
                    "a grid runs on one core at least",
                    argument="num_cores_or_threads",
                    got=cores,
                    jax=f"Number of cores or threads must be at least 1, but got {cores}.",
                )
            if clocks is not None and clocks <= cores:
                raise PalladioValueError(
                    "a vector clock has more entries than there are cores",
                    argument="vector_clock_size",
                    expected=f"more than {cores}",
                    got=clocks,
                    jax=f"Vector clock size ({clocks}) must be greater than the total number of cores/threads "
                    f"({cores}).",
                )

    @property
    def simulator_options(self) -> SimulatorOptions:
        """The simulator's own options."""
        late = self.dma_execution_mode == "on_wait"
        if self.random_seed is None:
            schedule = "latest" if late else "round_robin"
        else:
            schedule = f"random:{'latest' if late else 'earliest'}:{self.random_seed}"
        return replace(
            options_of(self, schedule),
            cores=self.num_cores_or_threads,
            grid_seed=self.random_seed or 0,
            grid_recorder=self.grid_point_recorder,
        )


def _executor(params: Any) -> Executor:
    return executor_of(InterpretParams() if params is None or params is True else params, "pltpu.InterpretParams(...)")


@contextmanager
def force_tpu_interpret_mode(params: Any = None) -> Iterator[None]:
    """Kernels called inside the block run on the simulator with these parameters.

    Raises:
        PalladioTypeError: not an `InterpretParams`.
    """
    with at_call():
        chosen = _executor(params)
    with use(chosen):
        yield


def set_tpu_interpret_mode(params: Any = None) -> None:
    """From now on kernels run on the simulator with these parameters; False ends that.

    Raises:
        PalladioTypeError: not an `InterpretParams`.
    """
    with at_call():
        force(None if params is False else _executor(params))


def reset_tpu_interpret_mode_state() -> None:
    """Do nothing: no state of the simulator outlives a run."""
