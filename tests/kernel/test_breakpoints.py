"""Breakpoints pause a run and change nothing else, whatever the order in which steps land."""

from __future__ import annotations

import random

import pytest

from orchestrator.kernel.breakpoints import PAUSE
from tests.support.sizes import sized

from .build import joins, plan
from .harness import Simulation, agree, many
from .sketches import structured, values_for


@pytest.mark.parametrize("seed", range(sized(15, 150)))
def test_a_generated_graph_gives_the_same_with_breakpoints(seed: int) -> None:
    sketch, dice = structured(seed), random.Random(seed)
    graph = sketch.plan()
    nodes = sorted(graph.nodes)
    stops = {
        "pause_before": dice.sample(nodes, dice.randint(0, len(nodes))),
        "pause_after": dice.sample(nodes, dice.randint(0, len(nodes))),
    }
    given = {"values": values_for(random.Random(seed)), "seed": seed, "count": 5}
    agree([*many(graph, **given), *many(graph, pauses=0.05, **given, **stops)])  # type: ignore[arg-type]


def test_each_pause_names_its_node_and_no_step_begins_meanwhile() -> None:
    graph = plan("a -> b, c -> j -> d", joins("j"))
    seen: list[str] = []

    def look(machine, record, delta) -> None:  # type: ignore[no-untyped-def]
        question = machine.questions.get(PAUSE)
        if question is not None:
            assert not delta.started
            if not machine.running and (not seen or seen[-1] != question.prompt):
                seen.append(question.prompt)

    trace = Simulation(graph, pause_before=["a", "j"], pause_after=["b", "d"], observers=[look]).run()
    assert trace.status == "completed"
    assert seen == ["paused before a", "paused after b", "paused before j"]  # nothing is left to do after d
