"""Generated graphs that are edited at random while a run is in the middle.

Each run either goes on in the edited graph, or is refused with a grade. Where it goes on, it ends, and comes to the
same in every order; where the refusal names a migration, that one works.
"""

from __future__ import annotations

import random
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from orchestrator.cli.fork_command import Migrating, migration_of
from orchestrator.errors import GraphChanged, InvalidGraph
from orchestrator.executor.versions.migration_planning import PlannedMigration, planned
from orchestrator.graph_class import Graph
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.run_state import RunState
from tests.kernel.behave import Seeded
from tests.kernel.build import names_of
from tests.kernel.harness import Simulation, TooLongError
from tests.kernel.orders import Order, orders
from tests.kernel.sketches import EDITS, Sketch, settle, values_for
from tests.kernel.test_laws import DRAWN
from tests.kernel.test_snapshots import differences
from tests.support.sizes import sized

MOST = 150


def rename(sketch: Sketch, dice: random.Random) -> None:
    """Give a node another name."""
    old = dice.choice(names_of(tuple(sketch.edges)))
    new = f"{old}x"
    sketch.edges = [
        replace(e, source=new if e.source == old else e.source, target=new if e.target == old else e.target)
        for e in sketch.edges
    ]
    for part in (sketch.joins, sketch.inner):
        if old in part:
            part[new] = part.pop(old)  # type: ignore[attr-defined]


def edited(sketch: Sketch, dice: random.Random) -> Graph | None:
    """A new version of a graph; None if the checks refuse it."""
    after = Sketch(sketch.name, list(sketch.edges), dict(sketch.joins), dict(sketch.inner), deepcopy(sketch.limits))
    for _ in range(dice.randint(1, 2)):
        dice.choice((*EDITS, rename, rename))(after, dice)
    try:
        return settle(after).graph()
    except InvalidGraph:
        return None


def migration(machine: RunState, old: Graph, new: Graph, met: Counter[str]) -> PlannedMigration | None:
    """How the run goes on in the new version, maybe as a refusal suggests it; None: it does not."""
    try:
        found = planned(machine, old, new)
    except GraphChanged as refused:
        if refused.options is None:
            met["no way"] += 1
            return None
        words = list(refused.options)
        said: dict[str, Any] = {
            name: [value for option, value in pairwise(words) if option == f"--{name}"]
            for name in ("rename", "drop", "set")
        }
        said["set_"] = said.pop("set")
        accept = "--accept-changes" in words
        found = planned(machine, old, new, migration=migration_of(Migrating(**said)), accept=accept)
        met["suggested" if found.record.grade == "migration" else "accepted"] += 1
        return found
    met["compatible" if found.record.changes else "same"] += 1
    return found


def go_on(begun: Simulation, plan: Plan, order: Order, values: dict[str, Any]) -> Simulation:
    """A run of the same journal that goes on in another order, to its end."""
    simulation = Simulation(begun.plan, begun.behaviour, order=order, values=values, most_steps=2 * MOST, lean=True)
    simulation.machine.later.update(begun.machine.later)
    for record in begun.trace.records:
        apply(simulation.machine, r.decode(r.encode(record)))
        simulation.trace.records.append(record)
        if isinstance(record, r.Asked):
            simulation.asked[record.activation] += 1
    assert not list(differences(simulation.machine, begun.machine))
    assert simulation.machine.plan is plan
    while simulation.machine.ended is None:
        simulation.advance()
    return simulation


@pytest.mark.full
@pytest.mark.parametrize("kind", ["structured", "unstructured", "mutated"])
def test_an_edited_graph_refuses_a_run_with_a_grade_or_takes_it_to_one_end(kind: str) -> None:
    met = Counter[str]()
    for seed in sized(range(9_015, 9_023), range(9_000, 9_600)):
        sketch, dice = settle(DRAWN[kind](seed)), random.Random(seed)
        try:
            old = sketch.graph()
        except InvalidGraph:
            continue
        new, values = edited(sketch, dice), values_for(dice)
        if new is None or new.structure == old.structure:
            continue
        plan, order = Plan.of(old), dice.choice(orders(Plan.of(old), 4, seed))
        begun = Simulation(
            plan, Seeded(seed, asks=0.2), order=order, values=values, most_steps=MOST, lean=True, run_id="r"
        )
        begun.begin()
        try:
            for _ in range(dice.randrange(1, 25)):
                if begun.machine.result is None:
                    begun.advance()
        except TooLongError:
            continue
        if begun.machine.result is not None:
            met["over"] += 1
            continue
        where = (
            f"{sketch.text}\nto {'; '.join(map(str, new.edges))}\nat {[t.node for t in begun.machine.live_tokens()]}"
        )
        try:
            found = migration(begun.machine, old, new, met)
            if found is None:
                continue
            begun.machine.later[new.content] = Plan.of(new)
            begun.land(found.record)
            ends = []
            for one in orders(Plan.of(new), sized(2, 3), seed):
                simulation = go_on(begun, Plan.of(new), one, values)
                ends.append((simulation.machine.status, simulation.trace.values))
        except TooLongError:
            met["long"] += 1
            continue
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}\n{where}") from error
        if not (sketch.races or any(isinstance(node.join, int) for node in new.nodes.values())):
            assert all(end == ends[0] for end in ends), f"{ends}\n{where}"
    assert met["compatible"] > 0
    assert met["suggested"] + met["accepted"] > 0, met
