"""Joins that let the branches run which they did not wait for, and joins whose number is in the state (R8)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from orchestrator.errors import InvalidGraph
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation
from tests.support.sizes import rounds, sized

from .behave import Script, Seeded
from .build import messages, plan
from .harness import Simulation, TooLongError, Trace, agree, many, observe
from .orders import Order, orders
from .reference import Reference, Token
from .sketches import Sketch, settle, values_for
from .test_laws import KINDS, MOST, ends_once, seen_of


class AlikeError(Exception):
    """Two tokens with one path can run, and nothing that they see tells which of them did."""


class Following:
    """Has the reference run the steps of a graph in the order in which they landed in another run."""

    def __init__(self, trace: Trace, reference: Reference) -> None:
        self.reference = reference
        self.steps = [trace.seen[key] for key in trace.landed]

    def choice(self, ready: Sequence[Token], /) -> Token:
        """The token whose step landed next."""
        if not self.steps:
            return next(token for token in ready if token.fault)  # its failure is the end
        step = self.steps.pop(0)
        found = [token for token in ready if (token.node, token.path) == (step.node, numbers(step.path))]
        assert found, f"{step.node} at {step.path} ran, and of these none can: {[(t.node, t.path) for t in ready]}"
        if len(found) > 1:
            found = [token for token in found if self.reference.saw(token) == seen_of(step)]
            assert found, f"{step.node} at {step.path} saw something else"
        if len(found) > 1:
            raise AlikeError
        return found[0]


def numbers(path: str) -> tuple[int, ...]:
    """The branches of a path, without the names of the forks."""
    return tuple(int(part.rpartition(".")[2]) for part in path.split("/") if part)


def as_followed(plan: Plan, behaviour: Any, values: dict[str, Any], trace: Trace) -> Reference:
    """The reference came to what the machine came to, step for step."""
    reference = Reference(plan, behaviour, values, most=2 * MOST)
    told = reference.run(Following(trace, reference))
    assert trace.status == told.status
    if told.status != "failed":
        ours, theirs = dict(trace.values), dict(told.values)
        assert len(ours.pop("trail")) == len(theirs.pop("trail"))
        if told.several:
            del ours["mine"], theirs["mine"]
        assert ours == theirs
    return reference


def letting_run(kind: str, seed: int) -> tuple[Sketch, Plan] | None:
    """A graph with joins that wait for some branches and let the others run."""
    sketch = settle(KINDS[kind](seed))
    dice = random.Random(f"rest {kind} {seed}")
    for join, said in sketch.joins.items():
        if said == "all" and dice.random() < 0.5:
            sketch.joins[join] = dice.randint(1, 3)
    sketch.rest = "run"
    try:
        plan = settle(sketch).plan()
    except InvalidGraph:
        return None
    one = any(shape.lets_run for shape in plan.nodes.values())
    stops = any(edge.target == "STOP" for edge in plan.edges)
    return (sketch, plan) if one and not plan.sub and not stops else None


def check(kind: str, seed: int, count: int = 6, **behaviour: Any) -> Counter[str]:
    """Some interleavings of a graph: each is what the reference makes of it, and its journal decides."""
    met = Counter[str]()
    drawn_graph = letting_run(kind, seed)
    if drawn_graph is None:
        return met
    sketch, plan = drawn_graph
    values, does = values_for(random.Random(seed)), Seeded(seed, **behaviour)
    for order in orders(plan, count, seed):
        try:
            trace = Simulation(
                plan, does, order=order, seed=seed, values=values, most_steps=MOST, probability=0.1
            ).run()
            if any(len(seen.path.split("/")) >= 8 for seen in trace.seen.values()):
                continue
            reference = as_followed(plan, does, values, trace)
        except (TooLongError, AlikeError):
            continue
        except AssertionError as error:
            raise AssertionError(f"{sketch.text}: {order}: {error}") from error
        ends_once(trace)
        again = RunState(plan)
        for record in trace.records:
            apply(again, record)
        assert observe(again) == observe(trace.machine)
        met[trace.status] += 1
        met["late"] += bool(reference.late)
    return met


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_graphs_whose_joins_let_others_run_are_as_a_second_reading_says(kind: str) -> None:
    met = Counter[str]()
    for seed in range(sized({"unstructured": 25}.get(kind, 12), 60)):
        met += check(kind, seed, sized(2, 6), writes=0.05, replaces=0.02)
    assert min(met["completed"], met["late"]) >= sized(1, 15), met


@pytest.mark.storm
@pytest.mark.parametrize("kind", KINDS)
def test_a_storm_of_graphs_whose_joins_let_others_run(kind: str, scale: int) -> None:
    """`--storm-scale N`: N times 100 graphs of each kind, six interleavings each; 20 graphs at scale 1."""
    for seed in range(1_000, 1_000 + rounds(20, 100, scale)):
        check(kind, seed, writes=0.05, replaces=0.02)


# -- by hand ------------------------------------------------------------------------------------------------------


def _names(a: Activation) -> tuple[str, ...]:
    return (a.node,) if a.item is None else (f"{a.node}:{a.item}", a.item["id"] if isinstance(a.item, dict) else "")


def ordered(trace: Simulation, *wanted: str) -> Trace:
    """Land steps in this order, `node` or `node:item`, then the others as they come."""
    trace.begin()
    for name in wanted:
        trace.step(next(a for a in trace.machine.running.values() if name in _names(a)))
    while trace.machine.result is None:
        trace.advance()
    trace.end()
    return trace.finish()


def test_the_first_two_are_merged_and_the_others_run_to_their_ends() -> None:
    graph = plan("p -> w : each xs; w -> j -> s", {"j": 2}, rest="j")
    script = Script(w=lambda sight: {"f": f"of {sight.item}"} if sight.item != 2 else {"g": "two"})
    sim = Simulation(graph, script, values={"xs": [1, 2, 3, 4]}, order=Order("first"))
    trace = ordered(sim, "p", "w:3", "w:2", "j", "s", "w:1", "w:4")
    assert (trace.status, trace.dropped) == ("completed", set())
    assert trace.saw("j")[0]["log"] == ["p", "w:2", "w:3"]
    assert trace.counts() == {"p": 1, "w": 4, "j": 1, "s": 1}
    assert sorted(trace.values["log"]) == ["j", "p", "s", "w:1", "w:2", "w:3", "w:4"]
    assert (trace.values["f"], trace.values["g"]) == ("of 3", "two"), "late updates of what was merged do not count"


def test_an_update_that_the_join_did_not_merge_is_merged_at_the_end() -> None:
    graph = plan("p -> w : each xs; w -> j -> s", {"j": 1}, rest="j")
    script = Script(w=lambda sight: {"f": "early"} if sight.item == 1 else {"g": "late"})
    sim = Simulation(graph, script, values={"xs": [1, 2]}, order=Order("first"))
    trace = ordered(sim, "p", "w:1", "j", "s", "w:2")
    assert (trace.values["f"], trace.values["g"]) == ("early", "late")


def test_what_follows_the_join_can_still_be_in_conflict_with_a_late_branch() -> None:
    graph = plan("p -> w : each xs; w -> j -> s", {"j": 1}, rest="j")
    script = Script(w=lambda sight: {"g": "late"} if sight.item == 2 else {}, s=lambda _: {"g": "behind the join"})
    sim = Simulation(graph, script, values={"xs": [1, 2]}, order=Order("first"))
    trace = ordered(sim, "p", "w:1", "j", "s", "w:2")
    assert trace.status == "failed"
    assert "both wrote 'g'" in trace.error


def test_a_join_around_does_not_wait_for_branches_that_can_come_to_it_no_more() -> None:
    graph = plan("a -> p, b; p -> w : each xs; w -> j -> k; b -> k -> s", {"j": 1, "k": "all"}, rest="j")
    sim = Simulation(graph, values={"xs": [1, 2]}, order=Order("first"))
    trace = ordered(sim, "a", "p", "b", "w:1", "j", "k", "s", "w:2")
    assert trace.saw("k")[0]["log"] == ["a", "p", "w:1", "j", "b"]
    assert sorted(trace.values["log"]) == sorted(["a", "p", "w:1", "w:2", "j", "b", "k", "s"])


def test_it_waits_for_those_that_have_another_way_out() -> None:
    text = "a -> p, b; p -> w : each xs; w -> j : ok; w -> k : out; j -> k; b -> k -> s"
    graph = plan(text, {"j": 1, "k": "all"}, rest="j")
    script = Script(w=lambda sight: "ok" if sight.item == 1 else "out")
    sim = Simulation(graph, script, values={"xs": [1, 2]}, order=Order("first"))
    trace = ordered(sim, "a", "p", "b", "w:1", "j", "w:2", "k", "s")
    assert trace.counts()["k"] == 1
    assert "w:2" in trace.saw("k")[0]["log"]


def test_items_that_need_a_late_one_run_and_see_what_it_did() -> None:
    graph = plan("p -> w : each tasks; w -> j -> s", {"j": 1}, rest="j")
    sim = Simulation(
        graph,
        values={"tasks": [{"id": "a", "needs": []}, {"id": "b", "needs": []}, {"id": "c", "needs": ["b"]}]},
        order=Order("first"),
    )
    trace = ordered(sim, "p", "a", "j", "s", "b", "c")
    assert trace.counts()["w"] == 3
    assert [state["log"] for state in trace.saw("w")] == [["p"], ["p"], ["p", "w:b"]]


@pytest.mark.parametrize(("quorum", "merged"), [(1, 1), (2, 2), (3, 3), (9, 3)])
@pytest.mark.parametrize("rest", ["", "j"])
def test_the_number_of_branches_is_read_where_the_fork_opened(quorum: int, merged: int, rest: str) -> None:
    graph = plan("p -> w : each xs; w -> j -> s", {"j": "total"}, rest=rest)
    script = Script(p=lambda _: {"total": quorum}, w=lambda _: {"total": 1})
    for trace in many(graph, script, values={"xs": [1, 2, 3]}):
        assert trace.status == "completed"
        assert len(trace.saw("j")[0]["log"]) == 1 + merged
        assert sum(name.startswith("w") for name in trace.values["log"]) == (3 if rest else merged)


@pytest.mark.parametrize("quorum", [0, -3])
def test_a_number_below_one_is_an_error_of_the_fork(quorum: int) -> None:
    graph = plan("p -> w : each xs; w -> j -> s", {"j": "total"})
    trace = agree(many(graph, Script(p=lambda _: {"total": quorum}), values={"xs": [1, 2, 3]}))
    assert (trace.status, trace.count("w")) == ("failed", 0)
    fault = f"j waits for as many branches as 'total' has: it must be 1 or more, not {quorum}"
    assert f"p opens a fork, and {fault}" in trace.error


def test_where_start_is_the_fork_it_is_an_error_of_the_join() -> None:
    graph = plan("START -> w : each xs; w -> j -> s", {"j": "total"})
    trace = agree(many(graph, values={"xs": [1, 2, 3]}))
    assert (trace.status, trace.count("w"), trace.count("s")) == ("failed", 3, 0)
    assert "j waits for 'total' branches, and the state at START has 0 there: it must be 1 or more" in trace.error


def test_stop_ends_the_branches_that_were_let_run() -> None:
    graph = plan("p -> w : each xs; w -> j -> STOP", {"j": 1}, rest="j")
    sim = Simulation(graph, values={"xs": [1, 2]}, order=Order("first"))
    trace = ordered(sim, "p", "w:2", "j")
    assert trace.values["log"] == ["p", "w:2", "j"]
    assert len(trace.dropped) == 1


def test_a_join_that_leads_back_to_itself_cannot_let_others_run() -> None:
    text = "a -> b, c; b, c -> j; j -> b : again; j -> s : ok"
    assert not messages(text, {"j": 1})
    graph = plan(text, {"j": 1}, rest="j", checked=False)
    (said,) = messages(graph)
    assert said == (
        "j lets the other branches of fork a run, and leads back to itself inside that fork: "
        "go back to a, or declare rest='drop'"
    )


def test_each_round_of_a_loop_lets_its_own_branches_run() -> None:
    graph = plan("p -> w : each xs; w -> j; j -> p : again; j -> s : ok", {"j": 1}, rest="j")
    script = Script(j=lambda sight: "again" if sight.values["log"].count("j") < 2 else "ok")
    for trace in many(graph, script, values={"xs": [1, 2, 3]}):
        assert trace.counts() == {"p": 3, "w": 9, "j": 3, "s": 1}
        assert trace.values["log"].count("j") == 3
        assert len(trace.values["log"]) == 16
