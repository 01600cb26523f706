"""A graph, or a run in it, as one SVG text that needs nothing else: no script, no link, no font, no network.

Element ids, classes and geometry depend on the graph alone. Of a run come the classes `visited`, `running`,
`waiting`, `failed`, `current` and `many` on nodes, `taken` on edges, and the texts in `.count`, `.times` and
`.status`: a page that shows a run live changes these and nothing else. `data-path`, `data-node` and `data-edge`
tell which node, or number in `graph.edges`, an element stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Literal, TypeAlias

from orchestrator.render import sizes
from orchestrator.render.backends import TIMEOUT
from orchestrator.render.build import draw
from orchestrator.render.drawing import ClusterMark, Drawing, EdgeMark, NodeMark
from orchestrator.render.layers import midway
from orchestrator.render.layout import Box, Curve, Direction, Engine, Layout, Point, lay_out
from orchestrator.render.style import BADGES, ICONS, stylesheet

if TYPE_CHECKING:
    from orchestrator.graph.graph import Graph
    from orchestrator.render.overlaid import RunLike

Theme: TypeAlias = Literal["auto", "light", "dark"]

_MARGIN, _HEAD, _SLANT, _ROUND = 22.0, 46.0, 13.0, 10.0
_COUNT_WIDTH, _BADGE = 30.0, 9.0


def to_svg(
    graph: Graph,
    run: RunLike | None = None,
    *,
    direction: Direction = "TB",
    theme: Theme = "auto",
    engine: Engine | None = None,
    timeout: float = TIMEOUT,
) -> str:
    """Draws a graph as SVG.

    Args:
        graph: The graph; subgraphs are drawn open.
        run: Laid over it: anything with `.overlay()`.
        direction: Down the page, or to the right.
        theme: Light, dark, or as the reader's system has it.
        engine: What lays out: the program `dot`, its WebAssembly build `wasi`, or `simple`, which every graph
            gets that the others cannot lay out within the time-out. By default the best that is here.
        timeout: Seconds for the layout. Blocks for at most that long; a layout is made once for each structure.

    Raises:
        RenderError: The engine that was asked for cannot do it. Never without `engine`.
    """
    drawing = draw(graph, run)
    layout = lay_out(drawing, direction=direction, engine=engine, timeout=timeout)
    return "".join(_svg(drawing, layout, theme))


def _svg(drawing: Drawing, layout: Layout, theme: Theme) -> Iterator[str]:
    said = drawing.status.texts.get("status", "")
    status = sizes.text_width(said, 10.5) + 22 if said else 0.0
    title = sizes.text_width(drawing.name, 13)
    width = max(layout.width, title + status + 24) + 2 * _MARGIN
    height = layout.height + _HEAD + _MARGIN
    w, h = _n(width), _n(height)
    chosen = f' data-theme="{theme}"' if theme != "auto" else ""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="agent-graph{" has-run" if drawing.run else ""}"'
        f' viewBox="0 0 {w} {h}" width="{w}" height="{h}" style="max-width:100%;height:auto" role="img"'
        f' aria-label="{escape(drawing.about)}" data-layout="{layout.engine}"{chosen}>'
        f"<style>{stylesheet()}</style>"
        f'<rect class="page" width="{w}" height="{h}" rx="12"/>'
        f'<text class="title" x="{_n(_MARGIN)}" y="28">{escape(drawing.name)}</text>'
    )
    if drawing.run:
        known = " ".join(drawing.status.classes)
        x = width - _MARGIN - status
        yield (
            f'<g class="status {known}"><rect x="{_n(x)}" y="14.5" width="{_n(status)}" height="19" rx="9.5"'
            f' fill-opacity=".14"/><text x="{_n(x + status / 2)}" y="27.8">{escape(said)}</text></g>'
        )
    yield f'<g transform="translate({_n((width - layout.width) / 2)} {_n(_HEAD)})">'
    for cluster in drawing.clusters:
        yield _cluster(cluster, layout.clusters[cluster.key])
    for edge in drawing.edges:
        if edge.key in layout.edges:
            yield _edge(edge, layout.edges[edge.key], drawing)
    for node in drawing.nodes:
        yield _node(node, layout.nodes[node.key])
    yield "</g></svg>\n"


def _node(node: NodeMark, at: Point) -> str:
    size = sizes.node_size(node)
    if node.terminal:
        return f"{_open(node, at, 'node terminal')}{_terminal(node, size)}</g>"
    name = escape(sizes.node_name(node))
    left, slant = -size.width / 2, _SLANT if node.look == "human" else 0.0
    body = _shape(node, size, "shape")
    if node.per_item:
        body = f'<g transform="translate(5 5)">{_shape(node, size, "behind")}</g>{body}'
    bar = f'<rect class="bar" x="-22" y="{_n(-size.height / 2 - 2)}" width="44" height="4" rx="2"/>'
    x = left + slant + 10
    text = _n(x + 38)
    return (
        f"{_open(node, at, 'node')}{body}{bar if node.join else ''}{_icon(node, x, -14, 28)}"
        f'<text class="name" x="{text}" y="-3">{name}</text>'
        f'<text class="detail" x="{text}" y="13">{escape(sizes.node_detail(node))}</text>'
        f"{_marks(node, size.width / 2 - 3 - slant, -size.height / 2)}</g>"
    )


def _open(node: NodeMark, at: Point, kind: str) -> str:
    classes = [kind, f"look-{node.look}", *node.states]
    return (
        f'<g id="{escape(node.id)}" class="{" ".join(classes)}" data-path="{escape(node.path)}"'
        f' data-node="{escape(node.name)}" transform="translate({_n(at.x)} {_n(at.y)})">'
        f"<title>{escape(node.told)}</title>"
    )


def _shape(node: NodeMark, size: sizes.Size, kind: str) -> str:
    x, y = size.width / 2, size.height / 2
    if node.look != "human":
        return _rect(kind, size, _ROUND)
    inner = x - _SLANT
    corners = ((-inner, -y), (inner, -y), (x, 0), (inner, y), (-inner, y), (-x, 0))
    return f'<path class="{kind}" d="M{"L".join(f"{_n(a)} {_n(b)}" for a, b in corners)}Z"/>'


def _terminal(node: NodeMark, size: sizes.Size) -> str:
    name = f'<text class="name" y="3.8">{escape(sizes.node_name(node))}</text>'
    if size.width <= sizes.DOT:  # inside a subgraph: a dot, a ring, a square
        radius = size.height / 2 - 1
        if node.look == "stop":
            return _rect("shape", sizes.Size(2 * radius, 2 * radius), 2)
        ring = "" if node.look == "start" else f'<circle class="inner" r="{_n(radius - 3)}"/>'
        return f'<circle class="shape" r="{_n(radius)}"/>{ring}'
    if node.look == "stop":
        return f"{_octagon(size)}{name}"
    inner = _rect("inner", sizes.Size(size.width - 6, size.height - 6), size.height) if node.look == "end" else ""
    return f"{_rect('shape', size, size.height / 2)}{inner}{name}"


def _octagon(size: sizes.Size) -> str:
    x, y, cut = size.width / 2, size.height / 2, 8.0
    return (
        f'<path class="shape" d="M{_n(-x + cut)} {_n(-y)}H{_n(x - cut)}L{_n(x)} {_n(-y + cut)}V{_n(y - cut)}'
        f'L{_n(x - cut)} {_n(y)}H{_n(-x + cut)}L{_n(-x)} {_n(y - cut)}V{_n(-y + cut)}Z"/>'
    )


def _rect(kind: str, size: sizes.Size, radius: float) -> str:
    width, height = size
    rounded = min(radius, height / 2)
    return (
        f'<rect class="{kind}" x="{_n(-width / 2)}" y="{_n(-height / 2)}" width="{_n(width)}"'
        f' height="{_n(height)}" rx="{_n(rounded)}"/>'
    )


def _icon(node: NodeMark, x: float, y: float, size: float) -> str:
    scale = f" scale({size / 28:.3g})" if size != 28 else ""
    return (
        f'<g transform="translate({_n(x)} {_n(y)}){scale}"><rect class="chip" width="28" height="28" rx="8"/>'
        f'<path class="icon" transform="translate(6 6)" d="{ICONS.get(node.look, "")}"/></g>'
    )


def _marks(node: NodeMark, x: float, y: float) -> str:
    """All badges and the count; classes choose which of them show."""
    badges = "".join(
        f'<g class="badge {kind}" transform="translate({_n(x)} {_n(y)})"><circle r="{_n(_BADGE)}"/>'
        f'<path d="{drawn}"/></g>'
        for kind, drawn in BADGES.items()
    )
    left = x - _BADGE - _COUNT_WIDTH - 3
    count = node.count
    return (
        f'{badges}<g class="count"><rect x="{_n(left)}" y="{_n(y - 7.5)}" width="{_n(_COUNT_WIDTH)}" height="15"'
        f' rx="7.5"/><text x="{_n(left + _COUNT_WIDTH / 2)}" y="{_n(y + 3.6)}">{count}</text></g>'
    )


def _cluster(cluster: ClusterMark, box: Box) -> str:
    node = cluster.node
    width, height = box.right - box.left, box.bottom - box.top
    name, detail = sizes.head_texts(cluster)
    size = f'width="{_n(width)}" height="{_n(height)}" rx="14"'
    behind = f'<rect class="behind" x="5" y="5" {size}/>' if node.per_item else ""
    bar = f'<rect class="bar" x="{_n(width / 2 - 22)}" y="-2" width="44" height="4" rx="2"/>' if node.join else ""
    return (
        f"{_open(node, Point(box.left, box.top), 'node cluster')}{behind}"
        f'<rect class="shape" {size}/>{bar}{_icon(node, 11, 9, 21)}'
        f'<text class="name" x="39" y="24">{escape(name)}<tspan class="detail" dx="8">{escape(detail)}</tspan></text>'
        f"{_marks(node, width - 14, 0)}</g>"
    )


def _edge(edge: EdgeMark, curve: Curve, drawing: Drawing) -> str:
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
        f'<g id="{escape(edge.id)}" class="{" ".join(classes)}" data-path="{escape(edge.path)}"'
        f' data-edge="{edge.index}"><title>{escape(edge.tooltip)}</title>'
        f'<path class="line" d="{way}"/>{core}<path class="head" d="{_arrow(curve)}"/>{tail}'
        f"{_label(edge, curve)}</g>"
    )


def _label(edge: EdgeMark, curve: Curve) -> str:
    at = curve.label if curve.label is not None and edge.label else midway(curve.points)
    times = edge.times
    gap = " " if edge.label and times else ""
    return (
        f'<text class="label" x="{_n(at.x)}" y="{_n(at.y + 3.8)}">{escape(sizes.edge_label(edge))}{gap}'
        f'<tspan class="times">{times}</tspan></text>'
    )


def _way(curve: Curve) -> str:
    first, *rest = curve.points
    whole = rest[: len(rest) // 3 * 3]
    if not whole:
        return f"M{_n(first.x)} {_n(first.y)}L{_n(curve.tip.x)} {_n(curve.tip.y)}"
    return f"M{_n(first.x)} {_n(first.y)}C{' '.join(f'{_n(p.x)} {_n(p.y)}' for p in whole)}"


def _arrow(curve: Curve) -> str:
    base, tip = curve.points[-1], curve.tip
    x, y = tip.x - base.x, tip.y - base.y
    length = (x * x + y * y) ** 0.5 or 1.0
    side_x, side_y = -y / length * 3.8, x / length * 3.8
    return (
        f"M{_n(tip.x)} {_n(tip.y)}L{_n(base.x + side_x)} {_n(base.y + side_y)}"
        f"L{_n(base.x - side_x)} {_n(base.y - side_y)}Z"
    )


def _tail(curve: Curve) -> str:
    """A dot where a branch begins, just off the node's border."""
    start, following = curve.points[0], (*curve.points, curve.tip)[1]
    x, y = following.x - start.x, following.y - start.y
    length = (x * x + y * y) ** 0.5 or 1.0
    return f'<circle class="tail" cx="{_n(start.x + x / length * 4)}" cy="{_n(start.y + y / length * 4)}" r="3.6"/>'


def _n(value: float) -> str:
    """A number with one decimal at most."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text
