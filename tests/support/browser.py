"""The browser in which pages are tested, and the script that looks for faults there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser that CHROMIUM names, or Debian's Chromium: its headless shell, if it is there, which does less work.

    While it is open, no event loop can run in this thread.
    """
    sync_api = pytest.importorskip("playwright.sync_api")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def axe_script() -> str:
    """The code of axe-core: from the file that AXE names, or from a `node_modules` above this file."""
    given = os.environ.get("AXE")
    nearby = (folder / "node_modules/axe-core/axe.min.js" for folder in Path(__file__).resolve().parents)
    found = given or next((str(path) for path in nearby if path.exists()), None)
    if found is None:
        pytest.skip("axe-core is not there: npm install axe-core, and name axe.min.js in AXE")
    return Path(found).read_text(encoding="utf-8")
