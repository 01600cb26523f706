"""Small graphs for the kernel's tests: one state class for all, plans from arrow text."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel

from orchestrator.errors import Problem
from orchestrator.graph.checks.shape import shape_problems
from orchestrator.graph.edges import Edge, parse_edges
from orchestrator.graph.limits import Limits
from orchestrator.graph.reducers import add, append, local
from orchestrator.graph.state import StateSchema
from orchestrator.graph.topology import Join, NodeShape, Topology
from orchestrator.kernel.plan import Plan

RESERVED = ("error", "timeout", "exhausted")
NODES_OF_NO_GRAPH = ("START", "END", "STOP", "*")


class State(BaseModel):
    """Every kind of field that merges treat differently."""

    log: Annotated[list[str], append] = []
    """Names of the nodes that ran: the transcript."""
    trail: Annotated[list[str], append] = []
    """Keys of the activations that ran: proves that each update came in once, and from where."""
    total: Annotated[int, add] = 0
    mine: Annotated[str, local] = ""
    f: str = ""
    g: str = ""
    xs: list[int] = []
    ys: list[int] = []
    tasks: list[dict[str, Any]] = []


class Lean(BaseModel):
    """For the tests of cost: nothing that grows by itself."""

    count: Annotated[int, add] = 0
    trail: Annotated[list[int], append] = []
    f: int = 0
    xs: list[int] = []


def joins(text: str = "", /, **named: Join) -> dict[str, Join]:
    """`joins("j k", m=2)`: j and k wait for all, m for two."""
    return {**dict.fromkeys(text.split(), "all"), **named}


def names_of(edges: tuple[Edge, ...]) -> list[str]:
    """The nodes of a graph, in the order of its text."""
    found: dict[str, None] = {}
    for edge in edges:
        for name in (edge.source, edge.target):
            if name not in NODES_OF_NO_GRAPH:
                found[name] = None
    return list(found)


def outcomes_of(edges: tuple[Edge, ...], node: str) -> tuple[str, ...]:
    """What its labels and its unlabelled edges say that a node declares; `done` comes last."""
    labels = dict.fromkeys(e.outcome for e in edges if e.source == node and e.outcome not in (None, *RESERVED))
    plain = any(e.outcome is None for e in edges if e.source == node)
    found = tuple(label for label in labels if label is not None)
    return (*found, "done") if plain or not found else found


def plan(
    text: str,
    joined: str | Mapping[str, Join] = "j k m j1 j2",
    *,
    outcomes: Mapping[str, tuple[str, ...]] | None = None,
    limits: Limits | None = None,
    sub: Mapping[str, Plan] | None = None,
    schema: type[BaseModel] = State,
    name: str = "g",
    checked: bool = True,
    rest: Collection[str] = (),
) -> Plan:
    """A plan from arrow text. START and END are added where nothing leads from, or to, them.

    As in `kernel.md` nodes called j, k, m, j1 and j2 say `join="all"`, unless `joined` says else. The joins in `rest`
    let the branches run that they do not wait for.
    """
    edges = complete(text)
    found = names_of(edges)
    says = joins(joined) if isinstance(joined, str) else joined
    shapes = {
        node: NodeShape(
            (outcomes or {}).get(node) or outcomes_of(edges, node), says.get(node), "run" if node in rest else "drop"
        )
        for node in found
    }
    made = Plan(
        name=name,
        nodes=shapes,
        edges=edges,
        schema=StateSchema.of(schema),
        limits=limits or Limits(steps=None),
        sub=sub or {},
    )
    if checked:
        assert not problems(made), problems(made)
    return made


def complete(text: str) -> tuple[Edge, ...]:
    """The edges of a text whose statements may also be parted by `;`, with START and END added where missing."""
    edges = parse_edges(re.sub(r"\s*;\s*", "\n", text.strip()))
    found = names_of(edges)
    if not any(e.source == "START" for e in edges):
        edges = (Edge("START", found[0]), *edges)
    sources = {e.source for e in edges}
    return (*edges, *(Edge(node, "END") for node in found if node not in sources))


def problems(given: Plan | str, joined: str | Mapping[str, Join] = "j k m j1 j2") -> list[Problem]:
    """What C2 to C7 have to say."""
    topology = given.topology if isinstance(given, Plan) else plan(given, joined, checked=False).topology
    assert isinstance(topology, Topology)
    return shape_problems(topology)


def messages(given: Plan | str, joined: str | Mapping[str, Join] = "j k m j1 j2") -> list[str]:
    """The same as text."""
    return [problem.message for problem in problems(given, joined)]
