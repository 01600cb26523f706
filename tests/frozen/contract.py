"""Runs of small graphs, one each for what a run can do: loops, forks, maps, effects, failures, questions, ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import anyio
from pydantic import BaseModel

from orchestrator import (
    Approve,
    Context,
    Deny,
    Executor,
    Graph,
    Limits,
    OfflineModel,
    Outcome,
    Question,
    Retry,
    Run,
    Tool,
    Update,
    Value,
    add,
    append,
    extend,
    local,
    merge,
    node,
    replace,
    tool,
    union,
)
from orchestrator.errors import AgentError, ModelMisconfigured, ModelUnavailable, StepError, ToolError
from orchestrator.graph import Node, Usage
from orchestrator.models import Reply
from orchestrator.nodes import ITEM, Ask, Confirm, Subgraph
from orchestrator.testing import ScriptedModel
from tests.contract.essay import essay
from tests.frozen.staging import Piece, agree, answered, stage, to_the_end, turn
from tests.frozen.texts import Sections


class State(BaseModel):
    """What most of these graphs hold."""

    question: str = ""
    items: list[int] = []
    tasks: list[dict[str, Any]] = []
    log: Annotated[list[str], append] = []
    reply: str = ""
    n: int = 0
    total: Annotated[int, add] = 0
    tags: Annotated[list[str], union] = []
    facts: Annotated[dict[str, int], merge] = {}
    mine: Annotated[str, local] = ""


def graph_of(edges: str, name: str = "g", **nodes: Any) -> Graph:
    """A graph of these nodes; `limits`, `input` and `output` are its own."""
    options = {key: nodes.pop(key) for key in ("limits", "input", "output") if key in nodes}
    return Graph(name=name, state=State, nodes=nodes, edges=edges, **{"input": "question", "output": "log", **options})


def says(word: str, join: Any = None, outcome: str | None = None, effect: Any = "irreversible", **more: Any) -> Node:
    """A node that logs a word, and writes what else is given."""

    @node(join=join, effect=effect, outcomes=("done",) if outcome is None else ("x", "y"))
    async def say(state: State, ctx: Context) -> Outcome[Any]:
        async with turn():
            item = "" if ctx.item is None else f":{ctx.item['id'] if isinstance(ctx.item, dict) else ctx.item}"
            return Outcome(outcome or "done", log=f"{word}{item}", **more)

    return say


@node(effect="pure")
async def count(state: State) -> Outcome[Literal["again", "enough"]]:
    """One more, up to three."""
    return Outcome("again" if state.n < 2 else "enough", n=state.n + 1, log=f"round {state.n}")


@node
async def work(state: State, ctx: Context) -> Update:
    """One call of each kind."""
    reply = await ctx.model.complete(f"{state.question}?")
    seen = await ctx.tool("look", what="a")
    held = await ctx.tool("hold", what="b")
    paid = await ctx.tool("pay", what="c")
    made = await ctx.effect("shout", str.upper, reply.text, returns=str)
    return {"log": extend([reply.text, seen.text, held.text, paid.text, made])}


@node
async def streams(ctx: Context) -> Update:
    """A streamed reply, and events of its own."""
    await ctx.emit("news", {"words": 2})
    said = [event.reply.text async for event in ctx.model.stream("go") if event.reply is not None]
    return {"log": "|".join(said)}


@node(retry=Retry(attempts=3, wait=0.0, jitter=0.0))
async def stumbles(state: State, ctx: Context) -> Update:
    """Fails twice, after a call that is not made again."""
    paid = await ctx.tool("pay", what="tea")
    if ctx.attempt < 3:
        raise ConnectionError(f"attempt {ctx.attempt}")
    return {"log": f"{paid.text} at attempt {ctx.attempt}"}


@node
async def breaks(state: State) -> Update:
    """Fails."""
    raise ValueError("broken")


@node(timeout=0.01)
async def hangs(state: State) -> Update:
    """Takes too long."""
    await anyio.sleep(30)
    return {}


@node
async def asks(state: State, ctx: Context) -> Update:
    """Asks twice, with a call between."""
    first = await ctx.ask("input", prompt="First?")
    paid = await ctx.tool("pay", what=str(first.value))
    second = await ctx.ask(
        "approval", prompt="Second?", payload={"tool": "pay", "args": {"what": "x"}, "risk": "write"}
    )
    return {"log": extend([paid.text, second.type])}


@node
async def asks_shortly(ctx: Context) -> Update:
    """Asks, and does not wait for long."""
    return {"log": (await ctx.ask("input", prompt="Soon?", deadline=0.01)).type}


@node
async def uses(state: State, ctx: Context) -> Update:
    """Calls the tool that the question names."""
    result = await ctx.tool(state.question, what="x")
    return {"log": f"{result.output} {result.error} {result.exit_code}"}


@node
async def wrong_update(state: State) -> Update:
    """Names no field."""
    return {"lgo": "x"}


@node(outcomes=("a",))
async def wrong_outcome(state: State) -> Outcome[Any]:
    """Names no outcome that it has."""
    return Outcome("b")


@node
async def catches(state: State, ctx: Context) -> Update:
    """What failed, as the edge for it tells."""
    return {"log": f"{ctx.error and ctx.error.type} at {ctx.error and ctx.error.node}"}


@node
async def replaces(state: State) -> Update:
    """Replaces what a reducer would add to."""
    return {"log": replace(["new"]), "total": 5, "tags": ["a", "b"], "facts": {"x": 1}, "mine": "m"}


@tool(effect="read", risk="none")
async def look(what: str) -> str:
    """Look at something."""
    return f"<{what}>"


@tool(effect="idempotent", risk="write")
async def hold(what: str, idempotency_key: str) -> str:
    """Keep something."""
    return f"[{what} {idempotency_key}]"


@tool(effect="irreversible", risk="dangerous")
async def pay(what: str) -> str:
    """Pay for something."""
    return f"paid {what}"


@tool(effect="read", risk="none")
async def fails(what: str) -> str:
    """Says why not."""
    raise ToolError(f"no {what} here")


@tool(effect="irreversible", risk="none")
async def crashes(what: str) -> str:
    """Raises what nobody expects."""
    raise KeyError(what)


@tool(effect="irreversible", risk="none", timeout=0.01)
async def slow(what: str) -> str:
    """Never ends in time."""
    await anyio.sleep(30)
    return "never"


TOOLS: list[Tool] = [look, hold, pay, fails, crashes, slow]


def model(*replies: Any) -> dict[str, Any]:
    """The tools, and a model of these replies; without any one that echoes."""

    def echo(request: Any) -> Reply:
        text = request.messages[-1].content
        return Reply(text=text.upper(), usage=Usage(input_tokens=len(text), output_tokens=2, cost=0.25))

    made = ScriptedModel([*replies] if replies else echo)
    made.retry = Retry(attempts=2, wait=0.0, jitter=0.0)
    return {"model": made, "tools": TOOLS}


# -- plays ----------------------------------------------------------------------------------------------------------


async def paused_and_resumed(executor: Executor, piece: Piece) -> Run:
    """Pause a run that waits, resume it, answer."""
    await executor.start(piece.graph, piece.input, run_id=piece.name)
    await executor.pause(piece.name, by="ann", reason="lunch")
    run = await executor.resume(piece.name)
    return await answered(executor, piece, run)


async def cancelled(executor: Executor, piece: Piece) -> Run:
    """Cancel a run that waits."""
    await executor.start(piece.graph, piece.input, run_id=piece.name)
    return await executor.cancel(piece.name, by="ann", reason="changed my mind")


async def left(executor: Executor, piece: Piece) -> Run:
    """Leave a run that waits."""
    return await executor.start(piece.graph, piece.input, run_id=piece.name)


async def interrupted(executor: Executor, piece: Piece) -> Run:
    """Stop a run in the middle of a call, and go on with it."""
    with anyio.move_on_after(0.2):
        await executor.start(piece.graph, piece.input, run_id=piece.name)
    piece.options["deps"].set()
    run = await executor.resume(piece.name)
    return await answered(executor, piece, run)


async def answered_without_going_on(executor: Executor, piece: Piece) -> Run:
    """Answer, and recover the run afterwards."""
    run = await executor.start(piece.graph, piece.input, run_id=piece.name)
    await executor.answer(run.run_id, run.waiting[0].id, piece.answer(run.waiting[0]), resume=False)
    (run,) = await executor.recover()
    return await answered(executor, piece, run)


@tool(effect="irreversible", risk="none")
async def wire(what: str, ctx: Context[asyncio.Event]) -> str:
    """Hangs once."""
    if not ctx.deps.is_set():
        await anyio.sleep(30)
    return f"wired {what}"


@node
async def wires(ctx: Context[Any]) -> Update:
    """Calls a tool that hangs once."""
    return {"log": (await ctx.tool("wire", what="money")).text}


@node(effect="irreversible")
async def lingers(ctx: Context[asyncio.Event]) -> Update:
    """Hangs once by itself."""
    if not ctx.deps.is_set():
        await anyio.sleep(30)
    return {"log": "did it"}


def deny(question: Question) -> object:
    """Deny what can be denied."""
    return Deny(reason="too dear") if question.kind == "approval" else "no"


def happened(question: Question) -> object:
    """It happened, as somebody saw."""
    if question.kind == "unknown_outcome":
        result = "seen" if question.payload["tool"] == "wire" else {"log": "seen"}
        return Value(value={"choice": "happened", "result": result})
    return agree(question)


class Inner(BaseModel):
    """What the graph inside holds."""

    query: str = ""
    notes: Annotated[list[str], append] = []


def inner(*, ask: bool = False, breaks_: bool = False, limits: Limits | None = None) -> Graph:
    """A graph to call."""

    @node
    async def find(state: Inner, ctx: Context) -> Update:
        async with turn():
            if breaks_:
                raise StepError("not found")
            return {"notes": (await ctx.tool("look", what=state.query)).text}

    nodes: dict[str, Any] = {"find": find, **({"sure": Confirm(prompt="Sure?")} if ask else {})}
    edges = "START -> find -> sure -> END : approved\nsure -> find : denied" if ask else "START -> find -> END"
    return Graph(name="inner", state=Inner, input="query", nodes=nodes, edges=edges, output="notes", limits=limits)


def called(**options: Any) -> Subgraph:
    """The graph inside, once for each item."""
    return Subgraph(inner(**options), inputs={"query": ITEM}, outputs={"log": "notes"})


class Words(BaseModel):
    """Input of a graph over words."""

    words: list[str] = []
    log: Annotated[list[list[str]], append] = []


def over_words(sub: Subgraph) -> Graph:
    """A map over a graph inside, and its join."""

    @node
    async def plan() -> None: ...

    @node(join="all")
    async def gather() -> None: ...

    return Graph(
        name="over_words",
        state=Words,
        nodes={"plan": plan, "search": sub, "gather": gather},
        edges="START -> plan -> search : each words\nsearch -> gather -> END",
        output="log",
    )


@node
async def delegates(state: State, ctx: Context) -> Update:
    """Calls a graph as a tool."""
    found = await ctx.tool("inner", query=state.question)
    return {"log": f"{found.output} {found.error}"}


CHAIN = "START -> work -> END"
ASKED = "START -> ask -> END"


def pieces() -> Iterator[Piece]:
    """All of them."""
    yield from _plain()
    yield from _branches()
    yield from _failures()
    yield from _questions()
    yield from _limits()
    yield from _inside()
    yield from _essays()


def _plain() -> Iterator[Piece]:
    yield Piece("one-node", graph_of(CHAIN, work=says("one")))
    yield Piece("pure-node", graph_of(CHAIN, work=says("one", effect="pure")))
    yield Piece("labels", graph_of(CHAIN, work=says("one")), "q", start={"labels": {"user": "ann"}, "refs": {"x": 1}})
    yield Piece("loop", graph_of("START -> work\nwork -> work : again\nwork -> END : enough", work=count, output="n"))
    yield Piece("all-calls", graph_of(CHAIN, work=work), "hello", options=model())
    yield Piece("all-calls-sqlite", graph_of(CHAIN, work=work), "hello", options=model(), store="sqlite")
    yield Piece("stream", graph_of(CHAIN, work=streams), options=model("some words to stream"))
    yield Piece("reducers", graph_of("START -> a -> b -> END", a=says("old"), b=replaces, output=None))
    yield Piece("several-outputs", graph_of(CHAIN, work=says("one"), output=("log", "n")))
    yield Piece("stop", graph_of("START -> a -> b, c\nb -> STOP\nc -> d -> END", **_named("abcd")))


def _named(letters: str, **options: Any) -> dict[str, Node]:
    return {letter: says(letter, **options) for letter in letters}


def _branches() -> Iterator[Piece]:
    three = {"items": [1, 2, 3]}
    tasks = {"tasks": [{"id": "x", "needs": ["y"]}, {"id": "y", "needs": []}, {"id": "z", "needs": ["x"]}]}
    last = {"j": says("j", "all")}
    yield Piece("fork-join", graph_of("START -> a -> b, c -> j -> END", **_named("abc"), **last))
    yield Piece("fork-no-join", graph_of("START -> a -> b, c -> END", **_named("abc")))
    yield Piece("fork-each", graph_of("START -> a -> b, c -> j -> END", **_named("abc"), j=says("j", "each")))
    yield Piece("fork-first", graph_of("START -> a -> b, c -> j -> END", **_named("abc"), j=says("j", 1)))
    yield Piece("fork-sqlite", graph_of("START -> a -> b, c -> j -> END", **_named("abc"), **last), store="sqlite")
    one_field = {"a": says("a"), "b": says("b", reply="b"), "c": says("c", reply="c")}
    yield Piece("conflict", graph_of("START -> a -> b, c -> j -> END", **one_field, **last))
    yield Piece("conflict-at-end", graph_of("START -> a -> b, c -> END", **one_field))
    mapped = "START -> a -> b : each items\nb -> j -> END"
    yield Piece("map", graph_of(mapped, input="items", **_named("ab"), **last), three)
    yield Piece(
        "map-limited", graph_of(mapped, input="items", **_named("ab"), **last, limits=Limits(concurrency=1)), three
    )
    yield Piece("map-empty", graph_of(mapped, input="items", **_named("ab"), **last), {"items": []})
    yield Piece("map-two-of", graph_of(mapped, input="items", **_named("ab"), j=says("j", 2)), three)
    yield Piece(
        "map-no-list",
        graph_of("START -> a -> b : each tasks\nb -> END", input="tasks", **_named("ab")),
        {"tasks": [{}]},
    )
    yield Piece(
        "map-needs",
        graph_of("START -> a -> b : each tasks\nb -> j -> END", input="tasks", **_named("ab"), **last),
        tasks,
    )
    circle = {"tasks": [{"id": "x", "needs": ["y"]}, {"id": "y", "needs": ["x"]}]}
    yield Piece(
        "map-circle",
        graph_of("START -> a -> b : each tasks\nb -> j -> END", input="tasks", **_named("ab"), **last),
        circle,
    )
    nested = "START -> a -> b : each items\nb -> c, d -> k -> j -> END"
    yield Piece("map-fork", graph_of(nested, input="items", **_named("abcd"), k=says("k", "all"), **last), three)
    choice = {"a": says("a", outcome="x"), **_named("bc")}
    yield Piece("choice", graph_of("START -> a\na -> b : x\na -> c : y\nb -> END\nc -> END", **choice))
    race = "START -> a -> b, c, d -> j -> e -> END"
    yield Piece("race", graph_of(race, **_named("abcde"), j=says("j", 2)))


def _failures() -> Iterator[Piece]:
    yield Piece("failed", graph_of("START -> a -> work -> END", a=says("a"), work=breaks))
    yield Piece("failed-sqlite", graph_of("START -> a -> work -> END", a=says("a"), work=breaks), store="sqlite")
    yield Piece("failed-edge", graph_of("START -> work -> END\nwork -> b : error\nb -> END", work=breaks, b=catches))
    yield Piece("failed-star", graph_of("START -> work -> END\n* -> b : error\nb -> END", work=breaks, b=catches))
    both = "START -> a -> b, c -> j -> END"
    yield Piece("failed-branch", graph_of(both, a=says("a"), b=breaks, c=says("c"), j=says("j", "all")))
    yield Piece("retried", graph_of(CHAIN, work=stumbles), options=model())
    yield Piece("timeout", graph_of(CHAIN, work=hangs))
    yield Piece("timeout-edge", graph_of("START -> work -> END\nwork -> b : timeout\nb -> END", work=hangs, b=catches))
    yield Piece("wrong-update", graph_of(CHAIN, work=wrong_update))
    yield Piece("wrong-outcome", graph_of("START -> work -> END : a", work=wrong_outcome))
    for name in ("fails", "crashes", "slow", "nothing"):
        yield Piece(f"tool-{name}", graph_of(CHAIN, work=uses), name, options=model())
    for name, error in {
        "unavailable": ModelUnavailable("try later"),
        "misconfigured": ModelMisconfigured("no key"),
        "unusable": AgentError("no such tool"),
    }.items():
        yield Piece(f"model-{name}", graph_of(CHAIN, work=streams), play=left, options=model(error, error))
    yield Piece("no-output", graph_of(CHAIN, work=says("x"), output="reply"))


def _questions() -> Iterator[Piece]:
    ask = graph_of(ASKED, ask=Ask(prompt="What of {question}?", show=("question",), answer="reply"), output="reply")
    yield Piece("ask", ask, "tea")
    yield Piece("ask-sqlite", ask, "tea", store="sqlite")
    yield Piece("ask-left", ask, "tea", play=left)
    yield Piece("ask-cancelled", ask, "tea", play=cancelled)
    yield Piece("ask-paused", ask, "tea", play=paused_and_resumed)
    yield Piece("ask-recovered", ask, "tea", play=answered_without_going_on)
    chosen = Ask(prompt="Which?", answer="reply", choices=("up", "down"))
    yield Piece("ask-choices", graph_of(ASKED, ask=chosen, output="reply"), answer=lambda question: "down")
    typed = Ask(prompt="How many?", answer="n", accepts={"type": "integer"})
    yield Piece("ask-integer", graph_of(ASKED, ask=typed, output="n"), answer=lambda question: 7)
    confirmed = "START -> a -> sure\nsure -> b : approved\nsure -> END : denied\nb -> END"
    sure = {**_named("ab"), "sure": Confirm(prompt="Go on?", show=("question",), reason="reply")}
    yield Piece("confirm", graph_of(confirmed, **sure), "q")
    yield Piece("confirm-denied", graph_of(confirmed, **sure), "q", answer=deny)
    yield Piece("asks-inside", graph_of(CHAIN, work=asks), options=model())
    yield Piece("asks-policy", graph_of(CHAIN, work=asks), options=model(), start={"approve": "write"})
    two = "START -> a -> b, c -> j -> END"
    both = {"a": says("a"), "b": asks, "c": Ask(prompt="C?", answer="reply"), "j": says("j", "all")}
    yield Piece("asks-beside", graph_of(two, **both), options=model())
    yield Piece("ask-deadline", graph_of(CHAIN, work=asks_shortly), play=_waited)
    for name, reply in {"retry": agree, "happened": happened}.items():
        more = {"tools": [wire], "deps": anyio.Event()}
        yield Piece(f"unknown-tool-{name}", graph_of(CHAIN, work=wires), answer=reply, play=interrupted, options=more)
        more = {"deps": anyio.Event()}
        yield Piece(f"unknown-node-{name}", graph_of(CHAIN, work=lingers), answer=reply, play=interrupted, options=more)


async def _waited(executor: Executor, piece: Piece) -> Run:
    await executor.start(piece.graph, piece.input, run_id=piece.name)
    await anyio.sleep(0.02)
    await executor.recover()
    return await executor.load(piece.name)


@node
async def more(state: State, ctx: Context) -> Outcome[Literal["again", "enough"]]:
    """Asks a model, for ever."""
    await ctx.model.complete("more")
    return Outcome("again", log="more")


def _limits() -> Iterator[Piece]:
    loop = "START -> work\nwork -> work : again\nwork -> END : enough"
    caught = f"{loop}\n* -> late : exhausted\nlate -> END"
    for name, limits in {
        "steps": Limits(steps=2),
        "visits": Limits(visits={"work": 2}),
        "calls": Limits(calls=2),
        "tokens": Limits(tokens=15),
        "cost": Limits(cost=0.5),
    }.items():
        yield Piece(f"limit-{name}", graph_of(loop, work=more, limits=limits), options=model())
        yield Piece(
            f"limit-{name}-edge", graph_of(caught, work=more, late=says("late"), limits=limits), options=model()
        )
    fork = "START -> a -> b, c, d -> j -> END"
    yield Piece("limit-fork", graph_of(fork, **_named("abcd"), j=says("j", "all"), limits=Limits(steps=3)))
    yield Piece("limit-start", graph_of(loop, work=more), options=model(), start={"limits": Limits(steps=3)})


def _inside() -> Iterator[Piece]:
    words = {"words": ["a", "b"]}
    yield Piece("inside", over_words(called()), words, options=model())
    yield Piece("inside-sqlite", over_words(called()), words, options=model(), store="sqlite")
    yield Piece("inside-asks", over_words(called(ask=True)), words, options=model())
    yield Piece("inside-left", over_words(called(ask=True)), words, play=left, options=model())
    yield Piece("inside-fails", over_words(called(breaks_=True)), words, options=model())
    spent = over_words(called(ask=True, limits=Limits(steps=1)))
    yield Piece("inside-spent", spent, words, options=model())
    level = inner(ask=True)
    for number in range(3):
        level = Graph(
            name=f"level{number}",
            state=Inner,
            input="query",
            nodes={"in": Subgraph(level, inputs={"query": "query"}, outputs={"query": "query"})},
            edges="START -> in -> END",
            output="query",
        )
    yield Piece("inside-deep", level, "x", options=model())
    for name, options in {"": {}, "-asks": {"ask": True}, "-fails": {"breaks_": True}}.items():
        own = inner(**options).as_tool("inner", "Finds.", risk="none")
        tools = {"tools": [*TOOLS, own]}
        yield Piece(f"graph-tool{name}", graph_of(CHAIN, work=delegates), "x", options=tools)
    own = inner(ask=True).as_tool("inner", "Finds.", risk="none")
    yield Piece("graph-tool-left", graph_of(CHAIN, work=delegates), "x", play=left, options={"tools": [*TOOLS, own]})


def _essays() -> Iterator[Piece]:
    long = "many words " * 10
    yield Piece("essay", essay, "graphs", options={"model": ScriptedModel(["short", long])})
    verdicts = iter([Deny(reason="too long"), Approve()])
    yield Piece(
        "essay-denied",
        essay,
        "graphs",
        options={"model": ScriptedModel(["short", long, long])},
        answer=lambda question: next(verdicts),
    )
    yield Piece("essay-left", essay, "graphs", play=left, options={"model": ScriptedModel([long])})
    yield Piece(
        "essay-offline", essay, "What is 2+2?", options={"model": OfflineModel()}, start={"limits": Limits(steps=4)}
    )


def contract() -> Sections:
    """The texts of these runs."""
    return stage([*pieces()])


__all__ = ["contract", "pieces", "to_the_end"]
