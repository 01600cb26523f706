"""Mermaid text."""

from __future__ import annotations

import re

from orchestrator.render import to_mermaid
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
  classDef waiting fill:#fff7e6,stroke:#b26a00,color:#182230,stroke-width:2px,stroke-dasharray:3 3
  class n3 waiting
  linkStyle 0,1,2,3 stroke:#00795a,stroke-width:3px
"""
    )


def test_what_is_inside_and_where_it_forks() -> None:
    lines = to_mermaid(research(), running(), direction="LR").splitlines()
    assert lines[0] == "flowchart LR"
    assert '  subgraph n2 ["look runs search #183; per item #183; running"]' in lines
    assert '  n1 ==>|"each questions #215;3"| n2' in lines
    assert '  n10 -.->|"error"| n13' in lines


def test_hostile_labels_stay_labels() -> None:
    graph = make("g", {"a": stored(HOSTILE), "end": stored("1. - `x`")}, "START -> a -> end -> END")
    text = to_mermaid(graph)
    assert len(text.splitlines()) == 10
    for label in re.findall(r'"(.*?)"', text):
        assert re.fullmatch(r"(?:[\w ,]|#\d+;|<br/>)*", label), label
    assert '("end<br/>1#46; #45; #96;x#96;")' in text
