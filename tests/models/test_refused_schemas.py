"""Servers that refuse answers in a schema: the model asks for them in another way, without an option."""

from __future__ import annotations

import json
import logging
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, Field

from orchestrator import Approve, Deny, Executor, OpenAIModel
from orchestrator.errors import ModelError
from orchestrator.models import Profile, model_from_ref
from orchestrator.nodes import Decide
from tests.graphs.stopped import ANSWER, STORE, add, graph_named, multiply
from tests.nodes import test_review as reviews
from tests.nodes.test_decide import graph as deciding
from tests.support.wire import Raw, Seen, refused, said, served, told

pytestmark = pytest.mark.anyio

NO_FORM = "This response_format type is unavailable now"


class Place(BaseModel):
    city: str = Field(max_length=9)


class Server:
    """Refuses requests with certain words, and answers others, whole or streamed."""

    def __init__(self, text: str = '{"city": "Rome"}', refuses: Mapping[str, str] | None = None) -> None:
        self.text = text
        self.refuses = {'"type": "json_schema"': NO_FORM} if refuses is None else refuses

    def __call__(self, seen: Seen) -> Raw | dict[str, Any]:
        body = json.dumps(seen.body)
        why = next((why for words, why in self.refuses.items() if words in body), None)
        if why is not None:
            return refused(400, why)
        return told(self.text) if seen.body.get("stream") else said(self.text)


async def answered(model: OpenAIModel, streamed: bool) -> object:
    if not streamed:
        return (await model.complete("Where?", output=Place)).parsed
    (*_, last) = [event async for event in model.stream("Where?", output=Place)]
    assert last.reply is not None
    return last.reply.parsed


def forms(wire: Any) -> list[str | None]:
    return [seen.body.get("response_format", {}).get("type") for seen in wire.seen]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("refuses", "expected", "flags"),
    [
        ({'"type": "json_schema"': NO_FORM}, ["json_schema", "json_object", "json_object"], "output='json_object'"),
        (
            {"response_format": "Input should be 'text' or 'json_object': body.response_format.type"},
            ["json_schema", "json_object", None, None],
            "output='prompt'",
        ),
        (
            {'"type": "json_schema"': "This model does not support structured outputs"},
            ["json_schema", "json_object", "json_object"],
            "output='json_object'",
        ),
        ({"maxLength": "'maxLength' is not permitted"}, ["json_schema"] * 3, "strict_output=True"),
        (
            {"maxLength": "'maxLength' is not permitted", '"type": "json_schema"': NO_FORM},
            ["json_schema"] * 2 + ["json_object"] * 2,
            "output='json_object', strict_output=True",
        ),
    ],
)
async def test_a_refused_schema_is_asked_for_in_another_way(
    refuses: Mapping[str, str], expected: list[str], flags: str, streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with served(Server(refuses=refuses)) as wire:
        async with OpenAIModel("m", wire.url) as model:
            assert await answered(model, streamed) == Place(city="Rome")
            assert await answered(model, streamed) == Place(city="Rome")
            assert forms(wire) == expected  # the model object remembers it
            (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
            assert f"as with Profile({flags})" in warning
            given = Profile(output="json_schema", strict_output=False)
            model.profile = given
            with pytest.raises(ModelError) as caught:
                await answered(model, streamed)
            assert caught.value.flag in ("output", "strict_output")
            assert model.profile == given


async def test_requests_at_the_same_time_go_on_alike() -> None:
    with served(Server()) as wire:
        async with OpenAIModel("m", wire.url) as model, anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(answered, model, False)
    assert set(forms(wire)) == {"json_schema", "json_object"}
    assert forms(wire).count("json_object") == 5


async def test_a_model_named_with_other_flags_goes_on_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(Server()) as wire:
        monkeypatch.setenv("OPENAI_BASE_URL", wire.url)
        model = model_from_ref('openai:m?stop=false&ends={"eom": "length"}')
        assert isinstance(model, OpenAIModel)
        async with model:
            assert await answered(model, False) == Place(city="Rome")
            assert (model.profile.stop, model.profile.ends) == (False, {"eom": "length"})


async def test_another_refusal_is_an_error() -> None:
    for why in ("too long", "tool_choice is not supported"):
        with served(Server(refuses={"json_schema": why})) as wire:
            async with OpenAIModel("m", wire.url) as model:
                with pytest.raises(ModelError, match=why):
                    await answered(model, False)
        assert len(wire.seen) == 1


async def test_the_journaled_request_is_the_same_and_each_form_has_its_own_key() -> None:
    digests, sent = [], []
    both: tuple[dict[str, str] | None, ...] = ({}, None)
    for refuses in both:
        with served(Server('{"choice": "yes"}', refuses)) as wire:
            async with (
                OpenAIModel("m", wire.url) as model,
                Executor(model=model) as executor,
            ):
                run = await executor.start(deciding(Decide(yes_no=True)), {}, run_id="r")
                assert run.status == "completed"
                records = await executor.store.read("r")
                digests.append([record.digest for record in records if record.type == "effect_intended"])
        sent.append((forms(wire), [seen.headers["idempotency-key"] for seen in wire.seen]))
    assert digests[0] == digests[1]
    key = sent[0][1][0]
    assert sent == [(["json_schema"], [key]), (["json_schema", "json_object"], [key, f"{key}-json_object"])]


@pytest.mark.parametrize("name", ["tool_user", "plan_and_solve", "rewoo"])
async def test_runs_that_earlier_code_left_waiting_go_on(tmp_path: Path, name: str) -> None:
    (tmp_path / "stopped.db").write_bytes(lzma.decompress(STORE.read_bytes()))
    with served(Server(f"Final Answer: {ANSWER}")) as wire:
        store, made = f"sqlite:///{tmp_path}/stopped.db", graph_named(name)
        async with (
            OpenAIModel("m", wire.url) as model,
            Executor(store, graphs=[made], model=model, tools=[multiply, add]) as executor,
        ):
            run = await executor.load(f"{name}-asks")
            while run.status == "paused":
                run = await executor.answer(run.run_id, run.waiting[0].id, Approve())
    assert run.status == "completed", run.error
    assert ANSWER in str(run.output)


@pytest.mark.parametrize(
    ("status", "why", "words"),
    [
        (400, "logprobs is not supported with this model", "no decision: model 'm': HTTP 400: the server does not"),
        (401, "no such key", "no decision: model 'm': HTTP 401"),
        (404, "no such model", "no decision: model 'm': HTTP 404"),
    ],
)
async def test_a_review_that_a_server_refuses_asks_the_person(status: int, why: str, words: str) -> None:
    reviews.sent.clear()
    with served(lambda seen: refused(status, why)) as wire:
        async with (
            OpenAIModel("m", wire.url) as model,
            Executor(model=model, tools=[reviews.sending()]) as executor,
        ):
            for answer, sent in ((Deny(), []), (Approve(), ["x"])):
                run = await executor.start(reviews.graph(), reviews.GIVEN)
                (question,) = run.waiting
                assert str(question.payload.get("model_review")).startswith(words)
                run = await executor.answer(run.run_id, question.id, answer)
                assert (run.status, reviews.sent) == ("completed", sent)
            assert len(wire.seen) == 2
