"""A graph, or a run in it, as DOT, for use with Graphviz."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orchestrator.render.build import draw
from orchestrator.render.drawing import ClusterMark, EdgeMark, Level, NodeMark, backward
from orchestrator.render.geometry import Direction, edge_label, head_texts, node_line, node_name, node_remarks
from orchestrator.render.overlaid import RunLike
from orchestrator.render.plans import plan_drawings, steps_of

if TYPE_CHECKING:
    import graphviz  # type: ignore[import-untyped]  # it has no types

    from orchestrator.graph.model import GraphDefinition

_INK, _SOFT, _LINE, _WIRE, _CARD, _GROUP, _PILL = (
    "#182230",
    "#5d6b82",
    "#cdd3dd",
    "#8d98aa",
    "#ffffff",
    "#f6f7f9",
    "#344054",
)
_DONE = "#00795a"
_FONT = {"fontname": "Helvetica", "fontsize": "12", "fontcolor": _INK}
_STATES = {
    "failed": {"color": "#b23f00", "fillcolor": "#fff1ea", "penwidth": "3"},
    "waiting": {"color": "#8f5500", "fillcolor": "#fff7e6", "penwidth": "2.2", "style": "rounded,filled,dotted"},
    "running": {"color": "#0067ab", "fillcolor": "#edf6fd", "penwidth": "2", "style": "rounded,filled,dashed"},
    "interrupted": {"color": "#8f5500", "penwidth": "2", "style": "rounded,filled,dashed"},
    "queued": {"color": "#0067ab", "penwidth": "1.4", "style": "rounded,filled,dotted"},
    "skipped": {"style": "rounded,dashed", "fontcolor": _SOFT},
    "faulty": {"color": "#9b2c6f", "fillcolor": "#fdf0f7", "penwidth": "1.8", "style": "rounded,filled,dashed"},
    "passed": {"color": _DONE, "fillcolor": _CARD, "penwidth": "1.2", "style": "rounded,filled,dotted"},
    "visited": {"color": _DONE, "fillcolor": "#eefaf5", "penwidth": "1.6"},
}
"""Attributes of each state; the first state that applies is drawn."""
_WEIGHTS = {"w2": "2.8", "w3": "3.5", "w4": "4.3", "w5": "5.2"}
_TERMINALS = {
    "start": {"shape": "box", "style": "rounded,filled", "fillcolor": _PILL, "fontcolor": "#ffffff"},
    "end": {"shape": "box", "peripheries": "2"},
    "stop": {"shape": "octagon", "style": "filled"},
    "any": {"shape": "box", "style": "rounded,dashed", "color": _WIRE, "fontcolor": _SOFT},
}


def to_dot(graph: GraphDefinition, run: RunLike | None = None, *, direction: Direction = "TB") -> str:
    """Draw a graph as DOT text.

    Labels are escaped: they cannot become markup or another statement. The drawing has no links.

    Args:
        graph: The graph; subgraphs are clusters.
        run: The run to draw over it: anything with `.overlay()`.
        direction: Down the page, or to the right.
    """
    import graphviz

    drawing = draw(graph, run)
    dot = graphviz.Digraph(
        graph_attr={
            "rankdir": direction,
            "compound": "true",
            "nodesep": "0.35",
            "ranksep": "0.5",
            "pad": "0.25",
            **_FONT,
            "bgcolor": "#ffffff",
        },
        node_attr={
            "shape": "box",
            "style": "rounded,filled",
            "fillcolor": _CARD,
            "color": _LINE,
            "penwidth": "1.2",
            **_FONT,
            "margin": "0.2,0.08",
        },
        edge_attr={
            "color": _WIRE,
            "penwidth": "1.2",
            "arrowsize": "0.7",
            "fontname": "Helvetica",
            "fontsize": "10",
            "fontcolor": _SOFT,
        },
    )
    clusters = {mark.key: mark for mark in drawing.clusters}
    levels = drawing.levels()
    _fill(dot, levels, None)
    back = frozenset[str]().union(*map(backward, levels.values()))
    for edge in drawing.edges:
        _edge(dot, edge, edge.key in back, clusters)
    for number, plan, steps, mark in plan_drawings(drawing.planned):
        sheet = graphviz.Digraph(name=f"cluster_plan{number}")
        title = f"{steps_of(plan)} {mark.texts.get('times', '')}".strip()
        sheet.attr(
            label=_said(f"plan {number}", title), id=_said(f"plan-{number}"), style="rounded,dashed", color=_WIRE
        )
        _fill(sheet, steps.levels(), None)
        for edge in steps.edges:
            _edge(sheet, edge, False, {})
        dot.subgraph(sheet)
    return str(dot.source)


def _fill(dot: graphviz.Digraph, levels: Mapping[str | None, Level], cluster: str | None) -> None:
    for node in levels[cluster].nodes:
        _node(dot, node)
    for inner in levels[cluster].clusters:
        dot.subgraph(_cluster(inner, levels))


def _cluster(cluster: ClusterMark, levels: Mapping[str | None, Level]) -> graphviz.Digraph:
    import graphviz

    inside = graphviz.Digraph(name=f"cluster_{cluster.key}")
    name, detail = head_texts(cluster)
    state = _state(cluster.node)
    inside.attr(
        label=_said(f"{name}{_times(cluster.node.count)}", f"{detail}{node_remarks(cluster.node)}"),
        id=_said(cluster.node.id),
        tooltip=_said(cluster.node.told),
        labeljust="l",
        style=state.get("style", "rounded,filled"),
        fillcolor=_GROUP,
        color=state.get("color", _LINE),
        penwidth=state.get("penwidth", "1.2"),
    )
    _fill(inside, levels, cluster.key)
    return inside


def _node(dot: graphviz.Digraph, node: NodeMark) -> None:
    looks = dict(_TERMINALS.get(node.look, {}))
    if node.look == "human":
        looks |= {"shape": "hexagon", "margin": "0,0.06"}
        looks["style"] = "filled"
    if node.per_item:
        looks["peripheries"] = "2"
    state = _state(node)
    if node.terminal:
        looks |= {"color": state.get("color", looks.get("color", _PILL)), "fontsize": "10"}
        label = _said(node_name(node))
        if node.look == "start" and state:
            looks["fillcolor"] = state["color"]
        if node.cluster is not None and node.look != "any":
            looks |= {"shape": "square" if node.look == "stop" else "circle", "width": "0.15", "margin": "0"}
            label = ""
    else:
        looks |= state
        if node.look == "human":
            looks["style"] = state.get("style", "filled").replace("rounded,", "")
        label = _said(f"{node_name(node)}{_times(node.count)}", f"{node_line(node)}{node_remarks(node)}")
    dot.node(node.key, label=label, id=_said(node.id), tooltip=_said(node.told), **looks)


def _edge(dot: graphviz.Digraph, edge: EdgeMark, back: bool, clusters: Mapping[str, ClusterMark]) -> None:
    looks: dict[str, str] = {"constraint": "false"} if back else {}
    color = _DONE if edge.taken else _WIRE
    if edge.taken:
        looks |= {"color": color, "penwidth": _WEIGHTS.get(edge.mark.classes[-1], "2.2"), "fontcolor": _INK}
    if edge.mapped:
        looks["color"] = f"{color}:{color}"
    if edge.forked:
        looks |= {"dir": "both", "arrowtail": "dot"}
    if edge.reserved:
        looks["style"] = "dashed"
    label = f"{edge_label(edge)}{_times(edge.times)}".strip()
    if label:
        looks["label"] = _said(f" {label} ")
    source, target = edge.source, edge.target
    if source != target:
        looks |= {"ltail": f"cluster_{source}"} if source in clusters else {}
        looks |= {"lhead": f"cluster_{target}"} if target in clusters else {}
    tail = clusters[source].leaves if source in clusters else source
    head = clusters[target].enters if target in clusters else target
    dot.edge(tail, head, id=_said(edge.id), tooltip=_said(edge.tooltip), **looks)


def _said(*lines: str) -> str:
    """Quote any text: the result is neither an HTML-like label nor an escape sequence."""
    import graphviz

    # Graphviz decodes character references in every text, so an ampersand must be escaped.
    escaped = [graphviz.escape(part.replace("&", "&amp;")) for line in lines for part in line.split("\n")]
    text: str = graphviz.nohtml("\\n".join(escaped))
    return text  # a subclass that the package does not parse as markup


def _state(node: NodeMark) -> dict[str, str]:
    return next((looks for name, looks in _STATES.items() if name in node.states), {})


def _times(count: str) -> str:
    return f" {count}" if count else ""
