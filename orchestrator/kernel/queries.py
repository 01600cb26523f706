"""Queries about a run, its graphs and its activations. They change nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import cast

from msgspec import Struct

from orchestrator.graph.isolation import listed
from orchestrator.graph.outcome import DONE
from orchestrator.graph.topology import RESERVED, START, Route, Topology, counts, is_count
from orchestrator.json import JsonObject
from orchestrator.kernel.merge import values_after
from orchestrator.kernel.question import Question
from orchestrator.kernel.records import Failure
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation
from orchestrator.kernel.transitions import has_needs, needs_error
from orchestrator.kernel.version import Rank

_LARGE = 1 << 63


class Branch(Struct, frozen=True):
    """A live token."""

    path: str
    node: str
    phase: str
    values: JsonObject


# -- the run ----------------------------------------------------------------------------------------------------


def state_values(run: RunState) -> JsonObject:
    """Return the trunk's state as plain JSON; for a run that has ended, its final state."""
    if run.root is None:
        return {}
    values = run.root.result.values if run.root.result is not None else run.root.trunk.values
    return run.plan.schema.show(values)


def branches(run: RunState) -> list[Branch]:
    """Return all live tokens, by place; tokens of inner graphs follow those of the enclosing graph."""
    return [
        Branch(token.path, token.node, token.phase.value, token.frame.plan.schema.dump(token.values))
        for token in sorted(in_places(run.live_tokens()), key=lambda token: len(_place(token)))
    ]


def open_questions(run: RunState) -> list[Question]:
    """Return the open questions, ordered by the places of the steps that ask; the question of a pause comes last."""
    return sorted(run.questions.values(), key=partial(_asking_place, run))


def first_question(run: RunState) -> Question | None:
    """Return the first of the `open_questions`, if there are any."""
    return min(run.questions.values(), key=partial(_asking_place, run), default=None)


def in_places(tokens: Iterable[Activation]) -> list[Activation]:
    """Sort tokens by branch (R6), independently of when they arrived; a node's inner tokens follow its own."""
    return sorted(tokens, key=_place)


def _asking_place(run: RunState, question: Question) -> tuple[bool, list[Rank]]:
    asker = run.askers.get(question.id)
    return asker is None, [] if asker is None else _place(asker)


def _place(token: Activation) -> list[Rank]:
    around = token.frame.parent
    return [token.rank] if around is None else [*_place(around), token.rank]


def node_visits(run: RunState) -> dict[tuple[str, str], int]:
    """Return (place of a graph, node) -> number of admissions."""
    return {(place, node): count for place, counters in run.counters.items() for node, count in counters.visits.items()}


def edges_taken(run: RunState) -> dict[tuple[str, int], int]:
    """Return (place of a graph, number of an edge) -> how often the edge was taken."""
    return {(place, edge): count for place, counters in run.counters.items() for edge, count in counters.taken.items()}


def busy_seconds(run: RunState) -> dict[tuple[str, str], float]:
    """Return (place of a graph, node) -> seconds that the steps of the node took."""
    return {(place, node): spent for place, counters in run.counters.items() for node, spent in counters.busy.items()}


def waits_only_for_timers(run: RunState) -> bool:
    """Return True if a run is paused and only timers can continue it: it waits for no person and no event."""
    return run.status == "paused" and not run.paused and all(one.kind == "timer" for one in run.questions.values())


# -- the end of a step ------------------------------------------------------------------------------------------


def validate_outcome(
    activation: Activation, outcome: str, update: JsonObject, ops: Mapping[str, str]
) -> Failure | None:
    """Return why an activation may not end in this way; None if it may. Call it before journaling a `step_done`.

    Args:
        activation: the step.
        outcome: the outcome that it took.
        update: field -> value, encoded.
        ops: field -> `replace` or `extend`.
    """
    plan, node = activation.frame.plan, activation.node
    topology = plan.topology
    if (node, outcome) in topology.certain:
        return None
    routes = topology.routes(node, outcome)
    if not routes and outcome != "exhausted":
        declared = plan.nodes[node].outcomes
        why = "has no edge" if outcome in declared or outcome in RESERVED else "is not declared"
        return _invalid(
            activation, f"{node} returned outcome {outcome!r}, which {why}; it has {', '.join(map(repr, declared))}"
        )
    if not topology.fans:
        return None

    def values() -> JsonObject:
        return values_after(activation, update, ops) if update else activation.values

    known = {entry.fork for entry in activation.forks}
    fault = _opening_fault(topology, node, routes, known, values)
    return None if fault is None else _invalid(activation, f"{node} {fault}")


def start_fault(topology: Topology, values: JsonObject) -> str | None:
    """Return why a graph may not start with these values, which do not fit a fork or map at START; None if it may.

    Args:
        topology: the graph's.
        values: its whole start state.
    """
    if START not in topology.fans:
        return None
    return _opening_fault(topology, START, topology.routes(START, DONE), (), lambda: values)


def _opening_fault(
    topology: Topology,
    vertex: str,
    routes: Sequence[Route],
    known: Collection[str],
    values_of: Callable[[], JsonObject],
) -> str | None:
    """Return why the forks and maps after a vertex may not open with these values, if so, as text to follow its name.

    Args:
        known: forks that are already open, whose joins have their numbers.
        values_of: returns the values, which are computed only if they are needed.
    """
    fields = [route.each for route in routes if route.each is not None]
    several = len(routes) > 1 or bool(fields)
    forks = {vertex, *(route.map_vertex or vertex for route in routes)} & topology.fans.keys() if several else set()
    counted = _counted_joins(topology, forks - {*known}) if forks else []
    if not fields and not counted:
        return None
    values = values_of()
    for join, name in counted:
        if not is_count(values.get(name)):
            wanted = f"{join} waits for as many branches as {name!r} has"
            return f"opens a fork, and {wanted}: it must be 1 or more, not {values.get(name)!r}"
    for name in fields:
        items = listed(values.get(name))
        if not isinstance(items, (list, tuple)):
            return f"maps over {name!r}, which is not a list: {type(items).__name__}"
        error = needs_error(items) if has_needs(items) else None
        if error is not None:
            return f"maps over {name!r}: {error}"
    return None


def _counted_joins(topology: Topology, forks: Collection[str]) -> list[tuple[str, str]]:
    """Return the joins of forks about to open that take their number from the state, each with the field."""
    joins = [(join, topology.nodes[join].join) for fork in forks for join in topology.joins_of(fork)]
    return [(join, said) for join, said in joins if isinstance(said, str) and counts(said)]


def _invalid(activation: Activation, message: str) -> Failure:
    return Failure(type="InvalidOutcome", message=message, node=activation.node, path=activation.path)


def reduced_values(activation: Activation, update: JsonObject, ops: Mapping[str, str]) -> JsonObject | None:
    """Return `StepDone.reduced` for an update, if needed: values that a fold without the reducers' code cannot compute.

    Raises:
        InvalidUpdate: a reducer of some field returned a value that does not fit the field.
    """
    schema = activation.frame.plan.schema
    numbers = {name: cast("float", update[name]) for name in schema.summed if name in update}
    large = {name: number for name, number in numbers.items() if not -_LARGE < number < _LARGE}
    if large:  # small numbers never add up to one that JSON cannot represent
        schema.check_sums(values_after(activation, large, ops), large)
    names = [name for name in schema.coded if activation.merged or name in update]
    if not names:
        return None
    return schema.reduced(values_after(activation, update, ops), names)
