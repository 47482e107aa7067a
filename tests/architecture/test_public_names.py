"""The public surface: its names are pinned, so that adding or dropping one is a decision seen in a diff."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from tests.architecture.source import modules

SURFACE = (
    "palladio",
    "palladio.gpu",
    "palladio.tpu",
    "palladio.tpu.sparse_core",
    "palladio.numpy",
    "palladio.nn",
    "palladio.lax",
    "palladio.library",
    "palladio.interop",
)
PRESENT = [name for name in SURFACE if name in {module.name for module in modules()}]
GOLDENS = Path(__file__).with_name("public")


@pytest.mark.parametrize("name", PRESENT)
def test_the_public_names_are_the_pinned_ones(name: str, golden: Callable[..., None]) -> None:
    golden("\n".join(sorted(importlib.import_module(name).__all__)), f"public/{name}.txt")


@pytest.mark.parametrize("name", PRESENT)
def test_every_public_name_is_there_once(name: str) -> None:
    module = importlib.import_module(name)
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    assert [each for each in module.__all__ if not _is_there(module, each)] == []


def _is_there(module: ModuleType, name: str) -> bool:
    if module.__name__ == "palladio.interop":  # each of its modules takes seconds to import, and tests/interop does
        return find_spec(f"palladio.interop.{name}") is not None
    return hasattr(module, name)


def test_every_golden_file_belongs_to_a_module() -> None:
    assert sorted(path.stem for path in GOLDENS.glob("*.txt") if path.stem not in PRESENT) == []
