"""Answers given in a browser: one key gives one answer, what was written is never lost, and letters go nowhere else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import pytest

from orchestrator import ToolCall, tool
from orchestrator.models import Reply
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from tests.web.api import Api, api
from tests.web.mail import LETTER, Post
from tests.web.windows import Screens, start

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
FOCUSED = "document.activeElement.closest('.card')?.dataset.run"


def card(run_id: str) -> str:
    return f".card[data-run={run_id}]"


def answers(served: Api, run_id: str) -> list[dict[str, Any]]:
    return [one["answer"] for one in served.get(f"runs/{run_id}/records")["records"] if one["type"] == "answered"]


def test_a_key_that_is_held_approves_one_call(screens: Screens, served: Api, post: Post) -> None:
    for name in ("one", "two", "three"):
        start(served, name)
    page = screens.open("/inbox")
    page.focus(card("two"))
    for _ in range(12):
        page.keyboard.down("a")  # each one after the first is a repetition
    page.keyboard.up("a")
    page.wait_for_selector(f"{card('two')}.over")
    page.wait_for_selector(f"{card('three')}:focus, {card('three')} :focus")
    served.settled("two")
    page.keyboard.down("j")
    assert len(post.sent) == 1
    assert page.locator(".card:not(.over)").count() == 2


def test_a_key_that_is_held_on_the_page_of_a_run_approves_one_call(screens: Screens, served: Api, post: Post) -> None:
    start(served, "one")
    page = screens.open("/runs/one")
    page.wait_for_selector("#questions article.card")
    for _ in range(12):
        page.keyboard.down("a")
    page.wait_for_selector("#questions .over .outcome:has-text('Approved.')")
    served.settled("one")
    assert len(post.sent) == 1
    assert answers(served, "one") == [{"type": "approve"}]


def test_a_reason_that_did_not_reach_the_server_is_still_there(screens: Screens, served: Api) -> None:
    start(served, "one")
    page = screens.open("/inbox")
    page.focus(card("one"))
    page.keyboard.press("d")
    page.keyboard.type("not before noon")
    page.context.set_offline(True)
    page.keyboard.press("Enter")
    page.wait_for_selector(".outcome:has-text('does not answer')")
    assert page.input_value("input.reason") == "not before noon"
    page.context.set_offline(False)
    page.click(".acts button:has-text('Deny')")
    page.wait_for_selector(".card.over .outcome:has-text('Denied.')")
    served.settled("one")
    assert answers(served, "one") == [{"type": "deny", "reason": "not before noon"}]
    screens.faults[:] = [one for one in screens.faults if "ERR_INTERNET_DISCONNECTED" not in one]


def test_the_form_stays_where_a_person_ended_the_run_and_takes_no_more_letters(screens: Screens, served: Api) -> None:
    start(served, "one")
    start(served, "two")
    page = screens.open("/inbox")
    page.click(f"{card('two')} >> text=Edit")
    page.fill("[data-field=subject]", "Where it is")
    served.post("runs/two/cancel")
    page.wait_for_selector(f"{card('two')}.over")
    page.keyboard.type("a d a d")
    assert page.evaluate(FOCUSED) == "two"
    assert page.input_value("[data-field=subject]") == "Where it is"
    assert page.locator(f"{card('two')} button:visible").count() == 0
    assert served.get("runs/one")["status"] == "paused"
    assert answers(served, "one") == []


def test_a_field_at_fault_does_not_take_the_focus_from_the_one_that_is_written(screens: Screens, served: Api) -> None:
    start(served, "one")
    page = screens.open("/inbox")
    page.click("text=Edit")
    page.click("main summary")
    page.fill("[data-field=copies]", "")
    page.click("[data-field=subject]")
    page.keyboard.press("End")
    page.keyboard.type(" at last")
    assert page.input_value("[data-field=subject]") == "Your parcel at last"


def test_a_change_far_down_in_a_long_text_is_in_the_difference(screens: Screens, served: Api) -> None:
    start(served, "one")
    page = screens.open("/inbox")
    page.click("text=Edit")
    page.click("main summary")
    page.evaluate(
        "text => { const field = document.querySelector('[data-field=body]'); field.value = text;"
        " field.dispatchEvent(new Event('input', { bubbles: true })); }",
        LETTER + "\n" * 3000 + "and pay twice",
    )
    page.wait_for_selector(".diff .add:has-text('and pay twice')")


Colour = Literal["red", "green"]


def test_arguments_that_the_model_left_out_are_given_in_fields_of_their_own(browser: object) -> None:
    made: list[dict[str, object]] = []

    @tool(risk="write")
    def order(
        item: str,
        note: str | None = None,
        wrap: Colour = "red",
        express: bool = False,
        amount: int = 3,
        gift: str | None = "card",
    ) -> str:
        """Order something."""
        made.append({"item": item, "note": note, "wrap": wrap, "express": express, "amount": amount, "gift": gift})
        return "ordered"

    call = ToolCall(id="c", name="order", arguments={"item": "tea", "gift": None})
    said = [Reply(text="I order it.", tool_calls=(call,)), Reply(text="Done.")]
    with api(react(tools=[order], name="mail"), model=ScriptedModel(said)) as served:
        screens = Screens(browser, served.url)  # type: ignore[arg-type]
        start(served, "one")
        page = screens.open("/inbox")
        page.click("text=Edit")
        page.fill("[data-field=note]", "leave it at the door")
        page.select_option("[data-field=wrap]", "green")
        page.select_option("[data-field=express]", "true")
        page.fill("[data-field=amount]", "many")
        page.click("text=Approve as edited")
        page.wait_for_selector(".fault:has-text('a number is needed')")
        page.fill("[data-field=amount]", "4")
        page.click("text=Approve as edited")
        page.wait_for_selector(".card.over")
        served.settled("one")
        screens.close()
    assert made == [
        {"item": "tea", "note": "leave it at the door", "wrap": "green", "express": True, "amount": 4, "gift": None}
    ]
    assert screens.faults == []


def test_edits_that_the_tool_does_not_take_are_refused_and_kept(screens: Screens, served: Api, post: Post) -> None:
    start(served, "one")
    page = screens.open("/inbox")
    page.click("text=Edit")
    page.fill("[data-field=subject]", "Another")
    # The page would not send this; a server that was started again may have another schema than the page.
    page.route(
        "**/answer",
        lambda route: route.continue_(post_data=str(route.request.post_data).replace('"copies":1', '"copies":"x"')),
    )
    page.click("text=Approve as edited")
    page.wait_for_selector(".outcome.bad:has-text('copies')")
    assert page.input_value("[data-field=subject]") == "Another"
    assert post.sent == []
    assert served.get("runs/one")["status"] == "paused"
    screens.faults[:] = [one for one in screens.faults if "422" not in one]


def _until(condition: Callable[[], bool]) -> None:
    """Wait in this thread for what happens in that of the server."""
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never was so")


def _hide(page: Page, state: str) -> None:
    page.evaluate(
        "state => { Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        state,
    )


def test_the_page_of_a_run_that_has_ended_follows_its_retry_elsewhere(screens: Screens, served: Api) -> None:
    start(served, "one")
    served.post("runs/one/cancel")
    served.settled("one")
    page = screens.open("/runs/one")
    page.wait_for_selector("#a-status:text-is('cancelled')")
    assert page.inner_text("#link") == ""
    served.post("runs/one/resume", retry=True)
    page.wait_for_selector("#a-status:text-is('paused')")
    page.wait_for_selector("#questions article.card:not(.over)")
    assert page.inner_text("#link") == ""


def test_the_page_of_a_run_that_was_deleted_says_so_and_offers_nothing(
    screens: Screens, served: Api, caplog: pytest.LogCaptureFixture
) -> None:
    start(served, "one")
    page = screens.open("/runs/one")
    page.wait_for_selector("#questions article.card")
    assert served.client.delete("/api/runs/one").status_code == 200
    page.wait_for_selector("text=This run was deleted. The page shows it as it was.")
    page.wait_for_selector("#questions .outcome:has-text('This run was deleted.')")
    assert page.locator("#questions button:visible").count() == 0
    assert page.locator("#a-actions button").count() == 0
    screens.faults[:] = [one for one in screens.faults if "404" not in one]
    assert "failed" not in caplog.text


def test_the_page_of_a_run_that_is_not_seen_gives_its_connection_back(screens: Screens, served: Api) -> None:
    start(served, "one")
    page = screens.open("/runs/one")
    page.wait_for_selector("#questions article.card")
    _until(lambda: len(served.streams) == 1)
    _hide(page, "hidden")
    _until(lambda: len(served.streams) == 0)
    question = served.get("questions")["questions"][0]["question"]
    served.post("runs/one/answer", question=question["id"], digest=question["digest"], approve=True)
    served.settled("one")
    _hide(page, "visible")
    page.wait_for_selector("#a-status:text-is('completed')")
