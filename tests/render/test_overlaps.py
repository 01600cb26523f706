"""No text of a picture covers another one, or a box, and no edge runs behind a box that it does not lead to."""

from __future__ import annotations

import random
import re

import pytest

from orchestrator.executor import Overlay
from orchestrator.graph.model import GraphDefinition
from orchestrator.render import engines, to_svg
from orchestrator.render.geometry import Direction, Engine
from tests.graphs.pictures import RUNS
from tests.render.boxes import collisions, crossed, far, parts
from tests.render.generated import everywhere, generated
from tests.render.pictures import everything
from tests.render.sample import essay, make, paused, research, stored
from tests.support.sizes import sized

GRAPHVIZ: Engine = "dot" if "dot" in engines() else "wasi"
SEEDS = range(sized(16, 200))
DIRECTIONS: tuple[Direction, ...] = ("TB", "LR")


def covering(graph: GraphDefinition, run: Overlay, engine: Engine, direction: Direction) -> list[str]:
    """What covers what in the pictures of a graph and of a run, in words."""
    drawn = (to_svg(graph, shown, engine=engine, direction=direction) for shown in (None, run))
    return [said for svg in drawn for said in collisions(parts(svg))]


@pytest.mark.full
@pytest.mark.parametrize("part", range(8))
def test_nothing_covers_anything_in_generated_graphs(part: int) -> None:
    for seed in SEEDS[part::8]:
        graph = generated(seed)
        run = everywhere(graph, random.Random(f"run {seed}"))
        assert covering(graph, run, GRAPHVIZ, "LR" if seed < SEEDS.stop / 4 else "TB") == [], seed


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("engine", engines())
def test_nothing_covers_anything_in_the_samples(engine: Engine, direction: Direction) -> None:
    assert covering(essay(), paused(), engine, direction) == []
    assert covering(research(), everything(), engine, direction) == []


@pytest.mark.parametrize("name", RUNS)
def test_nothing_covers_anything_in_the_strategies(name: str) -> None:
    graph = RUNS[name][0]
    assert covering(graph, everywhere(graph, random.Random(name)), GRAPHVIZ, "TB") == []


@pytest.mark.full
def test_labels_stand_at_their_edges_and_seldom_on_others() -> None:
    labels = strange = on_others = 0
    for seed in SEEDS[:16]:
        graph = generated(seed)
        found = parts(to_svg(graph, everywhere(graph, random.Random(f"run {seed}"))))
        labels += len(found.labels)
        strange += len(far(found, 40.0))
        on_others += crossed(found)
    assert strange <= labels / 50
    assert on_others <= labels / 30


def test_a_long_name_fits_its_box() -> None:
    name = "W" * 40
    graph = make("g", {name: stored()}, f"START -> {name} -> END")
    assert [*collisions(parts(to_svg(graph)))] == []


def test_the_search_for_collisions_finds_them() -> None:
    """All labels in one place, boxes in others: each kind of collision is found."""
    svg = to_svg(research(), everything())
    moved = svg.replace('class="label" text-anchor="start" x="', 'class="label" text-anchor="start" x="9')
    assert {said.partition(":")[0] for said in collisions(parts(moved))} >= {"outside"}
    heaped = re.sub(r'(class="label" text-anchor=)"\w+" x="[\d.]+" y="[\d.]+"', r'\1"middle" x="90" y="90"', svg)
    assert {said.partition(":")[0] for said in collisions(parts(heaped))} >= {"label-label", "label-node"}
