"""A run as a conversation: its records and live events as parts that every protocol can encode.

    UserSaid                                   a message of the user
    TextGrew, TextEnded, TextWithdrawn         a reply of a model, or its reasoning, piece by piece
    ToolCalled, ToolEdited, ToolReturned       a call of a tool
    QuestionClosed                             an answer; open questions are in `TurnEnded`
    StepBegan, StepEnded                       a step of the graph
    StateChanged                               the fields of the state that clients are shown

Parts follow from the journal: a client that reads it later gets the same messages with the same ids. Only pieces of
replies under way are live; a reply that starts again is withdrawn first. A *turn* ends when the run ends or waits for a
person.

Texts that look like secrets are redacted, except in questions: what is approved is what is shown. While a reply is
streamed, each word is redacted with the line before it. A secret of several words or lines is seen once the reply is
whole, which is withdrawn then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.kernel import records as r
from orchestrator.kernel.queries import open_questions, state_values
from orchestrator.kernel.question import Approve, Deny, Question, Value, parts_of
from orchestrator.models.messages import REASONING
from orchestrator.redaction import redact, redacted
from orchestrator.views.reader import Fold

if TYPE_CHECKING:
    from orchestrator.kernel.run_state import Delta
    from orchestrator.views.events import Event

FOR_PEOPLE = ("approval", "input", "unknown_outcome", "pause", "limit")
"""Kinds of questions that end a turn. A run that waits for a time or an event goes on by itself."""
MESSAGE = "message"
"""Label of a run that a client started: the id of the client's message."""
REASONING_END = ".reasoning"
"""End of the id of a message with the reasoning before a reply."""
_LAST_WORD = re.compile(r"(?<![!-~])[!-~]++\Z")
_LONGEST_WORD = 4_000
"""Characters of a word up to which it is shown as a whole only. Keys are shorter; data without spaces may be longer."""
_LONGEST_LINE = 2_000
"""Characters of a line in which a name before a value is seen."""
ANSWER = ".answer"
"""End of the id of a message that a person gave as an answer."""


@dataclass(frozen=True, slots=True)
class UserSaid:
    """The user wrote a message."""

    message: str
    text: str


@dataclass(frozen=True, slots=True)
class TextGrew:
    """A message got more text; the first piece begins it."""

    message: str
    text: str
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class TextEnded:
    """A message is complete."""

    message: str
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class TextWithdrawn:
    """A message no longer counts: its call is made again, or the reply was read otherwise."""

    message: str
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A tool is to be called with these arguments."""

    call: str
    tool: str
    args: Mapping[str, object]
    message: str
    """The model's message that asked for it; empty if none did."""


@dataclass(frozen=True, slots=True)
class ToolEdited:
    """A person approved a call with other arguments."""

    call: str
    tool: str
    args: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A call ended."""

    call: str
    text: str
    """The result, as the model reads it."""
    output: object = None
    """The result as plain JSON."""
    error: str = ""
    denied: bool = False
    """True if a person refused the call."""


@dataclass(frozen=True, slots=True)
class QuestionClosed:
    """A question was answered."""

    question: Question


@dataclass(frozen=True, slots=True)
class StepBegan:
    """An attempt at a node began."""

    name: str


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A step ended."""

    name: str


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The shown fields of the state have other values."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The run ended, or waits for a person."""

    status: str
    """`paused`, `interrupted`, `completed`, `failed`, `cancelled` or `exhausted`."""
    questions: tuple[Question, ...] = ()
    """The open questions, unless a message of the user is what the run waits for."""
    awaits_message: bool = False
    output: object = None
    error: str = ""


Part: TypeAlias = (
    UserSaid | TextGrew | TextEnded | TextWithdrawn | ToolCalled | ToolEdited | ToolReturned
    | QuestionClosed | StepBegan | StepEnded | StateChanged | TurnEnded
)  # fmt: skip


@dataclass(slots=True)
class Message:
    """A message of the conversation."""

    id: str
    role: str
    """`user`, `assistant`, `reasoning` or `tool`."""
    text: str = ""
    calls: list[ToolCalled] = field(default_factory=list)
    activation: str = ""
    complete: bool = True
    """False for a reply under way."""
    shown: bool = True
    """False for a reply of which nothing was shown yet."""
    raw: str = ""
    """The text before redaction, as far as it was streamed."""
    line: str = ""
    """The last line of it, as far as it is shown: `password:` in it tells what follows."""
    held: str = ""
    """The word after that, which is not shown yet."""
    call: str = ""
    """The call that a `tool` message answers."""
    result: ToolReturned | None = None
    """The result in a `tool` message."""


@dataclass(slots=True)
class Call:
    """A call of a tool."""

    part: ToolCalled
    given: str
    """Its id in the model's reply."""
    args: Mapping[str, object]
    """The arguments, also after an edit."""
    shown: Mapping[str, object]
    """The same, redacted."""
    key: str = ""
    """Key of the effect, once the call is made."""
    question: Question | None = None
    """The question whether to make it."""
    approved: bool | None = None
    """The answer; None: there is none."""
    returned: ToolReturned | None = None


def awaits_text(question: Question) -> bool:
    """Return True if any text answers a question, so that the user's next message does."""
    kind = (question.schema or {}).get("type", "string")
    free = question.schema is None or (kind == "string" and not question.schema.keys() & {"enum", "const", "pattern"})
    return question.kind == "input" and not question.choices and free


class Conversation(Fold):
    """Reads the records and live events of one run.

    Args:
        input: the state field that has the user's first message.
        shown: names of the nodes whose replies are shown; None: all.
        state: the fields of the state that are shown.
        earlier: the conversation of the earlier runs of the thread, which this one continues; None: there are none.
    """

    def __init__(
        self,
        input: str,  # noqa: A002
        *,
        shown: Collection[str] | None = None,
        state: Collection[str] = (),
        earlier: Conversation | None = None,
    ) -> None:
        self.messages: dict[str, Message] = {} if earlier is None else {**earlier.messages}
        """All messages, in order, by id."""
        self.state: Mapping[str, Any] = {}
        """The shown fields."""
        self.turn = 0
        """The last record before the current turn."""
        self._input, self._shown, self._fields = input, shown, state
        self._parts: list[Part] = []
        self._earlier = len(self.messages)
        self.calls: dict[str, Call] = {} if earlier is None else {**earlier.calls}
        """All calls of tools, by id."""
        self._open: dict[str, Call] = {}
        self._asking: dict[str, Question] = {}
        self._reply = ""
        """The last reply since a question that a text answers."""
        self._steps: dict[str, str] = {}
        self._names: set[str] = set()

    def parts(self) -> list[Part]:
        """Return the parts since the previous call."""
        found, self._parts = self._parts, []
        return found

    @property
    def opener(self) -> str:
        """The id of the user's message that the last replies follow; empty: there is none."""
        said = (
            one.id for one in reversed(self.messages.values()) if one.role == "user" and not one.id.endswith(ANSWER)
        )
        return next(said, "")

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions that people answer."""
        return tuple(one for one in open_questions(self.run) if one.kind in FOR_PEOPLE)

    @property
    def at_rest(self) -> bool:
        """True if the run has ended, or waits for a person and for nothing else."""
        return self.run.ended is not None or (self.run.status == "paused" and bool(self.questions))

    def end(self) -> TurnEnded:
        """Return the end of the turn of a run that is at rest."""
        ended, asked = self.run.ended, self.questions
        if ended is not None:
            error = redact(str(ended.error)) if ended.error else ""
            return TurnEnded(ended.status, output=redacted(ended.output), error=error)
        alone = len(asked) == 1 and awaits_text(asked[0])
        return TurnEnded("paused", asked, awaits_message=alone)

    # -- the fold --------------------------------------------------------------------------------------------------

    def applying(self, record: r.Record) -> None:
        """See `Observer.applying`."""
        if self.run.head and self.at_rest:
            self.turn = self.run.head

    def applied(self, record: r.Record, delta: Delta) -> None:
        """See `Fold.applied`."""
        match record:
            case r.RunStarted():
                text = record.values.get(self._input)
                self._said(record.labels.get(MESSAGE) or f"{record.run_id}.input", text)
            case r.EventReceived():
                node = self.run.plan.graph.nodes.get(record.name) if self.run.plan.graph is not None else None
                if record.questions or (node is not None and node.kind == "ask"):
                    self._said(record.id or f"{self.run.run_id}.event-{record.seq}", record.data)
            case r.EffectIntended() if not record.inside:
                self._intended(record)
            case r.EffectSettled():
                self._settled(record)
            case r.Asked():
                self._asked(record.question)
            case r.Answered():
                self._answered(record)
            case r.StepDone():
                self._returned_in(record.update)
                self._step_ended(record.activation, record.path, record.node)
            case r.StepRetried() | r.StepFailed():
                self._withdraw_step(record.activation)
                self._step_ended(record.activation, record.path, record.node)
            case r.Resumed():
                for one in [*self.messages.values()]:
                    if not one.complete:
                        self._withdraw(one)
            case r.Ended(status="completed", output=str() as text) if text:
                own = [*self.messages.values()][self._earlier :]
                last = next((one.raw for one in reversed(own) if one.role == "assistant"), "")
                self._say(f"{self.run.run_id}.output", text, last)
            case _:
                pass
        if self._fields and isinstance(record, r.RunStarted | r.StepDone | r.Ended | r.Forked | r.Migrated):
            self._show_state()

    def live_event(self, event: Event) -> None:
        """See `Fold.live_event`."""
        data = event.data
        if event.type == "step_started":
            self._step_began(str(data.get("activation")), event.path, event.node)
        elif event.type == "token":
            self._token(str(data.get("key")), data)
        elif event.type == "reset" and data.get("key"):
            for name in (str(data["key"]), _reasoning_id(str(data["key"]))):
                if name in self.messages:
                    self._withdraw(self.messages[name])
        elif event.type == "reset":
            self._withdraw_step(str(data.get("activation")))

    # -- messages --------------------------------------------------------------------------------------------------

    def _said(self, name: str, text: object) -> None:
        if isinstance(text, str) and text:
            self.messages[name] = Message(name, "user", redact(text))
            self._parts.append(UserSaid(name, redact(text)))

    def _say(self, name: str, text: str, last: str) -> None:
        """Show a text that no model replied, unless the last reply has it."""
        if text.strip() not in last:
            self.messages[name] = Message(name, "assistant", redact(text), raw=text)
            self._parts += [TextGrew(name, redact(text)), TextEnded(name)]

    def _intended(self, record: r.EffectIntended) -> None:
        if record.kind == "model" and (self._shown is None or record.node in self._shown):
            if record.key not in self.messages:
                made = Message(record.key, "assistant", activation=record.activation, complete=False, shown=False)
                self.messages[record.key] = made
        elif record.kind == "tool":
            self._called(record)

    def _token(self, key: str, data: Mapping[str, object]) -> None:
        message = self.messages.get(key)
        if message is None or message.complete:
            return
        if data.get("omitted"):  # its beginning is missing: it is shown when it is whole
            message.complete = True
            return
        thought, text = data.get("reasoning"), data.get("text")
        if isinstance(thought, str) and thought:
            self._grow(self._reasoning(message), thought)
        if isinstance(text, str) and text:
            if not message.raw and _reasoning_id(key) in self.messages:
                self._grow(self._reasoning(message), "", ends=True)
                self._parts.append(TextEnded(_reasoning_id(key), reasoning=True))
            self._grow(message, text)

    def _reasoning(self, message: Message) -> Message:
        """Return the message with the reasoning before a reply."""
        name = _reasoning_id(message.id)
        if name not in self.messages:
            made = Message(name, "reasoning", activation=message.activation, complete=False, shown=False)
            before = {**self.messages}
            self.messages.clear()
            for key, one in before.items():
                if key == message.id:
                    self.messages[name] = made
                self.messages[key] = one
        return self.messages[name]

    def _grow(self, message: Message, text: str, *, ends: bool = False) -> None:
        """Show a piece, without a word at its end that may go on: a key in it is seen once the word is whole.

        Args:
            message: the message.
            text: the piece.
            ends: whether no further one follows, so that the last word is shown, too.
        """
        message.raw += text
        held = message.held + text
        word = None if ends else _LAST_WORD.search(held)
        cut = len(held) if word is None or len(word[0]) > _LONGEST_WORD else word.start()
        before, line = redact(message.line), message.line + held[:cut]
        shown, message.held = redact(line), held[cut:]
        message.line = line[line.rfind("\n") + 1 :] if len(line) < _LONGEST_LINE else ""
        piece = shown.removeprefix(before) if shown.startswith(before) else ""
        if piece:
            message.shown = True
            message.text += piece
            self._parts.append(TextGrew(message.id, piece, message.role == "reasoning"))

    def _complete(self, message: Message, text: str) -> None:
        """Give a message its whole text."""
        whole, thought = redact(text), message.role == "reasoning"
        if not whole.startswith(message.text) or not text.startswith(message.raw):
            self._withdraw(message)
        rest = whole[len(message.text) :]
        if rest:
            message.shown = True
            self._parts.append(TextGrew(message.id, rest, thought))
        message.text, message.raw, message.complete = whole, text, True
        message.line = message.held = ""
        self._reply = self._reply if thought else text
        if whole:
            self._parts.append(TextEnded(message.id, thought))

    def _withdraw(self, message: Message) -> None:
        if message.shown and message.text:
            self._parts.append(TextWithdrawn(message.id, message.role == "reasoning"))
        message.text = message.raw = message.line = message.held = ""
        message.complete = message.shown = False

    def _withdraw_step(self, activation: str) -> None:
        for one in [*self.messages.values()]:
            if one.activation == activation and not one.calls:
                self._withdraw(one)

    def _settled(self, record: r.EffectSettled) -> None:
        message = self.messages.get(record.key)
        if message is None or message.role != "assistant":
            self._effect_returned(record)
            return
        reply = record.result if isinstance(record.result, Mapping) else {}
        if not record.ok or record.next_at is not None:
            self._withdraw(message)
            return
        extras = reply.get("extras")
        thought = next((extras[name] for name in REASONING if extras.get(name)), "") if isinstance(extras, dict) else ""
        streamed = self.messages.get(_reasoning_id(record.key))
        if isinstance(thought, str) and (thought or streamed is not None):
            self._complete(self._reasoning(message), thought or (streamed.raw if streamed is not None else ""))
        self._complete(message, str(reply.get("text") or ""))
        for number, one in enumerate(reply.get("tool_calls") or ()):
            args = one.get("arguments")
            given = args if isinstance(args, Mapping) else {"raw": str(one.get("raw", ""))}
            self._call(str(one.get("id") or f"{record.key}.{number}"), str(one.get("name")), given, message)

    # -- calls of tools --------------------------------------------------------------------------------------------

    def _call(self, given: str, tool: str, args: Mapping[str, object], message: Message | None) -> Call:
        name, number = given, 1
        while name in self.calls:
            number += 1
            name = f"{given}.{number}"
        shown: Any = redacted(args)
        part = ToolCalled(name, tool, shown, "" if message is None else message.id)
        if message is None:
            self.messages[name] = Message(name, "assistant", calls=[part])
        else:
            message.calls.append(part)
            message.shown = True
        self._parts.append(part)
        self._open[name] = self.calls[name] = Call(part, given, args, shown)
        return self._open[name]

    def _find(self, tool: object, args: object, given: object = None) -> Call | None:
        """Return the open call that a question or an effect is about."""
        free = [one for one in self._open.values() if one.part.tool == tool and not one.key]
        by_id = [one for one in free if given and one.given == given]
        same = [one for one in by_id or free if one.args == args]
        return next(iter(same or by_id), None)

    def _asked(self, question: Question) -> None:
        self._asking[question.id] = question
        about = parts_of(question.kind, question.payload).call
        if question.kind == "approval" and "tool" in about:
            args = about.get("args")
            plain = args if isinstance(args, Mapping) else {"args": args}
            call = self._find(about["tool"], plain, about.get("call_id"))
            if call is None:
                call = self._call(str(about.get("call_id") or question.id), str(about["tool"]), plain, None)
            call.question, call.approved = question, None
        elif awaits_text(question) and question.prompt:
            self._say(question.id, question.prompt, self._reply)
            self._reply = ""

    def call_of(self, question: Question) -> Call | None:
        """Return the call that an approval is about."""
        asked = (one for one in self.calls.values() if one.question is not None and one.question.id == question.id)
        return next(asked, None)

    def _answered(self, record: r.Answered) -> None:
        question = self._asking.pop(record.question, None)
        if question is None:
            return
        answer, call = record.answer, self.call_of(question)
        if question.kind in FOR_PEOPLE and not record.policy and not awaits_text(question):
            self._parts.append(QuestionClosed(question))
        if isinstance(answer, Value) and question.kind == "input":
            self._said(f"{question.id}{ANSWER}", answer.value if isinstance(answer.value, str) else None)
        if call is None or question.kind != "approval":
            return
        call.approved = isinstance(answer, Approve)
        if isinstance(answer, Approve) and answer.args is not None:
            shown: Any = redacted(answer.args)
            call.args, call.shown = answer.args, shown
            self._parts.append(ToolEdited(call.part.call, call.part.tool, shown))
        elif isinstance(answer, Deny) and call.part.call in self._open:
            self._return(call, None, f"denied{f': {answer.reason}' if answer.reason else ''}", denied=True)

    def _called(self, record: r.EffectIntended) -> None:
        if any(one.key == record.key for one in self._open.values()):
            return
        args = record.request.get("args")
        plain = args if isinstance(args, Mapping) else {"args": args}
        found = self._find(record.name, plain) or self._call(record.key, record.name, plain, None)
        found.key = record.key

    def _effect_returned(self, record: r.EffectSettled) -> None:
        call = next((one for one in self._open.values() if one.key == record.key), None)
        if call is None or record.next_at is not None or record.unknown:
            return
        result = record.result
        output = result.get("output") if isinstance(result, Mapping) else result
        error = r.failed_result(result) if record.ok else str(record.error or "it failed")
        self._return(call, output, error or "")

    def _returned_in(self, update: object) -> None:
        """Find results of calls that had no effect, such as refused ones, in the messages of an update."""
        if not self._open or not isinstance(update, Mapping):
            return
        for one in _tool_messages(update.values()):
            call = next((call for call in self._open.values() if call.given == one.get("tool_call_id")), None)
            if call is not None and not call.key:
                data = one.get("data")
                error = r.failed_result(data) or "" if isinstance(data, Mapping) else ""
                self._return(call, str(one.get("content") or ""), error)

    def _return(self, call: Call, output: object, error: str, *, denied: bool = False) -> None:
        name, plain, fault = call.part.call, redacted(output), redact(error)
        del self._open[name]
        text = plain if isinstance(plain, str) else "" if plain is None and fault else json.dumps(plain)
        call.returned = ToolReturned(name, text or fault, plain, fault, denied)
        result = Message(f"{name}.result", "tool", text or fault, call=name, result=call.returned)
        self.messages[result.id] = result
        self._parts.append(call.returned)

    # -- steps and state -------------------------------------------------------------------------------------------

    def _step_began(self, activation: str, path: str, node: str) -> None:
        if activation in self._steps:
            return
        name = place = f"{path}/{node}" if path else node
        number = 1
        while name in self._names:
            number += 1
            name = f"{place} {number}"
        self._steps[activation] = name
        self._names.add(name)
        self._parts.append(StepBegan(name))

    def _step_ended(self, activation: str, path: str, node: str) -> None:
        self._step_began(activation, path, node)
        name = self._steps.pop(activation)
        self._names.discard(name)
        self._parts.append(StepEnded(name))

    def _show_state(self) -> None:
        values = state_values(self.run)
        shown: Any = redacted({name: values[name] for name in self._fields if name in values})
        if shown != self.state:
            self.state = shown
            self._parts.append(StateChanged(shown))


def _reasoning_id(key: str) -> str:
    return f"{key}{REASONING_END}"


def _tool_messages(values: Iterable[object]) -> Iterable[Mapping[str, Any]]:
    """Yield the messages with results of tools in the values of an update."""
    for value in values:
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, Mapping) and one.get("role") == "tool":
                yield one
