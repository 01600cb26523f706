"""How nodes read a model's reply: calls, an answer, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from orchestrator.graph.model import Port
from orchestrator.graph.outcome import Outcome
from orchestrator.json import digest
from orchestrator.models.messages import Message, Reply, ToolCall, tool_result, user
from orchestrator.models.text.conversation import said_in
from orchestrator.models.text.thinking import parted, thoughts_in
from orchestrator.nodes.continuation import Talk
from orchestrator.nodes.conversation import distinct, failed, joined
from orchestrator.nodes.labels import answer_in, thought_in
from orchestrator.nodes.model_decision import quoted

ACTION = "action"
"""Stands for the name of a tool where an action cannot be read."""
NO_THOUGHT = "Nothing was called: first say in a sentence what you think, then make the call again."
NO_ACTION = "That is a thought, and no more. Go on: call a tool, or give the final answer."
EMPTY = "Your reply was empty. Call a tool, or give the final answer."
EMPTY_ANSWER = "Your reply holds no answer. Give the final answer in words; no tool can be called any more."
UNREAD = "Nothing was called: {why}. Write the call again in the form that you were told."
_REASONING = ("reasoning_content", "reasoning")


def _is_retry(value: object) -> bool:
    """Graphs that do not use it are stored as before."""
    return value == "retry"


@dataclass(frozen=True, slots=True)
class Reading:
    """A reply, read: calls, or an answer, or what is wrong with it."""

    message: Message
    """What becomes part of the conversation."""
    calls: tuple[ToolCall, ...] = ()
    answer: str = ""
    fault: str = ""
    """What is wrong with it, in the words in which the model reads it; empty: it can be used."""
    unread: str = ""
    """Why an action in it cannot be read."""


class Interpretation(Talk):
    """The fields that say which replies can be used, and how a reply is read."""

    calls: Annotated[str, Port(list)] = "pending"
    """Field that gets the calls."""
    answer: Annotated[str, Port()] = "answer"
    """Field that gets the answer."""
    thought: Literal["optional", "required"] = "optional"
    """Whether calls need a thought beside them: text, or reasoning that the provider shows or that
    a reply begins with, in `<think>...</think>`."""
    retries: NonNegativeInt = 1
    """How often in one turn the model is asked again after a reply that cannot be used."""
    unreadable: Literal["retry", "observe"] = Field(default="retry", exclude_if=_is_retry)
    """What becomes of an action in text that cannot be read: the model is asked again, or the reason is what it
    observes, and the outcome `unreadable` leads to the next turn, as in the paper of ReAct."""

    @property
    def observes(self) -> bool:
        """Whether the model observes that an action cannot be read."""
        return self.tools_offered and self.unreadable == "observe"

    @property
    def ways(self) -> tuple[str, ...]:
        """The outcomes of a reply that need not be corrected."""
        if not self.tools_offered:
            return ("answer",)
        return ("answer", "calls", "unreadable") if self.observes else ("answer", "calls")

    def read(self, reply: Reply, talk: Sequence[Message], corrections: Sequence[Message]) -> Reading:
        """Return what a reply amounts to.

        Args:
            reply: the reply.
            talk: the conversation before it.
            corrections: the replies before it that could not be used, each with the reason.

        Raises:
            AgentError: the reply was refused or cut, or it cannot be used and no retry is left.
        """
        found = self._read(reply, talk, _lone_thought(corrections))
        usable = not found.fault or (bool(found.unread) and self.observes)
        if usable or sum(message.role == "assistant" for message in corrections) < self.retries:
            return found
        content = found.message.content
        if self.tools_offered or not content.strip():
            self._fail(f"{found.fault} The reply was {quoted(content)}")
        return self._answered(found, thought_in(content) or content.strip(), "")

    def outcome(self, found: Reading, state: object, talk: Sequence[Message], asked: Sequence[Message]) -> Outcome[str]:
        """Return the outcome of a reply that need not be corrected, with the conversation that goes on from it.

        Args:
            found: the reply, read.
            state: the state of the step.
            talk: the conversation before the question.
            asked: the question, if it is not part of the conversation yet.
        """
        if found.unread:
            observed = self._observed(found, len(talk) + len(asked))
            return Outcome("unreadable", {self.messages: joined(state, self.messages, [*asked, *observed])})
        update: dict[str, object] = {self.messages: joined(state, self.messages, [*asked, found.message])}
        if found.calls:
            return Outcome("calls", {**update, self.calls: list(found.calls)})
        return Outcome("answer", {**update, self.calls: [], self.answer: found.answer})

    def _observed(self, found: Reading, after: int) -> list[Message]:
        """An action that cannot be read, as the model wrote it, and why, as what came of it."""
        call = ToolCall(id=digest({"after": after, "unreadable": found.message.content}), name=ACTION, arguments={})
        message = said_in(found.message.model_copy(update={"tool_calls": (call,)}), self.protocol, "")
        return [message, tool_result(call, f"Invalid action: {found.unread}.")]

    def _read(self, reply: Reply, talk: Sequence[Message], thought: str) -> Reading:
        """What a reply amounts to, after a thought that came alone."""
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
        used = Reading(reply.message.model_copy(update={"tool_calls": calls}), calls=calls)
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
            return Reading(message, calls=calls, fault=fault)
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

    def _finished(self, used: Reading, call: ToolCall) -> Reading:
        """The answer that an action which ends the work gives."""
        given = list((call.arguments or {}).values())
        if len(given) != 1 or not isinstance(given[0], str | int | float) or not str(given[0]).strip():
            return replace(used, fault=f"{self.finish} takes the answer, one text, and nothing else.")
        return self._answered(used, str(given[0]).strip(), thought_in(used.message.content))

    def _answered(self, used: Reading, answer: str, thought: str) -> Reading:
        content = f"{thought}\n\n{answer}" if thought else answer
        message = used.message.model_copy(update={"content": content, "tool_calls": ()})
        return Reading(message, answer=answer)


def corrected(corrections: Sequence[Message], found: Reading) -> list[Message]:
    """The corrections so far, with a reply that cannot be used and the reason."""
    results = [failed(call, found.fault) for call in found.message.tool_calls]
    return [*corrections, found.message, *(results or [user(found.fault)])]


def _lone_thought(corrections: Sequence[Message]) -> str:
    """The last thought that came without an action; the action alone may follow it."""
    thought = ""
    for message, reason in pairwise(corrections):
        if reason.role == "user" and reason.content == NO_ACTION and thought_in(message.content):
            thought = message.content.strip()
    return thought
