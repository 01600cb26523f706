"""A page whose run goes on while it is looked at: the frozen page with another source."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import orchestrator.render.html
from orchestrator.executor import Run
from orchestrator.render.html.page import bundle, embedded, shipped_bundle
from orchestrator.render.html.run_data import RunWriter, run_data

MODULES = Path(orchestrator.render.html.__file__).parent / "modules"


def growing_page(run: Run, moments: Sequence[int]) -> str:
    """The page of a run that is at first as it was at the first of some records; `window.grow()` takes it to the next.

    Args:
        run: the run at its end, which the picture is laid out for.
        moments: numbers of records.
    """
    whole = run.to_html()
    frozen, live = shipped_bundle("frozen"), bundle("growing", _read)
    page = whole.replace(embedded([run_data(run)[0]]), embedded(recorded(run, moments))).replace(frozen, live)
    return page.replace(_digest(frozen), _digest(live))


def recorded(run: Run, moments: Sequence[int]) -> dict[str, Any]:
    """A run as it was at the first of some records, and what changed until each of the others."""
    records = run.records()
    writer = RunWriter(run.at(moments[0]), records[: moments[0]])
    first = json.dumps({**writer.document(), "numbers": writer.order()})
    changes: list[object] = []
    for before, seq in pairwise(moments):
        version = writer.version
        now = run if seq == run.seq else run.at(seq)
        writer.take(records[before:seq], lambda _, now=now: now)
        changes.append(json.loads(json.dumps(writer.since(version))))
    return {"run": json.loads(first), "changes": changes}


def _read(name: str) -> str:
    folder = Path(__file__).parent if name == "growing" else MODULES
    return (folder / f"{name}.js").read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
