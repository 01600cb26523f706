"""The small type language of states that are written as data: `str`, `list[Message]`, `Literal['a', 'b'] | None`."""

from __future__ import annotations

import re
from typing import Any, Literal

from orchestrator.errors import GraphError
from orchestrator.upward import above

_SIMPLE: dict[str, Any] = {
    "str": str, "int": int, "float": float, "bool": bool, "any": Any, "None": None, "null": None,
}  # fmt: skip
_GENERIC: dict[str, tuple[Any, int]] = {"list": (list, 1), "set": (set, 1), "dict": (dict, 2)}
_MODELS = ("Message", "ToolCall")
"""Classes of this library, which conversations and calls need."""
_LONGEST = 1_000
"""Characters of a type. It bounds how deep it can be nested, too: each level takes five."""
_TOKEN = re.compile(r"""\s*(?:([A-Za-z_]+|"[^"]*"|'[^']*'|-?\d{1,18}(?![\w.]))|([\[\],|]))""")
_WORDS = (
    "str, int, float, bool, any, None, Message, ToolCall, list[T], set[T], dict[str, T], Literal['a', 'b'] or T | T"
)


def parse_type(text: str) -> Any:
    """The type that a text names.

    Raises:
        GraphError: it names none; the language is `str int float bool any None Message ToolCall list[T] set[T]
            dict[str, T] Literal['a', 'b'] T | T`.
    """
    if len(text) > _LONGEST:
        raise GraphError(f"{text[:40]!r}... has {len(text):,} characters, and a type at most {_LONGEST:,}: use a class")
    return _TypeParser(text).parse()


class _TypeParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._fault(text[position:].strip()[0])
            self.tokens.append(match[1] or match[2])
            position = match.end()

    def parse(self) -> Any:
        found = self._union()
        if self.tokens:
            raise self._fault(self.tokens[0])
        return found

    def _union(self) -> Any:
        found = self._one()
        while self._take("|"):
            found = found | self._one()
        return found

    def _one(self) -> Any:
        word = self.tokens.pop(0) if self.tokens else "its end"
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word in _MODELS:
            return getattr(above("messages"), word)
        if word == "Literal":
            return self._literal()
        if word not in _GENERIC:
            raise self._fault(word)
        kind, wanted = _GENERIC[word]
        if not self._take("["):
            return {list: list[Any], set: set[Any], dict: dict[str, Any]}[kind]
        arguments = [self._union()]
        while self._take(","):
            arguments.append(self._union())
        if not self._take("]") or len(arguments) != wanted:
            raise self._fault(self.tokens[0] if self.tokens else "its end")
        return kind[tuple(arguments)]

    def _literal(self) -> Any:
        values: list[str | int | bool] = []
        mark = "["
        while self._take(mark):
            mark = ","
            word = self.tokens.pop(0) if self.tokens else "its end"
            if word in ("True", "False", "true", "false"):
                values.append(word in ("True", "true"))
            elif word[0] in "\"'":
                values.append(word[1:-1])
            elif word.lstrip("-").isdigit():
                values.append(int(word))
            else:
                raise self._fault(word)
        if not values or not self._take("]"):
            raise self._fault(self.tokens[0] if self.tokens else "its end")
        return Literal[tuple(values)]

    def _take(self, mark: str) -> bool:
        if self.tokens and self.tokens[0] == mark:
            self.tokens.pop(0)
            return True
        return False

    def _fault(self, at: str) -> GraphError:
        return GraphError(f"{self.text!r} names no type (at {at}): write {_WORDS}")
