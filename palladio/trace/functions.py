"""User functions: their names, their locations, and calling them with a checked signature."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

from palladio.base.errors import PalladioError, PalladioTypeError
from palladio.base.locations import Location


def function_name(function: Callable[..., Any]) -> str:
    """The name of a function, a partial application of one, or a callable object."""
    while hasattr(function, "func"):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def positional_names(function: Callable[..., Any], defaults: bool = True) -> list[str]:
    """The names of a function's positional parameters, if any; by `defaults`, also of those that have a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [p.name for p in positional if defaults or p.default is p.empty]


def named_as(program: Callable[..., Any], function: Callable[..., Any], references: int) -> None:
    """Name a program after the function that it calls; also its references, if the function takes as many."""
    program.__name__ = function_name(function)
    names = positional_names(function)
    if len(names) == references:
        program.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
        )


def function_location(function: Callable[..., Any]) -> Location | None:
    """The definition of a function: the line with its `def`, or the body of a lambda."""
    while hasattr(function, "func"):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is None:
        return None
    line, column, end = _body(code) if code.co_name == "<lambda>" else _definition(code)
    return Location(code.co_filename, line, line, column, end, code.co_name)


def _body(code: CodeType) -> tuple[int, int, int]:
    first = code.co_firstlineno
    spans = [(start, end) for line, _, start, end in code.co_positions() if line == first and end]
    return first, min((start or 0 for start, _ in spans), default=0), max((end or 0 for _, end in spans), default=0)


def _definition(code: CodeType) -> tuple[int, int, int]:
    """The position of a definition after its decorators, at which its code object starts."""
    start = re.compile(rf"\s*(async\s+)?def\s+{re.escape(code.co_name)}\b")
    lines = linecache.getlines(code.co_filename)
    for number in range(code.co_firstlineno, min(code.co_firstlineno + 50, len(lines) + 1)):
        text = lines[number - 1].rstrip()
        if start.match(text):
            return number, len(text) - len(text.lstrip()), len(text)
    return code.co_firstlineno, 0, 0


def require_function(function: Any, what: str, argument: str | None = None) -> None:
    """Refuse a value that is not callable."""
    if not callable(function):
        raise PalladioTypeError(f"{what} is a function", argument=argument, got=repr(function))


def call_user(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    what: str,
    expected: str,
    argument: str | None = None,
) -> Any:
    """The result of a user's function.

    Args:
        what: its name in errors: `the kernel add`.
        expected: its arguments: `2 references: 1 input, 1 output`.

    Raises:
        PalladioTypeError: if its parameters do not fit, pointing at its definition.
    """
    try:
        return function(*args, **kwargs)
    except PalladioError:
        raise
    except TypeError as error:
        signature = _unfit(function, args, kwargs)
        if signature is None:
            raise
        raise PalladioTypeError(
            f"{what} takes other parameters than it is called with",
            argument=argument,
            expected=expected,
            got=f"{function_name(function)}{signature}",
            jax=str(error),
            location=function_location(function),
        ) from error


def shown_signature(signature: inspect.Signature) -> str:
    """The parameters as errors show them, without annotations."""
    parameters = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def _unfit(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """The parameters, if they do not fit the call; else the error came from inside the function."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return shown_signature(signature)
    return None


def counted(count: int, noun: str) -> str:
    """`1 input`, `2 inputs`, `0 entries`."""
    if count == 1:
        return f"1 {noun}"
    for ending, plural in (("index", "indices"), ("entry", "entries")):
        noun = noun.removesuffix(ending) + plural if noun.endswith(ending) else noun
    return f"{count} {noun}" if noun.endswith(("ices", "ies")) else f"{count} {noun}s"
