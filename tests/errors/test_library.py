"""Errors in a library kernel's own equations show both lines, the library's and its caller's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.library import make_group_metadata
from tests.errors.shown import shown

SIZES = np.array([5, 3], np.int32)


def test_an_error_inside_a_library_kernel_shows_its_line_and_the_callers() -> None:
    def library_call(x: Any) -> Any:
        return make_group_metadata(group_sizes=x, m=8, tm=4, start_group=np.arange(5))

    with pytest.raises(pl.PalladioValueError) as caught:
        pl.jit(library_call)(SIZES)
    assert "grouped.py:N, in make_group_metadata" in shown(caught.value)
    assert shown(caught.value).endswith(
        "  called from\n"
        "  test_library.py:N, in library_call\n"
        "    return make_group_metadata(group_sizes=x, m=8, tm=4, start_group=np.arange(5))\n"
        "           " + "^" * 71
    )
