"""Messages for faults in data that people write: the fault, its place, and the name that was probably meant."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from msgspec import Struct
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from orchestrator.errors import GraphError, GraphUnknown, Problem, UntrustedCode
from orchestrator.graph.codec import IN_PYTHON, explain_fault
from orchestrator.spelling import close_to, unknown_field

# -- Faults in the values of a graph file, each with a suggested fix -------------------------------------------


BOOLEANS = "YAML reads yes, no, on and off as true and false: quote it"


def explain_data(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """Return all faults in values from a file as one line, each with a fix.

    Args:
        error: the validation error.
        model: the model that the values are for.
    """
    return "; ".join(explain_detail(fault, model) for fault in error.errors(include_url=False, include_context=False))


def explain_detail(fault: ErrorDetails, model: type[BaseModel] | None = None) -> str:
    """Return one fault as a line; see `explain_data`."""
    if fault["type"] == "extra_forbidden" and model is not None:
        *around, name = (str(part) for part in fault["loc"])
        for part in around:
            model = None if model is None else _inner(model, part)
        if model is not None:
            return f"{'.'.join(around)} {unknown_field(name, names_of(model))}".strip()
    return f"{explain_fault(fault)}{_fix(fault)}"


def names_of(model: type[BaseModel]) -> list[str]:
    """Return the names of a model's fields as they appear in data."""
    return [info.alias or name for name, info in model.model_fields.items()]


def booleans_for_numbers(model: type[BaseModel], data: Mapping[str, object]) -> Iterator[str]:
    """Yield a message for each value `true` or `false` where a number is needed; pydantic would accept it as 1 or 0.

    Args:
        model: the model that the data is for.
        data: the values, by name or alias of the field.
    """
    for field in _fields(model) if model.__pydantic_complete__ else _fields.__wrapped__(model):
        key = field.alias if field.alias is not None and field.alias in data else field.name
        value = data.get(key)
        if field.number and isinstance(value, bool):
            yield f"{key}: a number is needed, got {value} (bool); YAML reads yes, no, on and off as true and false"
        if field.inner is not None and isinstance(value, Mapping):
            yield from (f"{key}.{fault}" for fault in booleans_for_numbers(field.inner, value))


class _Field(Struct, frozen=True):
    """A field that accepts numbers but no booleans, or instances of a model."""

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
    """Return the model that a field's type names; None if it names none."""
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
    """Yield the types that a value may have, without the metadata of `Annotated`."""
    if hasattr(annotation, "__metadata__"):
        yield from _members(annotation.__origin__)
    elif get_origin(annotation) in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from _members(one)
    else:
        yield annotation


# -- Collection of faults, so that one error reports all of them with their places -----------------------------


Place = tuple[str, ...]
"""The keys that lead to a part of the data."""


class Fault(Struct, frozen=True):
    """A fault and its place."""

    place: Place
    error: GraphError


class GraphFaults(GraphError):
    """Raised when several parts of a graph's data are wrong; `faults` lists them."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        lines = "\n".join(f"  - {fault.error}" for fault in faults)
        super().__init__(f"{len(faults)} parts are wrong:\n{lines}")


class UnknownParts(GraphFaults, GraphUnknown):
    """Raised when several parts of a graph's data are wrong, all because code or kinds are missing."""


class PlacedFault(GraphError):
    """Raised when one part of a graph's data is wrong."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(str(fault.error))


class PlacedUnknown(PlacedFault, GraphUnknown):
    """Raised when one part of a graph's data is wrong because code or a kind is missing."""


def place_of(problem: Problem) -> Place:
    """Return the place of a problem in a graph's data; empty if it concerns no single part."""
    if problem.edges:
        return ("edges", problem.edges[0])
    if problem.nodes:
        return ("nodes", problem.nodes[0])
    return next((place for begin, place in _BEGINNINGS.items() if problem.message.startswith(begin)), ())


_BEGINNINGS: Mapping[str, Place] = {
    "graph name": ("name",),
    "the graph has no nodes": ("nodes",),
    "input of the graph": ("input",),
    "output of the graph": ("output",),
    "limits.visits": ("limits", "visits"),
    "nothing follows START": ("edges",),
}
"""Beginnings of messages about parts other than nodes and edges, each with the place of the part."""


class Faults:
    """Collects the faults of parts, and raises them together."""

    def __init__(self) -> None:
        self.found: list[Fault] = []

    @contextmanager
    def at(self, *place: str) -> Iterator[None]:
        """Collect the faults raised in the `with` block. Errors about untrusted code are not collected.

        Args:
            place: the keys that lead to the part that the block reads.
        """
        try:
            yield
        except UntrustedCode:
            raise
        except GraphFaults as error:
            self.found += [Fault((*place, *fault.place), fault.error) for fault in error.faults]
        except PlacedFault as error:
            self.found.append(Fault((*place, *error.fault.place), error.fault.error))
        except GraphError as error:
            self.found.append(Fault(place, error))

    def raise_any(self) -> None:
        """Raise the collected faults as one `GraphError`, if there are any."""
        missing = all(isinstance(fault.error, GraphUnknown) for fault in self.found)
        if len(self.found) == 1:
            raise (PlacedUnknown if missing else PlacedFault)(self.found[0])
        if self.found:
            raise (UnknownParts if missing else GraphFaults)(tuple(self.found))


# -- Suggestions for unknown fields in calls of this library's models ------------------------------------------


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class Spelled(ModelMetaclass):
    """Metaclass of the models that users construct. Validation of stored data bypasses it."""

    if not TYPE_CHECKING:  # type checkers use the fields

        def __call__(self, *args: object, **fields: object) -> BaseModel:
            names = _names(self)
            if args or (names and not fields.keys() <= names.keys()):
                _check_call(self, args, fields, names)
            try:
                return super().__call__(*args, **fields)
            except ValidationError as error:
                raise _for_python(error, self) from None


@lru_cache(maxsize=1000)
def _names(cls: type[BaseModel]) -> dict[str, None]:
    """Return the names that a call may pass, the class's own fields first; empty if it may pass any name."""
    init: Any = cls.__init__
    if init.__module__.partition(".")[0] not in ("pydantic", __name__.partition(".")[0]):
        return {}  # the user defined `__init__`
    inherited = {name for base in cls.__mro__[1:] for name in getattr(base, "model_fields", ())}
    return dict.fromkeys(sorted((*cls.__signature__.parameters, *cls.model_fields), key=inherited.__contains__))


def _check_call(cls: type[BaseModel], args: Iterable[object], fields: Iterable[str], names: Mapping[str, None]) -> None:
    name = cls.__name__
    if args and all(one.kind is one.KEYWORD_ONLY for one in cls.__signature__.parameters.values()):
        first = next(one for one in names if one != "type")
        raise TypeError(f"{name} takes its fields by name: write {name}({first}=...)")
    faults = [_fault(name, one, names) for one in fields if one not in names] if names else []
    if faults:
        raise ValidationError.from_exception_data(name, faults, hide_input=True)


def _for_python(error: ValidationError, cls: type[BaseModel]) -> ValidationError:
    """Return the error with fixes, and without the addresses of pydantic's pages."""
    if cls.model_config.get("hide_input_in_errors"):
        return error
    details: list[InitErrorDetails] = []
    for fault in error.errors(include_context=False):
        said = fault["msg"] + (_fix_in_python(fault, cls) if "url" in fault else "")
        kind: Any = fault["type"]  # pydantic requires a literal
        words = PydanticCustomError(kind, "{said}", {"said": said})
        details.append({"type": words, "loc": fault["loc"], "input": fault["input"]})
    return ValidationError.from_exception_data(error.title, details)


def _fix_in_python(fault: ErrorDetails, cls: type[BaseModel]) -> str:
    """Return the fix of a fault in a call of a model, if it is known."""
    kind, got = fault["type"], fault["input"]
    inner = _inner(cls, str(fault["loc"][0])) if len(fault["loc"]) == 1 else None
    if kind == "model_type" and inner is not None:
        given = got if isinstance(got, int) else "..."
        return f"{IN_PYTHON}{inner.__name__}({next(iter(inner.model_fields))}={given})"
    if kind in ("tuple_type", "list_type", "frozen_set_type", "set_type"):
        return f"{IN_PYTHON}a list: [{repr(got) if isinstance(got, str | int) else '...'}]"
    return f"{IN_PYTHON}a mapping: {{'name': value}}" if kind == "dict_type" else ""


def _fault(model: str, name: str, names: Iterable[str]) -> InitErrorDetails:
    words = PydanticCustomError("extra_forbidden", "{fault}", {"fault": f"{model} {unknown_field(name, names)}"})
    return {"type": words, "loc": (name,), "input": None}


# -- Words shared by messages ----------------------------------------------------------------------------------


def listed_names(names: Iterable[str]) -> str:
    """Return names separated by commas, at most ten of them."""
    names = list(names)
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def suggest_name(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the most likely correction of an unknown name."""
    close = close_to(name, known)
    return f"did you mean {close!r}?" if close else otherwise
