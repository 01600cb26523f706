"""Snapshots at every record of runs whose steps make calls, spend limits, run out of time and lose their answers.

`Busy` lands between the steps what an executor journals about effects: intents with reservations, totals of inner runs,
settlements; and what ends or changes steps from outside. After every record the snapshot is the fold, and reservations
are those of calls that are under way.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from orchestrator.errors import InvalidGraph
from orchestrator.graph.limits import Reserve, Usage
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply
from orchestrator.kernel.limits import total_reserve
from orchestrator.kernel.run_state import Delta, RunState
from orchestrator.kernel.snapshot import dump, load
from orchestrator.kernel.state import Activation
from tests.support.sizes import sized

from .behave import Seeded
from .build import joins, plan
from .harness import Simulation, TooLongError, observe
from .orders import Order, orders
from .sketches import settle, values_for
from .test_laws import DRAWN
from .test_snapshots import differences


class Busy(Simulation):
    """A run with calls under way. What it lands is legal, and drawn from `dice`."""

    noise = 0.5

    def advance(self) -> None:
        if self.machine.result is None and self.dice.random() < self.noise:
            self.disturb()
        else:
            super().advance()

    def disturb(self) -> None:
        """Land one record about effects, limits, time, answers or the process."""
        machine, dice = self.machine, self.dice
        running = [a for a in machine.running.values() if a.fault is None]
        opened = [frame.parent for frame in machine.frames() if frame.parent is not None]
        open_calls = [entry for entry in machine.ledger.entries() if entry.settled is None]
        answers = [name for frame in machine.frames() for token in frame.live.values() for name in token.answers]
        kind = dice.choice(("call", "call", "call", "settle", "spent", "spent", "time", "limit", "withdraw", "resume"))
        if kind == "call" and running:
            self.call(dice.choice(running))
        elif kind in ("settle", "spent") and open_calls:
            intended = dice.choice(open_calls).intended
            at = {**self.head(), "activation": intended.activation, "node": intended.node, "key": intended.key}
            usage = Usage(calls=dice.randrange(3), input_tokens=dice.randrange(9), cost=dice.randrange(4) / 4)
            if kind == "settle":
                self.land(r.EffectSettled(**at, ok=dice.random() < 0.8, usage=usage))
            elif intended.kind == "tool":
                self.land(r.Spent(**at, run="inner", call=f"c{machine.head}", usage=usage, reserve=self.reserve()))
        elif kind == "time" and opened and dice.random() < 0.3:
            self.time_out(dice.choice(opened))
        elif kind == "limit" and dice.random() < 0.4:
            frame = dice.choice(list(machine.frames()))
            refused = [a for a in running if frame in a.frame.line]
            if refused and dice.random() < 0.7:
                self.limit(frame.path, dice.choice(("calls", "tokens")), dice.choice(refused))
            else:
                self.limit(frame.path, "seconds")
        elif kind == "withdraw" and answers:
            self.land(r.AnswersWithdrawn(**self.head(), questions=(dice.choice(answers),), reason="test"))
        elif kind == "resume" and dice.random() < 0.2:
            self.land(r.Resumed(**self.head()))

    def reserve(self) -> Reserve:
        return Reserve(tokens=self.dice.randrange(9), cost=self.dice.randrange(4) / 4, calls=1)

    def call(self, a: Activation) -> None:
        """Intend a call of a model or of a tool."""
        tool = self.dice.random() < 0.5
        self.land(
            r.EffectIntended(
                **self.head(), activation=a.key, path=a.path, node=a.node, key=f"k{self.machine.head}", digest="d",
                kind="tool" if tool else "model", name="t", reserve=None if tool else self.reserve(),
                effect=self.dice.choice(("read", "irreversible")),
            )
        )  # fmt: skip

    def limit(self, path: str, limit: str, refused: Activation | None = None) -> None:
        """A call was refused, or time is up."""
        key = None if refused is None else refused.key
        if refused is not None:
            self.done.add(refused.key)
        delta = self.land(r.LimitSpent(**self.head(), frame=path, limit=limit, activation=key))
        self._land_late(delta)


class Watch:
    """An observer: after every record the snapshot is the fold, and what is reserved belongs to calls under way."""

    def __init__(self, run: Simulation) -> None:
        self.run, self.met = run, Counter[str]()
        self.loaded = RunState(run.plan)

    def __call__(self, machine: RunState, record: r.Record, delta: Delta) -> None:
        self.met[record.type] += 1
        apply(self.loaded, r.decode(r.encode(record)))
        where = f"record {record.seq}, {record.type}"
        found = list(differences(machine, self.loaded))
        assert not found, f"{where}: {found[:3]}"
        self.loaded = load(machine.plan, json.loads(json.dumps(dump(machine))))
        found = list(differences(machine, self.loaded))
        assert not found, f"{where}, as a snapshot: {found[:3]}"
        holds = {frame.key: [0.0, 0.0, 0.0] for frame in machine.frames()}
        for key, reserve in machine.reserves.items():
            entry = machine.ledger.entry(key)
            token = None if entry is None else machine.activation(entry.intended.activation)
            assert token is not None, f"{where}: {reserve} is reserved for a step that is gone"
            for frame in token.frame.line:
                if frame.key in holds:
                    for place, value in enumerate((reserve.calls, reserve.tokens, reserve.cost)):
                        holds[frame.key][place] += value
        for frame in machine.frames():
            assert [frame.reserved_calls, frame.reserved_tokens, frame.reserved_cost] == holds[frame.key], where


def watched(kind: str, seed: int, count: int) -> Counter[str]:
    """What was landed in the runs of a drawn graph."""
    dice, met = random.Random(seed), Counter[str]()
    sketch = settle(DRAWN[kind](seed))
    try:
        drawn = sketch.plan()
    except InvalidGraph:
        return met
    values = values_for(dice)
    for number, order in enumerate(orders(drawn, count, seed)):
        behaviour = Seeded(seed, asks=0.1, retries=0.1)
        run = Busy(
            drawn,
            behaviour,
            order=order,
            seed=seed + number,
            values=values,
            most_steps=90,
            late=0.5,
        )
        watch = Watch(run)
        run.observers = [watch]
        try:
            trace = run.run()
            folded = RunState(drawn)
            for record in trace.records:
                apply(folded, record)
            assert observe(folded) == observe(trace.machine)
        except TooLongError:
            pass
        except AssertionError as error:
            raise AssertionError(f"{error}\nin {sketch.text}\nvalues {values}, order {order.name}") from error
        met += watch.met
    return met


SEEDS = {"structured": (5_001, 5_003), "mutated": (5_001, 5_002), "limited": (5_002, 5_003)}
"""Of each kind two graphs whose runs land every kind of record about effects."""


@pytest.mark.full
@pytest.mark.parametrize("kind", SEEDS)
def test_a_snapshot_of_a_busy_run_is_its_fold_at_every_record(kind: str) -> None:
    met = sum((watched(kind, seed, 2) for seed in sized(SEEDS[kind], range(5_000, 5_004))), Counter[str]())
    assert min(met[name] for name in ("effect_intended", "effect_settled", "spent")) > sized(0, 1), met


def test_the_inner_run_of_a_step_that_is_gone_reserves_nothing() -> None:
    run = Simulation(plan("a -> b, c -> j", joins(j=1)), order=Order("last"))
    run.begin()
    run.advance()
    machine = run.machine
    b, c = machine.running.values()
    call: dict[str, Any] = {"activation": b.key, "node": "b", "key": "call"}
    run.land(r.EffectIntended(**run.head(), **call, kind="tool", name="t", effect="read", digest="d"))
    reserve = Reserve(tokens=5, calls=1)
    run.land(r.Spent(**run.head(), **call, run="inner", reserve=reserve))
    assert total_reserve(machine) == reserve
    run.step(c)
    assert b.key not in machine.running
    assert total_reserve(machine) == Reserve()
    run.land(r.Spent(**run.head(), **call, run="inner", usage=Usage(calls=2), reserve=reserve))
    assert total_reserve(machine) == Reserve()
    assert machine.usage.calls == 3


@pytest.mark.storm
@pytest.mark.parametrize("kind", DRAWN)
def test_a_storm_of_busy_runs(kind: str, scale: int) -> None:
    """`--storm-scale N`: N times 20 graphs of each kind, three interleavings each."""
    met = sum((watched(kind, seed, 3) for seed in range(6_000, 6_000 + 20 * scale)), Counter[str]())
    print(f"\n{kind}: {dict(met)}")
    assert min(met[name] for name in ("effect_settled", "spent", "limit_spent")) > scale, met
