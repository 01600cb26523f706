"""What a run may spend, what it has spent, and when a failed attempt is made again."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt


class Usage(BaseModel):
    """What was spent. `seconds` are seconds alive, `cost` is in the currency of the user's price table."""

    model_config = ConfigDict(frozen=True)

    steps: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    estimated: bool = False
    """Whether some of the tokens were not told by a server but made out from the length of the texts."""

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            steps=self.steps + other.steps,
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.cost + other.cost,
            seconds=self.seconds + other.seconds,
            estimated=self.estimated or other.estimated,
        )


class Limits(BaseModel):
    """A ledger's upper bounds, shared by all branches and nested graphs. None: no bound.

    `steps` counts activations of nodes, `seconds` time alive, `calls` model and tool calls, `visits` the
    activations of single nodes; `concurrency` is how many steps may run at the same time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: PositiveInt | None = 1000
    seconds: PositiveFloat | None = None
    tokens: PositiveInt | None = None
    cost: PositiveFloat | None = None
    calls: PositiveInt | None = None
    visits: dict[str, PositiveInt] = Field(default_factory=dict)
    concurrency: PositiveInt | None = None


class LimitsLeft(BaseModel):
    """What is left of each limit at a moment; None where there is no bound."""

    model_config = ConfigDict(frozen=True)

    steps: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None
    calls: int | None = None


class Retry(BaseModel):
    """When a failed attempt of a step is made again, and after how long.

    Waits grow from `wait` seconds by `factor` up to `max_wait`, each varied by up to `jitter` of itself. `on`
    names the errors that are retried; when it is empty those are the ones that say `retryable = True` of
    themselves, and `OSError` and `TimeoutError` with all their kinds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempts: PositiveInt = 3
    wait: float = Field(default=0.5, ge=0)
    factor: float = Field(default=2.0, ge=1)
    max_wait: float = Field(default=60.0, ge=0)
    jitter: float = Field(default=0.1, ge=0, le=1)
    on: tuple[str, ...] = ()

    def matches(self, error: BaseException) -> bool:
        """Whether this error is one that another attempt may mend."""
        if self.on:
            names = {
                name
                for kind in type(error).__mro__
                for name in (kind.__name__, f"{kind.__module__}:{kind.__qualname__}")
            }
            return not names.isdisjoint(self.on)
        return bool(getattr(error, "retryable", False)) or isinstance(error, OSError | TimeoutError)

    def delay(self, attempt: int, random: float) -> float:
        """Seconds to wait after failed attempt number `attempt` (from 1); `random` is in [0, 1)."""
        try:
            wait = min(self.wait * self.factor ** (attempt - 1), self.max_wait)
        except OverflowError:
            wait = self.max_wait if self.wait else 0.0
        return wait * (1 + self.jitter * (2 * random - 1))
