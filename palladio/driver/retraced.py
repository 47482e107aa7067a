"""The warning that a kernel is traced on every call, because a value that it captures has no key."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

from palladio.base.errors import RetracedWarning
from palladio.driver.fingerprint import Unkeyable
from palladio.trace.functions import function_location, function_name

_TRACED: dict[tuple[Any, ...], int] = {}
_LOCK = threading.Lock()
_WARNED_AT = 3
"""The first call must trace, and the second may be the last."""


def note_traced(function: Callable[..., Any], error: Unkeyable) -> None:
    """Count a trace of a function caused by a value without a key, and warn once, at the second repetition."""
    location, name = function_location(function), function_name(function)
    place = ("", 0) if location is None else (location.file, location.line)
    key = (*place, name, error.function, error.capture)
    with _LOCK:
        _TRACED[key] = count = _TRACED.get(key, 0) + 1
    if count == _WARNED_AT:
        warnings.warn_explicit(_message(name, error), RetracedWarning, *place, registry={})


def _message(name: str, error: Unkeyable) -> str:
    value = error.value
    if error.capture is not None:
        value = f"{error.capture}, {value}" + ("" if error.function == name else f" (read by {error.function})")
    return (
        f"{name} is traced again on every call, because it captures {value}, whose content is not compared between "
        "calls; pass it as an argument, or compute what is needed of it outside of the kernel"
    )
