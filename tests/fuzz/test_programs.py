"""Random programs: their text reads back, they verify, and every pass keeps their results, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from palladio.ir.core import Program
from palladio.ir.evaluate import evaluate
from palladio.ir.text import print_program
from palladio.ir.verify import verify
from palladio.lower import LOWERINGS
from palladio.passes import ALL_PASSES, Pass, discharge, run_passes
from palladio.types import dtypes
from palladio.types.types import RefType
from tests.fuzz.generator import inputs_of, programs
from tests.round_trip import check_round_trip

seeds = st.integers(0, 2**16)
KEEPING = [each for each in ALL_PASSES if each is not discharge]


def results(program: Program, seed: int) -> list[Any]:
    """The outputs of a program and after them what its references hold in the end."""
    values = inputs_of(program, seed)
    with np.errstate(all="ignore"):
        outputs = list(evaluate(program, values))
    refs = [value for value, var in zip(values, program.inputs, strict=True) if isinstance(var.type, RefType)]
    return [np.array(value) for value in (*outputs, *refs)]


def same_bits(got: Sequence[Any], expected: Sequence[Any]) -> None:
    assert [value.dtype for value in got] == [value.dtype for value in expected]
    assert [value.shape for value in got] == [value.shape for value in expected]
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        assert _without_nan(one).tobytes() == _without_nan(other).tobytes(), f"result {number}: {one} and {other}"


def _without_nan(array: Any) -> Any:
    """The array with every NaN of the same bits."""
    return np.where(np.isnan(array), array.dtype.type(np.nan), array) if dtypes.is_float(array.dtype) else array


@settings(max_examples=150)
@given(programs(), seeds)
def test_text_reads_back_as_the_same_program(program: Program, seed: int) -> None:
    note(print_program(program))
    verify(program)
    again = check_round_trip(program)
    same_bits(results(again, seed), results(program, seed))


@settings(max_examples=150)
@given(programs(), seeds)
def test_a_discharged_program_gives_the_same_results(program: Program, seed: int) -> None:
    note(print_program(program))
    discharged = run_passes(program, [discharge])
    note(print_program(discharged))
    same_bits(results(discharged, seed), results(program, seed))


@pytest.mark.parametrize("each", KEEPING, ids=lambda each: each.name)
@settings(max_examples=100)
@given(programs(), seeds)
def test_a_pass_keeps_the_results(each: Pass, program: Program, seed: int) -> None:
    note(print_program(program))
    changed = run_passes(program, [each])
    note(print_program(changed))
    same_bits(results(changed, seed), results(program, seed))


@settings(max_examples=150)
@given(programs(), seeds)
def test_all_passes_in_order_keep_the_results(program: Program, seed: int) -> None:
    note(print_program(program))
    changed = run_passes(program, [*ALL_PASSES, *LOWERINGS], verify_each=True)
    note(print_program(changed))
    check_round_trip(changed)
    same_bits(results(changed, seed), results(program, seed))
