"""`hopper.softmax` and `hopper.rms_norm` against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.library import hopper
from tests.library.references import BFLOAT16, assert_close, normal

pytestmark = pytest.mark.usefixtures("compiled_quickly")
SHAPES = [(6, 40), (5, 1001), (2, 3, 7), (2, 12288)]


def softmax(x: Any) -> np.ndarray:
    x = np.asarray(x).astype(np.float64)
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def rms_norm(x: Any, weight: Any, epsilon: float = 1e-6) -> np.ndarray:
    x = np.asarray(x).astype(np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * np.asarray(weight).astype(np.float64)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [BFLOAT16, np.float32], ids=str)
def test_any_rows(shape: tuple[int, ...], dtype: Any) -> None:
    x, weight = normal(0, *shape, dtype=dtype), normal(1, shape[-1], dtype=dtype)
    assert_close(hopper.softmax(x), softmax(x))
    assert_close(hopper.rms_norm(x, weight), rms_norm(x, weight))


def test_large_numbers_do_not_overflow() -> None:
    x = normal(0, 3, 10) * 1e4
    assert_close(hopper.softmax(x), softmax(x))


def test_epsilon_is_added_to_the_mean() -> None:
    x = normal(0, 3, 10) * 1e-3
    assert_close(hopper.rms_norm(x, np.ones(10, np.float32), epsilon=0.5), rms_norm(x, np.ones(10), 0.5))


def test_no_rows_give_an_empty_result() -> None:
    assert hopper.softmax(np.zeros((0, 3), np.float32)).shape == (0, 3)


@pytest.mark.one_executor
def test_no_schedule_has_a_finding() -> None:
    x, weight = normal(0, 4, 12), normal(1, 12)
    report = pl.check(lambda x, w: (hopper.softmax(x), hopper.rms_norm(x, w)), x, weight, schedules=4)
    assert report.ok, report.render()


X = normal(0, 2, 3)
REFUSED = {
    "nothing along the last axis": (
        lambda: hopper.softmax(np.zeros((2, 0), np.float32)),
        "x: there is nothing to normalise along the last axis\n"
        "  expected: [..., n] with n at least 1\n  got:      (2, 0)",
    ),
    "a weight of another size": (
        lambda: hopper.rms_norm(X, np.ones(4, np.float32)),
        "weight: there is one weight for each element of a row\n  expected: [3]\n  got:      (4,)",
    ),
    "another dtype": (
        lambda: hopper.softmax(X.astype(np.float64)),
        "x: rows are of floats of 16 or 32 bits\n  expected: float16, bfloat16 or float32\n  got:      float64",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_at_the_line_of_the_call(case: str) -> None:
    call, text = REFUSED[case]
    with pytest.raises(pl.PalladioError) as caught:
        call()
    assert text in str(caught.value)
    assert "hopper." in str(caught.value)


def test_results_in_the_callers_array() -> None:
    x, weight, out = normal(0, 2, 3, 8), normal(1, 8), np.zeros((2, 3, 8), np.float32)
    assert hopper.softmax(x, out=out) is out
    assert_close(out, softmax(x))
    assert hopper.rms_norm(x, weight, out=out) is out
    assert_close(out, rms_norm(x, weight))
