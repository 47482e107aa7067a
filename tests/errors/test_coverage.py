"""Every message that a user can get stands, with its text, in some test.

The rules are read off the source: a rule is the first argument of `Palladio…Error(…)`, or the second of the library's
`fail(kind, rule)`. The parts of an f-string that are computed may be anything. The tests are searched as text, file
tests and golden files among them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, Module, modules

KINDS = re.compile(r"(Palladio\w*|DebugCheck|Parse)Error")

# Rules that no test shows, and why. What stands here is a pattern as `_pattern` makes it.
GRID = "pallas_call forms grid calls and has checked this before; it guards passes and programs written as text"
EXCEPTIONS: dict[str, str] = {
    re.escape("a dynamic grid size is a scalar int32"): GRID,
    re.escape("a grid call has one block map per array"): GRID,
    re.escape("the kernel takes other references than its blocks"): GRID,
    re.escape("an aliased input and output have one type"): GRID,
    re.escape("an input of ")
    + ".+?"
    + re.escape(" must be an array"): "array functions have asked for the type before",
}


def _pattern(rule: ast.expr) -> str | None:
    """The regular expression of a rule's text; None for one that is computed elsewhere."""
    if isinstance(rule, ast.Constant) and isinstance(rule.value, str):
        return re.escape(rule.value)
    if isinstance(rule, ast.JoinedStr):
        return "".join(
            re.escape(part.value) if isinstance(part, ast.Constant) and isinstance(part.value, str) else ".+?"
            for part in rule.values
        )
    return None


def _choices(rule: ast.expr) -> Iterator[ast.expr]:
    if isinstance(rule, ast.IfExp):
        yield from (*_choices(rule.body), *_choices(rule.orelse))
    else:
        yield rule


def _rules(module: Module) -> Iterator[tuple[str, str]]:
    if "Error(" not in module.text and "fail(" not in module.text:
        return
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        callee = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        place = 0 if KINDS.fullmatch(callee) else 1 if callee == "fail" else None
        if place is None or len(node.args) <= place:
            continue
        for choice in _choices(node.args[place]):
            pattern = _pattern(choice)
            if pattern is not None:
                yield module.at(node), pattern


@cache
def _tests() -> str:
    """Every string of the tests, and the text of their other files."""
    found = []
    for path in sorted((ROOT / "tests").rglob("*")):
        if path == Path(__file__) or not path.is_file() or path.suffix == ".pyc":
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found.append(text if path.suffix != ".py" else "\n".join(_strings(ast.parse(text))))
    return "\n".join(found)


@cache
def _unescaped() -> str:
    """The same without backslashes: what is written with `match=` has its text escaped."""
    return _tests().replace("\\", "")


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


PLACES: dict[str, str] = {pattern: place for module in modules() for place, pattern in _rules(module)}


@pytest.mark.parametrize(
    "pattern", sorted(set(PLACES) - set(EXCEPTIONS)), ids=lambda pattern: re.sub(r"\W+", " ", pattern)
)
def test_the_message_stands_in_a_test(pattern: str) -> None:
    # Anything at an end would be tried at every character of the tests.
    inner = re.compile(pattern.removeprefix(".+?").removesuffix(".+?"))
    assert inner.search(_tests()) or inner.search(_unescaped()), f"no test shows what {PLACES[pattern]} says"


def test_every_exception_is_still_in_the_source() -> None:
    assert sorted(set(EXCEPTIONS) - set(PLACES)) == []
