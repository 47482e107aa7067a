"""Calls of public functions with arguments that their parameters do not take."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from palladio.base import knobs
from palladio.base.errors import PalladioError, PalladioTypeError, at_call
from palladio.base.locations import without_internal_frames

Target = TypeVar("Target", bound=Callable[..., Any])


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The hint of an error about a name that is close to a known one; None if none is."""
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {close[0]}?" if close else None


def hide_internal_frames(error: PalladioError) -> None:
    """Leave only the user's frames in the traceback of a user's error, which shows the line that it is about.

    The frame that calls this is hidden too if it raises the error again by a bare `raise`.
    """
    if not knobs.traceback.get():
        error.__traceback__ = without_internal_frames(error.__traceback__)


_REFUSALS: list[Callable[[Any, str], None]] = []


def refuses(refuse: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
    """A decorator for a function of a value and an argument's name that raises the user error about a value that no
    public function takes.

    It is asked about the arguments of calls that have failed: a kept call takes less time than to ask before each.
    """
    _REFUSALS.append(refuse)
    return refuse


def checked_call(target: Target) -> Target:
    """A decorator for public functions and classes: a call with arguments that they do not take is a user error.

    Python's own error names neither the line of the call nor the argument that was probably meant. Signature,
    documentation and name are preserved.

    Args:
        target: a function; or a class, whose `__init__` is replaced.
    """
    if isinstance(target, type):
        target.__init__ = _checked(target.__init__, target.__name__)  # type: ignore[misc]
        return target
    name = "this call" if target.__name__ == "__call__" else target.__name__
    return _checked(target, name)  # type: ignore[return-value]


def _checked(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except PalladioError as error:
            hide_internal_frames(error)
            raise
        except Exception as error:
            # An error that came from inside has the function's frame in its trace.
            inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
            refusal = _refused_value(function, args, kwargs) if inside else None
            if refusal is None and (inside or not isinstance(error, TypeError)):
                raise
            text = str(error)
        try:
            with at_call():
                raise refusal or _refusal(function, name, args, kwargs, text)
        except PalladioError as found:
            hide_internal_frames(found)
            raise

    return call


def _refused_value(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> PalladioError | None:
    """The error about the first argument of a call that no public function takes; None if there is none."""
    signature = inspect.signature(function)
    for argument, value in signature.bind(*args, **kwargs).arguments.items():
        several = signature.parameters[argument].kind is inspect.Parameter.VAR_POSITIONAL
        named = {f"{argument}[{n}]": each for n, each in enumerate(value)} if several else {argument: value}
        for name, each in named.items():
            try:
                for refuse in _REFUSALS:
                    refuse(each, name)
            except PalladioError as error:
                return error
    return None


def _refusal(
    function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any], text: str
) -> PalladioTypeError:
    signature = inspect.signature(function)
    hidden = {"self"} if function.__name__ in ("__init__", "__call__") else set()
    shown = [
        each.replace(annotation=each.empty, default=each.empty)
        for each in signature.parameters.values()
        if each.name not in hidden
    ]
    keywords = [each.name for each in shown if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    for keyword in kwargs:
        if keyword not in keywords:
            return PalladioTypeError(
                f"{name} has no parameter {keyword!r}",
                expected=", ".join(keywords) or "none by keyword",
                got=f"{keyword}={kwargs[keyword]!r:.60}",
                hint=did_you_mean(keyword, keywords),
            )
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        text = str(error)
    return PalladioTypeError(
        f"{name} takes other arguments than it is called with",
        expected=f"{name}{inspect.Signature(shown)}",
        got=text,
    )
