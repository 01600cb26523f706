"""Forks, joins, maps and loops of the kernel's cases, over a list, a number, a dict and a field of a branch's own."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel

from orchestrator import Graph, Limits, Outcome, add, append, local, node
from orchestrator import merge as merged
from orchestrator.graph import Node


class Board(BaseModel):
    xs: list[dict[str, Any]] = []
    log: Annotated[list[str], append] = []
    total: Annotated[int, add] = 0
    seen: Annotated[dict[str, int], merged] = {}
    mine: Annotated[str, local] = ""


def step(name: str) -> Node:
    @node(effect="pure")
    def work(state: Board) -> dict[str, Any]:
        return {"log": name, "total": 1, "seen": {name: len(state.log)}, "mine": state.mine + name}

    return work


def turns(name: str, *outcomes: str) -> Node:
    """Gives the first outcome once, and then the second."""

    @node(effect="pure", outcomes=outcomes)
    def turn(state: Board) -> Outcome[str]:
        return Outcome(outcomes[1] if name in state.log else outcomes[0], log=name)

    return turn


def shape(edges: str, joins: str = "", **nodes: Node) -> Graph:
    names = {word for line in edges.split("\n") for word in line.split(" : ")[0].replace(",", " ").split()}
    made = {name: nodes.get(name, step(name)) for name in sorted(names - {"->", "START", "END"})}
    for name in joins.split():
        made[name] = made[name].with_(join="all")
    return Graph(name="shape", state=Board, nodes=made, edges=edges, limits=Limits(steps=500))


SHAPES = {
    "k1": lambda: shape("START -> a\na -> b, c\nb, c -> j\nj -> END", "j"),
    "k3": lambda: shape("START -> a\na -> d, b, c\nb, c -> p\np, d -> q\nq -> END", "p q"),
    "k5": lambda: shape("START -> a\na -> w : each xs\nw -> p, q\np, q -> k\nk -> j\nj -> END", "k j"),
    "k8": lambda: shape(
        "START -> a\na -> b, c\nb, c -> j\nj -> a : again\nj -> END : ok", "j", j=turns("j", "again", "ok")
    ),
    "k10": lambda: shape("START -> a\na -> w : each xs\nw -> j\nj -> END", "j"),
    "k11": lambda: shape(
        "START -> a\na -> b, c, d, e\nb, c, d, e -> j\nj -> END", j=step("j").with_(join=2)
    ),
    "k17": lambda: shape(
        "START -> a\na -> b, c\nb -> a : again\nb -> j : ok\nc -> j\nj -> END", "j", b=turns("b", "again", "ok")
    ),
    "k22": lambda: shape(
        "START -> a\na -> s : each xs\ns -> p, q\np, q -> j\nj -> p, q : again\nj -> m : ok\nm -> END",
        "j m", j=turns("j", "again", "ok"),
    ),
}  # fmt: skip
