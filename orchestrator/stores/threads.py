"""Waiting, in asyncio or trio, for the work of another task or thread.

`anyio.to_thread` would use a thread per call; here one thread serves all calls and wakes each event loop by its
thread-safe method, once for all of its tasks whose work was done together.

Cancellation is delayed as by a shielded `CancelScope`. In asyncio that scope is opened only after a cancellation:
it costs about as much as everything else here, and waits are rarely cancelled.

It also handles forks of a process whose stores are open.

A forked process inherits SQLite's connections, but not the locks that they assume: other processes then remove the log
to which it writes, also by its own connections, and acknowledged commits are lost. So before a fork connections are
closed; both processes open the file again when they need it. Connections to a server belong to the parent: the child
must send nothing on them, not even a termination message.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar, cast
from weakref import WeakSet

from anyio import CancelScope, Event, current_effective_deadline

from orchestrator.tasks import in_trio

if TYPE_CHECKING:
    import trio


T = TypeVar("T")


class Pending(Generic[T]):
    """The future result of work that another task or thread does.

    The worker sets `value` or `error`, and then calls `tell`; again only if that was interrupted.
    """

    __slots__ = ("done", "error", "signal", "value")

    def __init__(self) -> None:
        self.done = False
        """True if the work is done, or has failed."""
        self.value: T | None = None
        self.error: BaseException | None = None
        self.signal: _AsyncioSignal | _TrioSignal | None = None
        """Signal that wakes the waiting task."""

    async def wait(self) -> None:
        """Wait until the work is done.

        Cancellation is delayed until then (the work continues anyway, and the caller must learn its outcome). Only a
        bare `asyncio.Task.cancel()` ends the wait; the work is then done all the same.
        """
        signal = self.signal = _TrioSignal() if in_trio() else _AsyncioSignal()
        if not self.done:
            await signal.wait()

    def result(self) -> T:
        """Return the result of the work, or raise its exception. Call it only when the work is done."""
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # an error that refers to its own frame would keep everything in it alive
        return cast(T, self.value)


def tell(jobs: Iterable[Pending[object]]) -> None:
    """Wake the tasks that wait for finished jobs, in any thread, each event loop once."""
    signals: dict[_Door, list[_AsyncioSignal | _TrioSignal]] = {}
    for job in jobs:
        # In this order: a waiting task first leaves its signal and then checks whether the job is done.
        job.done = True
        signal = job.signal
        if signal is not None:
            signals.setdefault(signal.door, []).append(signal)
    for door, those in signals.items():
        # RuntimeError (includes trio's RunFinishedError): the event loop has ended, and with it the waiting task
        with contextlib.suppress(RuntimeError):
            door(_wake, those)


class Bell:
    """An event for one task, which created it and may be cancelled while waiting; any thread may set it."""

    __slots__ = ("_door", "_event")

    def __init__(self) -> None:
        self._event = Event()
        if in_trio():
            import trio

            self._door: _Door = trio.lowlevel.current_trio_token().run_sync_soon
        else:
            self._door = asyncio.get_running_loop().call_soon_threadsafe

    def ring(self) -> None:
        """Wake the task, or make its next wait return at once."""
        with contextlib.suppress(RuntimeError):  # its event loop has ended, and with it the task
            self._door(self._event.set)

    async def wait(self) -> None:
        """Wait until `ring` is called."""
        await self._event.wait()


async def give_way() -> None:
    """Let all other ready tasks run once. Cancellation is delayed as in `Pending.wait`."""
    if in_trio():
        import trio

        await trio.lowlevel.cancel_shielded_checkpoint()
    else:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if not _comes_again():
                raise


_Door: TypeAlias = Callable[..., object]
"""Schedules a function with its arguments in the event loop."""


def _wake(signals: list[_AsyncioSignal | _TrioSignal]) -> None:
    for signal in signals:
        signal.wake()


class _AsyncioSignal:
    __slots__ = ("_future", "_woken", "door")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.door: _Door = loop.call_soon_threadsafe
        self._future: asyncio.Future[None] = loop.create_future()
        self._woken = False

    def wake(self) -> None:
        self._woken = True
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        try:
            await self._future
        except asyncio.CancelledError:
            if not _comes_again():
                raise
            if not self._woken:
                self._future = asyncio.get_running_loop().create_future()
                with CancelScope(shield=True):
                    await self._future


class _TrioSignal:
    __slots__ = ("_task", "_trio", "_woken", "door")

    def __init__(self) -> None:
        import trio

        self._trio = trio.lowlevel
        self.door: _Door = trio.lowlevel.current_trio_token().run_sync_soon
        self._task: trio.lowlevel.Task | None = None
        self._woken = False

    def wake(self) -> None:
        if self._task is not None and not self._woken:  # trio forbids a second call
            self._trio.reschedule(self._task)
        self._woken = True

    async def wait(self) -> None:
        if not self._woken:
            self._task = self._trio.current_task()
            await self._trio.wait_task_rescheduled(lambda _: self._trio.Abort.FAILED)


def _comes_again() -> bool:
    """Return True if a scope of anyio cancels this task: it does so at each further await, until the task leaves it."""
    return current_effective_deadline() == -math.inf


class Forkable(Protocol):
    """An object with connections that must be closed before a fork."""

    def before_fork(self) -> None:
        """Close connections that must not be inherited, and prevent new ones."""
        ...

    def after_fork(self, *, child: bool) -> None:
        """Resume work. The child has no other threads."""
        ...


_all: WeakSet[Forkable] = WeakSet()
_forking: list[Forkable] = []


def watch(one: Forkable) -> None:
    """Call the methods of an object when this process forks, as long as the object exists."""
    _all.add(one)


def _before() -> None:
    _forking[:] = _all
    for one in _forking:
        one.before_fork()


def _after(*, child: bool) -> None:
    for one in _forking:
        one.after_fork(child=child)
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=lambda: _after(child=False), after_in_child=lambda: _after(child=True)
    )
