"""A run as the one JSON document that a page is made from."""

from __future__ import annotations

from typing import Any

from orchestrator.render.html.run_writer import RunWriter
from orchestrator.views.overlay import Overlay
from orchestrator.views.run import Run


def run_data(run: Run) -> tuple[dict[str, Any], Overlay]:
    """What a page shows of a run, and what its picture shows at the end.

    Reads the run's records, and blocks meanwhile.
    """
    writer = RunWriter(run, run.records())
    return writer.document(), writer.overlay()
