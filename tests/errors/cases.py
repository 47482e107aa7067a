"""The corpus of messages: files of small programs, each with the error that it raises, as a user reads it.

    # what stands before the first case is run before each of them
    import palladio as pl

    [case a value of another dtype]
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...].astype(jnp.int32)

    pl.pallas_call(kernel, OUT)(X)
    [TypeError]
    the value has another dtype than the reference
      expected: f32[8,16]
      ...

Lines of the message count from the case's first one. `pytest --update-golden` writes the messages anew.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import palladio as pl

CASES = Path(__file__).with_name("cases")
_CASE = re.compile(r"^\[case (?P<name>.+)\]$")
_KIND = re.compile(r"^\[(?P<kind>\w+)\]$")


@dataclass(frozen=True)
class Case:
    """One program of a file and its error: the name of a built-in exception that it is too, and its text."""

    path: Path
    name: str
    before: str
    source: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.stem}: {self.name}"

    def raised(self) -> tuple[str, str]:
        """Run the program: the built-in kind of its error, and the error's text.

        Raises:
            AssertionError: it raises none.
        """
        names: dict[str, Any] = {"__name__": "__case__"}
        _run(self.before, f"/{self.path.name}", names)
        try:
            _run(self.source, f"/{self.name}", names)
        except pl.PalladioError as error:
            return _kind(error), self._shown(error)
        raise AssertionError("no error was raised")

    def _shown(self, error: BaseException) -> str:
        """The text, in which the program has no file name, and the part before all cases has that of the corpus."""
        text = re.sub(rf"/{re.escape(self.name)}:(\d+)", r"line \1", str(error))
        text = text.replace(f"/{self.path.name}:", f"{self.path.name}:")
        return re.sub(r"\S*?([\w.]+\.py):\d+", r"\1:N", text)


def _run(source: str, file: str, names: dict[str, Any]) -> None:
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec", dont_inherit=True), names)


def _kind(error: pl.PalladioError) -> str:
    return next(each.__name__ for each in type(error).__mro__ if each.__module__ == "builtins")


def read(path: Path) -> list[Case]:
    """The cases of a file."""
    before, *blocks = _blocks(path.read_text(encoding="utf-8"))
    cases = []
    for block in blocks:
        head, *lines = block
        at = next(number for number, line in enumerate(lines) if _KIND.match(line))
        match, kind = _CASE.match(head), _KIND.match(lines[at])
        assert match and kind
        text = "\n".join(lines[at + 1 :])
        text = re.sub(r"\n+(#.*\n*)*$", "", text)  # a heading above the next case
        cases.append(Case(path, match["name"], "\n".join(before), "\n".join(lines[:at]) + "\n", kind["kind"], text))
    return cases


def _blocks(text: str) -> Iterator[list[str]]:
    block: list[str] = []
    for line in text.split("\n"):
        if _CASE.match(line):
            yield block
            block = []
        block.append(line)
    yield block


def update(case: Case, kind: str, text: str) -> None:
    """Write a case's error anew."""
    old = f"[case {case.name}]\n{case.source}[{case.kind}]\n{case.text}\n"
    new = f"[case {case.name}]\n{case.source}[{kind}]\n{text}\n"
    whole = case.path.read_text(encoding="utf-8")
    assert old in whole
    case.path.write_text(whole.replace(old, new), encoding="utf-8")


def arrays_of(module: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays that cases share, which none of them may change."""
    return [value.copy() for value in vars(module).values() if isinstance(value, np.ndarray)]
