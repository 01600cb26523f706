"""The models of all vendors against one fake server by others, which knows all of their interfaces."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import Executor, Retry
from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable
from orchestrator.models.server import ServerModel
from orchestrator.strategies.tool_user import graph as tool_user
from tests.models.peers import KEY, ask, chat, each_way, once, run_of, tries_of, weather
from tests.models.test_peers import BERGEN, OSLO, QUICK, add
from tests.models.vendors import VENDORS, Vendor
from tests.support.aimock import AIMock, fixture

pytestmark = pytest.mark.anyio

each = pytest.mark.parametrize("vendor", VENDORS.values(), ids=VENDORS)
THINKS: dict[str, dict[str, Any]] = {"anthropic": {"thinking": {"type": "enabled", "budget_tokens": 2_000}}}
"""Options with which a model thinks. The server then wants its thoughts back, signed."""


def at(server: AIMock, vendor: Vendor, **options: Any) -> ServerModel:
    url = server.url if vendor.name != "gemini" else server.url.removesuffix("/v1") + "/v1beta"
    return vendor.model(url, **THINKS.get(vendor.name, {}), **options)


@each
@each_way
async def test_a_text_with_thoughts_before_it(aimock: AIMock, vendor: Vendor, way: str) -> None:
    text = "Grüß Gott 🌍, said the people of Bavaria."
    usage = {"prompt_tokens": 9, "completion_tokens": 6, "total_tokens": 15}
    aimock.says(fixture({"content": text, "reasoning": "They greet.", "usage": usage}, chunkSize=7))
    shown: list[str] = []
    async with at(aimock, vendor) as model:
        reply = await ask(model, way, "How do they greet?", shown=shown)
    assert (reply.text, reply.finish, reply.extras["reasoning_content"]) == (text, "stop", "They greet.")
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.estimated) == (9, 6, False)
    assert (len(shown) > 5, "".join(shown)) == (True, text) if way == "pieces" else not shown


@each
@each_way
async def test_a_run_with_parallel_calls_that_thoughts_led_to(aimock: AIMock, vendor: Vendor, way: str) -> None:
    said = {"content": "I look.", "toolCalls": [OSLO, BERGEN], "reasoning": "I have to look."}
    aimock.says(
        fixture({"content": "Both 21.", "reasoning": "Done."}, {"toolResultContains": "21 F in Bergen"}),
        fixture(said, {"hasToolResult": False}, chunkSize=4),
    )
    strict = {"X-AIMock-Strict": "true"} if vendor.thinks else {}
    async with (
        at(aimock, vendor, headers=strict) as model,
        Executor(model=model, tools=[weather]) as executor,
    ):
        run, _ = await run_of(executor, way, chat, "Weather in Oslo and Bergen?", "r")
    assert (run.status, run.output) == ("completed", "Both 21."), run.error
    first, *_ = run.values["messages"]
    assert [call["arguments"] for call in first["tool_calls"]] == [OSLO["arguments"], BERGEN["arguments"]]
    assert first["extras"]["reasoning_content"] == "I have to look."
    assert [request.status for request in aimock.journal] == [200, 200]


@each
@each_way
async def test_the_shipped_agent(aimock: AIMock, vendor: Vendor, way: str) -> None:
    aimock.says(
        fixture({"content": "add"}, {"userMessage": "Tools:\nadd: Add two numbers."}),
        fixture({"content": {"a": 20, "b": 8}}, {"userMessage": "Function: add"}, chunkSize=2),
        fixture({"content": "Final Answer: 28"}, {"userMessage": "Output: 28"}, chunkSize=2),
    )
    async with (
        vendor.model(at(aimock, vendor).base_url or "") as model,
        Executor(model=model, tools=[add, weather]) as executor,
    ):
        run, _ = await run_of(executor, way, tool_user, "What is 20 + 8?", "r", approve="write")
    assert (run.status, run.output) == ("completed", "28"), run.error


@once
@each
@each_way
@pytest.mark.parametrize(
    ("status", "kind"), [(400, ModelError), (401, ModelMisconfigured), (429, ModelUnavailable), (500, ModelUnavailable)]
)
async def test_refusals(aimock: AIMock, vendor: Vendor, way: str, status: int, kind: type[ModelError]) -> None:
    aimock.says(fixture({"error": {"message": f"not with {KEY}.", "type": "t"}, "status": status, "retryAfter": 7}))
    async with at(aimock, vendor) as model:
        with pytest.raises(ModelError) as caught:
            await ask(model, way, "Tell me a story.")
    assert type(caught.value) is kind
    assert f"HTTP {status}" in str(caught.value)
    assert "not with ***." in str(caught.value)
    assert [request.status for request in aimock.journal] == [status]


@each
async def test_a_run_tries_again_after_a_rate_limit(aimock: AIMock, vendor: Vendor) -> None:
    refuses = {"error": {"message": "no.", "type": "t"}, "status": 429, "retryAfter": 0.2}
    aimock.says(
        fixture(refuses, {"sequenceIndex": 0}), fixture({"content": "Both 21."}, {"sequenceIndex": 1}, chunkSize=3)
    )
    async with at(aimock, vendor, retry=QUICK) as model, Executor(model=model) as executor:
        run, shown = await run_of(executor, "pieces", chat, "Weather?", "r")
        assert await tries_of(executor, "r") == [(False, 1, True), (True, 2, False)]
    assert (run.output, shown) == ("Both 21.", "Both 21.")


@once
@each
async def test_a_stream_that_breaks_is_an_error(aimock: AIMock, vendor: Vendor) -> None:
    aimock.says(fixture({"content": "Once upon a time there was a server."}, chunkSize=4, truncateAfterChunks=3))
    async with at(aimock, vendor, retry=Retry()) as model:
        with pytest.raises(ModelUnavailable):
            await ask(model, "pieces", "Tell me a story.")
