"""A graph, or a run in it, as a Mermaid flowchart: for Markdown, pull requests and notebooks.

Renderers refuse more than 500 edges or 50,000 characters by default; the text is complete regardless.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from orchestrator.graph.model import GraphDefinition
from orchestrator.render.build import draw
from orchestrator.render.drawing import Drawing, EdgeMark, Level, NodeMark
from orchestrator.render.geometry import Direction, edge_label, head_texts, node_line, node_name, node_remarks
from orchestrator.render.overlaid import RunLike
from orchestrator.render.plans import plan_drawings, steps_of

_SHAPES = {
    "start": ("([", "])"),
    "end": ("([", "])"),
    "stop": ("[[", "]]"),
    "any": ("([", "])"),
    "human": ("{{", "}}"),
    "graph": ("[[", "]]"),
}
_CLASSES = {
    "terminal": "fill:#344054,stroke:#344054,color:#ffffff",
    "any": "fill:#ffffff,stroke:#8d98aa,color:#5d6b82,stroke-dasharray:4 3",
    "skipped": "fill:#ffffff,stroke:#8d98aa,color:#5d6b82,stroke-dasharray:2 4",
    "visited": "fill:#eefaf5,stroke:#00795a,color:#182230,stroke-width:2px",
    "passed": "fill:#ffffff,stroke:#00795a,color:#182230,stroke-width:1px,stroke-dasharray:1 2",
    "faulty": "fill:#fdf0f7,stroke:#9b2c6f,color:#182230,stroke-width:2px,stroke-dasharray:7 2",
    "queued": "fill:#ffffff,stroke:#0067ab,color:#182230,stroke-dasharray:2 3",
    "interrupted": "fill:#ffffff,stroke:#8f5500,color:#182230,stroke-width:2px,stroke-dasharray:10 3 2 3",
    "running": "fill:#edf6fd,stroke:#0067ab,color:#182230,stroke-width:2px,stroke-dasharray:8 4",
    "waiting": "fill:#fff7e6,stroke:#8f5500,color:#182230,stroke-width:2px,stroke-dasharray:3 3",
    "failed": "fill:#fff1ea,stroke:#b23f00,color:#182230,stroke-width:4px",
}
"""In the order of precedence, lowest first."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ,_")
_BREAK = "<br/>"


def to_mermaid(graph: GraphDefinition, run: RunLike | None = None, *, direction: Direction = "TB") -> str:
    """Draw a graph as Mermaid text.

    In labels, every character except letters, digits, space, `,` and `_` is written as a character reference: it cannot
    end the label, or become markup or a link.

    Args:
        graph: The graph; subgraphs are subgraphs.
        run: The run to draw over it: anything with `.overlay()`.
        direction: Down the page, or to the right.
    """
    return "\n".join(_lines(draw(graph, run), direction)) + "\n"


def _lines(drawing: Drawing, direction: Direction) -> Iterator[str]:
    yield f"flowchart {direction}"
    levels = drawing.levels()
    yield from _level(levels, None, "  ")
    edges = [edge for level in _from_outside(levels) for edge in level.edges]
    inside = {cluster.key: cluster for cluster in drawing.clusters}
    for edge in edges:
        # Mermaid lays out a subgraph upside down if an edge of a loop names it before START.
        source = inside[edge.source].leaves if edge.source in inside else edge.source
        target = inside[edge.target].enters if edge.target in inside else edge.target
        yield f"  {source} {_arrow(edge)} {target}"
    marks = [*drawing.nodes, *(cluster.node for cluster in drawing.clusters)]
    for number, plan, steps, mark in plan_drawings(drawing.planned):
        title = " ".join((f"plan {number}:", steps_of(plan), mark.texts.get("times", "")))
        yield f'  subgraph plan{number} ["{_said(title.strip())}"]'
        yield from _level(steps.levels(), None, "    ")
        yield from (f"    {edge.source} {_arrow(edge)} {edge.target}" for edge in steps.edges)
        yield "  end"
        marks += steps.nodes
        edges += steps.edges
    for name, style in _CLASSES.items():
        keys = [mark.key for mark in marks if name in _classes(mark)]
        if keys:
            yield f"  classDef {name} {style}"
            yield f"  class {','.join(keys)} {name}"
    taken = [str(number) for number, edge in enumerate(edges) if edge.taken]
    if taken:
        yield f"  linkStyle {','.join(taken)} stroke:#00795a,stroke-width:3px"


def _from_outside(levels: Mapping[str | None, Level]) -> Iterator[Level]:
    """Yield the levels from outside to inside; START's edges come first in each."""
    waiting: deque[str | None] = deque([None])
    while waiting:
        level = levels[waiting.popleft()]
        waiting.extend(inner.key for inner in level.clusters)
        starts = {node.key for node in level.nodes if node.look == "start"}
        yield level._replace(edges=sorted(level.edges, key=lambda edge: edge.source not in starts))


def _level(levels: Mapping[str | None, Level], cluster: str | None, indent: str) -> Iterator[str]:
    for node in levels[cluster].nodes:
        opening, closing = _SHAPES.get(node.look, ("(", ")"))
        yield f'{indent}{node.key}{opening}"{_label(node)}"{closing}'
    for inner in levels[cluster].clusters:
        yield f'{indent}subgraph {inner.key} ["{_said(" ".join(head_texts(inner)) + node_remarks(inner.node))}"]'
        yield from _level(levels, inner.key, f"{indent}  ")
        yield f"{indent}end"


def _label(node: NodeMark) -> str:
    if node.terminal:
        return _said(node_name(node))
    name = f"{node_name(node)} {node.count}".rstrip()
    return f"{_said(name)}{_BREAK}{_said(node_line(node) + node_remarks(node))}"


def _arrow(edge: EdgeMark) -> str:
    arrow = "==>" if edge.mapped else "-.->" if edge.reserved else "-->"
    label = f"{edge_label(edge)} {edge.times}".strip()
    return f'{arrow}|"{_said(label)}"|' if label else arrow


def _classes(mark: NodeMark) -> tuple[str, ...]:
    if mark.look == "any":
        return ("any",)
    return ("terminal",) if mark.terminal else mark.states


def _said(text: str) -> str:
    # A leading dash, or digit and dot, would become a Markdown list; a backtick always is Markdown.
    return "".join(char if char in _PLAIN or char.isalnum() else f"#{ord(char)};" for char in text)
