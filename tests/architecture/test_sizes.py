"""Modules and functions stay small enough to be read in one go. Tests have no budget."""

from __future__ import annotations

from functools import cache

from tests.architecture.source import functions, modules

MODULE_LINES = 800
FUNCTION_LINES = 80
FUNCTION_LINES_OF_MOST = 30  # nine of ten

LONGER_FUNCTIONS: dict[str, str] = {}
"""`palladio.ir.text:Parser.parse` -> the reason why it is better in one piece."""


@cache
def lengths() -> dict[str, int]:
    """The lines of each function of the package."""
    return {
        f"{module.name}:{name}": node.end_lineno - node.lineno + 1
        for module in modules()
        for name, node in functions(module)
        if node.end_lineno is not None
    }


def test_no_module_is_longer_than_its_budget() -> None:
    lines = {module.name: len(module.text.splitlines()) for module in modules()}
    assert {name: count for name, count in lines.items() if count > MODULE_LINES} == {}


def test_no_function_is_longer_than_its_budget() -> None:
    longer = {name: lines for name, lines in lengths().items() if lines > FUNCTION_LINES}
    assert {name: lines for name, lines in longer.items() if name not in LONGER_FUNCTIONS} == {}


def test_most_functions_are_short() -> None:
    ordered = sorted(lengths().values())
    assert ordered[int(0.9 * (len(ordered) - 1))] <= FUNCTION_LINES_OF_MOST


def test_every_exception_is_still_needed_and_says_why() -> None:
    stale = [name for name in LONGER_FUNCTIONS if lengths().get(name, 0) <= FUNCTION_LINES]
    assert stale == []
    assert all(reason.strip() for reason in LONGER_FUNCTIONS.values())
