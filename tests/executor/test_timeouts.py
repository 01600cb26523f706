"""Time-outs of steps: whatever a node makes of one, it ends in a time-out."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from orchestrator import Context, Executor, Retry, Update, tool
from orchestrator.kernel.records import EffectIntended, EffectSettled, StepDone
from tests.support.executors import says, single

pytestmark = pytest.mark.anyio

SHORT = 0.1
"""The time-out of the steps here, in seconds."""


async def swallows() -> Update:
    """Catch everything."""
    with contextlib.suppress(BaseException):
        await anyio.sleep_forever()
    return {"log": "late"}


async def shields() -> Update:
    """Let nothing stop it."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep(2 * SHORT)
    return {"log": "late"}


async def blocks() -> Update:
    """Hold up the event loop."""
    time.sleep(2 * SHORT)  # noqa: ASYNC251  that is what it is about
    return {"log": "late"}


def takes_a_thread() -> Update:
    """Hold up a thread."""
    time.sleep(2 * SHORT)
    return {"log": "late"}


async def fails_instead() -> Update:
    """Make an error of it."""
    try:
        await anyio.sleep_forever()
    finally:
        raise RuntimeError("something else")


async def fails_in_a_group() -> Update:
    """Make a group of errors of it."""

    async def fails() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("something else")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fails)
        tasks.start_soon(fails)
    return {"log": "late"}


WAYS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "swallows": (swallows, {}),
    "shields": (shields, {}),
    "blocks": (blocks, {}),
    "blocks inline": (takes_a_thread, {"effect": "pure"}),
    "takes a thread": (takes_a_thread, {}),
    "irreversible": (blocks, {"effect": "irreversible"}),
    "fails instead": (fails_instead, {}),
    "fails in a group": (fails_in_a_group, {}),
}


@pytest.mark.parametrize("way", WAYS)
async def test_whatever_a_node_makes_of_its_time_out_it_is_one(way: str) -> None:
    work, options = WAYS[way]
    run = await single(
        work, timeout=SHORT, **options, edges="START -> work -> END\nwork -> late : timeout\nlate -> END",
        nodes={"late": says("timed out")},
    ).run()  # fmt: skip
    assert (run.status, run.output) == ("completed", ["timed out"])
    run = await single(work, timeout=SHORT, **options).run()
    assert (run.status, run.output, run.values["log"]) == ("failed", None, [])
    assert run.error is not None
    assert (run.error.type, run.error.message) == ("StepTimeout", f"work took longer than {SHORT} s")


async def test_a_node_that_ends_in_time_keeps_its_update() -> None:
    run = await single(says("in time"), timeout=30.0).run()
    assert run.output == ["in time"]


async def test_calls_that_a_node_begins_after_its_time_out_are_refused() -> None:
    refused: list[str] = []
    calls: list[str] = []

    @tool(effect="idempotent")
    async def act() -> str:
        """Act."""
        calls.append("act")
        return "acted"

    async def work(ctx: Context) -> Update:
        try:
            await anyio.sleep_forever()
        except BaseException:
            with anyio.CancelScope(shield=True):
                for begin in (
                    lambda: ctx.tool("act"),
                    lambda: ctx.tools.execute(name="act"),
                    lambda: ctx.effect("note", lambda: calls.append("note"), returns=object),
                    lambda: ctx.ask("input", prompt="?"),
                ):
                    try:
                        await begin()
                    except BaseException as error:
                        refused.append(type(error).__name__)
        return {"log": "late"}

    async with Executor(tools=[act]) as executor:
        run = await executor.start(single(work, timeout=SHORT), run_id="r")
        records = await executor.store.read("r")
    assert run.error is not None
    assert run.error.type == "StepTimeout"
    assert refused == ["TimedOut"] * 4
    assert not any(isinstance(record, EffectIntended) for record in records)


async def test_a_thread_that_is_left_behind_makes_no_call_any_more() -> None:
    over, tried = threading.Event(), threading.Event()
    errors: list[str] = []
    calls: list[str] = []

    def work(ctx: Context) -> Update:
        assert over.wait(60)
        try:
            anyio.from_thread.run(lambda: ctx.effect("note", lambda: calls.append("note"), returns=object))
        except BaseException as error:
            errors.append(type(error).__name__)
        tried.set()
        return {"log": "late"}

    async with Executor() as executor:
        run = await executor.start(single(work, timeout=5 * SHORT), run_id="r")
        assert run.error is not None
        assert run.error.type == "StepTimeout"
        over.set()
        await anyio.to_thread.run_sync(tried.wait, 60)
        assert len(errors) == 1
        assert calls == []
        assert (await executor.load("r")).values["log"] == []


async def test_what_an_irreversible_node_did_too_late_is_not_done_again_by_its_retry() -> None:
    calls: list[int] = []

    async def work(ctx: Context) -> Update:
        calls.append(ctx.attempt)
        time.sleep(2 * SHORT)  # noqa: ASYNC251  that is what it is about
        return {"log": "done"}

    async with Executor() as executor:
        graph = single(work, timeout=SHORT, effect="irreversible", retry=Retry(attempts=2, wait=0))
        run = await executor.start(graph, run_id="r")
        records = await executor.store.read("r")
    assert (run.status, run.output, calls) == ("completed", ["done"], [1])
    assert [record.ok for record in records if isinstance(record, EffectSettled)] == [True]
    assert [record.attempt for record in records if isinstance(record, StepDone)] == [2]


async def test_a_node_that_tries_for_ever_after_its_time_out_holds_up_no_other_run() -> None:
    other = anyio.Event()

    async def stubborn(ctx: Context) -> Update:
        while not other.is_set():
            try:
                await ctx.effect("note", lambda: None, returns=object)
                await anyio.sleep(SHORT)
            except BaseException:
                continue
        return {"log": "late"}

    async def quick() -> Update:
        await anyio.sleep(2 * SHORT)
        other.set()
        return {"log": "quick"}

    async with Executor() as executor:
        await executor.submit(single(stubborn, name="stubborn", timeout=SHORT), run_id="s")
        try:
            with anyio.fail_after(60):
                assert (await executor.start(single(quick, name="quick"))).output == ["quick"]
                run = await executor.wait("s")
        finally:
            other.set()
    assert run.error is not None
    assert run.error.type == "StepTimeout"
