"""Runs that wait for events from outside, and the events that are sent to them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, JsonValue

from orchestrator import AnyQuestion, Context, Executor, Graph, Update, append, node
from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import (
    Ambiguous,
    InvalidAnswer,
    InvalidGraph,
    InvalidValue,
    RunBusy,
    RunEnded,
    RunUnknown,
    SecretInState,
)
from orchestrator.executor.commands import unchecked
from orchestrator.nodes import ITEM, Ask, Sleep, Subgraph, Wait
from orchestrator.testing import MockClock, assert_crash_safe
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


class Orders(BaseModel):
    """What waits here sees and writes."""

    order: int = 7
    payment: JsonValue = None
    got: Annotated[list[JsonValue], append] = []
    orders: list[int] = []


def waits(**options: Any) -> Graph[Orders]:
    """A graph that waits for one payment of its order."""
    settings: dict[str, Any] = {"event": "paid", "match": {"order": "order"}, "into": "payment", **options}
    late = "\nwait -> END : timeout" if "deadline" in options else ""
    return Graph(
        name="waits", state=Orders, input="order", output="payment",
        nodes={"wait": Wait(**settings)},
        edges=f"START -> wait -> END{late}",
    )  # fmt: skip


def rounds(many: int) -> Graph[Orders]:
    """A loop that takes an event in each round."""

    @node(outcomes=("again", "enough"))
    def count(state: Orders) -> Any:
        from orchestrator import Outcome

        return Outcome("enough" if len(state.got) == many else "again")

    return Graph(
        name="rounds", state=Orders, input="order", output="got",
        nodes={"wait": Wait(event="tick", into="got"), "count": count},
        edges="START -> wait -> count -> END : enough\ncount -> wait : again",
    )  # fmt: skip


async def test_a_run_waits_for_an_event_and_goes_on_with_its_data() -> None:
    async with Executor(graphs=[waits()]) as ex:
        run = await ex.start("waits", 7)
        assert run.status == "paused"
        (asked,) = run.waiting
        assert (asked.kind, asked.node, asked.event, asked.match) == ("event", "wait", "paid", {"order": 7})
        assert asked.prompt == "event 'paid' with order = 7"
        run = await ex.send(run.run_id, "paid", {"order": 7, "eur": 3}, by="bank")
        assert (run.status, run.output) == ("completed", {"order": 7, "eur": 3})
        records = await ex.store.read(run.run_id)
        received = next(record for record in records if record.type == "event_received")
        assert (received.name, received.by) == ("paid", "bank")
        (step,) = await ex.history(run.run_id)
        assert step.outcome == "received"


async def test_an_event_that_does_not_match_is_kept_and_wakes_nothing() -> None:
    async with Executor(graphs=[waits()]) as ex:
        run = await ex.start("waits", 7)
        for data in ({"order": 8}, {"order": True}, {"order": "7"}, {}, None, [7], {"order": [7]}):
            run = await ex.send(run.run_id, "paid", data)
            assert run.status == "paused", data
        run = await ex.send(run.run_id, "refunded", {"order": 7})
        assert run.status == "paused"
        run = await ex.send(run.run_id, "paid", {"order": 7.0})
        assert run.status == "completed"


async def test_an_event_sent_before_the_run_comes_to_the_wait_is_taken_there() -> None:
    graph = Graph(
        name="later", state=Orders, input="order", output="got",
        nodes={"first": Wait(event="begin"), "wait": Wait(event="paid", into="got")},
        edges="START -> first -> wait -> END",
    )  # fmt: skip
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        await ex.send(run.run_id, "paid", 1, resume=False)
        await ex.send(run.run_id, "paid", 2, resume=False)
        run = await ex.send(run.run_id, "begin")
        assert (run.status, run.output) == ("completed", [1])


async def test_an_event_reaches_a_run_that_works_and_is_there_when_it_waits() -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    @node
    async def works() -> None:
        begun.set()
        await go_on.wait()

    graph = Graph(
        name="busy", state=Orders, input="order", output="payment",
        nodes={"works": works, "wait": Wait(event="paid", into="payment")}, edges="START -> works -> wait -> END",
    )  # fmt: skip
    async with Executor(graphs=[graph]) as ex:
        run_id = await ex.submit(graph)
        await begun.wait()
        run = await ex.send(run_id, "paid", "at work", resume=False)
        assert run.status == "running"
        go_on.set()
        run = await ex.wait(run_id)
        assert (run.status, run.output) == ("completed", "at work")


async def test_an_event_of_an_id_counts_once() -> None:
    async with Executor(graphs=[rounds(2)]) as ex:
        run = await ex.start("rounds")
        for _ in range(3):
            run = await ex.send(run.run_id, "tick", "first", id="e1")
            assert (run.status, run.values["got"]) == ("paused", ["first"])
        run = await ex.send(run.run_id, "tick", "second", id="e2")
        assert (run.status, run.output) == ("completed", ["first", "second"])
        assert sum(record.type == "event_received" for record in await ex.store.read(run.run_id)) == 2


async def test_a_loop_takes_one_event_in_each_round_in_their_order() -> None:
    async with Executor(graphs=[rounds(5)]) as ex:
        run = await ex.start("rounds")
        for number in range(4):
            await ex.send(run.run_id, "tick", number, resume=False)
        run = await ex.send(run.run_id, "tick", 4)
        assert (run.status, run.output) == ("completed", [0, 1, 2, 3, 4])
        assert not run.machine.events.kept, "what nothing can take any more is forgotten"


async def test_branches_beside_each_other_each_take_the_event_and_none_takes_it_after_them() -> None:
    graph = Graph(
        name="both", state=Orders, input="order", output="got",
        nodes={"a": Wait(event="e", into="got"), "b": Wait(event="e", into="got"), "c": Wait(event="e", into="got"),
               "j": Wait(event="e", into="got", join="all")},
        edges="START -> a, b\na -> c\nb, c -> j -> END",
    )  # fmt: skip
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        run = await ex.send(run.run_id, "e", 1)
        assert [asked.node for asked in run.waiting] == ["c"]
        run = await ex.send(run.run_id, "e", 2)
        assert [asked.node for asked in run.waiting] == ["j"], "the join knows what both branches took"
        run = await ex.send(run.run_id, "e", 3)
        assert (run.status, run.output) == ("completed", [1, 2, 1, 3])


async def test_each_item_of_a_map_waits_for_its_own_event() -> None:
    graph = Graph(
        name="each", state=Orders, input="orders", output="got",
        nodes={"open": node(lambda: None), "wait": Wait(event="paid", match={"order": ITEM}, into="got"),
               "all": node(lambda: None).with_(join="all")},
        edges="START -> open\nopen -> wait : each orders\nwait -> all -> END",
    )  # fmt: skip
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph, [1, 2, 3])
        assert sorted(str(asked.match["order"]) for asked in run.waiting) == ["1", "2", "3"]
        for order in (3, 1, 2):
            run = await ex.send(run.run_id, "paid", {"order": order})
        assert (run.status, [one["order"] for one in run.output]) == ("completed", [1, 2, 3])


async def test_a_wait_inside_a_subgraph_takes_events_and_the_steps_after_it_know() -> None:
    inner = rounds(2)
    graph = Graph(
        name="outer", state=Orders, input="order", output="got",
        nodes={"sub": Subgraph(inner, outputs={"got": "got"}), "after": Wait(event="tick", into="got")},
        edges="START -> sub -> after -> END",
    )  # fmt: skip
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        for number in range(2):
            run = await ex.send(run.run_id, "tick", number)
        assert [asked.node for asked in run.waiting] == ["after"], "what the inner graph took is not taken again"
        run = await ex.send(run.run_id, "tick", 2)
        assert run.status == "completed"


async def test_without_an_event_in_time_the_timeout_edge_is_taken(clock: MockClock) -> None:
    seen: list[str] = []

    @node
    def late(ctx: Context) -> Update:
        assert ctx.error is not None
        seen.append(f"{ctx.error.type}: {ctx.error.message}")
        return None

    @node
    async def beside() -> None:
        await anyio.sleep(100)

    graph = Graph(
        name="late", state=Orders, input="order", output="payment",
        nodes={"wait": Wait(event="paid", into="payment", deadline=60), "late": late, "beside": beside},
        edges="START -> wait, beside\nwait -> late : timeout\nwait -> END : received\nlate, beside -> END",
    )  # fmt: skip
    async with Executor(graphs=[graph], clock=clock) as ex:
        run = await ex.start(graph)
        assert (run.status, seen) == ("completed", ["StepTimeout: wait: no event 'paid' came within 60 s"])
        fired = [record for record in await ex.store.read(run.run_id) if record.type == "timer_fired"]
        assert [record.node for record in fired] == ["wait"]


async def test_a_wait_that_times_out_without_an_edge_for_it_fails(clock: MockClock) -> None:
    graph = Graph(
        name="fails", state=Orders, nodes={"wait": Wait(event="paid", deadline=60)}, edges="START -> wait -> END"
    )
    async with Executor(graphs=[graph], clock=clock) as ex:
        run = await ex.start(graph)
        assert run.status == "paused"
        clock.jump(61)
        (run,) = await ex.recover()
        assert run.status == "failed"
        assert run.error is not None
        assert run.error.type == "StepTimeout"


async def test_only_an_event_answers_a_wait() -> None:
    async with Executor(graphs=[waits()]) as ex:
        run = await ex.start("waits", 7)
        with pytest.raises(InvalidAnswer, match="it waits for event 'paid': send it"):
            await ex.answer(run.run_id, run.waiting[0].id, {"order": 7})


async def test_events_are_sent_by_labels_to_the_one_unfinished_run_that_has_them() -> None:
    async with Executor(graphs=[waits()]) as ex:
        first = await ex.start("waits", 7, labels={"user": "ann", "order": "7"})
        second = await ex.start("waits", 8, labels={"user": "ann", "order": "8"})
        with pytest.raises(Ambiguous, match="2 unfinished runs have the labels user=ann") as raised:
            await ex.send(labels={"user": "ann"}, event="paid", data={"order": 7})
        assert set(raised.value.run_ids) == {first.run_id, second.run_id}
        run = await ex.send(labels={"order": "7"}, event="paid", data={"order": 7})
        assert (run.run_id, run.status) == (first.run_id, "completed")
        with pytest.raises(Ambiguous, match="no unfinished run has the labels order=7"):
            await ex.send(labels={"order": "7"}, event="paid", data={"order": 7})
        (run,) = await ex.send(labels={"user": "ann"}, event="paid", data={"order": 8}, all=True)
        assert (run.run_id, run.status) == (second.run_id, "completed")
        assert await ex.send(labels={"user": "ann"}, event="paid", all=True) == []


async def test_a_run_that_has_ended_takes_no_events() -> None:
    async with Executor(graphs=[waits()]) as ex:
        run = await ex.start("waits", 7)
        await ex.send(run.run_id, "paid", {"order": 7})
        with pytest.raises(RunEnded):
            await ex.send(run.run_id, "paid", {"order": 7})
        with pytest.raises(RunUnknown):
            await ex.send("nothing", "paid")
        with pytest.raises(TypeError, match="either the id of a run, or labels"):
            await ex.send(event="paid")


class Loop(dict[str, object]):
    """A mapping that contains itself."""


def _deep(levels: int) -> object:
    found: object = 1
    for _ in range(levels):
        found = [found]
    return found


async def test_hostile_data_is_refused_before_anything_is_journaled() -> None:
    from pydantic import SecretStr

    loop = Loop()
    loop["loop"] = loop
    hostile: list[tuple[object, type[Exception]]] = [
        (math.nan, InvalidValue), ({"x": [math.inf]}, InvalidValue), (_deep(101), InvalidValue),
        (_deep(100_000), InvalidValue), ("x" * (1 << 20), InvalidValue), (loop, InvalidValue),
        ("\ud800", InvalidValue), (object(), InvalidValue), (10**5000, InvalidValue),
        ({"key": SecretStr("k")}, SecretInState),
    ]  # fmt: skip
    async with Executor(graphs=[waits()]) as ex:
        run = await ex.start("waits", 7)
        for data, error in hostile:
            with pytest.raises(error):
                await ex.send(run.run_id, "paid", data)
        for name in ("", "x" * 201, "a\nb", "\ud800", 7):
            with pytest.raises(InvalidValue):
                await ex.send(run.run_id, name)  # type: ignore[arg-type]
            with pytest.raises(InvalidValue):
                await ex.send(run.run_id, "paid", id=name)  # type: ignore[arg-type]
        assert (await ex.load(run.run_id)).seq == run.seq
        await ex.send(run.run_id, "paid", _deep(100))
        await ex.send(run.run_id, "paid", "x" * ((1 << 20) - 2))


async def test_a_snapshot_holds_events_and_what_was_taken(tmp_path: Any) -> None:
    from orchestrator.kernel.snapshot import dump, load

    async with Executor(graphs=[rounds(3)]) as ex:
        run = await ex.start("rounds")
        await ex.send(run.run_id, "tick", 0)
        run = await ex.send(run.run_id, "other", {"kept": True})
        again = load(run.machine.plan, dump(run.machine))
        assert dump(again) == dump(run.machine)
        assert [event.data for event in again.events.kept.values()] == [{"kept": True}]
        assert again.events.ids == run.machine.events.ids


async def test_a_sleep_is_a_timer_of_the_run_and_wakes_in_another_executor(tmp_path: Any) -> None:
    clock = MockClock()
    graph = Graph(name="naps", state=Orders, nodes={"nap": Sleep(seconds=3600)}, edges="START -> nap -> END")
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store=url, graphs=[graph], clock=clock, idle="sleep") as ex:
        run = await ex.start(graph)
        assert run.status == "paused"
        (timer,) = run.waiting
        assert (timer.kind, timer.node, timer.deadline) == ("timer", "nap", clock.now() + 3600)
        assert (await ex.store.info(run.run_id)).due == timer.deadline
        with pytest.raises(InvalidAnswer, match="continues by itself"):
            await ex.answer(run.run_id, timer.id, "wake up")
    async with Executor(store=url, graphs=[graph], clock=clock, idle="sleep") as ex:
        assert await ex.recover() == []
        clock.jump(3600)
        (run,) = await ex.recover()
        assert run.status == "completed"
        assert [record.type for record in await ex.store.read(run.run_id)] == [
            "run_started", "timer_set", "timer_fired", "step_done", "ended",
        ]  # fmt: skip


async def test_sleeps_of_tasks_beside_each_other_end(clock: MockClock) -> None:
    @node
    async def two(ctx: Context[Any]) -> None:
        async with anyio.create_task_group() as tasks:
            for seconds in (600, 900, 600):
                tasks.start_soon(ctx.sleep, seconds)

    graph = Graph(name="two", state=Orders, nodes={"two": two}, edges="START -> two -> END")
    async with Executor(graphs=[graph], clock=clock) as ex:
        run = await ex.start(graph)
        assert run.status == "completed"
        assert [record.type for record in await ex.store.read(run.run_id)].count("timer_set") == 3


async def test_a_sleep_wakes_while_other_steps_of_the_run_work(clock: MockClock) -> None:
    woke: list[float] = []

    @node
    def after() -> None:
        woke.append(clock.now())

    @node
    async def works() -> None:
        await anyio.sleep(100)

    graph = Graph(
        name="naps", state=Orders, nodes={"nap": Sleep(seconds=30), "after": after, "works": works},
        edges="START -> nap, works\nnap -> after -> END\nworks -> END",
    )  # fmt: skip
    async with Executor(graphs=[graph], clock=clock) as ex:
        began = clock.now()
        run = await ex.start(graph)
        assert run.status == "completed"
        assert woke == [pytest.approx(began + 30)]


@pytest.mark.parametrize(
    ("value", "due"),
    [
        (1_000_000_060, 1_000_000_060), (1_000_000_060.5, 1_000_000_060.5), ("2001-09-09T01:47:40", 1_000_000_060),
        ("2001-09-09T03:47:40+02:00", 1_000_000_060), ("2001-09-09T01:47:40Z", 1_000_000_060), (17, None),
        ("1999-12-31", None),
    ],
)  # fmt: skip
async def test_a_sleep_until_a_field_reads_its_time(value: object, due: float | None) -> None:
    clock = MockClock(1_000_000_000)
    graph = Graph(
        name="naps", state=Orders, input="payment", nodes={"nap": Sleep(until="payment")}, edges="START -> nap -> END"
    )
    async with Executor(graphs=[graph], clock=clock, idle="sleep") as ex:
        run = await ex.start(graph, value)
        assert [timer.deadline for timer in run.waiting] == ([] if due is None else [pytest.approx(due)])
        assert run.status == ("completed" if due is None else "paused")


@pytest.mark.parametrize("value", ["tomorrow", None, True, [1], math.pi * 1e300, "2001-13-01"])
async def test_a_sleep_until_what_is_no_time_fails(value: object) -> None:
    graph = Graph(
        name="naps", state=Orders, input="payment", nodes={"nap": Sleep(until="payment")}, edges="START -> nap -> END"
    )
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph, {"payment": value})
        assert run.status == "failed"
        assert run.error is not None
        assert run.error.type == "InvalidValue"


def test_faults_of_sleeps_and_waits_are_found_when_they_are_built() -> None:
    naps: list[dict[str, Any]] = [
        {}, {"seconds": 1, "until": "x"}, {"seconds": -1}, {"seconds": math.inf}, {"seconds": math.nan},
    ]  # fmt: skip
    for options in naps:
        with pytest.raises(ValueError, match=r"seconds|until"):
            Sleep(**options)
    faulty: list[dict[str, Any]] = [{"event": ""}, {"event": "x" * 201}, {"event": "e", "deadline": -1}]
    for options in faulty:
        with pytest.raises(ValueError, match=r"event|deadline"):
            Wait(**options)
    with pytest.raises(InvalidGraph, match="has no such field"):
        Graph(name="g", state=Orders, nodes={"w": Wait(event="e", match={"a": "nope"})}, edges="START -> w -> END")
    with pytest.raises(InvalidGraph, match="w has no deadline: give it deadline=SECONDS"):
        Graph(name="g", state=Orders, nodes={"w": Wait(event="e")}, edges="START -> w -> END\nw -> END : timeout")


async def test_nodes_of_users_sleep_and_receive_by_their_context(clock: MockClock) -> None:
    @node
    async def waits_twice(ctx: Context) -> Update:
        await ctx.sleep(10)
        first = await ctx.receive("e")
        second = await ctx.receive("e", match={"n": 2})
        return {"got": [first, second]}

    graph = Graph(
        name="own", state=Orders, output="payment",
        nodes={"own": waits_twice},
        edges="START -> own -> END",
    )  # fmt: skip
    async with Executor(graphs=[graph], clock=clock, idle="sleep") as ex:
        run = await ex.start(graph)
        clock.jump(10)
        (run,) = await ex.recover()
        await ex.send(run.run_id, "e", {"n": 1}, resume=False)
        await ex.send(run.run_id, "e", {"n": 3}, resume=False)
        run = await ex.send(run.run_id, "e", {"n": 2})
        assert run.status == "completed"
        assert run.values["got"] == [[{"n": 1}, {"n": 2}]]


class Ahead:
    """A clock that is wrong by some seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return SYSTEM_CLOCK.now() + self._seconds

    def steady(self) -> float:
        return SYSTEM_CLOCK.steady()


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
@pytest.mark.parametrize("kind", ["sleep", "wait"])
async def test_a_wrong_clock_holds_nothing_up_for_longer_than_was_meant(tmp_path: Any, ahead: float, kind: str) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    waiting = Sleep(seconds=0.2) if kind == "sleep" else Wait(event="paid", deadline=0.2)
    late = "\nn -> END : timeout" if kind == "wait" else ""
    graph = Graph(name="naps", state=Orders, nodes={"n": waiting}, edges=f"START -> n -> END{late}")
    async with Executor(url, graphs=[graph], clock=Ahead(ahead), idle="sleep") as wrong:
        run = await wrong.start(graph)
        assert run.status == "paused"
    with anyio.fail_after(10):
        async with Executor(url, graphs=[graph]) as ex:
            while (await ex.load(run.run_id)).status != "completed":
                await ex.recover()
                await anyio.sleep(0.05)


def calling(inner: Graph[Orders]) -> Graph[Orders]:
    """A graph that calls another one as a tool."""

    @node
    async def call(ctx: Context) -> Update:
        return {"payment": (await ctx.tool("inner", {"order": 7}, check=True)).output}

    tool = inner.as_tool("inner", "Calls the graph inside.", risk="none")
    return Graph(
        name="calling", state=Orders, output="payment", nodes={"call": call.with_(tools=[tool])},
        edges="START -> call -> END",
    )  # fmt: skip


async def test_a_graph_that_is_called_as_a_tool_waits_for_an_event_through_its_caller() -> None:
    graph = calling(waits())
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        assert [(asked.kind, asked.node, asked.event) for asked in run.waiting] == [("event", "call", "paid")]
        run = await ex.send(run.run_id, "paid", {"order": 8})
        assert run.status == "paused"
        run = await ex.send(run.run_id, "paid", {"order": 7, "eur": 3})
        assert (run.status, run.output) == ("completed", {"order": 7, "eur": 3})


@pytest.mark.parametrize("late", [False, True])
async def test_a_graph_that_is_called_as_a_tool_waits_for_a_time_through_its_caller(late: bool) -> None:
    waiting = Wait(event="paid", deadline=60) if late else Sleep(seconds=60)
    inner = Graph(
        name="inner", state=Orders, input="order", output="order", nodes={"n": waiting},
        edges="START -> n -> END" + ("\nn -> END : timeout" if late else ""),
    )  # fmt: skip
    graph = calling(inner)
    clock = MockClock()
    async with Executor(graphs=[graph], clock=clock, idle="sleep") as ex:
        run = await ex.start(graph)
        assert [asked.kind for asked in run.waiting] == ["event" if late else "timer"]
        clock.jump(61)
        await ex.recover()
        run = await ex.load(run.run_id)
        assert (run.status, run.output) == ("completed", 7), run.error


@pytest.mark.parametrize(("name", "most", "sent"), [("MAX_KEPT", 3, 3), ("MAX_KEPT_BYTES", 100, 4)])
async def test_a_run_keeps_so_many_events_that_no_step_takes(
    monkeypatch: pytest.MonkeyPatch, name: str, most: int, sent: int
) -> None:
    monkeypatch.setattr(f"orchestrator.executor.commands.{name}", most)
    graph = rounds(1)
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        await ex.pause(run.run_id)
        for number in range(sent):
            await ex.send(run.run_id, "other", "x" * 28, id=str(number), resume=False)
        with pytest.raises(RunBusy, match=f"keeps {sent} events"):
            await ex.send(run.run_id, "tick", 0, resume=False)
        await ex.send(run.run_id, "other", "again", id="0", resume=False)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_run_that_is_stopped_at_any_write_takes_each_event_once_and_sleeps_once(store: Any) -> None:
    inner = rounds(2)
    graph = Graph(
        name="all", state=Orders, input="orders", output="got",
        nodes={"nap": Sleep(seconds=1000), "wait": Wait(event="paid", match={"order": ITEM}, into="got"),
               "sub": Subgraph(inner, outputs={"got": "got"}), "join": node(lambda: None).with_(join="all")},
        edges="START -> nap\nnap -> wait : each orders\nwait -> join -> sub -> END",
    )  # fmt: skip

    def answer(question: AnyQuestion) -> object:
        return None if question.match else "tick"

    report = await assert_crash_safe(graph, [1, 2], store=store, answer=answer, stops=2, most=sized(5, 400))
    assert report.status == "completed"


class Payment(BaseModel):
    """The data of the event."""

    order: int
    amount: float


class Typed(BaseModel):
    order: int = 7
    payment: Payment | None = None
    all: Annotated[list[Payment], append] = []
    once_more: bool = False


def typed(*, into: str | None = "payment") -> Graph[Typed]:
    """A graph that waits for a payment of its order, behind a question."""
    return Graph(
        name="typed", state=Typed, input="order",
        nodes={
            "ask": Ask(prompt="Go on?", answer="once_more"),
            "wait": Wait(event="paid", match={"order": "order"}, into=into),
        },
        edges="START -> ask -> wait -> END",
    )  # fmt: skip


@pytest.mark.parametrize("into", ["payment", "all"])
@pytest.mark.parametrize("waits", [False, True], ids=["early", "awaited"])
@pytest.mark.parametrize("resume", [False, True], ids=["kept", "driven"])
async def test_data_that_does_not_fit_the_field_is_refused_and_changes_nothing(
    into: str, waits: bool, resume: bool
) -> None:
    graph = typed(into=into)
    async with Executor("memory://", graphs=[graph]) as executor:
        run = await executor.start(graph, 7, run_id="r")
        if waits:
            run = await executor.answer("r", run.waiting[0].id, True)
        for data, why in (({"order": 7, "amount": "much"}, "unable to parse"), ({"order": 7}, "amount"), ("x", "dict")):
            with pytest.raises(InvalidAnswer, match=f"the data of the event 'paid' does not fit: .*{why}"):
                await executor.send("r", "paid", data, id="one", resume=resume)
        assert (await executor.load("r")).seq == run.seq
        run = await executor.send("r", "paid", {"order": 7, "amount": 3}, id="one")
        if not waits:
            run = await executor.answer("r", run.waiting[0].id, True)
        assert run.status == "completed"


async def test_an_event_that_no_field_gets_may_have_any_data() -> None:
    graph = typed(into=None)
    async with Executor("memory://", graphs=[graph]) as executor:
        run = await executor.start(graph, 7, run_id="r")
        await executor.send("r", "paid", {"order": 7, "amount": "much"})
        assert (await executor.answer("r", run.waiting[0].id, True)).status == "completed"


@pytest.mark.parametrize("waits", [False, True], ids=["early", "awaited"])
async def test_data_for_a_graph_that_is_called_as_a_tool_is_refused_where_it_is_sent(waits: bool) -> None:
    inner = typed().as_tool("pay", "Waits for the payment.", risk="none")

    @node
    async def pay(state: Typed, ctx: Context) -> Update:
        await ctx.tool("pay", order=state.order)
        return {}

    graph = Graph(
        name="outer", state=Typed, input="order",
        nodes={"ask": Ask(prompt="Go on?", answer="once_more"), "pay": pay}, edges="START -> ask -> pay -> END",
    )  # fmt: skip
    async with Executor("memory://", graphs=[graph], tools=[inner]) as executor:
        run = await executor.start(graph, 7, run_id="r")
        if waits:
            for _ in range(2):  # its own question, and that of the inner run
                run = await executor.answer("r", run.waiting[0].id, True)
            assert run.waiting[0].event == "paid"
        with pytest.raises(InvalidAnswer, match=r"the data of the event 'paid' does not fit: .*amount"):
            await executor.send("r", "paid", {"order": 7})
        assert (await executor.load("r")).seq == run.seq
        if waits:
            assert (await executor.send("r", "paid", {"order": 7, "amount": 3})).status == "completed"


async def test_of_several_steps_the_one_that_takes_the_event_says_its_type() -> None:
    graph = Graph(
        name="several", state=Typed, input="order",
        nodes={"first": Wait(event="paid", into="order"), "second": Wait(event="paid", into="payment")},
        edges="START -> first -> second -> END",
    )  # fmt: skip
    async with Executor("memory://", graphs=[graph]) as executor:
        await executor.start(graph, 7, run_id="r")
        with pytest.raises(InvalidAnswer, match="'order'"):
            await executor.send("r", "paid", {"order": 7, "amount": 3})
        await executor.send("r", "paid", 8)
        with pytest.raises(InvalidAnswer, match="'payment'"):
            await executor.send("r", "paid", 8)
        assert (await executor.send("r", "paid", {"order": 7, "amount": 3})).status == "completed"


async def test_without_the_class_of_the_state_the_type_is_not_known(tmp_path: Path) -> None:
    url, graph = f"sqlite:///{tmp_path}/runs.db", typed()
    async with Executor(url, graphs=[graph]) as executor:
        run = await executor.start(graph, 7, run_id="r")
        await executor.answer("r", run.waiting[0].id, True)
    async with Executor(url) as other:
        run = await other.send("r", "paid", {"order": 7, "amount": "much"}, resume=False)
        assert unchecked(run.machine, "paid") == (
            "the type of its data is not checked: the code of graph 'typed' is not loaded here"
        )
