"""What a node returns: an outcome and the update of the state that comes with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeAlias, TypeVar

from orchestrator.graph.topology import DONE, RESERVED

__all__ = ["DONE", "RESERVED", "Outcome", "Update"]

Update: TypeAlias = Mapping[str, object] | None
"""New values of state fields, by name. None changes nothing. As a node's result it means outcome `done`."""

L = TypeVar("L", bound=str, covariant=True)


class Outcome(Generic[L]):
    """The outcome that a node's step took, with its update: `Outcome("good", score=0.9)`.

    As a return annotation, `Outcome[Literal["good", "retry"]]` declares the node's outcomes.

    Args:
        name: one of the outcomes that the node declares.
        update: new values of state fields; a mapping for names that are no identifiers of Python's.
        fields: the same as keywords; they win over `update`.
    """

    __slots__ = ("name", "update")

    name: L
    update: Mapping[str, object]

    def __init__(self, name: L, update: Update = None, /, **fields: object) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "update", {**update, **fields} if update else fields)

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError(f"an Outcome is frozen: make a new one instead of setting {attribute!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Outcome):
            return NotImplemented
        return self.name == other.name and self.update == other.update

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.update)))

    def __repr__(self) -> str:
        fields = "".join(f", {name}={value!r}" for name, value in self.update.items())
        return f"Outcome({self.name!r}{fields})"
