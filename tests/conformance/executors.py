"""Who takes part. A new executor joins with one line of `EXECUTORS`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from palladio.types import dtypes


@dataclass(frozen=True)
class Entry:
    """An executor in the suite.

    Fields:
        name: as `pallas_call(interpret=name)` takes it.
        dtypes: what its kernels may compute with. Rows of other dtypes are not run on it.
        refused: row (or family) name -> why it leaves that out. It must then raise PalladioNotImplementedError.
    """

    name: str
    dtypes: tuple[np.dtype, ...] = dtypes.ALL
    refused: dict[str, str] = field(default_factory=dict)


EXECUTORS = (Entry("reference"),)
