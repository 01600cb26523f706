"""A policy for retries that does not cover an error is named where the step fails."""

from __future__ import annotations

import logging

import pytest

from orchestrator import Context, Executor, Graph, Retry, Update, tool
from orchestrator.nodes import Subgraph
from tests.support.executors import Log, single

pytestmark = pytest.mark.anyio
TWICE = Retry(attempts=2, wait=0)


class Offline(Exception):
    """An error of a user's own."""


class Temporary(Offline):
    """One that says that it may be retried."""

    retryable = True


async def failing(error: Exception, retry: Retry | None, edges: str = "START -> work -> END") -> tuple[str, int]:
    """Return the message with which a run fails, and the number of attempts."""
    tried = 0

    async def work() -> None:
        nonlocal tried
        tried += 1
        raise error

    async with Executor() as executor:
        run = await executor.start(single(work, retry=retry, edges=edges))
    return "" if run.error is None else run.error.message, tried


@pytest.mark.parametrize("error", [RuntimeError, ValueError, KeyError, Offline, Exception])
async def test_an_error_that_is_not_retried_says_so(error: type[Exception]) -> None:
    message, tried = await failing(error("no network"), TWICE)
    assert tried == 1
    assert f"(not retried: {error.__name__} is not in `on` of the retry, and it is no OSError" in message
    assert message.startswith(("no network", "'no network'"))


@pytest.mark.parametrize("error", [OSError, TimeoutError, ConnectionError, Temporary])
async def test_the_errors_of_the_page_are_retried(error: type[Exception]) -> None:
    message, tried = await failing(error("no network"), TWICE)
    assert (message, tried) == ("no network", 2)


async def test_on_names_what_is_retried() -> None:
    assert await failing(RuntimeError("x"), Retry(attempts=2, wait=0, on=("RuntimeError",))) == ("x", 2)
    assert await failing(OSError("x"), Retry(on=("RuntimeError",))) == (
        "x (not retried: OSError is not in `on` of the retry)",
        1,
    )


async def test_nothing_is_said_without_a_retry_or_where_an_edge_takes_the_error() -> None:
    assert await failing(RuntimeError("x"), None) == ("x", 1)
    assert await failing(RuntimeError("x"), TWICE, "START -> work -> END\nwork -> END : error") == ("", 1)


async def test_a_subgraph_and_a_tool_say_it_too(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise RuntimeError("no network")

    @tool(retry=TWICE)
    def look() -> str:
        """Look."""
        raise RuntimeError("no network")

    async def use(ctx: Context) -> Update:
        return {"answer": str((await ctx.tool("look")).error)}

    inner = Subgraph(single(work), retry=TWICE)
    outer = Graph(name="outer", state=Log, nodes={"inner": inner}, edges="START -> inner -> END", output="answer")
    async with Executor(tools=[look]) as executor:
        run = await executor.start(outer, {})
        assert run.error is not None
        assert "not retried: RuntimeError is not in `on` of the retry" in run.error.message
        with caplog.at_level(logging.WARNING, "orchestrator.steps"):
            await executor.start(single(use))
    assert "tool look: not retried: RuntimeError is not in `on` of the retry" in caplog.text
