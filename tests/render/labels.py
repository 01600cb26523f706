"""Texts that strangers might write, in every place of a drawing that shows some."""

from __future__ import annotations

from hypothesis import strategies as st

from orchestrator import Graph
from orchestrator.nodes import Subgraph
from orchestrator.views.overlay import Overlay, Planned, PlannedStep
from tests.render.sample import HOSTILE, make, search, stored

NASTY = (
    HOSTILE,
    '"',
    "\\N \\G \\l \\",
    "<b>bold</b>",
    "<<table>>",
    "a\nb\r\nc\u2028d",
    "end",
    "subgraph x",
    "]] }} )) |",
    '%%{init: {"securityLevel": "loose"}}%%',
    'click n1 href "javascript:alert(1)"',
    "```mermaid",
    "#quot; &amp; #35;",
    "1. - `x` **y**",
    "\u202eright to left\u202c \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\U0001f469\u200d\U0001f680 \U0001f1e9\U0001f1ea \u4e16\u754c e\u0301\u0302\u0303\u0304\u0305",
    "x" * 10_000,
    "\x00\x1b[31m\x07\ud800",
    "graph TD; A-->B; style A fill:#f00",
    "$$x^2$$",
)
labels = st.one_of(
    st.sampled_from(NASTY), st.text(max_size=40), st.text(alphabet='"<>[]{}()|#;&%`\\\n:-=~', max_size=12)
)


def drawn_with(words: list[str]) -> tuple[Graph, Overlay]:
    """A graph and a run that have these eight texts to show."""
    a, b, c, d, e, f, g, h = words
    graph = make(
        "g",
        {"one": stored(a, prompt=b), "two": stored(c, "x", "y", prompt=d), "in": Subgraph(search())},
        "START -> one -> two\ntwo -> one : x\ntwo -> in : y\nin -> END",
    )
    steps = [PlannedStep("A", (), {"tool": e}), PlannedStep(f"{f}B", ("A",), {"name": g}, "visited")]
    run = Overlay(
        visits={("", "one"): 3},
        taken={("", 0): 1, ("", 1): 12},
        waiting={("", "two")},
        told={("", "two"): (h,)},
        status=h,
        planned=(Planned("", 0, steps),),
    )
    return graph, run
