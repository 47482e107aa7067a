"""The names of palladio.tpu: those that are refused say so, and nothing else is missing without a word."""

from __future__ import annotations

import pytest

import palladio as pl
import palladio.tpu as pltpu
from palladio.call.tpu.refused import REFUSED
from tests.errors.shown import shows


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_bound_to_the_hardware_is_refused_by_name(name: str) -> None:
    with pytest.raises(pl.PalladioNotImplementedError, match=rf"^pltpu\.{name} "):
        getattr(pltpu, name)()


def test_a_refused_name_says_what_to_use_instead() -> None:
    with shows(
        NotImplementedError,
        """
        pltpu.matmul_pop drives the matrix unit of a TPU, which no executor of Palladio has
          hint:     write the product: jnp.dot(a, b)
          test_names.py:N, in test_a_refused_name_says_what_to_use_instead
            pltpu.matmul_pop()
            ^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.matmul_pop()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"palladio\.tpu has no 'tensor'"):
        assert pltpu.tensor
