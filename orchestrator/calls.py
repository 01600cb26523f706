"""Calls of code that others wrote: which exceptions stop them from outside, and the fence that each passes first.

Exceptions
----------

Nodes, tools, effects, models and all other code that an executor calls may raise anything. What stops them goes on to
whoever it is for. What they raise themselves is a failure like any other:

    a cancellation       stops it if a scope around it, or its task, was cancelled since; else the code raised it
    SystemExit           stops it if a handler of a system signal raised it; else the code raised it
    GeneratorExit        stops it if its coroutine is closed; else the code raised it
    KeyboardInterrupt    stops it
    Interrupt            stops it: an executor's own signal
    any other            the code raised it

asyncio ends its event loop by a `SystemExit` that leaves a task, so code is contained in the task that calls it.

Code that cancels its own task of asyncio, and returns before it waits for anything, has returned. A `GeneratorExit` out
of a thread that the code itself started has asyncio close all that waits for it: the drive ends, and counts as a death.

The fence
---------

A call may wait between the decision to make it and the call itself: for a worker thread, an instance of a pool, a rate
limit, a connection. Meanwhile the process may have been stopped for an hour, and another process may have taken the run
over. So whatever makes the call passes the fence of its run first, in the task or thread that makes it, as the last
thing that it does before.

The executor sets the fence of each effect; tools and models pass it. Outside of a run there is none, and nothing to
pass.
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
    """Return what stopped the code that this came out of: the exception or one in its groups; None: the code raised it.

    Call it in the function that caught the exception: its traceback shows whether a coroutine is closed.

    Args:
        error: the exception.
        task: the task of asyncio whose cancellation stops the code. Default: the one that runs it.
        before: how often that task had been cancelled when the code began, see `cancels_of`.
    """
    found = [] if isinstance(error, Exception) else [one for one in flatten(error) if _stops(one, task, before)]
    return max(found, key=lambda one: isinstance(one, KeyboardInterrupt | SystemExit), default=None)


def stopped_by(error: BaseException) -> bool:
    """Return True if a call was stopped from outside, and not by its own code or a signal of the executor."""
    return not isinstance(outside(error), Interrupt | None)


def as_error(error: BaseException) -> Exception:
    """Return an exception that code of users raised as an error: itself if it is one."""
    if isinstance(error, Exception):
        return error
    kind, said = type(error).__name__, message_of(error)
    words = f"sys.exit({said})" if isinstance(error, SystemExit) else said or f"{kind} of its own code"
    failed = EffectFailed(words, type=kind)
    failed.__cause__ = error
    return failed


def flatten(error: BaseException) -> list[BaseException]:
    """The exceptions in a group and in its inner groups; an exception that is no group by itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in flatten(inner)]


class contained:  # noqa: N801  used like a function, as contextlib.suppress
    """A context manager around code of users: what the code itself raises leaves it as an `Exception`.

    Entering it returns the task of asyncio that runs the code, and how often that had been cancelled.
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
    """Call a function of users in a worker thread: a `GeneratorExit` out of it would close the coroutine that waits."""
    try:
        return call(*args)
    except GeneratorExit as error:
        raise as_error(error) from error


def native_task() -> asyncio.Task[Any] | None:
    """Return the task of asyncio that runs this; None in another event loop."""
    import asyncio  # here: a third of what `from orchestrator import Graph` would import

    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def cancels_of(task: asyncio.Task[Any] | None) -> int:
    """Return how often a task was cancelled. A task that continued keeps the count, unless it calls `uncancel`."""
    return 0 if task is None else task.cancelling()


def is_cancelled(task: asyncio.Task[Any] | None, before: int) -> bool:
    """Return True if a scope around this code is cancelled, or the task was cancelled more often than `before`."""
    return anyio.current_effective_deadline() == -math.inf or cancels_of(task) > before


async def take_back_cancels(task: asyncio.Task[Any]) -> None:
    """Have code go on in the current task whose own code cancelled it, also where that is still to be raised."""
    import asyncio

    while task.cancelling():
        task.uncancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)


def _stops(error: BaseException, task: asyncio.Task[Any] | None, before: int) -> bool:
    if isinstance(error, SystemExit):  # Python gives a handler of a signal its number and the frame that it interrupts
        frames = pairwise(frame for frame, _ in walk_tb(error.__traceback__))
        return any(_is_handler(frame, interrupted) for interrupted, frame in frames)
    if isinstance(error, GeneratorExit):  # closing raises a new one in each coroutine, at its own `await`
        return error.__traceback__ is None or error.__traceback__.tb_next is None
    if not isinstance(error, anyio.get_cancelled_exc_class()):
        return isinstance(error, KeyboardInterrupt | Interrupt)
    return is_cancelled(task or native_task(), before)


def _is_handler(frame: FrameType, interrupted: FrameType) -> bool:
    names, others, _, values = inspect.getargvalues(frame)
    given = [*map(values.get, names), *values.get(others or "", ())]
    return any(isinstance(number, int) and place is interrupted for number, place in pairwise(given))


class Fence(Protocol):
    """Lets a call pass for as long as this process holds the call's run."""

    key: str
    """The idempotency key of the call."""
    entered: bool | None
    """True if the call was made, False if it still waits, None if that is not known."""

    @property
    def held(self) -> bool:
        """True if the run is held, by the clocks. Any thread may read it."""
        ...

    async def ensure_held(self) -> None:
        """Ask the store whether the run is held.

        Raises:
            BaseException: it is not, or the store cannot tell: the call is not to be made.
        """


current_fence: ContextVar[Fence | None] = ContextVar("current_fence", default=None)
"""The fence of the call that this task, or thread, works on."""


def waits_at_fence(key: str | None) -> None:
    """Note that the call of this key is about to wait for its turn, so that a call which never got one is known."""
    fence = current_fence.get()
    if fence is not None and fence.entered is None and fence.key == key:
        fence.entered = False


async def pass_fence() -> None:
    """Return when the call may be made. Make it next, without waiting for anything else.

    Raises:
        BaseException: another process has taken the run over, or may have.
    """
    fence = current_fence.get()
    if fence is not None:
        while not fence.held:
            await fence.ensure_held()
        fence.entered = True


def pass_fence_in_thread(fence: Fence | None = None) -> None:
    """As `pass_fence`, in a worker thread of anyio. A call that was cancelled while it waited does not pass either.

    Args:
        fence: None: the current one.
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
    """A sync function that passes the fence in its thread before it does anything."""

    def run() -> Any:
        pass_fence_in_thread()
        return call_in_thread(call)

    return run


async def _fault_of(fence: Fence) -> BaseException | None:
    """Return why a call may not be made. Not raised: event loops treat some exceptions from threads specially."""
    try:
        await fence.ensure_held()
    except BaseException as error:
        if isinstance(error, anyio.get_cancelled_exc_class()):
            raise
        return error
    return None
