"""Failures of attempts: errors as data, and the signals that end an attempt.

Errors are taken out of groups first. A run stores a short traceback of each as text, without values, the user's own
code first:

    Traceback (most recent call last):
      File "/home/ann/agent.py", line 12, in look_up
        return prices[name]
      behind it, in libraries:
      File "/.../site-packages/prices/table.py", line 88, in __getitem__
        raise KeyError(name)
    KeyError: 'tea'

Frames contain file, line, function and the source line, never the values of variables. Text that looks like a secret is
blanked, since no fold depends on it.

The signals end an attempt from deep inside its node, without an outcome. They do not derive from `Exception`, since
nothing failed: a node that catches `Exception` does not catch them.
"""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TypeAlias, TypeVar

import anyio

from orchestrator.errors import (
    EffectFailed,
    InvalidUpdate,
    RunConflict,
    RunEnded,
    RunUnknown,
    StoreUnavailable,
    ToolError,
    ToolFailed,
    message_of,
)
from orchestrator.kernel.question import Question
from orchestrator.kernel.records import Failure
from orchestrator.kernel.state import Activation
from orchestrator.redaction import redact, without_known
from orchestrator.tools.result import cut
from orchestrator.user_code import Interrupt, as_error
from orchestrator.views.tracebacks import LIBRARIES, MOST, is_library

E = TypeVar("E", bound=BaseException)

MOST_SAID = 20_000
"""Maximum length of an error's message that a run keeps, in characters: its start and its end. It is in records, logs
and pages, and each of them is searched for secrets.
"""
_OWN_FRAMES = (4, 12)
"""Maximum number of frames of the user's code that are kept: first and last ones."""
_LIBRARY_FRAMES = 6
_CHAIN = 3
"""Maximum number of errors that an error was raised from, or during."""
_GROUP = 4
"""Maximum number of errors of an exception group shown with their frames."""
_LINE = 160
_MESSAGE = 600
_LEAST = 200
"""If fewer characters are left, the traceback of the tool is omitted."""

_COROUTINE = re.compile(r"""['"<(](coroutine|async_generator)(?:['")]| object )""")
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n"
_TOOL = "\n\nThat made the call of the tool fail, which was the cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n"


def find_exception(error: BaseException, kinds: tuple[type[E], ...]) -> E | None:
    """Return the first exception of these types, also from inside exception groups; None if there is none."""
    if isinstance(error, kinds):
        return error
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            found = find_exception(inner, kinds)
            if found is not None:
                return found
    return None


def unwrap_single(error: BaseException) -> BaseException:
    """Return the exception in a group of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@contextmanager
def without_group() -> Iterator[None]:
    """Raise the only error of a group that the block of a task group raised, also from inside other groups."""
    try:
        yield
    except BaseExceptionGroup as group:
        error = unwrap_single(group)
        if error is not group:
            raise error from error.__cause__
        raise


class NotOpen(RuntimeError):
    """Raised when the executor is not open, or was closed meanwhile."""


def fault_of(error: BaseException | None) -> str | None:
    """Return the note to store about a drive that stopped with an error; None if the run itself is not the cause.

    Every error counts, or the run would be claimed again at once, and repeat the same step; except a cancellation,
    which the driver requested, a closed executor, another executor that has the run, and an unreachable store. A
    working store that refuses this run's records counts.
    """
    if error is None or isinstance(error, NotOpen | RunConflict | RunEnded | RunUnknown | StoreUnavailable):
        return None
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return None
    error = as_error(error)
    return bounded(f"{_kind(error)}: {error}", 2000)


REFUSALS = ("ContextMissing: ", "GraphChanged: ", "GraphUnknown: ", "StoreTooNew: ", "ToolsChanged: ")
"""Prefixes of `fault_of` for a run that did not fit a worker's code: no step ran, and other code may fit."""


def failure_of(error: BaseException, activation: Activation) -> Failure:
    """Return an error as data, with the place where it was raised."""
    error = as_error(unwrap_single(error))
    asked = getattr(error, "retry_after", None)
    wait = asked if isinstance(asked, int | float) and math.isfinite(asked) else None
    message = cut(without_known(message_of(error)) + _missing_await(error), MOST_SAID)
    return Failure(type=_kind(error), message=message, node=activation.node, path=activation.path, retry_after=wait)


def _missing_await(error: Exception) -> str:
    """Return the fix of an error that a coroutine causes in the place of a result; empty for other errors."""
    found = _COROUTINE.search(str(error)) if isinstance(error, AttributeError | TypeError | InvalidUpdate) else None
    if found is None:
        return ""
    fix = "write `await` before the call" if found[1] == "coroutine" else "read it with `async for`"
    return f"; a call of an async function returned this {found[1]}: {fix}"


def _kind(error: Exception) -> str:
    return error.type if isinstance(error, EffectFailed) else type(error).__name__


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error, with those of its causes and members, at most `MOST` characters."""
    parts: list[str] = []
    for link, words in _chain(error):
        part = f"{_text_of(link)}\n{words}\n" if parts else _text_of(link)
        if parts and sum(map(len, parts)) + len(part) > MOST:
            break
        parts.insert(0, part)
    text = bounded(redact("".join(parts)))
    raised = next((link.result.traceback for link, _ in _chain(error) if isinstance(link, ToolFailed)), "")
    if not raised:
        return text
    room = MOST - len(text) - len(_TOOL)
    return f"{bounded(raised, room)}{_TOOL}{text}" if room >= _LEAST else text


def traceback_of_tool(error: Exception) -> str:
    """Return the traceback of an error from a tool; empty if its message suffices and no frame is the user's code."""
    if isinstance(error, ToolError) and not _is_in_own_code(error.__traceback__):
        return ""
    return traceback_of(error)


def bounded(text: str, most: int = MOST) -> str:
    """Return a traceback in storable form, at most `most` characters: the last lines are kept."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"[...]\n{text[-most + 6 :]}"


def _chain(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """Yield the error and those it was raised from or during, each with the text between it and the next one."""
    link: BaseException | None = error
    words, seen = "", set[int]()
    while link is not None and id(link) not in seen and len(seen) <= _CHAIN:
        seen.add(id(link))
        yield link, words
        link, words = _before(link)


def _before(error: BaseException) -> tuple[BaseException | None, str]:
    if error.__cause__ is not None:
        return error.__cause__, _CAUSE
    return (None if error.__suppress_context__ else error.__context__), _CONTEXT


def _text_of(error: BaseException, depth: int = 0) -> str:
    """Return an error as text: its frames, its message, and the errors in it."""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    message = without_known(message_of(error))
    if len(message) > _MESSAGE:
        # Blanked before it is cut: half a secret does not look like one.
        start = redact(message[: 4 * _MESSAGE])[:_MESSAGE]
        message = f"{start}... ({len(message) - _MESSAGE} more characters)"
    frames = list(_lines(error.__traceback__))
    lines = ["Traceback (most recent call last):", *frames] if frames else []
    lines.append(f"{name}: {message}" if message else name)
    if isinstance(error, BaseExceptionGroup) and depth < 2:
        for number, inner in enumerate(error.exceptions[:_GROUP], 1):
            inner_text = _text_of(inner, depth + 1).replace("\n", "\n  | ")
            lines.append(f"  +- error {number} of {len(error.exceptions)}\n  | {inner_text}")
        if len(error.exceptions) > _GROUP:
            lines.append(f"  +- and {len(error.exceptions) - _GROUP} more errors")
    return "\n".join(lines)


def _is_in_own_code(trace: TracebackType | None) -> bool:
    while trace is not None and is_library(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace is not None


def _lines(trace: TracebackType | None) -> Iterator[str]:
    """Yield the frames of a traceback: the user's, then those of libraries after the first of them."""
    own: list[tuple[str, int, str]] = []
    others: list[tuple[str, int, str]] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frame = (code.co_filename, trace.tb_lineno, code.co_name)
        if is_library(code.co_filename):
            others.append(frame)
        else:
            if not own:
                others.clear()  # the callers of the user's code are unrelated to the error
            own.append(frame)
        trace = trace.tb_next
    first, last = _OWN_FRAMES
    left_out = len(own) - first - last
    if left_out > 0:
        yield from _frames(own[:first])
        yield f"  [{left_out} frames left out]"
        own = own[-last:]
    yield from _frames(own)
    if others and own:
        yield LIBRARIES
    if len(others) > _LIBRARY_FRAMES:
        yield f"  [{len(others) - _LIBRARY_FRAMES} frames left out]"
    yield from _frames(others[-_LIBRARY_FRAMES:])


def _frames(frames: Sequence[tuple[str, int, str]]) -> Iterator[str]:
    for file, line, function in frames:
        yield f'  File "{file}", line {line}, in {function}'
        source = linecache.getline(file, line).strip()
        if len(source) > _LINE:
            source = redact(source[: 4 * _MESSAGE])[:_LINE] + "..."
        if source:
            yield f"    {source}"


class Suspend(Interrupt):
    """Raised out of a node that asked a question: the step starts again with the answer."""

    key: str = ""
    """Key of the call that asks inside; empty if the node, or a call that did nothing yet, asks."""
    secret: str = ""
    """See `EffectSettled.secret`."""
    begun: bool = False
    """True if the call has begun something elsewhere."""

    def __init__(self, question: Question) -> None:
        self.question = question
        super().__init__(question.prompt)


class Refused(Interrupt):
    """Raised out of a node whose next call a spent limit forbids. It is already journaled."""


class Lost(Interrupt):
    """Raised out of a node when the run's journal cannot be written any more; `error` is the reason."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class TimedOut(Interrupt):
    """Raised out of a node that continues after its time has run out, and starts an effect."""


Signal: TypeAlias = Suspend | Refused | Lost | TimedOut

_home: ContextVar[int] = ContextVar("home", default=0)
"""Id of the task that runs steps. Tasks that a node starts inherit the value, and have other ids."""


def enter_step_task() -> None:
    """Record that this task runs steps from now on."""
    _home.set(anyio.get_current_task().id)


def in_step_task() -> bool:
    """Return True in the task that runs the step; False in a task that its node started."""
    return _home.get() == anyio.get_current_task().id
