"""The geometry of a picture: points, boxes, curves, and a layout made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

Direction: TypeAlias = Literal["TB", "LR"]
Engine: TypeAlias = Literal["dot", "wasi", "simple"]


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


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of a drawing go, by their keys."""

    width: float
    height: float
    nodes: Mapping[str, Position] = field(default_factory=dict)
    """Centres."""
    clusters: Mapping[str, Box] = field(default_factory=dict)
    edges: Mapping[str, Curve] = field(default_factory=dict)
    engine: Engine = "dot"
