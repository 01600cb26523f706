"""The pieces of a streamed answer, put together: whatever its split, the same answer comes out.

Servers and the proxies before them differ in how they cut. A call's name, arguments and the text may be split
anywhere. Calls are told apart by `index`, but there are servers that give all of them the same one, or none: so a new
id, or a name that comes when the arguments before it are whole, begins a new call as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from orchestrator.models.chat.reply import OWN, text_of

_REASONING = ("reasoning_content", "reasoning")


class Piece(NamedTuple):
    """What one chunk adds for somebody who watches."""

    text: str = ""
    reasoning: str = ""


class _Call:
    """A call that comes in pieces."""

    def __init__(self, index: object) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.whole: dict[str, Any] | None = None
        """The arguments, where a server does not write them as text."""
        self.extras: dict[str, Any] = {}

    def goes_on(self, identity: str, name: str) -> bool:
        """Whether a piece with this id and name belongs to this call."""
        if identity and self.id:
            return identity == self.id
        if not name or not (self.arguments or self.whole is not None):
            return True
        return name == self.name and not self._complete()

    def add(self, piece: Mapping[str, Any], identity: str, name: str, arguments: object) -> None:
        again = bool(identity) and identity == self.id and name == self.name
        self.id = self.id or identity
        if name and not again and not self.arguments:  # some repeat the id and the name in every piece
            self.name += name
        if isinstance(arguments, str):
            if arguments:
                self.arguments.append(arguments)
        elif isinstance(arguments, dict):
            self.whole = arguments
        for key, value in dict(piece).items():
            if key not in ("index", "id", "type", "function") and value is not None:
                before = self.extras.get(key)
                if isinstance(before, dict) and isinstance(value, dict):
                    value = {**before, **value}
                self.extras[key] = value

    def _complete(self) -> bool:
        if self.whole is not None:
            return True
        try:
            return isinstance(json.loads("".join(self.arguments)), dict)
        except (ValueError, RecursionError):
            return False

    def data(self) -> dict[str, Any]:
        arguments: object = self.whole if self.whole is not None else "".join(self.arguments)
        return {**self.extras, "id": self.id, "type": "function",
                "function": {"name": self.name, "arguments": arguments}}  # fmt: skip


class Assembly:
    """One answer of chat completions, made of the chunks of its stream."""

    def __init__(self) -> None:
        self.finish: str | None = None
        """Why the model stopped; None while the stream has not said so, which means that more was to come."""
        self._top: dict[str, Any] = {}
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._extras: dict[str, Any] = {}

    def add(self, chunk: Mapping[str, Any]) -> Piece:
        """Take the next chunk. What is odd in it costs that field and not the answer."""
        for key, value in chunk.items():
            if key not in ("choices", "object") and value is not None:
                self._top[key] = value
        choices = chunk.get("choices")
        text, reasoning = "", ""
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict) or choice.get("index") not in (0, None):
                continue
            delta = choice.get("delta")
            if not isinstance(delta, dict):
                delta = choice.get("message")  # a whole answer that a proxy made a stream of
            if isinstance(delta, dict):
                piece = self._delta(delta)
                text, reasoning = text + piece.text, reasoning + piece.reasoning
            if choice.get("finish_reason"):
                self.finish = str(choice["finish_reason"])
        return Piece(text, reasoning)

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
        for key, value in delta.items():
            if key not in OWN and value is not None:
                self._extras[key] = _joined(self._extras.get(key), value)
        thought = next((delta[key] for key in _REASONING if isinstance(delta.get(key), str)), "")
        return Piece(text, thought)

    def _call(self, piece: Mapping[str, Any]) -> None:
        function = piece.get("function")
        told: Mapping[str, Any] = function if isinstance(function, dict) else {}
        identity = piece["id"] if isinstance(piece.get("id"), str) else ""
        name = told["name"] if isinstance(told.get("name"), str) else ""
        index = piece.get("index")
        call = self._called(index, identity, name)
        if call is None:
            call = _Call(index)
            self._calls.append(call)
        call.add(piece, identity, name, told.get("arguments"))

    def _called(self, index: object, identity: str, name: str) -> _Call | None:
        """The call that a piece belongs to; None if it begins one."""
        same = [call for call in self._calls if index is None or call.index == index]
        for call in same:
            if identity and call.id == identity:
                return call
        return same[-1] if same and same[-1].goes_on(identity, name) else None

    def answer(self) -> dict[str, Any]:
        """The answer, as the server would have given it in one."""
        message: dict[str, Any] = {**self._extras, "role": "assistant", "content": "".join(self._text)}
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self._calls:
            message["tool_calls"] = [call.data() for call in self._calls]
        return {**self._top, "choices": [{"index": 0, "message": message, "finish_reason": self.finish}]}


def _joined(old: Any, new: Any) -> Any:
    """Two pieces of a provider's own field."""
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(old, list) and isinstance(new, list):
        return [*old, *new]
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _joined(old.get(key), value) for key, value in new.items()}}
    return new
