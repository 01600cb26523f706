"""States as deltas: those that a page works out are those that the kernel folds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Executor, node
from orchestrator.executor import Run
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import Forked
from orchestrator.kernel.run_state import RunState
from orchestrator.views.history import Patch, States, states
from orchestrator.views.timeline import timeline
from tests.render.html.sample import run_count, run_tour
from tests.render.html.shapes import SHAPES, Board, shape

pytestmark = pytest.mark.anyio


def patched(state: dict[str, Any], patch: Patch) -> dict[str, Any]:
    """What the page's script does."""
    made = dict(state)
    for name, (how, value, *gone) in patch.items():
        if how == "+":
            made[name] = made[name] + value
        elif how == "~":
            assert isinstance(value, dict)
            assert isinstance(gone[0], list)
            made[name] = {key: part for key, part in {**made[name], **value}.items() if key not in gone[0]}
        else:
            made[name] = value
    return made


def before(kept: States, activation: str) -> dict[str, Any]:
    step = kept.steps[activation]
    base = dict(kept.whole[step.base]) if isinstance(step.base, int) else after(kept, step.base)
    return patched(base, step.merged)


def after(kept: States, activation: str) -> dict[str, Any]:
    return patched(before(kept, activation), kept.steps[activation].patch)


async def compared(run: Run, url: str) -> int:
    """Every step's state after it, beside what the history says."""
    records = run.records()
    plan = Plan.of(run.definition)
    kept, rows = states(plan, records), {row.seq: row for row in timeline(plan, records).rows}
    async with Executor(store=url) as ex:
        points = await ex.history(run.run_id)
    for point in points:
        if rows[point.seq].status == "done":
            assert after(kept, rows[point.seq].activation) == point.values, point
    return len(points)


async def test_states_of_a_tour_are_those_of_its_history(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    run = await run_tour(url)
    assert run.status == "completed"
    assert await compared(run, url) == 12


@pytest.mark.parametrize("name", ["k1", "k3", "k5", "k8", "k10", "k11", "k17", "k22"])
async def test_states_of_forks_and_joins(name: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    made = SHAPES[name]()
    async with Executor(store=url, graphs=[made]) as ex:
        run = await ex.start(made, {"xs": [{"id": 1, "needs": [2]}, {"id": 2}, {"id": 3}]}, run_id="r")
    assert run.status == "completed", run.error
    assert await compared(run, url) > 2


async def test_steps_that_failed_or_were_dropped_have_the_state_that_they_began_with() -> None:
    failing = shape("START -> a\na -> b, c\nb, c -> j\nj -> END", "j", c=fails)
    async with Executor(graphs=[failing]) as ex:
        run = await ex.start(failing, {"xs": []})
    assert run.status == "failed"
    plan = Plan.of(run.definition)
    kept = states(plan, run.records())
    for row in timeline(plan, run.records()).rows:
        assert before(kept, row.activation)["log"][:1] == ([] if row.node == "a" else ["a"])


@node
async def fails(state: Board) -> None:
    await anyio.sleep(0.05)
    raise ValueError("no")


async def test_states_of_a_fork_with_other_values(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    made = SHAPES["k8"]()
    async with Executor(store=url, graphs=[made]) as ex:
        run = await ex.start(made, {"xs": []}, run_id="r")
        steps = [point.seq for point in await ex.history("r")]
    plan = Plan.of(run.definition)
    cuts = [(seq, at.path) for seq in steps[:-1] for at in run.at(seq).branches]
    for seq, path in cuts:
        branch = path or None
        edit = {"log": "put in", "total": 40}
        forked = Forked(seq=seq + 1, ts=0.0, run_id="f", parent="r", at=seq, update=edit, branch=branch)
        records = [*run.at(seq).records(), forked]
        kept, machine = states(plan, records), RunState(plan)
        for record in records:
            apply(machine, record)
        for token in (token for frame in machine.frames() for token in frame.live.values()):
            assert before(kept, token.key) == plan.schema.dump(token.values)
            edited = token.path == (branch or "")
            assert ("put in" in token.values["log"]) == edited  # type: ignore[operator]  # a list


async def test_deltas_grow_with_the_updates_only(tmp_path: Path) -> None:
    sizes = []
    for steps in (100, 200):
        run = await run_count(f"sqlite:///{tmp_path}/{steps}.db", steps)
        kept = states(Plan.of(run.definition), run.records())
        sizes.append(len(json.dumps([[step.merged, step.patch] for step in kept.steps.values()])))
        assert len(kept.whole) == 1
    assert sizes[1] < 2.2 * sizes[0]
