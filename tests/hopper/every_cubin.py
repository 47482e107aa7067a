"""The kernel of every conformance row, for every dtype, compiles under NVRTC: `make cubins` runs this, some minutes.

The rows of `tests/conformance` run on the host twin, which is compiled by another compiler, in one dtype. A row that is
refused has its reason in `tests/conformance/executors.py`.
"""

from __future__ import annotations

import numpy as np
import pytest

from palladio.base.errors import PalladioNotImplementedError, PalladioValueError
from palladio.driver.compile import PIPELINES
from palladio.hopper.compile import compiled
from palladio.hopper.kernels import lowered
from palladio.ops.kernel_calls import is_kernel_call
from palladio.passes import run_passes
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types import dtypes
from palladio.types.types import ArrayType
from tests.conformance.rows import Row
from tests.conformance.test_conformance import ROWS

EACH = [pytest.param(row, dtype, id=f"{row.title}-{dtypes.short_name(dtype)}") for row in ROWS for dtype in row.dtypes]


@pytest.mark.parametrize(("row", "dtype"), EACH)
def test_a_kernel_compiles_or_is_refused(row: Row, dtype: np.dtype) -> None:
    case = row.case(dtype)
    types = [ArrayType(array.shape, array.dtype) for array in case.inputs]
    program = run_passes(stage(case.call("reference"), types, wrap, name="case").program, PIPELINES["hopper-twin"])
    for eqn in filter(is_kernel_call, program.eqns):
        try:
            kernel = lowered(eqn)
        except (PalladioNotImplementedError, PalladioValueError) as refusal:
            pytest.xfail(f"refused: {refusal.rule}")
        assert compiled(kernel).warnings == ()
