"""The runs in `kept_places.db.xz`: every strategy at every place.

`python -m tests.data.kept_places` wrote it, with the code of that day; it is never written again by later code. The
module says what the runs are, and has what they need to go on. Runs are named `STRATEGY-WAY-PLACE`. The ways:

- `plain`: every reply of the model can be used;
- `corrected`: the first reply of each decision is empty, and the model is asked again;
- `twice`: the first two are.

The places:

- `model_N`, `tool_N`: killed in the middle of the Nth model call or tool call;
- `approval_N`: paused behind N - 1 answers to questions about calls; `answered_1`: one was answered, and the run did
  not go on;
- `before_N`: paused before the Nth step, with branches at any place: no call is under way;
- `unknown`: killed in the middle of an irreversible call, and paused by the question about it;
- `waiting_N`: a chat that waits for the user for the Nth time;
- `denied_N`: paused before the Nth step after a call was denied;
- `completed`, `cancelled`, `failed`, `exhausted`.

`inside` is a graph that has strategies as subgraphs, and `asking` one that has a strategy as a tool.
"""

from __future__ import annotations

import lzma
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from pydantic import BaseModel

from orchestrator import Approve, Context, Deny, Executor, Graph, Limits, Run, Tool, Update, node, tool
from orchestrator.errors import ModelError
from orchestrator.models import OfflineModel
from orchestrator.models.base import ModelRequest, RequestModel
from orchestrator.models.messages import Message, Reply, ToolCall
from orchestrator.nodes import Subgraph

STORE = Path(__file__).with_name("kept_places.db.xz")
TOOL_USER = Path(__file__).with_name("kept_tool_user.db.xz")
"""The same of `tool_user`, before its decisions had edges for corrections: at every call, and before every step."""
QUESTION = "What is (2 + 3) * (4 + 5)?"
"""Two calls at the same time, then one after the other."""
ANSWER = "45"
CALLING = ("chat", "function_call", "function_call_agent", "plan_and_solve", "react", "rewoo", "tool_user")
STRATEGIES = (*CALLING, "plan_and_solve_prompt")
COMPOSED = ("inside", "asking")
CORRECTED = ("chat", "function_call", "function_call_agent", "plan_and_solve", "react", "rewoo")
"""The strategies that ask the model again after a reply that cannot be used."""
WAYS = {
    name: ("plain", *(["corrected"] if name in CORRECTED else []), *(["twice"] if name == "react" else []))
    for name in (*STRATEGIES, *COMPOSED)
}
"""The ways of the runs of each graph."""
REDRAWN = (*CORRECTED, *COMPOSED)
"""The graphs whose drawing changed: of others there are only runs that are over."""
EMPTY = {"plain": 0, "corrected": 1, "twice": 2}
"""Empty replies before each that can be used."""
PLANNED = """\
Plan: Add two numbers.
#E1 = add[2, 3]
Plan: Add two others.
#E2 = add[4, 5]
Plan: Multiply the sums.
#E3 = multiply[#E1, #E2]
Plan: What is known by then.
#E4 = it is #E3
Plan: Search.
#E5 = Google[it]
"""


def strategy(name: str) -> Graph:
    """A strategy with its defaults."""
    graph = import_module(f"orchestrator.strategies.{name}").graph
    assert isinstance(graph, Graph)
    return graph


LEFT_OUT = (
    "asking-plain-exhausted", "chat-plain-model_6", "function_call_agent-plain-before_6", "inside-plain-model_11",
    "plan_and_solve-corrected-completed", "plan_and_solve-plain-model_11", "react-plain-before_6",
    "rewoo-plain-before_11",
)  # fmt: skip
"""Long runs at places that others are at, too: the file is to be small."""


# -- models and tools -------------------------------------------------------------------------------------------------


@dataclass
class Calls:
    """The calls of one process, in their order; the one that is to hang does not return."""

    hangs_at: int = 0
    made: list[str] = field(default_factory=list)
    hanging: anyio.Event = field(default_factory=anyio.Event)

    async def call(self, what: str) -> None:
        """Note a call, which is under way now."""
        self.made.append(what)
        if len(self.made) == self.hangs_at:
            self.hanging.set()
            await anyio.sleep_forever()


class Model(RequestModel):
    """Replies by what a request holds alone, so that the same request always has the same reply."""

    def __init__(self, calls: Calls, *, empty: int = 0, broken: bool = False) -> None:
        self.name = "model"
        self.calls, self.empty, self.broken = calls, empty, broken
        self._arithmetic = OfflineModel()

    async def respond(self, request: ModelRequest) -> Reply:
        """See `RequestModel.respond`."""
        if self.broken:
            raise ModelError("the model is broken")
        messages, corrections = list(request.messages), 0
        while len(messages) > 2 and messages[-2].role == "assistant" and not _says(messages[-2]):
            messages, corrections = messages[:-2], corrections + 1
        if corrections < self.empty and request.task != "solve":
            await self.calls.call("an empty reply")
            return Reply(text="", model=self.name)
        last = messages[-1]
        blueprint = (last.data or {}).get("form") == "blueprint"
        await self.calls.call(last.content)
        if blueprint and request.task == "plan":
            return Reply(text=PLANNED, model=self.name)
        if request.task == "solve":
            return Reply(text=f"From {len(last.content)} characters: {last.content[-300:]}", model=self.name)
        reply = await self._arithmetic.respond(replace(request, messages=tuple(messages)))
        calls = reply.tool_calls
        if calls and calls[0].name == "add" and calls[0].arguments == {"a": 2, "b": 3}:
            both = (*calls, ToolCall(id=f"{calls[0].id}-2", name="add", arguments={"a": 4, "b": 5}))
            reply = reply.model_copy(update={"tool_calls": both})
        return reply.model_copy(update={"model": self.name})


def _says(message: Message) -> bool:
    return bool(message.content.strip() or message.tool_calls)


def tools_of(calls: Calls, *, irreversible: bool = False) -> list[Tool]:
    """What calls are made with."""

    def counted(function: Callable[[float, float], float]) -> Tool:
        async def body(a: float, b: float) -> float:
            await calls.call(f"{function.__name__}({a:g}, {b:g})")
            return function(a, b)

        body.__name__, body.__doc__ = function.__name__, function.__doc__
        return tool(risk="write", effect="irreversible" if irreversible else "idempotent")(body)

    def add(a: float, b: float) -> float:
        """Add two numbers.

        Args:
            a: The first number.
            b: The number to add to it.
        """
        return a + b

    def multiply(a: float, b: float) -> float:
        """Multiply two numbers.

        Args:
            a: The first factor.
            b: The second factor.
        """
        return a * b

    return [counted(add), counted(multiply)]


# -- graphs -----------------------------------------------------------------------------------------------------------


class Inside(BaseModel):
    """What the graph around strategies holds."""

    question: str = ""
    thought: str = ""
    looked: str = ""
    answer: str = ""


class Asking(BaseModel):
    """What the graph that calls a strategy as a tool holds."""

    question: str = ""
    answer: str = ""


@node(effect="pure")
def begin() -> None:
    """The fork."""


@node(join="all", effect="pure")
def end(state: Inside) -> Update:
    """What both came to."""
    return {"answer": f"{state.thought} and {state.looked}"}


@node
async def ask(state: Asking, ctx: Context) -> Update:
    """Call the strategy."""
    return {"answer": str((await ctx.tool("thinker", question=state.question)).output)}


def graphs(of: Callable[[str], Graph] = strategy) -> list[Graph]:
    """All graphs of the store."""
    inside = Graph(
        name="inside",
        state=Inside,
        input="question",
        nodes={
            "begin": begin,
            "think": Subgraph(of("react"), inputs={"question": "question"}, outputs={"thought": "answer"}),
            "look": Subgraph(of("rewoo"), inputs={"question": "question"}, outputs={"looked": "answer"}),
            "end": end,
        },
        edges="START -> begin -> think, look\nthink, look -> end -> END",
        output="answer",
    )
    asking = Graph(
        name="asking", state=Asking, input="question", nodes={"ask": ask}, edges="START -> ask -> END", output="answer"
    )
    return [*map(of, STRATEGIES), inside, asking]


def graph_named(name: str) -> Graph:
    """One of them."""
    return next(graph for graph in graphs() if graph.name == name)


@asynccontextmanager
async def opened(
    url: str,
    way: str = "plain",
    calls: Calls | None = None,
    *,
    known: list[Graph] | None = None,
    broken: bool = False,
    irreversible: bool = False,
    **options: Any,
) -> AsyncIterator[Executor]:
    """An executor that can go on with the runs of a way.

    Args:
        url: the store.
        way: one of `EMPTY`.
        calls: notes the calls of the model and of tools.
        known: the graphs; None: those of today.
        broken: whether the model fails.
        irreversible: whether the tools are.
        options: other options of the executor.
    """
    calls = calls or Calls()
    mine = graphs() if known is None else known
    model = Model(calls, empty=EMPTY[way], broken=broken)
    thinker = next(graph for graph in mine if graph.name == "react").as_tool("thinker", "Thinks.", risk="none")
    tools = [*tools_of(calls, irreversible=irreversible), thinker]
    async with Executor(url, graphs=mine, model=model, tools=tools, **options) as executor:
        yield executor


# -- writing ----------------------------------------------------------------------------------------------------------

GIVEN: Mapping[str, Any] = {"approve": "dangerous"}


async def whole(url: str, name: str, way: str) -> list[str]:
    """A run to its end; returns its calls."""
    calls = Calls()
    async with opened(url, way, calls) as executor:
        run = await executor.start(name, QUESTION, run_id=f"{name}-{way}-completed", **GIVEN)
        while run.waiting:
            run = await executor.answer(run.run_id, run.waiting[0].id, "/bye")
    assert run.status == "completed", run.error
    return calls.made


async def killed(url: str, name: str, way: str, number: int, place: str) -> None:
    """Begin a run, and be killed in the middle of a call."""
    calls = Calls(hangs_at=number)
    async with opened(url, way, calls, irreversible=place == "unknown", lease_ttl=1) as executor:
        await executor.submit(name, QUESTION, run_id=f"{name}-{way}-{place}", **GIVEN)
        await calls.hanging.wait()
        await anyio.sleep(0.2)  # what else can go on, goes on
        os.kill(os.getpid(), signal.SIGKILL)


async def at_questions(url: str, name: str) -> None:
    """Runs that wait at the first and the last question about a call, and one that was answered."""
    for place in ("approval_1", "answered_1", "approval_3"):
        run_id = f"{name}-plain-{place}"
        async with opened(url) as executor:
            run = await executor.start(name, QUESTION, run_id=run_id)
            for _ in range(int(place[-1]) - 1):
                if _approval(run) is not None:
                    run = await executor.answer(run_id, str(_approval(run)), Approve())
            if _approval(run) is None:
                await executor.delete(run_id)
            elif place.startswith("answered"):
                await executor.answer(run_id, str(_approval(run)), Approve(), by="ann", resume=False)


async def before_step(url: str, name: str, number: int, *, deny: bool = False) -> bool:
    """A run that is paused before a step, with the questions open that it has there; False: it has ended before."""
    run_id = f"{name}-plain-{'denied' if deny else 'before'}_{number}"
    given = {} if deny else GIVEN
    async with opened(url) as executor:
        run = await executor.start(name, QUESTION, run_id=run_id, pause_before=set(graph_named(name).nodes), **given)
        asked = 0
        for _ in range(number - 1):
            if run.status != "paused":
                break
            question = next((one for one in run.waiting if one.kind != "pause"), None)
            if question is None or any(one.kind == "pause" for one in run.waiting):
                run = await executor.resume(run_id)
            elif question.kind == "approval":
                asked += 1
                run = await executor.answer(run_id, question.id, Deny(reason="no") if asked == 1 else Approve())
            else:
                run = await executor.answer(run_id, question.id, "/bye")
        if run.status != "paused" or (deny and not asked):
            await executor.cancel(run_id) if run.status == "paused" else None
            await executor.delete(run_id)
        return run.status == "paused"


def _approval(run: Run) -> str | None:
    return next((question.id for question in run.waiting if question.kind == "approval"), None)


async def write(url: str) -> None:
    """All runs."""

    async def kill(name: str, way: str, number: int, place: str) -> None:
        arguments = ["killed", url, name, way, str(number), place]
        await anyio.to_thread.run_sync(
            lambda: subprocess.run([sys.executable, "-m", "tests.data.kept_places", *arguments], check=False)
        )

    for name in (*STRATEGIES, *COMPOSED):
        for way in WAYS[name]:
            made = await whole(url, name, way)
            if name not in REDRAWN:
                continue
            tools = [number for number, call in enumerate(made, 1) if call.startswith(("add(", "multiply("))]
            models = [number for number in range(1, len(made) + 1) if number not in tools]
            for number in sorted({*models[:3], *models[-1:]} if way == "plain" else models[: 2 * EMPTY[way] + 1]):
                await kill(name, way, number, f"model_{number}")
            if way == "plain":
                await kill(name, way, tools[0], f"tool_{tools[0]}")
                await kill(name, way, tools[0], "unknown")
                async with opened(url, irreversible=True) as executor:
                    run = await executor.resume(f"{name}-{way}-unknown", wait=5)
                    assert {question.kind for question in run.waiting} == {"unknown_outcome"}, run
        if name not in REDRAWN:
            continue
        async with opened(url) as executor:
            await executor.start(name, QUESTION, run_id=f"{name}-plain-exhausted", limits=Limits(steps=3), **GIVEN)
        if name == "asking":
            continue
        await at_questions(url, name)
        async with opened(url, broken=True) as executor:
            await executor.start(name, QUESTION, run_id=f"{name}-plain-failed")
        async with opened(url) as executor:
            await executor.start(name, QUESTION, run_id=f"{name}-plain-cancelled")
            await executor.cancel(f"{name}-plain-cancelled")
        for number in range(1, 30) if name == "rewoo" else (3, 6):
            if not await before_step(url, name, number):
                break
    number = 3
    while await before_step(url, "rewoo", number, deny=True):
        number += 1
    async with opened(url) as executor:
        for number in (1, 2):
            run_id = f"chat-plain-waiting_{number}"
            run = await executor.start("chat", QUESTION, run_id=run_id, **GIVEN)
            for _ in range(number - 1):
                run = await executor.answer(run_id, run.waiting[0].id, "What is 6 * 7?")
    await leave_out(url)


async def leave_out(url: str) -> None:
    """Delete the runs that are not kept."""
    async with opened(url) as executor:
        for run_id in LEFT_OUT:
            await executor.delete(run_id)


def main() -> None:
    """Write the store."""
    vars(socket)["gethostname"] = lambda: "host"
    if sys.argv[1:2] == ["killed"]:
        _, _, url, name, way, number, place = sys.argv
        anyio.run(killed, url, name, way, int(number), place)
        return
    with TemporaryDirectory() as place:
        url = f"sqlite:///{place}/runs.db"
        anyio.run(write, url)
        STORE.write_bytes(lzma.compress(Path(place, "runs.db").read_bytes(), preset=9))


if __name__ == "__main__":
    main()
