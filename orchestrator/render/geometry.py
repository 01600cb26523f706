"""The geometry of a picture: points, boxes, curves, and a layout made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

Direction: TypeAlias = Literal["TB", "LR"]
Engine: TypeAlias = Literal["dot", "wasi", "simple"]
Anchor: TypeAlias = Literal["start", "middle", "end"]

_STEP, _FEWEST, _MOST = 7.0, 6, 80
"""Pixels from point to point of a way; fewest and most of them in a curve."""


class Position(NamedTuple):
    """Pixels right of and below the picture's upper left corner."""

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
    """The way of an edge."""

    points: tuple[Position, ...]
    """A start, then three points for each cubic Bézier curve; the last point is the arrow's base."""
    tip: Position
    label: Position | None = None
    """The middle of the label's room."""
    anchor: Anchor = "middle"
    """Side of its room at which the label stands: the one next to the line."""


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
    """The middle of the middle one of a way's Bézier curves."""
    curves = max(1, (len(points) - 1) // 3)
    chosen = points[3 * (curves // 2) : 3 * (curves // 2) + 4]
    if len(chosen) < 4:
        return points[len(points) // 2]
    a, b, c, d = chosen
    # de Casteljau at one half; with an even number of curves their common point
    if curves % 2 == 0:
        return a
    return Position((a.x + 3 * b.x + 3 * c.x + d.x) / 8, (a.y + 3 * b.y + 3 * c.y + d.y) / 8)


def way(curve: Curve) -> list[Position]:
    """Points along an edge, from its start to its tip."""
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
