"""A replay while it runs: what it takes from the run that it replays, and which of its steps are live.

A step is live if it asked something that the replayed run did not, or if such a step is among its causes. Calls of a
live step never take a recorded result; other branches are not concerned. All of this follows from the replay's own
journal, so a replay that was killed continues as it started.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Literal, TypeAlias

from orchestrator.executor.replay import ABSENT, REPLAYED
from orchestrator.executor.replay.recording import (
    Outside,
    RecordedCall,
    RecordedQuestion,
    Recording,
    is_node_itself,
    question_digest,
    state_digest,
)
from orchestrator.graph.topology import START
from orchestrator.json import digest
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply_stored
from orchestrator.kernel.fold.questions import timer_question
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Approve, Question
from orchestrator.kernel.records import Record
from orchestrator.kernel.run_state import Observer, RunState
from orchestrator.kernel.state import Activation, FrameResult, FrameState, MapItem
from orchestrator.kernel.version import Version

Live: TypeAlias = Literal["never", "ask", "always"]
_MOST_BESIDE = 200
"""Recorded calls with the same request that are looked at for the one of the same step."""


class RunningReplay(Observer):
    """State of a replay: the recorded results that it has not taken yet, and its live steps.

    It observes the replay's machine.

    Args:
        live: whether calls are made that the recording has no result for.
        recording: of the replayed run; None: of none, so that every step is live, as in a run that a replay called.
        models: names of the models that the replay has instead of those of the replayed run.
    """

    def __init__(self, live: Live, recording: Recording | None, models: Mapping[str, str] | None = None) -> None:
        self.live: Live = live
        self.recording = recording or Recording()
        self.models = dict(models or {})
        self._calls_by_request: dict[tuple[str, str, str, str, str], deque[RecordedCall]] = {}
        self._models: dict[tuple[str, str], dict[str, None]] = {}
        """Path and node -> names of the models that were asked there."""
        self._questions: dict[tuple[str, str, str], list[RecordedQuestion]] = {}
        self._index()
        self._all_live = self._counts_records = recording is None
        self._asked: dict[str, tuple[str, Question]] = {}
        self._happened: set[int] = set()
        self._causes_live: list[bool] = []
        self.waiting: Counter[str] = Counter()
        """Activations that wait for what stopped them in the replayed run, or for steps that ended there before."""
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
        """Only what follows the record of a fork is the fork's own."""
        self._counts_records = True
        self.diverged: set[tuple[str, str, int]] = set()
        """Key of an activation, digest, occurrence: of what the journal says that it diverged."""
        self._taken: set[int] = set()
        self._answered: Counter[tuple[str, str, str]] = Counter()
        self._calls: set[str] = set()
        """Keys of live calls."""
        self._live_from_start: set[str] = set()
        """Activations that are live from their first call on, because a live step is among their causes."""
        self._had_live_result: set[str] = set()
        """Activations that had the result of a live call."""
        self._live_outcomes: set[str] = set()
        """Activations whose outcome is live."""
        self._live_frames: set[str] = set()
        self._live_items: set[tuple[str, int]] = set()
        self._approved: Counter[str] = Counter()

    # -- what is taken -------------------------------------------------------------------------------------------

    def is_live(self, activation: Activation) -> bool:
        """True if something live causes the next call of a step."""
        return self._all_live or activation.key in self._live_from_start or activation.key in self._had_live_result

    def call(
        self, activation: Activation, kind: str, name: str, wanted: str, request: Mapping[str, object]
    ) -> RecordedCall | None:
        """The recorded call that a call of a step is, if no earlier one was.

        Args:
            wanted: digest of the request.
        """
        state = state_digest(activation) if is_node_itself(kind, name, activation.node, request) else ""
        left = self._calls_by_request.get((activation.path, activation.node, kind, name, wanted))
        while left and left[0].seq in self._taken:
            left.popleft()
        first = islice(left or (), _MOST_BESIDE)
        found = [call for call in first if call.state == state and call.seq not in self._taken]
        # Steps of one node may run at the same place at the same time: then the key of the step tells them apart.
        own = (call for call in found if call.intended.activation == activation.key)
        return next(own, found[0] if found else None)

    def model_name(
        self, activation: Activation, given: str, alias: str, request: Mapping[str, object], known: Mapping[str, str]
    ) -> str:
        """The name under which a request to a model is looked for.

        Unless the replay has another model, it is the name that the replayed run's model had, whatever model is there.

        Args:
            given: the name of the model that is there.
            alias: the name that the node uses for it.
            known: digest -> name of the calls of the step that the replay's own journal has.
        """
        if alias in self.models:
            return given
        for wanted, name in known.items():
            if digest({"kind": "model", "name": name, "request": request}) == wanted:
                return name
        if self.is_live(activation):
            return given
        names = self._models.get((activation.path, activation.node), ())
        for name in names:
            wanted = digest({"kind": "model", "name": name, "request": request})
            if name != given and self.call(activation, "model", name, wanted, request) is not None:
                return name
        return next(iter(names), given) if self.live == "never" or given == ABSENT else given

    def asks_about_live_call(self, activation: Activation) -> bool:
        """True if a step that is not live itself made, or is about to make, a live call."""
        return activation.key in self._live_outcomes

    def question(self, activation: Activation, question: Question) -> RecordedQuestion | None:
        """The recorded question that a question of a step is, if no earlier one was."""
        wanted = activation.path, activation.node, question_digest(question)
        alike, passed = self._questions.get(wanted, ()), self._answered[wanted]
        return alike[passed] if passed < len(alike) else None

    def next_outside(self) -> Outside | None:
        """The next record from outside of the replayed run; each is given once."""
        for record in self.recording.outside:
            if record.seq not in self._happened:
                self._happened.add(record.seq)
                return record
        return None

    def was_approved(self, name: str, args: object) -> bool:
        """True if a person approved this call of a tool in the replay itself, and it was not made since."""
        return self._approved[digest([name, args])] > 0

    def was_stopped(self, activation: Activation) -> bool:
        """True if a step was stopped in the replayed run before it ended, and nothing live is among its causes here."""
        return activation.key in self.recording.stopped and not self.is_live(activation)

    @property
    def is_as_recorded(self) -> bool:
        """True if nothing has been live so far."""
        return not self._live_outcomes

    # -- what follows from the replay's own journal -------------------------------------------------------------------

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
        """See `Observer.item_ready`. An item sees what the items that it needs made."""
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
    """The state of a replay, as its own records so far leave it."""
    replay = RunningReplay(live, recording, models)
    machine = RunState(plan, (replay,))
    for record in own:
        apply_stored(machine, record)
    return replay
