"""Signals that end an attempt from deep inside its node, without an outcome.

The status `interrupted` of a run is decided in `executor.run_status`, signals of the system in `executor.os_signals`.

They are no `Exception`, since nothing failed: a node that catches `Exception` does not catch them.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TypeAlias

import anyio

from orchestrator.calls import Interrupt
from orchestrator.kernel.question import Question


class Suspend(Interrupt):
    """Raised out of a node that asked something: the step begins anew when the answer is there."""

    def __init__(self, question: Question) -> None:
        self.question = question
        super().__init__(question.prompt)


class Refused(Interrupt):
    """Raised out of a node whose next call a spent limit forbids. It is journaled already."""


class Lost(Interrupt):
    """Raised out of a node when the run's journal cannot be written any more; `error` is the reason."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class TimedOut(Interrupt):
    """Raised out of a node that goes on after its time has run out, and wants to touch something outside."""


Signal: TypeAlias = Suspend | Refused | Lost | TimedOut

_home: ContextVar[int] = ContextVar("home", default=0)
"""Id of the task that steps run in. The tasks that a node starts inherit it, and have ids of their own."""


def enter_step_task() -> None:
    """Steps run in this task from now on."""
    _home.set(anyio.get_current_task().id)


def in_step_task() -> bool:
    """Whether this is the task that the step runs in, and none that its node started."""
    return _home.get() == anyio.get_current_task().id
