"""Calls of servers before 2026-07-28 that go on while a person is asked.

Such a server asks in the middle of a call, and waits. The call is held by a task of its own, so that the step that
makes it can be suspended by the question and come back with the answer. To the step it looks like a call in several
rounds (see `rounds`). When the process ends, the call is lost, and its outcome unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
from anyio.abc import TaskGroup

from orchestrator.errors import ToolDisconnected, ToolError
from orchestrator.tools.mcp.elicitation import HELD, MOST_ROUNDS, form_of

Make = Callable[[], Awaitable[dict[str, Any]]]
"""Makes the call, and returns the server's result."""


class _Held:
    """One call in progress."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.changed = anyio.Event()
        """Set when it has ended or the server asks."""
        self.asked: Mapping[str, Any] | None = None
        """What the server asks and waits for."""
        self.answered = anyio.Event()
        self.answer: dict[str, Any] = {}
        self.rounds = 0
        self.ended = False
        self.result: dict[str, Any] | None = None
        self.error: Exception | None = None

    async def run(self, make: Make) -> None:
        try:
            with self.scope:
                self.result = await make()
        except Exception as error:  # raised in the step that makes the call
            self.error = error
        finally:
            self.ended = True
            self.changed.set()


class HeldCalls:
    """The calls of one server that are in progress, by their idempotency keys."""

    def __init__(self, server: str, secrets: tuple[str, ...]) -> None:
        self._server, self._secrets = server, secrets
        self._calls: dict[str, _Held] = {}

    async def call(self, key: str, make: Make, more: Mapping[str, Any], host: TaskGroup) -> dict[str, Any]:
        """Make a call, or go on with it, until it ends or the server asks; cancelling this ends the call.

        Args:
            key: idempotency key of the call.
            make: makes it.
            more: the answers to what the server asked, if the call is in progress.
            host: holds the call.

        Raises:
            ToolDisconnected: the process that made the call has ended.
            Exception: what `make` raises.
        """
        held = self._calls.get(key)
        if more:
            if held is None:
                raise ToolDisconnected(
                    f"MCP server {self._server!r} waited for an answer during the call, and the process that made the "
                    "call has ended, so the outcome of the call is unknown"
                )
            held.asked, held.answer = None, more["inputResponses"][HELD]
            if not held.ended:
                held.changed = anyio.Event()
            held.answered.set()
        else:
            held = self._calls[key] = _Held()
            host.start_soon(held.run, make)
        try:
            await held.changed.wait()
        except BaseException:
            self.drop(key)
            raise
        if held.asked is not None:
            return {"resultType": "input_required", "inputRequests": {HELD: held.asked}}
        self._calls.pop(key, None)
        if held.error is not None:
            raise held.error
        if held.result is None:
            raise ToolDisconnected(f"MCP server {self._server!r} was closed during the call: its outcome is unknown")
        return held.result

    def __contains__(self, key: str) -> bool:
        return key in self._calls

    def drop(self, key: str) -> None:
        """End a call whose result is not needed any more."""
        held = self._calls.pop(key, None)
        if held is not None:
            held.scope.cancel()

    async def ask(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to what the server asks during a call.

        Raises:
            ToolError: the question cannot be asked.
        """
        asking = {"method": "elicitation/create", "params": dict(params)}
        form_of(asking, self._server, self._secrets)
        running = [held for held in self._calls.values() if held.asked is None and not held.ended]
        if len(running) != 1:
            why = "only a run can ask a person" if not running else "several calls are in progress: ask one at a time"
            raise ToolError(f"the user cannot be asked: {why}")
        held = running[0]
        held.rounds += 1
        if held.rounds > MOST_ROUNDS:
            raise ToolError(f"the user is not asked more than {MOST_ROUNDS} times during a call")
        held.answered, held.asked = anyio.Event(), asking
        held.changed.set()
        await held.answered.wait()
        return held.answer
