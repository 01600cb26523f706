"""Commands to a run: answer a question, send an event, pause, cancel.

The rules of answers come first: validity, meaning, answers by policies and deadlines, and trust.

A command is a frozen fact. `apply` journals it in a run that this process holds; `body` is its form in the inbox of a
run that another process drives, which decodes it with `command_of`. Only `executor.command_delivery` delivers commands.

A run keeps an event until a step takes it. An event with the name of an `Ask` node is a message for that node:
if the run waits there it is the answer, else the node's `on_busy` decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from msgspec import Struct, structs
from pydantic import TypeAdapter, ValidationError

from orchestrator._lazy import lazy_modules
from orchestrator.errors import AgentError, InvalidAnswer, InvalidValue, QuestionUnknown, RunBusy, RunEnded, StaleAnswer
from orchestrator.executor.run_log import Command, RunLog, ToolsFor
from orchestrator.graph.codec import Codec, as_json
from orchestrator.graph.given_code import with_inner
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.state import StateSchema
from orchestrator.json import digest
from orchestrator.kernel.event_queue import fits
from orchestrator.kernel.question import LATE, Answer, Approve, Deny, Question, Value, in_family
from orchestrator.kernel.records import Answered, Asked, Cancelled, EventReceived, Paused, Record, TimerFired
from orchestrator.kernel.run_state import RunState
from orchestrator.tools.result import ToolResult
from orchestrator.tools.tool import Tool
from orchestrator.tools.validation import faults
from orchestrator.values import FOREIGN_DEPTH, MAX_DEPTH, Unfit, check_name, check_text
from orchestrator.views.call_questions import CHOICES
from orchestrator.views.untaken_events import unawaited

if TYPE_CHECKING:
    from orchestrator.nodes import ask, wait
else:
    ask, wait = lazy_modules("orchestrator.nodes", "ask wait")

log = logging.getLogger("orchestrator")
_anything = Codec(Any)
MOST_ENDED = 50
"""Number of runs that have ended, the newest ones with given labels, in which a repeated event is looked for."""
RISKS = ("none", "read", "write", "dangerous")


def is_answerable(question: Question) -> bool:
    """Return True if a person can answer a question: it waits neither for an event nor for time alone."""
    return question.kind != "timer" and not (question.kind == "event" and question.event)


def about(question: Question) -> str:
    """Return the digest of the tool call that a question asks to approve, as shown; empty for other questions."""
    payload = question.payload
    if question.kind != "approval" or "tool" not in payload:
        return ""
    return digest([payload["tool"], payload.get("args"), payload.get("risk")])


def as_answer(given: object) -> Answer:
    """Return the argument of `Executor.answer`: an answer unchanged, any other value as a `Value`, as plain JSON.

    Raises:
        InvalidAnswer: the value has no JSON form.
        SecretInState: the value contains a secret.
    """
    try:
        if isinstance(given, Deny):
            check_text(given.reason, "the reason")
            return given
        if isinstance(given, Approve):
            return (
                given if given.args is None else Approve(args=cast("dict[str, object]", _anything.encode(given.args)))
            )
        return Value(value=_anything.encode(given.value if isinstance(given, Value) else given))
    except (Unfit, InvalidValue) as error:
        raise InvalidAnswer(f"an answer must be plain JSON: {error}", where="answer") from None


def check_answer(
    machine: RunState, name: str, answer: Answer, expected: str | None, tools: Mapping[str, Tool], now: float
) -> Answer:
    """Return the answer in its journaled form, if it fits an open question.

    Args:
        name: the id of the question.
        expected: the digest of the question that was shown; None: any.
        now: Unix seconds.

    Raises:
        QuestionUnknown: no such question is open.
        StaleAnswer: `expected` is not the question's digest: it has changed; or the deadline passed.
        InvalidAnswer: the answer does not fit the question.
    """
    question = machine.questions.get(name)
    if question is None:
        raise QuestionUnknown(machine.run_id, name)
    if question.deadline is not None and question.deadline <= now:
        raise StaleAnswer(f"run {machine.run_id!r}: the deadline of question {name!r} has passed; its default applies")
    if expected is not None and expected != question.digest:
        raise StaleAnswer(f"run {machine.run_id!r}: question {name!r} has changed since it was answered; read it again")
    if not is_answerable(question):
        what = f"event {question.event!r}: send it" if question.event else "a time: it continues by itself"
        raise InvalidAnswer(f"run {machine.run_id!r}: {name!r} is not a question; it waits for {what}")
    if question.kind == "approval":
        return _approval(question, answer, tools)
    if question.kind == "unknown_outcome":
        return _outcome(machine, question, answer)
    if question.kind == "input" and isinstance(answer, Value):
        _fits(question, answer.value)
    elif question.kind == "input" and isinstance(answer, Approve):
        raise InvalidAnswer(f"question {name!r} asks for a value: answer with a value, or Deny()")
    return answer


def stale_or_unknown(run_id: str, name: str, records: Sequence[Record]) -> QuestionUnknown | StaleAnswer:
    """Return the error for a question that is not open: it never existed, or it is closed."""
    if any(isinstance(record, Asked) and record.question.id == name for record in records):
        return StaleAnswer(f"run {run_id!r}: question {name!r} is closed; each question is answered once")
    return QuestionUnknown(run_id, name)


def by_policy(machine: RunState, question: Question, now: float, due: float | None) -> Answer | None:
    """Return the answer given by the run's policy or a passed deadline; None if a person must answer.

    Args:
        due: when its deadline passes, by the same clock as `now`; None: no deadline.
    """
    if due is not None and due <= now:
        return LATE
    risk = question.payload.get("risk")
    if question.kind != "approval" or machine.approve is None or risk not in RISKS or "tool" not in question.payload:
        return None
    if in_family(question):  # a fork may repeat its parent's call: only a person can decide that
        return None
    return Approve() if RISKS.index(str(risk)) <= RISKS.index(machine.approve) else None


def policy_answers(
    machine: RunState, now: float, due: Callable[[RunState, Question], float | None]
) -> list[tuple[Question, Answer]]:
    """Return the open questions that policies and deadlines answer. Arguments: see `by_policy`; `due` by question."""
    found = [(one, by_policy(machine, one, now, due(machine, one))) for one in machine.questions.values()]
    return [(question, answer) for question, answer in found if answer is not None]


class OutcomeAnswer(NamedTuple):
    """The outcome of an effect, as answered by a person."""

    choice: str
    result: object


def outcome_answer(answer: Answer) -> OutcomeAnswer:
    """Return the answer to a question of kind `unknown_outcome`, as one of its choices."""
    value = answer.value if isinstance(answer, Value) else answer.type
    if isinstance(value, Mapping):
        return OutcomeAnswer(str(value.get("choice", "failed")), value.get("result"))
    return OutcomeAnswer({"approve": "retry", "deny": "failed"}.get(str(value), str(value)), None)


def _approval(question: Question, answer: Answer, tools: Mapping[str, Tool]) -> Answer:
    if isinstance(answer, Value) and answer.value in question.choices:
        return answer
    if isinstance(answer, Value) and question.choices:
        choices = ", ".join(question.choices)
        raise InvalidAnswer(f"question {question.id!r} takes Approve(), Deny() or {choices}, not {answer.value!r}")
    if isinstance(answer, Approve) and answer.args is not None and in_family(question):
        raise InvalidAnswer(
            f"question {question.id!r} is about the call as it is shown: its arguments cannot be changed"
        )
    if isinstance(answer, Value):
        raise InvalidAnswer(f"question {question.id!r} asks for an approval: answer Approve() or Deny(), not a value")
    tool = tools.get(str(question.payload.get("tool")))
    if not isinstance(answer, Approve) or answer.args is None:
        return answer
    if "tool" not in question.payload:
        raise InvalidAnswer(f"question {question.id!r} is not about a tool call: there are no arguments to change")
    if tool is None:
        return answer
    try:
        return Approve(args=dict(tool.validate(answer.args)))
    except AgentError as error:
        raise InvalidAnswer(f"question {question.id!r}: {error}") from None


def _outcome(machine: RunState, question: Question, answer: Answer) -> Answer:
    given = answer.value if isinstance(answer, Value) else None
    value = {"choice": given} if isinstance(given, str) else given if isinstance(given, Mapping) else {}
    place, schema, choice = f"question {question.id!r}", question.schema_, value.get("choice")
    if choice not in CHOICES or value.keys() - ({"choice", "result"} if choice == "happened" else {"choice"}):
        raise InvalidAnswer(f'{place} wants one of {", ".join(CHOICES)}, or {{"choice": "happened", "result": ...}}')
    found: Sequence[str] = ()
    if "result" in value and schema is not None:
        found = faults(value["result"], schema, schema, "the result")
        if found and _is_tool_result(machine, question, value["result"]):
            found = ()
    elif choice == "happened" and "result" not in value and (schema is None or faults(None, schema, schema)):
        whole = '{"choice": "happened", "result": ...}, or --result on the command line'
        nothing = "" if schema is not None else "; null if it returned nothing"
        found = [f"the step needs the result of the call: give {whole}{nothing}"]
    if found:
        raise InvalidAnswer(f"{place}: {'; '.join(found)}")
    return Value(value=dict(value))


def _is_tool_result(machine: RunState, question: Question, value: object) -> bool:
    """Return True if a result is a tool's result in its journaled form: with its error, or its output."""
    entry = machine.ledger.entry(str(question.payload.get("key")))
    if entry is not None and entry.intended.kind != "tool":  # None: a call of a run that the asking step started
        return False
    try:
        found = ToolResult.model_validate(value)
    except ValidationError:
        return False
    return found.failed or not faults(found.output, question.schema_, question.schema_ or {})


def _fits(question: Question, value: object) -> None:
    if question.choices and value not in question.choices:
        raise InvalidAnswer(f"question {question.id!r} wants one of {', '.join(question.choices)}, not {value!r}")
    schema = question.schema_
    found = faults(value, schema, schema, "the answer") if schema is not None else []
    if found:
        raise InvalidAnswer(f"question {question.id!r}: {'; '.join(found)}")


def answered_by_rule(log: RunLog, question: Question, answer: Answer, shown: str = "") -> Answered | TimerFired:
    """Return the record with which a policy or a passed time answers an open question.

    Args:
        shown: see `Answered.about`.
    """
    if is_answerable(question):
        return Answered(**log.now(), question=question.id, answer=answer, policy=True, about=shown)
    asker = log.machine.askers[question.id]
    return TimerFired(**log.now(), name=question.id, activation=asker.key, path=asker.path, node=asker.node)


class PassTime(Struct, frozen=True):
    """Continue a run that waits for a time, or for an event until then.

    Sent only by the run that called its graph as a tool: that run asked the same by its own clock.
    """

    question: str
    type: Literal["late"] = "late"

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> PassTime:
        """Return the command unchanged: if the question is no longer open, nothing happens."""
        return self

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal that the time has passed. Returns False if the run no longer waits for this."""
        question = log.machine.questions.get(self.question)
        if question is None or question.deadline is None or is_answerable(question):
            return False
        log.push(answered_by_rule(log, question, LATE), message)
        return True

    def body(self) -> dict[str, object]:
        """See `Command.body`."""
        return structs.asdict(self)


MAX_EVENT_BYTES = 1024 * 1024
"""Maximum size of one event's data: UTF-8 bytes of its JSON."""

MAX_KEPT = 10_000
"""Maximum number of events that a run keeps before steps take them."""

MAX_KEPT_BYTES = 64 * MAX_EVENT_BYTES
"""Maximum size of the data of all these events: UTF-8 bytes of their JSON."""


class SendEvent(Struct, frozen=True):
    """Send an event to a run."""

    name: str
    data: object
    """Plain JSON."""
    id: str
    """Events with the same id are the same event."""
    by: str = ""
    refusable: bool = False
    """Whether data of a wrong type is refused: where it is sent. What a run's inbox has, was accepted."""

    @classmethod
    def of(cls, body: Mapping[str, object]) -> SendEvent:
        """Return the event of a caller's arguments, or of a message of a run's inbox.

        Raises:
            InvalidValue: name or id is not a valid name, or the data has no JSON form, or is too deep or too large.
            SecretInState: the data contains a secret.
        """
        data = as_json(body.get("data"), "the data of an event", inside=FOREIGN_DEPTH - MAX_DEPTH, size=MAX_EVENT_BYTES)
        return cls(
            check_name(body.get("name")),
            data,
            check_name(body.get("id"), "the id of an event"),
            check_text(body.get("by", ""), "by"),
        )

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> SendEvent:
        """See `Command.checked`. A warning is logged if no node waits for the event.

        Raises:
            RunEnded: the run has ended.
            RunBusy: the run keeps too many events, or the node that it is for accepts none now.
            InvalidAnswer: the run waits at the node that it is for, and the data does not fit its question; or no step
                that waits for it, now or later, could write it to its field.
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
            raise RunBusy(machine.run_id, f"keeps {most} that no step has received, and accepts no more until one does")
        asked = asked_by(machine, self.name)
        for question in asked:
            check_answer(machine, question, Value(value=self.data), None, {}, now)
        if self.refusable and (fault := data_fault(machine, tools, self.name, self.data)):
            raise InvalidAnswer(f"the data of the event {self.name!r} does not fit: {fault}", where="data")
        modes = {ask.on_busy for ask in _asks(machine.plan.graph, self.name)}
        if not asked and modes == {"reject"}:
            raise RunBusy(
                machine.run_id,
                f"is busy: it does not wait at {self.name!r}, which accepts messages only then (on_busy='reject'); "
                "send it again when the run pauses, or give the node on_busy='queue' or 'interrupt'",
            )
        if fault := unawaited(machine, self.name):  # kept nevertheless: the run may migrate to a graph that waits
            log.warning("run %s keeps the event %r, but %s", machine.run_id, self.name, fault)
        return self

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal the event. Returns False if the run has it already."""
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


def data_fault(machine: RunState, tools: ToolsFor, name: str, data: object) -> str:
    """Return why steps that may take this event could not write its data to their fields; empty if they can.

    A `Wait` that waits now, and whose `match` fits, takes it; if it is in a graph that a step calls as a tool, the step
    asks in its place. If there is none, any `Wait` for this name may take it later. Fields whose class is not loaded
    have no known type.
    """
    own, called = _waits([machine.plan.graph], name), _waits(_called(machine.plan.graph, tools), name)
    taking = [one for one in machine.questions.values() if one.event == name and fits(data, one.match)]
    asking = [[one for one in own if one[0] == question.node] or called for question in taking]
    for takers in asking or [own + called]:
        said = [node.misfit(data, schema) for _, node, schema in takers]
        if said and all(said):
            return said[0]
    return ""


def _called(graph: GraphDefinition | None, tools: ToolsFor) -> list[GraphDefinition]:
    """Return the graphs that a graph calls as tools, and those that these call, as far as they are loaded."""
    found: list[GraphDefinition] = []
    left = [graph]
    while left:
        for tool in tools(left.pop()).values():
            inner = getattr(tool, "graph", None)
            if isinstance(inner, GraphDefinition) and not any(inner is one for one in found):
                found.append(inner)
                left.append(inner)
    return found


def unchecked(machine: RunState, name: str) -> str:
    """Return that the type of an event's data is not known, as the class of a state is not loaded; empty if it is."""
    for _, node, schema in _waits([machine.plan.graph], name):
        if node.into is not None and schema.cls is None:
            return f"the type of its data is not checked: the code of graph {machine.plan.name!r} is not loaded here"
    return ""


def _waits(graphs: Sequence[GraphDefinition | None], event: str) -> list[tuple[str, wait.Wait, StateSchema]]:
    """Return the `Wait` nodes for an event in graphs and in graphs inside them, with their names and states."""
    return [
        (name, node, graph.schema)
        for graph in with_inner([one for one in graphs if one is not None])
        for name, node in graph.nodes.items()
        if isinstance(node, wait.Wait) and node.event == event
    ]


def asked_by(machine: RunState, node: str) -> list[str]:
    """Return the ids of the open questions of `Ask` nodes with this name."""
    found = []
    for name, asker in machine.askers.items():
        graph = asker.frame.plan.graph
        if asker.node == node and graph is not None and isinstance(graph.nodes[node], ask.Ask):
            found.append(name)
    return found


def _interrupted(machine: RunState, node: str) -> str | None:
    """Return the path of the running graph that a message for this node interrupts, outermost first; None if none."""
    for frame in machine.frames():
        graph = frame.plan.graph
        asker = None if graph is None else graph.nodes.get(node)
        if isinstance(asker, ask.Ask) and asker.on_busy == "interrupt" and frame.result is None:
            return frame.path
    return None


def _asks(graph: GraphDefinition | None, name: str) -> Iterator[ask.Ask]:
    """Yield the `Ask` nodes with this name in a graph and in graphs inside it."""
    for key, node in () if graph is None else graph.nodes.items():
        if key == name and isinstance(node, ask.Ask):
            yield node
        yield from _asks(node.subgraph, name)


_answers: TypeAdapter[Answer] = TypeAdapter(Answer)


class AnswerQuestion(Struct, frozen=True):
    """Answer a question of the run."""

    question: str
    answer: Answer
    by: str = ""
    digest: str | None = None
    """Digest of the question that was shown; the answer is refused if the question has another digest."""

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> AnswerQuestion:
        """See `Command.checked`."""
        offered = tools(machine.plan.graph)
        answer = check_answer(machine, self.question, self.answer, self.digest, offered, now)
        return structs.replace(self, answer=answer)

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
            "type": "answer",
            "question": self.question,
            "answer": self.answer.model_dump(mode="json"),
            "by": self.by,
            "digest": self.digest,
        }


class Stop(Struct, frozen=True):
    """Pause a run: running steps land, and no new ones start. Or cancel it: everything stops, and the run ends."""

    type: Literal["pause", "cancel"]
    by: str = ""
    reason: str = ""

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> Stop:
        """Return the command unchanged: it fits any run."""
        return self

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal the pause or the cancellation. Returns False if the run has ended, or is already paused."""
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
        return structs.asdict(self)


def command_of(body: Mapping[str, object]) -> Command | None:
    """Return the command in a message of a run's inbox; None if there is none of these.

    Raises:
        ValidationError: its answer is not valid.
        InvalidValue: its event is not valid.
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
