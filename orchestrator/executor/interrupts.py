"""Signals that end an attempt from deep inside its node, without an outcome.

They derive from `BaseException`: nothing failed, so a node that catches `Exception` does not catch them.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TypeAlias, TypeVar

import anyio

from orchestrator.kernel.question import Question


class Suspend(BaseException):
    """Raised out of a node that asked something: the step begins anew when the answer is there."""

    def __init__(self, question: Question) -> None:
        self.question = question
        super().__init__(question.prompt)


class Refused(BaseException):
    """Raised out of a node whose next call a spent limit forbids. It is journaled already."""


class Lost(BaseException):
    """Raised out of a node when the run's journal cannot be written any more; `error` is the reason."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class TimedOut(BaseException):
    """Raised out of a node that goes on after its time has run out, and wants to touch something outside."""


Signal: TypeAlias = Suspend | Refused | Lost | TimedOut

E = TypeVar("E", bound=BaseException)


_home: ContextVar[int] = ContextVar("home", default=0)
"""Id of the task that steps run in. The tasks that a node starts inherit it, and have ids of their own."""


def settle_in() -> None:
    """Steps run in this task from now on."""
    _home.set(anyio.get_current_task().id)


def at_home() -> bool:
    """Whether this is the task that the step runs in, and none that its node started."""
    return _home.get() == anyio.get_current_task().id


def find_exception(error: BaseException, kinds: tuple[type[E], ...]) -> E | None:
    """The first exception of these kinds: the one given, or one in the groups that a node's task group made."""
    if isinstance(error, kinds):
        return error
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            found = find_exception(inner, kinds)
            if found is not None:
                return found
    return None


def flatten(error: BaseException) -> list[BaseException]:
    """The exceptions in a group and in its inner groups; an exception that is no group by itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in flatten(inner)]


def unwrap_single(error: BaseException) -> BaseException:
    """The exception that a group of one holds."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
