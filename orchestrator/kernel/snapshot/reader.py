"""Reads snapshots."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic_core import to_json

from orchestrator.graph.limits import Limits, Reserve, Usage
from orchestrator.kernel import records as r
from orchestrator.kernel import tokens
from orchestrator.kernel.event_queue import EventQueue, bits_of
from orchestrator.kernel.frame import new_frame
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.merge import merge
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Question
from orchestrator.kernel.rank import FIRST, ROOT, Path, Rank
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot.format import FORMAT, FRAME_FIELDS, RUN_FIELDS, Data
from orchestrator.kernel.state import (
    Activation,
    Breakpoints,
    FrameResult,
    FrameState,
    FrozenTokens,
    MapItem,
    OpenFork,
    OrderedMap,
    Phase,
)
from orchestrator.kernel.totals import Tally
from orchestrator.kernel.version import Version


def load(plan: Plan, data: Mapping[str, Any]) -> RunState:
    """The state that a snapshot was taken of.

    Raises:
        ValueError: the snapshot has another format; fold the records instead.
    """
    if data.get("format") != FORMAT:
        raise ValueError(f"snapshot format {data.get('format')!r}, this version reads {FORMAT}; fold the records")
    run = RunState(plan)
    for name in RUN_FIELDS:
        setattr(run, name, data["plain"][name])
    run.started = _decode(data["started"])
    run.lineage = lineage_of(data)
    run.ended = None if data["ended"] is None else _decode(data["ended"])
    if "forked" in data:
        run.forks = tuple(_decode(one) for one in data["forked"])
        run.inherited = Usage.model_validate(data["inherited"])
        run.saved = Usage.model_validate(data.get("saved", {}))
    for place, node, count in data["visits"]:
        run.counters[place].visits[node] = count
    for place, index, count in data["taken"]:
        run.counters[place].taken[index] = count
    for place, node, seconds in data["busy"]:
        run.counters[place].busy[node] = seconds
    run.questions = {q["id"]: Question.model_validate(q) for q in data["questions"]}
    run.asked_at = dict(data.get("asked_at") or {})
    run.asked = dict(data["asked_ts"])
    totals = data["totals"]
    for node, kind, name, *tally in totals["tallies"]:
        run.totals.tallies[node, kind, name] = Tally(*tally)
    run.totals.under_way = {key: (node, kind, name) for key, (node, kind, name) in totals["under_way"].items()}
    run.totals.working = {key: (node, seconds) for key, (node, seconds) in totals["working"].items()}
    stops = data.get("breakpoints")
    if stops is not None:
        run.breakpoints = Breakpoints(
            before=frozenset(stops["before"]), after=frozenset(stops["after"]), at=stops["at"],
            passed=frozenset(stops["passed"]),
        )  # fmt: skip
    run.latest_refs = data.get("refs")
    events = data.get("events")  # only of runs that received any
    if events is not None:
        run.events = EventQueue.restored(events["kept"], events["ids"], events["count"])
    run.reserves = {key: Reserve.model_validate(reserve) for key, reserve in data["held"]}
    failed = [_effect(*entry) for entry in data["failed_effects"]]
    run.ledger.restore([_effect(*entry) for entry in data["effects"]], data["messages"], failed)
    frames, live = load_frames(run, plan, data["frames"])
    assert run.root is not None
    run.result = run.root.result
    run.running = {key: live[key] for key in data["running"]}
    run.askers = {question: live[key] for question, key in data["asked"]}
    run.places = {pool: set(keys) for pool, keys in data.get("places", ())}
    run.lines = {pool: OrderedDict((key, live[key]) for key in keys) for pool, keys in data.get("lines", ())}
    run.ready_frames = {key: frames[key] for key in data["ready"]}
    run.exhausting_frames = [frames[key] for key in data["spent"]]
    return run


def lineage_of(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """`RunState.lineage` of a snapshot: its last graph is the one to load the snapshot in."""
    return tuple((structure, content) for structure, content in data["lineage"])


def load_frames(run: RunState, plan: Plan, data: Iterable[Data]) -> tuple[dict[str, FrameState], dict[str, Activation]]:
    """Give a run the running graphs that were written.

    Args:
        run: the run.
        plan: the plan of its own graph.
        data: the graphs, each behind the one around it.

    Returns:
        The graphs by key, and their tokens by activation.
    """
    live: dict[str, Activation] = {}
    frames: dict[str, FrameState] = {}
    run.inner_frames = {}
    for entry in data:
        parent = None if entry["parent"] is None else live[entry["parent"]]
        frame = _SnapshotReader(
            run, plan if parent is None else parent.frame.plan.sub[parent.node], entry, parent
        ).frame
        frames[frame.key] = frame
        live.update(frame.live)
        if parent is None:
            run.root = frame
        else:
            run.inner_frames[parent.key] = frame
    return frames, live


def _decode(data: Data) -> Any:
    return r.decode(to_json(data))


def _effect(intended: Data, settled: Data | None, inside: Data | None, began: int) -> EffectEntry:
    return EffectEntry(
        _decode(intended),
        None if settled is None else _decode(settled),
        began,
        None if inside is None else Usage.model_validate(inside),
    )


class _SnapshotReader:
    """One frame back from its tables."""

    def __init__(self, run: RunState, plan: Plan, data: Data, parent: Activation | None) -> None:
        self.run, self.plan, self.data = run, plan, data
        self.paths: list[Path] = []
        for up, fork, index in data["paths"]:
            self.paths.append(Path(self._path(up), fork, index))
        self.ranks: list[Rank] = []
        for number, joined, closed in data["ranks"]:
            self.ranks.append(Rank(self._path(number), None if joined is None else self._rank(joined), closed=closed))
        self.versions: list[Version] = []
        for entry in data["versions"]:
            self.versions.append(self._version(entry))
        root = self.versions[data["root"]]
        frame = self.frame = new_frame(run, plan, data["key"], root, parent)
        for name in FRAME_FIELDS:
            setattr(frame, name, data["counts"][name])
        frame.visits, frame.visited_after_limit = dict(data["visits"]), set(data["once"])
        frame.interrupting = data.get("interrupting", "")
        frame.entered = set(data.get("entered", ()))
        frame.limits = Limits.model_validate(data["limits"])
        spent = data["spent"]
        frame.spent_limit = None if spent is None else r.Failure.model_validate(spent)
        frame.ended_versions = [self.versions[i] for i in data["ended"]]
        self.forks = [self._fork(entry) for entry in data["forks"]]
        self.maps = [self._map(entry) for entry in data["groups"]]
        frame.frozen = self._frozen(data.get("frozen"))
        frame.before_limit = self._frozen(data.get("before_limit"))
        for entry in data["tokens"]:
            self._token(entry)
        known = dict(frame.live)
        for part in (frame.frozen, frame.before_limit):
            known |= {} if part is None else part.live
        for fork, entry in zip(self.forks, data["forks"], strict=True):
            fork.arrivals = {join: [known[key] for key in keys] for join, keys in entry["arrivals"].items()}
        frame.queue.extend(frame.live[key] for key in data["queue"])
        frame.touched_joins.clear()
        frame.touched_items.clear()
        if data["result"] is not None:
            frame.result = self._result(plan, data["result"])

    def _frozen(self, data: Data | None) -> FrozenTokens | None:
        """Tokens that were set aside; forks and items of maps count them as live ones until they are put back."""
        if data is None:
            return None
        frame = self.frame
        for entry in data["tokens"]:
            token = self._token(entry)
            if token.phase is Phase.RUNNING and not token.failed and token.late is None:
                self.run.stopped[token.key] = token
        live, frame.live = frame.live, {}
        return FrozenTokens(live, deque(live[key] for key in data["queue"]), [self.versions[i] for i in data["ended"]])

    def _path(self, number: int) -> Path:
        return ROOT if number < 0 else self.paths[number]

    def _rank(self, number: int) -> Rank:
        return FIRST if number < 0 else self.ranks[number]

    def _version(self, entry: Data) -> Version:
        schema = self.plan.schema
        parents = tuple(self.versions[i] for i in entry["parents"])
        rank, taken = self._rank(entry["rank"]), bits_of(entry.get("taken"))
        if "values" in entry:
            return Version(schema.decode(entry["values"]), key=entry["key"], node=entry["node"], rank=rank, taken=taken)
        if "hidden" in entry:
            values = {**parents[0].values, **schema.decode(entry["hidden"])}
            return Version(values, parents=parents, key=entry["key"], hidden=frozenset(entry["hidden"]))
        if "update" not in entry:
            # Always a merge of what it was: a version of one parent that updates nothing gives fields back.
            local = schema.decode(entry["local"])
            merged = merge(schema, parents, key=entry["key"], local=local)
            return Version(merged.values, parents=parents, key=entry["key"], node=entry["node"], rank=rank)
        values = schema.apply(parents[0].values, entry["update"], entry["ops"])
        if entry["reduced"]:
            values = {**values, **(entry["reduced"] if schema.cls is None else schema.decode(entry["reduced"]))}
        return Version(
            values, parents=parents, key=entry["key"], node=entry["node"], rank=rank, update=entry["update"],
            ops=entry["ops"], taken=taken,
        )  # fmt: skip

    def _fork(self, entry: Data) -> OpenFork:
        scope = self.plan.topology.scope(entry["fork"], frozenset(entry["below"]))
        fork = OpenFork(scope, entry["key"], self._rank(entry["rank"]), self.versions[entry["version"]])
        fork.left = entry["left"]
        fork.trunk = self.versions[entry["trunk"]]
        fork.passed = {join: frozenset(names) for join, names in entry.get("passed", {}).items()}
        self.frame.passes |= bool(fork.passed)
        return fork

    def _map(self, entry: Data) -> OrderedMap:
        ordered_map = OrderedMap(entry["target"], tuple(self.forks[number] for number in entry["forks"]))
        ordered_map.dependents = {need: list(users) for need, users in entry["dependents"]}
        ordered_map.merged = {tuple(needs): self.versions[number] for needs, number in entry["merged"]}
        for index, one in enumerate(entry["cells"]):
            item = MapItem(ordered_map, index, tuple(one["needs"]), self.forks[entry["fork"]])
            item.missing, item.started, item.done = one["missing"], one["started"], one["done"]
            item.ended = [self.versions[i] for i in one["ended"]]
            item.versions = [self.versions[i] for i in one["versions"]]
            item.late = [self.versions[i] for i in one.get("late", ())]
            ordered_map.items.append(item)
        return ordered_map

    def _token(self, entry: Data) -> Activation:
        schema = self.plan.schema
        # A migration may have removed the field that a map took its items from: they stay JSON.
        stack = tuple(
            (vertex, schema.decode({name: [item]}).get(name, [item]), name) for vertex, item, name in entry["stack"]
        )
        token = Activation(
            self.frame,
            entry["key"],
            entry["node"],
            self.versions[entry["version"]],
            self._rank(entry["rank"]),
            tuple(self.forks[i] for i in entry["forks"]),
            tuple((vertex, cast("list[object]", items)[0], name) for vertex, items, name in stack),
            tuple(self.maps[number].items[index] for number, index in entry["cells"]),
        )
        token.phase = Phase(entry["phase"])
        token.attempt, token.not_before = entry["attempt"], entry["not_before"]
        token.backoff = entry.get("pause")
        if entry["answers"]:
            token.answers = {answer["question"]: _decode(answer) for answer in entry["answers"]}
        if "withdrawn" in entry:
            token.withdrawn = entry["withdrawn"]
        token.took = bits_of(entry.get("took"))
        token.error = None if entry["error"] is None else r.Failure.model_validate(entry["error"])
        token.fault = None if entry["fault"] is None else r.Failure.model_validate(entry["fault"])
        token.opened, token.counted, token.merged = entry["flags"]
        if entry["child"] is not None:
            token.child = self._result(self.plan.sub[token.node], entry["child"])
        if token.phase is Phase.PENDING:
            member = token.map_items[-1]
            member.ordered_map.pending[member.index] = token
        self._set_frozen_facts(token, entry)
        tokens.add(self.run, token)
        return token

    def _set_frozen_facts(self, token: Activation, entry: Data) -> None:
        token.failed, token.spent_inside = entry.get("failed", False), entry.get("spent_inside", False)
        token.reopened = entry.get("reopened", 0)
        if "asked_before" in entry:
            token.asked_before = frozenset(entry["asked_before"])
        if "timers" in entry:
            token.timers = dict(entry["timers"])
        if "late" in entry:
            token.late = _decode(entry["late"])
        if "kept" in entry:
            token.kept = _SnapshotReader(self.run, self.plan.sub[token.node], entry["kept"], token).frame
        if token.phase is Phase.PARKED and not token.failed and token.late is None:
            self.run.stopped[token.key] = token

    def _result(self, plan: Plan, entry: Data) -> FrameResult:
        error = None if entry["error"] is None else r.Failure.model_validate(entry["error"])
        values, taken = plan.schema.decode(entry["values"]), bits_of(entry.get("taken"))
        entered = tuple(entry.get("entered", ()))
        return FrameResult(entry["status"], values, error, entry["lasting"], taken, entered)
