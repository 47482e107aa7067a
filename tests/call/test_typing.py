"""Types of the public surface, as a type checker sees them."""

from __future__ import annotations

import ast
import typing
from typing import Any

import numpy as np

import palladio.array
import palladio.numpy as jnp
from palladio.array.protocol import Array
from palladio.call.pallas_call import pallas_call
from palladio.trace.values import Value
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


def test_array_functions_return_arrays() -> None:
    for function in (jnp.exp, jnp.sum, jnp.where, jnp.matmul, jnp.concatenate):
        assert typing.get_type_hints(function)["return"] is Array


def test_both_kinds_of_arrays_have_what_the_type_says() -> None:
    methods = {name for name, value in vars(Array).items() if callable(value) or isinstance(value, property)}
    methods -= {"__init__", "__subclasshook__", "__getattr__", "__index__"}
    for kind in (Value, np.ndarray):
        assert not [name for name in methods if not hasattr(kind, name)]
