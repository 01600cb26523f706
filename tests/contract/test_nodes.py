"""The contract of nodes: what they are, what they are given, what they may return, and their options."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel, JsonValue, ValidationError

from orchestrator import Context, Executor, Graph, Limits, Outcome, Retry, Toolbox, Update, append, node, tool
from orchestrator.errors import GraphUnknown, InvalidGraph
from orchestrator.graph import Node, Port
from orchestrator.nodes import Ask, ChooseArgs, ChooseTool, Confirm, Execute, Subgraph, Think
from orchestrator.testing import ScriptedModel
from tests.support.sizes import in_turn

pytestmark = pytest.mark.anyio


class Log(BaseModel):
    items: list[int] = []
    log: Annotated[list[JsonValue], append] = []
    n: int = 0
    word: str = ""


def one(work: Any, edges: str = "START -> work -> END", *, limits: Limits | None = None, **nodes: Any) -> Graph:
    return Graph(name="g", state=Log, nodes={"work": work, **nodes}, edges=edges, output="log", limits=limits)


def logs(word: JsonValue) -> Node:
    return node(effect="pure")(lambda state: {"log": word})


# -- what a node is -------------------------------------------------------------------------------------------------


def test_a_node_is_a_frozen_model_with_a_kind_declared_outcomes_and_an_async_run() -> None:
    import inspect

    shipped = [
        Ask(prompt=""), ChooseArgs(), ChooseTool(), Confirm(), Execute(), Think(), Subgraph(one(logs(1))), logs(1),
    ]  # fmt: skip
    for made in shipped:
        assert isinstance(made, Node)
        assert isinstance(made, BaseModel)
        assert isinstance(made.kind, str)
        assert made.outcomes
        assert inspect.iscoroutinefunction(made.run)
        with pytest.raises(ValidationError, match="frozen"):
            made.version = "2"
    assert [made.kind for made in shipped] == [
        "ask", "choose_args", "choose_tool", "confirm", "execute", "think", "subgraph", "function",
    ]  # fmt: skip


class Greet(Node, kind="greet"):
    """A kind of one's own."""

    field: Annotated[str, Port(str)] = "word"
    greeting: str = "Hello"

    async def run(self, state: Any, ctx: Context) -> Outcome[Literal["met", "stranger"]]:
        name = getattr(state, self.field)
        return Outcome("met" if name else "stranger", {"log": f"{self.greeting}, {name}"})


async def test_a_kind_of_ones_own_runs() -> None:
    assert Greet().outcomes == ("met", "stranger")
    graph = one(Greet(greeting="Hi"), "START -> work -> END : met\nwork -> STOP : stranger")
    assert (await graph.run({"word": "Ada"})).output == ["Hi, Ada"]
    with pytest.raises(InvalidGraph, match="port 'field' of work is 'wrod', and state Log has no such field"):
        one(Greet(field="wrod"), "START -> work -> END")


@pytest.mark.parametrize("result", [None, {}, {"log": "x"}, Outcome("done", log="x"), Outcome("done", {"log": "x"})])
async def test_a_mapping_or_none_means_done(result: Any) -> None:
    run = await one(
        node(effect="pure")(lambda: result), "START -> work -> end : done\nend -> END", end=logs("end")
    ).run()
    assert run.output == [*(["x"] if result and result != {} else []), "end"]


# -- arguments ------------------------------------------------------------------------------------------------------


class Deps(BaseModel):
    word: str


def by_name(state, ctx, item, deps):  # type: ignore[no-untyped-def]
    return {"log": [type(state).__name__, ctx.node, item, deps.word]}


def other_order(deps, item, ctx, state):  # type: ignore[no-untyped-def]
    return {"log": [type(state).__name__, ctx.node, item, deps.word]}


async def asynchronous(item: int, ctx: Context[Deps], state: Log, deps: Deps) -> Update:
    return {"log": [type(state).__name__, ctx.node, item, deps.word]}


def by_annotation(where: Context[Deps], what: Log, item: int) -> Update:
    return {"log": [type(what).__name__, where.node, item, where.deps.word]}


class Methods:
    def method(self, state: Log, ctx: Context[Deps], item: int, deps: Deps) -> Update:
        return {"log": [type(state).__name__, ctx.node, item, deps.word]}

    @classmethod
    def of_class(cls, state: Log, ctx: Context[Deps], item: int, deps: Deps) -> Update:
        return {"log": [type(state).__name__, ctx.node, item, deps.word]}

    @staticmethod
    def static(state: Log, ctx: Context[Deps], item: int, deps: Deps) -> Update:
        return {"log": [type(state).__name__, ctx.node, item, deps.word]}

    def __call__(self, state: Log, ctx: Context[Deps], item: int, deps: Deps) -> Update:
        return {"log": [type(state).__name__, ctx.node, item, deps.word]}


class Awaited:
    async def __call__(self, state: Log, ctx: Context[Deps], item: int, deps: Deps) -> Update:
        return {"log": [type(state).__name__, ctx.node, item, deps.word]}


FUNCTIONS: list[Callable[..., Any]] = [
    by_name, other_order, asynchronous, by_annotation, Methods().method, Methods.of_class, Methods.static, Methods(),
    Awaited(), lambda state, ctx, item, deps: {"log": [type(state).__name__, ctx.node, item, deps.word]},
]  # fmt: skip


@pytest.mark.parametrize(("fn", "effect"), in_turn(FUNCTIONS, ("pure", "idempotent", "irreversible")))
async def test_arguments_are_injected_by_name_or_annotation_into_sync_and_async_functions(fn: Any, effect: Any) -> None:
    graph = one(node(effect=effect)(fn), "START -> plan -> work : each items\nwork -> END", plan=logs(0))
    run = await graph.run({"items": [7]}, deps=Deps(word="d"))
    assert run.status == "completed", run.error
    assert run.output == [0, ["Log", "work", 7, "d"]]


# -- outcomes -------------------------------------------------------------------------------------------------------


def test_outcomes_come_from_the_annotation_or_the_option() -> None:
    @node
    def annotated(state: Log) -> Outcome[Literal["good", "bad"]]:
        return Outcome("good")

    @node(outcomes=("left", "right"))
    def declared(state: Log) -> Outcome[str]:
        return Outcome("left")

    @node
    def neither(state: Log) -> Update:
        return None

    assert annotated.outcomes == ("good", "bad")
    assert declared.outcomes == ("left", "right")
    assert neither.outcomes == ("done",)


@pytest.mark.parametrize("outcome", ["error", "timeout"])
@pytest.mark.parametrize("source", ["work", "*"])
async def test_a_reserved_outcome_is_taken_if_an_edge_names_it_and_ctx_error_is_the_failure(
    outcome: str, source: str
) -> None:
    async def hang() -> None:
        await anyio.sleep(5)

    @node
    def after(state: Log, ctx: Context) -> Update:
        assert ctx.error is not None
        return {"log": [ctx.error.type, ctx.error.node]}

    work = node(lambda: 1 / 0) if outcome == "error" else node(timeout=0.02)(hang)
    kind = "ZeroDivisionError" if outcome == "error" else "StepTimeout"
    graph = one(work, f"START -> work -> END\n{source} -> after : {outcome}\nafter -> END", after=after)
    run = await graph.run()
    assert (run.status, run.output) == ("completed", [[kind, "work"]])
    # ... else it fails the run.
    run = await one(work).run()
    assert run.status == "failed"
    assert run.error is not None
    assert (run.error.type, run.error.node) == (kind, "work")
    assert run.output is None


async def test_ctx_error_is_none_where_nothing_failed() -> None:
    @node
    def look(ctx: Context) -> Update:
        return {"log": ctx.error is None}

    assert (await one(look).run()).output == [True]


@pytest.mark.parametrize("source", ["inner", "*"])
async def test_the_outcome_exhausted_is_taken_if_an_edge_names_it(source: str) -> None:
    @node(effect="pure")
    def turn(state: Log) -> Outcome[Literal["again", "enough"]]:
        return Outcome("again", log=len(state.log))

    loop = Graph(
        name="loop", state=Log, nodes={"turn": turn}, edges="START -> turn\nturn -> turn : again\nturn -> END : enough",
        output="log", limits=Limits(steps=3),
    )  # fmt: skip
    run = await loop.run()
    assert (run.status, run.output) == ("exhausted", [0, 1, 2])  # else it ends the run
    if source == "*":
        outer = Graph(
            name="outer", state=Log, nodes={"turn": turn, "late": logs("late")}, output="log", limits=Limits(steps=3),
            edges="START -> turn\nturn -> turn : again\nturn -> END : enough\n* -> late : exhausted\nlate -> END",
        )  # fmt: skip
        run = await outer.run()
        assert (run.status, run.output) == ("exhausted", [0, 1, 2, "late"])
        return
    outer = Graph(
        name="outer",
        state=Log,
        nodes={"inner": Subgraph(loop, outputs={"n": "n"}), "late": logs("late")},
        output="log",
        edges="START -> inner -> END\ninner -> late : exhausted\nlate -> END",
    )
    run = await outer.run()
    assert (run.status, run.output) == ("completed", ["late"])


# -- options --------------------------------------------------------------------------------------------------------


async def test_every_node_takes_all_options() -> None:
    options: dict[str, Any] = {
        "retry": Retry(attempts=2), "timeout": 5, "join": "each", "reads": {"n"}, "writes": {"log"}, "version": "3",
        "effect": "pure", "model": "cheap", "tools": ("a",),
    }  # fmt: skip
    kinds: list[Callable[..., Node]] = [
        Confirm, Execute, Think, ChooseTool, ChooseArgs, lambda **o: Ask(prompt="", **o),
        lambda **o: Subgraph(one(logs(1)), **o), lambda **o: node(**o)(lambda: None), Greet,
    ]  # fmt: skip
    for kind in kinds:
        made = kind(**options)
        assert {key: getattr(made, key) for key in options} == {
            **options, "reads": frozenset({"n"}), "writes": frozenset({"log"}),
        }  # fmt: skip


async def test_retry() -> None:
    attempts: list[int] = []

    @node(retry=Retry(attempts=3, wait=0, on=("ValueError",)))
    def work(ctx: Context) -> Update:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return {"log": "ok"}

    async with Executor() as ex:
        run = await ex.start(one(work))
        events = [event.type async for event in ex.events(run.run_id)]
    assert (run.output, attempts, run.steps) == (["ok"], [1, 2, 3], 1)
    assert events == ["run_started", "step_retried", "step_retried", "step_done", "ended"]


async def test_reads_and_writes_are_enforced_when_given() -> None:
    run = await one(node(reads={"n"})(lambda state: {"log": state.word})).run()
    assert run.status == "failed"
    assert "reads" in run.error.message
    run = await one(node(reads={"n"})(lambda state: {"log": state.n})).run()
    assert run.output == [0]
    run = await one(node(writes={"log"})(lambda: {"n": 1})).run()
    assert run.status == "failed"
    assert "writes" in run.error.message


async def test_pure_runs_inline_and_other_sync_functions_in_a_thread() -> None:
    here = threading.get_ident()
    seen: list[int] = []
    graph = one(
        node(effect="pure")(lambda: seen.append(threading.get_ident())), "START -> work -> b -> c -> END",
        b=node(lambda: seen.append(threading.get_ident())),
        c=node(effect="irreversible")(lambda: seen.append(threading.get_ident())),
    )  # fmt: skip
    run = await graph.run()
    assert run.status == "completed", run.error
    assert seen[0] == here
    assert here not in seen[1:]


async def test_the_default_effect_starts_only_after_what_it_depends_on_is_durable(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    stored: dict[str, list[str]] = {}

    async def look(ctx: Context) -> None:
        async with Executor(url) as other:
            stored[ctx.node] = [event.type async for event in other.events(ctx.run_id)]

    graph = one(logs(1), "START -> work -> a -> b -> END", a=node(look), b=node(effect="irreversible")(look))
    assert node(look).effect == "idempotent"
    await graph.run(store=url)
    assert stored == {
        "a": ["run_started", "step_done"], "b": ["run_started", "step_done", "step_done", "effect_intended"],
    }  # fmt: skip


async def test_model_and_tools_of_a_node() -> None:
    @tool(risk="none", effect="pure")
    def left() -> str:
        """Left."""
        return "left"

    @tool(risk="none", effect="pure")
    def right() -> str:
        """Right."""
        return "right"

    @node(model="cheap", tools=("right",))
    async def work(ctx: Context) -> Update:
        reply = await ctx.model.complete("?")
        return {"log": [reply.text, [one.name for one in ctx.tools]]}

    with ScriptedModel([]) as dear, ScriptedModel(["cheap"]) as cheap:
        run = await one(work).run(model=dear, models={"cheap": cheap}, tools=[left, right])
    assert run.output == [["cheap", ["right"]]]
    with pytest.raises(GraphUnknown, match="'cheap'"):
        await one(work).run(model=dear, tools=[left, right])
    with pytest.raises(GraphUnknown, match="'right'"):
        await one(work).run(models={"cheap": cheap}, tools=[left])
    assert isinstance(Toolbox(left, right), Toolbox)
