"""What comes from outside and cannot be stored, or is of another kind than said: it never leaves a run behind."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, JsonValue

from orchestrator import (
    Approve,
    Context,
    Deny,
    Executor,
    Graph,
    Message,
    Outcome,
    Run,
    Tool,
    ToolCall,
    ToolResult,
    append,
    node,
    tool,
)
from orchestrator.errors import GraphError, InvalidAnswer, InvalidValue, ToolError
from orchestrator.graph import Node
from orchestrator.models import Reply
from orchestrator.nodes import Confirm
from orchestrator.testing import ScriptedModel
from tests.support.sizes import in_turn

pytestmark = pytest.mark.anyio
HALF = "x\ud83dy"
"""A text that no UTF-8 file can hold. JSON can say it (a model may write it so), and Python holds it."""
CLEAN = "x\ufffdy"


class State(BaseModel):
    out: JsonValue = None
    text: str = ""
    log: Annotated[list[str], append] = []


def single(work: Any, edges: str = "START -> work -> END", **nodes: Any) -> Graph:
    return Graph(name="g", state=State, nodes={"work": work, **nodes}, edges=edges, output="out")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


async def loaded(url: str, run: Run) -> Run:
    async with Executor(url) as ex:
        again = await ex.load(run.run_id)
    assert (again.status, again.values, again.seq) == (run.status, run.values, run.seq)
    return run


# -- unpaired surrogates --------------------------------------------------------------------------------------


REPLIES: dict[str, Reply] = {
    "text": Reply(text=HALF),
    "extras": Reply(text=CLEAN, extras={"reasoning_content": HALF}),
    "calls": Reply(text=CLEAN, tool_calls=(ToolCall(id="1", name="f", arguments={"a": [HALF]}, raw=HALF),)),
    "a pair in two halves": Reply(text="\ud83d\ude00"),
}


@pytest.mark.parametrize("what", REPLIES)
async def test_a_reply_with_half_a_surrogate_pair_is_altered_visibly_and_not_lost(what: str, url: str) -> None:
    @node
    async def work(ctx: Context) -> dict[str, Any]:
        reply = await ctx.model.complete("?")
        again = await ctx.model.complete([Message(role="user", content="?"), reply.message])
        return {"out": [reply.data(), again.text]}

    with ScriptedModel([REPLIES[what], "ok"]) as model:
        run = await single(work).run(model=model, store=url)
    assert run.status == "completed", run.error
    reply, _ = (await loaded(url, run)).output
    assert reply["text"] == ("😀" if "pair" in what else CLEAN)
    json.dumps(reply, ensure_ascii=False).encode()
    told = reply.get("details", {}).get("altered", [])
    assert len(told) == {"a pair in two halves": 0, "calls": 2}.get(what, 1)
    assert all("was replaced" in one for one in told)


def says(text: Any) -> Any:
    return lambda: text


def raises(error: Exception) -> Any:
    def fail() -> None:
        raise error

    return fail


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


TOOLS: dict[str, tuple[Any, Any, str | None]] = {
    "a text": (says(HALF), CLEAN, None),
    "a result": (says(ToolResult(output=HALF, metadata={"a": HALF})), CLEAN, None),
    "a tool error": (raises(ToolError(HALF)), None, CLEAN),
    "an error": (raises(ValueError(HALF)), None, "Unexpected error executing tool f: x\\ud83dy"),
    "an error without words": (
        raises(Mute()), None, "Unexpected error executing tool f: it has no message: its __str__ raised RuntimeError",
    ),
    "an object": (says(object), "<class 'object'>", None),
}  # fmt: skip


@pytest.mark.parametrize("what", TOOLS)
async def test_whatever_a_tool_gives_or_raises_is_a_result(what: str, url: str) -> None:
    function, output, error = TOOLS[what]

    @node
    async def work(ctx: Context) -> dict[str, Any]:
        return {"out": (await ctx.tool("f")).model_dump()}

    made: Tool = tool(name="f", risk="none", effect="read")(function)
    run = await single(work).run(tools=[made], store=url)
    assert run.status == "completed", run.error
    assert ((await loaded(url, run)).output["output"], run.output["error"]) == (output, error)


async def test_live_events_are_cleaned_and_texts_of_people_that_cannot_be_stored_are_refused(url: str) -> None:
    @node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        await ctx.emit(HALF, {"a": HALF, "o": object()})
        answer = await ctx.ask("input", prompt="?")
        return {"out": answer.type}

    graph = single(work, "START -> work -> sure\nsure -> END", sure=Confirm(prompt="?", reason="text"))
    async with Executor(url, graphs=[graph]) as ex:
        for labels in ({HALF: "x"}, {"x": HALF}):
            with pytest.raises(InvalidValue, match="label"):
                await ex.start(graph, labels=labels)
            with pytest.raises(InvalidValue, match="label"):
                await ex.runs(labels=labels)
        with pytest.raises(InvalidValue, match="refs"):
            await ex.start(graph, refs={"graph": HALF})
        assert (await ex.runs()).runs == ()
        async with ex.stream(graph) as live:
            events = [event async for event in live]
        (emitted,) = [event for event in events if event.type == "emitted"]
        assert (emitted.data["name"], emitted.data["data"]["a"]) == (CLEAN, CLEAN)  # type: ignore[index]
        run = live.run
        (question,) = run.waiting
        head = run.seq
        for answer in (HALF, Approve(args={"a": object()}), Deny(reason=HALF)):
            with pytest.raises(InvalidAnswer, match="plain JSON"):
                await ex.answer(run.run_id, question.id, answer)
        with pytest.raises(InvalidValue, match="by"):
            await ex.answer(run.run_id, question.id, "x", by=HALF)
        for command in (ex.pause, ex.cancel):
            with pytest.raises(InvalidValue, match="reason"):
                await command(run.run_id, reason=HALF)
        assert (await ex.load(run.run_id)).seq == head
        run = await ex.answer(run.run_id, question.id, CLEAN)
        run = await ex.answer(run.run_id, run.waiting[0].id, Deny(reason=CLEAN))
        assert (run.status, run.values["text"]) == ("completed", CLEAN)
    await loaded(url, run)


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt": HALF},
        {"payload": {HALF: 1}},
        {"payload": {"a": [HALF]}},
        {"choices": ["a", HALF]},
        {"deadline": math.inf},
        {"payload": {"a": math.nan}},
    ],
)
async def test_a_question_that_cannot_be_stored_fails_its_step(asked: dict[str, Any], url: str) -> None:
    @node
    async def work(ctx: Context) -> None:
        await ctx.ask("input", **asked)

    run = await single(work).run(store=url)
    assert (run.status, run.error.type, run.waiting) == ("failed", "InvalidValue", ())
    await loaded(url, run)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (raises(ValueError(HALF)), "x\\ud83dy"),
        (raises(Mute()), "it has no message"),
        (says({"text": HALF}), "surrogate"),
        (says({"log": HALF}), "surrogate"),
        (says(Outcome(HALF)), "which is not declared"),
        (says({HALF: 1}), "there is no field"),
    ],
)
async def test_a_failed_step_is_told_whatever_it_says(work: Any, words: str, url: str) -> None:
    run = await single(node(work)).run(store=url)
    assert run.status == "failed"
    assert words in (await loaded(url, run)).error.message


async def test_labels_are_texts() -> None:
    async with Executor() as ex:
        with pytest.raises(ValueError, match="labels must be strings"):
            await ex.start(single(says(None)), labels={"a": 1})  # type: ignore[dict-item]


# -- of another kind than said --------------------------------------------------------------------------------------


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


RESULTS = [
    3, "text", [1], ("done", {}), {1}, True, object(), Rude(), State(), int, sys, ValueError("x"), "x" * 100_000,
    ToolResult(), Outcome, {1: 2}, {"out": object()}, {"out": Rude()}, Outcome("done", {"nope": 1}), Outcome("other"),
    Outcome(3), Outcome(None), Outcome("error"), iter([1]),
]  # fmt: skip


@pytest.mark.parametrize(("place", "effect"), in_turn(range(len(RESULTS)), ("pure", "idempotent", "irreversible")))
async def test_a_wrong_result_of_a_node_fails_the_step_and_says_so_shortly(place: int, effect: Any) -> None:
    run = await single(node(effect=effect)(says(RESULTS[place]))).run()
    assert run.status == "failed"
    assert run.error.type in ("InvalidUpdate", "InvalidOutcome")
    assert len(run.error.message) < 400


@pytest.mark.parametrize(
    ("returns", "gives", "seen"),
    [
        (int, "3", 3), (float, 1, 1.0), (list[int], (1, 2), [1, 2]), (set[int], [1, 1], {1}),
        (State, {"text": "x"}, State(text="x")),
        (bytes, b"ab", b"ab"), (tuple[int, ...], [1], (1,)), (Any, {"a": (1,)}, {"a": [1]}), (type(None), None, None),
    ],
)  # fmt: skip
async def test_an_effect_gives_what_a_replay_gives(returns: Any, gives: Any, seen: Any) -> None:
    found: list[Any] = []
    hangs = anyio.Event()

    @node
    async def work(ctx: Context) -> None:
        found.append(await ctx.effect("e", says(gives), returns=returns))
        if len(found) == 1:
            hangs.set()
            await anyio.sleep(30)

    graph = single(work)
    async with Executor(graphs=[graph]) as ex:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ex.start(graph, run_id="r"))
            await hangs.wait()
            tasks.cancel_scope.cancel()
        assert (await ex.resume("r")).status == "completed"
    assert found == [seen, seen]
    assert [type(value) for value in found] == [type(seen)] * 2


@pytest.mark.parametrize(
    ("returns", "gives"), [(int, "x"), (float, float("nan")), (Any, object()), (State, {"text": 1})]
)
async def test_an_effect_that_gives_something_else_fails_and_does_not_run_again(returns: Any, gives: Any) -> None:
    calls: list[int] = []

    def fn() -> Any:
        calls.append(1)
        return gives

    @node
    async def work(ctx: Context) -> None:
        await ctx.effect("e", fn, returns=returns)

    run = await single(work).run()
    assert (run.status, run.error.type, len(calls)) == ("failed", "InvalidUpdate", 1)
    assert "effect 'e'" in run.error.message


async def test_a_failed_call_is_replayed_with_its_exit_code() -> None:
    seen: list[ToolResult] = []
    hangs = anyio.Event()

    @node
    async def work(ctx: Context) -> dict[str, Any]:
        seen.append(await ctx.tool("f"))
        if len(seen) == 1:
            hangs.set()
            await anyio.sleep(30)
        return {"out": seen[-1].exit_code}

    graph = single(work)
    made: Tool = tool(name="f", effect="read")(raises(ValueError("no")))
    async with Executor(graphs=[graph], tools=[made]) as ex:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ex.start(graph, run_id="r"))
            await hangs.wait()
            tasks.cancel_scope.cancel()
        assert (await ex.resume("r")).output == 1
    assert seen[0] == seen[1]


@pytest.mark.parametrize("messages", [[{"role": "user", "content": "?"}], [1], b"x"])
async def test_messages_that_are_none_are_refused_with_the_mend(messages: Any) -> None:
    with pytest.raises(TypeError, match=r"is not a Message: give a string or messages made by system\(\), user\(\)"):
        await ScriptedModel(["x"]).complete(messages)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"payload": {"a": object()}}, "payload of a question"),
        ({"choices": [1]}, "choices must be strings"),
        ({"schema": {"a": object()}}, "schema of an answer"),
    ],
)
async def test_a_question_that_cannot_be_stored_fails_the_step(options: Any, words: str) -> None:
    @node
    async def work(ctx: Context) -> None:
        await ctx.ask("input", prompt="?", **options)

    run = await single(work).run()
    assert run.status == "failed"
    assert words in run.error.message


def test_generators_and_kinds_that_are_not_async_are_refused_when_they_are_made() -> None:
    def sync(state: State) -> Any:
        yield {"out": 1}

    async def asynchronous(state: State) -> Any:
        yield {"out": 1}

    for generator in (sync, asynchronous, lambda state: (yield)):
        with pytest.raises(GraphError, match="is a generator"):
            node(generator)
    with pytest.raises(TypeError, match="not async"):

        class Sync(Node, kind="sync_kind"):
            def run(self, state: Any, ctx: Any) -> None:  # type: ignore[override]
                return None
