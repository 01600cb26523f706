"""The applications in docs/examples, as modules, and their pictures.

`python -m tests.graphs.applications` draws the graphs and takes the picture of the inbox. It needs Chromium.
"""

from __future__ import annotations

import csv
import importlib.util
import shutil
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from types import ModuleType

from orchestrator import Graph
from orchestrator.render import to_svg

PLACE = Path(__file__).parents[2] / "docs" / "examples"
NAMES = ("triage", "research", "nightly", "coder")


def loaded(name: str) -> ModuleType:
    """Return the program of an application as a module."""
    known = sys.modules.get(f"applications_{name}")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(f"applications_{name}", PLACE / name / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[f"applications_{name}"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copied(name: str, place: Path) -> Path:
    """Copy the folder of an application, to run it there."""
    shutil.copytree(PLACE / name, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    return place


def picture(name: str) -> str:
    """Return the drawing of an application's graph."""
    graph: Graph = loaded(name).graph
    return to_svg(graph)


def take_inbox(file: Path) -> None:
    """Take a picture of the page with the questions of the tickets."""
    from tests.notebooks.palette import indexed
    from tests.support.browser import chromium
    from tests.web.api import api

    triage = loaded("triage")
    rows = list(csv.DictReader((PLACE / "triage" / "tickets.csv").read_text(encoding="utf-8").splitlines()))
    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        api(triage.graph, model=triage.chosen_model()) as served,
        chromium() as browser,
    ):
        for row in rows:
            served.post("runs", 201, graph="triage", input=row["mail"], run_id=row["ticket"], wait=True)
        page = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
        page.goto(f"{served.url}/inbox")
        page.wait_for_selector("html[data-ready]")
        file.write_bytes(indexed(page.screenshot()))


def main() -> None:
    """Draw all."""
    for name in NAMES:
        (PLACE / name / f"{name}.svg").write_text(picture(name), encoding="utf-8")
    take_inbox(PLACE / "triage" / "inbox.png")


if __name__ == "__main__":
    main()
