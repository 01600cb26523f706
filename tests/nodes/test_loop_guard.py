"""A loop guard notices that a model repeats itself, and leaves alone who gets on."""

from __future__ import annotations

import pytest

from orchestrator import Executor, Graph, Message, ToolCall
from orchestrator.models.messages import assistant, tool_result, user
from orchestrator.nodes import LoopGuard

pytestmark = pytest.mark.anyio


def called(*calls: tuple[str, object, str]) -> list[Message]:
    """A message with calls, and their results."""
    made = [ToolCall(id=str(n), name=name, arguments={"x": given}) for n, (name, given, _) in enumerate(calls)]
    return [assistant("Hm.", made), *(tool_result(one, result) for one, (*_, result) in zip(made, calls, strict=True))]


ASKED = [user("Why?")]
A, B = called(("look", 1, "nothing")), called(("look", 2, "nothing"))


async def outcome(talk: list[Message], **fields: object) -> str:
    graph = Graph(
        name="g",
        state=LoopGuard.State,
        nodes={"watch": LoopGuard(**fields)},  # type: ignore[arg-type]
        edges="START -> watch\nwatch -> END\nwatch -> END : loop",
    )
    async with Executor() as executor:
        run = await executor.start(graph, {"messages": talk})
        return (await executor.history(run.run_id))[-1].outcome or ""


@pytest.mark.parametrize(
    ("talk", "found"),
    [
        ([], "done"),
        (ASKED, "done"),
        (ASKED + A + A, "done"),
        (ASKED + A + A + A, "loop"),
        (ASKED + A + B + A + B + A, "loop"),
        (ASKED + A + A + B + A, "loop"),
        (ASKED + A + A + A + B, "done"),  # it has gone on to something else
        (ASKED + A + A + ASKED + A, "done"),  # another question
        (ASKED + called(("poll", 1, "0 %")) + called(("poll", 1, "50 %")) + called(("poll", 1, "99 %")), "done"),
        (ASKED + A + A + A[:1], "loop"),  # before the third call is made
        (ASKED + A + B + A[:1], "done"),
        (ASKED + called(("poll", 1, "0 %")) + called(("poll", 1, "50 %")) + A + called(("poll", 1, ""))[:1], "done"),
        (ASKED + called(("f", {"a": 1, "b": 2}, "r")) * 2 + called(("f", {"b": 2, "a": 1}, "r")), "loop"),
        (ASKED + called(("f", 1, "r"), ("g", 1, "r")) * 2 + called(("g", 1, "r"), ("f", 1, "r")), "loop"),
        (ASKED + called(("f", 1, "r"), ("g", 1, "r")) * 2 + called(("g", 1, "r"), ("g", 2, "r")), "loop"),
        (ASKED + [assistant("I do not know.")] * 2 + [assistant("I  do not\nknow.")], "loop"),
        ([*ASKED, assistant("I do not know."), assistant("I think."), assistant("I know.")], "done"),
    ],
)
async def test_it_counts_equal_calls_and_replies(talk: list[Message], found: str) -> None:
    assert await outcome(talk) == found


async def test_calls_alone_can_count() -> None:
    talk = ASKED + called(("poll", 1, "0 %")) + called(("poll", 1, "50 %"))
    assert await outcome(talk, most=2) == "done"
    assert await outcome(talk, most=2, results=False) == "loop"


async def test_only_the_last_messages_count() -> None:
    other = [message for n in range(5) for message in called(("look", 10 + n, "nothing"))]
    assert await outcome(ASKED + A + A + other + A, within=5) == "done"
    assert await outcome(ASKED + A + A + other + A, within=8) == "loop"
