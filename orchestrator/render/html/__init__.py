"""A run as one HTML file that needs nothing else: no network, no library, no server. Safe to mail.

The file holds the picture of the graph, and one JSON document per run; the script in it shows any moment of the run
by putting classes and texts on that one picture. A policy in the file (CSP) lets nothing run but this script, which
its hash names, and lets nothing be loaded at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.render.overlaid import RunLike
    from orchestrator.views.run import Run

__all__ = ["to_html"]


def to_html(graph: GraphDefinition, run: RunLike | None = None, other: Run | None = None) -> str:
    """A page of a graph, of a run, or of two runs side by side.

    Args:
        graph: Drawn; with a run, the graph that the run has.
        run: A `Run`. Reads its records, and blocks meanwhile.
        other: A second one to compare it with; it may be of another graph.

    Raises:
        RenderError: `run` is no `Run`: an overlay has no journal, which this page shows.
    """
    from orchestrator.render.html.page import page

    return page(graph, run, other)
