"""A process that is killed in the middle of a compaction: what ended is not asked again.

Run as a program, it is what is killed. Words: URL of the model's server, store, event loop.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from orchestrator import Context, Executor, Graph, Message, OpenAIModel, ToolCall, Update, node
from orchestrator.models import tool_result, user
from orchestrator.nodes import Compact, ContextUsage
from tests.support.programs import PATIENCE, Begun
from tests.support.wire import Raw, Seen, said, served

ORDER = ["part 1", "part 2", "answer"]
"""The requests of an undisturbed run: the older rounds are too long for one summary."""


class State(Compact.State):
    answer: str = ""


@node
async def think(state: State, ctx: Context) -> Update:
    return {"answer": (await ctx.model.complete(state.messages)).text}


def graph() -> Graph:
    return Graph(
        name="long",
        state=State,
        input=("messages", "context_usage"),
        nodes={"compact": Compact(usage="context_usage"), "think": think},
        edges="START -> compact\ncompact -> think : done\ncompact -> think : compacted\nthink -> END",
        output="answer",
    )


def talk() -> list[Message]:
    """A question, and rounds of one call."""
    found = [user("What do the files say?")]
    for number in range(12):
        call = ToolCall(id=f"c{number}", name="read_file", arguments={"path": f"{number}.txt"})
        found += [Message(role="assistant", tool_calls=(call,)), tool_result(call, f"{number}: {'lorem ipsum ' * 100}")]
    return found


def asked(seen: Seen) -> str:
    """Which of `ORDER` a request is."""
    text = seen.body["messages"][-1]["content"]
    if not text.startswith("Below is the older part"):
        return "answer"
    return "part 1" if "> 0: lorem" in text else "part 2"


@pytest.mark.anyio
@pytest.mark.parametrize("place", range(3), ids=ORDER)
async def test_a_summary_that_ended_is_not_asked_for_again(tmp_path: Path, place: int, anyio_backend: str) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    with served(lambda seen: Raw(hangs=True) if len(wire.seen) == place + 1 else said(asked(seen))) as wire:
        program = Begun((wire.url, store, anyio_backend), module=__name__, streams=(0, 2, 2))
        try:
            await anyio.to_thread.run_sync(lambda: _until(lambda: len(wire.seen) > place or program.ended))
        finally:
            program.close()  # SIGKILL
        async with OpenAIModel("m", wire.url) as model, Executor(store, graphs=[graph()], model=model) as executor:
            assert len((await executor.load("r")).values["messages"]) == (25 if place < 2 else 6)
            run = await executor.resume("r")
            requests = [asked(seen) for seen in wire.seen]
            assert (run.status, run.output) == ("completed", "answer"), run.error
            assert requests == ORDER[: place + 1] + ORDER[place:]
            assert (await executor.replay("r")).same
            assert len(wire.seen) == len(requests), "a replay asks nothing"
    (summary,) = [one for one in run.state.messages if (one.data or {}).get("summary_of")]
    assert summary.content.endswith("> part 1\n> \n> part 2")


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def main(url: str, store: str) -> None:
    usage = ContextUsage(window=2_600, tokens=3_900, messages=25)
    async with OpenAIModel("m", url) as model, Executor(store, model=model) as executor:
        await executor.start(graph(), {"messages": talk(), "context_usage": usage}, run_id="r")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], backend=sys.argv[3])
