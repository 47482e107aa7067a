"""Scopes inside of scopes: how deep they may go, and what is said where Python's stack ends."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import palladio as pl

X = np.ones(4, np.float32)


def nested(depth: int) -> Any:
    """A call of a kernel that copies inside `depth` conditions and loops, in turns."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        def inside(left: int) -> None:
            if not left:
                o_ref[...] = x_ref[...]
            elif left % 2:
                pl.when(x_ref[0] > 0)(lambda: inside(left - 1))
            else:
                pl.loop(0, 1)(lambda _: inside(left - 1))

        inside(depth)

    return pl.pallas_call(kernel, pl.ShapeDtypeStruct((4,), np.float32))


@pytest.mark.parametrize("executor", ["reference", "cpu"])
def test_scopes_may_be_nested_as_deep_as_anyone_writes_them(executor: str) -> None:
    with pl.executor(executor):
        assert np.array_equal(nested(40)(X), X)


def test_scopes_beyond_the_stack_are_a_user_error_at_a_line_of_the_kernel() -> None:
    with pytest.raises(pl.PalladioValueError, match="Python's stack is full while kernel is traced") as caught:
        nested(sys.getrecursionlimit())(X)
    assert "test_nesting.py" in str(caught.value) and "sys.setrecursionlimit" in str(caught.value)


def test_a_larger_stack_takes_more_of_them() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5 * limit)
    try:
        with pl.executor("reference"):
            assert np.array_equal(nested(120)(X), X)
    finally:
        sys.setrecursionlimit(limit)
