"""R16: a fork of a run, from any record of any run, goes on as the run itself would."""

from __future__ import annotations

from typing import Any

from hypothesis import assume

from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Approve, Deny, Question
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import dump, load
from tests.support.sizes import sized

from .build import plan
from .forking import begin, forked
from .harness import Simulation, TooLongError, observe
from .orders import Order
from .test_laws import MOST, Trial, drawn, kinds, seeds, trial_of


def fresh(trial: Trial, order: Order, seed: int) -> Simulation:
    return Simulation(
        trial.plan, trial.behaviour, order=order, seed=seed, values=trial.values, most_steps=2 * MOST, probability=0.05
    )


@drawn(kind=kinds, seed=seeds)
def test_a_fork_at_any_record_ends_as_its_parent(kind: str, seed: int) -> None:
    trial = trial_of(kind, seed, asks=0.1, retries=0.1)
    try:
        whole = trial.run(Order("random", 1))
        places = range(1, len(whole.records) + (whole.status != "completed"))
        for at in places[:: max(1, len(places) // sized(4, 40))]:
            fork = forked(whole, at, fresh(trial, Order("random", at), seed))
            assert (fork.status, fork.values) == (whole.status, whole.values)
            again = forked(fork, at + 1, fresh(trial, Order("last"), seed), run_id="fork of fork")
            assert (again.status, again.values) == (whole.status, whole.values)
            assert again.machine.root_id == whole.machine.run_id
            assert fork.seen.keys() <= whole.seen.keys() or trial.races
    except TooLongError:
        assume(False)


# -- what the record does, one by one ----------------------------------------------------------------------------------

SHAPE: Plan = plan("a -> b, c -> j")


class Written:
    """A journal that is written by hand."""

    def __init__(self, shape: Plan = SHAPE) -> None:
        self.machine = RunState(shape)
        self.records: list[r.Record] = []
        self.put(
            "run_started",
            run_id="root",
            graph="g",
            structure="s",
            content="c",
            rules=2,
            values=dict(shape.schema.initial({})),
        )

    def put(self, kind: str, /, **fields: Any) -> None:
        record = r.record_from_fields(
            {"type": kind, "seq": self.machine.head + 1, "ts": 10.0 + self.machine.head, **fields}, ""
        )
        apply(self.machine, record)
        self.records.append(record)

    def at(self, node: str) -> dict[str, Any]:
        (found,) = [one for one in self.machine.live_tokens() if one.node == node]
        return {"activation": found.key, "path": found.path, "node": node}

    def done(self, node: str, **update: Any) -> None:
        self.put("step_done", **self.at(node), update={"log": [node], **update}, ops={"log": "extend"})

    def intend(self, node: str, key: str, **fields: Any) -> None:
        given = {"kind": "tool", "name": "pay", "effect": "irreversible", "digest": f"d{key}", **fields}
        self.put("effect_intended", **self.at(node), key=key, **given)

    def settle(self, node: str, key: str, **fields: Any) -> None:
        self.put("effect_settled", **self.at(node), key=key, **fields)

    def fork(self, **changes: Any) -> RunState:
        head = self.machine.head
        self.put("forked", run_id="fork", parent="root", at=head, root="root", **changes)
        machine = self.machine
        kept = load(machine.plan, dump(machine))
        assert observe(kept) == observe(machine)
        assert (kept.forks, kept.inherited, kept.root_id) == (machine.forks, machine.inherited, "root")
        return machine


def test_calls_without_an_end_count_as_not_made_and_settled_ones_are_kept() -> None:
    written = Written()
    written.intend("a", "one")
    written.settle("a", "one", result="paid", usage={"cost": 2.0})
    written.intend("a", "two")
    written.intend("a", "three", kind="model", effect="idempotent")
    written.settle("a", "three", ok=False, error={"type": "Busy", "message": ""}, next_at=99.0)
    before = written.machine.usage
    machine = written.fork()
    assert [entry.intended.key for entry in machine.ledger.entries()] == ["one"]
    assert (before.calls, machine.usage.calls, machine.inherited.calls, machine.inherited.cost) == (3, 1, 1, 2.0)
    assert machine.root is not None
    assert (machine.root.calls, machine.root.irreversible) == (1, 1)


def test_what_a_run_inside_spent_stays_counted() -> None:
    written = Written()
    written.intend("a", "one", effect="idempotent")
    spent = {"calls": 3, "input_tokens": 40, "output_tokens": 2, "cost": 1.5}
    written.put("spent", **written.at("a"), key="one", run="inner", usage=spent, reserve={"calls": 1, "tokens": 9})
    assert written.machine.usage.calls == 4
    machine = written.fork()
    assert (machine.usage.calls, machine.usage.tokens, machine.usage.cost) == (3, 42, 1.5)
    assert (machine.inherited.calls, machine.shared_usage.calls) == (3, 0)
    assert machine.root is not None
    assert (machine.root.calls, machine.root.tokens, machine.root.cost) == (3, 42, 1.5)
    assert (machine.root.reserved_calls, machine.root.reserved_tokens, machine.reserves) == (0, 0, {})


def test_a_result_takes_the_place_of_the_settled_one() -> None:
    written = Written()
    written.intend("a", "one")
    written.settle("a", "one", ok=False, error={"type": "Refused", "message": "no"})
    machine = written.fork(key="one", result={"output": "yes"})
    entry = machine.ledger.entry("one")
    assert entry is not None
    assert entry.settled is not None
    assert (entry.settled.ok, entry.settled.result, entry.settled.error) == (True, {"output": "yes"}, None)
    assert machine.root is not None
    assert machine.root.irreversible == 1


def test_open_questions_get_the_digest_of_the_fork_and_their_whole_time() -> None:
    written = Written()
    question = Question(id="q", kind="approval", node="a", digest="parent's", deadline=30.0)
    written.put("asked", **written.at("a"), question=question)
    machine = written.fork(digests={"q": "fork's"})
    assert machine.questions["q"].digest == "fork's"
    asked = machine.updated
    assert machine.asked_at["q"] == asked
    assert machine.questions["q"].deadline == asked + (30.0 - 11.0)
    assert machine.status == "paused"


def test_answers_are_withdrawn_or_replaced() -> None:
    for changes in ({"withdrawn": ["q"]}, {"question": "q", "answer": Deny(reason="no")}):
        written = Written()
        written.put("asked", **written.at("a"), question=Question(id="q", kind="approval", node="a"))
        written.put("answered", question="q", answer=Approve(), by="ann", policy=True)
        (token,) = written.fork(**changes).live_tokens()
        if "withdrawn" in changes:
            assert (dict(token.answers), token.withdrawn) == ({}, 1)
        else:
            now = token.answers["q"]
            assert (now.answer, now.by, now.policy, now.seq) == (Deny(reason="no"), "", False, 4)


def test_the_time_between_parent_and_fork_is_no_time_alive() -> None:
    written = Written()
    written.done("a")
    before = written.machine.seconds
    late = r.Forked(seq=3, ts=1e6, run_id="fork", parent="root", at=2, labels={"user": "ann"})
    apply(written.machine, late)
    apply(written.machine, r.Resumed(seq=4, ts=2e6))
    machine = written.machine
    assert machine.seconds == before
    assert (machine.run_id, machine.labels, machine.created) == ("fork", {"user": "ann"}, 1e6)


def test_an_edit_reaches_the_branch_that_it_names_and_no_other() -> None:
    written = Written()
    written.done("a")
    machine = written.fork(branch="a.1", update={"f": "set", "log": ["set"]}, ops={"log": "replace"})
    seen = {token.node: (token.values["f"], token.values["log"]) for token in machine.live_tokens()}
    assert seen == {"b": ("", ["a"]), "c": ("set", ["set"])}
    written.done("c", f="c")
    written.put("step_done", **written.at("b"))
    assert {token.node: token.values["f"] for token in machine.live_tokens()} == {"j": "c"}


def test_items_that_need_an_edited_one_see_the_edit() -> None:
    shape = plan("p -> w : each tasks\nw -> j")
    tasks = [{"id": "1", "needs": ["2"]}, {"id": "2", "needs": []}]
    simulation = Simulation(shape, values={"tasks": tasks})
    trace = simulation.run()
    at = next(one.seq for one in trace.records if isinstance(one, r.StepDone) and one.node == "p")
    edited = Simulation(shape, values={"tasks": tasks})
    begin(trace, at, edited, branch="p.1", update={"f": "set"})
    while edited.machine.ended is None:
        edited.advance()
    assert (edited.trace.status, edited.trace.values["f"]) == ("completed", "set")
