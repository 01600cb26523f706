"""Windows of a real browser on a server of the tests, and what went wrong in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tests.support.browser import axe_script
from tests.web.api import Api
from tests.web.mail import QUESTION

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZES = [(390, 844), (1280, 900), (2000, 1200)]
"""Width and height of windows, pixels."""


def in_themes(sizes: Iterable[tuple[int, int]]) -> list[tuple[tuple[int, int], str]]:
    """Windows in the light and the dark theme, in turn: a theme has colours, and a size says what stands where."""
    return list(zip(sizes, itertools.cycle(("light", "dark")), strict=False))


class Screens:
    """Windows on a server, and all that went wrong in them."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser, self.url = browser, url
        self.faults: list[str] = []
        self._contexts: list[Any] = []

    def open(self, path: str, size: tuple[int, int] = (1280, 900), **options: Any) -> Page:
        """A new window."""
        context = self._browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: self.faults.append(message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda one: None if one.url.startswith(self.url) else self.faults.append(one.url))
        page.goto(self.url + path)
        page.wait_for_selector("html[data-ready]")
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()


def serious_faults(page: Page, *, moderate: bool = False) -> list[tuple[str, str, str]]:
    """What axe-core finds on a page that keeps readers out: rule, element and summary.

    `moderate`: also what is only in a reader's way, such as headings that leave out a level.
    """
    page.evaluate(axe_script())
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [
        (fault["id"], one["html"][:200], one["failureSummary"])
        for fault in found
        if fault["impact"] in ("serious", "critical", *(("moderate",) if moderate else ()))
        for one in fault["nodes"]
    ]


def start(served: Api, run_id: str) -> None:
    served.post("runs", 201, graph="mail", input=QUESTION, run_id=run_id, wait=True)
