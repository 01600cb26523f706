"""The screen of the costs in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.web.api import Api, api
from tests.web.costs import called, spent, used
from tests.web.windows import SIZES, Screens, in_themes, serious_faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture
def shown(browser: Browser) -> Iterator[tuple[Api, Screens]]:
    """A server with runs of three days, and windows on it."""
    with api() as found:
        spent(found, "old", "2026-01-30", used("large", 900, 0.5), labels={"team": "maps"})
        spent(found, "bad", "2026-02-01", used("large", 100, 0.25), graph="other", status="failed")
        spent(found, "new", "2026-02-01", used("free", 700, 0.0), called("fetch", 4, 1), labels={"team": "search"})
        screens = Screens(browser, found.url)
        yield found, screens
        screens.close()
        assert not screens.faults


def names(page: Page) -> list[str]:
    return [row.inner_text() for row in page.locator("#groups td.name a").all()]


def test_the_cost_of_a_day_is_found_from_the_runs_with_the_keyboard_alone(shown: tuple[Api, Screens]) -> None:
    _, screens = shown
    page = screens.open("/runs")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_url("**/costs")
    page.wait_for_selector("html[data-ready]")
    assert names(page) == ["2026-02-01", "2026-01-30"]
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert "2026-01-30" in page.evaluate("document.activeElement.innerText")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs?begun_since=2026-01-30&begun_until=2026-01-30&replays=true")
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#runs tbody tr").evaluate_all("rows => rows.map((row) => row.dataset.run)") == ["old"]
    assert "started since: 2026-01-30" in page.inner_text("nav.chips")
    page.go_back()
    page.wait_for_selector("html[data-ready]")
    assert names(page) == ["2026-02-01", "2026-01-30"]


def test_bars_columns_and_ranges_lead_where_they_say(shown: tuple[Api, Screens]) -> None:
    _, screens = shown
    page = screens.open("/costs")
    page.click(".days a:last-child")
    page.wait_for_url("**/runs?begun_since=2026-02-01&begun_until=2026-02-01&replays=true")
    page.go_back()
    page.click("nav[aria-label=Groups] >> text=Graph")
    page.wait_for_url("**/costs?by=graph")
    assert names(page) == ["plain", "other"]
    page.click("thead >> text=Failed")
    page.wait_for_url("**/costs?by=graph&show=failed")
    assert names(page) == ["other", "plain"]
    widths = page.locator(".bars .part").evaluate_all("all => all.map((one) => one.getBoundingClientRect().width)")
    assert widths[0] > 100
    assert widths[1] == 0
    page.click("#groups tbody tr:first-child td.bars a")
    page.wait_for_url("**/runs?graph=other&replays=true")
    page.go_back()
    page.fill("input[name=since]", "2026-01-30")
    page.fill("input[name=until]", "2026-01-30")
    page.click("text=Show")
    page.wait_for_url("**/costs?by=graph&show=failed&since=2026-01-30&until=2026-01-30")
    assert names(page) == ["plain"]
    assert page.input_value("input[name=until]") == "2026-01-30"
    page.click("text=30 days")
    page.wait_for_url("**/costs?by=graph&show=failed&days=30")
    assert "No run fits these filters" in page.inner_text("#groups")
    first = (datetime.now(UTC) - timedelta(days=29)).date().isoformat()
    assert page.input_value("input[name=since]") == first


def test_it_follows_the_store_and_no_row_moves_under_the_pointer(shown: tuple[Api, Screens]) -> None:
    found, screens = shown
    page = screens.open("/costs?by=graph")
    page.hover("#groups tbody tr:last-child td.name")
    top = "document.querySelectorAll('#groups tbody tr')[1].getBoundingClientRect().top"
    place = page.evaluate(top)
    spent(found, "dear", "2026-02-01", used("large", 100, 9.0), graph="dear")
    spent(found, "more", "2026-02-01", used("large", 100, 7.0), graph="other")
    page.wait_for_selector("#groups td.cost >> text=≥ 0.5000")
    page.wait_for_selector("#groups td.cost >> text=7.25")
    page.wait_for_selector("#groups td.name >> text=dear")
    assert names(page) == ["plain", "other", "dear"], "the new one is at the end"
    assert page.evaluate(top) == place
    page.hover("h1")
    page.wait_for_selector("#groups tbody tr:first-child td.name >> text=dear")
    assert names(page) == ["dear", "other", "plain"]
    assert "5 runs" in page.inner_text("#summary")
    page.keyboard.press("j")
    found.client.request("DELETE", "/api/runs/dear")
    page.wait_for_selector("#groups tr.gone td.name >> text=dear")
    page.evaluate("document.activeElement.blur()")
    page.wait_for_selector("#groups td.name >> text=dear", state="detached")


def test_the_first_run_of_a_store_appears_by_itself(browser: Browser) -> None:
    with api() as found:
        screens = Screens(browser, found.url)
        page = screens.open("/costs")
        assert "No runs yet" in page.inner_text("main")
        spent(found, "old", "2026-01-30", used("large", 900, 0.5))
        page.wait_for_selector("#groups td.name >> text=2026-01-30")
        spent(found, "new", "2026-02-01", used("large", 900, 0.5))
        page.wait_for_selector(".days")
        screens.close()
        assert not screens.faults


@pytest.mark.parametrize(("size", "theme"), in_themes([*SIZES, (2560, 1300)]))
def test_no_serious_fault_that_axe_finds_at_any_width(
    shown: tuple[Api, Screens], size: tuple[int, int], theme: str
) -> None:
    found, screens = shown
    hostile = "<script>window.pwned=1</script>" + "w" * 150 + "\u202e"
    spent(found, "long", "2026-02-02", used(hostile, 10**12, 0.0, node="n" * 120), labels={"team": hostile})
    for path in ("/costs", "/costs?by=model", "/costs?by=node&days=30&graph=plain", "/costs?by=label:team", "/graphs"):
        page = screens.open(path, size, color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
        assert serious_faults(page) == []
        width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert width[0] <= width[1], "the screen is wider than the window"
        nav = page.evaluate("[document.querySelector('.top nav')].map((one) => [one.scrollWidth, one.clientWidth])[0]")
        assert nav[0] <= nav[1], "a link of the bar cannot be seen"
        page.close()
