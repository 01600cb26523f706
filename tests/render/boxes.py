"""Which parts of a picture cover each other. It reads the SVG alone, so it knows nothing of how it was laid out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple
from xml.etree import ElementTree as ET

from orchestrator.render.geometry import text_width

_SVG = "{http://www.w3.org/2000/svg}"
_TOUCH = 0.6
"""Pixels by which parts may cover each other: places are written with one decimal."""
_BOLD = 1.1
"""How much wider the widest of our fonts is in bold than `text_width` takes it to be."""
_BEHIND = 5.0
"""How much further the second box of a node reaches that runs once per item."""
_STEPS = 12
"""Points at which each Bézier curve is looked at."""

Point = tuple[float, float]


class Rect(NamedTuple):
    """A rectangle of the picture, and what it is."""

    left: float
    top: float
    right: float
    bottom: float
    what: str

    def meets(self, other: Rect, slack: float = _TOUCH) -> bool:
        """Whether the two have more than a line in common."""
        return (
            self.left < other.right - slack
            and other.left < self.right - slack
            and self.top < other.bottom - slack
            and other.top < self.bottom - slack
        )

    def holds(self, other: Rect) -> bool:
        """Whether the other one is inside."""
        return (
            self.left <= other.left + _TOUCH
            and self.top <= other.top + _TOUCH
            and self.right >= other.right - _TOUCH
            and self.bottom >= other.bottom - _TOUCH
        )

    def crosses(self, line: list[Point], slack: float = 2.0) -> bool:
        """Whether a line passes its inside."""
        return any(
            self.left + slack < x < self.right - slack and self.top + slack < y < self.bottom - slack for x, y in line
        )


@dataclass
class Parts:
    """What a picture shows, in its own pixels."""

    page: Rect
    nodes: dict[str, Rect] = field(default_factory=dict)
    clusters: dict[str, Rect] = field(default_factory=dict)
    heads: list[Rect] = field(default_factory=list)
    """Texts of clusters' heads."""
    marks: dict[str, list[Rect]] = field(default_factory=dict)
    """Counts, badges and times, by node or cluster."""
    labels: dict[str, Rect] = field(default_factory=dict)
    lines: dict[str, list[Point]] = field(default_factory=dict)
    tight: list[str] = field(default_factory=list)
    """Texts that are wider than their boxes."""


def parts(svg: str) -> Parts:
    """Read a drawing by `to_svg`."""
    root = ET.fromstring(svg)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    found = Parts(Rect(0, 0, width, height, "page"))
    for element in root:
        if element.tag == f"{_SVG}g" and "status" not in element.get("class", ""):
            x, y = _moved(element)
            for part in element:
                _read(part, x, y, found)
    return found


def _read(part: ET.Element, x: float, y: float, found: Parts) -> None:
    classes = (part.get("class") or "").split()
    name = part.get("id", "")
    if "edge" in classes:
        line = next(inner for inner in part if inner.get("class") == "line")
        found.lines[name] = [(a + x, b + y) for a, b in _points(line.get("d", ""))]
        text = next(inner for inner in part if inner.tag == f"{_SVG}text")
        if "".join(text.itertext()).strip():
            found.labels[name] = _text(text, x, y, f"label of {name}")
        return
    if "node" not in classes:
        return
    dx, dy = _moved(part)
    x, y = x + dx, y + dy
    shape = next(inner for inner in part if inner.get("class") == "shape")
    box = _box(shape, x, y, name)
    behind = [inner for inner in part.iter() if inner.get("class") == "behind"]
    around = Rect(box.left, box.top, box.right + _BEHIND, box.bottom + _BEHIND, name) if behind else box
    cluster = "cluster" in classes
    (found.clusters if cluster else found.nodes)[name] = around
    asked = "asked" in classes
    for inner in part:
        kind = inner.get("class", "")
        if inner.tag == f"{_SVG}text" and kind in ("name", "detail", "detail tally"):
            if (kind == "detail" and asked) or (kind == "detail tally" and not asked):
                continue
            room = _text(inner, x, y, f"{kind} of {name}")
            if cluster:
                found.heads.append(room)
            inside = Rect(box.left + (0 if "terminal" in classes else 8), box.top, box.right, box.bottom, name)
            if not inside.holds(room):
                found.tight.append(room.what)
    marks = found.marks.setdefault(name, [])
    for inner in part:
        kind = inner.get("class", "")
        if kind == "badge" and "visited" in classes and "terminal" not in classes:
            cx, cy = _moved(inner)
            marks.append(Rect(x + cx - 9, y + cy - 9, x + cx + 9, y + cy + 9, f"badge of {name}"))
        if kind == "count" and "many" in classes:
            pill = _box(inner[0], x, y, f"count of {name}")
            marks.append(pill)
            if not pill.holds(_text(inner[1], x, y, "")):
                found.tight.append(pill.what)
        if kind == "took" and "timed" in classes:
            marks.append(_text(inner, x, y, f"time of {name}"))


def collisions(found: Parts) -> Iterator[str]:
    """What covers what, in words. A label may touch its own edge, and the lines of others."""
    yield from (f"wide: {text}" for text in found.tight)
    inner = [*found.labels.values(), *(mark for marks in found.marks.values() for mark in marks)]
    yield from (f"outside: {one.what}" for one in inner if not found.page.holds(one))
    for one, other in combinations(found.labels.values(), 2):
        if one.meets(other):
            yield f"label-label: {one.what} x {other.what}"
    for label in found.labels.values():
        for node in found.nodes.values():
            if label.meets(node):
                yield f"label-node: {label.what} x {node.what}"
        for owner, marks in found.marks.items():
            for mark in marks:
                if label.meets(mark):
                    yield f"label-mark: {label.what} x {mark.what} ({owner})"
        for head in found.heads:
            if label.meets(head):
                yield f"label-head: {label.what} x {head.what}"
        for cluster in found.clusters.values():
            if label.meets(cluster) and not cluster.holds(label):
                yield f"label-frame: {label.what} x {cluster.what}"
    for (name, node), (rival, other) in combinations([*found.nodes.items(), *found.clusters.items()], 2):
        inside = (name in found.clusters and node.holds(other)) or (rival in found.clusters and other.holds(node))
        if node.meets(other) and not inside:
            yield f"node-node: {name} x {rival}"
    for owner, marks in found.marks.items():
        for mark in marks:
            for name, node in found.nodes.items():
                if name != owner and mark.meets(node):
                    yield f"mark-node: {mark.what} x {name}"
            for rival, others in found.marks.items():
                for other in others if rival > owner else ():
                    if mark.meets(other):
                        yield f"mark-mark: {mark.what} x {other.what}"
            for head in found.heads:
                if mark.meets(head):
                    yield f"mark-head: {mark.what} x {head.what}"
    for name, line in found.lines.items():
        path = name.removeprefix("edge-").split("--")
        for place, box in found.nodes.items():
            own = place.removeprefix("node-") in _ends(path)
            if box.crosses(line, 6.0 if own else 2.0):
                yield f"line-{'own' if own else 'node'}: {name} x {place}"
        for place, box in found.clusters.items():
            around = place.removeprefix("node-")
            if around in _ends(path) or path[0].startswith(f"{around}."):
                continue
            if box.crosses(line):
                yield f"line-cluster: {name} x {place}"
        for head in found.heads:
            if head.crosses(line, 1.0):
                yield f"line-head: {name} x {head.what}"


def crossed(found: Parts) -> int:
    """How many labels stand on lines of other edges."""
    return sum(
        label.crosses(line, 1.0)
        for name, label in found.labels.items()
        for rival, line in found.lines.items()
        if rival != name
    )


def far(found: Parts, most: float = 14.0) -> list[str]:
    """Labels that do not stand at their own edge."""
    return [
        label.what
        for name, label in found.labels.items()
        if not Rect(label.left - most, label.top - most, label.right + most, label.bottom + most, "").crosses(
            found.lines[name], 0.0
        )
    ]


def _ends(path: list[str]) -> tuple[str, str]:
    source, target = path[0], path[1]
    prefix = source.rpartition(".")[0]
    return source, f"{prefix}.{target}" if prefix else target


def _moved(element: ET.Element) -> Point:
    numbers = re.match(r"translate\((-?[\d.]+) (-?[\d.]+)\)", element.get("transform", ""))
    return (float(numbers[1]), float(numbers[2])) if numbers else (0.0, 0.0)


def _points(way: str) -> list[Point]:
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", way)]
    given = [*zip(numbers[::2], numbers[1::2], strict=True)]
    if len(given) < 4:
        return [_on((given[0], given[0], given[-1], given[-1]), step / _STEPS) for step in range(_STEPS + 1)]
    found = [given[0]]
    for start in range(0, len(given) - 3, 3):
        a, b, c, d = given[start : start + 4]
        found += [_on((a, b, c, d), step / _STEPS) for step in range(1, _STEPS + 1)]
    return found


def _on(curve: tuple[Point, Point, Point, Point], t: float) -> Point:
    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    return (
        sum(weight * point[0] for weight, point in zip(weights, curve, strict=True)),
        sum(weight * point[1] for weight, point in zip(weights, curve, strict=True)),
    )


def _box(shape: ET.Element, x: float, y: float, what: str) -> Rect:
    if shape.tag == f"{_SVG}circle":
        radius = float(shape.get("r", "0"))
        return Rect(x - radius, y - radius, x + radius, y + radius, what)
    if shape.tag == f"{_SVG}path":
        drawn = shape.get("d", "")
        if "H" in drawn or "V" in drawn:  # the octagon is as wide and high as it begins and ends
            wide = max(abs(float(n)) for n in re.findall(r"L(-?[\d.]+)", drawn))
            high = abs(float(re.findall(r"M-?[\d.]+ (-?[\d.]+)", drawn)[0]))
            return Rect(x - wide, y - high, x + wide, y + high, what)
        points = _points_of(drawn)
        return Rect(
            x + min(a for a, _ in points),
            y + min(b for _, b in points),
            x + max(a for a, _ in points),
            y + max(b for _, b in points),
            what,
        )
    left, top = x + float(shape.get("x", "0")), y + float(shape.get("y", "0"))
    return Rect(left, top, left + float(shape.get("width", "0")), top + float(shape.get("height", "0")), what)


def _points_of(drawn: str) -> list[Point]:
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", drawn)]
    return [*zip(numbers[::2], numbers[1::2], strict=True)]


_SIZES = {"name": (13.0, True), "detail": (11.0, False), "detail tally": (11.0, False), "label": (11.0, False)}


def _text(element: ET.Element, x: float, y: float, what: str) -> Rect:
    """The room of a text: from the top of its capitals to the end of its descenders."""
    kind = element.get("class") or ("count" if element.get("data-slot") == "count" else "")
    size, bold = _SIZES.get(kind, (10.0, kind == "count"))
    anchor = {"label": element.get("text-anchor", ""), "count": "middle", "took": "end"}.get(kind, "start")
    wide = text_width(element.text or "", size) * (_BOLD if bold else 1.0)
    for inner in element:
        small = 11.0 if inner.get("class") in ("detail", "times") else size
        heavy = inner.get("class") == "times"
        wide += text_width(inner.text or "", small) * (_BOLD if heavy else 1.0) + float(inner.get("dx", "0"))
    if kind == "name" and element.get("x") is None:  # of a terminal
        anchor, wide = "middle", text_width(element.text or "", 10.5)
        size = 10.5
    left, base = x + float(element.get("x", "0")), y + float(element.get("y", "0"))
    left -= {"middle": wide / 2, "end": wide}.get(anchor, 0.0)
    return Rect(left, base - 0.75 * size, left + wide, base + 0.25 * size, what)
