"""The screen of the workers in a real browser, with workers that are processes of their own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.shell import Process, Shell
from tests.web.api import Api, api
from tests.web.windows import SIZES, Screens, in_themes, serious_faults
from tests.web.workers import SAID, announced, announced_dead, held, parked

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

SHOP = """
import anyio
from pydantic import BaseModel
from orchestrator import Graph, Update, node

class S(BaseModel):
    n: int = 0

@node
async def waits(state: S) -> Update:
    await anyio.sleep(3600)

graph = Graph(name="slow", state=S, input="n", nodes={"waits": waits}, edges="START -> waits -> END")
"""
WORK = """
import sys
import anyio
from orchestrator import Executor
from shop import graph

async def main():
    async with Executor(sys.argv[1], graphs=[graph], lease_ttl=3.0) as executor:
        await executor.work(slots=1, poll=0.1)

anyio.run(main)
"""
"""A worker that lapses soon."""


@pytest.fixture
def shown(browser: Browser, tmp_path: Path) -> Iterator[tuple[Api, Screens, Shell, str]]:
    """A server, windows on it, and where commands run on its store."""
    shell, url = Shell(tmp_path), f"sqlite:///{tmp_path}/runs.db"
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "work.py").write_text(WORK)
    with api(store=url) as found:
        screens = Screens(browser, found.url)
        yield found, screens, shell, url
        screens.close()
        assert not screens.faults


def begun(stack: ExitStack, shell: Shell, url: str) -> Process:
    return stack.enter_context(shell.begin(url, module="work"))


def age(page: Page, state: str) -> int:
    """Seconds since the worker in this state was heard from, as the screen says them."""
    return int(page.inner_text(f"tr[data-state={state}] time").removesuffix(" s ago"))


def test_workers_appear_and_one_that_is_killed_is_dead_and_one_that_is_stopped_lapses(
    shown: tuple[Api, Screens, Shell, str], tmp_path: Path
) -> None:
    found, screens, shell, url = shown
    page = screens.open("/workers")
    assert "No worker is there" in page.inner_text("main")
    with ExitStack() as stack:
        workers = []
        for number in range(3):
            put = shell("enqueue", "shop:graph", "--input", '{"n": 1}', "--run-id", f"order-{number}", "--store", url)
            assert put.code == 0, put.err
            workers.append(begun(stack, shell, url))
            page.wait_for_selector(f"#working tbody tr >> text=order-{number}")
        assert page.inner_text("#summary") == "3 alive"
        killed, stopped, _ = workers
        killed.signal(signal.SIGKILL)
        killed.wait()
        page.wait_for_selector("tr[data-state=dead] >> text=order-0")
        stopped.signal(signal.SIGSTOP)
        page.wait_for_selector("tr[data-state=lapsed] >> text=order-1")
        parked(found, "stuck", "ModelMissing: no model")
        page.wait_for_selector("#parked tr[data-run=stuck]")
        assert page.inner_text("#summary") == "1 alive, 1 lapsed, 1 dead"
        states = [row.get_attribute("data-state") for row in page.locator("#working tbody tr").all()]
        assert (states[0], set(states[1:])) == ("alive", {"lapsed", "dead"})
        page.screenshot(path=tmp_path / "workers.png")
        page.wait_for_timeout(2500)
        assert age(page, "alive") <= 4, "it starts anew with each heartbeat"
        assert age(page, "lapsed") >= 4
        stopped.signal(signal.SIGCONT)
        page.wait_for_selector("tr[data-state=lapsed]", state="detached")


def test_a_parked_run_goes_on_by_a_button_and_leaves_when_the_pointer_does(
    shown: tuple[Api, Screens, Shell, str],
) -> None:
    found, screens, *_ = shown
    parked(found, "stuck", "ModelMissing: no model")
    parked(found, "stays")
    page = screens.open("/workers")
    assert "ModelMissing" in page.inner_text("tr[data-run=stuck]")
    page.click("tr[data-run=stuck] button")
    page.wait_for_selector("tr[data-run=stuck].gone")
    assert page.is_disabled("tr[data-run=stuck] button")
    assert found.settled("stuck")["status"] == "completed"
    page.hover("h1")
    page.wait_for_selector("tr[data-run=stuck]", state="detached")
    assert page.locator("#parked tbody tr").count() == 1


def test_all_of_it_by_keys(shown: tuple[Api, Screens, Shell, str]) -> None:
    found, screens, *_ = shown
    held(found, announced(found, "one"), "r1")
    announced(found, "two", worker={**SAID, "started": 2.0})
    parked(found, "stuck")
    page = screens.open("/runs")
    page.keyboard.press("Control+k")
    page.keyboard.type("workers")
    page.keyboard.press("Enter")
    page.wait_for_url("**/workers")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.dataset.worker") == "one"
    announced(found, "one", worker={**SAID, "slots": 9})
    page.wait_for_selector("tr[data-worker=one] >> text=1 of 9")
    assert page.evaluate("document.activeElement.dataset.worker") == "one", "a row that changes keeps the focus"
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.dataset.run") == "stuck"
    page.keyboard.press("k")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/r1")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.wait_for_url("**/workers")


@pytest.mark.parametrize(("size", "theme"), in_themes(SIZES))
def test_no_serious_fault_that_axe_finds_at_any_width(
    shown: tuple[Api, Screens, Shell, str], size: tuple[int, int], theme: str
) -> None:
    found, screens, *_ = shown
    graphs = [f"graph-{number}" for number in range(12)] + ["a" * 150]
    held(found, announced(found, "one", worker={**SAID, "graphs": graphs}), *(f"r{number}" for number in range(7)))
    announced(found, "two", ttl=0.000001, host="h" * 120)
    announced(found, "three", worker={**SAID, "draining": True})
    announced_dead(found, "four")
    parked(found, "stuck", "ConnectionError: no connection to https://models.example/" + "a" * 150)
    page = screens.open("/workers", size, color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
    assert serious_faults(page) == []
    width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width[0] <= width[1], "the screen is wider than the window"
