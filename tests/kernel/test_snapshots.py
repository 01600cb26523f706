"""A loaded snapshot is the machine it was taken of, in every field of every object, shared ones shared alike.

A field that a snapshot forgets may show hundreds of records later, or only after a limit is spent. Here it shows at
once: both machines are walked side by side. What the walk does not know it compares with `==`.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

import pytest

from orchestrator.errors import InvalidGraph
from orchestrator.graph.isolation import listed
from orchestrator.graph.limits import Limits
from orchestrator.kernel import records as r
from orchestrator.kernel.ledger import EffectEntry, Ledger
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.run_state import Delta, RunState
from orchestrator.kernel.snapshot import dump, load
from orchestrator.kernel.state import Activation, FrameState, FrozenTokens, MapItem, OpenFork, OrderedMap
from orchestrator.kernel.version import Path, Rank, Version
from tests.support.sizes import sized

from .behave import Script, Seeded, times
from .build import plan
from .harness import Simulation, TooLongError
from .orders import orders
from .sketches import Sketch, limited, mutated, settle, structured, unstructured, values_for

WALKED = (
    RunState, FrameState, FrozenTokens, Ledger, EffectEntry, Activation, MapItem, OrderedMap, OpenFork, Version, Rank,
    Path,
)  # fmt: skip
PASSING = {"delta", "lone", "counted_steps", "touched_joins", "touched_items"}
"""What lives only while a record is folded, or is found again where it is absent."""
UNORDERED = {"counters", "stopped"}
"""Mappings of the whole machine whose order means nothing."""
ATOMS = {str, int, float, bool, bytes, type(None)}


Place: TypeAlias = tuple["Place | None", str]
"""Where something is: what it is in, and where in that. Put into words only where there is a difference."""


@cache
def slots_of(kind: type) -> tuple[str, ...]:
    """Names of what objects of a class hold outside their dictionary."""
    found: list[str] = []
    for cls in kind.__mro__:
        slots = getattr(cls, "__slots__", ())
        found += (slots,) if isinstance(slots, str) else slots
    return tuple(dict.fromkeys(found))


@cache
def way_of(kind: type) -> str:
    """How the values of a class are compared."""
    ways = {"mapping": Mapping, "walked": WALKED, "sequence": (list, tuple, deque)}
    return next((way for way, classes in ways.items() if issubclass(kind, classes)), "equal")


def fields(thing: object, other: object) -> Iterable[str]:
    """Names of all that two objects of one class hold."""
    kind = type(thing)
    if not kind.__dictoffset__:
        return (*slots_of(kind), "steps") if kind is FrameState else slots_of(kind)
    return dict.fromkeys((*vars(thing), *vars(other), *slots_of(kind)))


def worded(place: Place | None) -> str:
    """A place in words."""
    return "" if place is None else worded(place[0]) + place[1]


def alike(a: object, b: object) -> bool:
    """Whether both are numbers, texts or the like, and equal: most of what there is."""
    return type(a) is type(b) and type(a) in ATOMS and a == b


def differences(one: object, other: object) -> Iterator[str]:
    """Where two machines differ."""
    pairs: dict[int, int] = {}
    back: dict[int, int] = {}
    todo: list[tuple[Place, Any, Any]] = [((None, "machine"), one, other)]
    while todo:
        at, a, b = todo.pop()
        a, b = listed(a), listed(b)  # which items share a store depends on who appended first
        way = way_of(type(a))
        if way == "mapping" and way_of(type(b)) == "mapping":
            a, b = dict(a), dict(b)  # what is empty may be a constant, or a mapping that lost its items
        if type(a) is not type(b):
            yield f"{worded(at)}: {type(a).__name__}, {type(b).__name__}"
        elif way == "mapping":
            if list(a) != list(b):
                yield f"{worded(at)}: {list(a)}, {list(b)}"
            else:
                todo += [((at, f"[{key}]"), x, b[key]) for key, x in a.items() if not alike(x, b[key])]
        elif way == "walked":
            if pairs.get(id(a), id(b)) != id(b) or back.get(id(b), id(a)) != id(a):
                yield f"{worded(at)}: {type(a).__name__} is shared otherwise"
            elif id(a) not in pairs:
                pairs[id(a)], back[id(b)] = id(b), id(a)
                for name in fields(a, b):
                    x, y = getattr(a, name), getattr(b, name)
                    if name in UNORDERED and isinstance(a, RunState):
                        x, y = dict(sorted(x.items())), dict(sorted(y.items()))
                    kind = type(x)
                    if not (kind in ATOMS and kind is type(y) and x == y) and name not in PASSING:
                        todo.append(((at, f".{name}"), x, y))
        elif way == "sequence":
            if len(a) != len(b):
                yield f"{worded(at)}: {len(a)} long, {len(b)} long"
            else:
                pairwise = enumerate(zip(a, b, strict=True))
                todo += [((at, f"[{i}]"), x, y) for i, (x, y) in pairwise if not alike(x, y)]
        elif not (a is b or a == b):
            yield f"{worded(at)}: {a!r}, {b!r}"


class Reload:
    """An observer: after every so many records the machine is dumped, loaded and walked."""

    def __init__(self, plan: Plan, dice: random.Random, share: float) -> None:
        self.plan, self.dice, self.share, self.count = plan, dice, share, 0

    def __call__(self, machine: RunState, record: r.Record, delta: Delta) -> None:
        if self.dice.random() < self.share:
            self.count += 1
            loaded = load(self.plan, json.loads(json.dumps(dump(machine))))
            found = list(differences(machine, loaded))
            assert not found, f"record {record.seq}: {found[:3]}"


KINDS: dict[str, Callable[[int], Sketch]] = {
    "structured": structured,
    "unstructured": unstructured,
    "mutated": mutated,
    "limited": limited,
}


def reloaded(make: Callable[[int], Sketch], seed: int, count: int) -> int:
    """How many snapshots of a drawn graph's runs were loaded and walked."""
    sketch, dice, walked = settle(make(seed)), random.Random(seed), 0
    if dice.random() < 0.25:
        sketch.limits = Limits(steps=dice.randint(3, 12), concurrency=dice.choice((None, 2)))
    try:
        plan = sketch.plan()
    except InvalidGraph:
        return 0
    behaviour = Seeded(seed, asks=0.1, retries=0.1, silent=0.1)
    values = values_for(dice)
    for number, order in enumerate(orders(plan, count, seed)):
        reload = Reload(plan, dice, 0.5)
        try:
            Simulation(
                plan, behaviour, order=order, seed=seed + number, values=values, most_steps=100, observers=[reload],
                pauses=0.03,
            ).run()  # fmt: skip
        except TooLongError:
            pass
        except AssertionError as error:
            raise AssertionError(f"{error}\nin {sketch.text}\nvalues {values}, order {order.name}") from error
        walked += reload.count
    return walked


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_snapshot_is_the_machine_it_was_taken_of(kind: str) -> None:
    seeds = sized(range(3_002, 3_006), range(3_000, 3_010))
    assert sum(reloaded(KINDS[kind], seed, 2) for seed in seeds) > sized(30, 60)


def test_also_where_a_graph_inside_was_dropped_before_its_steps_could_begin() -> None:
    assert reloaded(limited, 4_158, 4) > 0


def test_also_where_a_limit_is_spent_and_nodes_run_once_more() -> None:
    text = "a -> b, c -> j; j -> a : again; j -> END : ok; * -> n : exhausted; n -> x, y -> k -> END"
    graph = plan(text, limits=Limits(steps=6, visits={"x": 1}))
    for order in orders(graph, 8):
        reload = Reload(graph, random.Random(1), 1.0)
        script = Script(j=times(9, "again", "ok"))
        run = Simulation(graph, script, order=order, observers=[reload]).run()
        assert run.count("n") == 1
        assert reload.count == len(run.records)


@pytest.mark.storm
@pytest.mark.parametrize("kind", KINDS)
def test_a_storm_of_snapshots(kind: str, scale: int) -> None:
    """`--storm-scale N`: N times 40 graphs of each kind, four interleavings each."""
    assert sum(reloaded(KINDS[kind], seed, 4) for seed in range(4_000, 4_000 + 40 * scale)) > 250 * scale
