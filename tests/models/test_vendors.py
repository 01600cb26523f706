"""One suite of behaviours for the models of all vendors, in the forms that their documentation has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Approve, Executor, tool
from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable, ReplyIncomplete, RequestTooLong
from orchestrator.kernel.records import encode
from orchestrator.models import Image, ModelRequest, OfflineModel, Reply, system, tool_result, user
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.tools import tools_from_ref
from tests.models.peers import KEY, ask, chat, each_way, once, run_of, weather
from tests.models.test_real_model import STRATEGIES
from tests.models.vendors import VENDORS, Says, Told, Vendor
from tests.support.wire import Raw, Seen, served

pytestmark = pytest.mark.anyio

each = pytest.mark.parametrize("vendor", VENDORS.values(), ids=VENDORS)
OSLO = ("call_1", "weather", {"city": "Oslo"})
BERGEN = ("call_2", "weather", {"city": "Bergen", "unit": "F"})
DOT = Image.of(b"\x89PNG dot")


def answers(vendor: Vendor, *says: Says) -> Callable[[Seen], Raw | dict[str, Any]]:
    """Answer with these, in order, in the form that is asked for."""
    rest = list(says)
    return lambda seen: vendor.answer(seen, rest.pop(0))


async def reply_to(vendor: Vendor, way: str, says: Says, *args: Any, **options: Any) -> tuple[Reply, Seen]:
    """Return the reply to one request, and the request as the server saw it."""
    with served(answers(vendor, says)) as wire:
        async with vendor.model(wire.url) as model:
            reply = await ask(model, way, *(args or ("Hi",)), **options)
    return reply, wire.seen[0]


# -- what is said ------------------------------------------------------------------------------------------------------


@each
@each_way
async def test_a_text_and_its_usage(vendor: Vendor, way: str) -> None:
    text, shown = "Grüß Gott 🌍, said the people.", list[str]()
    reply, seen = await reply_to(vendor, way, Says(text), [system("Be kind."), user("Greet.")], shown=shown)
    assert (reply.text, reply.finish, reply.tool_calls, reply.extras) == (text, "stop", (), {})
    assert (len(shown) > 5, "".join(shown)) == (True, text) if way == "pieces" else not shown
    assert reply.usage is not None
    assert not reply.usage.estimated
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (30, 5, 20)
    told = vendor.told(seen.body)
    assert [(one.role.replace("developer", "system"), one.text) for one in told] == [
        ("system", "Be kind."), ("user", "Greet."),
    ]  # fmt: skip


@each
@once
async def test_tokens_that_were_written_to_the_cache_count_as_input(vendor: Vendor) -> None:
    reply, _ = await reply_to(vendor, "whole", Says("Yes.", usage=(100, 5, 40, 50)))
    assert reply.usage is not None
    written = 50 if vendor.writes_cache else 0
    assert (reply.usage.input_tokens, reply.usage.cached_tokens, reply.usage.written_tokens) == (100, 40, written)


@each
@each_way
async def test_parallel_calls_with_words_before_them(vendor: Vendor, way: str) -> None:
    reply, seen = await reply_to(vendor, way, Says("I look.", calls=[OSLO, BERGEN]), "Weather?", [weather])
    assert (reply.text, reply.finish) == ("I look.", "tool_calls")
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [OSLO, BERGEN]
    ((name, schema),) = vendor.tools(seen.body)
    assert (name, schema["required"]) == ("weather", ["city"])


@each
@each_way
async def test_thoughts_go_back_as_they_were_given_with_the_call_that_they_led_to(vendor: Vendor, way: str) -> None:
    thought = "I have to look."
    reply, _ = await reply_to(vendor, way, Says("I look.", thought, [OSLO]), "Weather?", [weather])
    assert reply.extras["reasoning_content"] == thought
    asked = [user("Weather?"), reply.message, tool_result(reply.tool_calls[0], "21 C")]
    _, seen = await reply_to(vendor, way, Says("21 C."), asked, [weather])
    first, second, third = vendor.told(seen.body)
    assert first == Told("user", "Weather?")
    assert second == Told("assistant", "I look.", (("weather", '{"city": "Oslo"}'),), signed=True)
    assert (third.role, third.text) == ("tool", "21 C")


@each
@each_way
async def test_a_secret_in_a_thought_is_redacted_and_the_thought_is_not_sent(vendor: Vendor, way: str) -> None:
    """What was changed is worth nothing to the vendor, who signed it."""
    reply, _ = await reply_to(vendor, way, Says("I look.", "I have to look.", [OSLO]), "Weather?", [weather])
    changed = reply.message.model_copy(update={"extras": {**reply.extras, "reasoning_content": "***"}})
    asked = [user("Weather?"), changed, tool_result(reply.tool_calls[0], "21 C")]
    _, seen = await reply_to(vendor, way, Says("21 C."), asked, [weather])
    assert vendor.told(seen.body)[1].signed is (not vendor.thinks)


class Place(BaseModel):
    city: str
    inhabitants: int


@each
@each_way
@pytest.mark.parametrize(
    ("said", "output", "parsed"),
    [
        ({"city": "Oslo", "inhabitants": 1}, Place, Place(city="Oslo", inhabitants=1)),
        ({"answer": [1, 2]}, list[int], [1, 2]),
    ],
    ids=["object", "list"],
)
async def test_answers_in_a_schema(vendor: Vendor, way: str, said: Any, output: Any, parsed: object) -> None:
    reply, seen = await reply_to(vendor, way, Says(json.dumps(said)), "Tell.", output=output)
    assert reply.parsed == parsed
    schema = vendor.schema(seen.body)
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)


@each
@once
async def test_a_server_that_refuses_schemas_is_asked_in_words(vendor: Vendor) -> None:
    def answer(seen: Seen) -> Raw | dict[str, Any]:
        if vendor.schema(seen.body) is not None:
            return Raw(json.dumps(vendor.refusal(400, f"{vendor.schema_field} is not supported")).encode(), 400)
        return vendor.answer(seen, Says('{"city": "Oslo", "inhabitants": 1}'))

    with served(answer) as wire:
        async with vendor.model(wire.url) as model:
            reply = await model.complete("Tell.", output=Place)
            assert reply.parsed == Place(city="Oslo", inhabitants=1)
            assert "JSON Schema" in json.dumps(wire.seen[-1].body)


@each
@once
async def test_names_of_tools_that_no_vendor_takes(vendor: Vendor) -> None:
    @tool(name="weather.in the city")
    def odd(city: str) -> str:
        """Return the weather."""
        return city

    says = Says(calls=[("call_1", "weather_in_the_city", {"city": "Oslo"})])
    reply, seen = await reply_to(vendor, "whole", says, "Weather?", [odd], tool_choice="required")
    assert [name for name, _ in vendor.tools(seen.body)] == ["weather_in_the_city"]
    (call,) = reply.tool_calls
    assert call.name == "weather.in the city"
    asked = [user("Weather?"), reply.message, tool_result(call, "21 C")]
    _, seen = await reply_to(vendor, "whole", Says("21 C."), asked, [odd])
    assert vendor.told(seen.body)[1].calls == (("weather_in_the_city", '{"city": "Oslo"}'),)


@each
@once
async def test_pictures_of_a_user_and_of_a_tool(vendor: Vendor) -> None:
    reply, _ = await reply_to(vendor, "whole", Says(calls=[OSLO]), "Look.", [weather])
    asked = [
        user("What is this?", images=[DOT]),
        reply.message,
        tool_result(reply.tool_calls[0], "a picture", images=[DOT]),
    ]
    _, seen = await reply_to(vendor, "whole", Says("A dot."), asked, [weather])
    told = vendor.told(seen.body)
    assert (told[0].text, told[0].images) == ("What is this?", 1)
    assert sum(one.images for one in told[2:]) == 1


@each
@once
async def test_a_reply_without_words_and_a_conversation_without_a_user(vendor: Vendor) -> None:
    """Neither is refused by servers that want words and a user."""
    reply, _ = await reply_to(vendor, "whole", Says())
    asked = [system("Say yes."), reply.message, user("Well?")]
    _, seen = await reply_to(vendor, "whole", Says("Yes."), asked)
    told = vendor.told(seen.body)
    assert all(one.text.strip() for one in told)
    _, seen = await reply_to(vendor, "whole", Says("Yes."), [system("Say yes.")])
    assert [one.text for one in vendor.told(seen.body)] == ["Say yes."]


@each
@once
async def test_log_probabilities_where_the_interface_has_them(vendor: Vendor) -> None:
    if vendor.logprobs is None:
        reply, seen = await reply_to(vendor, "whole", Says("yes"), logprobs=True)
        assert (reply.logprobs, "logprobs" in seen.body) == ((), False)
        return
    with served(vendor.logprobs) as wire:
        async with vendor.model(wire.url, vendor.unthinking) as model:
            model.profile = model.profile.model_copy(update={"logprobs": 20})
            reply = await model.complete("Is it so?", logprobs=True)
    (token,) = reply.logprobs
    assert (token.token, token.logprob, token.others) == ("yes", -0.1, {"no": -2.5})
    assert "20" in json.dumps(wire.seen[0].body)


# -- ends and errors ---------------------------------------------------------------------------------------------------


@each
@each_way
async def test_a_cut_reply_and_a_refused_one(vendor: Vendor, way: str) -> None:
    cut, _ = await reply_to(vendor, way, Says("Once upon a", end="cut"))
    assert (cut.cut, cut.refused, cut.text) == (True, False, "Once upon a")
    refused, _ = await reply_to(vendor, way, Says("I cannot.", end="refused"))
    assert (refused.cut, refused.refused) == (False, True)


@each
@each_way
async def test_an_end_that_nobody_knows_names_the_flag(vendor: Vendor, way: str) -> None:
    with pytest.raises(ReplyIncomplete, match=r"ends=\{.wandered_off"):
        await reply_to(vendor, way, Says("Once upon a", end="wandered_off"))


@each_way
async def test_a_turn_of_the_servers_tools_that_was_paused_is_no_answer(way: str) -> None:
    """The part of it is no text to go on with, so no flag is named that would take it as an answer."""
    with pytest.raises(ReplyIncomplete, match=r"paused its own tools \(pause_turn\).*fewer uses") as caught:
        await reply_to(VENDORS["anthropic"], way, Says("I have searched, and", end="pause_turn"))
    assert "ends=" not in str(caught.value)


def refusing(vendor: Vendor, status: int, words: str, **headers: str) -> Raw:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Raw(json.dumps(vendor.refusal(status, words)).encode(), status, named)


async def fault_of(vendor: Vendor, way: str, answer: Raw, **options: Any) -> ModelError:
    """Return the error of a call; it does not tell the key."""
    with served(answer) as wire:
        async with vendor.model(wire.url, **options) as model:
            with pytest.raises(ModelError) as caught:
                await ask(model, way, "Tell me a story.")
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert len(wire.seen) == 1
    return caught.value


@each
@each_way
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ModelError), (401, ModelMisconfigured), (403, ModelMisconfigured), (404, ModelMisconfigured),
        (429, ModelUnavailable), (500, ModelUnavailable), (503, ModelUnavailable), (529, ModelUnavailable),
    ],
)  # fmt: skip
async def test_refusals_in_the_words_of_the_vendor(
    vendor: Vendor, way: str, status: int, kind: type[ModelError]
) -> None:
    error = await fault_of(vendor, way, refusing(vendor, status, f"not with {KEY}.", retry_after="7"))
    assert (type(error), error.retryable) == (kind, kind is ModelUnavailable)
    assert "not with ***." in str(error)
    assert (getattr(error, "retry_after", None) == 7) is (kind is ModelUnavailable)


@each
@each_way
async def test_a_request_that_is_too_long(vendor: Vendor, way: str) -> None:
    error = await fault_of(vendor, way, refusing(vendor, 400, vendor.too_long))
    assert isinstance(error, RequestTooLong)


@each
@once
async def test_no_answer_in_time_and_no_server(vendor: Vendor) -> None:
    assert "no answer within 0.2 s" in str(await fault_of(vendor, "whole", Raw(hangs=True), timeout=0.2))
    async with vendor.model("http://127.0.0.1:9/v1") as model:
        with pytest.raises(ModelUnavailable, match="the server cannot be reached"):
            await model.complete("Hi")


@each
@once
@pytest.mark.parametrize("how", ["ends", "breaks", "garbage", "error"])
async def test_a_stream_that_breaks_is_an_error_and_never_a_short_answer(vendor: Vendor, how: str) -> None:
    events = list(vendor.events(Says("Once upon a time there was a server.")))
    begun = [vendor.framed(events[: len(events) // 2], ends=False)]
    if how == "garbage":
        begun.append(b"data: {oops\n\n")
    if how == "error":
        begun.append(vendor.framed([{"type": "error", **vendor.refusal(503, "too much to do")}], ends=False))
    error = await fault_of(vendor, "pieces", Raw(parts=begun, silent=how == "breaks"))
    assert isinstance(error, ModelUnavailable)
    assert ("too much to do" in str(error)) is (how == "error")


@each
async def test_a_stream_can_be_cancelled_and_the_server_notices(vendor: Vendor) -> None:
    events = list(vendor.events(Says("Once upon a time there was a server.")))
    begun = vendor.framed(events[: len(events) // 2], ends=False)
    with served(Raw(parts=[begun], hangs=True), Raw(parts=[vendor.framed(events)])) as wire:
        async with vendor.model(wire.url) as model:
            with anyio.CancelScope() as scope:
                async for event in model.stream("Hi"):
                    if event.text:
                        scope.cancel()
            assert scope.cancelled_caught
            assert await anyio.to_thread.run_sync(wire.left.wait, 60)
            assert (await ask(model, "pieces", "Hi")).text == "Once upon a time there was a server."


@each
@each_way
async def test_a_request_can_be_cancelled_before_its_answer(vendor: Vendor, way: str) -> None:
    with served(vendor.whole(Says("Yes.")), Raw(hangs=True), vendor.whole(Says("Yes."))) as wire:
        async with vendor.model(wire.url) as model:
            await model.complete("Hi")  # loads the vendor's package
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, model, way, "Hi")
                while len(wire.seen) < 2:  # noqa: ASYNC110  the server is a thread
                    await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()
            assert await anyio.to_thread.run_sync(wire.left.wait, 60)
            assert (await model.complete("Hi")).text == "Yes."


@each
@once
async def test_an_answer_in_one_piece_where_a_stream_was_asked_for(vendor: Vendor) -> None:
    with served(vendor.whole(Says("All at once."))) as wire:
        async with vendor.model(wire.url) as model:
            assert (await ask(model, "pieces", "Hi")).text == "All at once."


@each
@once
async def test_the_key_comes_from_the_vendors_variable(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    model = vendor.model("", key=None)
    monkeypatch.delenv(model.wire.address, raising=False)
    with pytest.raises(ModelMisconfigured, match=f"has no key: set the environment variable {model.wire.keys[0]}"):
        await model.complete("Hi")
    monkeypatch.setenv(model.wire.keys[-1], KEY)
    with served(answers(vendor, Says("Yes."))) as wire:
        monkeypatch.setenv(model.wire.address, vendor.place(wire.url))
        async with vendor.model("", key=None) as model:
            assert (await model.complete("Hi")).text == "Yes."
    assert KEY in " ".join(wire.seen[0].headers.values())


# -- in a run ----------------------------------------------------------------------------------------------------------


def paused(vendor: Vendor) -> Callable[[Seen], Raw | dict[str, Any]]:
    """Think and call a tool; after its result, answer."""

    def answer(seen: Seen) -> Raw | dict[str, Any]:
        after = any(one.role == "tool" for one in vendor.told(seen.body))
        return vendor.answer(seen, Says("21 C.") if after else Says("I look.", "I have to look.", [OSLO]))

    return answer


@each
async def test_a_run_waits_as_the_server_asks(vendor: Vendor) -> None:
    rest: list[Any] = [refusing(vendor, 429, "slow down", retry_after="0.2"), Says("Yes.")]

    def answer(seen: Seen) -> Raw | dict[str, Any]:
        said = rest.pop(0)
        return said if isinstance(said, Raw) else vendor.answer(seen, said)

    with served(answer) as wire:
        async with vendor.model(wire.url) as model, Executor(model=model, tools=[weather]) as executor:
            run = await executor.start(chat, "Hi", run_id="r")
            settled = [one for one in await executor.store.read("r") if one.type == "effect_settled"]
    assert (run.status, run.output) == ("completed", "Yes.")
    assert settled[0].next_at is not None
    assert settled[0].next_at - settled[0].ended >= 0.19
    keys = [seen.headers["idempotency-key"] for seen in wire.seen]
    assert keys[0] == keys[1]


@tool(risk="dangerous", effect="read", name="weather")
def risky_weather(city: str, unit: str = "C") -> str:
    """The weather in a city."""
    return f"21 {unit} in {city}"


async def pause_and_resume(first: Vendor, second: Vendor, way: str, folder: Path) -> tuple[Any, list[Told], str]:
    """Run until a tool is to be approved, close everything, and go on under another model."""
    store, graph, tools = f"sqlite:///{folder}/runs.db", function_call_agent(), [risky_weather]
    with served(paused(first)) as wire, served(paused(second)) as other:
        async with (
            first.model(wire.url) as model,
            Executor(store, graphs=[graph], model=model, tools=tools) as executor,
        ):
            run, _ = await run_of(executor, way, graph, "Weather in Oslo?", "r")
            assert run.status == "paused", run.error
        async with (
            second.model(other.url) as model,
            Executor(store, graphs=[graph], model=model, tools=tools) as executor,
        ):
            run = await executor.answer("r", run.waiting[0].id, Approve())
            written = "".join(encode(one).decode() for one in await executor.store.read("r"))
    return run, second.told(other.seen[-1].body), written


@each
@each_way
async def test_thoughts_are_kept_over_a_pause_of_the_process(vendor: Vendor, way: str, tmp_path: Path) -> None:
    run, told, written = await pause_and_resume(vendor, vendor, way, tmp_path)
    assert (run.status, run.output) == ("completed", "21 C.")
    assert next(one for one in told if one.role == "assistant").signed
    assert KEY not in written


@once
@pytest.mark.parametrize(("first", "second"), [*permutations(VENDORS.values(), 2)], ids=lambda one: one.name)
async def test_a_run_that_paused_under_one_model_goes_on_under_another(
    first: Vendor, second: Vendor, tmp_path: Path
) -> None:
    """The other model is not told the thoughts of the first; the journal keeps them."""
    run, told, written = await pause_and_resume(first, second, "whole", tmp_path)
    assert (run.status, run.output) == ("completed", "21 C.")
    (called,) = (one for one in told if one.role == "assistant")
    assert (called.calls, called.signed) == ((("weather", '{"city": "Oslo"}'),), False)
    assert "I have to look." in written


# -- whole agents ------------------------------------------------------------------------------------------------------


class Recorded(OfflineModel):
    """A model without a server that keeps what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[Reply] = []

    async def respond(self, request: ModelRequest) -> Reply:
        self.said.append(await super().respond(request))
        return self.said[-1]


def says(reply: Reply) -> Says:
    calls = [(call.id, call.name, dict(call.arguments or {})) for call in reply.tool_calls]
    return Says(reply.text, calls=calls)


@each
@each_way
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_every_strategy_gets_the_same_answer_from_each(vendor: Vendor, way: str, strategy: str) -> None:
    """A server answers what the offline model said: the same question is answered the same way."""
    question, tools, graph = "What is 20+(2*4)?", tools_from_ref("arithmetic"), STRATEGIES[strategy]()
    offline = Recorded()
    async with Executor(model=offline, tools=tools) as executor:
        expected = await executor.start(graph, question, approve="none")
    with served(answers(vendor, *map(says, offline.said))) as wire:
        streams: dict[str, Any] = {"streams": "always"} if way == "pieces" else {}
        async with vendor.model(wire.url) as model, Executor(model=model, tools=tools, **streams) as executor:
            run = await executor.start(graph, question, approve="none")
    assert (run.status, run.output) == (expected.status, expected.output)
    assert run.error is None
    assert len(wire.seen) == len(offline.said) > 0


def test_no_vendors_package_is_loaded_before_its_model_is_used() -> None:
    code = """
import sys
import orchestrator
from orchestrator.models import *
from orchestrator.models.refs import VENDORS, model_from_ref
for kind in VENDORS:
    model_from_ref(f"{kind}:a-model")
print(sorted({"openai", "anthropic", "google.genai", "httpx2"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
