"""The errors of Palladio and their one renderer.

A *user error* names the broken rule, the argument, the expected and the actual value, and what to do; it is a
`PalladioError` and also the built-in exception that Python users expect (`TypeError`, `ValueError`, …). An *internal
error* is ours: it asks for a report.

Rules raise without a location. `attach` stamps one at the choke points (forming an equation, verifying, running a pass,
executing an equation), and the innermost stamp wins; an error without one finds the user's line in its traceback.
"""

from __future__ import annotations

import signal
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, NoReturn

from palladio.base.locations import Location, capture, of_traceback


class _Unset(Enum):
    """A member of an enumeration stays itself when an error is copied or sent to another process."""

    UNSET = "unset"


_UNSET: Any = _Unset.UNSET


class PalladioError(Exception):
    """The base of every error that a user can cause.

    Args:
        rule: one sentence, which rule was broken.
        argument: which argument broke it, as the user spelled it: `in_specs[1] (x_ref)`.
        expected, got: what the rule wants and what came.
        hint: what to do about it.
        jax: the words of JAX for the same, which tests of a ported kernel may look for.
        location: the user's source line; `other` is the second party's, with `other_label` saying what it did.
    """

    def __init__(
        self,
        rule: str,
        *,
        argument: str | None = None,
        expected: Any = _UNSET,
        got: Any = _UNSET,
        hint: str | None = None,
        jax: str | None = None,
        location: Location | None = None,
        other: Location | None = None,
        other_label: str = "the other party",
    ) -> None:
        super().__init__(rule)
        self.rule = rule
        self.argument = argument
        self.expected = expected
        self.got = got
        self.hint = hint
        self.jax = jax
        self.location = location
        self.other = other
        self.other_label = other_label
        self.notes_shown: list[str] = []

    def __str__(self) -> str:
        lines = [f"{self.argument}: {self.rule}" if self.argument else self.rule]
        if self.expected is not _UNSET:
            lines.append(f"  expected: {self.expected}")
        if self.got is not _UNSET:
            lines.append(f"  got:      {self.got}")
        if self.hint:
            lines.append(f"  hint:     {self.hint}")
        if self.jax:
            lines.append(f"  in JAX:   {self.jax}")
        lines += self.notes_shown
        # One that passed no choke point shows the innermost user line that it was raised through.
        location = self.location or of_traceback(self.__traceback__)
        if location is not None:
            lines.append(location.render())
            if location.call_site is not None:
                lines += ["  called from", location.call_site.render()]
        if self.other is not None:
            lines += [f"  {self.other_label}", self.other.render()]
        return "\n".join(lines)


class PalladioTypeError(PalladioError, TypeError, ValueError):
    """A value of the wrong kind: its dtype, its structure, or not an array at all.

    It is a `ValueError` too, since JAX is not consistent about which of the two it raises.
    """


class PalladioValueError(PalladioError, ValueError):
    """A value of the right kind that breaks a rule: a shape, a size, an option."""


class PalladioIndexError(PalladioError, IndexError, ValueError):
    """An index or slice outside a bound that is known before anything runs, or an axis out of range.

    It is a `ValueError` too, which JAX raises for it.
    """


class PalladioAttributeError(PalladioError, AttributeError):
    """An attribute that a traced value or a reference does not have."""


class PalladioNotImplementedError(PalladioError, NotImplementedError):
    """An operation or option that this executor or target refuses, with the reason."""


class DebugCheckError(PalladioError, AssertionError):
    """A `debug_check` in a kernel found its condition false while `enable_debug_checks` was on."""


class ParseError(PalladioError, SyntaxError):
    """Program text that does not parse."""

    def __init__(self, rule: str, **details: Any) -> None:
        PalladioError.__init__(self, rule, **details)
        self.msg = str(self)


class NotCompiledWarning(UserWarning):
    """A kernel runs on the evaluator because something in it is not compiled for the CPU."""


class UnsafeCacheWarning(UserWarning):
    """Compiled kernels are not kept on disk because other users could put code into the folder."""


class CopyWarning(UserWarning):
    """An array of more than a page was copied on its way in or out, while `PALLADIO_WARN_COPIES` was set."""


class RetracedWarning(UserWarning):
    """A kernel is traced on every call, because of a value that it captures."""


class UnwrittenOutputWarning(UserWarning):
    """A kernel contains no write to one of its outputs, whose values are therefore uninitialised."""


_WARNED: dict[str, dict[Any, Any]] = {}
"""For each file, the warnings given so far at its lines, in the format of the registry of Python's warning filters."""


def warn_at(message: str, category: type[Warning], location: Location | None) -> None:
    """Warn as if at the user's line, once, wherever the kernel is called from."""
    if location is None:
        warnings.warn(message, category, stacklevel=3)
    else:
        registry = _WARNED.setdefault(location.file, {})
        warnings.warn_explicit(message, category, location.file, location.line, registry=registry)


class InternalError(RuntimeError):
    """A defect of Palladio itself. The message contains the information that a report needs."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.location: Location | None = None

    def __str__(self) -> str:
        where = "" if self.location is None else "\n" + self.location.render()
        plea = "This is a defect of Palladio; please report it with the program that shows it."
        return f"{super().__str__()}\n{plea}{where}"


@contextmanager
def attach(location: Location | None, doing: str) -> Iterator[None]:
    """Stamp errors that leave the block with `location` unless they carry one.

    Wrap foreign exceptions as internal errors, but for warnings that their user turned into errors and for those of a
    signal's handler, which Python runs between any two of our lines.
    """
    try:
        yield
    except (PalladioError, InternalError) as error:
        if error.location is None:
            error.location = location
        raise
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, RecursionError, Warning):
        raise
    except Exception as error:
        if _is_of_a_signal(error):
            raise
        internal = InternalError(f"{type(error).__name__} while {doing}: {error}")
        internal.location = location
        raise internal from error


def _is_of_a_signal(error: Exception) -> bool:
    """True if the handler of a signal raised the error."""
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {getattr(each, "__code__", getattr(type(each).__call__, "__code__", None)) for each in handlers}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


class _AtCall:
    """One object for all calls: entering and leaving it costs next to nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, PalladioError) and error.location is None:
            here = capture(2)
            error.location = here if here is None else here.outermost


_AT_CALL = _AtCall()


def at_call() -> _AtCall:
    """A context manager: errors raised inside, where a public call checks its arguments, get the line of the call."""
    return _AT_CALL


def unreachable(what: str) -> NoReturn:
    """Report a state that the code's own invariants exclude."""
    raise InternalError(what)
