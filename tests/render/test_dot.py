"""DOT text."""

from __future__ import annotations

import re

import pytest

from orchestrator.render import to_dot
from orchestrator.render.backends import graphviz
from tests.render.sample import HOSTILE, essay, make, paused, research, running, stored

HEAD = """\
digraph {
	graph [bgcolor="#ffffff" compound=true fontcolor="#182230" fontname=Helvetica fontsize=12 nodesep=0.35 pad=0.25 \
rankdir=TB ranksep=0.5]
	node [color="#cdd3dd" fillcolor="#ffffff" fontcolor="#182230" fontname=Helvetica fontsize=12 margin="0.2,0.08" \
penwidth=1.2 shape=box style="rounded,filled"]
	edge [arrowsize=0.7 color="#8d98aa" fontcolor="#5d6b82" fontname=Helvetica fontsize=10 penwidth=1.2]
"""


def test_a_graph() -> None:
    assert to_dot(essay()) == HEAD + (
        """\
	n0 [label=START color="#344054" fillcolor="#344054" fontcolor="#ffffff" fontsize=10 id="node-START" shape=box \
style="rounded,filled" tooltip="START: where a run starts"]
	n1 [label="write\\nruns code" id="node-write" tooltip="write (function)"]
	n2 [label="grade\\nruns code" id="node-grade" tooltip="grade (function)\\noutcomes: good, retry"]
	n3 [label="publish\\nasks a person" id="node-publish" margin="0,0.06" shape=hexagon style=filled \
tooltip="publish (confirm)\\nPublish?\\noutcomes: approved, denied"]
	n4 [label=END color="#344054" fontsize=10 id="node-END" peripheries=2 shape=box \
tooltip="END: where branches end"]
	n0 -> n1 [id="edge-START--write" tooltip="START -> write"]
	n1 -> n2 [id="edge-write--grade" tooltip="write -> grade"]
	n2 -> n1 [label=" retry " constraint=false id="edge-grade--write" tooltip="grade -> write : retry"]
	n2 -> n3 [label=" good " id="edge-grade--publish" tooltip="grade -> publish : good"]
	n3 -> n4 [label=" approved " id="edge-publish--END" tooltip="publish -> END : approved"]
	n3 -> n1 [label=" denied " constraint=false id="edge-publish--write" tooltip="publish -> write : denied"]
}
"""
    )


def test_a_run_changes_looks_and_counts_only() -> None:
    still, moved = to_dot(essay()), to_dot(essay(), paused())
    assert re.findall(r'id="[^"]*"', still) == re.findall(r'id="[^"]*"', moved)
    assert r'n1 [label="write ×2\nruns code" color="#00795a" fillcolor="#eefaf5"' in moved
    assert r'n3 [label="publish\nasks a person · waiting" color="#8f5500"' in moved
    assert 'n1 -> n2 [label=" ×2 " color="#00795a"' in moved


def test_subgraphs_are_clusters_that_edges_end_at() -> None:
    dot = to_dot(research(), running())
    assert "subgraph cluster_n2 {" in dot
    assert re.search(r"n1 -> n3 \[.*lhead=cluster_n2", dot)
    assert re.search(r"n6 -> n7 \[.*ltail=cluster_n2", dot)


def test_maps_are_double_forks_dotted_reserved_outcomes_dashed() -> None:
    dot = to_dot(research())
    assert re.search(r'each questions.*color="#8d98aa:#8d98aa"', dot)
    assert re.search(r"arrowtail=dot.*id=\"edge-merge--facts\"", dot)
    assert re.search(r'id="edge-vote--STOP" style=dashed', dot)


@pytest.mark.full
def test_hostile_labels_stay_labels() -> None:
    graph = make("g", {"a": stored(HOSTILE, prompt=HOSTILE), "b": stored("<b>")}, "START -> a -> b -> END")
    dot = to_dot(graph)
    assert "\x1b" not in dot
    assert "\u202e" not in dot
    assert "URL" not in dot
    assert "href" not in dot
    drawn = graphviz(dot, "json0", "wasi", size=0).decode()
    assert drawn.count('"id": "node-') == 4
    assert "<b>" in drawn
    assert r"\\\\N" in drawn  # what would have become the node's name
