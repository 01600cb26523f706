"""The runs in `runs010.db.gz`: every strategy in every status, as version 0.1.0 left them, and graphs inside of graphs.

`python -m tests.data.runs010 FILE` wrote it, once, with that version; it is kept to tell what the runs are, and for
what they need to go on. Runs are named `STRATEGY-STATUS`:

- `completed`, `failed`, `cancelled`, `exhausted`;
- `approval`, `input`, `unknown`: paused by a question of that kind; the last one is about a call that was under way
  when the process was killed;
- `interrupted`: killed in the middle of a call;
- `answered`: answered, and nobody went on with it;
- `message`: killed, and then somebody asked it to pause: the message was never read.

A strategy that calls no tools is in fewer of them.
"""

from __future__ import annotations

import gzip
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import anyio
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Limits, Tool, Update, append, node, tool
from orchestrator.errors import ModelError
from orchestrator.models import OfflineModel
from orchestrator.nodes import ITEM, Confirm, Subgraph
from orchestrator.stores import open_store
from orchestrator.testing import ScriptedModel

STORE = Path(__file__).with_name("runs010.db.gz")
QUESTION = "What is 12 * 7 + 3?"
ANSWER = "87"
CALLING = ("chat", "function_call", "function_call_agent", "plan_and_solve", "react", "rewoo", "tool_user")
STRATEGIES = (*CALLING, "plan_and_solve_prompt")
INSIDE = ("over_words", "delegating")
"""A map over a graph inside with a join, and a graph that calls another one as a tool."""
_HOME = "orchestrator.strategies" if find_spec("orchestrator.strategies") else "graphs"


def strategy(name: str) -> Graph:
    """A strategy with its defaults."""
    graph = import_module(f"{_HOME}.{name}").graph
    assert isinstance(graph, Graph)
    return graph


# -- tools ----------------------------------------------------------------------------------------------------------


@tool(risk="write", effect="idempotent")
async def add(a: float, b: float) -> float:
    """Add two numbers.

    Args:
        a: The first number.
        b: The number to add to it.
    """
    return a + b


async def _multiply(a: float, b: float) -> float:
    """Multiply two numbers.

    Args:
        a: The first factor.
        b: The second factor.
    """
    if hanging:
        hanging.append("a call")
        await anyio.sleep(3600)
    return a * b


async def _asks(a: float, b: float, ctx: Context[Any]) -> float:
    """Multiply two numbers.

    Args:
        a: The first factor.
        b: The second factor.
    """
    await ctx.ask("input", prompt=f"May I multiply {a:g} by {b:g}?")
    return a * b


hanging: list[str] = []
"""What hangs; empty: nothing is to hang."""
REPEATED = tool(name="multiply", risk="write", effect="idempotent")(_multiply)
ONCE = tool(name="multiply", risk="write", effect="irreversible")(_multiply)
ASKING = tool(name="multiply", risk="none", effect="idempotent")(_asks)


def tools_of(status: str) -> list[Tool]:
    """The tools of the runs in a status."""
    return [add, {"input": ASKING, "unknown": ONCE}.get(status, REPEATED)]


class Hanging(OfflineModel):
    """A model that never replies."""

    async def respond(self, request: Any) -> Any:
        hanging.append("a reply")
        await anyio.sleep(3600)


# -- graphs inside --------------------------------------------------------------------------------------------------


class Finding(BaseModel):
    """What the graph inside holds."""

    query: str = ""
    found: Annotated[list[str], append] = []


class Words(BaseModel):
    """What the graph around it holds."""

    words: list[str] = []
    log: Annotated[list[list[str]], append] = []


class Delegating(BaseModel):
    """What the graph that calls it as a tool holds."""

    question: str = ""
    answer: str = ""


@node
async def find(state: Finding, ctx: Context) -> Update:
    """Multiply."""
    return {"found": f"{state.query} {(await ctx.tool('multiply', a=6, b=7)).output}"}


@node
async def plan() -> None:
    """The fork of the map."""


@node(join="all")
async def gather() -> None:
    """Its join."""


@node
async def delegate(state: Delegating, ctx: Context) -> Update:
    """Call the graph."""
    return {"answer": str((await ctx.tool("finding", query=state.question)).output)}


FINDING = Graph(
    name="finding",
    state=Finding,
    input="query",
    nodes={"find": find, "sure": Confirm(prompt="Sure?")},
    edges="START -> find -> sure -> END : approved\nsure -> find : denied",
    output="found",
)
OVER_WORDS = Graph(
    name="over_words",
    state=Words,
    nodes={
        "plan": plan,
        "search": Subgraph(FINDING, inputs={"query": ITEM}, outputs={"log": "found"}),
        "gather": gather,
    },
    edges="START -> plan -> search : each words\nsearch -> gather -> END",
    output="log",
)
DELEGATING = Graph(
    name="delegating",
    state=Delegating,
    input="question",
    nodes={"delegate": delegate},
    edges="START -> delegate -> END",
    output="answer",
)
FOUND = FINDING.as_tool("finding", "Finds something.", risk="none")


def graphs() -> list[Graph]:
    """All graphs of the store."""
    return [*map(strategy, STRATEGIES), OVER_WORDS, DELEGATING]


def graph_named(name: str) -> Graph:
    """One of them."""
    return next(graph for graph in graphs() if graph.name == name)


def input_of(name: str) -> object:
    """What its runs begin with."""
    return {"words": ["one", "two"]} if name == "over_words" else QUESTION


def opened(url: str, status: str, model: Any = None, **options: Any) -> Executor:
    """An executor that can go on with the runs in a status."""
    tools = [*tools_of(status), FOUND]
    return Executor(url, graphs=graphs(), model=model or OfflineModel(), tools=tools, **options)


def answer_to(kind: str) -> object:
    """An answer to a question of this kind."""
    return Approve() if kind == "approval" else "retry" if kind == "unknown_outcome" else "/bye"


# -- writing --------------------------------------------------------------------------------------------------------


async def killed(url: str) -> None:
    """Begin the runs that are to be killed, and be killed when all of them hang."""
    hanging.append("from now on")
    names = {status: [*CALLING, *INSIDE] for status in ("interrupted", "unknown", "message")}
    count = sum(map(len, names.values())) + len(names)  # over_words hangs twice
    async with (
        opened(url, "interrupted", lease_ttl=1) as repeated,
        opened(url, "unknown", lease_ttl=1) as once,
        opened(url, "interrupted", Hanging(), lease_ttl=1) as mute,
    ):
        for status, wanted in names.items():
            for name in wanted:
                executor = once if status == "unknown" else repeated
                run_id = f"{name}-{status}"
                await executor.submit(name, input_of(name), run_id=run_id, approve="dangerous")
        await mute.submit("plan_and_solve_prompt", QUESTION, run_id="plan_and_solve_prompt-interrupted")
        while len(hanging) < 1 + count + 1:  # noqa: ASYNC110 - nothing tells of it
            await anyio.sleep(0.01)
        await anyio.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)


async def write(url: str) -> None:
    """All others, and what becomes of the killed ones."""
    labels: Mapping[str, str] = {"user": "ann"}
    async with opened(url, "completed") as executor:
        for name in (*STRATEGIES, *INSIDE):
            given = {"approve": "dangerous", "labels": labels}
            run = await executor.start(name, input_of(name), run_id=f"{name}-completed", **given)
            while run.waiting:
                run = await executor.answer(run.run_id, run.waiting[0].id, answer_to(run.waiting[0].kind))
        for name in (*CALLING, *INSIDE):
            for status in ("approval", "answered", "cancelled"):
                run = await executor.start(name, input_of(name), run_id=f"{name}-{status}")
                assert run.waiting[0].kind == "approval", run
            await executor.cancel(f"{name}-cancelled", by="ann", reason="changed my mind")
            question = (await executor.load(f"{name}-answered")).waiting[0]
            await executor.answer(f"{name}-answered", question.id, Approve(), by="ann", resume=False)
        for name in (*STRATEGIES, "over_words"):
            given = {"limits": Limits(steps=2), "approve": "dangerous"}
            await executor.start(name, input_of(name), run_id=f"{name}-exhausted", **given)
    async with opened(url, "input") as executor:
        for name in CALLING:
            run = await executor.start(name, QUESTION, run_id=f"{name}-input", approve="dangerous")
            assert run.waiting[0].kind == "input", run
    broken = ScriptedModel(lambda request: ModelError("the model is broken"))
    async with opened(url, "failed", broken) as executor:
        for name in STRATEGIES:
            await executor.start(name, QUESTION, run_id=f"{name}-failed")
    async with opened(url, "unknown") as executor:
        for name in (*CALLING, *INSIDE):
            run = await executor.resume(f"{name}-unknown", wait=5)
            assert run.waiting[0].kind == "unknown_outcome", run
    store = open_store(url)
    for name in (*CALLING, *INSIDE):
        await store.post(f"{name}-message", {"type": "pause", "by": "ann", "reason": "lunch"})
    await store.close()


def main() -> None:
    """Write the store."""
    vars(socket)["gethostname"] = lambda: "host"
    if sys.argv[1] == "killed":
        anyio.run(killed, sys.argv[2])
        return
    with TemporaryDirectory() as place:
        url = f"sqlite:///{place}/runs.db"
        subprocess.run([sys.executable, "-m", "tests.data.runs010", "killed", url], check=False)
        anyio.run(write, url)
        Path(sys.argv[1]).write_bytes(gzip.compress(Path(place, "runs.db").read_bytes(), mtime=0))


if __name__ == "__main__":
    main()
