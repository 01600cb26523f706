"""Wait for a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import Field, model_validator

from orchestrator.context import Context
from orchestrator.errors import InvalidValue
from orchestrator.graph.codec import shown
from orchestrator.graph.model import Effect, Node, Port


class Sleep(Node, kind="sleep"):
    """Wait for some seconds, or until the time in a field. The run waits across restarts; no process has to.

    Give exactly one of `seconds` and `until`. A time in the past causes no wait.

    Raises:
        InvalidValue: the field of `until` contains no time.
    """

    look = "time"

    fills = ()
    waits = True

    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(default=None, examples=[60])
    """Seconds to wait."""
    until: Annotated[str | None, Port()] = None
    """Field with the time to wait for: Unix seconds, or a date and time, as ISO 8601 text or `datetime`; UTC if it has
    no time zone.
    """
    effect: Effect = "pure"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.seconds is None) == (self.until is None):
            raise ValueError("give either seconds= or until=, the name of a field with a time")
        return self

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return f"sleeps until {self.until}" if self.seconds is None else f"sleeps {duration(self.seconds)}"

    async def run(self, state: object, ctx: Context) -> None:
        if self.until is None:
            await ctx.sleep(self.seconds)
        else:
            await ctx.sleep(until=_unix(getattr(state, self.until), self.until))


def duration(seconds: float) -> str:
    """Return some seconds in the largest suitable unit, such as `90 s`, `2 min`, `1.5 h`."""
    size, unit = next((one for one in ((86400, "d"), (3600, "h"), (60, "min")) if seconds >= 2 * one[0]), (1, "s"))
    return f"{seconds / size:.4g} {unit}"


def _unix(value: object, field: str) -> float:
    """Return the time in a field, as Unix seconds."""
    where = f"field {field!r}"
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise InvalidValue(
        f"{where} is {shown(value)}, which is not a time: give Unix seconds, or a date and time such as "
        f"2030-01-31T09:00:00+01:00",
        where=where,
    )
