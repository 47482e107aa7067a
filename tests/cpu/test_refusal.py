"""What the CPU executor does with a kernel that it does not compile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.tpu as pltpu
from palladio.base.errors import NotCompiledWarning


def test_a_kernel_that_is_not_compiled_runs_on_the_evaluator_after_a_warning_that_says_why() -> None:
    def halves(x: Any, out: Any) -> None:
        out[...] = pltpu.bitcast(x, np.int16)[...]  # refused

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    call = pl.pallas_call(halves, pl.ShapeDtypeStruct((4, 4), np.int16), interpret="cpu")
    with pytest.warns(NotCompiledWarning) as warned:
        result = call(x)
    np.testing.assert_array_equal(result[1::2], x.view(np.int16)[:, 1::2])
    lines = str(warned[0].message).splitlines()
    reason = "a bitcast that changes the width, together with an index by an array or mask, is not compiled"
    assert lines[0] == f"the kernel halves runs on the evaluator: {reason}"
    assert lines[-2].strip() == "out[...] = pltpu.bitcast(x, np.int16)[...]  # refused"
