"""The documentation site as it is built: without a warning, fit for phones, and its search finds guides first."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import axe_script, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.browser


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name of the base class
        """Nothing is logged."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, where every warning is an error: of links, of docstrings, and of lists that became paragraphs.

    `BUILT_SITE` names one that was built before.
    """
    if "BUILT_SITE" in os.environ:
        return Path(os.environ["BUILT_SITE"])
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def address(built: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(built))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.mark.parametrize(
    ("markdown", "read"),
    [
        ("Two things:\n- one\n- two", ["- one", "- two"]),
        ("1. one\n\n   more\n2. two", ["2. two"]),
        ("The answer to this is\n422. It means that", ["422. It means that"]),
        ("- one\n- two\n\n1. a\n\n    more\n\n2. b", []),
        ("See decision\n[14](a.md). It says `- x`\n\n```\n- x\n```\n\n## 1. A title", []),
    ],
)
def test_a_list_that_became_a_paragraph_is_found(markdown: str, read: list[str]) -> None:
    from markdown import markdown as html_of

    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / ".ci" / "site.py")
    assert spec
    assert spec.loader
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    assert hooks.misread(html_of(markdown, extensions=["pymdownx.superfences"]))[: len(read) or None] == read


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("fork", "forking"),
        ("lease", "stores"),
        ("mcp", "mcp"),
        ("replay", "replay"),
        ("schedule", "waiting"),
        ("secrets", "security"),
        ("sqlite", "stores"),
        ("store", "stores"),
        ("stream", "streaming"),
        ("version migration", "versions"),
    ],
)
def test_the_search_finds_the_guide_before_decisions_and_reference(
    words: str, page: str, browser: Browser, address: str
) -> None:
    window = browser.new_page()
    window.goto(f"{address}/index.html?q={words}")
    found = window.locator(".md-search-result__item > a.md-search-result__link:first-child")
    found.first.wait_for(state="attached")
    places = [str(one.get_attribute("href")).removeprefix(address).split("?")[0] for one in found.all()]
    window.close()
    assert places[0].split("#")[0] == f"/{page}.html"
    assert [place for place in places[:5] if place.startswith("/decisions/")] == []


def test_screens_of_the_live_page_are_as_the_screen_of_the_reader(browser: Browser, address: str) -> None:
    shown = {}
    schemes: tuple[Any, ...] = ("light", "dark")
    for width in (390, 1440):
        for scheme in schemes:
            window = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
            window.goto(f"{address}/live_page.html")
            source = window.locator("picture img").first.evaluate("image => image.currentSrc")
            shown[width, scheme] = source.rsplit("/", 1)[1]
            window.close()
    assert shown == {
        (390, "light"): "live_runs_390_light.png",
        (390, "dark"): "live_runs_390_dark.png",
        (1440, "light"): "live_runs_light.png",
        (1440, "dark"): "live_runs_dark.png",
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_links_can_be_told_from_what_is_around_them(scheme: Any, browser: Browser, address: str) -> None:
    window = browser.new_page(color_scheme=scheme)
    found = []
    for name in ("index", "tutorial", "live_page", "reference/orchestrator.memory"):
        window.goto(f"{address}/{name}.html")
        window.evaluate(axe_script())
        broken = window.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa']}).then(found => found.violations)")
        found += [(name, rule["id"], node["html"]) for rule in broken for node in rule["nodes"]]
    window.close()
    assert found == []


def test_no_page_is_wider_than_a_phone_or_asks_another_host(browser: Browser, address: str, built: Path) -> None:
    window = browser.new_page(viewport={"width": 390, "height": 844}, java_script_enabled=False)
    asked: set[str] = set()
    window.on("request", lambda request: asked.add(request.url))
    wide, empty = [], []
    for path in sorted([*built.glob("*.html"), *built.glob("notebooks/*.html"), *built.glob("strategies/*.html")]):
        window.goto(f"{address}/{path.relative_to(built)}", wait_until="domcontentloaded")
        window.evaluate("document.querySelectorAll('table').forEach(table => table.remove())")  # the theme scrolls them
        if window.evaluate("document.querySelector('article').scrollWidth") > 390:
            wide.append(path.name)
        empty += window.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)")
    window.close()
    assert (wide, empty) == ([], [])
    assert {url for url in asked if not url.startswith((address, "data:"))} == set()
