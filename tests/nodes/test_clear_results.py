"""`ClearResults`: old results of tools become one line each; the cases are a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from orchestrator import Executor, Graph, Message, Run
from orchestrator.models import Image
from orchestrator.nodes import ClearResults, ContextUsage
from tests.nodes.test_compact import BIG, PARALLEL, Start, State, called, result, same, short, talk_of

pytestmark = pytest.mark.anyio
PICTURE = Image(url="data:image/png;base64,AAAA")


async def made(talk: Sequence[Message], *, window: int = 0, refuse: bool = False, **options: Any) -> Run:
    """A run of one `ClearResults`."""
    graph = Graph(
        name="g",
        state=State,
        input=("messages", "context_usage", "refuse"),
        output="took",
        nodes={"start": Start(), "clear": ClearResults(over=200, **options), "short": short, "same": same},
        edges="""
            START -> start -> clear
            start -> clear : too_long
            clear -> short : cleared
            clear -> same : done
            short, same -> END
        """,
    )
    async with Executor() as executor:
        given = {"messages": list(talk), "context_usage": ContextUsage(window=window), "refuse": refuse}
        return await executor.start(graph, given)


def cleared(run: Run) -> list[bool]:
    """Of each result, whether it was replaced."""
    return [message.content.startswith("[The result of") for message in run.state.messages if message.role == "tool"]


USED = {"usage": "context_usage"}
PINNED = [
    one.model_copy(update={"data": {"pinned": True}}) if place == 2 else one for place, one in enumerate(talk_of(5))
]
PICTURES = [*talk_of(1), called("see-1"), result("see-1", "x", images=[PICTURE]), *talk_of(2)[1:]]


@pytest.mark.parametrize(
    ("talk", "window", "refuse", "options", "left"),
    [
        (talk_of(5), 0, False, {}, [True, True, False, False, False]),
        (talk_of(5), 0, False, {"keep": 4}, [True, False, False, False, False]),
        (talk_of(3), 0, False, {}, None),
        (talk_of(5, "short"), 0, False, {}, None),
        (talk_of(5), 0, False, USED, None),
        (talk_of(5), 10_000, False, USED, None),
        (talk_of(5), 2_000, False, USED, [True, True, False, False, False]),
        (talk_of(5), 0, True, USED, [True, True, False, False, False]),
        (talk_of(3), 0, True, USED, [True, True, False]),
        (PINNED, 2_000, False, USED, [False, True, False, False, False]),
        (PARALLEL, 0, False, {}, [True, True, True, True, False, False, False, False, False, False]),
        (PICTURES, 0, False, {"keep": 1}, [True, True, True, False]),
    ],
)
async def test_the_table(
    talk: list[Message], window: int, refuse: bool, options: dict[str, Any], left: list[bool] | None
) -> None:
    run = await made(talk, window=window, refuse=refuse, **options)
    assert run.error is None
    assert run.output == ("done" if left is None else "compacted"), "the name of the outcome in the shared graph"
    if left is None:
        assert run.state.messages == talk
        return
    assert cleared(run) == left
    assert [m.tool_call_id for m in run.state.messages] == [m.tool_call_id for m in talk], "each call has its result"
    assert not any(message.images for message in run.state.messages[:-3])
    if options.get("usage"):
        assert run.state.context_usage.refusals == 0, "each result is cleared once, so that this ends"


async def test_the_line_says_what_was_there() -> None:
    run = await made(talk_of(5))
    size = len(f"0: {BIG}")
    assert run.state.messages[2].content == (
        f"[The result of read, {size:,} characters, was removed to save space. If you need it, and the call only "
        "reads, call again.]"
    )
    assert run.state.messages[2].data == {"cleared": size}
    again = await made(run.state.messages)
    assert again.output == "done", "a line is not replaced again"


async def test_when_nothing_is_left_the_error_names_what_to_do() -> None:
    run = await made(talk_of(1), refuse=True, usage="context_usage")
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "RequestTooLong"
    assert "no earlier result is left that has more than 200 characters" in run.error.message
