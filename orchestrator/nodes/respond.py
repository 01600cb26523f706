"""A model continues a conversation: it answers, or it calls tools.

`Respond` calls the model and reads its reply in one node. `CallModel` and `ReadReply` are its two halves, for graphs
that show each model call as a separate step. `Continuation` has the fields and methods for the request,
`Interpretation` those for reading the reply.

Models separate thoughts from answers by labels: `Thought 1: ...`, `Final Answer: ...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, pairwise
from typing import Annotated, Any, ClassVar, Literal, NoReturn, TypeAlias, get_args, get_origin

from pydantic import BaseModel, Field, JsonValue, NonNegativeInt, PositiveInt

from orchestrator.context import Context
from orchestrator.errors import AgentError, RequestTooLong, StepError
from orchestrator.graph.faults import Spelled
from orchestrator.graph.model import Effect, GraphDefinition, Node, Port
from orchestrator.graph.outcome import DONE, TOO_LONG, Failing, Outcome
from orchestrator.graph.reducers import append
from orchestrator.json import JsonObject, digest
from orchestrator.models.base import Model, ToolLike
from orchestrator.models.messages import (
    REASONING,
    Message,
    Reply,
    ToolCall,
    is_summary,
    tool_result,
    user,
    without_thoughts,
)
from orchestrator.models.messages import system as said
from orchestrator.models.text import TextProtocol
from orchestrator.models.text.conversation import said_in
from orchestrator.models.text.forms import offers_of
from orchestrator.models.text.protocol import FORMS
from orchestrator.nodes.conversation import (
    added,
    answer_of,
    distinct,
    ended_by,
    failed,
    joined,
    label,
    thought_in,
    thought_label,
    trimmed,
)
from orchestrator.nodes.model_decision import quoted, reopened, sent_back, unwritten
from orchestrator.nodes.templates import fill, filled_by
from orchestrator.nodes.window import ContextUsage, refused_usage, within_window
from orchestrator.tasks import away
from orchestrator.tools.stored_results import OFFLOADED, READ_RESULT, ReadResult

CallProtocol: TypeAlias = Literal["native", "json", "bracket", "plugin", "separator"]


class Talk(BaseModel, metaclass=Spelled):
    """The fields shared by the request to a model and the reading of its reply."""

    kind: ClassVar[str]

    messages: Annotated[str, Port(list)] = "messages"
    """Field with the conversation, one with the reducer `append` or a plain one."""
    protocol: CallProtocol | Literal["code"] = "native"
    """The form of tool calls: the provider's own, or text in the named form (see `TextProtocol`). `code`: the model
    writes code, for a `Code` to run."""
    finish: str = ""
    """Name of an action, offered in addition to the tools, by which the model gives its answer; empty for none."""
    tools_offered: bool = True
    """False: the model can only answer, in words or by `finish`. Once the retries are used up, the text of an unusable
    reply becomes the answer.
    """

    def _fail(self, why: str) -> NoReturn:
        raise AgentError(f"{self.kind}: {why}")


class Continuation(Talk):
    """The fields of a request for the next message, and the methods that make it."""

    system: str = ""
    """The system message, verbatim; empty for none."""
    prompt: Annotated[str, filled_by("question")] = "{question}"
    """The user's message."""
    question: Annotated[str | None, Port(str)] = None
    """Field with the user's question; None if the conversation contains it."""
    tools_prompt: str | None = None
    """The text that describes the tools in a text protocol; see `TextProtocol`."""
    parallel_tool_calls: bool | None = None
    """True or False to allow several calls in one reply or not; None to leave it to the model."""
    keep: PositiveInt | None = None
    """The model sees at least this many of the latest messages, plus the system message and the questions; None for
    all.
    """
    task: str | None = None
    """The kind of decision, which is passed to the model with the messages."""

    def problems_in(self, name: str, graph: GraphDefinition) -> Iterator[str]:
        """See `Node.problems_in`."""
        if self.messages not in graph.schema.fields:
            return
        field = graph.schema.field(self.messages)
        if _item_type(field.annotation) in _NO_MESSAGE:
            yield f"{name} reads messages from {self.messages!r}, whose items are others: make it a list[Message]"
        given = (graph.input,) if isinstance(graph.input, str) else graph.input
        others = (node for other, node in graph.nodes.items() if other != name)
        written = any(node.updates is None or self.messages in node.updates for node in others)
        if self.question is None and given and self.messages not in given and not (written or field.required):
            yield (
                f"{name} has nothing to answer: nothing writes to {self.messages!r} before it. Name the field with the "
                f"question, such as question={given[0]!r}, or make {self.messages!r} an input of the graph"
            )

    def asked(self, state: object, talk: Sequence[Message], *, ended: bool) -> list[Message]:
        """Return the question as a message, if it is the user's turn.

        Args:
            state: the state, with the question.
            talk: the conversation so far.
            ended: a tool ended the work on the last question, so another question is the user's turn.
        """
        question = "" if self.question is None else str(getattr(state, self.question))
        theirs = not talk or talk[-1].role == "system" or (talk[-1].role == "assistant" and not talk[-1].tool_calls)
        if ended:
            last = next((one for one in reversed(talk) if one.role == "user" and not is_summary(one)), None)
            theirs = last is None or question not in (last.content, (last.data or {}).get("question"))
        if not question.strip() or not theirs:
            return []
        return [user(fill(self.prompt, question=question), data={"question": question})]

    async def complete(
        self, model: Model, ctx: Context, talk: Sequence[Message], corrections: Sequence[Message]
    ) -> Reply:
        """Ask the model once.

        Args:
            model: the model, see `model_of`.
            ctx: the context of the step.
            talk: the conversation, with the question.
            corrections: replies that could not be used, each with the reason.

        Raises:
            StepError: a tool has the name of the action `finish`.
        """
        tools = self._offered(ctx, talk)
        options: dict[str, Any] = {}
        if tools and self.parallel_tool_calls is not None:
            options["parallel_tool_calls"] = self.parallel_tool_calls
        head = [said(self.system)] if self.system else []
        messages = [*head, *trimmed(talk, self.keep), *corrections]
        return await model.complete(messages, tools, task=self.task, **options)

    def model_of(self, ctx: Context, talk: Sequence[Message], corrections: Sequence[Message] = ()) -> Model:
        """Return the step's model, which makes and reads calls in the form of `protocol`.

        Raises:
            AgentError: there is nothing to answer.
        """
        if not any(message.role != "system" for message in talk):
            self._fail("there is nothing to answer: the question is empty, and so is the conversation")
        if self.protocol == "native":
            return ctx.model
        numbers = count()
        taken = {call.id for message in talk for call in message.tool_calls}
        place: dict[str, object] = {"path": ctx.path, "node": ctx.node, "after": len(talk)}
        if corrections:
            place["corrected"] = len(corrections)

        def new_id() -> str:
            """Return an id that is new in the conversation. A step that runs again reproduces it, also in a fork."""
            # A conversation that was shortened has the same length again.
            return next(made for number in numbers if (made := digest({**place, "call": number})) not in taken)

        # A call of an unknown tool is refused where calls are checked, as for a model with native tool calls.
        unknown: Literal["call", "text"] = "call" if self.tools_offered else "text"
        return TextProtocol(ctx.model, self.protocol, tools_prompt=self.tools_prompt, new_id=new_id, unknown=unknown)

    def _offered(self, ctx: Context, talk: Sequence[Message]) -> list[ToolLike]:
        if self.finish and self.finish in ctx.tools:
            raise StepError(f"{ctx.node}: a tool is named {self.finish!r}; give the action finish= another name")
        tools = list(ctx.tools) if self.tools_offered else []
        reader = ctx.tools.get(READ_RESULT)
        if tools and isinstance(reader, ReadResult) and any(OFFLOADED in (message.data or {}) for message in talk):
            tools.append(reader)
        return [*tools, *([_finishing(self.finish)] if self.finish else [])]


def _finishing(name: str) -> JsonObject:
    """Return the action that ends the work, in the form in which tools are offered to a model."""
    answer = {"type": "string", "description": "The final answer."}
    parameters = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    what = "End the work, and give the final answer to the question."
    function = {"name": name, "description": what, "parameters": {**parameters, "additionalProperties": False}}
    return {"type": "function", "function": function}


def _item_type(annotation: Any) -> object:
    """Return the type of a list's items, unless it is a union; None if it is not known."""
    return next(iter(get_args(annotation)), None) if get_origin(annotation) is list else None


_NO_MESSAGE = (Any, JsonValue, str, int, float, bool, dict)
"""Types of items that can remain plain JSON."""


FINISH = "Finish"
"""Name of the action that ends the work, in the words of the ReAct paper."""
ACTION = "action"
"""Replaces the name of the tool in an action that cannot be read."""
NO_THOUGHT = "Nothing was called: first say in a sentence what you think, then make the call again."
NO_ACTION = "That is a thought, and no more. Go on: call a tool, or give the final answer."
EMPTY = "Your reply was empty. Call a tool, or give the final answer."
EMPTY_ANSWER = "Your reply holds no answer. Give the final answer in words; no tool can be called any more."
CUT = "Your reply was cut off, because it was too long, and was not used. Reply again, more briefly."
IN_WORDS = "Nothing was called: an action in words makes no call. Call the tool, or give the final answer."
UNREAD = "Nothing was called: {why}. Write the call again in the form that you were told."
MOST_CALLS = 128
"""The most calls of one reply: each of them may be paid work."""
TOO_MANY = f"None of your calls was made, because a reply may have {MOST_CALLS} at most. Make fewer calls at once."
_REPORTED = {
    NO_THOUGHT: "makes a call without a thought, which thought='required' asks for",
    NO_ACTION: "is a thought, without a call or an answer",
    TOO_MANY: f"has more than {MOST_CALLS} calls",
    EMPTY: "is empty",
    EMPTY_ANSWER: "contains no answer",
    CUT: "was cut off",
    IN_WORDS: "has an action in words, which makes no call",
}
"""The faults in the words of the error, which a person reads."""


def _is_none(value: object) -> bool:
    return value is None


def _is_retry(value: object) -> bool:
    """Return True for the default, so that graphs which do not use the field are stored as before."""
    return value == "retry"


@dataclass(frozen=True, slots=True)
class Reading:
    """A reply after reading: calls, an answer, or a fault."""

    message: Message
    """The message for the conversation."""
    calls: tuple[ToolCall, ...] = ()
    answer: str = ""
    fault: str = ""
    """The fault of the reply, in the words that the model receives; empty if the reply can be used."""
    unread: str = ""
    """The reason why an action in it cannot be read."""


class Interpretation(Talk):
    """The fields that define which replies can be used, and the methods that read a reply."""

    calls: Annotated[str, Port(list)] = "pending"
    """Field that gets the calls."""
    answer: Annotated[str, Port()] = "answer"
    """Field that gets the answer."""
    thought: Literal["optional", "required"] = "optional"
    """A rule for calls without a thought. `required`: a call needs one, as text, or as reasoning that the provider
    returns or that the reply starts with, in `<think>...</think>`.
    """
    retries: NonNegativeInt = 1
    """Retries in one turn after a reply that cannot be used."""
    unreadable: Literal["retry", "observe"] = Field(default="retry", exclude_if=_is_retry)
    """What happens if an action in text cannot be read. `retry`: the model is asked again. `observe`: the model
    receives the reason as an observation, and the outcome `unreadable` leads to the next turn, as in the ReAct paper.
    """

    usage: Annotated[str | None, Port()] = Field(default=None, exclude_if=_is_none)
    """Field that gets the size of the conversation, a `ContextUsage`, for a `Compact`."""

    @property
    def observes(self) -> bool:
        """True if the model receives, as an observation, that an action cannot be read."""
        return self.tools_offered and self.unreadable == "observe"

    @property
    def ways(self) -> tuple[str, ...]:
        """The outcomes of a reply that needs no correction."""
        if not self.tools_offered:
            return ("answer",)
        return ("answer", "calls", "unreadable") if self.observes else ("answer", "calls")

    def read(self, reply: Reply, talk: Sequence[Message], corrections: Sequence[Message]) -> Reading:
        """Read a reply.

        Args:
            reply: the reply.
            talk: the conversation before it.
            corrections: the earlier replies that could not be used, each with the reason.

        Raises:
            AgentError: the reply was refused, or it cannot be used and no retry is left.
        """
        found = self._read(reply, talk, _lone_thought(corrections))
        usable = not found.fault or (bool(found.unread) and self.observes)
        if usable or sum(message.role == "assistant" for message in corrections) < self.retries:
            return found
        content = found.message.content
        prose = not self.tools_offered or found.fault == CUT or (found.fault == NO_ACTION and self.protocol == "native")
        if found.calls or not content.strip() or not prose:
            cannot = (
                f"has a call that cannot be read: {found.unread}" if found.unread else f"cannot be used: {found.fault}"
            )
            said = f" {quoted(content)}" if content.strip() else ""
            more = "; give the model more max_tokens" if reply.cut else ""
            self._fail(f"the model's reply{said} {_REPORTED.get(found.fault, cannot)}{more}")
        answer, thought = answer_in(content, self.finish) or (thought_in(content), "")
        return self._answered(found, answer or content.strip(), thought)

    def outcome(
        self, found: Reading, reply: Reply, state: object, talk: Sequence[Message], asked: Sequence[Message]
    ) -> Outcome[str]:
        """Return the outcome of a reply that needs no correction, with the updated conversation.

        Args:
            found: the reply after reading.
            reply: the reply.
            state: the state of the step.
            talk: the conversation before the question.
            asked: the question, if it is not part of the conversation yet.
        """
        new = self._observed(found, len(talk) + len(asked)) if found.unread else [found.message]
        update: dict[str, object] = {self.messages: joined(state, self.messages, [*asked, *new])}
        if self.usage is not None:
            usage = ContextUsage.model_validate(getattr(state, self.usage) or {})
            update[self.usage] = usage.after(reply, len(talk) + len(asked) + len(new))
        if found.unread:
            return Outcome("unreadable", update)
        if found.calls:
            return Outcome("calls", {**update, self.calls: list(found.calls)})
        return Outcome("answer", {**update, self.calls: [], self.answer: found.answer})

    def _observed(self, found: Reading, after: int) -> list[Message]:
        """Return an action that cannot be read, as the model wrote it, and the reason as its observation."""
        call = ToolCall(id=digest({"after": after, "unreadable": found.message.content}), name=ACTION, arguments={})
        message = said_in(found.message.model_copy(update={"tool_calls": (call,)}), self.protocol, "")
        return [message, tool_result(call, f"Invalid action: {found.unread}.")]

    def _read(self, reply: Reply, talk: Sequence[Message], thought: str) -> Reading:
        """Read a reply that follows a thought without a call."""
        if reply.refused:
            self._fail(f"the model refused to answer ({reply.finish}): {quoted(reply.text)}")
        reply = without_thoughts(reply)  # journals of earlier versions have thoughts in texts
        found_facts = reply.details.get("text_protocol")
        facts = found_facts if isinstance(found_facts, dict) else {}
        calls = distinct(reply.tool_calls, talk)
        if not self.tools_offered:
            calls = tuple(call for call in calls if self._ends(call))
        used = Reading(reply.message.model_copy(update={"tool_calls": calls}), calls=calls)
        if reply.cut and not facts.get("unread"):  # the last call of a reply that was cut may not be complete
            return replace(used, fault=CUT)
        if calls and self._ends(calls[0]):
            return self._finished(used, calls[0])
        if len(calls) > MOST_CALLS:
            return replace(used, fault=TOO_MANY)
        if calls:
            # The work does not end before the results of the other calls in the reply are there.
            calls = tuple(call for call in calls if not self._ends(call))
            words = facts.get("words") if len(calls) == len(reply.tool_calls) else None
            message = said_in(used.message.model_copy(update={"tool_calls": calls}), self.protocol, words)
            if thought and not thought_in(reply.text):
                message = message.model_copy(update={"content": thought})
            elsewhere = any(str(reply.extras.get(name) or "").strip() for name in REASONING)
            thinks = bool(thought or thought_in(reply.text) or elsewhere)
            fault = NO_THOUGHT if self.thought == "required" and not thinks else ""
            return Reading(message, calls=calls, fault=fault)
        unread = facts.get("unread")
        if unread:  # also if an answer follows it, which may be based on results that the model made up
            return replace(used, fault=UNREAD.format(why=unread), unread=str(unread))
        labelled = self.protocol == "bracket" or self.thought == "required" or bool(self.finish)
        in_words = self._in_words(used) if labelled and self.protocol != "bracket" else None
        if in_words is not None:
            return in_words
        found: tuple[str, str] | None = (reply.text.strip(), "")
        if labelled:
            found = answer_in(reply.text, self.finish or FINISH, paragraph=self.protocol != "bracket")
        if found is not None and found[0]:
            return self._answered(used, *found)
        if not self.tools_offered:
            return replace(used, fault=EMPTY_ANSWER)
        return replace(used, fault=NO_ACTION if reply.text.strip() else EMPTY)

    def _in_words(self, used: Reading) -> Reading | None:
        """Read an action that is written as in the ReAct paper, where calls have another form."""
        text = used.message.content
        action = FORMS["bracket"].parse(text, _FINISH)
        if action.calls:
            said = used.message.model_copy(update={"content": action.content})
            return self._finished(replace(used, message=said), action.calls[0])
        meant = action.unread and thought_label.match(text.strip())
        return replace(used, fault=IN_WORDS) if meant else None

    def _ends(self, call: ToolCall) -> bool:
        return bool(self.finish) and call.name == self.finish

    def _finished(self, used: Reading, call: ToolCall) -> Reading:
        """Return the answer that an action which ends the work contains."""
        given = list((call.arguments or {}).values())
        if len(given) != 1 or not isinstance(given[0], str | int | float) or not str(given[0]).strip():
            return replace(used, fault=f"{call.name} takes the answer, one text, and nothing else.")
        return self._answered(used, str(given[0]).strip(), thought_in(used.message.content))

    def _answered(self, used: Reading, answer: str, thought: str) -> Reading:
        content = f"{thought}\n\n{answer}" if thought else answer
        message = used.message.model_copy(update={"content": content, "tool_calls": ()})
        return Reading(message, answer=answer)


def corrected(corrections: Sequence[Message], found: Reading) -> list[Message]:
    """Return the corrections so far, followed by a reply that cannot be used and the reason.

    Of a reply that was cut off only the beginning: it may have filled the model's whole window.
    """
    if found.fault == CUT:
        return [*corrections, sent_back(found.message.content or "…", cut=True), user(CUT)]
    results = [failed(call, found.fault) for call in found.message.tool_calls]
    return [*corrections, found.message, *(results or [user(found.fault)])]


def _lone_thought(corrections: Sequence[Message]) -> str:
    """Return the last thought without an action; the action alone may follow it."""
    thought = ""
    for message, reason in pairwise(corrections):
        if reason.role == "user" and reason.content == NO_ACTION and thought_in(message.content):
            thought = message.content.strip()
    return thought


# -- the kinds: both halves together, and each alone -------------------------------------------------------------------


class Respond(Continuation, Interpretation, Node, kind="respond"):
    """Ask the model to continue. Take `answer` and write the model's answer, or take `calls` and write its calls.

    If a call of the last round ended the work (`ends=True`), the node takes `answer` with the result of that call, and
    does not call the model. With `unreadable="observe"`, it takes `unreadable` after an action that cannot be read.
    With an edge for it, it takes `too_long` if the request is longer than the model accepts, or, with `usage=`, if it
    left no room for the reply.

    The question is added to the conversation when it is the user's turn: at the start, and after an answer. The system
    message is part of each request but not of the conversation. An unusable reply (an unreadable call, a thought
    without a call, an empty reply, the beginning of one that was cut off) is shown to the model with the error, at most
    `retries` times in a step. Prose that is cut off each time is the answer. The conversation contains only the usable
    reply, the journal all of them.

    In a graph that shows each model call as a separate step, use `CallModel` and `ReadReply` instead.

    Raises:
        AgentError: there is no question, the reply was refused, or no reply was usable.
    """

    fills = ("messages", "calls", "answer", "usage")
    after_model = ("calls",)
    if_named = (TOO_LONG,)

    class State(BaseModel):
        """The fields that the ports name by default."""

        question: str
        """The user's question."""
        messages: Annotated[list[Message], append] = []
        """The conversation."""
        pending: list[ToolCall] = []
        """The calls of the last reply."""
        answer: str = ""
        """The model's answer."""

    @property
    def outcomes(self) -> tuple[str, ...]:
        return self.ways

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "thinks, chooses calls" if self.tools_offered else "answers without tools"

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        talk: list[Message] = list(getattr(state, self.messages))
        ended = ended_by(talk)
        asked = self.asked(state, talk, ended=ended is not None)
        if ended is not None and not asked:
            return Outcome("answer", {self.calls: [], self.answer: answer_of(talk, ended)})
        whole = [*talk, *asked]
        model, corrections = self.model_of(ctx, whole), list[Message]()
        while True:
            try:
                reply = within_window(await self.complete(model, ctx, whole, corrections), self.usage)
            except RequestTooLong as error:
                update: dict[str, object] = {self.messages: joined(state, self.messages, asked)}
                return Failing(TOO_LONG, update | refused_usage(state, self.usage, whole), error=error)
            found = await away(partial(self.read, reply, whole, corrections), reply.text)
            if not found.fault or (found.unread and self.observes):
                return self.outcome(found, reply, state, talk, asked)
            corrections = corrected(corrections, found)


class CallModel(Continuation, Node, kind="call_model"):
    """Ask the model to continue, in one call, and write its reply for a `ReadReply` to read.

        think -> read
        read -> think : again
        read -> act : calls each pending
        read -> END : answer

    The question is added to the conversation when it is the user's turn: at the start, and after an answer. The system
    message is part of each request but not of the conversation. So are the corrections: the replies of this turn that
    `ReadReply` could not use, each with the reason. A step reached through an error or a spent limit starts without
    them.

    With an edge for it, it takes `too_long` if the request is longer than the model accepts, or, with `usage=`, if it
    left no room for the reply.

    Raises:
        AgentError: there is no question, and the conversation is empty.
    """

    declares = (DONE,)
    fills = ("messages", "reply", "corrections", "usage")
    after_model = (DONE,)
    if_named = (TOO_LONG,)

    class State(BaseModel):
        """The fields that the ports name by default."""

        question: str
        """The user's question."""
        messages: Annotated[list[Message], append] = []
        """The conversation."""
        reply: Reply | None = None
        """The model's reply, until it is read."""
        corrections: list[Message] = []
        """The replies of this turn that could not be used, each with the reason."""

    reply: Annotated[str, Port()] = "reply"
    """Field that gets the `Reply`."""
    corrections: Annotated[str, Port(list)] = "corrections"
    """Field with the replies that could not be used, and the reasons."""
    usage: Annotated[str | None, Port()] = Field(default=None, exclude_if=_is_none)
    """Field with the `ContextUsage` that the `ReadReply` writes, for the size of a conversation that is too long."""

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return self.tools_offered

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "thinks, chooses calls" if self.tools_offered else "answers without tools"

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        talk: Sequence[Message] = list(getattr(state, self.messages))
        corrections: Sequence[Message] = getattr(state, self.corrections)
        update: dict[str, object] = {}
        if corrections and ctx.error is not None:
            corrections = update[self.corrections] = []
        asked = self.asked(state, talk, ended=ended_by(talk) is not None)
        if asked:
            update[self.messages] = added(state, self.messages, asked)
        whole = [*talk, *asked]
        try:
            reply = await self.complete(self.model_of(ctx, whole, corrections), ctx, whole, corrections)
            update[self.reply] = within_window(reply, self.usage)
        except RequestTooLong as error:
            return Failing(TOO_LONG, update | refused_usage(state, self.usage, whole), error=error)
        return Outcome(DONE, update)


class ReadReply(Interpretation, Node, kind="read_reply"):
    """Read the reply that a `CallModel` wrote. Take `answer` and write the answer, or `calls` and write the calls.

    Take `again` after a reply that cannot be used (an unreadable call, a thought without a call, more than 128 calls,
    an empty reply, one that was cut off): an edge leads back to the `CallModel`, which shows the model its reply with
    the reason. With `unreadable="observe"`, take `unreadable` after an action that cannot be read. The conversation
    gets only the usable reply. If there is no reply, because a run moved here from another version of its graph, take
    `again`. If the run failed here and goes on (`retry=True`), the model is asked again, without the corrections.

    Set `protocol`, `finish` and `tools_offered` to the same values as in the `CallModel`.

    Raises:
        AgentError: the reply was refused, or it cannot be used and no `retries` are left.
    """

    look = "code"

    fills = ("messages", "calls", "answer", "reply", "corrections", "usage")

    class State(BaseModel):
        """The fields that the ports name by default."""

        messages: Annotated[list[Message], append] = []
        """The conversation."""
        pending: list[ToolCall] = []
        """The calls of the last reply."""
        answer: str = ""
        """The model's answer."""
        reply: Reply | None = None
        """The model's reply, until it is read."""
        corrections: list[Message] = []
        """The replies of this turn that could not be used, each with the reason."""

    effect: Effect = "pure"
    """It reads only the reply and the conversation."""
    reply: Annotated[str, Port()] = "reply"
    """Field with the `Reply`."""
    corrections: Annotated[str, Port(list)] = "corrections"
    """Field with the replies that could not be used, and the reasons."""

    @property
    def outcomes(self) -> tuple[str, ...]:
        return (*self.ways, "again") if self.retries else self.ways

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "reads the reply"

    def problems_in(self, name: str, graph: GraphDefinition) -> Iterator[str]:
        """See `Node.problems_in`."""
        return unwritten(graph, name, self.reply, f"CallModel(reply={self.reply!r})")

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        given = getattr(state, self.reply)
        if given is None and self.retries:  # a migration led here from a node that both asked and read
            return Outcome("again")
        if given is None:
            self._fail(f"there is no reply in {self.reply!r}: place a CallModel before it")
        talk: Sequence[Message] = getattr(state, self.messages)
        corrections: Sequence[Message] = getattr(state, self.corrections)
        reply = Reply.model_validate(given)
        try:
            found = await away(partial(self.read, reply, talk, corrections), reply.text)
        except AgentError as error:
            if not self.retries or not reopened(ctx, self.retry, error):
                raise
            return Outcome("again", {self.reply: None, self.corrections: []})
        done: dict[str, object] = {self.reply: None}
        if found.fault and not (found.unread and self.observes):
            return Outcome("again", {**done, self.corrections: corrected(corrections, found)})
        if corrections:
            done[self.corrections] = []
        taken = self.outcome(found, reply, state, talk, ())
        return Outcome(taken.name, {**taken.update, **done})


# -- labels of thoughts and answers ------------------------------------------------------------------------------------

_FINISH = offers_of([_finishing(FINISH)])
_paragraph = re.compile(r"\n[ \t]*\n")
_final = re.compile(label.format("Final[ \t]{1,8}Answer"), re.IGNORECASE | re.MULTILINE)
_answer = re.compile(label.format("(?:Final[ \t]{1,8})?Answer"), re.IGNORECASE | re.MULTILINE)


def answer_in(text: str, finish: str = "", *, paragraph: bool = False) -> tuple[str, str] | None:
    """Return the answer in a text without calls, and the thoughts before it; None if the text is only a thought.

    A text without labels is an answer.

    Args:
        text: the text.
        finish: the name of an action that ends the work: a last line `Finish[answer]` is read even without the label
            of an action.
        paragraph: whether a paragraph after a labelled thought is the answer.
    """
    bare = text.strip()
    if finish:
        line = re.search(rf"^[ \t]{{0,8}}{re.escape(finish)}[ \t]{{0,8}}\[", bare, re.IGNORECASE | re.MULTILINE)
        end = bare.rstrip(" \t*.;`")
        if line is not None and end.endswith("]"):
            return end[line.end() : -1].strip(), thought_in(bare[: line.start()])
    thinks = thought_label.match(bare) is not None
    found = (_answer if thinks else _final).search(bare)
    if found is not None:
        return bare[found.end() :].strip(), thought_in(bare[: found.start()])
    after = _paragraph.search(bare) if thinks and paragraph else None
    if after is not None:
        return bare[after.end() :].strip(), thought_in(bare[: after.start()])
    return None if thinks else (bare, "")
