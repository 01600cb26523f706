"""The geometry of a picture: points, boxes, curves, a layout made of them, and sizes of drawn things in pixels.

Widths of text are estimated generously.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from orchestrator.render.drawing import ClusterMark, EdgeMark, NodeMark
from orchestrator.render.overlaid import SAID, WORDS
from orchestrator.views.safe_text import cut

Direction: TypeAlias = Literal["TB", "LR"]
Engine: TypeAlias = Literal["dot", "wasi", "simple"]
Anchor: TypeAlias = Literal["start", "middle", "end"]

_STEP, _FEWEST, _MOST = 7.0, 6, 80
"""Pixels between points of a path; fewest and most points in a curve."""


class Position(NamedTuple):
    """Pixels to the right of and below the picture's upper left corner."""

    x: float
    y: float


class Box(NamedTuple):
    """A rectangle by its corners."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve of an edge."""

    points: tuple[Position, ...]
    """A start, then three points for each cubic Bézier curve; the last point is the arrow's base."""
    tip: Position
    label: Position | None = None
    """Centre of the label's box."""
    anchor: Anchor = "middle"
    """Side of the box to which the label is aligned: the one next to the line."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of the parts of a drawing, by their keys."""

    width: float
    height: float
    nodes: Mapping[str, Position] = field(default_factory=dict)
    """Centres."""
    clusters: Mapping[str, Box] = field(default_factory=dict)
    edges: Mapping[str, Curve] = field(default_factory=dict)
    engine: Engine = "dot"


def midway(points: tuple[Position, ...]) -> Position:
    """Return the middle of the middle Bézier curve of a path."""
    curves = max(1, (len(points) - 1) // 3)
    chosen = points[3 * (curves // 2) : 3 * (curves // 2) + 4]
    if len(chosen) < 4:
        return points[len(points) // 2]
    a, b, c, d = chosen
    # de Casteljau at one half; for an even number of curves, their common point
    if curves % 2 == 0:
        return a
    return Position((a.x + 3 * b.x + 3 * c.x + d.x) / 8, (a.y + 3 * b.y + 3 * c.y + d.y) / 8)


def way(curve: Curve) -> list[Position]:
    """Return points along an edge, from its start to its tip."""
    points = curve.points
    found = [points[0]]
    for first in range(0, len(points) - 3, 3):
        a, b, c, d = points[first : first + 4]
        long = abs(b.x - a.x) + abs(b.y - a.y) + abs(c.x - b.x) + abs(c.y - b.y) + abs(d.x - c.x) + abs(d.y - c.y)
        steps = min(_MOST, max(_FEWEST, int(long / _STEP)))
        for step in range(1, steps + 1):
            t = step / steps
            s = 1 - t
            p, q, r, u = s * s * s, 3 * t * s * s, 3 * t * t * s, t * t * t
            found.append(Position(p * a.x + q * b.x + r * c.x + u * d.x, p * a.y + q * b.y + r * c.y + u * d.y))
    found.append(curve.tip)
    return found


NAME_SIZE, DETAIL_SIZE, LABEL_SIZE, PILL_SIZE = 13.0, 11.0, 11.0, 10.5
LONGEST_NAME, LONGEST_DETAIL, LONGEST_LABEL = 40, 44, 48
LONGEST_ASKED = "asked 99, passed 99"
"""Longest text for the number of times that a node asked."""
CARD_HEIGHT, ICON_ROOM, CARD_END = 46.0, 48.0, 16.0
"""Height of a node; space to the left and to the right of its texts."""
PILL_HEIGHT, DOT = 26.0, 14.0
"""Heights of a terminal at the top, and inside a subgraph."""
CLUSTER_HEAD, CLUSTER_GAP = 26.0, 16.0
LABEL_HEIGHT, COUNT_ROOM = 16.0, 26.0
"""Height of an edge's label, and the space in it for the number of times that the edge was taken."""
LABEL_INSET, BEHIND = 4.0, 5.0
"""Pixels from a line to a label next to it; offset of the second box of a node that runs once per item."""
COUNT_WIDTH, ITEMS_WIDTH, COUNT_HEIGHT, BADGE = 44.0, 66.0, 15.0, 9.0
"""Sizes of a node's count, of a count of items, and of its badge (the radius)."""
_LONGEST_TIMES, _LONGEST_TOOK = "×9999", "99 days"
_SPARE = 8.0
"""Pixels of `CARD_END` that a bold name may use."""
_BOLD = 1.1
"""Ratio of the width of the widest font in bold to `text_width`."""


class Size(NamedTuple):
    """Width and height."""

    width: float
    height: float


def text_width(text: str, size: float) -> float:
    """Estimate the width of a sans-serif text; wide fonts such as DejaVu Sans still fit."""
    return size * sum(map(_em, text))


def node_size(node: NodeMark) -> Size:
    """Return the size of a node or terminal."""
    if node.terminal:
        if node.cluster is not None and node.look != "any":
            return Size(DOT, DOT)
        return Size(text_width(node_name(node), PILL_SIZE) + 30, PILL_HEIGHT)
    counts = LONGEST_ASKED if node.asks is not None else ""
    texts = max(
        text_width(node_name(node), NAME_SIZE),
        *(text_width(text, DETAIL_SIZE) for text in (node_detail(node), counts)),
    )
    # Names are bold, and wider in some fonts, so their ends may be closer to the border than other texts.
    texts = max(texts, text_width(node_name(node), NAME_SIZE) * _BOLD - _SPARE)
    slant = 12.0 if node.look == "human" else 0.0  # a card with pointed ends
    return Size(max(124.0, ICON_ROOM + texts + CARD_END) + 2 * slant, CARD_HEIGHT)


def label_size(edge: EdgeMark) -> Size:
    """Return the size of an edge's label; zero without a label."""
    if not edge.label:
        return Size(0, 0)
    return Size(text_width(edge_label(edge), LABEL_SIZE) + COUNT_ROOM, LABEL_HEIGHT)


def label_room(edge: EdgeMark) -> Size:
    """Return the largest size of an edge's label, with the number of times that a run took the edge."""
    times = text_width(_LONGEST_TIMES, LABEL_SIZE) * _BOLD
    label = text_width(f"{edge_label(edge)} ", LABEL_SIZE) if edge.label else 0.0
    return Size(label + times + 2 * LABEL_INSET, LABEL_HEIGHT - 2)


def took_width() -> float:
    """Return the width of the longest text of a node's duration."""
    return text_width(_LONGEST_TOOK, 10.0)


def head_size(cluster: ClusterMark) -> Size:
    """Return the size of a cluster's head line."""
    name, graph = head_texts(cluster)
    width = text_width(name, NAME_SIZE) + text_width(graph, DETAIL_SIZE) + ICON_ROOM + 40
    return Size(width, CLUSTER_HEAD)


def node_name(node: NodeMark) -> str:
    """Return a node's name as drawn."""
    return "any node" if node.look == "any" else cut(node.name, LONGEST_NAME)


def node_detail(node: NodeMark) -> str:
    """Return a node's small line as drawn."""
    return cut(node.detail, LONGEST_DETAIL)


def node_line(node: NodeMark) -> str:
    """Return a node's small line in a run: the number of times it asked, if different from the count, else its work."""
    return node.asked or node_detail(node)


def node_remarks(node: NodeMark) -> str:
    """Return the words after a node's kind in pictures without symbols.

    Args:
        node: the node.

    Returns:
        `per item`, its state and its time, if they apply, each with a separator before it.
    """
    states = [WORDS.get(state, state) for state in SAID if state in node.states]
    said = (*(["per item"] if node.per_item else ()), *states[:1], node.mark.texts.get("took", ""))
    return "".join(f" · {word}" for word in said if word)


def edge_label(edge: EdgeMark) -> str:
    """Return an edge's label as drawn."""
    return cut(edge.label, LONGEST_LABEL)


def head_texts(cluster: ClusterMark) -> tuple[str, str]:
    """Return a cluster's name and small text as drawn."""
    return cut(cluster.node.name, LONGEST_NAME), cut(cluster.node.detail, LONGEST_DETAIL)


def _em(char: str) -> float:
    if char.isascii():
        if char in "iljtfrI.,:;'|!()[] -":
            return 0.37
        if char in "mwMW@%":
            return 0.94
        return 0.72 if char.isupper() else 0.61
    if unicodedata.combining(char) or char in "\u200c\u200d\ufe0f":
        return 0.0
    return 1.15 if unicodedata.east_asian_width(char) in "WF" else 0.72
