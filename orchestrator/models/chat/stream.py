"""Streamed answers: decodes events, and assembles their pieces into the answer that would be sent without streaming.

Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) are decoded here as far as chat
completions use them. The `openai` package decodes them too, but in generators that it does not close: on trio, each
stream that is left early, or that ends with `[DONE]`, leaves some unclosed.

Servers and proxies split answers in different ways. A call's name, arguments and the text may be split anywhere. Calls
are distinguished by `index`, but some servers give all of them the same one, or none: so a new id, or a name that
arrives after complete arguments, also starts a new call.

Parts are kept as received and joined once, so the time for a stream is linear in its length.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator.errors import ModelError, ModelUnavailable
from orchestrator.json import paired, storable
from orchestrator.models.chat.reply import OWN, chunk_of, error_in, reply_from, reply_of, text_of, word_in
from orchestrator.models.http_errors import OPENAI_KEY, quoted, words_of
from orchestrator.models.messages import Reply

_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"", b"event", b"id", b"retry")
_ODD = 1000
"""Number of bytes of lines other than fields after which no further line is kept."""


class EventDecoder:
    """Decodes bytes, split anywhere, to the data of whole events."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._return = False
        self._first = True
        self.odd = b""
        """The beginning of lines that are no fields of events, such as those of an error page."""

    def feed(self, received: bytes) -> Iterator[str]:
        """Yield the data of the events that end in these bytes. Comments and events without data are left out.

        Raises:
            UnicodeDecodeError: the data is not UTF-8.
        """
        for line in self._lines(received):
            if line:
                self._field(line)
            elif self._data:
                data = b"\n".join(self._data)
                self._data.clear()
                if data:
                    yield data.decode()

    def rest(self) -> Iterator[str]:
        """Yield the data of an event at the end of the stream, which is incomplete if the stream was cut off."""
        yield from self.feed(b"\n\n")

    def _lines(self, received: bytes) -> Iterator[bytes]:
        """Yield whole lines, which end with `\\n`, `\\r` or both."""
        if self._return and received[:1] == b"\n":
            received = received[1:]
        if received:
            self._return = received.endswith(b"\r")
        lines = received.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines[:-1]:
            self._line += line
            if self._first:
                self._first = False
                del self._line[: 3 * self._line.startswith(_BOM)]
            yield bytes(self._line)
            self._line.clear()
        self._line += lines[-1]

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":  # comments, ids and event types are not used
            self._data.append(value.removeprefix(b" "))
        elif name == b"error":  # so llama.cpp wrote errors for a time
            self._data.append(b'{"error":' + value + b"}")
        elif line[:1] == b"{":  # an error that a gateway wrote between the events
            self._data.append(line)
        elif name not in _FIELDS and len(self.odd) < _ODD:
            self.odd += line[:_ODD] + b" "


_REASONING = ("reasoning_content", "reasoning")
_SIGN = re.compile(r'[{}\[\]"]')
_IN_TEXT = re.compile(r'["\\]')
_BLANKS = " \t\n\r"


class Piece(NamedTuple):
    """The text and reasoning that one chunk adds."""

    text: str = ""
    reasoning: str = ""


class StreamAssembly(ABC):
    """An answer, assembled from the chunks of its stream."""

    def __init__(self) -> None:
        self.finish: str | None = None
        """Why the model stopped; None until the stream contains the reason."""
        self.done = False
        """True once the stream has its end marker."""
        self.error: object = None
        """The error in a chunk."""

    @property
    def whole(self) -> bool:
        """Return True if the answer is complete."""
        return self.finish is not None

    @abstractmethod
    def add(self, chunk: Mapping[str, Any]) -> Piece:
        """Add the next chunk. An invalid field in it is ignored."""

    @abstractmethod
    def answer(self) -> dict[str, Any]:
        """Return the answer as the server would have sent it without streaming."""


class _Object:
    """Checks whether text that arrives in pieces is one complete JSON object, parsing each character once."""

    def __init__(self) -> None:
        self._read = 0
        self._depth = 0
        self._in_text = False
        self._escaped = False
        self._whole: bool | None = None
        """None until the brackets are closed; once False, it stays False."""

    def whole(self, parts: Sequence[str]) -> bool:
        """Return True if the parts make one object. Pass the parts of earlier calls again, first."""
        while self._read < len(parts) and self._whole is not False:
            self._take(parts[self._read], parts)
            self._read += 1
        return self._whole is True

    def _take(self, part: str, parts: Sequence[str]) -> None:
        at = 0
        if self._depth == 0:
            at = len(part) - len(part.lstrip(_BLANKS))
            if at == len(part):
                return
            if self._whole or part[at] != "{":  # text after an object, or not an object
                self._whole = False
                return
        at = self._closing(part, at)
        if self._depth == 0:
            text = "".join(parts[: self._read]) + part[:at]
            self._whole = not part[at:].strip(_BLANKS) and _is_object(text)

    def _closing(self, part: str, at: int) -> int:
        """Read until the brackets are closed or the part ends; return the position after that."""
        if self._escaped:
            self._escaped, at = False, at + 1
        while found := (_IN_TEXT if self._in_text else _SIGN).search(part, at):
            at = found.end()
            sign = found[0]
            if sign == "\\":
                if at == len(part):
                    self._escaped = True
                at += 1
            elif sign == '"':
                self._in_text = not self._in_text
            else:
                self._depth += 1 if sign in "{[" else -1
                if self._depth == 0:
                    return at
        return len(part)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False


class _PartialCall:
    """A call that arrives in pieces."""

    def __init__(self) -> None:
        self.id = ""
        self._names: list[str] = []
        self._named = 0
        self.arguments: list[str] = []
        self._written = _Object()
        self.object: dict[str, Any] | None = None
        """The arguments, if a server does not write them as text."""
        self.extras: dict[str, list[Any]] = {}

    @property
    def name(self) -> str:
        """Return the part of the name that has arrived."""
        if len(self._names) > 1:
            self._names = ["".join(self._names)]
        return self._names[0] if self._names else ""

    @property
    def begun(self) -> bool:
        """Return True if a part of the arguments has arrived."""
        return bool(self.arguments) or self.object is not None

    def _is_name(self, name: str) -> bool:
        return len(name) == self._named and name == self.name

    def goes_on(self, identity: str, name: str) -> bool:
        """Return True if a piece with this id and name belongs to this call."""
        if identity and identity == self.id:
            return True
        if not name:  # some servers write a new id in every piece, but none starts a call without a name
            return not identity or not self._whole()
        if identity and self.id:
            return False
        return not self.begun or (self._is_name(name) and not self._whole())

    def add(self, piece: Mapping[str, Any], identity: str, name: str, arguments: object) -> None:
        self.id = self.id or identity
        if name and not self.arguments and not self._is_name(name):  # some servers repeat the name in every piece
            self._names.append(name)
            self._named += len(name)
        if isinstance(arguments, str):
            if arguments:
                self.arguments.append(arguments)
        elif isinstance(arguments, dict):
            self.object = arguments
        for key, value in piece.items():
            if key not in ("index", "id", "type", "function") and value is not None:
                self.extras.setdefault(key, []).append(value)

    def _whole(self) -> bool:
        return self.object is not None or self._written.whole(self.arguments)

    def data(self) -> dict[str, Any]:
        arguments: object = self.object if self.object is not None else paired("".join(self.arguments))
        extras = {key: _last(values) for key, values in self.extras.items()}
        return {**extras, "id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


class Assembly(StreamAssembly):
    """An answer of chat completions, assembled from the chunks of its stream."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = False
        self._top: dict[str, Any] = {}
        self._text: list[str] = []
        self._half = ""
        self._refusal: list[str] = []
        self._calls: list[_PartialCall] = []
        self._latest: dict[object, _PartialCall] = {}
        self._named: dict[tuple[object, str], _PartialCall] = {}
        self._extras: dict[str, list[Any]] = {}
        self._logprobs: dict[str, list[Any]] = {}

    @property
    def whole(self) -> bool:
        """Return True if the answer is complete."""
        return self.finish is not None or (self.done and self._begun)

    def add(self, chunk: Mapping[str, Any]) -> Piece:
        """Add the next chunk. An invalid field in it is ignored."""
        for key, value in chunk.items():
            if key not in ("choices", "object") and value is not None:
                self._top[key] = value
        choices = chunk.get("choices")
        text, reasoning = "", ""
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict) or choice.get("index") not in (0, None):
                continue
            self._begun = True
            delta = choice.get("delta")
            if not isinstance(delta, dict):
                delta = choice.get("message")  # a proxy sent a whole answer as a stream
            if isinstance(delta, dict):
                piece = self._delta(delta)
                text, reasoning = text + piece.text, reasoning + piece.reasoning
            logprobs = choice.get("logprobs")
            for key, part in logprobs.items() if isinstance(logprobs, dict) else ():
                if isinstance(part, list):
                    self._logprobs.setdefault(key, []).extend(part)
            if choice.get("error"):
                self.error = choice["error"]
            elif word := word_in(choice.get("finish_reason")):
                self.finish = word
        return Piece(self._shown(text), storable(reasoning))

    def _shown(self, text: str) -> str:
        """Return the text to show now: a character that was split is held back until its second half arrives."""
        if not text:
            return ""
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return storable(text)

    def _delta(self, delta: Mapping[str, Any]) -> Piece:
        text = text_of(delta.get("content"))
        if text:
            self._text.append(text)
        if isinstance(delta.get("refusal"), str):
            self._refusal.append(delta["refusal"])
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._call(call)
        if "function_call" in delta and not calls and isinstance(delta["function_call"], dict):
            self._call({"function": delta["function_call"]})
        for key, value in delta.items():
            if key not in OWN and value is not None:
                self._extras.setdefault(key, []).append(value)
        thought = next((delta[key] for key in _REASONING if isinstance(delta.get(key), str)), "")
        return Piece(text, thought)

    def _call(self, piece: Mapping[str, Any]) -> None:
        function = piece.get("function")
        told: Mapping[str, Any] = function if isinstance(function, dict) else {}
        identity = piece["id"] if isinstance(piece.get("id"), str) else ""
        name = told["name"] if isinstance(told.get("name"), str) else ""
        index = piece["index"] if isinstance(piece.get("index"), int) else None
        call = self._named.get((index, identity)) if identity else None
        if call is None:
            call = self._latest.get(index) if index is not None else self._calls[-1] if self._calls else None
            if call is None or not call.goes_on(identity, name):
                call = _PartialCall()
                self._calls.append(call)
        call.add(piece, identity, name, told.get("arguments"))
        self._latest[index] = call
        if identity:
            self._named[index, identity] = call

    def answer(self) -> dict[str, Any]:
        """Return the answer as the server would have sent it without streaming."""
        extras = {key: _joined(parts) for key, parts in self._extras.items()}
        message: dict[str, object] = {**extras, "role": "assistant", "content": paired("".join(self._text))}
        if self._refusal:
            message["refusal"] = paired("".join(self._refusal))
        if self._calls:
            message["tool_calls"] = [call.data() for call in self._calls if call.begun or call.name]
        choice = {"index": 0, "message": message, "finish_reason": self.finish, "logprobs": self._logprobs}
        return {**self._top, "choices": [choice]}


def is_end(data: str) -> bool:
    """Return True if the data of an event marks the end of the stream."""
    return data[:1] != "{" and data.strip().startswith(("[DONE]", "DONE"))


def reply_to(
    text: str,
    model: str,
    *,
    clean: Callable[[str], str] = str,
    assembly: Callable[[], StreamAssembly] = Assembly,
    read: Callable[..., Reply] = reply_from,
    key: str = OPENAI_KEY,
) -> Reply:
    """Like `reply_of`, also for the events of a stream: some servers always stream, or mislabel streams."""
    if not text.startswith(("data:", "event:")):
        return reply_of(text, model, clean=clean, read=read)
    events, built = EventDecoder(), assembly()
    try:
        for data in (*events.feed(text.encode("utf-8", "replace")), *events.rest()):
            built.done = is_end(data)
            if built.done:
                break
            built.add(chunk_of(data, model, clean, key=key))
            if built.error is not None:
                raise error_in(built.error, model, clean, key=key)
    except ModelError:
        if not built.whole:
            raise
    if not built.whole:
        raise broken_off(built, events, model, clean)
    return read(built.answer(), model, clean=clean)


def broken_off(assembly: StreamAssembly, events: EventDecoder, model: str, clean: Callable[[str], str]) -> ModelError:
    """Return the error for a stream that ended without a complete reply."""
    if assembly.done:
        return ModelUnavailable(f"model {model!r}: the server's stream contains no reply")
    odd = clean(quoted(words_of(events.odd.decode("utf-8", "replace"), 0)[0])) if events.odd else ""
    return ModelUnavailable(
        f"model {model!r}: the stream ended before the reply was complete (it has neither a finish_reason nor "
        f"[DONE]{f', but: {odd}' if odd else ''}); if the server always ends streams so, use streams=False"
    )


def _joined(parts: Sequence[Any]) -> Any:
    """Join the pieces of a field that is specific to a provider."""
    if all(isinstance(part, str) for part in parts):
        return paired("".join(parts))
    if all(isinstance(part, list) for part in parts):
        return [item for part in parts for item in part]
    if all(isinstance(part, dict) for part in parts):
        found: dict[str, list[Any]] = {}
        for part in parts:
            for key, value in part.items():
                found.setdefault(key, []).append(value)
        return {key: _joined(values) for key, values in found.items()}
    return parts[-1]


def _last(values: Sequence[Any]) -> Any:
    """Return a field of a call that is not split: sent once, repeated in each piece, or an object built up piece by
    piece."""
    if all(isinstance(value, dict) for value in values):
        return {key: value for one in values for key, value in one.items()}
    return values[-1]
