"""A model that wraps a text-only model: tools are described in the prompt, and calls are read from the text."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias
from uuid import uuid4

from pydantic import JsonValue

from orchestrator.errors import ModelError
from orchestrator.json import JsonObject
from orchestrator.models.base import Model, ModelEvent, ModelRequest, RequestModel, Wrapping, closing, streamed
from orchestrator.models.messages import Message, Reply, ToolCall, without_thoughts
from orchestrator.models.reading import ThoughtScreen
from orchestrator.models.text.bracket import BracketForm
from orchestrator.models.text.code import CodeForm
from orchestrator.models.text.conversation import PROMPT, instructed, retold, told
from orchestrator.models.text.forms import ANY, CallScreen, Form, OfferedTool, Parsed, offers_of, short
from orchestrator.models.text.json_forms import JsonForm, PluginForm, SeparatorForm
from orchestrator.tasks import read_away

FormName: TypeAlias = Literal["json", "bracket", "plugin", "separator"]
FORMS: Mapping[str, Form] = {form.name: form for form in (JsonForm(), BracketForm(), PluginForm(), SeparatorForm())}
"""The forms of calls of tools."""
_ALL: Mapping[str, Form] = {**FORMS, "code": CodeForm()}
_CUT = ("length", "max_tokens", "content_filter")
"""Finish reasons of a reply that the model did not end itself."""


class TextProtocol(Wrapping, RequestModel):
    """A model that calls tools, made from one that only writes text.

    The tools are described to the inner model in words, and its reply is parsed: callers see the same requests and
    replies as with any other model. Only unambiguous calls count. `Reply.details["text_protocol"]` contains the reason
    why a text that looks like a call is not one (`unread`), and the text removed after a call (`cut`). In the form
    `bracket` it also contains the calls as the model wrote them (`words`). A message that keeps these in its `data` is
    sent to the model unchanged, so that the conversation matches the model's style and the examples in its prompt.

    The form `bracket` sends `stop`, the start of an observation, unless the request has its own `stop`.

    In requests with tools, an `output` is also requested in words, because a server that enforces a schema allows no
    calls.
    """

    def __init__(
        self,
        model: Model,
        form: FormName | Literal["code"] = "json",
        *,
        tools_prompt: str | None = None,
        new_id: Callable[[], str] | None = None,
        unknown: Literal["text", "call"] = "text",
    ) -> None:
        """
        Args:
            model: the inner model.
            form: the form of calls, preferably the one used in the model's training. `code`: each call is one of
                `python`, whose argument `code` calls the tools as functions.
            tools_prompt: the description of the tools. `{tools}` stands for the tools, and `{how}` (optional) for how
                to call them.
            new_id: makes the id of a call that has none, or a duplicate one; None: 32 random hex digits.
            unknown: how to treat a readable call of an unknown tool: as text, with the reason, or as a call, for
                callers that then tell the model which tools exist.

        Raises:
            ValueError: the form is unknown, or the prompt has no `{tools}`.
        """
        if form not in _ALL:
            raise ValueError(f"there is no form {form!r} of tool calls in text; the forms are {', '.join(_ALL)}")
        if tools_prompt is not None and "{tools}" not in tools_prompt:
            raise ValueError("tools_prompt has no place for the tools: write {tools} where they are to stand")
        self.name = model.name
        self.model = model
        self.form = form
        self._form = _ALL[form]
        self._new_id = new_id or (lambda: uuid4().hex)
        self._beside = (ANY,) if unknown == "call" else ()
        self._prompt = PROMPT if tools_prompt is None else tools_prompt

    def __repr__(self) -> str:
        return f"TextProtocol({self.model!r}, form={self.form!r})"

    @property
    def members(self) -> tuple[Model, ...]:
        """Return a tuple with only the inner model."""
        return (self.model,)

    async def respond(self, request: ModelRequest) -> Reply:
        """See `RequestModel.respond`. Asks the inner model."""
        asked = self._asked(request)
        reply = await self.model.complete(asked.messages, output=asked.output, task=request.task, **asked.options)
        return await read_away(lambda: self._read(reply, asked), reply.text)

    async def _stream_request(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply's text in pieces. Text that may be part of a call is held back until that is clear."""
        asked = self._asked(request)
        thoughts, screen = ThoughtScreen(), CallScreen(self._form) if asked.reads else None
        given: list[str] = []
        came = False
        reply: Reply | None = None
        inner = ModelRequest(asked.messages, output=asked.output, task=request.task, options=asked.options)
        async with closing(streamed(self.model, inner)) as events:
            async for event in events:
                came = came or bool(event.text)
                piece, thought = thoughts.feed(event.text)
                piece = screen.feed(piece) if screen is not None else piece
                if piece or thought or event.reasoning:
                    given.append(piece)
                    yield ModelEvent(text=piece, reasoning=event.reasoning + thought)
                reply = event.reply or reply
        if reply is None:
            raise ModelError(f"model {self.name!r} ended its stream before the reply was complete")
        received = reply
        reply = await read_away(lambda: self._read(received, asked), received.text)
        if held := thoughts.rest()[1]:
            yield ModelEvent(reasoning=held)
        shown = "".join(given)
        if came and len(shown) < len(reply.text) and reply.text.startswith(shown):
            yield ModelEvent(text=reply.text[len(shown) :])
        yield ModelEvent(reply=request.parse(reply))

    def _asked(self, request: ModelRequest) -> _TextRequest:
        options = dict(request.options)
        choice, several = options.pop("tool_choice", None), options.pop("parallel_tool_calls", None)
        offers = () if choice == "none" else offers_of(request.tools)
        messages = retold(request.messages, self._form, offers)
        reads = bool(offers) or (self._form.alone and bool(self._beside) and choice != "none")
        if reads:
            words = told(self._form, offers, self._prompt, choice, several is not False, request.output)
            functions: JsonValue = [asdict(offer) for offer in offers]
            messages = instructed(messages, words, {"functions": functions} if self._form.alone else None)
            if self._form.stop:
                options.setdefault("stop", list(self._form.stop))
        return _TextRequest(
            messages=messages,
            output=None if reads else request.output,
            options=options,
            offers=offers,
            reads=reads,
            several=several is not False,
            taken=frozenset(call.id for message in request.messages for call in message.tool_calls),
        )

    def _read(self, reply: Reply, asked: _TextRequest) -> Reply:
        """Return the inner model's reply with its calls. Calls within its thoughts do not count."""
        reply = without_thoughts(reply)
        if reply.parsed is not None:
            reply = reply.model_copy(update={"parsed": None})
        if not asked.reads or reply.tool_calls:  # the server has already read the calls
            return reply
        parsed = self._form.parse(reply.text, (*asked.offers, *self._beside), ended=reply.finish not in _CUT)
        if not parsed.calls and not parsed.unread:
            others = (form.name for form in FORMS.values() if form.parse(reply.text, asked.offers).calls)
            unread = next((f"a call in the form {name!r}, where {self.form!r} is read" for name in others), "")
            parsed = Parsed(parsed.content, unread=unread)
        if not asked.several and len(parsed.calls) > 1:
            further = ", ".join(call.name for call in parsed.calls[1:])
            parsed = Parsed(parsed.content, parsed.calls[:1], cut=f"further calls, where one is allowed: {further}")
        facts: dict[str, JsonValue] = {"form": self.form}
        facts.update({"unread": parsed.unread} if parsed.unread else {})
        facts.update({"cut": short(parsed.cut)} if parsed.cut else {})
        facts.update({"words": parsed.words} if parsed.words else {})
        found: dict[str, object] = {"details": {**reply.details, "text_protocol": facts}}
        if parsed.calls:
            calls = _identified(parsed.calls, asked.taken, self._new_id)
            found.update(text=parsed.content, tool_calls=calls, finish="tool_calls")
        return reply.model_copy(update=found)


@dataclass(frozen=True, slots=True)
class _TextRequest:
    """The request to the inner model, and the tools that its reply may call."""

    messages: tuple[Message, ...]
    output: JsonObject | None
    options: dict[str, Any]
    offers: tuple[OfferedTool, ...]
    reads: bool
    """Whether the reply may make calls."""
    several: bool
    taken: frozenset[str]
    """Ids of the conversation's calls."""


def _identified(calls: Sequence[ToolCall], taken: frozenset[str], new_id: Callable[[], str]) -> tuple[ToolCall, ...]:
    """Return the calls, each with a unique id: the model's, if no other call has it."""
    seen = set(taken)
    found: list[ToolCall] = []
    for call in calls:
        if not call.id or call.id in seen:
            call = call.model_copy(update={"id": new_id()})
        seen.add(call.id)
        found.append(call)
    return tuple(found)
