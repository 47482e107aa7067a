"""Every finding has its page, and the page shows a kernel that has it."""

from __future__ import annotations

import re

import pytest

from palladio.machine.check.findings import CODES
from tests.architecture.source import ROOT

PAGES = ROOT / "docs/findings"


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} - {"README"} == set(CODES)


def test_the_index_has_every_code_with_its_title() -> None:
    rows = re.findall(r"^\| \[([\w-]+)\]\((\S+)\) \| (.*) \|$", (PAGES / "README.md").read_text("utf-8"), re.MULTILINE)
    assert rows == [(name, f"{name}.md", code.title) for name, code in CODES.items()]


@pytest.mark.parametrize("code", CODES)
def test_a_page_shows_the_report_and_then_a_kernel_without_a_finding(code: str) -> None:
    # That the kernels print what stands here is what tests/docs/test_snippets.py holds.
    text = (PAGES / f"{code}.md").read_text("utf-8")
    reports = re.findall(r"^```output\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
    found = [set(re.findall(r"^([a-z-]+)(?: \(\w+\))?: ", report, re.MULTILINE)) for report in reports]
    assert found == [{code}, set()]
    assert reports[-1].startswith("no finding in ")


@pytest.mark.parametrize("code", CODES)
def test_a_page_has_its_parts(code: str) -> None:
    text = (PAGES / f"{code}.md").read_text("utf-8")
    assert re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    ) == [
        code,
        "Why it matters",
        "How to fix it",
        "What the checker assumes",
    ]
