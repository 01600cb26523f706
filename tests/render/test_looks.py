"""What a browser makes of the classes: each state has one sign, a line and a colour of its own, light and dark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.executor import Overlay
from orchestrator.render import to_svg
from orchestrator.render.overlaid import NODE_STATES
from orchestrator.render.svg import Theme
from tests.render.labels import NASTY, drawn_with
from tests.render.sample import make, stored

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

SIGNS = {"visited": "ok", "passed": "past", "running": "busy", "waiting": "wait", "failed": "fail", "queued": "next"}
LOOKS = """() => Object.fromEntries([...document.querySelectorAll('.node[data-node]:not(.terminal)')].map((node) => {
  const shows = (part) => getComputedStyle(part).display !== 'none';
  const shape = getComputedStyle(node.querySelector('.shape'));
  const badge = node.querySelector('.badge');
  return [node.id.replace('node-', ''), {
    signs: shows(badge) ? [...badge.querySelectorAll('path')].filter(shows).map((p) => p.getAttribute('class')) : [],
    line: [shape.strokeDasharray, shape.strokeWidth].join(' '),
    colours: [shape.stroke, shape.fill],
    card: [shape.fill, getComputedStyle(node.querySelector('.name')).fill],
  }];
}))"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if program is None:
        pytest.skip("there is no chromium here")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser.new_page()
        browser.close()


def looks(page: Page, tmp_path: Path, run: Overlay, theme: Theme) -> dict[str, Any]:
    """How the nodes look, each named after the state that it is in."""
    names = [*NODE_STATES, "idle", "both"]
    graph = make("g", {name: stored() for name in names}, f"START -> {' -> '.join(names)} -> END")
    file = tmp_path / "picture.svg"
    file.write_text(to_svg(graph, run, theme=theme))
    page.goto(file.as_uri())
    found: dict[str, Any] = page.evaluate(LOOKS)
    return found


def luminance(colour: str) -> float:
    """Of `rgb(...)`, as WCAG defines it."""
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_state_looks_like_no_other(page: Page, tmp_path: Path, theme: Theme) -> None:
    everything = Overlay(
        visits={("", "visited"): 1, ("", "passed"): 2, ("", "both"): 3},
        unasked={("", "passed"): 2},
        running={("", "running"), ("", "both")},
        waiting={("", "waiting")},
        failed={("", "failed")},
        queued={("", "queued")},
        status="running",
    )
    found = looks(page, tmp_path, everything, theme)
    assert {name: found[name]["signs"] for name in SIGNS} == {name: [sign] for name, sign in SIGNS.items()}
    assert found["idle"]["signs"] == []
    assert found["both"]["signs"] == ["busy"]  # it was visited before, and works again
    lines = [found[name]["line"] for name in (*SIGNS, "idle")]
    assert len(set(lines)) == len(lines)
    colours = [found[name]["colours"] for name in (*SIGNS, "idle")]
    assert len({tuple(pair) for pair in colours}) == len(colours)
    for name in (*SIGNS, "idle"):
        light, dark = sorted(map(luminance, found[name]["card"]), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, name
    gone = looks(page, tmp_path, Overlay(running={("", "interrupted")}, status="interrupted"), theme)
    assert gone["interrupted"]["signs"] == ["gone"]


def test_no_label_acts(page: Page, tmp_path: Path) -> None:
    faults: list[str] = []
    page.on("dialog", lambda dialog: faults.append(dialog.message))
    page.on("console", lambda message: faults.append(message.text))
    file = tmp_path / "picture.svg"
    page.on("request", lambda request: None if request.url == file.as_uri() else faults.append(request.url))
    for start in (0, 6, 12):
        file.write_text(to_svg(*drawn_with(list(NASTY[start : start + 8]))), encoding="utf-8")
        page.goto(file.as_uri())
        assert page.evaluate("document.querySelectorAll('script, a, foreignObject, parsererror').length") == 0
        assert page.evaluate("document.documentElement.tagName") == "svg"
    assert faults == []
