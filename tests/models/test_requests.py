"""What a request looks like for one kind of server and another: profiles, strict schemas, pictures, headers, keys."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from traceback import TracebackException
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from orchestrator import OpenAIModel, tool
from orchestrator.errors import (
    AgentError,
    GraphUnknown,
    ModelError,
    ModelMisconfigured,
    ModelUnavailable,
    RequestTooLong,
)
from orchestrator.graph.limits import Usage
from orchestrator.models import Image, Message, ModelRequest, Price, Profile, Reply, model_from_ref, system, user
from orchestrator.models.prices import unpriced
from orchestrator.models.profile import profile_of
from orchestrator.models.strict import strict_schema, without_nulls
from tests.support.wire import Raw, called, refused, said, served, streamed

pytestmark = pytest.mark.anyio

once = pytest.mark.parametrize("anyio_backend", ["asyncio"])
OPENAI = Profile(
    strict_tools=True,
    strict_output=True,
    parallel_calls=True,
    system_role="developer",
    max_tokens="max_completion_tokens",
    stop=False,
    logprobs=0,
)


class Place(BaseModel):
    street: str
    number: int | None = None


@tool
def find(name: str, place: Place | None = None, limit: int = 10, kind: Literal["a", "b"] = "a") -> str:
    """Find somebody."""
    return name


@tool
def count(words: dict[str, int]) -> int:
    """Count words."""
    return sum(words.values())


async def ask(
    answer: Raw | Mapping[str, Any], *args: Any, model: Mapping[str, Any] | None = None, **options: Any
) -> tuple[dict[str, Any], Reply]:
    with served(answer) as wire:
        async with OpenAIModel("m", wire.url, "sk-test", **(model or {})) as asked:
            reply = await asked.complete(*(args or ("Hi",)), **options)
    return wire.seen[0].body, reply


async def first(model: OpenAIModel) -> object:
    """The first event of a stream."""
    async with aclosing(model.stream("Hi")) as events:  # type: ignore[type-var]
        return await anext(events)


def told_by(error: BaseException) -> str:
    """What a traceback with locals tells of the library's own frames."""
    stack = TracebackException.from_exception(error, capture_locals=True).stack
    return "".join(str(frame.locals) for frame in stack if "/tests/" not in frame.filename)


# -- profiles ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "url", "expected"),
    [
        ("gpt-4o", None, OPENAI.model_copy(update={"system_role": "system", "stop": True, "logprobs": 20})),
        ("o3", "https://api.openai.com/v1", OPENAI.model_copy(update={"parallel_calls": False})),
        ("gpt-5-mini", "https://eu.api.openai.com/v1", OPENAI),
        ("gpt-5", "https://mine.openai.azure.com/openai/v1", OPENAI),
        ("gpt-5", "https://mine.cognitiveservices.azure.com/openai/deployments/d", OPENAI),
        ("gpt-5", "https://mine.services.ai.azure.com/openai/v1", OPENAI),
        ("gpt-5", "https://mine.openai.azure.us/openai/v1", OPENAI),
        ("gpt-5", "https://gateway.azure-api.net/team/openai/v1", OPENAI),
        ("gpt-5", "https://eastus.api.cognitive.microsoft.com/openai/v1", OPENAI),
        ("mistral", "https://mine.services.ai.azure.com/models", Profile()),
        ("gpt-5", "https://cognitiveservices.azure.com.evil.example/openai/v1", Profile()),
        ("gpt-oss-20b", "https://api.groq.example/openai/v1", Profile()),
        ("gpt-4o", "http://127.0.0.1:4000/v1", Profile()),
        ("gpt-4o", "https://openai.com.evil.example/v1", Profile()),
        ("gpt-4o", "https://notopenai.com/v1", Profile()),
        ("gpt-4o", "http://[::1/v1", Profile()),
    ],
)
def test_the_profile_of_a_model_that_was_given_none(name: str, url: str | None, expected: Profile) -> None:
    assert profile_of(name, url) == expected


async def test_a_model_of_openai_is_told_in_its_words() -> None:
    options = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 9}
    body, _ = await ask(
        said("x"), [system("Be brief."), user("Hi")], [find, count], model={"profile": OPENAI}, **options
    )
    assert [message["role"] for message in body["messages"]] == ["developer", "user"]
    assert (body["max_completion_tokens"], "max_tokens" in body) == (9, False)
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)
    first, second = (one["function"] for one in body["tools"])
    assert (first["strict"], "strict" in second) == (True, False)  # an open object has no words in strict mode
    assert second == count.to_param()["function"]
    schema = first["parameters"]
    assert schema["required"] == ["name", "place", "limit", "kind"]
    assert schema["properties"]["limit"]["anyOf"][1] == {"type": "null"}


async def test_other_servers_are_not_told_what_they_do_not_know() -> None:
    options = {"tool_choice": "required", "parallel_tool_calls": True}
    plain = Profile(tool_choice_required=False)
    body, _ = await ask(said("x"), "Hi", [find], model={"profile": plain}, **options)
    assert (body["tool_choice"], "parallel_tool_calls" in body) == ("auto", False)
    assert body["tools"] == [find.to_param()]
    body, _ = await ask(said("x"), "Hi", model={"profile": plain}, **options)
    assert "tool_choice" not in body  # refused where there are no tools


async def test_what_strict_mode_left_out_is_not_there_when_it_comes_back() -> None:
    written = '{"name": "Ada", "place": {"street": "x", "number": null}, "limit": null, "kind": null}'
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": written}}
    _, reply = await ask(called(call), "Hi", [find], model={"profile": OPENAI})
    (found,) = reply.tool_calls
    assert found.arguments == {"name": "Ada", "place": {"street": "x", "number": None}}
    assert found.raw == written
    assert find.validate(found.arguments)
    _, reply = await ask(called(call), "Hi", [find])
    assert reply.tool_calls[0].arguments == json.loads(written)  # nobody told this model to


class Inner(BaseModel):
    a: int
    b: int = 3


@tool
def nest(inner: Inner | None = None, other: Inner | int = 0, many: list[Inner] | None = None) -> str:
    """Nest."""
    return ""


async def test_what_was_left_out_inside_of_unions_is_not_there_either() -> None:
    one = {"a": 1, "b": None}
    written = json.dumps({"inner": one, "other": one, "many": [one, {"a": 2, "b": 5}]})
    call = {"id": "c1", "type": "function", "function": {"name": "nest", "arguments": written}}
    _, reply = await ask(called(call), "Hi", [nest], model={"profile": OPENAI})
    arguments = reply.tool_calls[0].arguments
    assert arguments == {"inner": {"a": 1}, "other": {"a": 1}, "many": [{"a": 1}, {"a": 2, "b": 5}]}
    assert nest.validate(arguments)


# -- answers in a schema -------------------------------------------------------------------------------------------


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=0, le=9)] = 9


class Dog(BaseModel):
    kind: Literal["dog"]


class Pets(BaseModel):
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]]


@once
async def test_an_answer_that_is_no_object_is_asked_for_inside_of_one() -> None:
    for written in ("[1, 2]", '{"answer": [1, 2]}', '```json\n{"answer": [1, 2]}\n```'):
        body, reply = await ask(said(written), output=list[int])
        form = body["response_format"]["json_schema"]
        assert (form["strict"], form["schema"]["required"]) == (True, ["answer"])
        assert (json.loads(reply.text), reply.parsed) == ([1, 2], [1, 2])
    with pytest.raises(AgentError):
        await ask(said('{"answer": "x"}'), output=list[int])


@once
async def test_unions_and_what_strict_mode_has_no_words_for() -> None:
    model = {"profile": Profile(strict_output=True)}
    body, reply = await ask(said('{"pets": [{"kind": "cat"}]}'), output=Pets, model=model)
    form = body["response_format"]["json_schema"]
    assert form["strict"] is True
    assert not {"oneOf", "maximum"} & set(re.findall(r"\w+", json.dumps(form)))
    assert reply.parsed == Pets(pets=[Cat(kind="cat")])
    body, _ = await ask(said("{}"), output=dict[str, int])
    assert body["response_format"]["json_schema"]["strict"] is False


BOUNDS: dict[str, tuple[dict[str, Any], object]] = {
    "lengths": ({"type": "string", "minLength": 1, "maxLength": 12}, "x"),
    "pattern": ({"type": "string", "pattern": "^a+$"}, "a"),
    "format": ({"type": "string", "format": "date"}, "2026-11-29"),
    "range": ({"type": "integer", "minimum": 1, "maximum": 5}, 3),
    "open range": ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
    "steps": ({"type": "integer", "multipleOf": 3}, 6),
    "items": ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2, "uniqueItems": True}, [1]),
    "in a union": ({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "integer", "minimum": 7}]}, 7),
}


@once
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("form", ["json_schema", "json_object", "prompt"])
async def test_bounds_reach_the_server(bound: str, form: Literal["json_schema", "json_object", "prompt"]) -> None:
    part, value = BOUNDS[bound]
    asked = {"type": "object", "properties": {"value": {**part, "title": "V"}}, "required": ["value"]}
    answer = said(json.dumps({"value": value}))
    body, reply = await ask(answer, output=asked, model={"profile": Profile(output=form)})
    assert reply.parsed == {"value": value}
    if form == "json_schema":
        sent = body["response_format"]["json_schema"]
        assert sent["schema"]["properties"]["value"] == part
        assert sent["strict"] is False  # OpenAI's strict mode refuses some of them
    else:
        assert json.dumps(part)[1:-1] in body["messages"][-1]["content"]
    body, _ = await ask(answer, output=asked, model={"profile": Profile(strict_output=True)})
    sent = body["response_format"]["json_schema"]
    assert (sent["schema"]["properties"]["value"] == part, sent["strict"]) == (False, True)


@once
async def test_a_refused_bound_names_the_flag_that_leaves_bounds_out() -> None:
    words = "Invalid schema for response_format 'answer': In context=('properties', 'n'), 'maxLength' is not permitted."
    with pytest.raises(ModelError, match=r"use Profile\(strict_output=True\)"):
        await ask(
            refused(400, words), output=Place, model={"profile": Profile(output="json_schema", strict_output=False)}
        )


@tool
def locate(point: tuple[float, float], pages: tuple[int, str] | None = None, rest: tuple[int, ...] = ()) -> str:
    """Locate."""
    return ""


def without_items(schema: Any) -> list[Any]:
    """The arrays of a schema that say nothing of their items."""
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    bad = isinstance(schema, dict) and schema.get("type") == "array" and not isinstance(schema.get("items"), dict)
    return [schema] * bad + [found for one in inner for found in without_items(one)]


@once
@pytest.mark.parametrize(
    "offered",
    [
        locate,
        {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": True},
        {"type": "array"},
        {"type": "object", "properties": {"type": {"type": "array"}}, "$defs": {"x": {"type": "array"}}},
        {"anyOf": [{"type": "array", "description": "Names."}, {"type": "null"}]},
        {"type": "array", "items": {"type": "array"}, "default": [{"type": "array"}]},
    ],
    ids=lambda one: getattr(one, "name", None),
)
@pytest.mark.parametrize("profile", [Profile(), OPENAI], ids=["plain", "openai"])
async def test_every_array_says_what_its_items_are(offered: Any, profile: Profile) -> None:
    if isinstance(offered, dict):
        parameters = {"type": "object", "properties": {"value": offered}, "required": ["value"]}
        offered = {"type": "function", "function": {"name": "own", "parameters": parameters}}
    body, _ = await ask(said("x"), "Hi", [offered], model={"profile": profile})
    sent = body["tools"][0]["function"]["parameters"]
    sent["properties"].get("value", {}).pop("default", None)
    assert without_items(sent) == []


@once
async def test_a_tuple_is_described_by_its_elements_and_by_its_items() -> None:
    body, _ = await ask(said("x"), "Hi", [locate])
    sent = body["tools"][0]["function"]["parameters"]["properties"]
    assert sent["point"] == {
        "type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [{"type": "number"}] * 2,
        "items": {"type": "number"},
    }  # fmt: skip
    assert sent["pages"]["anyOf"][0]["items"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    body, reply = await ask(said("[1.5, 2]"), output=tuple[float, float])
    assert without_items(body["response_format"]["json_schema"]["schema"]) == []
    assert reply.parsed == (1.5, 2)


class Tree(BaseModel):
    name: str
    kids: list[Tree] = []


@once
async def test_a_type_that_holds_itself() -> None:
    body, reply = await ask(said('{"name": "a", "kids": [{"name": "b"}]}'), output=Tree)
    form = body["response_format"]["json_schema"]
    assert (form["strict"], form["schema"]["type"]) == (True, "object")
    assert reply.parsed == Tree(name="a", kids=[Tree(name="b")])


@once
@pytest.mark.parametrize("form", ["json_object", "prompt"])
async def test_servers_without_schemas_are_told_in_words(form: Literal["json_object", "prompt"]) -> None:
    model = {"profile": Profile(output=form)}
    body, reply = await ask(said('{"street": "x", "number": 1}'), "Where?", output=Place, model=model)
    assert body.get("response_format") == ({"type": "json_object"} if form == "json_object" else None)
    assert body["messages"][0] == {"role": "user", "content": "Where?"}
    assert "fit this JSON Schema" in body["messages"][1]["content"]
    assert '"street"' in body["messages"][1]["content"]
    assert reply.parsed == Place(street="x", number=1)


@pytest.mark.parametrize("kind", [Place, Pets, list[int], dict[str, int], int | None, tuple[int, str], Any])
def test_a_strict_schema_is_closed_and_has_the_words_of_the_common_subset_only(kind: Any) -> None:
    schema = TypeAdapter(kind).json_schema()
    strict = strict_schema(schema)
    assert (strict is None) == (kind not in (Place, Pets))

    def look(one: Any) -> None:
        if isinstance(one, dict):
            assert not one.keys() & {"default", "oneOf", "allOf", "prefixItems", "maximum", "discriminator"}
            if one.get("type") == "object":
                assert one["additionalProperties"] is False
                assert one["required"] == list(one["properties"])
            for inner in one.values():
                look(inner)
        elif isinstance(one, list):
            for inner in one:
                look(inner)

    look(strict)


def test_hostile_schemas_are_not_followed_for_ever() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(5000):
        deep = {"type": "object", "properties": {"x": deep}}
    assert strict_schema(deep) is None
    assert strict_schema({"type": "object", "properties": 5}) is None
    assert without_nulls({"a": None}, {"properties": {"a": {"$ref": "#/$defs/gone"}}}) == {"a": None}


# -- pictures ------------------------------------------------------------------------------------------------------


async def test_pictures_stand_behind_the_text(tmp_path: Path) -> None:
    file = tmp_path / "dot.png"
    file.write_bytes(b"\x89PNG")
    message = user("What is this?", images=[Image.of_file(file, detail="low"), Image(url="https://x.example/y.jpg")])
    body, _ = await ask(said("A dot."), [message, user("", images=[Image.of(b"x", "image/gif")])])
    first, second = (one["content"] for one in body["messages"])
    assert first == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw==", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://x.example/y.jpg"}},
    ]
    assert [part["type"] for part in second] == ["image_url"]
    assert Message.model_validate_json(message.model_dump_json()) == message
    for wrong in ("file:///etc/passwd", "data:text/html,x", "/tmp/x.png"):
        with pytest.raises(ValidationError, match="is not the address of a picture"):
            Image(url=wrong)
    with pytest.raises(ValueError, match="not that of a picture"):
        Image.of_file(tmp_path / "x.txt")
    with pytest.raises(ValidationError, match="only those of users and tools can"):
        Message(role="system", images=(Image.of(b"x"),))


# -- addresses, headers, keys --------------------------------------------------------------------------------------


async def test_azure_by_its_own_address_key_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_KEY", "az-not-a-real-key")
    with served(said("x"), refused(401, "az-not-a-real-key is no key")) as wire:
        url = f"{wire.url}/openai/deployments/mine"
        settings: dict[str, Any] = {"headers": {"api-key": "env:AZURE_KEY"}, "query": {"api-version": "2024-10-21"}}
        async with OpenAIModel("gpt-4o", url, **settings) as model:
            await model.complete("Hi")
            with pytest.raises(ModelMisconfigured) as caught:
                await model.complete("Hi")
            monkeypatch.delenv("AZURE_KEY")
            with pytest.raises(ModelMisconfigured, match=r"header 'api-key' is env:AZURE_KEY, and the environment has"):
                await model.complete("Hi")
    assert wire.seen[0].path == "/v1/openai/deployments/mine/chat/completions?api-version=2024-10-21"
    assert wire.seen[0].headers["api-key"] == "az-not-a-real-key"
    assert "az-not-a-real-key" not in str(caught.value)


async def test_white_space_around_a_key_is_not_sent_and_other_odd_keys_are_not_told(tmp_path: Path) -> None:
    with served(said("x"), said("x")) as wire:
        async with OpenAIModel("m", wire.url, "sk-verysecretkey\n", headers={"x-key": " abc\n"}) as model:
            await model.complete("Hi")
            assert [event async for event in model.stream("Hi")]
        assert wire.seen[0].headers["authorization"] == "Bearer sk-verysecretkey"
        for key in ("sk-very\nsecretkey", "sk-verysecretkéy", "sk-\x00secretkey"):
            async with OpenAIModel("m", wire.url, key) as model:
                for asking in (model.complete, first):
                    with pytest.raises(ModelMisconfigured, match="the key has characters that no header can have") as e:
                        await (first(model) if asking is first else model.complete("Hi"))
                    assert "secret" not in str(e.value)
    for empty in ("", "  "):
        with pytest.raises(ModelMisconfigured, match="has no key"):
            await OpenAIModel("m", api_key=empty).complete("Hi")


async def test_a_key_is_in_no_local_of_a_traceback_and_follows_no_redirect() -> None:
    with served(said("x")) as other, served(Raw(b"", 307, {"Location": other.url + "/x"}), refused(500, "no")) as wire:
        async with OpenAIModel("m", wire.url, "sk-verysecretkey", headers={"api-key": "azuresecret"}) as model:
            with pytest.raises(ModelMisconfigured, match=r"HTTP 307: the server has moved: correct base_url"):
                await model.complete("Hi")
            with pytest.raises(ModelError) as caught:
                async for _ in model.stream("Hi"):
                    pass
    assert "verysecretkey" not in told_by(caught.value)
    assert "azuresecret" not in told_by(caught.value)
    assert not other.seen
    with pytest.raises(ModelMisconfigured) as caught:
        await OpenAIModel("m", "http://user:hunter2pass@127.0.0.1:99999/v1", "k").complete("Hi")
    assert "hunter2" not in str(caught.value)


@once
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "rate_limit_exceeded", "message": "x"}, ModelUnavailable),
        ({"code": "429", "message": "x"}, ModelUnavailable),
        ({"type": "overloaded_error", "message": "x"}, ModelUnavailable),
        ({"code": "invalid_api_key", "message": "x"}, ModelMisconfigured),
        ({"code": "context_length_exceeded", "message": "x"}, RequestTooLong),
        ({"code": None, "type": "invalid_request_error", "message": "x"}, ModelError),
    ],
)
async def test_an_error_inside_of_a_good_answer_is_told_by_its_name(error: dict[str, Any], kind: type) -> None:
    with served({"error": error}, streamed({"error": error})) as wire:
        async with OpenAIModel("m", wire.url) as model:
            with pytest.raises(ModelError) as caught:
                await model.complete("Hi")
            assert type(caught.value) is kind
            with pytest.raises(ModelError) as caught:
                await first(model)
            assert type(caught.value) is kind


@once
async def test_a_key_that_a_function_gives() -> None:
    async def later() -> str:
        return "sk-later"

    with served(said("x"), said("x")) as wire:
        for key in (lambda: "sk-now", later):
            async with OpenAIModel("m", wire.url, key) as model:
                await model.complete("Hi")
    assert [seen.headers["authorization"] for seen in wire.seen] == ["Bearer sk-now", "Bearer sk-later"]


@once
@pytest.mark.parametrize(
    ("words", "code", "mend"),
    [
        ("This response_format type is unavailable now", None, "use Profile(output='json_object') or 'prompt'"),
        ("Unrecognized request argument: stream_options", None, "use Profile(stream_usage=False)"),
        ("`logprobs` is not supported with this model", None, "use Profile(logprobs=0)"),
        ("Invalid value for 'top_logprobs': must be at most 5", None, "or a lower number"),
        ("tool_choice 'required' is not supported", None, "use Profile(tool_choice_required=False)"),
        ("Unsupported parameter: 'stop' is not supported with this model", None, "use Profile(stop=False)"),
        ("filtered", "content_filter", "filter rejected this request"),
    ],
)
async def test_a_refusal_names_the_setting_that_mends_it(words: str, code: str | None, mend: str) -> None:
    with pytest.raises(ModelError) as caught:
        await ask(refused(400, words, code))
    assert type(caught.value) is ModelError
    assert mend in str(caught.value)


# -- prices --------------------------------------------------------------------------------------------------------


def test_a_price_is_per_million_tokens() -> None:
    price = Price(input=2.0, output=8.0, cached_input=0.5, cache_write=2.5)
    usage = Usage(input_tokens=1_000_000, output_tokens=500_000)
    assert price.of(usage) == 6.0
    assert price.of(usage.model_copy(update={"cached_tokens": 400_000})) == 1.2 + 0.2 + 4.0
    assert price.of(usage.model_copy(update={"written_tokens": 400_000})) == 1.2 + 1.0 + 4.0
    assert price.of(usage.model_copy(update={"cached_tokens": 400_000, "written_tokens": 900_000})) == 0.2 + 1.5 + 4.0
    assert price.of(usage.model_copy(update={"cached_tokens": 9_000_000})) == 0.5 + 4.0
    assert Price(input=2.0).of(usage.model_copy(update={"cached_tokens": 1, "written_tokens": 1})) == 2.0
    with pytest.raises(ValidationError):
        Price(input=float("inf"))
    assert unpriced(OpenAIModel("m")) == ["m"]
    assert unpriced(OpenAIModel("m", price=Price())) == []
    assert unpriced(model_from_ref("offline")) == []


def test_the_command_line_reads_a_price_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "prices.json"
    monkeypatch.setenv("ORCHESTRATOR_PRICES", str(table))
    with pytest.raises(GraphUnknown, match=r"ORCHESTRATOR_PRICES: .* is not a price table \(No such file"):
        model_from_ref("openai:m")
    table.write_text('{"m": {"input": 1, "output": 2}}')
    priced = model_from_ref("openai:m")
    assert isinstance(priced, OpenAIModel)
    assert priced.price == Price(input=1, output=2)
    assert unpriced(model_from_ref("openai:other")) == ["other"]
    table.write_text('{"m": {"in": 1}}')
    with pytest.raises(GraphUnknown, match="is not a price table"):
        model_from_ref("openai:m")


class Town(BaseModel):
    city: str


READINGS: list[tuple[type[Any], str, Any]] = [
    (str, "hello", "hello"), (str, '"hello"', "hello"), (str, "<think>hm</think>hello", "hello"), (str, "5", "5"),
    (int, "5", 5), (int, "The answer is 5.", 5), (int, "It costs 1,250 in all.", 1250), (int, "-3", -3),
    (int, "2 and 3", None), (int, "none", None), (int, "5.5", None), (int, "[5]", None),
    (float, "about 5.5 km", 5.5), (float, "1e999", None),
    (bool, "True", True), (bool, "yes", True), (bool, "No.", False), (bool, "yes and no", None),
    (Town, '{"city": "a"}', Town(city="a")), (Town, 'Here: {"city": "a"}', Town(city="a")),
    (Town, '{"city": "a", "city": "b"}', None), (Town, '{"city": "a"} or {"city": "b"}', None),
]  # fmt: skip
"""Type of the answer, reply -> its one reading; None: it has several, or none."""


@pytest.mark.parametrize(("kind", "text", "value"), READINGS)
def test_an_answer_of_a_type_is_read_if_it_has_one_reading(kind: type[Any], text: str, value: Any) -> None:
    request = ModelRequest.of("q", output=kind)
    if value is None:
        with pytest.raises(AgentError, match=f"the model's reply is not a valid {kind.__name__}"):
            request.parse(Reply(text=text))
    else:
        found = request.parse(Reply(text=text)).parsed
        assert (found, type(found)) == (value, kind)
