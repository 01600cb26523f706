"""What is kept of a graph that ended, by hand: what landed too late, graphs inside, merges, and what is forgotten."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.graph.limits import Limits
from orchestrator.kernel import records as r
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import branches
from orchestrator.kernel.snapshot import dump, load

from .behave import Act, Script, times
from .build import plan
from .harness import Simulation
from .orders import Order
from .reopening import reopen, reopened
from .test_snapshots import differences


def simulation(graph: Plan, **lines: Any) -> Simulation:
    return Simulation(graph, Script(**lines), order=Order("first"))


def at(run: Simulation, node: str) -> Any:
    """The running activation of a node."""
    return next(a for a in run.machine.running.values() if a.node == node)


def fail(run: Simulation, node: str) -> None:
    a = at(run, node)
    run._fail(a, r.Failure(type="Bug", message="a bug", node=node, path=a.path))


def land_late(run: Simulation, activation: Any, outcome: str = "done") -> None:
    """A step that was stopped has ended even so."""
    stamp = {**run.head(), "activation": activation.key, "path": activation.path, "node": activation.node}
    update, ops = activation.frame.plan.schema.encode_update({"log": activation.node, "trail": activation.key})
    run.land(r.StepDone(**stamp, outcome=outcome, update=dict(update), ops=ops))
    run.done.add(activation.key)
    run.trace.landed.append(activation.key)


def end(run: Simulation) -> None:
    while run.machine.ended is None:
        run.advance()
    loaded = load(run.plan, json.loads(json.dumps(dump(run.machine))))
    assert not list(differences(run.machine, loaded))


def test_what_landed_after_a_failure_takes_its_edges_and_does_not_run_again() -> None:
    run = simulation(plan("a -> b, c -> j"))
    run.begin()
    run.step(at(run, "a"))
    c = at(run, "c")
    fail(run, "b")
    land_late(run, c)
    assert run.machine.status == "running"
    end(run)
    assert (run.machine.status, branches(run.machine)) == ("failed", [])
    reopened(run)
    assert run.machine.status == "completed"
    assert run.trace.log == "a b c j"
    assert [a.node for a in run.trace.records if isinstance(a, r.StepDone)] == ["a", "c", "b", "j"]


def test_a_step_that_reaches_stop_too_late_ends_its_graph_when_it_is_reopened() -> None:
    run = simulation(plan("a -> b, c; b -> STOP; c -> END"))
    run.begin()
    run.step(at(run, "a"))
    b = at(run, "b")
    fail(run, "c")
    land_late(run, b)
    end(run)
    reopen(run)
    assert run.machine.result is not None
    run.end()
    assert (run.machine.status, run.trace.log) == ("completed", "a b")


def test_a_cancelled_run_whose_last_step_landed_is_complete_when_it_is_reopened() -> None:
    run = simulation(plan("a -> b"))
    run.begin()
    run.step(at(run, "a"))
    b = at(run, "b")
    run.land(r.Cancelled(**run.head()))
    land_late(run, b)
    end(run)
    assert run.machine.status == "cancelled"
    reopen(run)
    run.end()
    assert (run.machine.status, run.trace.log) == ("completed", "a b")


def test_a_step_that_failed_twice_at_once_is_begun_again_with_its_sibling() -> None:
    run = simulation(plan("a -> b, c -> j"))
    run.begin()
    run.step(at(run, "a"))
    c = at(run, "c")
    fail(run, "b")
    stamp = {**run.head(), "activation": c.key, "path": c.path, "node": c.node}
    run.land(r.StepFailed(**stamp, error=r.Failure(type="Other", message="too")))
    end(run)
    assert run.trace.error == "Bug: a bug"
    reopen(run)
    assert {a.node: a.attempt for a in run.machine.running.values()} == {"b": 2, "c": 2}


def test_reopening_keeps_to_the_concurrency_of_the_graph() -> None:
    run = simulation(plan("a -> b, c, d, e -> j", limits=Limits(steps=None, concurrency=2)))
    run.begin()
    run.step(at(run, "a"))
    fail(run, "b")
    end(run)
    reopen(run)
    assert [a.node for a in run.machine.running.values()] == ["b", "c"]
    while run.machine.ended is None:
        run.advance()
    assert run.trace.most == 2


def test_a_graph_whose_time_ran_out_goes_on_inside_with_new_time() -> None:
    inner = plan("x -> y", name="inner")
    run = simulation(plan("p -> w -> q", sub={"w": inner}))
    run.begin()
    run.step(at(run, "p"))
    run.step(at(run, "w"))
    run.step(at(run, "x"))
    (frame,) = run.machine.inner_frames.values()
    run.machine.seconds += 50
    run.time_out(frame.parent)  # type: ignore[arg-type]
    end(run)
    assert run.machine.status == "failed"
    reopen(run)
    (again,) = run.machine.inner_frames.values()
    assert again.key == frame.key
    assert again.timed_from == run.machine.seconds
    assert [a.node for a in run.machine.running.values()] == ["y"]


def test_a_subgraph_whose_result_was_refused_lands_again_and_does_not_start_over() -> None:
    inner = plan("START -> x -> END", name="inner")
    run = simulation(plan("p -> w -> q", sub={"w": inner}))
    run.begin()
    run.step(at(run, "p"))
    run.step(at(run, "w"))
    run.step(at(run, "x"))
    fail(run, "w")
    end(run)
    reopen(run)
    w = at(run, "w")
    assert (w.attempt, w.child is not None) == (2, True)
    while run.machine.ended is None:
        run.advance()
    assert run.trace.count("x") == 1


def test_a_merge_that_failed_at_the_end_is_tried_again() -> None:
    run = simulation(plan("a -> b, c", ""), b=Act("done", {"f": "b"}), c=Act("done", {"f": "c"}))
    run.begin()
    end(run)
    assert "ConflictingUpdate" in run.trace.error
    reopen(run)
    assert run.machine.result is not None
    assert run.machine.result.status == "failed"


def test_a_failure_that_an_edge_or_a_retry_takes_leaves_nothing_behind() -> None:
    inner = plan("x -> y, z", name="inner")
    graph = plan(
        "w -> v : error; v -> w : again; v -> END : ok", sub={"w": inner}, outcomes={"w": ("done",)}, checked=False
    )
    run = Simulation(graph, Script(v=times(40, "again", "ok"), y=Act("done", fail="y")), order=Order("first"))
    run.begin()
    sizes = []
    while run.machine.ended is None:
        run.advance()
        if run.machine.inner_frames or run.machine.stopped:
            continue
        sizes.append(len(json.dumps(dump(run.machine)["frames"])))
        assert not run.machine.ledger.failed_entries()
    assert run.machine.status == "completed"
    assert not run.machine.stopped
    assert len(sizes) > 40
    kept = [token.kept for frame in run.machine.frames() for token in frame.live.values()]
    assert not any(kept)


def test_only_an_ended_run_is_reopened_and_no_completed_one() -> None:
    run = simulation(plan("a -> b"))
    run.begin()
    with pytest.raises(ValueError, match="only a failed, exhausted or cancelled run"):
        run.land(r.Reopened(**run.head(), status="failed"))
    other = simulation(plan("a -> b"))
    other.run()
    with pytest.raises(ValueError, match="only a failed, exhausted or cancelled run"):
        other.land(r.Reopened(**other.head(), status="failed"))


def test_a_limit_that_is_raised_too_little_is_spent_again_and_the_rescue_runs_again() -> None:
    graph = plan("a -> b -> c -> d; * -> n : exhausted; n -> END", limits=Limits(steps=1))
    run = simulation(graph)
    run.run()
    assert (run.machine.status, run.trace.log) == ("exhausted", "a n")
    reopened(run, limits=Limits(steps=3))
    assert (run.machine.status, run.trace.log) == ("exhausted", "a b c n")
    assert run.trace.count("n") == 2
    reopened(run, limits=Limits(steps=None))
    assert (run.machine.status, run.trace.log) == ("completed", "a b c d")
