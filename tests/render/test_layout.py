"""Where things go, and what lays them out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from orchestrator.render import RenderError, draw, engines, to_svg
from orchestrator.render.backends import dot_program, graphviz
from orchestrator.render.drawing import backward, dominators
from orchestrator.render.geometry import Direction, Engine, midway, node_size
from orchestrator.render.layers import layered
from orchestrator.render.layout import lay_out, layout_source, read_layout
from tests.render.sample import HOSTILE, essay, large, make, research, search, stored
from tests.support.sizes import sized

ALL: tuple[Engine, ...] = (*engines(), "simple")
needs_dot = pytest.mark.skipif("dot" not in engines(), reason="the program `dot` is not here")


@pytest.fixture
def no_dot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without the program `dot`."""
    monkeypatch.setenv("PATH", str(tmp_path))


def test_what_is_laid_out_holds_no_word_of_the_graph() -> None:
    graph = make("secretname", {"hidden": stored(HOSTILE, "unseen", "other")}, "START -> hidden -> END")
    source = layout_source(draw(graph))
    for word in ("secretname", "hidden", "unseen", "script"):
        assert word not in source


@pytest.mark.parametrize("engine", ALL)
def test_everything_has_its_place(engine: Engine) -> None:
    drawing = draw(research())
    layout = lay_out(drawing, engine=engine)
    assert set(layout.nodes) == {node.key for node in drawing.nodes}
    assert set(layout.edges) == {edge.key for edge in drawing.edges}
    assert set(layout.clusters) == {cluster.key for cluster in drawing.clusters}
    assert layout.engine == engine
    for cluster in drawing.clusters:
        box = layout.clusters[cluster.key]
        for node in drawing.nodes:
            if node.cluster == cluster.key:
                at = layout.nodes[node.key]
                assert box.left < at.x < box.right
                assert box.top < at.y < box.bottom


@pytest.mark.parametrize("engine", ALL)
def test_start_is_on_top_and_edges_lead_to_their_targets(engine: Engine) -> None:
    drawing = draw(essay())
    layout = lay_out(drawing, engine=engine)
    top = min(drawing.nodes, key=lambda node: layout.nodes[node.key].y)
    assert top.name == "START"
    for edge in drawing.edges:
        tip = layout.edges[edge.key].tip
        target, source = layout.nodes[edge.target], layout.nodes[edge.source]
        assert abs(tip.y - target.y) < 30
        assert abs(layout.edges[edge.key].points[0].y - source.y) < 30


@pytest.mark.parametrize("engine", ALL)
def test_to_the_right(engine: Engine) -> None:
    layout = lay_out(draw(essay()), engine=engine, direction="LR")
    assert layout.width > layout.height


@needs_dot
@pytest.mark.parametrize(("direction", "wide", "high"), [("TB", 26, 0), ("LR", 0, 14)])
def test_counts_of_a_way_there_and_back_stand_apart(direction: Direction, wide: int, high: int) -> None:
    drawing = draw(search())
    layout = lay_out(drawing, engine="dot", direction=direction)
    there, back = (layout.edges[edge.key].label for edge in drawing.edges[1:3])
    assert there is not None
    assert back is not None
    assert abs(there.x - back.x) >= wide
    assert abs(there.y - back.y) >= high


@needs_dot
def test_labels_to_the_right_stand_off_their_lines() -> None:
    drawing = draw(research())
    layout = lay_out(drawing, engine="dot", direction="LR")
    curve = layout.edges[drawing.edges[1].key]  # a map: the widest line
    assert curve.label is not None
    assert abs(curve.label.y - midway(curve.points).y) >= 8


@pytest.mark.parametrize("engine", ALL)
def test_nodes_do_not_cover_each_other(engine: Engine) -> None:
    from orchestrator.render.geometry import node_size

    drawing = draw(large(30))
    layout = lay_out(drawing, engine=engine)
    boxes = [(layout.nodes[node.key], node_size(node)) for node in drawing.nodes]
    for number, (at, size) in enumerate(boxes):
        for other, room in boxes[:number]:
            assert (
                abs(at.x - other.x) >= (size.width + room.width) / 2 - 1
                or abs(at.y - other.y) >= (size.height + room.height) / 2 - 1
            )


def test_one_layout_for_all_runs_of_a_structure() -> None:
    assert lay_out(draw(essay()), engine="wasi") is lay_out(draw(essay()), engine="wasi")


@pytest.mark.full
def test_what_takes_too_long_is_laid_out_simply() -> None:
    svg = to_svg(large(210), timeout=0.001)
    assert 'data-layout="simple"' in svg


def test_an_engine_that_was_asked_for_says_what_is_wrong() -> None:
    with pytest.raises(RenderError, match=r"took longer than 0\.001 s; draw a part, or as mermaid or text"):
        to_svg(large(211), engine="wasi", timeout=0.001)


def test_without_dot_the_wasm_build_lays_out(no_dot: None) -> None:
    assert engines() == ("wasi",)
    name = f"only_{uuid4().hex}"  # layouts are kept: one that nobody has drawn before
    assert 'data-layout="wasi"' in to_svg(make("unseen", {name: stored()}, f"START -> {name} -> END"))
    with pytest.raises(RenderError, match=r"`dot` is not on PATH; install graphviz"):
        graphviz("digraph {}", "json0", "dot", size=1)


def test_a_large_graph_without_dot(no_dot: None) -> None:
    chain = [f"n{number}" for number in range(sized(40, 120))]
    graph = make("chain", {name: stored() for name in chain}, f"START -> {' -> '.join(chain)} -> END")
    assert 'data-layout="wasi"' in to_svg(graph)


@pytest.mark.full
def test_a_tangled_graph_waits_for_no_one() -> None:
    assert 'data-layout="simple"' in to_svg(large(300))


def test_edges_that_skip_ranks_pass_no_node() -> None:
    """In the layout that needs no Graphviz, on one column of nodes."""
    drawing = draw(large(40))
    found = layered(drawing)
    boxes = [(at, node_size(node)) for node in drawing.nodes if (at := found.nodes[node.key])]
    ends = {edge.key: {edge.source, edge.target} for edge in drawing.edges}
    for key, curve in found.edges.items():
        lane = next((one for one, two in pairwise(curve.points[3:]) if one.x == two.x and one.y != two.y), None)
        if lane is None or len(ends[key]) < 2:
            continue
        assert all(abs(lane.x - at.x) > size.width / 2 for at, size in boxes)
        assert 0 <= lane.x <= found.width


def test_a_layout_that_cannot_be_read() -> None:
    with pytest.raises(RenderError, match="the dot layout cannot be read"):
        read_layout(b'{"bb": "0,0,1"}', "dot")


def test_bad_dot_is_an_error() -> None:
    for backend in engines():
        with pytest.raises(RenderError):
            graphviz("digraph {", "json0", backend, size=1)


def test_edges_that_lead_back() -> None:
    drawing = draw(essay())
    back = backward(drawing.levels()[None])
    assert {edge.names for edge in drawing.edges if edge.key in back} == {("grade", "write"), ("publish", "write")}


def test_dominators() -> None:
    graph = make(
        "g",
        {"a": stored("think", "x", "y"), "b": stored(), "c": stored(), "d": stored()},
        "START -> a\na -> b : x\na -> c : y\nb, c -> d\nd -> END\n* -> c : error",
    )
    drawing = draw(graph)
    level = drawing.levels()[None]
    names = {node.key: node.name for node in drawing.nodes}
    found = dominators([node.key for node in level.nodes], level.edges)
    assert {names[key]: up and names[up] for key, up in found.items()} == {
        "START": None, "a": "START", "b": "a", "c": "a", "d": "a", "END": "d", "*": None,
    }  # fmt: skip


@pytest.mark.parametrize("program", ["dot", "python"])
def test_a_child_process_gets_no_key_and_nothing_that_is_loaded_into_it(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes its environment down in place of laying anything out."""
    child = tmp_path / program
    child.write_text(f"#!/bin/sh\n/usr/bin/env > {tmp_path}/env\nexit 1\n")
    child.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("LD_PRELOAD", "nothing.so")
    monkeypatch.setenv("LD_LIBRARY_PATH", "nowhere")
    monkeypatch.setenv("GVBINDIR", "nowhere")
    if program == "python":
        monkeypatch.setattr("sys.executable", str(child))
    with pytest.raises(RenderError, match="failed"):
        graphviz("digraph {}", "json0", "dot" if program == "dot" else "wasi", size=1000)
    found = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert "PATH" in found
    assert found <= {
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TMPDIR",
        "PYTHONPATH",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }


def test_a_dot_in_the_current_directory_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dot").write_text("#!/bin/sh\n")
    (tmp_path / "dot").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in (".", ""):
        monkeypatch.setenv("PATH", path)
        assert dot_program() is None
