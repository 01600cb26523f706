"""Types as text, such as `list[str]`, and types defined by a state that is data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, Union

from pydantic import Field as PydanticField
from pydantic import TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError

from orchestrator._lazy import above
from orchestrator.errors import GraphError
from orchestrator.graph.faults import explain_data
from orchestrator.spelling import close_to

# -- The small type language of states defined as data: `str`, `list[str]`, `Literal["a", "b"] | None` --------


_SIMPLE: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "any": Any,
    "None": None,
    "null": None,
}
_GENERIC: dict[str, tuple[Any, int]] = {"list": (list, 1), "set": (set, 1), "dict": (dict, 2)}
TYPE_NAMES = (*_SIMPLE, *_GENERIC, "Literal")
"""Names that make up types."""
_LONGEST = 1_000
"""The most characters of a type. The limit also bounds its nesting: each level takes five characters."""
_TOKEN = re.compile(r"""\s*(?:([A-Za-z_]\w*)|([\[\],|])|("[^"\\\n]*"|'[^'\\\n]*'|-?\d{1,18}(?![\w.])))""")
_CONSTANTS: Mapping[str, object] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}

_ELSEWHERE = {
    "string": "str", "text": "str", "integer": "int", "number": "float", "double": "float", "boolean": "bool",
    "array": "list", "tuple": "list", "object": "dict", "map": "dict", "mapping": "dict", "optional": "T | None",
    "union": "T | T", "enum": "Literal['a', 'b']", "date": "str", "datetime": "str", "nonetype": "None",
}  # fmt: skip
"""Names of types in other languages."""

Named = Callable[[str], Any]
"""Returns the type of a name, or None for an unknown name."""


def parse_type(text: str, named: Named | None = None, known: Callable[[], Iterable[str]] = tuple) -> Any:
    """Return the type that a text names.

    Args:
        text: the text.
        named: returns the types of further names.
        known: returns these further names, for messages.

    Raises:
        GraphError: the text names no type; the language is `str int float bool any None list[T] set[T] dict[str, T]
            Literal["a", 1] T | T` and the further names.
    """
    if len(text) > _LONGEST:
        raise GraphError(f"{text[:40]!r}... has {len(text):,} characters, and the limit is {_LONGEST:,}: use a class")
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
        raise GraphError(f"{self.text!r} names no type (at {word}): put strings in quotes, as in Literal['a', 'b']")

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


# -- The types in the fields of a state defined as data: plain ones, messages, and the state's own models ------


SHIPPED_TYPES: Mapping[str, Literal["messages", "nodes"]] = {
    "Message": "messages",
    "Reply": "messages",
    "ToolCall": "messages",
    "CodeBlock": "nodes",
    "ContextUsage": "nodes",
    "PlannedCall": "nodes",
    "Step": "nodes",
    "ToolResult": "nodes",
}
"""Types of this library, with the package that defines them."""
_PLAIN = (str, int, float, bool, type(None))


def shipped_name(annotation: object) -> str | None:
    """Return the name by which a state defined as data refers to a type of this library; None if it has none."""
    return next((name for name, home in SHIPPED_TYPES.items() if above(home).STATE_TYPES[name] is annotation), None)


@contextmanager
def model_faults(what: str) -> Iterator[None]:
    """Raise pydantic's errors in the block as a `GraphError`."""
    try:
        yield
    except (NameError, TypeError, ValueError, PydanticUserError) as error:
        raise GraphError(f"{what}: {str(error).splitlines()[0]}") from None


class InlineTypes:
    """The types of one state.

    Args:
        types: name of a model -> its fields, in the form of a state defined as data, without reducers.
    """

    def __init__(self, types: object) -> None:
        self._given = types
        self._models: dict[str, Any] = {}
        self._open: list[str] = []

    def check(self) -> None:
        """Make all models.

        Raises:
            GraphError: a model is not written in the required form.
        """
        if not isinstance(self._given, Mapping):
            raise GraphError("'types' of a state must be a mapping from name to fields")
        for name in self._given:
            if not isinstance(name, str) or not name.isidentifier():
                raise GraphError(f"'types' names a model {name!r}: use a name of letters, digits and _")
            self._named(name)

    def parse(self, text: str) -> Any:
        """Return the type that a text names.

        Raises:
            GraphError: the text names no type.
        """
        return parse_type(text, self._named, self._known)

    def default(self, name: str, kind: Any, spec: Mapping[str, object]) -> dict[str, Any]:
        """Return the arguments of `Field` for the default of a field; empty for a required field.

        Raises:
            GraphError: the default does not fit the field's type.
        """
        if "default" not in spec:
            return {}
        given = spec["default"]
        adapter = TypeAdapter(kind)
        try:
            value = adapter.validate_python(given)
        except ValidationError as error:
            why = explain_data(error)
            raise GraphError(f"field {name!r} has a default that is not {spec['type']}: {why}") from None
        return {"default": value} if isinstance(value, _PLAIN) else {"default_factory": partial(_made, adapter, given)}

    def _known(self) -> Iterator[str]:
        yield from map(str, self._given if isinstance(self._given, Mapping) else ())
        yield from SHIPPED_TYPES

    def _named(self, name: str) -> Any:
        if name in self._models:
            return self._models[name]
        given = self._given if isinstance(self._given, Mapping) else {}
        if name not in given:
            return above(SHIPPED_TYPES[name]).STATE_TYPES[name] if name in SHIPPED_TYPES else None
        if name in self._open:
            raise GraphError(f"type {name!r} contains itself, through {' -> '.join([*self._open, name])}")
        self._open.append(name)
        try:
            self._models[name] = self._model(name, given[name])
        finally:
            self._open.pop()
        return self._models[name]

    def _model(self, name: str, fields: object) -> Any:
        if not isinstance(fields, Mapping):
            raise GraphError(f"type {name!r} must be a mapping from field to type")
        definitions: dict[str, Any] = {}
        for field, spec in fields.items():
            where = f"{name}.{field}"
            if not isinstance(field, str) or not field.isidentifier() or field.startswith("_"):
                raise GraphError(f"field {where!r}: use a name of letters, digits and _ that begins with a letter")
            if isinstance(spec, str):
                definitions[str(field)] = (self.parse(spec), ...)
                continue
            if not isinstance(spec, Mapping) or not isinstance(spec.get("type"), str):
                raise GraphError(f"field {where!r} needs a type, such as 'str' or {{type: 'list[str]'}}")
            unknown = sorted(set(map(str, spec)) - {"type", "default", "description"})
            if unknown:
                raise GraphError(f"field {where!r} has no {unknown[0]!r}: it has type, default and description")
            kind = self.parse(spec["type"])
            words = spec.get("description")
            described = words if isinstance(words, str) else None
            definitions[str(field)] = (kind, PydanticField(description=described, **self.default(where, kind, spec)))
        with model_faults(f"type {name!r}"):
            return create_model(name, __module__=__name__, **definitions)


def _made(adapter: TypeAdapter[Any], given: object) -> Any:
    return adapter.validate_python(given)
