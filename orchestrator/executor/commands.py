"""Commands: what can be said to a run from outside. Answer a question, send an event, pause, cancel.

A command is a frozen fact. `apply` journals it in a run that this process holds; `body` is its form in the inbox of a
run that another process drives, which turns it back with `command_of`. `executor.delivery` is the one place that brings
a command to a run, whoever drives it.

An event is kept by the run until a step takes it. One that bears the name of an `Ask` node is a message for that node:
if the run waits there it is the answer, else the node's `on_busy` decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from pydantic import TypeAdapter

from orchestrator.errors import RunBusy, RunEnded
from orchestrator.executor.answers import about, check_answer, is_answerable
from orchestrator.executor.run_log import Command, RunLog, ToolsFor
from orchestrator.graph.codec import as_json
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.question import LATE, Answer, Question, Value
from orchestrator.kernel.records import Answered, Cancelled, EventReceived, Paused, TimerFired
from orchestrator.kernel.run_state import RunState
from orchestrator.nodes.ask import Ask
from orchestrator.values import FOREIGN_DEPTH, MAX_DEPTH, check_name, check_text


def answered_by_rule(log: RunLog, question: Question, answer: Answer, shown: str = "") -> Answered | TimerFired:
    """The record of what policy, or a time that has come, says to an open question.

    Args:
        shown: see `Answered.about`.
    """
    if is_answerable(question):
        return Answered(**log.now(), question=question.id, answer=answer, policy=True, about=shown)
    asker = log.machine.askers[question.id]
    return TimerFired(**log.now(), name=question.id, activation=asker.key, path=asker.path, node=asker.node)


@dataclass(frozen=True, slots=True)
class PassTime:
    """Have a run go on that waits for a time, or for an event until then.

    Only the run that called its graph as a tool says so: it asked the same by its own clock.
    """

    question: str
    type: Literal["late"] = "late"

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> PassTime:
        """Itself: what is not open any more is left alone."""
        return self

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal it. False: the run does not wait for this any more."""
        question = log.machine.questions.get(self.question)
        if question is None or question.deadline is None or is_answerable(question):
            return False
        log.push(answered_by_rule(log, question, LATE), message)
        return True

    def body(self) -> dict[str, object]:
        """See `Command.body`."""
        return asdict(self)


MAX_EVENT_BYTES = 1024 * 1024
"""UTF-8 bytes of the JSON of one event's data."""

MAX_KEPT = 10_000
"""How many events a run keeps that no step has taken."""

MAX_KEPT_BYTES = 64 * MAX_EVENT_BYTES
"""UTF-8 bytes of the JSON of all their data."""


@dataclass(frozen=True, slots=True)
class SendEvent:
    """Send an event to a run."""

    name: str
    data: object
    """Plain JSON."""
    id: str
    """Two events of one id are one event."""
    by: str = ""

    @classmethod
    def of(cls, body: Mapping[str, object]) -> SendEvent:
        """The event that a caller, or a message of a run's inbox, brings.

        Raises:
            InvalidValue: name or id is no name, or the data has no JSON form, or is too deep or too large.
            SecretInState: the data holds a secret.
        """
        data = as_json(body.get("data"), "the data of an event", inside=FOREIGN_DEPTH - MAX_DEPTH, size=MAX_EVENT_BYTES)
        return cls(
            check_name(body.get("name")), data, check_name(body.get("id"), "the id of an event"),
            check_text(body.get("by", ""), "by"),
        )  # fmt: skip

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> SendEvent:
        """See `Command.checked`.

        Raises:
            RunEnded: the run is at its end.
            RunBusy: the run keeps too many events, or the node that it is for takes none now.
            InvalidAnswer: the run waits at the node that it is for, and the data is no answer to its question.
        """
        if self.id in machine.events.ids:
            return self  # it is delivered again, maybe after the end
        if machine.ended is not None or machine.result is not None:
            result = machine.ended or machine.result
            assert result is not None
            raise RunEnded(machine.run_id, result.status)
        kept = machine.events
        if len(kept.kept) >= MAX_KEPT or kept.size >= MAX_KEPT_BYTES:
            most = f"{len(kept.kept):,} events ({kept.size:,} bytes)"
            raise RunBusy(machine.run_id, f"keeps {most} that no step has taken, and takes no more until one does")
        asked = asked_by(machine, self.name)
        for question in asked:
            check_answer(machine, question, Value(value=self.data), None, {}, now)
        modes = {ask.on_busy for ask in _asks(machine.plan.graph, self.name)}
        if not asked and modes == {"reject"}:
            raise RunBusy(
                machine.run_id,
                f"is busy: it does not wait at {self.name!r}, which takes a message only then (on_busy='reject'); "
                "send it again when the run pauses, or give the node on_busy='queue' or 'interrupt'",
            )
        return self

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal it. False: the run has it already."""
        machine = log.machine
        if self.id in machine.events.ids:
            return False
        asked = asked_by(machine, self.name)
        record = EventReceived(
            **log.now(),
            name=self.name,
            data=self.data,
            id=self.id,
            by=self.by,
            questions=tuple(one for one in asked if not machine.questions[one].event),
            interrupts=None if asked else _interrupted(machine, self.name),
            message=message,
        )
        log.push(record, message)
        return True

    def body(self) -> dict[str, object]:
        """See `Command.body`."""
        return {"type": "event", "name": self.name, "data": self.data, "id": self.id, "by": self.by}


def asked_by(machine: RunState, node: str) -> list[str]:
    """The ids of the open questions of `Ask` nodes of this name."""
    found = []
    for name, asker in machine.askers.items():
        graph = asker.frame.plan.graph
        if asker.node == node and graph is not None and isinstance(graph.nodes[node], Ask):
            found.append(name)
    return found


def _interrupted(machine: RunState, node: str) -> str | None:
    """The path of the running graph that a message for this node interrupts, the outermost first; None: none."""
    for frame in machine.frames():
        graph = frame.plan.graph
        ask = None if graph is None else graph.nodes.get(node)
        if isinstance(ask, Ask) and ask.on_busy == "interrupt" and frame.result is None:
            return frame.path
    return None


def _asks(graph: GraphDefinition | None, name: str) -> Iterator[Ask]:
    """The `Ask` nodes of this name in a graph and those inside it."""
    for key, node in () if graph is None else graph.nodes.items():
        if key == name and isinstance(node, Ask):
            yield node
        yield from _asks(node.subgraph, name)


_answers: TypeAdapter[Answer] = TypeAdapter(Answer)


@dataclass(frozen=True, slots=True)
class AnswerQuestion:
    """Answer a question of the run."""

    question: str
    answer: Answer
    by: str = ""
    digest: str | None = None
    """The digest of the question that was looked at; another one is refused."""

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> AnswerQuestion:
        """See `Command.checked`."""
        offered = tools(machine.plan.graph)
        return replace(self, answer=check_answer(machine, self.question, self.answer, self.digest, offered, now))

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal the answer."""
        shown = about(log.machine.questions[self.question])
        record = Answered(
            **log.now(), question=self.question, answer=self.answer, by=self.by, message=message, about=shown
        )
        log.push(record, message)
        return True

    def body(self) -> dict[str, object]:
        """See `Command.body`."""
        return {
            "type": "answer", "question": self.question, "answer": self.answer.model_dump(mode="json"), "by": self.by,
            "digest": self.digest,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stop:
    """Pause a run: what runs lands, and nothing more starts. Or cancel it: everything stops, and the run ends."""

    type: Literal["pause", "cancel"]
    by: str = ""
    reason: str = ""

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> Stop:
        """Itself: it fits any run."""
        return self

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal it. False: the run was at its end, or is paused already."""
        machine = log.machine
        if machine.result is not None or machine.ended is not None or (self.type == "pause" and machine.paused):
            return False
        if self.type == "pause":
            log.push(Paused(**log.now(), by=self.by, reason=self.reason, message=message), message)
        else:
            log.push(Cancelled(**log.now(), by=self.by, reason=self.reason, message=message), message)
        return True

    def body(self) -> dict[str, object]:
        """See `Command.body`."""
        return asdict(self)


def command_of(body: Mapping[str, object]) -> Command | None:
    """The command that a message of a run's inbox holds; None if it holds none of these.

    Raises:
        ValidationError: its answer is none.
        InvalidValue: its event is none.
    """
    by, reason = str(body.get("by", "")), str(body.get("reason", ""))
    match body.get("type"):
        case "pause":
            return Stop("pause", by, reason)
        case "cancel":
            return Stop("cancel", by, reason)
        case "event":
            return SendEvent.of(body)
        case "late":
            return PassTime(str(body.get("question")))
        case "answer":
            digest = body.get("digest")
            answer = _answers.validate_python(body.get("answer"))
            return AnswerQuestion(str(body.get("question")), answer, by, digest if isinstance(digest, str) else None)
        case _:
            return None
