"""Pages that are opened in a real browser, from their files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page


class Opened:
    """A page that was opened, and all that went wrong with it."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page, self.file = page, file
        self.faults: list[str] = []
        page.on("console", lambda message: self.faults.append(message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on(
            "request",
            lambda request: None if request.url.startswith(file.as_uri()) else self.faults.append(request.url),
        )
        page.on("dialog", lambda dialog: self.faults.append(dialog.message))

    def go(self, address: str = "") -> Page:
        """Open it anew."""
        self.page.goto("about:blank")
        self.page.goto(self.file.as_uri() + address)
        self.page.wait_for_selector("html[data-ready]")
        return self.page


def texts(page: Page, selector: str) -> list[str]:
    return [" ".join(text.split()) for text in page.locator(selector).all_inner_texts()]


def until(page: Page, condition: str) -> None:
    """Wait for something to become true. The page's policy keeps playwright's own way of it from working."""
    deadline = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


def on(name: str, **options: Any) -> Any:
    return pytest.mark.parametrize("opened", [(name, options)], indirect=True)
