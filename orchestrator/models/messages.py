"""Messages to models and their replies, the same for all providers."""

from __future__ import annotations

import base64
import json
import math
import mimetypes
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import to_jsonable_python

from orchestrator.errors import ModelError
from orchestrator.graph.faults import Spelled
from orchestrator.graph.limits import Usage
from orchestrator.json import EMPTY, MOST_KEPT, FrozenObject, cleaned, frozen, is_small, storable
from orchestrator.models.logprobs import TokenLogprob
from orchestrator.models.reading import parted
from orchestrator.redaction import without_known
from orchestrator.values import FOREIGN_DEPTH, MAX_TOKENS, Unfit, check, fault_in

T = TypeVar("T")
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Detail: TypeAlias = Literal["auto", "low", "high"]

REASONING = ("reasoning_content", "reasoning")
"""Names of the field with a model's reasoning, in `extras`."""
OWN_PARTS = ("responses", "anthropic", "gemini")
"""Names of the fields, in `extras`, with what only the interface that gave a message can read; see `parts`."""
WINDOW = "window"
"""Key in the details of a journaled reply: the tokens of the context window of the model that was asked."""
REPLY_LIMIT = "reply_limit"
"""Key in the details of a journaled reply: the most tokens that the request allowed for the reply."""
NO_RESULT = (
    "There is no result: the work was stopped before one was written down. "
    "Whether the call was carried out is not known; look before you make it again."
)
"""Result that a model receives for a call without a result."""


_NOTHING: Any = Field(default_factory=dict)
"""Default that is an empty mapping, made for each object; pydantic would copy a mapping deeply."""
_EMPTY: Any = Field(default_factory=lambda: EMPTY)
_Fields: TypeAlias = Annotated[dict[str, JsonValue], AfterValidator(frozen)]
"""A JSON object that cannot be changed."""


class Immutable(BaseModel, metaclass=Spelled):
    """A model whose objects cannot change, nor what is in their fields, so that what is computed from one is kept."""

    model_config = ConfigDict(frozen=True)

    __slots__ = ("_kept",)
    __immutable__: ClassVar[bool] = False
    """True if its fields contain nothing mutable. It holds for the class itself: a subclass may have other fields."""

    def kept(self, name: Hashable, make: Callable[[Self], T]) -> T:
        """Return what a function makes from the object. It is made once, unless the object is large.

        Args:
            name: names the result among those that are kept with the object.
            make: makes it.
        """
        try:
            found: dict[Hashable, T] = self._kept  # type: ignore[attr-defined]
        except AttributeError:
            found = {}
            if vars(type(self)).get("__immutable__") and is_small(vars(self), MOST_KEPT):
                object.__setattr__(self, "_kept", found)
        if name not in found:
            found[name] = make(self)
        return found[name]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """See `BaseModel.model_copy`."""
        new = {name: frozen(one) if isinstance(one, dict) else one for name, one in (update or {}).items()}
        return super().model_copy(update=new, deep=deep)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self.__copy__() if vars(type(self)).get("__immutable__") else super().__deepcopy__(memo)


class ToolCall(Immutable):
    """A model wants a tool called."""

    __immutable__ = True

    id: str
    """Id that joins the call and the `tool` message with its result."""
    name: str
    arguments: _Fields | None = None
    """The arguments; None if the model's text, kept in `raw`, is not a JSON object."""
    raw: str = ""
    """The arguments as the model wrote them; empty if it wrote none."""
    extras: _Fields = _EMPTY
    """Fields specific to the provider; sent back to it unchanged."""


class Image(BaseModel, metaclass=Spelled):
    """A picture that a model is shown."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    """The address: `https:`, or the picture itself as `data:image/...;base64,...`."""
    detail: Detail | None = None
    """Resolution at which the model sees it, if the provider offers a choice."""

    @property
    def inline(self) -> tuple[str, str] | None:
        """The media type and the base64 of a picture that is given as `data:`; None for an address."""
        kind, comma, data = self.url.removeprefix("data:").partition(";base64,")
        return (kind, data) if comma and self.url.startswith("data:") else None

    @field_validator("url")
    @classmethod
    def _check(cls, url: str) -> str:
        if not url.startswith(("https://", "http://", "data:image/")):
            raise ValueError(
                f"{url[:40]!r} is not the address of a picture: use https://..., data:image/..., or Image.of_file(path)"
            )
        return url

    @classmethod
    def of(cls, data: bytes, media_type: str = "image/png", *, detail: Detail | None = None) -> Self:
        """Make a picture from its bytes.

        The journal stores it as it is sent, once for each conversation.

        Args:
            data: the bytes.
            media_type: the type of the picture.
            detail: resolution at which the model sees it; None: the provider's default.

        Returns:
            The picture, as a `data:` URL.
        """
        return cls(url=f"data:{media_type};base64,{base64.b64encode(data).decode()}", detail=detail)

    @classmethod
    def of_file(cls, path: str | Path, *, detail: Detail | None = None) -> Self:
        """Make a picture from a file. The file's name decides its type.

        Args:
            path: the file's path.
            detail: resolution at which the model sees it; None: the provider's default.

        Returns:
            The picture, as a `data:` URL.

        Raises:
            ValueError: the file's name does not have the suffix of a picture.
            OSError: the file cannot be read.
        """
        kind, _ = mimetypes.guess_type(str(path))
        if kind is None or not kind.startswith("image/"):
            raise ValueError(
                f"{path}: the name is not that of a picture, such as .png or .jpg; use Image.of(data, kind)"
            )
        return cls.of(Path(path).read_bytes(), kind, detail=detail)


class Message(Immutable):
    """One entry of a conversation."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    __immutable__ = True

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    """In an assistant's message: the tool calls that it makes."""
    tool_call_id: str | None = None
    """In a tool's message: id of the call that it answers."""
    name: str | None = None
    """In a tool's message: name of the tool."""
    extras: _Fields = _EMPTY
    """Fields specific to the provider, such as `reasoning_content`; sent back to it unchanged."""
    data: _Fields | None = None
    """The facts that `content` was written from. Never sent to a provider."""
    images: tuple[Image, ...] = ()
    """In a user's or a tool's message: pictures, shown after the text."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.images and self.role not in ("user", "tool"):
            raise ValueError(f"a message of role {self.role!r} has images: only those of users and tools can")
        return self

    @property
    def json_form(self) -> FrozenObject:
        """The message as JSON, without fields at their default, as requests and journals have it."""
        return self.kept("json", _json_form)


def _json_form(message: Message) -> FrozenObject:
    found: FrozenObject = frozen(message.model_dump(mode="json", exclude_defaults=True))
    return found


_TOKENS = TypeAdapter(tuple[TokenLogprob, ...])


class Reply(BaseModel, metaclass=Spelled):
    """A model's answer to one request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    parsed: Any = None
    """The answer parsed as the request's `output`: a value of that class, or JSON for a JSON Schema; else None."""
    usage: Usage | None = None
    """Input and output tokens, and the cost if known; None if the provider does not report them."""
    finish: str = "stop"
    """Why the model stopped: `stop`, `tool_calls`, `length`, `content_filter`, `refusal`, or the provider's own word.
    """
    extras: dict[str, JsonValue] = _NOTHING
    """Fields of the message specific to the provider, such as `reasoning_content`; `message` keeps them."""
    details: dict[str, JsonValue] = _NOTHING
    """Facts about the answer from the provider, such as its id and the full usage; in `logprobs` the last tokens of the
    reply, each as `[token, log probability, {other token: log probability}]`.
    """
    model: str = ""
    """The model that answered."""

    @property
    def refused(self) -> bool:
        """Return True if the model, or a filter of its provider, refused to answer."""
        return self.finish in ("refusal", "content_filter")

    @property
    def cut(self) -> bool:
        """Return True if the reply was cut off at its length limit."""
        return self.finish == "length"

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """The last tokens of the reply with their log probabilities.

        Empty unless the request had the option `logprobs=True`, and the provider gives them.
        """
        try:
            return _TOKENS.validate_python(self.details.get("logprobs", ()))
        except ValidationError:
            return ()

    @property
    def message(self) -> Message:
        """Return the reply as an assistant's message, to continue a conversation."""
        return Message(role="assistant", content=self.text, tool_calls=self.tool_calls, extras=self.extras)

    def data(self) -> dict[str, JsonValue]:
        """Return the reply as JSON, without `parsed`, which `ModelRequest.parse` restores from the text."""
        return self.model_dump(mode="json", exclude={"parsed"}, exclude_defaults=True)


def system(content: str) -> Message:
    """Make a system message: instructions for the model.

    Args:
        content: the text.

    Returns:
        The message.
    """
    return Message(role="system", content=content)


def user(content: str, *, images: Iterable[Image] = (), data: Mapping[str, JsonValue] | None = None) -> Message:
    """Make a message of the user.

    Args:
        content: the text.
        images: pictures that belong to it.
        data: the facts that the text was made from, for models that read them.

    Returns:
        The message.
    """
    return Message(role="user", content=content, images=tuple(images), data=None if data is None else dict(data))


def is_summary(message: Message) -> bool:
    """Return True for the summary of a part of a conversation, written by a `Compact`: its `data` says so."""
    return message.role == "user" and isinstance((message.data or {}).get("summary_of"), int)


def assistant(content: str = "", tool_calls: Iterable[ToolCall] = ()) -> Message:
    """Make a message of the model.

    Args:
        content: the text.
        tool_calls: the tool calls that it makes.

    Returns:
        The message.
    """
    return Message(role="assistant", content=content, tool_calls=tuple(tool_calls))


def tool_result(
    call: ToolCall, content: str, *, images: Iterable[Image] = (), data: Mapping[str, JsonValue] | None = None
) -> Message:
    """Make the message with the result of a tool call.

    Args:
        call: the call.
        content: the result as text.
        images: pictures in the result.
        data: the facts that the text was made from, for models that read them.

    Returns:
        The message.
    """
    return Message(
        role="tool",
        content=content,
        tool_call_id=call.id,
        name=call.name,
        images=tuple(images),
        data=None if data is None else dict(data),
    )


def with_results(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return a conversation in which each tool call has exactly one result, right after the message that makes it.

    Providers reject any other conversation. The messages of a run that was cancelled, failed or was exhausted end where
    it stopped, possibly between a call and its result. Such a call gets a result that says so. Later results, such as
    those after a message of the user, move up. If a call has several results, the first one is used.

    Args:
        messages: the conversation.

    Returns:
        The messages in the new order.
    """
    if type(messages) is Settled:
        return messages
    found: list[Message] = []
    calls: Mapping[str | None, ToolCall] = {}
    results: dict[str | None, Message] = {}
    others: list[Message] = []

    def close() -> None:
        found.extend(results.values())
        found.extend(tool_result(call, NO_RESULT) for key, call in calls.items() if key not in results)
        found.extend(others)

    for message in messages:
        if message.role == "assistant":
            if calls or others:
                close()
            found.append(message)
            calls, results, others = {call.id: call for call in message.tool_calls}, {}, []
        elif message.role == "tool" and message.tool_call_id in calls:
            results.setdefault(message.tool_call_id, message)
        else:
            others.append(message)
    close()
    return Settled(found)


class Settled(tuple[Message, ...]):
    """Messages in which each call has its result, see `with_results`."""

    __slots__ = ()


STATE_TYPES: Mapping[str, type] = {"Message": Message, "Reply": Reply, "ToolCall": ToolCall}
"""Maps names in the type strings of a state that is written as data to types."""


# -- replies that the journal can keep: one that was paid for is never lost for one odd value in it --------------------
#
# lone surrogates              become U+FFFD, as in decoders
# arguments that are not JSON  `arguments` of the call is None, as for unreadable arguments
# invalid fields of a provider are left out
# infinite costs               are left out
#
# The changes are listed in `Reply.details["altered"]`.


def without_thoughts(reply: Reply) -> Reply:
    """Return the reply with the thoughts in its text where a provider's reasoning is: in `extras`."""
    thoughts, text = parted(reply.text)
    if text == reply.text:
        return reply
    name = next((name for name in REASONING if isinstance(reply.extras.get(name), str)), REASONING[0])
    both = "\n\n".join(filter(None, (str(reply.extras.get(name) or ""), thoughts)))
    return reply.model_copy(update={"text": text, "extras": {**reply.extras, name: both} if both else reply.extras})


def received(reply: Reply) -> Reply:
    """Return the reply without thoughts in its text, altered if need be so that it is read back equal from a journal.

    Raises:
        ModelError: its text is too long to be stored.
    """
    reply = without_thoughts(reply)
    if "logprobs" in reply.details and _tells_secret(reply):
        reply = reply.model_copy(update={"details": {k: v for k, v in reply.details.items() if k != "logprobs"}})
    try:
        data = reply.model_dump(mode="json", exclude={"parsed"}, exclude_defaults=True, warnings=False)
        check(data, depth=FOREIGN_DEPTH)
        same = Reply.model_validate(data) == reply and _is_counted(reply.usage)
    except ValueError:
        same = False
    return reply if same else _altered(reply)


def _tells_secret(reply: Reply) -> bool:
    """Return True if a reply contains a known secret. Its log probabilities would reveal what its text redacts."""
    words = (reply.text, "".join(token.token for token in reply.logprobs), json.dumps(reply.extras, default=str))
    return any(without_known(one) != one for one in words)


def _altered(reply: Reply) -> Reply:
    altered: list[JsonValue] = []
    text = _stored_text(reply.text, "text", altered)
    try:
        check(text)
    except Unfit as error:
        raise ModelError(f"model {storable(reply.model)!r}: its reply cannot be stored: {error}") from None
    calls = tuple(_stored_call(call, altered) for call in reply.tool_calls)
    extras = _stored_fields(reply.extras, "extras", altered)
    details = _stored_fields(reply.details, "details", altered)
    usage = _stored_usage(reply.usage, altered)
    finish, model = _stored_text(reply.finish, "finish", altered), _stored_text(reply.model, "model", altered)
    if altered:
        details = {**details, "altered": altered}
    return reply.model_copy(
        update={
            "text": text,
            "tool_calls": calls,
            "extras": extras,
            "details": details,
            "usage": usage,
            "finish": finish,
            "model": model,
        }
    )


def _stored_text(text: str, where: str, altered: list[JsonValue]) -> str:
    found = storable(text)
    if found.count("\ufffd") != text.count("\ufffd"):
        altered.append(f"{where}: half a surrogate pair was replaced")
    return found


def _stored_call(call: ToolCall, altered: list[JsonValue]) -> ToolCall:
    where = f"the call of {storable(call.name)[:200]!r}"
    raw = _stored_text(call.raw, f"{where}, raw", altered)
    arguments = call.arguments
    if arguments is not None:
        try:
            arguments = _stored_value(arguments, f"{where}, arguments", altered)
        except Unfit as error:
            arguments = None
            raw = raw or f"[arguments that cannot be stored: {error}]"
            altered.append(f"{where}, arguments: left out, {error}")
    return ToolCall(
        id=_stored_text(call.id, f"{where}, id", altered),
        name=_stored_text(call.name, f"{where}, name", altered),
        arguments=arguments,
        raw=raw,
        extras=_stored_fields(call.extras, f"{where}, extras", altered),
    )


def _stored_fields(fields: Mapping[str, JsonValue], where: str, altered: list[JsonValue]) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {}
    for name, value in fields.items():
        try:
            found |= _stored_value({name: value}, f"{where}, {storable(name)[:200]}", altered)
        except Unfit as error:
            altered.append(f"{where}, {storable(name)[:200]}: left out, {error}")
    return found


def _stored_value(value: dict[str, JsonValue], where: str, altered: list[JsonValue]) -> dict[str, JsonValue]:
    """Return a JSON object in a form that can be stored. Raises `Unfit`."""
    try:
        found = to_jsonable_python(cleaned(value))
    except (ValueError, TypeError, RecursionError):
        raise Unfit(fault_in(value, FOREIGN_DEPTH) or "it has no JSON form") from None
    check(found, depth=FOREIGN_DEPTH)
    if found != value:
        altered.append(f"{where}: a value that JSON cannot represent was replaced")
    return cast("dict[str, JsonValue]", found)


def _stored_usage(usage: Usage | None, altered: list[JsonValue]) -> Usage | None:
    if _is_counted(usage):
        return usage
    altered.append(f"usage: left out, because a number in it is not finite, or {MAX_TOKENS:,} or more")
    return None


def _is_counted(usage: Usage | None) -> bool:
    """Return True if there is no usage, or stores can add it to others."""
    if usage is None:
        return True
    counts = (usage.steps, usage.calls, usage.input_tokens, usage.output_tokens)
    return math.isfinite(usage.cost) and math.isfinite(usage.seconds) and all(abs(n) < MAX_TOKENS for n in counts)
