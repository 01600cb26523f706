"""Faults that generated graphs found in the kernel, each in its smallest form, under many interleavings."""

from __future__ import annotations

import pytest

from orchestrator.kernel.plan import Plan

from .audit import Audit
from .behave import Act, Script, Sight
from .build import plan
from .harness import Simulation, Trace, agree, many
from .orders import orders
from .test_cases import tasks


class Silent(Script):
    """A script in which some nodes write nothing at all."""

    def __init__(self, nodes: str, **lines: object) -> None:
        super().__init__(**lines)  # type: ignore[arg-type]
        self.silent = nodes.split()

    def __call__(self, plan: Plan, sight: Sight) -> Act:
        act = super().__call__(plan, sight)
        if sight.node not in self.silent:
            return act
        return Act(act.outcome, {}, act.retries, act.asks, act.fail)


@pytest.mark.parametrize("xs", [[], [1], [1, 2, 3]], ids=str)
def test_a_map_beside_an_edge_to_the_same_node(xs: list[int]) -> None:
    """Item 1 and the edge beside the map had one key: one of the two tokens was lost."""
    graph = plan("d -> k : each xs; d -> k; k -> s")
    trace = agree(many(graph, values={"xs": xs}))
    assert trace.count("k") == 1
    assert trace.status == "completed"


def test_two_maps_beside_each_other_to_one_node() -> None:
    graph = plan("d -> w : each xs; d -> w : each ys; w -> v -> j", {"w": "each", "j": "all"})
    trace = agree(many(graph, values={"xs": [1, 2], "ys": [8, 9]}))
    assert trace.log == "d w:1 v:1 w:2 v:2 w:8 v:8 w:9 v:9 j"
    assert agree(many(graph, values={"xs": [], "ys": []})).log == "d j"


def test_a_path_does_not_depend_on_what_else_has_ended() -> None:
    """Forgetting history (R15) took the branch path with it, at a moment that timing decided."""
    graph = plan("a -> b, c; b -> END; c -> d -> e")
    trace = agree(many(graph, Silent("b"), count=20))
    assert {seen.path for seen in trace.seen.values() if seen.node in "cde"} == {"a.1"}


def test_a_path_stays_while_a_step_asks() -> None:
    graph = plan("a -> b, c; b -> END; c -> END")
    agree(many(graph, Silent("b", c=Act("", asks=2)), count=20))


def test_a_branch_that_ends_without_a_word_takes_nothing_from_the_others() -> None:
    graph = plan("a -> b, c; b -> END; c -> d -> END")
    trace = agree(many(graph, Silent("b", a={"mine": "a"}, d={"mine": "d"}), count=20))
    assert trace.values["mine"] == "d", "there is nothing to merge: what b ended with, d has seen"


def test_items_that_need_each_other_after_history_was_forgotten() -> None:
    """The merge of what an item needs began at the fork's version, which forgetting had cut off from all others."""
    graph = plan("p -> w : each tasks; w -> p : again; w -> END : bad; w -> j : ok")
    later = tasks(i0="", i1="i0", i2="i1")["tasks"]

    def act(graph: Plan, sight: Sight) -> Act:
        first = "p:i1" not in sight.values["log"]
        if sight.node == "w" and first and sight.label == "w:i0":
            return Act("bad", {})
        update: dict[str, object] = {"log": sight.label}
        if sight.node == "p" and sight.visits:
            return Act("done", {**update, "tasks": later})
        return Act("again" if first else "ok", update) if sight.node == "w" else Act("done", update)

    for order in orders(graph, 30):
        run = Simulation(graph, act, order=order, values=tasks(i0="", i1=""), observers=[Audit()]).run()
        assert run.log == "p w:i1 p:i1 w:i0 w:i1 w:i2 j"


def test_needs_in_a_map_that_maps_again_from_inside_a_fork() -> None:
    """The second map opens inside w: who waits at a join of w waits at a join of a fork opened before it (R12)."""
    graph = plan("p -> w : each tasks; w -> p : again; w -> j : ok each tasks")

    def line(sight: Sight) -> str:
        return "again" if sight.visits == 0 else "ok"

    trace = agree(many(graph, Script(w=line), values=tasks(i0="", i1="i0"), count=30))
    assert trace.status == "completed"
    assert audited(graph, Script(w=line), tasks(i0="", i1="i0")).log == trace.log


def test_a_join_of_branches_that_wrote_nothing_holds_nothing_up() -> None:
    """R6 orders updates: k merged branch 0.1 of a, which wrote nothing, and then comes before branch 0.0."""
    graph = plan("a -> b, c; b -> d -> END; c -> k; b -> k : never; k -> END", {"k": "all"})
    trace = agree(many(graph, Silent("c", b="done"), count=20))
    assert trace.log == "a k b d"


def audited(graph: Plan, script: Script, values: dict[str, list[dict[str, object]]]) -> Trace:
    """The same with the books counted again."""
    return agree(
        Simulation(graph, script, order=order, values=values, observers=[Audit()]).run() for order in orders(graph, 6)
    )
