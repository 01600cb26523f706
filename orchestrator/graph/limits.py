"""Limits of runs, their usage, and retries, as data.

The kernel enforces the limits (`kernel.admission`), `executor.timers` enforces `seconds`, and `executor.failures`
decides on retries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator
from pydantic.json_schema import SkipJsonSchema

from orchestrator.graph.faults import Spelled
from orchestrator.graph.names import plain_name


def _is_zero(value: object) -> bool:
    return value == 0


class Usage(BaseModel, metaclass=Spelled):
    """The usage of a run or a call. `seconds` is time alive, `cost` is in the currency of the price table."""

    model_config = ConfigDict(frozen=True)

    steps: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    # The next three are not in the JSON Schema, as it is part of the structure of graphs whose state has a `Reply`.
    cached_tokens: SkipJsonSchema[int] = Field(default=0, exclude_if=_is_zero)
    """Input tokens that were read from the provider's cache."""
    written_tokens: SkipJsonSchema[int] = Field(default=0, exclude_if=_is_zero)
    """Input tokens that were written to the provider's cache."""
    cache_savings: SkipJsonSchema[float] = Field(default=0.0, exclude_if=_is_zero)
    """What the provider's cache saved, in the currency of `cost`; 0 if the model's price does not name one for it."""
    cost: float = 0.0
    seconds: float = 0.0
    estimated: bool = False
    """True if some token counts are estimates from the length of texts, because a server reported none."""

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTED}
        return Usage(**sums, estimated=self.estimated or other.estimated)

    def __sub__(self, other: Usage) -> Usage:
        """Subtract another usage."""
        rest = {name: getattr(self, name) - getattr(other, name) for name in _COUNTED}
        return Usage(**rest, estimated=self.estimated)


_COUNTED = tuple(name for name in Usage.model_fields if name != "estimated")
NO_USAGE = Usage()
"""The usage of a run that has spent nothing."""


class Limits(BaseModel, metaclass=Spelled):
    """Limits of a run, shared by all branches and nested graphs. None: no limit.

    Graphs called as tools share `calls`, `tokens`, `cost` and `seconds` with the runs that call them; steps and visits
    count for each run alone. While `tokens` or `cost` is limited, a model call reserves its expected usage (see
    `Reserve`), so that concurrent calls do not exceed the limit together.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: PositiveInt | None = 1000
    """Activations of nodes."""
    seconds: PositiveFloat | None = None
    """Seconds that the run is alive."""
    tokens: PositiveInt | None = None
    """Input and output tokens of all model calls together."""
    cost: PositiveFloat | None = None
    """Cost of all model calls, in the currency of the price table."""
    calls: PositiveInt | None = None
    """Model and tool calls."""
    visits: dict[str, PositiveInt] = Field(default_factory=dict)
    """Name of a node -> its activations. One that takes `too_long`, as its request has to be made again, is none."""
    concurrency: PositiveInt | None = None
    """Steps that run at the same time."""

    @field_validator("visits")
    @classmethod
    def _plain_names(cls, visits: dict[str, int]) -> dict[str, int]:
        return {plain_name(name): count for name, count in visits.items()}

    def changed(self, changes: Limits | None) -> Limits:
        """Return these limits with the fields that `changes` sets explicitly.

        Args:
            changes: the changes. Setting a field to None removes its limit.

        Returns:
            The changed limits.
        """
        if changes is None or not changes.model_fields_set:
            return self
        return self.model_copy(update={name: getattr(changes, name) for name in changes.model_fields_set})


def raised(wanted: Limits, own: Limits, most: Limits | None = None) -> list[str]:
    """Return the names of the limits that exceed those in force.

    Args:
        wanted: the new limits; only fields that are set count.
        own: the limits in force.
        most: bounds up to which each limit may be raised; only fields that are set count.
    """
    bounds = {name: [getattr(own, name)] for name in wanted.model_fields_set}
    for name in most.model_fields_set & bounds.keys() if most is not None else ():
        bounds[name].append(getattr(most, name))
    return [name for name in Limits.model_fields if name in bounds and not any(_keeps(wanted, name, bounds[name]))]


def _keeps(wanted: Limits, name: str, bounds: list[Any]) -> Iterator[bool]:
    """Yield, for each bound, True if the limit does not exceed it."""
    value, visits = getattr(wanted, name), wanted.visits
    for bound in bounds:
        if name == "visits":
            yield all(node in visits and visits[node] <= count for node, count in bound.items())
        else:
            yield bound is None or (value is not None and value <= bound)


class Reserve(BaseModel):
    """The expected usage of one call in progress, or of all calls in progress of a run.

    A model call reserves the estimated tokens of its prompt and of its reply. The reply's estimate is `max_tokens` if
    it is set, else the longest reply so far, else `UNKNOWN_REPLY`. Its cost is the model's price for these tokens, or
    without a price, the cost of the most expensive call so far.
    """

    model_config = ConfigDict(frozen=True)

    tokens: int = 0
    cost: float = 0.0
    calls: int = 0
    """Number of calls in progress that other calls wait for. Calls whose reply the node streams are not counted: such a
    call may take as long as its node, which may itself wait for another call.
    """

    def __add__(self, other: Reserve) -> Reserve:
        """Return the sum of both."""
        return Reserve(tokens=self.tokens + other.tokens, cost=self.cost + other.cost, calls=self.calls + other.calls)

    def __sub__(self, other: Reserve) -> Reserve:
        """Subtract another reserve."""
        return Reserve(tokens=self.tokens - other.tokens, cost=self.cost - other.cost, calls=self.calls - other.calls)


NO_RESERVE = Reserve()
"""The reserve of a run without calls in progress."""
UNKNOWN_REPLY = 1000
"""Tokens reserved for a reply while no better estimate exists."""


class LimitsLeft(BaseModel):
    """The remainder of each limit at one moment; None: no limit."""

    model_config = ConfigDict(frozen=True)

    steps: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None
    calls: int | None = None


class Retry(BaseModel, metaclass=Spelled):
    """The rule for retries of a failed attempt, and the delay before each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempts: PositiveInt = 3
    """Attempts, including the first one."""
    wait: float = Field(default=0.5, ge=0)
    """Seconds before the second attempt."""
    factor: float = Field(default=2.0, ge=1)
    """Factor by which the delay grows with each attempt."""
    max_wait: float = Field(default=60.0, ge=0)
    """Longest delay in seconds."""
    jitter: float = Field(default=0.1, ge=0, le=1)
    """Share of itself by which each delay varies at most."""
    on: tuple[str, ...] = ()
    """Names of the errors to retry, including their subclasses. Without names, errors with `retryable = True`,
    `OSError` and `TimeoutError` are retried.
    """

    @field_validator("on", mode="before")
    @classmethod
    def _check_names(cls, on: object) -> object:
        given = on if isinstance(on, list | tuple) else [on]
        if given is not on or any(isinstance(one, type) for one in given):
            names = tuple(getattr(one, "__name__", one) for one in given)
            raise ValueError(f"it takes a tuple of names of errors: write on={names!r}")
        return on

    def matches(self, error: BaseException) -> bool:
        """Return whether another attempt may succeed after this error.

        Args:
            error: the error of the last attempt.

        Returns:
            True if `on` names the error's class or a base of it, or, without `on`, if the error is retryable.
        """
        if self.on:
            names = {
                name
                for kind in type(error).__mro__
                for name in (kind.__name__, f"{kind.__module__}:{kind.__qualname__}")
            }
            return not names.isdisjoint(self.on)
        return bool(getattr(error, "retryable", False)) or isinstance(error, OSError | TimeoutError)

    def delay(self, attempt: int, random: float) -> float:
        """Return the seconds to wait before the next attempt.

        Args:
            attempt: the number of the failed attempt, from 1.
            random: a random number in [0, 1), for the jitter.

        Returns:
            Seconds.
        """
        try:
            wait = min(self.wait * self.factor ** (attempt - 1), self.max_wait)
        except OverflowError:
            wait = self.max_wait if self.wait else 0.0
        return wait * (1 + self.jitter * (2 * random - 1))
