"""Dedicated tasks for context managers, and threads for work on large values.

`OwnTask` is an async context manager that any task may open and close, because a dedicated task enters and exits it.
Task groups and cancel scopes must be exited by the task that entered them, but their owner is often closed elsewhere:
by the teardown of a test fixture, a web application's lifespan, another cell of a notebook, or the event loop, which
closes generators that were not finished. Executors, toolboxes, connections to servers and instances of pools therefore
each have an `OwnTask` for their task groups.

`away` runs work whose cost depends on clients' data outside the event loop, so that other requests and runs continue. A
thread alone is not enough: a call of C code holds the interpreter lock, and so blocks the loop, until it returns. Large
values are therefore processed in a thread and in pieces, see `orchestrator.json`.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.lowlevel
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from orchestrator.json import is_small

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

log = logging.getLogger("orchestrator")

_running: set[OwnTask[Any]] = set()
"""Keeps the tasks alive: asyncio holds only weak references to its tasks."""


class OwnTask(Generic[T]):
    """Runs an async context manager in a dedicated task, which enters it, and exits it on `close`.

    The task has a copy of the opener's context variables. If its event loop ends first, it exits the context manager
    then: `asyncio.run` and `trio.run` cancel it, and wait for it.

    Args:
        make: makes the context manager.
        name: its name in errors.
        warns: True to warn if it is not closed before its event loop ends.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[T]], name: str, *, warns: bool = False) -> None:
        self._make, self._name, self._warns = make, name, warns
        self._loop = anyio.lowlevel.current_token()
        self._scope = anyio.CancelScope()
        self._ready, self._closing, self._ended = anyio.Event(), anyio.Event(), anyio.Event()
        self._value: T
        self.fault: BaseException | None = None
        """Error that ended the task."""

    @property
    def over(self) -> bool:
        """True if the context manager was exited or its event loop was closed."""
        return self._ended.is_set() or not is_open(self._loop)

    @property
    def closing(self) -> bool:
        """True if `close` was called."""
        return self._closing.is_set()

    async def open(self) -> T:
        """Enter the context manager and return its value. A group of one exception is unwrapped."""
        _running.add(self)
        if in_trio():
            import trio

            trio.lowlevel.spawn_system_task(self._run, name=self._name, context=copy_context())
        else:
            import asyncio

            asyncio.create_task(self._run(), name=self._name).add_done_callback(self._end)
        await self._wait(self._ready)
        if self.over:
            raise self.fault or RuntimeError(f"{self._name}: its event loop ended while it was opened")
        return self._value

    async def close(self) -> None:
        """Exit the context manager and raise its error, if any. Further calls wait for the first.

        Cancelling this call cancels the remaining cleanup and waits for it to end.
        """
        if not self.over:
            self._closing.set()
            await self._wait(self._ended)
        if self.fault is not None:
            raise self.fault

    def check_loop(self) -> None:
        """Refuse calls from another event loop. Threads without a loop may make calls that do not wait.

        Raises:
            RuntimeError: another event loop is running here.
        """
        import asyncio  # imported late, as in `user_code`

        here: object
        try:
            here = anyio.lowlevel.current_token().native_token if in_trio() else asyncio.get_running_loop()
        except RuntimeError:
            return
        if here is not self._loop.native_token and not self.over:
            raise RuntimeError(
                f"{self._name} is open in another event loop: call it there, from a thread with "
                "`asyncio.run_coroutine_threadsafe(call, loop).result()`, or with `anyio.from_thread.run(function)` "
                "in a thread that AnyIO began"
            )

    async def _wait(self, event: anyio.Event) -> None:
        try:
            await event.wait()
        except anyio.get_cancelled_exc_class():
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._ended.wait()
            raise

    async def _run(self) -> None:
        # Only cancellation may escape: trio ends the program if a system task raises anything else.
        try:
            with self._scope:
                async with self._make() as self._value:
                    self._ready.set()
                    await self._closing.wait()
        except anyio.get_cancelled_exc_class():
            if self._warns and self._is_in_use:
                with suppress(ResourceWarning):  # if warnings are errors
                    warnings.warn(
                        f"{self._name} was not closed before its event loop ended", ResourceWarning, stacklevel=1
                    )
            raise
        except BaseException as error:
            fault = error
            while isinstance(fault, BaseExceptionGroup) and len(fault.exceptions) == 1:
                fault = fault.exceptions[0]
            if isinstance(fault, (KeyboardInterrupt, SystemExit)) and not in_trio():
                raise fault from None  # ends the event loop, as any task of asyncio may; `close` must not do it again
            self.fault = fault
            if self._is_in_use:
                log.error("%s has ended because of an error", self._name, exc_info=error)
        finally:
            self._end()

    @property
    def _is_in_use(self) -> bool:
        return self._ready.is_set() and not self._closing.is_set()

    def _end(self, task: asyncio.Task[None] | None = None) -> None:
        if task is not None and not task.cancelled():
            task.exception()  # or asyncio reports that nothing retrieved it
        _running.discard(self)
        self._ended.set()
        self._ready.set()


def in_trio() -> bool:
    """Return True if trio is running here. Check this before asyncio, whose loop may also run in trio's guest mode."""
    if "trio" not in sys.modules:
        return False
    import trio  # waits if another thread is currently importing it

    return trio.lowlevel.in_trio_run()


def is_open(loop: anyio.lowlevel.EventLoopToken) -> bool:
    """Return True if an event loop has not been closed."""
    native: Any = loop.native_token
    if hasattr(native, "is_closed"):
        return not native.is_closed()
    try:
        native.run_sync_soon(lambda: None)
    except RuntimeError:
        return False
    return True


# -- work on large values ----------------------------------------------------------------------------------------------

_AT_ONCE = 4
_SHARE = 2
"""Threads that work for the same user, or on the same run, at the same time."""
_works_for: ContextVar[tuple[str, ...]] = ContextVar("for whom, and on what, this task works", default=())
_threads: RunVar[tuple[CapacityLimiter, WeakValueDictionary[str, CapacityLimiter]]] = RunVar("threads for large values")
"""The limit of all threads, and that of each share which is in use."""


def works_for(*names: str) -> None:
    """Bound the threads in which `away` works for the current task, and for those that it starts from now on.

    Tasks with a name in common get half of all threads at most, so that others do not wait for them. A task takes its
    place under the first name first, and waits with it for the others.

    Args:
        names: the user, if there is one, then the run: in this order everywhere, so that a user whose requests wait
            takes no place from those of others.
    """
    _works_for.set(names)


async def read_away(function: Callable[[], T], *of: object) -> T:
    """Call `away` for a reply that has come: a caller that is cancelled meanwhile gets the result first."""
    with anyio.CancelScope(shield=True):
        return await away(function, *of)
    raise AssertionError("nothing cancels the scope")


async def away(function: Callable[[], T], *of: object) -> T:
    """Call a slow function: here if the values that it processes are small, else in a thread.

    Only a few threads work at a time, which leaves time for other requests and runs.

    Args:
        function: the function.
        of: all values on whose size its time depends; none if it always takes long, or blocks.
    """
    if of and is_small(of):
        return function()
    try:
        limiter, shares = _threads.get()
    except LookupError:
        limiter, shares = CapacityLimiter(_AT_ONCE), WeakValueDictionary()
        _threads.set((limiter, shares))
    async with AsyncExitStack() as places:
        for name in _works_for.get():
            await places.enter_async_context(shares.setdefault(name, CapacityLimiter(_SHARE)))
        return await to_thread.run_sync(function, limiter=limiter)
