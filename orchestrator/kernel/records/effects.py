"""Records about effects: calls of models and tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from orchestrator.graph.limits import Reserve, Usage
from orchestrator.kernel.records.base import ActivationRecord, EffectClass, EffectKind, Failure, JsonDict, Moment


class EffectIntended(ActivationRecord):
    """An effect is about to happen. Durable before it does."""

    type: Literal["effect_intended"] = "effect_intended"
    key: str
    """The idempotency key: a hash of activation, attempt, name, digest of the request and occurrence."""
    kind: EffectKind
    name: str
    effect: EffectClass
    digest: str
    """Digest of the request."""
    occurrence: int = 0
    attempt: int = 1
    request: JsonDict = Field(default_factory=dict)
    """The arguments or messages. Messages that the journal already holds are `{"ref": digest}`."""
    again: bool = False
    """Whether it repeats, under the same key, an earlier effect whose end is unknown."""
    inside: str = ""
    """Key of the tool call that makes it; empty if the node itself does."""
    reserve: Reserve | None = None
    """What it reserves until it is settled, if tokens or cost are limited."""
    taken: int | None = None
    """In a replay: the record of the replayed run from which its result is taken, so that nothing is called."""


class EffectSettled(ActivationRecord):
    """An effect ended."""

    type: Literal["effect_settled"] = "effect_settled"
    key: str
    ok: bool = True
    result: object = None
    error: Failure | None = None
    usage: Usage | None = None
    started: Moment = 0.0
    ended: Moment = 0.0
    unknown: bool = False
    """Whether it may or may not have happened, as a cancelled or timed-out irreversible call; or it has, and its result
    was refused."""
    returned: str | None = None
    """What came back, as bounded, redacted text, if the call returned and its result was refused; `error`, or the
    error in a tool's result, says why."""
    answered: bool = False
    """Whether a person said how it ended, who was asked."""
    tries: int = 1
    """Number of tries."""
    next_at: Moment | None = None
    """Unix seconds of the next try, if it failed and is tried again."""

    @property
    def given_up(self) -> bool:
        """Whether it counts as failed because a person answered so: it may have happened."""
        return self.answered and not self.ok

    @property
    def may_have_happened(self) -> bool:
        """False only if it is known not to have happened."""
        return self.ok or self.unknown or self.returned is not None or self.given_up


class Diverged(ActivationRecord):
    """A step of a replay asked something that the replayed run did not: what follows from it is not replayed."""

    type: Literal["diverged"] = "diverged"
    kind: Literal["model", "tool", "effect", "question"]
    name: str
    """The model, the tool or the effect; of a question its kind."""
    digest: str
    """Digest of the request."""
    occurrence: int = 0
    attempt: int = 1
    request: JsonDict = Field(default_factory=dict)
    """As in `EffectIntended`."""
    why: str = ""
    """Why the replayed run has no result for it, in words."""


def failed_result(result: object) -> str | None:
    """The error in a tool call's result, as `EffectSettled.result` holds it; None if there is none."""
    if not isinstance(result, Mapping) or not (result.get("error") or result.get("exit_code")):
        return None
    return str(result.get("error") or f"exit code {result['exit_code']}")


class Spent(ActivationRecord):
    """Usage and reserve of the run that a call of this run began, as totals: repeating the record adds nothing.

    Written before and after every call of the inner run. Each run counts its own steps and seconds.
    """

    type: Literal["spent"] = "spent"
    key: str
    """The call that began the inner run."""
    run: str
    """The inner run."""
    call: str = ""
    """Key of the inner run's call that it precedes or follows; empty for the total at its end."""
    usage: Usage = Usage()
    reserve: Reserve = Reserve()
    head: int = 0
    """Number of the inner run's last record; 0: not known. A fork of this run forks the inner one there."""
    message: int | None = None
