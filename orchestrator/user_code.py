"""Calls of user code: the exceptions that stop them from outside, and the fence that each call passes first.

Exceptions
----------

Nodes, tools, effects, models and all other code that an executor calls may raise anything. Exceptions that stop the
code from outside are passed on. Exceptions that the code itself raises are failures:

    a cancellation       stops it if a scope around it, or its task, was cancelled since; else the code raised it
    SystemExit           stops it if a handler of a system signal raised it; else the code raised it
    GeneratorExit        stops it if its coroutine is closed; else the code raised it
    KeyboardInterrupt    stops it
    Interrupt            stops it: an executor's own signal
    any other            the code raised it

asyncio ends its event loop by a `SystemExit` that leaves a task, so code is contained in the task that calls it.

A task of asyncio that cancels itself, and returns before it waits for anything, has returned. After a `GeneratorExit`
from a thread started by user code, asyncio closes everything that waits for it: the drive ends, and counts as a crash.

The fence
---------

A call may wait between the decision to make it and the call itself: for a worker thread, an instance of a pool, a rate
limit, a connection. Meanwhile the process may have been suspended for an hour, and another process may have taken over
the run. The code that makes the call therefore passes the fence of its run, in the same task or thread, immediately
before the call.

The executor sets the fence of each effect; tools and models pass it. Outside a run there is no fence.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable
from contextvars import ContextVar
from itertools import pairwise
from traceback import walk_tb
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio
import anyio.from_thread

from orchestrator.errors import EffectFailed, message_of

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Interrupt(BaseException):
    """Base of the signals by which an executor ends an attempt from inside its node."""


def outside(error: BaseException, task: asyncio.Task[Any] | None = None, before: int = 0) -> BaseException | None:
    """Return the exception, or the one in its groups, that stopped the code from outside; None if the code raised it.

    Call it in the function that caught the exception: the traceback shows whether a coroutine is being closed.

    Args:
        error: the exception.
        task: the asyncio task whose cancellation stops the code. Default: the current task.
        before: how often that task had been cancelled when the code started; see `cancels_of`.
    """
    found = [] if isinstance(error, Exception) else [one for one in flatten(error) if _stops(one, task, before)]
    return max(found, key=lambda one: isinstance(one, KeyboardInterrupt | SystemExit), default=None)


def stopped_by(error: BaseException) -> bool:
    """Return True if a call was stopped from outside, neither by its own code nor by a signal of the executor."""
    return not isinstance(outside(error), Interrupt | None)


def as_error(error: BaseException) -> Exception:
    """Return an exception from user code as an `Exception`: unchanged if it is one."""
    if isinstance(error, Exception):
        return error
    kind, said = type(error).__name__, message_of(error)
    words = f"sys.exit({said})" if isinstance(error, SystemExit) else said or f"{kind} of its own code"
    failed = EffectFailed(words, type=kind)
    failed.__cause__ = error
    return failed


def flatten(error: BaseException) -> list[BaseException]:
    """Return the exceptions in a group and its inner groups; for any other exception, the exception itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in flatten(inner)]


class contained:  # noqa: N801  used like a function, as contextlib.suppress
    """A context manager around user code: whatever the code itself raises leaves it as an `Exception`.

    Entering it returns the current asyncio task, and how often that had been cancelled.
    """

    __slots__ = ("_before",)

    def __enter__(self) -> tuple[asyncio.Task[Any] | None, int]:
        task = native_task()
        self._before = 0 if task is None else task.cancelling()
        return task, self._before

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, Exception) and outside(error, before=self._before) is None:
            raise as_error(error)


def call_in_thread(call: Callable[..., T], *args: object) -> T:
    """Call a user function in a worker thread: a `GeneratorExit` from it would otherwise close the coroutine."""
    try:
        return call(*args)
    except GeneratorExit as error:
        raise as_error(error) from error


def native_task() -> asyncio.Task[Any] | None:
    """Return the current asyncio task; None in another event loop."""
    import asyncio  # imported late: it is a third of what `from orchestrator import Graph` would import

    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def cancels_of(task: asyncio.Task[Any] | None) -> int:
    """Return how often a task was cancelled. A task that continued keeps the count, unless it calls `uncancel`."""
    return 0 if task is None else task.cancelling()


def is_cancelled(task: asyncio.Task[Any] | None, before: int) -> bool:
    """Return True if an enclosing scope is cancelled, or the task was cancelled more often than `before`."""
    return anyio.current_effective_deadline() == -math.inf or cancels_of(task) > before


async def take_back_cancels(task: asyncio.Task[Any]) -> None:
    """Continue in the current task although its own code cancelled it, including cancellations not yet raised."""
    import asyncio

    while task.cancelling():
        task.uncancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)


def _stops(error: BaseException, task: asyncio.Task[Any] | None, before: int) -> bool:
    if isinstance(error, SystemExit):  # Python passes a signal handler the signal's number and the interrupted frame
        frames = pairwise(frame for frame, _ in walk_tb(error.__traceback__))
        return any(_is_handler(frame, interrupted) for interrupted, frame in frames)
    if isinstance(error, GeneratorExit):  # closing a coroutine raises a new exception at each `await`
        return error.__traceback__ is None or error.__traceback__.tb_next is None
    if not isinstance(error, anyio.get_cancelled_exc_class()):
        return isinstance(error, KeyboardInterrupt | Interrupt)
    return is_cancelled(task or native_task(), before)


def _is_handler(frame: FrameType, interrupted: FrameType) -> bool:
    names, others, _, values = inspect.getargvalues(frame)
    given = [*map(values.get, names), *values.get(others or "", ())]
    return any(isinstance(number, int) and place is interrupted for number, place in pairwise(given))


class Fence(Protocol):
    """Lets a call pass while this process holds the call's run."""

    key: str
    """The idempotency key of the call."""
    entered: bool | None
    """True if the call was made, False if it is still waiting, None if not known."""

    @property
    def held(self) -> bool:
        """True if the run is held, according to the clocks. Thread-safe."""
        ...

    async def ensure_held(self) -> None:
        """Check in the store that the run is held.

        Raises:
            BaseException: it is not held, or the store cannot be read: the call must not be made.
        """


current_fence: ContextVar[Fence | None] = ContextVar("current_fence", default=None)
"""The fence of the call that this task, or thread, is making."""


def waits_at_fence(key: str | None) -> None:
    """Record that the call with this key is about to wait, so that a call which was never made can be recognized."""
    fence = current_fence.get()
    if fence is not None and fence.entered is None and fence.key == key:
        fence.entered = False


async def pass_fence() -> None:
    """Return once the call may be made. Make it next, without waiting for anything else.

    Raises:
        BaseException: another process has taken the run over, or may have.
    """
    fence = current_fence.get()
    if fence is not None:
        while not fence.held:
            await fence.ensure_held()
        fence.entered = True


def pass_fence_in_thread(fence: Fence | None = None) -> None:
    """Pass the fence in a worker thread of anyio. A call that was cancelled while it waited does not pass either.

    Args:
        fence: the fence; None for the current one.
    """
    fence = current_fence.get() if fence is None else fence
    if fence is None:
        return
    anyio.from_thread.check_cancelled()
    while not fence.held:
        fault = anyio.from_thread.run(_fault_of, fence)
        if fault is not None:
            raise fault
        anyio.from_thread.check_cancelled()
    fence.entered = True


def fenced(call: Callable[[], object]) -> Callable[[], Any]:
    """Return a sync function that first passes the fence in its thread."""

    def run() -> Any:
        pass_fence_in_thread()
        return call_in_thread(call)

    return run


async def _fault_of(fence: Fence) -> BaseException | None:
    """Return the error of a call that may not be made, if any. It is not raised: a thread cannot raise every error."""
    try:
        await fence.ensure_held()
    except BaseException as error:
        if isinstance(error, anyio.get_cancelled_exc_class()):
            raise
        return error
    return None
