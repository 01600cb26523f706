"""The screens of evaluations in a real browser: from the list to the run of a wrong row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from orchestrator import Executor
from orchestrator.evaluation import RecordedRuns, counterfactual, evaluate
from tests.evaluation.graphs import Counted, direct, refined
from tests.web.api import Api, api, plain
from tests.web.hostile import HOSTILE
from tests.web.windows import SIZES, Screens, in_themes, serious_faults

pytestmark = pytest.mark.browser

WORDS = ["a", "b", f"c {HOSTILE}"]


@pytest.fixture
def served() -> Iterator[Api]:
    """A server with an evaluation of two graphs, and with recorded runs that were replayed with another prompt."""

    async def replayed() -> None:
        async with Executor(found.executor.store, graphs=[direct()], model=Counted()) as executor:
            for at, word in enumerate(WORDS):
                await executor.start("direct", word, run_id=f"run-{at}")
        model = Counted(wrong="b")
        runs = RecordedRuns("direct", found.executor.store)
        await counterfactual(runs, direct("Please:", "direct"), model=model, name="another prompt")

    with api(plain) as found:
        data: Any = [{"id": f"row {at}", "question": word, "expected": word} for at, word in enumerate(WORDS)]
        store, model = found.executor.store, Counted(wrong="b c")
        found.portal.call(partial(evaluate, data, [direct(), refined()], models=model, store=store, name="rows"))
        found.portal.call(replayed)
        yield found


@pytest.mark.parametrize(("size", "theme"), in_themes(SIZES))
def test_a_wrong_row_opens_its_run_by_way_of_the_list(
    screens: Screens, served: Api, size: tuple[int, int], theme: str
) -> None:
    page = screens.open("/runs", size, color_scheme=theme)
    if size[0] <= 480:
        page.click("summary[aria-label='More screens']")
    page.click("a:visible:text-is('Evaluations')")
    page.wait_for_selector("table.evaluations")
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click("table.evaluations a:has-text('rows')")
    page.wait_for_selector("table.variants")
    assert page.locator("table.variants tbody tr").count() == 2
    assert "do not differ significantly" in page.inner_text("table.differences")
    assert page.evaluate("document.querySelector('.picture img').naturalWidth") > 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("window.pwned") is None
    assert serious_faults(page) == []
    page.click("table.variants a:has-text('refined')")
    page.wait_for_selector("#cases .chip")
    rows = page.locator("table.wrong tbody tr")
    assert {row.locator("td").nth(1).inner_text() for row in rows.all()} == {"refined"}
    link = rows.first.locator("a.run")
    run_id = link.inner_text()
    link.click()
    page.wait_for_url(f"**/runs/{run_id}")
    page.wait_for_selector("html[data-ready]")


def test_a_changed_answer_opens_its_run_and_its_replay(screens: Screens, served: Api) -> None:
    page = screens.open("/evaluations", (390, 844))
    page.click("table.evaluations a:has-text('another prompt')")
    page.wait_for_selector("#cases table")
    assert "2 answers stayed, 1 changed" in page.inner_text("section.notes")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious_faults(page) == []
    page.click("#cases a:text-is('run-1')")
    page.wait_for_url("**/runs/run-1")
    page.go_back()
    page.click("#cases a.run")
    page.wait_for_url("**/runs/what-if-*")


def test_keys_move_through_the_evaluations_and_open_one(screens: Screens, served: Api) -> None:
    page = screens.open("/evaluations")
    page.keyboard.press("j")
    first = page.evaluate("document.activeElement.innerText")
    page.keyboard.press("Enter")
    page.wait_for_selector("#cases")
    assert page.inner_text("h1") in first
