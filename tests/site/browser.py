"""The site in a real browser, without a window: `make docs` builds it and runs this.

It needs what `pip install 'palladio[docs]'` brings, and Chromium, from the system or by `playwright install chromium`.
"""

from __future__ import annotations

import functools
import http.server
import importlib
import shutil
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urldefrag, urljoin

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.architecture.source import ROOT
from tools.site import MODULES

SITE = ROOT / "build/site"
SYSTEM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The site's first page on a server of this process."""
    handler = functools.partial(_Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """A page of a browser."""
    own = next(filter(None, map(shutil.which, SYSTEM)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=own, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


@pytest.fixture(scope="module")
def visited(page: Page, address: str) -> dict[str, dict[str, Any]]:
    """Every page that links lead to from the first one: its links, its anchors, its pictures, what was not loaded."""
    failures: list[str] = []
    page.on("response", lambda answer: answer.status < 400 or failures.append(f"{answer.status} {answer.url}"))
    page.on("requestfailed", lambda request: failures.append(f"failed {request.url}"))
    page.on("pageerror", lambda error: failures.append(f"script: {error}"))
    found: dict[str, dict[str, Any]] = {}
    waiting = [address + "index.html"]
    while waiting:
        here = waiting.pop()
        if here in found or not here.endswith(".html"):
            continue
        failures.clear()
        page.goto(here)
        page.evaluate("document.querySelectorAll('img').forEach(each => { each.loading = 'eager' })")
        page.wait_for_function("[...document.images].every(each => each.complete)")
        links = page.eval_on_selector_all("a[href]", "all => all.map(each => each.href)")
        found[here] = {
            "links": [urljoin(here, link) for link in links if link.startswith(address)],
            "ids": set(page.eval_on_selector_all("[id]", "all => all.map(each => each.id)")),
            "broken": page.eval_on_selector_all(
                "img", "all => all.filter(each => !each.naturalWidth).map(each => each.src)"
            ),
            "pictures": page.eval_on_selector_all("img", "all => all.length"),
            "failures": list(failures),
            "foreign": [
                source
                for source in page.eval_on_selector_all("[src]", "all => all.map(each => each.src)")
                if not source.startswith((address, "data:"))
            ],
        }
        waiting += [urldefrag(link)[0] for link in found[here]["links"]]
    return found


def test_every_page_is_reached_and_loads_whole(visited: dict[str, Any], address: str) -> None:
    built = {address + str(path.relative_to(SITE)) for path in SITE.rglob("*.html")} - {address + "404.html"}
    assert built <= set(visited)
    assert {here: each["failures"] for here, each in visited.items() if each["failures"]} == {}
    assert {here: each["foreign"] for here, each in visited.items() if each["foreign"]} == {}


def test_every_link_leads_to_a_place_on_its_page(visited: dict[str, Any]) -> None:
    lost = {
        f"{here} -> {link}"
        for here, each in visited.items()
        for link, part in map(urldefrag, each["links"])
        if link.endswith(".html") and (link not in visited or (part and part not in visited[link]["ids"]))
    }
    assert lost == set()


def test_every_picture_is_drawn(visited: dict[str, Any]) -> None:
    assert {here: each["broken"] for here, each in visited.items() if each["broken"]} == {}
    assert sum(each["pictures"] for each in visited.values()) > 10


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_its_place(module: str, visited: dict[str, Any], address: str) -> None:
    there = importlib.import_module(module)
    names = [each for each in there.__all__ if type(getattr(there, each)).__name__ != "Refused"]
    ids = visited[f"{address}api/{module}.html"]["ids"]
    assert [each for each in names if f"{module}.{each}" not in ids] == []


def test_dataclasses_are_named_as_such(page: Page, address: str) -> None:
    page.goto(address + "api/palladio.gpu.html")
    assert "dataclass" in page.locator('[id="palladio.call.launch.mesh.Mesh"]').inner_text()


@pytest.mark.parametrize(
    ("words", "target"),
    [
        ("missing-commit-smem", "findings/missing-commit-smem.html"),
        ("attention_blocks", "api/palladio.library.html"),
    ],
)
def test_the_search_finds_pages(words: str, target: str, page: Page, address: str) -> None:
    page.goto(address + "index.html")
    page.fill("input[data-md-component=search-query]", words)
    page.wait_for_selector(".md-search-result__item a")
    found = page.eval_on_selector_all(".md-search-result__item a", "all => all.map(each => each.href)")
    assert any(target in each for each in found)
