"""Results of tool calls, how they are cut for models and for the journal, and the risks of tools."""

from __future__ import annotations

import base64
import binascii
import json
import re
import reprlib
from collections import deque
from collections.abc import Mapping
from operator import not_
from typing import Any, Literal, Self, TypeAlias, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from orchestrator.errors import ResultRefused, SecretInState, ToolError, message_of
from orchestrator.graph.codec import Codec
from orchestrator.graph.faults import Spelled
from orchestrator.json import cleaned, deeper_than
from orchestrator.models.messages import Image
from orchestrator.redaction import redact, without_known
from orchestrator.values import FOREIGN_DEPTH, Unfit, check, too_deep

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}")
_DATA_URL = re.compile(r"data:([^;,]{1,255})[^,]{0,255},")
_STARTS = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF87a", "gif"), (b"GIF89a", "gif"))


class Blob(BaseModel):
    """Binary data that no model is shown: sound, a document, an archive. The journal keeps it, as base64."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str
    """The bytes, as base64."""
    media_type: str = "application/octet-stream"
    name: str = ""
    """File name for the data."""

    @field_validator("media_type")
    @classmethod
    def _check_type(cls, media_type: str) -> str:
        if not _MEDIA_TYPE.fullmatch(media_type):
            raise ValueError(f"{media_type[:40]!r} is not a media type: use one such as audio/wav")
        return media_type

    @field_validator("data")
    @classmethod
    def _check_data(cls, data: str) -> str:
        try:
            base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"{data[:40]!r} is not base64: make it with Blob.of(data)") from None
        return data

    @classmethod
    def of(cls, data: bytes, media_type: str = "application/octet-stream", *, name: str = "") -> Self:
        """Make binary content from bytes.

        Args:
            data: the bytes.
            media_type: their media type.
            name: a name to show, such as that of a file.

        Returns:
            The content.
        """
        return cls(data=base64.b64encode(data).decode(), media_type=media_type, name=name)

    @property
    def bytes(self) -> bytes:
        """Return the data as bytes."""
        return base64.b64decode(self.data)


Part: TypeAlias = Image | Blob
"""Content of a result in addition to its output."""


def size_of(part: Part) -> int:
    """Return about how many bytes the journal stores for the part."""
    return len(part.url if isinstance(part, Image) else part.data)


def placeholder_of(part: Part) -> str:
    """Return a line in place of a part that cannot be shown."""
    if isinstance(part, Blob):
        name = f"{part.name!a}, " if part.name else ""
        return f"[{name}{part.media_type}, {_bytes_in(part.data)} bytes, not shown]"
    kind = _DATA_URL.match(part.url)
    if kind is None:
        return f"[image at {part.url[:200]}]"
    return f"[{kind[1]}, {_bytes_in(part.url[kind.end() :])} bytes]"


def part_of(data: bytes) -> Part | str:
    """Convert bytes: to a picture, recognized by its first bytes; else to text if they are text; else to a blob."""
    for start, kind in _STARTS:
        if data.startswith(start):
            return Image.of(data, f"image/{kind}")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return Image.of(data, "image/webp")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Blob.of(data)
    return Blob.of(data) if "\0" in text else text


def _bytes_in(data: str) -> int:
    return len(data) * 3 // 4 - data[-2:].count("=")


Risk: TypeAlias = Literal["none", "read", "write", "dangerous"]
"""Effects of a call on the outside, in ascending order."""

Effect: TypeAlias = Literal["pure", "read", "idempotent", "irreversible"]
"""Kind of effect, which decides whether a call may be repeated if a crash left its outcome unknown. An `irreversible`
one may not."""

_anything = Codec(Any)

RISKS: tuple[Risk, ...] = get_args(Risk)
EFFECTS: tuple[Effect, ...] = get_args(Effect)


def risk_at_most(risk: Risk, limit: Risk) -> bool:
    """Return whether a risk is no greater than a limit: `none < read < write < dangerous`.

    Args:
        risk: the risk.
        limit: the limit.

    Returns:
        True if the risk is within the limit.
    """
    return RISKS.index(risk) <= RISKS.index(limit)


class ToolResult(BaseModel, metaclass=Spelled):
    """The result of a tool call that succeeded or failed.

    It failed if it has an error or an exit code that is not 0, and the two agree: with an error, an exit code that is
    missing or 0 becomes 1. An empty error, such as an empty stderr, is no error.
    """

    # In a state, which is read back from JSON, a `ToolFailure` becomes the `ToolResult` that its field declares.
    model_config = ConfigDict(frozen=True, extra="forbid", revalidate_instances="subclass-instances")

    output: JsonValue = None
    """The tool's return value, as JSON."""
    error: str | None = None
    """Error message; None if the call succeeded."""
    exit_code: int = 0
    """0: the call succeeded. A call may fail without an error message: then `output` describes the fault."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """Further data from the tool; not shown to a model."""
    content: list[Part] = Field(default_factory=list, exclude_if=not_)
    """Pictures, which a model is shown after the text, and other binary data, which only the journal stores."""
    shown: SkipJsonSchema[str] = Field(default="", exclude_if=not_)
    """Text that a model is shown in place of the output; empty: the output itself."""
    # Excluded from the schema, so that the structure of states with results does not change.
    ended: SkipJsonSchema[bool] = Field(default=False, exclude_if=not_)
    """True if the call ended the agent's work: its tool has `ends=True`, and the call succeeded. Set by `Execute`."""
    outcome: SkipJsonSchema[str | None] = Field(default=None, exclude_if=not_)
    """The outcome that `Execute` takes after the call, one of its `outcomes=`; None: `done`. Without effect if the call
    failed."""
    # Excluded from dumps, so from states, and from what a model is shown: the journal stores it with the call.
    traceback: SkipJsonSchema[str] = Field(default="", exclude=True, repr=False)
    """Traceback of the tool's error in a run: its own code first, without values; see `Failure.traceback`."""

    def __eq__(self, other: object) -> bool:
        """Return True if two results are equal apart from their tracebacks."""
        if not isinstance(other, ToolResult):
            return NotImplemented
        return type(self) is type(other) and {**vars(self), "traceback": ""} == {**vars(other), "traceback": ""}

    @model_validator(mode="after")
    def _agree(self) -> Self:
        return self._agreeing()

    def _agreeing(self) -> Self:
        """Remove a blank error; set the exit code to 1 if it is 0 and the call must have failed."""
        if self.error is not None and not self.error.strip():
            object.__setattr__(self, "error", None)  # the model is frozen
        if not self.exit_code and self._must_fail():
            object.__setattr__(self, "exit_code", 1)
            self.__pydantic_fields_set__.add("exit_code")
        return self

    def _must_fail(self) -> bool:
        return self.error is not None

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed, in which error and exit code still agree.

        Args:
            update: the changed fields, by name.
            deep: whether to copy the values of the fields as well.

        Returns:
            The new result.
        """
        copied = super().model_copy(update=update, deep=deep)
        return copied._agreeing() if update else copied

    @property
    def failed(self) -> bool:
        """Return True if the call failed."""
        return self.error is not None or self.exit_code != 0

    @property
    def fault(self) -> str:
        """Description of the fault of a failed call: its error, else its output, else its exit code; else empty."""
        if not self.failed:
            return ""
        output = self.shown or ("" if self.output is None else as_text(self.output))
        return self.error or (output if output.strip() else f"exit code {self.exit_code}")

    @property
    def text(self) -> str:
        """Text for models: the output, or `shown` in its place, and a line for each part of `content`.

        For a failed call it is `Error: ` and the fault.
        """
        lines = [placeholder_of(part) for part in self.content]
        if self.failed:
            lines.insert(0, f"Error: {self.fault}")
        elif self.output is not None or not lines:
            lines.insert(0, self.shown or as_text(self.output))
        return "\n".join(lines)

    @property
    def images(self) -> tuple[Image, ...]:
        """The pictures in `content`."""
        return tuple(part for part in self.content if isinstance(part, Image))

    def __str__(self) -> str:
        return self.text


_FIELDS = set(ToolResult.model_fields)


class ToolFailure(ToolResult):
    """The result of a call that went wrong: `ToolFailure(error="...")`. Its exit code is never 0."""

    exit_code: int = 1

    def _must_fail(self) -> bool:
        return True


def as_text(value: JsonValue) -> str:
    """Return a value as models read it: a text unchanged, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def worded(result: ToolResult) -> ToolResult:
    """Return the result with its output as text, as a model is shown it."""
    nothing = result.output is None and result.content
    output = "" if nothing else result.shown or as_text(result.output)
    return result.model_copy(update={"output": output, "shown": ""})


def result_of(value: Any) -> ToolResult:
    """Convert a tool's return value to a result. Results, also of other libraries, are kept; other values become the
    output. A result of another library is an object with `output` and one of `exit_code` and `error`. An `Image`, a
    `Blob`, and `bytes` that are not text become content, alone or in a list; the rest of the list is the output. A
    value that JSON cannot represent is converted to text.

    Raises:
        SecretInState: the value holds a secret.
    """
    if isinstance(value, ToolResult):
        return _sayable(value)
    parts = _parts(value)
    if parts is not None:
        return parts
    if hasattr(value, "output") and (hasattr(value, "exit_code") or hasattr(value, "error")):
        error = getattr(value, "error", None)
        code = getattr(value, "exit_code", None)
        output = _json(value.output)
        if not code and not error:
            return ToolResult(output=output)
        return ToolResult(output=output, error=str(error or as_text(output)), exit_code=int(code or 1))
    return ToolResult(output=_json(value))


def storable(result: ToolResult) -> ToolResult:
    """Return the result of a call in a form that the journal can store, or a failed result if that is impossible.

    Unpaired surrogates become U+FFFD, noted in `metadata`.
    """
    data = result.model_dump(mode="json", include=_FIELDS, exclude_defaults=True)
    try:
        check(data, depth=FOREIGN_DEPTH)
    except Unfit:
        pass
    else:
        return result
    changes: dict[str, Any] = {}
    try:
        clean = cleaned({name: data[name] for name in ("output", "error", "shown") if name in data})
        for part in clean.values():
            check(part, depth=FOREIGN_DEPTH)
    except (Unfit, RecursionError) as error:
        why = too_deep(FOREIGN_DEPTH) if isinstance(error, RecursionError) else str(error)
        clean, changes = {}, {"output": None, "error": _not_kept(why), "exit_code": 1}
    metadata: dict[str, Any] = result.metadata
    try:
        metadata = cleaned(metadata)
        check(metadata, depth=FOREIGN_DEPTH)
    except (Unfit, RecursionError) as error:
        metadata = {"left_out": f"metadata: {error}"}
    changed = clean | changes | {"metadata": metadata}
    if any(clean[name] != data[name] for name in clean) or ("left_out" not in metadata and metadata != result.metadata):
        metadata["replaced"] = "unpaired surrogates"
    parts = [part.model_copy(update=cleaned(part.model_dump())) for part in result.content]
    return result.model_copy(update={**changed, "content": parts})


def _not_kept(why: str) -> str:
    return f"the call was made, but its result cannot be stored: {why}"


def _parts(value: object) -> ToolResult | None:
    """Return a result with content, if the value is content or a list with content; else None."""
    if isinstance(value, Image | Blob | bytes):
        found = part_of(value) if isinstance(value, bytes) else value
        return ToolResult(output=found) if isinstance(found, str) else ToolResult(content=[found])
    if not isinstance(value, list | tuple) or not any(isinstance(item, Image | Blob | bytes) for item in value):
        return None
    items = [part_of(item) if isinstance(item, bytes) else item for item in value]
    others = [_json(item) for item in items if not isinstance(item, Image | Blob)]
    output: JsonValue = others
    if all(isinstance(item, str) for item in others):
        output = "\n".join(cast("list[str]", others)) if others else None
    return ToolResult(output=output, content=[item for item in items if isinstance(item, Image | Blob)])


def _sayable(result: ToolResult) -> ToolResult:
    """Return the result with values that a journal cannot store (NaN, infinite numbers) as text."""
    changes: dict[str, object] = {}
    if not (isinstance(result.output, str) or _is_json(result.output)):
        changes["output"] = _json(result.output)
    if not (_is_json(result.metadata) or deeper_than(result.metadata, FOREIGN_DEPTH)):
        changes["metadata"] = {_text(name): _json(item) for name, item in result.metadata.items()}
    if abs(result.exit_code) >= 2**63:
        changes["exit_code"] = 1
    return result.model_copy(update=changes) if changes else result


def _is_json(value: JsonValue) -> bool:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _text(value: object) -> str:
    """Return a value as text. A call that was made has a result, even if its value cannot be converted."""
    try:
        return str(value)
    except Exception as error:
        return f"[a value of type {type(value).__name__}, which cannot be shown: {message_of(error)}]"


def _json(value: object) -> JsonValue:
    try:
        # Plain JSON contains no secrets, and is a hundred times faster to copy this way.
        if type(value) is str and value.isascii():
            return value
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        found: JsonValue = json.loads(text)  # unpaired surrogates are replaced when the result is stored
    except (TypeError, ValueError, RecursionError):
        pass
    else:
        if text.count("[") + text.count("{") <= FOREIGN_DEPTH or not deeper_than(found, FOREIGN_DEPTH):
            return found
    if deeper_than(value, FOREIGN_DEPTH):
        raise ToolError(_not_kept(too_deep(FOREIGN_DEPTH)))
    try:
        return cast(JsonValue, _anything.encode(value))
    except SecretInState:
        raise
    except Exception:
        return _text(value)


R = TypeVar("R", bound=ToolResult)

SHOWN = 20_000
"""Maximum number of characters of a result that a model is shown."""
KEPT = 1_000_000
"""Maximum number of characters of a result that the journal stores."""
CONTENT = 20_000_000
"""Maximum number of characters of pictures and other binary data, as base64, that the journal stores of a result."""
_SAID = 2_000
"""Maximum number of characters of a refused result that the journal stores."""
_LINE = 100
"""Maximum length of the line about the missing part."""
_TAIL = 3
"""Divisor for the share of the end, where errors and results are: one third of the kept characters."""


def cut(text: str, most: int, hint: str = "") -> str:
    """Return the text, or its start and end with a line between them that names the length of the missing part.

    Args:
        most: characters that are kept; the line is added to these.
        hint: further text of the line, such as where the rest is.
    """
    return text if len(text) <= most else _cut(text, text, len(text), most, hint)


def _cut(begin: str, end: str, length: int, most: int, hint: str) -> str:
    """Cut a text of which the start and the end are given."""
    tail = most // _TAIL
    missing = f"[... {length - most:,} of {length:,} characters are left out here{hint and '; '}{hint} ...]"
    return f"{begin[: most - tail]}\n{missing}\n{end[len(end) - tail :] if tail else ''}"


_short = reprlib.Repr()
_short.maxlevel, _short.maxlist, _short.maxtuple, _short.maxset, _short.maxdict = 4, 10, 10, 10, 10
_short.maxstring = _short.maxother = _short.maxlong = 400


def in_words(value: object) -> str:
    """Describe any value in short, redacted text, in bounded time, for questions about values that cannot be stored."""
    try:
        if isinstance(value, ToolResult):
            value = value.output
        if isinstance(value, str | bytes | bytearray):
            value = value[: 4 * _SAID]  # redact before the cut: half a secret is not recognized
        text = value if isinstance(value, str) else _short.repr(value)
    except Exception:  # a class named like a built-in one, or a proxy of an object that was deleted
        text = f"a value of type {type(value).__name__}"
    text = redact(without_known(text[: 4 * _SAID])).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _SAID else f"{text[:_SAID]} [...]"


def refused(error: Exception, value: object) -> ResultRefused:
    """Return the error of a call whose return value does not fit into a result."""
    why = message_of(error)
    known = isinstance(error, ToolError)
    return ResultRefused(why if known else f"the call was made, but its result was refused: {why}", in_words(value))


class Gathered:
    """Collects a text that arrives in pieces, and keeps only as much as a result may have."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._length = self._begun = self._held = 0
        self._begin: list[str] = []
        self._end: deque[str] = deque()
        """The last pieces, enough for the end of the text."""

    def add(self, piece: str) -> None:
        if not piece:
            return
        self._length += len(piece)
        if self._begun < self._most:
            self._begin.append(piece[: self._most - self._begun])
            self._begun += len(self._begin[-1])
        piece = piece[-self._most :]
        self._end.append(piece)
        self._held += len(piece)
        while self._end and self._held - len(self._end[0]) >= self._most:
            self._held -= len(self._end.popleft())

    def whole(self) -> str:
        """Return the text; its start and end, and the line between them, if it is longer."""
        begin = "".join(self._begin)
        if self._length <= self._most:
            return begin
        return _cut(begin, "".join(self._end), self._length, max(0, self._most - _LINE), "not kept")


def truncated(result: R, most: int = KEPT) -> R:
    """Return the result as the journal stores it: unchanged, if no part of it is too large.

    A long text is cut. Another value that is too large becomes its JSON, cut. Content that is too large becomes a line.
    """
    changes: dict[str, object] = {}
    if (output := _truncated_value(result.output, most)) is not result.output:
        changes["output"] = output
    if result.error is not None and len(result.error) > most:
        changes["error"] = cut(result.error, most, "not kept")
    if len(result.shown) > most:
        changes["shown"] = cut(result.shown, most, "not kept")
    if result.metadata and len(json.dumps(result.metadata)) > most:
        changes["metadata"] = {"left_out": f"metadata of more than {most:,} characters"}
    if sum(map(size_of, result.content)) > CONTENT:
        changes["content"] = _truncated_parts(result.content)
    return result.model_copy(update=changes) if changes else result


def _truncated_value(value: JsonValue, most: int) -> JsonValue:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = as_text(value)
    return value if len(text) <= most else cut(text, most, "not kept")


def _truncated_parts(parts: list[Part]) -> list[Part]:
    found: list[Part] = []
    room = CONTENT
    for part in parts:
        room -= size_of(part)
        if room >= 0:
            found.append(part)
        else:
            kind = "an image" if isinstance(part, Image) else "data"
            found.append(Blob(data="", name=f"{kind} of {size_of(part):,} characters, too large to be kept"))
    return found
