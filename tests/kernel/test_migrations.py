"""Runs that move to another version of their graph in the middle: what is left in common goes on as if nothing was."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.errors import InvalidGraph, StoreCorrupt
from orchestrator.graph.edges import Edge
from orchestrator.graph.limits import Limits
from orchestrator.graph.topology import ANY, END, START, STOP
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply, apply_stored
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.run_state import Delta, RunState
from orchestrator.kernel.snapshot import dump, lineage_of, load
from orchestrator.kernel.state import Activation
from orchestrator.views.history import points, states
from orchestrator.views.reader import read
from orchestrator.views.step_tree import StepTree
from orchestrator.views.timeline import timeline
from orchestrator.views.trace import Trace as Overlays
from tests.support.sizes import sized

from .behave import Act, Seeded, Sight
from .build import plan
from .harness import Simulation, TooLongError, Trace
from .orders import Order, orders
from .reopening import reopen
from .sketches import settle, values_for
from .test_laws import DRAWN, MOST, Trial
from .test_reopening import Broken
from .test_snapshots import differences

NEW = "new_"


def renamed(old: Plan) -> Plan:
    """The same graph, with other names for its nodes, at every depth."""

    def name(node: str) -> str:
        return node if node in (START, END, STOP, ANY) else NEW + node

    return Plan(
        name=old.name,
        nodes={name(node): shape for node, shape in old.nodes.items()},
        edges=[Edge(name(e.source), name(e.target), e.outcome, e.each) for e in old.edges],
        schema=old.schema,
        limits=old.limits.model_copy(update={"visits": {name(n): most for n, most in old.limits.visits.items()}}),
        output=old.output,
        sub={name(node): renamed(inner) for node, inner in old.sub.items()},
    )


def names(old: Plan, place: str = "", there: str = "") -> dict[str, str]:
    """Path of each node -> its path in the renamed graph."""
    found: dict[str, str] = {}
    for node in old.nodes:
        found[place + node] = there + NEW + node
        if node in old.sub:
            found |= names(old.sub[node], f"{place}{node}/", f"{there}{NEW}{node}/")
    return found


class Moving(Simulation):
    """A run that moves to the renamed graph, and back, at moments that are drawn from `dice`."""

    def __init__(self, plan: Plan, behaviour: Seeded, *, moves: float, **options: Any) -> None:
        other = renamed(plan)
        there = plan.followed_by({"a": plan, "b": other})
        super().__init__(there, self.behave, **options)
        self.known, self.moves, self.moved = behaviour, moves, 0
        self.there = names(plan)
        self.back = {new: old for old, new in self.there.items()}
        self.known_plans = {id(one): of for one, of in (*_both(plan, other), *_both(plan, there), *_both(plan, plan))}
        self.observers = (*self.observers, self.reload)

    def behave(self, plan: Plan, sight: Sight) -> Act:
        """As in the graph without moves."""
        return self.known(self.known_plans[id(plan)], replace(sight, node=sight.node.removeprefix(NEW)))

    def advance(self) -> None:
        if self.machine.ended is None and self.dice.random() < self.moves:
            self.moved += 1
            content, nodes = ("b", self.there) if self.moved % 2 else ("a", self.back)
            self.land(r.Migrated(**self.head(), structure=content, content=content, nodes=nodes))
        else:
            super().advance()

    def reload(self, machine: RunState, record: r.Record, delta: Delta) -> None:
        """After a move the snapshot is the fold, in the graph that the run has now."""
        if isinstance(record, r.Migrated):
            data = json.loads(json.dumps(dump(machine)))
            assert lineage_of(data)[-1] == (record.structure, record.content)
            loaded = load(machine.plan, data)
            loaded.first = machine.first
            loaded.later.update(machine.later)
            found = list(differences(machine, loaded))
            assert not found, found[:3]

    def _see(self, a: Activation) -> None:
        """A step that asked begins again under another name."""


def _both(one: Plan, other: Plan) -> list[tuple[Plan, Plan]]:
    """The plans of `other` and of the graphs inside it, each with the one of `one` beside it."""
    inner = [pair for a, b in zip(one.sub.values(), other.sub.values(), strict=True) for pair in _both(a, b)]
    return [(other, one), *inner]


def told(trace: Trace) -> tuple[object, ...]:
    """What comes of a run, but for the keys of its activations, which hold the names of nodes."""
    return trace.status, {name: value for name, value in trace.values.items() if name != "trail"}


def views(machine_plan: Plan, records: list[r.Record]) -> None:
    """Every view folds the journal."""
    overlays, tree = Overlays(), StepTree()
    read(machine_plan, records, overlays, tree)
    overlays.overlay()
    tree.live_branches()
    timeline(machine_plan, records)
    states(machine_plan, records)
    for point in points(machine_plan, records)[-3:]:
        assert point.values or point.error


@pytest.mark.full
@pytest.mark.parametrize("kind", ["structured", "unstructured", "mutated", "limited"])
def test_a_run_that_moves_to_a_renamed_graph_and_back_tells_what_it_would_have_told(kind: str) -> None:
    met = Counter[str]()
    for seed in sized(range(7_000, 7_002), range(7_000, 7_080)):
        sketch, dice = settle(DRAWN[kind](seed)), random.Random(seed)
        if kind != "limited":
            sketch.limits = Limits(steps=None)
        try:
            drawn = sketch.plan()
        except InvalidGraph:
            continue
        if sketch.races:
            continue
        behaviour, values = Seeded(seed, asks=0.2, retries=0.1), values_for(dice)
        for order in orders(drawn, 2, seed):
            options: dict[str, Any] = {"order": order, "values": values, "most_steps": 150}
            try:
                still = Simulation(drawn, behaviour, **options).run()
                moving = Moving(drawn, behaviour, moves=0.2, seed=seed, **options)
                trace = moving.run()
            except TooLongError:
                continue
            except Exception as error:
                raise AssertionError(f"{type(error).__name__}: {error}\nin {sketch.text}, {order.name}") from error
            assert told(trace) == told(still), f"{sketch.text}\nvalues {values}, order {order.name}"
            met["moves"] += moving.moved
            again = RunState(moving.plan)
            for record in trace.records:
                apply_stored(again, record)
            assert not list(differences(trace.machine, again))
            views(again.from_start, trace.records)
    assert met["moves"] > sized(0, 200)


class BreakingAndMoving(Moving, Broken):
    """The same of a run that breaks off now and then, and is reopened."""

    def reopen(self) -> None:
        machine, limits = self.machine, None
        if machine.status == "exhausted" and machine.root is not None:
            limits = Limits(steps=machine.root.steps + 1 + self.dice.choice((0, 1, 4, 1000)))
        self.met[machine.status] += 1
        reopen(self, limits=limits)


@pytest.mark.parametrize("how", ["fail", "any", "limit"])
@pytest.mark.parametrize("kind", ["structured", "unstructured", "mutated"])
def test_what_is_frozen_moves_with_a_run_that_breaks_off_and_is_reopened(kind: str, how: str) -> None:
    met = Counter[str]()
    for seed in sized(range(7_000, 7_002), range(7_000, 7_012)):
        dice = random.Random(seed)
        whole_trial = Trial.draw(kind, seed, asks=0.1, retries=0.1)
        limits = {"limits": Limits(steps=dice.randrange(1, 12))} if how == "limit" else {}
        trial = Trial.draw(kind, seed, asks=0.1, retries=0.1, **limits)
        if trial is None or whole_trial is None or whole_trial.races:
            continue
        with contextlib.suppress(TooLongError):
            whole = whole_trial.run(Order("first"))
            if whole.status != "completed":
                continue
            for number, order in enumerate(orders(trial.plan, 2, seed)):
                at = [dice.randrange(1, max(2, len(whole.records))) for _ in range(dice.choice((1, 2, 3)))]
                moving = BreakingAndMoving(
                    trial.plan, trial.behaviour, moves=0.25, at=() if how == "limit" else at, how=how, order=order,
                    seed=number, values=trial.values, most_steps=5 * MOST, probability=0,
                )  # fmt: skip
                trace = moving.run()
                assert told(trace) == told(whole), (kind, seed, order.name)
                again = RunState(moving.plan)
                for record in trace.records:
                    apply_stored(again, record)
                assert not list(differences(trace.machine, again))
                views(again.from_start, trace.records)
                met += moving.met
                met["moves"] += moving.moved
    assert met["moves"] > 0
    assert met["failed"] + met["cancelled"] + met["exhausted"] > 0


def begun(text: str, **fields: Any) -> tuple[RunState, Plan]:
    """A run of a graph, at its first record."""
    old = plan(text)
    run = RunState(old)
    start = old.schema.initial(fields)
    apply(
        run, r.RunStarted(seq=1, ts=1.0, run_id="r", graph="g", structure="s", content="c", values=dict(start), rules=2)
    )
    return run, old


def done(run: RunState, node: str, outcome: str = "done", **update: Any) -> None:
    """End the step of a node."""
    token = next(one for one in run.running.values() if one.node == node)
    at = {"activation": token.key, "path": token.path, "node": node}
    apply(run, r.StepDone(seq=run.head + 1, ts=1.0 + run.head, **at, outcome=outcome, update=update))


def moved(run: RunState, text: str, **said: Any) -> None:
    """Move the run to the graph of another text."""
    run.later["d"] = plan(text, **said.pop("options", {}))
    apply(run, r.Migrated(seq=run.head + 1, ts=1.0 + run.head, structure="t", content="d", **said))


def at(run: RunState) -> list[str]:
    """Where its tokens are."""
    return sorted(f"{token.node} {token.phase.value}" for token in run.live_tokens())


def test_a_token_goes_on_at_the_new_name_of_its_node() -> None:
    run, _ = begun("a -> b -> c")
    done(run, "a", log="a")
    moved(run, "a -> x -> c", nodes={"b": "x"})
    assert at(run) == ["x running"]
    done(run, "x", log="x")
    done(run, "c", log="c")
    assert run.result is not None
    assert run.result.values["log"] == ["a", "x", "c"]
    assert (run.structure, run.content) == ("t", "d")


def test_a_join_that_no_branch_can_reach_any_more_fires_with_the_migration() -> None:
    run, _ = begun("a -> b, c -> j -> z")
    done(run, "a")
    done(run, "b", log="b")
    assert at(run) == ["c running", "j waiting"]
    moved(run, "a -> b, c, e; b, e -> j -> z; c -> END")
    assert at(run) == ["c running", "j running"]
    done(run, "c", log="c")
    done(run, "j", log="j")
    done(run, "z", log="z")
    assert run.result is not None
    assert sorted(run.result.values["log"]) == ["b", "c", "j", "z"]


def test_a_token_that_waited_at_a_join_runs_where_the_node_joins_no_more() -> None:
    run, _ = begun("a -> b, c -> j -> z")
    done(run, "a")
    done(run, "b")
    moved(run, "a -> b, c -> j -> z", options={"joined": {"j": "each"}})
    assert at(run) == ["c running", "j running"]


def test_values_that_a_migration_sets_hold_in_every_branch_and_their_old_updates_are_gone() -> None:
    run, _ = begun("a -> b, c -> j -> z")
    done(run, "a", f="one")
    done(run, "b", total=2)
    moved(run, "a -> b, c -> j -> z", values={"f": "two", "total": 5})
    done(run, "c", total=1)
    (join,) = run.running.values()
    assert (join.values["f"], join.values["total"]) == ("two", 6)


def test_a_question_that_a_migration_withdraws_is_asked_again_under_another_id() -> None:
    from orchestrator.kernel.question import Question

    run, _ = begun("a -> b")
    (token,) = run.running.values()
    stamp = {"seq": 2, "ts": 2.0, "activation": token.key, "node": "a"}
    apply(run, r.Asked(**stamp, question=Question(id="q", kind="input", node="a")))
    assert run.status == "paused"
    moved(run, "x -> b", nodes={"a": "x"}, withdrawn=(token.key,))
    (token,) = run.running.values()
    assert (token.node, token.withdrawn, run.questions) == ("x", 1, {})


def test_counts_of_nodes_and_edges_are_kept_under_their_new_names() -> None:
    from orchestrator.kernel.queries import edges_taken, node_visits

    run, _ = begun("a -> b -> c")
    done(run, "a")
    moved(run, "n -> a -> x -> c", nodes={"b": "x"})
    assert node_visits(run) == {("", "a"): 1, ("", "x"): 1}
    taken = {run.plan.edges[index].target: count for (_, index), count in edges_taken(run).items()}
    assert taken == {"x": 1}  # START does not lead to a any more


def test_limits_are_those_of_the_new_version_unless_the_run_has_its_own() -> None:
    for own in (None, Limits(steps=9)):
        old = plan("a -> b", limits=Limits(steps=5))
        run = RunState(old)
        start = dict(old.schema.initial({}))
        started = {
            "run_id": "r",
            "graph": "g",
            "structure": "s",
            "content": "c",
            "values": start,
            "limits": own,
            "rules": 2,
        }
        apply(run, r.RunStarted(seq=1, ts=1.0, **started))
        moved(run, "a -> b", options={"limits": Limits(steps=7)})
        assert run.root is not None
        assert run.root.limits.steps == (7 if own is None else 9)


def test_a_journal_whose_later_graph_is_missing_says_so() -> None:
    run, _ = begun("a -> b")
    with pytest.raises(StoreCorrupt, match=r"the graph 'd' that it migrates to is missing"):
        apply_stored(run, r.Migrated(seq=2, ts=2.0, structure="t", content="d"))


def test_the_time_before_a_migration_is_no_time_alive() -> None:
    run, _ = begun("a -> b")
    run.later["d"] = plan("a -> b")
    apply(run, r.Migrated(seq=2, ts=500.0, structure="t", content="d"))
    assert run.seconds == 0.0
