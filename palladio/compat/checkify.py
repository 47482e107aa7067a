"""`jax.experimental.checkify`: a failed check of a function is a value that the caller may throw."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from palladio.base.errors import (
    DebugCheckError,
    PalladioError,
    PalladioNotImplementedError,
    PalladioValueError,
    at_call,
)
from palladio.trace.debug import collected_checks, enable_debug_checks
from palladio.trace.debug import debug_check as in_program
from palladio.trace.trace import is_traced

user_checks: frozenset[str] = frozenset({"user_check"})

_FAILED = "debug_check failed: "


class Error:
    """The outcome of the checks of one call."""

    def __init__(self, message: str | None) -> None:
        self.message = message

    def get(self) -> str | None:
        """The message of the first check that failed; None if none did."""
        return self.message

    def throw(self) -> None:
        """Raise the failed check, if there is one, as a `jax.errors.JaxRuntimeError`."""
        if self.message is not None:
            with at_call():
                raise PalladioError(self.message)

    def __str__(self) -> str:
        return f"Error({self.message})"


def check_error(error: Error) -> None:
    """Raise the failed check of an earlier call, if there is one."""
    error.throw()


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """A check of the function under `checkify`: it fails where `pred`, a scalar bool, is false.

    The message is formatted with the given values, unless one of them is traced: then it is shown unformatted.

    Raises:
        PalladioValueError: a traced condition outside of a function under `checkify`.
        PalladioError: a known condition that is false there.
    """
    collecting = collected_checks.get()
    if collecting is False or (collecting is None and debug):
        return
    traced = is_traced(pred)
    if not any(map(is_traced, (*fmt_args, *fmt_kwargs.values()))):
        msg = msg.format(*fmt_args, **fmt_kwargs)
    if collecting and traced:
        in_program(pred, msg)
        return
    if traced:
        with at_call():
            raise PalladioValueError(
                "a check of traced values stands in a function under checkify",
                argument="pred",
                got=repr(pred),
                hint="error, result = checkify.checkify(f)(x); error.throw()",
                jax="Cannot abstractly evaluate a checkify.check which was not functionalized.",
            )
    if not pred:
        with at_call():
            raise DebugCheckError(f"{_FAILED}{msg}") if collecting else PalladioError(msg)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """A check that is omitted in functions that are not under `checkify`."""
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def checkify(fun: Callable[..., Any], errors: Any = user_checks) -> Callable[..., tuple[Error, Any]]:
    """A function that returns the error of `fun`'s checks beside its result.

    Where a check fails, `fun` runs a second time without checks, for its result.

    Args:
        errors: `user_checks`, the only kind.

    Raises:
        PalladioNotImplementedError: for other kinds.
    """
    if errors != user_checks:
        with at_call():
            raise PalladioNotImplementedError(
                "the checks are those that the function makes itself", argument="errors", expected="user_checks"
            )

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        try:
            with enable_debug_checks():
                return Error(None), _run(True, fun, args, kwargs)
        except DebugCheckError as error:
            message = error.rule.removeprefix(_FAILED)
        with enable_debug_checks(False):
            return Error(message), _run(False, fun, args, kwargs)

    call.within = lambda stage: checkify(stage(fun), errors)  # type: ignore[attr-defined]  # as jax.jit stages it
    return call


def _run(collecting: bool, fun: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    token = collected_checks.set(collecting)
    try:
        return fun(*args, **kwargs)
    finally:
        collected_checks.reset(token)
