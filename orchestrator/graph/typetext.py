"""The small type language of states that are written as data: `str`, `list[str]`, `Literal["a", "b"] | None`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Union

from orchestrator.errors import GraphError
from orchestrator.graph.names_meant import close_to

_SIMPLE: dict[str, Any] = {
    "str": str, "int": int, "float": float, "bool": bool, "any": Any, "None": None, "null": None,
}  # fmt: skip
_GENERIC: dict[str, tuple[Any, int]] = {"list": (list, 1), "set": (set, 1), "dict": (dict, 2)}
TYPE_NAMES = (*_SIMPLE, *_GENERIC, "Literal")
"""What a type is made of."""
_LONGEST = 1_000
"""Characters of a type. It bounds how deep it can be nested, too: each level takes five."""
_TOKEN = re.compile(r"""\s*(?:([A-Za-z_]\w*)|([\[\],|])|("[^"\\\n]*"|'[^'\\\n]*'|-?\d{1,18}(?![\w.])))""")
_CONSTANTS: Mapping[str, object] = {
    "true": True, "True": True, "false": False, "False": False, "null": None, "None": None,
}  # fmt: skip

_ELSEWHERE = {
    "string": "str", "text": "str", "integer": "int", "number": "float", "double": "float", "boolean": "bool",
    "array": "list", "tuple": "list", "object": "dict", "map": "dict", "mapping": "dict", "optional": "T | None",
    "union": "T | T", "enum": "Literal['a', 'b']", "date": "str", "datetime": "str", "nonetype": "None",
}  # fmt: skip
"""Names of types in other languages."""

Named = Callable[[str], Any]
"""Gives the type of a name, or None if it does not know the name."""


def parse_type(text: str, named: Named | None = None, known: Callable[[], Iterable[str]] = tuple) -> Any:
    """The type that a text names.

    Args:
        text: the text.
        named: gives the types of further names.
        known: gives these names, for messages.

    Raises:
        GraphError: it names none; the language is `str int float bool any None list[T] set[T] dict[str, T]
            Literal["a", 1] T | T` and the further names.
    """
    if len(text) > _LONGEST:
        raise GraphError(f"{text[:40]!r}... has {len(text):,} characters, and a type at most {_LONGEST:,}: use a class")
    return _TypeParser(text, named or (lambda name: None), known).parse()


class _TypeParser:
    def __init__(self, text: str, named: Named, known: Callable[[], Iterable[str]]) -> None:
        self.text, self.named, self.known = text, named, known
        self.tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._fault(text[position:].strip()[0])
            self.tokens.append(match[1] or match[2] or match[3])
            position = match.end()

    def parse(self) -> Any:
        found = self._union()
        if self.tokens:
            raise self._fault(self.tokens[0])
        return found

    def _union(self) -> Any:
        found = self._one()
        while self._take("|"):
            found = Union[found, self._one()]  # noqa: UP007  works for every kind of type
        return found

    def _one(self) -> Any:
        word = self.tokens.pop(0) if self.tokens else "its end"
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word == "Literal":
            return self._literal()
        if word not in _GENERIC:
            found = self.named(word)
            if found is None:
                raise self._fault(word)
            return found
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
        if not self._take("["):
            raise self._fault(self.tokens[0] if self.tokens else "its end")
        choices = [self._constant()]
        while self._take(","):
            choices.append(self._constant())
        if not self._take("]"):
            raise self._fault(self.tokens[0] if self.tokens else "its end")
        return Literal[tuple(choices)]

    def _constant(self) -> object:
        word = self.tokens.pop(0) if self.tokens else "its end"
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        if word[0] in "\"'":
            return word[1:-1]
        if word[0] in "-0123456789":
            return int(word)
        raise GraphError(f"{self.text!r} names no type (at {word}): put texts in quotes, as in Literal['a', 'b']")

    def _take(self, mark: str) -> bool:
        if self.tokens and self.tokens[0] == mark:
            self.tokens.pop(0)
            return True
        return False

    def _fault(self, at: str) -> GraphError:
        further = tuple(self.known())
        words = [*TYPE_NAMES, *further]
        meant = _ELSEWHERE.get(at.casefold()) or (close_to(at, words) if at[:1].isalpha() and at not in words else None)
        if meant:
            return GraphError(f"{self.text!r} names no type (at {at}): did you mean {meant!r}?")
        return GraphError(
            f"{self.text!r} names no type (at {at}): write str, int, float, bool, any, None, list[T], set[T], "
            f"dict[str, T], Literal['a', 'b'], {''.join(f'{name}, ' for name in further)}or T | T"
        )
