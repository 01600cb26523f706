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
write  runs code
↓
grade  runs code
├─ retry → write ↑
↓ good
publish  asks a person
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
↓ ×1
write  runs code  ✓ ×2
↓ ×2
grade  runs code  ✓ ×2
├─ retry ×1 → write ↑
↓ good ×1
publish  asks a person  ‖ waiting
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
↓ ×1
plan  asks a model  ✓
⇊ each questions ×3
look  runs search · per item  ▶ running ×2
┊ ● START
┊ ↓ ×2
┊ find  calls tools  ✓ ×5
┊ ↓
┊ judge  asks a model  ▶ running ×4
┊ ├─ more → find ↑
┊ └─ enough → ◎ END
↓ ×2
merge  runs code · join all  ✓
├─ ×1 → facts  runs code  ✗ failed
│  └─→ vote
├─ ×1 → tone  runs code  ▶ running
│  └─→ vote
│
vote  runs code · join 1
├─ again → plan ↑
├─ fine → ◎ END
└─ error ⇢ ■ STOP

* any node
⇣ exhausted
sorry  asks a person
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
route  asks a model
├─ y → b  runs code
│  └─→ ◎ END
↓ x
a  runs code
↓
c  runs code
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
        assert text.count(f"{name}  runs code") == 1
