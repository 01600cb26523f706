"""What is wrong with values that a graph file gives, each with a suggested fix."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.graph.codec import explain_fault
from orchestrator.graph.names_meant import close_to

BOOLEANS = "YAML reads yes, no, on and off as true and false: quote it"


def explain_data(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """All faults of values from a file in one line, each with a fix.

    Args:
        error: the error.
        model: the model that the values are for.
    """
    return "; ".join(explain_detail(fault, model) for fault in error.errors(include_url=False, include_context=False))


def explain_detail(fault: ErrorDetails, model: type[BaseModel] | None = None) -> str:
    """One of these faults, see `explain_data`."""
    if fault["type"] == "extra_forbidden" and model is not None:
        *around, name = (str(part) for part in fault["loc"])
        for part in around:
            model = None if model is None else _inner(model, part)
        if model is not None:
            return f"{'.'.join(around)} {unknown_field(name, names_of(model))}".strip()
    return f"{explain_fault(fault)}{_fix(fault)}"


def names_of(model: type[BaseModel]) -> list[str]:
    """The names of a model's fields in data."""
    return [info.alias or name for name, info in model.model_fields.items()]


def unknown_field(name: object, fields: Iterable[str]) -> str:
    """The message for a field that there is not.

    Args:
        name: the field.
        fields: the fields that there are.
    """
    fields = list(fields)
    close = close_to(str(name), fields, cutoff=0.65)
    return f"has no {name!r}: " + (f"did you mean {close!r}?" if close else f"it has {', '.join(fields)}")


def booleans_for_numbers(model: type[BaseModel], data: Mapping[str, object]) -> Iterator[str]:
    """A message for each value `true` or `false` where a number belongs; pydantic would take it as 1 or 0.

    Args:
        model: the model that the data is for.
        data: the values, by field or alias.
    """
    for field in _fields(model) if model.__pydantic_complete__ else _fields.__wrapped__(model):
        key = field.alias if field.alias is not None and field.alias in data else field.name
        value = data.get(key)
        if field.number and isinstance(value, bool):
            yield f"{key}: a number is needed, got {value} (bool); YAML reads yes, no, on and off as true and false"
        if field.inner is not None and isinstance(value, Mapping):
            yield from (f"{key}.{fault}" for fault in booleans_for_numbers(field.inner, value))


@dataclass(frozen=True, slots=True)
class _Field:
    """A field that takes numbers and no booleans, or values of a model."""

    name: str
    alias: str | None
    number: bool
    inner: type[BaseModel] | None


@lru_cache(maxsize=512)  # graphs have many nodes of few kinds
def _fields(model: type[BaseModel]) -> tuple[_Field, ...]:
    found = []
    for name, info in model.model_fields.items():
        members = [*_members(info.annotation)]
        number = bool not in members and not {int, float}.isdisjoint(members)
        inner = _inner(model, name)
        if number or inner is not None:
            found.append(_Field(name, info.alias, number, inner))
    return tuple(found)


def _inner(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """The model that the value of a field is of, if it is of one."""
    info = model.model_fields.get(name)
    members = () if info is None else _members(info.annotation)
    return next((one for one in members if isinstance(one, type) and issubclass(one, BaseModel)), None)


def _fix(fault: ErrorDetails) -> str:
    kind, got = fault["type"], fault["input"]
    if isinstance(got, bool):
        return f"; {BOOLEANS}"
    if kind == "string_type":
        if isinstance(got, int | float | date):
            return "; quote it"
        return "; quote a text that begins with { or [" if isinstance(got, Mapping | list) else "; write a text"
    if kind in ("tuple_type", "list_type", "frozen_set_type", "set_type") and isinstance(got, str):
        return f"; write a list, [{got:.40}]"
    if kind in ("dict_type", "mapping_type", "model_type", "model_attributes_type"):
        return "; write a mapping, {name: value}"
    return ""


def _members(annotation: Any) -> Iterator[Any]:
    """The types that a value may be of, without what `Annotated` adds."""
    if hasattr(annotation, "__metadata__"):
        yield from _members(annotation.__origin__)
    elif get_origin(annotation) in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from _members(one)
    else:
        yield annotation
