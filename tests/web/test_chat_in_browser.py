"""A chat on its page, in a real browser: a message is typed and sent below the transcript, and the reply streams in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator import Graph, ToolCall
from orchestrator.models import Reply
from orchestrator.nodes import Ask
from orchestrator.strategies.chat import chat
from orchestrator.testing import ScriptedModel
from tests.web.api import Api, Note, api
from tests.web.windows import SIZES, Screens, in_themes, serious_faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror='window.pwned=1'>\u202e"
two = Graph(
    name="two", state=Note, input="topic", output="parts",
    nodes={"one": Ask(prompt="First?", answer="tool"), "other": Ask(prompt="Other?", answer="topic")},
    edges="START -> one\nSTART -> other\none -> END\nother -> END",
)  # fmt: skip


def said(request: Any) -> Reply:
    last = request.messages[-1].content
    if last == "pay":
        return Reply(text="", tool_calls=(ToolCall(id="c", name="pay", arguments={"amount": 5, "to": "ann"}),))
    return Reply(text=f"You said: {last}")


@pytest.fixture(scope="module")
def server() -> Iterator[Api]:
    with api(chat(), model=ScriptedModel(said)) as found:
        yield found


@pytest.fixture
def windows(browser: Browser, server: Api) -> Iterator[Screens]:
    found = Screens(browser, server.url)
    yield found
    found.close()
    assert not found.faults


def say(page: Page, text: str) -> None:
    page.locator(".say textarea").fill(text)
    page.locator(".say textarea").press("Enter")


def test_a_chat_is_started_and_talked_with(server: Api, windows: Screens) -> None:
    server.start("chat", run_id="talk")
    page = windows.open("/runs/talk")
    page.wait_for_selector(".say button:enabled")
    assert page.locator("#questions").is_hidden()
    page.evaluate(
        "(state) => { window.words = []; new MutationObserver(() => window.words.push(state.textContent))"
        ".observe(state, { childList: true, characterData: true, subtree: true }); }",
        page.query_selector("#say-state"),
    )
    say(page, HOSTILE)
    page.wait_for_selector("#a-talk .entry.turn:has-text('You said: <img')")
    page.wait_for_selector(".say button:enabled")
    assert page.locator(".say textarea").input_value() == ""
    assert page.evaluate("document.activeElement.matches('.say textarea')")
    assert page.evaluate("window.pwned") is None
    assert set(page.evaluate("window.words")) == {"At work on the reply …", ""}
    page.locator(".say textarea").type("a")
    page.locator(".say textarea").press("Shift+Enter")  # a line of its own
    page.locator(".say textarea").type("b")
    page.locator(".say button").click()
    page.wait_for_selector("#a-talk .entry.turn:has-text('You said: a')")
    assert [one["answer"]["value"] for one in answered(server, "talk")] == [HOSTILE, "a\nb"]
    page.wait_for_selector(".say button:enabled")
    say(page, "/bye")
    page.wait_for_selector(".say-state:has-text('This chat has ended.')")
    assert page.locator(".say").is_hidden()


BELOW = "(box) => box.scrollHeight - box.scrollTop - box.clientHeight"
"""Pixels of the transcript below its visible part."""


def test_a_reader_at_the_end_stays_there_and_one_who_looks_back_stays_too(server: Api, windows: Screens) -> None:
    server.start("chat", run_id="long")
    page = windows.open("/runs/long", (1280, 500))
    for number in range(4):
        page.wait_for_selector(".say button:enabled")
        say(page, f"message {number}")
        page.wait_for_selector(f"#a-talk .entry.turn:has-text('You said: message {number}')")
        page.wait_for_selector(".say button:enabled")
        assert page.locator("#a-talk").evaluate(BELOW) < 2
        assert page.locator("#a-talk").get_by_text(f"message {number}", exact=True).count() == 1
    assert page.locator("#a-talk").evaluate("(box) => box.scrollTop") > 100
    page.locator("#a-talk").evaluate("(box) => { box.scrollTop = 20; }")
    asked = server.get("runs/long")["waiting"][0]
    server.post("runs/long/answer", question=asked["id"], digest=asked["digest"], value="more")
    page.wait_for_selector("#a-talk .entry.turn:has-text('You said: more')")
    assert page.locator("#a-talk").evaluate("(box) => box.scrollTop") == 20


def answered(server: Api, run: str) -> list[dict[str, Any]]:
    entries = server.get(f"runs/{run}/transcript")["entries"]
    return [one for one in entries if one["kind"] == "question" and one.get("answer")]


def test_an_approval_is_answered_on_its_card_and_the_chat_goes_on(server: Api, windows: Screens) -> None:
    server.start("chat", run_id="pays")
    page = windows.open("/runs/pays")
    page.wait_for_selector(".say button:enabled")
    say(page, "pay")
    page.wait_for_selector(".say-state:has-text('A question is open')")
    assert page.locator(".say").is_hidden()
    page.locator("#questions article.card button.first").click()
    page.wait_for_selector("#a-talk .entry.turn:has-text('ann has 5')")
    page.wait_for_selector(".say button:enabled")


def test_a_fork_with_another_prompt_opens_where_both_replies_stand(server: Api, windows: Screens) -> None:
    server.start("chat", run_id="prompts")
    page = windows.open("/runs/prompts#view=transcript")
    page.get_by_text("try it changed").first.click()
    page.wait_for_selector("dialog.go-on[open] form.fork .effects li")
    page.locator("fieldset.request textarea").first.fill("Be brief.")
    page.click("dialog.go-on[open] form.fork button.first")
    page.wait_for_url(lambda url: "/runs/prompts" not in url)
    page.wait_for_selector("#a-talk >> text=as it was")


def test_the_graph_is_one_click_away_and_the_card_is_there_then(server: Api, windows: Screens) -> None:
    server.start("chat", run_id="graph")
    page = windows.open("/runs/graph")
    page.wait_for_selector(".say button:enabled")
    page.get_by_role("button", name="Graph", exact=True).click()
    assert page.locator(".say").is_hidden()
    assert page.locator("#questions article.card").is_visible()
    assert "view=graph" in page.url


def test_a_message_that_cannot_be_sent_stays(server: Api, windows: Screens) -> None:
    server.start("chat", run_id="stale")
    page = windows.open("/runs/stale")
    page.wait_for_selector(".say button:enabled")
    page.route("**/answer", lambda route: route.abort())
    say(page, "hello")
    page.wait_for_selector(".say-state.bad:has-text('The server does not answer')")
    assert page.locator(".say textarea").input_value() == "hello"
    windows.faults.clear()


def test_several_questions_are_answered_on_their_cards(browser: Browser) -> None:
    with api(two) as found:
        found.start("two", run_id="two")
        windows = Screens(browser, found.url)
        page = windows.open("/runs/two")
        page.wait_for_selector(".say-state:has-text('Several questions are open')")
        assert page.locator("#questions article.card").count() == 2
        assert page.locator(".say").is_hidden()
        page.locator("#questions article.card textarea").first.fill("yes")
        page.locator("#questions article.card .first").first.click()
        page.wait_for_selector(".say button:enabled")  # the last one is a chat
        windows.close()
        assert not windows.faults


def test_readers_cannot_write(browser: Browser) -> None:
    with api(chat(), model=ScriptedModel(said), settings={"read_only": True}) as found:
        found.portal.call(lambda: found.executor.start("chat", "hello", run_id="one"))
        windows = Screens(browser, found.url)
        page = windows.open("/runs/one")
        page.wait_for_selector("#a-talk .entry.turn")
        assert page.locator(".say").is_hidden()
        windows.close()
        assert not windows.faults


@pytest.mark.parametrize(("size", "theme"), in_themes(SIZES))
def test_a_chat_is_usable_for_everybody(server: Api, windows: Screens, size: tuple[int, int], theme: Any) -> None:
    run = f"wide-{size[0]}"
    server.start("chat", run_id=run)
    page = windows.open(f"/runs/{run}", size, color_scheme=theme)
    page.wait_for_selector(".say button:enabled")
    assert serious_faults(page, moderate=True) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
