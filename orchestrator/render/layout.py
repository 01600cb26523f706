"""Positions of everything in a picture. Graphviz receives sizes and keys, but no text of the graph.

A layout depends on the structure alone, so it is made once and cached: a run only changes classes and texts of the
picture. If it is too tight, it is cut along a line that crosses no box, and its halves are moved apart. If Graphviz is
missing, fails or takes too long, `layers` makes the layout instead.
"""

from __future__ import annotations

import json
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from orchestrator.json import digest
from orchestrator.render import geometry
from orchestrator.render.backends import TIMEOUT, RenderError, engines, graphviz
from orchestrator.render.drawing import ClusterMark, Drawing, EdgeMark, Level, backward, ranks
from orchestrator.render.geometry import Box, Curve, Direction, Engine, Layout, Position
from orchestrator.render.labels import Labelled, labelled
from orchestrator.render.layers import layered

KEPT = 128
"""Layouts that are cached."""
_EM = 6.0  # pixels: Courier's advance at 10 points, the same in every Graphviz
_LETTER: dict[Direction, float] = {"TB": 10.0, "LR": 17.0}
"""Points of edge labels: to the right they are above their lines, so the drawn label must not touch these."""
_POINTS = 72.0
_AROUND, _APART = "around_", 14.0
"""Prefix of clusters that only separate others, and their margin in points."""
_MANY = 400  # edges
_TANGLED = 20_000  # ranks that edges pass, squared, per edge: the time for routing around nodes grows with it
_FAR = 1_500  # ranks that edges skip: for many more, Graphviz takes minutes


class _Ports(NamedTuple):
    """Sides of a box: where branches leave and meet, and where backward edges leave and arrive."""

    out: str
    into: str
    back: str


class Spread(NamedTuple):
    """Extra width of a layout."""

    ranks: float = 1.0
    nodes: float = 1.0
    room: Literal["labels", "counts", "none"] = "labels"
    """Texts for which Graphviz leaves room: labels, or also the counts of all edges.

    With room for any, boxes in a rank of labels are as near as 5 points to each other, regardless of `nodes`.
    """


_NARROW = Spread()
_SPREADS = (
    Spread(1.3, 1.2),
    Spread(1.2, 1.2, "counts"),
    Spread(1.8, 1.5, "none"),
    Spread(1.6, 1.6, "counts"),
    Spread(2.5, 4, "none"),
    Spread(2, 3, "counts"),
)
_CUTS = 5
"""Times that a picture is cut and moved apart before it is laid out wider."""
_SPREAD_EDGES = 150
"""Edges; larger pictures are laid out only once."""

_kept: OrderedDict[tuple[str, str], Layout] = OrderedDict()
_lock = threading.Lock()


def lay_out(
    drawing: Drawing, *, direction: Direction = "TB", engine: Engine | None = None, timeout: float = TIMEOUT
) -> Layout:
    """Return the layout of a drawing, cached by structure.

    Args:
        drawing: The drawing.
        direction: Down the page or to the right.
        engine: Layout engine; by default the best available one that finishes within the time-out.
        timeout: Seconds, for each engine.

    Raises:
        RenderError: The given engine failed. Never raised without `engine`.
    """
    source = layout_source(drawing, direction)
    key = (digest([source, *_looks(drawing)]), engine or "")
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    found = _settled(drawing, source, direction, engine, timeout)
    with _lock:
        _kept[key] = found
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return found


def _looks(drawing: Drawing) -> Iterator[str]:
    """Yield properties besides the source on which the places of labels depend: sizes of labels and counts."""
    for edge in drawing.edges:
        yield f"{edge.path} {geometry.label_room(edge).width:.1f}"
    for mark in drawing.by_key.values():
        yield f"{mark.look == 'human'} {mark.per_item}"


def _settled(drawing: Drawing, source: str, direction: Direction, engine: Engine | None, timeout: float) -> Layout:
    """Return a layout without overlaps: as narrow as possible, and wider if there is no room."""
    best = _with_room(drawing, _make(drawing, source, direction, engine, timeout), direction)
    for spread in _SPREADS if len(drawing.edges) <= _SPREAD_EDGES else ():
        if not best.covered:
            break
        try:
            again = _make_with(drawing, direction, best.layout.engine, timeout, spread)
        except RenderError:
            break
        wider = _with_room(drawing, again, direction)
        best = min(best, wider, key=lambda found: found.covered)
    return best.layout


def _with_room(drawing: Drawing, layout: Layout, direction: Direction) -> Labelled:
    """Return a layout with its labels; it is moved apart where they have no room."""
    best = found = labelled(drawing, layout)
    for _ in range(_CUTS if len(drawing.edges) <= _SPREAD_EDGES else 0):
        wider = opened(drawing, layout, found.tight, direction) if found.tight else None
        if wider is None:
            break
        layout, found = wider, labelled(drawing, wider)
        best = min(best, found, key=lambda one: one.covered)
    return best


def _make_with(drawing: Drawing, direction: Direction, engine: Engine, timeout: float, spread: Spread) -> Layout:
    if engine == "simple":
        return layered(drawing, direction, spread=spread.ranks)
    size = len(drawing.nodes) + len(drawing.edges)
    source = layout_source(drawing, direction, spread)
    return read_layout(graphviz(source, "json0", engine, size=size, timeout=timeout), engine)


def _make(drawing: Drawing, source: str, direction: Direction, engine: Engine | None, timeout: float) -> Layout:
    if engine == "simple":
        return layered(drawing, direction)
    size = len(drawing.nodes) + len(drawing.edges)
    if engine is None and _reach(drawing.levels()) - len(drawing.edges) > _FAR:
        return layered(drawing, direction)
    if engine is not None:
        return read_layout(graphviz(source, "json0", engine, size=size, timeout=timeout), engine)
    for backend in engines():
        try:
            return read_layout(graphviz(source, "json0", backend, size=size, timeout=timeout), backend)
        except RenderError as error:
            if "took longer" in str(error):
                break  # the other backend is not faster
    return layered(drawing, direction)


def layout_source(drawing: Drawing, direction: Direction = "TB", spread: Spread = _NARROW) -> str:
    """Return the DOT text to lay out: boxes with sizes, and labels of the real lengths."""
    return "\n".join(_source(drawing, direction, spread))


def _source(drawing: Drawing, direction: Direction, spread: Spread) -> Iterator[str]:
    levels = drawing.levels()
    ranks, nodes = (0.5 if direction == "TB" else 0.55) * spread.ranks, 0.4 * spread.nodes
    yield "digraph {"
    yield f"graph [rankdir={direction} compound=true nodesep={nodes:g} ranksep={ranks:g}"
    yield f"  fontname=Courier fontsize=20 margin=0 {_effort(levels, len(drawing.edges))}]"
    yield 'node [shape=box fixedsize=true label=""]'
    yield f"edge [fontname=Courier fontsize={_LETTER[direction]:g} arrowsize=0.7]"
    yield from _boxes(levels, None, spread != _NARROW)
    clusters = {mark.key: mark for mark in drawing.clusters}
    back = frozenset[str]().union(*map(backward, levels.values()))
    ports = _Ports("s", "n", "e") if direction == "TB" else _Ports("e", "w", "s")
    pairs = {(edge.source, edge.target) for edge in drawing.edges}
    for edge in drawing.edges:
        joins = bool(drawing.by_key[edge.target].join)
        # Between neighbours, there is no room to leave and arrive at the side.
        beside = edge.source != edge.target and (edge.target, edge.source) in pairs
        # Nor for texts on one line above the other.
        wide = geometry.label_size(edge).width or (geometry.COUNT_ROOM if beside else 0.0)
        if spread.room != "labels":
            wide = geometry.label_room(edge).width if spread.room == "counts" else 0.0
        label = "m" * math.ceil(wide * 10 / (_LETTER[direction] * _EM))
        chosen = ports._replace(back="") if (edge.target, edge.source) in pairs else ports
        yield _arrow(edge, edge.key in back, joins, clusters, chosen, label)
    yield "}"


def _effort(levels: Mapping[str | None, Level], edges: int) -> str:
    """Return options for large graphs: without them, Graphviz takes minutes for an unreadable picture."""
    reach = _reach(levels)
    if reach * reach > _TANGLED * edges:
        return "nslimit=0.5 nslimit1=1 mclimit=0.1 splines=line"
    return "nslimit=1 nslimit1=1 mclimit=0.1" if edges > _MANY else ""


def _reach(levels: Mapping[str | None, Level]) -> int:
    """Return the number of ranks that all edges together pass."""
    reach = 0
    for level in levels.values():
        rank = ranks(level)
        reach += sum(abs(rank[edge.source] - rank[edge.target]) for edge in level.edges)
    return reach


def _boxes(levels: Mapping[str | None, Level], cluster: str | None, apart: bool) -> Iterator[str]:
    for node in levels[cluster].nodes:
        size = geometry.node_size(node)
        yield f"{node.key} [width={size.width / _POINTS:.4f} height={size.height / _POINTS:.4f}]"
    for inner in levels[cluster].clusters:
        head = "m" * math.ceil(geometry.head_size(inner).width / (2 * _EM))
        if apart:  # Graphviz puts clusters side by side without a gap, so each is put into a larger one
            yield f'subgraph cluster_{_AROUND}{inner.key} {{ graph [margin={_APART:g} label=""]'
        yield f"subgraph cluster_{inner.key} {{"
        yield f'graph [margin={geometry.CLUSTER_GAP:g} labeljust=l label="{head}"]'
        yield from _boxes(levels, inner.key, apart)
        yield "}}" if apart else "}"


def _arrow(
    edge: EdgeMark, back: bool, joins: bool, clusters: Mapping[str, ClusterMark], ports: _Ports, label: str
) -> str:
    """Write an edge; a backward one in reverse, so it cannot turn the order upside down."""
    upper, lower = (edge.target, edge.source) if back else (edge.source, edge.target)
    said = [f"id={edge.key}"]
    if back:
        said += ["dir=back", "weight=0"]
        if ports.back and upper not in clusters:
            said.append(f"tailport={ports.back}")
        if ports.back and lower not in clusters:
            said.append(f"headport={ports.back}")
    else:
        said.append(f"weight={1 if edge.reserved else 4}")
        # Branches start in one point and end in one, which makes a fork and a join recognizable.
        if edge.forked and upper not in clusters:
            said.append(f"tailport={ports.out}")
        if joins and lower not in clusters:
            said.append(f"headport={ports.into}")
    if label:
        said.append(f'label="{label}"')
    if upper != lower:  # an edge from a cluster to itself runs inside of it
        if upper in clusters:
            said.append(f"ltail=cluster_{upper}")
        if lower in clusters:
            said.append(f"lhead=cluster_{lower}")
    tail = clusters[upper].leaves if upper in clusters else upper
    head = clusters[lower].enters if lower in clusters else lower
    return f"{tail} -> {head} [{' '.join(said)}]"


def read_layout(data: bytes, engine: Engine) -> Layout:
    """Parse Graphviz' `json0`.

    Raises:
        RenderError: The text is not valid `json0`.
    """
    try:
        return _read(json.loads(data), engine)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise RenderError(f"the {engine} layout cannot be read ({type(error).__name__}: {error})") from error


def _read(found: dict[str, object], engine: Engine) -> Layout:
    left, bottom, right, top = _numbers(str(found["bb"]))

    def at(x: float, y: float) -> Position:
        return Position(round(x - left, 1), round(top - y, 1))

    nodes: dict[str, Position] = {}
    clusters: dict[str, Box] = {}
    for thing in _objects(found.get("objects")):
        name = str(thing["name"])
        if name.startswith(f"cluster_{_AROUND}"):
            continue
        if name.startswith("cluster_"):
            x0, y0, x1, y1 = _numbers(str(thing["bb"]))
            clusters[name.removeprefix("cluster_")] = Box(*at(x0, y1), *at(x1, y0))
        elif "pos" in thing:
            nodes[name] = at(*_numbers(str(thing["pos"])))
    edges: dict[str, Curve] = {}
    for thing in _objects(found.get("edges")):
        points: list[Position] = []
        tip: Position | None = None
        back = False
        for word in str(thing["pos"]).replace(";", " ").split():
            if word[0] in "se":
                back = word[0] == "s"
                tip = at(*_numbers(word[2:]))
            else:
                points.append(at(*_numbers(word)))
        if back:
            points.reverse()
        label = at(*_numbers(str(thing["lp"]))) if "lp" in thing else None
        edges[str(thing["id"])] = Curve(tuple(points), tip or points[-1], label)
    return Layout(right - left, top - bottom, nodes, clusters, edges, engine)


def _objects(found: object) -> Iterator[dict[str, object]]:
    if isinstance(found, list):
        yield from (thing for thing in found if isinstance(thing, dict))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


_Axis: TypeAlias = Literal["x", "y"]
_WIDER = 16.0
"""Pixels by which a gap is widened."""
_KEPT_ROOM, _LEAST = 8.0, 6.0
"""Pixels at both ends of a gap that stay unchanged, since arrow heads are there; the smallest gap that is cut."""


class _Gap(NamedTuple):
    """A gap between boxes that can be widened."""

    begin: float
    end: float


def opened(drawing: Drawing, layout: Layout, tight: Iterable[Box], direction: Direction) -> Layout | None:
    """Widen gaps between boxes.

    Args:
        drawing: the drawing that is laid out.
        layout: positions of its parts.
        tight: the places that need room: the widest gap in each is widened.
        direction: down the page or to the right; gaps between ranks are preferred.

    Returns:
        The wider layout; None if there is no gap.
    """
    order: tuple[_Axis, _Axis] = ("y", "x") if direction == "TB" else ("x", "y")
    gaps = {axis: _gaps(drawing, layout, axis) for axis in order}
    found: dict[_Axis, set[_Gap]] = {"x": set(), "y": set()}
    for place in tight:
        for axis in order:
            first, last = (place.top, place.bottom) if axis == "y" else (place.left, place.right)
            inside = [_Gap(max(gap.begin, first), min(gap.end, last)) for gap in gaps[axis]]
            widths = [gap.end - gap.begin for gap in inside]
            if widths and max(widths) >= _LEAST:
                found[axis].add(gaps[axis][widths.index(max(widths))])
                break
    if not any(found.values()):
        return None
    across, down = _moved(found["x"]), _moved(found["y"])

    def at(point: Position) -> Position:
        return Position(across(point.x), down(point.y))

    def curve(old: Curve) -> Curve:
        label = at(old.label) if old.label else None
        return replace(old, points=tuple(map(at, old.points)), tip=at(old.tip), label=label)

    return replace(
        layout,
        width=layout.width + _WIDER * len(found["x"]),
        height=layout.height + _WIDER * len(found["y"]),
        nodes={key: at(point) for key, point in layout.nodes.items()},
        clusters={
            key: Box(across(box.left), down(box.top), across(box.right), down(box.bottom))
            for key, box in layout.clusters.items()
        },
        edges={key: curve(old) for key, old in layout.edges.items()},
    )


def _gaps(drawing: Drawing, layout: Layout, axis: _Axis) -> list[_Gap]:
    """Return the gaps without nodes and head lines of clusters."""
    spans: list[tuple[float, float]] = []
    for node in drawing.nodes:
        x, y = layout.nodes[node.key]
        wide, high = geometry.node_size(node)
        spans.append((y - high / 2, y + high / 2) if axis == "y" else (x - wide / 2, x + wide / 2))
    for cluster in drawing.clusters:
        box = layout.clusters[cluster.key]
        wide = geometry.head_size(cluster).width
        spans.append(
            (box.top, box.top + geometry.CLUSTER_HEAD) if axis == "y" else (box.left, min(box.right, box.left + wide))
        )
    found: list[_Gap] = []
    reach: float | None = None
    for begin, end in sorted(spans):
        if reach is not None and begin - reach >= _LEAST:
            kept = min(_KEPT_ROOM, (begin - reach) / 3)
            found.append(_Gap(reach + kept, begin - kept))
        reach = end if reach is None else max(reach, end)
    return found


def _moved(gaps: Iterable[_Gap]) -> Callable[[float], float]:
    """Return a function that maps a coordinate to its place after these gaps are widened."""
    cuts = sorted(gaps)

    def moved(value: float) -> float:
        more = sum(min(1.0, max(0.0, (value - cut.begin) / (cut.end - cut.begin))) for cut in cuts)
        return round(value + _WIDER * more, 1)

    return moved
