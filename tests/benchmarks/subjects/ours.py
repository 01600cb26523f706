"""This library."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
from msgspec import structs
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Limits, Outcome, Run, Tool, ToolCall, append, collector, node, tool
from orchestrator.kernel.records import encode
from orchestrator.models import Reply
from orchestrator.models.base import ModelRequest
from orchestrator.nodes import Ask, Subgraph
from orchestrator.stores.requests import NewRun
from orchestrator.testing import ScriptedModel
from tests.benchmarks.subjects import Figures, Preparation, Workload, sizes
from tests.benchmarks.subjects.floor import fresh, imported, loaded, stored_bytes, to_load
from tests.benchmarks.subjects.idle import idle, resident
from tests.benchmarks.subjects.stopwatch import MARKS, Stopwatch, between, mark, repeated, typical


class Count(BaseModel):
    """A loop that counts."""

    n: int = 0
    until: int = 0
    answer: str = ""


class Log(BaseModel):
    """A loop that adds a kibibyte each time round."""

    lines: Annotated[list[str], append] = []
    until: int = 0


class Message(BaseModel):
    """One of many beside a counter."""

    role: str
    content: str


class Beside(Count):
    """A loop that counts beside messages."""

    messages: Annotated[list[Message], append] = []


class Documents(BaseModel):
    """A map over documents."""

    items: list[dict[str, Any]] = []
    found: Annotated[list[int], append] = []


class Fan(BaseModel):
    """A map over numbers."""

    items: list[int] = []
    found: Annotated[list[int], append] = []


@node(effect="pure")
async def pure(state: Count) -> Outcome[Literal["again", "enough"]]:
    """One more."""
    return Outcome("again" if state.n + 1 < state.until else "enough", n=state.n + 1)


@node
async def default(state: Count) -> Outcome[Literal["again", "enough"]]:
    """One more, durable before the next."""
    return Outcome("again" if state.n + 1 < state.until else "enough", n=state.n + 1)


@node
async def write(state: Log, ctx: Context) -> Outcome[Literal["again", "enough"]]:
    """A kibibyte more."""
    return Outcome("again" if len(state.lines) + 1 < state.until else "enough", lines=sizes.line(len(state.lines)))


@node(effect="pure")
async def begin(state: Fan) -> None:
    """Where the map begins."""


@node(effect="pure")
async def branch(state: Fan, item: int) -> dict[str, int]:
    """One item."""
    return {"found": item + 1}


@node(effect="pure", join="all")
async def joined(state: Fan) -> None:
    """Where it ends."""


@node(effect="pure")
async def untouched(state: Beside) -> Outcome[Literal["again", "enough"]]:
    """One more, whatever was said."""
    mark()
    return Outcome("again" if state.n + 1 < state.until else "enough", n=state.n + 1)


@node(effect="pure")
async def stepping(state: Count) -> Outcome[Literal["again", "enough"]]:
    """One more, inside of other graphs."""
    mark()
    return Outcome("again" if state.n + 1 < state.until else "enough", n=state.n + 1)


@node(effect="pure")
async def touched(state: Beside) -> Outcome[Literal["again", "enough"]]:
    """One more, after a look at the last message."""
    mark()
    assert state.messages[-1].content
    return Outcome("again" if state.n + 1 < state.until else "enough", n=state.n + 1)


@node(effect="pure")
async def read(state: Documents, item: dict[str, Any]) -> dict[str, int]:
    """One document."""
    return {"found": item["id"] + 1}


@node(effect="pure")
async def documents(state: Documents) -> None:
    """Where the map over documents begins."""


@node(effect="pure", join="all")
async def collected(state: Documents) -> None:
    """Where it ends."""


def _loop(name: str, state: type[BaseModel], step: object, output: str) -> Graph:
    edges = "START -> step\nstep -> step : again\nstep -> END : enough"
    return Graph(name=name, state=state, nodes={"step": step}, edges=edges, output=output, limits=Limits(steps=None))


PURE = _loop("pure", Count, pure, "n")
DEFAULT = _loop("default", Count, default, "n")
LOG = _loop("log", Log, write, "until")
FAN = Graph(
    name="fan", state=Fan, nodes={"begin": begin, "branch": branch, "join": joined},
    edges="START -> begin\nbegin -> branch : each items\nbranch -> join -> END", output="found",
    limits=Limits(steps=None),
)  # fmt: skip
MAP = Graph(
    name="map", state=Documents, nodes={"begin": documents, "read": read, "join": collected},
    edges="START -> begin\nbegin -> read : each items\nread -> join -> END", output="found",
    limits=Limits(steps=None),
)  # fmt: skip
STEPPING = _loop("stepping", Count, stepping, "n")
UNTOUCHED = _loop("untouched", Beside, untouched, "n")
TOUCHED = _loop("touched", Beside, touched, "n")
ASKING = Graph(
    name="asking", state=Count, nodes={"step": pure, "ask": Ask(prompt="Go on?", answer="answer")},
    edges="START -> step\nstep -> step : again\nstep -> ask : enough\nask -> END", output="n",
    limits=Limits(steps=None),
)  # fmt: skip


def url(folder: Path) -> str:
    """The store of a workload."""
    return f"sqlite:///{folder}/ours.db"


async def _timed(graph: Graph, given: dict[str, object], store: str, runs: int = 1) -> tuple[Stopwatch, Run]:
    async with Executor(store=store, graphs=[graph]) as executor:
        await executor.store.put_graph(graph.content, graph.data())  # makes the tables, as is done for all
        with Stopwatch() as took:
            for _ in range(runs):
                run = await executor.start(graph, given, run_id="r" if runs == 1 else None)
    assert run.status == "completed", run.error
    return took, run


def loop(graph: Graph, steps: int, store: str = "memory://", runs: int = 1) -> Stopwatch:
    """Runs of `steps` steps, one after the other."""
    return anyio.run(partial(_timed, graph, {"until": steps}, store, runs))[0]


def in_memory(folder: Path) -> Figures:
    return loop(PURE, sizes.LOOP).figures("us", sizes.LOOP)


def one(graph: Graph, store: Callable[[Path], str], folder: Path) -> Figures:
    return loop(graph, 1, store(folder), sizes.SINGLE).figures("us", sizes.SINGLE)


def durable(graph: Graph, steps: int, folder: Path) -> Figures:
    took = loop(graph, steps, url(folder))
    return {**took.figures("us", steps), "bytes": stored_bytes(folder / "ours.db") / steps}


def history(steps: int, folder: Path) -> Figures:
    return durable(LOG, steps, folder)


async def _loaded_code(folder: Path) -> None:
    """Do once what is measured then: code is loaded when it is used first, and that is measured as commands."""
    async with Executor(f"sqlite:///{folder}/code.db", graphs=[ASKING]) as executor:
        run = await executor.start(ASKING, {"until": 40})
    async with Executor(f"sqlite:///{folder}/code.db", graphs=[ASKING]) as executor:
        (question,) = (await executor.load(run.run_id)).waiting
        await executor.answer(run.run_id, question.id, "yes")


def load(steps: int, folder: Path) -> Figures:
    async def work() -> Figures:
        again = []
        await _loaded_code(folder)
        async with AsyncExitStack() as stack:
            with Stopwatch() as first:
                executor = await stack.enter_async_context(Executor(url(folder), graphs=[LOG]))
                assert len((await executor.load("r")).values["lines"]) == steps
            for _ in range(9):
                with Stopwatch() as took:
                    await executor.load("r")
                again.append(took)
        return {**first.figures("ms"), **typical(again, "warm_")}

    return anyio.run(work)


def fan(graph: Graph, items: list[object], folder: Path) -> Figures:
    took, run = anyio.run(partial(_timed, graph, {"items": items}, "memory://"))
    assert len(run.output) == len(items)
    return took.figures("us", len(items))


def beside(graph: Graph, messages: int, steps: int, folder: Path) -> Figures:
    """What a step of a run takes that has so many messages: the median of its steps, without its first ones."""
    said = [Message(role="user", content=f"message {number}") for number in range(messages)]

    async def run() -> None:
        async with Executor("memory://", graphs=[graph]) as executor:
            assert (await executor.start(graph, {"until": steps, "messages": said})).output == steps

    anyio.run(run)
    return between(MARKS)


def depth(levels: int, folder: Path) -> Figures:
    """What a step of a loop takes that is inside of so many graphs, the one that is run included."""
    graph = STEPPING
    for level in range(levels - 1):
        inside = Subgraph(graph, inputs={"until": "until"}, outputs={"n": "n"})
        graph = Graph(name=f"around{level}", state=Count, nodes={"in": inside}, edges="START -> in -> END", output="n")

    async def run() -> None:
        async with Executor("memory://", graphs=[graph]) as executor:
            assert (await executor.start(graph, {"until": sizes.DEEP})).output == sizes.DEEP

    anyio.run(run)
    return between(MARKS)


def live(runs: int, folder: Path) -> Figures:
    """What each run costs, from its start to its end, of runs that are all inside of a node at the same time.

    Garbage is looked for as rarely as in commands, such as `serve` and `worker`.
    """
    for count in (sizes.FEW, runs):  # the first ones load and prepare what the process needs once
        gc.collect()
        before = resident()
        took, most = anyio.run(_live, count)
    return {**took.figures("us", runs), "kib": max(0, most - before) / runs / 1024}


async def _live(runs: int) -> tuple[Stopwatch, int]:
    """Time from the first start to the last end, and bytes of the process when all runs were inside of their node."""
    inside, most, all_inside = 0, 0, anyio.Event()

    @node(effect="pure")
    async def hold(state: Count) -> dict[str, int]:
        nonlocal inside, most
        inside += 1
        if inside == runs:
            most = resident()
            all_inside.set()
        await all_inside.wait()
        return {"n": 1}

    graph = Graph(name="live", state=Count, nodes={"hold": hold}, edges="START -> hold -> END", output="n")
    async with Executor("memory://", graphs=[graph], gc_threshold=collector.COMMAND) as executor:
        with Stopwatch() as took:
            async with anyio.create_task_group() as tasks:
                for _ in range(runs):
                    tasks.start_soon(executor.start, graph)
    return took, most


def concurrent(folder: Path) -> Figures:
    async def run() -> Stopwatch:
        async with Executor(url(folder), graphs=[DEFAULT]) as executor:
            await executor.store.put_graph(DEFAULT.content, DEFAULT.data())
            with Stopwatch() as took:
                async with anyio.create_task_group() as tasks:
                    for _ in range(sizes.RUNS):
                        tasks.start_soon(executor.start, DEFAULT, {"until": sizes.RUN_STEPS})
        return took

    steps = sizes.RUNS * sizes.RUN_STEPS
    return {**anyio.run(run).figures("us", steps), "bytes": stored_bytes(folder / "ours.db") / steps}


def to_resume(folder: Path) -> None:
    async def begin() -> None:
        async with Executor(url(folder)) as executor:
            await executor.start(ASKING, {"until": sizes.RESUMED}, run_id="r")

    anyio.run(begin)


def resume(folder: Path) -> Figures:
    async def go_on() -> Stopwatch:
        await _loaded_code(folder)
        with Stopwatch() as took:
            async with Executor(url(folder), graphs=[ASKING]) as executor:
                (question,) = (await executor.load("r")).waiting
                run = await executor.answer("r", question.id, "yes")
        assert run.output == sizes.RESUMED
        return took

    return anyio.run(go_on).figures("ms")


def to_list(folder: Path) -> None:
    async def fill(count: int) -> None:
        async with Executor(f"sqlite:///{folder}/{count}.db", graphs=[ASKING]) as executor:
            await executor.start(ASKING, {"until": 3}, run_id="sample")
            await copied(executor, count)

    for count in sizes.LISTED:
        anyio.run(fill, count)


def many(folder: Path) -> Figures:
    """A run opened and a page listed, among many runs and among few."""
    figures: dict[str, float] = {}

    async def measure(count: int) -> tuple[list[Stopwatch], list[Stopwatch]]:
        opened, listed = [], []
        async with Executor(f"sqlite:///{folder}/{count}.db", graphs=[ASKING]) as executor:
            for number in range(9):
                with Stopwatch() as took:
                    await executor.load(f"run-{number * (count // 20)}")
                opened.append(took)
                with Stopwatch() as took:
                    assert len((await executor.runs(status="paused", limit=sizes.PAGE)).runs) == sizes.PAGE
                listed.append(took)
        return opened, listed

    for name, count in zip(("few", "many"), sizes.LISTED, strict=True):
        opened, listed = anyio.run(measure, count)
        figures |= {**typical(opened, f"open_{name}_"), **typical(listed, f"list_{name}_")}
    return figures


async def copied(executor: Executor, count: int) -> None:
    """Fill the store with copies of the run `sample`."""
    from dataclasses import replace

    store = executor.store
    info, records = await store.info("sample"), await store.read("sample")

    async def some(first: int) -> None:
        for number in range(first, min(count, first + 100)):
            run_id = f"run-{number}"
            begun = [structs.replace(record, **({"run_id": run_id} if record.seq == 1 else {})) for record in records]
            await store.create(NewRun(replace(info, run_id=run_id, created=info.created + number), begun))

    for first in range(0, count, 10_000):
        async with anyio.create_task_group() as tasks:
            for part in range(first, min(count, first + 10_000), 100):
                tasks.start_soon(some, part)


def waiting(runs: int, folder: Path) -> Figures:
    """Memory for each run that waits for an answer in this process, and what they cost while nothing happens."""
    import asyncio

    async def run() -> Figures:
        async with Executor(url(folder), graphs=[ASKING]) as executor:

            async def some(numbers: range) -> None:
                for number in numbers:
                    assert (await executor.start(ASKING, {"until": 3}, run_id=f"r{number}")).status == "paused"

            async def start(first: int, last: int) -> None:
                await asyncio.gather(*(some(range(begin, last, 20)) for begin in range(first, first + 20)))

            return await idle(start, runs)

    return asyncio.run(run())


def build(nodes: int, folder: Path) -> Figures:
    """A chain with a loop, built, that is checked, too."""
    names = [f"n{number}" for number in range(nodes)]
    edges = f"START -> {' -> '.join(names)}\n{names[-1]} -> END : enough\n{names[-1]} -> {names[0]} : again"
    given = {name: pure if name == names[-1] else begun for name in names}
    with Stopwatch() as took:
        graph = Graph(name="built", state=Count, nodes=given, edges=edges, limits=Limits(steps=None))
    assert len(graph.nodes) == nodes
    return took.figures("ms")


@node(effect="pure")
async def begun(state: Count) -> None:
    """A node of a graph that is built."""


def draw(folder: Path) -> Figures:
    names = [f"n{number}" for number in range(sizes.DRAWN)]
    chain = Graph(
        name="drawn", state=Count, nodes=dict.fromkeys(names, begun), edges=f"START -> {' -> '.join(names)} -> END",
        limits=Limits(steps=None),
    )  # fmt: skip
    with Stopwatch() as first:
        assert chain.to_svg().count("<g") >= sizes.DRAWN
    with Stopwatch() as again:
        chain.to_svg()
    mermaid = repeated(chain.to_mermaid, "mermaid_", 3)
    return {**first.figures("ms", name="svg_"), **again.figures("ms", name="svg_again_"), **mermaid}


def react(calls: int, folder: Path) -> Figures:
    from tests.benchmarks.subjects import loopback

    return {**loopback.ours(url(folder), calls), "bytes": stored_bytes(folder / "ours.db") / calls}


def talk(calls: int, folder: Path) -> Figures:
    """Bytes in the journal of the react strategy for each call of a model. Each reply but the last calls one tool."""
    left = iter(range(calls - 1))

    def adder(number: int) -> Tool:
        @tool(name=f"add{number}", risk="none")
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        return add

    def answer(request: ModelRequest) -> Reply:
        number = next(left, None)
        if number is None:
            return Reply(text="done")
        call = ToolCall(id=f"call_{number}", name="add0", arguments={"a": number, "b": 1})
        return Reply(text="I add.", tool_calls=(call,), finish="tool_calls")

    async def run() -> int:
        from orchestrator.strategies.react import react

        tools = [adder(number) for number in range(sizes.TOOLS)]
        async with Executor("memory://", model=ScriptedModel(answer), tools=tools) as executor:
            run = await executor.start(react(max_steps=calls), "Add.", run_id="r")
            assert (run.status, run.usage.calls) == ("completed", 2 * calls - 1), (run.status, run.error)
            return sum(len(encode(record)) for record in await executor.store.read("r"))

    return {"bytes": anyio.run(run) / calls}


def command(words: tuple[str, ...], status: int, folder: Path) -> Figures:
    """A command of the command line, in a store with one run."""
    return fresh("-m", "orchestrator", *words, *(("--store", url(folder)) if len(words) > 1 else ()), status=status)


ASKED = ("run", "tool_user", "What is 20+(2*4)?", "--model", "offline", "--approve", "none")


def to_command(folder: Path) -> None:
    fresh("-m", "orchestrator", *ASKED, "--run-id", "shown", "--store", url(folder), times=1)


def _each(function: Callable[[int, Path], Figures], name: str, values: tuple[int, ...]) -> dict[str, Any]:
    return {f"{name}_{value}": partial(function, value) for value in values}


WORKLOADS: dict[str, Workload] = {
    "loop": in_memory,
    "one_memory": partial(one, PURE, lambda folder: "memory://"),
    "durable": partial(durable, DEFAULT, sizes.DURABLE),
    "durable_pure": partial(durable, PURE, sizes.DURABLE),
    "one_sqlite": partial(one, DEFAULT, url),
    "concurrent": concurrent,
    **_each(history, "history", sizes.HISTORIES),
    **_each(partial(loaded, load), "load", sizes.HISTORIES),
    "resume": resume,
    "many": many,
    **{f"beside_{count}": partial(beside, UNTOUCHED, count, sizes.BESIDE) for count in sizes.MESSAGES},
    "touched_5000": partial(beside, TOUCHED, sizes.MESSAGES[-1], sizes.TOUCHED),
    **{f"fan_{count}": partial(fan, FAN, list(range(count))) for count in sizes.FANS},
    **{f"map_{count}": partial(fan, MAP, [sizes.record(n) for n in range(count)]) for count in sizes.MAPS},
    **_each(waiting, "waiting", sizes.WAITING),
    **_each(depth, "depth", sizes.DEPTHS),
    **_each(live, "live", sizes.LIVE),
    **_each(talk, "talk", sizes.TALK_LENGTHS),
    "react": partial(react, sizes.CALLS),
    **{f"react_{calls}": partial(react, calls) for calls in sizes.TALKS},
    "import": partial(imported, "import orchestrator"),
    "import_names": partial(imported, "from orchestrator import Graph, Executor, node"),
    "help": partial(command, ("--help",), 0),
    "cli_runs": partial(command, ("runs", "--limit", "5"), 0),
    "cli_show": partial(command, ("show", "shown"), 0),
    "cli_run": partial(command, ASKED, 0),
    **_each(build, "build", sizes.NODES),
    "draw": draw,
}
PREPARED: dict[str, Preparation] = {
    **to_load(history),
    "resume": to_resume,
    "many": to_list,
    **dict.fromkeys(("cli_runs", "cli_show"), to_command),
}
