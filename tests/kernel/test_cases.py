"""K1 to K26: the cases of the rules, by name, each under many interleavings."""

from __future__ import annotations

import pytest

from orchestrator.graph.limits import Limits
from orchestrator.kernel import records as r

from .behave import Act, Script, times
from .build import messages, plan
from .harness import Simulation, Trace, agree, many
from .orders import orders

THREE = {"xs": [1, 2, 3]}


def subsequence(part: list[str], whole: list[str]) -> bool:
    """Whether the first is in the order of the second."""
    rest = iter(whole)
    return all(word in rest for word in part)


def test_k1_a_fork_and_its_join() -> None:
    trace = agree(many(plan("a -> b, c -> j")))
    assert trace.log == "a b c j"
    assert trace.count("j") == 1


def test_k2_a_fork_inside_a_branch_that_meets_at_the_same_join() -> None:
    trace = agree(many(plan("a -> b, c; c -> x, y; b, x, y -> j")))
    assert trace.log == "a b c x y j"
    assert trace.count("j") == 1


@pytest.mark.parametrize(
    ("text", "log"),
    [
        ("a -> b, c, d; b, c -> j1; j1, d -> j2", "a b c j1 d j2"),
        ("a -> d, b, c; b, c -> j1; j1, d -> j2", "a d b c j1 j2"),
        ("a -> b, c; c -> x, y; b, x -> j1; j1, y -> j2", None),
    ],
    ids=["d last", "d first", "crossing"],
)
def test_k3_a_join_that_leaves_the_fork_open(text: str, log: str | None) -> None:
    trace = agree(many(plan(text)))
    assert log is None or trace.log == log
    assert trace.count("j1") == trace.count("j2") == 1
    assert set(trace.counts().values()) == {1}
    assert sorted(trace.values["log"]) == sorted(trace.counts())


def test_k4_two_nodes_per_item_then_a_join() -> None:
    trace = agree(many(plan("p -> u : each xs; u -> v -> j"), values=THREE))
    assert trace.log == "p u:1 v:1 u:2 v:2 u:3 v:3 j"
    assert trace.items("v") == [[1, [1]], [2, [2]], [3, [3]]]
    assert trace.items("j") == [[None, []]]


def test_k5_a_fork_and_its_join_inside_every_item() -> None:
    trace = agree(many(plan("p -> w : each xs; w -> b, c; b, c -> k -> j"), values=THREE))
    assert trace.count("k") == 3
    assert trace.count("j") == 1
    assert trace.log == "p w:1 b:1 c:1 k:1 w:2 b:2 c:2 k:2 w:3 b:3 c:3 k:3 j"
    assert trace.items("k") == [[1, [1]], [2, [2]], [3, [3]]]


def test_k6_a_branch_that_ends_beside_its_join() -> None:
    trace = agree(many(plan("a -> b, c; b -> j; c -> j : ok; c -> END : bad"), Script(c="bad")))
    assert trace.count("j") == 1
    assert trace.saw("j")[0]["log"] == ["a", "b"]
    assert sorted(trace.values["log"]) == ["a", "b", "c", "j"]
    good = agree(many(plan("a -> b, c; b -> j; c -> j : ok; c -> END : bad"), Script(c="ok")))
    assert good.log == "a b c j"


def test_k7_a_join_waits_for_the_last_round_of_a_branch() -> None:
    graph = plan("a -> b, c; c -> c : again; c -> j : ok; b -> j")
    trace = agree(many(graph, Script(c=times(3, "again", "ok"))))
    assert trace.log == "a b c c c c j"


def test_k8_a_loop_around_a_fork_and_its_join() -> None:
    graph = plan("a -> b, c; b, c -> j; j -> a : again; j -> END : ok")
    trace = agree(many(graph, Script(j=times(4, "again", "ok"))))
    assert trace.log == " ".join(["a b c j"] * 5)


@pytest.mark.parametrize(
    ("text", "log"),
    [
        ("p -> w : each xs; w -> j -> s", "p j s"),
        ("p -> w : each xs; w -> b, c; b, c -> k -> j -> s", "p j s"),
        ("p -> w : each xs; w -> j : ok; w -> END : bad; j -> s", "p j s"),
        ("p -> w : each xs; w -> s", "p"),
    ],
    ids=["join", "inner join before it", "way to END", "no join"],
)
def test_k9_an_empty_map(text: str, log: str) -> None:
    trace = agree(many(plan(text), values={"xs": []}))
    assert trace.status == "completed"
    assert trace.log == log
    assert all(items == [None, []] for node in ("j", "s") for items in trace.items(node))


# -- K10: items that need each other -------------------------------------------------------------------------------


def tasks(**needs: str) -> dict[str, list[dict[str, object]]]:
    """`tasks(a="", b="a")`: item b needs item a."""
    return {"tasks": [{"id": name, "needs": wanted.split()} for name, wanted in needs.items()]}


def test_k10_items_run_by_levels() -> None:
    trace = agree(many(plan("p -> w : each tasks; w -> j"), values=tasks(i1="", i2="i1 i3", i3="", i4="i1 i3")))
    assert trace.log == "p w:i1 w:i3 w:i2 w:i4 j"
    seen = {str(state["log"]) for state in trace.saw("w")}
    assert seen == {"['p']", "['p', 'w:i1', 'w:i3']"}
    assert trace.count("j") == 1


def test_k10_a_later_level_starts_when_those_it_needs_have_arrived() -> None:
    """No barrier between levels: only what is needed is waited for."""
    graph = plan("p -> w : each tasks; w -> j")
    started: dict[str, int] = {}
    sim = Simulation(graph, values=tasks(a="", b="a", slow=""), order=orders(graph, 1)[0])
    sim.begin()
    while sim.machine.status != "completed":
        running = list(sim.machine.running.values())
        quick = [a for a in running if not isinstance(a.item, dict) or a.item["id"] != "slow"]
        for a in running:
            if isinstance(a.item, dict):
                started.setdefault(a.item["id"], sim.machine.head)
        if quick:
            sim.step(quick[0])
        elif running:
            assert "b" in started
            sim.step(running[0])
        else:
            sim.end()
    assert sim.finish().log == "p w:a w:b w:slow j"


def test_k10_the_item_that_needs_the_other_writes_last() -> None:
    graph = plan("p -> w : each tasks; w -> j")
    trace = agree(many(graph, Script(w=lambda s: {"f": s.item["id"]}), values=tasks(i1="i2", i2="")))  # type: ignore[index]
    assert trace.status == "completed"
    assert trace.values["f"] == "i1"
    assert trace.log == "p w:i2 w:i1 j"


def test_k10_two_items_that_write_alone_are_in_conflict() -> None:
    graph = plan("p -> w : each tasks; w -> j")
    trace = agree(many(graph, Script(w=lambda s: {"f": s.item["id"]}), values=tasks(i1="", i2="")))  # type: ignore[index]
    assert trace.status == "failed"
    assert "ConflictingUpdate" in trace.error


def test_k10_an_item_with_a_fork_of_its_own_is_done_at_the_maps_join() -> None:
    graph = plan("p -> w : each tasks; w -> b, c; b, c -> k -> j")
    trace = agree(many(graph, values=tasks(i1="i2", i2="")))
    assert trace.log == "p w:i2 b:i2 c:i2 k:i2 w:i1 b:i1 c:i1 k:i1 j"


def test_k10_an_item_whose_needed_item_ended_is_skipped() -> None:
    graph = plan("p -> w : each tasks; w -> j : ok; w -> END : bad")
    script = Script(w=lambda s: "bad" if s.item["id"] == "i2" else "ok")  # type: ignore[index]
    trace = agree(many(graph, script, values=tasks(i1="i2", i2="", i3="i1", i4="")))
    assert trace.count("w") == 2
    assert trace.saw("j")[0]["log"] == ["p", "w:i4"]
    assert sorted(trace.values["log"]) == ["j", "p", "w:i2", "w:i4"]


def test_k10_without_a_join_an_item_runs_after_one_that_ended() -> None:
    trace = agree(many(plan("p -> w : each tasks; w -> s"), values=tasks(i1="i2", i2="")))
    assert trace.log == "p w:i2 s:i2 w:i1 s:i1"


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([{"id": 1, "needs": [7]}], "7"),
        ([{"id": 1, "needs": []}, {"id": 1, "needs": []}], "1"),
        ([{"id": 1, "needs": [2]}, {"id": 2, "needs": [1]}], "circle"),
        ([{"id": 1, "needs": [1]}], "circle"),
    ],
    ids=["unknown", "twice", "circle", "itself"],
)
def test_k10_wrong_needs_are_an_error_of_the_mapping_node(items: list[dict[str, object]], said: str) -> None:
    trace = agree(many(plan("p -> w : each tasks; w -> j"), values={"tasks": items}))
    assert trace.status == "failed"
    assert trace.count("w") == 0
    failed = next(record for record in trace.records if isinstance(record, r.StepFailed))
    assert failed.node == "p"
    assert said in failed.error.message


# -- K11: join=n ------------------------------------------------------------------------------------------------


def test_k11_the_first_two_of_five_in_branch_order() -> None:
    graph = plan("p -> w : each xs; w -> j -> s", {"j": 2})
    traces = many(graph, values={"xs": [1, 2, 3, 4, 5]}, count=20)
    winners = set()
    for trace in traces:
        assert trace.status == "completed"
        assert trace.count("j") == trace.count("s") == 1
        landed = [trace.seen[key].items for key in trace.landed if trace.seen[key].node == "w"]
        assert len(landed) == 2
        assert len(trace.dropped) == 3
        merged = trace.saw("j")[0]["log"]
        assert merged == ["p", *sorted(merged[1:])]
        assert len(merged) == 3
        winners.add(tuple(merged))
    assert len(winners) > 2, "who wins is a race"


def test_k11_fires_with_what_there_is_when_no_more_can_come() -> None:
    graph = plan("p -> w : each xs; w -> j : ok; w -> END : bad", {"j": 2})
    trace = agree(many(graph, Script(w=lambda s: "ok" if s.item == 3 else "bad"), values={"xs": [1, 2, 3, 4, 5]}))
    assert trace.saw("j")[0]["log"] == ["p", "w:3"]
    assert trace.count("j") == 1
    assert sorted(trace.values["log"]) == sorted(["p", "j", *(f"w:{i}" for i in range(1, 6))])


# -- K12: conflicts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["c", "b"], ids=["different", "equal"])
def test_k12_two_branches_write_one_plain_field(value: str) -> None:
    trace = agree(many(plan("a -> b, c -> j"), Script(b={"f": "b"}, c={"f": value})))
    assert trace.status == "failed"
    assert trace.error.startswith("ConflictingUpdate")
    assert "b and c" in trace.error
    assert "'f'" in trace.error


def test_k12_a_write_after_the_join_is_no_conflict() -> None:
    trace = agree(many(plan("a -> b, c -> j"), Script(b={"f": "b"}, j={"f": "j"})))
    assert trace.status == "completed"
    assert trace.values["f"] == "j"


def test_k12_a_conflict_that_shows_only_when_the_graph_ends() -> None:
    trace = agree(many(plan("a -> b, c"), Script(b={"f": "b"}, c={"f": "c"})))
    assert trace.status == "failed"
    assert "b and c" in trace.error


def test_k12_a_branch_that_did_not_write_undoes_nothing() -> None:
    trace = agree(many(plan("a -> b, c -> j"), Script(a={"f": "a"}, b={"f": "b"})))
    assert trace.values["f"] == "b"
    trace = agree(many(plan("a -> b, c -> j"), Script(a={"f": "a"}, c={"f": "c"})))
    assert trace.values["f"] == "c"


def test_k13_stop_in_a_branch() -> None:
    graph = plan("a -> b, c; b -> STOP; c -> d -> END")
    for trace in many(graph, count=20, late=0.5):
        if trace.status == "completed" and "b" in trace.values["log"]:
            assert trace.log == "a b"
    slow = [trace for trace in many(graph, count=20) if trace.dropped]
    assert slow
    assert all(trace.log == "a b" for trace in slow)


def test_k13_stop_ends_the_graph_whatever_else_ended() -> None:
    graph = plan("a -> b, c; b -> STOP; c -> END")
    assert {trace.log for trace in many(graph, count=20)} == {"a b"}


# -- K14, K15: questions and graphs inside ------------------------------------------------------------------------


def test_k14_a_question_inside_a_subgraph_inside_a_map() -> None:
    inner = plan("q -> r", name="inner")
    graph = plan("p -> w : each xs; w -> v -> j", sub={"w": inner})
    asks = Script(q=lambda s: Act("", asks=1) if s.values["xs"] else None)
    traces = many(graph, asks, values=THREE, inputs=lambda plan, sight: {"xs": [1] if sight.item == 2 else []})
    trace = agree(traces)
    assert trace.log == "p w[q r]:1 v:1 w[q r]:2 v:2 w[q r]:3 v:3 j"
    for one in traces:
        asked = [record for record in one.records if isinstance(record, r.Asked)]
        assert len(asked) == 1
        for position in one.paused:
            # Paused only when all the other items have gone as far as they can.
            done = [x for x in one.records[:position] if isinstance(x, r.StepDone) and x.node == "v"]
            assert len(done) == 2
    assert any(one.paused for one in traces)


def test_k15_a_map_in_a_map_in_a_subgraph_is_one_activation_outside() -> None:
    inner = plan("a -> b : each xs; b -> c : each ys; c -> k -> j", name="inner")
    graph = plan("p -> w -> s", sub={"w": inner})
    trace = agree(many(graph, values={"xs": [1, 2], "ys": [7, 8]}))
    assert trace.count("w") == 1
    assert trace.count("c") == 4
    assert trace.count("k") == 2
    assert trace.count("j") == 1
    assert trace.log.startswith("p w[a b:1 c:7 c:8 k:1 b:2 c:7 c:8 k:2 j] s")
    assert trace.items("c") == [[7, [1, 7]], [7, [2, 7]], [8, [1, 8]], [8, [2, 8]]]
    assert trace.items("s") == [[None, []]]


def test_k16_joins_that_wait_for_each_other_are_refused() -> None:
    text = "a -> b, c, d, e; b, c -> j1; d, e -> j2; j1 -> d : on; j1 -> x : out; j2 -> b : on; j2 -> x : out"
    found = messages(text, {"j1": "all", "j2": "all", "x": "each"})
    assert any(
        m == "j1 and j2 wait for each other through j1 -> j2 -> j1: let j2 go back to fork a, or end one of the paths"
        for m in found
    ), found


def test_k16_a_redo_from_a_later_join_runs() -> None:
    graph = plan("a -> b, c, d; b, c -> j1; j1, d -> j2; j2 -> b : redo; j2 -> END : ok")
    trace = agree(many(graph, Script(j2=times(2, "redo", "ok"))))
    assert trace.status == "completed"
    assert trace.log == "a b c j1 d j2 b j1 j2 b j1 j2"


# -- K17: back to before a fork that is open ------------------------------------------------------------------------


def test_k17_back_to_the_fork_from_one_of_its_branches() -> None:
    graph = plan("a -> b, c; b -> a : again; b -> j : ok; c -> j")
    trace = agree(many(graph, Script(b=times(1, "again", "ok"))))
    assert trace.log == "a b a b c c j"
    trace = agree(many(graph, Script(b=times(2, "again", "ok"))))
    assert trace.log == "a b a b a b c c c j"
    assert trace.count("j") == 1


def test_k17_back_to_before_an_earlier_fork_and_join() -> None:
    graph = plan("s -> x, y -> k -> a -> b, c; b -> s : again; b -> j : ok; c -> j")
    trace = agree(many(graph, Script(b=times(1, "again", "ok"))))
    assert trace.count("j") == 1
    assert trace.count("k") == 2
    assert trace.log == "s x y k a b s x y k a b c c j"


def test_k17_out_of_an_item_of_a_map_back_to_before_it() -> None:
    graph = plan("p -> w : each xs; w -> p : again; w -> j : ok")
    script = Script(w=lambda s: "again" if s.item == 1 and s.visits == 0 else "ok")
    trace = agree(many(graph, script, values={"xs": [1, 2]}))
    assert trace.count("j") == 1
    assert trace.log == "p w:1 p:1 w:1 w:2 w:2 j"
    assert trace.items("w") == [[1, [1]], [1, [1]], [2, [2]], [2, [2]]]


def test_k18_ten_at_a_time_and_one_join_in_item_order() -> None:
    graph = plan("p -> w : each xs; w -> j", limits=Limits(steps=None, concurrency=10))
    values = {"xs": list(range(60))}
    traces = many(graph, values=values, count=8, probability=0.01)
    trace = agree(traces)
    assert trace.log == " ".join(["p", *(f"w:{i}" for i in range(60)), "j"])
    assert all(one.most == 10 for one in traces)


# -- K19: limits ------------------------------------------------------------------------------------------------


def exhausted(text: str, steps: int, script: Script | None = None) -> list[Trace]:
    """A run under so few steps."""
    return many(plan(text, limits=Limits(steps=steps)), script, count=20)


def test_k19_parallel_branches_spend_a_limit_and_the_exhausted_edge_is_taken_once() -> None:
    traces = exhausted("a -> b, c, d -> j; * -> n : exhausted; n -> END", 3)
    for trace in traces:
        assert trace.status == "exhausted"
        assert trace.count("n") == 1
        (saw,) = trace.saw("n")
        assert len(saw["log"]) == 3, "everything is merged"
        assert saw["log"][0] == "a"
        assert trace.log == " ".join([*saw["log"], "n"])


def test_k19_without_the_edge_the_run_is_exhausted_with_what_was_made() -> None:
    for trace in exhausted("a -> b, c, d -> j", 3):
        assert trace.status == "exhausted"
        assert len(trace.values["log"]) == 3
        assert trace.values["log"] == sorted(trace.values["log"])


def test_k19_what_ended_before_is_merged_too() -> None:
    for trace in exhausted("a -> b, c, d; * -> n : exhausted", 4):
        assert trace.log == "a b c d"
        assert trace.status == "completed"
    for trace in exhausted("a -> b, c; b -> e -> f; c -> g -> h; * -> n : exhausted", 4):
        assert trace.status == "exhausted"
        assert len(trace.saw("n")[0]["log"]) == 4


def test_k19_a_conflict_shows_where_all_is_merged() -> None:
    traces = exhausted("a -> b, c -> j; * -> n : exhausted", 3, Script(b={"f": "b"}, c={"f": "c"}))
    assert {trace.status for trace in traces} == {"failed"}
    assert all("ConflictingUpdate" in trace.error for trace in traces)


# -- K20 to K24 -------------------------------------------------------------------------------------------------


def test_k20_failed_attempts_leave_no_trace() -> None:
    graph = plan("a -> b, c -> j")
    trace = agree(many(graph, Script(b=Act("", retries=2))))
    assert trace.log == "a b c j"
    plainly = agree(many(graph))
    assert trace.values == plainly.values
    assert trace.seen == plainly.seen


def test_k21_an_outcome_of_a_fork_that_does_not_fork() -> None:
    graph = plan("a -> b, c : two; a -> b : one; b, c -> j")
    trace = agree(many(graph, Script(a="one")))
    assert trace.log == "a b j"
    assert agree(many(graph, Script(a="two"))).log == "a b c j"


def test_k22_a_join_that_is_a_fork_inside_a_map() -> None:
    graph = plan("p -> s : each xs; s -> a, b -> j; j -> a, b : again; j -> m : ok")
    script = Script(j=lambda s: "again" if s.visits < (s.item or 0) else "ok")  # type: ignore[operator]
    trace = agree(many(graph, script, values={"xs": [1, 2]}))
    assert trace.count("m") == 1
    assert trace.count("j") == 2 + 3
    assert trace.log == "p s:1 a:1 b:1 j:1 a:1 b:1 j:1 s:2 a:2 b:2 j:2 a:2 b:2 j:2 a:2 b:2 j:2 m"


@pytest.mark.parametrize("deep", [[], [1], [1, 2, 3]], ids=str)
def test_k23_a_way_round_the_inner_fork(deep: list[int]) -> None:
    graph = plan("p -> w : each xs; w -> a, b : deep; a, b -> j -> m; w -> m : quick")
    trace = agree(many(graph, Script(w=lambda s: "deep" if s.item in deep else "quick"), values=THREE))
    assert trace.count("m") == 1
    assert trace.count("j") == len(deep)
    assert trace.items("m") == [[None, []]]
    expected = [f"w:{i} a:{i} b:{i} j:{i}" if i in deep else f"w:{i}" for i in (1, 2, 3)]
    assert trace.log == " ".join(["p", *expected, "m"])


def test_k24_two_joins_of_one_fork_of_which_one_goes_back() -> None:
    graph = plan("s -> b, c, d, e; b, c -> j1; d, e -> j2; j1 -> s : again; j1 -> END : ok")
    trace = agree(many(graph, Script(j1=times(2, "again", "ok"))))
    assert trace.count("j1") == 3
    assert trace.count("j2") == 3


# -- K25, K26 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a -> b, c; c -> x, y; b, x -> j1; j1, y -> j2",
        "a -> b, c, d; b, c -> j1; j1, d -> j2; j2 -> END",
        "p -> w : each xs; w -> a, b; a, b -> j -> m",
        "a -> b, c; b -> END; c -> d -> e -> END",
        "p -> w : each tasks; w -> a, b; a, b -> k -> j",
    ],
)
def test_k25_what_a_node_saw_is_in_the_order_of_the_final_state(text: str) -> None:
    """Every run of these tests is held to it, by `whole_order`; here once by the words of the log."""
    trace = agree(many(plan(text), values={**THREE, **tasks(i1="i3", i2="i1", i3="")}, count=30))
    for seen in trace.seen.values():
        assert subsequence(seen.state["log"], trace.values["log"])


def test_k26_a_way_that_reaches_a_join_without_its_fork_is_refused() -> None:
    text = "p1 -> p2 : each xs; p2 -> w : each ys; w -> j2 -> j1; j1 -> w : redo; j1 -> END : ok"
    found = messages(text)
    assert "j1 leads back to w, between fork p2 and its join j2: go back to p2, or to a node before it" in found
