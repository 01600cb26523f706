"""The page in a real browser, opened from its file: what a reader does with it; it loads nothing, nothing breaks."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from tests.render.html.opened import Opened, on, texts, until
from tests.render.html.sample import SECRET
from tests.support.browser import axe_script

pytestmark = pytest.mark.browser

SHOWN = """[...document.querySelectorAll('#a-canvas svg:not([hidden]) [id]')].map((e) => [e.id, e.getAttribute('class'),
  [...e.querySelectorAll(':scope > [data-slot], :scope > * > [data-slot]')].map((t) => t.textContent)])"""
SLIDE = (
    "(seq) => { const s = document.getElementById('a-slider'); s.value = seq; s.dispatchEvent(new Event('input')); }"
)
SPEED = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const rows = document.getElementById('a-rows'), slider = document.getElementById('a-slider');
  const worst = { scroll: 0, slide: 0, state: 0 };
  const time = async (name, act) => {
    const at = performance.now();
    act();
    await frame();
    worst[name] = Math.max(worst[name], performance.now() - at);
  };
  const slide = (seq) => { slider.value = seq; slider.dispatchEvent(new Event('input')); };
  for (let at = 0; at < 10; at++) await time('scroll', () => { rows.scrollTop = at * 13000; });
  for (const seq of [5000, 100, 4000, 2500, 5001]) await time('slide', () => slide(seq));
  document.getElementById('a-tab-state').click();
  for (const seq of [4900, 10, 2600]) await time('state', () => slide(seq));
  return worst;
}"""
"""The worst milliseconds until the next frame, of scrolling, of moving the slider and of working a state out."""


def test_the_slider_replays_the_one_picture(opened: Opened) -> None:
    page = opened.page
    page.evaluate("{ window.kept = document.querySelector('#a-canvas svg'); }")
    first = json.loads((opened.file.parent / "tour.json").read_text())
    head = int(page.locator("#a-slider").get_attribute("max") or 0)
    forward: dict[int, Any] = {}
    for seq in range(1, head + 1):
        page.evaluate(SLIDE, seq)
        forward[seq] = page.evaluate(SHOWN)
        assert classes(forward[seq]) == classes_of(first[str(seq)]), seq
    for seq in (head // 2, 3, head, 1):
        page.evaluate(SLIDE, seq)
        assert page.evaluate(SHOWN) == forward[seq]
    assert page.evaluate("window.kept === document.querySelector('#a-canvas svg')")
    assert "record 1/" in page.locator("#a-moment").inner_text()


def classes(shown: list[Any]) -> dict[str, set[str]]:
    """Id -> what a run gives to it, of all nodes, edges and the status."""
    return {part[2:]: set(held.split()) - {"here", "way", "picked"} for part, held, _ in shown if held}


def classes_of(svg: str) -> dict[str, set[str]]:
    """The same of a picture that was drawn of that very moment."""
    return classes([[f"a-{e.get('id')}", e.get("class"), []] for e in ET.fromstring(svg).iter() if e.get("id")])


def test_a_link_leads_to_a_step_and_a_tab(opened: Opened) -> None:
    page = opened.go("#step=8&tab=state")
    assert texts(page, "#a-rows [aria-selected=true] .no") == ["8"]
    assert texts(page, ".tabs [aria-selected=true]") == ["State"]
    page.locator("#a-rows .row", has_text="write").click()
    assert page.url.endswith("#step=11&tab=state")
    page = opened.go(page.url.partition("html")[2])
    assert texts(page, "#a-rows [aria-selected=true] .no") == ["11"]
    page.evaluate("location.hash = '#seq=1'")
    until(page, "document.getElementById('a-slider').value === '1'")


@on("shortened")
def test_what_a_step_replaced_in_a_conversation_is_folded(opened: Opened) -> None:
    page = opened.go("#step=2")
    panel = page.locator("#a-panel")
    facts = texts(page, "dl.facts")[0]
    assert "cached 600" in facts
    assert "saved 0.004000" in facts
    assert "900 in (600 cached), 20 out, cost 0.0100, 0.004000 saved by the provider's cache" in panel.inner_text()
    summary = panel.locator(".message").first.inner_text()
    assert "[Summary of 22 earlier messages" in summary
    assert "> All files say <b>lorem</b>." in summary
    assert panel.locator("details").count() == 1
    assert not panel.locator("details .message").first.is_visible()
    panel.locator("summary", has_text="22 messages before").click()
    assert panel.locator("details .message").count() == 22
    assert "0.txt" in panel.locator("details .message").first.inner_text()
    page = opened.go("#step=1")
    panel.locator("summary", has_text="9 messages in their place").click()
    panel.locator("summary", has_text="9 messages before").click()
    shown = texts(page, "#a-panel details .message")
    assert ["was removed to save space" in text for text in shown] == [True] * 9 + [False] * 9
    assert all(f"{number}: lorem ipsum" in text for number, text in enumerate(shown[9:]))


@on("weather")
def test_a_conversation_that_only_grows_has_nothing_replaced(opened: Opened) -> None:
    for step in range(1, opened.go().locator("#a-rows .row").count() + 1):
        assert "Replaced in" not in opened.go(f"#step={step}").locator("#a-panel").inner_text()


def test_states_before_after_and_what_changed(opened: Opened) -> None:
    page = opened.go("#step=8&tab=state")
    panel = page.locator("#a-panel")
    told = panel.inner_text()
    assert "What the join brought" in told
    assert "about one" in told
    assert "[redacted]" in told
    added = texts(page, "#a-panel .diff .add")
    assert any("0.5" in line for line in added)
    assert any(line == "0" for line in texts(page, "#a-panel .diff .cut"))
    panel.get_by_text("Before").click()
    before = texts(page, "#a-panel .field")
    panel.get_by_text("After").click()
    after = texts(page, "#a-panel .field")
    assert "score 0" in before
    assert "score 0.5" in after
    assert any(line.startswith("notes [") and "about three" in line for line in before)
    final = json.loads(page.evaluate("document.getElementById('data').textContent"))
    page = opened.go("#step=12&tab=state")
    page.locator("#a-panel").get_by_text("After").click()
    shown = dict(text.split(" ", 1) for text in texts(page, "#a-panel .field") if " " in text)
    assert float(shown["score"]) == final[0]["final"]["score"]


def test_prompts_replies_calls_and_why(opened: Opened) -> None:
    page = opened.go("#step=1&tab=model")
    told = page.locator("#a-panel").inner_text()
    assert "Be brief." in told
    assert "I say </script>" in told
    assert "\\u202e" in told
    page.keyboard.press("1")
    assert "its graph began: START -> plan" in page.locator("#a-panel").inner_text()
    page = opened.go("#step=8")
    told = page.locator("#a-panel").inner_text()
    assert "3 branches were joined" in told
    assert "grade -> write : good" in texts(page, "#a-panel .not")[0]
    page = opened.go("#step=3&tab=tools")
    told = page.locator("#a-panel").inner_text()
    assert "about " in told
    assert "sk-" not in told
    page.keyboard.press("5")
    assert "By node" in page.locator("#a-panel").inner_text()


def test_search_and_keys(opened: Opened) -> None:
    page = opened.page
    page.keyboard.press("/")
    page.keyboard.type("about two")
    assert texts(page, "#a-found") == ["3 of 12 steps"] or "of 12 steps" in texts(page, "#a-found")[0]
    count = len(texts(page, "#a-rows .row"))
    assert 1 <= count < 12
    page.keyboard.press("Escape")
    assert len(texts(page, "#a-rows .row.step")) == 12
    page.keyboard.press("Home")
    assert page.locator("#a-slider").input_value() == "1"
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    assert texts(page, "#a-rows [aria-selected=true] .no") == ["3"]
    page.keyboard.press("k")
    assert texts(page, "#a-rows [aria-selected=true] .no") == ["2"]
    page.keyboard.press("End")
    assert page.locator("#a-slider").input_value() == page.locator("#a-slider").get_attribute("max")
    page.keyboard.press("ArrowLeft")
    assert int(page.locator("#a-slider").input_value()) == int(page.locator("#a-slider").get_attribute("max") or 0) - 1
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("dialog").is_visible()
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    until(page, "Number(document.getElementById('a-slider').value) > 3")
    page.keyboard.press(" ")
    page.keyboard.press("2")
    page.locator("#a-tab-state").focus()
    page.keyboard.press("ArrowRight")
    assert texts(page, ".tabs [aria-selected=true]") == ["Model"]


def test_a_node_of_the_picture_leads_to_its_steps(opened: Opened) -> None:
    page = opened.page
    page.locator("#a-node-grade > .name").click()
    assert "grade" in texts(page, "#a-rows [aria-selected=true]")[0]
    assert page.locator("#a-node-grade.here").count() == 1


def test_graphs_inside_are_folded_and_unfolded(opened: Opened) -> None:
    page = opened.go("#step=3")
    assert page.locator("[id='a-node-look.search'].here").is_visible()
    page.locator("#a-fold").click()
    assert not page.locator("[id='a-node-look.search']").is_visible()
    assert page.locator("#ac-node-look.here").is_visible()
    assert page.evaluate("document.getElementById('ac-node-look').classList.contains('visited')")
    page.keyboard.press("Home")
    assert not page.evaluate("document.getElementById('ac-node-look').classList.contains('visited')")
    page.locator("#ac-node-look > .name").click()
    assert "look" in texts(page, "#a-rows [aria-selected=true]")[0]
    page.locator("#a-fold").click()
    assert page.locator("[id='a-node-look.search']").is_visible()


@on("long")
def test_five_thousand_steps_do_not_freeze(opened: Opened) -> None:
    page = opened.page
    assert page.locator("#a-rows .row").count() < 80
    took = page.evaluate(SPEED)
    assert max(took.values()) < 2000, took
    page.keyboard.press("/")
    page.keyboard.type("4321")
    until(page, "document.getElementById('a-found').textContent.includes('of 5,000')")
    assert any("4322" in text for text in texts(page, "#a-rows .row .no"))


@on("mended")
def test_a_step_that_failed_looks_like_it_where_the_run_went_on(opened: Opened) -> None:
    page = opened.page
    assert texts(page, "#a-rows .row .mark") == ["✗", "✓"]
    labels = [mark.get_attribute("aria-label") for mark in page.locator("#a-rows .row .mark").all()]
    assert labels == ["failed", "done"]
    assert page.locator("#a-rows .row .track i.failed").count() == 1


@on("failed")
def test_a_failed_run_opens_at_the_step_that_failed_with_the_line_of_code(opened: Opened) -> None:
    page = opened.page
    assert texts(page, "#a-rows .row .mark") == ["✓", "✗", "⊘"]
    assert texts(page, "#a-rows [aria-selected=true] .no") == ["2"]
    for place in ("#a-cards .place", "#a-panel .place"):
        (said,) = texts(page, place)
        assert "sample.py" in said
        assert said.endswith('return {"tea": "2"}[thing]')
    assert not page.locator("#a-panel .trace details").get_attribute("open")
    page.locator("#a-panel .trace summary").first.click()
    trace = page.locator("#a-panel .trace").inner_text()
    assert "in looks_up" in trace
    assert "</script><img src=x" in trace
    assert SECRET not in page.content()
    page.keyboard.press("5")
    assert page.locator("#a-panel .trace").count() == 1


@on("waits", size={"width": 390, "height": 800})
def test_a_run_that_waits_opens_where_it_waits(opened: Opened) -> None:
    assert texts(opened.page, "#a-rows [aria-selected=true] .no") == ["12"]
    told = opened.page.locator("#a-panel").inner_text()
    assert "question: approval" in told
    assert "hunter2" not in told
    assert opened.page.locator("#a-node-publish.waiting.here").count() == 1


@on("two")
def test_two_runs_move_together(opened: Opened) -> None:
    page = opened.page
    page.get_by_text("Look at it").click()
    assert texts(page, "#a-rows [aria-selected=true] .no") == ["12"]
    assert texts(page, "#b-rows [aria-selected=true] .no") == ["12"]
    page.locator("#a-rows .row").first.click()
    assert texts(page, "#b-rows [aria-selected=true] .no") == ["1"]
    page.locator("#together").uncheck()
    page.locator("#b-rows .row.step").nth(2).click()
    assert texts(page, "#a-rows [aria-selected=true] .no") == ["1"]
    page.keyboard.press("j")
    assert texts(page, "#b-rows [aria-selected=true] .no") == ["4"]


SIZES = {"desk": {"width": 1400, "height": 900}, "phone": {"width": 390, "height": 800}}


@pytest.mark.parametrize(
    "opened",
    [(name, {"theme": theme, "size": SIZES[size]}) for name, theme, size in (
        ("tour", "light", "desk"), ("tour", "dark", "desk"), ("waits", "light", "phone"), ("waits", "dark", "phone"),
        ("two", "light", "desk"), ("shortened", "light", "phone"), ("shortened", "dark", "desk"),
    )],
    indirect=True,
)  # fmt: skip
def test_no_serious_fault_that_axe_finds(opened: Opened) -> None:
    page = opened.page
    page.evaluate(axe_script())
    for tab in ("step", "state", "model", "tools", "run"):
        page.locator(f"#a-tab-{tab}").click()
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
        serious = [
            (fault["id"], node["html"][:200], node["failureSummary"])
            for fault in found
            if fault["impact"] in ("serious", "critical")
            for node in fault["nodes"]
        ]
        assert not serious, (tab, serious)
    width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width[0] <= width[1], "it is wider than the window"


@on("graph")
def test_a_graph_alone(opened: Opened) -> None:
    assert opened.page.locator(".agent-graph .node").count() > 6
    assert "plan -> look : each parts" in opened.page.locator("pre").inner_text()


@on("forked")
def test_what_a_fork_took_is_counted_from_its_own_beginning(opened: Opened) -> None:
    facts = dict(zip(texts(opened.page, "#a-facts dt"), texts(opened.page, "#a-facts dd"), strict=True))
    assert facts["took"] in ("0 s", "0 ms"), facts
    assert "idle" not in facts
    first, last = texts(opened.page, "#a-scale span:not(.gap, .cursor)")[:2]
    assert (first, last) == ("0", "0 ms")
    assert opened.page.inner_text("#a-moment").endswith("· 0 ms")
    opened.page.click("#a-first")
    assert opened.page.inner_text("#a-moment").endswith("· before the fork")
