"""One drawing for every graph and every run, in many formats.

A graph becomes a `Drawing` (`draw`), which is plain data; each format serializes it. A run adds counts and states to
the same picture, so a graph, a run and a live view look the same.

Labels are data: no text of a model, a tool or a person can break a drawing or act in a page. Text that looks like a
secret is redacted.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from orchestrator.graph.definition import GraphDefinition
    from orchestrator.redaction import redact, redact_also
    from orchestrator.render.backends import RenderError, engines
    from orchestrator.render.build import draw
    from orchestrator.render.dot import to_dot
    from orchestrator.render.drawing import Drawing
    from orchestrator.render.html import to_html
    from orchestrator.render.html.frame import framed
    from orchestrator.render.mermaid import to_mermaid
    from orchestrator.render.moments import Live, Moment, Replay, replay
    from orchestrator.render.overlaid import HasOverlay, Mark, RunLike
    from orchestrator.render.png import to_png
    from orchestrator.render.style import stylesheet
    from orchestrator.render.svg import to_svg
    from orchestrator.render.text import to_text
    from orchestrator.render.yaml_ import to_yaml
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

_NAMES = {
    "backends": ("RenderError", "engines"),
    "build": ("draw",),
    "drawing": ("Drawing",),
    "moments": ("Live", "Moment", "Replay", "replay"),
    "overlaid": ("HasOverlay", "Mark", "RunLike"),
    "style": ("stylesheet",),
    ".redaction": ("redact", "redact_also"),
    ".views.safe_text": ("lines", "plain", "told"),
    "html.frame": ("framed",),
    "yaml_": ("to_yaml",),
    **{form: (f"to_{form}",) for form in ("dot", "html", "mermaid", "png", "svg", "text")},
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
        NotSerialisable: `yaml` of a graph with a closure.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; choose one of {', '.join(FORMATS)}")
    inner: GraphDefinition | None = getattr(graph, "definition", None)
    if inner is not None:
        graph, run = inner, run or graph  # type: ignore[assignment]  # a run, since it has a graph
    if format == "yaml":
        from orchestrator.render.yaml_ import to_yaml

        return to_yaml(graph)  # type: ignore[arg-type]  # that of the run, if it was one
    draws = getattr(import_module(f"{__name__}.{format}"), f"to_{format}")
    made = draws(graph, run)
    assert isinstance(made, str | bytes)
    return made
