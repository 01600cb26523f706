"""Causes in a run: the origin of each step, the edges it took or did not take, and the result that decided it.

All of it follows from the journal: `Causes` observes the fold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from orchestrator.graph.edges import Edge
from orchestrator.graph.isolation import SharedList
from orchestrator.graph.topology import ANY, RESERVED, START
from orchestrator.kernel import records as r
from orchestrator.kernel.records import Failure
from orchestrator.kernel.run_state import Delta
from orchestrator.kernel.state import Activation, FrameResult, FrameState, MapItem
from orchestrator.kernel.version import Version
from orchestrator.views.reader import Fold

__all__ = ["Cause", "Causes", "Drop", "GraphEnd", "Origin", "Transition", "TransitionEdge"]


@dataclass(frozen=True, slots=True)
class TransitionEdge:
    """An edge that a transition took, or could have taken."""

    index: int
    """Its number in the graph's edges."""
    edge: Edge
    items: int | None = None
    """Number of branches that a map opened; None for other edges and for edges that were not taken."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of an outcome: the last external result the step received."""

    kind: Literal["model", "tool", "effect", "answer", "event", "timer", "graph"]
    name: str
    """The model, the tool or the effect; for an answer `approve`, `deny` or `value`; for a graph, how it ended."""
    seq: int
    """The record of the result."""
    by: str = ""
    """Name of the person who answered."""
    policy: bool = False
    """True if a policy answered."""


@dataclass(frozen=True, slots=True)
class Transition:
    """The edges that an outcome took, those that it did not take, and the cause of the outcome."""

    seq: int
    activation: str
    """The step that ended; for START, the key of its graph; for a spent limit, empty."""
    place: str
    path: str
    node: str
    """A node, START, or `*` for a spent limit."""
    outcome: str
    taken: tuple[TransitionEdge, ...]
    not_taken: tuple[TransitionEdge, ...]
    """The other edges that start here."""
    cause: Cause | None = None
    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a step: the edge, join, spent limit or event that started it, and the steps before it."""

    by: Literal["edge", "join", "limit", "event"]
    seq: int
    """The record after which it could start."""
    after: tuple[str, ...]
    """Preceding activations (for START, the graph's key); for a join all of them, in order of arrival."""
    edge: TransitionEdge | None = None
    """The edge; None for a join."""
    branch: int | None = None
    """Number of the branch or item, from 0, if there are several."""
    branches: int = 1
    last: str = ""
    """For a join: the activation whose token arrived last and made it fire."""
    losers: tuple[tuple[str, str], ...] = ()
    """For a race: (path, node) of the tokens that were dropped because they were too late."""
    lets_run: bool = False
    """For a join: whether the branches that it did not wait for continued."""
    needs: tuple[int, ...] = ()
    """For an item of a map: the items that it depends on."""
    limit: str = ""
    """The limit that was spent, or the event that interrupted the graph."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The reason why a token, running or waiting, was dropped."""

    seq: int
    why: Literal["race", "stop", "failed", "limit", "event", "cancelled", "ended"]
    what: str = ""
    """The join, the limit, or the node that ended the graph."""


@dataclass(frozen=True, slots=True)
class GraphEnd:
    """The end of a graph and its reason."""

    seq: int
    status: str
    why: Literal["end", "stop", "failed", "limit", "cancelled"]
    what: str = ""
    """The node that led to STOP or failed, the limit, or the reason of a cancellation."""
    ways: int = 1
    """Number of tokens that reached END and were merged."""
    error: Failure | None = None


class _Joining(NamedTuple):
    join: str
    arrived: tuple[str, ...]
    lets_run: bool = False


class _Collapsing(NamedTuple):
    limit: str
    live: tuple[str, ...]
    why: Literal["limit", "event"] = "limit"


class _GraphEnd(NamedTuple):
    ways: int


class Causes(Fold):
    """Collects the causes in a run. It has data for each step, so use it to show runs, not to drive them.

    Attributes:
        transitions: Activation -> its transition.
        origins: Activation -> its origin.
        drops: Activation -> the reason why it was dropped.
        ends: Key of a graph -> the reason why it ended.
    """

    def __init__(self) -> None:
        self.transitions: dict[str, Transition] = {}
        self.origins: dict[str, Origin] = {}
        self.drops: dict[str, Drop] = {}
        self.ends: dict[str, GraphEnd] = {}
        self._causes: dict[str, Cause] = {}
        self._doing: list[Transition | _Joining | _Collapsing | _GraphEnd] = []
        """Reasons for current events, innermost last."""
        self._edge: TransitionEdge | None = None
        self._lost: list[tuple[str, str]] = []
        self._failing: r.StepFailed | None = None
        self._reason = ""

    def applying(self, record: r.Record) -> None:
        """See `Observer.applying`."""
        if isinstance(record, r.EffectSettled) and record.ok:
            asked = self.run.ledger.entry(record.key)
            if asked is not None and not asked.intended.inside:
                self._causes[record.activation] = Cause(asked.intended.kind, asked.intended.name, record.seq)
        elif isinstance(record, r.Answered) and record.question in self.run.askers:
            cause = Cause("answer", record.answer.type, record.seq, record.by, record.policy)
            self._causes[self.run.askers[record.question].key] = cause
        elif isinstance(record, r.Forked) and record.answer is not None:
            for token in self.run.live_tokens():
                if record.question in token.answers:
                    self._causes[token.key] = Cause("answer", record.answer.type, record.seq, record.by)
        elif isinstance(record, r.StepRetried):
            self._causes.pop(record.activation, None)
        elif isinstance(record, r.Reopened) and self.run.root is not None:
            self.ends.pop(self.run.root.key, None)
        self._failing = record if isinstance(record, r.StepFailed) else None
        self._reason = record.reason if isinstance(record, r.Cancelled) else ""

    def applied(self, record: r.Record, delta: Delta) -> None:
        """See `Fold.applied`."""
        for asker, question, answer in delta.moved:
            late = answer.answer.type == "deny"
            name = "timer" if late else question.event or question.node
            self._causes[asker.key] = Cause("timer" if late else "event", name, answer.seq, answer.by)

    def sending(self, source: Activation, version: Version, outcome: str, error: Failure | None) -> None:
        """See `Observer.sending`."""
        frame = source.frame
        edges = frame.plan.edges
        routes = frame.plan.topology.routes(source.node, outcome)
        numbers = {route.index for route in routes}
        taken = tuple(TransitionEdge(one.index, edges[one.index], _items(version, one.each)) for one in routes)
        took = self.transitions[source.key] = Transition(
            self.run.head,
            source.key,
            frame.place,
            source.path,
            source.node,
            outcome if source.node != START else "",
            taken,
            tuple(TransitionEdge(i, edge) for i, edge in _beginning(edges, source.node, outcome) if i not in numbers),
            self._cause(source),
            error,
        )
        self._doing.append(took)

    def _cause(self, source: Activation) -> Cause | None:
        found = self._causes.pop(source.key, None)
        return Cause("graph", source.child.status, self.run.head) if source.child is not None else found

    def joining(self, join: str, arrivals: list[Activation]) -> None:
        """See `Observer.joining`."""
        lets_run = arrivals[0].frame.plan.topology.nodes[join].lets_run
        self._doing.append(_Joining(join, tuple(token.key for token in arrivals), lets_run))

    def collapsing(self, frame: FrameState) -> None:
        """See `Observer.collapsing`."""
        live = tuple(token.key for token in frame.live.values())
        if frame.exhausting is not None:
            self._doing.append(_Collapsing(frame.exhausting, live))
        else:
            self._doing.append(_Collapsing(frame.interrupting, live, "event"))

    def ending(self, frame: FrameState) -> None:
        """See `Observer.ending`."""
        self._doing.append(_GraphEnd(len(frame.ended_versions)))

    def done(self) -> None:
        """See `Observer.done`."""
        self._doing.pop()

    def edge_taken(self, frame: FrameState, index: int) -> None:
        """See `Observer.edge_taken`."""
        doing = self._doing[-1]
        if isinstance(doing, Transition):
            self._edge = next(one for one in doing.taken if one.index == index)
            return
        self._edge = TransitionEdge(index, frame.plan.edges[index])
        others = (
            TransitionEdge(i, edge) for i, edge in enumerate(frame.plan.edges) if edge.source == ANY and i != index
        )
        self.transitions[f"{frame.key}*"] = Transition(
            self.run.head, "", frame.place, frame.path, ANY, "exhausted", (self._edge,), tuple(others)
        )

    def added(self, token: Activation) -> None:
        """See `Observer.added`."""
        if token.key in self.origins or not self._doing:
            return
        doing, head = self._doing[-1], self.run.head
        if isinstance(doing, Transition):
            edge = self._edge
            many = edge.items if edge is not None and edge.items is not None else len(doing.taken)
            branch = token.rank.path.index if many > 1 or (edge is not None and edge.items) else None
            self.origins[token.key] = Origin("edge", head, (doing.activation,), edge, branch, many)
        elif isinstance(doing, _Joining):
            arrived, lost = doing.arrived, tuple(self._lost)
            came = Origin(
                "join", head, arrived, branches=len(arrived), last=arrived[-1], losers=lost, lets_run=doing.lets_run
            )
            self.origins[token.key] = came
            self._lost.clear()
        elif isinstance(doing, _Collapsing):
            self.origins[token.key] = Origin(doing.why, head, doing.live, self._edge, limit=doing.limit)

    def item_ready(self, item: MapItem) -> None:
        """See `Observer.item_ready`."""
        token = item.ordered_map.pending.get(item.index)
        if token is not None and item.needs:
            self.origins[token.key] = replace(self.origins[token.key], seq=self.run.head, needs=item.needs)

    def dropped(self, token: Activation) -> None:
        """See `Observer.dropped`."""
        doing, head = (self._doing[-1] if self._doing else None), self.run.head
        if isinstance(doing, _Joining):
            self._lost.append((token.path, token.node))
            why = Drop(head, "race", doing.join)
        elif isinstance(doing, _Collapsing):
            why = Drop(head, doing.why, doing.limit)
        elif isinstance(doing, Transition):
            why = Drop(head, "stop", doing.node)
        elif self._failing is not None:
            why = Drop(head, "failed", self._failing.node)
        else:
            why = Drop(head, "cancelled" if self.run.cancelled else "ended")
        self.drops[token.key] = why

    def restored(self, token: Activation) -> None:
        """See `Observer.restored`."""
        self.drops.pop(token.key, None)
        self.ends.pop(token.frame.key, None)
        if token.failed:
            self._causes.pop(token.key, None)

    def finished(self, frame: FrameState, result: FrameResult) -> None:
        """See `Observer.finished`."""
        doing, head = (self._doing[-1] if self._doing else None), self.run.head
        end = GraphEnd(head, result.status, "cancelled", self._reason)
        if result.status == "failed":
            node = self._failing.node if self._failing is not None else result.error.node if result.error else ""
            end = GraphEnd(head, result.status, "failed", node, error=result.error)
        elif result.status != "cancelled" and isinstance(doing, _Collapsing):
            end = GraphEnd(head, result.status, "limit", doing.limit, error=result.error)
        elif result.status != "cancelled" and isinstance(doing, _GraphEnd):
            end = GraphEnd(head, result.status, "end", ways=doing.ways)
        elif result.status != "cancelled" and isinstance(doing, Transition):
            end = GraphEnd(head, result.status, "stop", doing.node)
        self.ends[frame.key] = end

    @property
    def end(self) -> GraphEnd | None:
        """Return the end of the run itself; None if it has not ended."""
        return None if self.run.root is None else self.ends.get(self.run.root.key)


def _items(version: Version, field: str | None) -> int | None:
    if field is None:
        return None
    found = version.values.get(field)
    return len(found) if isinstance(found, (list, tuple, SharedList)) else 0


def _beginning(edges: Iterable[Edge], node: str, outcome: str) -> Iterable[tuple[int, Edge]]:
    """Return the edges that start at a node; for a reserved outcome also those of any node (`*`)."""
    any_too = outcome in RESERVED
    return [
        (index, edge)
        for index, edge in enumerate(edges)
        if edge.source == node or (any_too and edge.source == ANY and edge.outcome == outcome)
    ]
