"""Runs as rows: when each step began and ended, what it waited for, what it spent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from msgspec import structs
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Limits, Retry, Update, append, node, tool
from orchestrator.executor import Run
from orchestrator.graph.limits import Usage
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Question
from orchestrator.models.messages import Reply
from orchestrator.nodes import Confirm, Subgraph
from orchestrator.testing import ScriptedModel
from orchestrator.views.timeline import Timeline, TimelineRow, timeline
from tests.kernel.test_forks_of_runs import Written

pytestmark = pytest.mark.anyio


class Talk(BaseModel):
    question: str = ""
    xs: list[int] = [1, 2]
    log: Annotated[list[str], append] = []


@node
async def ask(ctx: Context[object]) -> Update:
    return {"log": (await ctx.model.complete("How are you?")).text}


@node(effect="pure")
def note(state: Talk) -> Update:
    return {"log": "note"}


@tool(effect="idempotent", risk="none")
async def slow(seconds: float) -> str:
    """Takes its time."""
    await anyio.sleep(seconds)
    return "done"


@node
async def work(ctx: Context[object]) -> Update:
    return {"log": str((await ctx.tool("slow", seconds=WAIT[0])).output)}


WAIT = [0.0]


def graph(edges: str, limits: Limits | None = None, **nodes: Any) -> Graph:
    return Graph(name="g", state=Talk, input=("question", "xs"), nodes=nodes, edges=edges, limits=limits or Limits())


def rows_of(run: Run) -> Timeline:
    return timeline(Plan.of(run.definition), run.records())


def by_node(found: Timeline) -> dict[str, TimelineRow]:
    return {row.node: row for row in found.rows}


async def test_usage_of_calls_is_added_up_in_the_graphs_around() -> None:
    inner = graph("START -> ask -> END", ask=ask)
    made = graph("START -> each\neach -> look : each xs\nlook -> END", each=note,
                 look=Subgraph(inner, inputs={"question": "question"}))  # fmt: skip
    model = ScriptedModel({"ask": lambda request: Reply(text="well", usage=Usage(input_tokens=10, output_tokens=2))})
    async with Executor(graphs=[made], model=model) as ex:
        found = rows_of(await ex.start(made, {"question": "q"}))
    looks = [row for row in found.rows if row.node == "look"]
    asks = [row for row in found.rows if row.node == "ask"]
    assert [row.usage.tokens for row in (*looks, *asks)] == [12, 12, 12, 12]
    assert {row.parent for row in asks} == {row.number for row in looks}
    assert all(row.graph and row.depth == 0 for row in looks)
    for row in asks:
        (call,) = row.calls
        assert call.intended.kind == "model"
        assert row.started <= call.started <= (call.ended or 0) <= (row.ended or 0)
        assert call.settled is not None
        assert call.settled.ok


async def test_waiting_for_people_and_for_attempts_is_no_work() -> None:
    tries: list[int] = []

    @node(effect="pure", retry=Retry(attempts=2, wait=0.1, jitter=0, on=("ValueError",)))
    def shaky(state: Talk) -> Update:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        return {"log": "at last"}

    made = graph("START -> shaky -> ask\nask -> END", shaky=shaky, ask=Confirm(prompt="Well?"))
    async with Executor(graphs=[made]) as ex:
        run = await ex.start(made, {"question": "q"})
        then = by_node(rows_of(run))
        assert (then["ask"].status, then["ask"].live, then["ask"].ended) == ("waiting", True, None)
        await anyio.sleep(0.2)
        run = await ex.answer(run.run_id, run.waiting[0].id, Approve(), by="ann")
    found = by_node(rows_of(run))
    first, asked = found["shaky"], found["ask"]
    assert (first.attempt, len(first.failures)) == (2, 1)
    (retry,) = first.waits
    assert (retry.why, retry.seq) == ("retry", first.failures[0].seq)
    assert first.working(0) <= (first.ended or 0) - first.started - 0.09
    person = asked.waits[0]
    assert person.why == "person"
    assert (person.end or 0) - person.start >= 0.2
    assert asked.working(0) <= (asked.ended or 0) - asked.started - 0.2
    assert (asked.asked[0].by, asked.asked[0].answer) == ("ann", Approve())


async def test_time_in_which_nobody_drove_it(tmp_path: Path) -> None:
    url, made = f"sqlite:///{tmp_path}/runs.db", graph("START -> work -> END", work=work)
    WAIT[0] = 30.0
    async with Executor(store=url, graphs=[made], tools=[slow]) as ex:
        run_id = await ex.submit(made, {"question": "q"}, run_id="r")
        with anyio.fail_after(20):
            async for event in ex.events(run_id, follow=True):
                if event.type == "effect_intended":
                    break
    await anyio.sleep(0.3)
    async with Executor(store=url) as ex:
        lost = await ex.load("r")
        assert lost.status == "interrupted"
        assert by_node(rows_of(lost))["work"].status == "running"
        told = lost.why()
        assert told.why.endswith("at work")
        assert told.steps[0].status == "interrupted"
    async with Executor(store=url, graphs=[made], tools=[quick]) as ex:
        run = await ex.resume("r")
    found = rows_of(run)
    assert run.status == "completed", run.error
    (gap,) = found.gaps
    assert (gap.end or 0) - gap.start >= 0.3
    row = by_node(found)["work"]
    assert [wait.why for wait in row.waits] == ["stopped"]
    assert row.working(0) <= (row.ended or 0) - row.started - 0.3
    assert len(row.calls) == 1, "the same call, made again"


@tool(name="slow", effect="idempotent", risk="none")
async def quick(seconds: float) -> str:
    """Takes its time."""
    return "done"


async def test_what_a_race_or_an_end_drops() -> None:
    @node
    async def late(ctx: Context[object]) -> Update:
        await anyio.sleep(30)
        return {}

    made = graph("START -> a\na -> b, c\nb, c -> j\nj -> END", a=note, b=note, c=late, j=note.with_(join=1))
    async with Executor(graphs=[made]) as ex:
        run = await ex.start(made, {"question": "q"})
    found = by_node(rows_of(run))
    assert found["c"].status == "dropped"
    assert found["c"].ended is not None
    assert not found["c"].live


async def test_rows_at_a_record() -> None:
    made = graph("START -> a -> b -> END", a=note, b=note)
    async with Executor(graphs=[made]) as ex:
        run = await ex.start(made, {"question": "q"})
    found = rows_of(run)
    a, b = found.rows
    told = [found.row_at(seq) for seq in range(run.seq + 1)]
    assert told[0] is None
    assert told[1 : run.seq + 1] == [a] + [a] * ((a.seq or 0) - 1) + [b] * (run.seq - (a.seq or 0))


async def test_maps_of_many_items_cost_what_they_are() -> None:
    made = graph("START -> a\na -> b : each xs\nb -> j -> END", a=note, b=note, j=note.with_(join="all"))
    async with Executor(graphs=[made]) as ex:
        run = await ex.start(made, {"question": "q", "xs": list(range(100))})
    found = rows_of(run)
    assert len(found.rows) == 102
    assert all(row.status == "done" for row in found.rows)
    assert len({row.path for row in found.rows}) == 101


async def test_a_clock_that_went_back_makes_no_negative_times() -> None:
    made = graph("START -> a -> b -> END", a=note, b=note)
    async with Executor(graphs=[made]) as ex:
        run = await ex.start(made, {"question": "q"})
    turned = [structs.replace(record, ts=record.ts - 100 * record.seq) for record in run.records()]
    for row in timeline(Plan.of(run.definition), turned).rows:
        assert row.working(0) >= 0


def test_a_question_that_a_stopped_step_still_asked_does_not_make_it_wait() -> None:
    written = Written()
    written.done("a")
    stopped = written.at("c")
    written.put("step_failed", **written.at("b"), error={"type": "ValueError", "message": "no"})
    written.put("asked", **stopped, question=Question(id="q", kind="input", node="c"))
    rows = {row.node: row.status for row in timeline(written.machine.plan, written.records).rows}
    assert rows == {"a": "done", "b": "failed", "c": "dropped"}
