"""The page of a run in the cell of a notebook, in a real browser."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from orchestrator import Executor, Graph, Run, node
from orchestrator.notebook import live
from tests.cli.test_live import Trip
from tests.render.html.sample import run_tour
from tests.support.browser import chromium
from tests.support.trial import NASTY

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Frame, Page

pytestmark = pytest.mark.browser

HOST = """<!doctype html><meta charset="utf-8"><title>Notebook</title><body><div id="page"></div><div id="text"></div>
<script>
window.show = (place, html, trusted) => { // as JupyterLab does
  const at = document.getElementById(place);
  const parsed = new DOMParser().parseFromString(html, "text/html");
  if (!trusted) for (const one of parsed.querySelectorAll("script, style, iframe")) one.remove();
  at.innerHTML = trusted ? html : parsed.body.innerHTML;
  for (const script of trusted ? at.querySelectorAll("script") : []) {
    const copy = document.createElement("script");
    copy.textContent = script.textContent;
    script.replaceWith(copy);
  }
};
</script>"""


@node
def first(state: Trip) -> dict[str, str]:
    return {"report": f"<img src=x onerror=alert(1)> {NASTY}"}


@node
async def second(state: Trip) -> dict[str, str]:
    await anyio.sleep(0.6)  # so that the view looks at it; when it does makes no difference
    return {"report": "done"}


steps = Graph(
    name="steps", state=Trip, input="topic", nodes={"first": first, "second": second, "third": first},
    edges="START -> first -> second -> third -> END", output="report",
)  # fmt: skip


class Notebook:
    """A window with a cell, and all that went wrong in it."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page = page
        self.faults: list[str] = []
        page.on("console", lambda message: self.faults.append(message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: self.faults.append(dialog.message))
        file.write_text(HOST, encoding="utf-8")
        page.goto(file.as_uri())
        page.on(
            "request",
            lambda request: self.faults.append(request.url) if request.url[:5] not in ("about", "data:") else None,
        )

    def show(self, place: str, html: str, *, trusted: bool = True) -> None:
        self.page.evaluate("([place, html, trusted]) => show(place, html, trusted)", [place, html, trusted])

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to become true."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            self.page.wait_for_timeout(20)

    def frame(self) -> Frame:
        """The frame, when its page is ready."""
        self.until(lambda: len(self.page.frames) == 2 and self.page.frames[1].locator("html[data-ready]").count() == 1)
        return self.page.frames[1]


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return anyio.run(run_tour, f"sqlite:///{tmp_path_factory.mktemp('runs')}/runs.db")


@pytest.fixture(scope="module")
def outputs() -> list[tuple[str, Mapping[str, str]]]:
    """What a cell showed while a run went on."""
    found: list[tuple[str, Mapping[str, str]]] = []

    def show(bundle: Mapping[str, str], *, update: bool, name: str) -> None:
        found.append((name.rpartition("-")[2], bundle))

    async def follow() -> None:
        async with Executor() as executor:
            await live(executor, steps, "x", run_id="lively", show=show)

    anyio.run(follow)
    return found


@pytest.fixture(scope="module")
def browser(tour: Run, outputs: object) -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def notebook(browser: Browser, tmp_path: Path) -> Iterator[Notebook]:
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    found = Notebook(page, tmp_path / "notebook.html")
    yield found
    assert not found.faults
    page.close()


def test_the_page_of_a_run_is_there_and_can_be_used(notebook: Notebook, tour: Run) -> None:
    notebook.show("page", tour.page()._repr_mimebundle_()["text/html"])
    frame = notebook.frame()
    assert frame.locator(".rows [role=treeitem]").count() > 3
    frame.locator("#a-tab-state").click()
    assert frame.locator("#a-tab-state").get_attribute("aria-selected") == "true"
    assert frame.locator("#a-follow").is_hidden()
    assert not notebook.page.locator("#page img").is_visible()


def test_where_frames_are_left_out_the_picture_is_there(notebook: Notebook, tour: Run) -> None:
    notebook.show("page", tour.page()._repr_mimebundle_()["text/html"], trusted=False)
    picture = notebook.page.locator("#page img")
    assert picture.is_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 100
    assert len(notebook.page.frames) == 1


def test_the_frame_sees_nothing_of_the_notebook(notebook: Notebook, tour: Run) -> None:
    notebook.show("page", tour.page()._repr_mimebundle_()["text/html"])
    frame = notebook.frame()
    assert (
        frame.evaluate("() => { try { return parent.document.title; } catch (error) { return error.name; } }")
        == "SecurityError"
    )
    assert frame.evaluate("origin") == "null"


def test_a_link_in_a_page_of_two_runs_stays_in_the_page(notebook: Notebook, tour: Run) -> None:
    notebook.show("page", tour.page(tour.at(5))._repr_mimebundle_()["text/html"])
    frame = notebook.frame()
    frame.locator("a.look").click()
    assert frame.url == "about:srcdoc"
    assert frame.locator("section.run").count() == 2


def test_the_page_follows_what_is_posted_and_a_reader_keeps_their_place(
    notebook: Notebook, outputs: list[tuple[str, Mapping[str, str]]]
) -> None:
    *during, (_, picture), (_, last) = outputs
    assert "image/svg+xml" in picture
    assert last["text/plain"].startswith("completed after 3 steps")
    bundles = [(place, bundle["text/html"]) for place, bundle in during]
    assert [place for place, _ in bundles].count("page") == 1
    posted = [html for place, html in bundles if place == "text" and "postMessage" in html]
    place = [place for place, _ in bundles].index("page")
    notebook.show(*bundles[place])
    frame = notebook.frame()
    assert frame.locator("#a-follow").is_visible()
    frame.locator("#a-tab-run").click()
    for html in posted:
        notebook.show("text", html)
    newest = _head(posted[-1])
    notebook.until(lambda: int(frame.locator("#a-slider").get_attribute("max") or 0) == newest)
    assert frame.locator("#a-tab-run").get_attribute("aria-selected") == "true"
    assert frame.evaluate("window.pwned") is None
    notebook.show("text", posted[0])  # one that was late
    frame.evaluate("postMessage('{}', '*')")  # and one that is not from the notebook
    notebook.page.wait_for_timeout(50)
    assert int(frame.locator("#a-slider").get_attribute("max") or 0) == newest


def test_a_frame_that_is_loaded_again_has_what_was_posted_last(
    notebook: Notebook, outputs: list[tuple[str, Mapping[str, str]]]
) -> None:
    found = {
        place: [bundle.get("text/html", "") for at, bundle in outputs if at == place] for place in ("page", "text")
    }
    posted = [html for html in found["text"] if "postMessage" in html]
    notebook.show("page", found["page"][0])
    notebook.show("text", posted[-1])  # perhaps before the page is ready
    notebook.until(lambda: _slider(notebook) == _head(posted[-1]))
    # A notebook takes cells that are far away out of its page, and puts them back.
    notebook.page.evaluate("const at = document.getElementById('page'); at.remove(); document.body.prepend(at);")
    notebook.until(lambda: _slider(notebook) == _head(posted[-1]))


def _slider(notebook: Notebook) -> int:
    return int(notebook.frame().locator("#a-slider").get_attribute("max") or 0)


def _head(script: str) -> int:
    text = script[script.index("postMessage(") + len("postMessage(") : script.index(', "*")')]
    return int(json.loads(json.loads(text))["head"])
