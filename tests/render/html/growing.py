"""A page whose run goes on while it is looked at: the frozen page with another source."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

import orchestrator.render.html
from orchestrator.executor import Run
from orchestrator.render.html.bundle import bundle, shipped_bundle
from orchestrator.render.html.data import run_data
from orchestrator.render.html.page import embedded

MODULES = Path(orchestrator.render.html.__file__).parent / "modules"


def growing_page(run: Run, moments: Sequence[int]) -> str:
    """The page of a run that is at first as it was at the first of some records; `window.grow()` takes it to the next.

    Args:
        run: the run at its end, which the picture is laid out for.
        moments: numbers of records.
    """
    whole = run.to_html()
    frozen, live = shipped_bundle("frozen"), bundle("growing", _read)
    data = [run_data(run)[0], *(run_data(run.at(seq))[0] for seq in moments)]
    page = whole.replace(embedded(data[:1]), embedded(data[1:])).replace(frozen, live)
    return page.replace(_digest(frozen), _digest(live))


def _read(name: str) -> str:
    folder = Path(__file__).parent if name == "growing" else MODULES
    return (folder / f"{name}.js").read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
