"""The contract of edges: every form of the arrow text, what each means when it runs, and what is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, JsonValue

from orchestrator import Context, Graph, Outcome, append, node
from orchestrator.errors import ArrowSyntaxError, GraphError, InvalidGraph
from orchestrator.graph import Edge


class Log(BaseModel):
    items: list[JsonValue] = []
    more: list[JsonValue] = []
    log: Annotated[list[JsonValue], append] = []
    choose: str = "done"


@node(effect="pure")
def say(state: Log, ctx: Context) -> dict[str, Any]:
    """Log the name of the node that this is used for."""
    return {"log": ctx.node}


@node(effect="pure", outcomes=("red", "green", "blue"))
def choose(state: Log) -> Outcome[str]:
    """Take the outcome that the state names."""
    return Outcome(state.choose, log="choose")


def graph(edges: Any, **nodes: Any) -> Graph:
    """A graph of nodes that log their names; those that are not given are made."""
    wanted = [name for edge in Edges(edges) for name in (edge.source, edge.target)]
    names = [name for name in dict.fromkeys(wanted) if name not in ("START", "END", "STOP", "*")]
    return Graph(name="g", state=Log, nodes={n: nodes.get(n, say) for n in names}, edges=edges, output="log")


def Edges(edges: Any) -> tuple[Edge, ...]:  # noqa: N802
    from orchestrator.graph import parse_edges

    return parse_edges(edges)


def texts(edges: Any) -> list[str]:
    return [str(edge) for edge in Edges(edges)]


FORMS = {
    "a -> b": ["a -> b"],
    "a->b": ["a -> b"],
    "  a   ->  b  ": ["a -> b"],
    "a -> b, c": ["a -> b", "a -> c"],
    "b, c -> j": ["b -> j", "c -> j"],
    "a, b -> c, d": ["a -> c", "a -> d", "b -> c", "b -> d"],
    "a -> b -> c": ["a -> b", "b -> c"],
    "a -> b, c -> d": ["a -> b", "a -> c", "b -> d", "c -> d"],
    "a -> b : ok": ["a -> b : ok"],
    "a -> b -> c : ok": ["a -> b", "b -> c : ok"],  # a label on a chain belongs to its last arrow
    "a -> b, c : ok": ["a -> b : ok", "a -> c : ok"],
    "a -> b : each xs": ["a -> b : each xs"],
    "a -> b : ok each xs": ["a -> b : ok each xs"],
    "a:ok": None,
    "a -> b # a comment": ["a -> b"],
    "# a comment": [],
    "\n\n": [],
    "a -> b : ok # a -> c": ["a -> b : ok"],
    "START -> a": ["START -> a"],
    "a -> END": ["a -> END"],
    "a -> STOP": ["a -> STOP"],
    "* -> a : error": ["* -> a : error"],
    "* -> a : timeout": ["* -> a : timeout"],
    "* -> a : exhausted": ["* -> a : exhausted"],
    "a -> b : error": ["a -> b : error"],
    "_a-b -> c9": ["_a-b -> c9"],
    "a->b\nb->c": ["a -> b", "b -> c"],
    "a -> b : do-it_2": ["a -> b : do-it_2"],
    "START -> a, b": ["START -> a", "START -> b"],
    "a-b->c-d": ["a-b -> c-d"],
}


@pytest.mark.parametrize(("text", "found"), [(text, found) for text, found in FORMS.items() if found is not None])
def test_every_form_of_the_arrow_text(text: str, found: list[str]) -> None:
    assert texts(text) == found
    assert Edges(texts(text)) == Edges(text)


WRONG = {
    "a": "there is no arrow",
    "a:ok": "there is no arrow",
    "a -> ": "the line ends, expected a name after '->'",
    "-> a": "there is '->', expected a name",
    "a -> b :": "the line ends, expected an outcome or 'each FIELD'",
    "a -> b : each": "the line ends, expected a state field after 'each'",
    "a -> b : ok again": "'again' is unexpected",
    "a -> b : ok each": "a state field after 'each'",
    "a, -> b": "a name after ','",
    "a => b": "write '->'",
    "a --> b": "write '->'",
    "a -> b; b -> c": "write one statement per line",
    "1a -> b": "start with a letter or '_'",
    "a b -> c": "there is no arrow",
    "END -> a": "END is an end: no edge starts there",
    "STOP -> a": "STOP is an end: no edge starts there",
    "a -> START": "no edge can lead back to START",
    "a -> *": "'*' is not a target",
    "* -> a": "'*' as a source takes only a reserved outcome",
    "* -> a : ok": "'*' as a source takes only a reserved outcome",
    "START -> a : ok": "START has no outcomes",
    "a : ok -> b": "there is no arrow",
    "a -> b : ok -> c": "'->' is unexpected",
    "€ -> b": "start with a letter or '_'",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_statement_is_refused_with_line_column_and_mend(text: str) -> None:
    with pytest.raises(ArrowSyntaxError) as caught:
        Edges("x -> y\n" + text)
    assert caught.value.line == 2
    assert WRONG[text] in str(caught.value)
    assert caught.value.column >= 1
    assert str(caught.value).startswith(f"line 2, column {caught.value.column}: ")


def test_objects_tuples_and_text_can_be_mixed_and_come_out_as_text() -> None:
    mixed = [Edge("START", "a"), ("a", "b"), "b -> c -> d", ("d", "END", None)]
    assert texts(mixed) == ["START -> a", "a -> b", "b -> c", "c -> d", "d -> END"]
    assert graph(mixed).model_dump()["edges"] == "START -> a -> b -> c -> d -> END"
    assert texts([("a", "b", "ok"), ("a", "c", None, "items"), ("a", "d", "ok", "items")]) == [
        "a -> b : ok", "a -> c : each items", "a -> d : ok each items",
    ]  # fmt: skip
    for wrong in [("a",), ("a", "b", "c", "d", "e"), (1, 2)]:
        with pytest.raises(ArrowSyntaxError, match="is not an edge"):
            Edges([wrong])


# -- what they mean -------------------------------------------------------------------------------------------------


async def log(graph: Graph, **given: Any) -> Any:
    run = await graph.run(given)
    assert run.status == "completed", run.error
    return run.output


pytestmark = pytest.mark.anyio
LABELLED = "START -> c -> other\nc -> red : red\nred, other -> END"


@pytest.mark.parametrize(("outcome", "taken"), [("red", "red"), ("green", "other"), ("blue", "other")])
async def test_an_edge_without_an_outcome_is_for_every_outcome_that_no_labelled_edge_names(
    outcome: str, taken: str
) -> None:
    assert await log(graph(LABELLED, c=choose), choose=outcome) == ["choose", taken]


@pytest.mark.parametrize(("outcome", "taken"), [("red", ["red"]), ("green", ["w", "w", "j"])])
async def test_each_without_an_outcome_likewise(outcome: str, taken: list[str]) -> None:
    edges = "START -> c -> w : each items\nc -> red : red\nw -> j\nred, j -> END"
    found = await log(graph(edges, c=choose, j=say.with_(join="all")), choose=outcome, items=[1, 2])
    assert found == ["choose", *taken]


async def test_an_edge_without_an_outcome_does_not_take_reserved_ones() -> None:
    @node
    def bad(state: Log) -> None:
        raise ValueError("broken")

    run = await graph("START -> bad -> a -> END", bad=bad).run()
    assert run.status == "failed"
    assert await log(graph("START -> bad -> a -> END\nbad -> b : error\nb -> END", bad=bad)) == ["b"]


async def test_several_matching_edges_are_a_fork() -> None:
    joined = graph("START -> a -> b, c -> j -> END", j=say.with_(join="all"))
    assert await log(joined) == ["a", "b", "c", "j"]
    of_one_outcome = graph("START -> c -> x, y : red\nc -> z\nx, y, z -> j -> END", c=choose, j=say.with_(join="all"))
    assert await log(of_one_outcome, choose="red") == ["choose", "x", "y", "j"]
    assert await log(of_one_outcome, choose="blue") == ["choose", "z", "j"]
    assert await log(graph("START -> a, b -> j -> END", j=say.with_(join="all"))) == ["a", "b", "j"]


async def test_each_is_a_map_with_one_branch_per_item_and_item_holds_up_to_the_join() -> None:
    @node
    def show(state: Log, ctx: Context, item: Any) -> dict[str, Any]:
        return {"log": [ctx.node, item, list(ctx.items)]}

    edges = "START -> plan -> w : each items\nw -> v -> j -> k -> END"
    found = await log(graph(edges, w=show, v=show, j=show.with_(join="all"), k=show), items=["x", "y"])
    assert found == [
        "plan", ["w", "x", ["x"]], ["v", "x", ["x"]], ["w", "y", ["y"]], ["v", "y", ["y"]],
        ["j", None, []], ["k", None, []],
    ]  # fmt: skip


async def test_the_item_of_the_outer_map_is_the_second_last_of_items() -> None:
    @node
    def show(state: Log, ctx: Context) -> dict[str, Any]:
        return {"log": [ctx.items[-2], ctx.item]}

    edges = "START -> p -> q : each items\nq -> w : each more\nw -> i -> o -> END"
    nodes = {"w": show, "i": say.with_(join="all"), "o": say.with_(join="all")}
    found = await log(graph(edges, **nodes), items=[1, 2], more=["a", "b"])
    assert found == ["p", "q", [1, "a"], [1, "b"], "i", "q", [2, "a"], [2, "b"], "i", "o"]


async def test_items_with_id_and_needs_form_a_dag() -> None:
    @node
    def work(state: Log, item: dict[str, Any]) -> dict[str, Any]:
        return {"log": {"id": item["id"], "sees": [entry["id"] for entry in state.log]}}

    items = [
        {"id": "e", "needs": ["b", "c"]},
        {"id": "b", "needs": ["a"]},
        {"id": "c", "needs": []},
        {"id": "a", "needs": []},
    ]
    edges = "START -> w : each items\nw -> j -> END"
    found = await log(graph(edges, w=work, j=node(lambda: None).with_(join="all")), items=items)
    # Causes before effects, then lowest branch first; what a node saw is in the order of the final state.
    assert found == [
        {"id": "c", "sees": []},
        {"id": "a", "sees": []},
        {"id": "b", "sees": ["a"]},
        {"id": "e", "sees": ["c", "a", "b"]},
    ]


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([{"id": "a", "needs": ["z"]}], "z"),
        ([{"id": "a", "needs": []}, {"id": "a", "needs": []}], "a"),
        ([{"id": "a", "needs": ["b"]}, {"id": "b", "needs": ["a"]}], "a"),
    ],
)
async def test_items_that_form_no_dag_fail_the_node_that_maps(items: list[Any], words: str) -> None:
    run = await graph("START -> p -> w : each items\nw -> END").run({"items": items})
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.node == "p"
    assert words in run.error.message


async def test_end_absorbs_and_is_merged_when_the_graph_ends_and_stop_ends_with_its_own_state() -> None:
    assert await log(graph("START -> a -> b, c\nb, c -> END")) == ["a", "b", "c"]
    for edges in ("START -> a -> b, c\nb -> STOP\nc -> END", "START -> a -> c, b\nb -> STOP\nc -> c2 -> END"):
        assert await log(graph(edges)) == ["a", "b"]


async def test_an_unknown_route_is_an_error() -> None:
    run = await graph("START -> c -> END", c=choose).run({"choose": "violet"})
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "InvalidOutcome"
    assert "violet" in run.error.message
    assert all(repr(name) in run.error.message for name in ("red", "green", "blue"))


def test_the_first_line_of_a_wrong_list_of_edges_is_counted_on() -> None:
    with pytest.raises(ArrowSyntaxError) as caught:
        Edges(["a -> b\nb -> c", "c => d"])
    assert caught.value.line == 3


def test_one_node_can_be_used_under_many_names_with_other_options() -> None:
    found = graph("START -> a -> b, c -> j -> END", j=say.with_(join="all"))
    assert found.nodes["a"] is found.nodes["b"]
    assert (found.nodes["j"].join, say.join) == ("all", None)


def test_a_fork_that_meets_without_a_word_is_refused_with_the_mend() -> None:
    with pytest.raises(InvalidGraph, match=r"b and c of fork a meet at j: declare join='all' \(once\) or 'each'"):
        graph("START -> a -> b, c -> j -> END")
    assert issubclass(InvalidGraph, GraphError)


@pytest.mark.parametrize(
    ("join", "found"),
    [("all", ["a", "b", "c", "d", "j"]), ("each", ["a", "b", "j", "c", "j", "d", "j"])],
)
async def test_joins(join: Literal["all", "each"], found: list[str]) -> None:
    assert await log(graph("START -> a -> b, c, d -> j -> END", j=say.with_(join=join))) == found


async def test_a_join_of_some_takes_the_first_and_merges_them_in_branch_order() -> None:
    first, *some, last = await log(graph("START -> a -> b, c, d -> j -> END", j=say.with_(join=2)))
    assert (first, last, len(some)) == ("a", "j", 2)
    assert some == sorted(some)  # which two is a race: trio starts tasks in no order
