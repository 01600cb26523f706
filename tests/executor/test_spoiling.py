"""Whatever a node, a tool or a caller does with values that it was given: journal, state and others do not change."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Update, node, tool
from orchestrator.kernel import records as r
from orchestrator.models import Reply, ToolCall
from orchestrator.stores import Store
from orchestrator.testing import ScriptedModel
from orchestrator.tools import ToolResult

pytestmark = pytest.mark.anyio

GIVEN: list[Any] = [1, {"a": [2]}]
SPOILT = "spoilt"
kept: list[Any] = []
"""What those who gave it still hold."""


def given() -> list[Any]:
    return json.loads(json.dumps(GIVEN))  # type: ignore[no-any-return]


def spoil(value: Any) -> None:
    """Change everything that can be changed; what a message contains cannot."""
    with suppress(TypeError):
        _spoil(value)


def _spoil(value: Any) -> None:
    if isinstance(value, BaseModel):
        spoil(list(vars(value).values()))
    elif isinstance(value, dict):
        spoil(list(value.values()))
        value[SPOILT] = 1
    elif isinstance(value, list | tuple):
        for item in value:
            spoil(item)
        if isinstance(value, list):
            value.append(SPOILT)


def made() -> list[Any]:
    """What whoever made it keeps, and changes later."""
    kept.append(given())
    return kept[-1]  # type: ignore[no-any-return]


@tool(effect="read")
def look() -> ToolResult:
    """Look."""
    return ToolResult(output=made(), metadata={"facts": made()})


@tool(effect="irreversible")
def change(values: list[Any], more: dict[str, Any]) -> str:
    """Change what it is given."""
    spoil([values, more])
    return "done"


def changes(values: list[Any]) -> list[Any]:
    found = json.loads(json.dumps(values))
    spoil(values)
    return found  # type: ignore[no-any-return]


async def effect(ctx: Context) -> Any:
    return await ctx.effect("rows", made, returns=list[Any])


async def irreversible(ctx: Context) -> Any:
    return await ctx.effect("rows", made, returns=list[Any], effect="irreversible")


async def arguments(ctx: Context) -> Any:
    return await ctx.effect("rows", changes, given(), returns=list[Any], effect="irreversible")


async def memory(ctx: Context) -> Any:
    await ctx.memory.put(("a",), "k", made())
    found = await ctx.memory.get(("a",), "k")
    assert found is not None
    return found.value


async def listed(ctx: Context) -> Any:
    await ctx.memory.put(("a",), "k", made())
    return next(item.value for item in await ctx.memory.list(("a",)))


async def answer(ctx: Context) -> Any:
    payload = {"shown": given()}
    found = await ctx.ask("input", prompt="what?", payload=payload)
    assert found.type == "value"
    return found.value


async def approval(ctx: Context) -> Any:
    args = {"values": given(), "more": {}}
    found = await ctx.ask("approval", prompt="may I?", payload={"tool": "change", "args": args, "risk": "dangerous"})
    assert isinstance(found, Approve)
    assert found.args is not None
    return found.args["values"]


async def event(ctx: Context) -> Any:
    return await ctx.receive("news")


async def result(ctx: Context) -> Any:
    found = await ctx.tool("look")
    assert found.metadata == {"facts": GIVEN}
    return found


async def tool_arguments(ctx: Context) -> Any:
    handed = {"values": given(), "more": {"b": given()}}
    await ctx.tool("change", handed)
    return handed["values"]


async def reply(ctx: Context) -> Any:
    found = await ctx.model.complete("what?")
    assert found.tool_calls[0].arguments == {"given": GIVEN}
    return found


WAYS: dict[str, Callable[[Context], Awaitable[Any]]] = {
    way.__name__: way for way in (
        effect, irreversible, arguments, memory, listed, answer, approval, event, result, tool_arguments, reply,
    )
}  # fmt: skip


class Seen(BaseModel):
    way: str = ""
    seen: Any = None
    more: list[Any] = []


@node
async def go(state: Seen, ctx: Context) -> Update:
    """Have a value, note what it is, change it, and ask: the answer runs the node again."""
    found = await WAYS[state.way](ctx)
    seen = json.loads(json.dumps(found.model_dump(mode="json") if isinstance(found, BaseModel) else found))
    spoil(found)
    spoil(kept)
    await ctx.ask("input", prompt="go on?")
    await ctx.ask("input", prompt="once more?")
    return {"seen": seen, "more": made()}


@node(effect="pure")
async def later(state: Seen) -> Update:
    """What the first node returned and still holds is changed before the journal is read."""
    spoil(kept)
    spoil([state.seen, state.more])
    return {}


GRAPH = Graph(
    name="g", state=Seen, nodes={"go": go, "later": later}, edges="START -> go -> later -> END", output="seen"
)


def model() -> ScriptedModel:
    return ScriptedModel([Reply(tool_calls=(ToolCall(id="1", name="look", arguments={"given": given()}),))])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("restarts", [False, True])
async def test_nothing_that_a_node_changes_reaches_the_journal(store: Store, way: str, restarts: bool) -> None:
    kept.clear()
    handed: list[Any] = []
    run = None
    model_ = model()
    for _ in range(5):
        async with Executor(store, graphs=[GRAPH], tools=[look, change], model=model_) as executor:
            run = await (executor.start(GRAPH, {"way": way}, run_id="r") if run is None else executor.load("r"))
            for _ in range(1 if restarts else 5):
                if run.status != "paused":
                    break
                (question,) = run.waiting
                spoil([question.payload, run.values, run.output])
                assert SPOILT not in str((await executor.load("r")).waiting)
                handed.append(given())
                if question.kind == "event":
                    run = await executor.send("r", "news", handed[-1])
                elif question.kind == "approval":
                    run = await executor.answer("r", question.id, Approve(args={"values": handed[-1], "more": {}}))
                else:
                    run = await executor.answer("r", question.id, handed[-1])
                spoil(handed)
    assert run is not None
    run.raise_for_status()
    spoil([run.output, run.values])
    async with Executor(store, graphs=[GRAPH]) as executor:
        after = await executor.load("r")
    assert (SPOILT in str(after.values), SPOILT in str(after.output)) == (False, False)
    assert "2" in str(after.output)
    assert [line for line in map(r.encode, await store.read("r")) if SPOILT in str(line)] == []
