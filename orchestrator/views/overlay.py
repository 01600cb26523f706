"""Marks on the drawing of a graph, as data: for a run, or for the path that breaks a claim about the graph.

`orchestrator.views.trace` folds a run's overlay from its journal, record by record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from orchestrator.graph.topology import DONE, END, START
from orchestrator.kernel.queries import busy_seconds, edges_taken, node_visits
from orchestrator.kernel.records import Failure
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Phase

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.graph.report import Proof, WitnessStep


NodeKey: TypeAlias = tuple[str, str]
"""Path of a graph and name of a node in it.

The path of the top graph is empty. In other paths, segments that are names are the enclosing subgraph nodes; the others
(`fork.0`) are their branches."""
EdgeKey: TypeAlias = tuple[str, int]
"""Path of a graph and number of an edge in its `edges`."""
PlannedState: TypeAlias = Literal["planned", "running", "waiting", "visited", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """An item of a map whose items depend on each other: a step of a plan that the run made."""

    id: str
    needs: tuple[str, ...] = ()
    """Ids of the steps that it waits for."""
    item: object = None
    """The item itself, plain JSON."""
    state: PlannedState = "planned"
    """`skipped`: it never started, because a step that it needs left the map."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The steps of a map whose items depend on each other, in order."""

    path: str
    """Path of the map's graph."""
    edge: int
    """Number of the map's edge."""
    steps: Sequence[PlannedStep]


@dataclass(frozen=True, slots=True)
class Overlay:
    """The visits and states of a run, by node and edge.

    Activations of one subgraph node share their counts.
    """

    visits: Mapping[NodeKey, int] = field(default_factory=lambda: MappingProxyType({}))
    """Node -> number of its activations that ended with an outcome."""
    taken: Mapping[EdgeKey, int] = field(default_factory=lambda: MappingProxyType({}))
    """Edge -> number of tokens that took it; for a map the number of branches that it opened."""
    waiting: AbstractSet[NodeKey] = frozenset()
    """Nodes with an open question, and their enclosing subgraph nodes."""
    running: AbstractSet[NodeKey] = frozenset()
    """Nodes that run, and their enclosing subgraph nodes."""
    failed: AbstractSet[NodeKey] = frozenset()
    """Nodes whose last activation failed without an edge for the failure."""
    status: str = ""
    """The run's status; `diverged` for a replay that ended where live calls would follow."""
    seconds: Mapping[NodeKey, float] = field(default_factory=lambda: MappingProxyType({}))
    """Node -> seconds that its ended activations worked. Waiting for answers does not count."""
    items: Mapping[NodeKey, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Target of a map -> (items done, items)."""
    queued: AbstractSet[NodeKey] = frozenset()
    """Nodes at which the run continues; empty while a step runs."""
    entered: AbstractSet[NodeKey] | None = None
    """Subgraph nodes whose graph has started, and was not dropped; None: those with visits inside."""
    told: Mapping[NodeKey, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))
    """Node -> its open questions, or its error."""
    faulty: Mapping[NodeKey, int] = field(default_factory=lambda: MappingProxyType({}))
    """Node -> number of failed tool calls in activations that ended with an outcome."""
    asked: Mapping[NodeKey, int] = field(default_factory=lambda: MappingProxyType({}))
    """Node of a kind that asks a model, or a person -> number of model calls, or questions, of its ended steps."""
    unasked: Mapping[NodeKey, int] = field(default_factory=lambda: MappingProxyType({}))
    """Node of such a kind -> number of its ended steps that asked nothing."""
    planned: Sequence[Planned] = ()
    """Plans that the run made, in order."""


def place_of(path: str) -> str:
    """Return the path of a graph: the segments of a branch's path that are names of nodes."""
    return "/".join(segment for segment in path.split("/") if segment.replace("-", "_").isidentifier())


def machine_overlay(machine: RunState, status: str, error: Failure | None) -> Overlay:
    """Return the overlay of a run whose journal is lost, from its state in memory, with less data than by `trace`.

    Args:
        machine: the run's state.
        status: the run's status.
        error: the error of the run.
    """
    visits = node_visits(machine)
    waiting: set[NodeKey] = set()
    for token in machine.live_tokens():
        place = (token.frame.place, token.node)
        if token.counted:
            visits[place] -= 1
        if token.phase is Phase.ASKING:
            waiting.add(place)
    return Overlay(
        visits={place: count for place, count in visits.items() if count > 0},
        taken=edges_taken(machine),
        waiting=frozenset(waiting),
        running=frozenset((token.frame.place, token.node) for token in machine.running.values()),
        failed=frozenset()
        if status != "failed" or error is None or not error.node
        else frozenset({(error.path, error.node)}),
        status=status,
        seconds=busy_seconds(machine),
    )


def witness_overlay(graph: GraphDefinition, proof: Proof) -> Overlay:
    """Return the marks of a proof's witness: the nodes and edges of its paths, and how its last node breaks the claim.

    Args:
        graph: the graph that was proved, or that of the proof's tool.
        proof: a proof with a witness.

    Returns:
        The overlay; draw it with `orchestrator.render`.
    """
    visits: Counter[NodeKey] = Counter()
    taken: Counter[EdgeKey] = Counter()
    last: set[NodeKey] = set()
    told: dict[NodeKey, tuple[str, ...]] = {}
    shared = _shared(proof.witness, proof.beside)
    for steps, begin in ((proof.witness, 0), (proof.beside, shared)):
        if not steps:
            continue
        visits.update(key for step in steps[begin:] if (key := _key(step))[1] != START)
        taken.update(_edges(graph, steps, begin))
        end = _key(steps[-1])
        last.add(end)
        told[end] = (proof.reason,) if proof.reason else ()
    return Overlay(visits=visits, taken=taken, failed=last, status=proof.verdict, told=told)


def _shared(one: Sequence[WitnessStep], other: Sequence[WitnessStep]) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def _key_of(path: str) -> NodeKey:
    around, _, node = path.rpartition("/")
    return around, node


def _key(step: WitnessStep) -> NodeKey:
    return _key_of(step.node)


def _edges(graph: GraphDefinition, steps: Sequence[WitnessStep], begin: int) -> Iterator[EdgeKey]:
    """Yield the edges that a path takes; a jump, such as after a spent limit, takes none."""
    for number, step in enumerate(steps):
        path, node = _key(step)
        inner = _graph_at(graph, path)
        if inner is None or number < begin:
            continue
        target = next((key[1] for later in steps[number + 1 :] if (key := _key(later))[0] == path), None)
        target = END if target in (None, START) else target
        found = _edge(inner, node, step.outcome or (DONE if node == START else ""), target)
        if found is not None:
            yield path, found


def _edge(graph: GraphDefinition, node: str, outcome: str, target: str | None) -> int | None:
    routes = graph.topology.routes(node, outcome)
    exact = (route.index for route in routes if route.target == target)
    return next(exact, routes[0].index if len(routes) == 1 and outcome else None)


def _graph_at(graph: GraphDefinition, path: str) -> GraphDefinition | None:
    for name in path.split("/") if path else ():
        inner = graph.nodes[name].subgraph if name in graph.nodes else None
        if inner is None:
            return None
        graph = inner
    return graph
