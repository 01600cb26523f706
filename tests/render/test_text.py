"""Lines for a terminal."""

from __future__ import annotations

from orchestrator.render import to_text
from orchestrator.views.overlay import Overlay
from tests.render.sample import HOSTILE, essay, large, make, paused, research, running, stored


def test_a_graph() -> None:
    assert (
        to_text(essay())
        == """\
essay
● START
↓
write  function
↓
grade  function
├─ retry → write ↑
↓ good
publish  confirm
├─ approved → ◎ END
└─ denied → write ↑
"""
    )


def test_a_run() -> None:
    assert (
        to_text(essay(), paused())
        == """\
essay  [paused]
● START
↓
write  function  ✓ ×2
↓ ×2
grade  function  ✓ ×2
├─ retry → write ↑
↓ good
publish  confirm  ‖ waiting
├─ approved → ◎ END
└─ denied → write ↑
"""
    )


def test_forks_joins_maps_and_graphs_inside() -> None:
    assert (
        to_text(research(), running())
        == """\
research  [running]
● START
↓
plan  think  ✓
⇊ each questions ×3
look  subgraph · search · per item  ▶ running ×2
┊ ● START
┊ ↓ ×2
┊ find  execute  ✓ ×5
┊ ↓
┊ judge  think  ▶ running ×4
┊ ├─ more → find ↑
┊ └─ enough → ◎ END
↓ ×2
merge  function · join all  ✓
├─→ facts  function  ✗ failed
│  └─→ vote
├─→ tone  function  ▶ running
│  └─→ vote
│
vote  function · join 1
├─ again → plan ↑
├─ fine → ◎ END
└─ error ⇢ ■ STOP

* any node
⇣ exhausted
sorry  ask
└─→ ◎ END
"""
    )


def test_equal_branches_are_set_in() -> None:
    graph = make(
        "g",
        {"route": stored("think", "x", "y"), "a": stored(), "b": stored(), "c": stored()},
        "START -> route\nroute -> a : x\nroute -> b : y\na -> c\nb -> END\nc -> END",
    )
    assert (
        to_text(graph)
        == """\
g
● START
↓
route  think
├─ y → b  function
│  └─→ ◎ END
↓ x
a  function
↓
c  function
└─→ ◎ END
"""
    )


def test_ascii_alone_if_wanted() -> None:
    assert to_text(research(), running(), ascii=True).isascii()


def test_labels_cannot_steer_a_terminal() -> None:
    graph = make("g", {"a": stored(HOSTILE)}, "START -> a -> END")
    text = to_text(graph, Overlay(status="paused\x1b[2J\r\nfake: line"))
    assert text.isprintable() is False  # its own line breaks
    assert "".join(text.splitlines()).isprintable()
    assert len(text.splitlines()) == 5
    assert "<script>" in text


def test_a_long_chain_is_not_set_in() -> None:
    names = [f"s{i}" for i in range(1000)]
    graph = make("chain", {name: stored() for name in names}, f"START -> {' -> '.join(names)} -> END")
    lines = to_text(graph).splitlines()
    assert len(lines) == 2 * 1000 + 3
    assert max(map(len, lines)) < 30


def test_every_edge_of_a_tangle_is_told_once() -> None:
    graph = large(60)
    text = to_text(graph)
    arrows = sum(text.count(arrow) for arrow in "→↓")
    pairs = {(edge.source, edge.target) for edge in graph.edges}
    assert arrows >= len(pairs)
    for name in graph.nodes:
        assert text.count(f"{name}  function") == 1
