"""The two minutes that docs/live_page.md begins with: done in a real browser, as they are written there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from orchestrator import tool
from orchestrator.models.offline import OfflineModel
from orchestrator.strategies.tool_user import tool_user
from tests.web.api import Api, api
from tests.web.windows import Screens

pytestmark = pytest.mark.browser
QUESTION = "What is 20+(2*4)? Calculate step by step."
AT_ONCE = 1200
"""Milliseconds for which a question that has just come cannot be approved by a key."""
CARD = "#questions article.card:not(.over)"


@tool(risk="none", effect="pure")
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@tool(risk="none", effect="pure")
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


@pytest.fixture
def served() -> Iterator[Api]:
    with api(tool_user(tools=[add, multiply]), model=OfflineModel()) as found:
        yield found


def test_a_run_is_approved_looked_at_forked_compared_and_its_cost_found(screens: Screens, served: Api) -> None:
    served.post("runs", 201, graph="tool_user", input=QUESTION, run_id="first", wait=True)
    page = screens.open("/runs")
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_url("**/inbox")
    page.wait_for_selector("html[data-ready]")
    for called in ("multiply", "add"):
        page.wait_for_selector(
            f"article.card:not(.over) h2:has-text('{called}'), article.card:not(.over) b:has-text('{called}')"
        )
        page.keyboard.press("j")
        page.wait_for_timeout(AT_ONCE)
        page.keyboard.press("a")
    assert served.settled("first")["output"] == "28"
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/runs")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/first**")
    page.wait_for_selector("html[data-ready]")
    assert "28" in page.inner_text("#a-cards")
    page.locator("#a-rows [role=treeitem]").nth(3).click()
    assert "multiply" in page.inner_text("#a-rows [aria-selected=true]")
    page.keyboard.press("o")
    page.wait_for_selector("dialog.go-on[open] form.fork .effects li")
    page.select_option("dialog.go-on .from select", label="another result of multiply (record 13)")
    page.fill("[data-field=result]", "80")
    page.click("text=Fork and run")
    page.wait_for_url(lambda url: "/runs/first" not in url)
    page.wait_for_selector(CARD)
    page.wait_for_timeout(AT_ONCE)
    fork = re.sub(".*/", "", page.url.partition("#")[0])
    page.keyboard.press("a")
    page.wait_for_selector("#a-status:text-is('completed')")
    assert served.settled(fork)["output"] == "100"
    assert served.get("runs/first")["output"] == "28"
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/runs")
    page.wait_for_selector("html[data-ready]")
    for _ in range(2):
        page.keyboard.press("j")
        page.keyboard.press("x")
    page.click("#bulk >> text=Compare")
    page.wait_for_url("**/compare?runs=**")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("f")
    page.wait_for_url(lambda url: "execute" in url)  # the result that was given is the first difference
    assert "100" in page.inner_text("main")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_url("**/costs")
    page.wait_for_selector("html[data-ready]")
    assert "No price is known for offline" in page.inner_text("#about")
    page.click("#groups td.bars a")
    page.wait_for_selector(f"#runs tr[data-run='{fork}']")
