"""The journal's records: everything that happened to a run, as frozen data.

`seq` counts from 1 without gaps. `ts` is Unix time in seconds; the kernel reads no clock, so records bring the time.
A record's JSON form is `{"type": ..., "seq": ..., "ts": ...}` without fields at their default. `decode` reads it back
and refuses unknown types and fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.kernel.records.base import (
        RECORD_VERSION,
        EffectClass,
        EffectKind,
        Failure,
        JsonDict,
        Moment,
        Stamp,
        StepStamp,
    )
    from orchestrator.kernel.records.codec import (
        RECORD_TYPES,
        Record,
        decode,
        encode,
        encode_unsealed,
        record_from_fields,
    )
    from orchestrator.kernel.records.coded import CodedRecord, as_coded, check_readable, of_run
    from orchestrator.kernel.records.effects import Diverged, EffectIntended, EffectSettled, Spent, failed_result
    from orchestrator.kernel.records.questions import Answered, AnswersWithdrawn, Asked, EventReceived
    from orchestrator.kernel.records.run import (
        Caller,
        Cancelled,
        Ended,
        Forked,
        LimitsChanged,
        Migrated,
        Paused,
        Reopened,
        Resumed,
        RunStarted,
        SetAside,
    )
    from orchestrator.kernel.records.statuses import FINAL, RunStatus
    from orchestrator.kernel.records.steps import (
        TIMEOUT,
        GraphOpened,
        LimitSpent,
        StepDone,
        StepFailed,
        StepRetried,
        TimerFired,
        TimerSet,
        step_done,
    )

_HOMES = {
    "orchestrator.kernel.records.statuses": ("FINAL", "RunStatus"),
    "orchestrator.kernel.records.base": (
        "RECORD_VERSION", "EffectClass", "EffectKind", "Failure", "JsonDict", "Moment", "Stamp",
        "StepStamp",
    ),
    "orchestrator.kernel.records.codec": (
        "RECORD_TYPES", "Record", "decode", "encode", "encode_unsealed", "record_from_fields",
    ),
    "orchestrator.kernel.records.coded": ("CodedRecord", "as_coded", "check_readable", "of_run"),
    "orchestrator.kernel.records.effects": ("Diverged", "EffectIntended", "EffectSettled", "Spent", "failed_result"),
    "orchestrator.kernel.records.questions": ("Answered", "AnswersWithdrawn", "Asked", "EventReceived"),
    "orchestrator.kernel.records.run": (
        "Caller", "Cancelled", "Ended", "Forked", "LimitsChanged", "Migrated", "Paused", "Reopened", "Resumed",
        "RunStarted", "SetAside",
    ),
    "orchestrator.kernel.records.steps": (
        "TIMEOUT", "GraphOpened", "LimitSpent", "StepDone", "StepFailed", "StepRetried", "TimerFired",
        "TimerSet", "step_done",
    ),
}  # fmt: skip

__all__ = [
    "FINAL", "RECORD_TYPES", "RECORD_VERSION", "TIMEOUT", "Answered", "AnswersWithdrawn", "Asked", "Caller",
    "Cancelled", "CodedRecord", "Diverged", "EffectClass", "EffectIntended", "EffectKind", "EffectSettled", "Ended",
    "EventReceived", "Failure", "Forked", "GraphOpened", "JsonDict", "LimitSpent", "LimitsChanged", "Migrated",
    "Moment", "Paused", "Record", "Reopened", "Resumed", "RunStarted", "RunStatus", "SetAside", "Spent", "Stamp",
    "StepDone", "StepFailed", "StepRetried", "StepStamp", "TimerFired", "TimerSet", "as_coded", "check_readable",
    "decode", "encode", "encode_unsealed", "failed_result", "of_run", "record_from_fields", "step_done",
]  # fmt: skip

if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
