"""The result of a node: an outcome, with an update of the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeAlias, get_origin, overload

from typing_extensions import TypeVar

from orchestrator.graph.topology import DONE, FAILED, RESERVED, TOO_LONG

__all__ = ["DONE", "FAILED", "RESERVED", "TOO_LONG", "Failing", "Guarded", "NodeResult", "Outcome", "Update"]

Update: TypeAlias = Mapping[str, object] | None
"""New values of state fields, by name. None changes nothing. As a node's result it means the outcome `done`."""

L = TypeVar("L", bound=str, covariant=True)
UpdateT = TypeVar("UpdateT", bound=Mapping[str, object], covariant=True, default=Mapping[str, object])


class Outcome(Generic[L, UpdateT]):
    """The outcome of a node's step, with its update: `Outcome("good", score=0.9)`.

    As a return annotation, `Outcome[Literal["good", "retry"]]` declares the node's outcomes. A second parameter, a
    `TypedDict`, lets type checkers find misspelt fields and wrong values: `Outcome[Literal["good"], EssayUpdate]`. The
    update is then an instance of it: `Outcome("good", EssayUpdate(score=0.9))`.

    Args:
        name: one of the outcomes that the node declares.
        update: new values of state fields; as a mapping it may contain names that are no Python identifiers.
        fields: new values as keywords; they take precedence over `update`.
    """

    __slots__ = ("name", "update")

    name: L
    update: UpdateT

    def __class_getitem__(cls, parameters: Any) -> Any:
        """Keep the outcomes in the order in which they are written.

        `Literal["a", "b"]` equals `Literal["b", "a"]`, and `typing` caches types by equality. Without the text beside
        it the order, and with it the graph's digest, would be that of the annotation evaluated first.
        """
        names, *update = parameters if isinstance(parameters, tuple) else (parameters,)
        if get_origin(names) is not None:
            names = Annotated[names, repr(names)]
        above: Any = super()  # stubs leave out that `Generic` has the method
        return above.__class_getitem__((names, *update))

    @overload
    def __init__(self, name: L, update: None = None, /) -> None: ...
    @overload
    def __init__(self, name: L, update: UpdateT, /) -> None: ...
    @overload
    def __init__(
        self: Outcome[L, Mapping[str, object]],  # pyright: ignore[reportInvalidTypeVarUse]  another variable would
        name: L,  # not infer the literals from the context of a call
        update: Update = None,
        /,
        **fields: object,
    ) -> None: ...
    def __init__(self, name: str, update: Update = None, /, **fields: object) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "update", {**update, **fields} if update else fields)

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError(f"an Outcome is frozen: make a new one instead of setting {attribute!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Outcome):
            return NotImplemented
        same: bool = self.name == other.name and self.update == other.update
        return same

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.update)))

    def __repr__(self) -> str:
        fields = "".join(f", {name}={value!r}" for name, value in self.update.items())
        return f"Outcome({self.name!r}{fields})"


NodeResult: TypeAlias = Outcome[str] | Mapping[str, object] | None
"""The result of a node: an outcome with its update, or an update alone, which means the outcome `done`."""


class Guarded(Outcome[L]):
    """An outcome decided by conditions, with the result of each.

    Args:
        name: one of the node's outcomes.
        update: new values of state fields.
        guards: outcome -> whether its condition is true, or the reason why that is unknown.
    """

    __slots__ = ("guards",)

    guards: Mapping[str, bool | str]

    def __init__(self, name: L, update: Update = None, /, *, guards: Mapping[str, bool | str]) -> None:
        super().__init__(name, update)
        object.__setattr__(self, "guards", guards)


class Failing(Outcome[L]):
    """An outcome that represents a failure, and is taken only if an edge names it.

    Args:
        name: one of the node's outcomes `if_named`.
        update: the update that goes with it, and with `otherwise`.
        error: raised if no edge names the outcome, and before that while the node's `retry` has attempts left for it;
            otherwise it becomes `ctx.error` of the next node.
        otherwise: the outcome to take if no edge names this one; None to raise `error`.
    """

    __slots__ = ("error", "otherwise")

    error: Exception
    otherwise: L | None

    def __init__(self, name: L, update: Update = None, /, *, error: Exception, otherwise: L | None = None) -> None:
        super().__init__(name, update)
        object.__setattr__(self, "error", error)
        object.__setattr__(self, "otherwise", otherwise)
