"""`Observe`: what came of a round of calls decides how it goes on."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator import Graph, Message, ToolCall, ToolResult, tool
from orchestrator.models import assistant, user
from orchestrator.nodes import Observe
from orchestrator.nodes.conversation import result_message
from tests.support.one_node import executing

pytestmark = pytest.mark.anyio


@tool(ends=True)
def hand_in(text: str) -> str:
    """End the work."""
    return text


@tool
def look() -> str:
    """Look."""
    return ""


ROUND = [ToolCall(id="1", name="look", arguments={}), ToolCall(id="2", name="hand_in", arguments={"text": "x"})]


async def observed(it: Observe, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    edges = "START -> it\n" + "\n".join(f"it -> END : {outcome}" for outcome in it.outcomes)
    graph = Graph(name="g", state=Observe.State, nodes={"it": it}, edges=edges)
    async with executing(tools=(hand_in, look)) as (executor, _):
        run = await executor.start(graph, given)
        points = await executor.history(run.run_id)
    return points[-1].outcome, run.values


def talk(*results: ToolResult) -> list[Message]:
    calls = ROUND[: len(results)]
    return [
        user("Hi"),
        assistant("", calls),
        *(result_message(call, one) for call, one in zip(calls, results, strict=True)),
    ]


async def test_a_tool_that_ends_the_work_gives_the_answer_unless_it_failed() -> None:
    outcome, values = await observed(Observe(), {"messages": talk(ToolResult(output=1), ToolResult(output={"a": 1}))})
    assert (outcome, values["answer"]) == ("finished", '{"a": 1}')
    for ended in (ToolResult(output="", error="no ink", exit_code=1), None):
        results = [ToolResult(output=1), *([ended] if ended is not None else [])]
        outcome, values = await observed(Observe(), {"messages": talk(*results)})
        assert (outcome, values["answer"]) == ("more", "")


async def test_only_the_last_round_counts() -> None:
    earlier = talk(ToolResult(output=1), ToolResult(output="done"))
    later = [*earlier, assistant("again", ROUND[:1]), result_message(ROUND[0], ToolResult(output=2))]
    assert (await observed(Observe(), {"messages": later}))[0] == "more"


async def test_rounds_are_counted_and_bounded() -> None:
    found = [(await observed(Observe(rounds="rounds", most=2), {"rounds": n}))[0] for n in range(3)]
    assert found == ["more", "spent", "spent"]
    assert (await observed(Observe(rounds="rounds"), {"rounds": 7})) == (
        "more",
        {"messages": [], "answer": "", "rounds": 8},
    )
    with pytest.raises(ValidationError, match="name its field, rounds="):
        Observe(most=2)
