"""Effects of a step that goes on in a reopened run: which of them are made again although they are settled.

Steps that were stopped go on in their attempt, steps that failed begin the next one. See `docs/resuming.md`.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.kernel.records import EffectIntended, EffectSettled, failed_result

STOPPED = "Cancelled"
"""Type of the failure that stands for an effect which the run itself stopped."""


def is_stopped(settled: EffectSettled) -> bool:
    """Whether the end of a run stopped an effect."""
    return not settled.ok and settled.error is not None and settled.error.type == STOPPED


def certainly_failed(intended: EffectIntended, settled: EffectSettled | None) -> bool:
    """Whether an effect is over, and is known to have failed: an answer of `failed` does not say so."""
    if settled is None or settled.unknown:
        return False
    return not settled.may_have_happened or (intended.kind == "tool" and failed_result(settled.result) is not None)


def is_given_up(settled: EffectSettled) -> bool:
    """Whether a person answered that an effect counts as failed. Of a call that returned no other end is final."""
    return settled.given_up or (settled.returned is not None and not settled.ok and not settled.unknown)


def end_inside(settled: EffectSettled | None) -> str:
    """The status of the run that a call of a graph began; empty if it began none, or is not known to have ended."""
    result = None if settled is None else settled.result
    metadata = result.get("metadata") if isinstance(result, Mapping) else None
    return str(metadata.get("status", "")) if isinstance(metadata, Mapping) and "run_id" in metadata else ""


def broke_off(settled: EffectSettled | None) -> bool:
    """Whether the run that a call of a graph began can go on: it did not end, failed or was cancelled."""
    return settled is None or is_stopped(settled) or end_inside(settled) in ("failed", "cancelled")
