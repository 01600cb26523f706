"""What the real programs make of our texts: Mermaid's own parser, and Graphviz.

Mermaid runs on Node, so it is there where somebody installed `mermaid` and `jsdom` and named their `node_modules` in
the environment variable MERMAID.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator import Graph
from orchestrator.render import draw, to_dot, to_mermaid
from orchestrator.render.drawing import Drawing, NodeMark
from orchestrator.render.geometry import edge_label, node_detail, node_name
from orchestrator.render.plans import plan_drawings
from orchestrator.strategies.rewoo import graph as rewoo
from orchestrator.views.overlay import Overlay
from tests.render.labels import NASTY, drawn_with, labels
from tests.render.sample import essay, large, paused, research, running
from tests.support.sizes import sized

eight = st.lists(labels, min_size=8, max_size=8)
all_nasty = [list(NASTY[start : start + 8]) for start in (0, 6, 12)]
_READER = Path(__file__).with_name("mermaid_reader.mjs")
_CODE = re.compile(r"ﬂ°°(\d+)¶ß")
"""How Mermaid keeps a character reference until it draws."""


def parts(drawing: Drawing) -> tuple[list[NodeMark], list[tuple[str, str, str]]]:
    """Nodes, and edges with their labels, of a drawing and its plans; edges of subgraphs end inside them."""
    drawings = [drawing, *(steps for _, _, steps, _ in plan_drawings(drawing.planned))]
    nodes = [node for found in drawings for node in found.nodes]
    leaves = {cluster.key: cluster.leaves for cluster in drawing.clusters}
    enters = {cluster.key: cluster.enters for cluster in drawing.clusters}
    return nodes, [
        (leaves.get(e.source, e.source), enters.get(e.target, e.target), f"{edge_label(e)} {e.times}".strip())
        for d in drawings
        for e in d.edges
    ]


# -- Mermaid ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mermaid() -> Iterator[Mermaid]:
    modules = os.environ.get("MERMAID", "")
    if not (shutil.which("node") and Path(modules, "mermaid").is_dir()):
        pytest.skip("MERMAID names no folder with the npm packages mermaid and jsdom")
    with reading(modules) as found:
        yield found


class Mermaid:
    """Mermaid's parser, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read(self, text: str) -> Mapping[str, Any]:
        """What it makes of a text."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "fault" not in found, f"{found['fault']}\n{text}"
        return found


@contextmanager
def reading(modules: str) -> Iterator[Mermaid]:
    command = ["node", str(_READER), modules]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Mermaid(process)
        assert process.stdin is not None
        process.stdin.close()


def plain(text: str) -> str:
    """A label as it will be shown; what is no reference, and no break, must be harmless as it is."""
    assert re.fullmatch(r"[\w ,]*", _CODE.sub("", text.replace("<br>", ""))), text
    return _CODE.sub(lambda found: chr(int(found[1])), text)


def check_mermaid(mermaid: Mermaid, graph: Graph, run: Overlay | None = None) -> None:
    drawing = draw(graph, run)
    found = mermaid.read(to_mermaid(graph, run))
    nodes, edges = parts(drawing)
    assert found["type"] == "flowchart-v2"
    assert found["links"] == 0
    read = [(start, end, plain(text)) for start, end, text in found["edges"]]
    assert sorted(read) == sorted(edges)
    # Mermaid draws from the top what it reads first.
    assert drawing.by_key[read[0][0]].name == "START"
    assert drawing.by_key[read[0][0]].cluster is None
    told = {key: plain(text) for key, text in found["nodes"].items()}
    for node in nodes:
        name, _, detail = told.pop(node.key).partition("<br>")
        assert name == f"{node_name(node)} {'' if node.terminal else node.count}".strip()
        assert node.terminal or detail.startswith(node_detail(node))
    groups = {key for key, _ in found["groups"]}
    assert groups == {cluster.key for cluster in drawing.clusters} | {
        f"plan{number}" for number, *_ in plan_drawings(drawing.planned)
    }
    assert not told  # an edge that named a group would put it above START


@pytest.mark.peer
@pytest.mark.parametrize(
    ("graph", "run"), [(essay(), None), (essay(), paused()), (research(), None), (research(), running()), (rewoo, None)]
)
def test_mermaid_reads_what_is_drawn(mermaid: Mermaid, graph: Graph, run: Overlay | None) -> None:
    check_mermaid(mermaid, graph, run)


@pytest.mark.peer
def test_mermaid_reads_three_hundred_nodes(mermaid: Mermaid) -> None:
    check_mermaid(mermaid, large(300))


@pytest.mark.peer
@example(all_nasty[0])
@example(all_nasty[1])
@example(all_nasty[2])
@settings(max_examples=30)
@given(eight)
def test_mermaid_reads_any_label_as_a_label(mermaid: Mermaid, words: list[str]) -> None:
    check_mermaid(mermaid, *drawn_with(words))


# -- Graphviz -----------------------------------------------------------------------------------------------------


def check_dot(graph: Graph, run: Overlay | None = None) -> None:
    """What `dot` draws are the texts that were meant, and there is nothing to click on."""
    text = to_dot(graph, run)
    made = subprocess.run(["dot", "-Tjson"], input=text.encode(), capture_output=True, check=False)
    assert (made.returncode, made.stderr.decode()) == (0, "")
    found = json.loads(made.stdout)
    nodes, edges = parts(draw(graph, run))
    drawn = {thing["name"]: thing for thing in found["objects"] if not thing["name"].startswith("cluster_")}
    assert set(drawn) == {node.key for node in nodes}
    assert len(found["edges"]) == len(edges)
    for node in nodes:
        lines = texts(drawn[node.key])
        if not node.terminal:
            assert lines[0] == f"{node_name(node)} {node.count}".strip()
            detail = lines[1] if len(lines) > 1 else ""  # a blank one has no line
            assert detail.startswith(node_detail(node).strip())
    assert sorted(" ".join(texts(edge)).strip() for edge in found["edges"]) == sorted(text for _, _, text in edges)
    assert not any("URL" in thing or "href" in thing for thing in (*found["objects"], *found["edges"]))


def texts(thing: Mapping[str, Any]) -> list[str]:
    return [one["text"].strip() for one in thing.get("_ldraw_", ()) if one["op"] == "T"]


needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="the program `dot` is not here")


@needs_dot
@pytest.mark.parametrize(("graph", "run"), [(essay(), paused()), (research(), running()), (rewoo, None)])
def test_dot_reads_what_is_drawn(graph: Graph, run: Overlay | None) -> None:
    check_dot(graph, run)


@pytest.mark.full
@needs_dot
@example(all_nasty[0])
@example(all_nasty[1])
@example(all_nasty[2])
@settings(max_examples=sized(2, 6))
@given(eight)
def test_dot_reads_any_label_as_a_label(words: list[str]) -> None:
    check_dot(*drawn_with(words))


@pytest.mark.storm
@needs_dot
def test_dot_reads_many_labels(scale: int) -> None:
    settings(max_examples=200 * scale)(given(eight)(lambda words: check_dot(*drawn_with(words))))()
