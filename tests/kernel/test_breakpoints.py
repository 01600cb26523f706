"""Breakpoints pause a run and change nothing else, whatever the order in which steps land."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from orchestrator.kernel import records as r
from orchestrator.kernel.question import PAUSE
from orchestrator.kernel.run_state import Delta, RunState
from tests.support.sizes import sized

from .build import joins, plan
from .harness import Simulation, TooLongError, agree
from .test_laws import KINDS, Trial


@pytest.mark.parametrize("kind", KINDS)
def test_generated_graphs_give_the_same_with_breakpoints(kind: str) -> None:
    met: Counter[str] = Counter()

    def look(machine: RunState, record: r.Record, delta: Delta) -> None:
        question = machine.questions.get(PAUSE)
        if question is not None and isinstance(record, r.StepDone | r.RunStarted | r.Answered):
            met[" ".join(question.prompt.split()[:2])] += 1

    for seed in range(sized(3, 60)):
        trial = Trial.draw(kind, seed, asks=0.1, retries=0.1)
        if trial is None or trial.races:
            continue
        nodes, dice = sorted(trial.plan.nodes), random.Random(seed)
        stops = {
            "pause_before": dice.sample(nodes, dice.randint(0, len(nodes))),
            "pause_after": dice.sample(nodes, dice.randint(0, len(nodes))),
        }
        try:
            agree([*trial.many(3, seed), *trial.many(4, seed, pauses=0.05, observers=[look], **stops)])
        except TooLongError:
            continue
        met["graphs"] += 1
    assert met["graphs"] >= sized(1, 40), met
    assert min(met["paused before"], met["paused after"]) >= sized(1, 40), met


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
