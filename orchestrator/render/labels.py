"""Positions of edge labels: next to their lines, without overlaps.

A label has room for the number of times that a run took its edge, so a run moves nothing. Each is tried at several
places along its edge, on and next to the line, nearest to the middle first; the cheapest place is used. Labels without
a free place are tried again before all others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from math import hypot, inf

from orchestrator.render import geometry
from orchestrator.render.drawing import ClusterMark, Drawing, EdgeMark, Level, NodeMark
from orchestrator.render.geometry import Anchor, Box, Curve, Layout, Position, midway, way

_CELL = 48.0
_ROUNDS = 4
"""Rounds in which labels without a free place are tried before the others."""
_PARTS = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18, 0.82, 0.1, 0.9)
"""Positions along an edge where a label is tried."""
_CLEAR, _FURTHER = 1.0, (0.0, 10.0, 20.0)
"""Pixels between a line and a label next to it; further distances, past a count or another line."""
_COVERED, _CROSSED, _HIDDEN = 1_000.0, 8.0, 20.0
"""Costs of covering something; of crossing another line; of covering its arrow's head."""
_LAST = 40.0
"""Cost of a place away from the line."""
_BORDER = 14.0
"""Pixels that a label may extend into the margin at the left and at the top."""
_CROWD = 10.0
"""Pixels around a gap between boxes that contain their counts and durations."""
_DEEP = 5.0
"""Pixels that an edge may reach into its own boxes."""
_MOST_LINES = 400
"""With more edges than this, labels may cover lines of others."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A layout with placed labels."""

    layout: Layout
    covered: int
    """Number of overlapping labels, counts, times and boxes, and of edges that run behind boxes."""
    tight: Sequence[Box] = ()
    """Boxes with too little room, if more room would help."""


def labelled(drawing: Drawing, layout: Layout) -> Labelled:
    """Place the labels of a layout where they cover nothing.

    Args:
        drawing: the drawing that is laid out.
        layout: positions of its parts; room that an engine left for a label is tried first.

    Returns:
        The layout with a place for the label of each edge; it is larger if labels extend beyond it.
    """
    room = _Room(drawing, layout)
    order = sorted(room.labels, key=lambda label: label.freedom)
    best: tuple[int, Mapping[str, Box], set[str]] | None = None
    for _ in range(_ROUNDS):
        places, failed = _placed(order, room)
        if best is None or len(failed) < best[0]:
            best = len(failed), places, failed
        if not failed:
            break
        order.sort(key=lambda label: label.edge.key not in failed)
    covered, found, failed = best or (0, {}, set())
    curves = {
        label.edge.key: replace(layout.edges[label.edge.key], label=_centre(box), anchor=_anchor(label, box))
        for label in room.labels
        if (box := found.get(label.edge.key)) is not None
    }
    return Labelled(
        replace(
            layout,
            width=max([layout.width, *(box.right for box in found.values())]),
            height=max([layout.height, *(box.bottom for box in found.values())]),
            edges={**layout.edges, **curves},
        ),
        covered + room.crowded,
        [*room.tight, *(_around_line(label) for label in room.labels if label.edge.key in failed)],
    )


@dataclass(slots=True)
class _Try:
    """A candidate place for a label."""

    base: float
    """Its own cost."""
    box: Box
    cost: float | None = None
    """Its total cost, without overlaps with other labels."""


class _Label:
    """A label and its candidate places."""

    def __init__(self, edge: EdgeMark, curve: Curve) -> None:
        self.edge, self.curve, self.size = edge, curve, geometry.label_room(edge)
        self.line = way(curve)
        self.steps = [hypot(b.x - a.x, b.y - a.y) for a, b in pairwise(self.line)]
        self.long = sum(self.steps)
        self.found: list[list[_Try]] = []

    @property
    def freedom(self) -> float:
        """Length of its line per pixel of the label."""
        return self.long / (self.size.width + 1)

    def tries(self) -> Iterator[tuple[float, list[_Try]]]:
        """Yield places in groups, each with a lower bound of its costs."""
        for number in range(len(_PARTS) + 2):
            if number == len(self.found):
                found = _first(self) if number == 0 else _beside(self, number - 1)
                if number > len(_PARTS):
                    found = _around(self)
                self.found.append([_Try(base, self.box(x, y)) for base, x, y in found])
            yield (0.0 if number == 0 else _cost(number - 1)), self.found[number]

    def box(self, x: float, y: float) -> Box:
        """Return the label's box around a point."""
        wide, high = self.size.width / 2, self.size.height / 2
        return Box(x - wide, y - high, x + wide, y + high)

    def at(self, part: float) -> tuple[float, float, float, float]:
        """Return a point of the line, and the line's direction there."""
        left = part * self.long
        for number, step in enumerate(self.steps):
            if left <= step and step > 0:
                (x, y), after = self.line[number], self.line[number + 1]
                across, down = after.x - x, after.y - y
                return x + across * left / step, y + down * left / step, across / step, down / step
            left -= step
        last = self.line[-1]
        return last.x, last.y, 0.0, 1.0


def _anchor(label: _Label, box: Box) -> Anchor:
    """Return the side of a label's box that is next to its line."""
    x, y = _centre(box)
    near = min(label.line, key=lambda point: (point.x - x) ** 2 + (point.y - y) ** 2)
    return "start" if near.x <= box.left + 2 else "end" if near.x >= box.right - 2 else "middle"


def _placed(order: list[_Label], room: _Room) -> tuple[dict[str, Box], set[str]]:
    """Place each label at its cheapest place, in this order; return also those that cover something there."""
    taken = _Grid()
    places: dict[str, Box] = {}
    failed: set[str] = set()
    for label in order:
        least, chosen = inf, label.box(*label.line[0])
        for floor, tries in label.tries():
            if floor >= least:
                break
            for one in tries:
                if one.base >= least:
                    continue
                if one.cost is None:
                    one.cost = one.base + room.cost(label, one.box)
                if one.cost < least and (cost := one.cost + _COVERED * len(taken.met(one.box))) < least:
                    least, chosen = cost, one.box
        if least >= _COVERED:
            failed.add(label.edge.key)
        places[label.edge.key] = chosen
        taken.add(chosen)
    return places, failed


def _cost(rank: int) -> float:
    """Return the cost of the part of a line with this rank."""
    return 0.5 + rank * 0.6


def _first(label: _Label) -> Iterator[tuple[float, float, float]]:
    """Yield the place where the engine left room, or the middle, with its cost."""
    curve, size, named = label.curve, label.size, bool(label.edge.label)
    if curve.label is not None:
        x, y = curve.label
        x += (size.width - geometry.label_size(label.edge).width) / 2 if named else 0.0
        wide, high = size.width / 2, size.height / 2
        away = min(max(abs(point.x - x) - wide, abs(point.y - y) - high) for point in label.line)
        yield max(0.0, away - 12.0) / 4, x, y
    elif not named:
        middle = midway(curve.points)
        yield 0.0, middle.x, middle.y


def _beside(label: _Label, rank: int) -> Iterator[tuple[float, float, float]]:
    """Yield places on the line and next to it, at its part of that rank, with their own costs."""
    size, named = label.size, bool(label.edge.label)
    x, y, across, down = label.at(_PARTS[rank])
    cost = _cost(rank)
    hidden = min(size.width / max(abs(across), 0.01), size.height / max(abs(down), 0.01))
    yield cost + hidden / 12 + (1.0 if named else 0.0), x, y
    away = abs(down) * size.width / 2 + abs(across) * size.height / 2 + _CLEAR
    right, below = abs(down), -across if down >= 0 else across
    cost += 0.0 if named else 1.0
    for further in _FURTHER:
        more = away + further
        yield cost + further / 4, x + right * more, y + below * more
        yield cost + further / 4 + 0.2, x - right * more, y - below * more


def _around(label: _Label) -> Iterator[tuple[float, float, float]]:
    """Yield places around the middle of an edge that is too short for its label."""
    x, y, _, _ = label.at(0.5)
    wide = label.size.width / 2
    for away in (26.0, 40.0, 54.0, 68.0):
        for right in (0.0, wide + 6, -wide - 6, wide + 24, -wide - 24):
            yield _LAST + (away + abs(right)) / 4, x + right, y - away
            yield _LAST + (away + abs(right)) / 4 + 0.2, x + right, y + away


class _Room:
    """Boxes and lines that labels must not cover."""

    def __init__(self, drawing: Drawing, layout: Layout) -> None:
        self.boxes, self.solid = _Grid(), _Grid()
        """Everything that a label must not cover; the subset that a count or duration must not cover."""
        self.clusters = layout.clusters
        self.inside: dict[str, frozenset[str]] = {}
        """Level -> the clusters that contain it, and itself."""
        for cluster in drawing.clusters:
            around = cluster.node.cluster
            self.inside[cluster.key] = frozenset({cluster.key}) | self.inside.get(around or "", frozenset())
            for box in _frame(_with_behind(cluster.node, layout.clusters[cluster.key])):
                self.boxes.add(box)
            self._add(_head(cluster, layout.clusters[cluster.key]))
        self.tight: list[Box] = []
        """Boxes between the centres of two boxes that are too close."""
        self.crowded = 0
        """Number of overlapping boxes, counts and times, and of edges that run behind boxes."""
        for node in drawing.nodes:
            box = _with_behind(node, _box_of(node, layout.nodes[node.key]))
            for other in self.solid.met(box):
                self.crowded += 1
                self.tight.append(_between(box, other))
            self._add(box)
        for node in drawing.nodes:
            if not node.terminal:
                box = _box_of(node, layout.nodes[node.key])
                self._mark(node, box, 16.0 if node.look == "human" else 3.0)
        self.crowded += sum(_crowded(level, layout) for level in drawing.levels().values())
        for cluster in drawing.clusters:
            self._mark(cluster.node, layout.clusters[cluster.key], 14.0)
        self.levels = {edge.key: drawing.by_key[edge.source].cluster for edge in drawing.edges}
        self.labels = [_Label(edge, layout.edges[edge.key]) for edge in drawing.edges if edge.key in layout.edges]
        self.lines: dict[tuple[int, int], list[tuple[str, Position]]] = defaultdict(list)
        for label in self.labels if len(self.labels) <= _MOST_LINES else ():
            for point in label.line:
                self.lines[int(point.x // _CELL), int(point.y // _CELL)].append((label.edge.key, point))

        self.crowded += self._behind(drawing, layout)

    def _behind(self, drawing: Drawing, layout: Layout) -> int:
        """Count the edges that run behind boxes other than their own."""
        if not self.lines:
            return 0
        boxes = {node.key: _with_behind(node, _box_of(node, layout.nodes[node.key])) for node in drawing.nodes}
        boxes |= {mark.key: _with_behind(mark.node, layout.clusters[mark.key]) for mark in drawing.clusters}
        found: set[tuple[str, str]] = set()
        ends = {label.edge.key: (label.edge.source, label.edge.target) for label in self.labels}
        for key, box in boxes.items():
            inner = Box(box.left + 1, box.top + 1, box.right - 1, box.bottom - 1)
            for cell in _cells(inner):
                for edge, (x, y) in self.lines.get(cell, ()):
                    if not (inner.left < x < inner.right and inner.top < y < inner.bottom):
                        continue
                    own = key in ends[edge]
                    if key in layout.clusters:
                        own = own or key in self.inside.get(self.levels[edge] or "", ())
                    deep = min(x - box.left, box.right - x, y - box.top, box.bottom - y) > _DEEP
                    if not own or (deep and key not in layout.clusters):
                        found.add((edge, key))
        return len(found)

    def _mark(self, node: NodeMark, box: Box, inset: float) -> None:
        marks = [*_of_marks(node, box, inset)]
        own = _with_behind(node, box)
        for mark in marks:
            for other in self.solid.met(mark, own):
                self.crowded += 1
                self.tight.append(_between(box, other))
        for mark in marks:
            self._add(mark)

    def _add(self, box: Box) -> None:
        self.boxes.add(box)
        self.solid.add(box)

    def cost(self, label: _Label, box: Box) -> float:
        """Return the cost of a label in this place."""
        edge, tip = label.edge, label.curve.tip
        level = self.levels[edge.key]
        cost = _COVERED * len(self.boxes.met(box))
        own = self.inside.get(level or "", frozenset())
        for key, frame in self.clusters.items():
            if key in own:
                cost += 0.0 if _holds(frame, box) else _COVERED
            elif _meet(frame, box):
                cost += _COVERED
        if box.left < -_BORDER or box.top < -_BORDER:
            cost += _COVERED
        if box.left < tip.x < box.right and box.top < tip.y < box.bottom:
            cost += _HIDDEN
        rivals = {
            key
            for cell in _cells(box)
            for key, point in self.lines.get(cell, ())
            if key != edge.key and box.left < point.x < box.right and box.top < point.y < box.bottom
        }
        return cost + _CROSSED * len(rivals)


class _Grid:
    """Index of boxes by position."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], list[Box]] = defaultdict(list)

    def add(self, box: Box) -> None:
        for cell in _cells(box):
            self.cells[cell].append(box)

    def met(self, box: Box, own: Box | None = None) -> set[Box]:
        """Return the boxes that a box covers, except its own."""
        found = {other for cell in _cells(box) for other in self.cells.get(cell, ()) if _meet(box, other)}
        return found - {own}


def _cells(box: Box) -> Iterator[tuple[int, int]]:
    for x in range(int(box.left // _CELL), int(box.right // _CELL) + 1):
        for y in range(int(box.top // _CELL), int(box.bottom // _CELL) + 1):
            yield x, y


def _box_of(node: NodeMark, at: Position) -> Box:
    wide, high = geometry.node_size(node)
    return Box(at.x - wide / 2, at.y - high / 2, at.x + wide / 2, at.y + high / 2)


def _with_behind(node: NodeMark, box: Box) -> Box:
    """Return a node's box and, if it runs once per item, its second box."""
    more = geometry.BEHIND if node.per_item else 0.0
    return Box(box.left, box.top, box.right + more, box.bottom + more)


def _crowded(level: Level, layout: Layout) -> int:
    """Count the boxes of a level that overlap one of its clusters."""
    clusters = {mark.key: _with_behind(mark.node, layout.clusters[mark.key]) for mark in level.clusters}
    boxes = [_with_behind(node, _box_of(node, layout.nodes[node.key])) for node in level.nodes if clusters]
    pairs = combinations(clusters.values(), 2)
    return sum(_meet(*pair) for pair in (*product(clusters.values(), boxes), *pairs))


def _head(cluster: ClusterMark, box: Box) -> Box:
    """Return the box of a cluster's icon and texts."""
    right = box.left + geometry.head_size(cluster).width - 40
    return Box(box.left, box.top + 9, right, box.top + geometry.CLUSTER_HEAD + 4)


def _frame(box: Box) -> Iterator[Box]:
    """Yield the borders of a cluster."""
    yield Box(box.left - 2, box.top, box.left + 2, box.bottom)
    yield Box(box.right - 2, box.top, box.right + 2, box.bottom)
    yield Box(box.left, box.top - 2, box.right, box.top + 2)
    yield Box(box.left, box.bottom - 2, box.right, box.bottom + 2)


def _of_marks(node: NodeMark, box: Box, inset: float) -> Iterator[Box]:
    x, high = box.right - inset, geometry.COUNT_HEIGHT / 2
    wide = geometry.ITEMS_WIDTH if node.per_item else geometry.COUNT_WIDTH
    left = x - geometry.BADGE - wide - 3
    yield Box(x - geometry.BADGE, box.top - geometry.BADGE, x + geometry.BADGE, box.top + geometry.BADGE)
    yield Box(left, box.top - high, left + wide, box.top + high)
    base = box.bottom + (16 if node.per_item else 12)
    yield Box(x - 6 - geometry.took_width(), base - 8, x - 6, base + 3)


def _between(one: Box, other: Box) -> Box:
    """Return the space between two boxes: between borders, or between centres if they are side by side."""
    left, right = _gap((one.left, one.right), (other.left, other.right))
    top, bottom = _gap((one.top, one.bottom), (other.top, other.bottom))
    return Box(left, top, right, bottom)


def _gap(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    first, second = sorted((one, other))
    if first[1] <= second[0]:
        return first[1] - _CROWD, second[0] + _CROWD
    middle, following = sorted((sum(one) / 2, sum(other) / 2))
    return middle, following


def _around_line(label: _Label) -> Box:
    """Return the bounding box of an edge."""
    across, down = [point.x for point in label.line], [point.y for point in label.line]
    return Box(min(across), min(down), max(across), max(down))


def _meet(one: Box, other: Box) -> bool:
    return one.left < other.right and other.left < one.right and one.top < other.bottom and other.top < one.bottom


def _holds(one: Box, other: Box) -> bool:
    return one.left <= other.left and one.top <= other.top and one.right >= other.right and one.bottom >= other.bottom


def _centre(box: Box) -> Position:
    return Position(round((box.left + box.right) / 2, 1), round((box.top + box.bottom) / 2, 1))
