"""`Subgraph`: a graph as a node, in the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Deny, Executor, Graph, Limits, append, node, tool
from orchestrator.errors import GraphUnknown, InvalidGraph
from orchestrator.nodes import ITEM, Ask, Confirm, Subgraph
from orchestrator.testing import ScriptedModel
from tests.support.one_node import error_of, executing

pytestmark = pytest.mark.anyio


class Inner(BaseModel):
    query: str = "nothing"
    lang: str = "en"
    notes: str = ""
    rounds: int = 0


class Outer(BaseModel):
    question: str = "why"
    language: str = "de"
    questions: list[str] = []
    findings: Annotated[list[str], append] = []
    counts: Annotated[list[int], append] = []
    last: str = ""


@node
def look(state: Inner) -> dict[str, object]:
    return {"notes": f"{state.query} in {state.lang}", "rounds": state.rounds + 1}


@node
def fail(state: Inner) -> None:
    raise LookupError(f"no {state.query}")


def inner(
    *, edges: str = "START -> look -> END", output: str = "notes", limits: Limits | None = None, **nodes: Any
) -> Graph:
    return Graph(name="inner", state=Inner, nodes=nodes or {"look": look}, edges=edges, output=output, limits=limits)


MAPPED: dict[str, Any] = {"inputs": {"query": "question", "lang": "language"}, "outputs": {"findings": "notes"}}


def outer(sub: Subgraph, edges: str = "START -> sub -> END", **nodes: Any) -> Graph:
    return Graph(name="outer", state=Outer, nodes={"sub": sub, **nodes}, edges=edges)


async def start(graph: Graph, given: dict[str, Any] | None = None, **options: Any) -> Any:
    async with executing(**options) as (executor, _):
        return await executor.start(graph, given or {})


async def test_fields_go_in_and_out_and_others_are_its_own(store: str) -> None:
    found = await start(outer(Subgraph(inner(), **MAPPED)), store=store)
    assert found.values["findings"] == ["why in de"]
    assert "rounds" not in found.values
    defaults = await start(outer(Subgraph(inner(), outputs={"last": "notes"})))
    assert defaults.values["last"] == "nothing in en"
    neither = await start(outer(Subgraph(inner())))
    assert (neither.status, neither.values["findings"]) == ("completed", [])


async def test_it_begins_anew_each_time() -> None:
    counting = Subgraph(inner(output="rounds"), outputs={"counts": "rounds"})
    assert (await start(outer(counting, "START -> sub -> again -> END", again=counting))).values["counts"] == [1, 1]


async def test_one_for_each_item_with_the_item_as_input(store: str) -> None:
    each = outer(
        Subgraph(inner(), inputs={"query": ITEM}, outputs={"findings": "notes"}),
        "START -> sub : each questions\nsub -> END",
    )
    found = await start(each, {"questions": ["c", "a", "b"]}, store=store)
    assert found.values["findings"] == ["c in en", "a in en", "b in en"]


async def test_at_any_depth() -> None:
    graph = inner()
    for _ in range(5):
        graph = inner(
            edges="START -> sub -> END",
            sub=Subgraph(graph, inputs={"query": "query", "lang": "lang"}, outputs={"notes": "notes"}),
        )
    assert (await start(outer(Subgraph(graph, **MAPPED)))).values["findings"] == ["why in de"]


async def test_the_history_shows_where() -> None:
    async with executing() as (executor, _):
        found = await executor.start(outer(Subgraph(inner(), **MAPPED)), {})
        points = await executor.history(found.run_id)
    assert [(point.path, point.node) for point in points] == [("sub", "look"), ("", "sub")]


# -- what goes through it ------------------------------------------------------------------------------------------


async def test_a_failure_inside_is_the_outer_steps_and_says_where() -> None:
    broken = Subgraph(inner(fail=fail, edges="START -> fail -> END"), **MAPPED)
    found = await start(outer(broken))
    assert error_of(found) == ("LookupError", "no why")
    assert found.error.node == "fail"
    assert found.error.path == "sub"
    mended = outer(
        broken, "START -> sub -> END\nsub -> mend : error\nmend -> END", mend=node(lambda: {"last": "mended"})
    )
    assert (await start(mended)).values["last"] == "mended"


async def test_a_confirmation_inside_pauses_the_run_and_nothing_before_it_runs_again(tmp_path: Path) -> None:
    ran: list[str] = []

    @node
    def prepare() -> None:
        ran.append("x")

    asking = inner(
        prepare=prepare,
        confirm=Confirm(prompt="Go?"),
        look=look,
        edges="START -> prepare -> confirm\nconfirm -> look : approved\nconfirm -> END : denied\nlook -> END",
    )
    graph = outer(
        Subgraph(asking, inputs={"query": ITEM}, outputs={"findings": "notes"}),
        "START -> sub : each questions\nsub -> END",
    )
    store = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store) as executor:
        run = await executor.start(graph, {"questions": ["a", "b"]})
        assert (run.status, len(run.waiting), len(ran)) == ("paused", 2, 2)
        assert len({question.path for question in run.waiting}) == 2
        assert {question.node for question in run.waiting} == {"confirm"}
    async with Executor(store, graphs=[graph]) as executor:
        first, second = sorted(run.waiting, key=lambda question: question.path)
        run = await executor.answer(run.run_id, second.id, Deny())
        run = await executor.answer(run.run_id, first.id, Approve())
    assert (run.status, run.values["findings"], len(ran)) == ("completed", ["a in en", ""], 2)


async def test_a_question_inside_is_answered_from_outside() -> None:
    ask = Ask(prompt="{query}?", show=("query",), answer="notes")
    graph = outer(Subgraph(inner(ask=ask, edges="START -> ask -> END"), **MAPPED))
    async with executing() as (executor, _):
        run = await executor.start(graph, {})
        assert (run.waiting[0].prompt, run.waiting[0].path) == ("why?", "sub")
        run = await executor.answer(run.run_id, run.waiting[0].id, "because")
    assert run.values["findings"] == ["because"]


async def test_a_limit_of_its_own_takes_its_own_way_or_the_outer_one() -> None:
    short = inner(
        look=look,
        more=node(lambda state: {"notes": f"{state.notes}!"}, effect="pure"),
        stop=node(lambda: {"notes": "stopped"}, effect="pure"),
        edges="START -> look -> more\nmore -> END : done\n* -> stop : exhausted\nstop -> END",
        limits=Limits(steps=1),
    )
    caught = outer(
        Subgraph(short, **MAPPED),
        "START -> sub -> END\nsub -> after : exhausted\nafter -> END",
        after=node(lambda: {"last": "went on"}),
    )
    found = await start(caught)
    assert (found.status, found.values["last"], found.values["findings"]) == ("completed", "went on", ["stopped"])


# -- models and tools ----------------------------------------------------------------------------------------------


async def test_models_and_tools_of_the_node_hold_inside() -> None:
    @tool(risk="none", effect="pure")
    def one() -> str:
        """One."""
        return "one"

    @tool(risk="none", effect="pure")
    def two() -> str:
        """Two."""
        return "two"

    @node
    async def use(state: Inner, ctx: Context[None]) -> dict[str, object]:
        names = ",".join(tool.name for tool in ctx.tools)
        return {"notes": f"{(await ctx.model.complete('Hi')).text} {names}"}

    def said(word: str) -> Any:
        return ScriptedModel(lambda request: word)

    used = inner(use=use, edges="START -> use -> END")
    async with Executor(model=said("big"), models={"small": said("small")}, tools=[one, two]) as executor:
        for sub, notes in [
            (Subgraph(used, **MAPPED), "big one,two"),
            (Subgraph(used, model="small", tools=("two",), **MAPPED), "small two"),
            (Subgraph(inner(use=use.with_(model="small"), edges="START -> use -> END"), **MAPPED), "small one,two"),
        ]:
            assert (await executor.start(outer(sub), {})).values["findings"] == [notes]


async def test_a_graph_as_a_tool_is_a_run_of_its_own() -> None:
    asks = inner().as_tool("look_up", "Looks something up.")
    assert (asks.name, asks.description, asks.effect) == ("look_up", "Looks something up.", "idempotent")

    @node
    async def use(ctx: Context[None]) -> dict[str, object]:
        result = await ctx.tool("look_up", query="what")
        return {"last": f"{result.text} {result.metadata['status']}"}

    graph = Graph(name="outer", state=Outer, nodes={"use": use}, edges="START -> use -> END")
    async with executing(tools=(asks,)) as (executor, _):
        found = await executor.start(graph, {})
        runs = (await executor.runs()).runs
    assert found.values["last"] == "what in en completed"
    assert sorted(info.graph for info in runs) == ["inner", "outer"]


# -- building ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"inputs": {"nobody": "question"}}, "nobody"),
        ({"inputs": {"query": "nowhere"}}, "nowhere"),
        ({"outputs": {"nothing": "notes"}}, "nothing"),
        ({"outputs": {"last": "nope"}}, "nope"),
    ],
)
def test_fields_that_are_not_there_are_found_when_the_graph_is_built(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidGraph, match=field):
        outer(Subgraph(inner(), **options))


async def test_it_is_saved_with_its_graph(tmp_path: Path) -> None:
    asking = inner(ask=Ask(prompt="?", answer="notes"), edges="START -> ask -> END")
    graph = outer(Subgraph(asking, **MAPPED))
    graph.save(tmp_path / "g.yaml")
    loaded = Graph.load(tmp_path / "g.yaml")
    assert (loaded.structure, loaded.content) == (graph.structure, graph.content)
    assert loaded.nodes["sub"].subgraph is not None
    assert list(loaded.nodes["sub"].subgraph.nodes) == ["ask"]


async def test_without_an_executor_it_cannot_be_called() -> None:
    with pytest.raises(GraphUnknown, match="subgraph 'inner' cannot be called as a function"):
        await Subgraph(inner()).run(Outer(), None)
