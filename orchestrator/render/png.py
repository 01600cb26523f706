"""A graph, or a run in it, as PNG. Only the program `dot` makes these."""

from __future__ import annotations

from orchestrator.graph.definition import GraphDefinition
from orchestrator.render.backends import MEND, TIMEOUT, RenderError, dot_program, graphviz
from orchestrator.render.dot import to_dot
from orchestrator.render.geometry import Direction
from orchestrator.render.overlaid import RunLike


def to_png(
    graph: GraphDefinition,
    run: RunLike | None = None,
    *,
    direction: Direction = "TB",
    dpi: int = 144,
    timeout: float = TIMEOUT,
) -> bytes:
    """Draws a graph as PNG.

    Args:
        graph: The graph.
        run: Laid over it: anything with `.overlay()`.
        direction: Down the page, or to the right.
        dpi: Dots per inch.
        timeout: Seconds.

    Raises:
        RenderError: The program `dot` is not on PATH, took too long, or failed.
    """
    if dot_program() is None:
        raise RenderError(f"PNG needs the program `dot`, which is not on PATH; {MEND}, or draw SVG")
    source = to_dot(graph, run, direction=direction)
    return graphviz(source, "png", "dot", size=0, timeout=timeout, options=(f"-Gdpi={dpi}",))
