"""Mermaid text."""

from __future__ import annotations

import re

from orchestrator.render import draw, to_mermaid
from tests.render.sample import HOSTILE, essay, make, paused, research, running, stored


def test_a_graph() -> None:
    assert (
        to_mermaid(essay())
        == """\
flowchart TB
  n0(["START"])
  n1("write<br/>runs code")
  n2("grade<br/>runs code")
  n3{{"publish<br/>asks a person"}}
  n4(["END"])
  n0 --> n1
  n1 --> n2
  n2 -->|"retry"| n1
  n2 -->|"good"| n3
  n3 -->|"approved"| n4
  n3 -->|"denied"| n1
  classDef terminal fill:#344054,stroke:#344054,color:#ffffff
  class n0,n4 terminal
"""
    )


def test_a_run() -> None:
    assert (
        to_mermaid(essay(), paused())
        == """\
flowchart TB
  n0(["START"])
  n1("write #215;2<br/>runs code")
  n2("grade #215;2<br/>runs code")
  n3{{"publish<br/>asks a person #183; waiting"}}
  n4(["END"])
  n0 --> n1
  n1 -->|"#215;2"| n2
  n2 -->|"retry"| n1
  n2 -->|"good"| n3
  n3 -->|"approved"| n4
  n3 -->|"denied"| n1
  classDef terminal fill:#344054,stroke:#344054,color:#ffffff
  class n0,n4 terminal
  classDef visited fill:#eefaf5,stroke:#00795a,color:#182230,stroke-width:2px
  class n1,n2 visited
  classDef waiting fill:#fff7e6,stroke:#8f5500,color:#182230,stroke-width:2px,stroke-dasharray:3 3
  class n3 waiting
  linkStyle 0,1,2,3 stroke:#00795a,stroke-width:3px
"""
    )


def test_what_is_inside_and_where_it_forks() -> None:
    lines = to_mermaid(research(), running(), direction="LR").splitlines()
    assert lines[0] == "flowchart LR"
    assert '  subgraph n2 ["look runs search #183; per item #183; running"]' in lines
    assert '  n1 ==>|"each questions #215;3"| n3' in lines
    assert '  n10 -.->|"error"| n13' in lines


def test_edges_begin_with_those_of_start_and_lead_into_subgraphs() -> None:
    """Mermaid puts first what it reads first, and a subgraph that an edge names before all nodes."""
    lines = to_mermaid(research(), running()).splitlines()
    arrows = [line.split() for line in lines if re.search(r" (--|==|-\.-)>", line)]
    assert arrows[0] == ["n0", "-->", "n1"]
    groups = {line.split()[1] for line in lines if line.strip().startswith("subgraph")}
    inner = ({node for line in lines if line.startswith("    ") for node in re.findall(r"n\d+", line)}) - {"n2"}
    assert groups == {"n2"}
    assert not groups & {end for arrow in arrows for end in (arrow[0], arrow[-1])}
    within = [number for number, arrow in enumerate(arrows) if {arrow[0], arrow[-1]} <= inner]
    assert within == [*range(len(arrows) - len(within), len(arrows))]


def test_the_edges_that_a_run_took_are_the_ones_that_are_coloured() -> None:
    lines = to_mermaid(research(), running()).splitlines()
    arrows = [line for line in lines if re.search(r" (--|==|-\.-)>", line)]
    coloured = next(line for line in lines if "linkStyle" in line).split()[1]
    taken = [edge for edge in draw(research(), running()).edges if edge.taken]
    assert len(coloured.split(",")) == len(taken)
    times = [edge.times.removeprefix("×") for edge in taken if edge.times]
    shown = [found[1] for number in coloured.split(",") if (found := re.search(r"#215;(\w+)", arrows[int(number)]))]
    assert sorted(shown) == sorted(times)


def test_hostile_labels_stay_labels() -> None:
    graph = make("g", {"a": stored(HOSTILE), "end": stored("1. - `x`")}, "START -> a -> end -> END")
    text = to_mermaid(graph)
    assert len(text.splitlines()) == 10
    for label in re.findall(r'"(.*?)"', text):
        assert re.fullmatch(r"(?:[\w ,]|#\d+;|<br/>)*", label), label
    assert '("end<br/>1#46; #45; #96;x#96;")' in text
