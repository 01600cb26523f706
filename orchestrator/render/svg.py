"""A graph, or a run in it, as one self-contained SVG text, without scripts, links, fonts or network.

Element ids, classes and geometry depend on the graph alone. A run adds the classes and texts of `overlaid` only:
a page that shows a run live, or replays it, changes only these. `data-path`, `data-node` and `data-edge`
name the node, or the number in `graph.edges`, of an element; `data-slot` marks the places of texts.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Iterator
from functools import cache
from html import escape
from importlib.resources import files
from typing import Literal, TypeAlias

from orchestrator.graph.model import GraphDefinition
from orchestrator.render import geometry
from orchestrator.render.backends import TIMEOUT
from orchestrator.render.build import draw
from orchestrator.render.drawing import ClusterMark, Drawing, EdgeMark, Look, NodeMark
from orchestrator.render.geometry import Box, Curve, Direction, Engine, Layout, Position, midway
from orchestrator.render.layout import lay_out
from orchestrator.render.overlaid import STATUSES, RunLike
from orchestrator.render.plans import Sheet, sheets

_LIGHT = (
    "--page:#fff;--card:#fff;--group:#f6f7f9;--line:#cdd3dd;--ink:#182230;--soft:#5d6b82;--wire:#8d98aa;"
    "--pill:#344054;--pill-ink:#fff;--done:#00795a;--done-card:#eefaf5;--busy:#0067ab;--busy-card:#edf6fd;"
    "--wait:#8f5500;--wait-card:#fff7e6;--fail:#b23f00;--fail-card:#fff1ea;--flaw:#9b2c6f;--flaw-card:#fdf0f7;--mark-ink:#fff;--faint:.7;"
    "--code:#475467;--model:#6b3fc9;--tool:#0b7285;--human:#b0186f;--time:#a15c00;--event:#8a3ffc;--graph:#3a46c9;--custom:#667085;"
)
_DARK = (
    "--page:#0e131c;--card:#182030;--group:#131a27;--line:#37435a;--ink:#e8ecf4;--soft:#9aa7bd;--wire:#74829b;"
    "--pill:#d5dbe6;--pill-ink:#121826;--done:#2fc596;--done-card:#12302b;--busy:#62b5f2;--busy-card:#13293f;"
    "--wait:#f0b040;--wait-card:#33280f;--fail:#ff8552;--fail-card:#3a1d14;--flaw:#f291c4;--flaw-card:#33152a;--mark-ink:#0e131c;--faint:.65;"
    "--code:#aab6ca;--model:#b497ff;--tool:#4fc3d9;--human:#f48cc6;--time:#e5a04b;--event:#c29bff;--graph:#98a4ff;--custom:#98a2b3;"
)

ICONS: dict[Look, str] = {
    "code": "M5.4 4 1.8 8l3.6 4M10.6 4l3.6 4-3.6 4",
    "model": "M8 1.6 9.6 6.4 14.4 8 9.6 9.6 8 14.4 6.4 9.6 1.6 8 6.4 6.4Z",
    "tool": "M9.2 1.8 3.4 9.1H8L6.8 14.2 12.6 6.9H8Z",
    "human": "M8 7.4a2.7 2.7 0 1 0 0-5.4 2.7 2.7 0 0 0 0 5.4ZM2.7 14c.5-2.8 2.5-4.3 5.3-4.3s4.8 1.5 5.3 4.3",
    "time": "M8 2.2a5.8 5.8 0 1 0 0 11.6 5.8 5.8 0 0 0 0-11.6ZM8 4.8V8l2.4 1.8",
    "event": "M2 3.8h12v8.4H2ZM2 4.4l6 4.6 6-4.6",
    "graph": "M5.8 1.8h4.4v3.6H5.8zM1.6 10.6H6v3.6H1.6zM10 10.6h4.4v3.6H10zM8 5.4V8M3.8 10.6V8h8.4v2.6",
    "custom": "M8 1.8 13.4 4.9v6.2L8 14.2 2.6 11.1V4.9ZM2.6 4.9 8 8l5.4-3.1M8 8v6.2",
}
"""Line drawings in a box of 16 by 16."""

BADGES: dict[str, str] = {
    "ok": "M-3.7.3-1.2 2.9 3.8-2.7",
    "past": "M-3.6-3-.6 0-3.6 3M.2-3 3.2 0 .2 3",
    "busy": "M-2.1-3.5 3.7 0-2.1 3.5Z",
    "wait": "M-2.2-3.2v6.4M2.2-3.2v6.4",
    "flaw": "M0-3.6v4.4M0 3.5h.01",
    "fail": "M-2.8-2.8 2.8 2.8M2.8-2.8-2.8 2.8",
    "next": "M-3.6 0h.01M0 0h.01M3.6 0h.01",
    "gone": "M-2.7-2.7h5.4v5.4h-5.4Z",
    "over": "M-3.4 0h6.8",
}
"""Signs of the states, around the origin."""
_SIGNS = {
    "visited": ("ok", "done"),
    "passed": ("past", "done"),
    "faulty": ("flaw", "flaw"),
    "skipped": ("over", "soft"),
    "queued": ("next", "busy"),
    "interrupted": ("gone", "wait"),
    "running": ("busy", "busy"),
    "waiting": ("wait", "wait"),
    "failed": ("fail", "fail"),
}
"""State -> (sign, colour) of its badge; of several states the last one in this list is shown."""


@cache
def stylesheet() -> str:
    """Return all rules, and the colours of both themes. They are constants, so they need no escaping."""
    dark = '.agent-graph[data-theme="dark"],[data-theme="dark"] .agent-graph:not([data-theme])'
    light = '.agent-graph[data-theme="light"],[data-theme="light"] .agent-graph:not([data-theme])'
    return (
        f".agent-graph{{{_LIGHT}}}@media (prefers-color-scheme:dark){{.agent-graph{{{_DARK}}}}}"
        f"{light}{{{_LIGHT}}}{dark}{{{_DARK}}}@media print{{.agent-graph,{dark}{{{_LIGHT}}}}}{rules()}"
    )


@cache
def rules() -> str:
    """Return the rules, which refer to colours by their variables."""
    drawn = (files("orchestrator.render") / "style.css").read_text(encoding="utf-8").replace("\n", "")
    icons = "".join(
        f".agent-graph .look-{look} .chip{{fill:var(--{look})}}.agent-graph .look-{look} .icon{{stroke:var(--{look})}}"
        for look in ICONS
    )
    badges = "".join(
        f".agent-graph .{state}:not(.terminal)>.badge{{display:inline}}"
        f".agent-graph .{state}>.badge circle{{fill:var(--{colour})}}"
        f".agent-graph .{state}>.badge path.{sign}{{display:inline}}"
        f".agent-graph .{state}>.badge path:not(.{sign}){{display:none}}"
        for state, (sign, colour) in _SIGNS.items()
    )
    return f"{drawn}{badges}{icons}"


def palette(theme: Literal["light", "dark"]) -> dict[str, str]:
    """Return variable -> colour, or number, of a theme."""
    told = _LIGHT if theme == "light" else _DARK
    pairs = (part.partition(":") for part in told.split(";") if part)
    return {name.removeprefix("--"): value for name, _, value in pairs}


Theme: TypeAlias = Literal["auto", "light", "dark"]

_MARGIN, _HEAD, _SLANT, _ROUND = 22.0, 46.0, 13.0, 10.0
_PILL, _APART = 10.5, 26.0


def to_svg(
    graph: GraphDefinition,
    run: RunLike | None = None,
    *,
    direction: Direction = "TB",
    theme: Theme = "auto",
    engine: Engine | None = None,
    timeout: float = TIMEOUT,
    closed: bool | Collection[str] = (),
    prefix: str = "",
) -> str:
    """Draw a graph as SVG.

    Args:
        graph: The graph; subgraphs are drawn open, except those in `closed`.
        run: The run to draw over it: anything with `.overlay()`.
        direction: Down the page, or to the right.
        theme: Light, dark, or that of the reader's system.
        engine: Layout engine: the program `dot`, its WebAssembly build `wasi`, or `simple`, which is used if the others
            fail or exceed the time-out. Default: the best available one.
        timeout: Seconds for the layout. The call blocks for at most that long; layouts are cached by structure.
        closed: Subgraph nodes that are drawn as one node, by their paths (`look`, `look/deep`); True: all.
            Ids do not change, so marks of a run fit both forms.
        prefix: Prefix of every id, for pages with several pictures.

    Raises:
        RenderError: The given engine failed. Never raised without `engine`.
    """
    drawing = draw(graph, run, closed=closed)
    layout = lay_out(drawing, direction=direction, engine=engine, timeout=timeout)
    return drawing_to_svg(drawing, layout, theme, prefix)


def drawing_to_svg(drawing: Drawing, layout: Layout | None = None, theme: Theme = "auto", prefix: str = "") -> str:
    """Write a drawing as SVG; without a layout, with the best available one."""
    return "".join(_svg(drawing, layout or lay_out(drawing), theme, prefix))


def _svg(drawing: Drawing, layout: Layout, theme: Theme, prefix: str) -> Iterator[str]:
    said = drawing.status.texts.get("status", "")
    # Room for any status, so that a run moves nothing.
    status = max(geometry.text_width(word, _PILL) for word in (said, *STATUSES)) + 22
    title = geometry.text_width(drawing.name, 13)
    plans = sheets(drawing.planned, max(layout.width, 860.0))
    wide = max((layout.width, title + status + 24, *(sheet.width for sheet in plans)))
    width = wide + 2 * _MARGIN
    height = layout.height + _HEAD + _MARGIN + sum(sheet.height + _APART for sheet in plans)
    w, h = px(width), px(height)
    chosen = f' data-theme="{theme}"' if theme != "auto" else ""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="agent-graph{" has-run" if drawing.run else ""}"'
        f' viewBox="0 0 {w} {h}" width="{w}" height="{h}" style="max-width:100%;height:auto" role="img"'
        f' aria-label="{escape(drawing.about)}" data-layout="{layout.engine}"{chosen}>'
        f"<style>{stylesheet()}</style>"
        f'<rect class="page" width="{w}" height="{h}" rx="12"/>'
        f'<text class="title" x="{px(_MARGIN)}" y="28">{escape(drawing.name)}</text>'
    )
    if drawing.run:
        x = width - _MARGIN - status
        yield (
            f'<g id="{escape(prefix)}run-status" class="{" ".join(("status", *drawing.status.classes))}">'
            f'<rect x="{px(x)}" y="14.5" width="{px(status)}" height="19" rx="9.5"/>'
            f'<text data-slot="status" x="{px(x + status / 2)}" y="27.8">{escape(said)}</text></g>'
        )
    yield f'<g transform="translate({px((width - layout.width) / 2)} {px(_HEAD)})">'
    yield from _parts(drawing, layout, prefix)
    yield "</g>"
    top = layout.height + _HEAD + _APART
    for sheet in plans:
        yield _sheet(sheet, Position((width - sheet.width) / 2, top), prefix)
        top += sheet.height + _APART
    yield "</svg>\n"


def _parts(drawing: Drawing, layout: Layout, prefix: str) -> Iterator[str]:
    for cluster in drawing.clusters:
        yield _cluster(cluster, layout.clusters[cluster.key], prefix)
    for edge in drawing.edges:
        if edge.key in layout.edges:
            yield edge_svg(edge, layout.edges[edge.key], drawing, prefix)
    for node in drawing.nodes:
        yield _node(node, layout.nodes[node.key], prefix)


def _sheet(sheet: Sheet, at: Position, prefix: str) -> str:
    """Draw a plan of the run, on a separate sheet below the graph."""
    times = sheet.mark.texts.get("times", "")
    inner = "".join(_parts(sheet.drawing, sheet.layout, prefix))
    size = f'width="{px(sheet.width)}" height="{px(sheet.height)}"'
    return (
        f'<g id="{escape(prefix + sheet.id)}" class="{" ".join(("plan", *sheet.mark.classes))}"'
        f' transform="translate({px(at.x)} {px(at.y)})">'
        f'<rect class="sheet" {size} rx="14"/>'
        f'<text class="name" x="16" y="23">{escape(sheet.name)}<tspan class="detail" dx="8">{escape(sheet.detail)}'
        f'</tspan><tspan class="times" dx="8" data-slot="times">{escape(times)}</tspan></text>'
        f'<g transform="translate({px(sheet.inset.x)} {px(sheet.inset.y)})">{inner}</g></g>'
    )


def _node(node: NodeMark, at: Position, prefix: str) -> str:
    size = geometry.node_size(node)
    if node.terminal:
        return f"{_open(node, at, 'node terminal', prefix)}{_terminal(node, size)}</g>"
    name = escape(geometry.node_name(node))
    left, slant = -size.width / 2, _SLANT if node.look == "human" else 0.0
    body = _shape(node, size, "shape")
    if node.per_item:
        body = f'<g transform="translate(5 5)">{_shape(node, size, "behind")}</g>{body}'
    bar = f'<rect class="bar" x="-22" y="{px(-size.height / 2 - 2)}" width="44" height="4" rx="2"/>'
    x = left + slant + 10
    text = px(x + 38)
    return (
        f"{_open(node, at, 'node', prefix)}{body}{bar if node.join else ''}{_icon(node, x, -14, 28)}"
        f'<text class="name" x="{text}" y="-3">{name}</text>'
        f'<text class="detail" x="{text}" y="13">{escape(geometry.node_detail(node))}</text>{_asked(node, text)}'
        f"{_marks(node, size.width / 2 - 3 - slant, -size.height / 2, size.height)}</g>"
    )


def _asked(node: NodeMark, x: str) -> str:
    """Draw the place for the number of times that the node asked; classes show it in place of the node's work."""
    if node.asks is None:
        return ""
    return f'<text class="detail tally" data-slot="asked" x="{x}" y="13">{escape(node.asked)}</text>'


def _open(node: NodeMark, at: Position, kind: str, prefix: str) -> str:
    classes = [kind, f"look-{node.look}", *(["closed"] if node.closed else ()), *node.states]
    return (
        f'<g id="{escape(prefix + node.id)}" class="{" ".join(classes)}" data-path="{escape(node.path)}"'
        f' data-node="{escape(node.name)}" transform="translate({px(at.x)} {px(at.y)})">'
        f"<title>{escape(node.told)}</title>"
    )


def _shape(node: NodeMark, size: geometry.Size, kind: str) -> str:
    x, y = size.width / 2, size.height / 2
    if node.look != "human":
        return _rect(kind, size, _ROUND)
    inner = x - _SLANT
    corners = ((-inner, -y), (inner, -y), (x, 0), (inner, y), (-inner, y), (-x, 0))
    return f'<path class="{kind}" d="M{"L".join(f"{px(a)} {px(b)}" for a, b in corners)}Z"/>'


def _terminal(node: NodeMark, size: geometry.Size) -> str:
    name = f'<text class="name" y="3.8">{escape(geometry.node_name(node))}</text>'
    if size.width <= geometry.DOT:  # inside a subgraph: a dot, a ring, a square
        radius = size.height / 2 - 1
        if node.look == "stop":
            return _rect("shape", geometry.Size(2 * radius, 2 * radius), 2)
        ring = "" if node.look == "start" else f'<circle class="inner" r="{px(radius - 3)}"/>'
        return f'<circle class="shape" r="{px(radius)}"/>{ring}'
    if node.look == "stop":
        return f"{_octagon(size)}{name}"
    inner = _rect("inner", geometry.Size(size.width - 6, size.height - 6), size.height) if node.look == "end" else ""
    return f"{_rect('shape', size, size.height / 2)}{inner}{name}"


def _octagon(size: geometry.Size) -> str:
    x, y, cut = size.width / 2, size.height / 2, 8.0
    return (
        f'<path class="shape" d="M{px(-x + cut)} {px(-y)}H{px(x - cut)}L{px(x)} {px(-y + cut)}V{px(y - cut)}'
        f'L{px(x - cut)} {px(y)}H{px(-x + cut)}L{px(-x)} {px(y - cut)}V{px(-y + cut)}Z"/>'
    )


def _rect(kind: str, size: geometry.Size, radius: float) -> str:
    width, height = size
    rounded = min(radius, height / 2)
    return (
        f'<rect class="{kind}" x="{px(-width / 2)}" y="{px(-height / 2)}" width="{px(width)}"'
        f' height="{px(height)}" rx="{px(rounded)}"/>'
    )


def _icon(node: NodeMark, x: float, y: float, size: float) -> str:
    scale = f" scale({size / 28:.3g})" if size != 28 else ""
    return (
        f'<g transform="translate({px(x)} {px(y)}){scale}"><rect class="chip" width="28" height="28" rx="8"/>'
        f'<path class="icon" transform="translate(6 6)" d="{ICONS.get(node.look, "")}"/></g>'
    )


def _marks(node: NodeMark, x: float, y: float, height: float) -> str:
    """Draw the badge with all its signs, the count, the duration; classes determine which of them show."""
    signs = "".join(f'<path class="{kind}" d="{drawn}"/>' for kind, drawn in BADGES.items())
    wide = geometry.ITEMS_WIDTH if node.per_item else geometry.COUNT_WIDTH
    left = x - geometry.BADGE - wide - 3
    return (
        f'<g class="badge" transform="translate({px(x)} {px(y)})"><circle r="{px(geometry.BADGE)}"/>{signs}</g>'
        f'<g class="count"><rect x="{px(left)}" y="{px(y - 7.5)}" width="{px(wide)}" height="15"'
        f' rx="7.5"/><text data-slot="count" x="{px(left + wide / 2)}" y="{px(y + 3.6)}">{node.count}</text>'
        f'</g><text class="took" data-slot="took" x="{px(x - 6)}" y="{px(y + height + (16 if node.per_item else 12))}">'
        f"{escape(node.mark.texts.get('took', ''))}</text>"
    )


def _cluster(cluster: ClusterMark, box: Box, prefix: str) -> str:
    node = cluster.node
    width, height = box.right - box.left, box.bottom - box.top
    name, detail = geometry.head_texts(cluster)
    size = f'width="{px(width)}" height="{px(height)}" rx="14"'
    behind = f'<rect class="behind" x="5" y="5" {size}/>' if node.per_item else ""
    bar = f'<rect class="bar" x="{px(width / 2 - 22)}" y="-2" width="44" height="4" rx="2"/>' if node.join else ""
    return (
        f"{_open(node, Position(box.left, box.top), 'node cluster', prefix)}{behind}"
        f'<rect class="shape" {size}/>{bar}{_icon(node, 11, 9, 21)}'
        f'<text class="name" x="39" y="24">{escape(name)}<tspan class="detail" dx="8">{escape(detail)}</tspan></text>'
        f"{_marks(node, width - 14, 0, height)}</g>"
    )


def edge_svg(edge: EdgeMark, curve: Curve, drawing: Drawing, prefix: str) -> str:
    """Draw an edge: its line, its head, the marks of maps and forks, its label."""
    classes = ["edge"]
    flags = (
        ("mapped", edge.mapped),
        ("forked", edge.forked),
        ("reserved", edge.reserved),
        ("any", drawing.by_key[edge.source].look == "any"),
        ("in-cluster", bool(edge.path)),
    )
    classes += [*(name for name, held in flags if held), *edge.mark.classes]
    way = _way(curve)
    core = f'<path class="core" d="{way}"/>' if edge.mapped else ""
    tail = _tail(curve) if edge.forked else ""
    return (
        f'<g id="{escape(prefix + edge.id)}" class="{" ".join(classes)}" data-path="{escape(edge.path)}"'
        f' data-edge="{edge.index}"><title>{escape(edge.tooltip)}</title>'
        f'<path class="line" d="{way}"/>{core}<path class="head" d="{_arrow(curve)}"/>{tail}'
        f"{_label(edge, curve)}</g>"
    )


def _label(edge: EdgeMark, curve: Curve) -> str:
    at = curve.label if curve.label is not None else midway(curve.points)
    if curve.label is not None and curve.anchor != "middle":
        away = geometry.label_room(edge).width / 2 - geometry.LABEL_INSET
        at = at._replace(x=at.x - away if curve.anchor == "start" else at.x + away)
    times = edge.times
    gap = " " if edge.label and times else ""
    return (
        f'<text class="label" text-anchor="{curve.anchor}" x="{px(at.x)}" y="{px(at.y + 3.8)}">'
        f"{escape(geometry.edge_label(edge))}{gap}"
        f'<tspan class="times" data-slot="times">{times}</tspan></text>'
    )


def _way(curve: Curve) -> str:
    first, *rest = curve.points
    whole = rest[: len(rest) // 3 * 3]
    if not whole:
        return f"M{px(first.x)} {px(first.y)}L{px(curve.tip.x)} {px(curve.tip.y)}"
    return f"M{px(first.x)} {px(first.y)}C{' '.join(f'{px(p.x)} {px(p.y)}' for p in whole)}"


def _arrow(curve: Curve) -> str:
    base, tip = curve.points[-1], curve.tip
    x, y = tip.x - base.x, tip.y - base.y
    length = (x * x + y * y) ** 0.5 or 1.0
    side_x, side_y = -y / length * 3.8, x / length * 3.8
    return (
        f"M{px(tip.x)} {px(tip.y)}L{px(base.x + side_x)} {px(base.y + side_y)}"
        f"L{px(base.x - side_x)} {px(base.y - side_y)}Z"
    )


def _tail(curve: Curve) -> str:
    """Draw a dot where a branch starts, next to the node's border."""
    start, following = curve.points[0], (*curve.points, curve.tip)[1]
    x, y = following.x - start.x, following.y - start.y
    length = (x * x + y * y) ** 0.5 or 1.0
    return f'<circle class="tail" cx="{px(start.x + x / length * 4)}" cy="{px(start.y + y / length * 4)}" r="3.6"/>'


def px(value: float) -> str:
    """Return a number of pixels, with at most one decimal."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


_SVG_TAG = re.compile(r"<svg [^>]*>")
_ATTRIBUTE = re.compile(r' ([\w-]+)="([^"]*)"')
_IMAGE_ATTRIBUTES = (("aria-label", "alt"), ("width", "width"), ("height", "height"))


def image_element(svg: str) -> str:
    """Return an `img` element with a drawing of `to_svg`, in its size, but no wider than the containing element.

    Args:
        svg: the drawing; its label becomes the alternative text.
    """
    head = _SVG_TAG.search(svg)
    assert head is not None, "a drawing has a head"
    given = dict(_ATTRIBUTE.findall(head[0]))
    shown = " ".join(f'{wanted}="{given[name]}"' for name, wanted in _IMAGE_ATTRIBUTES)
    data = b64encode(svg.encode()).decode()
    return f'<img {shown} style="max-width:100%;height:auto" src="data:image/svg+xml;base64,{data}">'
