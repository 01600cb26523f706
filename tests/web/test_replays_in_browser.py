"""Replays of many runs, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.web import essays
from tests.web.api import Api, api, held
from tests.web.hostile import HOSTILE
from tests.web.windows import SIZES, Screens, in_themes, serious_faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

pytestmark = pytest.mark.browser
TOPICS = ("tea", "milk", "soup")


@pytest.fixture
def shown(browser: Browser) -> Iterator[tuple[Api, Screens]]:
    """A server with three runs of a graph and an edited version of that graph, and windows on it."""
    graphs = essays.writing(), essays.writing("Tell me about", "edited")
    with api(*graphs, model=essays.model(), settings={"poll": 0.05}) as found:
        for topic in TOPICS:
            found.post("runs", 201, graph="writing", input=topic, run_id=topic, wait=True)
        screens = Screens(browser, found.url)
        yield found, screens
        screens.close()
        assert not screens.faults


def test_three_runs_are_replayed_on_an_edited_graph_and_compared_by_keys_alone(shown: tuple[Api, Screens]) -> None:
    _, screens = shown
    page = screens.open("/runs")
    for key in ("j", "x", "j", "x", "j", "x"):
        page.keyboard.press(key)
    page.keyboard.press("Control+k")
    page.keyboard.type("replay")
    page.wait_for_selector("#found li >> text=Replay")
    page.keyboard.press("Enter")
    page.wait_for_url("**/replay?runs=tea%2Cmilk%2Csoup")
    page.wait_for_selector("html[data-ready]")
    page.focus("#graph")
    page.keyboard.type("edited")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == "never"
    page.keyboard.press("Enter")
    page.wait_for_url("**&batch=*")
    page.wait_for_selector("#summary:has-text('3 of 3 are over: 3 different')")
    assert page.locator("#replays tr[data-outcome=different]").count() == 3
    assert "the request to model scripted differs" in page.inner_text("tr[data-run=milk]")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('tr').dataset.run") == "milk"
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#replays tr[data-outcome=different]").count() == 3
    page.keyboard.press("j")
    page.keyboard.press("c")
    page.wait_for_url("**/compare?runs=tea%2C**")
    page.wait_for_selector("tr.texts")
    assert "Tell me about" in page.inner_text("tr.texts")
    assert [one.inner_text() for one in page.locator(".sides mark").all()][:2] == ["Write", "Tell me"]


@pytest.mark.parametrize(
    ("screen", "path", "form"), [("replay", "/replay?runs=tea", "manner"), ("graph", "/graphs/writing", "start")]
)
def test_a_form_waits_for_its_script(shown: tuple[Api, Screens], screen: str, path: str, form: str) -> None:
    """The browser would send it to the address of the page, without what the script adds."""
    _, screens = shown
    late: list[Route] = []
    page = screens.open("/runs")
    page.route(f"**/{screen}_screen*.js*", lambda route: late.append(route))
    with page.expect_request(f"**/{screen}_screen*.js*"):
        page.goto(screens.url + path, wait_until="commit")
    button = page.locator(f"#{form} [type=submit]")
    button.wait_for()
    assert button.is_disabled()
    (script,) = late
    script.continue_()
    page.wait_for_selector("html[data-ready]")
    assert button.is_enabled()


def test_replays_are_followed_stopped_and_gone_on_with(browser: Browser) -> None:
    with held(settings={"poll": 0.05}) as (found, gate):
        found.start("plain", run_id="two")
        found.portal.call(gate.go.set)
        assert found.settled("one")["status"] == "completed"
        gate.go.__init__()  # type: ignore[misc]  # closed once more: replays of the step wait
        screens = Screens(browser, found.url)
        page = screens.open("/replay?runs=one,two")
        page.check("input[value=always]")
        page.click("#manner [type=submit]")
        page.wait_for_url("**&live=always&batch=*")
        page.wait_for_selector("tr[data-run=one][data-outcome=running]")
        page.wait_for_selector("tr[data-run=two][data-outcome=same]")
        page.click("#stop")
        page.wait_for_selector("tr[data-run=one][data-outcome=stopped]")
        found.portal.call(gate.go.set)
        page.click("#go-on")
        page.wait_for_selector("tr[data-run=one][data-outcome=same]")
        assert page.locator("#stop, #go-on").count() == 0
        page.click("text=Replay otherwise")
        page.wait_for_selector("#manner")
        assert page.is_checked("input[value=always]")
        page.select_option("#from", "at")
        page.click("#manner [type=submit]")
        page.wait_for_selector("#notes >> text=a number from 1 on")
        screens.close()
        assert not screens.faults


def test_text_of_runs_does_nothing_on_the_page(browser: Browser) -> None:
    with api() as found:
        found.post("runs", 201, graph="plain", input=HOSTILE, run_id="one", wait=True)
        screens = Screens(browser, found.url)
        page = screens.open("/replay?runs=one")
        page.click("#manner [type=submit]")
        page.wait_for_selector("tr[data-outcome=same]")
        assert page.evaluate("window.pwned") is None
        screens.close()
        assert not screens.faults


@pytest.mark.parametrize(("size", "theme"), in_themes(SIZES))
def test_no_serious_fault_that_axe_finds_at_any_width(
    shown: tuple[Api, Screens], size: tuple[int, int], theme: str
) -> None:
    found, screens = shown
    found.post("runs", 201, graph="writing", input="w" * 300, run_id="a" * 120, wait=True)
    runs = f"tea,milk,nothing,{'a' * 120}"
    found.post("replays", 201, runs=runs.split(","), graph="edited", batch="b1", live="always")
    found.post("replays", 201, runs=["tea", "milk"], batch="b2")
    for query in ("runs=tea,milk&at=3", f"runs={runs}&batch=b1", "runs=tea,milk,soup&batch=b2"):
        page = screens.open(f"/replay?{query}", size, color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
        assert serious_faults(page) == []
        width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert width[0] <= width[1], "the screen is wider than the window"
