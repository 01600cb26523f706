"""The pages that the tests of this folder open, and the browser that opens them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from orchestrator.render import to_html
from orchestrator.testing import MockClock
from tests.render.html.growing import growing_page
from tests.render.html.opened import Opened
from tests.render.html.sample import run_count, run_failed, run_forked, run_mended, run_tour
from tests.render.html.talks import run_dialogue, run_guarded, run_shortened, run_weather
from tests.support.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of runs."""
    place = tmp_path_factory.mktemp("pages")
    url = f"sqlite:///{place}/runs.db"
    tour = anyio.run(run_tour, url)
    waits = anyio.run(partial(run_tour, url, "waits", answer=False))
    made = {"tour": tour.to_html(), "waits": waits.to_html(), "two": tour.to_html(waits)}
    made["long"] = anyio.run(run_count, url, 5000).to_html()
    made["weather"] = anyio.run(run_weather, url).to_html()
    dialogue = anyio.run(run_dialogue, url, 200)
    made["dialogue"] = dialogue.to_html()
    made["talking"] = growing_page(dialogue, (100, 110, dialogue.seq))
    made["shortened"] = anyio.run(run_shortened, url).to_html()
    made["guarded"] = anyio.run(run_guarded, url).to_html()
    made["growing"] = growing_page(tour, (4, 12, tour.seq))
    made["mended"] = anyio.run(run_mended, url).to_html()
    made["failed"] = anyio.run(run_failed, url).to_html()
    clock = MockClock(idle=0.05)
    made["forked"] = clock.run(run_forked, clock).to_html()
    made["graph"] = to_html(tour.definition)
    found = {}
    for name, text in made.items():
        found[name] = place / f"{name}.html"
        found[name].write_text(text, encoding="utf-8")
    (place / "tour.json").write_text(json.dumps({str(seq): tour.at(seq).to_svg() for seq in range(1, tour.seq + 1)}))
    return found


@pytest.fixture(scope="module")
def browser(files: dict[str, Path]) -> Iterator[Browser]:
    """Debian's Chromium. Begun when all runs are made: while it is there, no event loop of ours can run."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def opened(browser: Browser, files: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Opened]:
    """A new window with the page that the test names, and nothing wrong with it at the end."""
    name, options = getattr(request, "param", ("tour", {}))
    page = browser.new_page(
        viewport=options.get("size", {"width": 1400, "height": 900}), color_scheme=options.get("theme")
    )
    found = Opened(page, files[name])
    found.go()
    yield found
    assert page.evaluate("window.pwned") is None
    assert not found.faults
    page.close()
