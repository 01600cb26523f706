"""Records about effects: calls of models and tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from orchestrator.graph.limits import Reserve, Usage
from orchestrator.kernel.records.base import EffectClass, EffectKind, Failure, JsonDict, Moment, RecordBase


class EffectIntended(RecordBase):
    """Something outside is about to be touched. Durable before it is."""

    type: Literal["effect_intended"] = "effect_intended"
    activation: str
    path: str = ""
    node: str
    key: str
    """activation / attempt / name / digest of the request / occurrence, as one hash: the idempotency key."""
    kind: EffectKind
    name: str
    effect: EffectClass
    digest: str
    """Of the request."""
    occurrence: int = 0
    attempt: int = 1
    request: JsonDict = {}
    """What was asked. Messages that the journal holds already are `{"ref": digest}`."""
    again: bool = False
    """An effect intended before, whose end is unknown, is made again under the same key."""
    inside: str = ""
    """Key of the effect that makes it: of a tool that calls another one. Empty: the node does."""
    reserve: Reserve | None = None
    """What it reserves until it is settled, where tokens or cost are limited."""


class EffectSettled(RecordBase):
    """The end of an effect is known."""

    type: Literal["effect_settled"] = "effect_settled"
    activation: str
    path: str = ""
    node: str
    key: str
    ok: bool = True
    result: object = None
    error: Failure | None = None
    usage: Usage | None = None
    started: Moment = 0.0
    ended: Moment = 0.0
    unknown: bool = False
    """It may or may not have happened (a cancelled or timed-out irreversible call)."""
    tries: int = 1
    """How many times it was tried."""
    next_at: Moment | None = None
    """Unix seconds: it failed, and is tried again then. None: this is its end."""


def failed_result(result: object) -> str | None:
    """What went wrong with a call of a tool that has this result in its `effect_settled`; None if nothing did."""
    if not isinstance(result, Mapping) or not (result.get("error") or result.get("exit_code")):
        return None
    return str(result.get("error") or f"exit code {result['exit_code']}")


class Spent(RecordBase):
    """What the run that a call of this run began has spent and reserved, as totals: the same record twice adds nothing.

    Written before every call that the inner run makes, and after it. Steps and seconds are each run's own.
    """

    type: Literal["spent"] = "spent"
    activation: str
    path: str = ""
    node: str
    key: str
    """The call that began the inner run."""
    run: str
    """The inner run."""
    call: str = ""
    """Key of the inner run's call that this is about; empty for the total at its end."""
    usage: Usage = Usage()
    reserve: Reserve = Reserve()
    message: int | None = None
