"""SVG: well-formed, stable, harmless."""

from __future__ import annotations

import itertools
import re
import time
from xml.etree import ElementTree as ET

import pytest

from orchestrator import Graph
from orchestrator.kernel.question import Question
from orchestrator.render import engines, geometry, to_svg
from orchestrator.render.geometry import Engine, text_width
from orchestrator.render.overlaid import RunLike
from orchestrator.views.overlay import Overlay
from tests.render.sample import HOSTILE, essay, large, make, paused, research, running, stored
from tests.support.sizes import sized

SVG = "{http://www.w3.org/2000/svg}"
ENGINES: tuple[Engine, ...] = ("wasi", "simple")
ALL: tuple[Engine, ...] = (*engines(), "simple")


def parts(svg: str) -> dict[str, ET.Element]:
    """Elements by their ids."""
    return {found: element for element in ET.fromstring(svg).iter() if (found := element.get("id"))}


def classes(svg: str) -> dict[str, set[str]]:
    return {name: set(element.get("class", "").split()) for name, element in parts(svg).items()}


def words(element: ET.Element) -> str:
    return " ".join("".join(found.itertext()) for found in element.iter(f"{SVG}text")).strip()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("direction", ["TB", "LR"])
def test_ids_are_the_names(engine: Engine, direction: str) -> None:
    found = parts(to_svg(essay(), engine=engine, direction="TB" if direction == "TB" else "LR"))
    assert sorted(found) == [
        "edge-START--write",
        "edge-grade--publish",
        "edge-grade--write",
        "edge-publish--END",
        "edge-publish--write",
        "edge-write--grade",
        "node-END",
        "node-START",
        "node-grade",
        "node-publish",
        "node-write",
    ]


def test_every_backend_gives_the_same_but_for_places() -> None:
    def shape(svg: str) -> list[tuple[str, str | None, str | None]]:
        return [(element.tag, element.get("id"), element.get("class")) for element in ET.fromstring(svg).iter()]

    drawn = [shape(to_svg(research(), running(), engine=engine)) for engine in ALL]
    assert all(other == drawn[0] for other in drawn)


def test_what_is_inside_a_subgraph_says_where_it_is() -> None:
    found = parts(to_svg(research(), engine="wasi"))
    assert {"node-look", "node-look.find", "node-look.START", "edge-look.find--judge", "node-*"} <= set(found)
    assert found["node-look.find"].get("data-path") == "look"
    assert found["node-look.find"].get("data-node") == "find"
    assert found["edge-look.judge--find"].get("data-edge") == "2"


def test_two_edges_between_two_nodes_have_two_ids() -> None:
    graph = make("g", {"a": stored("think", "x", "y")}, "START -> a\na -> a : x\na -> END : y\na -> END : error")
    assert {"edge-a--a", "edge-a--END", "edge-a--END--2"} <= set(parts(to_svg(graph, engine="wasi")))


def test_a_run_is_classes_and_counts() -> None:
    svg = to_svg(research(), running(), engine="wasi")
    found = classes(svg)
    assert {"visited"} == found["node-plan"] & {"visited", "running", "waiting", "failed", "current", "many"}
    assert {"visited", "many"} <= found["node-look.find"]
    assert {"visited", "running", "current", "many"} <= found["node-look.judge"]
    assert {"running", "current"} <= found["node-look"]
    assert {"running", "current"} <= found["node-tone"]
    assert "failed" in found["node-facts"]
    assert not {"visited", "current", "failed"} & found["node-vote"]
    assert "taken" in found["edge-plan--look"]
    assert "taken" not in found["edge-vote--plan"]
    assert words(parts(svg)["edge-plan--look"]) == "each questions ×3"
    assert words(parts(svg)["node-look.find"]).endswith("×5")
    assert {"visited"} <= found["node-START"]
    assert "visited" not in found["node-END"]


def test_a_run_moves_nothing() -> None:
    def still(svg: str) -> list[str]:
        return re.findall(r' d="[^"]*"|transform="[^"]*"| id="[^"]*"|viewBox="[^"]*"', svg)

    drawn = still(to_svg(essay(), paused(), engine="wasi"))
    drawn.remove(' id="run-status"')
    assert still(to_svg(essay(), engine="wasi")) == drawn


def test_marks_of_forks_joins_and_maps() -> None:
    svg = to_svg(research(), engine="wasi")
    found = classes(svg)
    assert "forked" in found["edge-merge--facts"]
    assert "mapped" in found["edge-plan--look"]
    assert "reserved" in found["edge-vote--STOP"]
    assert "any" in found["edge-*--sorry"]
    assert parts(svg)["node-merge"].find(f"{SVG}rect[@class='bar']") is not None
    assert parts(svg)["node-look"].find(f".//{SVG}rect[@class='behind']") is not None
    assert parts(svg)["node-merge"].find(f".//{SVG}*[@class='behind']") is None


def test_it_can_be_read_aloud() -> None:
    root = ET.fromstring(to_svg(essay(), paused(), engine="simple"))
    assert root.get("role") == "img"
    assert root.get("aria-label") == "Graph essay: 3 nodes, 6 edges; run paused, 4 steps."


def test_tooltips_tell_settings_and_questions() -> None:
    class Waits:
        waiting = (Question(id="q", kind="approval", node="publish", prompt="May I use sk-abcdefghijklmnopqrstuvwx?"),)

        def overlay(self) -> Overlay:
            return paused()

    found = parts(to_svg(essay(), Waits(), engine="simple"))
    assert found["node-publish"].findtext(f"{SVG}title") == (
        "publish (confirm)\nPublish?\noutcomes: approved, denied\nwaiting\napproval: May I use [redacted]?"
    )
    assert found["edge-write--grade"].findtext(f"{SVG}title") == "write -> grade\ntaken 2 times"


@pytest.mark.parametrize("engine", ALL)
def test_hostile_labels_stay_text(engine: Engine) -> None:
    graph = make("g", {"a": stored(HOSTILE, "x", "y", prompt=HOSTILE), "b": stored(HOSTILE)}, "START -> a -> b -> END")
    svg = to_svg(graph, Overlay(status=HOSTILE, visits={("", "a"): 1}), engine=engine)
    root = ET.fromstring(svg)
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "style", "rect", "text", "tspan", "g", "title", "path", "circle"}
    assert not any(name.startswith("on") or "href" in name for element in root.iter() for name in element.attrib)
    assert "<script" not in svg
    assert not set("\x1b\x07\u202e") & set(svg)
    assert "<script>alert('x')</script> \"q\" ]]> -->" in "".join(root.itertext())


def test_no_picture_needs_anything_else() -> None:
    svg = to_svg(research(), running(), engine="simple")
    assert "url(" not in svg
    assert "@import" not in svg
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]


def test_rules_touch_nothing_outside_the_picture() -> None:
    style = ET.fromstring(to_svg(essay(), engine="simple")).findtext(f"{SVG}style") or ""
    rules = re.sub(r"@keyframes agent-graph-march\{.*?\}\}|@media[^{]*\{", "", style)
    for selectors in re.findall(r"([^{}]+)\{", rules):
        for selector in re.split(r",(?![^(]*\))", selectors):
            assert ".agent-graph" in selector, selector


def test_light_and_dark() -> None:
    svg = to_svg(essay(), engine="simple")
    assert "prefers-color-scheme:dark" in svg
    assert ET.fromstring(svg).get("data-theme") is None
    assert ET.fromstring(to_svg(essay(), engine="simple", theme="dark")).get("data-theme") == "dark"


@pytest.mark.parametrize(
    ("make_graph", "run"),
    [
        *itertools.product((essay, research), (None, running(), Overlay())),
        *((lambda: large(sized(16, 40)), run) for run in sized([None], [None, running(), Overlay()])),
    ],
)
def test_always_well_formed_and_in_its_frame(make_graph: object, run: RunLike | None) -> None:
    assert callable(make_graph)
    graph = make_graph()
    assert isinstance(graph, Graph)
    for engine in ALL:
        root = ET.fromstring(to_svg(graph, run, engine=engine))
        width, height = float(root.get("width", "")), float(root.get("height", ""))
        inner = [e for e in root.iter(f"{SVG}g") if e.get("data-node") is not None]
        for element in inner:
            x, y = map(float, re.findall(r"-?[\d.]+", element.get("transform", "")))
            assert 0 <= x <= width
            assert 0 <= y <= height


@pytest.mark.full
def test_three_hundred_nodes_are_quick() -> None:
    graph = large(300)
    began = time.perf_counter()
    svg = to_svg(graph)
    first = time.perf_counter() - began
    began = time.perf_counter()
    again = to_svg(graph, Overlay(visits={("", "n0"): 1}, status="running"))
    second = time.perf_counter() - began
    assert len(classes(svg)) + 1 == len(classes(again)) == 300 + 2 + len(graph.edges) + 1
    assert first < 15
    assert second < 2


@pytest.mark.parametrize(("count", "wide"), [("×9999", geometry.COUNT_WIDTH), ("9999/9999", geometry.ITEMS_WIDTH)])
def test_the_longest_count_fits_its_pill(count: str, wide: float) -> None:
    bold = 1.1
    assert text_width(count, 10) * bold + 4 <= wide
