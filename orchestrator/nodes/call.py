"""Call a function that does not depend on graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from orchestrator.context import Context
from orchestrator.errors import GraphUnknown, InvalidUpdate
from orchestrator.graph.model import ITEM, Node, Port
from orchestrator.graph.refs import resolve
from orchestrator.tools.tool import run_function


class Call(Node, kind="call"):
    """Call `ref`, a function named as `module:attr`, with state fields as arguments.

    The function is imported when it is first called, or when a graph file with it is loaded. It may be async. A sync
    function runs in a thread, unless `effect="pure"` declares that it is fast and may run inline.

    Raises:
        GraphUnknown: the function does not exist.
        InvalidUpdate: `result` names no field, and the function did not return an update.
    """

    look = "code"

    calls_code: ClassVar[str | None] = "ref"

    ref: Annotated[str, Field(examples=["module:function"])]
    """`module:attr`."""
    args: Mapping[str, str] = {}
    """Parameter -> the state field that fills it, or `ITEM`."""
    result: Annotated[str | None, Port()] = None
    """Field that gets the return value; None if the function returns an update of the state, or None."""

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return f"calls {self.ref.rpartition(':')[2]}"

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def updates(self) -> frozenset[str] | None:
        return frozenset((self.result,)) if self.writes is None and self.result is not None else self.writes

    @field_validator("ref")
    @classmethod
    def _check_ref(cls, ref: str) -> str:
        module, colon, path = ref.partition(":")
        if not colon or not all(part.isidentifier() for part in [*module.split("."), *path.split(".")]):
            raise ValueError(f"{ref!r} is not a reference: write 'module:attribute'")
        return ref

    def ports(self) -> dict[str, str]:
        return {port: field for port, field in super().ports().items() if field != ITEM}

    @classmethod
    def port_types(cls) -> dict[str, Port]:
        return {"args": Port(), **super().port_types()}

    async def run(self, state: object, ctx: Context) -> object:
        function = self._function()
        arguments = {
            parameter: ctx.item if field == ITEM else getattr(state, field) for parameter, field in self.args.items()
        }
        call = partial(function, **arguments)
        found = await run_function(call, inline=self.effect == "pure")
        if self.result is not None:
            return {self.result: found}
        if found is not None and not isinstance(found, Mapping):
            raise InvalidUpdate(
                f"{self.ref} returned {type(found).__name__}, which is not an update of the state: "
                "name the field for it, result=, or return a mapping"
            )
        return found

    def _function(self) -> Callable[..., object]:
        function = resolve(self.ref)
        if not callable(function):
            raise GraphUnknown(f"{self.ref!r} is {function!r}, which cannot be called; name a function")
        return function
