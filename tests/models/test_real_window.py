"""A real model with its real window: a loop of many rounds, whose replies and summaries nobody else wrote.

The model is too small to call tools, so a layer adds to each of its replies a call that reads the next page.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from orchestrator import Executor, Graph, OpenAIModel, Run, tool
from orchestrator.models import Ask, Middleware, ModelEvent, ModelRequest, Profile, ToolCall, with_middleware
from orchestrator.models.messages import is_summary
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.react import react
from tests.support.real_model import RealModel, running

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(3600), pytest.mark.parametrize("anyio_backend", ["asyncio"])]
peer, storm = pytest.mark.peer, pytest.mark.storm
WINDOW = 1024
"""Tokens of the server's context window."""
WORDS = ("the", "river", "carried", "boats", "with", "grain", "and", "salt", "past", "an", "old", "mill", "each", "day")


def text(page: int) -> str:
    return f"Page {page}. " + " ".join(random.Random(page).choices(WORDS, k=90)) + "."


@tool(risk="none", effect="pure")
def read_page(page: int) -> str:
    """Read a page of the book."""
    return text(page)


class ReadsOn(Middleware):
    """Adds a call of the next page to each of the first replies with tools."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.read, self.summaries = rounds, 0, 0

    async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        """See `Middleware.handle`. The request has no tools of the provider: its server would drop them."""
        async for event in ask(request):
            if event.reply is None:
                yield event
                continue
            self.summaries += request.task == "compact"
            if request.task == "compact" or self.read == self.rounds:
                yield event
                continue
            self.read += 1
            call = ToolCall(id=f"c{self.read}", name="read_page", arguments={"page": self.read})
            yield ModelEvent(reply=event.reply.model_copy(update={"tool_calls": (call,), "finish": "tool_calls"}))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealModel]:
    with running(tmp_path_factory.mktemp("small_window") / "log", WINDOW) as found:
        yield found


STRATEGIES: dict[str, Callable[[int], Graph]] = {
    "function_call_agent": lambda steps: function_call_agent(max_steps=steps),
    "react": lambda steps: react(max_steps=steps + 2, thought="optional"),  # a cut answer is asked for again, twice
}


async def assert_completes(server: RealModel, strategy: str, rounds: int, *, known: bool) -> None:
    """The run completes, with the whole conversation in its journal."""
    reads, begun = ReadsOn(rounds), time.monotonic()
    profile = Profile(window=server.window if known else None)
    async with (
        OpenAIModel("smollm2", server.url, temperature=0, seed=1, max_tokens=32, profile=profile) as real,
        Executor(model=with_middleware(real, reads), tools=[read_page]) as executor,
    ):
        run: Run = await executor.start(STRATEGIES[strategy](rounds + 1), "What does the book say?")
        points = await executor.history(run.run_id)
        first = next(point for point in points if point.outcome == "compacted")
        before: Run = await executor.load(run.run_id, at=first.seq - 1)
    taken = Counter(point.outcome for point in points)
    print(
        f"{strategy}, window {'known' if known else 'not known'}: {reads.read} rounds, {taken['compacted']} summaries "
        f"by {reads.summaries} requests, {taken['too_long']} refused, {time.monotonic() - begun:.0f} s, "
        f"{run.usage.input_tokens} tokens in, {run.usage.cached_tokens} of them cached"
    )
    assert (run.status, reads.read) == ("completed", rounds), run.error
    assert taken["compacted"] >= rounds // 8
    assert bool(taken["too_long"]) != known
    assert any(map(is_summary, run.state.messages))
    pages = [[one.content for one in found.state.messages if one.role == "tool"] for found in (before, run)]
    assert pages[0] == [text(page + 1) for page in range(len(pages[0]))], "before a summary, all of it is there"
    assert pages[1][-1] == text(rounds)


@peer
@pytest.mark.parametrize("known", [True, False], ids=["window known", "not known"])
async def test_some_rounds(server: RealModel, known: bool) -> None:
    await assert_completes(server, "function_call_agent", 10, known=known)


@storm
@pytest.mark.full
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("known", [True, False], ids=["window known", "not known"])
async def test_many_rounds_complete(server: RealModel, strategy: str, known: bool, scale: int) -> None:
    """`--storm-scale N`: 12 N rounds, up to 60."""
    await assert_completes(server, strategy, min(60, 12 * scale), known=known)
