"""A running replay: the recording of the replayed run, its part not yet taken, and the live steps.

A `Recording` is read from the journal of the replayed run: results of calls, answers, and external events. A call is
found by its place (path and node), its name, the digest of its request, and its number among equal ones.

A step is live if it requested something that the replayed run did not, or if such a step is among its causes. Calls of
a live step never take a recorded result; other branches are not affected. All of this follows from the replay's own
journal, so a replay that was killed continues as it started.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, TypeAlias

from msgspec import structs

from orchestrator.executor.replay import ABSENT, REPLAYED
from orchestrator.graph.topology import START, counts
from orchestrator.json import digest, joined_digest
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply_stored
from orchestrator.kernel.fold.questions import timer_question
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import FAMILY, OWN_PARTS, Approve, Deny, Question, in_family, parts_of
from orchestrator.kernel.records import Record
from orchestrator.kernel.run_state import Delta, Observer, RunState
from orchestrator.kernel.state import Activation, FrameResult, FrameState, MapItem
from orchestrator.kernel.version import Version
from orchestrator.views.reader import Fold, read
from orchestrator.views.superseded import Superseded, VersionNames
from orchestrator.views.timeline import is_asked

Outside: TypeAlias = r.Cancelled | r.LimitSpent | r.TimerFired | r.EventReceived
"""Records of external events (by time and people) while calls were in progress."""

_STOPPED = frozenset({"Cancelled", "NotMade", "Suspended"})
_LATE = "StepTimeout"
Place: TypeAlias = tuple[str, str]
"""Path and node of a step."""


@dataclass(slots=True, eq=False)
class RecordedCall:
    """A call of the replayed run."""

    intended: r.EffectIntended
    state: str = ""
    """Digest of the state that the node saw, if the node itself is the call: then its request is empty."""
    settled: r.EffectSettled | None = None
    """Its last result; None if it has none."""
    inner: r.Spent | None = None
    """Usage of the run that it started."""
    content: str = ""
    """Digest of the content of the graph that it ran, if it called a graph."""

    @property
    def result(self) -> r.EffectSettled | None:
        """Return the result of the call; None if the run stopped the call, or the journal ends before its result."""
        settled = self.settled
        if settled is None or settled.next_at is not None:
            return None
        return None if settled.error is not None and settled.error.type in _STOPPED else settled

    @property
    def late(self) -> bool:
        """Return True if the time limit of its step stopped the call."""
        return self.settled is not None and self.settled.error is not None and self.settled.error.type == _LATE

    @property
    def seq(self) -> int:
        """Return the number of the record that a replay refers to: that of its result, else that of its intent."""
        found = self.result
        return self.intended.seq if found is None else found.seq


@dataclass(slots=True, eq=False)
class RecordedQuestion:
    """A question of the replayed run."""

    question: Question
    seq: int
    activation: str
    answered: r.Answered | None = None


@dataclass(slots=True)
class Recording:
    """All that a replay takes from the journal of another run. Read-only."""

    calls: dict[Place, list[RecordedCall]] = field(default_factory=dict)
    questions: dict[Place, list[RecordedQuestion]] = field(default_factory=dict)
    outside: list[Outside] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    """Activation -> the record that ended its step."""
    stopped: set[str] = field(default_factory=set)
    """Activations that were dropped before they ended: by a failure or a stop elsewhere, or by a join of `some`."""
    stopping: set[str] = field(default_factory=set)
    """Activations that, at their end, ended their graph or dropped others."""
    arriving: set[str] = field(default_factory=set)
    """Activations that led to a join of `some`, which merges the first arrivals."""
    went_on: set[tuple[str, str, int]] = field(default_factory=set)
    """Activation, type of a record, attempt: records of steps before they ended."""

    def all_calls(self) -> Iterator[RecordedCall]:
        """Yield all calls of the replayed run, place by place."""
        for calls in self.calls.values():
            yield from calls

    def denial(self, place: Place, tool: str, args: object) -> Deny | None:
        """Return the answer by which a person denied this call, if the replayed run asked as a fork or reopened."""
        for asked in self._asked_about(place, tool, args):
            if asked.answered is not None and isinstance(asked.answered.answer, Deny):
                return asked.answered.answer
        return None

    def asks_about(self, place: Place, tool: str, args: object) -> bool:
        """Return True if the replayed run, as a fork or reopened, asked about this call and has no answer."""
        return any(asked.answered is None for asked in self._asked_about(place, tool, args))

    def open_inside(self, call: RecordedCall) -> RecordedQuestion | None:
        """Return the unanswered question for which the replayed run waits, if it was asked inside this call."""
        begun = call.intended
        for asked in self.questions.get((begun.path, begun.node), ()):
            if asked.answered is None and asked.activation == begun.activation and asked.seq > begun.seq:
                return asked
        return None

    def _asked_about(self, place: Place, tool: str, args: object) -> Iterator[RecordedQuestion]:
        for asked in self.questions.get(place, ()):
            payload = asked.question.payload
            if in_family(asked.question) and (payload.get("tool"), payload.get("args")) == (tool, args):
                yield asked


def recording_of(plan: Plan, records: Sequence[Record], after: int = 0, withdrawn: Collection[str] = ()) -> Recording:
    """Return the recording of the records after `after`; if the run was reopened, of those that count.

    Args:
        plan: plan of the run's graph; its code is not needed.
        records: all records of the run.
        after: a call counts if its result follows this record, a question if its answer does.
        withdrawn: questions whose answers count although they came before.
    """
    found, superseded = _Recorder(), Superseded()
    read(plan, records, superseded, found)
    recording = found.recording
    for place, calls in recording.calls.items():
        counted = [call for call in calls if not superseded.is_lost(call.intended.key)]
        for call in counted:
            if superseded.is_asked_about(call.intended.key):
                call.settled = None
        recording.calls[place] = [call for call in counted if call.result is None or call.seq > after]
    for place, asked in recording.questions.items():
        recording.questions[place] = [
            one
            for one in asked
            if not (one.question.id in superseded.withdrawn or superseded.is_undone(one.activation))
            and (one.answered is None or one.answered.seq > after or one.question.id in withdrawn)
        ]
    recording.outside = [
        record
        for record in recording.outside
        if record.seq > after and record.seq not in superseded.revoked and not _is_undone(superseded, record)
    ]
    return recording


def _is_undone(superseded: Superseded, record: Outside) -> bool:
    return isinstance(record, r.TimerFired) and superseded.is_undone(record.activation)


def state_digest(activation: Activation) -> str:
    """Return the digest of the state that an activation sees."""
    return digest(activation.frame.plan.schema.dump(activation.values))


def question_digest(question: Question) -> str:
    """Return the digest of a question's content, without what differs between runs; for a timer, without its time."""
    if question.kind == "timer":
        return "timer"
    if in_family(question):  # each run sees the progress of the others at that time
        return digest([FAMILY, question.payload.get("tool"), question.payload.get("args")])
    call, shown = parts_of(question.kind, question.payload)
    call = {key: value for key, value in call.items() if key not in OWN_PARTS}
    waits = [question.event, question.match] if question.event else []
    return digest([question.kind, question.prompt, call, dict(shown), list(question.choices), question.schema_, *waits])


def is_node_itself(kind: str, name: str, node: str, request: Mapping[str, object]) -> bool:
    """Return True for the call of an irreversible node, whose request is the state that it sees."""
    return kind == "effect" and name == node and not request


class _Recorder(Fold):
    def __init__(self) -> None:
        self.recording = Recording()
        self._calls: dict[str, RecordedCall] = {}
        self._asked: dict[str, RecordedQuestion] = {}
        self._ending = ""
        """The activation that the record now being folded ends."""

    def applying(self, record: Record) -> None:
        """See `Observer.applying`."""
        self._ending = ""
        match record:
            case r.StepDone() | r.StepFailed() if record.activation in self.run.running:
                self._ending = record.activation
                self.recording.ends[record.activation] = record.seq
            case r.StepRetried() | r.GraphOpened():
                self.recording.went_on.add((record.activation, record.type, record.attempt))
            case r.EffectIntended():
                self._intended(record)
            case r.EffectSettled() if record.key in self._calls:
                self._calls[record.key].settled = record
            case r.Spent() if record.key in self._calls:
                self._calls[record.key].inner = record
            case r.Answered() if record.question in self._asked:
                self._asked[record.question].answered = record
            case r.Cancelled():
                self.recording.outside.append(record)
            case r.TimerFired() if record.name == r.TIMEOUT:
                self.recording.outside.append(record)
            case r.LimitSpent() if record.limit == "seconds":
                self.recording.outside.append(record)
            case r.EventReceived() if record.interrupts is not None:
                self.recording.outside.append(record)
            case r.Forked():
                self._leave_out_open(record.told)
            case _:
                pass

    def dropped(self, token: Activation) -> None:
        """See `Observer.dropped`."""
        if token.key in self.recording.ends:
            return
        self.recording.stopped.add(token.key)
        if self._ending:
            self.recording.stopping.add(self._ending)

    def edge_taken(self, frame: FrameState, index: int) -> None:
        """See `Observer.edge_taken`."""
        topology = frame.plan.topology
        there = topology.nodes.get(topology.edges[index].target)
        if self._ending and there is not None and counts(there.join):
            self.recording.arriving.add(self._ending)

    def finished(self, frame: FrameState, result: FrameResult) -> None:
        """See `Observer.finished`."""
        if self._ending:
            self.recording.stopping.add(self._ending)

    def restored(self, token: Activation) -> None:
        """See `Observer.restored`."""
        self.recording.stopped.discard(token.key)
        self.recording.stopping.discard(token.key)
        if token.late is None:
            self.recording.ends.pop(token.key, None)
        else:
            self.recording.ends[token.key] = token.late.seq

    def applied(self, record: Record, delta: Delta) -> None:
        """See `Fold.applied`. Timers and events also continue steps."""
        if isinstance(record, r.Asked | r.TimerSet) and is_asked(self.run, record, delta):
            self._ask(record, record.question if isinstance(record, r.Asked) else timer_question(record))
        for _, question, answer in delta.moved:
            if question.id in self._asked:
                self._asked[question.id].answered = answer

    def _leave_out_open(self, settled: Collection[str]) -> None:
        """Leave out the calls that a fork found without a result: they count as not made, and the fork made its own."""
        gone = {call for key, call in self._calls.items() if call.result is None and key not in settled}
        self._calls = {key: call for key, call in self._calls.items() if call not in gone}
        for place, calls in self.recording.calls.items():
            self.recording.calls[place] = [call for call in calls if call not in gone]

    def _ask(self, record: r.Asked | r.TimerSet, question: Question) -> None:
        asked = self._asked[question.id] = RecordedQuestion(question, record.seq, record.activation)
        self.recording.questions.setdefault((question.path, question.node), []).append(asked)

    def _intended(self, record: r.EffectIntended) -> None:
        known = self._calls.get(record.key)
        if known is not None:
            known.settled = None  # the call is made again
            return
        call = self._calls[record.key] = RecordedCall(record)
        if is_node_itself(record.kind, record.name, record.node, record.request):
            activation = self.run.running.get(record.activation)
            call.state = "" if activation is None else state_digest(activation)
        self.recording.calls.setdefault((record.path, record.node), []).append(call)


# -- runs that migrated to other versions of their graphs --------------------------------------------------------------


def rename(recording: Recording, names: VersionNames) -> None:
    """Move calls and questions to their places in the new version. Those of one place stay in the journal's order."""
    calls = sorted(recording.all_calls(), key=lambda call: call.intended.seq)
    asked = sorted((one for some in recording.questions.values() for one in some), key=lambda one: one.seq)
    recording.calls, recording.questions = {}, {}
    for call in calls:
        call.intended = _intended(call, names)
        recording.calls.setdefault((call.intended.path, call.intended.node), []).append(call)
    for one in asked:
        recording.questions.setdefault(_place(one, names), []).append(one)
    recording.outside = [_outside(record, names) for record in recording.outside]


def _intended(call: RecordedCall, names: VersionNames) -> r.EffectIntended:
    before = call.intended
    path, node = names.place(before.seq, before.path, before.node)
    changed: dict[str, Any] = {"path": path, "node": node}
    if is_node_itself(before.kind, before.name, before.node, before.request):
        changed |= {"name": node, "digest": digest({"kind": before.kind, "name": node, "request": {}})}
    return structs.replace(before, **changed)


def _place(one: RecordedQuestion, names: VersionNames) -> tuple[str, str]:
    return names.place(one.seq, one.question.path, one.question.node)


def _outside(record: Outside, names: VersionNames) -> Outside:
    if not isinstance(record, r.TimerFired):
        return record
    path, node = names.place(record.seq, record.path, record.node)
    return structs.replace(record, path=path, node=node)


Live: TypeAlias = Literal["never", "ask", "always"]
_MOST_BESIDE = 200
"""Maximum number of recorded calls with the same request that are searched for that of the same step."""


class RunningReplay(Observer):
    """State of a replay: recorded results that it has not taken yet, and its live steps.

    It observes the replay's machine.

    Args:
        live: whether calls without a recorded result are made.
        recording: the recording of the replayed run; None: every step is live, as in a run that a replay called.
        models: names of the replay's models that replace those of the replayed run.
    """

    def __init__(self, live: Live, recording: Recording | None, models: Mapping[str, str] | None = None) -> None:
        self.live: Live = live
        self.recording = recording or Recording()
        self.models = dict(models or {})
        self._calls_by_request: dict[tuple[str, str, str, str, str], deque[RecordedCall]] = {}
        self._models: dict[tuple[str, str], dict[str, None]] = {}
        """Path and node -> names of the models called there."""
        self._questions: dict[tuple[str, str, str], list[RecordedQuestion]] = {}
        self._index()
        self._all_live = self._counts_records = recording is None
        self._asked: dict[str, tuple[str, Question]] = {}
        self._happened: set[int] = set()
        self._causes_live: list[bool] = []
        self.waiting: Counter[str] = Counter()
        """Activations that wait for the cause of their stop in the replayed run, or for steps that ended there before.
        """
        self._begin()
        self._counts_records = self._all_live

    def _index(self) -> None:
        for call in self.recording.all_calls():
            intended = call.intended
            place = intended.path, intended.node
            wanted = *place, intended.kind, intended.name, intended.digest
            self._calls_by_request.setdefault(wanted, deque()).append(call)
            if intended.kind == "model":
                self._models.setdefault(place, {})[intended.name] = None
        for place, asked in self.recording.questions.items():
            for one in asked:
                self._questions.setdefault((*place, question_digest(one.question)), []).append(one)

    def _begin(self) -> None:
        """Reset the state of the replay; called again at the record of a fork, since only later records are its own."""
        self._counts_records = True
        self.diverged: set[tuple[str, str, int]] = set()
        """Key of an activation, digest, occurrence: places at which the replay diverges, by its journal."""
        self._taken: set[int] = set()
        self._answered: Counter[tuple[str, str, str]] = Counter()
        self._calls: set[str] = set()
        """Keys of live calls."""
        self._live_from_start: set[str] = set()
        """Activations that are live from their first call on, because a live step is among their causes."""
        self._had_live_result: set[str] = set()
        """Activations that got the result of a live call."""
        self._live_outcomes: set[str] = set()
        """Activations whose outcome is live."""
        self._live_frames: set[str] = set()
        self._live_items: set[tuple[str, int]] = set()
        self._approved: Counter[str] = Counter()

    # -- results taken -------------------------------------------------------------------------------------------

    def is_live(self, activation: Activation) -> bool:
        """Return True if something live causes the next call of a step."""
        return self._all_live or activation.key in self._live_from_start or activation.key in self._had_live_result

    def call(
        self, activation: Activation, kind: str, name: str, wanted: str, request: Mapping[str, object]
    ) -> RecordedCall | None:
        """Return the recorded call for a call of a step, if no earlier call took it.

        Args:
            wanted: digest of the requested call.
        """
        state = state_digest(activation) if is_node_itself(kind, name, activation.node, request) else ""
        left = self._calls_by_request.get((activation.path, activation.node, kind, name, wanted))
        while left and left[0].seq in self._taken:
            left.popleft()
        first = islice(left or (), _MOST_BESIDE)
        found = [call for call in first if call.state == state and call.seq not in self._taken]
        # Steps of one node may run at the same place at the same time: then the key of the step distinguishes them.
        own = (call for call in found if call.intended.activation == activation.key)
        return next(own, found[0] if found else None)

    def model_name(
        self, activation: Activation, given: str, alias: str, request: Mapping[str, object], known: Mapping[str, str]
    ) -> str:
        """Return the name under which a request to a model is searched.

        Unless the replay has another model, it is the name of the replayed run's model, whichever model there is now.

        Args:
            given: the name of the current model.
            alias: the name that the node uses for it.
            known: digest -> name of the calls of the step that the replay's own journal has.
        """
        if alias in self.models:
            return given
        for wanted, name in known.items():
            if joined_digest({"kind": "model", "name": name, "request": request}) == wanted:
                return name
        if self.is_live(activation):
            return given
        names = self._models.get((activation.path, activation.node), ())
        for name in names:
            wanted = joined_digest({"kind": "model", "name": name, "request": request})
            if name != given and self.call(activation, "model", name, wanted, request) is not None:
                return name
        return next(iter(names), given) if self.live == "never" or given == ABSENT else given

    def asks_about_live_call(self, activation: Activation) -> bool:
        """Return True if a step that is not live itself made, or is about to make, a live call."""
        return activation.key in self._live_outcomes

    def question(self, activation: Activation, question: Question) -> RecordedQuestion | None:
        """Return the recorded question for a question of a step, if no earlier question took it."""
        wanted = activation.path, activation.node, question_digest(question)
        alike, passed = self._questions.get(wanted, ()), self._answered[wanted]
        return alike[passed] if passed < len(alike) else None

    def next_outside(self) -> Outside | None:
        """Return the next external record of the replayed run, each once; None if none is left."""
        for record in self.recording.outside:
            if record.seq not in self._happened:
                self._happened.add(record.seq)
                return record
        return None

    def was_approved(self, name: str, args: object) -> bool:
        """Return True if a person approved this tool call in the replay itself, and it was not made since."""
        return self._approved[digest([name, args])] > 0

    def was_stopped(self, activation: Activation) -> bool:
        """Return True if a step was stopped in the replayed run before it ended, and nothing live caused it."""
        return activation.key in self.recording.stopped and not self.is_live(activation)

    @property
    def is_as_recorded(self) -> bool:
        """Return True if nothing has been live so far."""
        return not self._live_outcomes

    # -- state from the replay's own journal --------------------------------------------------------------------------

    def applying(self, record: Record) -> None:
        """See `Observer.applying`."""
        if isinstance(record, r.Asked | r.TimerSet):
            question = record.question if isinstance(record, r.Asked) else timer_question(record)
            self._asked[question.id] = record.activation, question
        if isinstance(record, r.Forked):
            self._begin()
        if not self._counts_records:
            return
        match record:
            case r.EffectIntended():
                if record.taken is not None:
                    self._taken.add(record.taken)
                elif record.key not in self._calls:
                    self._calls.add(record.key)
                    self._approved[digest([record.name, record.request.get("args")])] -= 1
                    self._live_outcomes.add(record.activation)
            case r.EffectSettled() if record.key in self._calls:
                self._had_live_result.add(record.activation)
            case r.Diverged():
                self.diverged.add((record.activation, record.digest, record.occurrence))
                self._live_outcomes.add(record.activation)
            case r.Answered() if record.question in self._asked:
                self._note_answer(record)
            case _:
                pass

    def _note_answer(self, record: r.Answered) -> None:
        activation, question = self._asked.pop(record.question)
        if record.by == REPLAYED and record.policy:
            self._answered[question.path, question.node, question_digest(question)] += 1
            return
        self._had_live_result.add(activation)
        self._live_outcomes.add(activation)
        payload = question.payload
        if not record.policy and isinstance(record.answer, Approve) and "tool" in payload:
            args = payload.get("args") if record.answer.args is None else record.answer.args
            self._approved[digest([payload["tool"], args])] += 1

    # -- causes ------------------------------------------------------------------------------------------------

    def sending(self, source: Activation, version: Version, outcome: str, error: r.Failure | None) -> None:
        """See `Observer.sending`."""
        live = source.key in self._live_outcomes or source.key in self._live_from_start
        if source.node == START:
            around = source.frame.parent
            live = around is not None and around.key in self._live_from_start
        if live:
            self._mark(source)
        self._causes_live.append(live)

    def joining(self, join: str, arrivals: list[Activation]) -> None:
        """See `Observer.joining`."""
        self._causes_live.append(any(token.key in self._live_from_start for token in arrivals))

    def collapsing(self, frame: FrameState) -> None:
        """See `Observer.collapsing`."""
        self._causes_live.append(frame.key in self._live_frames)

    def ending(self, frame: FrameState) -> None:
        """See `Observer.ending`."""
        self._causes_live.append(frame.key in self._live_frames)

    def done(self) -> None:
        """See `Observer.done`."""
        self._causes_live.pop()

    def added(self, token: Activation) -> None:
        """See `Observer.added`."""
        if self._causes_live and self._causes_live[-1]:
            self._live_from_start.add(token.key)
            self._mark(token)

    def item_ready(self, item: MapItem) -> None:
        """See `Observer.item_ready`. An item sees the results of the items that it needs."""
        token = item.ordered_map.pending.get(item.index)
        if token is not None and any((item.fork.key, need) in self._live_items for need in item.needs):
            self._live_from_start.add(token.key)
            self._mark(token)

    def finished(self, frame: FrameState, result: FrameResult) -> None:
        """See `Observer.finished`."""
        if frame.parent is not None and frame.key in self._live_frames:
            self._live_outcomes.add(frame.parent.key)

    def _mark(self, token: Activation) -> None:
        self._live_frames.add(token.frame.key)
        self._live_items.update((item.fork.key, item.index) for item in token.map_items)


def running_replay(
    live: Live,
    recording: Recording | None,
    models: Mapping[str, str],
    plan: Plan,
    own: Sequence[Record],
) -> RunningReplay:
    """Return the state of a replay after its own records so far."""
    replay = RunningReplay(live, recording, models)
    machine = RunState(plan, (replay,))
    for record in own:
        apply_stored(machine, record)
    return replay
