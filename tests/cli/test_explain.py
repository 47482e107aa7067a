"""`palladio explain`: the pages of findings, in a checkout and as the wheel ships them."""

from __future__ import annotations

import tomllib

import pytest

from palladio.cli import main
from palladio.machine.check.findings import CODES
from tests.architecture.source import ROOT


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_has_a_page(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", code]) == 0
    assert capsys.readouterr().out.startswith(f"# {code}\n")


def test_without_a_code_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == sorted(CODES)


def test_a_code_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "data-rase"]) == 2
    assert capsys.readouterr().err == "palladio: no finding has the code 'data-rase'; did you mean data-race?\n"
    assert main(["explain", "x"]) == 2
    assert "`palladio explain` lists the codes" in capsys.readouterr().err


def test_the_wheel_has_the_pages() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"] == {
        "docs/findings": "palladio/findings"
    }
