"""The graph: one frozen value that says all, with two digests and edits that give new graphs."""

from __future__ import annotations

import copy

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator import Graph
from orchestrator.errors import GraphError, InvalidGraph, InvalidInput
from orchestrator.graph import Edge, Limits, Node, node
from tests.graph import sample
from tests.graph.sample import Ask, Essay, grade, make, write
from tests.support.costs import in_proportion


def test_a_graph_says_what_it_is_made_of() -> None:
    graph = make()
    assert list(graph.nodes) == ["write", "grade", "publish"]
    assert graph.edges[2] == Edge("grade", "write", "retry")
    assert graph.schema.cls is Essay
    assert graph.check().errors == ()
    assert str(graph) == "Graph('essay', 3 nodes, 6 edges)"


def test_a_graph_is_frozen() -> None:
    graph = make()
    with pytest.raises(ValidationError):
        graph.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        graph.nodes["x"] = write  # type: ignore[index]
    assert copy.deepcopy(graph) is graph


def test_a_copy_is_checked_too() -> None:
    assert make().model_copy(update={"output": None}).content == make(output=None).content
    with pytest.raises(InvalidGraph):
        make().model_copy(update={"output": "x"})
    assert sample.write.model_copy(update={"join": "all"}).join == "all"


def test_equal_graphs_are_equal() -> None:
    assert make() == make()
    assert hash(make()) == hash(make())
    assert make() != make(limits=Limits(steps=1))


def test_plain_functions_and_data_are_nodes_too() -> None:
    graph = Graph(
        name="g",
        state=Essay,
        nodes={"a": sample.plain, "b": {"kind": "function", "ref": "tests.graph.sample:plain"}},
        edges=[("START", "a"), "a -> b -> END"],
    )
    assert [n.kind for n in graph.nodes.values()] == ["function", "unresolved"]


@pytest.mark.parametrize("state", [dict, Essay(topic="x"), None])
def test_a_state_is_a_pydantic_model(state: object) -> None:
    with pytest.raises(GraphError, match=r"state is .*: use a pydantic model class"):
        make(state=state)


def test_a_class_is_no_node() -> None:
    with pytest.raises(GraphError, match=r"node 'a' is the class Ask: make one, Ask\(...\)"):
        Graph(name="g", state=Essay, nodes={"a": Ask}, edges="START -> a -> END")
    with pytest.raises(GraphError, match="node 'a' is 3: use a Node, a function, or a node as data"):
        Graph(name="g", state=Essay, nodes={"a": 3}, edges="START -> a -> END")  # type: ignore[dict-item]


def test_all_problems_are_in_one_report() -> None:
    with pytest.raises(InvalidGraph) as raised:
        make(input="topc", edges="START -> write -> grade\ngrade -> publsh : good\npublish -> END")
    assert [problem.message for problem in raised.value.problems] == [
        "edge grade -> publsh : good leads to 'publsh', which is not a node: did you mean 'publish'?",
        "outcome 'retry' of grade has no edge: add 'grade -> NODE : retry'",
        "input of the graph is 'topc', and state Essay has no such field: did you mean 'topic'?",
    ]
    assert str(raised.value).startswith("graph 'essay' has 3 problems:\n  - edge grade")


# -- input and output -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["graphs", {"topic": "graphs"}, Essay(topic="graphs")])
def test_a_bare_input_fills_the_input_field(given: object) -> None:
    assert make().initial(given) == {"topic": "graphs", "drafts": [], "score": 0.0, "feedback": ""}


def test_several_input_fields_take_several_values() -> None:
    graph = make(input=("topic", "score"), output=("score", "drafts"))
    start = graph.initial(["graphs", 1])
    assert (start["topic"], start["score"]) == ("graphs", 1.0)
    assert graph.result(start) == {"score": 1.0, "drafts": []}
    with pytest.raises(
        InvalidInput, match="input of graph 'essay' is topic, score: give a list of 2 values, or a mapping"
    ):
        graph.initial("graphs")


def test_a_graph_without_an_input_field_wants_a_mapping() -> None:
    with pytest.raises(InvalidInput, match=r"graph 'essay' names no input field: give a mapping .*Graph\(input=...\)"):
        make(input=None).initial("graphs")


def test_the_output_is_a_field_or_the_whole_state() -> None:
    values = make().initial("graphs")
    assert make().result(values) == []
    assert make(output=None).result(values) == values


# -- digests ----------------------------------------------------------------------------------------------------


class OtherEssay(Essay):
    more: str = ""


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": {"write": write, "grade": grade, "publish": Ask(prompt="Other?")}},
        {"nodes": {"write": write.with_(version="2"), "grade": grade, "publish": Ask(prompt="Publish?\nReally?")}},
        {"limits": Limits(steps=7)},
        {"output": None},
        {"version": "2"},
    ],
)
def test_what_does_not_change_the_shape_changes_the_content_only(changes: dict[str, object]) -> None:
    assert make(**changes).structure == make().structure
    assert make(**changes).content != make().content


@pytest.mark.parametrize(
    "changes",
    [
        {"state": OtherEssay},
        {"edges": str(make().data()["edges"]).replace("publish -> write : denied", "publish -> grade : denied")},
        {"nodes": {"write": write.with_(join="each"), "grade": grade, "publish": Ask(prompt="Publish?\nReally?")}},
    ],
)
def test_what_changes_the_shape_changes_both(changes: dict[str, object]) -> None:
    assert make(**changes).structure != make().structure
    assert make(**changes).content != make().content


def test_words_and_defaults_of_the_state_are_no_structure() -> None:
    class First(BaseModel):
        """One."""

        title: int = 1

    class Second(BaseModel):
        """Two."""

        title: int = 2

    def over(state: type[BaseModel]) -> Graph:
        return Graph(name="g", state=state, nodes={"a": sample.Ask(prompt="")}, edges="START -> a -> END")

    assert over(First).structure == over(Second).structure
    assert over(First).content != over(Second).content


def test_digests_are_the_same_in_every_process() -> None:
    # Written down: a change of these would strand every stored run, so it wants a migration.
    assert make().structure == "f7ae0a4af991a4f627e50a909347ce80"


# -- editing ----------------------------------------------------------------------------------------------------


def test_replace_gives_a_new_graph() -> None:
    graph = make().replace(publish=Ask(prompt="Sure?"))
    assert getattr(graph.nodes["publish"], "prompt", "") == "Sure?"
    assert list(graph.nodes) == list(make().nodes)
    with pytest.raises(GraphError, match="graph 'essay' has no node 'publsh': it has write, grade, publish"):
        make().replace({"publsh": Ask(prompt="")})


def test_insert_before_stands_on_every_way_into_a_node() -> None:
    graph = make().insert_before("write", "check", Ask(prompt="Write?"))
    assert [str(edge) for edge in graph.edges] == [
        "START -> check",
        "write -> grade",
        "grade -> check : retry",
        "grade -> publish : good",
        "publish -> END : approved",
        "publish -> check : denied",
        "check -> write : approved",
        "check -> END : denied",
    ]


def test_insert_before_takes_a_join_over() -> None:
    graph = Graph(
        name="g",
        state=Essay,
        nodes={name: node(lambda: None) for name in "abc"} | {"j": node(lambda: None).with_(join="all")},
        edges="START -> a -> b, c -> j -> END",
    ).insert_before("j", "k", sample.plain)
    assert (graph.nodes["k"].join, graph.nodes["j"].join) == ("all", None)
    assert [str(edge) for edge in graph.edges][-1] == "k -> j"


def test_insert_before_asks_which_outcome_goes_on() -> None:
    class Pick(Node, outcomes=("left", "right")):
        pass

    with pytest.raises(GraphError, match="which outcome of pick leads to write"):
        make().insert_before("write", "pick", Pick())
    graph = make().insert_before("write", "pick", Pick(), outcome="left", otherwise="publish")
    assert [str(edge) for edge in graph.edges][-2:] == ["pick -> write : left", "pick -> publish : right"]


def test_with_limits_changes_some_or_all() -> None:
    assert make().with_limits(steps=5).limits == Limits(steps=5, seconds=60)
    assert make().with_limits(Limits(calls=3)).limits == Limits(calls=3)


# -- size -------------------------------------------------------------------------------------------------------


def test_a_graph_of_2000_nodes_is_built_in_linear_time() -> None:
    def build(size: int) -> None:
        nodes = {f"n{i}": sample.write for i in range(size)}
        edges = "\n".join(f"n{i} -> n{i + 1}" for i in range(size - 1)) + f"\nSTART -> n0\nn{size - 1} -> END"
        graph = Graph(name="long", state=Essay, nodes=nodes, edges=edges)
        assert graph.structure

    in_proportion(build, 250, times=8)
