"""The corpus of messages: files of small programs, each with the error that it raises, as a user reads it.

    # What stands before the first case is run once, and its names are there in each.
    import palladio as pl

    [case a value of another dtype]
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...].astype(jnp.int32)

    pl.pallas_call(kernel, OUT)(X)
    [TypeError]
    the value has another dtype than the reference
      expected: f32[8,16]
      ...

The name in brackets above a message is that of the built-in exception that the error is too. Lines in a message count
from the first one of its case. `pytest tests/errors --update-golden` writes the messages anew.
"""

from __future__ import annotations

import functools
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import palladio as pl

FILES = sorted(Path(__file__).with_name("corpus").glob("*.txt"))
_CASE = re.compile(r"\[case (.+)\]")
_KIND = re.compile(r"\[(\w+)\]")


@dataclass(frozen=True)
class Case:
    """One program, and its error: the built-in kind and the text."""

    path: Path
    name: str
    source: str
    kind: str
    text: str

    def raised(self) -> tuple[str, str]:
        """Run the program.

        Returns:
            The built-in kind and the text of its error.

        Raises:
            AssertionError: it raises none, or it changes an array that other cases use.
        """
        shared = _before(self.path)
        arrays = {name: value.copy() for name, value in shared.items() if isinstance(value, np.ndarray)}
        try:
            _run(self.source, f"/{self.name}.py", dict(shared))
        except pl.PalladioError as error:
            return _kind(error), self._shown(error)
        finally:
            for name, value in arrays.items():
                assert np.array_equal(shared[name], value, equal_nan=value.dtype.kind == "f"), f"{name} was changed"
        raise AssertionError("no error was raised")

    def _shown(self, error: BaseException) -> str:
        text = str(error).replace(f"/{self.name}.py:", "line ")
        return re.sub(r"\S*?([\w.]+\.py):\d+", r"\1:N", text)


@functools.cache
def _before(path: Path) -> dict[str, Any]:
    """The names of what stands before the first case."""
    names: dict[str, Any] = {"__name__": path.stem}
    _run("\n".join(next(_blocks(path.read_text(encoding="utf-8")))), f"/{path.stem}.py", names)
    return names


def _run(source: str, file: str, names: dict[str, Any]) -> None:
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec", dont_inherit=True), names)


def _kind(error: pl.PalladioError) -> str:
    return next(each.__name__ for each in type(error).__mro__ if each.__module__ == "builtins")


def read(path: Path) -> list[Case]:
    """The cases of a file."""
    cases = []
    for head, *lines in list(_blocks(path.read_text(encoding="utf-8")))[1:]:
        at = next(number for number, line in enumerate(lines) if _KIND.fullmatch(line))
        while lines[-1].startswith("#") or not lines[-1]:
            lines.pop()  # the heading above the next case
        source, text = "\n".join(lines[:at]), "\n".join(lines[at + 1 :])
        cases.append(Case(path, _CASE.sub(r"\1", head), source, _KIND.sub(r"\1", lines[at]), text))
    return cases


def _blocks(text: str) -> Iterator[list[str]]:
    block: list[str] = []
    for line in text.split("\n"):
        if _CASE.fullmatch(line):
            yield block
            block = []
        block.append(line)
    yield block


def update(case: Case, kind: str, text: str) -> None:
    """Write the error of a case anew, also if it has been since the case was read: it may run on two executors."""
    case = next(each for each in read(case.path) if each.name == case.name)
    program = f"[case {case.name}]\n{case.source}\n"
    whole = case.path.read_text(encoding="utf-8")
    old = f"{case.text}\n" if case.text else ""
    new = whole.replace(f"{program}[{case.kind}]\n{old}", f"{program}[{kind}]\n{text}\n")
    case.path.write_text(new, encoding="utf-8")
