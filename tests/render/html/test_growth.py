"""A page that follows a run shows what a page of the whole run shows, and gets only what changed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from anyio.from_thread import start_blocking_portal

from orchestrator import Executor
from orchestrator.executor import Run
from orchestrator.render.html.run_data import run_data
from tests.render.html.growing import growing_page, recorded
from tests.render.html.opened import until
from tests.render.html.sample import run_count, run_mended, run_tour
from tests.render.html.shapes import SHAPES
from tests.render.html.talks import run_guarded, run_weather

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROWS = "[...document.querySelectorAll('#a-rows .row')].map((row) => [row.innerText, row.className])"
MARKS = """[...document.querySelectorAll('#a-canvas [id]')]
  .map((part) => [part.id, part.getAttribute('class'), part.textContent])"""


def shaped(name: str) -> Callable[[str], Awaitable[Run]]:
    async def start(url: str) -> Run:
        graph = SHAPES[name]()
        async with Executor(store=url, graphs=[graph]) as executor:
            return await executor.start(graph, {"xs": [{"a": number} for number in range(3)]}, run_id=name)

    return start


RUNS: dict[str, Callable[[str], Awaitable[Run]]] = {
    "tour": run_tour,
    "weather": run_weather,
    "mended": run_mended,
    "guarded": run_guarded,
    "count": lambda url: run_count(url, 12),
    **{name: shaped(name) for name in ("k3", "k5", "k11", "k17", "k22")},
}


def states(document: dict[str, Any]) -> list[object]:
    """The state before and after each step, however it is written down."""
    after: dict[int, Any] = {}
    found: list[object] = []

    def patched(state: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
        made = dict(state)
        for name, (how, value, *gone) in patch.items():
            if how == "+":
                made[name] = made[name] + value
            elif how == "~":
                made[name] = {key: one for key, one in {**made[name], **value}.items() if key not in (gone or [[]])[0]}
            else:
                made[name] = value
        return made

    def state_after(at: int) -> Any:
        if at not in after:
            after[at] = patched(before(at), document["steps"][at].get("patch", {}))
        return after[at]

    def before(at: int) -> Any:
        step = document["steps"][at]
        base = step["base"]
        return patched(document["whole"][-1 - base] if base < 0 else state_after(base), step.get("merged", {}))

    for at, step in enumerate(document["steps"]):
        found.append([before(at), state_after(at)] if "base" in step else None)
    return found


def compared(document: dict[str, Any]) -> dict[str, Any]:
    """A document without what may be written in several ways."""
    said = json.loads(json.dumps(document))
    said["states"] = states(said)
    for step in said["steps"]:
        for name in ("base", "merged", "patch"):
            step.pop(name, None)
    for name in ("whole", "numbers", "version", "notes"):  # notes are no records: the server sends them apart
        said.pop(name, None)
    return {name: said[name] for name in said}


@pytest.mark.browser
@pytest.mark.parametrize("name", RUNS)
def test_a_page_that_follows_a_run_has_the_same_as_one_of_the_whole_run(
    browser: Browser, tmp_path: Path, name: str
) -> None:
    run = made(RUNS[name], f"sqlite:///{tmp_path}/runs.db")
    moments = list(range(1, run.seq + 1))
    page = opened(browser, tmp_path / "grows.html", growing_page(run, moments))
    whole = opened(browser, tmp_path / "whole.html", run.to_html())
    for number, seq in enumerate(moments[1:], 1):
        page.evaluate("grow()")
        until(page, f"taken() === {number}")
        until(page, f"shown().head === {seq}")
        expected = run_data(run if seq == run.seq else run.at(seq))[0]
        assert compared(page.evaluate("shown()")) == compared(expected), f"record {seq}"
    for show in (ROWS, MARKS):
        expected = whole.evaluate(show)
        for _ in range(100):  # a page draws when the browser next does
            if page.evaluate(show) == expected:
                break
            page.wait_for_timeout(50)
        assert page.evaluate(show) == expected
    page.close()
    whole.close()


def made(start: Callable[..., Awaitable[Run]], *args: object) -> Run:
    """A run that was made in a thread: where a browser is, no event loop can be."""
    with start_blocking_portal() as portal:
        return portal.call(start, *args)


def opened(browser: Browser, file: Path, text: str) -> Page:
    file.write_text(text, encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]")
    return page


@pytest.mark.full
def test_a_record_costs_the_same_however_long_the_run_is(tmp_path: Path) -> None:
    def sent(steps: int) -> int:
        run = made(run_count, f"sqlite:///{tmp_path}/runs.db", steps)
        change = recorded(run, [run.seq - 4, run.seq - 3])["changes"][0]
        assert [len(change[name]) for name in ("steps", "moments")] == [2, 1]
        return len(json.dumps(change))

    short, long = sent(10), sent(400)
    assert long < short + 150  # numbers have more digits


COUNT = """() => { window.made = { rows: 0, drawn: 0 }; new MutationObserver((changes) => {
  for (const { addedNodes, target } of changes) for (const node of addedNodes) {
    if (node.classList?.contains('row')) window.made.rows++;
    if (node.nodeType === 1 && target.closest?.('svg')) window.made.drawn++;
  } }).observe(document.body, { subtree: true, childList: true }); }"""


@pytest.mark.browser
def test_a_record_makes_as_many_elements_however_long_the_run_is(browser: Browser, tmp_path: Path) -> None:
    found = []
    for steps in (60, 600):
        run = made(run_count, f"sqlite:///{tmp_path}/runs.db", steps)
        page = opened(browser, tmp_path / "grows.html", growing_page(run, [run.seq - 5, run.seq - 4, run.seq - 3]))
        page.evaluate(COUNT)
        for number in (1, 2):
            page.evaluate("grow()")
            until(page, f"taken() === {number}")
            until(page, f"shown().head === {run.seq - 5 + number}")
        found.append(page.evaluate("made"))
        page.close()
    assert found[0] == found[1]
    assert found[0]["drawn"] == 0
    assert 0 < found[0]["rows"] <= 4
