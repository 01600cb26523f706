"""Finds out by a few requests what a model and its server support."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import ModelError, ModelUnavailable, ReplyIncomplete
from orchestrator.json import JsonObject
from orchestrator.models.base import Model
from orchestrator.models.messages import REASONING, Message, Reply, system, user
from orchestrator.models.profile import Profile
from orchestrator.models.server import ServerModel

_REPLY = 512
"""Maximum tokens of a reply, enough for models that think first."""
_COUNT = (system("You are brief."), user("Count from one to ten in words."))
_QUESTION = (user("How many letters has the word orchestrator? Use the tool word_length."),)
_TOOL: JsonObject = {
    "type": "function",
    "function": {
        "name": "word_length",
        "description": "Return the number of letters of a word. Use this tool for every question about the length of a "
        "word, and do not count letters yourself.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "description": "The word whose letters are counted."}},
            "required": ["word"],
            "additionalProperties": False,
        },
    },
}
_STORY = (user("Write a very long story about 1000 dragons."),)
_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "word": {"type": "string", "minLength": 3, "maxLength": 6},
        "count": {"type": "integer", "minimum": 40, "maximum": 49},
    },
    "required": ["word", "count"],
    "additionalProperties": False,
}
_FORMS: tuple[dict[str, object], ...] = (
    {"output": "json_schema", "strict_output": False},
    {"output": "json_schema", "strict_output": True},
    {"output": "json_object", "strict_output": False},
    {"output": "prompt", "strict_output": False},
)
"""Ways to ask for an answer in a schema, the best first."""
_FEW = 5
"""Number of alternatives to a token that the servers with the lowest limit accept."""
_WORD = re.compile(r'Profile\(ends=\{("(?:[^"\\]|\\.)*")')
_WINDOWS = (5_000, 20_000)
"""Tokens of the long requests."""
_FIELDS = (
    "max_model_len",
    "n_ctx",
    "loaded_context_length",
    "context_length",
    "context_window",
    "max_context_length",
    "max_input_tokens",
    "inputTokenLimit",
)
"""Names by which servers tell the context window in their list of models."""
_FAULT = re.compile(r"error|fail|abort|cancel|timeout")
_TOKENS = re.compile(r"(?:context|maximum|n_ctx|limit)\D{0,40}?(\d{3,8})", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """What was found out about one feature."""

    feature: str
    found: str
    """One or two words, such as `yes`, `refused` or `ignored`."""
    detail: str = ""


@dataclass(frozen=True)
class Probed:
    """What a model and its server support."""

    findings: tuple[Finding, ...]
    profile: Profile
    streams: bool
    """False if the server does not stream."""
    text_tools: bool
    """True if tools do not reach the model, so that it needs `TextProtocol`."""
    window: int | None
    """Tokens of the context window; None if it was not found out."""
    answers: bool
    """False if no reply to the plain request had a text, and the model made no call either."""


async def probe(model: ServerModel) -> Probed:
    """Send about ten requests to a model, two of them long, and return what it supports.

    Args:
        model: the model. Its `profile` is changed meanwhile.

    Returns:
        The findings, and the profile to use.

    Raises:
        ModelError: the model does not answer a plain request.
    """
    before = model.profile
    model._tools_seen = True  # the findings say whether tools reach it
    found = _Probe(model)
    try:
        await found.plain()
        await found.stream()
        await found.stop()
        await found.tools()
        await found.schema()
        await found.logprobs()
        await found.window()
        found.use(window=found.tokens or model.profile.window)
        answers = bool(found.text.strip()) or found.calls
        return Probed(tuple(found.findings), model.profile, found.streams, found.text_tools, found.tokens, answers)
    finally:
        model.profile = before


def behind_server(model: Model) -> ServerModel | None:
    """Return the model behind a server, without the layers around it; None if there is none."""
    while not isinstance(model, ServerModel):
        members = getattr(model, "members", None)
        if not isinstance(members, tuple) or not members:
            return None
        model = members[0]
    return model


class _Probe:
    def __init__(self, model: ServerModel) -> None:
        self.model = model
        self.findings: list[Finding] = []
        self.streams, self.text_tools, self.calls = True, False, False
        self.tokens: int | None = None
        self.text = ""

    def _found(self, feature: str, found: str, detail: str = "") -> None:
        self.findings.append(Finding(feature, found, detail))

    def use(self, **flags: Any) -> None:
        self.model.profile = self.model.profile.model_copy(update=flags)

    async def _ask(
        self, messages: Sequence[Message], tools: Sequence[JsonObject] = (), output: Any = None, **options: Any
    ) -> Reply | ModelError:
        """Return the reply or the refusal. A temporary failure is tried once more."""
        try:
            return await self.model.complete(messages, tools, output, max_tokens=_REPLY, **options)
        except ModelUnavailable:
            pass
        except ModelError as error:
            return error
        try:
            return await self.model.complete(messages, tools, output, max_tokens=_REPLY, **options)
        except ModelError as error:
            return error

    async def plain(self) -> None:
        """Send the plain request and find its flags: the name of `max_tokens`, the role of system messages."""
        default = self.model.profile
        other = "max_tokens" if default.max_tokens == "max_completion_tokens" else "max_completion_tokens"
        refused: ModelError | None = None
        for flags in ({}, {"max_tokens": other}, {"system_role": "user"}, {"max_tokens": other, "system_role": "user"}):
            self.model.profile = default.model_copy(update=flags)
            reply = await self._ask(_COUNT)
            if isinstance(reply, ReplyIncomplete) and (word := _unknown_end(reply)) is not None:
                self.use(ends={**default.ends, word: "stop"})
                self._found("end of a reply", word, "a word that is not known; it is taken for a complete reply")
                reply = await self._ask(_COUNT)
            if isinstance(reply, Reply):
                break
            refused = refused or reply
            if reply.retryable or type(reply) is not ModelError:
                raise refused
        else:
            assert refused is not None
            raise refused
        self.text = reply.text
        if not self.text.strip():
            thought = "; the server returns thoughts" if any(reply.extras.get(name) for name in REASONING) else ""
            self._found("text", "empty", f"the plain reply ended with {reply.finish or 'no word'!r}{thought}")
        self._found("system messages", self.model.profile.system_role, "the role in which they are sent")
        self._found("reply length", self.model.profile.max_tokens, "the name of the option")
        self._found("usage", *_usage(reply))

    async def stream(self) -> None:
        """Find out whether replies can be streamed, and whether a streamed reply has the usage."""
        default, refused = self.model.profile, ""
        for stream_usage in dict.fromkeys((default.stream_usage, False)):
            self.use(stream_usage=stream_usage)
            pieces, reply = 0, None
            try:
                async with aclosing(self.model.stream(_COUNT, max_tokens=_REPLY)) as events:  # type: ignore[type-var]
                    async for event in events:
                        pieces += bool(event.text or event.reasoning)
                        reply = event.reply or reply
            except ModelError as error:
                refused = str(error)
                continue
            assert reply is not None
            self._found("stream", "yes" if pieces > 1 else "one piece", f"{pieces} pieces")
            self._found("usage of a stream", *_usage(reply))
            return
        self.streams = False
        self.model.profile = default
        self._found("stream", "refused", refused)

    async def stop(self) -> None:
        """Find out whether a reply ends before the most frequent character of the plain one."""
        if not self.model.profile.stop:
            self._found("stop", "not sent")
            return
        ((end, _),) = Counter(self.text.replace(" ", "").replace("\n", "")).most_common(1) or [("e", 0)]
        reply = await self._ask(_COUNT, stop=[end])
        if isinstance(reply, ModelError):
            self.use(stop=False)
            self._found("stop", "refused", str(reply))
        elif end not in self.text:
            self._found("stop", "unknown", "the plain reply has no text")
        else:
            self._found("stop", "ignored" if end in reply.text else "yes", f"{end!r}")

    async def tools(self) -> None:
        """Find out whether tools reach the model: by its call, else by the number of input tokens."""
        choice = "required" if self.model.profile.tool_choice_required else "auto"
        reply = await self._ask(_QUESTION, [_TOOL], tool_choice=choice)
        if isinstance(reply, ModelError) and choice == "required":
            refused, reply = reply, await self._ask(_QUESTION, [_TOOL])
            if isinstance(reply, Reply):
                self.use(tool_choice_required=False)
                self._found("tool_choice", "refused", str(refused))
        if isinstance(reply, ModelError):
            self.text_tools = True
            self._found("tools", "refused", str(reply))
            return
        if reply.tool_calls:
            self.calls = True
            self._found("tools", "yes", "the model made a call")
            return
        without = await self._ask(_QUESTION)
        given = _input(reply), _input(without) if isinstance(without, Reply) else None
        if given[0] is None or given[1] is None:
            self._found("tools", "unknown", "the model made no call, and the server reports no usage")
            return
        self.text_tools = given[0] - given[1] < 10
        detail = f"{given[0]} input tokens with a tool, {given[1]} without"
        self._found("tools", "dropped" if self.text_tools else "no call", detail)

    async def schema(self) -> None:
        """Find the best form in which to ask for an answer in a schema, and whether bounds are enforced."""
        default = self.model.profile
        begun = max((place for place, form in enumerate(_FORMS) if _has(default, form)), default=0)
        detail, taken = "", None
        for form in _FORMS[begun:]:
            self.use(**form)
            reply = await self._ask(_STORY, output=_SCHEMA)
            if isinstance(reply, ModelError):
                detail = detail or str(reply)
                continue
            taken = taken or form
            answer = reply.parsed
            if isinstance(answer, Mapping) and (answer.keys() == {"word", "count"} or form["output"] != "json_schema"):
                self._found("answers in a schema", str(form["output"]), detail)
                self._bounds(answer)
                return
            detail = detail or "the server ignores the schema"
        self.use(**(taken or _FORMS[-1]))
        self._found("answers in a schema", "none", f"{detail}; in the prompt, the model does not follow it either")

    async def logprobs(self) -> None:
        """Find out whether a reply has the log probabilities of its tokens, and how many alternatives are allowed."""
        default, refused = self.model.profile.logprobs, ""
        for most in dict.fromkeys((default, min(default, _FEW), 0)):
            self.use(logprobs=most)
            if not most:
                break
            reply = await self._ask(_COUNT, logprobs=True)
            if isinstance(reply, Reply):
                self._found("log probabilities", "yes" if reply.logprobs else "no", f"at most {most} alternatives")
                return
            refused = refused or str(reply)
        self._found("log probabilities", "refused" if refused else "not sent", refused)

    def _bounds(self, answer: Mapping[str, Any]) -> None:
        if self.model.profile.strict_output:
            self._found("bounds in a schema", "not sent")
            return
        word, count = answer.get("word"), answer.get("count")
        kept = isinstance(word, str) and 3 <= len(word) <= 6 and isinstance(count, int) and 40 <= count <= 49
        self._found("bounds in a schema", "yes" if kept else "ignored", f"word={word!r:.40}, count={count!r:.20}")

    async def window(self) -> None:
        """Find the context window: from the server's list of models, else by long requests."""
        self.tokens = _listed(await self.model.list_models(), self.model.name)
        if self.tokens is not None:
            self._found("context window", f"{self.tokens:,}", "tokens, from the server's list of models")
            return
        least = 0
        for size in _WINDOWS:
            reply = await self._ask((user("word " * size + "\nSay yes."),))
            if isinstance(reply, ModelError):
                numbers = [int(one) for one in _TOKENS.findall(str(reply))]
                self.tokens = max((one for one in numbers if least <= one <= size), default=None)
                self._found("context window", f"{self.tokens or size:,}", "tokens" if self.tokens else "tokens at most")
                return
            given = _input(reply)
            if given is not None and given < size * 0.9:
                self.tokens = given
                self._found("context window", f"{given:,}", "tokens; longer requests are cut without a message")
                return
            least = size
        self._found("context window", f"{least:,}", "tokens at least")


def _unknown_end(error: ReplyIncomplete) -> str | None:
    """Return the server's word for the end of a reply, if it is not known; None for one that names a fault."""
    found = _WORD.search(str(error))
    word = json.loads(found[1]) if found is not None else None
    return None if word is None or _FAULT.search(word.lower()) else str(word)


def _has(profile: Profile, flags: Mapping[str, object]) -> bool:
    return all(getattr(profile, name) == value for name, value in flags.items())


def _usage(reply: Reply) -> tuple[str, str]:
    given = _input(reply)
    return ("no", "it is estimated") if given is None else ("yes", f"{given} input tokens")


def _input(reply: Reply) -> int | None:
    """Return the number of input tokens that the server reports."""
    return None if reply.usage is None or reply.usage.estimated else reply.usage.input_tokens


def _listed(answer: object, name: str) -> int | None:
    """Return the context window of a model in a server's list of models."""
    rows = answer.get("data") if isinstance(answer, dict) else None
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict) or row.get("id") != name:
            continue
        meta = row.get("meta")
        for fields in (row, meta if isinstance(meta, dict) else {}):
            for field in _FIELDS:
                found = fields.get(field)
                if isinstance(found, int) and 0 < found < math.inf:
                    return found
    return None
