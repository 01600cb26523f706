"""The page of one graph: its drawing, its checks, its text, and the form that starts a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import pytest

from tests.web.api import Api, api


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
    drawing = server.client.get("/graphs/payment/drawing.svg")
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
        page.fill("#labels", "team: ops, ticket: 17")
        page.click("#start button")
        page.wait_for_url("**/runs/*")
        (run,) = server.get("runs?graph=plain")["runs"]
        assert (run["input"], run["labels"]) == ("bees", {"team": "ops", "ticket": "17"})
        assert faults == []
