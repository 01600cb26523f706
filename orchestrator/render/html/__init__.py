"""A run as one self-contained HTML file, without network, library or server. It can be mailed safely.

The file holds the picture of the graph, and one JSON document per run; the script in it shows any moment of the run by
setting classes and texts in that picture. A policy in the file (CSP) allows only this script, identified by its hash,
to run, and forbids loading anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.render.overlaid import RunLike
    from orchestrator.views.run import Run

__all__ = ["to_html"]


def to_html(graph: GraphDefinition, run: RunLike | None = None, other: Run | None = None, *, notes: bool = True) -> str:
    """Make a page of a graph, of a run, or of two runs side by side.

    Args:
        graph: The graph to draw; with a run, the run's graph.
        run: A `Run`. Reads its records, and blocks meanwhile.
        other: A second run to compare it with; it may have another graph.
        notes: Whether the page has the notes that people wrote about the runs.

    Raises:
        RenderError: `run` is not a `Run`: this page needs a journal, which an overlay does not have.
    """
    from orchestrator.render.html.page import page

    return page(graph, run, other, notes=notes)
