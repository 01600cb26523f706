"""Edges as SVG."""

from __future__ import annotations

from html import escape

from orchestrator.render import sizes
from orchestrator.render.drawing import Drawing, EdgeMark
from orchestrator.render.geometry import Curve, midway


def edge_svg(edge: EdgeMark, curve: Curve, drawing: Drawing, prefix: str) -> str:
    """An edge: its line, its head, what marks maps and forks, its label."""
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
        away = sizes.label_room(edge).width / 2 - sizes.LABEL_INSET
        at = at._replace(x=at.x - away if curve.anchor == "start" else at.x + away)
    times = edge.times
    gap = " " if edge.label and times else ""
    return (
        f'<text class="label" text-anchor="{curve.anchor}" x="{px(at.x)}" y="{px(at.y + 3.8)}">'
        f"{escape(sizes.edge_label(edge))}{gap}"
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
    """A dot where a branch begins, just off the node's border."""
    start, following = curve.points[0], (*curve.points, curve.tip)[1]
    x, y = following.x - start.x, following.y - start.y
    length = (x * x + y * y) ** 0.5 or 1.0
    return f'<circle class="tail" cx="{px(start.x + x / length * 4)}" cy="{px(start.y + y / length * 4)}" r="3.6"/>'


def px(value: float) -> str:
    """A number of pixels, with one decimal at most."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text
