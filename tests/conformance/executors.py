"""Who takes part. A new executor joins with one line of `EXECUTORS`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from palladio.base.errors import PalladioNotImplementedError
from palladio.cpu.executor import NotCompiledWarning
from palladio.types import dtypes


@dataclass(frozen=True)
class Entry:
    """An executor in the suite.

    Fields:
        name: as `pallas_call(interpret=name)` takes it.
        dtypes: what its kernels may compute with. Rows of other dtypes are not run on it.
        refused: what it leaves out -> the reason that the user reads. A family, a row `family.name`, or a row for one
            dtype, `family.name-f16`. What it refuses it must refuse: a row that works by now is a failure.
        refusal: how it says so.
    """

    name: str
    dtypes: tuple[np.dtype, ...] = dtypes.ALL
    refused: dict[str, str] = field(default_factory=dict)
    refusal: type[BaseException] = PalladioNotImplementedError

    def reason(self, title: str, dtype: np.dtype) -> str | None:
        """Why it leaves a row out for a dtype; None if it does not."""
        names = (f"{title}-{dtypes.short_name(dtype)}", title, title.partition(".")[0])
        return next((self.refused[name] for name in names if name in self.refused), None)


CPU = Entry("cpu", refusal=NotCompiledWarning)

EXECUTORS = (Entry("reference"), Entry("simulator"), CPU)
