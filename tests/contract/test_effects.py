"""The contract of effects and replay, of fan-outs and cancels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator import Context, Executor, Graph, Retry, Update, node, tool
from orchestrator.errors import EffectFailed, ReplayMismatch
from orchestrator.testing import ScriptedModel
from tests.contract.sample import World, interrupted, logs, single, tool_of, use

pytestmark = pytest.mark.anyio


async def kinds(ex: Executor, run_id: str = "r") -> list[str]:
    return [event.type async for event in ex.events(run_id)]


# -- the ledger -----------------------------------------------------------------------------------------------------


async def test_every_model_and_tool_call_and_effect_is_intended_before_and_settled_after() -> None:
    @tool(risk="none", effect="read")
    def look(n: int) -> int:
        """Look."""
        return n

    @node
    async def work(ctx: Context) -> Update:
        said = (await ctx.model.complete("?")).text
        seen = (await ctx.tool("look", n=3)).output
        made = await ctx.effect("add", lambda a, b: a + b, 1, 2, returns=int)
        return {"log": [said, seen, made]}

    async with Executor(model=ScriptedModel(["!"]), tools=[look]) as ex:
        run = await ex.start(single(work))
        assert run.output == [["!", 3, 3]]
        events = [event async for event in ex.events(run.run_id)]
    pairs = ["effect_intended", "effect_settled"] * 3
    assert [event.type for event in events] == ["run_started", *pairs, "step_done", "ended"]
    intended = [event.data for event in events if event.type == "effect_intended"]
    assert [(data["kind"], data["name"]) for data in intended] == [
        ("model", "scripted"),
        ("tool", "look"),
        ("effect", "add"),
    ]
    assert [data["effect"] for data in intended] == ["idempotent", "read", "idempotent"]  # model calls are idempotent
    settled = [event.data["key"] for event in events if event.type == "effect_settled"]
    assert settled == [data["key"] for data in intended]


async def test_a_step_without_effects_costs_one_record() -> None:
    async with Executor() as ex:
        run = await ex.start(single(logs(1), "START -> work -> b -> c -> END", b=logs(2), c=logs(3)))
        assert await kinds(ex, run.run_id) == ["run_started", "step_done", "step_done", "step_done", "ended"]


async def test_an_effects_key_depends_on_activation_attempt_name_request_and_occurrence() -> None:
    keys: list[str] = []

    def touch(*args: int, idempotency_key: str) -> None:
        keys.append(idempotency_key)

    @node(retry=Retry(attempts=2, wait=0, on=("ValueError",)))
    async def work(ctx: Context) -> None:
        await ctx.effect("a", touch, 1, returns=type(None))
        await ctx.effect("a", touch, 1, returns=type(None))  # another occurrence
        await ctx.effect("a", touch, 2, returns=type(None))  # another request
        await ctx.effect("b", touch, 1, returns=type(None))  # another name
        if ctx.attempt == 1:
            raise ValueError  # another attempt

    graph = single(work, "START -> work -> again -> END", again=work)  # another activation
    assert (await graph.run()).status == "completed"
    assert len(keys) == 16
    assert len(set(keys)) == 16


async def test_after_a_crash_settled_effects_are_reused_and_a_reply_is_never_paid_for_again() -> None:
    world = World()

    @node
    async def work(ctx: Context) -> Update:
        said = (await ctx.model.complete("?")).text
        made = await ctx.effect("add", lambda: 3, returns=int)
        await world.do("hang")
        return {"log": [said, made]}

    graph = single(work)
    with ScriptedModel(["once"]) as model:
        async with Executor(graphs=[graph], model=model) as ex:
            run = await ex.resume(await interrupted(ex, graph, world))
    assert run.output == [["once", 3]]


@pytest.mark.parametrize("effect", ["pure", "read", "idempotent"])
async def test_unsettled_effects_that_may_run_again_do_so_with_the_same_key(effect: str) -> None:
    world = World()
    graph = single(use)
    async with Executor(graphs=[graph], tools=[tool_of(world, effect)]) as ex:
        run = await ex.resume(await interrupted(ex, graph, world))
    assert run.output == ["done 2"]
    assert len(world.done) == 2
    assert len(set(world.done)) == 1


@pytest.mark.parametrize(
    ("answer", "output", "times"),
    [
        ("retry", ["done 2"], 2),
        ({"choice": "happened", "result": "it was"}, ["it was"], 1),
        ("failed", None, 1),
    ],
)
async def test_an_unsettled_irreversible_effect_becomes_a_question(answer: Any, output: Any, times: int) -> None:
    world = World()
    graph = single(use)
    async with Executor(graphs=[graph], tools=[tool_of(world, "irreversible")]) as ex:
        run = await ex.resume(await interrupted(ex, graph, world))
        assert run.status == "paused"
        (question,) = run.waiting
        assert (question.kind, question.node) == ("unknown_outcome", "work")
        assert question.choices == ("happened", "failed", "retry")
        run = await ex.answer(run.run_id, question.id, answer)
    assert (run.status, run.output) == ("completed" if output else "failed", output)
    assert len(world.done) == times


@pytest.mark.parametrize(("found", "output", "times"), [("it did", ["it did"], 1), (None, ["done 2"], 2)])
async def test_reconcile_is_asked_instead_if_the_tool_has_one(found: Any, output: Any, times: int) -> None:
    world = World()
    asked: list[str] = []

    def reconcile(key: str) -> Any:
        asked.append(key)
        return found

    graph = single(use)
    async with Executor(graphs=[graph], tools=[tool_of(world, "irreversible", reconcile=reconcile)]) as ex:
        run = await ex.resume(await interrupted(ex, graph, world))
    assert (run.output, len(world.done)) == (output, times)
    assert asked == world.done[:1]


async def test_changed_code_gives_a_new_call(tmp_path: Path) -> None:
    world = World()
    calls: list[int] = []

    def code(n: int) -> Graph:
        @node
        async def work(ctx: Context) -> Update:
            made = await ctx.effect("call", calls.append, n, returns=type(None))
            await world.do("hang")
            return {"log": made}

        return single(work)

    store = f"sqlite:///{tmp_path}/runs.db"
    old, new = code(1), code(2)
    async with Executor(store, graphs=[old]) as ex:
        await interrupted(ex, old, world)
    async with Executor(store, graphs=[new]) as ex:
        assert (await ex.resume("r")).status == "completed"
    assert calls == [1, 2]


async def test_or_a_replay_mismatch_if_a_settled_irreversible_effect_would_be_left_behind(
    tmp_path: Path,
) -> None:
    world = World()
    calls: list[int] = []

    def code(n: int | None) -> Graph:
        @node
        async def work(ctx: Context) -> Update:
            if n is not None:
                await ctx.effect("call", calls.append, n, returns=type(None), effect="irreversible")
            await world.do("hang")
            return {"log": "end"}

        return single(work)

    store = f"sqlite:///{tmp_path}/runs.db"
    old = code(1)
    async with Executor(store, graphs=[old]) as ex:
        await interrupted(ex, old, world)
    changed = code(None)
    async with Executor(store, graphs=[changed]) as ex:
        with pytest.raises(ReplayMismatch, match="call"):
            await ex.resume("r")
        assert (await ex.load("r")).status == "interrupted"
    async with Executor(store, graphs=[old]) as ex:
        assert (await ex.resume("r")).output == ["end"]
    assert calls == [1]


async def test_or_a_question_if_the_code_makes_another_call_instead(tmp_path: Path) -> None:
    world = World()
    calls: list[int] = []
    numbers = iter((1, 2, 3))

    @node
    async def work(ctx: Context) -> Update:
        await ctx.effect("call", calls.append, next(numbers), returns=type(None), effect="irreversible")
        await world.do("hang")
        return {"log": "end"}

    graph, store = single(work), f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store, graphs=[graph]) as ex:
        await interrupted(ex, graph, world)
    async with Executor(store, graphs=[graph]) as ex:
        (question,) = (await ex.resume("r")).waiting
        assert (question.payload["args"], question.payload["why"], calls) == ([1], "returned", [1])
        assert (await ex.answer("r", question.id, "happened")).output == ["end"]
    assert calls == [1]


async def test_a_retry_makes_fresh_calls_but_reuses_settled_irreversible_ones() -> None:
    calls: list[str] = []

    @node(retry=Retry(attempts=3, wait=0, on=("ValueError",)))
    async def work(ctx: Context) -> Update:
        await ctx.effect("may", calls.append, "may", returns=type(None))
        await ctx.effect("once", calls.append, "once", returns=type(None), effect="irreversible")
        if ctx.attempt < 3:
            raise ValueError
        return {"log": "ok"}

    assert (await single(work).run()).output == ["ok"]
    assert sorted(calls) == ["may", "may", "may", "once"]


async def test_a_settled_failure_is_the_same_failure_on_replay() -> None:
    world = World()
    calls: list[int] = []
    seen: list[str] = []

    def breaks() -> None:
        calls.append(1)
        raise LookupError("not there")

    @node
    async def work(ctx: Context) -> None:
        try:
            await ctx.effect("look", breaks, returns=type(None))
        except (LookupError, EffectFailed) as error:
            seen.append(str(error))
        await world.do("hang")

    graph = single(work)
    async with Executor(graphs=[graph]) as ex:
        assert (await ex.resume(await interrupted(ex, graph, world))).status == "completed"
    assert calls == [1]
    assert len(seen) == 2
    assert all("not there" in words for words in seen)


async def test_an_irreversible_node_is_treated_like_an_irreversible_call() -> None:
    world = World()

    @node(effect="irreversible")
    async def work() -> Update:
        return {"log": await world.do("node")}

    graph = single(work)
    async with Executor(graphs=[graph]) as ex:
        run = await ex.resume(await interrupted(ex, graph, world))
        assert (run.status, [question.kind for question in run.waiting]) == ("paused", ["unknown_outcome"])
        run = await ex.answer("r", run.waiting[0].id, "retry")
    assert (run.output, len(world.done)) == (["done 2"], 2)
