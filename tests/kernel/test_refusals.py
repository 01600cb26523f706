"""Graphs as they are drawn, not mended: the checks refuse one with a code and a place, or it never gets stuck."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel

from orchestrator import Graph, Outcome, Update, add, append, node
from orchestrator.errors import InvalidGraph
from tests.support.sizes import sized

from .behave import Seeded
from .harness import Simulation, TooLongError
from .orders import orders
from .sketches import Sketch, mutated, problems_of, settle, structured, unstructured, values_for

KINDS: dict[str, Callable[[int], Sketch]] = {
    "structured": structured,
    "unstructured": unstructured,
    "mutated": mutated,
}


class Rounds(BaseModel):
    n: Annotated[int, add] = 0
    seen: Annotated[list[str], append] = []


def judged(sketch: Sketch, seed: int, count: int) -> Counter[str]:
    """What became of a graph: the codes that refuse it, or how it ended."""
    problems = problems_of(sketch)
    if problems:
        for problem in problems:
            assert re.fullmatch(r"C1\.[a-z]+|C[2-6]", problem.code), (problem, sketch.text)
            assert problem.message
        with pytest.raises(InvalidGraph, match=re.escape(problems[0].message)):
            sketch.graph()
        return Counter(problem.code[:2] for problem in problems)
    plan = sketch.plan()
    found: Counter[str] = Counter(accepted=1)
    values = values_for(random.Random(seed))
    for number, order in enumerate(orders(plan, count, seed)):
        run = Simulation(plan, Seeded(seed, silent=0.2), order=order, seed=seed + number, values=values, most_steps=200)
        try:
            found[run.run().status] += 1
        except TooLongError:  # it goes on: that is not to be stuck
            found["long"] += 1
        except AssertionError as error:
            raise AssertionError(f"{error}\nin {sketch.text}\nvalues {values}, order {order.name}") from error
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_checks_let_pass_never_gets_stuck(kind: str) -> None:
    found: Counter[str] = Counter()
    for seed in range(1_000, sized(1_008, 1_025)):
        drawn = KINDS[kind](seed)
        found += judged(drawn, seed, 2)
        if problems_of(drawn):
            found += judged(settle(drawn), seed, 2)
    assert found["accepted"] > sized(4, 14), found
    assert found["completed"] > sized(6, 20), found


@pytest.mark.parametrize("join", ["all", 1, 2, 3])
def test_a_join_may_wait_for_branches_that_a_loop_back_to_their_fork_sends(join: Literal["all"] | int) -> None:
    @node
    def work(state: Rounds) -> Outcome[Literal["again", "over"]]:
        return Outcome("again" if state.n < 3 else "over", n=1)

    @node
    def side(state: Rounds) -> Update:
        return {"seen": "side"}

    @node(join=join)
    def meet(state: Rounds) -> Update:
        return {"seen": f"met {len(state.seen)}"}

    graph = Graph(
        name="rounds",
        state=Rounds,
        nodes={"work": work, "side": side, "meet": meet},
        edges="START -> work\nwork -> side, work : again\nside -> meet -> END\nwork -> END : over",
        output="seen",
    )
    run = graph.run_sync({})
    wanted = 3 if join == "all" else join
    assert (run.status, run.output) == ("completed", ["side"] * wanted + [f"met {wanted}"])


def test_every_check_refuses_something() -> None:
    """Else the law above would hold of checks that are never asked."""
    found: Counter[str] = Counter()
    wanted = ("C1", "C2", "C3", "C4", "C5", "C6")
    for seed in sized((2, 7, 30, 40, 158), range(200)):
        if all(found[code] for code in wanted):
            break
        for sketch in (mutated(seed), unstructured(seed)):
            codes = {problem.code for problem in problems_of(sketch)} | {p.code for p in problems_of(settle(sketch))}
            found.update(code[:2] for code in codes)
    assert all(found[code] for code in wanted), found


@pytest.mark.storm
@pytest.mark.parametrize("kind", KINDS)
def test_a_storm_of_refusals(kind: str, scale: int) -> None:
    """`--storm-scale N`: N times 100 graphs of each kind, as drawn and as mended."""
    found: Counter[str] = Counter()
    for seed in range(2_000, 2_000 + 100 * scale):
        drawn = KINDS[kind](seed)
        found += judged(drawn, seed, 4)
        if problems_of(drawn):
            found += judged(settle(drawn), seed, 4)
    print(f"\n{kind}: {dict(found)}")
    assert found["accepted"] > 45 * scale, found
