"""Exit codes: what a run came to, or what went wrong.

A run's result is told by `run`, `resume`, `answer`, `approve`, `deny` and `send` only; all commands share the rest.
"""

from __future__ import annotations

from typing import Final

from orchestrator.errors import (
    Ambiguous,
    GraphUnknown,
    InvalidValue,
    QuestionUnknown,
    RunConflict,
    RunUnknown,
    UntrustedCode,
)

COMPLETED: Final = 0
FAILED: Final = 1
USAGE: Final = 2
PAUSED: Final = 3
UNKNOWN: Final = 4
EXHAUSTED: Final = 5
CANCELLED: Final = 6
CONFLICT: Final = 7
INTERRUPTED: Final = 130

_OF_STATUS: Final = {
    "completed": COMPLETED,
    "failed": FAILED,
    "paused": PAUSED,
    "exhausted": EXHAUSTED,
    "cancelled": CANCELLED,
    "interrupted": INTERRUPTED,
    "running": COMPLETED,  # somebody else drives it on, nothing is wrong
}


class UsageError(Exception):
    """Raised when the command line itself is wrong: exit code 2, the message on stderr."""


def of_status(status: str) -> int:
    """The exit code that says what a run came to."""
    return _OF_STATUS[status]


def of_error(error: BaseException) -> int:
    """The exit code of an error."""
    if isinstance(error, (UsageError, GraphUnknown, InvalidValue, UntrustedCode)):
        return USAGE
    if isinstance(error, Ambiguous):
        return USAGE if error.run_ids else UNKNOWN
    if isinstance(error, (RunUnknown, QuestionUnknown)):
        return UNKNOWN
    if isinstance(error, RunConflict):
        return CONFLICT
    return FAILED


def alone(error: Exception) -> Exception:
    """The one error that a group of tasks failed with; the group, if there are several."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
