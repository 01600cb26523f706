"""A machine as plain JSON, and back: a cache of a fold, never its replacement.

Versions are written as what made them (an update, a merge), not as states, so a snapshot grows with what is
live and not with the product of branches and state. `restore(plan, snapshot(machine))` continues exactly as
the machine would have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import to_jsonable_python

from orchestrator.graph.limits import Limits, Reserve, Usage
from orchestrator.kernel import records as r
from orchestrator.kernel.frame import Frame, FrameResult
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.machine import Machine
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Question
from orchestrator.kernel.rank import FIRST, ROOT, Path, Rank
from orchestrator.kernel.token import Activation, Cell, Group, OpenFork, Phase
from orchestrator.kernel.version import KeyedVersion, Version, merge

Data = dict[str, Any]

FORMAT = 7

_PLAIN = ("head", "approve", "paused", "cancelled", "steps", "seconds", "updated", "content", "tools", "_calls",
          "_input_tokens", "_output_tokens", "_cost", "_estimated", "_awake", "_longest",
          "_dearest")  # fmt: skip
_COUNTS = (
    "steps",
    "calls",
    "tokens",
    "active",
    "cost",
    "began",
    "exhausting",
    "after",
    "squashable",
    "parent_gone",
    "lasting",
    "held_calls",
    "held_cost",
    "held_tokens",
)


def snapshot(machine: Machine) -> Data:
    """The machine as plain JSON.

    Raises:
        ValueError: the machine has not begun.
    """
    if machine.root is None or machine.started is None:
        raise ValueError("a run without records has nothing to take a snapshot of")
    frames = list(machine.frames())
    return {
        "format": FORMAT,
        "plain": {name: getattr(machine, name) for name in _PLAIN},
        "started": _record(machine.started),
        "ended": None if machine.ended is None else _record(machine.ended),
        "visits": [[place, node, count] for (place, node), count in machine.visits.items()],
        "taken": [[place, index, count] for (place, index), count in machine.taken.items()],
        "busy": [[place, node, seconds] for (place, node), seconds in machine.busy.items()],
        "questions": [question.model_dump(mode="json") for question in machine.questions.values()],
        "asked_at": {name: at for name, at in machine.asked_at.items() if name in machine.questions},
        "asked": [[question, token.key] for question, token in machine._asked.items()],
        "running": list(machine.running),
        "ready": [frame.key for frame in machine._ready.values()],
        "spent": [frame.key for frame in machine._spent],
        "messages": machine.ledger.messages(),
        "effects": [
            [
                _record(entry.intended),
                None if entry.settled is None else _record(entry.settled),
                None if entry.inside is None else entry.inside.model_dump(mode="json", exclude_defaults=True),
            ]
            for entry in machine.ledger.entries()
        ],
        "held": [[key, reserve.model_dump(mode="json")] for key, reserve in machine._held.items()],
        "frames": [_Writer(frame).data() for frame in frames],
    }


def _record(record: r.Record) -> Data:
    return cast(Data, json.loads(r.encode(record)))


class _Writer:
    """One frame, its shared objects numbered in tables."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.versions: list[Data] = []
        self.paths: list[list[int | str]] = []
        self.ranks: list[list[int | bool | None]] = []
        self.forks: list[Data] = []
        self.groups: list[Data] = []
        self.known: dict[int, int] = {id(ROOT): -1, id(FIRST): -1}
        self.cells: dict[int, tuple[int, int]] = {}

    def data(self) -> Data:
        frame = self.frame
        tokens = [self._token(token) for token in frame.live.values()]
        result = frame.result
        return {
            "key": frame.key,
            "parent": None if frame.parent is None else frame.parent.key,
            "counts": {name: getattr(frame, name) for name in _COUNTS},
            "visits": frame.visits,
            "once": sorted(frame.once),
            "limits": frame.limits.model_dump(mode="json"),
            "spent": None if frame.spent is None else frame.spent.model_dump(mode="json"),
            "root": self._version(frame.root),
            "ended": [self._version(version) for version in frame.ended_versions],
            "tokens": tokens,
            "queue": [token.key for token in frame.queue],
            "groups": self.groups,
            "forks": self.forks,
            "versions": self.versions,
            "paths": self.paths,
            "ranks": self.ranks,
            "result": None if result is None else _result(frame.plan, result),
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
        entry: Data = {
            "key": version.key,
            "node": version.node,
            "rank": self._rank(version.rank),
            "parents": [self.known[id(parent)] for parent in version.parents],
        }
        if version.update is not None:
            entry["update"], entry["ops"] = dict(version.update), dict(version.ops or {})
            names = [name for name in version.update if not schema.fields[name].portable]
            entry["reduced"] = schema.reduced(version.values, names) if names else None
        elif version.parents:
            entry["local"] = {k: v for k, v in schema.dump(version.values).items() if k in self.frame.plan.local}
        else:
            entry["values"] = schema.dump(version.values)
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
            }
            self.forks.append(entry)
            self.known[id(fork)] = len(self.forks) - 1
        return self.known[id(fork)]

    def _cell(self, cell: Cell) -> list[int]:
        group = cell.group
        if id(group) not in self.known:
            self.known[id(group)] = len(self.groups)
            entry: Data = {"target": group.target, "fork": self._fork(cell.fork)}
            entry["forks"] = [self._fork(fork) for fork in group.forks]
            self.groups.append(entry)
            entry["dependents"] = [[need, users] for need, users in group.dependents.items()]
            entry["merged"] = [[list(needs), self._version(v)] for needs, v in group.merged.items()]
            entry["cells"] = [
                {
                    "needs": list(one.needs),
                    "missing": one.missing,
                    "started": one.started,
                    "done": one.done,
                    "ended": [self._version(version) for version in one.ended],
                    "versions": [self._version(version) for version in one.versions],
                }
                for one in group.cells
            ]
        return [self.known[id(group)], cell.index]

    def _token(self, token: Activation) -> Data:
        return {
            "key": token.key,
            "node": token.node,
            "phase": token.phase.value,
            "version": self._version(token.version),
            "rank": self._rank(token.rank),
            "forks": [self._fork(fork) for fork in token.forks],
            "stack": [[vertex, to_jsonable_python(item), name] for vertex, item, name in token.stack],
            "cells": [self._cell(cell) for cell in token.cells],
            "attempt": token.attempt,
            "not_before": token.not_before,
            "pause": token.pause,
            "answers": [_record(answer) for answer in token.answers.values()],
            **({"withdrawn": token.withdrawn} if token.withdrawn else {}),
            "error": None if token.error is None else token.error.model_dump(mode="json"),
            "fault": None if token.fault is None else token.fault.model_dump(mode="json"),
            "flags": [token.opened, token.counted, token.merged],
            "child": self._child(token),
        }

    def _child(self, token: Activation) -> Data | None:
        plan = self.frame.plan.sub.get(token.node)
        return None if token.child is None or plan is None else _result(plan, token.child)


def _result(plan: Plan, result: FrameResult) -> Data:
    error = None if result.error is None else result.error.model_dump(mode="json")
    values = plan.schema.dump(result.values)
    return {"status": result.status, "values": values, "error": error, "lasting": result.lasting}


def restore(plan: Plan, data: Mapping[str, Any]) -> Machine:
    """The machine that a snapshot was taken of.

    Raises:
        ValueError: the snapshot has another format; fold the records instead.
    """
    if data.get("format") != FORMAT:
        raise ValueError(f"snapshot format {data.get('format')!r}, this version reads {FORMAT}; fold the records")
    machine = Machine(plan)
    for name, value in data["plain"].items():
        setattr(machine, name, value)
    machine.started = _decode(data["started"])
    machine.ended = None if data["ended"] is None else _decode(data["ended"])
    for place, node, count in data["visits"]:
        machine.tallies[place].visits[node] = count
    for place, index, count in data["taken"]:
        machine.tallies[place].taken[index] = count
    for place, node, seconds in data["busy"]:
        machine.tallies[place].busy[node] = seconds
    machine.questions = {q["id"]: Question.model_validate(q) for q in data["questions"]}
    machine.asked_at = dict(data.get("asked_at") or {})
    entries = [
        EffectEntry(
            _decode(intended),
            None if settled is None else _decode(settled),
            None if inside is None else Usage.model_validate(inside),
        )
        for intended, settled, inside in data["effects"]
    ]
    machine._held = {key: Reserve.model_validate(reserve) for key, reserve in data["held"]}
    machine.ledger.restore(entries, data["messages"])
    tokens: dict[str, Activation] = {}
    frames: dict[str, Frame] = {}
    for entry in data["frames"]:
        parent = None if entry["parent"] is None else tokens[entry["parent"]]
        frame = _Reader(machine, plan if parent is None else parent.frame.plan.sub[parent.node], entry, parent).frame
        frames[frame.key] = frame
        tokens.update(frame.live)
        if parent is None:
            machine.root = frame
        else:
            machine._inner[parent.key] = frame
    assert machine.root is not None
    machine.result = machine.root.result
    machine.running = {key: tokens[key] for key in data["running"]}
    machine._asked = {question: tokens[key] for question, key in data["asked"]}
    machine._ready = {key: frames[key] for key in data["ready"]}
    machine._spent = [frames[key] for key in data["spent"]]
    return machine


def _decode(data: Data) -> Any:
    return r.decode(json.dumps(data))


class _Reader:
    """One frame back from its tables."""

    def __init__(self, machine: Machine, plan: Plan, data: Data, parent: Activation | None) -> None:
        self.plan, self.data = plan, data
        self.paths: list[Path] = []
        for up, fork, index in data["paths"]:
            self.paths.append(Path(self._path(up), fork, index))
        self.ranks: list[Rank] = []
        for number, joined, closed in data["ranks"]:
            self.ranks.append(Rank(self._path(number), None if joined is None else self._rank(joined), closed=closed))
        self.rules = machine.rules
        self.version_type = Version if self.rules.ranked else KeyedVersion
        self.versions: list[Version] = []
        for entry in data["versions"]:
            self.versions.append(self._version(entry))
        root = self.versions[data["root"]]
        frame = self.frame = Frame(plan, data["key"], root.values, machine, parent)
        frame.root = root
        for name, value in data["counts"].items():
            setattr(frame, name, value)
        frame.visits, frame.once = dict(data["visits"]), set(data["once"])
        frame.limits = Limits.model_validate(data["limits"])
        spent = data.get("spent")  # one of an earlier version does not say it
        frame.spent = None if spent is None else r.Failure.model_validate(spent)
        frame.ended_versions = [self.versions[i] for i in data["ended"]]
        self.forks = [self._fork(entry) for entry in data["forks"]]
        self.groups = [self._group(entry) for entry in data["groups"]]
        for entry in data["tokens"]:
            self._token(entry)
        for fork, entry in zip(self.forks, data["forks"], strict=True):
            fork.arrivals = {join: [frame.live[key] for key in keys] for join, keys in entry["arrivals"].items()}
        frame.queue.extend(frame.live[key] for key in data["queue"])
        frame.touched.clear()
        frame.seen.clear()
        if data["result"] is not None:
            frame.result = self._result(plan, data["result"])

    def _path(self, number: int) -> Path:
        return ROOT if number < 0 else self.paths[number]

    def _rank(self, number: int) -> Rank:
        return FIRST if number < 0 else self.ranks[number]

    def _version(self, entry: Data) -> Version:
        schema = self.plan.schema
        parents = tuple(self.versions[i] for i in entry["parents"])
        rank = self._rank(entry["rank"])
        if "values" in entry:
            return Version(schema.decode(entry["values"]), key=entry["key"], node=entry["node"], rank=rank)
        if "update" not in entry:
            # Always a merge of what it was: a version of one parent that updates nothing gives fields back.
            local = schema.decode(entry["local"])
            merged = merge(
                schema, parents, key=entry["key"], local=local, replaces_conflict=self.rules.replaces_conflict
            )
            return Version(merged.values, parents=parents, key=entry["key"], node=entry["node"], rank=rank)
        values = schema.apply(parents[0].values, entry["update"], entry["ops"])
        if entry["reduced"]:
            values = {**values, **(entry["reduced"] if schema.cls is None else schema.decode(entry["reduced"]))}
        return self.version_type(
            values,
            parents=parents,
            key=entry["key"],
            node=entry["node"],
            rank=rank,
            update=entry["update"],
            ops=entry["ops"],
        )

    def _fork(self, entry: Data) -> OpenFork:
        scope = self.plan.topology.scope(entry["fork"], frozenset(entry["below"]))
        fork = OpenFork(scope, entry["key"], self._rank(entry["rank"]), self.versions[entry["version"]])
        fork.left = entry["left"]
        fork.trunk = self.versions[entry["trunk"]]
        return fork

    def _group(self, entry: Data) -> Group:
        group = Group(entry["target"], tuple(self.forks[number] for number in entry["forks"]))
        group.dependents = {need: list(users) for need, users in entry["dependents"]}
        group.merged = {tuple(needs): self.versions[number] for needs, number in entry["merged"]}
        for index, one in enumerate(entry["cells"]):
            cell = Cell(group, index, tuple(one["needs"]), self.forks[entry["fork"]])
            cell.missing, cell.started, cell.done = one["missing"], one["started"], one["done"]
            cell.ended = [self.versions[i] for i in one["ended"]]
            cell.versions = [self.versions[i] for i in one["versions"]]
            group.cells.append(cell)
        return group

    def _token(self, entry: Data) -> None:
        schema = self.plan.schema
        stack = tuple((vertex, schema.decode({name: [item]})[name], name) for vertex, item, name in entry["stack"])
        token = Activation(
            self.frame,
            entry["key"],
            entry["node"],
            self.versions[entry["version"]],
            self._rank(entry["rank"]),
            tuple(self.forks[i] for i in entry["forks"]),
            tuple((vertex, cast("list[object]", items)[0], name) for vertex, items, name in stack),
            tuple(self.groups[group].cells[index] for group, index in entry["cells"]),
        )
        token.phase = Phase(entry["phase"])
        token.attempt, token.not_before = entry["attempt"], entry["not_before"]
        token.pause = entry.get("pause")
        if entry["answers"]:
            token.answers = {answer["question"]: _decode(answer) for answer in entry["answers"]}
        if "withdrawn" in entry:
            token.withdrawn = entry["withdrawn"]
        token.error = None if entry["error"] is None else r.Failure.model_validate(entry["error"])
        token.fault = None if entry["fault"] is None else r.Failure.model_validate(entry["fault"])
        token.opened, token.counted, token.merged = entry["flags"]
        if entry["child"] is not None:
            token.child = self._result(self.plan.sub[token.node], entry["child"])
        if token.phase is Phase.PENDING:
            cell = token.cells[-1]
            cell.group.pending[cell.index] = token
        self.frame._add(token)

    def _result(self, plan: Plan, entry: Data) -> FrameResult:
        error = None if entry["error"] is None else r.Failure.model_validate(entry["error"])
        return FrameResult(entry["status"], plan.schema.decode(entry["values"]), error, entry["lasting"])
