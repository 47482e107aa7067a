"""Helpers for the tests of products on tile registers."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio.numpy as jnp
from palladio.call import staged
from palladio.cpu import engine
from palladio.cpu.launches import engine as launch_engine
from palladio.cpu.runtime import host
from palladio.cpu.runtime.host import Processor
from palladio.cpu.runtime.machine_code import MachineCode
from palladio.driver.cache import PreparedCache
from palladio.library.staging import forget_calls
from tests.cpu.tile_model import TileRegisters

Array = Any
BFLOAT16, FLOAT32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)

NATIVE = ["native"] if host.current().multiplies_tiles else []
"""The ways to run a test besides on the model of the tile registers."""

SAPPHIRE = Processor.of("x86_64-unknown-linux-gnu", "sapphirerapids", "", host._X86["amx"][2])
"""A processor with tile registers."""


class Texts(list[str]):
    """The LLVM text of each kernel that a test compiles."""


def compiled_by(monkeypatch: pytest.MonkeyPatch, registers: TileRegisters | None) -> Texts:
    """Compile every kernel anew, for a model of the tile registers if one is given."""
    texts = Texts()

    class Noted(MachineCode):
        def __init__(self, text: str, *others: Any, **named: Any) -> None:
            texts.append(text)
            super().__init__(registers.modelled(text) if registers else text, *others, **named)

    monkeypatch.setattr(staged, "CALLS", PreparedCache())
    forget_calls()
    for each in (engine, launch_engine):
        monkeypatch.setattr(each, "MachineCode", Noted)
    return texts


def on_tiles(texts: Texts) -> set[str]:
    """The instructions that multiply tiles in what was compiled."""
    return set(re.findall(r"@llvm\.x86\.(tdp\w+)\(i8 \d", "\n".join(texts)))


def dot(x_turned: bool, y_turned: bool, sums: np.dtype, adds: bool = False) -> Any:
    """A kernel that multiplies two matrices, each of them given transposed if it is turned."""

    def kernel(x: Any, y: Any, *refs: Any) -> None:
        *begin, out = refs
        left, right = x[...].T if x_turned else x[...], y[...].T if y_turned else y[...]
        found = jnp.dot(left, right, preferred_element_type=sums)
        out[...] = begin[0][...] + found if adds else found

    return kernel


def turned(x: Array, flip: bool) -> Array:
    return np.ascontiguousarray(x.T) if flip else x


def poison(x: Array) -> Array:
    """An array of the same form that leaves values in memory which no later call may see."""
    return np.full_like(x, 77 if x.dtype.kind in "iu" else np.nan)


def grouped(x: Array, matrices: Array, sizes: list[int]) -> Array:
    """Each row times the matrix of its group, in float64; rows of no group are zero."""
    out, start = np.zeros((len(x), matrices.shape[2])), 0
    for matrix, size in zip(matrices, sizes, strict=True):
        out[start : start + size] = x[start : start + size].astype(np.float64) @ matrix.astype(np.float64)
        start += size
    return out


def some_sizes(seed: int, most: int) -> list[int]:
    """Numbers of rows of groups; some are empty."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, most + 1, 7)
    sizes[rng.integers(0, 7, 2)] = 0
    return [int(size) for size in sizes]


class Lowered(Exception):
    """Ends a call where machine code would be made."""
