"""Fixtures for the tests of repeated calls."""

import importlib
from typing import Any

import pytest

from palladio.library import grouped_matmul


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
