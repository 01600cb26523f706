"""Limits of concurrent steps, and the time after which steps that never wait yield to other tasks.

`Executor(concurrency=, pools=)` makes limiters in `executor.resources`, and each step takes a `Slot` in them in
`executor.node_call`. `Limits(concurrency=)` and `Graph(pools=)` are the kernel's (`kernel.admission`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.lowlevel import checkpoint

YIELD_AFTER = 0.005
"""Seconds after which the steps of an executor that never wait yield to the event loop."""


class Signal:
    """An event that costs nothing until a task waits for it: most are set before, or never."""

    __slots__ = ("_event", "_set")

    def __init__(self) -> None:
        self._event: anyio.Event | None = None
        self._set = False

    def is_set(self) -> bool:
        """Return True if `set` was called."""
        return self._set

    def set(self) -> None:
        """Wake the waiting tasks; later calls of `wait` return at once."""
        self._set = True
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        """Wait until the signal is set. This is a checkpoint, even if the signal is set already."""
        if self._event is None:
            if self._set:
                await checkpoint()
                return
            self._event = anyio.Event()
        await self._event.wait()


class YieldBudget:
    """The time at which the steps of an executor last yielded to the event loop."""

    __slots__ = ("_yielded", "_yielding")

    def __init__(self) -> None:
        self._yielded = time.monotonic()
        self._yielding = 0
        """Number of step tasks that have yielded and wait to continue."""

    @property
    def due(self) -> bool:
        """Return True if it is time to yield. Step tasks that are all ready share `YIELD_AFTER`."""
        return not 0 <= time.monotonic() - self._yielded < YIELD_AFTER / (1 + self._yielding)

    async def give_way(self) -> None:
        """Let all other ready tasks run."""
        self._yielded = time.monotonic()
        self._yielding += 1
        try:
            await checkpoint()
        finally:
            self._yielding -= 1


class Slot:
    """The place of one step: `async with place`. It is released while the step only waits for other steps.

    All steps pass the gates in the same order, a pool before the limit of all steps, so no two wait for each other.
    """

    __slots__ = ("_coming", "_gates", "_held", "_waits")

    def __init__(self, *gates: anyio.CapacityLimiter) -> None:
        self._gates = gates
        self._held = self._coming = False
        self._waits = 0

    async def __aenter__(self) -> None:
        await self._take()

    async def __aexit__(self, *error: object) -> None:
        self._give_up()

    @asynccontextmanager
    async def while_waiting(self) -> AsyncIterator[None]:
        """Release the place inside this context. A step with several calls has none while one of them waits."""
        self._waits += 1
        self._give_up()
        try:
            yield
        finally:
            self._waits -= 1
            if not (self._waits or self._held or self._coming):
                await self._come_back()

    async def _come_back(self) -> None:
        self._coming = True
        try:
            await self._take()
        finally:
            self._coming = False
        if self._waits:  # another call of the step waits by now
            self._give_up()

    async def _take(self) -> None:
        passed: list[anyio.CapacityLimiter] = []
        try:
            for gate in self._gates:
                await gate.acquire_on_behalf_of(self)
                passed.append(gate)
            self._held = True
        finally:
            if not self._held:
                for gate in passed:
                    gate.release_on_behalf_of(self)

    def _give_up(self) -> None:
        if self._held:
            self._held = False
            for gate in self._gates:
                gate.release_on_behalf_of(self)
