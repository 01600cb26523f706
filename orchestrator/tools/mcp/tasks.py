"""Tasks of servers: calls that go on at the server, and whose state is asked for until they end.

Servers of 2025-11-25 make a task if the client asks for one, and give its result in an answer of its own. Servers of
2026-07-28 decide by themselves, and give the result with the state. Both are read into one form here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import anyio

from orchestrator.errors import ToolDisconnected, ToolError, ToolUnavailable, message_of
from orchestrator.tools.mcp.connection import McpConnection, Request
from orchestrator.tools.mcp.session import Progress, as_task

KEPT = 24 * 3600 * 1000
"""Milliseconds for which an older server is asked to keep a task."""
_POLL = 1.0
"""Seconds between two requests for the state of a task, if the server names none."""
_SHORTEST = 0.05
_LONGEST = 600.0
_MISSED = 10
"""Maximum number of requests in a row that do not reach the server."""
_LAST_CALL = 10.0
"""Seconds that a server has to hear that a task is cancelled."""
_LONGEST_ID = 1_000


class TaskLost(ToolDisconnected):
    """Raised when it is not known any more what becomes of a task."""


def begun(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a new task.

    Raises:
        TaskLost: the server names no task.
    """
    task = found.get("taskId")
    if not isinstance(task, str) or not 0 < len(task) <= _LONGEST_ID:
        raise TaskLost("the server made a task without a usable id; so the outcome of the call is unknown")
    return {"task": task, "waited": 0.0, "missed": 0, "answered": [], "pause": _pause(found, 0.0)}


def later(kept: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a task that goes on.

    Args:
        kept: what was kept before.
        found: its state, with `missed` if the server was not reached.

    Raises:
        TaskLost: the server was not reached too often.
    """
    missed = kept["missed"] + 1 if "missed" in found else 0
    if missed > _MISSED:
        raise TaskLost(f"{found['missed']}; so it is not known what became of the task of the call")
    waited = kept["waited"] + kept["pause"]
    pause = _pause(found, waited) if missed == 0 else max(kept["pause"], min(2.0**missed, _LONGEST))
    same = {name: kept[name] for name in ("round", "task", "answered")}
    return {**same, "waited": waited, "missed": missed, "pause": pause}


def _pause(found: Mapping[str, Any], waited: float) -> float:
    """Return the seconds until the state is asked for: the longer a task takes, the more rarely."""
    named, kept = _seconds(found.get("pollIntervalMs")), _seconds(found.get("ttlMs"))
    wanted = _POLL if named is None else named
    pause = max(wanted, waited / 10)
    if kept is not None:  # asked for before the server forgets it
        pause = min(pause, max(wanted, kept / 10, _POLL))
    return min(max(pause, _SHORTEST), _LONGEST)


def _seconds(millis: object) -> float | None:
    """Return a number of milliseconds in seconds; None if it is none."""
    known = isinstance(millis, int | float) and not isinstance(millis, bool) and 0 <= millis < math.inf
    return millis / 1000 if known else None  # type: ignore[operator]


class Tasks:
    """The tasks of one call of a tool.

    Args:
        connection: the server.
        key: idempotency key of the call; empty: no question can be asked.
        progress: receives what the server says about the state of the task.
    """

    def __init__(self, connection: McpConnection, key: str, progress: Progress | None = None) -> None:
        self._connection, self._key, self._progress = connection, key, progress

    async def poll(self, task: str, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a task, or as `resultType` its state: `task` if it goes on, or `input_required`.

        Args:
            task: its id.
            answers: answers to what it asked.

        Raises:
            TaskLost: the server does not know it, or has cancelled it.
            ToolError: it failed, in the server's words.
        """
        try:
            stateless = await self._connection.is_stateless()
            if answers and not stateless:
                return await self._result(task, answers)
            if answers:
                await self._send("tasks/update", task, {"inputResponses": answers})
            found = as_task(await self._send("tasks/get", task))
            if not stateless and found.get("status") not in ("working", "cancelled"):
                return await self._result(task, answers)
        except (ToolUnavailable, ToolDisconnected) as error:
            if isinstance(error, TaskLost):
                raise
            if answers:
                raise self._lost(f"cannot be sent the answers: {message_of(error)}") from error
            return {"resultType": "task", "missed": message_of(error)}
        said = found.get("statusMessage")
        if self._progress is not None and isinstance(said, str) and found.get("status") == "working":
            await self._progress(None, None, self._connection.safe(said))
        return self._state(found)

    async def _send(self, method: str, task: str, more: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        try:
            return await self._connection.send(Request(method, {"taskId": task, **more}), {})
        except ToolUnavailable:
            raise
        except ToolError as error:  # the server's words
            raise self._lost(f"does not know its task any more: {message_of(error)}") from None

    async def _result(self, task: str, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a task of an older server, or what it asks first."""
        request = Request("tasks/result", {"taskId": task})
        if not self._key:
            return await self._connection.send(request, {})
        waits = answers and self._connection.holds(self._key)  # else the process that asked has ended: it asks again
        return await self._connection.hold(self._key, request, {"inputResponses": answers} if waits else {})

    def _state(self, found: Mapping[str, Any]) -> dict[str, Any]:
        safe, why = self._connection.safe, found.get("statusMessage")
        match found.get("status"):
            case "working":
                return {**found, "resultType": "task"}
            case "input_required":
                return {**found, "resultType": "input_required", "requestState": None}
            case "completed" if isinstance(found.get("result"), Mapping):
                return {**found["result"], "resultType": "complete"}
            case "failed":
                error = found.get("error")
                said = error.get("message") if isinstance(error, Mapping) else None
                raise ToolError(f"MCP server {self._connection.server.name!r}: {safe(str(said or why or 'it failed'))}")
            case "cancelled":
                raise self._lost(f"has cancelled its task{f': {safe(str(why))}' if why else ''}")
            case other:
                raise self._lost(f"gives its task the unknown status {safe(str(other))[:100]!r}")

    def _lost(self, why: str) -> TaskLost:
        server = self._connection.server.name
        return TaskLost(f"MCP server {server!r} {why}; so the outcome of the call is unknown")

    async def cancel(self, task: str) -> None:
        """Ask the server to end a task.

        Raises:
            ToolError: the server cannot be reached, or refuses.
            ToolDisconnected: the connection was lost.
        """
        await self._connection.send(Request("tasks/cancel", {"taskId": task}), {})

    async def end(self, task: str) -> None:
        """Ask the server to end a task whose result is not needed any more; a refusal is ignored."""
        with anyio.move_on_after(_LAST_CALL, shield=True), contextlib.suppress(ToolError, ToolDisconnected):
            await self.cancel(task)
