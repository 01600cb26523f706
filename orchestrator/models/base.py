"""The interface of models: one request in, one reply out."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from orchestrator.errors import AgentError
from orchestrator.graph.codec import explain
from orchestrator.json import JsonObject, frozen
from orchestrator.models.messages import Message, Reply, Settled, user, with_results
from orchestrator.models.reading import NoReading, choice_in, json_in, parted, unfenced
from orchestrator.tasks import read_away
from orchestrator.user_code import pass_fence

_NUMBER = re.compile(r"(?<![\w.,])-?\d++(?:,\d{3})*+(?:\.\d+)?+(?![\w.,]*\d)")
_DIGITS = 100
"""Longer numbers in a sentence are not read."""
calling_node: ContextVar[str | None] = ContextVar("calling_node", default=None)
"""Name of the node running in this task; set by the executor."""
calling_key: ContextVar[str | None] = ContextVar("calling_key", default=None)
"""Idempotency key of the call in progress in this task: the same if the call is repeated after a crash."""
trace_headers: ContextVar[Callable[[], Mapping[str, str]] | None] = ContextVar("trace_headers", default=None)
"""Returns the headers by which a server continues the trace of this task; set while a run is traced."""


class Offered(Protocol):
    """Any object that can be offered to a model as a tool."""

    def to_param(self) -> JsonObject:
        """Return `{"type": "function", "function": {"name", "description", "parameters"}}`."""
        ...


ToolLike: TypeAlias = "Offered | JsonObject"
Output: TypeAlias = "type[Any] | JsonObject | None"
"""The type of a reply: a class (pydantic model, dataclass, ...), a JSON Schema, or plain text."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The request to a model. Two requests with the same `data()` are equal."""

    messages: tuple[Message, ...]
    tools: tuple[JsonObject, ...] = ()
    """The offered tools, as OpenAI function parameters."""
    output: JsonObject | None = None
    """JSON Schema of the answer."""
    output_type: type[Any] | None = field(default=None, compare=False)
    """The class that `output` was made from; not part of the request's data."""
    task: str | None = None
    """Kind of decision: `choose_tool`, `choose_args`, `think`, `answer` or a word chosen by a node."""
    options: dict[str, object] = field(default_factory=dict)
    """Parameters for the provider, such as `temperature`."""
    pieces: bool = field(default=False, compare=False)
    """True to receive the reply in pieces, as it arrives; not part of the request's data."""

    @classmethod
    def of(
        cls,
        messages: str | Sequence[Message],
        tools: Iterable[ToolLike] = (),
        output: Output = None,
        *,
        task: str | None = None,
        options: Mapping[str, object] | None = None,
        pieces: bool = False,
    ) -> ModelRequest:
        """Make a request from the arguments of `Model.complete`.

        Args:
            messages: the conversation; a string is one message of the user.
            tools: the tools that the model may call.
            output: the type or JSON Schema of the answer.
            task: the kind of decision.
            options: parameters for the provider.
            pieces: whether the caller reads the reply in pieces.

        Returns:
            The request.
        """
        schema, kind = _output(output)
        asked = (user(messages),) if isinstance(messages, str) else _messages(messages)
        return cls(asked, tool_params(tools), schema, kind, task=task, options=dict(options or {}), pieces=pieces)

    def data(self) -> dict[str, Any]:
        """Return the request as plain JSON, without unset fields. Messages, tools and the schema are immutable."""
        found: dict[str, Any] = {"messages": [message.json_form for message in self.messages]}
        if self.tools:
            found["tools"] = [frozen(tool) for tool in self.tools]
        if self.output is not None:
            found["output"] = frozen(self.output)
        if self.task is not None:
            found["task"] = self.task
        if self.options:
            found["options"] = dict(self.options)
        return found

    def parse(self, reply: Reply) -> Reply:
        """Read `parsed` from a reply's text, if an output was requested and no tool was called.

        Args:
            reply: the model's reply.

        Returns:
            The reply, with `parsed`. For a JSON Schema it is the JSON value, or None if the text is not JSON; for a
            class it is an instance.

        Raises:
            AgentError: the text is not a value of the class.
        """
        if self.output is None or reply.tool_calls or reply.parsed is not None:
            return reply
        try:
            if self.output_type is None:
                return reply.model_copy(update={"parsed": json_in(reply.text)})
            parsed = _validated(self.output_type, reply.text)
        except NoReading as why:
            if self.output_type is None:
                return reply
            raise AgentError(f"the model's reply is not a valid {self._type_name}: it {why}") from None
        except ValidationError as error:
            cut = f" (it was cut off: finish {reply.finish!r})" if reply.finish not in ("stop", "") else ""
            raise AgentError(f"the model's reply is not a valid {self._type_name}{cut}: {explain(error)}") from None
        return reply.model_copy(update={"parsed": parsed})

    @property
    def _type_name(self) -> str:
        return str(getattr(self.output_type, "__name__", self.output_type))


class ModelEvent(BaseModel):
    """A part of a streamed reply. The last event of a stream has the whole reply."""

    model_config = ConfigDict(frozen=True)

    text: str = ""
    """The next piece of the text."""
    reasoning: str = ""
    """The next piece of the model's reasoning, if its provider shows that."""
    reply: Reply | None = None


@runtime_checkable
class Model(Protocol):
    """The interface of models: `name` and `complete`, and `stream` if the model can return a reply in pieces.

    While a run is watched, models that define `stream` are asked for streams; `streams = False` prevents that.
    Subclasses of `RequestModel` get the request as one object.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The model's name in journals and pictures."""
        ...

    @abstractmethod
    async def complete(
        self,
        messages: str | Sequence[Message],
        tools: Iterable[ToolLike] = (),
        output: Output = None,
        *,
        task: str | None = None,
        **options: Any,
    ) -> Reply:
        """Send a request and wait for the whole reply.

        Args:
            messages: the conversation; a string is one message of the user.
            tools: tools that the model may call: `Tool` objects, a `Toolbox`, or their parameters.
            output: the type or JSON Schema of the answer, see `Reply.parsed`.
            task: the kind of decision, such as `choose_tool`.
            options: parameters for the provider, such as `temperature`.

        Returns:
            The reply. Its `parsed` is the answer as a value of `output`.

        Raises:
            ModelError: the call failed; `ModelUnavailable` if the same call may succeed later.
            AgentError: the reply is not a value of the `output` class.
        """
        ...

    async def stream(
        self,
        messages: str | Sequence[Message],
        tools: Iterable[ToolLike] = (),
        output: Output = None,
        *,
        task: str | None = None,
        **options: Any,
    ) -> AsyncIterator[ModelEvent]:
        """Send a request and read the reply in pieces. The arguments and errors are those of `complete`.

        By default, the only event has the reply of `complete`.

        Returns:
            An iterator of events. The last event has the whole reply and may be the only one.
        """
        yield ModelEvent(reply=await self.complete(messages, tools, output, task=task, **options))


class ModelInterface(ABC):
    """`complete` and `stream` in terms of two methods that take whole requests."""

    async def complete(
        self,
        messages: str | Sequence[Message],
        tools: Iterable[ToolLike] = (),
        output: Output = None,
        *,
        task: str | None = None,
        **options: Any,
    ) -> Reply:
        """See `Model.complete`."""
        return await self._complete_request(ModelRequest.of(messages, tools, output, task=task, options=options))

    def stream(
        self,
        messages: str | Sequence[Message],
        tools: Iterable[ToolLike] = (),
        output: Output = None,
        *,
        task: str | None = None,
        **options: Any,
    ) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        request = ModelRequest.of(messages, tools, output, task=task, options=options, pieces=True)
        return self._stream_request(request)

    @abstractmethod
    async def _complete_request(self, request: ModelRequest) -> Reply:
        """Return the reply to a request, with its `parsed`."""

    @abstractmethod
    def _stream_request(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the reply to a request in pieces."""


class RequestModel(ModelInterface):
    """Base class of models that get a request as one object: define `respond`, inherit `complete` and `stream`.

    A model that can return a reply in pieces defines `respond_in_pieces` as well.
    """

    name: str

    @abstractmethod
    async def respond(self, request: ModelRequest) -> Reply:
        """Answer one request.

        Args:
            request: the request.

        Returns:
            The reply. Its `parsed` may be empty, because `complete` reads it from the text.

        Raises:
            ModelError: the call failed; `ModelUnavailable` if the same call may succeed later.
        """

    async def respond_in_pieces(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Answer one request in pieces. Unless a class defines it, the only event has the reply of `respond`.

        Args:
            request: the request.

        Returns:
            An iterator of events; write it as an async generator. The last event has the whole reply.

        Raises:
            ModelError: the call failed; `ModelUnavailable` if the same call may succeed later.
        """
        yield ModelEvent(reply=await self.respond(request))

    async def _complete_request(self, request: ModelRequest) -> Reply:
        await pass_fence()
        reply = await self.respond(request)
        return await read_away(lambda: request.parse(reply), reply.text)

    async def _stream_request(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        await pass_fence()
        async with closing(self.respond_in_pieces(request)) as events:
            async for event in events:
                yield event if event.reply is None else event.model_copy(update={"reply": request.parse(event.reply)})


class WordsModel(RequestModel):
    """Base class of models that give a reply, known as a whole, in pieces of whole words: for tests and trials."""

    async def respond_in_pieces(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `RequestModel.respond_in_pieces`. Yields at most 100 pieces."""
        reply = await self.respond(request)
        words = [f"{word} " for word in reply.text.split(" ")]
        words[-1] = words[-1][:-1]
        many = len(words) // 100 + 1
        for start in range(0, len(words), many):
            if text := "".join(words[start : start + many]):
                yield ModelEvent(text=text)
        yield ModelEvent(reply=reply)


def gives_pieces(model: Model) -> bool:
    """Return True if a model returns its replies in pieces.

    This is its attribute `streams`. Without one, it is True for a model that defines a streaming method.
    """
    said = getattr(model, "streams", None)
    if said is not None:
        return bool(said)
    if isinstance(model, RequestModel):
        names = ("stream", "_stream_request", "respond_in_pieces")
        return any(getattr(type(model), name) is not getattr(RequestModel, name) for name in names)
    return callable(getattr(model, "stream", None)) and getattr(type(model), "stream", None) is not Model.stream


def streamed(model: Model, request: ModelRequest) -> AsyncIterator[ModelEvent]:
    """Send a request to a model and read the reply in pieces; a model without `stream` returns it whole."""
    stream = getattr(model, "stream", None) or partial(Model.stream, model)
    events: AsyncIterator[ModelEvent] = stream(
        request.messages, request.tools, request.output, task=request.task, **request.options
    )
    return events


def _messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    found = messages if type(messages) is Settled else tuple(messages)
    for message in () if type(found) is Settled else found:
        if not isinstance(message, Message):
            raise TypeError(
                f"{message!r:.60} is not a Message: give a string or messages made by system(), user(), ..."
            )
    return with_results(found)


def tool_params(tools: Iterable[ToolLike]) -> tuple[JsonObject, ...]:
    """Return tools as OpenAI function parameters, in the order given.

    Raises:
        TypeError: an object is neither a tool nor the parameters of one.
    """
    return tuple(_param(tool) for tool in tools)


def _param(tool: object) -> JsonObject:
    if isinstance(tool, Mapping):
        return tool
    offered: JsonObject | None = getattr(tool, "offered", None)
    if offered is not None:
        return offered
    to_param = getattr(tool, "to_param", None)
    if to_param is None:
        raise TypeError(f"{tool!r} is not a tool: use Tool objects, a Toolbox, or function parameters as dicts")
    found: JsonObject = to_param()
    return found


def _output(output: Output) -> tuple[JsonObject | None, type[Any] | None]:
    if output is None:
        return None, None
    if isinstance(output, Mapping):
        return output, None
    schema: JsonObject = TypeAdapter(output).json_schema()
    return schema, output


def bare(reply: Reply) -> Reply:
    """Return a reply whose text has not been parsed yet."""
    return reply if reply.parsed is None else reply.model_copy(update={"parsed": None})


@asynccontextmanager
async def closing(events: AsyncIterator[ModelEvent]) -> AsyncGenerator[AsyncIterator[ModelEvent], None]:
    """Close an iterator after use, if it can be closed, however the reading ends; this also closes its connection."""
    try:
        yield events
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


def _validated(output: type[Any], text: str) -> Any:
    """Return the value of a class in a reply. Raises `ValidationError` or `NoReading`."""
    adapter = TypeAdapter(output)
    value = _in_words(output, text)
    if value is not None:
        return value
    bare = unfenced(text)
    try:
        value = json_in(text)
    except NoReading:
        adapter.validate_json(bare)  # says what is wrong
        raise  # ambiguous, such as a name that occurs twice: pydantic accepted one of its readings
    try:
        return adapter.validate_json(bare)
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] != "json_invalid":
            raise
    return adapter.validate_json(json.dumps(value))


def _in_words(output: type[Any], text: str) -> str | int | float | bool | None:
    """If `output` is str, bool, int or float, return the value that a reply states in words; else None."""
    words = parted(text)[1].strip()
    if output is str:
        return None if words.startswith('"') else words or None
    if output is bool:
        chosen = choice_in(words, dict.fromkeys(("true", "false", "yes", "no"), ""))
        return None if chosen is None else chosen in ("true", "yes")
    numbers = _NUMBER.findall(words) if output in (int, float) and words[:1] not in ("{", "[") else []
    if len(numbers) != 1 or len(numbers[0]) > _DIGITS or (output is int and "." in numbers[0]):
        return None
    number: int | float = output(numbers[0].replace(",", ""))
    return number


class Wrapping(ABC):
    """A model around others, which takes its attributes from the first of them, and closes all of them."""

    @property
    @abstractmethod
    def members(self) -> tuple[Model, ...]:
        """Return the models that may be asked, the first one first."""

    @property
    def retry(self) -> Any:
        """Return the retry rule of the inner model; None if it has none."""
        return getattr(self.members[0], "retry", None)

    @property
    def price(self) -> Any:
        """Return the price of the inner model; None if it has none."""
        return getattr(self.members[0], "price", None)

    @property
    def window(self) -> int | None:
        """Return the tokens of the smallest context window of the inner models; None if none is known."""
        return min((size for member in self.members if (size := getattr(member, "window", None))), default=None)

    @property
    def streams(self) -> bool:
        """Return True if the inner model returns its replies in pieces."""
        return gives_pieces(self.members[0])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all `members` that can be closed."""
        async with AsyncExitStack() as closing:  # all of them, even if closing one fails
            for member in self.members:
                close = getattr(member, "aclose", None)
                if close is not None:
                    closing.push_async_callback(close)
