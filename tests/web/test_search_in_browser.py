"""A search of the list of runs, in a real browser: a run that is opened from it shows the step that was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator import Graph, Outcome, ToolCall, append, node, tool
from orchestrator.graph import Usage
from orchestrator.models import Reply
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from orchestrator.web.screens import run_feed
from tests.web.api import api
from tests.web.windows import Screens

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

SEEN = "[...CSS.highlights.get('sought') ?? []].map((one) => one.toString())"


def marked(page: Page) -> set[str]:
    """The words that are marked."""
    found: set[str] = set()
    while not found:  # the test's time limit ends it
        page.wait_for_timeout(20)
        found = set(page.evaluate(SEEN))
    return found


@tool(risk="none")
def read_shelf(number: int) -> str:
    """Read a shelf.

    Args:
        number: which one.
    """
    return "cup\n" * 300 + f"<b>teapot TP-44{number}</b>\n" + "cup\n" * 300


def looked(number: int) -> list[Reply]:
    """What the model of a run says that reads a shelf."""
    call = ToolCall(id="c", name="read_shelf", arguments={"number": number})
    return [Reply(text="I look.", tool_calls=(call,), usage=Usage()), Reply(text="There it is.", usage=Usage())]


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)])
def test_a_run_found_by_what_a_tool_returned_opens_at_that_call(browser: Browser, size: tuple[int, int]) -> None:
    shelves = react(tools=[read_shelf], name="shelves")
    model = ScriptedModel([*looked(71), *looked(72), *looked(73)])
    with api(shelves, model=model) as served:
        for run_id in ("one", "two", "three"):
            served.post("runs", 201, graph="shelves", input="where?", run_id=run_id, wait=True)
        screens = Screens(browser, served.url)
        page = screens.open("/runs", size)
        page.fill("#q", "TP-4472")
        page.keyboard.press("Enter")
        page.wait_for_url("**/runs?q=TP-4472")
        page.click("#runs tbody .row-link")
        page.wait_for_url("**/runs/two*")
        assert marked(page) == {"TP-4472"}
        assert page.get_attribute("#a-tab-tools", "aria-selected") == "true"
        assert "<b>teapot TP-4472</b>" in page.inner_text("#a-panel")
        top, bottom = page.evaluate(
            "(() => { const { top, bottom } = [...CSS.highlights.get('sought')][0].getBoundingClientRect();"
            " return [top, innerHeight - bottom]; })()"
        )
        assert min(top, bottom) > 0  # it is far down in a long result, and in view
        page.click("#a-tab-step")
        while page.evaluate(SEEN):
            page.wait_for_timeout(20)
        screens.close()
        assert not screens.faults


LETTERS = "abcdefghij"


class Words(BaseModel):
    """What a loop of this test wrote."""

    said: Annotated[list[str], append] = []


@node(outcomes=["again", "enough"])
async def say(state: Words) -> Any:
    """A word more."""
    tens, ones = divmod(len(state.said), 10)
    return Outcome("enough" if tens == 9 else "again", {"said": f"word of item-{LETTERS[tens]}q{LETTERS[ones]}"})


talker = Graph(
    name="talker", state=Words, nodes={"say": say}, output="said",
    edges="START -> say\nsay -> say : again\nsay -> END : enough", limits={"steps": 200},
)  # fmt: skip


def test_a_step_of_a_long_run_is_found_once_it_is_there(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_feed, "PART", 20)
    with api(talker) as served:
        served.post("runs", 201, graph="talker", input={}, run_id="long", wait=True)
        screens = Screens(browser, served.url)
        page = screens.open("/runs/long#q=item-iqf")
        page.wait_for_selector(".row[aria-selected=true]:has-text('86')")
        assert marked(page) == {"item-iqf"}
        page = screens.open("/runs/long#q=item:iqf,%20word")  # no step has that text, but one has its words
        page.wait_for_selector(".row[aria-selected=true]:has-text('86')")
        assert marked(page) == {"item", "iqf", "word"}
        page.click("#a-back")  # all steps are listed
        page.wait_for_selector(".row[aria-selected=true]:has-text('85')")
        screens.close()
        assert not screens.faults
