"""PNG is the drawing of the SVG: every text has ink in its room, and no program or font is taken silently."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import cast
from xml.etree import ElementTree as ET

import pytest

from orchestrator import Graph
from orchestrator.render import RenderError, engines, png, to_png, to_svg
from orchestrator.render.png import with_attributes
from orchestrator.views.overlay import Overlay
from tests.render.pictures import everything
from tests.render.pixels import Picture, ink, labels, outside, without_texts
from tests.render.sample import essay, make, research, stored
from tests.support.sizes import sized

STRATEGIES = ("chat", "function_call", "function_call_agent", "plan_and_solve", "react", "rewoo", "tool_user")


def strategy(name: str) -> Graph:
    return cast("Graph", import_module(f"orchestrator.strategies.{name}").graph)


def busy(graph: Graph) -> Overlay:
    """A run that has been everywhere, often and for long."""
    return Overlay(
        visits={("", name): 2500 + place for place, name in enumerate(graph.nodes)},
        taken={("", number): 12_345 + number for number in range(len(graph.edges))},
        seconds={("", name): 59.0 for name in graph.nodes},
        failed={("", [*graph.nodes][-1])},
        status="interrupted",
    )


@pytest.fixture(autouse=True)
def _resvg() -> None:
    pytest.importorskip("resvg_py")


@pytest.mark.full
@pytest.mark.parametrize("name", sized(STRATEGIES[-3:], STRATEGIES))
@pytest.mark.parametrize("ran", sized([True], [False, True]))
def test_every_text_of_a_strategy_has_ink_in_its_room_and_nowhere_else(name: str, ran: bool) -> None:
    graph = strategy(name)
    run = busy(graph) if ran else None
    svg = to_svg(graph, run, theme="light")
    told = labels(with_attributes(svg, "light"))
    painted = Picture.of(to_png(graph, run, dpi=96))
    blank = Picture.of(png.painted(without_texts(svg), "light", 96))
    texts = {label.text for label in told}
    assert {name, *graph.nodes} <= {text.partition("runs ")[0] for text in texts}
    assert not ran or {"interrupted", "59 s"} <= texts
    for label in told:
        # The thinnest text is "»"; a letter of ten pixels has more than ten pixels of ink.
        assert ink(painted, blank, label) >= 6 * len(label.text.replace(" ", "")), label
    assert outside(painted, blank, told) == 0


def test_both_have_the_same_size_and_the_same_layout() -> None:
    root = ET.fromstring(to_svg(research(), everything()))
    picture = Picture.of(to_png(research(), everything(), dpi=96))
    assert abs(picture.width - float(root.get("width", 0))) <= 1
    assert abs(picture.height - float(root.get("height", 0))) <= 1


@pytest.mark.full
def test_resolution_and_theme() -> None:
    once, twice = (Picture.of(to_png(essay(), dpi=dpi)) for dpi in (96, 192))
    assert abs(2 * once.width - twice.width) <= 1
    light, dark = (Picture.of(to_png(essay(), dpi=48, theme=theme)) for theme in ("light", "dark"))
    middle = light.height // 2, 30
    assert light.rows[middle[0]][middle[1]] > 240
    assert dark.rows[middle[0]][middle[1]] < 40


@pytest.mark.full
def test_every_status_has_ink_in_both_themes() -> None:
    for theme in ("light", "dark"):
        svg = to_svg(research(), everything(), theme=theme)
        told = labels(with_attributes(svg, theme))
        painted, blank = (Picture.of(png.painted(text, theme, 96)) for text in (svg, without_texts(svg)))
        assert all(ink(painted, blank, label) > 5 for label in told)


@pytest.mark.skipif("wasi" not in engines(), reason="there is no WebAssembly build of Graphviz")
def test_png_needs_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Picture.of(to_png(make("alone", {"here": stored()}, "START -> here -> END"), dpi=96)).height > 100


def test_a_missing_package_is_named_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    png.font.cache_clear()
    with pytest.raises(RenderError, match=r'PNG needs the package `resvg-py` .*pip install "agent-\S+\[png\]"'):
        to_png(essay())


def test_missing_fonts_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(png, "FONTS", ("Nowhere Sans", "Nothing"))
    png.font.cache_clear()
    with pytest.raises(RenderError, match="one of the fonts Nowhere Sans, Nothing, and none is installed; install one"):
        to_png(essay())
    png.font.cache_clear()


def test_a_picture_with_too_many_pixels_has_fewer_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Picture.of(to_png(essay(), dpi=96))
    monkeypatch.setattr(png, "MOST_PIXELS", whole.width * whole.height // 4)
    assert abs(Picture.of(to_png(essay(), dpi=96)).width - whole.width / 2) <= 1
    monkeypatch.setattr(png, "MOST_PIXELS", 1000)
    with pytest.raises(RenderError, match="too large for PNG"):
        to_png(essay())
