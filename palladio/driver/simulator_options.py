"""Options of the simulator; a separate module, since the simulator is loaded with the first kernel that it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palladio.base.dataclass import dataclass


@dataclass(frozen=True)
class SimulatorOptions:
    """The checks of the simulator, and its schedule.

    Fields:
        races: detect races and uninitialised memory; without it only misused barriers and semaphores and wrong indices
            are findings.
        on_race: "raise" the first finding, or "warn" of each.
        out_of_bounds: "raise", or "uninitialized" for out-of-bounds reads that give uninitialised values.
        uninitialized_reads: report reads of uninitialised memory.
        zeros: uninitialised memory holds zeros.
        ignore: codes of findings that are not reported.
        schedule: the name of a schedule, as in findings.
        strict: codes of findings whose hints are errors.
        skip_floats: arithmetic of floats in kernels is skipped and gives infinities.
        cores: the number of cores that share the parallel axes of grids, in which case all grids run on the machine; 0
            for the definition's order, in which only kernels that start copies do.
        grid_seed: seed for the order of the indices along parallel axes, on cores.
        grid_recorder: called at each point of a grid on cores, with a token, the point, and the core.
    """

    races: bool = True
    on_race: str = "raise"
    out_of_bounds: str = "raise"
    uninitialized_reads: bool = True
    zeros: bool = False
    ignore: frozenset[str] = frozenset()
    schedule: str = "round_robin"
    strict: frozenset[str] = frozenset()
    skip_floats: bool = False
    cores: int = 0
    grid_seed: int = 0
    grid_recorder: Callable[..., Any] | None = None
