"""A model continues a conversation: it answers, or it calls tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated, Any, Literal, NoReturn, TypeAlias

from pydantic import BaseModel, Field, NonNegativeInt, PositiveInt

from orchestrator.context import Context
from orchestrator.errors import AgentError, StepError
from orchestrator.graph.node import Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.graph.reducers import append
from orchestrator.jsontypes import JsonObject, digest
from orchestrator.models.base import Model, ToolLike
from orchestrator.models.messages import Message, Reply, ToolCall, tool_result, user
from orchestrator.models.messages import system as said
from orchestrator.models.text import TextProtocol
from orchestrator.models.text.conversation import said_in
from orchestrator.models.text.thinking import parted, thoughts_in
from orchestrator.nodes.conversation import answer_of, distinct, ended_by, failed, joined, trimmed
from orchestrator.nodes.labels import answer_in, thought_in
from orchestrator.nodes.model_decision import quoted
from orchestrator.nodes.templates import fill, filled_by

CallProtocol: TypeAlias = Literal["native", "json", "bracket", "plugin", "separator"]
ACTION = "action"
"""Stands for the name of a tool where an action cannot be read."""
_REASONING = ("reasoning_content", "reasoning")
NO_THOUGHT = "Nothing was called: first say in a sentence what you think, then make the call again."
NO_ACTION = "That is a thought, and no more. Go on: call a tool, or give the final answer."
EMPTY = "Your reply was empty. Call a tool, or give the final answer."
EMPTY_ANSWER = "Your reply holds no answer. Give the final answer in words; no tool can be called any more."
UNREAD = "Nothing was called: {why}. Write the call again in the form that you were told."


def _is_retry(value: object) -> bool:
    """Graphs that do not use it are stored as before."""
    return value == "retry"


class Respond(Node, kind="respond"):
    """Ask the model to continue. Take `answer` and write the model's answer, or take `calls` and write its calls.

    If a call of the last round ended the work (`ends=True`), the node takes `answer` with the result of that call, and
    does not ask the model. With `unreadable="observe"`, take `unreadable` after an action that cannot be read.

    The question is added to the conversation when it is the user's turn: at the start, and after an answer. The system
    message is part of each request but not of the conversation. An unusable reply (an unreadable call, a thought
    without a call, an empty reply) is shown to the model with the error, at most `retries` times in a step. The
    conversation contains only the usable reply, the journal all of them.

    Raises:
        AgentError: there is no question, the reply was refused or cut, or no reply was usable.
    """

    fills = ("messages", "calls", "answer")
    after_model = ("calls",)

    class State(BaseModel):
        """The fields that the ports name by default."""

        question: str
        """What the user asks."""
        messages: Annotated[list[Message], append] = []
        """The conversation."""
        pending: list[ToolCall] = []
        """The calls of the last reply."""
        answer: str = ""
        """What the model answered."""

    system: str = ""
    """The system message, as it stands; empty: none."""
    prompt: Annotated[str, filled_by("question")] = "{question}"
    """The user's message."""
    question: Annotated[str | None, Port(str)] = None
    """Field with the user's question; None: the conversation holds it."""
    messages: Annotated[str, Port(list)] = "messages"
    """Field with the conversation, one with the reducer `append` or a plain one."""
    calls: Annotated[str, Port(list)] = "pending"
    """Field that gets the calls."""
    answer: Annotated[str, Port()] = "answer"
    """Field that gets the answer."""
    protocol: CallProtocol = "native"
    """How the model calls tools: by itself, or in text of this form (see `TextProtocol`)."""
    tools_prompt: str | None = None
    """The words in which a form of text tells the tools; see `TextProtocol`."""
    thought: Literal["optional", "required"] = "optional"
    """Whether calls need a thought beside them: text, or reasoning that the provider shows or that
    a reply begins with, in `<think>...</think>`."""
    finish: str = ""
    """Name of an action that is offered beside the tools, by which the model gives its answer; empty: none is."""
    tools_offered: bool = True
    """False: the model can only answer, in words or by `finish`, and `answer` is the only outcome. The text of a reply
    that cannot be used is the answer then, once the retries are spent."""
    parallel_tool_calls: bool | None = None
    """Whether to ask the model for several calls at once; None: leave it to the model."""
    keep: PositiveInt | None = None
    """The model sees so many messages at least, the latest ones, the system message and the questions; None: all."""
    retries: NonNegativeInt = 1
    """How often in one step the model is asked again after an unusable reply."""
    unreadable: Literal["retry", "observe"] = Field(default="retry", exclude_if=_is_retry)
    """What becomes of an action in text that cannot be read: the model is asked again in this step, or the reason is
    what it observes, and the outcome `unreadable` leads to the next step, as in the paper of ReAct."""
    task: str | None = None
    """The kind of decision, which is passed to the model with the messages."""

    @property
    def outcomes(self) -> tuple[str, ...]:
        if not self.tools_offered:
            return ("answer",)
        return ("answer", "calls", "unreadable") if self.unreadable == "observe" else ("answer", "calls")

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        talk: list[Message] = list(getattr(state, self.messages))
        ended = ended_by(talk)
        asked = self._question(state, talk, anew=ended is not None)
        if ended is not None and not asked:
            return Outcome("answer", {self.calls: [], self.answer: answer_of(ended)})
        if not any(message.role != "system" for message in (*talk, *asked)):
            self._fail("there is nothing to answer: the question is empty, and so is the conversation")
        used = await self._usable(ctx, [*talk, *asked])
        if used.unread:
            observed = self._observed(ctx, used, len(talk))
            return Outcome("unreadable", {self.messages: joined(state, self.messages, [*asked, *observed])})
        update: dict[str, object] = {self.messages: joined(state, self.messages, [*asked, used.message])}
        if used.calls:
            return Outcome("calls", {**update, self.calls: list(used.calls)})
        return Outcome("answer", {**update, self.calls: [], self.answer: used.answer})

    def _observed(self, ctx: Context, used: _Used, after: int) -> list[Message]:
        """An action that cannot be read, as the model wrote it, and why, as what came of it."""
        place = {"run": ctx.run_id, "path": ctx.path, "node": ctx.node, "after": after, "call": "unreadable"}
        call = ToolCall(id=digest(place), name=ACTION, arguments={})
        said = said_in(used.message.model_copy(update={"tool_calls": (call,)}), self.protocol, "")
        return [said, tool_result(call, f"Invalid action: {used.unread}.")]

    def _question(self, state: object, talk: Sequence[Message], *, anew: bool = False) -> list[Message]:
        """The question as a message, if it is the user's turn.

        Args:
            anew: the work on the last question has ended: another one is the user's turn.
        """
        question = "" if self.question is None else str(getattr(state, self.question))
        theirs = not talk or talk[-1].role == "system" or (talk[-1].role == "assistant" and not talk[-1].tool_calls)
        if anew:
            last = next((message for message in reversed(talk) if message.role == "user"), None)
            theirs = last is None or question not in (last.content, (last.data or {}).get("question"))
        if not question.strip() or not theirs:
            return []
        return [user(fill(self.prompt, question=question), data={"question": question})]

    async def _usable(self, ctx: Context, talk: Sequence[Message]) -> _Used:
        tools = self._offered(ctx)
        options: dict[str, Any] = {}
        if tools and self.parallel_tool_calls is not None:
            options["parallel_tool_calls"] = self.parallel_tool_calls
        head = [said(self.system)] if self.system else []
        model, wrong, left = self._model(ctx, len(talk)), list[Message](), self.retries
        thought = ""
        while True:
            messages = [*head, *trimmed(talk, self.keep), *wrong]
            used = self._read(await model.complete(messages, tools, task=self.task, **options), talk, thought)
            if not used.fault or (used.unread and "unreadable" in self.outcomes):
                return used
            if not left and not self.tools_offered and used.message.content.strip():
                return self._answered(used, thought_in(used.message.content) or used.message.content.strip(), "")
            if not left:
                self._fail(f"{used.fault} The reply was {quoted(used.message.content)}")
            left -= 1
            if used.fault == NO_ACTION and thought_in(used.message.content):  # the action alone may follow
                thought = used.message.content.strip()
            results = [failed(call, used.fault) for call in used.message.tool_calls]
            wrong += [used.message, *(results or [user(used.fault)])]

    def _offered(self, ctx: Context) -> list[ToolLike]:
        if self.finish and self.finish in ctx.tools:
            raise StepError(f"{ctx.node}: a tool is named {self.finish!r}; give the action finish= another name")
        tools = ctx.tools if self.tools_offered else ()
        return [*tools, *([_finishing(self.finish)] if self.finish else [])]

    def _model(self, ctx: Context, length: int) -> Model:
        if self.protocol == "native":
            return ctx.model
        numbers = count()

        def new_id() -> str:
            """An id that a step which runs again after a crash gives again."""
            place = {"run": ctx.run_id, "path": ctx.path, "node": ctx.node, "after": length, "call": next(numbers)}
            return digest(place)

        # What calls an unknown tool is told so where calls are checked, as with a model that calls tools by itself.
        unknown: Literal["call", "text"] = "call" if self.tools_offered else "text"
        return TextProtocol(ctx.model, self.protocol, tools_prompt=self.tools_prompt, new_id=new_id, unknown=unknown)

    def _read(self, reply: Reply, talk: Sequence[Message], thought: str = "") -> _Used:
        """What a reply comes to, after a thought that came alone.

        Raises:
            AgentError: no other reply of this model would mend it.
        """
        if reply.refused:
            self._fail(f"the model refused to answer ({reply.finish}): {quoted(reply.text)}")
        if reply.cut:
            self._fail(f"the reply {quoted(reply.text)} was cut off; give the model more max_tokens")
        aside, text = parted(reply.text)
        if aside:
            reply = reply.model_copy(update={"text": text})
        found_facts = reply.details.get("text_protocol")
        facts = found_facts if isinstance(found_facts, dict) else {}
        calls = distinct(reply.tool_calls, talk)
        if not self.tools_offered:
            calls = tuple(call for call in calls if self._ends(call))
        used = _Used(reply.message.model_copy(update={"tool_calls": calls}), calls=calls)
        if calls and self._ends(calls[0]):
            return self._finished(used, calls[0])
        if calls:
            # The work does not end before the results of the calls beside it are there.
            calls = tuple(call for call in calls if not self._ends(call))
            words = facts.get("words") if len(calls) == len(reply.tool_calls) else None
            message = said_in(used.message.model_copy(update={"tool_calls": calls}), self.protocol, words)
            if thought and not thought_in(reply.text):
                message = message.model_copy(update={"content": thought})
            elsewhere = any(str(reply.extras.get(name) or "").strip() for name in _REASONING)
            thinks = bool(thought or thoughts_in(aside) or thought_in(reply.text) or elsewhere)
            fault = NO_THOUGHT if self.thought == "required" and not thinks else ""
            return _Used(message, calls=calls, fault=fault)
        unread = facts.get("unread")
        if unread:  # also where an answer stands behind it: it may rest on results that the model made up
            return replace(used, fault=UNREAD.format(why=unread), unread=str(unread))
        labelled = self.protocol == "bracket" or self.thought == "required" or bool(self.finish)
        found = answer_in(reply.text, self.finish) if labelled else (reply.text.strip(), "")
        if found is not None and found[0]:
            return self._answered(used, *found)
        if not self.tools_offered:
            return replace(used, fault=EMPTY_ANSWER)
        return replace(used, fault=NO_ACTION if reply.text.strip() else EMPTY)

    def _ends(self, call: ToolCall) -> bool:
        return bool(self.finish) and call.name == self.finish

    def _finished(self, used: _Used, call: ToolCall) -> _Used:
        """The answer that an action which ends the work gives."""
        given = list((call.arguments or {}).values())
        if len(given) != 1 or not isinstance(given[0], str | int | float) or not str(given[0]).strip():
            return replace(used, fault=f"{self.finish} takes the answer, one text, and nothing else.")
        return self._answered(used, str(given[0]).strip(), thought_in(used.message.content))

    def _answered(self, used: _Used, answer: str, thought: str) -> _Used:
        content = f"{thought}\n\n{answer}" if thought else answer
        message = used.message.model_copy(update={"content": content, "tool_calls": ()})
        return _Used(message, answer=answer)

    def _fail(self, why: str) -> NoReturn:
        raise AgentError(f"{self.kind}: {why}")


@dataclass(frozen=True, slots=True)
class _Used:
    """A reply, read: calls, or an answer, or what is wrong with it."""

    message: Message
    calls: tuple[ToolCall, ...] = ()
    answer: str = ""
    fault: str = ""
    unread: str = ""
    """Why an action in it cannot be read."""


def _finishing(name: str) -> JsonObject:
    """The action that ends the work, as a model is offered it."""
    answer = {"type": "string", "description": "The final answer."}
    parameters = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    what = "End the work, and give the final answer to the question."
    function = {"name": name, "description": what, "parameters": {**parameters, "additionalProperties": False}}
    return {"type": "function", "function": function}
