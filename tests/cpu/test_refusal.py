"""What the CPU executor does with a kernel that it does not compile."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.cpu.executor import NotCompiledWarning

REASON = "an atomic operation behind a bitcast that changes the width is not compiled for the CPU"
PARALLEL = pltpu.CompilerParams(dimension_semantics=("parallel",))


def halves(x: Any, out: Any) -> None:
    out[...] = x[...]
    plgpu.atomic_add(pltpu.bitcast(out, np.uint16), (pl.ds(0, 4), pl.ds(0, 4)), jnp.ones((4, 4), np.uint16))  # refused


def call(x: Any) -> Any:
    out = pl.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(halves, out, grid=(1,), compiler_params=PARALLEL, interpret="cpu")(x)


def test_a_kernel_that_is_not_compiled_runs_on_the_evaluator_after_a_warning_that_says_why() -> None:
    x = np.arange(8, dtype=np.uint32).reshape(2, 4)
    with pytest.warns(NotCompiledWarning) as warned:
        result = call(x)
    np.testing.assert_array_equal(result, x + 0x10001)
    lines = str(warned[0].message).splitlines()
    assert lines[0] == f"the kernel halves runs on the evaluator: {REASON}"
    assert lines[-2].strip().startswith("plgpu.atomic_add(pltpu.bitcast(out, np.uint16)")
    assert lines[-1].strip().startswith("^^^")


def test_the_warning_is_given_once_however_often_and_for_whatever_arrays_the_kernel_is_called() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        for rows in (2, 2, 4, 6, 4):
            call(np.zeros((rows, 4), np.uint32))
    assert [each.category for each in warned] == [NotCompiledWarning]
