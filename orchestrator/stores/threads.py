"""Waiting, in asyncio or trio, for something that another task or another thread does.

`anyio.to_thread` would take a thread per call; here one thread serves every call and wakes each event loop
through the one thread-safe door that it has, once for all of its tasks whose work was done together.

Cancellation is held off as by a shielded `CancelScope`. In asyncio that scope is opened only when a cancellation has
come: it costs about as much as all the rest here, and hardly any wait is cancelled.

Forks of a process whose stores are open.

A forked process inherits SQLite's connections, and with them the belief to hold locks that it does not hold: others
then remove the log that it writes to, also by connections of its own, and what it was told to be durable is gone. So
before a fork connections are closed; both processes open the file anew when they need it. Connections to a server are
the parent's: the child must send nothing by them, not even a farewell.
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
    """The result-to-be of work that another task, or another thread, does.

    Whoever does it sets `value` or `error`, and then calls `tell`; again only if that was interrupted.
    """

    __slots__ = ("done", "error", "signal", "value")

    def __init__(self) -> None:
        self.done = False
        """True if the work is done, or has raised."""
        self.value: T | None = None
        self.error: BaseException | None = None
        self.signal: _AsyncioSignal | _TrioSignal | None = None
        """Of the task that waits."""

    async def wait(self) -> None:
        """Wait until the work is done.

        Cancellation is held off until then (the work goes on anyway, and the caller must know what became of
        it). Only a bare `asyncio.Task.cancel()` breaks the wait; the work is then done all the same.
        """
        signal = self.signal = _TrioSignal() if in_trio() else _AsyncioSignal()
        if not self.done:
            await signal.wait()

    def result(self) -> T:
        """What the work that is done gave; raises what it raised."""
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # an error that refers to its own frame would keep everything in it alive
        return cast(T, self.value)


def tell(jobs: Iterable[Pending[object]]) -> None:
    """Their work is done, or has raised: wake who waits for it, in whatever thread, each event loop once."""
    signals: dict[_Door, list[_AsyncioSignal | _TrioSignal]] = {}
    for job in jobs:
        # In this order: whoever begins to wait leaves its signal first and then looks whether it is done.
        job.done = True
        signal = job.signal
        if signal is not None:
            signals.setdefault(signal.door, []).append(signal)
    for door, those in signals.items():
        # RuntimeError (trio's RunFinishedError is one): the event loop is gone, and with it whoever waited
        with contextlib.suppress(RuntimeError):
            door(_wake, those)


class Bell:
    """Waited for by the task that made it, which may be cancelled, and rung by any thread."""

    __slots__ = ("_door", "_event")

    def __init__(self) -> None:
        self._event = Event()
        if in_trio():
            import trio

            self._door: _Door = trio.lowlevel.current_trio_token().run_sync_soon
        else:
            self._door = asyncio.get_running_loop().call_soon_threadsafe

    def ring(self) -> None:
        """Wake the task, or let it not begin to wait."""
        with contextlib.suppress(RuntimeError):  # its event loop is gone, and with it the task
            self._door(self._event.set)

    async def wait(self) -> None:
        """Wait until it is rung."""
        await self._event.wait()


async def give_way() -> None:
    """Let all other tasks that are ready run once. Cancellation is held off as in `Pending.wait`."""
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
"""Takes a function and its arguments, to be called in the event loop."""


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
        if self._task is not None and not self._woken:  # trio takes it amiss to be told twice
            self._trio.reschedule(self._task)
        self._woken = True

    async def wait(self) -> None:
        if not self._woken:
            self._task = self._trio.current_task()
            await self._trio.wait_task_rescheduled(lambda _: self._trio.Abort.FAILED)


def _comes_again() -> bool:
    """True if it is a scope of anyio that cancels this task: it does so again at the next await, until it is left."""
    return current_effective_deadline() == -math.inf


class Forkable(Protocol):
    """An object that has connections."""

    def before_fork(self) -> None:
        """Close them where they are not to be inherited, and keep others from opening any."""
        ...

    def after_fork(self, *, child: bool) -> None:
        """Go on. In the child no other thread is there any more."""
        ...


_all: WeakSet[Forkable] = WeakSet()
_forking: list[Forkable] = []


def watch(one: Forkable) -> None:
    """Tell it of forks, for as long as it lives."""
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
