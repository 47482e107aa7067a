"""Who takes part. A new executor joins with one line of `EXECUTORS`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np

from palladio.base.errors import PalladioNotImplementedError
from palladio.cpu.executor import NotCompiledWarning
from palladio.hopper.twin.executor import each_launch
from palladio.hopper.twin.run import SCHEDULES, Schedule, run
from palladio.types import dtypes


@dataclass(frozen=True)
class Entry:
    """An executor in the suite.

    Fields:
        name: as `pallas_call(interpret=name)` takes it.
        dtypes: what its kernels may compute with. Rows of other dtypes are not run on it.
        all_dtypes: the families whose rows are run all the same.
        refused: what it leaves out -> the reason that the user reads. A family, a row `family.name`, or a row for one
            dtype, `family.name-f16`. What it refuses it must refuse: a row that works by now is a failure.
        refusal: how it says so.
        ways: contexts, in each of which every row runs.
    """

    name: str
    dtypes: tuple[np.dtype, ...] = dtypes.ALL
    all_dtypes: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    refusal: type[BaseException] = PalladioNotImplementedError
    ways: tuple[Callable[[], AbstractContextManager[None]], ...] = (nullcontext,)

    def reason(self, title: str, dtype: np.dtype) -> str | None:
        """Why it leaves a row out for a dtype; None if it does not."""
        names = (f"{title}-{dtypes.short_name(dtype)}", title, title.partition(".")[0])
        return next((self.refused[name] for name in names if name in self.refused), None)


CPU = Entry("cpu", refusal=NotCompiledWarning)


def _scheduled(schedule: Schedule) -> Callable[[], AbstractContextManager[None]]:
    return lambda: each_launch(lambda lowered, operands: run(lowered, operands, schedule))


HOPPER_TWIN = Entry(
    "hopper-twin",
    ways=tuple(map(_scheduled, SCHEDULES)),  # copies and products complete late, early, and twice at random
    dtypes=(dtypes.FLOAT32,),  # each row is compiled by a compiler for C++: one dtype in this suite
    all_dtypes=("tensor_cores",),
    refused={
        **dict.fromkeys(
            ("concurrent.from_memory_to_a_core_and_back", "concurrent.from_core_to_core"),
            "a mesh of cores is not compiled for Hopper",
        ),
        "concurrent.a_cluster_known_at_the_call": "the size of a cluster or block is compiled into a kernel for Hopper",
        "grid.a_kernel_call_inside_a_kernel": "grid_call is not compiled for Hopper: call kernels one after the other",
    },
)

EXECUTORS = (Entry("reference"), Entry("simulator"), CPU, HOPPER_TWIN)
