"""Type variables that public classes share.

Each has a default, so that bare `Graph`, `Run` and `Context` mean `Graph[Any]`, `Run[Any]` and `Context[Any]`, also
under `mypy --strict` and pyright's strict mode.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel
from typing_extensions import TypeVar

__all__ = ["ContextT", "DepsT", "Erased", "StateT"]

StateT = TypeVar("StateT", bound=BaseModel, covariant=True, default=Any)
"""A graph's state class: known for a graph made in code, `Any` for one loaded from data."""

DepsT = TypeVar("DepsT", covariant=True, default=Any)
"""The class of `ctx.deps`."""

ContextT = TypeVar("ContextT", covariant=True, default=Any)
"""The class of `ctx.context`."""


class Erased:
    """Mixin for pydantic models whose type parameters are only for type checkers: `Graph[State]` is `Graph`.

    Pydantic would make a separate class, with its own name and schema, for each parameter.
    """

    def __class_getitem__(cls, parameters: object) -> type[Self]:
        return cls
