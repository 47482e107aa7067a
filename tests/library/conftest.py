"""Fixtures for the tests of repeated calls, and for code that runs once."""

import importlib
from typing import Any

import pytest

from palladio.cpu.runtime import machine_code
from palladio.library import grouped_matmul

LEVEL = machine_code._LEVEL


@pytest.fixture
def compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that run once are compiled without LLVM's optimisations, which take more than half of the time."""
    monkeypatch.setattr(machine_code, "_LEVEL", 0)


@pytest.fixture
def optimised(compiled_quickly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of this test of such a file are compiled as for users."""
    monkeypatch.setattr(machine_code, "_LEVEL", LEVEL)


@pytest.fixture
def longer(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of each call of `matmul` or `gmm` that was looked up after checks."""
    found: list[Any] = []
    for module in (importlib.import_module("palladio.library.matmul"), grouped_matmul):

        def look_up(*args: Any, find: Any = module.call_key, **more: Any) -> Any:
            found.append(args)
            return find(*args, **more)

        monkeypatch.setattr(module, "call_key", look_up)
    return found
