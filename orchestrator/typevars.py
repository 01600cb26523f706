"""Type variables that public classes share.

Each has a default, so that bare `Graph`, `Run` and `Context` mean `Graph[Any]`, `Run[Any]` and `Context[Any]`, also
under `mypy --strict` and pyright's strict mode.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from typing_extensions import TypeVar

__all__ = ["DepsT", "StateT"]

StateT = TypeVar("StateT", bound=BaseModel, covariant=True, default=Any)
"""A graph's state class: known where a graph is made in code, `Any` where it is loaded from data."""

DepsT = TypeVar("DepsT", covariant=True, default=Any)
"""The class of `ctx.deps`."""
