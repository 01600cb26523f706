"""One drawing for every graph and every run, in many formats.

A graph becomes a `Drawing` (`draw`), which is plain data; each format serializes it. A run adds counts and states to
that picture, so a graph, a run and a live view look the same.

Labels are data: text of a model, a tool or a person cannot break a drawing or run as code in a page. Text that looks
like a secret is redacted.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.graph.writing import to_yaml
    from orchestrator.redaction import redact, redact_also
    from orchestrator.render.backends import RenderError, engines
    from orchestrator.render.build import draw
    from orchestrator.render.dot import to_dot
    from orchestrator.render.drawing import Drawing
    from orchestrator.render.html import to_html
    from orchestrator.render.html.page import framed
    from orchestrator.render.mermaid import to_mermaid
    from orchestrator.render.moments import Live, Moment, Replay, replay
    from orchestrator.render.overlaid import HasOverlay, Mark, RunLike
    from orchestrator.render.png import to_png
    from orchestrator.render.svg import stylesheet, to_svg
    from orchestrator.render.text import to_text
    from orchestrator.views.safe_text import lines, plain, told

Format: TypeAlias = Literal["svg", "png", "dot", "mermaid", "text", "html", "yaml"]
FORMATS: tuple[Format, ...] = ("svg", "png", "dot", "mermaid", "text", "html", "yaml")

__all__ = [
    "FORMATS",
    "Drawing",
    "Format",
    "HasOverlay",
    "Live",
    "Mark",
    "Moment",
    "RenderError",
    "Replay",
    "RunLike",
    "draw",
    "engines",
    "framed",
    "lines",
    "plain",
    "redact",
    "redact_also",
    "render",
    "replay",
    "stylesheet",
    "to_dot",
    "to_html",
    "to_mermaid",
    "to_png",
    "to_svg",
    "to_text",
    "to_yaml",
    "told",
]

_HOMES = {
    "orchestrator.graph.writing": ("to_yaml",),
    "orchestrator.redaction": ("redact", "redact_also"),
    "orchestrator.render.backends": ("RenderError", "engines"),
    "orchestrator.render.build": ("draw",),
    "orchestrator.render.drawing": ("Drawing",),
    "orchestrator.render.html.page": ("framed",),
    "orchestrator.render.moments": ("Live", "Moment", "Replay", "replay"),
    "orchestrator.render.overlaid": ("HasOverlay", "Mark", "RunLike"),
    "orchestrator.render.svg": ("stylesheet", "to_svg"),
    "orchestrator.views.safe_text": ("lines", "plain", "told"),
    **{f"{__name__}.{form}": (f"to_{form}",) for form in ("dot", "html", "mermaid", "png", "text")},
}

if not TYPE_CHECKING:  # type checkers use the imports above, and report other names
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)


def render(
    graph: GraphDefinition | HasOverlay,
    format: str,  # noqa: A002  the option's name on the command line
    run: RunLike | None = None,
) -> str | bytes:
    """Draw a graph or a run in a format.

    Args:
        graph: a graph, or a run, which is drawn over its own graph (`run.definition`).
        format: one of `FORMATS`.
        run: a run to draw over the graph; `yaml` ignores it.

    Returns:
        The text, or the bytes of the file for `png`.

    Raises:
        ValueError: the format is unknown.
        RenderError: the picture cannot be made; the message suggests a fix.
        NotSerialisable: the format is `yaml`, and the graph has a closure.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; choose one of {', '.join(FORMATS)}")
    inner: GraphDefinition | None = getattr(graph, "definition", None)
    if inner is not None:
        graph, run = inner, run or graph  # type: ignore[assignment]  # a run, since it has a graph
    if format == "yaml":
        from orchestrator.graph.writing import to_yaml

        return to_yaml(graph)  # type: ignore[arg-type]  # that of the run, if it was one
    draws = getattr(import_module(f"{__name__}.{format}"), f"to_{format}")
    made = draws(graph, run)
    assert isinstance(made, str | bytes)
    return made
