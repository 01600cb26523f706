"""Calls of a journal: each intent with its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.graph.limits import Usage
from orchestrator.kernel.records import EffectIntended, EffectSettled, failed_result

CallState: TypeAlias = Literal["running", "retrying", "done", "failed", "unknown"]
NO_USAGE = Usage()


@dataclass(slots=True)
class JournaledCall:
    """A call of a model, a tool or a function."""

    intended: EffectIntended
    """The first intent."""
    begun: float
    """Unix seconds of the last intent: a call that a crash cut off is intended again."""
    settled: EffectSettled | None = None
    """The last result; of a call under way that of the try before, if there was one."""
    running: bool = True
    usage: Usage = NO_USAGE
    """Of the last try that has any."""

    def begin(self, ts: float) -> None:
        """It is intended again, after a crash or for another try."""
        self.begun, self.running = ts, True

    def settle(self, record: EffectSettled) -> None:
        """It has a result."""
        self.settled, self.running, self.usage = record, False, record.usage or self.usage

    @property
    def started(self) -> float:
        """When it began, in Unix seconds."""
        return self.settled.started if self.settled is not None and self.settled.started else self.intended.ts

    @property
    def ended(self) -> float | None:
        """When it ended, in Unix seconds; None: it has not."""
        settled = self.settled
        return None if settled is None or settled.next_at is not None else settled.ended or settled.ts

    @property
    def fault(self) -> str:
        """Why it failed; empty if it did not."""
        settled = self.settled
        if settled is None:
            return ""
        told = failed_result(settled.result) if self.intended.kind == "tool" and settled.ok else None
        return told or ("" if settled.error is None else str(settled.error))

    @property
    def state(self) -> CallState:
        """What became of it."""
        settled = self.settled
        if self.running or settled is None:
            return "running"
        if settled.next_at is not None:
            return "retrying"
        return "unknown" if settled.unknown else "failed" if self.fault or not settled.ok else "done"
