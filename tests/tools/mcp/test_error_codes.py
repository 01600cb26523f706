"""Errors of servers: whatever their code, they are the server's words, and no call is made again because of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Retry, Update, node
from orchestrator.tools.mcp import McpToolbox
from tests.support.sizes import quick_on
from tests.tools.mcp.by_hand import ByHand, serving

pytestmark = pytest.mark.anyio
Rough = Callable[..., McpToolbox]

CODES = (
    -32700, -32603, -32602, -32601, -32600,  # of JSON-RPC
    -32000, -32001, -32002, -32022, -32042, -32099,  # of servers, the SDK's clients and transports
    -32091, -32092, -32093,  # of our own transport
    -1, 0, 1, 404, 500, 2**31,
)  # fmt: skip


class Refusing(ByHand):
    """A server that answers each call with the error, in the form, that its arguments name."""

    tools = ("pay",)

    def call(self, answer: Mapping[str, object], params: Mapping[str, Any]) -> None:
        args = params["arguments"]
        self.seen.append(args)
        match args["form"]:
            case "json" | "text" | "events" | "status 400" | "status 404" | "status 500" as form:
                said = {
                    **answer,
                    "error": {"code": args["code"], "message": "Quota exceeded", "data": args.get("data")},
                }
                media = {"events": "text/event-stream", "text": "text/plain"}.get(form, "application/json")
                return self.say(int(form[7:]) if form.startswith("status") else 200, said, media)
            case "accepted":
                return self.say(202)
            case "no result":
                return self.say(200, {**answer, "result": ["receipt", 5]})
            case "page":
                return self.say(200, "receipt", "text/html")
            case "cut events":
                self.close_connection = True
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                self.wfile.write(b": nothing follows\n\n")
        return None


@pytest.fixture
def refusing() -> Iterator[tuple[str, type[Refusing]]]:
    with serving(Refusing) as found:
        yield found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK leaves its generators open
@pytest.mark.parametrize("form", ["json", "text", "events", "status 400", "status 404", "status 500"])
async def test_over_http_each_code_is_the_servers_and_costs_one_call(
    refusing: tuple[str, type[Refusing]], form: str
) -> None:
    url, kind = refusing
    async with McpToolbox.http(url) as box:
        for code in CODES:
            found = await box.execute(name="pay", tool_input={"form": form, "code": code, "data": {"a": [1]}})
            assert (str(found.error), found.metadata) == (f"MCP server {box.server.name!r}: Quota exceeded", {})
    assert [args["code"] for args in kind.seen] == [*CODES]
    assert kind.sessions == 1


async def test_over_stdio_each_code_is_the_servers_and_costs_one_call(rough: Rough, tmp_path: Path) -> None:
    async with rough() as box:
        for code in CODES:
            found = await box.execute(name="refuse", tool_input={"text": str(code)})
            assert (str(found.error), found.metadata) == (f"MCP server {box.server.name!r}: Quota exceeded", {})
    assert (tmp_path / "refused").read_text().split() == [*map(str, CODES)]
    assert len((tmp_path / "pids").read_text().split()) == 1


class Paying(BaseModel):
    """What a run that pays knows."""

    said: str = ""
    form: str = ""


@node(retry=Retry(attempts=3, wait=0, jitter=0, on=("Exception",)))
async def pay(state: Paying, ctx: Context) -> Update:
    """Pays through the server, and fails if that does."""
    found = await ctx.tool("pay", check=True, form=state.form, code=-32093)
    return {"said": str(found.output)}


paying = Graph(name="paying", state=Paying, nodes={"pay": pay}, edges="START -> pay -> END", output="said")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("form", "why", "error"),
    [
        ("accepted", "refused", "202 Accepted"),
        ("no result", "refused", "its result is not an object"),
        ("page", "refused", "its answer is not a message of JSON-RPC"),
        ("cut events", "connection", "was lost during the call"),
    ],
)
async def test_an_answer_that_is_none_is_asked_about(
    refusing: tuple[str, type[Refusing]], form: str, why: str, error: str
) -> None:
    url, kind = refusing
    async with Executor(graphs=[paying], tools=[McpToolbox.http(url)]) as executor:
        run = await executor.start(paying, {"form": form})
        (question,) = run.waiting
        assert (question.kind, question.payload["why"]) == ("unknown_outcome", why)
        assert error in question.payload["error"]
        run = await executor.answer(run.run_id, question.id, {"choice": "happened", "result": "paid"})
        assert (run.status, run.output) == ("completed", "paid")
    assert len(kind.seen) == 1


@quick_on("asyncio")
@pytest.mark.parametrize("name", ["big", "deep", "nonsense", "endless"])
async def test_over_stdio_too(rough: Rough, name: str) -> None:
    @node(retry=Retry(attempts=3, wait=0, jitter=0, on=("Exception",)))
    async def work(state: Paying, ctx: Context) -> Update:
        return {"said": str((await ctx.tool(name, check=True)).output)}

    graph = Graph(name="g", state=Paying, nodes={"work": work}, edges="START -> work -> END", output="said")
    async with Executor(graphs=[graph], tools=[rough()]) as executor:
        run = await executor.start(graph, {})
        (question,) = run.waiting
        assert (question.kind, question.payload["why"]) == ("unknown_outcome", "refused")
        assert "gave no result: " in question.prompt
