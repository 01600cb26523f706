"""Events that no step takes: a warning for a name that no node waits for, and the reason in what is said of the run."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, node
from orchestrator.nodes import Ask, Subgraph, Wait

pytestmark = pytest.mark.anyio


class Order(BaseModel):
    order: str = ""
    payment: object = None


@node
def plain(state: Order) -> None:
    pass


@node
async def code(state: Order, ctx: Context[object]) -> dict[str, object]:
    return {"payment": await ctx.receive("payment-done")}


WAIT = Wait(event="paid", match={"order": "order"}, into="payment")


def graph_of(**nodes: Any) -> Graph[Order]:
    way = " -> ".join(("START", *nodes, "END"))
    return Graph(name="orders", state=Order, input="order", output="payment", nodes=nodes, edges=way)


INNER = graph_of(wait=WAIT)
GRAPHS = {
    "its own name": (graph_of(wait=WAIT), "paid", ""),
    "a misspelt name": (graph_of(wait=WAIT), "payed", "did you mean 'paid'?"),
    "a strange name": (graph_of(plain=plain, wait=WAIT), "zzz", "it waits for paid"),
    "the name of a graph inside": (graph_of(sub=Subgraph(INNER)), "paid", ""),
    "a misspelt name of a graph inside": (graph_of(sub=Subgraph(INNER)), "payd", "did you mean 'paid'?"),
    "the name of a node that asks": (graph_of(wait=WAIT, reply=Ask(prompt="?", answer="payment")), "replies", "reply"),
    "a strange name beside code": (graph_of(wait=WAIT, code=code), "zzz", ""),
    "a misspelt name beside code": (graph_of(wait=WAIT, code=code), "payed", "though code may: did you mean 'paid'?"),
}


@pytest.mark.parametrize("name", GRAPHS)
async def test_a_name_that_no_node_waits_for(name: str, caplog: pytest.LogCaptureFixture) -> None:
    graph, event, hint = GRAPHS[name]
    async with Executor(graphs=[graph], idle="sleep") as ex:
        await ex.start(graph, "7", run_id="r")
        await ex.send("r", event, {"order": "8"})
        why = (await ex.load("r")).why()
    if not hint:
        assert not caplog.records
        assert "node of graph" not in why.to_text()
        return
    (warned,) = caplog.records
    assert "node of graph 'orders' waits for it" in warned.getMessage()
    assert hint in warned.getMessage()
    (untaken,) = why.untaken
    assert untaken.why in warned.getMessage()
    assert untaken.line in why.to_text()


async def test_an_event_that_is_delivered_again_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    async with Executor(graphs=[INNER], idle="sleep") as ex:
        await ex.start(INNER, "7", run_id="r")
        for _ in range(3):
            await ex.send("r", "payed", id="e")
    assert len(caplog.records) == 1


async def test_code_that_waits_now_is_known(caplog: pytest.LogCaptureFixture) -> None:
    graph = graph_of(code=code)
    async with Executor(graphs=[graph], idle="sleep") as ex:
        await ex.start(graph, "7", run_id="r")
        run = await ex.send("r", "payment-dne")
        assert "did you mean 'payment-done'?" in run.why().untaken[0].why
        run = await ex.send("r", "payment-done", 1)
    assert (run.status, len(caplog.records)) == ("completed", 1)


async def test_each_reason() -> None:
    two = graph_of(wait=WAIT, again=Wait(event="shipped"), last=Wait(event="never"))
    async with Executor(graphs=[two], idle="sleep") as ex:
        await ex.start(two, "7", run_id="r")

        async def reasons() -> dict[int, str]:
            return {one.seq: one.why for one in (await ex.load("r")).why().untaken}

        await ex.send("r", "paid", {"order": "8"}, resume=False)
        await ex.send("r", "shipped", 1, resume=False)
        wrong, early = await reasons()
        assert "its data does not match: wait waits for event 'paid' with order = '7'" in (await reasons())[wrong]
        assert (await reasons())[early] == "no step waits for it yet"
        await ex.send("r", "paid", {"order": "7"})
        await ex.send("r", "paid", {"order": "7"}, resume=False)
        first, second = await reasons()
        assert first == wrong
        assert "its data did not match, and that of a later one did" in (await reasons())[wrong]
        assert "another one came first" in (await reasons())[second]
        assert "no step waits for a further one now" in (await reasons())[second]
        await ex.cancel("r")
        assert (await reasons())[second].endswith("the run ended")


async def test_a_run_that_ends_first() -> None:
    graph = graph_of(ask=Ask(prompt="?", answer="payment"), wait=WAIT)
    async with Executor(graphs=[graph], idle="sleep") as ex:
        await ex.start(graph, "7", run_id="r")
        await ex.send("r", "paid", {"order": "7"}, resume=False)
        assert (await ex.cancel("r")).why().untaken[0].why == "the run ended before a step took it"
