"""Generated pages and pictures are up to date with the code."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.architecture.source import ROOT
from tools.library_pictures import FOLDER, PICTURES, drawn
from tools.reference import PAGES
from tools.site import MODULES, api_page


@pytest.mark.parametrize("path", PAGES)
def test_the_page_is_current(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == PAGES[path](), "write it again: python tools/reference.py"


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_is_current(name: str) -> None:
    kept = (FOLDER / f"library-{name}.svg").read_text(encoding="utf-8")
    assert kept == drawn(PICTURES[name]), "draw it again: python -m tools.library_pictures"


def test_the_page_of_the_library_has_a_picture_of_each_function() -> None:
    page = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    assert (
        {name for name in sections if f"](images/library-{name}.svg)" in sections[name]} == {*sections} == {*PICTURES}
    )


@pytest.mark.parametrize("name", MODULES)
def test_the_site_has_every_public_name(name: str) -> None:
    page = api_page(name)
    assert [each for each in importlib.import_module(name).__all__ if f"{each}" not in page] == []
