"""More room where a picture is too tight: it is cut along a line that crosses no box, and its halves drawn apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from orchestrator.render import sizes
from orchestrator.render.drawing import Drawing
from orchestrator.render.geometry import Box, Curve, Direction, Layout, Position

_Axis: TypeAlias = Literal["x", "y"]
_WIDER = 16.0
"""Pixels by which a gap becomes wider."""
_KEPT, _LEAST = 8.0, 6.0
"""Pixels at both ends of a gap that keep their shape, since heads of arrows are there; the least gap that is cut."""


class _Gap(NamedTuple):
    """A gap between boxes that becomes wider."""

    begin: float
    end: float


def opened(drawing: Drawing, layout: Layout, tight: Iterable[Box], direction: Direction) -> Layout | None:
    """Makes gaps between boxes wider.

    Args:
        drawing: what is laid out.
        layout: where its parts go.
        tight: the places that need room: each gets it from the widest gap in it.
        direction: down the page or to the right; gaps between ranks are preferred.

    Returns:
        The wider layout; None where there is no gap.
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
    """The gaps that no node, and no head line of a cluster, reaches into."""
    spans: list[tuple[float, float]] = []
    for node in drawing.nodes:
        x, y = layout.nodes[node.key]
        wide, high = sizes.node_size(node)
        spans.append((y - high / 2, y + high / 2) if axis == "y" else (x - wide / 2, x + wide / 2))
    for cluster in drawing.clusters:
        box = layout.clusters[cluster.key]
        wide = sizes.head_size(cluster).width
        spans.append(
            (box.top, box.top + sizes.CLUSTER_HEAD) if axis == "y" else (box.left, min(box.right, box.left + wide))
        )
    found: list[_Gap] = []
    reach: float | None = None
    for begin, end in sorted(spans):
        if reach is not None and begin - reach >= _LEAST:
            kept = min(_KEPT, (begin - reach) / 3)
            found.append(_Gap(reach + kept, begin - kept))
        reach = end if reach is None else max(reach, end)
    return found


def _moved(gaps: Iterable[_Gap]) -> Callable[[float], float]:
    """Where a coordinate goes when all these gaps are wider."""
    cuts = sorted(gaps)

    def moved(value: float) -> float:
        more = sum(min(1.0, max(0.0, (value - cut.begin) / (cut.end - cut.begin))) for cut in cuts)
        return round(value + _WIDER * more, 1)

    return moved
