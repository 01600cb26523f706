"""Every tool call in a conversation has exactly one result, whatever happened: a server that refuses others says so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import (
    Approve,
    Context,
    Deny,
    Executor,
    Graph,
    Limits,
    Message,
    OpenAIModel,
    Outcome,
    Run,
    Tool,
    ToolCall,
    Update,
    append,
    extend,
    node,
    tool,
)  # fmt: skip
from orchestrator.errors import StoreError, StoreUnavailable, ToolError
from orchestrator.models import tool_result, user, with_results
from orchestrator.models.messages import NO_RESULT, assistant
from orchestrator.nodes import Execute
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append
from orchestrator.strategies.tool_user import tool_user
from tests.support.wire import Raw, Seen, called, refused, said, served

pytestmark = pytest.mark.anyio


def breach(messages: list[dict[str, Any]]) -> str | None:
    """What a provider refuses a conversation for."""
    missing: list[str] = []
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in missing:
                return f"message {number}: a result of no call before it, or a second one"
            missing.remove(message["tool_call_id"])
            continue
        if missing:
            return f"message {number}: calls {missing} have no results"
        missing = [call["id"] for call in message.get("tool_calls") or ()]
    return f"calls {missing} have no results" if missing else None


class Provider:
    """Makes the calls that it is told to when the user has spoken, and answers when it has their results."""

    def __init__(self, calls: list[tuple[str, Any]]) -> None:
        self.calls = calls
        self.url = ""
        self.heard: list[list[dict[str, Any]]] = []
        self.refused: list[str] = []
        self.turn = 0

    def answer(self, seen: Seen) -> Raw | dict[str, Any]:
        messages = seen.body["messages"]
        wrong = breach(messages)
        if wrong is not None:
            self.refused.append(wrong)
            return refused(400, wrong)
        self.heard.append(messages)
        if messages[-1]["role"] == "tool":
            return said("done")
        if messages[-1]["content"] != "go":
            return said("hello")
        # Some servers give the same ids in each reply.
        return called(
            *(
                {
                    "id": f"call_{number}", "type": "function",
                    "function": {"name": name, "arguments": args if isinstance(args, str) else json.dumps(args)},
                }
                for number, (name, args) in enumerate(self.calls)
            )
        )  # fmt: skip


@contextmanager
def provider(*calls: tuple[str, Any]) -> Iterator[Provider]:
    found = Provider(list(calls))
    with served(found.answer) as wire:
        found.url = wire.url
        yield found


class Chat(BaseModel):
    """A conversation, and the calls that are to be made in it."""

    messages: Annotated[list[Message], append] = []
    pending: list[ToolCall] = []


@node
async def think(state: Chat, ctx: Context) -> Outcome[Literal["calls", "answer"]]:
    reply = await ctx.model.complete(state.messages, ctx.tools)
    name: Literal["calls", "answer"] = "calls" if reply.tool_calls else "answer"
    return Outcome(name, messages=reply.message, pending=list(reply.tool_calls))


@node
async def confirm(state: Chat, ctx: Context) -> Outcome[Literal["approved", "denied"]]:
    answer = await ctx.ask("approval", prompt=", ".join(call.name for call in state.pending) + "?")
    return Outcome("denied" if isinstance(answer, Deny) else "approved")


@node(effect="pure")
def refuse(state: Chat) -> Update:
    return {"messages": extend([tool_result(call, "the user denied it") for call in state.pending]), "pending": []}


def chat(limits: Limits | None = None, on_error: Literal["raise", "observe"] = "observe", **options: Any) -> Graph:
    execute = Execute(calls="pending", results="messages", on_error=on_error, on_failure="observe")
    return Graph(
        name="chat", state=Chat, output="messages", limits=limits,
        nodes={"think": think, "confirm": confirm, "refuse": refuse, "execute": execute.with_(**options)},
        edges="""
            START   -> think
            think   -> confirm : calls
            think   -> END     : answer
            confirm -> execute : approved
            confirm -> refuse  : denied
            execute -> think   : done
            execute -> END     : finished
            refuse  -> think
        """,
    )  # fmt: skip


class Power(MemoryStore):
    """A store that takes no more records when the power fails."""

    fails = False

    async def append(self, append: Append) -> int:
        if self.fails:
            raise StoreUnavailable("no power")
        return await super().append(append)


class Tools:
    """What the calls do."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.during: Callable[[], None] | None = None
        self.hangs = False
        self.began = anyio.Event()

        @tool(risk="read", effect="read")
        async def look(place: str) -> str:
            """Look somewhere."""
            return f"saw {place}"

        @tool
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            if self.during is not None:
                self.during()
            self.began.set()
            if self.hangs:
                await anyio.sleep(60)
            return f"paid {amount}"

        @tool(timeout=0.02)
        async def slow() -> str:
            """Never ends in time."""
            await anyio.sleep(60)
            return "never"

        @tool
        async def broken() -> str:
            """Says why not."""
            raise ToolError("it is broken")

        self.all: list[Tool] = [look, pay, slow, broken]


CALLS = [
    ("look", {"place": "here"}), ("pay", {"amount": 1}), ("slow", {}), ("broken", {}), ("nothing", {}),
    ("pay", {"amount": "much"}), ("look", "no json"), ("pay", {"amount": 2}),
]  # fmt: skip
RESULTS = [
    "saw here", "paid 1", "Error: Unexpected error executing tool slow: tool 'slow' took longer than 0.02 s",
    "Error: it is broken", "Error: ", "Error: ", "Error: the arguments of look are not a JSON object: 'no json'",
    "paid 2",
]  # fmt: skip


async def lawful(executor: Executor, run: Run) -> None:
    """At every point where a model is asked the stored conversation has all results: none had to be added."""
    asked = 0
    before: list[Any] = [{"role": "user", "content": "go"}]
    for point in await executor.history(run.run_id):
        if point.node == "think":
            messages = tuple(Message.model_validate(message) for message in before)
            assert with_results(messages) == messages
            asked += 1
        before = point.values["messages"]
    assert asked


@asynccontextmanager
async def opened(store: Any, graph: Graph, url: str, tools: Tools) -> AsyncIterator[Executor]:
    model = OpenAIModel("m", url, "key")
    async with model, Executor(store, graphs=[graph], model=model, tools=tools.all) as executor:
        yield executor


def spoken(run: Run) -> list[Message]:
    return [Message.model_validate(message) for message in run.values["messages"]]


async def next_turn(executor: Executor, graph: Graph, run: Run, word: str = "and now?") -> Run:
    """Go on with the stored conversation of a run that has ended, as it is."""
    return await executor.start(graph, {"messages": [*spoken(run), user(word)]})


START = {"messages": [user("go")]}


async def test_errors_of_all_kinds_are_results_in_the_order_of_the_calls() -> None:
    tools, graph = Tools(), chat()
    with provider(*CALLS) as there:
        async with opened("memory://", graph, there.url, tools) as executor:
            run = await executor.start(graph, START)
            run = await executor.answer(run.run_id, run.waiting[0].id, Approve())
            await lawful(executor, run)
            assert run.status == "completed", run.error
            again = await next_turn(executor, graph, run, "go")  # the same ids once more
            again = await executor.answer(again.run_id, again.waiting[0].id, Deny())
    assert (again.status, there.refused) == ("completed", [])
    results = [message for message in spoken(run) if message.role == "tool"]
    assert [message.tool_call_id for message in results] == [f"call_{number}" for number in range(len(CALLS))]
    for message, words in zip(results, RESULTS, strict=True):
        assert message.content.startswith(words)
    assert sorted(tools.paid) == [1, 2]
    denied = [message.content for message in spoken(again) if message.role == "tool"][len(CALLS) :]
    assert denied == ["the user denied it"] * len(CALLS)


@pytest.mark.parametrize("choice", ["retry", "happened", "failed"])
async def test_after_a_crash_each_call_has_one_result(choice: str) -> None:
    tools, graph, store = Tools(), chat(), Power()
    with provider(("look", {"place": "a"}), ("pay", {"amount": 1}), ("pay", {"amount": 2})) as there:
        async with opened(store, graph, there.url, tools) as executor:
            run = await executor.start(graph, START, run_id="r")

        def fail() -> None:
            store.fails = True

        tools.during = fail
        async with opened(store, graph, there.url, tools) as executor:
            with pytest.raises(StoreError):
                await executor.answer("r", run.waiting[0].id, Approve())
        tools.during, store.fails = None, False
        paid = list(tools.paid)
        async with opened(store, graph, there.url, tools) as executor:
            run = await executor.resume("r")
            while run.status == "paused":
                (question,) = run.waiting
                assert question.kind == "unknown_outcome"
                answer = {"choice": choice, "result": "by hand"} if choice == "happened" else choice
                run = await executor.answer("r", question.id, answer)
            await lawful(executor, run)
    assert (run.status, there.refused) == ("completed", [])
    assert len([message for message in spoken(run) if message.role == "tool"]) == 3
    assert len(tools.paid) == 2 + (len(paid) if choice == "retry" else 0)
    assert len(there.heard) == 2


async def test_what_a_cancel_left_open_says_so_in_the_next_turn() -> None:
    tools, graph = Tools(), chat()
    tools.hangs = True
    with provider(("look", {"place": "a"}), ("pay", {"amount": 1})) as there:
        async with opened("memory://", graph, there.url, tools) as executor:
            run = await executor.start(graph, START, run_id="r")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(executor.answer, "r", run.waiting[0].id, Approve())
                await tools.began.wait()
                run = await executor.cancel("r")
            assert run.status == "cancelled"
            assert [message.role for message in spoken(run)] == ["user", "assistant"]
            again = await next_turn(executor, graph, run)
    assert (again.status, there.refused) == ("completed", [])
    assert [message["role"] for message in there.heard[-1]] == ["user", "assistant", "tool", "tool", "user"]
    assert [message["content"] for message in there.heard[-1][2:4]] == [NO_RESULT] * 2
    assert tools.paid == [1]


@pytest.mark.parametrize("end", ["failed", "exhausted", "timed out", "cancelled while it waits"])
async def test_conversations_of_runs_that_ended_badly_can_go_on(end: str) -> None:
    tools = Tools()
    tools.hangs = end == "timed out"
    limits = Limits(calls=2) if end == "exhausted" else None
    options: dict[str, Any] = {"timeout": 0.1} if end == "timed out" else {}
    graph = chat(limits, "raise" if end == "failed" else "observe", **options)
    with provider(("look", {"place": "a"}), ("nothing", {}), ("pay", {"amount": 1})) as there:
        async with opened("memory://", graph, there.url, tools) as executor:
            run = await executor.start(graph, START, run_id="r")
            if end == "cancelled while it waits":
                run = await executor.cancel("r")
            else:
                run = await executor.answer("r", run.waiting[0].id, Approve())
            assert run.status == {"timed out": "failed", "cancelled while it waits": "cancelled"}.get(end, end)
            await lawful(executor, run)
            again = await next_turn(executor, graph, run)
    assert (again.status, there.refused) == ("completed", [])
    assert len([message for message in there.heard[-1] if message["role"] == "tool"]) == 3


async def test_tool_user_asks_lawfully_whatever_happens_to_its_calls() -> None:
    tools = Tools()
    replies = iter(["pay", '{"amount": 3}', "Question: and then?", "broken", "Final Answer: no"])
    heard: list[str | None] = []

    def answer(seen: Seen) -> Raw | dict[str, Any]:
        heard.append(breach(seen.body["messages"]))
        return said(next(replies))

    graph = tool_user(on_denied="observe", on_error="observe")
    with served(answer) as wire:
        async with opened("memory://", graph, wire.url, tools) as executor:
            run = await executor.start(graph, {"question": "?"})
            for verdict in (Deny(reason="no"), Approve()):
                run = await executor.answer(run.run_id, run.waiting[0].id, verdict)
    assert (run.status, run.output) == ("completed", "no")
    assert heard == [None] * 5
    assert [step["tool_exit_code"] for step in run.values["step_history"]] == [1, 1]
    assert tools.paid == []


def calls(*ids: str) -> Message:
    return assistant("", [ToolCall(id=name, name="pay", arguments={}) for name in ids])


def result(name: str, words: str = "paid") -> Message:
    return tool_result(ToolCall(id=name, name="pay"), words)


def lost(name: str) -> Message:
    return result(name, NO_RESULT)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ([], []),
        ([user("a"), calls("1", "2"), result("2"), result("1")], None),
        ([calls("1"), result("1"), calls("1"), result("1", "again")], None),
        ([calls("1", "2"), result("1")], [calls("1", "2"), result("1"), lost("2")]),
        ([calls("1"), user("b")], [calls("1"), lost("1"), user("b")]),
        ([calls("1"), user("b"), result("1")], [calls("1"), result("1"), user("b")]),
        ([calls("1"), assistant("b"), result("1")], [calls("1"), lost("1"), assistant("b"), result("1")]),
        ([calls("1"), result("1"), result("1", "twice")], [calls("1"), result("1")]),
        ([calls("1"), calls("1"), result("1")], [calls("1"), lost("1"), calls("1"), result("1")]),
    ],
)
def test_what_is_added_to_a_conversation(given: list[Message], made: list[Message] | None) -> None:
    found = list(with_results(given))
    assert found == (given if made is None else made)
    assert list(with_results(found)) == found
