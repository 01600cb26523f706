"""A layout without Graphviz: ranks down the page, each ordered by the positions of its neighbours.

Its time is linear in the size of the graph, so it is used if Graphviz takes too long. Edges that skip ranks run in
tracks next to all nodes: forward edges at the left, backward edges at the right.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from orchestrator.render import geometry
from orchestrator.render.drawing import Drawing, Level, ranks
from orchestrator.render.geometry import Box, Curve, Direction, Layout, Position, Size, midway

_GAP, _RANK_GAP, _EDGE_ROOM, _SWEEPS = 30.0, 56.0, 34.0, 4
_ARROW, _BEND = 7.0, 22.0
_TRACK_FIRST, _TRACK, _TRACKS = 26.0, 9.0, 40
"""Pixels from the nodes to the first track, and between tracks; maximum number of tracks on a side."""


@dataclass(slots=True)
class _Placed:
    """A level laid out with its upper left corner at the origin."""

    size: Size
    boxes: dict[str, Box] = field(default_factory=dict)
    """Boxes of nodes and clusters, at any depth."""
    curves: dict[str, Curve] = field(default_factory=dict)
    row: dict[str, int] = field(default_factory=dict)
    """The row of each box of this level."""


def layered(drawing: Drawing, direction: Direction = "TB", widest: float = inf, spread: float = 1.0) -> Layout:
    """Lay out a drawing in ranks, which are broken into several rows at `widest` pixels.

    Args:
        drawing: the drawing.
        direction: down the page or to the right.
        widest: width of a row in pixels.
        spread: factor for the gaps between ranks.
    """
    turned = direction == "LR"
    levels = drawing.levels()
    done: dict[str | None, _Placed] = {}
    for cluster in (*(mark.key for mark in reversed(drawing.clusters)), None):
        done[cluster] = _place(levels[cluster], done, turned, widest, spread)
    found = done[None]

    def at(point: Position) -> Position:
        return Position(point.y, point.x) if turned else point

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


def _place(level: Level, done: Mapping[str | None, _Placed], turned: bool, widest: float, spread: float) -> _Placed:
    """Put one level's boxes into ranks, and finished layouts into the boxes of its clusters."""
    room: dict[str, Size] = {}
    for node in level.nodes:
        width, height = geometry.node_size(node)
        room[node.key] = Size(height, width) if turned else Size(width, height)
    gap, head = geometry.CLUSTER_GAP, geometry.CLUSTER_HEAD
    shift = Position(gap + head, gap) if turned else Position(gap, gap + head)
    for cluster in level.clusters:
        inner = done[cluster.key].size
        width, height = inner.width + shift.x + gap, inner.height + shift.y + gap
        least = geometry.head_size(cluster).width
        room[cluster.key] = Size(width, max(height, least)) if turned else Size(max(width, least), height)
    # To the right, labels are between the ranks.
    labels = [geometry.label_size(edge).width + 12 for edge in level.edges] if turned else []
    placed = _rows(_broken(_ranks(list(room), level), room, widest), room, max(_RANK_GAP * spread, *labels, 0.0))
    for cluster in level.clusters:
        corner = placed.boxes[cluster.key]
        inner_boxes, x, y = done[cluster.key], corner.left + shift.x, corner.top + shift.y
        for key, box in inner_boxes.boxes.items():
            placed.boxes[key] = Box(box.left + x, box.top + y, box.right + x, box.bottom + y)
        for key, curve in inner_boxes.curves.items():
            placed.curves[key] = _moved(curve, x, y)
    return _with_edges(placed, level)


def _with_edges(placed: _Placed, level: Level) -> _Placed:
    """Draw a level's edges: short ones straight, the others in tracks, further out for each parallel edge."""
    sides: dict[bool, list[tuple[float, float, str]]] = {False: [], True: []}
    boxes = {edge.key: (placed.boxes[edge.source], placed.boxes[edge.target]) for edge in level.edges}
    for edge in level.edges:
        source, target = boxes[edge.key]
        if target.top >= source.bottom and placed.row[edge.target] - placed.row[edge.source] == 1:
            placed.curves[edge.key] = _straight(source, target)
        else:
            back = target.top < source.bottom
            ends = sorted((source.bottom, target.top)) if not back else sorted((_centre(source).y, _centre(target).y))
            sides[back].append((ends[0], ends[1], edge.key))
    left = 0.0
    right = placed.size.width
    for back, spans in sides.items():
        for track, (_, _, key) in _tracks(spans):
            away = _TRACK_FIRST + _TRACK * track
            curve = _back(*boxes[key], right, away) if back else _ahead(*boxes[key], -away)
            placed.curves[key] = curve
            left = min(left, *(point.x for point in curve.points))
    widest = max([right, *(point.x for curve in placed.curves.values() for point in curve.points)])
    if left < 0:
        left -= _TRACK
        placed.boxes = {k: Box(b.left - left, b.top, b.right - left, b.bottom) for k, b in placed.boxes.items()}
        placed.curves = {key: _moved(curve, -left, 0) for key, curve in placed.curves.items()}
    placed.size = Size(widest - left, placed.size.height)
    return placed


def _tracks(spans: list[tuple[float, float, str]]) -> Iterator[tuple[int, tuple[float, float, str]]]:
    """Yield each span with the first free track; short spans first, so that they stay near."""
    free: list[list[tuple[float, float]]] = []
    for span in sorted(spans, key=lambda span: (span[1] - span[0], span)):
        begin, end, _ = span
        track = next((track for track, taken in enumerate(free) if _fits(begin, end, taken)), len(free))
        if track >= _TRACKS:  # tracks may be shared in such a crowded drawing
            track = int(begin + end) % _TRACKS
        if track == len(free):
            free.append([])
        insort(free[track], (begin, end))
        yield track, span


def _fits(begin: float, end: float, taken: list[tuple[float, float]]) -> bool:
    place = bisect_left(taken, (begin, end))
    return (place == 0 or taken[place - 1][1] < begin) and (place == len(taken) or end < taken[place][0])


def _ranks(keys: list[str], level: Level) -> list[list[str]]:
    """Return ranks by longest paths from the roots, without edges that close cycles; each ordered by neighbours."""
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


def _broken(rows: list[list[str]], room: Mapping[str, Size], widest: float) -> list[list[str]]:
    """Break rows that are wider than the maximum; a row of a single box may be wider."""
    found: list[list[str]] = []
    for row in rows:
        begun, width = False, 0.0
        for key in row:
            width += _GAP + room[key].width
            if not begun or width > widest:
                found.append([])
                begun, width = True, room[key].width
            found[-1].append(key)
    return found


def _rows(rows: list[list[str]], room: Mapping[str, Size], gap: float) -> _Placed:
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
        top += height + gap
    numbers = {key: number for number, keys in enumerate(rows) for key in keys}
    return _Placed(Size(width, max(0.0, top - gap)), boxes, row=numbers)


def _straight(source: Box, target: Box) -> Curve:
    """Route an edge down from box to box."""
    start, tip = Position(_centre(source).x, source.bottom), Position(_centre(target).x, target.top)
    base = Position(tip.x, tip.y - _ARROW)
    bend = (base.y - start.y) / 2
    points = (start, Position(start.x, start.y + bend), Position(base.x, base.y - bend), base)
    return Curve(points, tip, midway(points))


def _ahead(source: Box, target: Box, x: float) -> Curve:
    """Route an edge down to a track at the left, along it, and into the target from above."""
    start, tip = Position(_centre(source).x - 8, source.bottom), Position(_centre(target).x - 8, target.top)
    base = Position(tip.x, tip.y - _ARROW)
    upper, lower = Position(x, start.y + _BEND), Position(x, base.y - _BEND)
    points = (
        *(start, Position(start.x, upper.y), Position(x, start.y), upper),
        *(upper, lower, lower),
        *(Position(x, base.y), Position(base.x, lower.y), base),
    )
    return Curve(points, tip, Position(x, (upper.y + lower.y) / 2))


def _back(source: Box, target: Box, right: float, away: float) -> Curve:
    """Route an edge to a track at the right and back up, or around to its own node."""
    nudge = 5.0 if source == target else 0.0
    start = Position(source.right, _centre(source).y - nudge)
    tip = Position(target.right, _centre(target).y + nudge)
    base = Position(tip.x + _ARROW, tip.y)
    if source == target:
        out = source.right + _EDGE_ROOM
        points: tuple[Position, ...] = (start, Position(out, start.y), Position(out, base.y), base)
        return Curve(points, tip, midway(points))
    out = right + away
    bend = min(_BEND, abs(start.y - base.y) / 2)
    lower, upper = Position(out, start.y - bend), Position(out, base.y + bend)
    points = (
        *(start, Position(out - bend / 2, start.y), Position(out, start.y), lower),
        *(lower, upper, upper),
        *(Position(out, base.y), Position(out - bend / 2, base.y), base),
    )
    return Curve(points, tip, Position(out, (upper.y + lower.y) / 2))


def _moved(curve: Curve, x: float, y: float) -> Curve:
    def at(point: Position) -> Position:
        return Position(point.x + x, point.y + y)

    return Curve(tuple(map(at, curve.points)), at(curve.tip), at(curve.label) if curve.label else None)


def _centre(box: Box) -> Position:
    return Position((box.left + box.right) / 2, (box.top + box.bottom) / 2)
