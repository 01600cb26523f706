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

    Graphs called as tools share `calls`, `tokens`, `cost` and `seconds` with the runs that call them; steps and visits
    are each run's own. While `tokens` or `cost` is limited, a model call reserves what it is expected to use (see
    `Reserve`), so that calls made at the same time do not overshoot together.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: PositiveInt | None = 1000
    seconds: PositiveFloat | None = None
    tokens: PositiveInt | None = None
    cost: PositiveFloat | None = None
    calls: PositiveInt | None = None
    visits: dict[str, PositiveInt] = Field(default_factory=dict)
    concurrency: PositiveInt | None = None

    def changed(self, changes: Limits | None) -> Limits:
        """These limits with the fields that `changes` sets explicitly; `changes` may lift one by setting it to None."""
        if changes is None or not changes.model_fields_set:
            return self
        return self.model_copy(update={name: getattr(changes, name) for name in changes.model_fields_set})


class Reserve(BaseModel):
    """What a call under way is expected to use, or what all calls under way in a run are.

    A model call reserves the tokens of its prompt, estimated from its length, and those of its reply: its `max_tokens`
    where it has one, else the longest reply so far, else `UNKNOWN_REPLY`. Its cost is that of these tokens at the
    model's price; where the price is not known, that of the dearest call so far.
    """

    model_config = ConfigDict(frozen=True)

    tokens: int = 0
    cost: float = 0.0
    calls: int = 0
    """How many calls under way others wait for. A reply that its node reads piece by piece is not among them: it may
    take as long as the node does, which may itself wait for another call."""


UNKNOWN_REPLY = 1000
"""Tokens that are reserved for a reply as long as nothing better is known."""


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
