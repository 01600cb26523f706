"""What people stumble over who see the page for the first time, each in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.models import OfflineModel
from orchestrator.strategies.react import react
from tests.web.api import Api, api, letter
from tests.web.windows import Screens

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

NODES = 150
LONG = "\n".join([
    "name: long", "state:", "  fields:", "    question: str", '    answer: {type: str, default: ""}', "input: question",
    "output: answer", "nodes:",
    *(f"  step_{one}:\n    kind: complete\n    prompt: Part {one}\n    result: answer" for one in range(NODES)),
    "edges: |", "  START -> step_0", *(f"  step_{one} -> step_{one + 1}" for one in range(NODES - 1)),
    f"  step_{NODES - 1} -> END", "",
])  # fmt: skip
"""More lines than the browser inserts so that it can undo them."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server that keeps graphs, with a letter that asks before it is sent."""
    folder: Path = tmp_path_factory.mktemp("graphs")
    with api(react(), letter, model=OfflineModel(), settings={"save_graphs": folder}) as found:
        yield found


@pytest.fixture
def screens(browser: Browser, served: Api) -> Iterator[Screens]:
    """Windows on it, in which nothing may go wrong."""
    found = Screens(browser, served.url)
    yield found
    found.close()
    assert not found.faults


def editor(screens: Screens, path: str = "/compose?from=react", width: int = 1280) -> Page:
    page = screens.open(path, size=(width, 900))
    page.wait_for_selector("html[data-checked=yes]")
    return page


@pytest.mark.parametrize("width", [390, 1280])
def test_the_form_of_a_new_node_has_room_and_its_labels_can_be_read(screens: Screens, width: int) -> None:
    page = editor(screens, width=width)
    page.get_by_role("button", name="route", exact=True).click()
    place = page.get_by_label("Where", exact=True)
    place.wait_for()
    assert page.evaluate("(box => box.scrollHeight <= box.clientHeight)(document.querySelector('.parts'))")
    wide = """select => { const probe = document.createElement('canvas').getContext('2d');
        probe.font = getComputedStyle(select).font;
        return Math.max(...[...select.options].map(one => probe.measureText(one.textContent).width)); }"""
    assert place.evaluate(wide) < place.evaluate("select => select.clientWidth - 20")


def test_the_form_of_a_new_node_says_that_its_outcomes_are_an_example(screens: Screens) -> None:
    page = editor(screens)
    page.get_by_role("button", name="route", exact=True).click()
    form = page.locator("#adding")
    form.get_by_text("The outcomes long, short are those of an example").wait_for()
    example = "{kind: route, cases: {long: size(question) > 200}, default: short}"
    assert form.get_by_label("Example").inner_text() == example
    assert form.locator("p code").inner_text() == "default"
    assert "`" not in form.inner_text()


def test_no_tooltip_of_a_kind_shows_backticks(screens: Screens) -> None:
    page = editor(screens)
    titles = page.locator("button.kind").evaluate_all("all => all.map(one => one.title)")
    assert titles
    assert not [title for title in titles if "`" in title]


def test_an_open_form_is_not_replaced_by_another_kind_and_cancel_goes_back_to_its_own(screens: Screens) -> None:
    page = editor(screens)
    page.get_by_role("button", name="route", exact=True).click()
    page.fill("#adding-name", "by_length")
    assert not page.get_by_role("button", name="confirm", exact=True).is_visible()
    assert page.input_value("#adding-name") == "by_length"
    page.get_by_role("button", name="Cancel", exact=True).click()
    assert page.evaluate("document.activeElement.dataset.kind") == "route"
    assert page.get_by_role("button", name="confirm", exact=True).is_visible()


def test_many_inserted_lines_are_undone_and_done_again(screens: Screens, served: Api) -> None:
    served.post("graphs/save", 201, name="long", text=LONG, replaces=None)
    page = editor(screens, "/compose?graph=long")
    page.fill("#text", "name: short\n")
    page.get_by_role("button", name="Start over", exact=True).click()
    assert page.input_value("#text") == LONG
    page.focus("#text")
    page.keyboard.press("Control+z")
    assert page.input_value("#text") == "name: short\n"
    page.keyboard.press("Control+Shift+z")
    assert page.input_value("#text") == LONG
    page.wait_for_selector("html[data-checked=yes]")
    assert page.inner_text("#state") == f"No problems, {NODES} nodes."


def test_an_approval_without_arguments_has_nothing_to_edit_and_its_clock_stops(screens: Screens, served: Api) -> None:
    served.post("runs", 201, graph="letter", input="tea", run_id="asks", wait=True)
    page = screens.open("/runs/asks")
    card = page.locator("#questions article.card")
    card.get_by_role("button", name="Approve", exact=True).wait_for()
    assert card.get_by_role("button").all_inner_texts() == ["Approve", "Deny"]
    page.keyboard.press("e")
    assert not card.locator(".form, .changes").count()
    card.get_by_role("button", name="Approve", exact=True).click()
    card.get_by_text("Approved.").wait_for()
    assert card.locator(".waits").inner_text().startswith("waited ")
    assert not card.locator("time[data-at]").count()


def test_a_fork_at_an_open_question_offers_its_answer(screens: Screens, served: Api) -> None:
    served.post("runs", 201, graph="letter", input="rum", run_id="open", wait=True)
    page = screens.open("/runs/open")
    page.get_by_role("button", name="Go on from here", exact=True).click()
    page.select_option("dialog.go-on .from select", label="as it is now (record 3)")
    page.get_by_text("Its open question is asked in the new run").wait_for()
    page.get_by_role("button", name="Fork and run", exact=True).click()
    page.wait_for_url(lambda url: "/runs/open" not in url)
    page.locator("#questions article.card").get_by_role("button", name="Approve", exact=True).click()
    page.get_by_text("it reached END").first.wait_for()
    assert served.get("runs/open")["status"] == "paused"


def test_a_page_below_try_says_that_it_is_a_trial(screens: Screens) -> None:
    said = "This is a trial: it is kept in the memory of the server, and gone when the server ends."
    assert screens.open("/try/runs").get_by_role("note").inner_text() == said
    assert not screens.open("/runs").get_by_role("note").count()
