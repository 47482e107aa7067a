"""Types of the public surface, as a type checker sees them."""

from __future__ import annotations

import ast
import typing
from typing import Any

import palladio.array
from palladio.call.pallas_call import pallas_call
from tests.architecture.source import ROOT


def test_pallas_call_gives_a_call_or_a_decorator() -> None:
    function: Any = pallas_call
    given = [overload.__annotations__["return"] for overload in typing.get_overloads(function.__wrapped__)]
    assert given == ["PallasCall", "Callable[[Callable[..., None]], PallasCall]"]


def test_a_type_checker_sees_every_array_function() -> None:
    tree = ast.parse((ROOT / "palladio/numpy/__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {node.module for node in block.body if isinstance(node, ast.ImportFrom)}
    assert seen == {family.__name__ for family in palladio.array._FAMILIES}
