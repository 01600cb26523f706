"""Replays: a run once more with the results of its journal, and live only where it asks something else."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import anyio.to_thread
import pytest
from pydantic import BaseModel

from orchestrator import (
    Approve,
    Context,
    Deny,
    Executor,
    Graph,
    Limits,
    Message,
    Outcome,
    Retry,
    Update,
    append,
    node,
    tool,
)
from orchestrator.errors import ContextMissing, GraphUnknown, InvalidInput, InvalidValue, RunExists, RunUnknown
from orchestrator.executor import Replay
from orchestrator.graph.limits import Usage
from orchestrator.models import Reply  # fmt: skip
from orchestrator.models.base import ModelRequest
from orchestrator.nodes import Ask, Confirm, Execute, Sleep, Subgraph, Wait
from orchestrator.stores import Store, open_store
from orchestrator.stores.memory import MemoryStore
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tools_from_ref
from tests.graphs.pictures import RUNS, get_current_weather
from tests.support.programs import run as run_program
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio


class Diary:
    """A model that answers every request and keeps what it was asked."""

    def __init__(self, answer: Callable[[str], str] = lambda asked: f"re: {asked}", name: str = "diary") -> None:
        self.asked: list[str] = []
        self.model = ScriptedModel(self._reply, name=name)
        self._answer = answer

    def _reply(self, request: ModelRequest) -> str:
        said = request.messages[-1].content
        self.asked.append(said)
        return self._answer(said)


class Log(BaseModel):
    topic: str = ""
    tool: str = ""
    args: dict[str, Any] = {}
    result: Any = None
    items: list[int] = []
    log: Annotated[list[str], append] = []
    answer: str = ""


def asks(prompt: str, **options: Any) -> Any:
    """A node that asks a model, with what it was told so far where the prompt has `{log}`."""

    @node(**options)
    async def ask(state: Log, ctx: Context) -> Update:
        words = prompt.format(topic=state.topic, item=ctx.item, log=" / ".join(state.log))
        return {"log": (await ctx.model.complete([Message(role="user", content=words)])).text}

    return ask


def chain(*prompts: str, name: str = "chain") -> Graph:
    nodes = {f"n{number}": asks(prompt) for number, prompt in enumerate(prompts)}
    return Graph(
        name=name, state=Log, input="topic", output="log", nodes=nodes, edges=f"START -> {' -> '.join(nodes)} -> END"
    )


async def recorded(store: Store, graph: Graph, given: object, **options: Any) -> str:
    async with Executor(store, graphs=[graph], **options) as executor:
        return (await executor.start(graph, given)).run_id


def taken(replay: Replay) -> list[str]:
    """What was taken from the replayed run, by node."""
    return [one.node for one in replay.run.records() if one.type == "effect_intended" and one.taken is not None]


def live(replay: Replay) -> list[str]:
    """What was called, by node."""
    return [one.node for one in replay.run.records() if one.type == "effect_intended" and one.taken is None]


# -- the same graph --------------------------------------------------------------------------------------------------


@quick_on("asyncio")
@pytest.mark.parametrize("name", RUNS)
async def test_recorded_runs_of_a_strategy_replay_without_a_model_and_are_the_same(store: Store, name: str) -> None:
    graph, question, model = RUNS[name]
    tools = [get_current_weather, *tools_from_ref("arithmetic")]
    runs = []
    for _ in range(sized(2, 13)):
        async with Executor(store, graphs=[graph], model=model(), tools=tools) as executor:
            runs.append(await executor.start(graph, question, approve="none"))
    async with Executor(store, graphs=[graph], tools=tools) as executor:  # without a model
        for run in runs:
            replay = await executor.replay(run.run_id)
            assert replay.same, replay.diff.to_text()
            assert replay.status == run.status
            assert replay.run.output == run.output
            assert replay.made == 0
            assert replay.saved.calls == run.usage.calls
            assert replay.saved.input_tokens == run.usage.input_tokens
            assert replay.diverged_at is None
            assert replay.run.labels == {}
            assert not live(replay)


async def test_which_model_the_executor_has_does_not_matter_unless_it_is_given_to_the_replay(store: Store) -> None:
    graph = chain("about {topic}", "more: {log}")
    run_id = await recorded(store, graph, "tea", model=Diary(name="first").model)
    other = Diary(name="second")
    async with Executor(store, graphs=[graph], model=other.model) as executor:
        assert (await executor.replay(run_id, live="always")).same
        assert other.asked == []
        replaced = await executor.replay(run_id, models={"default": other.model}, live="always")
    assert other.asked == ["about tea", "more: re: about tea"]
    assert not replaced.same
    assert replaced.made == 2
    assert not replaced.answer_changed
    assert [one.kind for one in replaced.diff.differences] == ["request", "request"]


async def test_calls_that_a_model_reports_in_its_usage_are_not_counted_twice(store: Store) -> None:
    usage = Usage(steps=3, calls=1, seconds=9.0, input_tokens=5, cost=0.5)
    model = ScriptedModel(lambda request: Reply(text="x", usage=usage))
    graph = chain("about {topic}")
    run_id = await recorded(store, graph, "tea", model=model)
    async with Executor(store, graphs=[graph]) as executor:
        replay = await executor.replay(run_id)
    assert (replay.same, replay.made) == (True, 0)
    assert replay.saved == Usage(calls=1, input_tokens=5, cost=0.5)


async def test_a_named_model_is_replaced_by_its_name_and_others_are_replayed(store: Store) -> None:
    @node
    async def two(state: Log, ctx: Context) -> Update:
        first = await ctx.models["writer"].complete("draft")
        second = await ctx.models["critic"].complete(f"judge {first.text}")
        return {"log": second.text}

    graph = Graph(name="two", state=Log, nodes={"two": two}, edges="START -> two -> END", output="log")
    run_id = await recorded(store, graph, {}, models={"writer": Diary().model, "critic": Diary(name="c").model})
    async with Executor(store, graphs=[graph]) as executor:
        assert (await executor.replay(run_id)).same
        critic = Diary(lambda asked: "good", name="better")
        replay = await executor.replay(run_id, models={"critic": critic.model}, live="always")
    assert critic.asked == ["judge re: draft"]
    assert replay.run.output == ["good"]
    assert (replay.made, replay.saved.calls) == (1, 1)


# -- another prompt --------------------------------------------------------------------------------------------------


async def test_with_one_prompt_changed_only_what_follows_it_is_called(store: Store) -> None:
    before = chain("one {topic}", "two: {log}", "three: {log}")
    after = chain("one {topic}", "TWO: {log}", "three: {log}")
    run_id = await recorded(store, before, "tea", model=Diary().model)
    diary = Diary()
    async with Executor(store, graphs=[after], model=diary.model) as executor:
        never = await executor.replay(run_id)
        assert diary.asked == []
        always = await executor.replay(run_id, live="always")
    assert never.status == "diverged"
    assert never.run.status == "cancelled"
    assert never.answer_changed
    assert str(never.diverged_at) == "n1: model diary"
    first = never.diff.first
    assert first is not None
    assert (first.kind, first.node) == ("request", "n1")
    assert [line for line in first.lines if line[0] in "+-"] == ["-two: re: one tea", "+TWO: re: one tea"]
    assert len(never.diff.differences) == 1
    assert diary.asked == ["TWO: re: one tea", "three: re: one tea / re: TWO: re: one tea"]
    assert taken(always) == ["n0"]
    assert live(always) == ["n1", "n2"]
    assert (always.made, always.saved.calls) == (2, 1)


async def test_a_step_behind_a_live_one_is_live_also_where_it_asks_what_was_asked_before(store: Store) -> None:
    before, after = chain("one", "two"), chain("ONE", "two")
    run_id = await recorded(store, before, "tea", model=Diary().model)
    diary = Diary()
    async with Executor(store, graphs=[after], model=diary.model) as executor:
        replay = await executor.replay(run_id, live="always")
    assert diary.asked == ["ONE", "two"]
    assert replay.diverged_at is not None
    assert replay.diverged_at.node == "n0"


def forking(left: str, right: str, last: str = "join: {log}") -> Graph:
    """Two branches with two model calls each, and one behind their join."""
    return Graph(
        name="forking", state=Log, input="topic", output="log",
        nodes={
            "start": node(effect="pure")(_nothing), "left": asks(left), "left2": asks("left again"),
            "right": asks(right), "right2": asks("right again"), "last": asks(last, join="all"),
        },
        edges="START -> start -> left, right\nleft -> left2 -> last\nright -> right2 -> last\nlast -> END",
    )  # fmt: skip


async def _nothing(state: Log) -> None:
    return None


async def test_sibling_branches_are_not_live_and_what_joins_them_is(store: Store) -> None:
    run_id = await recorded(store, forking("left", "right"), "tea", model=Diary().model)
    diary = Diary()
    async with Executor(store, graphs=[forking("LEFT", "right", "join")], model=diary.model) as executor:
        replay = await executor.replay(run_id, live="always")
    assert sorted(diary.asked) == ["LEFT", "join", "left again"]
    assert sorted(taken(replay)) == ["right", "right2"]
    assert sorted(live(replay)) == ["last", "left", "left2"]


async def test_one_item_of_a_map_is_live_and_the_others_are_not(store: Store) -> None:
    def mapping(odd: str) -> Graph:
        @node
        async def look(state: Log, ctx: Context) -> Update:
            words = f"{odd if ctx.item == 3 else 'item'} {ctx.item}"
            return {"log": (await ctx.model.complete(words)).text}

        return Graph(
            name="mapping", state=Log, output="log",
            nodes={"spread": node(effect="pure")(_nothing), "look": look, "more": asks("more {item}"),
                   "last": asks("last", join="all")},
            edges="START -> spread -> look : each items\nlook -> more -> last -> END",
        )  # fmt: skip

    run_id = await recorded(store, mapping("item"), {"items": list(range(6))}, model=Diary().model)
    diary = Diary()
    async with Executor(store, graphs=[mapping("ITEM")], model=diary.model) as executor:
        assert (await executor.replay(run_id)).status == "diverged"
        replay = await executor.replay(run_id, live="always")
    assert sorted(diary.asked) == ["ITEM 3", "last", "more 3"]
    assert len(taken(replay)) == 10


async def test_what_a_subgraph_does_behind_a_live_step_is_live_and_so_is_what_follows_a_live_subgraph(
    store: Store,
) -> None:
    def nested(first: str, inside: str) -> Graph:
        inner = chain(inside, "inner again", name="inner").model_copy(update={"output": "answer"})
        return Graph(
            name="nested", state=Log, input="topic", output="log",
            nodes={
                "first": asks(first), "last": asks("last"),
                "inner": Subgraph(inner, inputs={"topic": "topic"}, outputs={"answer": "answer"}),
            },
            edges="START -> first -> inner -> last -> END",
        )  # fmt: skip

    run_id = await recorded(store, nested("first", "inside"), "tea", model=Diary().model)
    diaries = Diary(), Diary()
    async with Executor(store, graphs=[nested("first", "INSIDE")], model=diaries[0].model) as executor:
        await executor.replay(run_id, live="always")
    async with Executor(store, graphs=[nested("FIRST", "inside")], model=diaries[1].model) as executor:
        await executor.replay(run_id, live="always")
        assert (await executor.replay(run_id, nested("first", "inside"))).same
    assert diaries[0].asked == ["INSIDE", "inner again", "last"]
    assert diaries[1].asked == ["FIRST", "inside", "inner again", "last"]


async def test_calls_that_are_asked_again_and_again_are_taken_in_their_order(store: Store) -> None:
    numbers = iter(range(1000))

    @tool(effect="read", risk="none")
    async def clock() -> int:
        """Tell the time."""
        return next(numbers)

    @node(outcomes=("again", "enough"))
    async def look(state: Log, ctx: Context) -> Outcome[str]:
        first, second = await ctx.tool("clock"), await ctx.tool("clock")
        return Outcome("again" if len(state.log) < 3 else "enough", log=f"{first.output} {second.output}")

    graph = Graph(
        name="clock", state=Log, nodes={"look": look}, output="log",
        edges="START -> look\nlook -> look : again\nlook -> END : enough",
    )  # fmt: skip
    run_id = await recorded(store, graph, {}, tools=[clock])
    async with Executor(store, graphs=[graph], tools=[clock]) as executor:
        replay = await executor.replay(run_id)
    assert replay.same
    assert replay.run.output == ["0 1", "2 3", "4 5", "6 7"]
    assert next(numbers) == 8


# -- how calls and runs ended ----------------------------------------------------------------------------------------


async def test_failures_retries_and_their_errors_are_replayed_without_their_waits(store: Store) -> None:
    tried: list[str] = []

    class Odd(Exception):
        """A class that a replay cannot know."""

    async def flaky(name: str) -> str:
        tried.append(name)
        if tried.count(name) < 3:
            raise ConnectionError(f"{name} is away")
        if name == "odd":
            raise Odd("odd")
        return f"{name} is back"

    @node(retry=Retry(attempts=3, wait=0.2, max_wait=60))
    async def work(state: Log, ctx: Context) -> Update:
        found = await ctx.effect("flaky", flaky, "it", returns=str)
        for _ in range(2):
            try:
                await ctx.effect("flaky", flaky, "odd", returns=str)
            except ConnectionError as error:
                found += f", {error}"
        try:
            await ctx.effect("flaky", flaky, "odd", returns=str)
        except Exception as error:
            found += f", {type(error).__name__}: {error}"
        return {"log": found}

    @node
    async def fail(state: Log, ctx: Context) -> Update:
        tried.append("last")
        raise ValueError("no")

    ends = "START -> work -> fail -> END"
    graph = Graph(name="flaky", state=Log, nodes={"work": work, "fail": fail}, edges=ends, output="log")
    run_id = await recorded(store, graph, {})
    assert tried == ["it", "it", "it", "odd", "odd", "odd", "last"]
    tried.clear()
    async with Executor(store, graphs=[graph]) as executor:
        began = anyio.current_time()
        replay = await executor.replay(run_id)
        assert anyio.current_time() - began < 0.35
    assert tried == ["last"]
    assert replay.same, replay.diff.to_text()
    assert replay.status == "failed"
    assert str(replay.run.error) == "ValueError: no"


async def test_spent_limits_and_time_outs_are_replayed(store: Store) -> None:
    async def slow(request: ModelRequest) -> str:
        await anyio.sleep(3600 if "slow" in request.messages[-1].content else 0)
        return "done"

    for graph in (
        Graph(name="late", state=Log, nodes={"work": asks("slow", timeout=0.1), "other": asks("other")}, output="log",
              edges="START -> work\nwork -> other : timeout\nwork -> END\nother -> END"),
        Graph(name="limited", state=Log, nodes={"work": asks("fast"), "other": asks("other")}, output="log",
              edges="START -> work -> other -> END", limits=Limits(calls=1)),
        Graph(name="brief", state=Log, nodes={"work": asks("slow"), "other": asks("other")}, output="log",
              edges="START -> work -> END\n* -> other : exhausted\nother -> END", limits=Limits(seconds=0.1)),
    ):  # fmt: skip
        run_id = await recorded(store, graph, {}, model=ScriptedModel(slow))
        async with Executor(store, graphs=[graph]) as executor:
            with anyio.fail_after(60):
                replay = await executor.replay(run_id)
        assert replay.same, (graph.name, replay.diff.to_text())
        assert replay.made == 0


async def test_a_call_that_a_failing_sibling_stopped_waits_for_it_and_is_stopped_again(store: Store) -> None:
    async def slow(request: ModelRequest) -> str:
        await anyio.sleep(60 if "slow" in request.messages[-1].content else 0.05)
        return "done"

    @node
    async def fails(state: Log, ctx: Context) -> Update:
        await ctx.model.complete("quick")
        raise ValueError("no")

    graph = Graph(
        name="failing", state=Log,
        nodes={"slow": asks("slow"), "fails": fails, "end": node(effect="pure", join="all")(_nothing)},
        edges="START -> slow, fails\nslow -> end\nfails -> end -> END", output="log",
    )  # fmt: skip
    run_id = await recorded(store, graph, {}, model=ScriptedModel(slow))
    async with Executor(store, graphs=[graph]) as executor:
        replay = await executor.replay(run_id)
    assert replay.same, replay.diff.to_text()
    assert replay.status == "failed"


@pytest.mark.parametrize("then", ["call", "next step", "question", "retry"])
async def test_a_branch_that_a_failing_sibling_stopped_goes_no_further_in_a_replay(store: Store, then: str) -> None:
    stands, turns = anyio.Event(), 0

    @node
    async def fails(state: Log) -> None:
        await stands.wait()
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        raise ValueError("no")

    @node(retry=Retry(attempts=2, wait=0, on=("ConnectionError",)))
    async def other(state: Log, ctx: Context) -> Update:
        stands.set()
        if not turns:
            await anyio.sleep_forever()
        if then == "retry":
            raise ConnectionError("again")
        if then == "question":
            await ctx.ask("input", prompt="Really?")
        return {"log": (await ctx.model.complete("new")).text if then == "call" else "other"}

    graph = Graph(
        name="stopped", state=Log, nodes={"fails": fails, "other": other, "more": asks("more")},
        edges="START -> fails, other\nfails -> END\nother -> more -> END", output="log",
    )  # fmt: skip
    run_id = await recorded(store, graph, {}, model=ScriptedModel(["done"]))
    stands, turns = anyio.Event(), 100
    async with Executor(store, graphs=[graph]) as executor:
        replay = await executor.replay(run_id)
    assert replay.same, replay.diff.to_text()
    assert (replay.status, replay.made) == ("failed", 0)


@pytest.mark.parametrize("way", ["fail", "stop"])
async def test_what_landed_before_a_graph_was_ended_early_lands_before_in_a_replay(store: Store, way: str) -> None:
    landed = anyio.Event()

    async def slow(request: ModelRequest) -> str:
        asked = request.messages[-1].content
        if asked != "one":
            await landed.wait()
        if asked == "never":
            await anyio.sleep_forever()
        return "done"

    @node(outcomes=("out",))
    async def ends(state: Log, ctx: Context) -> Outcome[str]:
        await ctx.model.complete("slow")
        if way == "fail":
            raise ValueError("no")
        return Outcome("out")

    @node
    async def tells(state: Log) -> Update:
        landed.set()
        return {"log": "told"}

    graph = Graph(
        name="early", state=Log, nodes={"ends": ends, "one": asks("one"), "tells": tells, "two": asks("never")},
        edges="START -> ends, one\nends -> STOP : out\none -> tells -> two -> END", output="log",
    )  # fmt: skip
    run_id = await recorded(store, graph, {}, model=ScriptedModel(slow))
    async with Executor(store, graphs=[graph]) as executor:
        replay = await executor.replay(run_id)
    assert replay.same, replay.diff.to_text()
    assert replay.status == ("failed" if way == "fail" else "completed")
    assert "tells" in [one.node for one in replay.run.records() if one.type == "step_done"]


async def test_with_the_failure_repaired_a_branch_that_it_had_stopped_goes_on(store: Store) -> None:
    stands = anyio.Event()

    def stopped(fault: bool) -> Graph:
        @node
        async def fails(state: Log) -> Update:
            await stands.wait()
            if fault:
                raise ValueError("no")
            return {"log": "works"}

        @node
        async def other(state: Log, ctx: Context) -> Update:
            stands.set()
            if fault:
                await anyio.sleep_forever()
            return {"log": (await ctx.model.complete("new")).text}

        return Graph(
            name="stopped", state=Log, nodes={"fails": fails, "other": other},
            edges="START -> fails, other -> END", output="log",
        )  # fmt: skip

    run_id = await recorded(store, stopped(True), {}, model=ScriptedModel(["done"]))
    async with Executor(store, graphs=[stopped(False)], model=ScriptedModel(["done"])) as executor:
        ended = await executor.replay(run_id, stopped(False))
        whole = await executor.replay(run_id, stopped(False), live="always")
    assert ended.status == "diverged"
    assert ended.diverged_at is not None
    assert ended.diverged_at.node == "other"
    assert (whole.status, whole.made, whole.run.output) == ("completed", 1, ["works", "done"])


async def test_calls_that_stand_still_leave_their_places_to_others(store: Store) -> None:
    reached: list[str] = []
    both = anyio.Event()

    async def forever(request: ModelRequest) -> str:
        reached.append(request.messages[-1].content)
        if len(reached) == 2:
            both.set()
        await anyio.sleep_forever()
        return ""

    graph = Graph(
        name="two", state=Log, nodes={"one": asks("one"), "two": asks("two")},
        edges="START -> one, two -> END", output="log",
    )  # fmt: skip
    async with Executor(store, graphs=[graph], model=ScriptedModel(forever)) as executor:
        run_id = await executor.submit(graph, {})
        await both.wait()
        await executor.cancel(run_id, reason="enough")
    async with Executor(store, graphs=[graph], concurrency=1) as executor:
        with anyio.fail_after(30):
            replay = await executor.replay(run_id)
    assert replay.status == "cancelled"
    assert replay.same, replay.diff.to_text()


async def test_a_run_that_was_cancelled_or_interrupted_in_a_call_ends_there(store: Store) -> None:
    reached = anyio.Event()

    async def slow(request: ModelRequest) -> str:
        if request.messages[-1].content == "two":
            reached.set()
            await anyio.sleep_forever()
        return "done"

    graph = chain("one", "two")
    async with Executor(store, graphs=[graph], model=ScriptedModel(slow)) as executor:
        run_id = await executor.submit(graph, "tea")
        await reached.wait()
        await executor.cancel(run_id, reason="enough")
        reached = anyio.Event()
        lost = await executor.submit(graph, "tea")
        await reached.wait()
    async with Executor(store, graphs=[graph]) as executor:
        cancelled = await executor.replay(run_id)
        interrupted = await executor.replay(lost)
    assert cancelled.status == "cancelled"
    assert cancelled.same, cancelled.diff.to_text()
    assert interrupted.status == "diverged"
    assert interrupted.diverged_at is not None
    assert interrupted.diverged_at.why == "the replayed run has no result for it"
    assert taken(interrupted)[0] == "n0"


# -- questions, and calls that cannot be undone ----------------------------------------------------------------------


sent: list[str] = []


@tool(effect="irreversible", risk="write")
async def send(text: str) -> str:
    """Send a text."""
    sent.append(text)
    return f"sent {text}"


def sending(text: str = "x", prompt: str = "Send it?") -> Graph:
    @node(outcomes=("sent", "kept"))
    async def confirm(state: Log, ctx: Context) -> Outcome[str]:
        payload = {"tool": "send", "args": {"text": text}, "risk": "write"}
        answer = await ctx.ask("approval", prompt=prompt, payload=payload)
        return Outcome("sent" if isinstance(answer, Approve) else "kept")

    @node
    async def deliver(state: Log, ctx: Context) -> Update:
        return {"log": str((await ctx.tool("send", text=text)).output)}

    return Graph(
        name="sending", state=Log, input="topic", output="log", nodes={"confirm": confirm, "deliver": deliver},
        edges="START -> confirm\nconfirm -> deliver : sent\nconfirm -> END : kept\ndeliver -> END",
    )  # fmt: skip


async def _sent(store: Store, answer: object = None) -> str:
    async with Executor(store, graphs=[sending()], tools=[send]) as executor:
        run = await executor.start(sending(), "tea")
        await executor.answer(run.run_id, run.waiting[0].id, Approve() if answer is None else answer)
    sent.clear()
    return run.run_id


async def test_answers_are_replayed_and_what_cannot_be_undone_is_not_done_again(store: Store) -> None:
    run_id, denied = await _sent(store), await _sent(store, Deny(reason="no"))
    async with Executor(store, graphs=[sending()], tools=[send]) as executor:
        replays = [await executor.replay(one, live="always") for one in (run_id, denied)]
        open_ = await executor.start(sending(), "tea")
        waiting = await executor.replay(open_.run_id)
    assert all(replay.same for replay in replays)
    assert [replay.run.output for replay in replays] == [["sent x"], []]
    assert sent == []
    assert waiting.same
    assert waiting.status == "paused"


async def test_no_replayed_approval_admits_a_live_call(store: Store) -> None:
    run_id = await _sent(store)

    def other_call() -> Graph:
        graph = sending()

        @node
        async def deliver(state: Log, ctx: Context) -> Update:
            return {"log": str((await ctx.tool("send", text="something else")).output)}

        return graph.model_copy(update={"nodes": {**graph.nodes, "deliver": deliver}})

    async with Executor(store, graphs=[other_call()], tools=[send]) as executor:
        replay = await executor.replay(run_id, live="always")
        assert replay.status == "paused"
        assert sent == []
        (question,) = replay.run.waiting
        assert "send" in question.prompt
        run = await executor.answer(replay.run.run_id, question.id, Approve())
        assert run.output == ["sent something else"]
        assert sent == ["something else"]
        again = await executor.replays.load(replay.run.run_id)
    assert again.status == "completed"
    assert again.made == 1
    assert again.answer_changed


async def test_the_policy_of_the_replayed_run_is_not_taken_over_and_another_one_may_be_given(store: Store) -> None:
    written: list[str] = []

    @tool(effect="idempotent", risk="write")
    async def write(text: str) -> str:
        """Write a text."""
        written.append(text)
        return f"wrote {text}"

    def writing(text: str) -> Graph:
        return Graph(
            name="writing", state=Log, input="topic", output="answer",
            nodes={"first": asks("first"), "choose": node(effect="pure")(_chosen(text)),
                   "confirm": Confirm(tool="tool", args="args"),
                   "execute": Execute(result="result")},
            edges="START -> first -> choose -> confirm\nconfirm -> execute : approved\nconfirm -> END : denied\n"
            "execute -> END",
        )  # fmt: skip

    def _chosen(text: str) -> Any:
        async def choose(state: Log) -> Update:
            return {"tool": "write", "args": {"text": text}}

        return choose

    async with Executor(store, graphs=[writing("a")], model=Diary().model, tools=[write]) as executor:
        run = await executor.start(writing("a"), "tea", approve="write")
        assert run.status == "completed", run.error
    assert written == ["a"]
    async with Executor(store, graphs=[writing("b")], tools=[write]) as executor:
        assert (await executor.replay(run.run_id, writing("a"))).same
        for at in (None, 2):
            asked = await executor.replay(run.run_id, writing("b"), at=at, live="always")
            assert [dict(one.payload)["args"] for one in asked.run.waiting] == [{"text": "b"}]
        assert written == ["a"]
        done = await executor.replay(run.run_id, writing("b"), live="always", approve="write")
        assert done.status == "completed"
    assert written == ["a", "b"]


async def test_a_question_that_was_not_asked_ends_a_replay_or_is_asked(store: Store) -> None:
    run_id = await _sent(store)
    changed = sending(prompt="Really send it?")
    async with Executor(store, graphs=[changed], tools=[send]) as executor:
        never = await executor.replay(run_id)
        assert (never.status, str(never.diverged_at)) == ("diverged", "confirm: question approval")
        asked = await executor.replay(run_id, live="always")
        assert [one.prompt for one in asked.run.waiting] == ["Really send it?"]
        assert sent == []


async def test_live_ask_asks_before_each_call_and_a_denial_ends_the_replay(store: Store) -> None:
    run_id = await recorded(store, chain("one", "two"), "tea", model=Diary().model)
    diary = Diary()
    async with Executor(store, graphs=[chain("ONE", "two")], model=diary.model) as executor:
        replay = await executor.replay(run_id, live="ask")
        assert diary.asked == []
        (question,) = replay.run.waiting
        assert dict(question.payload)["prompt"] == "ONE"
        run = await executor.answer(replay.run.run_id, question.id, Approve())
        assert diary.asked == ["ONE"]
        await executor.answer(run.run_id, run.waiting[0].id, Deny())
        assert diary.asked == ["ONE"]
        ended = await executor.replays.load(run.run_id)
    assert ended.status == "diverged"
    assert ended.made == 1


# -- graphs as tools -------------------------------------------------------------------------------------------------


async def test_a_call_of_a_graph_has_the_result_that_it_had_unless_that_graph_changed(store: Store) -> None:
    def inner(prompt: str) -> Graph:
        return Graph(
            name="inner", state=Log, input="topic", output="answer", edges="START -> ask -> pay -> END",
            nodes={"ask": asks(prompt), "pay": node(_pay)},
        )  # fmt: skip

    async def _pay(ctx: Context[Any]) -> Update:
        return {"answer": str((await ctx.tool("send", text="money")).output)}

    def outer(inside: Graph) -> tuple[Graph, list[Any]]:
        @node
        async def work(state: Log, ctx: Context) -> Update:
            return {"log": str((await ctx.tool("inside", topic="a")).output)}

        graph = Graph(name="outer", state=Log, nodes={"work": work}, edges="START -> work -> END", output="log")
        return graph, [inside.as_tool("inside", "Works.", risk="none"), send]

    graph, tools = outer(inner("one"))
    run_id = await recorded(store, graph, {}, model=Diary().model, tools=tools)
    assert sent == ["money"]
    sent.clear()
    async with Executor(store, graphs=[graph], tools=tools) as executor:
        replay = await executor.replay(run_id)
    assert replay.same, replay.diff.to_text()
    assert replay.saved.calls == replay.parent.usage.calls == 3
    graph, tools = outer(inner("two").model_copy(update={"description": "another one"}))
    async with Executor(store, graphs=[graph], model=Diary().model, tools=tools) as executor:
        never = await executor.replay(run_id)
        assert str(never.diverged_at) == "work: tool inside"
        always = await executor.replay(run_id, live="always")  # its run asks before what cannot be undone
    assert always.status == "paused"
    assert sent == []


async def test_what_a_graph_called_as_a_tool_asked_is_not_asked_again(store: Store) -> None:
    inner = Graph(
        name="inner", state=Log, input="topic", output="answer", edges="START -> ask -> END",
        nodes={"ask": Ask(prompt="For whom?", answer="answer")},
    )  # fmt: skip

    @node
    async def work(state: Log, ctx: Context) -> Update:
        return {"log": str((await ctx.tool("inside", topic="a")).output)}

    graph = Graph(name="outer", state=Log, nodes={"work": work}, edges="START -> work -> END", output="log")
    tools = [inner.as_tool("inside", "Works.", risk="none")]
    async with Executor(store, graphs=[graph], tools=tools) as executor:
        run = await executor.start(graph)
        await executor.answer(run.run_id, run.waiting[0].id, "Kim")
        replay = await executor.replay(run.run_id)
    assert replay.same, replay.diff.to_text()
    assert replay.run.output == ["Kim"]


# -- other values, other graphs, errors ------------------------------------------------------------------------------


async def test_other_values_make_live_only_what_asks_about_them(store: Store) -> None:
    graph = chain("one", "about {topic}", "two")
    run_id = await recorded(store, graph, "tea", model=Diary().model)
    diary = Diary()
    async with Executor(store, graphs=[graph], model=diary.model) as executor:
        replay = await executor.replay(run_id, update={"topic": "coffee"}, live="always")
        assert diary.asked == ["about coffee", "two"]
        assert (await executor.replay(run_id, update={"topic": "tea"})).same
        with pytest.raises(InvalidInput):
            await executor.replay(run_id, update={"topic": 5})
    first = replay.diff.first
    assert first is not None
    assert first.kind == "state"


async def test_another_answer_or_result_makes_live_only_what_asks_about_it(store: Store) -> None:
    @node
    async def judge(state: Log, ctx: Context) -> Update:
        return {"log": f"{state.answer}: {(await ctx.model.complete(f'judge {state.answer}')).text}"}

    graph = Graph(
        name="judging", state=Log, input="topic", output="log",
        nodes={"first": asks("about {topic}"), "ask": Ask(prompt="Your view?", answer="answer"), "judge": judge,
               "last": asks("last")},
        edges="START -> first -> ask -> judge -> last -> END",
    )  # fmt: skip
    async with Executor(store, graphs=[graph], model=Diary().model) as executor:
        run = await executor.start(graph, "tea")
        run = await executor.answer(run.run_id, run.waiting[0].id, "good")
        settled = [one.seq for one in run.records() if one.type == "effect_settled"]
    diary = Diary()
    async with Executor(store, graphs=[graph], model=diary.model) as executor:
        other = await executor.replay(run.run_id, answer="bad", live="always")
        assert diary.asked == ["judge bad", "last"]
        assert other.run.output[1] == "bad: re: judge bad"
        assert other.run.machine.fork is not None
        assert other.run.machine.fork.relation == "replay"
        assert (await executor.replay(run.run_id, answer="good")).same
        diary.asked.clear()
        with pytest.raises(InvalidValue, match="has 3 results: records"):
            await executor.replay(run.run_id, result="something")
        changed = await executor.replay(run.run_id, result="something", at=settled[0], live="always")
        assert diary.asked == []  # nothing asks about it
        assert changed.run.output[0] == "something"
        assert changed.made == 0
        assert changed.answer_changed
        behind = await executor.replay(run.run_id, at=settled[1])
        assert behind.same
        assert taken(behind)[-1] == "last"
        middle = await executor.replay(run.run_id, update={"answer": "fine"}, at=run.seq - 4, live="always")
    assert middle.status == "completed"


async def test_a_replay_may_begin_behind_any_record_and_is_the_same(store: Store) -> None:
    graph = forking("left", "right")
    run_id = await recorded(store, graph, "tea", model=Diary().model)
    head = (await store.info(run_id)).head
    async with Executor(store, graphs=[graph]) as executor:
        for at in range(1, head, sized(3, 1)):
            replay = await executor.replay(run_id, at=at)
            assert replay.same, (at, replay.diff.to_text())
            assert replay.made == 0


async def test_a_fork_is_replayed_from_where_it_was_forked_with_its_edit(store: Store) -> None:
    graph = chain("one", "about {topic}", "two")
    run_id = await recorded(store, graph, "tea", model=Diary().model)
    async with Executor(store, graphs=[graph], model=Diary().model) as executor:
        first = next(record.seq for record in await store.read(run_id) if record.type == "step_done")
        fork = await executor.fork(run_id, first, update={"topic": "coffee"})
        assert fork.output[1] == "re: about coffee"
    async with Executor(store, graphs=[graph]) as executor:
        replay = await executor.replay(fork.run_id)
    assert replay.same, replay.diff.to_text()
    assert taken(replay) == ["n1", "n2"]


async def test_a_fork_of_a_replay_has_used_what_it_called_itself(store: Store) -> None:
    graph = chain("one", "two", "three")
    run_id = await recorded(store, graph, "tea", model=Diary().model)
    async with Executor(store, graphs=[graph], model=Diary().model) as executor:
        replay = await executor.replay(run_id)
        at = next(one.seq for one in replay.run.records() if one.type == "step_done")
        fork = await executor.fork(replay.run.run_id, at=at)
        assert (fork.usage.calls, fork.inherited.calls) == (2, 1)
        again = await executor.replay(replay.run.run_id, at=at)
        assert (again.run.usage.calls, again.saved.calls, again.same) == (0, 2, True)


async def test_a_graph_with_another_step_and_another_field_replays_what_it_has_in_common(store: Store) -> None:
    class More(Log):
        extra: str = "new"

    run_id = await recorded(store, chain("one", "two"), "tea", model=Diary().model)
    plain = chain("one", "two")

    @node(effect="pure")
    async def between(state: More) -> None:
        return None

    changed = Graph(
        name="chain", state=More, input="topic", output="log", nodes={**plain.nodes, "between": between},
        edges="START -> n0 -> between -> n1 -> END",
    )  # fmt: skip
    async with Executor(store, graphs=[changed]) as executor:
        replay = await executor.replay(run_id)
    assert replay.made == 0
    assert replay.diverged_at is None
    assert not replay.answer_changed
    assert {(one.kind, one.node) for one in replay.diff.differences} == {("state", ""), ("step", "between")}


async def test_an_irreversible_node_is_taken_only_with_the_state_that_it_saw(store: Store) -> None:
    done: list[str] = []

    @node(effect="irreversible")
    async def act(state: Log) -> Update:
        done.append(state.topic)
        return {"log": f"did {state.topic}"}

    graph = Graph(name="act", state=Log, input="topic", nodes={"act": act}, edges="START -> act -> END", output="log")
    run_id = await recorded(store, graph, "tea")
    async with Executor(store, graphs=[graph]) as executor:
        assert (await executor.replay(run_id, live="always")).run.output == ["did tea"]
        other = await executor.replay(run_id, update={"topic": "coffee"}, live="always")
        assert other.status == "paused"
    assert done == ["tea"]


async def test_a_replay_is_a_run_with_an_id_and_is_refused_where_it_does_not_fit(store: Store) -> None:
    graph = chain("one", "two")
    run_id = await recorded(store, graph, "tea", model=Diary().model)
    async with Executor(store, graphs=[graph]) as executor:
        first = await executor.replay(run_id, replay_id="again")
        second = await executor.replay(run_id, replay_id="again")
        assert first.run.run_id == second.run.run_id == "again"
        assert (await executor.replays.load("again")).same
        with pytest.raises(RunExists):
            await executor.replay(run_id, replay_id="again", live="always")
        with pytest.raises(InvalidValue, match="is not a replay"):
            await executor.replays.load(run_id)
        with pytest.raises(ValueError, match="never"):
            await executor.replay(run_id, live="sometimes")  # type: ignore[arg-type]
        nested = await executor.replay("again")
        assert nested.same
    async with Executor(store) as executor:
        with pytest.raises(GraphUnknown):
            await executor.replay(run_id)


async def test_breakpoints_are_not_taken_over_and_a_context_is_given_again(store: Store) -> None:
    @node
    async def greet(state: Log, ctx: Context) -> Update:
        return {"log": (await ctx.model.complete(f"greet {ctx.context}")).text}

    graph = Graph(
        name="greeting", state=Log, nodes={"first": asks("first"), "greet": greet}, output="log",
        edges="START -> first -> greet -> END",
    )  # fmt: skip
    async with Executor(store, graphs=[graph], model=Diary().model) as executor:
        run = await executor.start(graph, pause_before={"greet"}, context="Kim")
        assert run.status == "paused"
        run = await executor.resume(run.run_id, context="Kim")
        assert run.output == ["re: first", "re: greet Kim"]
    async with Executor(store, graphs=[graph]) as executor:
        for at in (None, 2, 5):
            with pytest.raises(ContextMissing):
                await executor.replay(run.run_id, at=at)
            replay = await executor.replay(run.run_id, at=at, context="Kim")
            assert replay.same, replay.diff.to_text()
        assert (await executor.replay(run.run_id, context="Lee")).status == "diverged"


async def test_a_replay_can_be_exported_imported_and_is_deleted_without_its_parent(store: Store) -> None:
    graph = chain("one", "two")
    run_id = await recorded(store, graph, "tea", model=Diary().model)
    async with Executor(store, graphs=[graph]) as executor:
        for at in (None, 3):
            replay = await executor.replay(run_id, at=at)
            lines = [line async for line in executor.export([replay.run.run_id])]
            async with Executor(MemoryStore(), graphs=[graph]) as other:
                await other.import_(lines)
                assert (await other.load(replay.run.run_id)).output == replay.run.output
            info = await store.info(replay.run.run_id)
            assert info.parent is not None
            assert (info.parent.run_id, info.parent.relation) == (run_id, "replay")
            assert await executor.delete(replay.run.run_id) == [replay.run.run_id]
        kept = await executor.replay(run_id)
        await executor.delete(run_id)
        assert (await executor.load(kept.run.run_id)).output == ["re: one", "re: two"]
        with pytest.raises(RunUnknown):
            await executor.replays.load(kept.run.run_id)


async def test_the_replayed_run_is_not_changed(store: Store) -> None:
    graph = chain("one", "two")
    run_id = await recorded(store, graph, "tea", model=Diary().model)
    before = await store.read(run_id)
    async with Executor(store, graphs=[graph]) as executor:
        await executor.replay(run_id)
    assert await store.read(run_id) == before


# -- time and events -------------------------------------------------------------------------------------------------


async def test_sleeps_events_and_messages_are_taken_from_the_journal(store: Store) -> None:
    graph = Graph(
        name="waiting", state=Log, output=("log", "answer", "topic"),
        nodes={"sleep": Sleep(seconds=0.2), "paid": Wait(event="paid", into="answer"), "say": asks("about {topic}"),
               "late": Wait(event="never", deadline=0.1), "ask": Ask(prompt="What?", answer="topic", on_busy="queue")},
        edges="START -> sleep -> paid\npaid -> ask : received\nask -> say -> late\n"
        "late -> END : received\nlate -> END : timeout",
    )  # fmt: skip
    async with Executor(store, graphs=[graph], model=Diary().model) as executor:
        run = await executor.start(graph)
        await executor.send(run.run_id, "paid", "in full")
        await executor.send(run.run_id, "ask", "tea")
        while run.status != "completed":
            await anyio.sleep(0.05)
            run = await executor.load(run.run_id)
    async with Executor(store, graphs=[graph]) as executor:
        replay = await executor.replay(run.run_id)
    assert replay.same, replay.diff.to_text()
    assert replay.run.output == {"log": ["re: about tea"], "answer": "in full", "topic": "tea"}


# -- deaths ----------------------------------------------------------------------------------------------------------

DYING = """
import os, signal, sys
import anyio
from orchestrator import Executor
from orchestrator.stores import open_store
from tests.executor.test_replay import Diary, halves

async def main(url, run_id, last):
    store = open_store(url)
    append, left = store.append, [int(last)]
    async def dying(*given, **named):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return await append(*given, **named)
    store.append = dying
    async with Executor(store, graphs=[halves("LIVE")], model=Diary().model, lease_ttl=0.5) as executor:
        await executor.replay(run_id, live="always", replay_id="again")

anyio.run(main, *sys.argv[1:])
"""


def halves(prompt: str) -> Graph:
    """Six calls one after the other; the prompt is that of the fourth one."""
    return chain("one", "two", "three", prompt, "five", "six", name="halves")


@quick_on("asyncio")
@pytest.mark.parametrize("last", sized([1, 3], range(8)))
async def test_a_killed_replay_is_resumed_and_takes_the_same(tmp_path: Path, last: int) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    store = open_store(url)
    run_id = await recorded(store, halves("four"), "tea", model=Diary().model)
    await store.close()
    died = await anyio.to_thread.run_sync(lambda: run_program([DYING, url, run_id, last], loads=[__name__]))
    assert died.code == -signal.SIGKILL, died.err
    diary = Diary()
    store = open_store(url)
    async with Executor(store, graphs=[halves("LIVE")], model=diary.model) as executor:
        await executor.resume("again", wait=5)
        replay = await executor.replays.load("again")
    await store.close()
    assert replay.status == "completed"
    assert taken(replay) == ["n0", "n1", "n2"]
    assert list(dict.fromkeys(live(replay))) == ["n3", "n4", "n5"]
    assert {"one", "two", "three"}.isdisjoint(diary.asked)
    assert replay.run.output == ["re: one", "re: two", "re: three", "re: LIVE", "re: five", "re: six"]
    assert (replay.made, replay.saved.calls) == (3, 3)


@pytest.mark.full
@quick_on("trio")
async def test_a_replay_that_two_begin_under_one_id_is_one_run(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    store = open_store(url)
    run_id = await recorded(store, halves("four"), "tea", model=Diary().model)
    found: list[Replay] = []

    async def one() -> None:
        own = open_store(url)
        async with Executor(own, graphs=[halves("four")]) as executor:
            found.append(await executor.replay(run_id, replay_id="again"))
        await own.close()

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(one)
    assert [replay.same for replay in found] == [True] * 3
    assert sum(record.type == "run_started" for record in await store.read("again")) == 1
    await store.close()
