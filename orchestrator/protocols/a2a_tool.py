"""Agents that speak A2A 1.0 as tools. What such an agent asks is a question of the run that calls it.

A call is a task of the agent. If it takes longer, the call is suspended, and the run sleeps between requests for its
state. Messages have ids that follow from the key of the call, so that an agent which knows them does nothing twice.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Self, cast
from uuid import uuid4

import anyio
import httpx2

from orchestrator.errors import ToolDisconnected, ToolError, ToolUnavailable
from orchestrator.models.base import trace_headers
from orchestrator.tools.mcp.elicitation import secret_in
from orchestrator.tools.mcp.rounds import Asker
from orchestrator.tools.mcp.untrusted import check_answers, exactly_without
from orchestrator.tools.result import Effect, Risk, ToolFailure
from orchestrator.tools.tool import Tool, checked

CARD = "/.well-known/agent-card.json"
_LONGEST = 8 << 20
"""Bytes of a response."""
_ASKED = 4_000
"""Characters of a question."""
_QUESTIONS, _ROUNDS = 20, 20
"""Questions that an agent asks at a time, and times that it asks in a call."""
_LONGEST_ID = 1_000
_LONGEST_QUESTIONS = 100_000
"""Characters of all that an agent asks at a time."""
_ENDS = {
    "TASK_STATE_COMPLETED": "",
    "TASK_STATE_FAILED": "failed",
    "TASK_STATE_REJECTED": "refused the task",
    "TASK_STATE_CANCELED": "was cancelled",
}
"""States in which a task has ended, and what the agent then did, without a reply."""
_NEEDS = {
    "TASK_STATE_AUTH_REQUIRED": "needs credentials, which a call cannot give: give them in headers=",
    "": "answers with neither a reply nor the state of a task",
}
"""States in which a task lives and cannot go on here, and why."""
_GOING = ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED")
_TEXT = {"type": "string"}
_LONGEST_PAUSE = 600.0
_MISSED = 10
"""Maximum number of requests for the state of a task in a row that do not reach the agent."""
_NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
    httpx2.ProxyError,
)
_LAST_CALL = 5.0
"""Seconds to tell an agent that its task is no longer wanted."""


class A2aAgent(Tool):
    """An agent at an address, as a tool with one argument, the message to it.

        weather = A2aAgent("https://agents.example.org/weather/", name="weather", description="Knows the weather.")
        graph = react(tools=[weather])

    `await A2aAgent.found(url)` takes name and description from the agent's card. They come from outside: look at them.

    Args:
        url: the address of the agent. Its card is below it, and names an address on the same host.
        name: the tool's name.
        description: what the agent does, for models.
        headers: headers of all requests, such as `Authorization`.
        risk: the risk of a call.
        effect: the effect of a call; `idempotent` if the agent does not take a message with the same id twice.
        timeout: seconds that a call may take, without the time in which a person is asked; None: no limit.
        poll: seconds between requests for the state of a task that goes on; doubled each time when the run sleeps.
        patience: seconds for which a call waits for its task, before the run sleeps between these requests.

    Raises:
        TypeError: name, risk, effect or timeout are not valid.
    """

    untrusted = True

    def __init__(
        self,
        url: str,
        *,
        name: str,
        description: str,
        headers: Mapping[str, str] | None = None,
        risk: Risk = "dangerous",
        effect: Effect = "irreversible",
        timeout: float | None = 600.0,
        poll: float = 1.0,
        patience: float = 5.0,
    ) -> None:
        checked(name, risk, effect, timeout)
        self.name, self.description = name, description
        self.risk, self.effect, self.timeout = risk, effect, timeout
        self._url, self._headers = url.removesuffix("/"), dict(headers or {})
        self._secrets = tuple(part for value in self._headers.values() for part in (value, value.rpartition(" ")[2]))
        self._poll, self._patience = poll, patience
        self._endpoint = ""

    @classmethod
    async def found(cls, url: str, *, name: str = "", **options: Any) -> Self:
        """Return the agent at an address, with the description in its card.

        Args:
            url: the address.
            name: the tool's name; empty: that in the card.
            options: see the class.

        Raises:
            ToolError: there is no such agent.
        """
        made = cls(url, name=name or "agent", description="", **options)
        card = await made._card()
        skills = [str(one.get("description", "")) for one in _objects(card.get("skills"))]
        said = _plain("\n".join(dict.fromkeys([str(card.get("description", "")), *skills])))[:_ASKED]
        plain = "".join(
            sign if sign.isascii() and (sign.isalnum() or sign in "_-") else "_" for sign in str(card["name"])
        )
        return cls(url, name=name or plain[:64], description=said, **options)

    async def call(self, message: str, ctx: object = None, idempotency_key: str = "") -> Any:
        """Send a message to the agent, and return its reply.

        Args:
            message: the message.
        """
        asker = cast("Asker", ctx) if hasattr(ctx, "ask_inside") else None
        key = idempotency_key or uuid4().hex
        secret = "" if asker is None else await asker.suspended_with(key)
        kept: dict[str, Any] = json.loads(secret) if secret else {}
        while True:
            known = kept.get("task", "")
            try:
                task = await self._continued(asker, key, kept, secret) if kept else await self._begun(key, message)
                known = known or str(task.get("id") or "")
                task = await self._settled(task)
            except anyio.get_cancelled_exc_class():
                if known and (asker is None or asker.is_stopped):
                    with anyio.move_on_after(_LAST_CALL, shield=True), contextlib.suppress(ToolError, ConnectionError):
                        await self._end(known)
                raise
            state = task["state"]
            if state in _GOING:
                missed = kept.get("missed", 0) + 1 if "missed" in task else 0
                if missed > _MISSED:
                    raise ToolDisconnected(f"{task['missed']}; so it is not known what became of the task of the call")
                kept = {**_kept(task, kept), "waited": kept.get("waited", 0) + 1, "missed": missed}
            elif state in _ENDS:
                return _result(self.name, task)
            elif state != "TASK_STATE_INPUT_REQUIRED":
                said = f": {task['said'][:_ASKED]}" if task["said"] else ""
                raise await self._left(task, f"{_NEEDS.get(state, f'is in the state {state[:100]!r}')}{said}")
            elif asker is None:
                said = task["said"][:_ASKED]
                raise await self._left(task, f"asks something, which only a run can ask a person: {said}")
            elif kept.get("round", 0) >= _ROUNDS:
                raise await self._left(task, f"asks more than {_ROUNDS} times")
            else:
                kept = {**_kept(task, kept), "round": kept.get("round", 0) + 1, "questions": await self._asked(task)}
            secret = json.dumps(kept)

    async def abandon(self, key: str, secret: str) -> None:
        """End the task of a call, because the run has ended.

        Args:
            key: idempotency key of the call.
            secret: what the call kept to continue.

        Raises:
            ToolError: the agent refuses.
            ConnectionError: it is not reached.
        """
        await self._end(json.loads(secret)["task"])

    def failure(self, error: Exception) -> ToolFailure:
        """See `Tool.failure`; a lost connection has its own message."""
        found = super().failure(error)
        if isinstance(error, ConnectionError):
            return found.model_copy(update={"error": str(error)})
        return found

    async def _begun(self, key: str, message: str) -> dict[str, Any]:
        return await self._send({"messageId": f"{key}.0", "role": "ROLE_USER", "parts": [{"text": message}]})

    async def _continued(self, asker: Asker | None, key: str, kept: Mapping[str, Any], secret: str) -> dict[str, Any]:
        """Go on with a task, once there are answers to its questions, or it is time to ask for its state.

        Raises:
            Suspend: a person is asked, or the run sleeps.
            ToolError: the person refuses.
            ToolDisconnected: the agent does not take the answers, or does not know the task any more.
        """
        pause = min(self._poll * 2 ** min(kept.get("waited", 0), 10), _LONGEST_PAUSE)
        if "questions" not in kept:
            await (anyio.sleep(pause) if asker is None else asker.sleep_inside(key, pause, secret=secret))
            return await self._polled(kept["task"])
        parts = []
        for at, one in enumerate(kept["questions"]):
            assert asker is not None
            answer = await asker.ask_inside(
                key,
                str(at),
                prompt=f"Agent {self.name!r} asks: {one['prompt']}",
                payload={"tool": self.name, "agent": self._url, **({"call": one["call"]} if one["call"] else {})},
                schema=one["schema"],
                secret=secret,
                begun=True,
            )
            if answer.type != "value":
                await self._end(kept["task"])
                raise ToolError(f"what agent {self.name!r} asks was not answered: {getattr(answer, 'reason', '')}")
            said = {"question": one["question"], "payload": answer.value}
            text = answer.value if isinstance(answer.value, str) else json.dumps(answer.value)
            parts.append({"data": said} if one["question"] else {"text": text})
        number, context = kept["round"], {"contextId": kept["context"]} if kept["context"] else {}
        message = {"messageId": f"{key}.{number}", "role": "ROLE_USER", "parts": parts, "taskId": kept["task"]}
        try:
            return await self._send(message | context)
        except (ToolError, ConnectionError) as error:
            raise await self._left({"id": kept["task"]}, f"does not take the answers: {error}") from None

    async def _asked(self, task: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return what a task asks.

        Raises:
            ToolDisconnected: a person cannot be asked that; the task is cancelled.
        """
        try:
            return _questions(task)
        except ValueError as error:
            raise await self._left(task, str(error)) from None

    async def _left(self, task: Mapping[str, Any], why: str) -> ToolDisconnected:
        """Cancel a task that has not ended and cannot go on. Return the error: what it has done by then is unknown."""
        what = f"agent {self.name!r} {why}"
        try:
            await self._end(str(task["id"]))
        except (KeyError, ToolError, ConnectionError):
            return ToolDisconnected(f"{what}; its task could not be cancelled, so the outcome of the call is unknown")
        return ToolDisconnected(f"{what}; its task was cancelled, so the outcome of the call is unknown")

    async def _end(self, task: str) -> None:
        await self._rpc("CancelTask", {"id": task})

    async def _settled(self, task: dict[str, Any]) -> dict[str, Any]:
        """Return a task, with its `state` and what its status says (`said`). Waits a little, if it goes on."""
        with anyio.move_on_after(self._patience):
            while _state(task) in _GOING and "missed" not in task:
                await anyio.sleep(self._poll)
                task = await self._polled(str(task.get("id") or ""))
        said = _texts([_mapping(_mapping(task.get("status")).get("message"))])
        return {**task, "state": _state(task), "said": said}

    async def _polled(self, task: str) -> dict[str, Any]:
        """Return a task as it is now. One whose agent is not reached goes on, with the reason as `missed`.

        Raises:
            ToolDisconnected: the agent does not know it any more.
        """
        try:
            return await self._rpc("GetTask", {"id": task})
        except (ToolUnavailable, ConnectionError) as error:
            return {"id": task, "status": {"state": _GOING[0]}, "missed": str(error)}
        except ToolError as error:
            raise ToolDisconnected(f"{error}; so the outcome of the call is unknown") from None

    async def _send(self, message: Mapping[str, Any]) -> dict[str, Any]:
        found = await self._rpc("SendMessage", {"message": message, "configuration": {"returnImmediately": True}})
        if isinstance(found.get("message"), Mapping):  # a reply without a task
            return {"status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [found["message"]]}
        return dict(_mapping(found.get("task")))

    # -- requests --------------------------------------------------------------------------------------------------

    async def _card(self) -> Mapping[str, Any]:
        try:
            card = await self._request("GET", f"{self._url}{CARD}", None)
        except ConnectionError as error:
            raise ToolUnavailable(str(error)) from None
        if not isinstance(card.get("name"), str):
            raise ToolError(f"{self._url}{CARD} is not the card of an A2A agent")
        return card

    async def _address(self) -> str:
        """Return the address of the agent's JSON-RPC interface.

        Raises:
            ToolError: it has none of version 1.0, or it is on another host: its headers are for this one.
        """
        if not self._endpoint:
            for one in _objects((await self._card()).get("supportedInterfaces")):
                if one.get("protocolBinding") == "JSONRPC" and str(one.get("protocolVersion", "")).startswith("1."):
                    found = str(one.get("url"))[:_ASKED]
                    break
            else:
                raise ToolError(f"agent {self.name!r} has no JSON-RPC interface of A2A 1.0")
            if _origin(found) != _origin(self._url):
                raise ToolError(f"agent {self.name!r} names an address on another host: {found!r}")
            self._endpoint = found
        return self._endpoint

    async def _rpc(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": uuid4().hex, "method": method, "params": params}
        found = await self._request("POST", await self._address(), body)
        error = found.get("error")
        if isinstance(error, Mapping):
            raise ToolError(f"agent {self.name!r}: {_plain(str(error.get('message')))[:_ASKED]}")
        return dict(_mapping(found.get("result")))

    async def _request(self, method: str, url: str, body: object) -> Mapping[str, Any]:
        """Make a request, and return the JSON object in the answer; empty if it is another value.

        Raises:
            ToolUnavailable: the request did not arrive, or was not taken.
            ToolDisconnected: it may have been taken, and the answer is lost or cannot be read.
            ToolError: `url` is no address.
        """
        headers = httpx2.Headers({**self._headers, "A2A-Version": "1.0", "Accept": "application/json"})
        traced = trace_headers.get()
        for name, value in {} if traced is None else traced().items():
            headers.setdefault(name, value)
        try:
            async with (
                httpx2.AsyncClient(timeout=60, follow_redirects=False) as client,
                client.stream(method, url, json=body, headers=headers) as response,
            ):
                data = bytearray()
                async for piece in response.aiter_bytes():
                    data += piece
                    if len(data) > _LONGEST:
                        raise ToolDisconnected(f"agent {self.name!r} sends more than {_LONGEST:,} bytes")
                if (status := response.status_code) != 200:  # a gateway may have lost the answer, except with 503
                    kind = ToolDisconnected if (status < 300 or status >= 500) and status != 503 else ToolUnavailable
                    raise kind(f"agent {self.name!r}: HTTP {status} at {url}")
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            kind = ToolUnavailable if isinstance(error, _NOT_SENT) else ToolDisconnected
            raise kind(f"agent {self.name!r} at {url}: {str(error) or type(error).__name__}") from None
        except httpx2.InvalidURL as error:
            raise ToolError(f"agent {self.name!r}: {url!r} is not an address: {error}") from None
        try:
            found = json.loads(exactly_without(data.decode(), self._secrets))
        except (ValueError, RecursionError):
            raise ToolDisconnected(f"agent {self.name!r} does not answer with JSON at {url}") from None
        return _mapping(found)


def _state(task: Mapping[str, Any]) -> str:
    return str(_mapping(task.get("status")).get("state") or "")


def _kept(task: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is needed to go on with a task.

    Raises:
        ToolDisconnected: it has no usable id, so it cannot be followed.
    """
    ids = {"task": str(task.get("id") or ""), "context": str(task.get("contextId") or before.get("context", ""))}
    if not ids["task"] or max(map(len, ids.values())) > _LONGEST_ID:
        raise ToolDisconnected("the agent made a task without a usable id, so the outcome of the call is unknown")
    return {**ids, "round": before.get("round", 0)}


def _questions(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a task asks.

    An agent of this library says its questions as data, with a digest that binds the answer to them; others as text.

    Raises:
        ValueError: it asks for a secret, for too much, or in a form that cannot be used.
    """
    message = _mapping(_mapping(task.get("status")).get("message"))
    data = [_mapping(part.get("data")) for part in _objects(message.get("parts"))]
    asked = [
        {
            "question": one["question"],
            "prompt": _plain(_prompt(one))[:_ASKED],
            "schema": _mapping(one.get("schema")) or _TEXT,
            "call": one.get("call"),
        }
        for one in data
        if isinstance(one.get("question"), str)
    ]
    try:
        size = len(json.dumps(asked, allow_nan=False))
    except (ValueError, RecursionError):
        raise ValueError("asks in a form that is not JSON") from None
    if size > _LONGEST_QUESTIONS:
        raise ValueError("asks for too much input")
    for one in asked[:_QUESTIONS]:
        try:
            check_answers(one["schema"])
        except ValueError as error:
            raise ValueError(f"asks in a form that cannot be used: {error}") from None
        if name := secret_in(one["schema"]):
            raise ValueError(f"asks for {name!r}, a secret, which the journal would keep: give it in headers=")
    said = str(task["said"])[:_ASKED] or "what next?"
    return asked[:_QUESTIONS] or [{"question": "", "prompt": said, "schema": _TEXT, "call": None}]


def _prompt(asked: Mapping[str, Any]) -> str:
    call = _mapping(asked.get("call"))
    args = f" {json.dumps(call['args'])}" if "args" in call else ""
    return f"{asked.get('prompt', '')}{args}"


def _result(name: str, task: Mapping[str, Any]) -> Any:
    """Return the reply of a task that has ended.

    Raises:
        ToolError: it has none.
    """
    if what := _ENDS[task["state"]]:
        said = f": {task['said'][:_ASKED]}" if task["said"] else ""
        raise ToolError(f"agent {name!r} {what}{said}")
    artifacts = _objects(task.get("artifacts"))
    data = [part["data"] for one in artifacts for part in _objects(one.get("parts")) if "data" in part]
    text = _texts(artifacts) or str(task["said"])
    if not data:
        return text
    return data[0] if len(data) == 1 and not text else {"text": text, "data": data}


def _texts(holders: Iterable[Mapping[str, Any]]) -> str:
    """Return the text in the parts of messages or artifacts."""
    parts = (part for one in holders for part in _objects(one.get("parts")))
    return _plain("\n".join(part["text"] for part in parts if isinstance(part.get("text"), str)))


def _plain(text: str) -> str:
    """Return a text without control characters and invisible ones, which hide instructions from people."""
    return "".join(sign for sign in text if sign.isprintable() or sign in "\n\t")


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        found = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ToolError(f"{url!r} is not an address: {error}") from None
    return found.scheme, found.host, found.port
