"""Every text of a drawing has a contrast of at least 4.5:1 to what is behind it, in both themes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple
from xml.etree import ElementTree as ET

import pytest

from orchestrator.nodes import Sleep, Subgraph, Wait
from orchestrator.render import dot, mermaid, to_svg
from orchestrator.render.overlaid import STATUSES
from orchestrator.render.png import with_attributes
from orchestrator.views.overlay import Overlay, Planned, PlannedStep
from tests.render.pictures import everything
from tests.render.sample import essay, make, research, search, stored

_SVG = "{http://www.w3.org/2000/svg}"
LEAST = 4.5
Colour = tuple[float, float, float]


class Painted(NamedTuple):
    """A filled shape by the box around it."""

    left: float
    top: float
    right: float
    bottom: float
    fill: Colour
    opacity: float


class Said(NamedTuple):
    text: str
    x: float
    y: float
    fill: Colour
    opacity: float
    under: tuple[Painted, ...]
    """What was painted before it."""


def contrast(one: Colour, other: Colour) -> float:
    """The contrast of two colours, by WCAG 2.2."""

    def luminance(colour: Colour) -> float:
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def rgb(text: str) -> Colour:
    digits = text.removeprefix("#")
    wide = "".join(digit * 2 for digit in digits) if len(digits) == 3 else digits
    return int(wide[:2], 16) / 255, int(wide[2:4], 16) / 255, int(wide[4:], 16) / 255


def over(top: Colour, opacity: float, ground: Colour) -> Colour:
    r, g, b = (a * opacity + b * (1 - opacity) for a, b in zip(top, ground, strict=True))
    return r, g, b


def seen(said: Said) -> float:
    """The contrast of a text to what is behind its middle."""
    ground: Colour = (1.0, 1.0, 1.0)
    for shape in said.under:
        if shape.left <= said.x <= shape.right and shape.top <= said.y <= shape.bottom:
            ground = over(shape.fill, shape.opacity, ground)
    return contrast(over(said.fill, said.opacity, ground), ground)


def texts(svg: str, theme: Literal["light", "dark"]) -> Iterator[Said]:
    painted: list[Painted] = []
    yield from _texts(ET.fromstring(with_attributes(svg, theme)), (0.0, 0.0, 1.0), {"opacity": "1"}, painted)


def _texts(
    element: ET.Element, at: tuple[float, float, float], around: Mapping[str, str], painted: list[Painted]
) -> Iterator[Said]:
    own = {name: element.get(name, around.get(name, "")) for name in ("fill", "fill-opacity", "visibility", "display")}
    if own["display"] == "none":
        return
    x, y, scale = at
    for kind, numbers in re.findall(r"(translate|scale)\(([^)]*)\)", element.get("transform", "")):
        values = [*map(float, numbers.split())]
        if kind == "translate":
            x, y = x + values[0] * scale, y + values[1] * scale
        else:
            scale *= values[0]
    opacity = float(around["opacity"]) * float(element.get("opacity", 1))
    fill = own["fill"]
    if own["visibility"] != "hidden":
        box = _box(element)
        if box is not None and fill.startswith("#"):
            left, top, right, bottom = (side * scale for side in box)
            strength = opacity * float(own["fill-opacity"] or 1)
            painted.append(Painted(x + left, y + top, x + right, y + bottom, rgb(fill), strength))
        tag = element.tag.removeprefix(_SVG)
        if tag in ("text", "tspan") and (element.text or "").strip():
            # Just right of where it begins, or in its middle: never off what it stands on.
            base = around if tag == "tspan" else element.attrib
            tx, ty = x + float(base.get("x", 0)) * scale, y + float(base.get("y", 0)) * scale - 3
            tx += {"middle": 0.0, "end": -2.0}.get(base.get("text-anchor", ""), 2.0)
            yield Said(element.text or "", tx, ty, rgb(fill), opacity, tuple(painted))
    places = {name: element.get(name, around.get(name, "0")) for name in ("x", "y")}
    anchor = {"text-anchor": element.get("text-anchor", around.get("text-anchor", ""))}
    for inner in element:
        yield from _texts(inner, (x, y, scale), {**own, **places, **anchor, "opacity": str(opacity)}, painted)


def _box(element: ET.Element) -> tuple[float, float, float, float] | None:
    tag = element.tag.removeprefix(_SVG)
    if tag == "rect":
        x, y, w, h = (float(element.get(name, 0)) for name in ("x", "y", "width", "height"))
        return x, y, x + w, y + h
    if tag == "circle":
        x, y, r = (float(element.get(name, 0)) for name in ("cx", "cy", "r"))
        return x - r, y - r, x + r, y + r
    if tag == "path" and element.get("class") in ("shape", "behind"):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", element.get("d", ""))]
        return min(numbers), -23.0, max(numbers), 23.0
    return None


def looks() -> tuple[str, ...]:
    """A drawing of every kind of node, in every state, with every status."""
    nodes = {
        "model": stored("think"), "person": stored("ask"), "code": stored(), "tool": stored("execute"),
        "time": Sleep(seconds=1), "event": Wait(event="x"), "graph": Subgraph(search()),
    }  # fmt: skip
    every = make("every", nodes, f"START -> {' -> '.join(nodes)} -> END\n* -> END : error")
    steps = [
        PlannedStep(state, (), {"tool": "look"}, state)
        for state in ("planned", "running", "waiting", "visited", "failed", "skipped")
    ]
    ran = Overlay(
        visits={("", name): 2500 for name in nodes},
        taken={("", number): 2500 for number in range(len(every.edges))},
        faulty={("", "tool"): 2},
        unasked={("", "model"): 2, ("", "person"): 2},
        seconds={("", name): 3.0 for name in nodes},
        status="completed",
        planned=(Planned("", 0, steps),),
    )
    gone = replace(everything(), status="interrupted")
    runs = [(research(), replace(everything(), status=status)) for status in (*STATUSES, "of another version")]
    pairs = [
        (every, None),
        (every, ran),
        (every, Overlay(status="running")),
        (research(), gone),
        (essay(), None),
        *runs,
    ]
    return tuple(to_svg(graph, run, engine="simple") for graph, run in pairs)


@pytest.mark.full
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_is_readable(theme: Literal["light", "dark"]) -> None:
    found = [said for svg in looks() for said in texts(svg, theme)]
    words = {said.text.strip() for said in found}
    assert {*STATUSES, "×2500", "×2", "START", "END", "STOP", "any node", "passed", "no call", "3.0 s", "2/5"} <= words
    poor = {(said.text, round(seen(said), 2)) for said in found if seen(said) < LEAST}
    assert not poor


def test_what_is_measured_is_contrast() -> None:
    assert round(contrast((0, 0, 0), (1, 1, 1)), 1) == 21.0
    assert round(contrast(rgb("#767676"), rgb("#fff")), 2) == 4.54
    pale = Said("x", 1, 1, rgb("#000"), 0.5, (Painted(0, 0, 2, 2, rgb("#fff"), 1.0),))
    assert 3.9 < seen(pale) < 4.1


def test_texts_of_mermaid_and_graphviz_are_readable() -> None:
    for style in mermaid._CLASSES.values():
        told = dict(part.split(":") for part in style.split(","))
        assert contrast(rgb(told["fill"]), rgb(told["color"])) >= LEAST, style
    for looks in (*dot._STATES.values(), *dot._TERMINALS.values()):
        ground, ink = looks.get("fillcolor", dot._CARD), looks.get("fontcolor", dot._INK)
        assert contrast(rgb(ground), rgb(ink)) >= LEAST, looks
    assert contrast(rgb(dot._SOFT), rgb(dot._GROUP)) >= LEAST
