"""A clock that jumps over waiting time.

The idea, and the rule when to jump, are those of Trio's `trio.testing.MockClock`, which is used on Trio. On
asyncio, an event loop does the same with a selector that jumps instead of waiting for a timer.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, TypeVarTuple, Unpack

import anyio

if TYPE_CHECKING:
    import trio.testing

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Backend: TypeAlias = Literal["asyncio", "trio"]


class MockClock:
    """A clock on which waiting takes no time.

    Time stands still while anything runs. When all tasks wait, it jumps to the next moment at which one of them is due:
    a pause, a time limit, a deadline. So a wait of an hour takes no real time in a test, and one hour by this clock.

    Both the executor and the event loop have to use it:

        clock = MockClock()

        async def main():
            async with Executor(clock=clock) as executor:
                await executor.start(graph, "input")

        clock.run(main)

    With pytest and anyio's plugin, a fixture selects the event loop of a test:

        @pytest.fixture(params=["asyncio", "trio"])
        def anyio_backend(request, clock):
            return clock.backend(request.param)

    Tasks that wait for a thread, a process or a socket look as idle as tasks that sleep. If tested code has such tasks,
    `idle` must be longer than their waits; functions that are not `async`, and SQLite stores, use threads.

    Args:
        now: Unix time in seconds at which it starts.
        idle: for how many seconds of real time all tasks must wait before it jumps.
    """

    def __init__(self, now: float = 1_000_000_000.0, *, idle: float = 0.0) -> None:
        self._began, self._idle = now, idle
        self._jumped = 0.0
        self._trio: trio.testing.MockClock | None = None

    def __repr__(self) -> str:
        return f"MockClock(now={self.now()!r}, idle={self._idle!r})"

    @property
    def idle(self) -> float:
        """Seconds of real time for which all tasks must wait before the clock jumps."""
        return self._idle

    def now(self) -> float:
        """Return Unix time in seconds."""
        return self._began + self.steady()

    def steady(self) -> float:
        """Return the seconds since the clock was made."""
        return self._jumped + (self._trio.current_time() if self._trio is not None else 0.0)

    def jump(self, seconds: float) -> None:
        """Advance the clock, in the thread of the event loop.

        Args:
            seconds: the number of seconds.

        Raises:
            ValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError("time does not go backwards")
        if self._trio is not None:
            self._trio.jump(seconds)
        else:
            self._jumped += seconds

    def backend(self, name: str = "asyncio") -> tuple[str, dict[str, Any]]:
        """Return an event loop that uses this clock, in the form that anyio's pytest plugin accepts.

        Args:
            name: "asyncio" or "trio".

        Returns:
            The name and the options of the backend.
        """
        if name == "asyncio":
            return name, {"loop_factory": lambda: _Loop(self)}
        import trio.testing

        if self._trio is None:
            self._trio = trio.testing.MockClock(autojump_threshold=self._idle)
        return name, {"clock": self._trio}

    def run(self, func: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts, backend: Backend = "asyncio") -> T:
        """Run an async function in an event loop that uses this clock, as `anyio.run` does.

        Args:
            func: the function.
            args: its positional arguments.
            backend: which event loop.

        Returns:
            What the function returns.
        """
        name, options = self.backend(backend)
        return anyio.run(func, *args, backend=name, backend_options=options)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop of asyncio that uses a mock clock."""

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        super().__init__(_Selector(clock))

    def time(self) -> float:
        return self._clock.steady()


class _Selector(selectors.DefaultSelector):
    """A selector that jumps to the next timer of the event loop if nothing is ready."""

    def __init__(self, clock: MockClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(self._clock.idle)
        if not ready:
            self._clock.jump(timeout)
        return ready
