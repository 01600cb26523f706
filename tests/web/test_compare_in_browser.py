"""Runs compared side by side, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.web import essays
from tests.web.api import Api, api, held
from tests.web.hostile import HOSTILE
from tests.web.windows import SIZES, Screens, in_themes, serious_faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture
def shown(browser: Browser) -> Iterator[tuple[Api, Screens]]:
    """A server with a run, a fork of it with another state, and a third run; and windows on it."""
    with api(essays.writing(), model=essays.model()) as found:
        found.post("runs", 201, graph="writing", input="tea", run_id="parent", wait=True)
        found.post("runs/parent/fork", 201, at=2, update={"topic": "coffee"}, run_id="fork")
        assert found.settled("fork")["status"] == "completed"
        found.post("runs", 201, graph="writing", input="milk", run_id="third", wait=True)
        screens = Screens(browser, found.url)
        yield found, screens
        screens.close()
        assert not screens.faults


def marked(page: Page) -> list[str]:
    """The words that are marked as different."""
    return [one.inner_text() for one in page.locator(".sides mark").all()]


def test_a_fork_is_compared_with_its_parent_by_keys_alone(shown: tuple[Api, Screens]) -> None:
    _, screens = shown
    page = screens.open("/runs")
    for key in ("j", "j", "x"):  # the newest is the third run, then the fork
        page.keyboard.press(key)
    assert page.is_disabled("[data-bulk=compare]")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("Control+k")
    page.keyboard.type("compare")
    page.wait_for_selector("#found li >> text=Compare")
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare?runs=parent%2Cfork")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("f")
    page.wait_for_selector("tr.texts")
    assert page.evaluate("document.activeElement.closest('tr').dataset.step") == "start"
    assert "values were set from outside: topic" in page.inner_text("tr.texts")
    assert page.url.endswith("step=start")
    page.keyboard.press("n")
    page.wait_for_selector("tr.texts[data-step='1:/draft']")
    assert page.locator("tr.texts").count() == 1
    assert {"tea", "coffee"} <= set(marked(page))
    page.keyboard.press("Escape")
    assert page.locator("tr.texts").count() == 0
    assert page.evaluate("document.activeElement.closest('tr').dataset.step") == "1:/draft"
    page.keyboard.press("p")
    page.wait_for_selector("tr.texts[data-step=start]")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('tr').dataset.step") == "1:/check"
    page.keyboard.press("Enter")
    page.wait_for_selector("tr.texts[data-step='1:/check']")
    assert "The same here" in page.inner_text("tr.texts")
    page.keyboard.press("Enter")
    page.wait_for_selector("tr.texts", state="detached")


def test_back_reload_and_a_link_give_the_same_view(shown: tuple[Api, Screens]) -> None:
    _, screens = shown
    page = screens.open("/compare?runs=parent,fork,third")
    page.click("tr[data-step='1:/draft'] a.open")
    page.wait_for_selector("tr.texts")
    before = page.inner_text("tr.texts")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.inner_text("tr.texts") == before
    page.click("tr[data-step='1:/draft'] td:nth-of-type(2) a.run")
    page.wait_for_url("**/runs/fork#step=2")
    page.wait_for_selector("html[data-ready]")
    page.go_back()
    page.wait_for_selector("html[data-ready]")
    assert page.inner_text("tr.texts") == before
    page.click("text=Only what differs")
    page.wait_for_url("**different=true**")
    assert page.locator("tr.row").count() == 4
    page.click("#figures tr[data-run=third] >> text=Leave out")
    page.wait_for_url("**/compare?runs=parent%2Cfork&different=true")
    page.click("#figures tr[data-run=fork] >> text=Make it A")
    page.wait_for_url("**/compare?runs=fork%2Cparent&different=true")


def test_the_first_difference_of_many_rows_is_reached_from_another_page(shown: tuple[Api, Screens]) -> None:
    _, screens = shown
    page = screens.open("/compare?runs=parent,fork&limit=2&after=4")
    page.keyboard.press("f")
    page.wait_for_selector("tr.texts[data-step=start]")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("n")
    page.wait_for_selector("#notes >> text=later rows follow")
    page.keyboard.press("Enter")
    page.wait_for_url("**after=2")


def test_a_run_that_goes_on_is_followed_and_what_is_open_stays_open(browser: Browser) -> None:
    with held(settings={"poll": 0.05}) as (found, gate):
        found.start("plain", run_id="two")
        screens = Screens(browser, found.url)
        page = screens.open("/compare?runs=two,one")
        page.wait_for_selector("#aligned >> text=running")
        page.click("tr[data-step='1:/draft'] a.open")
        page.wait_for_selector("tr.texts")
        found.portal.call(gate.go.set)
        page.wait_for_selector("#figures tr[data-run=one] .pill.completed")
        page.wait_for_selector("#aligned >> text=running", state="detached")
        assert page.locator("tr.texts[data-step='1:/draft']").count() == 1
        assert page.evaluate("document.activeElement.closest('tr').dataset.step") == "1:/draft"
        screens.close()
        assert not screens.faults


def test_text_of_runs_does_nothing_on_the_page(browser: Browser) -> None:
    with api() as found:
        for run_id, text in (("one", HOSTILE), ("two", f"x {HOSTILE}")):
            found.post("runs", 201, graph="plain", input=text, run_id=run_id, wait=True)
        screens = Screens(browser, found.url)
        page = screens.open("/compare?runs=one,two")
        for step in ("start", "1:/draft", "end"):
            page.click(f"tr[data-step='{step}'] a.open")
            page.wait_for_selector(f"tr.texts[data-step='{step}']")
        assert page.evaluate("window.pwned") is None
        screens.close()
        assert not screens.faults


@pytest.mark.parametrize(("size", "theme"), in_themes(SIZES))
def test_no_serious_fault_that_axe_finds_at_any_width(
    shown: tuple[Api, Screens], size: tuple[int, int], theme: str
) -> None:
    found, screens = shown
    for run_id in ("a" * 120, "five", "six"):
        found.post("runs", 201, graph="writing", input="w" * 300, run_id=run_id, wait=True)
    for runs in ("parent,fork", f"parent,fork,third,{'a' * 120},five,six"):
        page = screens.open(
            f"/compare?runs={runs}&step=1:/draft", size, color_scheme=theme, bypass_csp=True, reduced_motion="reduce"
        )
        assert serious_faults(page) == []
        width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert width[0] <= width[1], "the screen is wider than the window"
