"""Which limit was spent is said: to the node behind `exhausted`, and by the run."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Limits, Run, append, node
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import dump, load
from orchestrator.nodes import Subgraph
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio


class Log(BaseModel):
    log: Annotated[list[str], append] = []
    inside: list[str] = []


@node
def step() -> dict[str, object]:
    return {"log": "step"}


@node
async def ask(ctx: Context[None]) -> dict[str, object]:
    return {"log": (await ctx.model.complete("?")).text}


@node(timeout=0.01)
async def slow(ctx: Context[None]) -> None:
    import anyio

    await anyio.sleep(30)


@node
def wrong() -> None:
    raise KeyError("k")


@node
def rescue(ctx: Context[None]) -> dict[str, object]:
    error = ctx.error
    return {"log": "nothing" if error is None else f"{error.type}|{error.message}|{error.node}|{error.path}"}


def loop(work: Any = step, **limits: Any) -> Graph:
    return Graph(
        name="loop", state=Log, nodes={"work": work, "more": node(effect="pure", outcomes=("again", "enough"))(_again)},
        edges="START -> work -> more\nmore -> work : again\nmore -> END : enough",
        limits=Limits(**limits), output="log",
    )  # fmt: skip


def _again() -> Any:
    from orchestrator import Outcome

    return Outcome("again")


def rescued(graph: Graph) -> Graph:
    edges = [*graph.edges, ("*", "rescue", "exhausted"), ("rescue", "END")]
    return Graph(
        name="loop", state=Log, nodes={**graph.nodes, "rescue": rescue}, edges=edges, limits=graph.limits, output="log"
    )


async def go(graph: Graph) -> Run:
    async with Executor(model=ScriptedModel(lambda request: "said")) as executor:
        return await executor.start(graph, {})


LIMITS = [
    (step, {"steps": 3}, "steps=3 are spent before 'more' in graph 'loop'", "more"),
    (step, {"visits": {"work": 2}}, "visits=2 of node 'work' are spent in graph 'loop'", "work"),
    (ask, {"calls": 2}, "calls=2 are spent before 'work' in graph 'loop'", "work"),
    (slow.with_(timeout=None), {"seconds": 0.05}, "seconds=0.05 are spent in graph 'loop'", ""),
]


@pytest.mark.parametrize(("work", "limits", "words", "where"), LIMITS, ids=["steps", "visits", "calls", "seconds"])
async def test_an_exhausted_run_names_the_limit(work: Any, limits: dict[str, Any], words: str, where: str) -> None:
    graph = loop(work, **limits)
    found = await go(graph)
    assert found.status == "exhausted"
    assert found.error is not None
    assert (found.error.type, found.error.message, found.error.node) == ("LimitSpent", words, where)
    assert found.to_json()["error"]["message"] == words

    behind = await go(rescued(graph))
    assert (behind.status, behind.output[-1]) == ("exhausted", f"LimitSpent|{words}|{where}|")
    assert behind.error is not None
    assert behind.error.message == words


async def test_a_limit_inside_is_named_outside_with_its_place() -> None:
    inside = Subgraph(loop(steps=3), outputs={"inside": "log"})
    plain = Graph(name="outer", state=Log, nodes={"inner": inside}, edges="START -> inner -> END")
    words = "steps=3 are spent before 'more' in graph 'loop'"
    async with Executor() as executor:
        found = await executor.start(plain, {})
        (end,) = [one for one in await executor.history(found.run_id) if one.node == "inner"]
    assert (found.status, found.error) == ("completed", None)  # only what is inside spent its limits
    assert end.error is not None
    assert (end.outcome, end.error.message, end.error.path) == ("done", words, "inner")
    taken = Graph(
        name="outer", state=Log, nodes={"inner": inside, "rescue": rescue},
        edges="START -> inner -> END\ninner -> rescue : exhausted\nrescue -> END", output="log",
    )  # fmt: skip
    found = await go(taken)
    assert (found.status, found.error, found.output[-1]) == ("completed", None, f"LimitSpent|{words}|more|inner")


@pytest.mark.parametrize(
    ("work", "outcome", "told"),
    [
        (slow, "timeout", "StepTimeout|work took longer than 0.01 s|work|"),
        (slow, "error", "StepTimeout|work took longer than 0.01 s|work|"),
        (wrong, "error", "KeyError|'k'|work|"),
    ],
)
async def test_what_a_time_out_or_an_error_leads_to_is_told_too(work: Any, outcome: str, told: str) -> None:
    graph = Graph(
        name="g", state=Log, nodes={"work": work, "rescue": rescue},
        edges=f"START -> work -> END\nwork -> rescue : {outcome}\nrescue -> END", output="log",
    )  # fmt: skip
    assert (await go(graph)).output == [told]


async def test_a_snapshot_keeps_it() -> None:
    graph = rescued(loop(steps=3))
    async with Executor() as executor:
        found = await executor.start(graph, {})
        records = await executor.store.read(found.run_id)
    machine = RunState(Plan.of(graph))
    for record in records:
        apply(machine, record)
        again = load(Plan.of(graph), dump(machine))
        assert again.root is not None
        assert machine.root is not None
        assert again.root.spent_limit == machine.root.spent_limit
