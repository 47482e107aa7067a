"""`palladio/architecture.py` shows the floors that the tests hold."""

from __future__ import annotations

import re

import palladio.architecture
from tests.architecture.source import PACKAGE
from tests.architecture.test_floors import FLOORS

ROW = re.compile(r"^ +(?P<floor>\d+)? +palladio/(?P<unit>\w+)  +(?P<what>\S.*)$", re.MULTILINE)


def rows() -> list[tuple[int, str, str]]:
    """The rows of the picture: floor, package, what it says."""
    found, floor = [], -1
    text = palladio.architecture.__doc__ or ""
    for row in ROW.finditer(text[text.index("The floors\n") :]):
        floor = int(row["floor"]) if row["floor"] else floor
        found.append((floor, row["unit"], row["what"]))
    return found


def test_the_picture_shows_every_floor() -> None:
    shown = [(floor, unit) for floor, unit, _ in rows()]
    assert shown == sorted(shown, key=lambda row: -row[0]), "the roof comes first"
    assert {*shown} == {(floor, unit) for floor, units in enumerate(FLOORS) for unit in units}


def test_the_picture_calls_planned_what_is_not_there() -> None:
    for _, unit, what in rows():
        assert any((PACKAGE / unit).glob("*.py")) != what.startswith("(planned)"), unit
