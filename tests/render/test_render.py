"""One verb for all formats."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import Graph
from orchestrator.render import FORMATS, render, to_svg, to_yaml
from orchestrator.views.overlay import Overlay
from tests.graph.sample import make
from tests.render.sample import essay, paused


class Paused:
    """A run, as far as drawings care."""

    def __init__(self, graph: Graph) -> None:
        self.definition = graph

    def overlay(self) -> Overlay:
        return paused()


@pytest.mark.parametrize("form", FORMATS)
def test_every_format(form: str) -> None:
    if form == "png":
        pytest.importorskip("resvg_py")
    drawn = render(make(), form)
    assert isinstance(drawn, bytes if form == "png" else str)
    assert drawn


def test_a_run_is_drawn_over_its_graph() -> None:
    graph = essay()
    assert render(Paused(graph), "svg") == to_svg(graph, paused())
    assert render(graph, "svg", paused()) == to_svg(graph, paused())


def test_yaml_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text(to_yaml(make()))
    assert Graph.load(path).content == make().content


def test_an_unknown_format_names_those_that_there_are() -> None:
    with pytest.raises(
        ValueError, match="unknown format 'gif'; choose one of svg, png, dot, mermaid, text, html, yaml"
    ):
        render(essay(), "gif")


def test_graphs_draw_themselves() -> None:
    graph = essay()
    bundle = graph._repr_mimebundle_()
    assert bundle["image/svg+xml"] == graph.to_svg() == to_svg(graph)
    assert "text/vnd.mermaid" not in bundle, "a notebook would draw that instead"
    assert bundle["text/plain"] == graph.to_text()
    assert graph.to_dot().startswith("digraph {")


@pytest.mark.full
def test_a_drawing_needs_no_more_than_it_uses() -> None:
    code = (
        "import sys; from orchestrator.render import to_text, to_mermaid, to_svg; "
        "print([m for m in ('networkx', 'graphviz', 'wasmtime', 'openai', 'rich') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
