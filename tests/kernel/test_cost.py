"""A step costs what it touches: counted work per step does not grow with the run's length.

What is counted is lines and calls of the library that run, not time: the same on every machine, and a loop over all
that is live, or all that ended, shows whatever it calls. Each run is made once short and once eight times as long.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from orchestrator.graph.limits import Limits
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import state_values
from orchestrator.kernel.records import RULES
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import dump
from tests.support.sizes import sized

from .build import Lean, plan

TIMES = 8


class Work:
    """Lines that ran in the orchestrator, and calls of its functions, while it was switched on."""

    def __init__(self) -> None:
        self.lines = self.calls = 0

    def _line(self, frame: FrameType, event: str, _: object) -> Any:
        self.lines += event == "line"
        return self._line

    def _call(self, frame: FrameType, event: str, _: object) -> Any:
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith("orchestrator."):
            return None
        self.calls += 1
        return self._line

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what runs inside."""
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)


Chooses = Callable[[RunState, int], tuple[int, str, Mapping[str, Any]]]
"""(the machine, number of the step) -> which of what runs lands, its outcome, its update."""


def per_step(graph: Plan, chooses: Chooses, steps: int, values: Mapping[str, Any], window: int) -> float:
    """Lines per step, over the last `window` steps of so many."""
    return driven(graph, chooses, steps, values, window)[1].lines / window


def driven(
    graph: Plan, chooses: Chooses, steps: int, values: Mapping[str, Any], window: int = 0
) -> tuple[RunState, Work]:
    """The machine after so many steps, and what the last `window` of them ran."""
    machine = RunState(graph)
    start = graph.schema.initial(values)
    started = {"run_id": "run", "graph": "g", "structure": "s", "content": "c", "rules": RULES}
    apply(machine, r.RunStarted(seq=1, ts=1.0, values=dict(start), **started))
    work = Work()
    for number in range(steps):
        while (a := next(iter(machine.running.values()))).node in a.frame.plan.sub:
            at = {"seq": machine.head + 1, "ts": 1.0, "activation": a.key, "path": a.path, "node": a.node}
            apply(machine, r.GraphOpened(**at, attempt=1, values=dict(start)))
        running = list(machine.running.values())
        place, outcome, given = chooses(machine, number)
        a = running[place]
        update, ops = graph.schema.encode_update(given)
        at = {"seq": machine.head + 1, "ts": 1.0, "activation": a.key, "path": a.path, "node": a.node}
        record = r.StepDone(**at, outcome=outcome, update=dict(update), ops=ops)
        if number < steps - window:
            apply(machine, record)
        else:
            with work.counted():
                apply(machine, record)
    return machine, work


def node_of(machine: RunState, place: int) -> str:
    return list(machine.running.values())[place].node


def forward(machine: RunState, number: int) -> tuple[int, str, Mapping[str, Any]]:
    """What runs longest lands first; every node that may goes round again, and counts."""
    node = node_of(machine, 0)
    return 0, "again" if "again" in machine.plan.nodes[node].outcomes else "done", {"count": 1}


def round_and_round(machine: RunState, number: int) -> tuple[int, str, Mapping[str, Any]]:
    """Each second step goes back to the first node."""
    return 0, "again" if number % 2 else "done", {"count": 1}


def starving_q(machine: RunState, number: int) -> tuple[int, str, Mapping[str, Any]]:
    """The same, while the branch of node q stays open for ever."""
    running = list(machine.running.values())
    place = next(i for i, a in enumerate(running) if a.node != "q")
    node = running[place].node
    return place, "again" if "again" in machine.plan.nodes[node].outcomes else "done", {"count": 1}


def silent_q(machine: RunState, number: int) -> tuple[int, str, Mapping[str, Any]]:
    """The same, and what runs writes nothing."""
    return (*starving_q(machine, number)[:2], {})


K8 = "a -> b, c; b, c -> j; j -> a : again; j -> END : ok"
NOTES = "s -> work, note; work -> j; note -> END; j -> s : again; j -> END : ok"
LOOPS: dict[str, tuple[str, Chooses, int]] = {
    "a loop": ("a -> b -> a : again; b -> END : ok", forward, 40),
    "rounds of a fork and its join": (K8, forward, 40),
    "rounds inside a branch": (f"z -> a, q; {K8.replace('END', 'k')}; q -> k", starving_q, 40),
    "rounds inside a branch, silent": (f"z -> a, q; {K8.replace('END', 'k')}; q -> k", silent_q, 40),
    "rounds that leave a branch that ended": ("z -> a, q; a -> b, c; b -> a : again; b -> k : ok; c -> END; q -> k",
                                              starving_q, 45),
    "rounds of a fork and its join that leave a branch that ended": (NOTES, forward, 44),
    "back before the fork from a branch": ("a -> b, q; b -> a : again; b -> k : ok; q -> k", starving_q, 40),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_a_step_costs_the_same_after_eight_times_as_many_rounds(name: str) -> None:
    text, chooses, steps = LOOPS[name]
    graph = plan(text, schema=Lean)
    short = per_step(graph, chooses, steps, {}, 20)
    long = per_step(graph, chooses, steps * TIMES, {}, 20)
    assert long < 1.25 * short, f"{short:.0f} lines per step, then {long:.0f}"


@pytest.mark.parametrize("steps", [100, 1000])
def test_a_step_without_branches_takes_the_straight_path(steps: int) -> None:
    """The general path runs 211 lines in 36 calls."""
    text, chooses, _ = LOOPS["a loop"]
    work = driven(plan(text, schema=Lean), chooses, steps, {}, 40)[1]
    assert work.lines / 40 < 125  # 113
    assert work.calls / 40 < 22  # 17


@pytest.mark.parametrize("limits", [Limits(steps=None), Limits(steps=10_000)], ids=["no limit", "limits"])
def test_a_step_deep_inside_subgraphs_costs_what_one_at_the_top_costs(limits: Limits) -> None:
    lines = []
    for depth in (1, 48):
        graph = plan("a -> b -> a : again; b -> END : ok", schema=Lean, limits=limits)
        for _ in range(depth - 1):
            graph = plan("START -> w", sub={"w": graph}, schema=Lean, limits=limits, checked=False)
        machine, work = driven(graph, round_and_round, 100, {}, 40)
        assert len(list(machine.frames())) == depth
        assert machine.root is not None
        assert machine.root.steps == sum(1 for _ in machine.frames()) - 1 + 101
        lines.append(work.lines)
    assert lines[1] < 1.1 * lines[0]


def test_rounds_leave_nothing_behind_where_nothing_else_is_open() -> None:
    """K8, R15: what a machine holds is what a snapshot of it writes."""
    sizes = [len(json.dumps(dump(driven(plan(K8, schema=Lean), forward, 40 * times, {})[0]))) for times in (1, TIMES)]
    assert sizes[1] < 1.1 * sizes[0], sizes


def test_rounds_inside_a_branch_that_write_nothing_leave_nothing_behind() -> None:
    """K8: memory grows by updates only. The list of R6 has one item for all rounds that merged all their branches."""
    text, chooses, steps = LOOPS["rounds inside a branch, silent"]
    graph = plan(text, schema=Lean)
    sizes = [len(json.dumps(dump(driven(graph, chooses, steps * times, {})[0]))) for times in (1, TIMES)]
    assert sizes[1] < 1.1 * sizes[0], sizes


@pytest.mark.full
def test_ordering_the_branches_that_rounds_left_behind_costs_no_more_per_round() -> None:
    """The last step merges them all. Each comparison may cost the logarithm of the number of rounds."""
    graph = plan(NOTES, schema=Lean)
    found = []
    for rounds in (40, 40 * TIMES):

        def chooses(machine: RunState, number: int, last: int = 4 * rounds - 1) -> tuple[int, str, Mapping[str, Any]]:
            place, outcome, update = forward(machine, number)
            return place, "ok" if number == last else outcome, update

        machine, work = driven(graph, chooses, 4 * rounds, {}, 1)
        assert machine.result is not None
        assert state_values(machine)["count"] == 4 * rounds
        found.append(work.lines / rounds)
    assert found[1] < 2.0 * found[0], f"{found[0]:.0f} lines per round, then {found[1]:.0f}"


def items(count: int) -> dict[str, list[int]]:
    return {"xs": list(range(count))}


MAPS: dict[str, str] = {
    "items that wait at a join": "p -> w : each xs; w -> j",
    "items that ended": "p -> w : each xs; w -> END",
    "two nodes for each item": "p -> w : each xs; w -> v -> j",
    "a fork and a join in each item": "p -> w : each xs; w -> b, c; b, c -> k -> j",
}


@pytest.mark.parametrize("name", MAPS)
def test_a_step_costs_the_same_among_eight_times_as_many_branches(name: str) -> None:
    """Half of them have finished, and the other half run."""
    graph = plan(MAPS[name], schema=Lean)
    found = [per_step(graph, forward, 1 + count // 2, items(count), 10) for count in (40, 40 * TIMES)]
    assert found[1] < 1.25 * found[0], f"{found[0]:.0f} lines per step, then {found[1]:.0f}"


@pytest.mark.parametrize("name", MAPS)
def test_a_whole_map_costs_no_more_per_item(name: str) -> None:
    """With the join and the end: sorting what waited adds the logarithm of how much it was, nothing more."""
    graph = plan(MAPS[name], schema=Lean)
    each = {"two nodes for each item": 2, "a fork and a join in each item": 4}.get(name, 1)
    joins = "j" in graph.nodes
    found = []
    few = sized(16, 40)
    for count in (few, few * TIMES):
        steps = 1 + count * each + joins
        found.append(per_step(graph, forward, steps, items(count), steps))
    assert found[1] < 2.0 * found[0], f"{found[0]:.0f} lines per step, then {found[1]:.0f}"


def test_a_branch_makes_as_many_calls_among_ten_times_as_many() -> None:
    graph = plan(MAPS["items that wait at a join"], schema=Lean)
    few = sized(30, 100)
    found = []
    for count in (few, 10 * few):
        steps = count + 2
        found.append(driven(graph, forward, steps, items(count), steps)[1].calls / steps)
    assert found[1] < 1.1 * found[0], found
    assert found[1] < 65, found  # 53
