"""Printing, checking and promises inside a kernel."""

from __future__ import annotations

import string
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.on_card import Conditions
from palladio.base import knobs
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.bind import bind
from palladio.ops import debug as ops
from palladio.trace.functions import counted
from palladio.trace.reference import Reference
from palladio.types import dtypes
from palladio.types.types import ArrayType

_checks: ContextVar[bool | None] = ContextVar("palladio_debug_checks", default=None)

collected_checks: ContextVar[bool | None] = ContextVar("palladio_collected_checks", default=None)
"""True where the failed checks of `checkify` are collected, False where its checks are omitted, None elsewhere."""


def checks_enabled() -> bool:
    """True if `debug_check` is evaluated: as set by the context, else by the environment."""
    chosen = _checks.get()
    return knobs.debug_checks.get() if chosen is None else chosen


UNCHECKED = Conditions(absent=(knobs.debug_checks.place,), chosen=((_checks, None),))
"""The conditions in which `checks_enabled` is false, where the variable of the environment is not set."""


def chosen_checks() -> tuple[bool, bool | None]:
    """The state that decides whether checks are traced: a part of every cache key."""
    return checks_enabled(), collected_checks.get()


@contextmanager
def enable_debug_checks(enable: bool = True) -> Iterator[None]:
    """Evaluate the `debug_check` conditions of kernels called inside the block."""
    token = _checks.set(enable)
    try:
        yield
    finally:
        _checks.reset(token)


def debug_print(fmt: str, *args: Any) -> None:
    """Print `fmt.format(*args)` where the kernel runs; `{}` and `{:.3f}` print arrays or scalars, or the
    content of a reference. Values of a format without any braces are printed after it.

    Raises:
        PalladioValueError: if the format and the number of values do not fit.
    """
    if not isinstance(fmt, str):
        raise PalladioTypeError("the format is a string", argument="fmt", got=repr(fmt))
    try:
        parsed = list(string.Formatter().parse(fmt))
    except ValueError as error:
        raise PalladioValueError(
            "the format does not parse", argument="fmt", expected=str(error), got=repr(fmt)
        ) from None
    args = tuple(arg[...] if isinstance(arg, Reference) else arg for arg in args)
    fields = [field for _, field, _, _ in parsed if field is not None]
    if not fields and args:
        fmt = " ".join((fmt, *("{}" for _ in args)))
        parsed = list(string.Formatter().parse(fmt))
        fields = [""] * len(args)
    if any(field not in ("", str(n)) for n, field in enumerate(fields)) or len(fields) != len(args):
        raise PalladioValueError(
            "the format has one {} for each value, in order",
            argument="fmt",
            expected=counted(len(args), "field"),
            got=repr(fmt),
        )
    specs = [spec for _, field, spec, _ in parsed if field is not None]
    for value, spec in zip(args, specs, strict=True):
        _check_format(spec or "", convert.array_type(value))
    bind(ops.debug_print, *args, format=fmt)


def _check_format(spec: str, kind: ArrayType) -> None:
    """Refuse a format that cannot print a value of this type, which is tested by formatting a zero."""
    try:
        format(np.zeros((), kind.dtype)[()] if kind.shape == () else np.zeros(kind.shape, kind.dtype), spec)
    except (TypeError, ValueError):
        hint = "an array takes {} alone" if kind.shape else None
        raise PalladioValueError(
            "a value cannot be printed in this format", argument="fmt", got=f"{{:{spec}}} for {kind}", hint=hint
        ) from None


def debug_check(condition: Any, message: str) -> None:
    """Fail with the message where the condition is false, if checks are on (`enable_debug_checks`,
    `PALLADIO_DEBUG_CHECKS`).
    """
    if convert.array_type(condition).shape != () or convert.array_type(condition).dtype != dtypes.BOOL:
        raise PalladioTypeError(
            "the condition of a check is a scalar bool", argument="condition", got=str(convert.array_type(condition))
        )
    if checks_enabled():
        bind(ops.debug_check, condition, message=message)


def multiple_of(x: Any, values: Any) -> Any:
    """The integer `x`, with the promise that it is a multiple of `values` (an int or several). A broken promise is an
    error.

    Args:
        x: a scalar or array of integers.
    """
    factors = (values,) if isinstance(values, int) else tuple(values)
    if not all(isinstance(factor, int) and factor > 0 for factor in factors):
        raise PalladioValueError("multiple_of takes positive factors", argument="values", got=values)
    if isinstance(x, int):
        if any(x % factor for factor in factors):
            raise PalladioValueError("the promise of multiple_of is broken", expected=f"a multiple of {values}", got=x)
        return x
    return bind(ops.multiple_of, x, values=factors)[0]
