"""What views say of a run that ended and was reopened: nothing of its end is left, but in its history."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from orchestrator import Context, Executor, Graph, Run, Update, node
from orchestrator.kernel import records as r
from orchestrator.kernel.plan import Plan
from orchestrator.nodes import Subgraph
from orchestrator.render.terminal.event_lines import EventLines
from orchestrator.stores.memory import MemoryStore
from orchestrator.views.causes import Causes
from orchestrator.views.history import States, points
from orchestrator.views.overlay import Overlay
from orchestrator.views.reader import read
from orchestrator.views.step_tree import StepTree
from orchestrator.views.timeline import Timeline, timeline
from orchestrator.views.trace import Trace
from tests.kernel.build import plan
from tests.kernel.forking import forked
from tests.kernel.harness import Simulation, TooLongError
from tests.kernel.orders import Order, orders
from tests.kernel.test_forks_of_runs import Written
from tests.kernel.test_laws import MOST, Trial
from tests.kernel.test_reopening import Broken
from tests.support.executors import Log, says
from tests.support.sizes import sized


def shown(shape: Plan, records: list[r.Record]) -> tuple[dict[str, Any], Timeline]:
    """What the views say of a whole run, without times."""
    causes, trace, tree, states = Causes(), Trace(), StepTree(), States()
    rows = Timeline(causes)
    read(shape, records, causes, rows, trace, tree, states)
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
        "faulty": dict(overlay.faulty),
        "entered": set(overlay.entered),
        "planned": sorted(
            (plan.path, plan.edge, [(step.id, step.state) for step in plan.steps]) for plan in overlay.planned
        ),
        "rows": {row.activation: (row.status, row.outcome, row.node, row.path) for row in rows.rows},
        "origins": {
            key: (origin.by, sorted(origin.after), origin.edge and origin.edge.index)
            for key, origin in causes.origins.items()
        },
        "drops": dict(causes.drops),
        "end": causes.end and (causes.end.status, causes.end.why),
        "steps": {key: states.steps[key].patch for key in states.steps},
    }, rows


SEEDS = {"structured": (8_000, 8_050), "unstructured": (8_024, 8_045), "mutated": (8_036, 8_048)}


@pytest.mark.full
@pytest.mark.parametrize("kind", SEEDS)
def test_a_reopened_run_and_its_forks_look_like_one_that_never_failed(kind: str) -> None:
    met: Counter[str] = Counter()
    for seed in sized(SEEDS[kind], range(8_000, 8_060)):
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
                at = [dice.randrange(1, len(whole.records)) for _ in range(dice.choice((1, 2, 3)))]
                run = Broken(
                    trial.plan, trial.behaviour, at=at, how="any", order=order, seed=number, values=trial.values,
                    most_steps=3 * MOST,
                )  # fmt: skip
                trace = run.run()
                rows = looks_like(expected, trial.plan, trace.records)
                ends = [record.seq for record in trace.records if isinstance(record, r.Ended)]
                assert len(rows.gaps) >= len(ends) - 1
                for point in points(trial.plan, trace.records):
                    assert point.values or point.outcome is None
                met += Counter({"reopened": len(ends) > 1, "late": run.met["late"]})
                for end in ends[:-1]:
                    fork = Simulation(
                        trial.plan, trial.behaviour, order=order, seed=number, values=trial.values, most_steps=3 * MOST
                    )
                    looks_like(expected, trial.plan, forked(trace, end, fork).records)
                    met["forks"] += 1
        except TooLongError:
            continue
    assert met["reopened"] > sized(1, 100), met
    assert met["late"] >= sized(1, 20), met
    assert met["forks"] >= met["reopened"], met


def looks_like(expected: dict[str, Any], shape: Plan, records: list[r.Record]) -> Timeline:
    """Demand that the views say the same of a run as of the one that never failed."""
    found, rows = shown(shape, records)
    for part, said in expected.items():
        assert found[part] == said, part
    return rows


def reopened_with_late(node: str, shape: Plan, fails: str) -> Overlay:
    """The overlay of a reopened run in which one step failed, and another landed although it was stopped."""
    written = Written(shape)
    written.done(shape.edges[0].target, xs=[1, 2], tasks=[{"id": "1", "needs": []}, {"id": "2", "needs": ["1"]}])
    tokens = {one.node if one.item is None else f"{one.node}:{one.item}": one for one in written.machine.live_tokens()}
    at = {name: {"activation": one.key, "path": one.path, "node": one.node} for name, one in tokens.items()}
    written.put("step_failed", **at[fails], error={"type": "Bug", "message": "a bug"})
    written.put("step_done", **at[node])
    written.put("ended", status="failed", error={"type": "Bug", "message": "a bug"})
    written.put("reopened", status="failed")
    trace = Trace()
    read(shape, written.records, trace)
    return trace.overlay()


def test_an_item_that_landed_although_it_was_stopped_counts_as_done_when_the_run_is_reopened() -> None:
    overlay = reopened_with_late("w:2", plan("p -> w : each xs\nw -> j"), fails="w:1")
    assert overlay.items == {("", "w"): (1, 2)}
    assert overlay.visits["", "w"] == 1
    assert not overlay.failed


def test_a_map_that_a_stopped_step_leads_to_is_opened_when_the_run_is_reopened() -> None:
    overlay = reopened_with_late("p", plan("a -> p, x\np -> w : each tasks\nw, x -> j"), fails="x")
    assert overlay.items == {("", "w"): (0, 2)}
    assert [[(step.id, step.state) for step in one.steps] for one in overlay.planned] == [
        [("1", "running"), ("2", "planned")]
    ]


def test_steps_of_a_map_that_leads_right_to_its_join_are_done() -> None:
    shape = plan("p -> j : each tasks")
    written = Written(shape)
    written.done("p", tasks=[{"id": "1", "needs": ["2"]}, {"id": "2", "needs": []}])
    trace = Trace()
    read(shape, written.records, trace)
    assert [[step.state for step in one.steps] for one in trace.overlay().planned] == [["visited", "visited"]]


@pytest.mark.anyio
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
