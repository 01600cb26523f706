"""What a reader of a page sees at once, and finds: names, folding, filters, edges, panes, links."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.render.html.opened import Opened, on, texts, until

pytestmark = pytest.mark.browser

DESK = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 800}
WHOLE = """[...document.querySelectorAll('#a-rows .row')].filter((row) => {
  const box = row.getBoundingClientRect(), list = document.getElementById('a-rows').getBoundingClientRect();
  return box.top >= list.top - 1 && box.bottom <= Math.min(list.bottom, window.innerHeight) + 1;
}).length"""
"""How many rows are wholly seen without scrolling."""
SEEN = """(selector) => { const box = document.querySelector(selector).getBoundingClientRect();
  return box.top >= 0 && box.bottom <= window.innerHeight && box.height > 0; }"""
CLICK = (
    "(id) => document.getElementById(id).querySelector('.hit').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
)
CHOSEN = "#a-rows [aria-selected=true]"


@on("weather", size=DESK)
def test_question_answer_and_ten_rows_are_on_the_first_screen(opened: Opened) -> None:
    page = opened.page
    cards = texts(page, "#a-cards .card")
    assert cards[0] == "Question What is the weather like in Oslo?"
    assert cards[1].startswith("Answer More It rains in Oslo.")
    for card in page.locator("#a-cards .card").all():
        box = card.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 240
    assert page.evaluate(WHOLE) >= 10
    facts = dict(zip(texts(page, "#a-facts dt"), texts(page, "#a-facts dd"), strict=True))
    assert facts["tokens"].endswith(" / 90,000")
    page.get_by_role("button", name="More").click()
    until(page, "document.querySelector('.card.answer .text').clientHeight > 60")
    page.get_by_role("button", name="Less").click()
    until(page, "document.querySelector('.card.answer .text').clientHeight < 60")


@on("waits", size=DESK)
def test_an_open_question_stands_where_the_answer_will_be(opened: Opened) -> None:
    page = opened.page
    assert texts(page, "#a-cards h2") == ["Question", "Waits for an answer"]
    page.keyboard.press("Home")
    page.get_by_role("button", name="Show the step").click()
    assert texts(page, f"{CHOSEN} .no") == ["12"]


@on("weather", size=DESK)
def test_rows_say_what_each_step_did(opened: Opened) -> None:
    page = opened.page
    names = [row.text_content() or "" for row in page.locator("#a-rows .row.step .what").all()]
    assert any("search_web 'weather Oslo'" in name for name in names)
    assert any("send_mail ann@example.com" in name for name in names)
    assert any(name.endswith("think") for name in names)


@on("weather", size=DESK)
def test_data_of_a_tool_is_there_once(opened: Opened) -> None:
    page = opened.page
    row = page.locator("#a-rows .row.step", has_text="search_web").last
    page = opened.go(f"#step={row.locator('.no').text_content()}&tab=tools")
    assert page.locator("#a-panel").inner_text().count("light rain") == 1
    last = page.locator("#a-rows .row.step", has_text="think").last
    page = opened.go(f"#step={last.locator('.no').text_content()}&tab=model")
    panel = page.locator("#a-panel").text_content() or ""
    assert panel.count("accepted by the server") == 1
    assert "Take an umbrella." in panel


@on("tour", size=DESK)
def test_maps_and_subgraphs_and_attempts_fold_with_the_mouse_and_the_keys(opened: Opened) -> None:
    page = opened.go("#step=5")
    rows = texts(page, "#a-rows .row .what")
    assert rows[1].endswith("look each of 3 items in parts")
    assert any("attempt 1" in row for row in rows)
    assert page.locator("#a-rows .row.map").get_attribute("aria-expanded") == "true"
    assert "Σ" in texts(page, "#a-rows .row.map .outcome")[0]
    page.locator("#a-rows .row.map .twist").click()
    assert len(texts(page, "#a-rows .row")) == len(rows) - 6
    assert page.locator("#a-rows .row.map").get_attribute("aria-selected") == "true"
    page.keyboard.press("ArrowRight")
    assert texts(page, f"{CHOSEN} .no") == ["5"]
    page.keyboard.press("ArrowLeft")
    assert texts(page, f"{CHOSEN} .no") == ["4"], "what is around a step without anything inside"
    page.keyboard.press("ArrowLeft")
    assert len(texts(page, "#a-rows .row")) == len(rows) - 1
    page.keyboard.press("x")
    assert len(texts(page, "#a-rows .row")) == len(rows)
    page.keyboard.press("Shift+X")
    assert len(texts(page, "#a-rows .row")) == len(rows) - 7
    page.keyboard.press("j")
    assert texts(page, f"{CHOSEN} .no") == ["8"], "what is folded is passed by"
    page = opened.go("#step=3")
    assert page.evaluate(SEEN, CHOSEN)


@on("tour", size=DESK)
def test_steps_are_sorted_and_filtered_and_the_address_says_how(opened: Opened) -> None:
    page = opened.page
    page.locator("#a-chips .retried").click()
    assert texts(page, "#a-rows .row .no") == ["11"]
    assert texts(page, "#a-found") == ["1 of 12 steps"]
    assert "only=retried" in page.url
    page.locator("#a-chips .slow").click()
    page.locator("#a-order").select_option("duration")
    found = texts(page, "#a-rows .row .no")
    assert "11" in found
    assert len(found) < 12
    assert "sort=duration&only=retried,slow" in page.url
    page.locator("#a-search").fill("mail that is nowhere")
    assert not texts(page, "#a-rows .row")
    assert page.locator("#a-empty").is_visible()
    page.locator("#a-clear").click()
    assert len(texts(page, "#a-rows .row.step")) == 12
    page.locator("#a-order").select_option("duration")
    worked = page.evaluate("JSON.parse(document.getElementById('data').textContent)[0].steps.map((s) => s.work)")
    order = [worked[int(number) - 1] for number in texts(page, "#a-rows .row .no")]
    assert all(one >= other for one, other in pairwise(order))
    page = opened.go("#sort=order&only=denied,failed,nonsense&kind=subgraph&q=look%20%26%20two&step=4")
    assert page.locator("#a-search").input_value() == "look & two"
    assert page.locator("#a-kind").input_value() in ("subgraph", "")
    page = opened.go("#kind=confirm")
    assert texts(page, "#a-rows .row .no") == ["12"]


@on("tour", size=DESK)
def test_an_edge_says_when_it_was_taken_and_why(opened: Opened) -> None:
    page = opened.page
    shape = page.evaluate("document.querySelector('#a-canvas svg').getAttribute('viewBox')")
    page.evaluate(CLICK, "a-edge-grade--again")
    panel = page.locator("#a-panel").inner_text()
    assert "Taken 1 time, and not taken 1 time." in panel
    assert "more -> again" in panel
    assert page.locator("[id='a-edge-grade--again'].picked").count() == 1
    assert texts(page, "#a-rows .row.linked .no") == ["8"]
    assert "edge=edge-grade--again" in page.url
    page = opened.go(page.url.partition("html")[2])
    assert "Taken after" in page.locator("#a-panel").inner_text()
    page.locator("#a-panel .edges button").first.click()
    assert texts(page, f"{CHOSEN} .no") == ["8"]
    assert page.locator(".picked").count() == 0
    page.locator("#a-panel .not button").click()
    assert texts(page, "#a-panel h2") == ["grade -> write : good"]
    page.keyboard.press("Escape")
    assert "Why here?" in page.locator("#a-panel").inner_text()
    page.evaluate(CLICK, "a-edge-START--plan")
    assert "record 1" in page.locator("#a-panel").inner_text()
    assert page.evaluate("document.querySelector('#a-canvas svg').getAttribute('viewBox')") == shape


@on("guarded", size=DESK)
def test_an_edge_with_a_guard_says_its_value_when_it_was_not_taken(opened: Opened) -> None:
    page = opened.go("#edge=edge-decide--END")
    panel = " ".join(page.locator("#a-panel").inner_text().split())
    assert "Taken 1 time, and not taken 1 time." in panel
    taken, left = panel.split("Not taken after")
    assert "guard: true" in taken
    assert "guard: false" in left


@on("tour", size=DESK)
def test_a_node_that_ran_often_says_that_its_time_is_a_sum(opened: Opened) -> None:
    page = opened.page
    took = page.locator("[id='a-node-look.search'] > [data-slot=took]").text_content() or ""
    assert took.startswith("Σ")
    assert "elapsed" in (page.locator("[id='a-node-look.search'] > title").text_content() or "")
    page.keyboard.press("5")
    assert texts(page, "#a-panel thead th")[2:4] == ["summed", "elapsed"]


@on("tour", size=DESK)
def test_panes_are_sized_with_the_keys_and_the_mouse_and_remember_it(opened: Opened) -> None:
    page = opened.page
    bar, pane = page.locator("[data-pane=first]"), page.locator("section.steps")

    def width() -> float:
        return float(pane.evaluate("(pane) => pane.getBoundingClientRect().width"))

    begin = width()
    bar.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    keyed = width()
    assert keyed > begin + 50
    assert bar.get_attribute("aria-valuenow") == "46"
    box = bar.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 5, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] - 195, box["y"] + 60, steps=3)
    page.mouse.up()
    moved = width()
    assert moved == pytest.approx(keyed - 200, abs=12)
    opened.go()
    assert width() == pytest.approx(moved, abs=2)
    bar.focus()
    page.keyboard.press("End")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@on("tour", size=DESK)
def test_a_page_works_where_nothing_may_be_remembered(opened: Opened) -> None:
    refuse = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('refused'); } })"
    opened.page.add_init_script(refuse)
    page = opened.go()
    page.locator("[data-pane=last]").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("[data-pane=last]").get_attribute("aria-valuenow") == "30"


@on("long", size=PHONE)
def test_a_link_brings_its_row_into_view(opened: Opened) -> None:
    page = opened.go("#step=4000")
    assert texts(page, f"{CHOSEN} .no") == ["4000"]
    assert page.evaluate(SEEN, CHOSEN)


@on("two", size=DESK)
def test_the_comparison_is_wide_and_leads_to_the_first_difference(opened: Opened) -> None:
    page = opened.page
    table = page.locator(".compare table").bounding_box()
    assert table is not None
    assert table["width"] > 1150
    cells = [cell.bounding_box() for cell in page.locator(".compare tbody tr").first.locator("td").all()]
    widths = [cell["width"] for cell in cells if cell is not None]
    assert min(widths) > 450
    assert not page.evaluate(SEEN, CHOSEN)
    page.get_by_text("Look at it").click()
    until(page, f"({SEEN})('{CHOSEN}')")
    assert page.evaluate(SEEN, "#b-rows [aria-selected=true]")


@on("long", size=DESK)
def test_five_thousand_steps_are_few_elements(opened: Opened) -> None:
    page = opened.page
    count = "document.querySelectorAll('*').length"
    assert page.evaluate(count) < 1000
    page.evaluate("document.getElementById('a-rows').scrollTop = 70000")
    until(page, "document.querySelector('#a-rows .row').dataset.index > 2000")
    assert page.evaluate(count) < 1000
    page.locator("#a-order").select_option("duration")
    page.keyboard.press("5")
    assert page.evaluate(count) < 1000


@on("growing", size=DESK)
def test_a_run_that_goes_on_is_followed_and_looking_back_never_jumps(opened: Opened) -> None:
    page = opened.page
    slider = page.locator("#a-slider")
    assert slider.get_attribute("max") == "4"
    follow = page.locator("#a-follow")
    assert follow.get_attribute("aria-pressed") == "true"
    page.evaluate("grow()")
    until(page, "document.getElementById('a-slider').value === '12'")
    page.locator("#a-rows .row.step").first.click()
    assert follow.get_attribute("aria-pressed") == "false"
    before = (texts(page, f"{CHOSEN} .no"), page.locator("#a-panel h2").inner_text())
    page.evaluate("grow()")
    until(page, "document.getElementById('a-slider').max > 12")
    assert page.locator("#a-status").inner_text() == "completed"
    assert (texts(page, f"{CHOSEN} .no"), page.locator("#a-panel h2").inner_text()) == before
    assert len(texts(page, "#a-rows .row.step")) == 12
    follow.click()
    assert slider.input_value() == slider.get_attribute("max")


@on("growing", size=DESK)
def test_a_chosen_step_stays_chosen_when_steps_come_between(opened: Opened) -> None:
    page = opened.page
    page.locator("#a-follow").click()
    page.locator("#a-rows .row.step", has_text="three").click()
    page.locator("#a-tab-state").click()
    assert texts(page, f"{CHOSEN} .no") == ["4"]
    page.evaluate("grow(2)")
    until(page, "document.getElementById('a-status').textContent === 'completed'")
    assert texts(page, f"{CHOSEN} .no") == ["6"]
    assert "three" in texts(page, CHOSEN)[0]
    assert page.locator("#a-slider").input_value() == "4"
    assert texts(page, ".tabs [aria-selected=true]") == ["State"]


@on("growing", size=DESK)
def test_what_can_be_done_to_a_run_depends_on_its_status_and_a_refusal_is_shown(opened: Opened) -> None:
    page = opened.page
    assert texts(page, "#a-actions button") == ["Cancel"]
    page.locator("#a-actions button").click()
    until(page, "document.getElementById('a-said').textContent === 'not now'")
    page.locator("#a-actions button").click()
    until(page, "window.cancelled === true")
    until(page, "document.getElementById('a-said').textContent === ''")
    page.evaluate("grow(2)")
    until(page, "!document.querySelector('#a-actions button')")
