"""A run's state as plain JSON, and back: a cache of a fold, never its replacement.

Versions are written by their origin (an update, a merge), not as states, so the size of a snapshot depends on the live
tokens and not on the product of branches and state. `load(plan, dump(run))` continues exactly as `run` would.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple
from typing import Any, TypeAlias, cast

from pydantic_core import to_json, to_jsonable_python

from orchestrator.graph.limits import Limits, Reserve, Usage
from orchestrator.graph.state import StateSchema
from orchestrator.kernel import records as r
from orchestrator.kernel import tokens
from orchestrator.kernel.event_queue import EventQueue, bits_of, text_of
from orchestrator.kernel.frame import new_frame
from orchestrator.kernel.ledger import EffectEntry, Tally, Totals
from orchestrator.kernel.merge import merge
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import busy_seconds, edges_taken, node_visits
from orchestrator.kernel.question import Question
from orchestrator.kernel.run_state import RunState
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
from orchestrator.kernel.version import FIRST, ROOT, Path, Rank, Version

Data: TypeAlias = dict[str, Any]

FORMAT = 12
"""The number of the format. A snapshot of another format is not read: the records are folded instead."""

RUN_FIELDS = (
    "head", "approve", "paused", "cancelled", "diverged", "diverged_because", "steps", "seconds", "updated", "content",
    "tools", "calls", "input_tokens", "output_tokens", "cached_tokens", "written_tokens", "cache_savings", "cost",
    "estimated", "was_running", "longest_reply", "costliest_call",
)  # fmt: skip
"""Fields of `RunState`."""

FRAME_FIELDS = (
    "calls", "tokens", "active", "cost", "began", "exhausting", "after_limit", "may_drop_history", "raised",
    "spent_name", "timed_from", "parent_dropped", "irreversible", "reserved_calls", "reserved_cost", "reserved_tokens",
)  # fmt: skip
"""Fields of `FrameState`, beside its steps."""


def dump(run: RunState) -> Data:
    """Return a run's state as plain JSON.

    Raises:
        ValueError: the run has not started.
    """
    if run.root is None or run.started is None:
        raise ValueError("a run without records cannot have a snapshot")
    frames = list(run.frames())
    return {
        "format": FORMAT,
        "plain": {name: getattr(run, name) for name in RUN_FIELDS},
        "lineage": [list(pair) for pair in run.lineage],
        "started": _record(run.started),
        "ended": None if run.ended is None else _record(run.ended),
        **_fork(run),
        "visits": [[place, node, count] for (place, node), count in node_visits(run).items()],
        "taken": [[place, index, count] for (place, index), count in edges_taken(run).items()],
        "busy": [[place, node, seconds] for (place, node), seconds in busy_seconds(run).items()],
        "questions": [question.model_dump(mode="json") for question in run.questions.values()],
        "asked_at": {name: at for name, at in run.asked_at.items() if name in run.questions},
        "asked_ts": {name: ts for name, ts in run.asked.items() if name in run.questions},
        "totals": _totals(run.totals),
        "asked": [[question, token.key] for question, token in run.askers.items()],
        **({"events": _events(run.events)} if run.events.count else {}),
        **_breakpoints(run),
        **({} if run.latest_refs is None else {"refs": dict(run.latest_refs)}),
        **_pools(run),
        "running": list(run.running),
        "ready": [frame.key for frame in run.ready_frames.values()],
        "spent": [frame.key for frame in run.exhausting_frames],
        "parts": list(run.ledger.parts),
        "effects": [_effect_json(entry) for entry in run.ledger.entries()],
        "failed_effects": [_effect_json(entry) for entry in run.ledger.failed_entries()],
        "held": [[key, reserve.model_dump(mode="json")] for key, reserve in run.reserves.items()],
        "frames": [dump_frame(frame) for frame in frames],
    }


def _fork(run: RunState) -> Data:
    """Return the part that only the snapshot of a fork contains."""
    if not run.forks:
        return {}
    inherited, saved = (one.model_dump(mode="json") for one in (run.inherited, run.saved))
    return {"forked": [_record(fork) for fork in run.forks], "inherited": inherited, "saved": saved}


def _totals(totals: Totals) -> Data:
    tallies = [[*place, *astuple(tally)] for place, tally in totals.tallies.items()]
    under_way = {key: list(place) for key, place in totals.under_way.items()}
    return {"tallies": tallies, "under_way": under_way, "working": {k: list(w) for k, w in totals.working.items()}}


def _breakpoints(run: RunState) -> Data:
    stops = run.breakpoints
    if stops is None:
        return {}
    named = {"before": sorted(stops.before), "after": sorted(stops.after), "passed": sorted(stops.passed)}
    return {"breakpoints": {**named, "at": stops.at}}


def _pools(run: RunState) -> Data:
    """Return the holders of places in pools, and the tokens that wait, as pairs: stores sort the keys of mappings."""
    places = [[pool, sorted(keys)] for pool, keys in run.places.items()]
    lines = [[pool, list(line)] for pool, line in run.lines.items()]
    return {**({"places": places} if places else {}), **({"lines": lines} if lines else {})}


def dump_frame(frame: FrameState) -> Data:
    """Return one running graph as plain JSON."""
    return _SnapshotWriter(frame).data()


def _events(events: EventQueue) -> Data:
    return {"kept": events.rows(), "ids": dict(events.ids), "count": events.count}


def _record(record: r.Record) -> Data:
    return cast(Data, json.loads(r.encode(record)))


def _effect_json(entry: EffectEntry) -> list[Data | int | None]:
    inside = entry.inner_usage
    return [
        _record(entry.intended),
        None if entry.settled is None else _record(entry.settled),
        None if inside is None else inside.model_dump(mode="json", exclude_defaults=True),
        entry.began,
    ]


class _SnapshotWriter:
    """Writes one frame, with its shared objects numbered in tables."""

    def __init__(self, frame: FrameState) -> None:
        self.frame = frame
        self.versions: list[Data] = []
        self.paths: list[list[int | str]] = []
        self.ranks: list[list[int | bool | None]] = []
        self.forks: list[Data] = []
        self.maps: list[Data] = []
        self.known: dict[int, int] = {id(ROOT): -1, id(FIRST): -1}

    def data(self) -> Data:
        frame = self.frame
        tokens = [self._token(token) for token in frame.live.values()]
        frozen, before_limit = self._frozen(frame.frozen), self._frozen(frame.before_limit)
        result = frame.result
        return {
            "key": frame.key,
            "parent": None if frame.parent is None else frame.parent.key,
            "counts": {"steps": frame.steps, **{name: getattr(frame, name) for name in FRAME_FIELDS}},
            "visits": frame.visits,
            "once": sorted(frame.visited_after_limit),
            **({"interrupting": frame.interrupting} if frame.interrupting else {}),
            **({"entered": sorted(frame.entered)} if frame.entered else {}),
            "limits": frame.limits.model_dump(mode="json"),
            "spent": None if frame.spent_limit is None else frame.spent_limit.model_dump(mode="json"),
            "root": self._version(frame.root),
            "ended": [self._version(version) for version in frame.ended_versions],
            "tokens": tokens,
            "queue": [token.key for token in frame.queue],
            **({} if frozen is None else {"frozen": frozen}),
            **({} if before_limit is None else {"before_limit": before_limit}),
            "groups": self.maps,
            "forks": self.forks,
            "versions": self.versions,
            "paths": self.paths,
            "ranks": self.ranks,
            "result": None if result is None else _result(frame.plan, result),
        }

    def _frozen(self, frozen: FrozenTokens | None) -> Data | None:
        if frozen is None:
            return None
        return {
            "tokens": [self._token(token) for token in frozen.live.values()],
            "queue": [token.key for token in frozen.queue],
            "ended": [self._version(version) for version in frozen.ended_versions],
        }

    def _path(self, path: Path) -> int:
        line: list[Path] = []
        step: Path | None = path
        while step is not None and id(step) not in self.known:
            line.append(step)
            step = step.parent
        for one in reversed(line):
            assert one.parent is not None
            self.paths.append([self.known[id(one.parent)], one.fork, one.index])
            self.known[id(one)] = len(self.paths) - 1
        return self.known[id(path)]

    def _rank(self, rank: Rank) -> int:
        """Return the number of a rank; the oldest items of its list have the lowest numbers."""
        line: list[Rank] = []
        step: Rank | None = rank
        while step is not None and id(step) not in self.known:
            line.append(step)
            step = step.joined
        for one in reversed(line):
            joined = None if one.joined is None else self.known[id(one.joined)]
            self.ranks.append([self._path(one.path), joined, one.closed])
            self.known[id(one)] = len(self.ranks) - 1
        return self.known[id(rank)]

    def _version(self, version: Version) -> int:
        stack = [version]
        while stack:
            one = stack[-1]
            missing = [parent for parent in one.parents if id(parent) not in self.known]
            if id(one) in self.known:
                stack.pop()
            elif missing:
                stack.extend(missing)
            else:
                stack.pop()
                self._write_version(one)
        return self.known[id(version)]

    def _write_version(self, version: Version) -> None:
        schema = self.frame.plan.schema
        rank, parents = self._rank(version.rank), [self.known[id(parent)] for parent in version.parents]
        entry: Data = {"key": version.key, "node": version.node, "rank": rank, "parents": parents}
        if version.update is not None:
            entry["update"], entry["ops"] = dict(version.update), dict(version.ops or {})
            names = [name for name in version.update if not schema.fields[name].portable]
            entry["reduced"] = schema.reduced(version.values, names, checked=False) if names else None
        elif version.hidden is not None:
            entry["hidden"] = _shown(schema, version, version.hidden)
        elif version.parents:
            entry["local"] = _shown(schema, version, self.frame.plan.local)
        else:
            entry["values"] = schema.show(version.values)
        if version.taken:
            entry["taken"] = text_of(version.taken)
        self.versions.append(entry)
        self.known[id(version)] = len(self.versions) - 1

    def _fork(self, fork: OpenFork) -> int:
        if id(fork) not in self.known:
            entry: Data = {
                "fork": fork.fork,
                "below": sorted(fork.scope.below),
                "key": fork.key,
                "rank": self._rank(fork.rank),
                "left": fork.left,
                "version": self._version(fork.version),
                "trunk": self._version(fork.trunk),
                "arrivals": {join: [token.key for token in tokens] for join, tokens in fork.arrivals.items()},
                **({"passed": {join: sorted(names) for join, names in fork.passed.items()}} if fork.passed else {}),
            }
            self.forks.append(entry)
            self.known[id(fork)] = len(self.forks) - 1
        return self.known[id(fork)]

    def _item(self, item: MapItem) -> list[int]:
        ordered_map = item.ordered_map
        if id(ordered_map) not in self.known:
            self.known[id(ordered_map)] = len(self.maps)
            entry: Data = {"target": ordered_map.target, "fork": self._fork(item.fork)}
            entry["forks"] = [self._fork(fork) for fork in ordered_map.forks]
            self.maps.append(entry)
            entry["dependents"] = [[need, users] for need, users in ordered_map.dependents.items()]
            entry["merged"] = [[list(needs), self._version(v)] for needs, v in ordered_map.merged.items()]
            entry["cells"] = [
                {
                    "needs": list(one.needs),
                    "missing": one.missing,
                    "started": one.started,
                    "done": one.done,
                    "ended": [self._version(version) for version in one.ended],
                    "versions": [self._version(version) for version in one.versions],
                    **({"late": [self._version(version) for version in one.late]} if one.late else {}),
                }
                for one in ordered_map.items
            ]
        return [self.known[id(ordered_map)], item.index]

    def _token(self, token: Activation) -> Data:
        return {
            "key": token.key,
            "node": token.node,
            "phase": token.phase.value,
            "version": self._version(token.version),
            "rank": self._rank(token.rank),
            "forks": [self._fork(fork) for fork in token.forks],
            "stack": [[vertex, to_jsonable_python(item), name] for vertex, item, name in token.stack],
            "cells": [self._item(item) for item in token.map_items],
            "attempt": token.attempt,
            "not_before": token.not_before,
            "pause": token.backoff,
            "answers": [_record(answer) for answer in token.answers.values()],
            **({"withdrawn": token.withdrawn} if token.withdrawn else {}),
            **({"took": text_of(token.took)} if token.took else {}),
            "error": None if token.error is None else token.error.model_dump(mode="json"),
            "fault": None if token.fault is None else token.fault.model_dump(mode="json"),
            "flags": [token.opened, token.counted, token.merged],
            "child": self._child(token),
            **({"failed": True} if token.failed else {}),
            **({"late": _record(token.late)} if token.late is not None else {}),
            **({"kept": _SnapshotWriter(token.kept).data()} if token.kept is not None else {}),
            **({"spent_inside": True} if token.spent_inside else {}),
            **({"asked_before": sorted(token.asked_before)} if token.asked_before else {}),
            **({"timers": dict(token.timers)} if token.timers else {}),
            **({"reopened": token.reopened} if token.reopened else {}),
        }

    def _child(self, token: Activation) -> Data | None:
        plan = self.frame.plan.sub.get(token.node)
        return None if token.child is None or plan is None else _result(plan, token.child)


def _shown(schema: StateSchema, version: Version, names: Collection[str]) -> Data:
    return dict(schema.show({name: value for name, value in version.values.items() if name in names}))


def _result(plan: Plan, result: FrameResult) -> Data:
    error = None if result.error is None else result.error.model_dump(mode="json")
    values = plan.schema.show(result.values)
    taken = {"taken": text_of(result.taken)} if result.taken else {}
    entered = {"entered": list(result.entered)} if result.entered else {}
    plain = {"status": result.status, "values": values, "error": error, "lasting": result.irreversible}
    return {**plain, **taken, **entered}


def load(plan: Plan, data: Mapping[str, Any]) -> RunState:
    """Return the state that a snapshot contains.

    Raises:
        ValueError: the snapshot has another format; fold the records instead.
    """
    if data.get("format") != FORMAT:
        raise ValueError(
            f"the snapshot has format {data.get('format')!r}, but this version reads {FORMAT}; fold the records"
        )
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
            before=frozenset(stops["before"]),
            after=frozenset(stops["after"]),
            at=stops["at"],
            passed=frozenset(stops["passed"]),
        )
    run.latest_refs = data.get("refs")
    events = data.get("events")  # only for runs that received events
    if events is not None:
        run.events = EventQueue.restored(events["kept"], events["ids"], events["count"])
    run.reserves = {key: Reserve.model_validate(reserve) for key, reserve in data["held"]}
    failed = [_effect(*entry) for entry in data["failed_effects"]]
    run.ledger.restore([_effect(*entry) for entry in data["effects"]], data["parts"], failed)
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
    """Return `RunState.lineage` of a snapshot: its last graph is the one to load the snapshot with."""
    return tuple((structure, content) for structure, content in data["lineage"])


def load_frames(run: RunState, plan: Plan, data: Iterable[Data]) -> tuple[dict[str, FrameState], dict[str, Activation]]:
    """Give a run the running graphs from a snapshot.

    Args:
        run: the run.
        plan: the plan of its own graph.
        data: the graphs, each after the one around it.

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
    """Reads one frame from its tables."""

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
        frame.counted_steps = data["counts"]["steps"]
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
        """Return the tokens that were set aside, if any; forks and maps count them as live until they are put back."""
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
            # Always a merge of its parents: a version of one parent without an update restores fields.
            local = schema.decode(entry["local"])
            merged = merge(schema, parents, key=entry["key"], local=local)
            return Version(merged.values, parents=parents, key=entry["key"], node=entry["node"], rank=rank)
        values = schema.apply(parents[0].values, entry["update"], entry["ops"])
        if entry["reduced"]:
            values = {**values, **(entry["reduced"] if schema.cls is None else schema.decode(entry["reduced"]))}
        return Version(
            values,
            parents=parents,
            key=entry["key"],
            node=entry["node"],
            rank=rank,
            update=entry["update"],
            ops=entry["ops"],
            taken=taken,
        )

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
        # A migration may have removed the field from which a map took its items: they stay JSON.
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
