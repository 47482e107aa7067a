"""Plain technical prose: what a docstring does not open with, and turns of phrase that an engineer would not use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.source import Module, modules, nodes

RELATIVE = re.compile(r"(What|Whether|How|Where|Whose)\b")
IS_NO = re.compile(
    r"(?<![Tt]here )\b(?:is|was) no (?!longer|more|other|such|way|need|use)|(?<![Tt]here )\bare no [a-z]+s\b"
)


FOREIGN = re.compile(
    r"\b(?:nobody|somebody|so many|under way|threads? of the system|can(?:not)? go on)\b", re.IGNORECASE
)
"""Unused, the caller, as many as, in flight, a worker, runnable or blocked."""

LEFT = 5
"""The most places of each kind that are still there; it only goes down."""


def prose(module: Module) -> Iterator[tuple[ast.Constant, str]]:
    """Every docstring of a module: those of modules, classes and functions, and the strings after an assignment."""
    for node in nodes(module.tree):
        body = node.body if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else []
        for statement in body:
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value, value.value


def texts(module: Module) -> Iterator[tuple[ast.Constant, str]]:
    """Every string of a module."""
    for node in nodes(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node, node.value


def test_a_docstring_names_the_thing_first() -> None:
    # "Whether it is empty" is "True if it is empty", "How many" is "The number of", "What is selected" "The selection".
    found = [module.at(node) for module in modules() for node, text in prose(module) if RELATIVE.match(text.strip())]
    assert len(found) <= LEFT, found


def test_a_thing_is_not_a_thing_rather_than_no_thing() -> None:
    found = [
        f"{module.at(node)}: {text[:60]}" for module in modules() for node, text in texts(module) if IS_NO.search(text)
    ]
    assert len(found) <= LEFT, found


def test_the_terms_of_the_field_stand_for_its_things() -> None:
    found = [
        f"{module.at(node)}: {text[:60]}"
        for module in modules()
        for node, text in texts(module)
        if FOREIGN.search(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("this is no mesh", True),
        ("sizes that are no integers", True),
        ("there is no mesh", False),
        ("it is no longer there", False),
        ("this is not a mesh", False),
    ],
)
def test_the_pattern_knows_the_difference(text: str, refused: bool) -> None:
    assert bool(IS_NO.search(text)) is refused
