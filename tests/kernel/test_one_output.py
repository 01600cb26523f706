"""A run's output is a function of its graph and input: not of its id, nor of timing, event loop, journal or snapshots.

Where something is a race (`join=n`, STOP, limits), the order in which steps land decides, and the id still does not.
"""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from orchestrator import Context, Executor, Graph, Limits, Outcome
from orchestrator.errors import InvalidGraph
from orchestrator.executor.step_context import StepContext
from orchestrator.graph import Node
from orchestrator.json import canonical
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import dump, load
from orchestrator.nodes import Subgraph
from tests.support.sizes import sized

from .behave import Seeded, Sight
from .build import State
from .harness import Simulation, TooLongError, Trace, observe
from .orders import Order, orders
from .sketches import Drawn, Sketch, settle, values_for
from .test_laws import DRAWN, KINDS, Trial, as_read

_NAMES = sized(("run", "0", "é"), ("run", "a", "Z", "0", "trial", "b.c", "x" * 90, "é"))
IDS = tuple(f"{name}-{number}" for number, name in enumerate(_NAMES))
WAYS = sized(3, 4)
"""Orders of landing, of each graph."""
MOST = 100
"""Records of a run."""
LIMITED = Limits(steps=9, concurrency=3)


def states(trace: Trace) -> Counter[tuple[str, str, str, str]]:
    """What each activation was and saw. The trail holds keys, which depend on the id."""
    found = Counter[tuple[str, str, str, str]]()
    for seen in trace.seen.values():
        state = {name: value for name, value in seen.state.items() if name != "trail"}
        found[seen.node, seen.path, seen.items, canonical(state)] += 1
    return found


def output(trace: Trace) -> tuple[object, ...]:
    """What a run came to; of one that failed, that it failed."""
    if trace.status == "failed":
        return ("failed",)
    return trace.status, canonical({name: value for name, value in trace.values.items() if name != "trail"})


def journal(trace: Trace) -> list[tuple[object, ...]]:
    """A run's records without keys."""
    found: list[tuple[object, ...]] = []
    for record in trace.records:
        at = (record.type, getattr(record, "node", ""), getattr(record, "path", ""))
        update = dict(record.update) if isinstance(record, r.StepDone) else {}
        update.pop("trail", None)
        ended = (record.status, str(record.error)) if isinstance(record, r.Ended) else ()
        found.append((*at, getattr(record, "outcome", ""), canonical(update), ended))
    return found


def refolded(trace: Trace) -> None:
    """The journal as it is stored gives the same run again, and so do a snapshot taken at some record and the rest."""
    dice = random.Random(len(trace.records))
    folded = RunState(trace.plan)
    loaded: RunState | None = None
    at = dice.randrange(len(trace.records))
    for number, record in enumerate(trace.records):
        again = r.decode(r.encode(record))
        apply(folded, again)
        if loaded is not None:
            apply(loaded, again)
        if number == at:
            loaded = load(trace.plan, json.loads(json.dumps(dump(folded))))
    assert observe(folded) == observe(trace.machine)
    assert loaded is None or observe(loaded) == observe(trace.machine)


def ran(trial: Trial, order: Order, run_id: str, **options: Any) -> Trace:
    fresh = Order(order.kind, order.seed, order.node)
    return trial.run(fresh, seed=order.seed, run_id=run_id, most_steps=MOST, **options)


def one_output(trial: Trial) -> str:
    """Hold one graph to it; what kind it was."""
    ways = orders(trial.plan, WAYS, seed=trial.behaviour.seed)
    races = trial.races or trial.plan.limits.steps is not None
    first: dict[str, object] = {}
    read: Trace | None = None
    for way in ways:
        for number, run_id in enumerate(IDS):
            trace = ran(trial, way, run_id, probability=0.0 if number else 0.1, lean=number > 0)
            if number < 2:
                refolded(trace)
            found = (output(trace), journal(trace) if races else None)
            told = first.setdefault(way.name if races else "", found)
            assert found == told, f"{run_id}, {way.name}: {found}\nis not\n{told}"
            if number or races:
                continue
            read = trace
            if trace.status != "failed":
                saw = first.setdefault("saw", states(trace))
                assert saw == states(trace), f"{way.name}: {states(trace)}\nis not\n{saw}"
    if read is None:
        return "races"
    as_read(trial, read)
    return "one output"


def trials(kind: str, seeds: Iterator[int] | range) -> Iterator[Trial]:
    """Graphs that the checks accept. Every fifth has limits; writes, replacements and questions come and go."""
    for seed in seeds:
        options = {"writes": 0.05 * (seed % 3 == 0), "replaces": 0.05 * (seed % 4 == 0)}
        trial = Trial.draw(kind, seed, limits=LIMITED if seed % 5 == 4 else None, **options)
        if trial is not None:
            yield trial


def held(kind: str, seeds: range) -> Counter[str]:
    """How many graphs of each sort were held to it."""
    counted = Counter[str]()
    for trial in trials(kind, seeds):
        try:
            counted[one_output(trial)] += 1
        except TooLongError:
            counted["too long"] += 1
        except AssertionError as error:
            raise AssertionError(f"{trial.name}\n{error}") from error
    return counted


@pytest.mark.parametrize("kind", KINDS)
def test_one_output_for_all_ids_and_interleavings(kind: str) -> None:
    counted = held(kind, sized(range(20_004, 20_007), range(20_000, 20_008)))
    assert counted["one output"] >= sized(1, 2), counted
    assert counted["races"] >= 1, counted


@pytest.mark.storm
@pytest.mark.parametrize("kind", DRAWN)
def test_a_storm_of_ids_and_interleavings(kind: str, scale: int) -> None:
    """`--storm-scale N`: N times 60 graphs of each kind, 8 ids times 4 interleavings each; 20 is over 2,000 graphs."""
    counted = held(kind, range(30_000, 30_000 + 60 * scale))
    print(f"\n{kind}: {dict(counted)}")
    assert counted["one output"] > 12 * scale, counted
    assert counted["races"] > 3 * scale, counted


# -- through the executor -------------------------------------------------------------------------------------------

PACE = [0]
"""The interleaving: how long nodes take follows from it."""


class Paced(Drawn, kind="paced"):
    """A drawn node that does what `Seeded` says, and takes its time."""

    seed: int = 0

    async def run(self, state: Any, ctx: Context[Any]) -> Outcome[str]:
        assert isinstance(ctx, StepContext)
        sight = Sight(ctx.node, state.model_dump(), ctx.item, tuple(ctx.items))
        act = Seeded(self.seed)(ctx.activation.frame.plan, sight)
        told = f"{PACE[0]} {ctx.node} {ctx.item} {len(sight.values['log'])}"
        for _ in range(zlib.crc32(told.encode()) % 12):
            await checkpoint()
        return Outcome(act.outcome, **act.update)


def paced(graph: Graph, seed: int) -> Graph:
    """The same graph with nodes that run."""
    nodes: dict[str, Node] = {}
    for name, drawn in graph.nodes.items():
        assert isinstance(drawn, Drawn)
        if drawn.inner is not None and drawn.said == ("done",):
            inner = paced(drawn.inner, seed)
            nodes[name] = Subgraph(inner, inputs={"xs": "xs"}, outputs={"log": "log"}, join=drawn.join)
        else:
            nodes[name] = Paced(said=drawn.said, join=drawn.join, seed=seed)
    return Graph(name=graph.name, state=State, nodes=nodes, edges=graph.edges, limits=Limits(steps=None))


def executable(kind: str, seed: int) -> tuple[Graph, Mapping[str, Any], Trace | None] | None:
    """A graph without races, its input, and what the kernel alone makes of it where no graph is inside."""
    sketch: Sketch = settle(KINDS[kind](seed))
    if sketch.races:
        return None
    try:
        graph = paced(sketch.graph(), seed)
    except InvalidGraph:
        return None
    values = values_for(random.Random(f"{kind} {seed}"))
    try:
        trace = Simulation(sketch.plan(), Seeded(seed), values=values, most_steps=MOST).run()
    except TooLongError:
        return None
    return graph, values, None if sketch.inner else trace


async def executed(graph: Graph, values: Mapping[str, Any]) -> set[str]:
    """What the runs of all ids and interleavings came to."""
    found = set()
    async with Executor(graphs=[graph]) as executor:
        for PACE[0] in range(WAYS):
            for run_id in IDS:
                run = await executor.start(graph, values, run_id=f"{run_id}.{PACE[0]}")
                found.add(canonical([run.status, run.values if run.status == "completed" else None]))
    return found


def on_both_loops(kind: str, seeds: range, wanted: int) -> int:
    """How many graphs of these gave one output, in the executor on both event loops, and in the kernel alone."""
    tried = 0
    for seed in seeds:
        drawn = executable(kind, seed)
        if drawn is None or tried == wanted:
            continue
        graph, values, trace = drawn
        found = set().union(*(anyio.run(executed, graph, values, backend=loop) for loop in ("asyncio", "trio")))
        assert len(found) == 1, f"{kind} {seed}: {found}"
        if trace is not None and trace.status == "completed":
            assert found == {canonical(["completed", {**trace.values, "trail": []}])}, f"{kind} {seed}"
        tried += 1
    return tried


@pytest.mark.parametrize("kind", KINDS)
def test_one_output_on_both_event_loops(kind: str) -> None:
    assert on_both_loops(kind, range(40_000, 40_020), 1) == 1


@pytest.mark.storm
@pytest.mark.parametrize("kind", KINDS)
def test_a_storm_of_event_loops(kind: str, scale: int) -> None:
    """`--storm-scale N`: N times 3 graphs of each kind, 8 ids times 4 interleavings times both event loops each."""
    tried = on_both_loops(kind, range(50_000, 50_000 + 12 * scale), 3 * scale)
    print(f"\n{kind}: {tried} graphs on both event loops")
    assert tried > scale
