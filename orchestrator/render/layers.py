"""A layout without Graphviz: ranks down the page, each ordered by where its neighbours are.

Linear in the size of the graph, so it is what a graph gets that Graphviz cannot lay out in time. Edges that skip
ranks may pass behind nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.render import sizes
from orchestrator.render.drawing import Drawing, Level
from orchestrator.render.layout import Box, Curve, Direction, Layout, Point
from orchestrator.render.order import ranks
from orchestrator.render.sizes import Size

_GAP, _RANK_GAP, _EDGE_ROOM, _SWEEPS = 30.0, 56.0, 34.0, 4
_ARROW = 7.0


@dataclass(slots=True)
class _Placed:
    """A level laid out with its upper left corner at the origin."""

    size: Size
    boxes: dict[str, Box] = field(default_factory=dict)
    """Nodes' and clusters' boxes, at any depth."""
    curves: dict[str, Curve] = field(default_factory=dict)


def layered(drawing: Drawing, direction: Direction = "TB") -> Layout:
    """Lays out a drawing in ranks."""
    turned = direction == "LR"
    levels = drawing.levels()
    done: dict[str | None, _Placed] = {}
    for cluster in (*(mark.key for mark in reversed(drawing.clusters)), None):
        done[cluster] = _place(levels[cluster], done, turned)
    found = done[None]

    def at(point: Point) -> Point:
        return Point(point.y, point.x) if turned else point

    nodes = {node.key: at(_centre(found.boxes[node.key])) for node in drawing.nodes}
    boxes = {mark.key: found.boxes[mark.key] for mark in drawing.clusters}
    clusters = {key: Box(b.top, b.left, b.bottom, b.right) if turned else b for key, b in boxes.items()}
    edges = {
        key: Curve(tuple(map(at, curve.points)), at(curve.tip), at(curve.label) if curve.label else None)
        for key, curve in found.curves.items()
    }
    width, height = found.size
    if turned:
        width, height = height, width
    return Layout(width, height, nodes, clusters, edges, "simple")


def _place(level: Level, done: Mapping[str | None, _Placed], turned: bool) -> _Placed:
    """Puts one level's boxes into ranks, and what was laid out before into its clusters' boxes."""
    room: dict[str, Size] = {}
    for node in level.nodes:
        width, height = sizes.node_size(node)
        room[node.key] = Size(height, width) if turned else Size(width, height)
    gap, head = sizes.CLUSTER_GAP, sizes.CLUSTER_HEAD
    shift = Point(gap + head, gap) if turned else Point(gap, gap + head)
    for cluster in level.clusters:
        inner = done[cluster.key].size
        width, height = inner.width + shift.x + gap, inner.height + shift.y + gap
        least = sizes.head_size(cluster).width
        room[cluster.key] = Size(width, max(height, least)) if turned else Size(max(width, least), height)
    ranks = _ranks(list(room), level)
    placed = _rows(ranks, room)
    for cluster in level.clusters:
        corner = placed.boxes[cluster.key]
        inner_boxes, x, y = done[cluster.key], corner.left + shift.x, corner.top + shift.y
        for key, box in inner_boxes.boxes.items():
            placed.boxes[key] = Box(box.left + x, box.top + y, box.right + x, box.bottom + y)
        for key, curve in inner_boxes.curves.items():
            placed.curves[key] = _moved(curve, x, y)
    right = placed.size.width
    for number, edge in enumerate(level.edges):
        curve = _curve(placed.boxes[edge.source], placed.boxes[edge.target], number)
        placed.curves[edge.key] = curve
        right = max(right, *(point.x for point in curve.points))
    placed.size = Size(right, placed.size.height)
    return placed


def _ranks(keys: list[str], level: Level) -> list[list[str]]:
    """Longest ways from the roots, with the edges that close circles left out; then ordered by neighbours."""
    rank = ranks(level)
    before: dict[str, list[str]] = {key: [] for key in rank}
    for edge in level.edges:
        if rank[edge.source] < rank[edge.target]:
            before[edge.target].append(edge.source)
    rows: list[list[str]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for key in keys:
        rows[rank[key]].append(key)
    for _ in range(_SWEEPS):
        place = {key: index for row in rows for index, key in enumerate(row)}
        for row in rows[1:]:
            mean = {key: sum(place[k] for k in before[key]) / len(before[key]) for key in row if before[key]}
            row.sort(key=lambda key: (mean.get(key, place[key]), place[key]))
            place.update((key, index) for index, key in enumerate(row))
    return rows


def _rows(rows: list[list[str]], room: Mapping[str, Size]) -> _Placed:
    widths = [sum(room[key].width for key in row) + _GAP * (len(row) - 1) for row in rows]
    width = max(widths, default=0.0)
    boxes: dict[str, Box] = {}
    top = 0.0
    for row, row_width in zip(rows, widths, strict=True):
        left, height = (width - row_width) / 2, max(room[key].height for key in row)
        for key in row:
            size = room[key]
            y = top + (height - size.height) / 2
            boxes[key] = Box(left, y, left + size.width, y + size.height)
            left += size.width + _GAP
        top += height + _RANK_GAP
    return _Placed(Size(width, max(0.0, top - _RANK_GAP)), boxes)


def _curve(source: Box, target: Box, number: int) -> Curve:
    """Down from box to box; back up, or round to itself, on the right."""
    if target.top >= source.bottom:
        start, tip = Point(_centre(source).x, source.bottom), Point(_centre(target).x, target.top)
        base = Point(tip.x, tip.y - _ARROW)
        bend = (base.y - start.y) / 2
        points = (start, Point(start.x, start.y + bend), Point(base.x, base.y - bend), base)
    else:
        nudge = 5.0 if source == target else 0.0
        start = Point(source.right, _centre(source).y - nudge)
        tip = Point(target.right, _centre(target).y + nudge)
        base = Point(tip.x + _ARROW, tip.y)
        out = max(source.right, target.right) + _EDGE_ROOM + 8 * (number % 5)
        points = (start, Point(out, start.y), Point(out, base.y), base)
    return Curve(points, tip, midway(points))


def midway(points: tuple[Point, ...]) -> Point:
    """The middle of the middle one of a way's Bézier curves."""
    curves = max(1, (len(points) - 1) // 3)
    chosen = points[3 * (curves // 2) : 3 * (curves // 2) + 4]
    if len(chosen) < 4:
        return points[len(points) // 2]
    a, b, c, d = chosen
    # de Casteljau at one half; with an even number of curves their common point
    if curves % 2 == 0:
        return a
    return Point((a.x + 3 * b.x + 3 * c.x + d.x) / 8, (a.y + 3 * b.y + 3 * c.y + d.y) / 8)


def _moved(curve: Curve, x: float, y: float) -> Curve:
    def at(point: Point) -> Point:
        return Point(point.x + x, point.y + y)

    return Curve(tuple(map(at, curve.points)), at(curve.tip), at(curve.label) if curve.label else None)


def _centre(box: Box) -> Point:
    return Point((box.left + box.right) / 2, (box.top + box.bottom) / 2)
