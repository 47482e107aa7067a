"""Source locations: the user's line at which an equation or a call was made.

A location is captured once, when an equation is formed or a public function is entered, and travels with it. Frames
of this package are skipped, except those of `palladio.library` and `palladio.demo`, which are ordinary user code: an
equation of a library kernel points at the library's line and, after it, at the line of the caller.
"""

from __future__ import annotations

import functools
import linecache
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, TracebackType

from palladio.base.dataclass import dataclass

_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"
_USER_LIKE = (_PACKAGE + "library/", _PACKAGE + "demo/")
_STANDARD = str(Path(linecache.__file__).resolve().parent) + "/"
_INSTALLED = (_STANDARD + "site-packages/", _STANDARD + "dist-packages/")
_TORCH = "/site-packages/torch/"
_JAX = "/site-packages/jax/_src/"


@dataclass(frozen=True)
class Location:
    """A span of one source file. Lines count from 1, columns from 0.

    `call_site` is the user frame that called this one.
    """

    file: str
    line: int
    end_line: int
    column: int
    end_column: int
    function: str
    call_site: Location | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def outermost(self) -> Location:
        """The location outside of `palladio.library`, where the user called it; this one if there is none."""
        here: Location | None = self
        while here is not None:
            if not here.file.startswith(_PACKAGE):
                return here
            here = here.call_site
        return self

    def render(self) -> str:
        """The file, the source line and a caret under the span, as the errors show it."""
        lines = [f"  {self.file}:{self.line}, in {self.function}"]
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if text.strip():
            end = self.end_column if self.end_line == self.line and self.end_column else len(text)
            column = min(self.column, len(text))
            width = max(1, min(end, len(text)) - column)
            stripped = text.lstrip()
            pad = " " * max(0, column - (len(text) - len(stripped)))
            lines += [f"    {stripped}", f"    {pad}{'^' * width}"]
        return "\n".join(lines)


# Equal code of two files compares equal, so the file is part of the key.
_frames: dict[tuple[str, CodeType, int], Location] = {}

_skipped: set[str] = set()
"""Files without user frames: most frames are of these, and a look-up of code takes longer than one of a file."""


def _is_user(code: CodeType) -> bool:
    if code.co_filename == "<string>" and code.co_name == "__init__":
        return False  # the constructor that a dataclass makes
    file = code.co_filename
    if file.startswith("<frozen "):
        return False  # Python's own import machinery
    if file.startswith(_STANDARD) and not file.startswith(_INSTALLED):
        return False  # the line that called Python's own library says more
    if _TORCH in file or _JAX in file:
        return False  # these call back: an operator, the operand of a function of theirs, a function under `jit`
    return not file.startswith(_PACKAGE) or file.startswith(_USER_LIKE)


def _at(code: CodeType, instruction: int, fallback_line: int | None) -> Location | None:
    """The location of an instruction, or None in a file of this package; kept by code and offset."""
    if not _is_user(code):
        if code.co_filename != "<string>":
            _skipped.add(code.co_filename)
        return None
    key = (code.co_filename, code, instruction)
    try:
        return _frames[key]
    except KeyError:
        pass
    line, end_line, column, end_column = next(islice(code.co_positions(), instruction // 2, None))
    line = line or fallback_line or 0
    location = Location(code.co_filename, line, end_line or line, column or 0, end_column or 0, code.co_name)
    _frames[key] = location
    return location


def capture(depth: int = 1) -> Location | None:
    """The innermost user frame above the caller's `depth`-th frame, with the user frame that called it as its call
    site.
    """
    frame: FrameType | None = sys._getframe(depth)
    inner: Location | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        skipped = file in _skipped or (inner is not None and file.startswith(_PACKAGE))
        location = None if skipped else _at(frame.f_code, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
        if location is None:
            continue
        if inner is None:
            inner = location
            if not location.file.startswith(_PACKAGE):
                return inner
        else:
            return _called_from(inner, location)
    return inner


@functools.lru_cache(maxsize=4096)
def _called_from(inner: Location, site: Location) -> Location:
    return replace(inner, call_site=site)


def without_internal_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this package, and of the programs that the evaluator makes."""
    kept = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if _is_user(code) and not code.co_filename.startswith("<palladio "):
            kept.append(trace)
        trace = trace.tb_next
    shown: TracebackType | None = None
    for each in reversed(kept):
        shown = TracebackType(shown, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return shown


def caller_location() -> Location | None:
    """The innermost line outside of this package and its library: for a library function, the line that called it."""
    here = capture()
    return here if here is None else here.outermost


def of_traceback(trace: TracebackType | None) -> Location | None:
    """The innermost user frame that an exception passed through."""
    found: Location | None = None
    caller: Location | None = None
    while trace is not None:
        location = _at(trace.tb_frame.f_code, trace.tb_lasti, trace.tb_lineno)
        if location is not None:
            inside = location.file.startswith(_PACKAGE)
            found = replace(location, call_site=caller) if inside else location
            caller = caller if inside else location
        trace = trace.tb_next
    return found
