"""What the CPU executor does with a kernel that it does not compile."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.base.errors import NotCompiledWarning
from palladio.cpu.rule_table import REFUSED

PARALLEL = pltpu.CompilerParams(dimension_semantics=("parallel",))


@pytest.fixture(autouse=True)
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything has a rule; here, one operation has none."""
    monkeypatch.setitem(REFUSED, "sort", "it is left out of this test")


def turned(x: Any, out: Any) -> None:
    out[...] = x[...] + 1
    out[0] = jnp.sort(x[0])  # refused


def call(x: Any) -> Any:
    out = pl.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(turned, out, grid=(1,), compiler_params=PARALLEL, interpret="cpu")(x)


def test_a_kernel_that_is_not_compiled_runs_on_the_evaluator_after_a_warning_that_says_why() -> None:
    x = np.arange(8, dtype=np.uint32).reshape(2, 4)
    with pytest.warns(NotCompiledWarning) as warned:
        result = call(x)
    np.testing.assert_array_equal(result, [[0, 1, 2, 3], [5, 6, 7, 8]])
    lines = str(warned[0].message).splitlines()
    assert (
        lines[0]
        == "the kernel turned runs on the evaluator: sort is not compiled for the CPU: it is left out of this test"
    )
    assert lines[-2].strip() == "out[0] = jnp.sort(x[0])  # refused"
    assert lines[-1].strip() == "^" * len("jnp.sort(x[0])")


def test_the_warning_is_given_once_however_often_and_for_whatever_arrays_the_kernel_is_called() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        for rows in (2, 2, 4, 6, 4):
            call(np.zeros((rows, 4), np.uint32))
    assert [each.category for each in warned] == [NotCompiledWarning]


def test_an_inner_kernel_call_of_no_steps_is_told_as_the_evaluator_tells_it() -> None:
    def fills(out: Any) -> None:
        out[...] = jnp.zeros(out.shape, np.int32)

    def kernel(count: Any, out: Any) -> None:
        inner = pl.pallas_call(fills, pl.ShapeDtypeStruct((4,), np.int32), grid=(count[0],))
        out[...] = inner()

    whole = pl.pallas_call(kernel, pl.ShapeDtypeStruct((4,), np.int32), interpret="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotCompiledWarning)
        for _ in range(3):  # later calls take a shorter way
            np.testing.assert_array_equal(whole(np.array([2], np.int32)), np.zeros(4))
            with pytest.raises(ValueError, match="a grid size is at least 1"):
                whole(np.array([0], np.int32))


def test_the_warning_is_shown_at_the_line_that_is_not_compiled() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        call(np.zeros((8, 4), np.uint32))
    lines, first = inspect.getsourcelines(turned)
    assert warned[0].filename == __file__
    assert "# refused" in lines[warned[0].lineno - first]
