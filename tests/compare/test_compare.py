"""Kernels written for Pallas give the same results here as in JAX's interpret mode; only their import lines change."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compare.sides import (
    KERNELS,
    Case,
    ImportLineError,
    Outcome,
    cases,
    differences,
    run_jax,
    run_ours,
    swap_imports,
)

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_result_as_in_jax(case: Case) -> None:
    theirs = run_jax(case)
    assert differences(run_ours(case), theirs) == []


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 60


def test_case_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.py")), ids=lambda path: path.stem)
def test_swapping_imports_leaves_no_jax_and_keeps_every_line(path) -> None:
    text = path.read_text(encoding="utf-8")
    swapped = swap_imports(text, path.name)
    assert "jax" not in "".join(line for line in swapped.split("\n") if line.startswith(("import ", "from ")))
    assert len(swapped.split("\n")) == len(text.split("\n"))


@pytest.mark.parametrize(
    "line", ["import jax", "from jax import nn", "from jax.experimental import pallas", "import jax as j"]
)
def test_an_import_of_jax_outside_the_table_is_refused(line: str) -> None:
    with pytest.raises(ImportLineError, match="line 2"):
        swap_imports(f"import numpy as np\n{line}\n", "example.py")


def test_an_import_inside_a_function_is_seen() -> None:
    with pytest.raises(ImportLineError):
        swap_imports("def f():\n    import jax\n", "example.py")


def outcome(*arrays: np.ndarray, printed: str = "") -> Outcome:
    return Outcome(tuple((f"result[{index}]", array) for index, array in enumerate(arrays)), printed)


ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        (outcome(ONES), outcome(ONES[:1]), "float32[2, 3], expected float32[1, 3]"),
        (outcome(ONES), outcome(ONES.astype(np.float16)), "expected float16"),
        (outcome(ONES), outcome(ONES, ONES), "the results are result[0], expected result[0], result[1]"),
        (outcome(np.arange(3)), outcome(np.array([0, 1, 3])), "values differ in 1 of 3; at [2] 2, expected 3"),
        (outcome(ONES), outcome(ONES * np.float32(1.001)), "over 5e-06"),
        (
            outcome(ONES),
            outcome(np.where(np.eye(2, 3, dtype=bool), np.float32(np.nan), ONES)),
            "NaN or infinity differ in 2",
        ),
        (outcome(np.float32([np.inf])), outcome(np.float32([-np.inf])), "NaN or infinity differ"),
        (outcome(np.float32([1])), outcome(np.float32([0])), "relative error inf"),
        (outcome(np.array(["int8"])), outcome(np.array(["int32"])), "int8 for int32"),
        (outcome(ONES, printed="1\n"), outcome(ONES, printed="2\n"), "printed '1\\n', expected '2\\n'"),
    ],
)
def test_a_difference_is_found_and_named(ours: Outcome, theirs: Outcome, reason: str) -> None:
    assert reason in "\n".join(differences(ours, theirs))


def test_one_wrong_small_value_among_many_is_found() -> None:
    expected = np.ones(10**6, np.float32)
    got = expected.copy()
    got[5] += np.float32(1e-3)
    assert "single values differ in 1" in differences(outcome(got), outcome(expected))[0]


def test_equal_outcomes_have_no_difference() -> None:
    values = np.float32([1, np.nan, np.inf, -np.inf, 0])
    assert differences(outcome(values, np.arange(3)), outcome(values * np.float32(1 + 1e-6), np.arange(3))) == []
