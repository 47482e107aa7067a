"""What the CPU executor does with a kernel that it does not compile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio import lax
from palladio.cpu.executor import NotCompiledWarning


def test_a_kernel_that_is_not_compiled_runs_on_the_evaluator_after_a_warning_that_says_why() -> None:
    def reverse(x: Any, out: Any) -> None:
        halves = lax.bitcast_convert_type(x[...], np.int16)  # refused
        out[...] = lax.bitcast_convert_type(halves, np.float32)[::-1]

    call = pl.pallas_call(reverse, pl.ShapeDtypeStruct((4,), np.float32), interpret="cpu")
    with pytest.warns(NotCompiledWarning) as warned:
        result = call(np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(result, [3, 2, 1, 0])
    lines = str(warned[0].message).splitlines()
    assert (
        lines[0]
        == "the kernel reverse runs on the evaluator: a bitcast that changes the width is not compiled for the CPU"
    )
    assert lines[-2].strip() == "halves = lax.bitcast_convert_type(x[...], np.int16)  # refused"
