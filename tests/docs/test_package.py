"""`make package` tries every extra that a user may install, with the code of its pages."""

from __future__ import annotations

import pytest

from palladio.cli import doctor
from tools.package import EXTRAS, snippets


def test_every_extra_that_the_doctor_reports_is_tried() -> None:
    assert set(EXTRAS) == set(doctor.EXTRAS)
    assert all(extra.pages or extra.commands for extra in EXTRAS.values())


@pytest.mark.parametrize("name", [name for name, extra in EXTRAS.items() if extra.pages])
def test_the_sections_of_an_extra_have_code(name: str) -> None:
    for page, titles in EXTRAS[name].pages.items():
        for title in titles:
            assert "import" in snippets(page, title) or "def " in snippets(page, title)
        compile(snippets(page, *titles), page, "exec")


def test_a_section_that_a_page_does_not_have_is_an_error() -> None:
    with pytest.raises(KeyError):
        snippets("pytorch.md", "A layer", "No such section")
