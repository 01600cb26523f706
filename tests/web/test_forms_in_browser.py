"""A question that asks for an object is a form with its fields, on the page of the run and in the inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.nodes import Ask
from tests.web.api import api
from tests.web.windows import Screens

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "size": {"enum": ["S", "M"]},
        "count": {"type": "integer"},
    },
    "required": ["name"],
}


class Order(BaseModel):
    """What is ordered."""

    order: dict[str, Any] = {}


ordering = Graph(
    name="ordering",
    state=Order,
    nodes={"ask": Ask(prompt="Who?", accepts=FORM, answer="order")},
    edges="START -> ask -> END",
    output="order",
)


@pytest.mark.parametrize("place", ["/inbox", "/runs/r"])
def test_the_fields_are_filled_in_and_what_does_not_fit_is_said(browser: Browser, place: str) -> None:
    with api(ordering) as served:
        served.post("runs", 201, graph="ordering", input={}, run_id="r", wait=True)
        screens = Screens(browser, served.url)
        page = screens.open(place)
        answer = page.get_by_role("button", name="Answer", exact=True)
        answer.click()
        page.wait_for_selector(".outcome:has-text('name')")
        page.get_by_label("name", exact=True).fill("Ann")
        page.get_by_label("count", exact=True).fill("many")
        answer.click()
        page.wait_for_selector(".fault:has-text('number')")
        page.get_by_label("count", exact=True).fill("2")
        answer.click()
        page.wait_for_selector(".outcome:has-text('Answered.')")
        served.settled("r")
        assert served.get("runs/r")["output"] == {"name": "Ann", "count": 2}
        screens.close()
