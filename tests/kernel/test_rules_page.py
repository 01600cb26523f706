"""`docs/kernel.md` says what happens: its examples are run as they stand there, and every rule has one.

The lines of an example are a graph in arrow text, then what its nodes do (`takes`, `writes`, `fails`, `xs`, ...), then
what comes of it (`order`, `or`, `sees`, `place`, `status`, `error`, `rounds`).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.graph.limits import Limits
from orchestrator.graph.reducers import replace
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import Migrated, StepDone
from orchestrator.kernel.snapshot import dump
from tests.support.sizes import sized

from .behave import Act, Sight
from .build import Lean, joins, plan
from .forking import forked
from .harness import Simulation, Trace
from .orders import orders
from .reopening import reopened
from .test_cost import driven, forward

PAGE = Path(__file__).parents[2] / "docs" / "kernel.md"
DOES = (
    "pauses",
    "xs",
    "ys",
    "tasks",
    "takes",
    "writes",
    "fails",
    "join",
    "rest",
    "steps",
    "inside",
    "inside steps",
    "places",
    "pools",
    "inside places",
    "inside pools",
    "overdue",
    "forked",
    "migrated",
    "reopened",
)
COMES = ("order", "or", "sees", "place", "at once", "status", "error", "rounds")
IDS = ("run", "another-run", "0")


@dataclass
class Example:
    """One fenced block of the page."""

    name: str
    """Rule and number, such as `R6.2`."""
    text: str = ""
    says: dict[str, list[str]] = field(default_factory=dict)
    """Key -> what is behind it, one string for each line."""

    def words(self, key: str) -> list[list[str]]:
        """What is behind a key, parted at commas, as words."""
        return [part.split() for line in self.says.get(key, []) for part in line.split(",") if part.strip()]

    def one(self, key: str) -> str:
        return self.says.get(key, [""])[0]


def examples() -> list[Example]:
    """All of the page, in its order."""
    found: list[Example] = []
    rule, count = "", 0
    for part in re.split(r"(^```text\n.*?^```$)", PAGE.read_text(), flags=re.M | re.S):
        if not part.startswith("```"):
            named = re.findall(r"^\*\*(R\d+) ", part, flags=re.M)
            rule, count = (named[-1], 0) if named else (rule, count)
            continue
        count += 1
        example = Example(f"{rule}.{count}")
        for line in part.splitlines()[1:-1]:
            key, colon, rest = line.partition(":")
            if colon and key in (*DOES, *COMES):
                example.says.setdefault(key, []).append(rest.strip())
            else:
                assert "->" in line, f"{example.name}: {line!r} is not an edge, and {key!r} is no key"
                example.text += f"{line}\n"
        found.append(example)
    return found


EXAMPLES = examples()


def plan_of(example: Example) -> Plan:
    wanted: dict[str, Any] = {name: int(n) if n.isdigit() else n for name, n in example.words("join")}
    inner, _, text = example.one("inside").partition(":")
    within = limits_of(example, "inside steps")
    sub = {inner: pooled(plan(text, name="inner", limits=within), example, "inside ")} if inner else None
    says = joins("j k j1 j2", **wanted)
    limits, rest = limits_of(example, "steps"), example.one("rest").split()
    return pooled(plan(example.text, says, limits=limits, sub=sub, rest=rest), example)


def pooled(made: Plan, example: Example, where: str = "") -> Plan:
    """The plan with the pools that an example gives it, or the graph inside it."""
    sizes = {name: int(count) for name, count in example.words(f"{where}places")}
    return dataclasses.replace(made, pooled=dict(example.words(f"{where}pools")), pools=sizes) if sizes else made


def limits_of(example: Example, key: str) -> Limits:
    steps = example.one(key)
    return Limits(steps=int(steps) if steps else None)


def values_of(example: Example) -> dict[str, Any]:
    found: dict[str, Any] = {key: [int(x) for x in example.one(key).split()] for key in ("xs", "ys")}
    found["tasks"] = [{"id": name, "needs": needs[1:]} for name, *needs in example.words("tasks")]
    return found


class Does:
    """What the nodes of an example do."""

    def __init__(self, example: Example) -> None:
        self.takes = {node: outcomes for node, *outcomes in example.words("takes")}
        self.writes = {node: rest for node, *rest in example.words("writes")}
        self.fails = example.says.get("fails", [])

    def __call__(self, plan: Plan, sight: Sight) -> Act:
        update: dict[str, Any] = {"log": sight.label}
        if wrote := self.writes.get(sight.node):
            value: object = sight.node if wrote[-1] in ("f", "g") else 1
            update[wrote[-1]] = replace(value) if wrote[0] == "replace" else value
        taken = self.takes.get(sight.label, self.takes.get(sight.node))
        outcome = plan.nodes[sight.node].outcomes[-1]
        if taken:
            outcome = taken[min(sight.visits, len(taken) - 1)]
        return Act(outcome, update, fail=sight.node if sight.node in self.fails else None)


def runs_of(example: Example) -> list[Trace]:
    graph, values, does = plan_of(example), values_of(example), Does(example)
    overdue = example.one("overdue").split()
    found = []
    for run_id in IDS:
        for order in orders(graph, sized(5, 12)):
            options: dict[str, Any] = {"order": order, "values": values, "probability": 0.1, "overdue": overdue}
            for when in ("before", "after"):
                options[f"pause_{when}"] = [node for said, node in example.words("pauses") if said == when]
            does.fails = example.says.get("fails", [])
            trace = Simulation(graph, does, run_id=run_id, **options).run()
            if "reopened" in example.says:
                trace = reopening_of(example, Simulation(graph, does, run_id=run_id, **options))
            if "migrated" in example.says:
                trace = migration_of(example, Simulation(graph, does, run_id=run_id, **options))
            if "forked" in example.says:
                trace = fork_of(example.one("forked"), trace, Simulation(graph, does, **options))
            found.append(trace)
    return found


def reopening_of(example: Example, simulation: Simulation) -> Trace:
    """`failed` or `exhausted, 9 steps`: the run ends so, is reopened with that limit, and no node fails any more."""
    status, _, limit = example.one("reopened").partition(", ")
    simulation.run()
    assert simulation.machine.status == status
    assert isinstance(simulation.behaviour, Does)
    simulation.behaviour.fails = []
    reopened(simulation, limits=Limits(steps=int(limit.split()[0])) if limit else None)
    return simulation.finish()


def fork_of(how: str, parent: Trace, simulation: Simulation) -> Trace:
    """`b`, `b log = x` or `a a.0 f = x`: a run forked where a step ended, with one field of the trunk or branch set."""
    where, _, value = how.partition("=")
    node, *branch, name = where.split() if value else (where.strip(), "")
    at = next(one.seq for one in parent.records if isinstance(one, StepDone) and one.node == node)
    update = {name: [value.strip()] if name == "log" else value.strip()} if value else {}
    ops = {"log": "replace"} if "log" in update else {}
    return forked(parent, at, simulation, update=update, ops=ops, branch=branch[0] if branch else None)


def migration_of(example: Example, simulation: Simulation) -> Trace:
    """`a b = x`: where a step of a ends, the run moves to a graph in which b is called x."""
    where, old, _, new = example.one("migrated").split()
    text = re.sub(rf"\b{old}\b", new, example.text)
    named = joins("j k j1 j2") | ({new: "all"} if old in joins("j k j1 j2") else {})
    machine = simulation.machine
    machine.later["d"] = plan(text, named)
    simulation.probability = 0.0  # its copies are loaded in the plan that it begins in
    simulation.begin()
    while machine.ended is None:
        simulation.advance()
        last = simulation.trace.records[-1]
        if isinstance(last, StepDone) and last.node == where and len(machine.lineage) == 1 and machine.result is None:
            record = Migrated(**simulation.head(), structure="d", content="d", nodes={old: new})
            simulation.land(record)
    return simulation.trace


def most_at_once(trace: Trace, nodes: Collection[str]) -> int:
    """How many steps of these nodes ran at the same time, at most."""
    running: set[str] = set()
    most = 0
    for record, (started, cancelled) in zip(trace.records, trace.deltas, strict=True):
        running -= {getattr(record, "activation", ""), *cancelled}
        running |= {key for key in started if trace.seen[key].node in nodes}
        most = max(most, len(running))
    return most


def label(node: str, items: str) -> str:
    item = json.loads(items)[0]
    return node if item is None else f"{node}:{item['id'] if isinstance(item, dict) else item}"


@pytest.mark.parametrize(
    "example", [e for e in EXAMPLES if "rounds" not in e.says][:: sized(2, 1)], ids=lambda e: e.name
)
def test_an_example_of_the_page_is_true(example: Example) -> None:
    traces = runs_of(example)
    assert {trace.status for trace in traces} == {example.one("status") or "completed"}
    if "error" in example.says:
        assert all(example.one("error") in trace.error for trace in traces), traces[0].error
        return
    assert {trace.log for trace in traces} == {*example.says["order"], *example.says.get("or", [])}
    for trace in traces:
        saw = {(label(seen.node, seen.items), " ".join(seen.state["log"])) for seen in trace.seen.values()}
        for line in example.says.get("sees", []):
            node, _, words = line.partition(" ")
            assert (node, words) in saw, saw
        stood = {(seen.node, seen.path or "-") for seen in trace.seen.values()}
        for node, place in example.words("place"):
            assert (node, place) in stood, stood
    for line in example.says.get("at once", []):
        *nodes, count = line.split()
        assert max(most_at_once(trace, nodes) for trace in traces) == int(count)


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "rounds" in e.says], ids=lambda e: e.name)
def test_a_loop_of_the_page_costs_the_same_memory_in_every_round(example: Example) -> None:
    graph = plan(example.text, schema=Lean)
    sizes = [
        len(json.dumps(dump(driven(graph, forward, len(graph.nodes) * int(rounds), {})[0])))
        for rounds in example.one("rounds").split()
    ]
    assert len(sizes) == 2
    assert sizes[1] < 1.1 * sizes[0], sizes


def test_every_rule_has_an_example_that_says_what_comes_of_it() -> None:
    assert {e.name.partition(".")[0] for e in EXAMPLES} == {f"R{number}" for number in range(1, 19)}
    for example in EXAMPLES:
        assert example.says.keys() & {"order", "error", "rounds"}, example.name
