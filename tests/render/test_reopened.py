"""What views say of a run that ended and was reopened: nothing of its end is left, but in its history."""

from __future__ import annotations

import random
from typing import Any

import pytest

from orchestrator import Context, Executor, Graph, Run, Update, node
from orchestrator.kernel import records as r
from orchestrator.kernel.plan import Plan
from orchestrator.nodes import Subgraph
from orchestrator.render.terminal.event_lines import EventLines
from orchestrator.stores.memory import MemoryStore
from orchestrator.views.causes import Causes
from orchestrator.views.history import points
from orchestrator.views.reader import read
from orchestrator.views.states import States
from orchestrator.views.step_tree import StepTree
from orchestrator.views.timeline import Timeline, timeline
from orchestrator.views.trace import Trace
from tests.kernel.harness import TooLongError
from tests.kernel.orders import Order, orders
from tests.kernel.test_laws import MOST, Trial
from tests.kernel.test_reopening import Broken
from tests.support.executors import Log, says
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


def shown(plan: Plan, records: list[r.Record]) -> tuple[dict[str, Any], Timeline]:
    """What the views say of a whole run, without times."""
    causes, trace, tree, states = Causes(), Trace(), StepTree(), States()
    rows = Timeline(causes)
    read(plan, records, causes, rows, trace, tree, states)
    overlay = trace.overlay()
    assert not list(tree.running())
    assert {row.activation for row in rows.rows} >= {row.activation for row in rows.rows if row.status == "done"}
    return {
        "visits": {place: count for place, count in overlay.visits.items() if count},
        "taken": dict(overlay.taken),
        "running": overlay.running,
        "waiting": overlay.waiting,
        "failed": overlay.failed,
        "queued": overlay.queued,
        "status": overlay.status,
        "told": dict(overlay.told),
        "items": dict(overlay.items),
        "rows": {row.activation: (row.status, row.outcome, row.node, row.path) for row in rows.rows},
        "origins": {
            key: (origin.by, sorted(origin.after), origin.edge and origin.edge.index)
            for key, origin in causes.origins.items()
        },
        "drops": dict(causes.drops),
        "end": causes.end and (causes.end.status, causes.end.why),
        "steps": {key: states.steps[key].patch for key in states.steps},
    }, rows


@pytest.mark.parametrize("kind", ["structured", "unstructured"])
async def test_a_reopened_run_looks_like_one_that_never_failed(kind: str) -> None:
    seen = 0
    for seed in sized(range(8_000, 8_010), range(8_000, 8_060)):
        trial = Trial.draw(kind, seed, asks=0.1, retries=0.1)
        if trial is None or trial.races:
            continue
        try:
            whole = trial.run(Order("first"))
            if whole.status != "completed":
                continue
            expected, _ = shown(trial.plan, whole.records)
            for number, order in enumerate(orders(trial.plan, 3, seed)):
                dice = random.Random(f"{seed} {number}")
                run = Broken(
                    trial.plan, trial.behaviour, at=[dice.randrange(1, len(whole.records))], how="any", order=order,
                    seed=number, values=trial.values, most_steps=3 * MOST,
                )  # fmt: skip
                trace = run.run()
                found, rows = shown(trial.plan, trace.records)
                for part, said in expected.items():
                    assert found[part] == said, (trial.name, part)
                ends = sum(isinstance(record, r.Ended) for record in trace.records)
                assert len(rows.gaps) >= ends - 1
                for point in points(trial.plan, trace.records):
                    assert point.values or point.outcome is None
                seen += ends > 1
        except TooLongError:
            continue
    assert seen > 5


async def test_a_page_a_drawing_and_why_tell_of_the_new_attempt() -> None:
    broken = [True]

    @node
    async def work(ctx: Context[Any]) -> Update:
        if broken:
            raise ZeroDivisionError("a bug")
        return {"log": "work"}

    inside = Graph(name="in", state=Log, nodes={"x": says("x"), "work": work}, edges="START -> x -> work -> END")
    graph = Graph(
        name="out", state=Log, nodes={"a": says("a"), "sub": Subgraph(inside), "c": says("c")},
        edges="START -> a -> sub -> c -> END", output="log",
    )  # fmt: skip
    async with Executor(MemoryStore(), graphs=[graph]) as executor:
        failed: Run = await executor.start(graph, {})
        assert "ZeroDivisionError" in str(failed.why())
        assert failed.overlay().failed
        broken.clear()
        run = await executor.resume(failed.run_id, retry=True)
        assert run.status == "completed"
        assert not run.overlay().failed
        assert "reached END" in str(run.why())
        rows = timeline(Plan.of(graph), run.records()).rows
        (row,) = [row for row in rows if row.node == "work"]
        assert (row.status, row.attempt, [str(one.error) for one in row.failures]) == (
            "done", 2, ["ZeroDivisionError: a bug"],
        )  # fmt: skip
        assert "attempt 2" in str(run.why(row.seq))
        assert "a bug" in run.to_html()
        assert run.to_svg().count("<svg") == 1
        seqs = [record.seq for record in run.records() if record.type == "ended"]
        assert "sub failed" in str(run.at(seqs[0]).why())
        lines = EventLines()
        said = [lines.text(event) async for event in executor.events(run.run_id)]
        assert "reopened: it had ended (failed)" in said
        assert [point.node for point in await executor.history(run.run_id)] == [
            "a",
            "x",
            "work",
            "sub",
            "work",
            "sub",
            "c",
        ]
