"""Suggests the intended field when code passes an unknown one to a model of this library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from orchestrator.graph.data_faults import unknown_field

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class Spelled(ModelMetaclass):
    """Metaclass of the models that users construct. Validation of stored data does not go through it."""

    if not TYPE_CHECKING:  # type checkers go by the fields

        def __call__(self, *args: object, **fields: object) -> BaseModel:
            names = _names(self)
            if args or (names and not fields.keys() <= names.keys()):
                _check_call(self, args, fields, names)
            return super().__call__(*args, **fields)


@lru_cache(maxsize=1000)
def _names(cls: type[BaseModel]) -> dict[str, None]:
    """Names that a call may pass, the class's own fields first; empty: any name."""
    init: Any = cls.__init__
    if init.__module__.partition(".")[0] not in ("pydantic", __name__.partition(".")[0]):
        return {}  # the user wrote an `__init__`
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


def _fault(model: str, name: str, names: Iterable[str]) -> InitErrorDetails:
    words = PydanticCustomError("extra_forbidden", "{fault}", {"fault": f"{model} {unknown_field(name, names)}"})
    return {"type": words, "loc": (name,), "input": None}
