"""One door for values: what a run accepts can be read back equal; the rest is refused by name, and leaves no record."""

from __future__ import annotations

import itertools
import json
import math
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from pydantic import BaseModel, JsonValue

from orchestrator import Context, Executor, Graph, ToolCall, ToolResult, append, errors, node, tool
from orchestrator.errors import InvalidValue
from orchestrator.executor.calls.effect import INSIDE
from orchestrator.graph.limits import Usage
from orchestrator.kernel.records import EffectSettled, StepDone, decode, encode
from orchestrator.models import Reply
from orchestrator.nodes import Ask
from orchestrator.stores import Store, open_store
from orchestrator.testing import ScriptedModel
from orchestrator.values import FOREIGN_DEPTH, MAX_BYTES, MAX_DEPTH, MAX_DIGITS, Unfit, check
from tests.support.sizes import in_turn, sized

pytestmark = pytest.mark.anyio


class State(BaseModel):
    any: Any = None
    typed: JsonValue = None
    log: Annotated[list[Any], append] = []
    wanted: int = MAX_DEPTH


def lists(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def objects(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def mixed(levels: int) -> Any:
    value: Any = {} if levels else 1
    for level in range(levels - 1):
        value = [1, value] if level % 2 else {"a": "[[[{{", "b": value}
    return value


SHAPES: list[Callable[[int], Any]] = [lists, objects, mixed]


STORES = ("memory://", "sqlite")


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db" if request.param == "sqlite" else str(request.param)


def is_refusal(kind: str) -> bool:
    """Whether an error of a run, by its name, is the one for values that are refused."""
    return issubclass(getattr(errors, kind), InvalidValue)


def graph_of(work: Any) -> Graph:
    return Graph(name="g", state=State, nodes={"work": node(work)}, edges="START -> work -> END", output="any")


# -- the bounds, exactly -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "url"), in_turn(SHAPES, STORES), indirect=["url"])
async def test_the_deepest_value_is_accepted_at_every_door_and_read_back(shape: Callable[[int], Any], url: str) -> None:
    deepest, foreign, seen = shape(MAX_DEPTH), shape(FOREIGN_DEPTH), dict[str, Any]()

    @tool(name="f", risk="none", effect="irreversible")
    def f(a: Any) -> Any:
        """Give what is deepest."""
        return foreign

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        seen["effect"] = await ctx.effect("e", lambda *args: deepest, deepest, deepest, returns=Any)
        seen["tool"] = await ctx.tool("f", a=shape(MAX_DEPTH - 1))
        seen["reply"] = await ctx.model.complete("?")
        await ctx.emit("e", deepest)
        answer = await ctx.ask("input", payload={"a": deepest})
        seen["answer"] = answer.value
        return {"any": deepest, "typed": deepest, "log": shape(MAX_DEPTH - 1)}

    call = ToolCall(id="1", name="f", arguments={"a": shape(FOREIGN_DEPTH - 1)})
    graph = graph_of(work)
    store = open_store(url)
    async with Executor(store, graphs=[graph], tools=[f], model=ScriptedModel([Reply(tool_calls=(call,))])) as ex:
        paused = await ex.start(graph, {"any": deepest, "typed": deepest}, refs={"a": deepest}, run_id="r")
        assert paused.status == "paused", paused.error
        assert (await ex.load("r")).waiting[0].payload == {"a": deepest}
        run = await ex.answer("r", paused.waiting[0].id, deepest)
        assert run.status == "completed", run.error
        again = await ex.load("r")
        assert again.values == run.values
        assert (again.values["any"], again.values["log"], again.output) == (deepest, [shape(MAX_DEPTH - 1)], deepest)
    assert (seen["effect"], seen["tool"].output, seen["answer"]) == (deepest, foreign, deepest)
    assert seen["reply"].tool_calls == (call,)
    assert len(await store.read("r")) == again.seq
    await store.close()


async def refused(url: str, work: Any, given: Any = None, tools: Any = (), model: Any = None) -> Any:
    """A run of a node that is refused something: it failed by that, and can be loaded."""
    async with Executor(url, graphs=[graph := graph_of(work)], tools=tools, model=model) as ex:
        run = await ex.start(graph, given or {})
        assert (run.status, is_refusal(run.error.type)) == ("failed", True), run.error
        again = await ex.load(run.run_id)
        assert (again.error, again.seq) == (run.error, run.seq)
        records = await ex.store.read(run.run_id)
        assert not [one for one in records if isinstance(one, StepDone)]
    return run.error


UNFIT: dict[str, tuple[Any, str]] = {
    "too deep": (lists(MAX_DEPTH + 1), "nested too deeply"),
    "far too deep": (objects(300), "nested too deeply"),
    "deeper than Python goes": (lists(5_000), "nested too deeply"),
    "NaN": ({"a": [math.nan]}, "not a number that JSON can represent"),
    "half a pair": ({"a": "\ud800"}, "an unpaired surrogate"),
    "a key of half a pair": ({"\udfff": 1}, "an unpaired surrogate"),
    "bytes": ({"a": b"\xff"}, "cannot be written as JSON|no JSON form"),
    "an object": ({"a": object()}, "cannot be written as JSON|no JSON form"),
    "a long number": ({"a": 10**MAX_DIGITS}, "more than 4,300 digits"),
    "keys that become one": ({1: "a", "1": "b"}, "two of its keys are equal"),
}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("what", "url"), in_turn(UNFIT, STORES), indirect=["url"])
async def test_what_cannot_be_read_back_is_refused_at_every_door_before_it_is_journaled(what: str, url: str) -> None:
    value, words = UNFIT[what]
    calls: list[Any] = []

    @tool(name="f", risk="none", effect="irreversible")
    def f(a: Any) -> None:
        """Do nothing."""
        calls.append(a)

    async def update(ctx: Context) -> dict[str, Any]:
        return {"any": value}

    async def item(ctx: Context) -> dict[str, Any]:
        return {"log": value}

    async def argument(ctx: Context) -> None:
        await ctx.effect("e", calls.append, value, returns=type(None))

    async def call(ctx: Context) -> None:
        await ctx.tool("f", a=value)

    async def payload(ctx: Context) -> None:
        await ctx.ask("input", payload={"a": value})

    async def schema(ctx: Context) -> None:
        await ctx.ask("input", schema={"default": value})

    async def request(ctx: Context) -> None:
        await ctx.model.complete("?", odd=_wrapped(value, INSIDE))

    for work in (update, item, argument, call, payload, schema, request):
        if work is request and "one" in what:
            continue  # pydantic writes requests, and makes one of them without a word
        error = await refused(url, work, tools=[f], model=ScriptedModel(["x"]))
        assert any(part in error.message for part in words.split("|")), error
    async with Executor(url) as ex:
        known = len((await ex.runs()).runs)
        with pytest.raises(InvalidValue):
            await ex.start(graph_of(update), {"any": value})
        with pytest.raises(InvalidValue, match="refs"):
            await ex.start(graph_of(update), refs={"a": value})
        assert len((await ex.runs()).runs) == known
    assert not calls


async def test_a_result_of_an_effect_that_cannot_be_kept_fails_the_call_and_is_not_made_again(url: str) -> None:
    calls: list[int] = []

    def fn() -> Any:
        calls.append(1)
        return lists(MAX_DEPTH + 1)

    async def work(ctx: Context) -> None:
        await ctx.effect("e", fn, returns=Any, effect="irreversible")

    error = await refused(url, work)
    assert "effect 'e'" in error.message
    assert "nested too deeply" in error.message
    assert calls == [1]


async def test_values_that_are_too_large_are_refused(url: str) -> None:
    large = "x" * (MAX_BYTES + 1)

    async def work(ctx: Context) -> dict[str, Any]:
        return {"any": large}

    error = await refused(url, work)
    assert "67,108,865 bytes" in error.message or "67,108,867 bytes" in error.message


class HalfDefault(BaseModel):
    text: str = "\ud800"


class NoNumber(BaseModel):
    any: Any = math.nan


class DeepDefault(BaseModel):
    any: Any = lists(MAX_DEPTH + 1)


GRAPHS: dict[str, tuple[dict[str, Any], str]] = {
    "a default text": ({"state": HalfDefault}, "an unpaired surrogate"),
    "a default number": ({"state": NoNumber}, "not a number that JSON can represent"),
    "a default too deep": ({"state": DeepDefault}, "the limit is 160 levels"),
    "a description": ({"description": "\ud800"}, r"at \['description'\]: the text contains an unpaired surrogate"),
    "a prompt": (
        {"nodes": {"work": Ask(prompt="\ud800", answer="any")}},
        r"at \['nodes'\]\['work'\]\['prompt'\]: the text contains an unpaired surrogate",
    ),
}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("what", "url"), in_turn(GRAPHS, STORES), indirect=["url"])
async def test_a_graph_whose_data_cannot_be_stored_begins_no_run(what: str, url: str) -> None:
    changes, words = GRAPHS[what]
    fields = {"name": "g", "state": State, "nodes": {"work": node(lambda: None)}, "edges": "START -> work -> END"}
    async with Executor(url) as ex:
        with pytest.raises(InvalidValue, match=words):
            await ex.start(Graph(**(fields | changes)))
        assert (await ex.runs()).runs == ()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("door", ["runs", "load", "wait", "resume", "delete", "cancel"])
async def test_a_text_that_no_store_holds_is_named_wherever_it_is_looked_for(door: str, url: str) -> None:
    async with Executor(url) as ex:
        await ex.start(graph_of(lambda: None))
        with pytest.raises((InvalidValue, errors.RunUnknown)):
            await (ex.runs(graph="\ud800") if door == "runs" else getattr(ex, door)("\ud800"))


# -- what others give: a call that was made is never lost, and no run with it ----------------------------------------


DEEP = FOREIGN_DEPTH + 1
GIVEN: dict[str, tuple[Any, str | None]] = {
    "a level too deep": (lambda: lists(DEEP), "the limit is 100 levels"),
    "as deep as a record could be written once": (lambda: lists(254), "the limit is 100 levels"),
    "deeper than pydantic goes": (lambda: lists(300), "the limit is 100 levels"),
    "deeper than Python goes": (lambda: lists(3_000), "the limit is 100 levels"),
    "in a result": (lambda: ToolResult(output=lists(DEEP)), "the limit is 100 levels"),
    "in a result's metadata": (lambda: ToolResult(output="x", metadata={"a": lists(200)}), None),
    "a long number": (lambda: [10**MAX_DIGITS], None),
    "a long number in a result": (lambda: ToolResult(output=[10**MAX_DIGITS]), None),
    "half a pair": (lambda: ["a\ud800"], None),
}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("what", "effect", "url"), in_turn(GIVEN, ("pure", "irreversible"), STORES), indirect=["url"])
async def test_a_result_that_cannot_be_kept_is_a_failed_result_and_the_run_goes_on(
    what: str, effect: Any, url: str
) -> None:
    make, words = GIVEN[what]
    calls: list[int] = []

    @tool(name="f", risk="none", effect=effect)
    def f() -> Any:
        """Give something odd."""
        calls.append(1)
        return make()

    async def work(ctx: Context) -> dict[str, Any]:
        return {"any": (await ctx.tool("f")).model_dump(mode="json")}

    async with Executor(url, tools=[f]) as ex:
        run = await ex.start(graph_of(work))
        assert run.status == "completed", run.error
        again = await ex.load(run.run_id)
        assert again.output == run.output
        (settled,) = [one for one in await ex.store.read(run.run_id) if isinstance(one, EffectSettled)]
    refused = effect == "irreversible" and words is not None
    assert (settled.ok, settled.unknown, settled.returned is not None, calls) == (not refused, refused, refused, [1])
    if words is None:
        assert run.output["error"] is None
    else:
        assert words in run.output["error"]
        assert run.output["exit_code"] == 1
    if what == "half a pair":
        assert (run.output["output"], run.output["metadata"]) == (
            ["a\ufffd"],
            {"replaced": "unpaired surrogates"},
        )


class Odd:
    """A model of another package: nothing of what it says was checked."""

    name = "odd"

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    async def complete(self, *args: Any, **kwargs: Any) -> Reply:
        return self.reply

    def stream(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def calling(arguments: dict[str, Any]) -> Reply:
    return Reply(tool_calls=(ToolCall.model_construct(id="1", name="f", arguments=arguments, raw="", extras={}),))


SAID: dict[str, tuple[Reply, str]] = {
    "arguments a level too deep": (calling(objects(DEEP)), "the call of 'f', arguments: left out, it is nested"),
    "arguments as deep as could be written once": (calling(objects(250)), "the call of 'f', arguments: left out"),
    "arguments far too deep": (calling(objects(2_000)), "the call of 'f', arguments: left out"),
    "arguments with NaN": (calling({"a": math.nan}), "the call of 'f', arguments: left out, at ['a']: nan"),
    "a number too long": (calling({"a": 10**MAX_DIGITS}), "the call of 'f', arguments: left out"),
    "extras": (Reply.model_construct(text="x", extras={"a": lists(DEEP), "b": 1}), "extras, a: left out"),
    "details": (Reply.model_construct(text="x", details={"a": math.inf}), "details, a: left out"),
    "half a pair": (Reply(text="x\udfff"), "text: half a surrogate pair was replaced"),
    "a cost without an end": (Reply(text="x", usage=Usage(cost=math.inf)), "usage: left out"),
    "a count too long": (Reply(text="x", usage=Usage(input_tokens=10**MAX_DIGITS)), "usage: left out"),
    "a count that no store takes": (Reply(text="x", usage=Usage(output_tokens=1 << 63)), "usage: left out"),
}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("what", "url"), in_turn(SAID, STORES), indirect=["url"])
async def test_an_odd_reply_is_kept_without_what_is_odd_and_says_so(what: str, url: str) -> None:
    reply, words = SAID[what]

    async def work(ctx: Context) -> dict[str, Any]:
        return {"any": (await ctx.model.complete("?")).data()}

    async with Executor(url, model=Odd(reply)) as ex:
        run = await ex.start(graph_of(work))
        assert run.status == "completed", run.error
        assert (await ex.load(run.run_id)).output == run.output
        assert await ex.store.read(run.run_id)
    (altered,) = run.output["details"]["altered"]
    assert altered.startswith(words)
    if "arguments" in what:
        (call,) = run.output["tool_calls"]
        assert "arguments" not in call
        assert call["raw"].startswith("[arguments that cannot be stored: ")


@pytest.mark.parametrize("seconds", [math.inf, math.nan])
async def test_a_wait_without_an_end_that_a_server_asks_for_destroys_no_run(seconds: float, url: str) -> None:
    class Busy(Odd):
        async def complete(self, *args: Any, **kwargs: Any) -> Reply:
            raise errors.ModelUnavailable("busy", retry_after=seconds)

    async def work(ctx: Context) -> dict[str, Any]:
        try:
            await ctx.model.complete("?")
        except errors.ModelUnavailable as error:
            return {"any": str(error)}
        raise AssertionError

    async with Executor(url, model=Busy(Reply())) as ex:
        run = await ex.start(graph_of(work))
        assert run.output == "busy", run.error
        assert (await ex.load(run.run_id)).output == "busy"


# -- anything ----------------------------------------------------------------------------------------------------------


_LONG = st.sampled_from([4298, 4299, 4300, 4301]).map(lambda digits: 10**digits)
_TEXTS = st.text(st.characters(codec=None), max_size=4) | st.sampled_from(["\ud800", "\U0001f600", "\0"])
_LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXTS | st.binary(max_size=3) | _LONG
    | st.builds(object)
)  # fmt: skip
_KEYS = _TEXTS | st.integers(0, 3) | st.none() | st.sampled_from(["0", "1"])
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3), max_leaves=6
)


def _wrapped(value: Any, levels: int) -> Any:
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


ANYTHING = st.builds(
    _wrapped, _VALUES, st.sampled_from([0, 0, 0, 1, 97, 98, 99, 157, 158, 159, 160, 161, 198, 253, 400])
)
DOORS = ("input", "update", "argument", "tool", "result", "effect", "answer", "payload", "label", "ref", "reply")
_numbers = itertools.count()
_ROUNDS = max(1, settings.default.max_examples // sized(6, 4))  # type: ignore[union-attr]
"""Each is one run for each door and, with `--full`, each store."""


@pytest.fixture(scope="module", params=STORES)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return open_store(
        request.param if request.param == "memory://" else f"sqlite:///{tmp_path_factory.mktemp('values')}/runs.db"
    )


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("door", "kept"), in_turn(DOORS, STORES), indirect=["kept"])
@given(value=ANYTHING)
@settings(max_examples=_ROUNDS, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_whatever_is_accepted_is_read_back_equal_and_whatever_is_refused_leaves_no_record(
    door: str, value: Any, kept: Store
) -> None:
    run_id, seen, texts = f"r{next(_numbers)}", dict[str, Any](), value if isinstance(value, str) else "x"

    @tool(name="f", risk="none", effect="read")
    def f(a: Any = None) -> Any:
        """Give the value."""
        return value

    async def work(state: State, ctx: Context) -> dict[str, Any]:
        if door == "update":
            return {"any": value}
        if door == "argument":
            await ctx.effect("e", lambda one: None, value, returns=type(None))
        if door == "effect":
            return {"any": await ctx.effect("e", lambda: value, returns=Any)}
        if door == "tool":
            await ctx.tool("f", a=value)
        if door == "result":
            seen["result"] = (await ctx.tool("f")).model_dump(mode="json")
        if door == "payload":
            await ctx.ask("input", payload={"a": value})
        if door == "answer":
            return {"any": (await ctx.ask("input")).value}
        if door == "reply":
            seen["result"] = (await ctx.model.complete("?")).data()
        return {}

    model = Odd(calling({"a": value}))
    async with Executor(kept, graphs=[graph := graph_of(work)], tools=[f], model=model) as ex:
        try:
            run = await ex.start(
                graph,
                {"any": value} if door == "input" else {},
                run_id=run_id,
                labels={texts: texts} if door == "label" else {"r": run_id},
                refs={"a": value} if door == "ref" else {},
            )
            if door == "answer":
                head = run.seq
                try:
                    run = await ex.answer(run_id, run.waiting[0].id, value)
                except InvalidValue:
                    assert (await ex.load(run_id)).seq == head
                    return
        except InvalidValue:
            with pytest.raises(errors.RunUnknown):
                await ex.load(run_id)
            return
        records, again = await kept.read(run_id), await ex.load(run_id)
        assert (again.values, again.output, again.status, again.seq) == (run.values, run.output, run.status, run.seq)
        assert len(records) == run.seq
        if run.status == "failed":
            assert is_refusal(run.error.type), run.error
            assert door in ("update", "argument", "effect", "tool", "payload")
        if door == "label":
            assert [one.run_id for one in (await ex.runs(labels={texts: texts}, limit=1)).runs]
        for record in records:
            assert decode(encode(record)) == record
            if door in ("result", "reply") and isinstance(record, EffectSettled):
                assert record.ok
    json.dumps(run.values, allow_nan=False, ensure_ascii=False).encode()


@given(value=ANYTHING, depth=st.integers(0, 170))
def test_a_value_is_fit_exactly_if_json_says_it_within_the_bounds(value: Any, depth: int) -> None:
    def fits(one: Any, levels: int) -> bool:
        if isinstance(one, dict):
            return levels > 0 and all(isinstance(k, str) and fits(k, 0) and fits(v, levels - 1) for k, v in one.items())
        if isinstance(one, list):
            return levels > 0 and all(fits(item, levels - 1) for item in one)
        if isinstance(one, str):
            return not any("\ud800" <= sign <= "\udfff" for sign in one)
        if isinstance(one, float):
            return math.isfinite(one)
        if isinstance(one, int):
            return abs(one) < 10**MAX_DIGITS
        return one is None

    def of_texts(one: Any) -> bool:
        if isinstance(one, dict):
            return all(isinstance(key, str) and of_texts(item) for key, item in one.items())
        return all(map(of_texts, one)) if isinstance(one, list) else type(one) in (str, int, float, bool, type(None))

    if not of_texts(value):
        return  # `check` is for what is JSON but for its bounds
    try:
        check(value, depth=depth)
    except Unfit:
        assert not fits(value, depth)
    else:
        assert fits(value, depth)


# -- stores of earlier versions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [198, 199, 225, 252])
async def test_what_earlier_versions_wrote_too_deep_to_read_is_read(levels: int, tmp_path: Path) -> None:
    async def work() -> dict[str, Any]:
        return {"any": "here"}

    graph = graph_of(work)
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as ex:
        run = await ex.start(graph, run_id="r")
        old = (await ex.store.read("r"))[1]
    assert isinstance(old, StepDone)
    data = encode(structs.replace(old, update={"any": lists(levels)}))
    with sqlite3.connect(tmp_path / "runs.db") as connection:  # as such a version has written it
        ((key,),) = connection.execute("SELECT id FROM records WHERE id & 4294967295 = 2").fetchall()
        crc = zlib.crc32(data, zlib.crc32(b"r", 2))
        connection.execute("UPDATE records SET data = ?, crc = ? WHERE id = ?", (data, crc, key))
    connection.close()
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as ex:
        assert (await ex.load("r")).values["any"] == lists(levels)
        assert (len(await ex.history("r")), run.seq) == (1, 3)


def test_a_record_that_is_no_json_is_still_none() -> None:
    for data in (b"[" * 250, b"[" * 100_000, b"[" * 250 + b"]" * 250):
        with pytest.raises(ValueError):  # noqa: PT011 - of several parsers
            decode(data)
