"""Text that attacks a page, in a real browser: nothing of it runs, and what cannot be seen is an escape everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from orchestrator.testing import ScriptedModel
from tests.support.browser import chromium
from tests.web.api import Api, api
from tests.web.hostile import HOSTILE, RAW, SCRIPTS
from tests.web.test_hostile_text import BY, GRAPHS, NAMED, filled, said

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def hostile() -> Iterator[Api]:
    """A server whose store is full of such text."""
    with api(*GRAPHS, model=ScriptedModel(said)) as found:
        filled(found)
        yield found


@pytest.fixture
def page(browser: Browser, hostile: Api) -> Iterator[Page]:
    """A window on the server, in which no script but the server's own may run, and no other server be asked."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=False)
    found = context.new_page()
    faults: list[str] = []
    found.on("pageerror", lambda error: faults.append(str(error)))
    found.on("console", lambda one: faults.append(one.text) if "Content Security Policy" in one.text else None)
    found.on("request", lambda one: None if one.url.startswith(hostile.url) else faults.append(one.url))
    found.on("dialog", lambda one: one.dismiss())
    yield found
    context.close()
    assert faults == []


def opened(page: Page, hostile: Api, path: str) -> None:
    page.goto(hostile.url + path)
    page.wait_for_selector("html[data-ready], html.ready, #a-status, .card, #runs, .empty")
    checked(page)


SEEN = """() => {
    const texts = [document.title];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode())
        if (!walker.currentNode.parentElement.closest("script, style, textarea")) texts.push(walker.currentNode.data);
    for (const one of document.querySelectorAll("[title], [aria-label], [placeholder], [alt]"))
        texts.push(...["title", "aria-label", "placeholder", "alt"].map((name) => one.getAttribute(name) ?? ""));
    return texts;
}"""


GO = """async (hash) => {
    location.hash = hash;
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""
TABS = ("step", "state", "model", "tools", "run")


def checked(page: Page) -> None:
    """Nothing ran, nothing was put in that runs, and everything can be seen."""
    assert page.evaluate("window.pwned") is None
    assert page.locator("iframe, object, embed, [onload], [onerror], [onclick], [onfocus], [onmouseover]").count() == 0
    hidden = [(found[0], text[:300]) for text in page.evaluate(SEEN) if (found := RAW.search(text))]
    assert hidden == []


@pytest.mark.parametrize("run_id", ["mail", "denied", "broken", NAMED], ids=["mail", "denied", "broken", "named"])
def test_nothing_of_it_runs_on_the_page_of_a_run(page: Page, hostile: Api, run_id: str) -> None:
    opened(page, hostile, f"/runs/{quote(run_id)}")
    for number, tab in product(range(1, len(hostile.get(f"runs/{quote(run_id)}/history")["steps"]) + 1), TABS):
        page.evaluate(GO, f"step={number}&tab={tab}")
        checked(page)
    for name in ("q", "edge", "kind", "sort", "only", "tab", "step", "seq"):
        page.evaluate(GO, f"{name}={quote(HOSTILE)}")
        checked(page)
    page.goto(f"{hostile.url}/api/runs/{quote(run_id)}/page.html")
    checked(page)


def test_nothing_of_it_runs_on_the_list_of_runs(page: Page, hostile: Api) -> None:
    opened(page, hostile, "/runs")
    for text in SCRIPTS:
        for name in ("q", "graph", "label"):
            opened(page, hostile, f"/runs?{name}={quote(f'x:{text}')}")


@pytest.mark.parametrize(
    "path",
    [
        "/compare?runs=mail,denied", "/compare?runs=plain,child&step=end", f"/compare?runs=plain,{quote(NAMED)}",
        "/replay?runs=mail", f"/replay?runs=plain,{quote(NAMED)}&batch=b1", "/costs", "/costs?by=tool",
        f"/costs?by={quote('label:' + HOSTILE[:180])}", "/graphs", "/graphs/plain", "/compose?start=plain",
        f"/runs/{quote(NAMED)}#fork=2", "/runs/child#fork=3",
    ],
)  # fmt: skip
def test_nothing_of_it_runs_where_runs_are_compared_replayed_forked_and_summed_up(
    page: Page, hostile: Api, path: str
) -> None:
    page.goto(hostile.url + path, wait_until="load")
    page.wait_for_timeout(500)  # what its script asks for and shows then
    checked(page)


def test_nothing_of_it_runs_on_the_list_of_workers(page: Page, hostile: Api) -> None:
    opened(page, hostile, "/workers")
    assert "window.pwned" in page.inner_text("#working")


def test_nothing_of_it_runs_in_views_that_were_saved(page: Page, hostile: Api) -> None:
    """Other pages of this host and port may have written them, before this server came."""
    for kept in (
        {HOSTILE: "?q=1", "two": "javascript:window.pwned=11", "three": "//evil.example/", "four": '"><script>'},
        [HOSTILE], HOSTILE, None, 7, {"one": {"two": 3}, "__proto__": HOSTILE},
    ):  # fmt: skip
        page.goto(f"{hostile.url}/runs")
        page.evaluate("text => localStorage.setItem('orchestrator.views', text)", json.dumps(kept))
        opened(page, hostile, "/runs?status=paused")
        for link in page.locator("#views a").all():
            address = link.get_attribute("href") or ""
            assert re.match(r"/runs(\?|$)", address), address
    page.evaluate("localStorage.setItem('orchestrator.views', '{')")
    opened(page, hostile, "/runs?status=paused")


def test_nothing_of_it_runs_in_the_inbox_while_it_is_edited_and_answered(page: Page, hostile: Api) -> None:
    hostile.post("runs", 201, graph="mail", input=HOSTILE, run_id="edited", wait=True)
    opened(page, hostile, "/inbox")
    card = page.locator(".card[data-run=edited]")
    card.get_by_role("button", name="Edit").click()
    card.locator("summary").click()
    checked(page)
    field = card.locator(".form textarea, .form input").first
    field.fill(HOSTILE.replace("\x00", "") + " more")
    card.locator(".diff .add").first.wait_for()
    checked(page)
    (question,) = hostile.get("runs/edited")["waiting"]
    seen = {"question": question["id"], "digest": question["digest"]}
    hostile.post("runs/edited/answer", **seen, deny={"reason": HOSTILE}, by=BY)  # elsewhere
    page.locator(".card.over[data-run=edited]").wait_for()
    checked(page)
    assert "\\u202e" in card.locator(".outcome").inner_text()
