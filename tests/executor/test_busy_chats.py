"""Messages to an `Ask` node: as answers, and while the run is busy."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, Limits, Outcome, ToolCall, Update, append, node, tool
from orchestrator.errors import InvalidAnswer, InvalidGraph, RunBusy, RunEnded
from orchestrator.models import Reply
from orchestrator.nodes import Ask, Confirm, Subgraph
from orchestrator.strategies.chat import chat
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio

OnBusy = Literal["reject", "queue", "interrupt"]


class Talk(BaseModel):
    """A chat without a model."""

    said: str = ""
    log: Annotated[list[str], append] = []
    steps: int = 0


class Gate:
    """Lets the steps of a turn go on one by one."""

    def __init__(self) -> None:
        self.begun, self.go_on = anyio.Event(), anyio.Event()

    async def passed(self) -> None:
        self.begun.set()
        await self.go_on.wait()


def talks(on_busy: OnBusy, gate: Gate, **options: Any) -> Graph[Talk]:
    """`ask`, and a turn of two steps, of which the first waits at the gate; `bye` ends it."""

    @node(outcomes=("work", "bye"))
    def heard(state: Talk) -> Any:
        return Outcome("bye" if state.said == "bye" else "work", log=f"heard {state.said}")

    @node
    async def first(state: Talk) -> Update:
        await gate.passed()
        return {"log": f"first {state.said}"}

    @node
    def second(state: Talk) -> Update:
        return {"log": f"second {state.said}"}

    return Graph(
        name="talks", state=Talk, output="log",
        nodes={"ask": Ask(prompt="?", answer="said", on_busy=on_busy, **options), "heard": heard, "first": first,
               "second": second},
        edges="START -> ask -> heard -> first : work\nheard -> END : bye\nfirst -> second -> ask",
    )  # fmt: skip


@pytest.mark.parametrize("on_busy", ["reject", "queue", "interrupt"])
async def test_a_message_to_a_chat_that_waits_is_the_answer(on_busy: OnBusy) -> None:
    graph = talks(on_busy, Gate())
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        assert run.status == "paused"
        run = await ex.send(run.run_id, "ask", "bye", id="m1")
        assert (run.status, run.output) == ("completed", ["heard bye"])
        with pytest.raises(RunEnded):
            await ex.send(run.run_id, "ask", "more")


async def test_a_message_to_a_busy_chat_is_refused_unless_it_says_otherwise() -> None:
    gate = Gate()
    graph = talks("reject", gate)
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        await ex.send(run.run_id, "ask", "a", background=True)
        await gate.begun.wait()
        before = (await ex.load(run.run_id)).seq
        with pytest.raises(RunBusy, match=r"is busy: it does not wait at 'ask'.*on_busy='queue'"):
            await ex.send(run.run_id, "ask", "b")
        gate.go_on.set()
        run = await ex.wait(run.run_id)
        assert run.seq > before
        run = await ex.send(run.run_id, "ask", "bye")
        assert run.output == ["heard a", "first a", "second a", "heard bye"]
        assert sum(record.type == "event_received" for record in await ex.store.read(run.run_id)) == 2


async def test_queued_messages_are_the_next_turns_in_their_order() -> None:
    gate = Gate()
    graph = talks("queue", gate)
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        await ex.send(run.run_id, "ask", "a", background=True)
        await gate.begun.wait()
        for _ in range(2):  # sent twice under one id: once
            run = await ex.send(run.run_id, "ask", "b", id="m-b", resume=False)
        await ex.send(run.run_id, "ask", "bye", resume=False)
        gate.go_on.set()
        run = await ex.wait(run.run_id)
        assert run.output == ["heard a", "first a", "second a", "heard b", "first b", "second b", "heard bye"]


async def test_a_message_that_interrupts_is_heard_after_the_step_that_runs() -> None:
    gate = Gate()
    graph = talks("interrupt", gate)
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        await ex.send(run.run_id, "ask", "a", background=True)
        await gate.begun.wait()
        await ex.send(run.run_id, "ask", "bye", resume=False)
        gate.go_on.set()
        run = await ex.wait(run.run_id)
        assert run.output == ["heard a", "first a", "heard bye"], "the step under way ended, the next one did not begin"


async def test_a_message_withdraws_the_questions_of_the_turn_that_it_interrupts() -> None:
    @node(outcomes=("work", "bye"))
    def heard(state: Talk) -> Any:
        return Outcome("bye" if state.said == "bye" else "work", log=f"heard {state.said}")

    inner = Graph(
        name="inner", state=Talk, nodes={"sure": Confirm(prompt="Sure?")}, edges="START -> sure -> END", output="log"
    )
    graph = Graph(
        name="asks", state=Talk, output="log",
        nodes={"ask": Ask(prompt="?", answer="said", on_busy="interrupt"), "heard": heard,
               "a": Subgraph(inner), "b": Subgraph(inner), "join": node(lambda: None).with_(join="all")},
        edges="START -> ask -> heard -> END : bye\nheard -> a, b : work\na, b -> join -> ask",
    )  # fmt: skip
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        run = await ex.send(run.run_id, "ask", "work")
        assert [asked.kind for asked in run.waiting] == ["approval", "approval"]
        run = await ex.send(run.run_id, "ask", "again")
        assert [asked.kind for asked in run.waiting] == ["approval", "approval"]
        run = await ex.send(run.run_id, "ask", "bye")
        assert (run.status, run.output) == ("completed", ["heard work", "heard again", "heard bye"])


async def test_a_message_is_checked_as_an_answer_is() -> None:
    gate = Gate()
    graph = talks("queue", gate, choices=("a", "bye"))
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        with pytest.raises(InvalidAnswer, match="wants one of a, bye"):
            await ex.send(run.run_id, "ask", "nonsense")
        assert (await ex.load(run.run_id)).seq == run.seq
        await ex.send(run.run_id, "ask", "a", background=True)
        await gate.begun.wait()
        await ex.send(run.run_id, "ask", "nonsense", resume=False)
        gate.go_on.set()
        run = await ex.wait(run.run_id)
        assert run.waiting[0].prompt == "? (choose one of: a, bye)", "what was kept and does not fit is asked for again"
        run = await ex.send(run.run_id, "ask", "bye")
        assert run.status == "completed"


async def test_a_schema_holds_for_messages_that_were_kept() -> None:
    gate = Gate()
    graph = talks("queue", gate, accepts={"type": "string", "maxLength": 3})
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        await ex.send(run.run_id, "ask", "a", background=True)
        await gate.begun.wait()
        await ex.send(run.run_id, "ask", "too long", resume=False)
        await ex.send(run.run_id, "ask", "bye", resume=False)
        gate.go_on.set()
        run = await ex.wait(run.run_id)
        assert run.output[-1] == "heard bye"


async def test_a_limit_ends_an_interrupted_run_as_any_other() -> None:
    gate = Gate()
    graph = talks("interrupt", gate).with_limits(Limits(steps=3))
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        await ex.send(run.run_id, "ask", "a", background=True)
        await gate.begun.wait()
        await ex.send(run.run_id, "ask", "b", resume=False)
        gate.go_on.set()
        run = await ex.wait(run.run_id)
        assert run.status == "exhausted"


async def test_a_paused_run_keeps_the_message_until_it_is_resumed() -> None:
    gate = Gate()
    graph = talks("interrupt", gate)
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        await ex.send(run.run_id, "ask", "a", background=True)
        await gate.begun.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ex.pause, run.run_id)
            await anyio.sleep(0.01)
            gate.go_on.set()
        run = await ex.send(run.run_id, "ask", "bye")
        assert [asked.kind for asked in run.waiting] == ["pause"]
        run = await ex.resume(run.run_id)
        assert run.output == ["heard a", "first a", "heard bye"]


def test_a_node_that_interrupts_stands_outside_of_forks() -> None:
    ask = Ask(prompt="?", answer="said", on_busy="interrupt")
    nothing = node(lambda: None)
    with pytest.raises(InvalidGraph, match=r"ask interrupts its graph \(on_busy='interrupt'\) inside fork a"):
        Graph(
            name="g", state=Talk, nodes={"a": nothing, "ask": ask, "b": nothing, "j": nothing.with_(join="all")},
            edges="START -> a -> ask, b -> j -> END",
        )  # fmt: skip


GATES: dict[str, Gate] = {}


@tool(risk="none", effect="pure")
async def look(what: str) -> str:
    """Look something up."""
    await GATES[what].passed()
    return f"seen {what}"


async def test_a_shipped_chat_is_interrupted_in_the_middle_of_a_turn() -> None:
    GATES["tea"] = gate = Gate()
    graph = chat(on_busy="interrupt")
    calls = (ToolCall(id="1", name="look", arguments={"what": "tea"}),)
    model = ScriptedModel([Reply(text="", tool_calls=calls), "Yes?"])
    async with Executor(graphs=[graph], model=model, tools=[look]) as ex:
        run_id = await ex.submit(graph, "Look up tea.")
        await gate.begun.wait()
        await ex.send(run_id, "ask", "Stop!", resume=False)
        gate.go_on.set()
        run = await ex.wait(run_id)
        assert run.status == "paused"
        assert run.waiting[0].prompt == "Yes?"
        assert [message["role"] for message in run.values["messages"]] == [
            "user", "assistant", "tool", "user", "assistant",
        ]  # fmt: skip
        assert run.values["messages"][2]["content"] == "seen tea", "the call under way ended, and its result is kept"
