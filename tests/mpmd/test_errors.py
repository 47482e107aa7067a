"""What is refused of launches with several meshes, as a user reads it."""

from __future__ import annotations

import numpy as np

import palladio as pl
from tests.mpmd.calls import LEFT, OUT, RIGHT, X, copy, nothing


def test_the_compiled_executor_runs_launches() -> None:
    with pl.executor("cpu"):
        np.testing.assert_array_equal(pl.mpmd_map([(LEFT, copy), (RIGHT, nothing)], OUT)(X), X)
