"""H1 to H22: the smallest graphs on which simpler rules fail, each under many interleavings."""

from __future__ import annotations

import pytest

from orchestrator.graph.limits import Limits
from orchestrator.kernel import records as r

from .behave import Act, Script, Sight, times
from .build import messages, plan
from .harness import agree, many
from .test_cases import tasks

CROSSING = "a -> b, c; c -> x, y; b, x -> j1; j1, y -> j2"


def test_h1_branches_that_cross_bring_each_update_in_once() -> None:
    trace = agree(many(plan(CROSSING), count=60))
    assert trace.log == "a b c x j1 y j2"
    assert trace.values["total"] == 0


def test_h1_no_false_conflict_where_branches_cross() -> None:
    trace = agree(many(plan(CROSSING), Script(c={"f": "c"}, x={"f": "x"}), count=30))
    assert trace.status == "completed"
    assert trace.values["f"] == "x"


def test_h1_a_true_conflict_where_branches_cross() -> None:
    for pair in ("bx", "bc", "xy", "by"):
        script = Script(**{node: {"f": node} for node in pair})
        trace = agree(many(plan(CROSSING), script))
        assert trace.status == "failed"
        assert f"{pair[0]} and {pair[1]}" in trace.error


def test_h1_an_item_that_needs_others_holds_their_updates_once() -> None:
    graph = plan("p -> w : each tasks; w -> j")
    trace = agree(many(graph, values=tasks(i1="", i2="i1", i3="i1 i2"), count=30))
    assert trace.log == "p w:i1 w:i2 w:i3 j"


def test_h1_a_branch_that_ended_beside_a_join() -> None:
    trace = agree(many(plan("a -> b -> c, d; d -> x, y; c, x -> j; y -> END"), count=30))
    assert sorted(trace.values["log"]) == ["a", "b", "c", "d", "j", "x", "y"]
    assert trace.saw("j")[0]["log"] == ["a", "b", "c", "d", "x"]


def test_h2_the_order_of_causes_beats_the_order_of_branches() -> None:
    graph = plan("p -> w : each tasks; w -> v -> j")
    trace = agree(many(graph, Script(v=lambda s: {"f": s.label}), values=tasks(i1="i2", i2="i3", i3=""), count=30))
    assert trace.values["f"] == "v:i1"
    assert trace.log == "p w:i3 v:i3 w:i2 v:i2 w:i1 v:i1 j"


def test_h2_one_order_for_all_not_the_parents_first() -> None:
    graph = plan("p -> w : each tasks; w -> v -> j")
    agree(many(graph, values=tasks(i1="i4", i2="i3", i3="", i4="i2", i5="i1 i2"), count=40))


def test_h3_what_has_ended_is_never_merged_at_a_join() -> None:
    trace = agree(many(plan("a -> b, c; b -> END; c -> j -> END"), count=60))
    assert trace.saw("j")[0]["log"] == ["a", "c"]
    assert sorted(trace.values["log"]) == ["a", "b", "c", "j"]


def test_h4_the_map_is_joined_though_a_fork_lies_nearer() -> None:
    """`w` dominates the join, and is not its fork."""
    graph = plan("p -> w : each xs; w -> a, b : deep; a, b -> j -> k; w -> k : quick")
    trace = agree(many(graph, Script(w=lambda s: "deep" if s.item == 1 else "quick"), values={"xs": [1, 2]}))
    assert trace.count("k") == 1


def test_h4_a_join_that_forks_is_not_the_fork_of_the_next_join() -> None:
    graph = plan("p -> s : each xs; s -> a, b -> j; j -> a, b : again; j -> k : ok")
    trace = agree(many(graph, Script(j=times(1, "again", "ok")), values={"xs": [1, 2]}))
    assert trace.count("k") == 1
    assert trace.count("j") == 4


def test_h5_an_outcome_that_does_not_fork_opens_the_fork_too() -> None:
    graph = plan("a -> b, c : two; a -> b : one; b, c -> j -> END")
    assert agree(many(graph, Script(a="one"))).log == "a b j"


def test_h6_a_join_stays_in_the_fork_as_long_as_another_follows() -> None:
    trace = agree(many(plan("a -> b, c, d; b, c -> j1; j1, d -> j2 -> s")))
    paths = {seen.node: seen.path for seen in trace.seen.values()}
    assert paths["j1"] == paths["b"]
    assert paths["s"] == paths["j2"] == ""


def test_h6_rounds_do_not_nest() -> None:
    graph = plan("z -> y, q; y -> a -> b, c -> j; j -> a : again; j -> k : ok; q -> k")
    trace = agree(many(graph, Script(j=times(4, "again", "ok"))))
    assert len({seen.path for seen in trace.seen.values() if seen.node == "b"}) == 1
    assert len({seen.path for seen in trace.seen.values() if seen.node == "j"}) == 1


def test_h7_back_before_a_fork_stays_inside_it() -> None:
    graph = plan("a -> b, c; b -> a : again; b -> j : ok; c -> j")
    trace = agree(many(graph, Script(b=times(2, "again", "ok")), count=40))
    assert trace.log == "a b a b a b c c c j"
    assert trace.count("j") == 1


def test_h7_a_map_that_maps_again_from_inside_an_item() -> None:
    """A tree of thoughts: one join for all of it."""
    graph = plan("p -> w : each xs; w -> p : deeper; w -> j : ok")
    script = Script(w=lambda s: "deeper" if len(s.values["log"]) < 3 else "ok")
    trace = agree(many(graph, script, values={"xs": [1, 2]}))
    assert trace.count("j") == 1
    assert trace.count("w") == 2 + 4
    assert trace.items("j") == [[None, []]]


def test_h8_a_join_waits_for_all_rounds_of_a_way_back_to_before_its_fork() -> None:
    graph = plan("t -> p, q -> c -> s -> b, d; b, d -> j; d -> t : redo", {"c": "all", "j": "all"})
    trace = agree(many(graph, Script(d=times(1, "redo", "done")), count=60))
    assert trace.count("j") == 1
    assert trace.count("c") == 2
    assert trace.log == "t p q c s b d t p q c s b d j"


def test_h8_joins_of_an_outer_fork_are_passed_by_nobody() -> None:
    graph = plan("z -> s, q; s -> b, c, d; b, c -> j; j, d, q -> k; k -> s : again; k -> END : ok")
    trace = agree(many(graph, Script(k=times(1, "again", "ok")), count=60))
    assert trace.status == "completed"
    assert trace.count("k") == trace.count("j") == 2


def test_h9_redo_only_one_branch() -> None:
    graph = plan("a -> b, c, d; b, c -> j1; j1, d -> j2; j2 -> b : redo; j2 -> END : ok")
    trace = agree(many(graph, Script(j2=times(1, "redo", "ok")), count=60))
    assert trace.log == "a b c j1 d j2 b j1 j2"


def test_h10_back_between_a_map_and_its_join_is_refused() -> None:
    found = messages("p1 -> p2 : each xs; p2 -> w : each ys; w -> j2 -> j1; j1 -> w : redo; j1 -> END : ok")
    assert found == ["j1 leads back to w, between fork p2 and its join j2: go back to p2, or to a node before it"]


def test_h11_an_empty_map_passes_over_a_join_of_an_inner_fork() -> None:
    trace = agree(many(plan("p -> w : each xs; w -> x, q; x, q -> k -> j"), values={"xs": []}))
    assert trace.log == "p j"


def test_h11_an_empty_map_is_joined_though_some_ways_end() -> None:
    graph = plan("p -> w : each xs; w -> j : ok; w -> END : bad; j -> s")
    assert agree(many(graph, values={"xs": []})).log == "p j s"


def test_h11_an_empty_map_inside_a_branch_goes_to_the_join_of_the_outer_fork() -> None:
    graph = plan("a -> b, c; b -> w : each xs; w -> j; c -> j")
    trace = agree(many(graph, values={"xs": []}))
    assert trace.log == "a b c j"


def test_h12_the_item_at_and_after_the_joins_of_a_map() -> None:
    graph = plan("p -> w : each xs; w -> j1 : some; w -> j2 : rest; j1 -> e -> j2 -> s")
    trace = agree(many(graph, Script(w=lambda s: "rest" if s.item == 2 else "some"), values={"xs": [1, 2, 3]}))
    assert trace.items("w") == [[1, [1]], [2, [2]], [3, [3]]]
    for node in ("j1", "e", "j2", "s"):
        assert trace.items(node) == [[None, []]]


def test_h12_the_outer_item_comes_back_after_the_inner_maps_join() -> None:
    graph = plan("p -> q : each xs; q -> w : each ys; w -> k -> v -> j")
    trace = agree(many(graph, values={"xs": [1, 2], "ys": [8, 9]}))
    assert trace.items("v") == [[1, [1]], [2, [2]]]
    assert trace.items("w") == [[8, [1, 8]], [8, [2, 8]], [9, [1, 9]], [9, [2, 9]]]


NEEDS = tasks(i1="i2", i2="", i3="i1")


@pytest.mark.parametrize(
    ("text", "log"),
    [
        ("p -> w : each tasks; w -> b, c; b, c -> k -> j", None),
        ("p -> w : each tasks; w -> v", "p w:i2 v:i2 w:i1 v:i1 w:i3 v:i3"),
        ("p -> w : each tasks; w -> b, c; b -> END; c -> j", None),
        ("p -> w : each tasks; w -> v : each xs; v -> k -> j", None),
    ],
    ids=["own join", "no join", "a part ends", "maps again"],
)
def test_h13_items_that_need_others_and_fork(text: str, log: str | None) -> None:
    trace = agree(many(plan(text), values={**NEEDS, "xs": [1, 2]}, count=30))
    assert trace.status == "completed"
    assert log is None or trace.log == log
    saw = {state["log"][-1] for state in trace.saw("w")}
    assert "p" in saw
    order = [word for word in trace.values["log"] if word.startswith("w:")]
    assert order == ["w:i2", "w:i1", "w:i3"]


def test_h13_a_partial_join_of_items_that_need_each_other() -> None:
    graph = plan("p -> w : each tasks; w -> j1 : some; w -> j2 : rest; j1 -> j2 -> s")
    script = Script(w=lambda s: "rest" if s.label == "w:i1" else "some")
    trace = agree(many(graph, script, values=NEEDS, count=30))
    assert trace.status == "completed"
    assert trace.count("j2") == trace.count("j1") == 1


def test_h13_needs_in_a_map_inside_an_item_that_jumped_back() -> None:
    graph = plan("p -> w : each tasks; w -> p : again; w -> j : ok")
    script = Script(w=lambda s: "again" if len(s.values["log"]) < 2 else "ok")
    trace = agree(many(graph, script, values=NEEDS, count=40))
    assert trace.status == "completed"
    assert trace.count("j") == 1


def test_h13_of_a_needed_item_only_what_waits_at_the_join_is_seen() -> None:
    """R9, R12: what ended is merged when the graph ends, unless nothing waits because the map has no join."""
    joined = plan("p -> w : each tasks; w -> a, b; a -> k -> j; b -> END")
    trace = agree(many(joined, values=tasks(i1="i2", i2=""), count=30))
    assert [state["log"] for state in trace.saw("w")] == [["p"], ["p", "w:i2", "a:i2", "k:i2"]]
    assert trace.saw("j")[0]["log"] == ["p", "w:i2", "a:i2", "k:i2", "w:i1", "a:i1", "k:i1"]
    assert trace.log == "p w:i2 a:i2 k:i2 w:i1 a:i1 k:i1 j b:i1 b:i2"
    free = plan("p -> w : each tasks; w -> a, b")
    trace = agree(many(free, values=tasks(i1="i2", i2=""), count=30))
    assert [state["log"] for state in trace.saw("w")] == [["p"], ["p", "w:i2", "a:i2", "b:i2"]]


@pytest.mark.parametrize("names", [("j1", "j2"), ("j2", "j1")], ids=" ".join)
def test_h14_joins_that_one_step_completes_fire_as_declared(names: tuple[str, str]) -> None:
    """One step is left: the join that the graph names first takes it, whichever branch landed last."""
    one, two = names
    graph = plan(f"s -> b, c; b -> {one}, {two}; c -> {two}, {one}; j1 -> END; j2 -> END", limits=Limits(steps=4))
    traces = many(graph, count=20)
    assert {trace.status for trace in traces} == {"exhausted"}
    assert {trace.log for trace in traces} == {f"s b c {one}"}


@pytest.mark.parametrize("first", ["j", "k"])
def test_h14_a_join_that_fires_first_drops_what_the_next_one_would_have_merged(first: str) -> None:
    """c completes both: j, which needs one, and k, which waited for c only. What k merges can reach j."""
    order = "c -> j, k" if first == "j" else "c -> k, j"
    graph = plan(f"a -> b, c, d; {order}; b -> k; d -> j; k -> j; j -> END", {"j": 1, "k": "all"})
    for trace in many(graph, count=20):
        assert trace.status == "completed"
        assert trace.count("j") == 1
        assert trace.count("k") == 0, "what k merged could reach j, and was dropped before it ran"


def test_h14_fewer_than_n_can_come() -> None:
    graph = plan("a -> b, c; b -> j; c -> j : ok; c -> END : bad", {"j": 2})
    bad = agree(many(graph, Script(c="bad")))
    assert bad.count("j") == 1
    assert bad.saw("j")[0]["log"] == ["a", "b"]
    good = agree(many(graph, Script(c="ok")))
    assert good.log == "a b c j"


def test_h14_winners_are_merged_in_branch_order() -> None:
    for trace in many(plan("a -> b, c, d -> j -> s", {"j": 2}), count=30):
        log = trace.log.split()
        assert log[1:3] == sorted(log[1:3])
        assert len(trace.saw("s")[0]["log"]) == 4


def test_h14_tokens_that_cannot_reach_the_join_go_on() -> None:
    graph = plan("a -> b, c, d, e; b, c, d -> j; e -> x -> y", {"j": 2})
    for trace in many(graph, count=30):
        assert {"e", "x", "y"} <= set(trace.values["log"])
        assert trace.count("y") == 1


def test_h14_the_question_of_a_loser_is_withdrawn() -> None:
    graph = plan("a -> b, c, d -> j", {"j": 2})
    for trace in many(graph, Script(d=Act("", asks=1)), count=30):
        assert trace.status == "completed"
        assert not trace.machine.questions


def test_h15_stop_takes_nothing_of_the_branches_that_ended() -> None:
    for trace in many(plan("a -> b, c; b -> STOP; c -> END"), count=30):
        assert trace.log == "a b"
        assert trace.status == "completed"


def test_h16_the_first_failure_in_the_journal_is_the_error() -> None:
    graph = plan("a -> b, c, d -> j")
    errors = set()
    for trace in many(graph, Script(b=Act("", fail="one"), c=Act("", fail="two")), count=30, late=0.5):
        assert trace.status == "failed"
        failed = [record for record in trace.records if isinstance(record, r.StepFailed)]
        assert len(failed) == 1, "the others were cancelled"
        assert str(failed[0].error) == trace.error
        assert trace.count("j") == 0
        errors.add(trace.error)
    assert errors == {"Broken: one", "Broken: two"}


def test_h16_an_edge_for_the_failure_takes_it() -> None:
    graph = plan("a -> b, c -> j; b -> e : error; e -> j")
    trace = agree(many(graph, Script(b=Act("", fail="one"))))
    assert trace.status == "completed"
    assert trace.log == "a e c j", "the failed step left no update"


def test_h16_nothing_starts_after_a_failure() -> None:
    graph = plan("a -> b, c; c -> d -> e")
    for trace in many(graph, Script(b=Act("", fail="one")), count=20):
        at = next(i for i, record in enumerate(trace.records) if isinstance(record, r.StepFailed))
        assert not any(started for started, _ in trace.deltas[at:])


def test_h17_the_exhausted_target_runs_once_with_all_merged() -> None:
    text = "a -> b, c, d -> e -> j; * -> n : exhausted; n -> x, y -> k -> END"
    graph = plan(text, {"e": "each", "j": "all", "k": "all"}, limits=Limits(steps=5))
    for trace in many(graph, count=30):
        assert trace.status == "exhausted"
        assert trace.count("n") == trace.count("x") == trace.count("y") == trace.count("k") == 1
        assert len(trace.saw("n")[0]["log"]) == 5
        assert len(trace.values["log"]) == 5 + 4


def test_h17_after_it_a_second_visit_ends_as_exhausted() -> None:
    text = "a -> a : on; a -> END : ok; * -> n : exhausted; n -> n : again; n -> END : ok"
    graph = plan(text, limits=Limits(steps=3))
    trace = agree(many(graph, Script(a="on", n="again")))
    assert trace.status == "exhausted"
    assert trace.log == "a a a n"


def test_h17_the_exhausted_edge_does_not_count_for_joins() -> None:
    """`*` stands for every node: were its edges ways, no fork would dominate what follows `n`."""
    graph = plan("a -> b, c -> j; * -> n : exhausted; n -> d -> x, y -> k", limits=Limits(steps=2))
    for trace in many(graph, count=20):
        assert trace.status == "exhausted"
        assert trace.count("k") == 1


def test_h18_loops_and_later_meetings_are_no_errors() -> None:
    assert messages("b -> b : again; b -> END : ok") == []
    assert messages("a -> b, c; c -> a : again; c -> j : ok; b -> j") == []
    assert messages("a -> b, c -> e -> x -> y", {"e": "each"}) == []
    assert messages("a -> b, c -> e -> x, y -> z", {"e": "each", "z": "each"}) == []


def test_h18_a_chain_after_join_each_runs_per_branch() -> None:
    trace = agree(many(plan("a -> b, c -> e -> x -> y", {"e": "each"})))
    assert trace.log == "a b e x y c e x y"


@pytest.mark.parametrize("values", ["bd", "bb"], ids=["different", "equal"])
def test_h19_a_conflict_with_a_branch_that_ended(values: str) -> None:
    graph = plan("a -> b, c; b -> END; c -> d -> END")
    trace = agree(many(graph, Script(b={"f": values[0]}, d={"f": values[1]})))
    assert trace.status == "failed"
    assert "b and d" in trace.error
    assert trace.count("d") == 1, "it shows when the graph ends"


@pytest.mark.full
def test_h20_a_loop_inside_a_branch_keeps_what_the_outer_join_needs() -> None:
    graph = plan("z -> a, q; a -> b, c -> j; j -> a : again; j -> k : ok; q -> k")
    trace = agree(many(graph, Script(j=times(5, "again", "ok"))))
    assert trace.log == "z " + "a b c j " * 6 + "q k"


def test_h20_a_loop_with_a_branch_that_writes_and_ends() -> None:
    graph = plan("a -> b, c; b -> a : again; b -> END : ok; c -> END")
    trace = agree(many(graph, Script(b=times(5, "again", "ok"))))
    assert trace.count("c") == 6
    assert trace.values["log"].count("c") == 6


def test_h21_forks_and_stop_of_a_subgraph_stay_inside() -> None:
    inner = plan("a -> b, c; b -> STOP; c -> d", name="inner")
    graph = plan("p -> w, v -> j", sub={"w": inner})
    for trace in many(graph, count=30):
        assert trace.status == "completed"
        assert trace.log == "p w[a b] v j"


def test_h21_an_inner_end_is_merged_inside() -> None:
    inner = plan("a -> b, c", name="inner")
    trace = agree(many(plan("p -> w, v -> j", sub={"w": inner})))
    assert trace.log == "p w[a b c] v j"
    assert {seen.path for seen in trace.seen.values() if seen.node == "b"} == {"p.0/w/a.0"}


def test_h21_a_failure_inside_is_the_failure_of_the_activation() -> None:
    inner = plan("a -> b, c", name="inner")
    script = Script(b=Act("", fail="deep"))
    trace = agree(many(plan("p -> w, v -> j", sub={"w": inner}), script))
    assert trace.status == "failed"
    assert "deep" in trace.error
    caught = agree(many(plan("p -> w, v -> j; w -> e : error; e -> j", sub={"w": inner}), script))
    assert caught.status == "completed"
    assert caught.log == "p e v j"


def test_h22_a_join_with_one_way_in_is_harmless() -> None:
    trace = agree(many(plan("a -> b, c; b -> j; c -> END")))
    assert trace.count("j") == 1
    between = agree(many(plan("a -> b, c; b -> k -> j; c -> j -> s")))
    assert between.log == "a b k c j s"
    assert between.count("j") == between.count("k") == 1


def test_h22_a_join_that_no_fork_matches_is_refused() -> None:
    assert messages("a -> k -> b") == ["no branches meet at k: remove join"]
    # Behind the join that closes its fork there is nothing to merge.
    assert messages("a -> b, c -> j -> k") == ["no branches meet at k: remove join"]


def test_a_pending_token_counts_as_live() -> None:
    """R12: an item that has not started can reach what the mapped node can."""
    graph = plan("p -> w : each tasks; w -> x -> j")
    trace = agree(many(graph, values=tasks(a="", b="a", c="b", d="c"), count=20))
    assert trace.count("j") == 1


def _local(sight: Sight) -> dict[str, object]:
    return {"mine": f"{sight.label}{sight.values['mine']}"}


def test_r6_a_join_restores_what_is_a_branchs_own() -> None:
    graph = plan("a -> b, c; b -> x -> j; c -> j -> s")
    trace = agree(many(graph, Script(a=_local, b=_local, c=_local, x=_local)))
    assert trace.saw("x")[0]["mine"] == "ba"
    assert trace.saw("j")[0]["mine"] == "a"
    assert trace.status == "completed"
