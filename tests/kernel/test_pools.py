"""Pools (R18): steps that name one never hold more places than it has, take turns in order, and change no result."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from orchestrator.graph.limits import Limits
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import Branch, branches
from orchestrator.kernel.run_state import Delta, Observer, RunState
from orchestrator.kernel.state import Activation, Phase
from tests.support.sizes import sized

from .behave import Act, Script
from .build import plan
from .harness import Simulation, TooLongError, Trace, agree, many, observe
from .orders import Order, orders
from .reopening import reopen, reopened
from .test_laws import MOST, Trial, drawn, kinds, seeds, trial_of
from .test_reopening import Broken
from .test_snapshots import Reload, differences


def pooled(made: Plan, names: str, /, **sizes: int | None) -> Plan:
    """A plan in which nodes name pools: `pooled(plan, "b c: printer", printer=1)`."""
    found = {}
    for part in filter(None, names.split(",")):
        nodes, _, pool = part.partition(":")
        found.update(dict.fromkeys(nodes.split(), pool.strip()))
    return replace(made, pooled=found, pools=sizes)


def with_pools(made: Plan, dice: random.Random, depth: int = 0) -> Plan:
    """The same plan with pools by chance. Each depth has pools of its own, so no two wait for each other."""
    sizes = {f"{name}{depth}": dice.choice((1, 1, 2, 3)) for name in "pq"}
    sub = {node: with_pools(inner, dice, depth + 1) for node, inner in made.sub.items()}
    named = {node: dice.choice(tuple(sizes)) for node in made.nodes if dice.random() < 0.6}
    return replace(made, sub=sub, pooled=named, pools=sizes)


def check(run: RunState, record: r.Record, delta: Delta) -> None:
    """What holds after every record: no pool is overfull, and where a token waits in line, the pool is full."""
    begun = (Phase.RUNNING, Phase.ASKING, Phase.INSIDE)
    for pool, keys in run.places.items():
        size = run.plan.pools[pool]
        assert size is None or len(keys) <= size, f"{len(keys)} of {size} places of {pool} are taken"
    for token in run.live_tokens():
        pool_of = token.frame.plan.pooled.get(token.node)
        held = pool_of is not None and token.key in run.places.get(pool_of, ())
        assert held or pool_of is None or token.phase not in begun, f"{token} runs without a place"
        assert (token.phase is Phase.IN_LINE) == any(token.key in line for line in run.lines.values()), token
    if run.result is None and not run.paused and not any(frame.exhausting for frame in run.frames()):
        for pool, line in run.lines.items():
            assert line, f"an empty line is kept for {pool}"
            assert len(run.places[pool]) == run.plan.pools[pool], f"{pool} has a free place, and {line} wait"
    if run.ended is not None and run.ended.status == "completed":
        assert not run.places
        assert not run.lines


class WaitingOrder(Observer):
    """The order in which tokens came to wait, and that in which they began."""

    def __init__(self) -> None:
        self.came: list[tuple[str, str]] = []
        self.gone: set[str] = set()

    def added(self, token: Activation) -> None:
        pool = token.frame.plan.pooled.get(token.node)
        if pool is not None and token.phase is Phase.QUEUED:
            self.came.append((pool, token.key))

    def dropped(self, token: Activation) -> None:
        self.gone.add(token.key)


def short(trial: Trial) -> Trace:
    """A run of a graph without its pools; one that goes on and on is of no use."""
    try:
        return trial.run(Order("first"))
    except TooLongError:
        assume(False)
        raise


@pytest.mark.full
@drawn(kind=kinds, seed=seeds)
def test_pools_change_no_result_of_a_drawn_graph_and_are_never_overfull(kind: str, seed: int) -> None:
    trial = trial_of(kind, seed, asks=0.1, retries=0.1, writes=0.05)
    free = short(trial)
    trial.plan = with_pools(trial.plan, random.Random(seed))
    try:
        traces = trial.many(sized(3, 6), seed, pauses=0.02, late=0.5, probability=0.2, observers=[check])
    except TooLongError:  # with pauses, and in another order, a loop may go round more often
        assume(False)
        raise
    agreed = agree(traces)
    assert agreed.status == free.status
    if free.status == "completed":
        assert (agreed.values, agreed.counts()) == (free.values, free.counts())


@drawn(kind=kinds, seed=seeds)
def test_tokens_get_a_place_in_the_order_in_which_they_came(kind: str, seed: int) -> None:
    trial = trial_of(kind, seed)
    short(trial)
    trial.plan = with_pools(trial.plan, random.Random(seed))
    for order in orders(trial.plan, sized(2, 6), seed):
        simulation = Simulation(trial.plan, trial.behaviour, order=order, values=trial.values, most_steps=MOST)
        waiting, began = WaitingOrder(), list[str]()
        simulation.machine.observers = (waiting,)
        simulation.observers = [check, lambda run, record, delta, b=began: b.extend(a.key for a in delta.started)]
        simulation.run()
        for name in {pool for pool, _ in waiting.came}:
            came = [key for pool, key in waiting.came if pool == name and key not in waiting.gone]
            first = list(dict.fromkeys(key for key in began if key in {*came}))
            assert first == [key for key in came if key in {*began}]


@pytest.mark.full
@drawn(kind=kinds, seed=seeds, limit=st.integers(2, 20), concurrency=st.sampled_from([None, 1, 2]))
def test_no_graph_with_pools_stands_still_when_limits_are_spent(
    kind: str, seed: int, limit: int, concurrency: int | None
) -> None:
    trial = Trial.draw(kind, seed, Limits(steps=limit, concurrency=concurrency), asks=0.1, fails=0.02)
    assume(trial is not None)
    assert trial is not None
    trial.plan = with_pools(trial.plan, random.Random(seed))
    for order in orders(trial.plan, 3, seed):
        reload = Reload(trial.plan, random.Random(seed), 0.2)
        try:
            trace = trial.run(order, seed, probability=0.1, observers=[check, reload])
        except TooLongError:
            continue
        again = RunState(trial.plan)
        for record in trace.records:
            apply(again, record)
        assert observe(again) == observe(trace.machine)
        assert not list(differences(again, trace.machine))


@pytest.mark.full
@drawn(kind=kinds, seed=seeds, at=st.lists(st.integers(2, 40), min_size=1, max_size=3))
def test_reopened_runs_hold_their_places_again(kind: str, seed: int, at: list[int]) -> None:
    trial = trial_of(kind, seed, asks=0.1)
    whole = short(trial)
    assume(whole.status == "completed")
    trial.plan = with_pools(trial.plan, random.Random(seed))
    for order in orders(trial.plan, 3, seed):
        simulation = Broken(
            trial.plan, trial.behaviour, at=at, how="any", order=order, seed=seed, values=trial.values,
            observers=[check], probability=0.1, most_steps=3 * MOST,
        )  # fmt: skip
        try:
            trace = simulation.run()
        except TooLongError:
            continue
        assert (trace.status, trace.values["log"]) == (whole.status, whole.values["log"])


# -- by hand ------------------------------------------------------------------------------------------------------


def test_one_at_a_time_where_the_pool_has_one_place() -> None:
    graph = pooled(plan("a -> b, c, d -> j"), "b c: printer", printer=1)
    for trace in many(graph, count=12):
        assert trace.log == "a b c d j"
        assert trace.most == 2, "d names no pool"


def test_the_first_that_came_is_next_and_others_pass_by() -> None:
    graph = pooled(plan("p -> w : each xs; w -> v -> j"), "w: printer", printer=1)
    seen = []

    def note(run: RunState, record: r.Record, delta: Delta) -> None:
        seen.append(" ".join(sorted(f"{a.node}:{a.item}" for a in run.running.values())))

    simulation = Simulation(graph, values={"xs": [1, 2, 3]}, order=Order("first"), observers=[check, note])
    simulation.run()
    assert seen[1:4] == ["w:1", "v:1 w:2", "v:1 v:2 w:3"]


def test_a_step_keeps_its_place_while_it_asks_and_while_it_is_tried_again() -> None:
    graph = pooled(plan("a -> b, c, d -> j"), "b c: printer", printer=1)
    script = Script(b=Act(asks=2, retries=1))
    simulation = Simulation(graph, script, order=Order("first"), observers=[check])
    simulation.begin()
    began = []
    simulation.observers = [check, lambda run, record, delta: began.extend(a.node for a in delta.started)]
    while simulation.machine.result is None:
        simulation.advance()
    assert began.index("c") > max(i for i, node in enumerate(began) if node == "b")


def test_a_run_pauses_when_only_a_step_that_asks_holds_up_the_others() -> None:
    graph = pooled(plan("a -> b, c -> j"), "b c: printer", printer=1)
    simulation = Simulation(graph, Script(b=Act(asks=1)), order=Order("first"), observers=[check])
    simulation.begin()
    while simulation.machine.status != "paused":
        simulation.step(next(iter(simulation.machine.running.values())))
    assert [(b.node, b.phase) for b in _phases(simulation.machine)] == [("b", "asking"), ("c", "in_line")]
    while simulation.machine.status != "completed":
        simulation.advance()
    assert simulation.trace.log == "a b c j"


def _phases(run: RunState) -> list[Branch]:
    return sorted(branches(run), key=lambda branch: branch.node)


def test_a_pool_is_one_for_a_run_and_all_graphs_inside_it_and_the_smallest_size_holds() -> None:
    inner = pooled(plan("x -> y"), "x: printer", printer=2)
    graph = plan("p -> w : each xs; p -> v; w, v -> j", sub={"w": inner})
    graph = pooled(graph, "v: printer", printer=1)
    assert graph.pools == {"printer": 1}
    for trace in many(graph, values={"xs": [1, 2, 3]}, count=12, observers=[check]):
        assert trace.status == "completed"
    outer = pooled(plan("p -> w : each xs; w -> j", sub={"w": inner}), "", printer=None)
    assert outer.pools == {"printer": 2}


def test_a_graph_inside_runs_whole_while_its_node_holds_the_place() -> None:
    inner = plan("x -> y, z -> k")
    graph = pooled(plan("p -> w : each xs; w -> j", sub={"w": inner}), "w: section", section=1)
    for order in orders(graph, sized(4, 12)):
        sections: list[str] = []

        def note(run: RunState, record: r.Record, delta: Delta, sections: list[str] = sections) -> None:
            inside = {str(a.frame.parent.item) for a in run.running.values() if a.frame.parent is not None}
            sections.extend(sorted(inside))
            assert len(inside) <= 1

        Simulation(graph, values={"xs": [1, 2, 3]}, order=order, observers=[check, note]).run()
        assert list(dict.fromkeys(sections)) == ["1", "2", "3"]


def test_who_is_dropped_gives_up_its_place_and_leaves_the_line() -> None:
    graph = pooled(plan("p -> w : each xs; p -> v; w, v -> j", {"j": 1}), "w: printer", printer=1)
    simulation = Simulation(graph, values={"xs": [1, 2, 3]}, order=Order("last"), observers=[check])
    simulation.begin()
    simulation.step(simulation.machine.running[next(iter(simulation.machine.running))])
    assert len(simulation.machine.lines["printer"]) == 2
    simulation.step(next(a for a in simulation.machine.running.values() if a.node == "v"))
    assert not simulation.machine.lines
    assert not simulation.machine.places


def test_a_run_that_failed_and_is_reopened_goes_on_with_the_same_holder() -> None:
    graph = pooled(plan("p -> w : each xs; p -> v; w, v -> j"), "w: printer", printer=1)
    script = Script(v=lambda sight: Act(fail="once"))
    simulation = Simulation(graph, script, values={"xs": [1, 2, 3]}, order=Order("last"), observers=[check])
    assert simulation.run().status == "failed"
    simulation.behaviour = Script()
    reopen(simulation)
    assert [a.item for a in simulation.machine.running.values() if a.node == "w"] == [1]
    assert [a.item for a in simulation.machine.lines["printer"].values()] == [2, 3]
    while simulation.machine.status != "completed":
        simulation.advance()
    assert simulation.trace.log == "p w:1 w:2 w:3 v j"


def test_places_of_branches_that_a_spent_limit_merged_are_free() -> None:
    graph = plan("p -> w : each xs; w -> j; * -> n : exhausted", limits=Limits(steps=3))
    graph = pooled(graph, "w n: printer", printer=1)
    script = Script(w=Act(asks=1))
    for order in orders(graph, sized(4, 12)):
        simulation = Simulation(graph, script, values={"xs": [1, 2, 3]}, order=order, observers=[check])
        trace = simulation.run()
        assert (trace.status, trace.log.split()[-1]) == ("exhausted", "n")
        reopened(simulation, limits=Limits(steps=20))
        assert trace.values["log"] == ["p", "w:1", "w:2", "w:3", "j"]


@pytest.mark.parametrize(("pools", "running"), [({"press": 2}, [1, 2]), ({}, [1, 2, 3])])
def test_in_another_version_those_that_wait_keep_their_order(pools: dict[str, int], running: list[int]) -> None:
    made = plan("p -> w : each xs; w -> j")
    graph = pooled(made, "w: printer", printer=1)
    simulation = Simulation(graph, values={"xs": [1, 2, 3]}, order=Order("first"))
    machine = simulation.machine
    machine.later["d"] = pooled(made, "w: press" if pools else "", **pools)
    simulation.begin()
    simulation.step(next(iter(machine.running.values())))
    assert [a.item for a in machine.running.values()] == [1]
    simulation.land(r.Migrated(**simulation.head(), structure="d", content="d", nodes={}))
    assert [a.item for a in machine.running.values()] == running
    assert [a.item for line in machine.lines.values() for a in line.values()] == [1, 2, 3][len(running) :]
    while machine.result is None:
        simulation.advance()
    simulation.end()
    assert simulation.trace.log == "p w:1 w:2 w:3 j"


@pytest.mark.full
@pytest.mark.parametrize("size", [1, 3])
def test_many_that_wait_cost_no_more_than_few(size: int) -> None:
    items = 2_000
    graph = pooled(plan("p -> w : each xs; w -> j"), "w: printer", printer=size)
    simulation = Simulation(graph, values={"xs": list(range(items))}, order=Order("first"), lean=True)
    trace = simulation.run()
    assert (trace.status, trace.most) == ("completed", size)
