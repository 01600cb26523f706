"""Parts of a run that no longer count, because the run ended there and was reopened.

When a run is reopened, the attempts of a failed step are superseded, with their calls; so are records after a limit
that was raised. Results that a later attempt still uses count: calls that happened and cannot be undone, and continued
runs of graphs called as tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from orchestrator.graph.limits import Limits, Usage
from orchestrator.graph.versions import Renames, inside
from orchestrator.kernel import records as r
from orchestrator.kernel.fold.questions import timer_question
from orchestrator.kernel.ledger import did_irreversible
from orchestrator.kernel.question import Question
from orchestrator.kernel.records import Migrated, Record, RunStarted
from orchestrator.kernel.reopening import LANDED
from orchestrator.kernel.state import Activation, FrameState
from orchestrator.views.reader import Fold

_Asked: TypeAlias = tuple[str, str, tuple[str, ...]]
_NOTHING = Usage()
_ONE_CALL = Usage(calls=1)


@dataclass(slots=True)
class _Call:
    activation: str
    attempt: int
    """The last attempt that asked for it."""
    effect: r.EffectClass
    kind: r.EffectKind
    settled: r.EffectSettled | None = None
    spent: Usage = _NOTHING
    """Usage after the record `after`."""
    inner: Usage | None = None
    """Usage of the run that it started."""
    asked: tuple[int, str] = (0, "")
    """The record and the question that last asked a person for its outcome."""


class Superseded(Fold):
    """Parts of a run that no longer count.

    Args:
        after: usage counts if it occurred after this record.

    Attributes:
        first: Activation -> the first attempt whose calls and inner graph count, if not all do.
        begun: Activation -> the first attempt whose failures count, if not all do.
        withdrawn: Questions that were asked again.
        revoked: Records of revoked external events: cancels, spent limits, time-outs.
        limits: The last changed limits of the run; None: the initial ones.
        raised: Number of times it was reopened after a spent limit.
    """

    def __init__(self, after: int = 0) -> None:
        self.first: dict[str, int] = {}
        self.begun: dict[str, int] = {}
        self.withdrawn: set[str] = set()
        self.revoked: set[int] = set()
        self.limits: Limits | None = None
        self.raised = 0
        self._after = after
        self._opened: dict[str, int] = {}
        """Activation of a subgraph's node -> the attempt that opened the inner graph."""
        self._ends: dict[str, int] = {}
        """Activation that was started again -> the record that restarted it."""
        self._calls: dict[str, _Call] = {}
        self._around: dict[str, tuple[str, int]] = {}
        """Activation inside a subgraph -> the activation of its node, and its attempt."""
        self._undone: set[str] = set()
        self._behind_limit: set[str] | None = None
        """Activations after the limit that is spent now."""
        self._collapsed = 0
        self._spans: list[tuple[int, int]] = []
        """First and last record after a limit that was raised."""
        self._ended = 0
        self._asked: dict[str, dict[str, _Asked]] = {}
        """Activation -> its questions, and their subjects."""
        self._standing: dict[str, set[str]] = {}
        """Activation -> questions that the end withdrew. They count until the step asks them again, or lands."""
        self._outside: dict[int, str] = {}
        """Record that stopped something -> the activation of the subgraph's node, or the kind of the record."""
        self._inherited: dict[str, Usage] = {}
        self._known: dict[str, int] = {}
        """Activation -> the record that created it."""

    # -- queries -------------------------------------------------------------------------------------------------------

    def is_undone(self, activation: str) -> bool:
        """Return True if a step counts as never started: it followed a raised limit, or its graph restarted."""
        name, inside = activation, self._around.get(activation)
        while name not in self._undone:
            if inside is None:
                return False
            name, attempt = inside
            if attempt < self.first.get(name, 1):
                return True
            inside = self._around.get(name)
        return True

    def is_lost(self, key: str) -> bool:
        """Return True if a call does not count."""
        call = self._calls.get(key)
        if call is None:
            return False
        return self.is_undone(call.activation) or (self._is_early(call) and not self._holds(call))

    def is_kept(self, key: str) -> bool:
        """Return True if an attempt that does not count made the call, and a later attempt may have its result."""
        call = self._calls.get(key)
        return call is not None and self._is_early(call) and self._holds(call)

    def is_asked_about(self, key: str) -> bool:
        """Return True if a later attempt asks for the outcome of a call of an attempt that does not count."""
        call = self._calls.get(key)
        settled = None if call is None or not self._is_early(call) else call.settled
        return settled is not None and self._calls[key].asked[0] > settled.seq

    def was_undone(self, at: int) -> bool:
        """Return True if a record follows a limit that was raised later."""
        return any(first <= at < last for first, last in self._spans)

    def set_aside(self) -> dict[str, r.SetAside]:
        """Return attempts and usage with which a replay from after the record `after` starts its steps."""
        spent: dict[str, Usage] = {}
        for key, call in self._calls.items():
            if call.spent != _NOTHING and self.is_lost(key):
                name = self._counted_at(call.activation)
                spent[name] = spent.get(name, _NOTHING) + call.spent
        names = {name for name, seq in self._ends.items() if seq > self._after and self.first[name] > 1}
        for name, usage in self._inherited.items():
            if self._known.get(name, self._after + 1) > self._after:
                names.add(name)
                spent[name] = spent.get(name, _NOTHING) + usage
        return {
            name: r.SetAside(attempts=self.first.get(name, 1) - 1, usage=spent.get(name, _NOTHING))
            for name in sorted(names | spent.keys())
        }

    def _holds(self, call: _Call) -> bool:
        """Return True if the result of a call holds for later attempts, too."""
        settled = call.settled
        if settled is None or settled.next_at is not None:
            return False
        if call.asked[0] > settled.seq:
            return True
        if call.effect != "irreversible":
            return did_irreversible(settled.result) and _status_inside(settled.result) in ("", "completed")
        if settled.given_up:  # the attempt that was asked has the answer
            return settled.seq > self._ends.get(call.activation, 0)
        failed = call.kind == "tool" and r.failed_result(settled.result) is not None
        return settled.ok and not failed

    def _is_early(self, call: _Call) -> bool:
        return call.attempt < self.first.get(call.activation, 1)

    def _counted_at(self, activation: str) -> str:
        """Return the key of the activation that counts a step's usage: the outermost restarted one; empty for none."""
        found = activation if activation in self.first else ""
        for around, attempt in self._outward(activation):
            if attempt < self.first.get(around, 1):
                found = around
        return "" if self.is_undone(found) else found

    def _outward(self, activation: str) -> Iterator[tuple[str, int]]:
        inside = self._around.get(activation)
        while inside is not None:
            yield inside
            inside = self._around.get(inside[0])

    # -- reading ---------------------------------------------------------------------------------------------------

    def applying(self, record: Record) -> None:
        """See `Observer.applying`."""
        match record:
            case r.EffectIntended():
                self._intended(record)
            case r.EffectSettled() if record.key in self._calls:
                self._settled(self._calls[record.key], record)
            case r.Spent() if record.key in self._calls:
                self._spent(self._calls[record.key], record)
            case r.GraphOpened():
                self._opened[record.activation] = record.attempt
            case r.Asked() | r.TimerSet() if record.activation in self.run.running:
                self._ask(record.activation, record.question if isinstance(record, r.Asked) else timer_question(record))
            case r.StepDone() | r.StepFailed() | r.StepRetried():
                self.withdrawn |= self._standing.pop(record.activation, set())
            case r.AnswersWithdrawn():
                self.withdrawn.update(record.questions)
            case r.Migrated():
                for name in record.withdrawn:
                    self.withdrawn.update(self._asked.pop(name, ()))
            case r.Cancelled():
                self._outside[record.seq] = "cancelled"
            case r.LimitSpent() if record.limit == "seconds" and not record.frame:
                self._outside[record.seq] = "exhausted"
            case r.TimerFired() if record.name == r.TIMEOUT:
                self._outside[record.seq] = f"timeout {record.activation}"
            case r.LimitsChanged():
                self.limits = record.limits
            case r.Forked():
                self._forked(record)
            case r.Ended():
                self._ended = record.seq
            case r.Reopened():
                self._reopened(record)
            case _:
                pass

    def _ask(self, activation: str, question: Question) -> None:
        """Record a question. If the step repeats it, the withdrawn one no longer counts."""
        asked, standing = self._asked.setdefault(activation, {}), self._standing.get(activation, set())
        asked[question.id] = wanted = question.kind, question.prompt, question.choices
        call = self._calls.get(str(question.payload.get("key"))) if question.kind == "unknown_outcome" else None
        if call is not None:
            before, name = call.asked
            if name and before <= self._ends.get(activation, 0):
                self.withdrawn.add(name)
            call.asked = self.run.head + 1, question.id
        again = {name for name in standing if asked.get(name) == wanted}
        standing -= again
        self.withdrawn |= again - {question.id}

    def _intended(self, record: r.EffectIntended) -> None:
        known = self._calls.get(record.key)
        if known is not None:
            known.attempt, known.settled = record.attempt, None
            return
        counted = record.kind != "effect" and record.seq > self._after
        self._calls[record.key] = _Call(
            record.activation, record.attempt, record.effect, record.kind, spent=_ONE_CALL if counted else _NOTHING
        )

    def _settled(self, call: _Call, record: r.EffectSettled) -> None:
        call.settled = record
        if record.usage is not None and record.seq > self._after:
            call.spent += _shared(record.usage)

    def _spent(self, call: _Call, record: r.Spent) -> None:
        before, call.inner = call.inner or _NOTHING, record.usage
        if record.seq > self._after:
            call.spent += _shared(record.usage - before)

    def _forked(self, record: r.Forked) -> None:
        """Handle a fork, which continues where its parent ended, or the replay of a reopened run."""
        root = self.run.root
        self._goes_on("" if root is None or root.result is None else root.result.status, record.seq)
        self.first = {name: attempt for name, attempt in self.first.items() if name in self._known}
        self._inherited = {name: aside.usage for name, aside in record.set_aside.items()}
        self.first.update({name: one.attempts + 1 for name, one in record.set_aside.items() if one.attempts})
        self.limits = record.limits or self.limits

    def _reopened(self, record: r.Reopened) -> None:
        self.limits = record.limits or self.limits
        self._goes_on(record.status, self._ended)

    def _goes_on(self, status: str, until: int) -> None:
        """Continue a run that had ended with this status, at the record `until`."""
        self._revoke("cancelled")
        if status == "exhausted":
            self._revoke("exhausted")
            if self._behind_limit:
                self._undone |= self._behind_limit
                self._spans.append((self._collapsed, until))
            self._behind_limit = None

    def _revoke(self, kind: str) -> None:
        """Record that an external stop was revoked."""
        gone = [seq for seq, what in self._outside.items() if what == kind]
        self.revoked.update(gone)
        for seq in gone:
            del self._outside[seq]

    # -- tokens ----------------------------------------------------------------------------------------------------

    def added(self, token: Activation) -> None:
        """See `Observer.added`."""
        self._known[token.key] = self.run.head
        around = token.frame.parent
        if around is not None:
            self._around[token.key] = around.key, around.attempt
        if self._behind_limit is not None:
            self._behind_limit.add(token.key)

    def collapsing(self, frame: FrameState) -> None:
        """See `Observer.collapsing`."""
        if frame.parent is None and frame.exhausting is not None and frame.before_limit is None:
            self._behind_limit, self._collapsed = set(), self.run.head

    def restored(self, token: Activation) -> None:
        """See `Observer.restored`."""
        if token.asked_before:
            self._standing[token.key] = set(token.asked_before - self.withdrawn)
        if token.failed and token.late is None:
            lasts = token.kept is not None or (token.child is not None and token.child.status in LANDED)
            first = self._opened.get(token.key, 1) if lasts else token.attempt + 1
            self.first[token.key] = max(first, self.first.get(token.key, 1))
            self.begun[token.key] = max(token.attempt + (token.kept is None), self.begun.get(token.key, 1))
            self._ends[token.key] = self.run.head
            self._revoke(f"timeout {token.key}")

    def finish(self) -> None:
        """See `Fold.finish`."""
        self.raised = 0 if self.run.root is None else self.run.root.raised


def _status_inside(result: object) -> str:
    """Return the status of the run that a call of a graph started."""
    metadata = result.get("metadata") if isinstance(result, Mapping) else None
    return str(metadata.get("status", "")) if isinstance(metadata, Mapping) else ""


def _shared(usage: Usage) -> Usage:
    """Return the part of a usage that limits count, besides steps and seconds."""
    return usage.model_copy(update={"steps": 0, "seconds": 0.0})


T = TypeVar("T")


class VersionNames:
    """The names of a run in one of its versions: the last one with this structure, else the current one.

    Args:
        records: the records of the run.
        structure: structure digest of that version.
    """

    def __init__(self, records: Sequence[Record], structure: str) -> None:
        moves = [record for record in records if isinstance(record, Migrated)]
        first = records[0] if records else None
        versions = [first.structure if isinstance(first, RunStarted) else "", *(move.structure for move in moves)]
        there = [number for number, version in enumerate(versions) if version == structure]
        self._seqs = [move.seq for move in moves]
        self._to = there[-1] if there else len(moves)
        self._added: list[Mapping[str, object]] = [move.values or {} for move in moves[: self._to]]
        forward = [Renames(move.nodes, move.fields) for move in moves]
        self._forward = forward[: self._to]
        self._back = [_inverse(names) for names in forward[self._to :]]

    def place(self, seq: int, path: str, node: str) -> tuple[str, str]:
        """Return a path and a node of a record, as named in the version."""
        for names in self._names_from(seq):
            path, node = _renamed(names, path, node)
        return path, node

    def fields(self, seq: int, place: str, values: Mapping[str, T]) -> dict[str, T]:
        """Return values of state fields by the field names of the version.

        Args:
            place: the path of the state's graph.
        """
        found = dict(values)
        for names in self._names_from(seq):
            found = {names.state_field(place, name): value for name, value in found.items()}
            place = names.place(place)
        return found

    def start(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the initial values of the run, and those added by migrations up to the version."""
        found = dict(values)
        for names, added in zip(self._forward, self._added, strict=True):
            kept = {names.state_field("", name): value for name, value in found.items()}
            found = {**added, **kept}
        return found

    def _names_from(self, seq: int) -> Sequence[Renames]:
        """Return the renames to apply, version by version, from the version of a record."""
        at = sum(move < seq for move in self._seqs)
        if at <= self._to:
            return self._forward[at:]
        return self._back[: at - self._to][::-1]


def _inverse(names: Renames) -> Renames:
    """Return the inverse renames."""
    nodes = {names.path(old): old for old in names.nodes}
    fields = {}
    for old in names.fields:
        place, _, name = old.rpartition("/")
        fields[inside(names.place(place), names.state_field(place, name))] = old
    return Renames(nodes, fields)


def _renamed(names: Renames, path: str, node: str) -> tuple[str, str]:
    """Rename the path of a branch, and a node in it.

    A segment of the path is a branch, `plan.2`, or a subgraph node.
    """
    place, parts = "", []
    for part in path.split("/") if path else ():
        fork, dot, number = part.rpartition(".")
        if dot:
            parts.append(f"{_fork(names, place, fork)}.{number}")
        else:
            parts.append(names.node(place, part))
            place = inside(place, part)
    return "/".join(parts), names.node(place, node)


def _fork(names: Renames, place: str, fork: str) -> str:
    """Rename a fork: a node, or a map next to other edges, `plan*search:queries`."""
    source, star, rest = fork.partition("*")
    target, colon, field = rest.partition(":")
    if not star or not colon:
        return names.node(place, fork)
    return f"{names.node(place, source)}*{names.node(place, target)}:{names.state_field(place, field)}"
