"""Wait for an event from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, field_validator

from orchestrator.context import Context
from orchestrator.errors import InvalidUpdate, InvalidValue, SecretInState
from orchestrator.graph.codec import as_json
from orchestrator.graph.model import ITEM, Effect, Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.graph.state import StateSchema
from orchestrator.values import check_name


class Wait(Node, kind="wait", outcomes=("received",)):
    """Wait for an event from outside, across restarts if necessary, and write its data to a field.

    `Executor.send(run_id, event, data)` and `orchestrator send` send events. The node takes the oldest event of its
    name that matches and that no step before it took, whether it was sent before the run arrived here or arrives later.
    Concurrent branches may each take the same event.

    Without an event within `deadline` seconds the node fails with `StepTimeout`: an edge for the reserved outcome
    `timeout` handles that, else one for `error`, else the graph fails.

    Raises:
        StepTimeout: no such event arrived in time.
    """

    look = "event"

    fills = ("into",)

    timed_by = "deadline"
    waits = True

    event: Annotated[str, Field(examples=["received"])]
    """Name of the event."""
    match: Annotated[Mapping[str, str], Port()] = {}
    """Key of the event's data -> field of the state, or `ITEM`, the map item that the node runs for: an event is taken
    only if the values are equal.
    """
    into: Annotated[str | None, Port()] = None
    """Field that gets the event's data; None for no field."""
    deadline: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Seconds to wait; None for no limit."""
    effect: Effect = "pure"

    @field_validator("event")
    @classmethod
    def _check_event(cls, event: str) -> str:
        try:
            return check_name(event)
        except InvalidValue as error:
            raise ValueError(str(error)) from None

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return f"waits for {self.event}"

    def _receives(self, name: str) -> tuple[str, ...]:
        return (self.event,)

    def ports(self) -> dict[str, str]:
        return {port: field for port, field in super().ports().items() if field != ITEM}

    async def run(self, state: object, ctx: Context) -> Outcome[Any]:
        match = {key: _plain(ctx.item if name == ITEM else getattr(state, name)) for key, name in self.match.items()}
        data = await ctx.receive(self.event, match=match, deadline=self.deadline)
        return Outcome("received", {} if self.into is None else {self.into: data})

    def misfit(self, data: object, schema: StateSchema) -> str:
        """Return why the data of an event does not fit the field that gets it; empty if it does."""
        try:
            schema.encode_update({} if self.into is None else {self.into: data})
        except (InvalidUpdate, SecretInState) as error:
            return str(error)
        return ""


def _plain(value: object) -> object:
    """Return a value of the state as plain JSON, as it is compared with the event's data."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return as_json(value, "a field that an event must match")
