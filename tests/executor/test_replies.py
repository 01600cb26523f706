"""Replies of models while they come: to those who read from the beginning, who come late, and who are slow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import Context, Executor, Graph, Retry, Run, Update, node
from orchestrator.executor import Event, streaming
from orchestrator.executor.calls import models
from orchestrator.executor.calls.models import PartialReply
from orchestrator.models import Reply
from orchestrator.models.base import ModelEvent, ModelRequest
from orchestrator.stores.base import Store
from orchestrator.testing import ScriptedModel
from tests.executor.test_model_calls import graph as talk
from tests.executor.test_model_calls import model_at
from tests.support.executors import Log, chain, single
from tests.support.paced import BREAK, PacedModel
from tests.support.sizes import sized
from tests.support.wire import chunk, served, streamed, told

pytestmark = pytest.mark.anyio


@node
async def write(state: Log, ctx: Context) -> Update:
    """Ask the model, and wait for the whole reply."""
    return {"log": (await ctx.model.complete("write")).text}


class Screen:
    """What a page shows that does with live events what docs/streaming.md says."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = defaultdict(str)
        """Key of a call -> its text."""
        self.steps: dict[str, set[str]] = defaultdict(set)
        self.events: list[Event] = []
        self.settled: dict[str, str] = {}

    def show(self, event: Event) -> None:
        """Take one event."""
        self.events.append(event)
        data, key = event.data, str(event.data.get("key", ""))
        if event.type == "token":
            self.texts[key] += str(data["text"])
            self.steps[str(data["activation"])].add(key)
        elif event.type in ("reset", "step_retried"):
            for one in [key] if key else self.steps.pop(str(data["activation"]), ()):
                self.texts.pop(one, None)
        elif event.type == "effect_settled" and data.get("ok", True):
            result = data["result"]
            assert isinstance(result, dict)
            self.settled[key] = str(result.get("text", ""))

    @property
    def types(self) -> list[str]:
        """The live events, by type."""
        return [event.type for event in self.events if event.seq is None]

    def is_whole(self) -> bool:
        """Whether every text that is shown is that of the journal."""
        return bool(self.texts) and all(self.settled.get(key) == text for key, text in self.texts.items())


async def streamed_run(executor: Executor, graph: Graph) -> tuple[Screen, Run]:
    """Run a graph and show its events."""
    screen = Screen()
    async with executor.stream(graph, {}, run_id="r") as live:
        async for event in live:
            screen.show(event)
    return screen, live.run


async def read(executor: Executor, screen: Screen, run_id: str = "r", after: int = 0) -> Screen:
    async for event in executor.events(run_id, after=after, follow=True):
        screen.show(event)
    return screen


# -- whether models are asked for streams ----------------------------------------------------------------------------


async def test_models_stream_while_a_reader_is_there_or_always() -> None:
    for streams, whole in (("watched", 1), ("always", 0)):
        model = PacedModel([["a", "b"]])
        async with Executor(model=model, streams=streams) as executor:  # type: ignore[arg-type]
            assert (await executor.start(single(write.fn))).output == ["ab"]
        assert model.whole == whole
    with pytest.raises(ValueError, match="streams='never': use 'watched' or 'always'"):
        Executor(streams="never")  # type: ignore[arg-type]


class OwnModel:
    """The three members that a model needs."""

    name = "own"

    async def complete(self, messages: object, *args: object, **options: object) -> Reply:
        """The whole reply."""
        return Reply(text="whole")

    async def stream(self, messages: object, *args: object, **options: object) -> AsyncIterator[ModelEvent]:
        """The same in pieces."""
        for piece in ("in ", "pieces"):
            yield ModelEvent(text=piece)
        yield ModelEvent(reply=Reply(text="in pieces"))


class QuietModel(OwnModel):
    """Says that it does not want to be asked for streams."""

    streams = False


async def test_a_model_of_ones_own_that_defines_stream_is_asked_for_streams_unless_it_says_no() -> None:
    for model, text in ((OwnModel(), "in pieces"), (QuietModel(), "whole"), (ScriptedModel(["said"]), "said")):
        async with Executor(model=model, streams="always") as executor:
            assert (await executor.start(single(write.fn))).output == [text]


async def test_a_server_is_asked_for_streams_although_no_one_reads() -> None:
    with served(told("Hello"), told("you")) as wire:
        async with model_at(wire.url) as model, Executor(model=model, streams="always") as executor:
            assert (await executor.start(talk(), {})).output == ["Hello you"]
    assert [seen.body.get("stream", False) for seen in wire.seen] == [True, True]


async def test_live_events_of_a_reply_name_run_step_attempt_and_call() -> None:
    async with Executor(model=PacedModel([["a", "b"]])) as executor:
        screen, _ = await streamed_run(executor, single(write.fn))
        events = screen.events
    (intended,) = [event for event in events if event.type == "effect_intended"]
    tokens = [event for event in events if event.type == "token"]
    assert [event.data["text"] for event in tokens] == ["a", "b"]
    for event in tokens:
        assert (event.run_id, event.node, event.path) == ("r", "work", "")
        assert {name: event.data[name] for name in ("activation", "attempt", "key")} == {
            "activation": intended.data["activation"], "attempt": 1, "key": intended.data["key"],
        }  # fmt: skip


# -- late comers -----------------------------------------------------------------------------------------------------


async def test_one_who_comes_late_gets_what_came_so_far_and_then_the_rest(store: Store) -> None:
    pieces = list("It was a dark and stormy night")
    late: list[Screen] = []

    async with (
        anyio.create_task_group() as tasks,
        Executor(store, streams="always", model=PacedModel([pieces], lambda _, place: comes(place))) as executor,
    ):

        async def comes(place: int) -> None:
            await anyio.lowlevel.checkpoint()
            if place % sized(5, 1) == 0:
                late.append(Screen())
                tasks.start_soon(read, executor, late[-1])
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()

        await executor.submit(single(write.fn), run_id="r")
        run = await executor.wait("r")
        with anyio.fail_after(60):
            while any(not screen.events or screen.events[-1].type != "ended" for screen in late):  # noqa: ASYNC110
                await anyio.sleep(0.01)
    assert run.output == ["".join(pieces)]
    assert len(late) > 5
    for screen in late:
        assert screen.is_whole()
        assert screen.types.count("reset") <= 1


async def test_one_who_comes_back_in_mid_reply_has_it_from_its_beginning(store: Store) -> None:
    gates = [anyio.Event() for _ in range(3)]
    model = PacedModel([["one ", "two ", "three"]], lambda _, place: gates[place].wait())
    async with Executor(store, model=model, streams="always") as executor:
        await executor.submit(single(write.fn), run_id="r")
        screen, seen = Screen(), 0
        for gate in gates:
            async for event in executor.events("r", after=seen, follow=True):
                screen.show(event)
                seen = event.seq or seen
                if event.type == "effect_intended":
                    gate.set()
                if event.type == "token" and not gate.is_set():
                    gate.set()
                elif event.type == "token":
                    break  # the connection is gone
        async for event in executor.events("r", after=seen, follow=True):
            screen.show(event)
        assert screen.is_whole()
        assert set(screen.texts.values()) == {"one two three"}


async def test_one_who_comes_back_before_the_first_piece_of_a_further_try_gets_its_reset(store: Store) -> None:
    gate, asked = anyio.Event(), anyio.Event()

    async def before(number: int, place: int) -> None:
        if number == 1 and place == 0:
            asked.set()
            await gate.wait()

    model = PacedModel([["half ", BREAK], ["half ", "of it"]], before, retry=Retry(attempts=2, wait=0.001))
    async with Executor(store, model=model, streams="always") as executor:
        screen, seen = Screen(), 0
        await executor.submit(single(write.fn), run_id="r")
        async for event in executor.events("r", follow=True):
            screen.show(event)
            seen = event.seq or seen
            if event.type == "token":
                break  # the connection is gone
        await asked.wait()
        reading = executor.events("r", after=seen, follow=True)
        screen.show(await anext(reading))
        gate.set()
        async for event in reading:
            screen.show(event)
    assert screen.is_whole()
    assert set(screen.texts.values()) == {"half of it"}


async def test_branches_at_the_same_time_are_told_apart_by_their_calls(store: Store) -> None:
    both = Graph(name="both", state=Log, nodes={"a": write, "b": write}, edges="START -> a, b -> END", output="log")
    model = PacedModel([list("left"), list("right")])
    async with Executor(store, model=model) as executor:
        screen, _ = await streamed_run(executor, both)
    assert screen.is_whole()
    assert sorted(screen.texts.values()) == ["left", "right"]


# -- further attempts ------------------------------------------------------------------------------------------------


async def test_a_call_that_is_made_again_begins_with_a_reset(store: Store) -> None:
    model = PacedModel([["It ", BREAK], ["It ", "was"]], retry=Retry(attempts=2, wait=0.001))
    async with Executor(store, model=model) as executor:
        screen, _ = await streamed_run(executor, single(write.fn))
    assert [kind for kind in screen.types if kind != "step_started"] == ["token", "reset", "token", "token"]
    assert screen.is_whole()


async def test_a_stream_that_breaks_on_the_wire_is_shown_once_more_after_a_reset() -> None:
    half = streamed(chunk({"content": "He"}), done=False)
    with served(half, told("Hello"), told("you")) as wire:
        async with model_at(wire.url) as model, Executor(model=model) as executor:
            screen, _ = await streamed_run(executor, talk())
    assert screen.is_whole()
    assert screen.types.count("reset") == 1
    assert sorted(screen.texts.values()) == ["Hello", "you"]


async def test_a_new_attempt_of_a_step_begins_with_a_reset_of_all_its_calls(store: Store) -> None:
    @node(retry=Retry(attempts=2, wait=0.001))
    async def twice(state: Log, ctx: Context) -> Update:
        first = await ctx.model.complete("one")
        second = await ctx.model.complete("two")
        if ctx.attempt == 1:
            raise OSError("once more")
        return {"log": f"{first.text} {second.text}"}

    model = PacedModel([["a"], ["b"], ["c"], ["d"]])
    async with Executor(store, model=model) as executor:
        screen, run = await streamed_run(executor, chain(twice))
    assert run.output == ["c d"]
    (reset,) = [event for event in screen.events if event.type == "reset"]
    assert reset.data["attempt"] == 2
    assert "key" not in reset.data
    assert screen.is_whole()
    assert sorted(screen.texts.values()) == ["c", "d"]


async def test_a_run_that_goes_on_after_it_was_left_in_mid_reply_begins_with_a_reset(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    stuck = anyio.Event()

    async def before(number: int, place: int) -> None:
        if number == 0 and place == 1:
            stuck.set()
            await anyio.sleep_forever()

    model = PacedModel([["half ", "of it"], ["half ", "of it"]], before)
    screen = Screen()
    graph = single(write.fn)
    async with Executor(store, graphs=[graph], model=model) as executor, executor.stream(graph, run_id="r") as live:
        async for event in live:
            screen.show(event)
            if event.type == "token":
                break
    seen = max(event.seq or 0 for event in screen.events)
    async with (
        Executor(store, graphs=[graph], model=model) as executor,
        executor.stream(run_id="r", after=seen) as live,
    ):
        async for event in live:
            screen.show(event)
    assert screen.is_whole()
    assert set(screen.texts.values()) == {"half of it"}
    assert "reset" in screen.types


# -- what the pieces do not make up ----------------------------------------------------------------------------------


class Understood(PacedModel):
    """A model that reads its reply from what came."""

    async def _stream_request(self, request: ModelRequest):  # type: ignore[no-untyped-def]
        async for event in super()._stream_request(request):
            yield event if event.reply is None else ModelEvent(reply=Reply(text=event.reply.text.partition("|")[2]))


async def test_a_reply_that_differs_from_its_pieces_is_shown_after_a_reset(store: Store) -> None:
    async with Executor(store, model=Understood([["<call>", "|", "so"]])) as executor:
        screen, _ = await streamed_run(executor, single(write.fn))
    assert screen.is_whole()
    assert set(screen.texts.values()) == {"so"}


async def test_a_node_that_reads_a_stream_shows_it_too(store: Store) -> None:
    @node
    async def reads(state: Log, ctx: Context) -> Update:
        return {"log": "|".join([event.text async for event in ctx.model.stream("go")])}

    async with Executor(store, model=PacedModel([["a", "b"]])) as executor:
        screen, run = await streamed_run(executor, chain(reads))
    assert run.output == ["a|b|"]
    assert screen.is_whole()


# -- slow readers ----------------------------------------------------------------------------------------------------


async def test_a_reader_that_is_stuck_holds_no_run_up_and_loses_no_record(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_LIVE", 50)
    monkeypatch.setattr(streaming, "_RECORDS", 3)
    texts = [[*("x" * 40)] for _ in range(10)]
    graph = chain(*[write] * 10)
    async with Executor(store, model=PacedModel(texts), streams="always") as executor:
        await executor.submit(graph, run_id="r")
        stuck = executor.events("r", follow=True)
        first = await anext(stuck)
        run = await executor.wait("r")  # it ends although nothing is read
        assert run.status == "completed"
        seen = [first, *[event async for event in stuck]]
    assert [event.seq for event in seen if event.seq is not None] == list(range(1, run.seq + 1))
    assert 0 < len([event for event in seen if event.seq is None]) <= 52


async def test_a_slow_reader_gets_the_reply_under_way_from_its_beginning(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_LIVE", 10)
    reads = anyio.Event()

    async def before(number: int, place: int) -> None:
        if place == 95:
            reads.set()
            await anyio.sleep(0.05)
        await anyio.lowlevel.checkpoint()

    model = PacedModel([[*("0123456789" * 10)]], before)
    async with Executor(store, model=model) as executor, executor.stream(single(write.fn), run_id="r") as live:
        screen = Screen()
        async for event in live:
            screen.show(event)
            if event.type == "token" and len(screen.types) == 3:
                await reads.wait()
    assert screen.is_whole()
    assert "reset" in screen.types
    assert set(screen.texts.values()) == {"0123456789" * 10}


@given(st.lists(st.tuples(st.text(max_size=9), st.text(max_size=3))), st.integers(1, 40), st.integers(1, 5))
def test_a_partial_reply_keeps_its_end_and_counts_what_it_dropped(
    pieces: list[tuple[str, str]], most: int, block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "MOST_KEPT", most)
        patch.setattr(models, "_BLOCK", block)
        reply = PartialReply({"key": "k"})
        for text, reasoning in pieces:
            reply.add(text, reasoning)
        whole = "".join(text for text, _ in pieces)
        text, reasoning = reply.texts()
        assert whole[reply.omitted :] == text
        assert "".join(thought for _, thought in pieces).endswith(reasoning)
        assert len(text) + len(reasoning) <= most + 12 * block
        assert reply.is_text(whole)
        assert not reply.is_text(whole + "x")
        events = list(reply.events())
        assert [kind for kind, _ in events] == (["reset", "token"] if pieces else ["reset"])
        assert all(data["key"] == "k" for _, data in events)
