"""Layers around models: what each does alone, and what a run sees of it."""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, OpenAIModel, Retry, node
from orchestrator.errors import AgentError, ModelError, ModelMisconfigured, ModelUnavailable, RequestTooLong
from orchestrator.graph import Usage
from orchestrator.models import (
    Ask,
    Cache,
    Fallback,
    Hook,
    Logged,
    Middleware,
    Model,
    ModelEvent,
    ModelRequest,
    RateLimit,
    Reply,
    ToolCall,
    calling_key,
    calling_node,
    system,
    with_middleware,
)
from orchestrator.testing import ScriptedModel
from tests.models.speaker import Speaker
from tests.support.executors import Log, single
from tests.support.sizes import sized
from tests.support.wire import Seen, refused, said, served

pytestmark = pytest.mark.anyio


class Pair(BaseModel):
    a: int
    b: int


class Tagged(Middleware):
    """Notes what passes."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes

    async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        self.notes.append(f"{self.name} in")
        try:
            async for event in ask(request):
                yield event
        finally:
            self.notes.append(f"{self.name} out")


def asking(question: str = "What?", times: int = 1) -> Graph:
    """A graph whose one node asks its model."""

    async def work(state: Log, ctx: Context) -> dict[str, Any]:
        return {"log": "; ".join([(await ctx.model.complete(question)).text for _ in range(times)])}

    return single(work)


# -- layers --------------------------------------------------------------------------------------------------------


async def test_the_first_layer_is_the_outermost() -> None:
    notes: list[str] = []
    model = with_middleware(ScriptedModel(["yes"]), Tagged("a", notes), Tagged("b", notes))
    assert (await model.complete("?")).text == "yes"
    assert notes == ["a in", "b in", "b out", "a out"]
    assert isinstance(model, Model)


async def test_pieces_come_through_and_an_early_reader_closes_everything_innermost_first() -> None:
    notes: list[str] = []
    speaker = Speaker(["a", "b", "c"], notes=notes)
    model = with_middleware(speaker, Tagged("outer", notes), Tagged("inner", notes))
    assert [event.text async for event in model.stream("?")] == ["a", "b", "c", ""]
    notes.clear()
    stream = model.stream("?")
    assert (await anext(stream)).text == "a"
    assert speaker.open == 1
    await stream.aclose()  # type: ignore[attr-defined]
    assert speaker.open == 0
    assert notes == ["outer in", "inner in", "speaker closed", "inner out", "outer out"]


@pytest.mark.parametrize("pieces", [False, True])
async def test_the_class_of_an_output_is_read_outermost(pieces: bool) -> None:
    seen: list[Any] = []

    class Look(Hook):
        async def after(self, request: ModelRequest, reply: Reply) -> Reply | None:
            seen.append(reply.parsed)
            return reply.model_copy(update={"text": reply.text.replace("1", "7")})

    model = with_middleware(Speaker(['{"a": 1,', ' "b": 2}']), Look())
    if pieces:
        reply = [event async for event in model.stream("?", output=Pair)][-1].reply
        assert reply is not None
    else:
        reply = await model.complete("?", output=Pair)
    assert reply.parsed == Pair(a=7, b=2)
    # A model that reads the schema's JSON itself is not believed: a layer may change the text.
    assert (
        await with_middleware(ScriptedModel(['{"a": 1, "b": 2}']), Look()).complete("?", output=Pair)
    ).parsed == reply.parsed
    assert seen == [None, None]
    with pytest.raises(AgentError, match="not a valid Pair"):
        await with_middleware(Speaker(["no"])).complete("?", output=Pair)


async def test_what_the_model_says_of_itself_goes_through() -> None:
    class Own(Speaker):
        retry = Retry(attempts=7)
        price = "cheap"

    notes: list[str] = []
    inner, other = Own(["x"], notes=notes), Speaker(["y"], name="other", notes=notes)
    async with with_middleware(inner, Fallback(other)) as model:
        assert (model.name, model.retry, model.price) == ("speaker", Retry(attempts=7), "cheap")
        assert model.members == (inner, other)
    assert (inner.gone, other.gone) == (True, True)
    assert with_middleware(ScriptedModel([])).price is None
    with pytest.raises(TypeError, match="not a Middleware"):
        with_middleware(inner, Cache)  # type: ignore[arg-type]


async def test_a_hook_changes_the_request_the_reply_and_the_error() -> None:
    class Polite(Hook):
        async def before(self, request: ModelRequest) -> ModelRequest | Reply | None:
            if request.messages[-1].content == "Who?":
                return Reply(text="me")
            return ModelRequest.of([system("Be polite."), *request.messages], task=request.task)

        async def after(self, request: ModelRequest, reply: Reply) -> Reply | None:
            assert request.messages[0].content == "Be polite."
            return reply.model_copy(update={"text": reply.text + ", please"})

        async def failed(self, request: ModelRequest, error: Exception) -> Reply | None:
            return Reply(text="sorry") if isinstance(error, ModelUnavailable) else None

    inner = ScriptedModel(["go", ModelUnavailable("down"), ModelError("broken")])
    model = with_middleware(inner, Polite())
    assert [(await model.complete(words)).text for words in ("Do!", "Who?", "Do!")] == ["go, please", "me", "sorry"]
    with pytest.raises(ModelError, match="broken"):
        await model.complete("Do!")
    assert len(inner.requests) == 3


async def test_a_layer_may_ask_again() -> None:
    class Twice(Middleware):
        async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
            try:
                async for event in ask(request):
                    yield event
            except ModelUnavailable:
                async for event in ask(request):
                    yield event

    model = with_middleware(ScriptedModel([ModelUnavailable("down"), "up"]), Twice())
    assert (await model.complete("?")).text == "up"


async def test_a_layer_that_says_nothing_is_an_error() -> None:
    class Mute(Middleware):
        async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
            for event in ():
                yield event

    with pytest.raises(ModelError, match="before the reply was complete"):
        await with_middleware(ScriptedModel([]), Mute()).complete("?")


# -- cache ---------------------------------------------------------------------------------------------------------


async def test_an_equal_request_is_answered_from_the_cache_and_not_paid_again(tmp_path: Path) -> None:
    for store in (None, tmp_path / "replies"):
        inner = ScriptedModel([Reply(text="4", usage=Usage(input_tokens=3), details={"id": "x"}), "other", "warm"])
        cache = Cache(store)
        model = with_middleware(inner, cache)
        first, second = await model.complete("2 + 2?"), await model.complete("2 + 2?")
        assert (first.usage, first.details) == (Usage(input_tokens=3), {"id": "x"})
        assert (second.text, second.usage, second.details) == ("4", None, {"id": "x", "cached": True})
        assert [event.reply.text async for event in model.stream("2 + 2?") if event.reply] == ["4"]
        assert (await model.complete("3 + 3?")).text == "other"
        assert (await model.complete("2 + 2?", temperature=1)).text == "warm"
        told = cache.statistics()
        assert (told.hits, told.misses, told.entries) == (2, 3, 3)
        inner.assert_done()


async def test_a_directory_serves_further_processes_and_survives_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await with_middleware(ScriptedModel(["4"]), Cache(tmp_path / "c")).complete("2 + 2?")
    (file,) = (tmp_path / "c").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (await with_middleware(ScriptedModel([]), Cache(tmp_path / "c")).complete("2 + 2?")).text == "4"
    for damage in ("{", "[]", "{}", '{"at": 0, "reply": {"txt": 1}}', '{"at": "x", "reply": {}}', "\udcff"):
        file.write_bytes(damage.encode("utf-8", "surrogateescape"))
        caplog.clear()
        assert (await with_middleware(ScriptedModel(["5"]), Cache(tmp_path / "c")).complete("2 + 2?")).text == "5"
        assert "cannot be read" in caplog.text
    assert (await with_middleware(ScriptedModel([]), Cache(tmp_path / "c")).complete("2 + 2?")).text == "5"


async def test_a_cache_that_cannot_be_written_costs_calls_and_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    model = with_middleware(ScriptedModel(["a", "b"]), Cache(tmp_path / "file"))
    assert [(await model.complete("?")).text for _ in range(2)] == ["a", "b"]
    assert "cannot be stored" in caplog.text


async def test_old_replies_go_and_so_do_those_used_longest_ago(tmp_path: Path) -> None:
    now = [0.0]
    inner = ScriptedModel(lambda request: f"{len(inner.requests)}")
    model = with_middleware(inner, Cache(ttl=10, clock=lambda: now[0]))
    texts = []
    for now[0] in (0.0, 9.9, 10.0, 19.9):
        texts.append((await model.complete("?")).text)
    assert texts == ["1", "1", "2", "2"]
    for store in (None, tmp_path / "c"):
        inner = ScriptedModel(lambda request: f"{len(inner.requests)}")  # noqa: B023
        cache = Cache(store, max_entries=2)
        model = with_middleware(inner, cache)
        for number, question in enumerate(["a", "b", "a", "c", "a", "b"]):
            await model.complete(question)
            for file in (tmp_path / "c").glob("*.json"):  # clocks of file systems are coarse
                if file.stat().st_mtime > 1e6:
                    os.utime(file, (number, number))
        assert (cache.statistics().hits, cache.statistics().entries) == (2, 2)  # `b` was used longest ago
    with pytest.raises(ValueError, match="at least one"):
        Cache(max_entries=0)


CALL = ToolCall(id="1", name="add", arguments={"a": 1})
TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    "reply",
    [
        Reply(text="cut", finish="length"),
        Reply(text="", finish="content_filter"),
        Reply(text="I must not", finish="refusal"),
        Reply(tool_calls=(CALL.model_copy(update={"arguments": None}),)),
        Reply(tool_calls=(CALL.model_copy(update={"name": "sub"}),)),
        Reply(text="no JSON"),
    ],
)
async def test_a_reply_that_cannot_be_used_is_not_kept(reply: Reply) -> None:
    good = Reply(text="{}")
    model = with_middleware(ScriptedModel([reply, good]), Cache())
    for expected in (reply, good, good):
        assert (await model.complete("?", [TOOL], {"type": "object"})).text == expected.text


async def test_equal_requests_at_the_same_time_share_one_call() -> None:
    speaker = Speaker(["yes"], wait=True)
    cache = Cache()
    model = with_middleware(speaker, cache)
    replies: list[Reply] = []

    async def ask() -> None:
        replies.append(await model.complete("?"))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
            await speaker.asked.wait()
            speaker.go.set()
    assert (speaker.calls, len(replies), cache.statistics().shared) == (1, 5, 4)
    assert sum(reply.usage is not None for reply in replies) == 1


async def test_the_cancellation_of_the_first_fails_no_other() -> None:
    speaker = Speaker(["yes"], wait=True)
    model = with_middleware(speaker, Cache())
    replies: list[Reply] = []

    async def ask() -> None:
        replies.append(await model.complete("?"))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as others:
            async with anyio.create_task_group() as first:
                first.start_soon(ask)
                await speaker.asked.wait()
                others.start_soon(ask)
                others.start_soon(ask)
                for _ in range(5):
                    await checkpoint()
                assert speaker.calls == 1
                first.cancel_scope.cancel()
            speaker.go.set()
    assert [reply.text for reply in replies] == ["yes", "yes"]
    assert speaker.calls == 2


async def test_a_shared_call_that_fails_fails_for_all_and_is_not_kept() -> None:
    speaker = Speaker([], wait=True)
    cache = Cache()
    model = with_middleware(speaker, cache)
    errors: list[str] = []

    async def ask() -> None:
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete("?")
        errors.append(str(caught.value))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
            await speaker.asked.wait()
            speaker.go.set()
    assert (speaker.calls, errors) == (1, ["nothing to say"] * 2)
    assert cache.statistics().entries == 0


TEXTS = st.sampled_from(["", "m", "?"]) | st.text(max_size=8)


async def test_a_scope_tells_models_apart_that_have_one_name(tmp_path: Path) -> None:
    for scope, text in (("cold", "1"), ("warm", "2")):
        model = with_middleware(ScriptedModel([text]), Cache(tmp_path, scope=scope))
        assert [(await model.complete("?")).text for _ in range(2)] == [text, text]


@settings(max_examples=sized(15, 40))
@given(one=TEXTS, other=TEXTS, name=TEXTS, scope=st.sampled_from(["", "x"]), option=st.integers(0, 1))
def test_only_equal_requests_meet(one: str, other: str, name: str, scope: str, option: int) -> None:
    """Equal data, name and scope: one call. Anything else: two."""

    async def run() -> tuple[int, bool]:
        cache = Cache()
        first, second = ScriptedModel(lambda _: "1", name="m"), ScriptedModel(lambda _: "2", name=name or "m")
        await with_middleware(first, cache).complete(one, n=0)
        cache._scope = scope
        await with_middleware(second, cache).complete(other, n=option)
        return len(second.requests), (one, "m", "", 0) == (other, name or "m", scope, option)

    calls, equal = anyio.run(run)
    assert calls == (0 if equal else 1)


async def test_with_a_cache_the_second_run_makes_no_request_and_journals_its_replies() -> None:
    with served(said("Hello.", usage={"prompt_tokens": 5, "completion_tokens": 2})) as wire:
        async with with_middleware(OpenAIModel("m", wire.url), Cache()) as model, Executor(model=model) as executor:
            runs = [await executor.start(asking(), "x") for _ in range(2)]
        assert len(wire.seen) == 1
    assert [run.output for run in runs] == [["Hello."], ["Hello."]]
    assert [run.usage.tokens for run in runs] == [7, 0]


# -- log -----------------------------------------------------------------------------------------------------------


async def test_requests_and_replies_are_logged_in_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    inner = ScriptedModel(
        [
            Reply(text="a\nb\x1b[31m" + "c" * 500, usage=Usage(input_tokens=12345, output_tokens=6)),
            [CALL],
            ModelUnavailable("down: Bearer abcdefghijklmnop"),
        ]
    )
    model = with_middleware(inner, Logged(length=80))
    calling_node.set("plan")
    await model.complete("my key is sk-abcdefghijklmnopqrstuvwx", [TOOL])
    await model.complete("?" * 65 + " sk-abcdefghijklmnopqrstuvwx")  # the cut would halve it
    with pytest.raises(ModelUnavailable):
        await model.complete("?")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "model 'scripted' is asked by 'plan': 1 messages, 1 tools: user 'my key is [redacted]'"
    assert lines[1].startswith("model 'scripted' replied to 'plan' in 0.")
    assert r"s: stop, 12345 tokens in and 6 out: 'a\nb\x1b[31mccc" in lines[1]
    assert len(lines[1]) < 250
    assert """'', calls 'add({"a": 1})'""" in lines[3]
    assert lines[5].startswith("model 'scripted' failed for 'plan' after 0.")
    assert "ModelUnavailable: 'down: Bearer [redacted]'" in lines[5]
    assert caplog.records[5].levelno == logging.WARNING
    assert all("\n" not in line and "abcdefgh" not in line for line in lines)


async def test_content_may_be_left_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logger = logging.getLogger("mine")
    model = with_middleware(Speaker(["private"]), Logged(logger, logging.DEBUG, content=False))
    await model.complete("secret question")
    stream = model.stream("secret question")
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert {record.name for record in caplog.records} == {"mine"}
    assert "private" not in caplog.text
    assert "question" not in caplog.text
    assert "was left" in caplog.records[-1].getMessage()


# -- fallback ------------------------------------------------------------------------------------------------------


async def test_another_model_answers_and_the_reply_says_so() -> None:
    first, second = ScriptedModel([ModelUnavailable("too\nbusy")], name="a"), ScriptedModel(["hi"], name="b")
    reply = await with_middleware(first, Fallback(second)).complete("?", temperature=1, task="think")
    assert (reply.text, reply.model) == ("hi", "b")
    assert reply.details == {"fallback": {"model": "b", "after": "ModelUnavailable: too busy"}}
    assert second.requests == first.requests
    plain = await with_middleware(ScriptedModel(["hi"]), Fallback(second)).complete("?")
    assert plain.details == {}


async def test_after_the_first_piece_an_error_passes() -> None:
    model = with_middleware(Speaker(["a", ModelUnavailable("broke off")]), Fallback(ScriptedModel([])))
    broken = model.stream("?")
    assert (await anext(broken)).text == "a"
    with pytest.raises(ModelUnavailable, match="broke off"):
        await anext(broken)
    other = Speaker(["x", "y"])
    model = with_middleware(Speaker([ModelUnavailable("down")]), Fallback(other))
    stream = model.stream("?")
    assert (await anext(stream)).text == "x"
    await stream.aclose()  # type: ignore[attr-defined]
    assert other.open == 0


async def test_when_all_fail_the_error_tells_of_each_and_can_be_retried_if_one_can() -> None:
    first = ScriptedModel([ModelUnavailable("busy", retry_after=9), ModelError("no")], name="a")
    second = ScriptedModel([ModelError("bad key"), ModelError("bad key")], name="b")
    third = ScriptedModel([ModelUnavailable("slow", retry_after=4), ModelError("no")], name="c")
    model = with_middleware(first, Fallback(second, third))
    with pytest.raises(ModelUnavailable) as caught:
        await model.complete("?")
    words = "all 3 models failed: 'a': ModelUnavailable: busy; 'b': ModelError: bad key; 'c': ModelUnavailable: slow"
    assert (str(caught.value), caught.value.retry_after) == (words, 4)
    with pytest.raises(ModelError) as final:
        await model.complete("?")
    assert not final.value.retryable


async def test_when_one_needs_a_shorter_request_and_none_can_be_retried_the_request_is_too_long() -> None:
    model = with_middleware(
        ScriptedModel([RequestTooLong("long")]), Fallback(ScriptedModel([ModelMisconfigured("key")]))
    )
    with pytest.raises(RequestTooLong, match="all 2 models failed"):
        await model.complete("?")


async def test_errors_of_other_kinds_pass() -> None:
    model = with_middleware(ScriptedModel([ModelError("no")]), Fallback(ScriptedModel([]), on=(ModelUnavailable,)))
    with pytest.raises(ModelError, match="no"):
        await model.complete("?")
    with pytest.raises(TypeError, match="at least one"):
        Fallback()


async def test_a_fallback_is_one_effect_and_another_call_for_the_servers() -> None:
    with served(refused(503, "busy")) as bad, served(said("Hello.")) as good:
        inner, other = OpenAIModel("a", bad.url), OpenAIModel("b", good.url)
        async with with_middleware(inner, Fallback(other)) as model, Executor(model=model) as executor:
            run = await executor.start(asking(), "x")
            settled = [e.data async for e in executor.events(run.run_id) if e.type == "effect_settled"]
    assert run.output == ["Hello."]
    assert [data["result"]["details"]["fallback"]["model"] for data in settled] == ["b"]
    keys = [wire.seen[0].headers["idempotency-key"] for wire in (bad, good)]
    assert keys[1] == f"{keys[0]}-1"
    assert calling_key.get() is None


# -- rate limit ----------------------------------------------------------------------------------------------------


def in_mock_time(function: Callable[[], Any]) -> Any:
    """Run it in a loop in which nothing but waiting takes time."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    return anyio.run(function, backend="trio", backend_options={"clock": clock})


@settings(max_examples=sized(20, 60))
@given(
    requests=st.none() | st.integers(1, 4),
    concurrency=st.none() | st.integers(1, 3),
    tokens=st.none() | st.integers(50, 400),
    calls=st.lists(
        st.tuples(st.sampled_from([0.0, 0.3, 1.0, 7.0]), st.sampled_from([0.0, 0.5, 4.0, 30.0]), st.integers(0, 200),
                  st.sampled_from(["ok", "ok", "ok", "fails", "left"])),
        min_size=1, max_size=14,
    ),
)  # fmt: skip
def test_no_window_holds_more_than_was_allowed(
    requests: int | None, concurrency: int | None, tokens: int | None, calls: list[tuple[float, float, int, str]]
) -> None:
    """Whatever comes, lasts, fails or is cancelled: the bounds hold, order is kept, nothing hangs or stays behind."""
    per = 10.0

    async def run() -> None:
        limit = RateLimit(requests, per, tokens=tokens, concurrency=concurrency, clock=anyio.current_time)
        began: list[tuple[float, int]] = []
        spent: list[tuple[float, int]] = []
        running: Counter[str] = Counter()

        class Busy(ScriptedModel):
            async def respond(self, request: ModelRequest) -> Reply:
                number = int(request.messages[0].content)
                _, lasts, cost, end = calls[number]
                running["now"] += 1
                began.append((anyio.current_time(), number))
                assert running["now"] <= (concurrency or 99)
                if tokens is not None:
                    assert sum(c for at, c in spent if at > anyio.current_time() - per + 1e-9) < tokens
                try:
                    await anyio.sleep(lasts)
                finally:
                    running["now"] -= 1
                if end == "fails":
                    raise ModelError("no")
                spent.append((anyio.current_time(), cost))
                return Reply(text="x", usage=Usage(output_tokens=cost))

        model = with_middleware(Busy([]), limit)

        async def ask(number: int) -> None:
            with anyio.move_on_after(2.0 if calls[number][3] == "left" else float("inf")):
                with suppress(ModelError):
                    await model.complete(str(number))

        with anyio.fail_after(10_000):
            async with anyio.create_task_group() as tasks:
                for number, (pause, *_) in enumerate(calls):
                    await anyio.sleep(pause)
                    tasks.start_soon(ask, number)
                    await trio.testing.wait_all_tasks_blocked()
        times = [at for at, _ in began]
        if requests is not None:
            assert all(later - at >= per - 1e-9 for at, later in zip(times, times[requests:], strict=False))
        assert [number for _, number in began] == sorted(number for _, number in began)
        told = limit.statistics()
        assert (told.waiting, told.running) == (0, 0)
        assert {n for n, call in enumerate(calls) if call[3] != "left"} <= {number for _, number in began}

    in_mock_time(run)


def test_one_that_is_larger_than_the_budget_begins_alone() -> None:
    async def run() -> float:
        limit = RateLimit(tokens=10, per=10, clock=anyio.current_time)
        model = with_middleware(ScriptedModel(lambda _: Reply(text="x", usage=Usage(input_tokens=4))), limit)
        await model.complete("a" * 1000)
        began = anyio.current_time()
        await model.complete("b" * 1000)
        return anyio.current_time() - began

    assert in_mock_time(run) == 10


def test_what_runs_may_spend_what_failed_did_not_and_nobody_overtakes() -> None:
    async def run() -> list[tuple[str, float]]:
        limit = RateLimit(tokens=100, per=10, clock=anyio.current_time)
        began: list[tuple[str, float]] = []
        start = anyio.current_time()

        async def answer(request: ModelRequest) -> Reply:
            name = request.messages[0].content[0]
            began.append((name, anyio.current_time() - start))
            await anyio.sleep(1)
            if name == "f":
                raise ModelError("no")
            return Reply(text="x", usage=Usage(input_tokens=60))

        model = with_middleware(ScriptedModel(answer), limit)

        async def ask(words: str) -> None:
            with suppress(ModelError):
                await model.complete(words)

        async with anyio.create_task_group() as tasks:
            for words in ("f" * 250, "a" * 250, "b" * 250, "c"):
                tasks.start_soon(ask, words)
                await trio.testing.wait_all_tasks_blocked()
        return began

    # `a` waits while `f` runs, `b` for the tokens of `a`, and `c`, which would fit, for `b`.
    assert in_mock_time(run) == [("f", 0), ("a", 1), ("b", 12), ("c", 12)]


def test_a_server_that_asks_to_wait_holds_back_the_others() -> None:
    async def run(asks: float) -> tuple[float, float]:
        limit = RateLimit(concurrency=5, clock=anyio.current_time)
        inner = ScriptedModel([ModelUnavailable("busy", retry_after=asks), "a"])
        with pytest.raises(ModelUnavailable):
            await with_middleware(inner, limit).complete("?")
        held, began = limit.statistics().held, anyio.current_time()
        await with_middleware(ScriptedModel(["b"]), limit).complete("?")
        return held, anyio.current_time() - began

    assert in_mock_time(lambda: run(7)) == (7, 7)
    assert in_mock_time(lambda: run(3600)) == (60, 60)


async def test_a_slot_is_held_until_the_stream_is_closed() -> None:
    limit = RateLimit(concurrency=1)
    model = with_middleware(Speaker(["a", "b"]), limit)
    stream = model.stream("?")
    await anext(stream)
    assert limit.statistics().running == 1
    with anyio.move_on_after(0.01) as waited:
        await model.complete("?")
    assert waited.cancelled_caught
    assert limit.statistics().waiting == 0
    await stream.aclose()  # type: ignore[attr-defined]
    assert (await model.complete("?")).text == "ab"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_one_limit_holds_for_the_event_loops_of_several_threads(backend: str) -> None:
    limit = RateLimit(concurrency=1)
    lock = threading.Lock()
    overlaps: list[bool] = []

    class Exclusive(ScriptedModel):
        async def respond(self, request: ModelRequest) -> Reply:
            overlaps.append(not lock.acquire(blocking=False))
            await anyio.sleep(0.001)
            lock.release()
            return Reply(text="x")

    async def many() -> None:
        model = with_middleware(Exclusive([]), limit)
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(model.complete, "?")

    threads = [threading.Thread(target=anyio.run, args=(many,), kwargs={"backend": backend}) for _ in range(2)]
    for thread in threads:
        thread.start()
    with anyio.fail_after(30):
        await many()
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join)
    assert overlaps == [False] * 30
    assert limit.statistics().waiting == limit.statistics().running == 0


async def test_two_runs_share_a_limit() -> None:
    together: list[int] = []
    inside = 0
    lock = threading.Lock()

    def answer(seen: Seen) -> dict[str, Any]:
        nonlocal inside
        with lock:
            inside += 1
            together.append(inside)
        threading.Event().wait(0.005)
        with lock:
            inside -= 1
        return said("Hello.")

    limit = RateLimit(concurrency=1)
    with served(answer) as wire:
        one, other = OpenAIModel("a", wire.url), OpenAIModel("b", wire.url)
        async with with_middleware(one, limit) as first, with_middleware(other, limit) as second:

            async def run(model: Any) -> None:
                assert (await asking(times=3).run("x", model=model)).status == "completed"

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run, first)
                tasks.start_soon(run, second)
    assert together == [1] * 6


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("wrong", [{"requests": 0}, {"per": 0}, {"tokens": -1}, {"concurrency": 0}])
async def test_a_limit_that_lets_nothing_through_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"RateLimit\\({next(iter(wrong))}="):
        RateLimit(**wrong)


async def test_pieces_are_told_of_in_a_run_also_through_layers() -> None:
    @node
    async def work(state: Log, ctx: Context) -> dict[str, Any]:
        return {"log": "-".join([event.text async for event in ctx.model.stream("?") if event.text])}

    model = with_middleware(Speaker(["a", "b"]), Logged(), RateLimit(concurrency=1), Cache(), Fallback(Speaker([])))
    run = await single(work).run("x", model=model)
    assert run.output == ["a-b"]
