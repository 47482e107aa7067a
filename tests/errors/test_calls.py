"""Arguments of `pallas_call`: grids, specifications, aliases, outputs, executors."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.base import knobs
from palladio.driver.executors import EXECUTORS
from tests.errors.shown import OUT, X, copy, shows

NAMES = ", ".join(EXECUTORS)


def three(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    """A kernel of two inputs."""


def test_a_grid_size_beyond_the_indices() -> None:
    with shows(
        ValueError,
        """
        grid[0]: a grid index is an int32
          got:      2147483648
          test_calls.py:N, in test_a_grid_size_beyond_the_indices
            pl.pallas_call(copy, OUT, grid=2**31)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=2**31)(X)
    with pytest.raises(pl.PalladioValueError, match="a grid index is an int32"):
        pl.pallas_call(copy, OUT, grid=(np.asarray(2**32 + 5),))(X)


@pytest.mark.parametrize("padding", [(1, 2, 3), (1,), (1.5, 2), "ab"])
def test_a_padding_that_is_not_two_sizes(padding: Any) -> None:
    with pytest.raises(pl.PalladioValueError, match="the padding of an Element is two sizes"):
        pl.BlockSpec((pl.Element(2, padding),))


# Executors.


def test_an_executor_that_there_is_not() -> None:
    with shows(
        ValueError,
        f"""
        interpret: no executor has this name
          expected: {NAMES}
          got:      'abacus'
          test_calls.py:N, in test_an_executor_that_there_is_not
            pl.pallas_call(copy, OUT, interpret="abacus")(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, interpret="abacus")(X)


def test_a_context_of_an_executor_that_there_is_not() -> None:
    with shows(
        ValueError,
        f"""
        name: no executor has this name
          expected: {NAMES}
          got:      'abacus'
          test_calls.py:N, in test_a_context_of_an_executor_that_there_is_not
            with pl.executor("abacus"):
                 ^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        with pl.executor("abacus"):
            pass


def test_a_misspelt_executor() -> None:
    with shows(
        ValueError,
        f"""
        interpret: no executor has this name
          expected: {NAMES}
          got:      'cpuu'
          hint:     did you mean cpu?
          test_calls.py:N, in test_a_misspelt_executor
            pl.pallas_call(copy, OUT, interpret="cpuu")(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, interpret="cpuu")(X)


def test_an_environment_that_names_no_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_EXECUTOR", "abacus")
    with shows(
        ValueError,
        f"""
        PALLADIO_EXECUTOR: no executor has this name
          expected: {NAMES}
          got:      'abacus'
          test_calls.py:N, in test_an_environment_that_names_no_executor
            pl.pallas_call(copy, OUT)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)(X)


def test_an_environment_variable_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_DEBUG_CHECKS", "perhaps")
    with shows(
        ValueError,
        """
        PALLADIO_DEBUG_CHECKS: the environment variable cannot be read
          expected: 1 or 0
          got:      'perhaps'
          test_calls.py:N, in test_an_environment_variable_that_cannot_be_read
            pl.pallas_call(copy, OUT)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)(X)


@pytest.mark.parametrize("text", ["two", "-1", "1.5"])
def test_a_number_of_threads_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_NUM_THREADS", text)
    with shows(
        ValueError,
        f"""
        PALLADIO_NUM_THREADS: the environment variable cannot be read
          expected: a number of threads, or 0 for all cores
          got:      '{text}'
          test_calls.py:N, in test_a_number_of_threads_that_is_none
            knobs.thread_count()
            ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        knobs.thread_count()


def test_a_number_of_mebibytes_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_KEPT_MEMORY", "1 GiB")
    with shows(
        ValueError,
        """
        PALLADIO_KEPT_MEMORY: the environment variable cannot be read
          expected: a number of MiB
          got:      '1 GiB'
          test_calls.py:N, in test_a_number_of_mebibytes_that_is_none
            knobs.kept_memory.get()
            ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        knobs.kept_memory.get()


@pytest.mark.parametrize(
    ("module", "mistake", "meant"),
    [
        ("palladio", "BlokSpec", "BlockSpec"),
        ("palladio.tpu", "InterpretParam", "InterpretParams"),
        ("palladio.gpu", "wgma", "wgmma"),
        ("palladio.numpy", "arrange", "arange"),
        ("palladio.library", "softmx", "softmax"),
    ],
)
def test_python_suggests_the_name_that_was_meant(module: str, mistake: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=mistake) as raised:
        getattr(import_module(module), mistake)
    # What the interpreter looks for names in when it prints the error.
    assert raised.value.name == mistake and meant in dir(raised.value.obj)
