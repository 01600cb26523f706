"""Why a run is where it is: what sent each step, which edges were taken and which were not, and what decided it.

All of it follows from the journal, by the fold itself: `Traced` is a machine that notes what its graphs do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from orchestrator.graph.topology import ANY, RESERVED, START
from orchestrator.kernel import records as r
from orchestrator.kernel.frame import Frame, FrameResult
from orchestrator.kernel.machine import Delta, Machine

if TYPE_CHECKING:
    from orchestrator.graph.edge import Edge
    from orchestrator.kernel.plan import Plan
    from orchestrator.kernel.records import Failure
    from orchestrator.kernel.token import Activation, Cell, OpenFork
    from orchestrator.kernel.version import Version

__all__ = ["Came", "Cause", "End", "Gone", "Took", "Traced", "Way"]


@dataclass(frozen=True, slots=True)
class Way:
    """An edge, as one transition had it."""

    index: int
    """Its number in the graph's edges."""
    edge: Edge
    items: int | None = None
    """How many branches a map opened; None where it is no map, or was not taken."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What an outcome rests on: the last thing that was said to the step from outside of it."""

    kind: Literal["model", "tool", "effect", "answer", "graph"]
    name: str
    """The model, the tool or the effect; of an answer `approve`, `deny` or `value`; of a graph how it ended."""
    seq: int
    """The record that holds it."""
    by: str = ""
    """Who answered."""
    policy: bool = False
    """Whether a rule answered."""


@dataclass(frozen=True, slots=True)
class Took:
    """A transition: where an outcome led."""

    seq: int
    activation: str
    """Of the step that ended; of START the key of its graph; of a spent limit empty."""
    place: str
    path: str
    node: str
    """A node, START, or `*` where a spent limit leads on."""
    outcome: str
    taken: tuple[Way, ...]
    left: tuple[Way, ...]
    """Edges that begin here, too, and were not taken."""
    cause: Cause | None = None
    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class Came:
    """What brought a step about."""

    by: Literal["edge", "join", "limit"]
    seq: int
    """The record behind which it could begin."""
    after: tuple[str, ...]
    """Activations (for START the graph's key) that it comes from. Of a join all that it merged, as they came."""
    way: Way | None = None
    """The edge; None for a join."""
    branch: int | None = None
    """Number of the branch or item, from 0, if there are several."""
    branches: int = 1
    last: str = ""
    """Of a join: the activation whose token came last, which made it fire."""
    lost: tuple[tuple[str, str], ...] = ()
    """Of a race: (path, node) of what was dropped because it came too late."""
    needs: tuple[int, ...] = ()
    """Of an item of a map: the items that had to be done before."""
    limit: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """A step, or what waited to become one, that was dropped."""

    seq: int
    why: Literal["race", "stop", "failed", "limit", "cancelled", "ended"]
    what: str = ""
    """The join, the limit, or the node that ended the graph."""


@dataclass(frozen=True, slots=True)
class End:
    """Why a graph ended."""

    seq: int
    status: str
    why: Literal["end", "stop", "failed", "limit", "cancelled"]
    what: str = ""
    """The node that led to STOP or failed, or the limit."""
    ways: int = 1
    """How many ways came to END and were merged."""
    error: Failure | None = None


_Doing: TypeAlias = tuple[Literal["send", "join", "limit", "end"], object]


class _Frame(Frame):
    """A graph that tells what it does."""

    __slots__ = ()

    @property
    def _trace(self) -> Traced:
        return cast("Traced", self.hooks)

    def _send(self, source: Activation, version: Version, outcome: str, error: Failure | None) -> None:
        took = self._trace.sends(self, source, version, outcome, error)
        with self._trace.doing("send", took):
            super()._send(source, version, outcome, error)

    def _add(self, token: Activation) -> None:
        self._trace.added(self, token)
        super()._add(token)

    def _fire(self, entry: OpenFork, join: str, wanted: int | None) -> None:
        arrived = tuple(token.key for token in entry.arrivals[join][:wanted])
        with self._trace.doing("join", (join, arrived)):
            super()._fire(entry, join, wanted)

    def _begin(self, cell: Cell) -> None:
        self._trace.begins(cell)
        super()._begin(cell)

    def collapse(self) -> None:
        live = tuple(token.key for token in self.live.values())
        with self._trace.doing("limit", (self.exhausting or "", live)):
            super().collapse()

    def _end(self) -> None:
        with self._trace.doing("end", len(self.ended_versions)):
            super()._end()

    def finish(self, result: FrameResult) -> None:
        if self.result is None:
            self._trace.finishes(self, result)
        super().finish(result)


class Traced(Machine):
    """A machine that remembers why. It costs memory with the number of steps: for looking at runs, not for running."""

    frame_type = _Frame

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.took_by: dict[str, Took] = {}
        """Activation -> where it led."""
        self.came_by: dict[str, Came] = {}
        """Activation -> what brought it about."""
        self.gone: dict[str, Gone] = {}
        self.ends: dict[str, End] = {}
        """Key of a graph -> why it ended."""
        self._causes: dict[str, Cause] = {}
        self._doing: list[_Doing] = []
        self._edge: Way | None = None
        self._lost: list[tuple[str, str]] = []
        self._failing: r.StepFailed | None = None

    def apply(self, record: r.Record) -> Delta:
        """See `Machine.apply`."""
        if isinstance(record, r.EffectSettled) and record.ok:
            asked = self.ledger.entry(record.key)
            if asked is not None and not asked.intended.inside:
                self._causes[record.activation] = Cause(asked.intended.kind, asked.intended.name, record.seq)
        elif isinstance(record, r.Answered) and record.question in self._asked:
            cause = Cause("answer", record.answer.type, record.seq, record.by, record.policy)
            self._causes[self._asked[record.question].key] = cause
        elif isinstance(record, r.StepRetried):
            self._causes.pop(record.activation, None)
        self._failing = record if isinstance(record, r.StepFailed) else None
        return super().apply(record)

    # -- what frames tell ---------------------------------------------------------------------------------------

    def doing(self, what: Literal["send", "join", "limit", "end"], detail: object) -> _Within:
        """For as long as the block lasts, what happens happens for this reason."""
        return _Within(self._doing, (what, detail))

    def sends(self, frame: Frame, source: Activation, version: Version, outcome: str, error: Failure | None) -> Took:
        """An outcome takes its edges."""
        edges = frame.plan.edges
        routes = frame.plan.topology.routes(source.node, outcome)
        numbers = {route.index for route in routes}
        taken = tuple(Way(one.index, edges[one.index], _items(version, one.each)) for one in routes)
        took = Took(
            self.head,
            source.key,
            frame.place,
            source.path,
            source.node,
            outcome if source.node != START else "",
            taken,
            tuple(Way(i, edge) for i, edge in _beginning(edges, source.node, outcome) if i not in numbers),
            self._cause(source),
            error,
        )
        self.took_by[source.key] = took
        return took

    def _cause(self, source: Activation) -> Cause | None:
        found = self._causes.pop(source.key, None)
        return Cause("graph", source.child.status, self.head) if source.child is not None else found

    def took(self, frame: Frame, index: int) -> None:
        """See `Hooks.took`."""
        super().took(frame, index)
        what, detail = self._doing[-1]
        if what == "send":
            assert isinstance(detail, Took)
            self._edge = next(way for way in detail.taken if way.index == index)
            return
        self._edge = Way(index, frame.plan.edges[index])
        others = (Way(i, edge) for i, edge in enumerate(frame.plan.edges) if edge.source == ANY and i != index)
        self.took_by[f"{frame.key}*"] = Took(
            self.head, "", frame.place, frame.path, ANY, "exhausted", (self._edge,), tuple(others)
        )

    def added(self, frame: Frame, token: Activation) -> None:
        """A token sits down somewhere."""
        if token.key in self.came_by or not self._doing:
            return
        what, detail = self._doing[-1]
        if what == "send":
            assert isinstance(detail, Took)
            way = self._edge
            many = way.items if way is not None and way.items is not None else len(detail.taken)
            branch = token.rank.path.index if many > 1 or (way is not None and way.items) else None
            self.came_by[token.key] = Came("edge", self.head, (detail.activation,), way, branch, many)
        elif what == "join":
            _, arrived = cast("tuple[str, tuple[str, ...]]", detail)
            self.came_by[token.key] = Came(
                "join", self.head, arrived, branches=len(arrived), last=arrived[-1], lost=tuple(self._lost)
            )
            self._lost.clear()
        elif what == "limit":
            limit, live = cast("tuple[str, tuple[str, ...]]", detail)
            self.came_by[token.key] = Came("limit", self.head, live, self._edge, limit=limit)

    def begins(self, cell: Cell) -> None:
        """An item of a map has all that it needs."""
        token = cell.group.pending.get(cell.index)
        if token is not None and cell.needs:
            self.came_by[token.key] = replace(self.came_by[token.key], seq=self.head, needs=cell.needs)

    def dropped(self, activation: Activation) -> None:
        """See `Hooks.dropped`."""
        what, detail = self._doing[-1] if self._doing else ("", None)
        if what == "join":
            self._lost.append((activation.path, activation.node))
            why = Gone(self.head, "race", cast("tuple[str, object]", detail)[0])
        elif what == "limit":
            why = Gone(self.head, "limit", cast("tuple[str, object]", detail)[0])
        elif what == "send":
            why = Gone(self.head, "stop", cast("Took", detail).node)
        elif self._failing is not None:
            why = Gone(self.head, "failed", self._failing.node)
        else:
            why = Gone(self.head, "cancelled" if self.cancelled else "ended")
        self.gone[activation.key] = why
        super().dropped(activation)

    def finishes(self, frame: Frame, result: FrameResult) -> None:
        """A graph ends."""
        what, detail = self._doing[-1] if self._doing else ("", None)
        end = End(self.head, result.status, "cancelled")
        if result.status == "failed":
            node = self._failing.node if self._failing is not None else result.error.node if result.error else ""
            end = End(self.head, result.status, "failed", node, error=result.error)
        elif result.status != "cancelled" and what == "limit":
            end = End(self.head, result.status, "limit", cast("tuple[str, object]", detail)[0], error=result.error)
        elif result.status != "cancelled" and what == "end":
            end = End(self.head, result.status, "end", ways=cast("int", detail))
        elif result.status != "cancelled" and what == "send":
            end = End(self.head, result.status, "stop", cast("Took", detail).node)
        self.ends[frame.key] = end

    @property
    def end(self) -> End | None:
        """Why the run itself ended; None while it has not."""
        return None if self.root is None else self.ends.get(self.root.key)


class _Within:
    """Notes for as long as a block lasts what is being done."""

    __slots__ = ("_doing", "_what")

    def __init__(self, doing: list[_Doing], what: _Doing) -> None:
        self._doing, self._what = doing, what

    def __enter__(self) -> None:
        self._doing.append(self._what)

    def __exit__(self, *_: object) -> None:
        self._doing.pop()


def _items(version: Version, field: str | None) -> int | None:
    if field is None:
        return None
    found = version.values.get(field)
    return len(found) if isinstance(found, (list, tuple)) else 0


def _beginning(edges: Iterable[Edge], node: str, outcome: str) -> Iterable[tuple[int, Edge]]:
    """Edges that begin at a node; where its outcome is a reserved one those of any node, too."""
    any_too = outcome in RESERVED
    return [
        (index, edge)
        for index, edge in enumerate(edges)
        if edge.source == node or (any_too and edge.source == ANY and edge.outcome == outcome)
    ]
