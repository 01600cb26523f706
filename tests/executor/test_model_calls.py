"""Calls of models: made again when they fail, resumed when a server works, seen as they come, paid from limits."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import anyio
import anyio.to_thread
import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Limits, OpenAIModel, Retry, append, node
from orchestrator.errors import GraphUnknown, ModelError, ModelMisconfigured, ModelUnavailable
from orchestrator.executor import Event
from orchestrator.models import Fallback, Price, with_middleware
from orchestrator.nodes import Ask, Subgraph
from orchestrator.stores.memory import MemoryStore
from tests.support.programs import Begun, next_line
from tests.support.wire import Raw, Seen, chunk, refused, said, served, streamed, told

pytestmark = pytest.mark.anyio

QUICK = Retry(attempts=3, wait=0.01)


class Talk(BaseModel):
    said: Annotated[list[str], append] = []


class Asked(Talk):
    reply: str = ""


@node
async def talk(ctx: Context) -> dict[str, str]:
    first = await ctx.model.complete("one")
    second = await ctx.model.complete("two")
    return {"said": f"{first.text} {second.text}"}


@node
async def sorry(ctx: Context) -> dict[str, str]:
    return {"said": "nothing" if ctx.error is None else ctx.error.type}


def graph(nodes: dict[str, Any] | None = None, edges: str = "START -> talk -> END", **fields: Any) -> Graph:
    nodes = nodes or {"talk": talk}
    return Graph(**{"name": "talk", "state": Talk, "nodes": nodes, "edges": edges, "output": "said", **fields})


class Outer(BaseModel):
    said: list[str] = []


def inside(one: Graph, **fields: Any) -> Graph:
    """A graph around another one."""
    node = Subgraph(one, outputs={"said": "said"}, **fields)
    return Graph(name="outer", state=Outer, nodes={"inner": node}, edges="START -> inner -> END", output="said")


def model_at(url: str, **options: Any) -> OpenAIModel:
    return OpenAIModel("m", url, "sk-test", **{"retry": QUICK, **options})


async def journal(executor: Executor, run_id: str = "r") -> list[Event]:
    return [event async for event in executor.events(run_id)]


def tries(events: Sequence[Event]) -> list[tuple[bool, int]]:
    """(whether it is tried again, its number) of every try that failed."""
    failed = [one.data for one in events if one.type == "effect_settled" and one.data.get("ok", True) is False]
    return [("next_at" in data, int(str(data.get("tries", 1)))) for data in failed]


# -- made again ----------------------------------------------------------------------------------------------------


async def test_a_failed_call_is_made_again_as_the_server_asks_and_every_try_is_journaled() -> None:
    busy = refused(429, "busy", retry_after="0.3")
    with served(busy, Raw(silent=True), said("a"), said("b")) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            began = time.monotonic()
            run = await executor.start(graph(), {}, run_id="r")
            took = time.monotonic() - began
            events = await journal(executor)
    assert (run.status, run.output, run.usage.calls) == ("completed", ["a b"], 2)
    assert tries(events) == [(True, 1), (True, 2)]
    assert [event.data.get("again", False) for event in events if event.type == "effect_intended"] == [
        False, True, True, False,
    ]  # fmt: skip
    keys = [seen.headers["idempotency-key"] for seen in wire.seen]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert took >= 0.3


async def test_tries_go_on_in_another_process_where_they_were() -> None:
    answers = [refused(503, "busy"), refused(503, "busy", retry_after="30"), said("a"), said("b")]
    with served(*answers) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            async with executor.stream(graph(), {}, run_id="r") as live:
                async for event in live:
                    if event.type == "effect_settled" and event.data.get("tries") == 2:
                        break  # which interrupts the run, while it waits
            assert (await executor.load("r")).status == "interrupted"
            store = executor.store
            # Whoever goes on waits for what is left of the time; here the server is asked at once.
            later = [one for one in await store.read("r") if one.type == "effect_settled"][-1]
            assert later.next_at is not None
            assert later.next_at - time.time() > 20
            with anyio.move_on_after(0.3) as scope:
                await executor.resume("r")
            assert scope.cancelled_caught
    assert len(wire.seen) == 2


async def test_a_call_that_fails_for_good_interrupts_the_run_and_is_made_again_when_it_is_resumed() -> None:
    down = [refused(500, "down")] * 3
    with served(said("a"), *down, *down, said("b")) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            for _ in range(2):
                with pytest.raises(ModelUnavailable, match="down"):
                    await executor.start(graph(), {}, run_id="r")
                run = await executor.load("r")
                assert run.status == "interrupted"
                assert run.error is not None
                assert (run.error.type, run.error.node) == ("ModelUnavailable", "talk")
            run = await executor.resume("r")
            assert (run.status, run.output, run.error) == ("completed", ["a b"], None)
            assert "step_retried" not in [event.type for event in await journal(executor)]
    assert [seen.body["messages"][0]["content"] for seen in wire.seen] == ["one", *["two"] * 7]  # "a" was paid for once


async def test_a_wait_that_is_too_long_is_not_waited_for() -> None:
    with served(refused(429, "come back tomorrow", retry_after="86400"), said("a"), said("b")) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            with pytest.raises(ModelUnavailable, match="asks to wait 86400 s"):
                await executor.start(graph(), {}, run_id="r")
            assert (await executor.resume("r")).status == "completed"


async def test_an_edge_for_errors_takes_it_when_no_try_is_left() -> None:
    nodes = {"talk": talk, "sorry": sorry}
    edges = "START -> talk -> END\ntalk -> sorry : error\nsorry -> END"
    with served(*[refused(500, "down")] * 3) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            run = await executor.start(graph(nodes, edges), {})
    assert (run.status, run.output, len(wire.seen)) == ("completed", ["ModelUnavailable"], 3)
    with served(refused(401, "no")) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            run = await executor.start(graph(nodes, edges), {})
    assert (run.output, len(wire.seen)) == (["ModelMisconfigured"], 1)


async def test_an_edge_around_the_graph_takes_it_as_well() -> None:
    outer = graph(
        {"inner": Subgraph(graph(), outputs={"said": "said"}), "sorry": sorry},
        "START -> inner -> END\ninner -> sorry : error\nsorry -> END",
    )
    with served(refused(403, "no")) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            run = await executor.start(outer, {})
    assert (run.status, run.output) == ("completed", ["ModelMisconfigured"])


async def test_a_retry_of_the_node_comes_before_that_of_the_model() -> None:
    again = talk.with_(retry=Retry(attempts=2, wait=0.01))
    with served(*[refused(500, "down")] * 2, said("a"), said("b")) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            with pytest.raises(ModelUnavailable):
                await executor.start(graph({"talk": again}), {}, run_id="r")
            assert len(wire.seen) == 2
            assert [event.type for event in await journal(executor)].count("step_retried") == 1
            assert (await executor.resume("r")).output == ["a b"]


async def test_a_node_that_catches_the_failure_gets_the_same_one_on_a_replay() -> None:
    asked: list[str] = []

    @node
    async def careful(ctx: Context) -> dict[str, str]:
        try:
            reply = await ctx.model.complete("one")
        except ModelUnavailable:
            asked.append("caught")
            reply = await ctx.model.complete("two")
        return {"said": reply.text}

    with served(refused(500, "down"), refused(500, "down"), said("b")) as wire:
        async with model_at(wire.url, retry=None) as model, Executor(model=model) as executor:
            with pytest.raises(ModelUnavailable):
                await executor.start(graph({"talk": careful}), {}, run_id="r")
            run = await executor.resume("r")
    assert run.output == ["b"]
    assert asked == ["caught", "caught"]
    assert [seen.body["messages"][0]["content"] for seen in wire.seen] == ["one", "two", "two"]


async def test_a_graph_that_is_called_as_a_tool_interrupts_who_calls_it() -> None:
    @node
    async def delegate(ctx: Context) -> dict[str, str]:
        return {"said": str((await ctx.tool("helper")).output)}

    outer = graph({"talk": delegate}).replace(talk=delegate)
    with served(refused(401, "no"), said("a"), said("b")) as wire:
        helper = graph().as_tool("helper", "Talks.")
        async with model_at(wire.url) as model, Executor(model=model, tools=[helper]) as executor:
            with pytest.raises(ModelMisconfigured):
                await executor.start(outer, {}, run_id="r")
            assert (await executor.load("r")).status == "interrupted"
            assert (await executor.resume("r")).output == ["['a b']"]
    assert len(wire.seen) == 3


async def test_calls_beside_each_other_are_all_made_again_at_one_resume() -> None:
    @node
    async def three(ctx: Context) -> dict[str, str]:
        found: dict[int, str] = {}

        async def ask(number: int) -> None:
            found[number] = (await ctx.model.complete(str(number))).text

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(ask, number)
        return {"said": "".join(found[number] for number in range(3))}

    @node
    async def careful(ctx: Context) -> dict[str, str]:
        errors: list[Exception] = []

        async def ask(number: int) -> None:
            try:
                await ctx.model.complete(str(number))
            except ModelError as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(ask, number)
        if errors:
            raise errors[0]
        return {"said": "all"}

    for asking, output in ((three, "012"), (careful, "all")):
        up = False

        def answer(seen: Seen) -> Raw | dict[str, Any]:
            return said(seen.body["messages"][0]["content"]) if up else refused(503, "down")  # noqa: B023

        with served(answer) as wire:
            async with model_at(wire.url, retry=None) as model, Executor(model=model) as executor:
                with pytest.raises(ModelUnavailable, match="down"):
                    await executor.start(graph({"talk": asking}), {}, run_id="r")
                assert (await executor.load("r")).status == "interrupted"
                up = True
                assert (await executor.resume("r")).output == [output]


async def test_a_fault_of_the_graph_beside_one_of_the_surroundings_fails_the_run() -> None:
    @node
    async def mixed(ctx: Context) -> dict[str, str]:
        async def other() -> None:
            await anyio.sleep(0.05)
            raise KeyError("x")

        async def ask() -> None:
            try:
                await ctx.model.complete("one")
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.2)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            tasks.start_soon(ask)
        return {"said": "never"}

    with served(refused(401, "no")) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            run = await executor.start(graph({"talk": mixed}), {})
    assert run.status == "failed"


async def test_a_wait_that_is_too_long_interrupts_also_where_the_node_has_a_retry() -> None:
    again = talk.with_(retry=Retry(wait=0.01))
    around = inside(graph({"talk": again}), retry=Retry(wait=0.01))
    with served(refused(429, "tomorrow", retry_after="3600"), said("a"), said("b")) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            with pytest.raises(ModelUnavailable, match="asks to wait 3600 s"):
                await executor.start(around, {}, run_id="r")
            assert (await executor.resume("r")).output == ["a b"]


async def test_a_retry_around_a_graph_waits_as_long_as_the_server_asks() -> None:
    around = inside(graph(), retry=Retry(wait=0.01))
    with served(refused(503, "soon", retry_after="0.4"), said("a"), said("b")) as wire:
        async with model_at(wire.url, retry=None) as model, Executor(model=model) as executor:
            began = time.monotonic()
            assert (await executor.start(around, {})).output == ["a b"]
    assert time.monotonic() - began >= 0.4


async def test_an_edge_for_errors_takes_that_of_a_graph_which_is_called_as_a_tool() -> None:
    @node
    async def delegate(ctx: Context) -> dict[str, str]:
        return {"said": str((await ctx.tool("helper")).output)}

    nodes = {"talk": delegate, "sorry": sorry}
    edges = "START -> talk -> END\ntalk -> sorry : error\nsorry -> END"
    with served(refused(401, "no")) as wire:
        helper = graph().as_tool("helper", "Talks.")
        async with model_at(wire.url) as model, Executor(model=model, tools=[helper]) as executor:
            run = await executor.start(graph(nodes, edges), {})
    assert (run.status, run.output) == ("completed", ["ModelMisconfigured"])


async def test_others_go_on_from_where_they_were() -> None:
    class Both(BaseModel):
        left: str = ""
        right: str = ""

    @node
    async def left(ctx: Context) -> dict[str, str]:
        return {"left": (await ctx.model.complete("left")).text}

    @node
    async def right(ctx: Context) -> dict[str, str]:
        return {"right": (await ctx.model.complete("right")).text}

    both = Graph(name="both", state=Both, nodes={"left": left, "right": right}, edges="START -> left, right -> END")
    repaired, store = False, MemoryStore()

    def answer(seen: Seen) -> Raw | dict[str, Any]:
        asked = seen.body["messages"][0]["content"]
        if asked == "left" and not repaired:
            until = time.monotonic() + 60
            while not any(record.type == "effect_settled" for record in store.read_now("r")):
                assert time.monotonic() < until, "the other one's reply was not journaled"
                time.sleep(0.01)
            return refused(401, "no")
        return said(asked)

    with served(answer) as wire:
        async with model_at(wire.url) as model, Executor(store, model=model) as executor:
            with pytest.raises(ModelMisconfigured):
                await executor.start(both, {}, run_id="r")
            repaired = True
            run = await executor.resume("r")
    assert (run.values["left"], run.values["right"]) == ("left", "right")
    assert sorted(seen.body["messages"][0]["content"] for seen in wire.seen) == ["left", "left", "right"]


# -- seen as they come ---------------------------------------------------------------------------------------------


async def test_who_watches_sees_tokens_also_where_the_node_waits_for_the_whole() -> None:
    with served(told("Hello"), told("you"), said("a"), said("b")) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            async with executor.stream(graph(), {}, run_id="r") as live:
                tokens = [str(event.data["text"]) async for event in live if event.type == "token"]
            assert (tokens, live.run.output) == ([*"Helloyou"], ["Hello you"])
            assert "token" not in [event.type for event in await journal(executor)]
            await executor.start(graph(), {})
    assert [seen.body.get("stream", False) for seen in wire.seen] == [True, True, False, False]


async def test_who_follows_a_run_that_waits_sees_the_first_token_after_the_answer() -> None:
    asked = graph({"ask": Ask(prompt="?", answer="reply"), "talk": talk}, "START -> ask -> talk -> END", state=Asked)
    with served(told("Hello"), told("you")) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            run = await executor.start(asked, {}, run_id="r")
            tokens: list[str] = []

            async def follow() -> None:
                async for event in executor.events("r", follow=True):
                    if event.type == "token":
                        tokens.append(str(event.data["text"]))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await anyio.sleep(0.05)
                await executor.answer("r", run.waiting[0].id, "go on")
    assert tokens == [*"Helloyou"]


async def test_a_node_that_reads_a_stream_gets_another_try_only_before_the_first_piece() -> None:
    @node
    async def reader(ctx: Context) -> dict[str, str]:
        pieces = [event.text async for event in ctx.model.stream("one")]
        return {"said": "|".join(pieces)}

    begun = chunk({"content": "He"})
    good = told("Hi")
    with served(refused(500, "down"), good, streamed(begun, done=False), good) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            run = await executor.start(graph({"talk": reader}), {}, run_id="r")
            assert run.output == ["H|i|"]
            with pytest.raises(ModelUnavailable, match="ended before the reply was complete"):
                await executor.start(graph({"talk": reader}), {}, run_id="s")
            assert (await executor.resume("s")).output == ["H|i|"]
    assert len(wire.seen) == 4


@pytest.mark.parametrize("how", ["cancelled", "break", "return"])
async def test_a_stream_that_a_node_leaves_is_closed_when_its_step_ends(how: str) -> None:
    @node
    async def slow(ctx: Context) -> dict[str, str]:
        async for event in ctx.model.stream("one"):
            if how == "cancelled":
                await anyio.sleep(30)
            if how == "break":
                break
            return {"said": event.text}
        return {"said": "left"}

    with served(streamed(chunk({"content": "He"}), done=False, hangs=True)) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            async with executor.stream(graph({"talk": slow}), {}, run_id="r") as live:
                async for event in live:
                    if event.type == "token" and how == "cancelled":
                        await executor.cancel("r")
            assert live.run.status == ("cancelled" if how == "cancelled" else "completed")
            assert await anyio.to_thread.run_sync(wire.left.wait, 60)


async def test_a_run_cancelled_in_the_middle_of_a_stream_closes_its_connection() -> None:
    with served(streamed(chunk({"content": "He"}), done=False, hangs=True)) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            async with anyio.create_task_group() as tasks:
                async with executor.stream(graph(), {}, run_id="r") as live:
                    async for event in live:
                        if event.type == "token":
                            tasks.start_soon(executor.cancel, "r")
                assert live.run.status == "cancelled"
            assert await anyio.to_thread.run_sync(wire.left.wait, 60)
            settled = [one.data for one in await journal(executor) if one.type == "effect_settled"]
    assert [data.get("ok", True) for data in settled] == [False]
    assert "result" not in settled[0]


async def test_killed_in_the_middle_of_a_stream_it_asks_again_once(tmp_path: Path, anyio_backend: str) -> None:
    half = streamed(chunk({"content": "He"}), done=False, hangs=True)
    with served(told("a"), half, said("b")) as wire:
        store = f"sqlite:///{tmp_path}/runs.db"
        read, write = os.pipe()
        words = (wire.url, store, anyio_backend)
        killed = Begun(words, module="tests.executor.streaming", streams=(0, write, 2))
        os.close(write)
        try:
            assert [next_line(read) for _ in range(2)] == ["token\n"] * 2
        finally:
            killed.close()
            os.close(read)
        async with (
            model_at(wire.url) as model,
            Executor(store, graphs=[graph()], model=model) as executor,
        ):
            before = [one.data.get("result") for one in await journal(executor) if one.type == "effect_settled"]
            assert len(before) == 1
            run = await executor.resume("r")
            after = [one.data for one in await journal(executor) if one.type == "effect_settled"]
    assert (run.status, run.output) == ("completed", ["a b"])
    assert [seen.body["messages"][0]["content"] for seen in wire.seen] == ["one", "two", "two"]
    assert len(after) == 2
    assert "He" not in str(after)


# -- paid from limits ----------------------------------------------------------------------------------------------

TABLE = {"m": Price(input=1_000, output=2_000, cached_input=100)}


async def test_costs_are_in_the_ledger_and_spend_the_limit() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
    with served(lambda _: said("a", usage=usage)) as wire:
        async with model_at(wire.url, price=TABLE) as model, Executor(model=model) as executor:
            run = await executor.start(graph(), {})
            assert run.usage.cost == pytest.approx(2 * (6 * 1000 + 4 * 100 + 5 * 2000) / 1e6)
            assert "estimated" not in run.to_json()["usage"]
            spent = await executor.start(graph(limits=Limits(cost=0.01)), {})
    assert (spent.status, spent.usage.calls) == ("exhausted", 1)


async def test_a_run_adds_up_what_the_cache_of_the_provider_did(tmp_path: Path) -> None:
    details = {"cached_tokens": 4, "cache_write_tokens": 1}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": details}
    saved = 2 * (4 * 900) / 1e6

    @node
    async def call(ctx: Context) -> dict[str, str]:
        return {"said": str((await ctx.tool("talk")).content)}

    outer = graph({"call": call}, "START -> call -> END", name="outer")
    with served(lambda _: said("a", usage=usage)) as wire:
        async with model_at(wire.url, price=TABLE) as model:
            tool = graph().as_tool("talk", "Talks.")
            async with Executor(f"sqlite:///{tmp_path}/runs.db", model=model, graphs=[outer], tools=[tool]) as executor:
                run = await executor.start(outer, {}, run_id="r")
                assert run.status == "completed", run.error
                assert (run.usage.cached_tokens, run.usage.written_tokens) == (8, 2)
                assert run.usage.cache_savings == pytest.approx(saved)
                rows = {row.group["graph"]: row for row in await executor.stats("graph")}
                fork = await executor.fork(run.run_id, at=run.seq - 1)
                replay = await executor.replay(run.run_id)
                again = await executor.load(replay.run.run_id)
            async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[outer], tools=[tool]) as executor:
                assert (await executor.load("r")).usage == run.usage
    assert {name: row.cache_savings for name, row in rows.items()} == {"outer": pytest.approx(saved), "talk": 0.0}
    assert (fork.usage.cached_tokens, fork.inherited.cached_tokens) == (0, 8)
    assert (again.usage.cached_tokens, again.usage.cache_savings, again.saved.cached_tokens) == (0, 0.0, 8)


async def test_a_cost_limit_without_a_price_is_an_error_at_start() -> None:
    limited = graph(limits=Limits(cost=1.0))
    around = graph({"inner": Subgraph(limited, outputs={"said": "said"})}, "START -> inner -> END")
    other = OpenAIModel("other", "http://127.0.0.1:9/v1", price={"m": Price()})
    with served(lambda _: said("a")) as wire:
        async with model_at(wire.url, price=TABLE) as model, Executor(model=model, models={"x": other}) as executor:
            for one, limits in ((limited, None), (around, None), (graph(), Limits(cost=1.0))):
                with pytest.raises(GraphUnknown, match=r"limits cost, and the price of model 'other' is unknown: set"):
                    await executor.start(one, {}, limits=limits)
            assert not (await executor.runs()).runs
        behind = with_middleware(model_at(wire.url, price=TABLE), Fallback(other))
        async with behind, Executor(model=behind) as executor:
            with pytest.raises(GraphUnknown, match="model 'other'"):
                await executor.start(limited, {})
    assert not wire.seen


async def test_tokens_that_no_server_told_are_marked() -> None:
    with served(said("x" * 40), said("y", usage={"prompt_tokens": 3, "completion_tokens": 1})) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            run = await executor.start(graph(), {})
    assert (run.usage.input_tokens, run.usage.output_tokens) == (5 + 3, 10 + 1)
    assert run.to_json()["usage"]["estimated"] is True


async def test_models_by_role_and_by_node() -> None:
    @node(model="cheap")
    async def draft(ctx: Context) -> dict[str, str]:
        return {"said": (await ctx.model.complete("draft")).text + (await ctx.models["judge"].complete("good?")).text}

    with served(said("cheap")) as one, served(said("yes")) as two:
        models = {"cheap": model_at(one.url), "judge": OpenAIModel("j", two.url)}
        async with Executor(models=models) as executor:
            run = await executor.start(graph({"talk": draft}), {}, run_id="r")
            events = await journal(executor)
        for model in models.values():
            await model.aclose()
    assert run.output == ["cheapyes"]
    assert [one.data["name"] for one in events if one.type == "effect_intended"] == ["m", "j"]
    with pytest.raises(GraphUnknown, match=r"node 'talk' uses model 'cheap', and models= has none: add it"):
        async with Executor() as executor:
            await executor.start(graph({"talk": draft}), {})


async def test_other_errors_of_a_model_fail_the_run() -> None:
    with served(refused(400, "no such field")) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            run = await executor.start(graph(), {})
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == ModelError.__name__
