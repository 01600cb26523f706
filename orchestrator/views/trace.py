"""Overlays of a run, record by record.

Each record reports its changes, so the cost of an update depends on the record only. Plans that the run makes
(maps over items that depend on each other) are part of an overlay.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

from orchestrator.graph.topology import IF_NAMED
from orchestrator.graph.versions import Renames
from orchestrator.kernel import records as r
from orchestrator.kernel.fold.questions import timer_question
from orchestrator.kernel.migration import moved_edges, plan_at
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Question
from orchestrator.kernel.run_state import Delta, RunState
from orchestrator.kernel.state import Activation, FrameState, MapItem, OrderedMap, Phase
from orchestrator.kernel.transitions import has_needs
from orchestrator.kernel.version import Path, Version
from orchestrator.views.overlay import EdgeKey, NodeKey, Overlay, Planned, PlannedState, PlannedStep, place_of
from orchestrator.views.reader import Fold, read
from orchestrator.views.step_work import AskTracker, WorkTime, asked_at


class _PlannedMap:
    """A map whose items depend on each other, with its steps."""

    __slots__ = ("busy", "edge", "ended", "group", "path", "steps")

    def __init__(self, path: str, edge: int, items: Sequence[object], group: OrderedMap) -> None:
        self.path, self.edge, self.group = path, edge, group
        self.steps = [_step(number, item) for number, item in enumerate(items)]
        self.busy: Counter[tuple[int, str]] = Counter()
        """(number of a step, `running` or `waiting`) -> number of tokens."""
        self.ended: dict[int, PlannedState] = {}

    def move(self, number: int, state: str, by: int) -> None:
        """Change the number of a step's tokens in a state."""
        self.busy[number, state] += by
        self.look(number)

    def end(self, number: int, state: PlannedState) -> None:
        """Record the end of a step."""
        self.ended[number] = state
        self.look(number)

    def restore(self, number: int) -> None:
        """Start a failed step again."""
        if self.ended.get(number) == "failed":
            del self.ended[number]
        self.look(number)

    def look(self, number: int) -> None:
        """Update the state of a step."""
        step = self.steps[number]
        state: PlannedState = self.ended.get(number, "planned")
        if self.busy[number, "waiting"]:
            state = "waiting"
        elif self.busy[number, "running"]:
            state = "running"
        if state != step.state:
            self.steps[number] = replace(step, state=state)

    def settle(self, item: MapItem) -> None:
        """End a step whose tokens all reached a join or END, and the steps that are skipped because of it."""
        pending = [item]
        while pending:
            item = pending.pop()
            if item.done and item.index not in self.ended:
                self.end(item.index, "visited" if item.versions or item.ended else "skipped")
                pending += [self.group.items[index] for index in self.group.dependents.get(item.index, ())]


class PlannedMaps:
    """All plans of a run, in order."""

    def __init__(self) -> None:
        self._plans: list[_PlannedMap] = []
        self._numbers: dict[int, int] = {}
        """Identity of a map in the kernel -> number of its plan, which keeps the map alive."""

    def __len__(self) -> int:
        return len(self._plans)

    def planned(self, number: int) -> Planned:
        """Return a plan after the last record."""
        plan = self._plans[number]
        return Planned(plan.path, plan.edge, tuple(plan.steps))

    def open(
        self,
        group: OrderedMap,
        path: str,
        edge: int,
        items: Sequence[object],
        doing: Iterable[tuple[str, Activation]],
    ) -> int:
        """Add the plan of a map that the last record opened, and return its number.

        Args:
            group: the map, in the kernel.
            path: path of its graph.
            edge: number of its edge.
            items: its items, as plain JSON.
            doing: states of the tokens that already run or wait.
        """
        number = self._numbers[id(group)] = len(self._plans)
        plan = _PlannedMap(path, edge, items, group)
        self._plans.append(plan)
        for state, token in doing:
            for item in token.map_items:
                if item.ordered_map is group:
                    plan.move(item.index, state, 1)
        for item in group.items:
            plan.settle(item)  # a map may lead directly to its join
        return number

    def move(self, machine: RunState, names: Renames) -> None:
        """Handle the move of the run to another version of its graph, in which its maps are other objects."""
        there = {
            item.ordered_map.items[0].fork.key: item.ordered_map
            for token in machine.live_tokens()
            for item in token.map_items
        }
        self._numbers = {}
        for number, plan in enumerate(self._plans):
            plan.path = names.place(plan.path)
            if plan.group.items:
                plan.group = there.get(plan.group.items[0].fork.key, plan.group)
            self._numbers[id(plan.group)] = number

    def moves(self, token: Activation, state: str, by: int) -> Collection[int]:
        """Record that a token enters (1) or leaves (-1) a state. Returns the numbers of the plans that change."""
        found = self._of(token)
        for number, item in found:
            self._plans[number].move(item.index, state, by)
        return {number for number, _ in found}

    def settles(self, token: Activation) -> Collection[int]:
        """Record that a token landed or was dropped. Returns the numbers of the plans that may change."""
        found = self._of(token)
        for number, item in found:
            self._plans[number].settle(item)
        return {number for number, _ in found}

    def restores(self, token: Activation) -> Collection[int]:
        """Start a failed token again. Returns the numbers of the plans that may change."""
        found = self._of(token)
        for number, item in found:
            self._plans[number].restore(item.index)
        return {number for number, _ in found}

    def fails(self, token: Activation) -> None:
        """Record that a token failed without a further attempt."""
        for number, item in self._of(token):
            self._plans[number].end(item.index, "failed")

    def _of(self, token: Activation) -> list[tuple[int, MapItem]]:
        """Return the plans and items that a token belongs to."""
        return [
            (self._numbers[id(item.ordered_map)], item)
            for item in token.map_items
            if id(item.ordered_map) in self._numbers
        ]


def _step(number: int, item: object) -> PlannedStep:
    if not isinstance(item, Mapping):
        return PlannedStep(str(number), (), item)
    needs = item.get("needs")
    listed = needs if isinstance(needs, list | tuple) else () if needs is None else (needs,)
    return PlannedStep(str(item.get("id", number)), tuple(map(str, listed)), item)


_BEGINNINGS = ("resumed", "migrated", "forked")
"""Types of records before which a run was idle."""
_STILL = frozenset({Phase.QUEUED, Phase.IN_LINE, Phase.WAITING, Phase.PENDING})
_COUNTS = ("visits", "taken", "seconds", "items", "told", "faulty", "asked", "unasked")
_PLACES = ("waiting", "running", "failed", "queued", "entered")
"""Fields of an `Overlay` that are mappings, and those that are sets."""


@dataclass(slots=True)
class OverlayChange:
    """The parts of an overlay that a record may have changed."""

    places: set[NodeKey] = field(default_factory=set)
    edges: set[EdgeKey] = field(default_factory=set)
    plans: set[int] = field(default_factory=set)
    """Numbers of plans in `Overlay.planned`."""


class _BusyToken(NamedTuple):
    """A token that runs, or waits for an answer."""

    state: str
    """`running` or `waiting`."""
    nodes: list[NodeKey]
    """Its node, and the enclosing subgraph nodes: all of them are in this state."""
    token: Activation


def overlay_of(plan: Plan, records: Iterable[r.Record], status: str | None = None) -> Overlay:
    """Return the overlay of a run.

    Args:
        plan: the plan of the run's graph (`run.plan`); its code is not needed.
        records: the run's records from its first one.
        status: the run's status; None: the one in the journal.
    """
    trace = Trace()
    read(plan, records, trace)
    return trace.overlay(status)


class Trace(Fold):
    """Maintains a run's overlay, record by record.

    Attributes:
        changed: Parts that the last record may have changed.
    """

    def __init__(self) -> None:
        self.changed = OverlayChange()
        self._visits: Counter[NodeKey] = Counter()
        self._faulty: Counter[NodeKey] = Counter()
        self._asked_by_steps: Counter[NodeKey] = Counter()
        self._unasked: Counter[NodeKey] = Counter()
        self._ask_tracker = AskTracker()
        self._taken: Counter[EdgeKey] = Counter()
        self._busy: dict[str, Counter[NodeKey]] = {"running": Counter(), "waiting": Counter()}
        self._failed: dict[NodeKey, None] = {}
        self._seconds: dict[NodeKey, float] = {}
        self._items: dict[NodeKey, tuple[int, int]] = {}
        self._done: dict[NodeKey, set[Path]] = {}
        self._queued: dict[NodeKey, None] = {}
        self._entered: dict[NodeKey, None] = {}
        self._notes = NodeNotes()
        self._plans = PlannedMaps()
        self._time = WorkTime()
        self._doing: dict[str, _BusyToken] = {}
        self._asked: dict[str, tuple[Activation, NodeKey, float]] = {}
        self._now: Activation | None = None
        """The activation of the record being folded."""
        self._opened: list[OpenedMap] = []
        self._groups: deque[OrderedMap] = deque()
        """Open maps whose items depend on each other."""
        self._was_over = False
        """True if the run had a result before the record being folded."""
        self._took: list[tuple[FrameState, int]] = []
        self._gone: list[Activation] = []
        self._again: list[tuple[Activation, NodeKey, r.StepDone | None]] = []
        """Tokens that failed or landed too late, and are live again."""
        self._left: Plan | None = None
        """The plan that the run leaves with the record being folded."""

    def applying(self, record: r.Record) -> None:
        """See `Observer.applying`."""
        run = self.run
        self._took.clear()
        self._gone.clear()
        self._again.clear()
        self._now = run.running.get(getattr(record, "activation", None) or "")
        self._opened.clear()
        self._groups.clear()
        self._was_over = run.result is not None or run.ended is not None
        self._left = run.plan if isinstance(record, r.Migrated) else None
        if run.updated and (not run.was_running or record.type in _BEGINNINGS) and record.ts > run.updated:
            self._time.gap(run.updated, record.ts)

    def sending(self, source: Activation, version: Version, outcome: str, error: r.Failure | None) -> None:
        """See `Observer.sending`."""
        self._opened += opened_maps(source, version, outcome)

    def added(self, token: Activation) -> None:
        """See `Observer.added`."""
        if token.phase is Phase.PENDING:
            group = token.map_items[-1].ordered_map
            if not self._groups or self._groups[-1] is not group:
                self._groups.append(group)

    def edge_taken(self, frame: FrameState, index: int) -> None:
        """See `Observer.edge_taken`."""
        self._took.append((frame, index))

    def dropped(self, token: Activation) -> None:
        """See `Observer.dropped`."""
        self._gone.append(token)

    def restored(self, token: Activation) -> None:
        """See `Observer.restored`."""
        place = (token.frame.place, token.node)
        if token.failed or token.late is not None:
            self._again.append((token, place, token.late))
        if token.opened:
            self._entered[place] = None

    def moved(self, record: r.Migrated) -> None:
        """See `Observer.moved`. Marks of nodes and edges that still exist are kept."""
        names = Renames(record.nodes, record.fields, record.forks)

        def at(key: NodeKey) -> NodeKey:
            return names.place(key[0]), names.node(*key)

        everything: tuple[dict[NodeKey, Any], ...] = (
            self._visits,
            self._faulty,
            self._asked_by_steps,
            self._unasked,
            self._seconds,
            self._items,
            self._done,
        )
        for counts in everything:
            _rename(counts, at)
        for places in (self._failed, self._queued, self._entered):
            _rename(places, at)
        self._notes.rename(at)
        taken = Counter(self._taken)
        self._taken.clear()
        for (place, index), count in taken.items():
            there = names.place(place)
            edges = moved_edges(names, place, plan_at(self._left, place), plan_at(self.run.plan, there))
            if index in edges:
                self._taken[there, edges[index]] += count
        self._plans.move(self.run, names)
        self._rebind(record)

    def _rebind(self, record: r.Migrated) -> None:
        """Watch the tokens that replace those before the migration."""
        for question, (asker, _, since) in list(self._asked.items()):
            token = self.run.activation(asker.key)
            _, place, _ = self._asked.pop(question)
            if token is not None and asker.key not in record.withdrawn:
                self._asked[question] = token, (token.frame.place, token.node), since
            else:
                self._notes.withdraw(place, question)
                self._time.waited(asker.key, since, record.ts)
        doing, self._doing = self._doing, {}
        self._busy["running"].clear()
        self._busy["waiting"].clear()
        for key, was in doing.items():
            token = self.run.activation(key)
            if token is None or (was.state == "waiting" and key in record.withdrawn):
                continue
            nodes = enclosing_nodes(token.frame.place, token.node)
            self._doing[key] = _BusyToken(was.state, nodes, token)
            self._busy[was.state].update(nodes)

    def applied(self, record: r.Record, delta: Delta) -> None:
        """See `Fold.applied`."""
        run, activation = self.run, self._now
        self._ask_tracker.note(record)
        changed = self.changed = OverlayChange()
        if self._left is not None:
            changed.places.update((place, node) for place, plan in _all_plans(run.plan) for node in plan.nodes)
            changed.edges.update((place, i) for place, plan in _all_plans(run.plan) for i in range(len(plan.edges)))
            changed.plans.update(range(len(self._plans)))
        self._count_edges(changed)
        self._note_questions(record, activation, changed)
        for asker, waited_for, _ in delta.moved:
            self._moved(asker, waited_for.id, record.ts, changed)
        for gone in (*self._gone, *delta.cancelled):
            doing = self._doing.get(gone.key)
            if doing is not None and doing.state == "waiting":
                for question in [key for key, (asker, _, _) in self._asked.items() if asker is gone]:
                    self._withdraw(question, changed)
            self._set_activity(gone, None, changed)
            self._time.forget(gone.key)
            place = (gone.frame.place, gone.node)
            if place in self._entered:  # a dropped subgraph is as pale as any other dropped step
                del self._entered[place]
                changed.places.add(place)
            self._count_asked(gone.key, place, changed, ended=False)
        if isinstance(record, r.StepDone | r.StepFailed):  # also a step that had been stopped before
            place = (place_of(record.path), record.node)
            self._count_asked(record.activation, place, changed, ended=activation is not None)
        if activation is not None:
            waits = "waiting" if activation.phase is Phase.ASKING else None
            self._set_activity(activation, "running" if activation.key in run.running else waits, changed)
            self._land(record, activation, changed)
        for begun in (token for token in delta.started if token.key in run.running):
            self._set_activity(begun, "running", changed)
        for opening in self._opened:
            self._open_map(opening, changed)
        for token in (*((activation,) if activation is not None else ()), *self._gone):
            changed.plans.update(self._plans.settles(token))
        if isinstance(record, r.Ended):
            for key, (path, node) in self._ask_tracker.open():
                self._count_asked(key, (place_of(path), node), changed, ended=False)
            self._end(record, changed)
        elif isinstance(record, r.Reopened | r.Forked) and self._was_over:
            self._reopen(changed)
        self._update_queued(changed)

    def overlay(self, status: str | None = None) -> Overlay:
        """Return the overlay after the last record; later records do not change it.

        Args:
            status: the run's status; None: the one in the journal.
        """
        live = self.live
        kept: dict[str, Any] = {name: dict(getattr(live, name)) for name in _COUNTS}
        kept |= {name: frozenset(getattr(live, name)) for name in _PLACES}
        planned = tuple(self.planned(number) for number in range(len(self._plans)))
        return Overlay(**kept, status=live.status if status in (None, "cancelled") else status, planned=planned)

    @property
    def live(self) -> Overlay:
        """Return the overlay as a view that changes with each record. It has no `planned`: use `planned()` instead."""
        return Overlay(
            visits=self._visits,
            taken=self._taken,
            waiting=self._busy["waiting"].keys(),
            running=self._busy["running"].keys(),
            failed=self._failed.keys(),
            status="diverged" if self.run.diverged_because and self.run.status == "cancelled" else self.run.status,
            seconds=self._seconds,
            items=self._items,
            queued=self._queued.keys(),
            entered=self._entered.keys(),
            told=self._notes.texts,
            faulty=self._faulty,
            asked=self._asked_by_steps,
            unasked=self._unasked,
        )

    @property
    def plans(self) -> int:
        """Number of plans."""
        return len(self._plans)

    def planned(self, number: int) -> Planned:
        """Return a plan after the last record."""
        return self._plans.planned(number)

    # -- effects of a record -----------------------------------------------------------------------------------------

    def _count_edges(self, changed: OverlayChange) -> None:
        for frame, index in self._took:
            if frame.plan.edges[index].each is None:
                self._taken[frame.place, index] += 1
            changed.edges.add((frame.place, index))

    def _set_activity(self, token: Activation, to: str | None, changed: OverlayChange) -> None:
        """Set whether a token runs, waits for an answer (`waiting`), or neither (None)."""
        was = self._doing.pop(token.key, None)
        nodes = was.nodes if was is not None else enclosing_nodes(token.frame.place, token.node)
        if to is not None:
            self._doing[token.key] = _BusyToken(to, nodes, token)
        for step, state in ((-1, was.state if was else None), (1, to)):
            if state is None or (was is not None and was.state == to):
                continue
            for node in nodes:
                self._busy[state][node] += step
                if not self._busy[state][node]:
                    del self._busy[state][node]
                changed.places.add(node)
            changed.plans.update(self._plans.moves(token, state, step))

    def _note_questions(self, record: r.Record, activation: Activation | None, changed: OverlayChange) -> None:
        if isinstance(record, r.Asked | r.TimerSet) and activation is not None:
            place = (activation.frame.place, activation.node)
            question = record.question if isinstance(record, r.Asked) else timer_question(record)
            self._asked[question.id] = (activation, place, record.ts)
            self._notes.ask(place, question)
            changed.places.add(place)
        elif isinstance(record, r.Answered) and record.question in self._asked:
            self._moved(self._asked[record.question][0], record.question, record.ts, changed)

    def _moved(self, asker: Activation, question: str, ts: float, changed: OverlayChange) -> None:
        """Record that a waiting step continues."""
        _, _, since = self._asked[question]
        self._time.waited(asker.key, since, ts)
        self._withdraw(question, changed)
        if asker.key not in self.run.running:
            self._set_activity(asker, None, changed)

    def _withdraw(self, question: str, changed: OverlayChange) -> None:
        _, place, _ = self._asked.pop(question)
        self._notes.withdraw(place, question)
        changed.places.add(place)

    def _land(self, record: r.Record, activation: Activation, changed: OverlayChange) -> None:
        place = (activation.frame.place, activation.node)
        if isinstance(record, r.GraphOpened):
            self._entered[place] = None
            changed.places.add(place)
        if not isinstance(record, r.StepDone | r.StepFailed):
            return
        took = self._time.worked(activation.key, record.started, record.ended)
        self._seconds[place] = self._seconds.get(place, 0.0) + took
        changed.places.add(place)
        if isinstance(record, r.StepFailed):
            self._fail(place, record.error, changed)
            self._plans.fails(activation)
            return
        self._done_with(record, activation, place)

    def _count_asked(self, activation: str, place: NodeKey, changed: OverlayChange, *, ended: bool) -> None:
        """Count an ended step: it asked what its kind asks, or, if it has an outcome, did not need to."""
        asks = asked_at(plan_at(self.run.plan, place[0]), place[1])
        asked = self._ask_tracker.settle(activation, asks)
        if asked:
            self._asked_by_steps[place] += asked
        elif ended and self._ask_tracker.unasked(activation, asks):
            self._unasked[place] += 1
        changed.places.add(place)

    def _done_with(self, record: r.StepDone, activation: Activation, place: NodeKey) -> None:
        """Record that a step ended with an outcome that counts."""
        self._visits[place] += 1
        if record.failed:
            self._faulty[place] += record.failed
        if self._failed.pop(place, "") is None:
            self._notes.recover(place)
        if record.error is not None and record.outcome not in IF_NAMED:
            self._notes.fail(place, str(record.error))  # it continued with the result of its inner graph
        if place in self._items:
            done = self._done.setdefault(place, set())
            if (branch := branch_of(activation)) is not None:
                done.add(branch)
                self._items[place] = (len(done), self._items[place][1])

    def _reopen(self, changed: OverlayChange) -> None:
        """Try failed steps again, and count those that landed too late."""
        if not any(late is None for _, _, late in self._again):  # no step failed, but a merge
            self._recover(list(self._failed), changed)
        for token, place, late in self._again:
            if late is None:
                self._recover([place], changed)
                changed.plans.update(self._plans.restores(token))
            elif all(token is not gone for gone in self._gone):
                self._seconds[place] = self._seconds.get(place, 0.0) + max(0.0, late.ended - late.started)
                self._done_with(late, token, place)
                changed.places.add(place)
                changed.plans.update(self._plans.settles(token))

    def _recover(self, places: Iterable[NodeKey], changed: OverlayChange) -> None:
        for place in places:
            if self._failed.pop(place, "") is None:
                self._notes.recover(place)
                changed.places.add(place)

    def _fail(self, place: NodeKey, error: r.Failure, changed: OverlayChange) -> None:
        self._failed[place] = None
        self._notes.fail(place, f"failed: {error}")
        changed.places.add(place)

    def _end(self, record: r.Ended, changed: OverlayChange) -> None:
        if record.status == "failed" and record.error is not None and record.error.node and not self._failed:
            self._fail((place_of(record.error.path), record.error.node), record.error, changed)

    # -- maps -----------------------------------------------------------------------------------------------------

    def _open_map(self, opening: OpenedMap, changed: OverlayChange) -> None:
        path, plan, edge, items = opening
        target = (path, plan.edges[edge].target)
        self._taken[path, edge] += len(items)
        if items and target[1] in plan.nodes:
            done, known = self._items.get(target, (0, 0))
            self._items[target] = (done, known + len(items))
            changed.places.add(target)
        changed.edges.add((path, edge))
        if has_needs(items) and self._groups:
            doing = [(one.state, one.token) for one in self._doing.values()]
            changed.plans.add(self._plans.open(self._groups.popleft(), path, edge, items, doing))

    def _update_queued(self, changed: OverlayChange) -> None:
        found: dict[NodeKey, None] = {}
        if not self.run.running and self.run.ended is None:
            for token in self.run.live_tokens():
                if token.phase in _STILL:
                    found.update(dict.fromkeys(enclosing_nodes(token.frame.place, token.node)))
        if found or self._queued:
            changed.places.update(found.keys() ^ self._queued.keys())
            self._queued.clear()
            self._queued.update(found)


def _rename(found: dict[NodeKey, Any], at: Callable[[NodeKey], NodeKey]) -> None:
    """Rename the nodes of a mapping for another version of the graph."""
    items = [(at(key), value) for key, value in found.items()]
    found.clear()
    found.update(dict(items))


def _all_plans(plan: Plan, path: str = "") -> Iterator[tuple[str, Plan]]:
    """Yield the plan of a graph, and those of its inner graphs, each with its path."""
    yield path, plan
    for name, inner in plan.sub.items():
        yield from _all_plans(inner, f"{path}/{name}" if path else name)


class OpenedMap(NamedTuple):
    """A map that a record opens."""

    path: str
    """Path of its graph: names of the enclosing subgraph nodes."""
    plan: Plan
    edge: int
    """Number of its edge."""
    items: Sequence[object]


def opened_maps(source: Activation, version: Version, outcome: str) -> list[OpenedMap]:
    """Return the maps that an outcome opens, from the arguments of `Observer.sending`."""
    frame = source.frame
    routes = [route for route in frame.plan.topology.routes(source.node, outcome) if route.each is not None]
    if not routes:
        return []
    names = {route.each for route in routes if route.each is not None}
    values = frame.plan.schema.dump({name: version.values[name] for name in names if name in version.values})
    found: list[OpenedMap] = []
    for route in routes:
        items = values.get(route.each or "")
        found.append(OpenedMap(frame.place, frame.plan, route.index, items if isinstance(items, list | tuple) else ()))
    return found


def enclosing_nodes(path: str, node: str) -> list[NodeKey]:
    """Return a node and its enclosing subgraph nodes, whose names are in `path`."""
    found = [(path, node)]
    while path:
        path, _, name = path.rpartition("/")
        found.append((path, name))
    return found


def branch_of(token: Activation) -> Path | None:
    """Return the branch of the innermost map around a token; None outside of maps."""
    if not token.stack:
        return None
    vertex = token.stack[-1][0]
    entry = next((entry for entry in token.forks if entry.fork == vertex), None)
    step = token.rank.path
    while entry is not None and step.parent is not None:
        if step.parent is entry.rank.path:
            return step
        step = step.parent
    return None


_MOST_NOTES = 3
"""Questions of one node that are listed; further ones are counted."""


class NodeNotes:
    """Maintains the notes of a run's nodes.

    Attributes:
        texts: Node -> its notes. Nodes without any are missing.
    """

    def __init__(self) -> None:
        self.texts: dict[NodeKey, Sequence[str]] = {}
        self._questions: dict[NodeKey, dict[str, Question]] = {}
        self._failures: dict[NodeKey, str] = {}

    def ask(self, node: NodeKey, question: Question) -> None:
        """Record that a node asks a question."""
        self._questions.setdefault(node, {})[question.id] = question
        self._update(node)

    def withdraw(self, node: NodeKey, question: str) -> None:
        """Record that a question, named by its id, is not open any more."""
        asked = self._questions.get(node, {})
        asked.pop(question, None)
        if not asked:
            self._questions.pop(node, None)
        self._update(node)

    def fail(self, node: NodeKey, reason: str) -> None:
        """Record that a node failed."""
        self._failures[node] = reason
        self._update(node)

    def recover(self, node: NodeKey) -> None:
        """Record that a node that failed before has succeeded."""
        self._failures.pop(node, None)
        self._update(node)

    def rename(self, at: Callable[[NodeKey], NodeKey]) -> None:
        """Rename the nodes of the notes for another version of the graph."""
        self.texts = {at(node): notes for node, notes in self.texts.items()}
        self._questions = {at(node): asked for node, asked in self._questions.items()}
        self._failures = {at(node): reason for node, reason in self._failures.items()}

    def _update(self, node: NodeKey) -> None:
        asked = self._questions.get(node, {})
        notes = [f"{question.kind}: {question.prompt}".rstrip(": ") for question in islice(asked.values(), _MOST_NOTES)]
        if len(asked) > _MOST_NOTES:
            notes.append(f"{len(asked) - _MOST_NOTES} more questions")
        if node in self._failures:
            notes.append(self._failures[node])
        if notes:
            self.texts[node] = tuple(notes)
        else:
            self.texts.pop(node, None)
