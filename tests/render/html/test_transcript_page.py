"""The transcript on a page, in a real browser: what was said, and the way from there to the steps and back."""

from __future__ import annotations

import pytest

from tests.render.html.opened import Opened, on, texts, until
from tests.support.browser import axe_script

pytestmark = pytest.mark.browser


@on("weather")
def test_a_run_is_read_as_a_conversation(opened: Opened) -> None:
    page = opened.page
    assert page.locator("#a-talk").is_hidden()
    page.keyboard.press("t")
    assert page.locator("#a-canvas").is_hidden()
    said = texts(page, "#a-talk .entry")
    first = ["system", "user", "scripted", "search_web", "scripted", "approved", "send_mail", "scripted"]
    assert [text.startswith(name) for text, name in zip(said, first, strict=True)] == [True] * len(first)
    assert "412 in, 57 out" in said[2]
    assert "by ann" in said[5]
    assert "view=transcript" in page.url
    page.locator("#a-talk .entry details summary").nth(1).click()  # arguments and result of the search
    assert "Oslo: 4 degrees" in page.locator("#a-talk .entry.tool").first.inner_text()
    page.evaluate(axe_script())
    faults = page.evaluate("axe.run(document.querySelector('#a-middle'))")["violations"]
    assert [fault["id"] for fault in faults if fault["impact"] in ("serious", "critical")] == []


@on("weather")
def test_turns_lead_to_steps_and_steps_to_turns(opened: Opened) -> None:
    page = opened.go("#view=transcript")
    page.locator("#a-talk .entry.tool .by .link").first.evaluate("button => button.click()")
    assert "search_web" in page.locator("#a-panel h2").inner_text()
    here = page.locator("#a-talk .entry.here")
    assert here.count() == 1
    assert "search_web" in here.inner_text()
    page.locator("#a-rows .row", has_text="think").first.click()
    assert "scripted" in page.locator("#a-talk .entry.turn.here").inner_text()


@on("weather")
def test_long_texts_are_cut_until_they_are_asked_for(opened: Opened) -> None:
    page = opened.go("#view=transcript")
    last = page.locator("#a-talk .entry.turn").last
    more = last.locator("button.more")
    short = last.bounding_box()
    more.click()
    tall = last.bounding_box()
    assert short is not None
    assert tall is not None
    assert tall["height"] > short["height"]
    assert more.get_attribute("aria-expanded") == "true"


@on("talking")
def test_what_is_added_is_shown_wherever_a_reader_is(opened: Opened) -> None:
    page = opened.go("#view=transcript")
    entries = page.locator("#a-talk .entry")
    before = entries.count()
    page.locator("#a-talk").evaluate("box => { box.scrollTop = 0; }")
    page.evaluate("window.grow()")
    until(page, f"document.querySelectorAll('#a-talk .entry').length > {before}")
    assert page.locator("#a-talk").evaluate("box => box.scrollTop") == 0  # who looks back keeps looking at the same


@on("tour")
def test_texts_of_strangers_are_text(opened: Opened) -> None:
    page = opened.go("#view=transcript")
    assert page.locator("#a-talk .entry").count() > 0
    assert page.evaluate("window.pwned") is None
    assert page.locator("#a-talk script, #a-talk img[onerror]").count() == 0


@on("dialogue")
def test_a_long_run_is_shown_in_parts(opened: Opened) -> None:
    page = opened.go("#view=transcript")
    entries = page.locator("#a-talk .entry")
    assert entries.count() == 150
    assert "1 more" in entries.nth(-2).inner_text()
    page.get_by_role("button", name="250 earlier entries").click()
    assert entries.count() == 300
    page.locator("#a-slider").evaluate(
        "slider => { slider.value = 3; slider.dispatchEvent(new Event('input')); }"
    )  # to a step far from what is shown
    assert "200 more" in entries.first.inner_text()
