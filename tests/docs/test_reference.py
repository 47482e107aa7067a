"""The pages that are made from the code are those that the code makes now."""

from __future__ import annotations

import pytest

from tests.architecture.source import ROOT
from tools.reference import PAGES


@pytest.mark.parametrize("path", PAGES)
def test_the_page_is_current(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == PAGES[path](), "write it again: python tools/reference.py"
