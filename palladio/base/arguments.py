"""Arguments that are sequences: names of axes, sizes, transforms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from palladio.base.errors import PalladioTypeError


def entries(value: Any, argument: str, expected: str) -> tuple[Any, ...]:
    """A sequence as a tuple.

    Raises:
        PalladioTypeError: for what cannot be iterated over.
    """
    try:
        return tuple(value)
    except TypeError:
        raise PalladioTypeError(
            "this argument is a sequence", argument=argument, expected=expected, got=repr(value)
        ) from None


def axis_names(value: str | Iterable[str] | None, argument: str) -> tuple[str, ...]:
    """The name of an axis, or those of several, as a tuple; None names none.

    Raises:
        PalladioTypeError: for what is not a string or sequence of strings.
    """
    found = () if value is None else (value,) if isinstance(value, str) else None
    if found is None:
        found = tuple(value) if isinstance(value, Iterable) and not hasattr(value, "dtype") else (value,)
    if not all(isinstance(name, str) for name in found):
        raise PalladioTypeError(
            "the name of an axis is a string",
            argument=argument,
            expected="a name or a sequence of names",
            got=repr(value),
        )
    return found
