"""Links between the pages lead somewhere, and the import lines that a page names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.compare.sides import IMPORTS

PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)(?P<target>[^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    targets = [match["target"] for match in LINK.finditer(page.read_text(encoding="utf-8"))]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_porting_page_shows_the_import_lines_that_the_comparison_swaps() -> None:
    page = (ROOT / "docs/porting.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `((?:import|from) [^`]*)` \| `((?:import|from) [^`]*)` \|$", page, re.MULTILINE))
    assert shown
    assert {theirs: IMPORTS.get(theirs) for theirs in shown} == shown
