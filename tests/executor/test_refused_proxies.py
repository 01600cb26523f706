"""A call that returned has happened, also if what it returned raises as soon as it is looked at."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import Context, Executor, Graph, Update, node, tool
from orchestrator.graph import Node
from tests.support.executors import Log, single

pytestmark = pytest.mark.anyio


class Gone:
    """What a proxy stands for."""


class Unbound:
    """A lazy proxy outside of the place where it stands for something."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("working outside of a request")

    def __repr__(self) -> str:
        raise RuntimeError("working outside of a request")


def _effect(pay: Callable[[], Any]) -> Node:
    @node
    async def work(state: Log, ctx: Context) -> Update:
        return {"n": await ctx.effect("pay", pay, returns=int, effect="irreversible")}

    return work


def _tool(pay: Callable[[], Any]) -> Node:
    @node
    async def work(state: Log, ctx: Context) -> Update:
        return {"log": str((await ctx.tool("pay", check=True)).output)}

    return work


def _node(pay: Callable[[], Any]) -> Node:
    @node(effect="irreversible")
    def work(state: Log) -> Any:
        return pay()

    return work


def _async_node(pay: Callable[[], Any]) -> Node:
    @node(effect="irreversible")
    async def work(state: Log) -> Any:
        return pay()

    return work


@pytest.mark.parametrize("made", [lambda: weakref.proxy(Gone()), Unbound], ids=["gone", "unbound"])
@pytest.mark.parametrize("door", [_effect, _tool, _node, _async_node])
async def test_a_result_that_cannot_be_looked_at_is_a_refused_one(
    door: Callable[[Callable[[], Any]], Node], made: Callable[[], Any]
) -> None:
    paid: list[str] = []

    def pay() -> Any:
        """Pay."""
        paid.append("once")
        return made()

    graph: Graph = single(door(pay))
    tools = [tool(risk="write", effect="irreversible")(pay)]
    async with Executor(graphs=[graph], tools=tools) as executor:
        run = await executor.start(graph, "x")
        assert run.status == "failed"
        run = await executor.resume(run.run_id, retry=True)
        assert [question.kind for question in run.waiting] == ["unknown_outcome"]
        assert run.waiting[0].payload["why"] == "refused"
    assert paid == ["once"]
