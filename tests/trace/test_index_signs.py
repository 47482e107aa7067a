"""Traced indices count from the end where they are negative, unless they cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio.ops.arrays.compare import select

INDICES: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "any": (lambda i: i, True),
    "the greater of it and 0": (lambda i: jnp.maximum(i, 0), False),
    "the greater of it and a negative number": (lambda i: jnp.maximum(i, -2), True),
    "between 0 and 2": (lambda i: jnp.clip(i, 0, 2), False),
    "the lesser of it and 2": (lambda i: jnp.minimum(i, 2), True),
    "one more than the greater": (lambda i: jnp.maximum(i, 0) + 1, False),
}


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("given", [-1, 0, 1])
def test_only_an_index_that_may_be_negative_is_counted_from_the_end(name: str, given: int) -> None:
    function, corrected = INDICES[name]

    def kernel(index: Any, out: Any) -> None:
        out[...] = jnp.zeros_like(out)
        out[function(index[0])] = np.int32(7)

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((4,), np.int32))
    index = np.array([given], np.int32)
    assert any(eqn.op is select for eqn in call.program(index).eqns) == corrected
    expected = np.zeros(4, np.int32)
    expected[int(function(given))] = 7
    np.testing.assert_array_equal(call(index), expected)
