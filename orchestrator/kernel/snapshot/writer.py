"""Writes snapshots."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import astuple
from typing import cast

from pydantic_core import to_jsonable_python

from orchestrator.graph.state import StateSchema
from orchestrator.kernel import records as r
from orchestrator.kernel.event_queue import EventQueue, text_of
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import busy_seconds, edges_taken, node_visits
from orchestrator.kernel.rank import FIRST, ROOT, Path, Rank
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot.format import FORMAT, FRAME_FIELDS, RUN_FIELDS, Data
from orchestrator.kernel.state import Activation, FrameResult, FrameState, FrozenTokens, MapItem, OpenFork
from orchestrator.kernel.totals import Totals
from orchestrator.kernel.version import Version


def dump(run: RunState) -> Data:
    """A run's state as plain JSON.

    Raises:
        ValueError: the run has not begun.
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
        "messages": run.ledger.messages(),
        "effects": [_effect(entry) for entry in run.ledger.entries()],
        "failed_effects": [_effect(entry) for entry in run.ledger.failed_entries()],
        "held": [[key, reserve.model_dump(mode="json")] for key, reserve in run.reserves.items()],
        "frames": [dump_frame(frame) for frame in frames],
    }


def _fork(run: RunState) -> Data:
    """What only the snapshot of a fork holds."""
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
    """Who holds a place in a pool, and who waits for one, as pairs: stores sort the keys of mappings."""
    places = [[pool, sorted(keys)] for pool, keys in run.places.items()]
    lines = [[pool, list(line)] for pool, line in run.lines.items()]
    return {**({"places": places} if places else {}), **({"lines": lines} if lines else {})}


def dump_frame(frame: FrameState) -> Data:
    """One running graph as plain JSON."""
    return _SnapshotWriter(frame).data()


def _events(events: EventQueue) -> Data:
    return {"kept": events.rows(), "ids": dict(events.ids), "count": events.count}


def _record(record: r.Record) -> Data:
    return cast(Data, json.loads(r.encode(record)))


def _effect(entry: EffectEntry) -> list[Data | int | None]:
    inside = entry.inner_usage
    return [
        _record(entry.intended),
        None if entry.settled is None else _record(entry.settled),
        None if inside is None else inside.model_dump(mode="json", exclude_defaults=True),
        entry.began,
    ]


class _SnapshotWriter:
    """One frame, its shared objects numbered in tables."""

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
            "counts": {name: getattr(frame, name) for name in FRAME_FIELDS},
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
        """The number of a rank; the oldest items of its list have the lowest ones."""
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
