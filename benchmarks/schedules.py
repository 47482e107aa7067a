"""A large product under many schedules: `time palladio check benchmarks/schedules.py::gmm --jobs 2`."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import inputs
from palladio.library import hopper

GROUPS, ROWS, SIZE = 64, 4096, 512


LHS, RHS = (array.astype(np.float16) for array in inputs.normal((ROWS, SIZE), (GROUPS, SIZE, SIZE)))


def gmm() -> Any:
    """float16[4096, 512] by 64 groups of float16[512, 512]."""
    return hopper.gmm(LHS, RHS, np.full(GROUPS, ROWS // GROUPS, np.int32))
