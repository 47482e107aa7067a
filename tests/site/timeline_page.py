"""The page of a timeline in a real browser: `make docs` runs this; it needs what `tests/site/browser.py` needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from palladio.machine.timeline.records import Edge, Lane, Series, Span
from palladio.machine.timeline.timeline import Timeline
from tests.site.browser import page

assert page  # the fixture


def steps(block: int) -> list[Span]:
    lane, path = Lane(f"block {block}", "wg 0"), Lane(f"block {block}", "wg 0", "TMA")
    copies = [Span(path, "ring", 100 * k, 100 * k + 90, "copy", detail=f"ring[{k % 2}]; k = {k}") for k in range(10)]
    return [*copies, *(Span(lane, "compute", 100 * k + 90, 100 * k + 120, "compute") for k in range(10))]


SPANS = [span for block in range(3) for span in steps(block)]
TIMELINE = Timeline(SPANS, title="a ring", counters=[Series("full stages", "", ((90, 1), (120, 0)))])


@pytest.fixture
def shown(page: Page, tmp_path: Path) -> Page:
    """The page, opened; it may neither fail nor load anything."""
    return opened(page, TIMELINE, tmp_path)


def opened(page: Page, timeline: Timeline, folder: Path) -> Page:
    timeline.html(folder / "timeline.html")
    page.set_viewport_size({"width": 1200, "height": 700})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith("file:") else problems.append(request.url))
    page.goto((folder / "timeline.html").as_uri())
    assert page.title() == f"{timeline.title} (modelled time, not measured)"
    assert problems == []
    return page


def window(shown: Page) -> tuple[float, float]:
    return tuple(shown.evaluate("[state.from, state.to]"))


def colours(shown: Page, x: int, y: int) -> list[int]:
    """The colour of a pixel of the picture, of 255 each."""
    script = "([x, y]) => [...context.getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1).data].slice(0, 3)"
    return list(shown.evaluate(script, [x, y]))


def middle(shown: Page, lane: int, time: float) -> list[float]:
    """Where in the canvas a lane is at a time."""
    return list(shown.evaluate("([lane, at]) => [x(at), AXIS + tops[lane] + ROW / 2 - state.top]", [lane, time]))


def on_screen(shown: Page, at: list[float]) -> list[float]:
    box: Any = shown.locator("#view").bounding_box()
    return [box["x"] + at[0], box["y"] + at[1]]


def test_the_whole_run_is_shown_first(shown: Page) -> None:
    assert window(shown) == (0, 1020)
    x, y = middle(shown, 1, 85)
    assert colours(shown, int(x), int(y) + 6) == [0x56, 0xB4, 0xE9]


def test_the_wheel_zooms_about_the_pointer(shown: Page) -> None:
    x, y = on_screen(shown, middle(shown, 0, 500))
    shown.mouse.move(x, y)
    shown.mouse.wheel(0, -400)
    shown.wait_for_function("state.to - state.from < 500")
    start, end = window(shown)
    assert start < 500 < end
    assert abs(on_screen(shown, middle(shown, 0, 500))[0] - x) < 1
    shown.click("#fit")
    assert window(shown) == (0, 1020)


def test_dragging_pans(shown: Page) -> None:
    shown.click("#in")
    start, end = window(shown)
    x, y = on_screen(shown, middle(shown, 0, 500))
    shown.mouse.move(x, y)
    shown.mouse.down()
    shown.mouse.move(x + 60, y, steps=3)
    shown.mouse.up()
    moved, _ = window(shown)
    assert moved < start
    assert window(shown)[1] - moved == pytest.approx(end - start)


def test_a_search_goes_from_one_step_to_the_next(shown: Page) -> None:
    shown.fill("#search", "k = 7")
    assert shown.evaluate("found.value") == "1 of 3"
    assert shown.evaluate("state.hits[state.current].detail") == "ring[1]; k = 7"
    start, end = window(shown)
    assert start <= 700 <= end and end - start < 1020
    shown.press("#search", "Enter")
    assert shown.evaluate("found.value") == "2 of 3"
    shown.fill("#search", "nothing of that name")
    assert shown.evaluate("found.value") == "0 of 0"


def test_equal_blocks_are_one_until_they_are_opened(shown: Page) -> None:
    heads = "rows.filter(row => row.head).map(row => row.block)"
    assert shown.evaluate(heads) == ["block 0"]
    x, y = on_screen(shown, [40, 22 + 11])
    shown.mouse.click(x, y)
    assert shown.evaluate(heads) == ["block 0", "block 1", "block 2"]
    shown.mouse.click(x, y)
    assert shown.evaluate(heads) == ["block 0"]


def test_a_step_says_what_it_is(shown: Page) -> None:
    shown.mouse.move(*on_screen(shown, middle(shown, 1, 345)))
    assert shown.inner_text("#tip").split("\n") == ["ring (TMA load)", "300 to 390 ns: 90 ns", "ring[1]; k = 3"]


def test_both_accesses_are_red_and_the_missing_edge_is_drawn(page: Page, tmp_path: Path) -> None:
    accused = [SPANS[1], SPANS[12]]
    edge = Edge(SPANS[1].lane, SPANS[1].end, SPANS[12].lane, SPANS[12].start, "a wait")
    shown = opened(page, Timeline(SPANS, title="a race", accused=accused, missing=[edge]), tmp_path)
    for span, lane in zip(accused, (1, 0), strict=True):
        x, y = middle(shown, lane, span.end - 1)
        assert colours(shown, int(x), int(y) + 6) == [0xD6, 0x27, 0x28]
    start, end = window(shown)
    assert start <= min(span.start for span in accused)
    assert max(span.end for span in accused) <= end < 1020


def test_the_counters_stand_below(shown: Page) -> None:
    height = shown.evaluate("canvas.clientHeight - low()")
    assert height == shown.evaluate("COUNTER")
