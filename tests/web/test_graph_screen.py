"""The page of one graph: its drawing, its checks, its text, and the form that starts a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import TYPE_CHECKING

import pytest

from tests.web.api import Api, api
from tests.web.windows import Screens, in_themes, serious_faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def server() -> Iterator[Api]:
    with api() as found:
        yield found


def test_the_page_of_a_graph_has_all_of_it(server: Api) -> None:
    page = server.client.get("/graphs/payment")
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert "tests.web.api:plan" in unescape(page.text)
    assert ">proved</span>" in page.text
    form = re.search(r"data-form='([^']*)'", page.text)
    assert form is not None
    assert "x-input" in form[1]
    source = re.search(r'<img [^>]*src="([^"]*)"', page.text)
    assert source is not None
    drawing = server.client.get(source[1])
    assert (drawing.status_code, drawing.headers["content-type"]) == (200, "image/svg+xml")
    assert 'href="/graphs/payment"' in server.client.get("/graphs").text


def test_a_graph_that_is_not_there_is_said(server: Api) -> None:
    assert server.client.get("/graphs/nothing", headers={"Accept": "text/html"}).status_code == 404
    assert server.client.get("/graphs/nothing/drawing.svg").status_code == 404


def test_a_server_that_only_reads_starts_nothing() -> None:
    with api(settings={"read_only": True}) as server:
        page = server.client.get("/graphs/payment")
        assert (page.status_code, "data-form" in page.text) == (200, False)


@pytest.mark.browser
def test_the_form_starts_a_run_and_leads_to_it(server: Api) -> None:
    from tests.support.browser import chromium

    with chromium() as browser:
        page = browser.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"{server.url}/graphs/plain")
        page.fill("[data-field=topic]", "bees")
        page.click("#options summary")
        page.fill("[data-field=labels]", "team: ops\nticket: 17")
        page.click("#start button")
        page.wait_for_url("**/runs/*")
        (run,) = server.get("runs?graph=plain")["runs"]
        assert (run["input"], run["labels"]) == ("bees", {"team": "ops", "ticket": "17"})
        assert faults == []


@pytest.mark.browser
@pytest.mark.parametrize(("size", "theme"), in_themes([(390, 844), (1280, 900), (2560, 1300)]))
@pytest.mark.parametrize("path", ["/graphs", "/graphs/payment"])
def test_no_serious_fault_that_axe_finds_at_any_width(
    browser: Browser, server: Api, path: str, size: tuple[int, int], theme: str
) -> None:
    screens = Screens(browser, server.url)
    page = screens.open(path, size=size, color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
    assert page.evaluate("[...document.images].filter((one) => !(one.complete && one.naturalWidth)).length") == 0
    assert serious_faults(page) == []
    width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width[0] <= width[1], "the screen is wider than the window"
    screens.close()
    assert screens.faults == []
