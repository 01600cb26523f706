"""The screens in a real browser: runs are followed and questions answered, by pointer and keys, on two at once."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from orchestrator import ToolCall, tool
from orchestrator.models import Reply
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from tests.support.shell import Shell
from tests.web.api import Api, api, plain
from tests.web.mail import LETTER, Post
from tests.web.test_serve import LOADED
from tests.web.windows import SIZES, Screens, in_themes, serious_faults, start

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


def test_a_run_appears_is_approved_on_one_screen_and_greyed_on_the_other(
    screens: Screens, served: Api, post: Post
) -> None:
    runs, inbox, other = screens.open("/runs"), screens.open("/inbox"), screens.open("/inbox")
    assert "No runs yet" in runs.inner_text("main")
    assert "Nothing waits for you" in inbox.inner_text("main")
    start(served, "one")
    runs.wait_for_selector("#runs tr[data-status=paused]")
    runs.wait_for_selector("#open-questions:text-is('1')")
    inbox.wait_for_selector(".card")
    other.wait_for_selector(".card")
    assert LETTER.splitlines()[2] in inbox.inner_text(".arguments")
    inbox.click("text=Approve")
    other.wait_for_selector(".card.over")
    assert "Answered" in other.inner_text(".outcome")
    assert other.locator(".card.over .acts button:visible").count() == 0
    runs.wait_for_selector("#runs tr[data-status=completed]")
    assert "She is told: sent." in runs.inner_text("#runs")
    assert [one["to"] for one in post.sent] == ["fischer@example.com"]
    assert served.settled("one")["status"] == "completed"


def test_arguments_are_edited_in_a_form_and_the_difference_is_shown(screens: Screens, served: Api, post: Post) -> None:
    start(served, "one")
    page = screens.open("/inbox")
    page.click("text=Edit")
    page.fill("[data-field=to]", "archive@example.com")
    page.fill("[data-field=body]", LETTER.replace("Thursday", "Friday"))
    page.fill("[data-field=copies]", "two")
    page.click("text=Approve as edited")
    assert "a number is needed" in page.inner_text(".arguments.form")
    assert post.sent == []
    page.fill("[data-field=copies]", "2")
    page.check("[data-field=urgent]")
    page.click("main summary")
    page.wait_for_selector(".diff .add")
    shown = [(line.get_attribute("class"), line.inner_text()) for line in page.locator(".diff div").all()]
    assert ("cut", "your parcel left our house on Thursday.") in shown
    assert ("add", "your parcel left our house on Friday.") in shown
    page.click("text=Approve as edited")
    page.wait_for_selector(".card.over")
    assert served.settled("one")["status"] == "completed"
    (sent,) = post.sent
    assert sent == {
        "to": "archive@example.com", "subject": "Your parcel", "body": LETTER.replace("Thursday", "Friday"),
        "copies": 2, "urgent": True,
    }  # fmt: skip


def test_all_of_it_by_keys(screens: Screens, served: Api, post: Post) -> None:
    start(served, "one")
    start(served, "two")
    page = screens.open("/runs")
    page.keyboard.press("?")
    assert "next run" in page.inner_text("dialog")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert "1 run selected" in page.inner_text("#bulk")
    page.keyboard.press("x")
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_url("**/inbox")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.dataset.run") == "one"
    page.keyboard.press("d")
    page.keyboard.type("not today")
    page.keyboard.press("Enter")
    page.wait_for_selector(".card.over[data-run=one]")
    assert page.evaluate("document.activeElement.dataset.run") == "two"
    page.keyboard.press("e")
    page.keyboard.press("Control+A")
    page.keyboard.type("boss@example.com")
    page.keyboard.press("Escape")
    page.locator(".card[data-run=two]").focus()
    page.keyboard.press("a")
    page.wait_for_selector(".card.over[data-run=two]")
    assert served.settled("two")["status"] == "completed"
    assert [one["to"] for one in post.sent] == ["boss@example.com"]
    denied = [one for one in served.get("runs/one/records")["records"] if one["type"] == "answered"]
    assert denied[0]["answer"] == {"type": "deny", "reason": "not today"}


def test_a_stale_answer_says_what_became_of_the_question(screens: Screens, served: Api, post: Post) -> None:
    start(served, "one")
    page = screens.open("/inbox")
    page.context.set_offline(True)
    question = served.get("questions")["questions"][0]["question"]
    served.post("runs/one/answer", question=question["id"], digest=question["digest"], approve=True, by="bob")
    served.settled("one")
    page.context.set_offline(False)
    page.evaluate("document.querySelector('.card .acts button')?.click()")
    page.wait_for_selector(".card.over")
    assert "bob" in page.inner_text(".outcome")
    assert len(post.sent) == 1
    screens.faults[:] = [one for one in screens.faults if "ERR_INTERNET_DISCONNECTED" not in one and "409" not in one]


def test_rows_do_not_move_under_the_pointer(screens: Screens, served: Api) -> None:
    start(served, "one")
    page = screens.open("/runs")
    page.hover("#runs tbody tr")
    start(served, "two")
    page.wait_for_selector("#fresh:visible")
    assert page.locator("#runs tbody tr").first.get_attribute("data-run") == "one"
    page.click("#fresh")
    assert page.locator("#runs tbody tr").first.get_attribute("data-run") == "two"


def test_one_field_finds_runs_screens_and_what_can_be_done(screens: Screens, served: Api) -> None:
    start(served, "one")
    page = screens.open("/inbox")
    page.keyboard.press("Control+k")
    page.wait_for_selector("dialog.finder [role=option] >> text=Runs that failed")
    page.keyboard.type("fischer")
    option = page.locator("dialog.finder [role=option]", has_text="· paused · one")
    option.wait_for()
    assert page.evaluate("document.activeElement.getAttribute('aria-activedescendant')") == option.get_attribute("id")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/one")
    page.wait_for_selector("html[data-ready]")
    page.click("#finder-open")
    page.keyboard.type("inb")
    page.keyboard.press("Enter")
    page.wait_for_url("**/inbox")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("Control+k")
    page.keyboard.type("deny, with")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.keyboard.press("?")
    page.wait_for_selector("dialog >> text=find a run")


def test_chosen_runs_are_deleted_after_a_question(screens: Screens, served: Api) -> None:
    start(served, "one")
    start(served, "two")
    page = screens.open("/runs")
    page.check("tr[data-run=one] input")
    page.click("[data-bulk=delete]")
    page.click("dialog #bulk-close")
    assert page.locator("#runs tbody tr").count() == 2
    page.click("[data-bulk=delete]")
    page.dblclick("dialog #bulk-go")
    page.wait_for_selector("dialog >> text=1 deleted.")
    page.click("dialog #bulk-close")
    page.wait_for_selector("tr[data-run=one]", state="detached")
    assert [row["run_id"] for row in served.get("runs")["runs"]] == ["two"]


def test_an_action_for_many_runs_says_what_came_of_each(screens: Screens, served: Api) -> None:
    for run in ("one", "two", "waits"):
        start(served, run)
    for run in ("one", "two"):
        served.post(f"runs/{run}/cancel")
        served.settled(run)
    before = served.get("runs/waits")["seq"]
    page = screens.open("/runs")
    page.check("#pick-all")
    assert "3 runs selected" in page.inner_text("#bulk")
    page.click("[data-bulk=retry]")
    assert "Retry 3 runs" in page.inner_text("#bulk-dialog h2")
    served.client.delete("/api/runs/two")
    page.click("#bulk-go")
    page.wait_for_selector("dialog >> text=Close")
    lines = page.locator("#bulk-dialog li").all_inner_texts()
    assert [("not done" in line, "two" in line) for line in lines if "two" in line] == [(True, True)]
    assert ["left as it is" in line for line in lines if "It is paused." in line] == [True]
    assert page.inner_text("#bulk-dialog [role=status]") == "1 retried, 1 not, 1 left as it is."
    assert served.get("runs/waits")["seq"] == before, "a run that waits was not touched"
    page.click("#bulk-close")
    screens.faults[:] = [fault for fault in screens.faults if "404" not in fault and "409" not in fault]


def test_all_runs_that_match_are_selected_beyond_the_page(browser: Browser) -> None:
    with api(plain) as served:

        def begin(run_id: str, team: str) -> None:
            served.post("runs", 201, graph="plain", input="bees", run_id=run_id, labels={"team": team}, wait=True)

        for number in range(7):
            begin(f"r{number}", "ops" if number < 6 else "law")
        screens = Screens(browser, served.url)
        page = screens.open("/runs?label=team:ops&limit=2")
        page.check("#runs tbody tr:first-child input")
        assert page.locator("[data-bulk=all]").is_hidden()
        page.check("#pick-all")
        assert page.inner_text("#bulk-count") == "2 runs selected, all of this page"
        page.click("[data-bulk=all]")
        page.wait_for_selector("#bulk-count:text-is('6 runs selected: all that match')")
        page.uncheck("#runs tbody tr:first-child input")  # rows are selected one by one again
        assert page.inner_text("#bulk-count") == "1 run selected"
        page.check("#pick-all")
        page.click("[data-bulk=all]")
        page.wait_for_selector("#bulk-count:text-is('6 runs selected: all that match')")
        begin("late", "ops")  # matches after they were selected
        page.click("[data-bulk=delete]")
        assert page.inner_text("#bulk-dialog h2") == "Delete 6 runs"
        assert page.is_disabled("#bulk-go")
        page.check("text=Also the 4 runs that this page does not show")
        page.click("#bulk-go")
        page.wait_for_selector("dialog >> text=6 deleted.")
        page.click("#bulk-close")
        assert {row["run_id"] for row in served.get("runs")["runs"]} == {"r6", "late"}
        screens.close()
        assert not screens.faults


def test_a_view_is_saved_under_a_name_and_its_filters_are_fields(screens: Screens, served: Api) -> None:
    start(served, "one")
    page = screens.open("/runs")
    page.fill("#filters input[name=label]", "user:ann")
    page.press("#filters input[name=label]", "Enter")
    page.wait_for_url("**/runs?label=user%3Aann")
    page.wait_for_selector("html[data-ready]")
    page.click("#save-view")
    page.keyboard.type("of Ann")
    page.keyboard.press("Enter")
    assert page.get_attribute("#views a", "href") == "/runs?label=user%3Aann"
    page.goto(f"{served.url}/runs")
    page.wait_for_selector("html[data-ready]")
    assert page.inner_text("#views a") == "of Ann"
    page.click("th.cost a")
    page.wait_for_url("**/runs?sort=cost")


LARGE = 2**53 + 1
"""The first whole number that JavaScript rounds."""


def test_large_numbers_keep_their_digits_in_the_form(browser: Browser) -> None:
    given: list[dict[str, object]] = []

    @tool(risk="write")
    def transfer(account: int, parts: list[int], rate: float, note: str) -> str:
        """Transfer."""
        given.append({"account": account, "parts": parts, "rate": rate, "note": note})
        return "done"

    args = {"account": LARGE, "parts": [LARGE, 1], "rate": 1.0, "note": "first\r\nsecond"}
    replies = [Reply(text="I pay.", tool_calls=(ToolCall(id=f"c{number}", name="transfer", arguments={**args}),))
               for number in range(2)]  # fmt: skip
    model = ScriptedModel(lambda request: Reply(text="ok") if request.messages[-1].role == "tool" else replies.pop(0))
    with api(react(tools=[transfer], name="bank"), model=model) as served:
        screens = Screens(browser, served.url)
        for run_id in ("one", "two"):
            served.post("runs", 201, graph="bank", input="Pay", run_id=run_id, wait=True)
        page = screens.open("/inbox")
        one, two = (page.locator(f".card[data-run={run_id}]") for run_id in ("one", "two"))
        assert str(LARGE) in one.inner_text()
        one.get_by_text("Edit", exact=True).click()
        one.locator("[data-field=rate]").fill("2.50")
        one.locator("summary").click()
        one.locator(".diff .add").wait_for()
        assert one.locator(".diff .add, .diff .cut").all_inner_texts() == ["rate: 1.0", "rate: 2.50"]
        one.get_by_text("Approve as edited").click()
        page.wait_for_selector(".card.over[data-run=one]")
        assert served.settled("one")["status"] == "completed"
        two.get_by_text("Edit", exact=True).click()
        two.locator("[data-field=account]").fill(str(LARGE + 2))
        two.locator("[data-field=parts]").fill(f"[{LARGE + 4}]")
        two.get_by_text("Approve as edited").click()
        page.wait_for_selector(".card.over[data-run=two]")
        assert served.settled("two")["status"] == "completed"
        screens.close()
        assert not screens.faults
    assert given == [{**args, "rate": 2.5}, {**args, "account": LARGE + 2, "parts": [LARGE + 4]}]


def test_more_questions_than_a_page_has_are_behind_a_link_and_move_up(screens: Screens, served: Api) -> None:
    for run_id in ("one", "two", "three"):
        start(served, run_id)
    page = screens.open("/inbox?limit=1")
    assert page.inner_text("#summary") == "3 questions wait; these are the 1 oldest"
    page.click("#later")
    page.wait_for_selector(".card[data-run=two]")
    page.wait_for_selector("html[data-ready]")
    assert page.inner_text("#summary") == "3 questions wait; these are later ones"
    page.click("text=Approve")
    page.wait_for_selector(".card.over[data-run=two]")
    page.wait_for_selector(".card:not(.over)[data-run=three]")
    page.wait_for_selector("#later", state="detached")
    page.click("text=Oldest")
    page.wait_for_selector(".card[data-run=one]")
    assert page.locator(".card").count() == 1


def test_rows_leave_a_list_whose_filter_they_no_longer_fit(screens: Screens, served: Api) -> None:
    for run_id in ("one", "two"):
        start(served, run_id)
    page = screens.open("/runs?status=paused")
    question = served.get("questions")["questions"][0]["question"]
    served.post("runs/one/answer", question=question["id"], digest=question["digest"], approve=True)
    page.wait_for_selector("tr[data-run=one]", state="detached")
    assert page.locator("#runs tbody tr").count() == 1
    page.wait_for_selector("#open-questions:text-is('1')")


def test_new_rows_push_the_oldest_to_the_next_page(screens: Screens, served: Api) -> None:
    for number in range(2):
        start(served, f"old-{number}")
    page = screens.open("/runs?limit=2")
    start(served, "new")
    page.wait_for_selector("tr[data-run=old-0]", state="detached")
    assert [row.get_attribute("data-run") for row in page.locator("#runs tbody tr").all()] == ["new", "old-1"]
    page.click("#older")
    page.wait_for_selector("tr[data-run=old-0]")


ASKING = """
from orchestrator import Graph
from orchestrator.nodes import Ask
from pydantic import BaseModel

class S(BaseModel):
    topic: str = ""
    said: str = ""

graph = Graph(
    name="asking", state=S, input="topic", output="said", nodes={"ask": Ask(prompt="What?", answer="said")},
    edges="START -> ask -> END"
)
"""


def test_screens_say_that_the_connection_is_lost_and_come_back_by_themselves(browser: Browser, tmp_path: Path) -> None:
    shell = Shell(tmp_path, inside=True)
    (tmp_path / "shop.py").write_text(ASKING)

    def ask(run_id: str) -> None:
        body = {"graph": "asking", "input": "bees", "run_id": run_id, "wait": True}
        assert httpx2.post(f"{url}/api/runs", json=body, timeout=60).status_code == 201

    with shell.begin("serve", "shop:graph", "--port", 0, loads=LOADED) as process:
        line = process.line(err=True)
        while "serving" not in line:
            line = process.line(err=True)
        url = line.split()[1].rstrip("/;").removesuffix("/")
        ask("one")
        screens = Screens(browser, url)
        runs, inbox = screens.open("/runs"), screens.open("/inbox")
        process.signal(signal.SIGKILL)
        process.wait()
        for page in (runs, inbox):
            page.wait_for_selector("#link:has-text('Connection lost')")
        inbox.fill(".card textarea", "honey")
        inbox.click(".card button:text-is('Answer')")
        inbox.wait_for_selector(".outcome:has-text('nothing was changed')")
    with shell.begin("serve", "shop:graph", "--port", url.rpartition(":")[2], loads=LOADED) as process:
        while "serving" not in process.line(err=True):
            pass
        for page in (runs, inbox):
            page.wait_for_selector("#link:text-is('')", state="attached")
        ask("two")
        runs.wait_for_selector("tr[data-run=two]")
        inbox.wait_for_selector(".card[data-run=two]")
        inbox.fill(".card[data-run=one] textarea", "honey")
        inbox.click(".card[data-run=one] button:text-is('Answer')")
        inbox.wait_for_selector(".card.over[data-run=one]")
        runs.wait_for_selector("tr[data-run=one][data-status=completed]")
        assert all("ERR_" in fault or "404" in fault for fault in screens.faults), screens.faults
        screens.close()


@pytest.mark.parametrize(("size", "theme"), in_themes(SIZES))
def test_no_serious_fault_that_axe_finds_at_any_width(
    screens: Screens, served: Api, size: tuple[int, int], theme: str
) -> None:
    start(served, "one")
    for path in ("/runs", "/inbox"):
        page = screens.open(path, size, color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
        assert serious_faults(page) == [], path
        width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert width[0] <= width[1], f"{path} is wider than the window"
