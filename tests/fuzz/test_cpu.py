"""Random programs compiled for the CPU, against the definition."""

from __future__ import annotations

import warnings

import numpy as np
from hypothesis import given, note, settings
from hypothesis import strategies as st

from palladio.base.errors import NotCompiledWarning
from palladio.ir.core import Program
from palladio.ir.evaluate import evaluate
from palladio.ir.text import print_program
from palladio.types import dtypes
from palladio.types.types import RefType
from tests.fuzz.generator import inputs_of, programs
from tests.one_point import run_on_cpu


@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(0, 2**16))
def test_a_compiled_program_gives_the_same_results(program: Program, seed: int) -> None:
    note(print_program(program))
    expected, found = inputs_of(program, seed), inputs_of(program, seed)
    with np.errstate(all="ignore"):
        wanted = [*evaluate(program, expected)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotCompiledWarning)
        got = run_on_cpu(program, found)
    for value, other, var in zip(expected, found, program.inputs, strict=True):
        if isinstance(var.type, RefType):
            wanted.append(value)
            got.append(other)
    for number, (one, other) in enumerate(zip(got, wanted, strict=True)):
        assert (one.shape, one.dtype) == (np.shape(other), other.dtype)
        if not dtypes.is_float(one.dtype):
            assert np.array_equal(one, other), f"result {number}: {one} and {other}"
            continue
        close = 32 * float(dtypes.finfo(one.dtype).eps)
        wide = one.astype(np.float64), np.asarray(other).astype(np.float64)
        np.testing.assert_allclose(*wide, rtol=close, atol=close, err_msg=f"result {number}")
