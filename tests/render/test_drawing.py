"""What a picture shows."""

from __future__ import annotations

import pytest

from orchestrator import Graph
from orchestrator.nodes import Subgraph
from orchestrator.render import build, draw
from orchestrator.render.overlaid import place, short
from orchestrator.views.overlay import Overlay
from tests.graph import sample
from tests.render.sample import make, paused, research, running, search, stored


def test_all_frames_of_a_subgraph_are_added_up() -> None:
    drawing = draw(research(), running())
    visited = [node for node in drawing.by_key.values() if "visited" in node.states and not node.terminal]
    assert {(node.path, node.name): node.count for node in visited} == {
        ("", "plan"): "",
        ("", "look"): "×2",
        ("look", "find"): "×5",
        ("look", "judge"): "×4",
        ("", "merge"): "",
    }
    assert {(edge.path, edge.names[0]): edge.times for edge in drawing.edges if edge.taken} == {
        ("", "START"): "",
        ("", "plan"): "×3",
        ("", "look"): "×2",
        ("", "merge"): "",
        ("look", "START"): "×2",
    }


@pytest.mark.parametrize(
    ("frame", "names"),
    [
        ("", ""),
        ("look", "look"),
        ("plan.0/look", "look"),
        ("plan.0/look/find.3/in-ner", "look/in-ner"),
        ("plan*look:xs.2/look", "look"),
        ("plan.0/(4 more)/look", "look"),
    ],
)
def test_place(frame: str, names: str) -> None:
    assert place(frame) == names


def test_a_map_without_a_join_is_drawn_per_item_to_its_end() -> None:
    graph = make(
        "g", {"a": stored(), "b": stored(), "c": stored()}, "START -> a\na -> b : each questions\nb -> c -> END"
    )
    assert {node.name for node in draw(graph).nodes if node.per_item} == {"b", "c"}


def test_a_map_without_a_join_ends_at_the_join_of_a_fork_around_it() -> None:
    nodes = {"a": stored(), "b": stored(), "c": stored(), "j": stored(join="all"), "d": stored()}
    graph = make("g", nodes, "START -> a, b\na -> c : each questions\nb, c -> j -> d -> END")
    assert {node.name for node in draw(graph).nodes if node.per_item} == {"c"}
    assert graph.check().notes == ("the map over 'questions' has no join: c run once per item",)


def test_a_map_ends_at_its_join() -> None:
    assert {node.name for node in draw(research()).by_key.values() if node.per_item} == {"look"}


def test_a_picture_without_code_is_the_same() -> None:
    graph = sample.make()
    bare = Graph.from_data(graph.data())
    assert bare.nodes["grade"].kind == "unresolved"
    assert draw(bare, paused()) == draw(graph, paused())


def test_graphs_inside_graphs() -> None:
    middle = make("middle", {"deep": Subgraph(search())}, "START -> deep -> END")
    outer = make("outer", {"mid": Subgraph(middle)}, "START -> mid -> END")
    run = Overlay(visits={("mid/a.1/deep", "find"): 3}, waiting={("mid/deep", "judge")})
    nodes = {node.id: node for node in draw(outer, run).by_key.values()}
    assert nodes["node-mid.deep.find"].count == "×3"
    assert "waiting" in nodes["node-mid.deep.judge"].states
    # Those around it work as long as it does, although they have no visits yet.
    assert nodes["node-mid"].states == nodes["node-mid.deep"].states == ("visited", "waiting", "current")


def test_nesting_that_multiplies_is_drawn_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MOST_NODES", 10)
    graph = search()
    for level in range(12):
        twice = {"one": Subgraph(graph), "two": Subgraph(graph)}
        graph = make(f"level{level}", {**twice}, "START -> one -> two -> END")
    drawing = draw(graph)
    assert len(drawing.by_key) < 40
    assert {node.look for node in drawing.nodes} >= {"graph"}


@pytest.mark.parametrize(
    ("count", "said"), [(1, "1"), (999, "999"), (9_999, "9999"), (10_000, "10k"), (999_999, "999k"), (2_500_000, "2M")]
)
def test_counts_stay_short(count: int, said: str) -> None:
    assert short(count) == said


def test_a_kind_whose_code_is_not_loaded_says_what_it_asks() -> None:
    graph = make(
        "g", {"choose_tool": stored("choose_tool"), "ok": stored("confirm")}, "START -> choose_tool -> ok -> END"
    )
    assert [node.detail for node in draw(graph).nodes if not node.terminal] == ["asks a model", "asks a person"]
