"""What the tests of messages share: the text of an error as a user reads it, and small calls to break."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import palladio as pl

X = np.ones((8, 16), np.float32)
N = np.arange(8, dtype=np.int32)
OUT = pl.ShapeDtypeStruct((8, 16), np.float32)


def shown(error: BaseException) -> str:
    """The rendered text, with the name of a file only and N for the number of a line, which is shown anyway."""
    return re.sub(r"\S*?([\w.]+\.py):\d+", r"\1:N", str(error))


@contextmanager
def shows(kind: type[Exception], text: str) -> Iterator[None]:
    """The block raises a user error that is of this built-in kind too, shows this text, and changes no array."""
    before = X.copy(), N.copy()
    try:
        yield
    except pl.PalladioError as error:
        assert shown(error) == textwrap.dedent(text).strip("\n")
        assert isinstance(error, kind)
    else:
        raise AssertionError(f"no {kind.__name__} was raised")
    finally:
        assert np.array_equal(X, before[0]) and np.array_equal(N, before[1])


def copy(x_ref: Any, o_ref: Any) -> None:
    """A kernel without a fault."""
    o_ref[...] = x_ref[...]
