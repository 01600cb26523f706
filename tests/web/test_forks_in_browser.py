"""Going on from a step on the page of a run, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.web.api import Api, api, chat, letter, plain, wide
from tests.web.forking import AMOUNT, Shop, answer, pay
from tests.web.hostile import HOSTILE
from tests.web.windows import SIZES, Screens, in_themes, serious_faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
FORM = "dialog.go-on[open] form.fork"
READY = f"{FORM} .effects li"


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def served(shop: Shop) -> Iterator[Api]:
    with api(shop.graph, letter, plain, wide, chat, model=shop.model) as found:
        yield found


def going_on(screens: Screens, run_id: str, seq: int, **options: object) -> Page:
    """The form of a fork at a record, as a link opens it."""
    page = screens.open(f"/runs/{run_id}#seq={seq}&fork={seq}", **options)  # type: ignore[arg-type]
    page.wait_for_selector(READY)
    return page


def made(page: Page, served: Api, parent: str) -> str:
    """The id of the fork, when its page is there."""
    page.wait_for_url(lambda url: not url.partition("#")[0].endswith(f"/{parent}"))
    page.wait_for_selector("html[data-ready]")
    run_id = re.sub(".*/", "", page.url.partition("#")[0])
    served.settled(run_id)
    return run_id


def refusals_are_no_faults(screens: Screens) -> None:
    """Browsers note each answer that refuses something."""
    screens.faults[:] = [one for one in screens.faults if "status of 422" not in one and "status of 409" not in one]


def test_a_step_is_forked_with_an_edited_state_and_gives_another_answer(screens: Screens, served: Api) -> None:
    served.start("plain", run_id="one")
    page = screens.open("/runs/one#step=1")
    assert "draft of bees" in page.inner_text("#a-cards")
    page.click("#a-panel >> text=Go on from here")
    page.wait_for_selector(READY)
    assert re.search(r"#step=1&fork=2$", page.url)
    page.select_option("dialog.go-on .from select", label="before draft ran (record 1)")
    page.wait_for_selector(READY)
    assert page.is_hidden(f"{FORM} .changes")
    page.fill("[data-field=topic]", "wasps")
    assert page.inner_text(f"{FORM} .changes .add") == "topic: wasps"
    assert page.inner_text(f"{FORM} .changes .cut") == "topic: bees"
    page.click("text=Fork and run")
    run_id = made(page, served, "one")
    page.wait_for_selector("#a-status:text-is('completed')")
    assert "draft of wasps" in page.inner_text("#a-cards")
    assert served.get(f"runs/{run_id}")["parent"] == {"run_id": "one", "seq": 1, "relation": "fork"}
    assert served.get("runs/one")["state"]["topic"] == "bees"


def test_a_link_opens_the_same_form_and_what_is_written_outlives_its_closing(screens: Screens, served: Api) -> None:
    served.start("plain", run_id="one")
    page = going_on(screens, "one", 2)
    assert page.input_value("dialog.go-on .from select") == "2"
    page.fill("[data-field=topic]", "wasps")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog.go-on", state="hidden")
    assert "fork" not in page.url
    page.keyboard.press("o")
    page.select_option("dialog.go-on .from select", value="2")
    assert page.input_value("[data-field=topic]") == "wasps"
    page.reload()
    page.wait_for_selector(READY)
    assert page.input_value("dialog.go-on .from select") == "2"


def test_another_answer(screens: Screens, served: Api, shop: Shop) -> None:
    at = pay(served, "one", approve=False)["answered"]
    page = going_on(screens, "one", at)
    assert page.is_checked(f"{FORM} .ways >> text=Deny (as it was)")
    page.check(f"{FORM} .ways >> text=Approve")
    assert page.input_value("[data-field=amount]") == str(AMOUNT)
    page.fill("[data-field=to]", "bob")
    assert page.inner_text(f"{FORM} .changes .cut") == "denied: too much"
    assert f"amount: {AMOUNT}" in page.inner_text(f"{FORM} .changes")
    page.click("text=Fork and run")
    made(page, served, "one")
    page.wait_for_selector("#a-status:text-is('completed')")
    assert shop.paid == [{"amount": AMOUNT, "to": "bob"}]


def test_another_result_of_a_call(screens: Screens, served: Api, shop: Shop) -> None:
    at = pay(served, "one")
    assert len(shop.paid) == 1
    page = going_on(screens, "one", at["looked"])
    assert page.input_value("[data-field=result]") == "The invoice of Pay acme is open."
    page.fill("[data-field=result]", "It is paid already.\nSee 17.")
    page.wait_for_selector(READY)
    page.click("text=Fork and run")
    made(page, served, "one")
    page.wait_for_selector("#a-status:text-is('completed')")
    assert "Done: It is paid already." in page.inner_text("#a-cards")
    assert len(shop.paid) == 1


def test_an_irreversible_call_is_announced_and_then_asked_about(screens: Screens, served: Api, shop: Shop) -> None:
    at = pay(served, "one")
    page = going_on(screens, "one", at["looked"])
    said = page.inner_text(f"{FORM} .effects")
    assert f"Asks before it calls pay again: run one called it (record {at['paid'] - 1})" in said
    assert str(AMOUNT) in said
    assert "Asks before each call of pay" in said
    assert "asks before pay" in page.inner_text(f"{FORM} .sum")
    page.click("text=Fork and run")
    run_id = made(page, served, "one")
    answer(served, run_id, approve=True)
    page.wait_for_selector("#questions article.card:not(.over) >> text=In run one it was called")
    assert len(shop.paid) == 1


def test_what_the_server_refuses_stands_at_the_field_in_its_words(screens: Screens, served: Api) -> None:
    served.start("chat", run_id="one")
    served.start("plain", run_id="taken")
    page = going_on(screens, "one", 2)
    page.fill("[data-field=topic]", "x")
    page.fill("[data-field=parts]", "one line\nanother")
    page.wait_for_selector(READY)
    page.click("text=Id and labels")
    page.fill("[data-field=run_id]", "taken")
    page.fill("[data-field=labels]", "team")
    assert "name=value" in page.inner_text("[data-field=labels] ~ .fault")
    page.fill("[data-field=labels]", "team = b")
    page.click("text=Fork and run")
    page.wait_for_selector("[data-field=run_id] + .fault:not(:empty)")
    assert "'taken'" in page.inner_text("[data-field=run_id] + .fault")
    page.fill("[data-field=run_id]", "mine")
    page.click("text=Fork and run")
    assert made(page, served, "one") == "mine"
    assert served.get("runs/mine")["labels"] == {"team": "b"}
    refusals_are_no_faults(screens)


def test_a_record_that_cannot_be_forked_is_said_at_the_record(screens: Screens, served: Api) -> None:
    served.start("plain", run_id="one")
    head = served.get("runs/one")["seq"]
    page = screens.open(f"/runs/one#fork={head}")
    page.wait_for_selector("dialog.go-on > .fault:not(:empty)")
    assert "is the end of run 'one'" in page.inner_text("dialog.go-on > .fault")
    refusals_are_no_faults(screens)


def test_all_of_it_by_keys(screens: Screens, served: Api) -> None:
    served.start("plain", run_id="one")
    page = screens.open("/runs/one#step=1")
    page.keyboard.press("o")
    page.wait_for_selector(READY)
    assert page.evaluate("document.activeElement.matches('dialog.go-on .from select')")
    page.keyboard.press("Home")
    page.wait_for_selector(READY)
    assert page.input_value("dialog.go-on .from select") == "1"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.field") == "topic"
    page.keyboard.press("Control+a")
    page.keyboard.type("jkf? wasps")  # no key of the page acts
    page.keyboard.press("Control+Enter")
    made(page, served, "one")
    page.wait_for_selector("#a-status:text-is('completed')")
    assert "draft of jkf? wasps" in page.inner_text("#a-cards")


def test_the_button_at_the_top_forks_at_the_newest_step(screens: Screens, served: Api) -> None:
    served.start("letter", run_id="one")
    page = screens.open("/runs/one#step=1")
    page.click("#a-actions >> text=Fork")
    page.wait_for_selector(READY)
    assert page.input_value("dialog.go-on .from select") == str(served.get("runs/one")["seq"])


def test_the_family_is_a_tree_of_links_with_what_differs(screens: Screens, served: Api) -> None:
    served.start("plain", run_id="one")
    page = screens.open("/runs/one")
    page.wait_for_timeout(300)
    assert page.is_hidden("#family")
    served.post("runs/one/fork", 201, at=1, update={"topic": "wasps"}, run_id="two")
    served.settled("two")
    served.post("runs/one/fork", 201, at=2, run_id="three", start=False)
    served.post("runs/two/fork", 201, at=1, update={"topic": "ants"}, run_id="four")
    page = screens.open("/runs/two")
    page.wait_for_selector("#family:visible")
    said = page.inner_text("#family")
    assert "Fork of one, 1 fork, 1 beside it" in said
    assert "topic = wasps" in said
    assert "after draft, record 2" in said
    assert page.inner_text("#family [aria-current]") == "two"
    assert page.get_attribute("#family a.compare-link >> nth=0", "href") == "/compare?runs=one,two"
    page.click("#family a:text-is('four')")
    page.wait_for_url("**/runs/four**")
    page.wait_for_selector("#family a:text-is('two')")
    page.wait_for_selector("#family a:text-is('one')")


def test_a_page_that_only_reads_gives_the_command(browser: Browser) -> None:
    with api(plain, settings={"read_only": True}) as found:
        found.portal.call(lambda: found.executor.start(plain, "bees", run_id="it's"))
        screens = Screens(browser, found.url)
        page = screens.open("/runs/it's#step=1", permissions=["clipboard-read", "clipboard-write"])
        assert page.locator("#a-actions button").count() == 0
        page.keyboard.press("o")
        command = "orchestrator fork 'it'\\''s' --at 2"
        assert page.inner_text("dialog.go-on pre") == command
        page.click("dialog.go-on >> text=Copy")
        page.wait_for_selector("dialog.go-on >> text=Copied.")
        assert page.evaluate("navigator.clipboard.readText()") == command
        mailed = screens.open("/api/runs/it's/page.html#step=1&fork=1")
        assert mailed.inner_text("dialog.go-on pre") == command.replace("2", "1")
        mailed.keyboard.press("Escape")
        mailed.click("#a-panel >> text=Go on from here")
        assert mailed.inner_text("dialog.go-on pre") == command
        screens.close()
        assert not screens.faults


def test_text_of_others_is_text_in_the_form_and_in_the_family(screens: Screens, served: Api) -> None:
    labels = {"customer": HOSTILE}
    served.post(
        "runs",
        201,
        graph="wide",
        input={"topic": HOSTILE, "args": {HOSTILE: [HOSTILE]}},
        run_id="<b>&'\"",
        labels=labels,
        wait=True,
    )
    served.post(
        "runs/%3Cb%3E%26'%22/fork", 201, at=1, update={"topic": HOSTILE * 2}, run_id="two", labels={"x": HOSTILE}
    )
    served.settled("two")
    for address in ("/runs/two#step=1&fork=1", "/runs/%3Cb%3E%26'%22#step=1&fork=1"):
        page = screens.open(address)
        page.wait_for_selector(READY)
        page.wait_for_selector("#family li", state="attached")
        page.click("text=Id and labels")
        page.fill("[data-field=topic]", HOSTILE + "x")
        page.wait_for_selector(f"{FORM} .changes .add")
        assert page.evaluate("window.pwned") is None
        shown = page.evaluate(
            "document.querySelector('dialog.go-on').innerText + document.querySelector('#family').innerText"
        )
        assert "\u202e" not in shown
        assert "\\u202e" in shown
        assert (
            page.evaluate(
                "document.querySelectorAll('dialog.go-on script, dialog.go-on img, #family img, dialog.go-on b').length"
            )
            == 0
        )


def test_a_state_with_large_numbers_and_line_breaks_stays_as_it_is_where_it_is_not_edited(
    screens: Screens, served: Api
) -> None:
    state = {"topic": "one\ntwo", "args": {"n": AMOUNT, "d": 1.10, "deep": {"list": [1, None, "\u00e9"]}}}
    served.post("runs", 201, graph="wide", input=state, run_id="one", wait=True)
    page = going_on(screens, "one", 1)
    assert page.input_value("[data-field=topic]") == "one\ntwo"
    assert str(AMOUNT) in page.input_value("[data-field=args]")
    page.fill("[data-field=topic]", "three")
    page.click("text=Fork and run")
    run_id = made(page, served, "one")
    (forked,) = [one for one in served.get(f"runs/{run_id}/records")["records"] if one["type"] == "forked"]
    assert forked["update"] == {"topic": "three"}, "only what was edited is sent"
    assert json.dumps(served.get(f"runs/{run_id}")["state"]["args"]) == json.dumps(state["args"])


@pytest.mark.parametrize(("size", "theme"), in_themes(SIZES))
def test_no_serious_fault_that_axe_finds_at_any_width(
    screens: Screens, served: Api, size: tuple[int, int], theme: str
) -> None:
    at = pay(served, "one")
    served.post("runs/one/fork", 201, at=at["looked"], result="nothing" * 30, run_id="two" + "x" * 120)
    for seq in (at["looked"], at["answered"]):
        page = going_on(screens, "one", seq, size=size, color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
        page.wait_for_selector("#family li", state="attached")
        page.click("text=Id and labels")
        assert serious_faults(page) == []
        wide = page.evaluate(
            "[document.documentElement, document.querySelector('dialog.go-on')]"
            ".map(one => one.scrollWidth - one.clientWidth)"
        )
        assert max(wide) <= 0, "something is wider than the window"
        page.keyboard.press("Escape")
        assert serious_faults(page) == []
        width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert width[0] <= width[1]
