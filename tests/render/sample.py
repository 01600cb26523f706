"""Graphs to draw. Their nodes' code is not loaded, as of a run that another program left behind."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.graph import Node, UnresolvedNode, append
from orchestrator.graph.topology import Join
from orchestrator.nodes import Subgraph
from orchestrator.views.overlay import Overlay

HOSTILE = (
    "<script>alert('x')</script> \"q\" ]]> --> {{y}} [z](javascript:1)\n`end` "
    "\x1b[31mred\x1b]8;;http://x\x07 \u202eflip & #35; \\N %%"
)
"""Markup, quotes, ends of CDATA, comments, links, line breaks, terminal and direction controls, references."""


class Talk(BaseModel):
    topic: str = ""
    questions: list[str] = []
    found: Annotated[list[str], append] = []


def stored(
    kind: str = "function", *outcomes: str, join: Join = None, prompt: str = "", retry: int | None = None
) -> UnresolvedNode:
    """A node that was stored."""
    data: dict[str, object] = {"kind": kind, "prompt": prompt}
    if retry is not None:
        data["retry"] = {"attempts": retry}
    return UnresolvedNode(original=kind, stored=data, declared=outcomes or ("done",), join=join)


def make(name: str, nodes: dict[str, Node], edges: str) -> Graph:
    return Graph(name=name, state=Talk, nodes=nodes, edges=edges)


def essay() -> Graph:
    """A loop and a person."""
    return make(
        "essay",
        {
            "write": stored(),
            "grade": stored("function", "good", "retry"),
            "publish": stored("confirm", "approved", "denied", prompt="Publish?"),
        },
        """
        START   -> write -> grade
        grade   -> write    : retry
        grade   -> publish  : good
        publish -> END      : approved
        publish -> write    : denied
        """,
    )


def paused() -> Overlay:
    """A run of it that waits for the person."""
    return Overlay(
        visits={("", "write"): 2, ("", "grade"): 2},
        taken={("", 0): 1, ("", 1): 2, ("", 2): 1, ("", 3): 1},
        waiting={("", "publish")},
        status="paused",
    )


def search() -> Graph:
    return make(
        "search",
        {"find": stored("execute"), "judge": stored("think", "enough", "more")},
        """
        START -> find -> judge
        judge -> find : more
        judge -> END  : enough
        """,
    )


def research() -> Graph:
    """A map over a graph inside, a fork, joins, a handler for any node, STOP."""
    return make(
        "research",
        {
            "plan": stored("think"),
            "look": Subgraph(search(), outputs={"found": "found"}),
            "merge": stored(join="all"),
            "facts": stored(),
            "tone": stored(),
            "vote": stored("function", "fine", "again", join=1),
            "sorry": stored("ask"),
        },
        """
        START       -> plan
        plan        -> look         : each questions
        look        -> merge
        merge       -> facts, tone
        facts, tone -> vote
        vote        -> plan         : again
        vote        -> END          : fine
        vote        -> STOP         : error
        *           -> sorry        : exhausted
        sorry       -> END
        """,
    )


def running() -> Overlay:
    """A run of it, in the middle."""
    return Overlay(
        visits={
            ("", "plan"): 1,
            ("", "look"): 2,
            ("plan.0/look", "find"): 2,
            ("plan.1/look", "find"): 3,
            ("plan.0/look", "judge"): 2,
            ("plan.1/look", "judge"): 2,
            ("", "merge"): 1,
        },
        taken={
            ("", 0): 1,
            ("", 1): 3,
            ("", 2): 2,
            ("plan.0/look", 0): 1,
            ("plan.1/look", 0): 1,
            ("", 3): 1,
            ("", 4): 1,
        },
        running={("", "tone"), ("plan.2/look", "judge")},
        failed={("", "facts")},
        status="running",
    )


def large(size: int) -> Graph:
    """Branches, ways back and ways ahead."""
    nodes: dict[str, Node] = {f"n{i}": stored("function", "a", "b", "c") for i in range(size)}
    lines = ["START -> n0"]
    for i in range(size):
        ahead = f"n{i + 1}" if i + 1 < size else "END"
        lines += [f"n{i} -> {ahead} : a", f"n{i} -> n{i * 7 % size} : b", f"n{i} -> n{max(0, i - 3)} : c"]
    return make("large", nodes, "\n".join(lines))
