"""Errors that are copied, or sent to another process, say what they said."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import palladio as pl


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize(
    "error",
    [
        pl.PalladioValueError("a rule", argument="x", got=3),
        pl.PalladioTypeError("a rule", expected=None, hint="none"),
        pl.ParseError("a rule", got="text"),
        pl.InternalError("what happened"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_copy_of_an_error_says_the_same(error: Exception, copied: Callable[[Any], Any]) -> None:
    other = copied(error)
    assert type(other) is type(error)
    assert str(other) == str(error)
