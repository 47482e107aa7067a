"""Races between the cores that share a grid: JAX's TPU interpreter and ours find the same kernels racy."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.tpu as pltpu
from tests.compare.sides import KERNELS, load

RACY = [
    line[4:].partition("(")[0] for line in (KERNELS / "cores.py").read_text("utf-8").split("\n") if "def racy_" in line
]


def found_by_jax(name: str, cores: int) -> bool:
    """True if JAX's interpreter reports a race."""
    jax = importlib.import_module("jax")
    theirs = importlib.import_module("jax.experimental.pallas.tpu")
    interpreter = importlib.import_module("jax._src.pallas.mosaic.interpret.interpret_pallas_call")
    jax.config.update("jax_platforms", "cpu")
    with jax.enable_x64(False):
        jax.block_until_ready(
            load("cores", False)[name](theirs.InterpretParams(num_cores_or_threads=cores, detect_races=True))
        )
    return bool(interpreter.races.races_found)


def found_here(name: str, cores: int) -> bool:
    try:
        load("cores", True)[name](pltpu.InterpretParams(num_cores_or_threads=cores, detect_races=True))
    except pl.PalladioError as error:
        assert str(error).startswith("global-race")
        return True
    return False


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("name", RACY)
def test_both_interpreters_find_the_same_races(name: str, cores: int) -> None:
    assert found_here(name, cores) == found_by_jax(name, cores) == (cores == 2)


@pytest.mark.parametrize("name", RACY)
def test_only_a_check_for_races_reports_them(name: str) -> None:
    result: Any = load("cores", True)[name](pltpu.InterpretParams(num_cores_or_threads=2))
    assert np.shape(result) == (2, 8, 128)
