"""Events from outside (R17): which one a step takes follows from their order alone.

`Awaiting` runs generated graphs in which some steps wait for an event, while events arrive at any moment. What a step
takes is compared with another reading of the rule: the first event of all that fits and that the step's own past, which
the transcript shows, does not hold. All interleavings of one graph agree, copied, dumped and loaded on their way.
"""

from __future__ import annotations

import random
import re
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume

from orchestrator.json import canonical
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Question
from orchestrator.kernel.run_state import Delta
from orchestrator.kernel.state import Activation
from tests.support.sizes import sized

from .behave import Script, times
from .build import plan
from .harness import Simulation, TooLongError, Trace, agree
from .orders import orders
from .test_laws import MOST, Trial, drawn, kinds, seeds, trial_of

NAMES = ("e", "f")


def event(number: int) -> dict[str, Any]:
    """The name and data of an event; there is one of every number."""
    return {"name": NAMES[number % 2], "data": {"n": number, "kind": number % 3}, "id": f"id{number}"}


def fitting(name: str, kind: int | None, taken: set[int]) -> int:
    """The first event that a step takes which took none of these."""
    return next(
        number
        for number in range(1_000_000)
        if number not in taken and NAMES[number % 2] == name and kind in (None, number % 3)
    )


class Awaiting(Simulation):
    """A run in which some steps wait for events, drawn from what they see."""

    often = 0.5
    sent = 0

    def wanted(self, a: Activation) -> tuple[str, int | None] | None:
        """The name, and the kind, of the event that an activation waits for; None: it waits for none."""
        sight = self.sight(a)
        dice = random.Random(zlib.crc32(canonical([a.node, sight.visits, sight.item]).encode()))
        if a.fault is not None or a.node in a.frame.plan.sub or dice.random() >= self.often:
            return None
        return dice.choice(NAMES), dice.choice([None, None, 0, 1, 2])

    def advance(self) -> None:
        if self.machine.result is None and self.dice.random() < 0.15:
            self.send()
        else:
            super().advance()

    def answer(self, question: str) -> None:
        if self.machine.questions[question].event:
            self.send()
        else:
            super().answer(question)

    def send(self) -> None:
        """Land the next event, or one that came before once more."""
        again = self.sent > 0 and self.dice.random() < 0.1
        number = self.dice.randrange(self.sent) if again else self.sent
        self.sent += not again
        delta = self.land(r.EventReceived(**self.head(), **event(number)))
        assert not (again and (delta.started or delta.moved)), "an event of one id moved something twice"

    def step(self, a: Activation) -> None:
        wanted = self.wanted(a)
        if wanted is None:
            super().step(a)
            return
        (name, kind), asked = wanted, f"{a.key}:event"
        if asked not in a.answers:
            match: dict[str, object] = {} if kind is None else {"kind": kind}
            question: Question = Question(id=asked, kind="event", node=a.node, path=a.path, event=name, match=match)
            at = {**self.head(), "activation": a.key, "path": a.path, "node": a.node}
            self.land(r.Asked(**at, question=question))
            return
        answer = a.answers[asked].answer
        assert answer.type == "value"
        assert isinstance(answer.value, dict)
        number = answer.value["n"]
        assert number == fitting(name, kind, past(a)), f"{a} took event {number}"
        if a.key not in self.acts:
            act = self.behaviour(a.frame.plan, self.sight(a))
            self.acts[a.key] = replace(act, update={**act.update, "log": f"{self.sight(a).label}:!{number}"})
        super().step(a)


def past(a: Activation) -> set[int]:
    """The events that an activation's own past holds, as the transcripts that it sees have them."""
    found: set[int] = set()
    at: Activation | None = a
    while at is not None:
        found.update(int(number) for entry in at.values["log"] for number in re.findall(r"!(\d+)", entry))  # type: ignore[attr-defined]
        at = at.frame.parent
    return found


def waited(trial: Trial, count: int, seed: int, **options: Any) -> list[Trace]:
    """A trial in which steps wait for events, in some interleavings."""
    try:
        return [
            Awaiting(
                trial.plan, trial.behaviour, order=order, seed=seed + number, values=trial.values,
                most_steps=2 * MOST, **options,
            ).run()
            for number, order in enumerate(orders(trial.plan, count, seed))
        ]  # fmt: skip
    except TooLongError:
        assume(False)
        raise


@drawn(kind=kinds, seed=seeds)
def test_every_step_takes_the_first_event_that_fits_and_that_its_past_does_not_hold(kind: str, seed: int) -> None:
    trial = trial_of(kind, seed, silent=0.0)
    agree(waited(trial, sized(3, 8), seed, probability=0.05, pauses=0.02))


@pytest.mark.full
@drawn(kind=kinds, seed=seeds)
def test_it_does_so_where_branches_race(kind: str, seed: int) -> None:
    trial = trial_of(kind, seed, races=True, silent=0.0)
    waited(trial, sized(2, 5), seed, probability=0.05)


# -- named cases -----------------------------------------------------------------------------------------------------


class Listed(Awaiting):
    """Every node waits for an event of the name `e`, of any kind; events come when nothing else is left."""

    early = 0

    def wanted(self, a: Activation) -> tuple[str, int | None] | None:
        return None if a.node in a.frame.plan.sub or a.fault is not None else ("e", None)

    def advance(self) -> None:
        if self.sent < self.early:
            self.send()
        else:
            Simulation.advance(self)


CASES = [
    ("a -> b -> c", "a:!0 b:!2 c:!4"),
    ("a -> b, c -> j", "a:!0 b:!2 c:!2 j:!4"),
    ("a -> b, c\nb -> d\nc, d -> j", "a:!0 b:!2 d:!4 c:!2 j:!6"),
    ("a -> b : again\na -> c : ok\nb -> a", "a:!0 b:!2 a:!4 b:!6 a:!8 c:!10"),
]


@pytest.mark.parametrize("early", [0, 1, 5, 30])
@pytest.mark.parametrize(("text", "log"), CASES)
def test_the_order_of_events_decides_whether_they_come_before_or_after(text: str, log: str, early: int) -> None:
    graph, script = plan(text), Script(a=times(2, "again", "ok")) if "again" in text else Script()
    for number, order in enumerate(orders(graph, sized(2, 6))):
        simulation = Listed(graph, script, order=order, seed=number, probability=0.3)
        simulation.early = early
        assert simulation.run().log == log


def test_what_a_dropped_branch_took_is_not_taken() -> None:
    graph = plan("a -> b, c -> j -> d", {"j": 1})
    simulation = Listed(graph, order=orders(graph, 1)[0])
    simulation.early = 30
    trace = simulation.run()
    assert trace.log == "a:!0 b:!2 j:!4 d:!6", "c took event 2 as well, and was dropped"


def test_ids_are_known_after_their_events_are_forgotten() -> None:
    graph = plan("a -> a : again\na -> b : ok")
    simulation = Listed(graph, Script(a=times(30, "again", "ok")))
    trace = simulation.run()
    events = trace.machine.events
    assert len(events.ids) == events.count > 60
    most = 0
    machine = type(trace.machine)(graph)
    for record in trace.records:
        apply(machine, record)
        most = max(most, sum(one.name == "e" for one in machine.events.kept.values()))
    assert most <= 2, "a loop keeps no event that it took"


# -- events that interrupt ----------------------------------------------------------------------------------------


class Interrupted(Awaiting):
    """A run that events interrupt at any moment, at nodes outside of all forks."""

    interruptions = 0

    def advance(self) -> None:
        frames = [frame for frame in self.machine.frames() if frame.result is None and outside(frame.plan)]
        if self.machine.result is None and frames and self.interruptions < 4 and self.dice.random() < 0.1:
            self.interruptions += 1
            frame = self.dice.choice(frames)
            node = self.dice.choice(outside(frame.plan))
            at = {**self.head(), "name": node, "id": f"interruption {self.interruptions}"}
            delta = self.land(r.EventReceived(**at, interrupts=frame.path))
            assert not delta.cancelled, "what runs is not stopped"
        else:
            super().advance()

    def land(self, record: r.Record) -> Delta:
        frames = {id(frame): set(frame.live) for frame in self.machine.frames() if frame.interrupting}
        delta = super().land(record)
        for a in delta.started:
            known = frames.get(id(a.frame))
            fresh = known is not None and a.frame.interrupting and a.child is None and a.key not in self.acts
            assert not fresh, f"{a} began in a graph that is interrupted"
        return delta


def outside(found: Plan) -> list[str]:
    """The nodes of a graph that stand outside of all forks, and are not called as an event is."""
    topology = found.topology
    inside: set[str] = set()
    for fork, fans in topology.fans.items():
        closing = [join for join in topology.joins_of(fork) if topology.closes[join]]
        inside |= topology.reachable([one for fan in fans for one in fan.targets], (fork, *closing))
    inside |= {*NAMES}  # an event for a node of this name would be taken by a step that waits for it
    return [node for node in found.nodes if node not in inside]


@drawn(kind=kinds, seed=seeds)
def test_a_graph_that_is_interrupted_at_any_moment_goes_on_and_ends(kind: str, seed: int) -> None:
    trial = trial_of(kind, seed, silent=0.0)
    for number, order in enumerate(orders(trial.plan, sized(2, 8), seed)):
        dice = seed + number
        simulation = Interrupted(
            trial.plan, trial.behaviour, order=order, seed=dice, values=trial.values, most_steps=2 * MOST,
            probability=0.03, late=0.5, lean=True,
        )  # fmt: skip
        try:
            trace = simulation.run()
        except TooLongError:
            assume(False)
            raise
        assert trace.machine.ended is not None
