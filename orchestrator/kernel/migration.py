"""Moves a run to another version of its graph.

Each running graph is written as plain data, the names and values in it are changed, and it is read back with the plan
of the new version. Every table that follows from the shape of a graph (open forks, joins, what can reach them) is
therefore made as in the new version. Then joins that nothing can reach any more fire.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import structs

from orchestrator.graph.versions import Renames, inside
from orchestrator.json import JsonObject
from orchestrator.kernel import pools
from orchestrator.kernel.endings import all_tokens, forget_frozen, has_aside, kept_frames
from orchestrator.kernel.frame import settle
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import Migrated
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import Data, dump_frame, load_frames
from orchestrator.kernel.state import Activation, FrameCounters, FrameState, Phase


def migrate(run: RunState, record: Migrated, plan: Plan) -> None:
    """Continue a run in another plan.

    Args:
        run: the run.
        record: what is renamed, added and asked again.
        plan: the plan of the new version.
    """
    names = Renames(record.nodes, record.fields, record.forks)
    run.content = record.content
    run.lineage = (*run.lineage, (record.structure, record.content))
    observers, run.observers = run.observers, ()
    running, asked = list(run.running), {question: token.key for question, token in run.askers.items()}
    held, lines = {key for keys in run.places.values() for key in keys}, pools.dissolve_lines(run)
    ready, exhausting = list(run.ready_frames), [frame.key for frame in run.exhausting_frames]
    _move_counters(run, names, plan)
    made, live = _moved_frames(run, record, names, plan)
    run.plan = plan
    run.observers = observers
    run.result = run.root.result if run.root is not None else None
    run.running = {key: live[key] for key in running}
    run.askers = {question: live[key] for question, key in asked.items() if key not in record.withdrawn}
    for question in asked.keys() - run.askers.keys():
        run.questions.pop(question, None)
        run.asked_at.pop(question, None)
        run.asked.pop(question, None)
    _move_pools(run, held, lines, live)
    for question, token in run.askers.items():
        place = {"node": token.node, "path": token.path}
        run.questions[question] = run.questions[question].model_copy(update=place)
    run.ready_frames = {key: made[key] for key in ready if key in made}  # without those of graphs that were dropped
    run.exhausting_frames = [made[key] for key in exhausting if key in made]
    _move_breakpoints(run, names)
    for observer in observers:
        observer.moved(record)
    for frame in run.frames():
        _wake(run, frame)


def _moved_frames(
    run: RunState, record: Migrated, names: Renames, plan: Plan
) -> tuple[dict[str, FrameState], dict[str, Activation]]:
    """Return the running graphs and their tokens in the new version.

    Tokens that are set aside, because a limit was spent or a graph inside failed, move as well. Those that do not fit
    the new version are discarded: the run itself does not depend on them.
    """
    frames, root, inside_of, stopped = list(run.frames()), run.root, run.inner_frames, run.stopped
    run.stopped = {}
    try:
        return load_frames(run, plan, _moved_data(run, record, names, plan, frames))
    except _MISFITS:
        if not any(has_aside(frame) for frame in frames):
            raise
        run.root, run.inner_frames, run.stopped = root, inside_of, stopped
        for frame in frames:
            forget_frozen(run, frame)
        run.stopped = {}
        return load_frames(run, plan, _moved_data(run, record, names, plan, frames))


_MISFITS = (AssertionError, AttributeError, LookupError, StopIteration, TypeError, ValueError)


def _moved_data(
    run: RunState, record: Migrated, names: Renames, plan: Plan, frames: Sequence[FrameState]
) -> list[Data]:
    plans: dict[str, Plan] = {}
    moved: list[Data] = []
    for frame in frames:
        outer = frame.parent
        new = plan
        if outer is not None:
            new = plans[outer.frame.key].sub[names.node(outer.frame.place, outer.node)]
        plans[frame.key] = new
        moved.append(_Mover(run, record, names, frame, new).data())
    return moved


def _wake(run: RunState, frame: FrameState) -> None:
    """Examine every join and every item of a map: the new version may let them continue."""
    if frame.result is not None:
        return
    for token in frame.live.values():
        for entry in token.forks:
            for join in entry.arrivals:
                frame.touched_joins[id(entry), join] = (entry, join)
        for item in token.map_items:
            for one in item.ordered_map.items:
                frame.touched_items[id(one)] = one
    settle(run, frame)
    if frame.queue:
        run.ready_frames[frame.key] = frame


_BEGUN = frozenset({Phase.RUNNING, Phase.INSIDE, Phase.ASKING})


def _move_pools(run: RunState, held: set[str], lines: Sequence[Sequence[str]], live: Mapping[str, Activation]) -> None:
    """Move places and queues to the pools of the new version: running steps continue, even if a pool is smaller now."""
    run.places = {}
    for frame in (*run.frames(), *kept_frames(run)):
        for token in all_tokens(frame):
            if token.key in held or (token.phase in _BEGUN and live.get(token.key) is token):
                pools.hold(run, token)
    for line in lines:
        for key in line:
            found = live.get(key)
            pool = None if found is None else found.frame.plan.pooled.get(found.node)
            if found is not None and pool is not None and found.phase is Phase.QUEUED:
                found.frame.queue.remove(found)
                pools.line_up(run, found, pool)


def _move_breakpoints(run: RunState, names: Renames) -> None:
    """Make the run pause at the new names of its breakpoints."""
    stops = run.breakpoints
    if stops is not None:
        before, after = (frozenset(map(names.path, one)) for one in (stops.before, stops.after))
        run.breakpoints = structs.replace(stops, before=before, after=after, at=names.path(stops.at))


def _move_counters(run: RunState, names: Renames, plan: Plan) -> None:
    """Keep the counts of nodes and edges that also exist in the new version, under their new names."""
    before, run.counters = run.counters, defaultdict(FrameCounters)
    for place, old in before.items():
        new = run.counters[names.place(place)]
        for node, visits in old.visits.items():
            new.visits[names.node(place, node)] += visits
        for node, seconds in old.busy.items():
            new.busy[names.node(place, node)] += seconds
        edges = moved_edges(names, place, plan_at(run.plan, place), plan_at(plan, names.place(place)))
        for index, taken in old.taken.items():
            if index in edges:
                new.taken[edges[index]] += taken


def plan_at(plan: Plan | None, place: str) -> Plan | None:
    """Return the plan of the graph at a path; None if there is none."""
    for name in place.split("/") if place else ():
        plan = plan.sub.get(name) if plan is not None else None
    return plan


def moved_edges(names: Renames, place: str, old: Plan | None, new: Plan | None) -> dict[int, int]:
    """Return number of an edge -> its number in the new version, for edges in both.

    Args:
        names: the renames.
        place: the old path of the graph.
        old: its plan.
        new: its plan in the new version.
    """
    if old is None or new is None:
        return {}
    numbers = {(edge.source, edge.target, edge.outcome, edge.each): index for index, edge in enumerate(new.edges)}
    found: dict[int, int] = {}
    for index, edge in enumerate(old.edges):
        each = None if edge.each is None else names.state_field(place, edge.each)
        key = (names.node(place, edge.source), names.node(place, edge.target), edge.outcome, each)
        if key in numbers:
            found[index] = numbers[key]
    return found


class _Mover:
    """One running graph as the data of a snapshot, with the names of the new version."""

    def __init__(self, run: RunState, record: Migrated, names: Renames, frame: FrameState, plan: Plan) -> None:
        self.run, self.record, self.names, self.frame, self.new = run, record, names, frame, plan
        self.place = frame.place
        self.given: JsonObject = _given(record, frame)
        self.withdrawn = frozenset(record.withdrawn)
        self.kept = {token.key: token.kept for token in all_tokens(frame) if token.kept is not None}
        """Activation of a subgraph's node -> the failed graph inside it."""

    def data(self) -> Data:
        """Return the graph as data that can be read with the plan of the new version."""
        frame, data = self.frame, dump_frame(self.frame)
        own_limits = frame.parent is None and frame.limits != frame.plan.limits
        if not own_limits:
            data["limits"] = self.new.limits.model_dump(mode="json")
        data["visits"] = {self._node(node): count for node, count in data["visits"].items()}
        data["once"] = sorted(map(self._node, data["once"]))
        if "interrupting" in data:
            data["interrupting"] = self._node(data["interrupting"])
        for version in data["versions"]:
            self._move_version(version)
        for fork in data["forks"]:
            fork["fork"], fork["below"] = self._vertex(fork["fork"]), [self._vertex(one) for one in fork["below"]]
            if "passed" in fork:
                fork["passed"] = self._passed(fork["fork"], fork["passed"])
        for group in data["groups"]:
            if group["target"] is not None:
                target = self.record.joins.get(inside(self.place, group["target"]), self._node(group["target"]))
                group["target"] = None if target is None else target.rpartition("/")[2]
        parts = [data, *(data[part] for part in ("frozen", "before_limit") if part in data)]
        for part in parts:
            queue = deque(part["queue"])
            for token in part["tokens"]:
                self._move_token(token, data["forks"], queue)
            part["queue"] = list(queue)
        self._set_arrivals(data, [token for part in parts for token in part["tokens"]])
        if data["result"] is not None:
            data["result"]["values"] = self._values(data["result"]["values"])
        return data

    def whole_data(self) -> Data:
        """Return the data of a graph that is not running, whose state nothing completes.

        Raises:
            LookupError: a field of the new version has no value.
        """
        data = self.data()
        states = [version["values"] for version in data["versions"] if "values" in version]
        for values in (*states, *(() if data["result"] is None else (data["result"]["values"],))):
            missing = self.new.schema.fields.keys() - values.keys()
            if missing:
                raise LookupError(f"{self.frame.path}: no values for {sorted(missing)}")
        return data

    def _node(self, name: str) -> str:
        return self.names.node(self.place, name)

    def _vertex(self, name: str) -> str:
        return self.names.vertex(self.place, name, self.frame.plan.topology, self.new.topology)

    # -- values --------------------------------------------------------------------------------------------------

    def _values(self, values: JsonObject, given: JsonObject | None = None) -> dict[str, object]:
        """Return all values of a state in the new version: those kept, under their new names, and those given for new
        fields.
        """
        found = self._renamed(values)
        return {**found, **(self.given if given is None else given)}

    def _renamed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the fields that the new version still has, under their new names."""
        known = self.new.schema.fields
        named = {self.names.state_field(self.place, name): value for name, value in values.items()}
        return {name: value for name, value in named.items() if name in known}

    def _move_version(self, version: Data) -> None:
        if "values" in version:
            version["values"] = self._values(version["values"])
        elif "update" in version:
            for part in ("update", "ops", "reduced"):
                if version[part]:
                    moved = self._renamed(version[part])
                    version[part] = {name: value for name, value in moved.items() if name not in self.given}
        elif "hidden" in version:
            version["hidden"] = self._renamed(version["hidden"])
        else:
            local = self._renamed(version["local"])
            version["local"] = {**local, **{name: self.given[name] for name in self.new.local if name in self.given}}

    def _passed(self, fork: str, passed: Mapping[str, list[str]]) -> dict[str, list[str]]:
        """Return the joins that fired without all branches, if the fork still has them, and the fields they merged.

        This does not change, whatever the new version declares for the other branches: the joins must not fire again.
        """
        known = self.new.topology.joins_of(fork)
        found: dict[str, list[str]] = {}
        for join, fields in passed.items():
            target = self.record.joins.get(inside(self.place, join), self._node(join))
            name = None if target is None else target.rpartition("/")[2]
            if name in known:
                found[str(name)] = [*self._renamed(dict.fromkeys(fields))]
        return found

    # -- tokens --------------------------------------------------------------------------------------------------

    def _move_token(self, token: Data, forks: list[Data], queue: deque[str]) -> None:
        node, key = token["node"], token["key"]
        token["node"] = self._node(node)
        if token["node"] not in self.new.nodes:
            raise LookupError(f"the new version has no node {token['node']!r}")
        token["stack"] = [
            [self._vertex(vertex), item, self.names.state_field(self.place, name)]
            for vertex, item, name in token["stack"]
        ]
        if token["child"] is not None:
            token["child"]["values"] = self._inner(node, token)
        if "late" in token:
            self._move_landing(token["late"])
        kept = self.kept.get(key)
        if kept is not None:
            inner = self.new.sub[token["node"]]
            token["kept"] = _Mover(self.run, self.record, self.names, kept, inner).whole_data()
        if key in self.withdrawn:
            if token["phase"] == "asking":
                token["phase"] = "queued"
                queue.append(key)
            token["answers"] = []
            token["withdrawn"] = token.get("withdrawn", 0) + 1
        waits = self._waits(token, forks)
        if token["phase"] == "waiting" and not waits:
            token["phase"] = "queued"
            queue.append(key)
        elif token["phase"] == "queued" and waits and not token["flags"][1] and not token["flags"][2]:
            token["phase"] = "waiting"
            queue.remove(key)

    def _move_landing(self, record: Data) -> None:
        """Move the record of a step that ended after it had been stopped."""
        record["node"] = self._node(record["node"])
        for part in ("update", "ops", "reduced"):
            if record.get(part):
                moved = self._renamed(record[part])
                record[part] = {name: value for name, value in moved.items() if name not in self.given}

    def _waits(self, token: Data, forks: list[Data]) -> bool:
        """Return True if a token at this place waits there: at a join of one of its open forks."""
        fork = self.new.topology.match.get(token["node"])
        return fork is not None and any(forks[number]["fork"] == fork for number in token["forks"])

    def _inner(self, node: str, token: Data) -> dict[str, object]:
        """Return the final state of the graph inside a subgraph's node."""
        plan, place = self.new.sub[token["node"]], inside(self.place, node)
        known = plan.schema.fields
        named = {self.names.state_field(place, name): value for name, value in token["child"]["values"].items()}
        kept = {name: value for name, value in named.items() if name in known}
        return {**kept, **self.record.inside.get(token["key"], {})}

    def _set_arrivals(self, data: Data, moved: Sequence[Data]) -> None:
        """Set the tokens that wait at each join, in the order in which they arrived."""
        order = [key for fork in data["forks"] for keys in fork["arrivals"].values() for key in keys]
        tokens = {token["key"]: token for token in moved}
        order += [key for key in tokens if key not in order]
        for fork in data["forks"]:
            fork["arrivals"] = {}
        for key in order:
            token = tokens[key]
            if token["phase"] != "waiting":
                continue
            wanted = self.new.topology.match[token["node"]]
            entry = next(data["forks"][number] for number in token["forks"] if data["forks"][number]["fork"] == wanted)
            entry["arrivals"].setdefault(token["node"], []).append(key)


def _given(record: Migrated, frame: FrameState) -> JsonObject:
    """Return the values that the record sets in the state of a graph."""
    if frame.parent is None:
        return record.values or {}
    return cast("JsonObject", record.inside.get(frame.parent.key, {}))
