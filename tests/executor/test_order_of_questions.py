"""Questions and branches are shown in the order of their places, in whatever order they came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Deny, Executor, Graph, Run, ToolCall, Update, append, node, tool
from orchestrator.nodes import ITEM, Ask, Sleep, Subgraph
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio

ORDERS = [(0, 1, 2), (2, 1, 0), (1, 2, 0)]
PROMPTS = ["0?", "1?", "2?"]


class State(BaseModel):
    items: list[int] = [0, 1, 2]
    item: Annotated[int, max] = 0
    word: Annotated[str, max] = ""
    got: Annotated[list[str], append] = []


class Branches:
    """Branches that come to what they ask in a given order."""

    def __init__(self) -> None:
        self.may_ask = [anyio.Event() for _ in range(3)]

    @property
    def wait(self) -> Any:
        @node
        async def wait(state: State, item: object) -> Update:
            at = item if isinstance(item, int) else state.item
            await self.may_ask[at].wait()
            return {"item": at}

        return wait

    async def run(self, executor: Executor, graph: Graph, order: Sequence[int], asked: str = "asked") -> Run:
        """The run when all have asked, each after the one before in the order."""
        left = iter(order)
        with anyio.fail_after(60):
            async with executor.stream(graph, run_id="r") as live:
                self.may_ask[next(left)].set()
                async for event in live:
                    if event.type == asked:
                        at = next(left, None)
                        if at is None:
                            break
                        self.may_ask[at].set()
            return await executor.wait("r")


def mapped(branches: Branches) -> Graph:
    return Graph(
        name="g", state=State, output="got",
        nodes={"wait": branches.wait, "ask": Ask(prompt="{item}?", show=("item",), answer="word")},
        edges="START -> wait : each items\nwait -> ask -> END",
    )  # fmt: skip


def forked(branches: Branches) -> Graph:
    nodes: dict[str, Any] = {}
    for number in (0, 1, 2):

        async def wait(number: int = number) -> Update:
            await branches.may_ask[number].wait()
            return {}

        nodes |= {f"wait{number}": node(wait), f"ask{number}": Ask(prompt=f"{number}?", answer="word")}
    edges = "START -> wait0, wait1, wait2\n" + "\n".join(f"wait{n} -> ask{n} -> END" for n in (2, 0, 1))
    return Graph(name="g", state=State, nodes=nodes, edges=edges, output="got")


def inside(branches: Branches) -> Graph:
    inner = Graph(
        name="inner", state=State,
        nodes={"wait": branches.wait, "ask": Ask(prompt="{item}?", show=("item",), answer="word")},
        edges="START -> wait -> ask -> END", output="word",
    )  # fmt: skip
    sub = Subgraph(inner, inputs={"item": ITEM}, outputs={"got": "word"})
    return Graph(name="g", state=State, nodes={"sub": sub}, edges="START -> sub : each items\nsub -> END", output="got")


SHAPES = (mapped, forked, inside)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
async def test_questions_are_shown_in_the_order_of_places(
    shape: Callable[[Branches], Graph], order: Sequence[int]
) -> None:
    branches = Branches()
    graph = shape(branches)
    async with Executor(graphs=[graph], idle="sleep") as executor:
        run = await branches.run(executor, graph, order)
        assert [question.prompt for question in run.waiting] == PROMPTS
        assert [question["prompt"] for question in run.to_json()["waiting"]] == PROMPTS
        assert [question.prompt for question in (await executor.load("r")).waiting] == PROMPTS
        assert [one.question.prompt for one in (await executor.questions()).questions] == PROMPTS
        assert (await executor.runs()).runs[0].question == "0?"
        paths = [branch.path for branch in run.branches if branch.node.startswith("ask")]
        assert paths == [question.path for question in run.waiting]
        # One that is answered is gone, and the others stay where they are.
        for answered in order:
            (question,) = (one for one in run.waiting if one.prompt == f"{answered}?")
            run = await executor.answer("r", question.id, "yes")
            left = [number for number in (0, 1, 2) if number not in order[: order.index(answered) + 1]]
            assert [one.prompt for one in run.waiting] == [f"{number}?" for number in left]
        assert run.status == "completed"


async def test_a_pause_comes_after_the_questions_of_steps() -> None:
    branches = Branches()
    graph = mapped(branches)
    async with Executor(graphs=[graph], idle="sleep") as executor:
        await branches.run(executor, graph, (2, 0, 1))
        run = await executor.pause("r")
        assert [(one.kind, one.prompt) for one in run.waiting][:-1] == [("input", prompt) for prompt in PROMPTS]
        assert run.waiting[-1].kind == "pause"


async def test_timers_are_shown_in_the_order_of_places() -> None:
    branches = Branches()
    graph = Graph(
        name="g", state=State, nodes={"wait": branches.wait, "sleep": Sleep(seconds=3600)},
        edges="START -> wait : each items\nwait -> sleep -> END", output="got",
    )  # fmt: skip
    async with Executor(graphs=[graph], idle="sleep") as executor:
        await branches.run(executor, graph, (2, 0, 1), asked="timer_set")
        run = await executor.load("r")
        paths = [one.path for one in run.waiting]
        assert {one.kind for one in run.waiting} == {"timer"}
        assert paths == sorted(paths)
        assert len(paths) == 3


@tool(risk="write", effect="irreversible")
def pay(who: str) -> str:
    """Pay someone."""
    return f"paid {who}"


@pytest.mark.parametrize("order", [*permutations(range(3))], ids=str)
async def test_calls_of_one_reply_wait_for_approval_in_their_order(order: Sequence[int]) -> None:
    graph = function_call_agent(tools=[pay])
    calls = [ToolCall(id=name, name="pay", arguments={"who": name}) for name in "abc"]
    async with Executor(graphs=[graph], model=ScriptedModel([calls, "done"])) as executor:
        run = await executor.start(graph, "pay all", run_id="r")
        whole = [question.payload["args"]["who"] for question in run.waiting]
        assert whole == ["a", "b", "c"]
        by_name = {question.payload["args"]["who"]: question.id for question in run.waiting}
        for at in order:
            run = await executor.answer("r", by_name["abc"[at]], Deny(reason="no"))
            whole.remove("abc"[at])
            assert [question.payload["args"]["who"] for question in run.waiting] == whole
        assert run.output == "done"
