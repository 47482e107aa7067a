"""Every piece of Python that the pages show runs: README, docs, and the examples in docstrings.

A block fenced as `python` runs; what it prints stands in the block after it, fenced as `output`, where `...` is
anything.
"""

from __future__ import annotations

import doctest
import importlib
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, modules

NOT_RUN = 0
"""How many blocks are marked `no-run`, over all pages. A page has to earn each one."""

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block: the info string, its text, and the number of the line before its first."""

    info: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page whose fence says `python` or `output`."""
    fence, start, lines = None, 0, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        match = FENCE.match(line)
        if fence is None and match:
            fence, start, lines = match, number, []
        elif fence is not None and match and not match["info"].strip():
            if fence["info"].split()[:1] in (["python"], ["output"]):
                yield Block(fence["info"].strip(), "\n".join(lines), start)
            fence = None
        elif fence is not None:
            lines.append(line.removeprefix(fence["indent"]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_page_runs_from_top_to_bottom(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = types.ModuleType("__page__")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    found = list(blocks(page))
    for block, following in zip(found, [*found[1:], None]):
        if block.info == "python":
            # The empty lines put each block at its own line of the page, in tracebacks and in Palladio's errors.
            exec(compile("\n" * block.line + block.text, str(page), "exec", dont_inherit=True), vars(module))
            printed = capsys.readouterr().out
            shown = following.text if following is not None and following.info == "output" else ""
            check_output(shown, printed, f"{page.relative_to(ROOT)}:{block.line}")
    for picture in sorted((tmp_path / "images").iterdir()):
        kept = page.parent / "images" / picture.name
        assert kept.exists() and without_lines(kept) == without_lines(picture), (
            f"docs/images/{picture.name} is not what the page draws: python -m tools.pictures renews it"
        )


def without_lines(picture: Path) -> str:
    """A picture's text without the line numbers in its tooltips, which move with every edit of a kernel."""
    return re.sub(r"(\.(?:py|md)):\d+", r"\1", picture.read_text(encoding="utf-8"))


def check_output(shown: str, printed: str, place: str) -> None:
    """What a page shows as printed is what was printed."""
    example = doctest.Example("", shown + "\n" if shown else "")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    checker = doctest.OutputChecker()
    agree = checker.check_output(example.want, printed, flags)
    assert agree, f"{place}\n{checker.output_difference(example, printed, flags)}"


def test_hardly_any_block_is_not_run() -> None:
    kinds = [block.info for page in PAGES for block in blocks(page)]
    assert set(kinds) <= {"python", "output", "python no-run"}
    assert kinds.count("python no-run") == NOT_RUN


@pytest.mark.parametrize("name", [module.name for module in modules() if not module.name.endswith("__main__")])
def test_the_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for each in doctest.DocTestFinder().find(module, name):
        if each.examples:  # a run looks at all files of the process for changes, even of a docstring without examples
            runner.run(each)
    assert runner.summarize().failed == 0
