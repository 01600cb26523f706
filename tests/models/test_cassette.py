"""Replies are recorded from a server and replayed without it; what differs is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import Context, Executor, Graph, OpenAIModel
from orchestrator.errors import ModelError, ModelUnavailable
from orchestrator.graph import Usage
from orchestrator.models import Cassette, Reply, ToolCall, system, user, with_middleware
from orchestrator.models.middleware.cassette import MOST_BYTES, differences, error_data, error_from
from orchestrator.testing import ScriptedModel
from tests.models.speaker import Speaker
from tests.support.executors import Log, single
from tests.support.sizes import sized
from tests.support.wire import Seen, called, refused, said, served

pytestmark = pytest.mark.anyio
FUNCTION = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a cassette is going to be."""
    monkeypatch.delenv("ORCHESTRATOR_CASSETTE", raising=False)
    return tmp_path / "tapes" / "plan.json"


async def recorded(path: Path, model: Any, *questions: str, **options: Any) -> list[str]:
    """Ask these, one after the other, and record it."""
    with Cassette(path, "record", **options) as tape:
        return [(await with_middleware(model, tape).complete(question)).text for question in questions]


def chat() -> Graph:
    """Asks twice, the same in between, and survives one error."""

    async def work(state: Log, ctx: Context) -> dict[str, Any]:
        told = []
        for question in ("Hi", "How?", "Hi", "Why?"):
            try:
                told.append((await ctx.model.complete(question)).text)
            except ModelError as error:
                told.append(type(error).__name__)
        return {"log": "; ".join(told)}

    return single(work)


async def test_a_run_is_recorded_from_a_server_and_replayed_without_it(path: Path) -> None:
    answers = [
        said("Hello.", usage={"prompt_tokens": 5}),
        said("So."),
        said("Again."),
        refused(400, "no"),
    ]
    runs = []
    with served(*answers) as wire:
        async with OpenAIModel("m", wire.url, "sk-not-a-real-key-42") as model:
            for mode in ("record", "replay"):
                with Cassette(path) as tape:
                    assert tape.mode == mode
                    async with Executor(model=with_middleware(model, tape)) as executor:
                        runs.append(await executor.start(chat(), "x"))
            assert len(wire.seen) == 4
    with Cassette(path) as tape:
        runs.append(await chat().run("x", model=with_middleware(OpenAIModel("m", wire.url), tape)))
    assert [run.output for run in runs] == [["Hello.; So.; Again.; ModelError"]] * 3
    assert len({run.usage.tokens for run in runs}) == 1
    assert "sk-not" not in path.read_text()


async def test_the_file_is_for_people(path: Path) -> None:
    model = ScriptedModel(["b\u00e4r", "two", "again"])
    await recorded(path, model, "one\nline", "2?", "one\nline")
    first = path.read_text()
    assert first.endswith("}\n")
    assert "b\u00e4r" in first
    data = json.loads(first)
    assert first == json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    assert [
        (e["request"]["messages"][0]["content"], [o["reply"]["text"] for o in e["outcomes"]]) for e in data["entries"]
    ] == [("one\nline", ["b\u00e4r", "again"]), ("2?", ["two"])]
    await recorded(path, ScriptedModel(["b\u00e4r", "two", "again"]), "one\nline", "2?", "one\nline")
    assert path.read_text() == first
    assert [file.name for file in path.parent.iterdir()] == ["plan.json"]


async def test_pieces_are_kept_and_a_reader_who_left_is_remembered(path: Path) -> None:
    with Cassette(path) as tape:
        model = with_middleware(Speaker(["a", "b"]), tape)
        assert [event.text async for event in model.stream("?")] == ["a", "b", ""]
        left = model.stream("left")
        await anext(left)
        await left.aclose()  # type: ignore[attr-defined]
    with Cassette(path, repeat=True) as tape:
        model = with_middleware(Speaker([]), tape)
        assert [event.text async for event in model.stream("?")] == ["a", "b", ""]
        assert (await model.complete("?")).text == "ab"
        left = model.stream("left")
        assert (await anext(left)).text == "a"
        await left.aclose()  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="stopped early"):
        await with_middleware(Speaker([]), Cassette(path)).complete("left")


async def test_what_is_not_recorded_fails_and_says_what_differs(path: Path) -> None:
    inner = ScriptedModel(["1", "2", "3"])
    with Cassette(path) as tape:
        model = with_middleware(inner, tape)
        await model.complete([system("Be brief and kind, and never more than that."), user("2 + 2?")])
        await model.complete("Who?", temperature=1)
        await model.complete("Name the colours.")
    tape = Cassette(path)
    model = with_middleware(inner, tape)
    faults = []
    for asked, options in (
        ([system("Be brief and kind, and never less than that."), user("2 + 2?")], {}),
        ("Who?", {"temperature": 2}),
        ("Name the colors.", {}),
        ([system("Be brief and kind, and never more than that."), user("2 + 2?"), user("Now?")], {}),
    ):
        with pytest.raises(AssertionError) as caught:
            await model.complete(asked, **options)  # type: ignore[arg-type]
        faults.append(str(caught.value))
    assert (
        "request.messages[0].content (from character 9): recorded 'and kind, and never more than that.', asked"
        in faults[0]
    )
    assert "request.options.temperature: recorded 1, asked 2" in faults[1]
    assert "recorded 'Name the colours.', asked 'Name the colors.'" in faults[2]
    assert "request.messages: 1 recorded, 2 asked" in faults[3] or "2 recorded, 3 asked" in faults[3]
    assert all("to record: ORCHESTRATOR_CASSETTE=record" in fault for fault in faults)
    with pytest.raises(AssertionError, match=r"(?s)is not recorded.*recorded but not used: 1 of user"):
        tape.assert_done()


async def test_a_graph_that_survives_does_not_hide_what_is_missing(path: Path) -> None:
    await recorded(path, ScriptedModel(["1"]), "?")

    async def work(state: Log, ctx: Context) -> dict[str, Any]:
        for question in ("?", "!"):
            try:
                await ctx.model.complete(question)
            except Exception:
                return {"log": "well"}
        return {}

    tape = Cassette(path)
    await single(work).run("x", model=with_middleware(ScriptedModel([]), tape))
    with pytest.raises(AssertionError, match="is not recorded"):
        tape.assert_done()


async def test_the_last_reply_holds_for_more_only_if_that_is_said(path: Path) -> None:
    await recorded(path, ScriptedModel(["1", "2"]), "?", "?")
    with Cassette(path, repeat=True) as tape:
        model = with_middleware(ScriptedModel([]), tape)
        assert [(await model.complete("?")).text for _ in range(4)] == ["1", "2", "2", "2"]
    model = with_middleware(ScriptedModel([]), Cassette(path))
    assert [(await model.complete("?")).text for _ in range(2)] == ["1", "2"]
    with pytest.raises(AssertionError, match=r"2 times in the recording.*repeat=True"):
        await model.complete("?")


async def test_what_was_not_used_is_told(path: Path) -> None:
    await recorded(path, ScriptedModel(["1", "2", "3"]), "?", "?", "!")

    async def ask(strict: bool) -> None:
        with Cassette(path, strict=strict) as tape:
            await with_middleware(ScriptedModel([]), tape).complete("?")

    await ask(False)
    with pytest.raises(AssertionError, match="recorded but not used: 1 of user '\\?', 1 of user '!'"):
        await ask(True)


async def test_modes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="record it"):
        Cassette(path, "replay")
    await recorded(path, ScriptedModel(["1"]), "?")
    with Cassette(path, "add") as tape:
        model = with_middleware(ScriptedModel(["2", "3"]), tape)
        assert [(await model.complete(words)).text for words in ("?", "!", "?")] == ["1", "2", "3"]
    monkeypatch.setenv("ORCHESTRATOR_CASSETTE", "record")
    assert Cassette(path, "replay").mode == "replay"
    assert await recorded_by_itself(path, "4") == "4"
    monkeypatch.setenv("ORCHESTRATOR_CASSETTE", "replay")
    assert await recorded_by_itself(path, "5") == "4"
    monkeypatch.setenv("ORCHESTRATOR_CASSETTE", "rewind")
    with pytest.raises(ValueError, match="no mode 'rewind'"):
        Cassette(path)


async def recorded_by_itself(path: Path, text: str) -> str:
    with Cassette(path) as tape:
        return (await with_middleware(ScriptedModel([text] if tape.mode == "record" else []), tape).complete("?")).text


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 9}', '{"version": 1, "entries": [{"model": 1}]}'])
async def test_a_file_that_is_none_is_refused(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ValueError, match=r"is not a cassette.*ORCHESTRATOR_CASSETTE=record"):
        Cassette(path)
    assert path.read_text() == text


def test_a_file_that_is_too_large_or_too_deep_is_refused(path: Path) -> None:
    path.parent.mkdir()
    for text, why in (("[" * 200_000, "RecursionError"), ("", "more than 134,217,728 bytes")):
        path.write_text(text)
        if not text:
            os.truncate(path, MOST_BYTES + 1)
        with pytest.raises(ValueError, match=why):
            Cassette(path)


async def test_secrets_are_blanked_in_the_file_and_matched_all_the_same(path: Path) -> None:
    key = "sk-abcdefghijklmnopqrstuvwx"
    inner = ScriptedModel([Reply(text=f"Your key is {key}"), ModelUnavailable(f"bad {key}")])
    with Cassette(path) as tape:
        model = with_middleware(inner, tape)
        assert key in (await model.complete(f"My key is {key}")).text
        with pytest.raises(ModelUnavailable):
            await model.complete("?")
    assert key not in path.read_text()
    with Cassette(path) as tape:
        model = with_middleware(ScriptedModel([]), tape)
        assert (await model.complete(f"My key is {key}")).text == "Your key is [redacted]"
        with pytest.raises(ModelUnavailable, match=r"bad .redacted."):
            await model.complete("?")


async def test_requests_at_the_same_time_keep_the_order_of_asking(path: Path) -> None:
    def answer(seen: Seen) -> dict[str, Any]:
        return (
            called(FUNCTION)
            if seen.body["messages"][0]["content"] == "0"
            else said(seen.body["messages"][0]["content"])
        )

    async def ask(model: Any, number: int, found: dict[int, Reply]) -> None:
        found[number] = await model.complete(str(number % 5))

    with served(answer) as wire:
        texts = []
        for _ in range(2):
            with Cassette(path) as tape:
                async with OpenAIModel("m", wire.url) as inner:
                    model = with_middleware(inner, tape)
                    found: dict[int, Reply] = {}
                    async with anyio.create_task_group() as tasks:
                        for number in range(10):
                            tasks.start_soon(ask, model, number, found)
            texts.append({number: (reply.text, len(reply.tool_calls)) for number, reply in found.items()})
        assert len(wire.seen) == 10
    assert texts[0] == texts[1] == {n: (str(n % 5) if n % 5 else "", int(n % 5 == 0)) for n in range(10)}


# -- laws ----------------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8"), max_size=10)
VALUES = st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers(-9, 9) | TEXTS, max_size=2)
CALLS = st.builds(ToolCall, id=TEXTS, name=TEXTS, arguments=st.none() | VALUES, raw=TEXTS)
REPLIES = st.builds(
    Reply,
    text=TEXTS,
    tool_calls=st.lists(CALLS, max_size=2).map(tuple),
    usage=st.none() | st.builds(Usage, input_tokens=st.integers(0, 9), cost=st.floats(0, 9)),
    finish=st.sampled_from(["stop", "length"]),
    extras=VALUES,
    details=VALUES,
)  # fmt: skip
OUTCOMES = (
    REPLIES | st.builds(ModelError, TEXTS) | st.builds(ModelUnavailable, TEXTS, retry_after=st.none() | st.floats(0, 9))
)


def told(outcome: Any) -> Any:
    return (type(outcome), str(outcome), vars(outcome)) if isinstance(outcome, Exception) else outcome


@settings(max_examples=sized(13, 40))
@given(turns=st.lists(st.tuples(st.sampled_from(["a", "b", "\u2028"]), OUTCOMES), min_size=1, max_size=5))
def test_what_is_replayed_is_what_was_recorded(turns: list[tuple[str, Any]], tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("tape") / "tape.json"

    async def run(mode: Any, inner: ScriptedModel) -> list[Any]:
        found: list[Any] = []
        with Cassette(path, mode, redact=None) as tape:
            model = with_middleware(inner, tape)
            for question, _ in turns:
                try:
                    found.append(told(await model.complete(question)))
                except ModelError as error:
                    found.append(told(error))
        return found

    first = anyio.run(run, "record", ScriptedModel([outcome for _, outcome in turns]))
    assert anyio.run(run, "replay", ScriptedModel([])) == first == [told(outcome) for _, outcome in turns]


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(one=JSON, other=JSON)
def test_differences_are_found_where_there_are_some(one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (list(differences(one, other)) == []) == same


def test_errors_of_classes_with_constructors_of_their_own_come_back() -> None:
    class Overloaded(ModelUnavailable):
        def __init__(self, server: str, load: int) -> None:
            self.load = load
            super().__init__(f"{server} is overloaded", retry_after=3)

    data = json.loads(json.dumps(error_data(Overloaded("m", 7))))
    error = error_from(data)
    assert isinstance(error, Overloaded)
    assert (str(error), error.load, error.retry_after, error.retryable) == ("m is overloaded", 7, 3, True)
    assert type(error_from({**data, "type": "Gone"})) is ModelError
