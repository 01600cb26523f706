"""Every check has a graph that it refuses, and one exact message with a suggested fix; C2 to C7 are in tests/kernel."""

from __future__ import annotations

import cProfile
from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from orchestrator import Graph
from orchestrator.errors import InvalidGraph
from orchestrator.graph import Edge, Limits, Node, Outcome, Port, append, local, node
from orchestrator.graph.checks.shape import shape_problems
from orchestrator.graph.topology import NodeShape, Topology


class State(BaseModel):
    text: str = ""
    items: list[str] = []
    seen: Annotated[list[str], append] = []
    mine: Annotated[str, local] = ""


class Need(BaseModel):
    query: str
    notes: list[str] = []


class Step(Node):
    text: Annotated[str | None, Port(str)] = None
    list: Annotated[str | None, Port(list)] = None
    show: Annotated[tuple[str, ...], Port()] = ()

    async def run(self, state: State, ctx: object) -> None: ...


class Inside(Node):
    graph: Graph
    inputs: Mapping[str, str] = Field(default_factory=dict)
    outputs: Mapping[str, str] = Field(default_factory=dict)

    @property
    def subgraph(self) -> Graph:
        return self.graph

    async def run(self, state: State, ctx: object) -> None: ...


def choice(*outcomes: str) -> Node:
    @node(outcomes=outcomes)
    def choose(state: State) -> Outcome[Any]: ...

    return choose


def build(edges: object, nodes: Mapping[str, Node] | None = None, **options: Any) -> Graph:
    return Graph(**{"name": "g", "state": State, "nodes": nodes or {"a": Step()}, "edges": edges, **options})


def messages(edges: object, nodes: Mapping[str, Node] | None = None, **options: Any) -> list[str]:
    with pytest.raises(InvalidGraph) as raised:
        build(edges, nodes, **options)
    return [problem.message for problem in raised.value.problems]


A = "START -> a -> END"
AB = "START -> a -> b -> END"
TWO = {"a": Step(), "b": Step()}
inner = Graph(name="inner", state=Need, nodes={"a": Step()}, edges=A)

# -- names ------------------------------------------------------------------------------------------------------


def test_the_graph_s_name() -> None:
    assert messages(A, name="my graph") == [
        "graph name 'my graph' is not a valid name: use letters, digits, '_' and '-', and start with a letter or '_'"
    ]


def test_no_nodes() -> None:
    with pytest.raises(InvalidGraph, match="the graph has no nodes: add one"):
        Graph(name="g", state=State, nodes={}, edges="START -> END")


def test_a_node_s_name() -> None:
    assert messages([("START", "1a"), ("1a", "END")], {"1a": Step()}) == [
        "node name '1a' is not a valid name: use letters, digits, '_' and '-', and start with a letter or '_'"
    ]


@pytest.mark.parametrize("name", ["START", "END", "STOP", "*"])
def test_a_node_s_name_that_means_something_else(name: str) -> None:
    assert f"node name {name!r} has a special meaning in edges: rename the node" in messages(
        A, {"a": Step(), name: Step()}
    )


def test_an_outcome_declared_by_hand_that_is_reserved() -> None:
    assert messages("START -> a -> END", {"a": choice("ok", "error")}) == [
        "a declares outcome 'error', which every node has: remove it; edges can use it anyway"
    ]


@pytest.mark.parametrize("outcome", ["each", "not ok", "END"])
def test_an_outcome_s_name(outcome: str) -> None:
    assert messages(A, {"a": choice("ok", outcome)}) == [
        f"a declares outcome {outcome!r}, which no edge can name: rename it"
    ]


def test_an_outcome_declared_twice_and_none() -> None:
    assert messages(A, {"a": choice("ok", "ok")}) == ["a declares outcome 'ok' twice: remove one"]
    assert messages(A, {"a": choice()}) == ["a declares no outcome: declare one, such as 'done'"]


def test_a_visits_limit_of_no_node() -> None:
    assert messages(A, limits=Limits(visits={"aa": 3})) == [
        "limits.visits names 'aa', which is not a node: did you mean 'a'?"
    ]


# -- edges ------------------------------------------------------------------------------------------------------


def test_an_edge_from_no_node() -> None:
    assert messages(f"{A}\nwrite -> a") == [
        "edge write -> a starts at 'write', which is not a node: add the node, or remove the edge"
    ]


def test_an_edge_to_no_node() -> None:
    assert messages("START -> a -> ned", {"a": Step()}) == [
        "edge a -> ned leads to 'ned', which is not a node: add the node, or remove the edge"
    ]
    assert messages("START -> aa -> END", {"aaa": Step()})[0] == (
        "edge START -> aa leads to 'aa', which is not a node: did you mean 'aaa'?"
    )


def test_edges_that_only_objects_can_say() -> None:
    found = messages(
        [Edge("START", "a"), Edge("a", "END"), Edge("END", "a"), Edge("a", "START"), Edge("*", "a", "ok"),
         Edge("*", "a", "error", "items"), Edge("START", "a", "ok")]
    )  # fmt: skip
    assert found == [
        "edge END -> a starts at END, where no edge can start: remove it",
        "edge a -> START leads to START, which is not a target: name a node",
        "edge * -> a : ok: '*' takes only a reserved outcome (error, timeout, exhausted): name one",
        "edge * -> a : error each items: '*' cannot map: remove 'each items'",
        "edge START -> a : ok: START has no outcomes: remove 'ok'",
    ]


def test_an_edge_for_an_undeclared_outcome() -> None:
    assert messages("START -> a -> END : god\na -> a : bad", {"a": choice("good", "bad")}) == [
        "edge a -> END : god is for outcome 'god', and a declares good, bad only: did you mean 'good'?",
        "outcome 'good' of a has no edge: add 'a -> NODE : good'",
    ]


def test_an_outcome_without_an_edge() -> None:
    assert messages("START -> a -> END : good", {"a": choice("good", "bad")}) == [
        "outcome 'bad' of a has no edge: add 'a -> NODE : bad'"
    ]
    assert messages("START -> a\nSTART -> END") == ["outcome 'done' of a has no edge: add 'a -> NODE'"]


def test_an_edge_that_no_outcome_takes() -> None:
    assert messages("START -> a -> END : ok\na -> a", {"a": choice("ok")}) == [
        "edge a -> a is never taken: every outcome of a has its own edge; remove it, or name one"
    ]


def test_reserved_outcomes_need_no_edge_and_take_one() -> None:
    build("START -> a -> END\na -> b : error\nb -> END\n* -> b : exhausted", TWO)


def test_an_edge_that_is_there_twice() -> None:
    assert messages(f"{A}\nSTART -> a") == ["edge START -> a occurs 2 times: keep one"]


def test_nothing_after_start() -> None:
    assert messages("a -> END") == [
        "nothing follows START: add 'START -> NODE'",
    ]


def test_two_ways_for_what_happens_once() -> None:
    assert messages(f"{AB}\n* -> a : exhausted\n* -> b : exhausted", TWO) == [
        "'* : exhausted' leads to a, b: it is taken once, so keep one of them"
    ]


# -- reach ------------------------------------------------------------------------------------------------------


def test_nodes_that_nothing_leads_to() -> None:
    assert messages(f"{A}\nb -> c -> b", {**TWO, "c": Step()}) == [
        "no path leads from START to b, c: add edges to them, or remove them"
    ]


def test_nodes_that_lead_nowhere() -> None:
    assert messages("START -> a -> b -> a\nSTART -> END", TWO) == [
        "no path leads from a, b to END or STOP: let one of them lead to END"
    ]


def test_stop_is_an_end_and_a_star_leads_out_of_everything() -> None:
    build("START -> a -> STOP")
    build("START -> a -> a\n* -> b : exhausted\nb -> END", TWO)


# -- fields -----------------------------------------------------------------------------------------------------


def test_input_and_output_of_no_field() -> None:
    assert messages(A, input=("txt", "text"), output="result") == [
        "input of the graph is 'txt', and state State has no such field: did you mean 'text'?",
        "output of the graph is 'result', and state State has no such field: add the field, or name another",
    ]


def test_a_map_over_no_field() -> None:
    assert messages("START -> a : each item\na -> END") == [
        "edge START -> a : each item maps over 'item', and state State has no such field: did you mean 'items'?"
    ]


def test_a_map_over_what_is_no_list() -> None:
    assert messages("START -> a : each text\na -> END") == [
        "edge START -> a : each text maps over 'text', which is not a list: make it a list, or name another field"
    ]


def test_a_port_of_no_field() -> None:
    assert messages(A, {"a": Step(text="txt", show=("text", "sen"))}) == [
        "port 'text' of a is 'txt', and state State has no such field: did you mean 'text'?",
        "port 'show[1]' of a is 'sen', and state State has no such field: did you mean 'seen'?",
    ]


def test_a_port_of_another_kind() -> None:
    assert messages(A, {"a": Step(text="items", list="items")}) == [
        "port 'text' of a is 'items', which is not a str: make it one, or name another field"
    ]


def test_reads_and_writes_of_no_field() -> None:
    assert messages(A, {"a": Step(reads=frozenset({"x"}), writes=frozenset({"txt"}))}) == [
        "a reads 'x', and state State has no such field: add the field, or name another",
        "a writes 'txt', and state State has no such field: did you mean 'text'?",
    ]


def test_what_goes_into_a_subgraph_and_comes_out_of_it() -> None:
    assert messages(A, {"a": Inside(graph=inner, inputs={"qery": "text"}, outputs={"text": "note"})}) == [
        "inputs of a name 'qery', and state Need of its graph inner has no such field: did you mean 'query'?",
        "outputs of a name 'note', and state Need of its graph inner has no such field: did you mean 'notes'?",
        "a gives its graph inner no 'query', which has no default: add it to inputs=",
    ]
    build(A, {"a": Inside(graph=inner, inputs={"query": "text"}, outputs={"items": "notes"})})


# -- writes -----------------------------------------------------------------------------------------------------


def writer(*fields: str, **options: Any) -> Node:
    return Step(writes=frozenset(fields), **options)


FORK = "START -> a -> b, c -> END"


def test_plain_writes_by_branches_that_never_join() -> None:
    assert messages(FORK, {"a": Step(), "b": writer("text"), "c": writer("text", "seen")}) == [
        "b and c both write 'text', in branches b and c of fork a that never join: give 'text' a reducer, or join them"
    ]


def test_a_plain_write_by_every_item_of_a_map() -> None:
    assert messages("START -> a -> b : each items\nb -> END", {"a": Step(), "b": writer("text")}) == [
        (
            "b runs once per item of 'items' and writes 'text', with no join after it: "
            "give 'text' a reducer, or join the map"
        )
    ]


def test_writes_that_are_no_conflict_for_certain() -> None:
    build(FORK, {"a": Step(), "b": writer("seen", "mine"), "c": writer("seen", "mine")})
    build(FORK, {"a": Step(), "b": writer("text"), "c": writer("items")})
    build(FORK, {"a": Step(), "b": Step(), "c": writer("text")})
    build("START -> a -> b, c\nb -> END\nc -> STOP", {"a": Step(), "b": writer("text"), "c": writer("text")})
    build(
        "START -> a -> b, c -> j -> END",
        {"a": Step(), "b": writer("text"), "c": Step(), "j": writer("text", join="all")},
    )


# -- the shape --------------------------------------------------------------------------------------------------


def test_faults_of_the_shape_are_in_the_report_too() -> None:
    nodes = {name: Step() for name in "abcd"}
    assert messages("START -> a -> b, c -> d -> END", nodes) == [
        "b and c of fork a meet at d: declare join='all' (once) or 'each' (per branch)"
    ]


def test_what_is_legal_and_often_not_meant_is_a_note() -> None:
    graph = build("START -> a -> b : each items\nb -> END", TWO)
    assert graph.check().errors == ()
    assert graph.check().notes == ("the map over 'items' has no join: b run once per item",)


# -- pools --------------------------------------------------------------------------------------------------------


def test_a_pool_that_no_node_names_is_a_note() -> None:
    graph = build(A, {"a": Step(pool="printer")}, pools={"printer": 1, "door": 1})
    note = "no node names pool 'door': give it to the nodes that share it, pool='door', or remove it"
    assert graph.check().notes == (note,)


def test_a_pool_that_the_graph_does_not_have() -> None:
    assert messages(A, {"a": Step(pool="printre")}, pools={"printer": 1}) == [
        "a names pool 'printre', which the graph does not have: did you mean 'printer'?"
    ]
    assert messages(A, {"a": Step(pool="printer")}) == [
        "a names pool 'printer', which the graph does not have: add it to the graph: pools={'printer': 1}"
    ]


@pytest.mark.parametrize("size", [0, -1, 1.5, "many"])
def test_the_size_of_a_pool_is_a_positive_number(size: object) -> None:
    with pytest.raises(ValidationError, match="pools"):
        build(A, pools={"printer": size})


def test_the_name_of_a_pool() -> None:
    assert messages(A, pools={"my printer": 1}) == [
        "pool name 'my printer' is not a valid name: use letters, digits, '_' and '-', and start with a letter or '_'"
    ]


def test_a_pool_inside_itself() -> None:
    printing = build(A, {"a": Step(pool="printer")}, pools={"printer": 2})
    section = Inside(graph=printing, pool="printer")
    assert messages("START -> s -> END", {"s": section}, pools={"printer": 2}) == [
        (
            "s/a waits for pool printer while s holds printer: "
            "name pools inside each other in one order, and none inside itself"
        )
    ]


def test_pools_that_wait_for_each_other() -> None:
    def holds(outer: str, name: str) -> Inside:
        graph = build("START -> x -> END", {"x": Step(pool=name)}, pools={name: 1})
        return Inside(graph=graph, pool=outer)

    pools = {"p": 1, "q": 1, "r": 1}
    nodes = {"a": holds("p", "q"), "b": holds("q", "p"), "c": holds("p", "r")}
    assert messages("START -> a -> b -> c -> END", nodes, pools=pools) == [
        (
            "a/x waits for pool q while a holds p; b/x waits for pool p while b holds q: "
            "name pools inside each other in one order, and none inside itself"
        )
    ]
    assert build("START -> a -> c -> END", {"a": nodes["a"], "c": nodes["c"]}, pools=pools).pools == pools


def test_pools_that_wait_for_each_other_through_two_depths() -> None:
    deep = build("START -> x -> END", {"x": Step(pool="p")}, pools={"p": 1})
    middle = build("START -> y -> END", {"y": Inside(graph=deep)})
    assert messages("START -> s -> END", {"s": Inside(graph=middle, pool="p")}, pools={"p": 1})[0].startswith(
        "s/y/x waits for pool p while s holds p:"
    )


@pytest.mark.full
@pytest.mark.parametrize("size", [60, 200])
def test_nodes_that_lead_each_to_each_are_checked_by_work_in_proportion_to_their_edges(size: int) -> None:
    """Every fault of theirs is found: all meet without a word, and are too tangled to be understood."""
    names = [f"n{number}" for number in range(size)]
    edges = [Edge("START", "n0"), *(Edge(one, other) for one in names for other in names if one != other)]
    topology = Topology({name: NodeShape() for name in names}, edges)
    shape_problems(Topology({"a": NodeShape()}, [Edge("START", "a"), Edge("a", "END")]))  # networkx is imported
    with cProfile.Profile() as profile:
        found = shape_problems(topology)
    assert len(found) == size + 1
    assert {problem.code for problem in found} == {"C2", "C3"}
    assert sum(entry.callcount for entry in profile.getstats()) < 100 * len(edges)
