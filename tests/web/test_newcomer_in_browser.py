"""What a person does who knows only the page: from `react` to a variant with a router and a confirmation, and on.

Every action goes by the words and roles that the page shows, and is counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator import tool
from orchestrator.models import OfflineModel
from orchestrator.strategies.react import react
from tests.web.api import Api, api
from tests.web.windows import Screens, serious_faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser

MOST = 30
"""Actions from the first page to a variant that has run."""
EXPECTED = 409
"""The answer to a name that is taken, which the browser writes on its console."""


@tool(risk="none", effect="pure")
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@tool(risk="none", effect="pure")
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Api]:
    """A server with one graph, the offline model, a fresh store and a folder for graphs."""
    with api(react(tools=[add, multiply]), model=OfflineModel(), settings={"save_graphs": tmp_path}) as found:
        yield found


@pytest.fixture
def screens(browser: Browser, served: Api) -> Iterator[Screens]:
    """Windows on it, in which nothing may go wrong."""
    found = Screens(browser, served.url)
    yield found
    found.close()
    assert not [fault for fault in found.faults if str(EXPECTED) not in fault]


class Newcomer:
    """A person at the page: what they did, and what they saw after it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.trace: list[str] = []

    def click(self, role: str, words: str, *, within: Locator | None = None, sees: str | None = None) -> None:
        """Click what has this role and these words, and wait until the page shows others."""
        place = within or self.page
        self._do(f"click the {role} {words!r}", place.get_by_role(role, name=words, exact=True).click, sees)  # type: ignore[arg-type]  the role is text here

    def choose(self, label: str, option: str) -> None:
        """Choose an option by its words."""
        field = self.page.get_by_label(label, exact=True)
        self._do(f"choose {option!r} at {label!r}", lambda: field.select_option(label=option), None)

    def write(self, label: str, text: str, *, within: Locator | None = None) -> None:
        """Write into the field with this label."""
        field = (within or self.page).get_by_label(label, exact=True)
        self._do(f"write {text!r} at {label!r}", lambda: field.fill(text), None)

    def _do(self, words: str, act: Callable[[], object], sees: str | None) -> None:
        act()
        if sees is not None:
            self.page.get_by_text(sees).filter(visible=True).first.wait_for()
        self.trace.append(f"{len(self.trace) + 1}. {words}" + (f"; sees {sees!r}" if sees is not None else ""))


def variant(person: Newcomer) -> None:
    """From the first page to a variant of `react` with a router and a confirmation that has run."""
    person.click("link", "graphs", sees="Think, call tools, observe the results")
    person.click("link", "react", sees="Start a run")
    person.click("link", "Edit", sees="No problems, 5 nodes.")
    person.click("button", "route", sees="The outcomes long, short are those of an example")
    person.click("button", "Add", sees="No problems, 6 nodes.")
    person.click("button", "confirm", sees="approved leads to")
    person.choose("Where", "on route -> compact : short")
    person.click("button", "Add", sees="No problems, 7 nodes.")
    person.click("button", "Try it")
    person.write("question", "What is 17 * 23?")
    person.click("button", "Run", sees="Go on?")
    person.click("button", "Approve", sees="391")
    person.page.locator("#trial .pill.completed").wait_for()


def test_from_react_to_a_variant_that_runs_takes_at_most_thirty_actions(screens: Screens) -> None:
    person = Newcomer(screens.open("/runs"))
    variant(person)
    assert person.page.locator("#trial pre.answer").inner_text() == "391"
    assert len(person.trace) <= MOST, "\n".join(person.trace)
    assert len(person.trace) == 12, "\n".join(person.trace)


def test_the_variant_is_saved_started_forked_compared_replayed_and_its_cost_found(
    screens: Screens, served: Api, tmp_path: Path
) -> None:
    person = Newcomer(screens.open("/runs"))
    variant(person)
    page, dialog = person.page, person.page.get_by_role("dialog")
    person.click("button", "Save", sees="which is not replaced: choose another name")
    person.click("button", "Save", within=dialog, sees="my_react is a graph of this server now.")
    assert re.match(r"name: my_react\n", (tmp_path / "my_react.yaml").read_text())
    person.click("link", "Start a run of it", sees="Start a run")
    person.write("question", "What is 12 + 30?")
    person.click("button", "Start", sees="Go on?")
    person.click("button", "Approve", sees="it reached END")
    (parent,) = [one["run_id"] for one in served.get("runs")["runs"]]
    page.locator("#a-rows [role=treeitem]").nth(1).click()  # the row of the confirmation
    person.trace.append("the row 'confirm'")
    person.click("button", "Go on from here", sees="The step does not run again")
    person.write("question", "What is 50 + 8?", within=dialog)
    person.click("button", "Fork and run", sees=f"Fork of {parent}")
    page.locator("#a-cards").get_by_text("58", exact=True).wait_for()
    person.click(
        "link", f"Compare {parent} and {page.url.rpartition('/')[2].partition('#')[0]}", sees="First difference:"
    )
    assert {"42", "58"} <= set(re.findall(r"\d+", page.locator("#figures").inner_text()))
    person.click("link", "Runs", sees="What is 12 + 30?")
    page.get_by_role("checkbox", name=f"Select run {parent}").check()
    person.trace.append("the box of the run")
    person.click("button", "Replay", sees="Replay 1 run")
    person.choose("Graph", "react")
    person.click("button", "Replay 1 run", sees="1 of 1 are over")
    person.click("link", "Costs", sees="No price is known for offline")
    assert len(person.trace) <= 2 * MOST, "\n".join(person.trace)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_pages_of_the_first_steps_keep_nobody_out(screens: Screens, width: int, theme: str) -> None:
    page = screens.open("/runs", size=(width, 900), color_scheme=theme, reduced_motion="reduce")
    person, faults = Newcomer(page), serious_faults(page)
    person.click("link", "graphs", sees="Think, call tools, observe the results")
    faults += serious_faults(page)
    person.click("link", "react", sees="Start a run")
    person.click("link", "Edit", sees="No problems, 5 nodes.")
    person.click("button", "route", sees="The outcomes long, short are those of an example")
    faults += serious_faults(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    person.click("button", "Add", sees="No problems, 6 nodes.")
    person.click("button", "Save", sees="which is not replaced: choose another name")
    faults += serious_faults(page)
    person.click("button", "Save", within=page.get_by_role("dialog"), sees="my_react is a graph of this server now.")
    faults += serious_faults(page)
    person.click("button", "Try it")
    person.write("question", "What is 17 * 23?")
    person.click("button", "Run", sees="391")
    person.click("link", "Open the run", sees="This is a trial")
    page.wait_for_selector("html[data-ready]")
    faults += serious_faults(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not faults
