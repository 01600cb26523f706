"""The contract of checks: each listed fault with its exact message, all of them in one report."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from orchestrator import Graph, Limits, Outcome, Retry, append, node
from orchestrator.errors import InvalidGraph
from orchestrator.graph import Node
from orchestrator.nodes import Confirm, Execute, Subgraph


class State(BaseModel):
    xs: list[int] = []
    n: int = 0
    log: Annotated[list[str], append] = []


@node
def n() -> None: ...


@node
def two() -> Outcome[Literal["ok", "bad"]]:
    return Outcome("ok")


ALL = n.with_(join="all")


def build(edges: str, **nodes: Any) -> Graph:
    return Graph(name=nodes.pop("name", "g"), state=State, nodes=nodes, edges=edges, **nodes.pop("options", {}))


INNER = Graph(name="inner", state=State, nodes={"a": n}, edges="START -> a -> END")

FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a bad name of a node": (
        "START -> a -> END",
        {"a": n, "two words": n},
        "node name 'two words' is not a valid name: use letters, digits, '_' and '-', and start with a letter or '_'",
    ),
    "a reserved name": (
        "START -> a -> END",
        {"a": n, "END": n},
        "node name 'END' has a special meaning in edges: rename the node",
    ),
    "a bad name of the graph": (
        "START -> a -> END",
        {"a": n, "name": "my graph"},
        "graph name 'my graph' is not a valid name: use letters, digits, '_' and '-', and start with a letter or '_'",
    ),
    "an arrow to nowhere": (
        "START -> a -> bb",
        {"a": n, "b": n},
        "edge a -> bb leads to 'bb', which is not a node: did you mean 'b'?",
    ),
    "an arrow from nowhere": (
        "START -> a -> END\nzzz -> a",
        {"a": n},
        "edge zzz -> a starts at 'zzz', which is not a node: add the node, or remove the edge",
    ),
    "an outcome without an edge": (
        "START -> a\na -> END : ok",
        {"a": two},
        "outcome 'bad' of a has no edge: add 'a -> NODE : bad'",
    ),
    "an edge for an undeclared outcome": (
        "START -> a -> END\na -> END : okay",
        {"a": two},
        "edge a -> END : okay is for outcome 'okay', and a declares ok, bad only: did you mean 'ok'?",
    ),
    "an unreachable node": (
        "START -> a -> END\nb -> END",
        {"a": n, "b": n},
        "no path leads from START to b: add an edge to it, or remove it",
    ),
    "END out of reach": (
        "START -> a\na -> END : ok\na -> b : bad\nb -> c -> b",
        {"a": two, "b": n, "c": n},
        "no path leads from b, c to END or STOP: let one of them lead to END",
    ),
    "an ambiguous join": (
        "START -> a -> b, c -> e -> END",
        {"a": n, "b": n, "c": n, "e": n},
        "b and c of fork a meet at e: declare join='all' (once) or 'each' (per branch)",
    ),
    "joins that wait for each other": (
        "START -> a -> b, c\nb -> j1\nc -> j2\nj1 -> j2 : bad\nj2 -> j1 : bad\nj1, j2 -> END : ok",
        {"a": n, "b": n, "c": n, "j1": two.with_(join="all"), "j2": two.with_(join="all")},
        "j1 and j2 wait for each other through j1 -> j2 -> j1: let j2 go back to fork a, or end one of the paths",
    ),
    "a join that nothing meets at": (
        "START -> a -> j -> END",
        {"a": n, "j": ALL},
        "no branches meet at j: remove join",
    ),
    "a join that starves": (
        "START -> a -> b, c -> j -> END",
        {"a": n, "b": n, "c": n, "j": n.with_(join=3)},
        "j waits for 3 branches of fork a, and at most 2 can arrive: declare join=2 or less, or join='all'",
    ),
    "a way past a fork": (
        "START -> p1 -> p2 : each xs\np2 -> w : each xs\nw -> j2 -> j1\nj1 -> w : bad\nj1 -> END : ok",
        {"p1": n, "p2": n, "w": n, "j2": ALL, "j1": two.with_(join="all")},
        "j1 leads back to w, between fork p2 and its join j2: go back to p2, or to a node before it",
    ),
    "a port that does not exist": (
        "START -> a -> END",
        {"a": Confirm(show=("xss",))},
        "port 'show[0]' of a is 'xss', and state State has no such field: did you mean 'xs'?",
    ),
    "a port of another kind": (
        "START -> a -> END",
        {"a": Execute(calls="n", results="log")},
        "port 'calls' of a is 'n', which is not a list: make it one, or name another field",
    ),
    "a map over no field": (
        "START -> a -> b : each ys\nb -> END",
        {"a": n, "b": n},
        "edge a -> b : each ys maps over 'ys', and state State has no such field: add the field, or name another",
    ),
    "a map over no list": (
        "START -> a -> b : each n\nb -> END",
        {"a": n, "b": n},
        "edge a -> b : each n maps over 'n', which is not a list: make it a list, or name another field",
    ),
    "reads of no field": (
        "START -> a -> END",
        {"a": n.with_(reads={"m"})},
        "a reads 'm', and state State has no such field: add the field, or name another",
    ),
    "writes of no field": (
        "START -> a -> END",
        {"a": n.with_(writes={"logg"})},
        "a writes 'logg', and state State has no such field: did you mean 'log'?",
    ),
    "plain writes that never join": (
        "START -> a -> b, c -> END",
        {"a": n, "b": n.with_(writes={"n"}), "c": n.with_(writes={"n"})},
        "b and c both write 'n', in branches b and c of fork a that never join: give 'n' a reducer, or join them",
    ),
    "plain writes of a map that never joins": (
        "START -> a -> b : each xs\nb -> END",
        {"a": n, "b": n.with_(writes={"n"})},
        "b runs once per item of 'xs' and writes 'n', with no join after it: give 'n' a reducer, or join the map",
    ),
    "nothing after START": ("a -> END", {"a": n}, "nothing follows START: add 'START -> NODE'"),
    "a time-out that cannot happen": (
        "START -> a -> END\na -> END : timeout",
        {"a": n},
        (
            "edge a -> END : timeout is never taken, because a has no timeout: "
            "give it timeout=SECONDS, or remove the edge"
        ),
    ),
    "a time-out that no node can have": (
        "START -> a -> END\n* -> END : timeout",
        {"a": n},
        (
            "edge * -> END : timeout is never taken, because no node has a timeout: give one timeout=SECONDS, "
            "or remove the edge"
        ),
    ),
    "a retry on a misspelt error": (
        "START -> a -> END",
        {"a": n.with_(retry=Retry(on=("ValueEror",)))},
        "retry of a is on 'ValueEror', and no error has this name: did you mean 'ValueError'?",
    ),
    "a retry on an error by another module": (
        "START -> a -> END",
        {"a": n.with_(retry=Retry(on=("json:JSONDecodeError",)))},
        (
            "retry of a is on 'json:JSONDecodeError', which is defined as 'json.decoder:JSONDecodeError': "
            "write that, or 'JSONDecodeError'"
        ),
    ),
    "a retry on what is no error": (
        "START -> a -> END",
        {"a": n.with_(retry=Retry(on=("json:loads",)))},
        "retry of a is on 'json:loads', and module json has no error class loads: correct the name",
    ),
    "a retry on a dotted name": (
        "START -> a -> END",
        {"a": n.with_(retry=Retry(on=("json.JSONDecodeError",)))},
        "retry of a is on 'json.JSONDecodeError', which is not a class name: write 'ClassName' or 'module:ClassName'",
    ),
    "inputs outside of reads": (
        "START -> a -> END",
        {"a": Subgraph(INNER, inputs={"n": "n"}, reads={"xs"})},
        "inputs of a use 'n', which its reads= leaves out: add 'n' to reads=",
    ),
    "outputs outside of writes": (
        "START -> a -> END",
        {"a": Subgraph(INNER, outputs={"n": "n"}, writes={"xs"})},
        "outputs of a use 'n', which its writes= leaves out: add 'n' to writes=",
    ),
    "a doubled edge": ("START -> a -> END\na -> END", {"a": n}, "edge a -> END occurs 2 times: keep one"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_each_check_has_its_message(what: str) -> None:
    edges, nodes, message = FAULTS[what]
    with pytest.raises(InvalidGraph) as caught:
        build(edges, **nodes)
    messages = [problem.message for problem in caught.value.problems]
    assert message in messages
    for problem in caught.value.problems:
        assert problem.message in str(caught.value)
        assert problem.code


def test_each_fault_alone_is_one_problem() -> None:
    alone = 0
    for what, (edges, nodes, message) in FAULTS.items():
        with pytest.raises(InvalidGraph) as caught:
            build(edges, **nodes)
        found = [problem.message for problem in caught.value.problems]
        alone += found == [message]
        assert len(found) <= 2, (what, found)
    assert alone >= len(FAULTS) - 6


def test_all_problems_are_in_one_report_naming_node_edge_and_mend() -> None:
    with pytest.raises(InvalidGraph) as caught:
        Graph(
            name="many", state=State, input="nn", output="loggg", limits=Limits(visits={"bb": 2}),
            nodes={"a": two, "b": n.with_(reads={"m"}), "lost": n},
            edges="START -> a\na -> b : okay\na -> END : ok\nb -> nowhere",
        )  # fmt: skip
    text = str(caught.value)
    assert text.startswith("graph 'many' has ")
    for words in (
        "input of the graph is 'nn'", "output of the graph is 'loggg'", "limits.visits names 'bb'", "b reads 'm'",
        "'okay'", "outcome 'bad' of a has no edge", "leads to 'nowhere'",
    ):  # fmt: skip
        assert words in text
    assert len(caught.value.problems) >= 7


def test_check_returns_data() -> None:
    report = build("START -> a -> w : each xs\nw -> END", a=n, w=n).check()
    assert report.errors == ()
    assert report.notes == ("the map over 'xs' has no join: w run once per item",)
    assert report.proofs == ()


def test_a_graph_that_edits_make_wrong_is_refused_too() -> None:
    graph = build("START -> a\na -> END : done", a=n)
    with pytest.raises(InvalidGraph, match="outcome 'x' of a has no edge"):
        graph.replace(a=Bad())
    with pytest.raises(InvalidGraph, match="no branches meet at a: remove join"):
        graph.replace(a=n.with_(join="all"))


class Bad(Node, kind="bad_one", outcomes=("x", "y")):
    """Has two outcomes."""


def test_a_stored_graph_that_only_later_checks_refuse_is_still_read() -> None:
    sound = build("START -> a -> END", a=n.with_(timeout=3))
    data = {**sound.data(), "edges": "START -> a -> END\na -> END : timeout"}
    data["nodes"] = {"a": {**data["nodes"]["a"], "timeout": None, "retry": {"on": ["ValueEror"]}}}
    assert Graph.from_data(data).nodes["a"].timeout is None
    with pytest.raises(InvalidGraph, match="edge nowhere -> a starts at 'nowhere'"):
        Graph.from_data({**data, "edges": "START -> a -> END\nnowhere -> a"})


def test_errors_that_are_defined_later_or_in_a_graph_inside_are_no_fault() -> None:
    class OwnFailure(Exception): ...

    build("START -> a -> END", a=n.with_(retry=Retry(on=("OwnFailure", "TimeoutError", "ModelError"))))
    build("START -> a -> END", a=n.with_(retry=Retry(on=("not_loaded_yet:Failure", "Unheard"))))
    slow = Graph(name="slow", state=State, nodes={"a": n.with_(timeout=3)}, edges="START -> a -> END")
    build("START -> a -> END\na -> END : timeout", a=Subgraph(slow))
