"""Meshes and small programs for the tests of launches with several meshes."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu

LEFT = pl.CoreMesh("left", 1)
RIGHT = pl.CoreMesh("right", 2)
X = np.arange(8, dtype=np.float32).reshape(2, 4)
OUT = pl.ShapeDtypeStruct((2, 4), np.float32)
BLOCKS = plgpu.Mesh(grid=(2,), grid_names=("x",))


def nothing(*refs: Any, **scratch: Any) -> None:
    """A program that does nothing."""


def copy(x_ref: Any, o_ref: Any) -> None:
    """A program that copies."""
    o_ref[...] = x_ref[...]


__all__ = ["BLOCKS", "LEFT", "OUT", "RIGHT", "X", "copy", "nothing"]
