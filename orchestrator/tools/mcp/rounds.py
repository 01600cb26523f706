"""Calls in several rounds: a server that needs input first says what it asks, and is called again with the answers.

Since 2026-07-28 such an answer, `input_required`, means that the call did not happen yet. Each request in it is a
question of the run, asked inside the call, so that the next round is the same effect under the same key. Its requests
and the state that the server wants back are kept with the call, and hidden from people and models. So is the task that
a call has become: between two requests for its state the run sleeps.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import anyio

from orchestrator.errors import ToolError
from orchestrator.tools.mcp.elicitation import HELD, LONGEST, MOST_ROUNDS, form_of, refused
from orchestrator.tools.mcp.tasks import TaskLost, Tasks, begun, later

_REQUESTS = 20
"""Maximum number of requests in one round."""
_PAUSE = 0.1
"""Seconds before a server that only returned a state is called again, doubled each time."""


class Asker(Protocol):
    """The part of a step's context that asks and waits inside a call."""

    is_stopped: bool

    async def ask_inside(
        self,
        key: str,
        name: str,
        *,
        prompt: str,
        payload: Mapping[str, object],
        schema: Mapping[str, object],
        secret: str,
        begun: bool,
    ) -> Any: ...

    async def sleep_inside(self, key: str, seconds: float, *, secret: str) -> None: ...

    async def suspended_with(self, key: str) -> str: ...


Send = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Makes the call with further parameters, and returns the server's result."""


class Rounds:
    """The rounds of one call.

    Args:
        server: the server's name.
        secrets: values that are blanked in what the server says.
        tool: the name of the tool, as the run knows it.
        key: idempotency key of the call.
        asker: asks the questions; None outside of a run.
    """

    def __init__(self, server: str, secrets: tuple[str, ...], tool: str, key: str, asker: Asker | None) -> None:
        self._server, self._secrets, self._tool, self._key, self._asker = server, secrets, tool, key, asker
        self._pause = _PAUSE

    async def call(self, send: Send, tasks: Tasks) -> dict[str, Any]:
        """Make the call, from where it was suspended if it was, and return its result.

        Args:
            send: makes it.
            tasks: asks for the state of its task, if it becomes one.

        Raises:
            ToolError: the server asks for what it does not get, or too often.
            TaskLost: it is not known what becomes of its task.
            Suspend: a person is asked, or the run sleeps.
        """
        secret = "" if self._asker is None else await self._asker.suspended_with(self._key)
        while True:
            kept: dict[str, Any] = json.loads(secret) if secret else {}
            task = str(kept.get("task") or "")
            try:
                more = await self._continued(kept, secret) if kept else {}
                found = await (tasks.poll(task, more.get("inputResponses", {})) if task else send(more))
            except anyio.get_cancelled_exc_class():
                if task and (self._asker is None or self._asker.is_stopped):
                    await tasks.end(task)
                raise
            if found.get("resultType", "complete") == "complete":
                return found
            try:
                secret = self._next(found, kept)
            except ToolError as error:
                if not task:
                    raise
                await tasks.end(task)
                raise TaskLost(f"{error}; its task was cancelled, so the outcome of the call is unknown") from None

    def _next(self, found: Mapping[str, Any], kept: Mapping[str, Any]) -> str:
        """Return what the call needs to continue after an answer of the server, as text.

        Raises:
            ToolError: what the server asks is refused.
            TaskLost: it is not known what becomes of its task.
        """
        if found["resultType"] == "task" and "task" not in kept:
            return json.dumps({"round": kept.get("round", 0), **begun(found)})
        asks = self._requests(found, kept) if found["resultType"] == "input_required" else {}
        if "task" in kept and not asks.get("requests"):  # it goes on, or got these answers just before
            return json.dumps(later(kept, found))
        secret = json.dumps(asks)
        if len(secret) > LONGEST:
            raise self._refused("asks for too much input")
        return secret

    def _requests(self, found: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
        """Return the requests that the server makes before the call continues, and its state.

        Raises:
            ToolError: they are refused.
        """
        asked, state = found.get("inputRequests") or {}, found.get("requestState")
        if not isinstance(asked, dict) or not (state is None or isinstance(state, str)) or not (asked or state):
            raise self._refused("asks for input in an unknown form")
        round_, answered = kept.get("round", 0) + 1, kept.get("answered", [])
        asked = {name: one for name, one in asked.items() if name == HELD or name not in answered}
        if round_ > MOST_ROUNDS:
            raise self._refused(f"asks for input for more than {MOST_ROUNDS} rounds")
        if len(asked) > _REQUESTS:
            raise self._refused("asks for too much input")
        for request in asked.values():
            form_of(request, self._server, self._secrets)
        if asked and self._asker is None:
            raise self._refused("asks for input, which only a run can ask a person for: call the tool in a graph")
        going = {name: kept[name] for name in ("task", "waited", "missed", "pause") if name in kept}
        more = {**going, "answered": [*answered, *asked]} if going else {}
        again = {"again": True} if found.get("again") is True else {}
        return {"round": round_, "requests": asked, "state": state, **more, **again}

    async def _continued(self, kept: Mapping[str, Any], secret: str) -> dict[str, Any]:
        """Return the parameters with which the call continues, once there are answers to all requests, or it is time.

        Raises:
            Suspend: a person is asked, or the run sleeps.
        """
        requests: Mapping[str, Any] = kept.get("requests", {})
        if not requests:
            await self._wait(kept, secret)
        answers: dict[str, Any] = {}
        for name, request in requests.items():
            assert self._asker is not None
            form = form_of(request, self._server, self._secrets)
            answer = await self._asker.ask_inside(
                self._key,
                name,
                prompt=form.prompt,
                payload={"tool": self._tool, "server": self._server},
                schema=form.schema,
                secret=secret,
                begun="task" in kept or HELD in requests,
            )
            answers[name] = form.answered(answer.value) if answer.type == "value" else {"action": "decline"}
        if "again" in kept:
            if any(one["action"] != "accept" for one in answers.values()):
                raise self._refused("needs a page to be opened, and the user declined")
            return {}
        state = {} if kept.get("state") is None else {"requestState": kept["state"]}
        return {**({"inputResponses": answers} if answers else {}), **state}

    async def _wait(self, kept: Mapping[str, Any], secret: str) -> None:
        if "task" not in kept:
            await anyio.sleep(self._pause)
            self._pause *= 2
        elif self._asker is None:
            await anyio.sleep(kept["pause"])
        else:
            await self._asker.sleep_inside(self._key, kept["pause"], secret=secret)

    def _refused(self, why: str) -> ToolError:
        return refused(self._server, why)
