"""The types that the fields of a state written as data name: plain ones, messages, and models of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from pydantic import Field as PydanticField
from pydantic import TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError

from orchestrator.errors import GraphError
from orchestrator.graph.data_faults import explain_data
from orchestrator.graph.typetext import parse_type
from orchestrator.upward import above

SHIPPED_TYPES: Mapping[str, Literal["messages", "nodes"]] = {
    "Message": "messages", "Reply": "messages", "ToolCall": "messages",
    "PlannedCall": "nodes", "Step": "nodes", "ToolResult": "nodes",
}  # fmt: skip
"""Types of this library, with the package that has them."""
_PLAIN = (str, int, float, bool, type(None))


def shipped_name(annotation: object) -> str | None:
    """The name that a type of this library has in a state that is written as data; None: it has none."""
    return next((name for name, home in SHIPPED_TYPES.items() if above(home).STATE_TYPES[name] is annotation), None)


@contextmanager
def model_faults(what: str) -> Iterator[None]:
    """What pydantic says against a model, as an error of the graph."""
    try:
        yield
    except (NameError, TypeError, ValueError, PydanticUserError) as error:
        raise GraphError(f"{what}: {str(error).splitlines()[0]}") from None


class InlineTypes:
    """The types of one state.

    Args:
        types: name of a model -> its fields, as a state written as data has them, without reducers.
    """

    def __init__(self, types: object) -> None:
        self._given = types
        self._models: dict[str, Any] = {}
        self._open: list[str] = []

    def check(self) -> None:
        """Make all models.

        Raises:
            GraphError: one is not written as it should be.
        """
        if not isinstance(self._given, Mapping):
            raise GraphError("'types' of a state is a mapping from name to fields")
        for name in self._given:
            if not isinstance(name, str) or not name.isidentifier():
                raise GraphError(f"'types' names a model {name!r}: use a name of letters, digits and _")
            self._named(name)

    def parse(self, text: str) -> Any:
        """The type that a text names.

        Raises:
            GraphError: it names none.
        """
        return parse_type(text, self._named, self._known)

    def default(self, name: str, kind: Any, spec: Mapping[str, object]) -> dict[str, Any]:
        """What `Field` takes for the default of a field; empty for a field that must be given.

        Raises:
            GraphError: the default is not of the field's type.
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
            raise GraphError(f"type {name!r} is a mapping from field to type")
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
