"""Exit codes: the result of a run, or the kind of error.

Only `run`, `resume`, `fork`, `answer`, `approve`, `deny` and `send` report a run's result; all commands share the rest.
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
UNAVAILABLE: Final = 8
INTERRUPTED: Final = 130

_OF_STATUS: Final = {
    "completed": COMPLETED,
    "failed": FAILED,
    "paused": PAUSED,
    "exhausted": EXHAUSTED,
    "cancelled": CANCELLED,
    "interrupted": INTERRUPTED,
    "running": COMPLETED,  # another process continues it; nothing is wrong
}


class UsageError(Exception):
    """Raised when the command line itself is wrong: exit code 2, the message on stderr."""


def of_status(status: str) -> int:
    """Return the exit code for the status of a run."""
    return _OF_STATUS[status]


def of_error(error: BaseException) -> int:
    """Return the exit code of an error."""
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
    """Return the only error of a group, or the group if it has several."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
