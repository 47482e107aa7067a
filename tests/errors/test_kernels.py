"""What goes wrong inside a kernel: reads and writes of references, traced values where Python wants its own."""

from __future__ import annotations

import math
from typing import Any

import palladio as pl
from tests.errors.shown import OUT, X


def test_a_mistake_of_pythons_own_in_a_kernel_stays_what_it_is() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        math.sqrt(1, 2)  # type: ignore[call-arg]

    try:
        pl.pallas_call(kernel, OUT)(X)
    except TypeError as error:
        assert not isinstance(error, pl.PalladioError)
