"""The UI message stream of the AI SDK (https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol): a graph behind `useChat`.

    POST /                 what `DefaultChatTransport` sends; the response is a stream until the run ends or waits
    GET /CHAT/stream       the stream of a run that goes on, for a page that was reloaded; 204 if none does
    GET /CHAT              the messages so far, for a page that opens
    DELETE /CHAT           cancel the run of a chat

A message of the client is a message of the user, and one message of the assistant with everything up to the next one.
Texts and thoughts carry the ids of the journal in `providerMetadata`, so that history can be checked.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from orchestrator.errors import OrchestratorError
from orchestrator.executor.run_status import with_status
from orchestrator.protocols import conversation as c
from orchestrator.protocols.door import Door, Offer
from orchestrator.protocols.incoming import (
    Posted,
    PostedAnswer,
    PostedMessage,
    Taken,
    described,
    find_thread,
    interrupt_id,
    read_thread,
    take,
)
from orchestrator.tasks import away
from orchestrator.web import problems
from orchestrator.web.problems import HttpProblem
from orchestrator.web.streams import EventStream

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from orchestrator.executor import Executor
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.kernel.question import Question
    from orchestrator.stores.base import RunInfo
    from orchestrator.web.principals import Authorize

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
"""Header by which clients know the protocol."""
_OWN = "orchestrator"
"""Key of our part of `providerMetadata`."""
_UNSEEN = ("step-start", "data-")
"""Beginnings of the types of parts that no model reads."""

Chunk = dict[str, Any]


class UiMessage(BaseModel, extra="allow"):
    """A message as a client posts it."""

    id: str
    role: str
    parts: list[dict[str, Any]] = []


class UiAnswer(BaseModel):
    """An answer to a question other than whether to call a tool."""

    id: str
    payload: Any = None
    cancelled: bool = False


class ChatRequest(BaseModel, extra="allow"):
    """The body that `DefaultChatTransport` sends."""

    id: str = Field(description="The name of the chat.")
    messages: list[UiMessage] = []
    trigger: str = "submit-message"
    answers: list[UiAnswer] = Field([], description="Answers to questions that came as `data-question`.")


def ui_app(
    executor: Executor,
    graph: GraphDefinition | str,
    *,
    authorize: Authorize | None = None,
    token: str | None = None,
    replies: Collection[str] | None = None,
    state: Collection[str] = (),
    cancel_on_disconnect: bool = False,
    origins: Collection[str] = (),
) -> Starlette:
    """Make the ASGI application that offers a graph to `useChat` of the AI SDK.

    Who opens the executor, and whose requests are answered, is as with `agui_app`.

    Args:
        executor: the executor; with `streams="always"`, replies are streamed from their first word.
        graph: the graph, or the name of one of the executor's graphs. Its first input field gets the user's message.
        authorize: see `orchestrator.web.app`. The name that it returns is journaled, and chats belong to it.
        token: a token that each request must bring as `Authorization: Bearer TOKEN`, 16 to 200 characters.
        replies: names of the nodes whose model replies are shown; None: all nodes.
        state: fields of the graph's state that clients see as the part `data-state`.
        cancel_on_disconnect: whether a run is cancelled if the client that started or answered it goes away while it
            runs, as by `stop()`; otherwise it continues, and the client can come back.
        origins: origins of pages that may send requests and read the answers (CORS), such as
            `http://localhost:3000`. Default: only pages of this server. Cookies are not part of such requests.

    Returns:
        The application.

    Raises:
        ValueError: a node or field does not exist, the graph has no input, or the token or an origin is not usable.
    """
    door = Door(
        executor,
        Offer.of(executor, graph, replies=replies, state=state, cancels=cancel_on_disconnect),
        authorize,
        token,
        origins,
    )

    async def run(request: Request) -> ASGIApp:
        posted = _posted(await door.body(request, ChatRequest))
        taken = await take(door, request, posted)
        opener = posted.messages[-1].id if taken.new and not posted.answers else _opener(taken)
        return door.stream(request, taken.run_id, _chunks(taken, opener), new=taken.new, headers=HEADERS)

    async def resumed(request: Request) -> ASGIApp:
        row = await _row(door, request)
        if row is None or with_status(row).status != "running":
            return Response(status_code=204)
        taken = await take(door, request, Posted(request.path_params["chat"]))
        return door.stream(request, taken.run_id, _chunks(taken, _opener(taken)), headers=HEADERS)

    async def messages(request: Request) -> ASGIApp:
        thread = await find_thread(door, request, request.path_params["chat"])
        if thread.newest is None:
            return JSONResponse({"messages": []})
        await door.permit(request, "stream_events", thread.newest)
        reading = await read_thread(door, request, thread, "show_transcript")
        whole = found = reading.conversation
        if not whole.at_rest:  # the stream of the run has the rest, except what the user wrote
            found = await reading.read(whole.turn)
        new = [one for one in whole.messages.values() if one.role == "user" and one.id not in found.messages]
        return await away(lambda: JSONResponse({"messages": [*ui_messages(found), *map(_user_message, new)]}))

    async def cancel(request: Request) -> ASGIApp:
        row = await _row(door, request)
        if row is None:
            raise HttpProblem(404, "thread-unknown", "there is no such chat")
        by = await door.permit(request, "cancel_run", row)
        return JSONResponse({"status": (await executor.cancel(row.run_id, by=by)).status})

    routes = {("POST", "/"): run, ("GET", "/{chat}/stream"): resumed}
    return door.app(routes | {("GET", "/{chat}"): messages, ("DELETE", "/{chat}"): cancel})


def ui_stream(
    executor: Executor,
    run_id: str,
    *,
    seen: int | None = None,
    replies: Collection[str] | None = None,
    state: Collection[str] = (),
) -> ASGIApp:
    """Return the response that streams the current turn of a run, for a route of your own, which checks who asks.

    Args:
        executor: the open executor.
        run_id: the run.
        seen: the record behind which the stream begins; None: the beginning of the current turn.
        replies: names of the nodes whose model replies are shown; None: all nodes.
        state: fields of the state that are shown as the part `data-state`.

    Returns:
        An ASGI application, which Starlette and FastAPI take as a response.
        A run that does not exist gives a problem (404).
    """
    return _RunStream(executor, run_id, seen, replies, tuple(state))


class _RunStream:
    def __init__(
        self, executor: Executor, run_id: str, seen: int | None, replies: Collection[str] | None, state: tuple[str, ...]
    ) -> None:
        self._executor, self._run_id, self._seen = executor, run_id, seen
        self._replies, self._state = replies, state

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            response: ASGIApp = await self._stream()
        except OrchestratorError as error:
            response = problems.answer(problems.problem_of(error))
        await response(scope, receive, send)

    async def _stream(self) -> EventStream:
        graph = (await self._executor.load(self._run_id)).definition
        door = Door(self._executor, Offer(graph, graph.input_fields[0], self._replies, self._state), None, None)
        whole = await door.reading(self._run_id).read()
        head = whole.run.head
        reading = door.reading(self._run_id)
        await reading.read(whole.turn if self._seen is None else min(max(self._seen, 0), head))
        taken = Taken(self._run_id, reading, head, whole, new=False)
        return EventStream(_chunks(taken, whole.opener), door.streams, door.settings, headers=HEADERS)


async def _row(door: Door, request: Request) -> RunInfo | None:
    """Return the row of the run of a chat, if its reader may see it."""
    row = (await find_thread(door, request, request.path_params["chat"])).newest
    if row is not None:
        await door.permit(request, "stream_events", row)
    return row


def _opener(taken: Taken) -> str:
    return "" if taken.before is None else taken.before.opener


async def _chunks(taken: Taken, opener: str) -> AsyncIterator[str]:
    encoder = Encoder(taken, opener)
    yield _sse([{"type": "start", "messageId": reply_id(opener)}])
    async for batch in taken.reading.turn(taken.least):
        made = [chunk for part in batch.parts for chunk in encoder.chunks(part)]
        if made:
            yield _sse(made)
    yield "data: [DONE]\n\n"


def _sse(chunks: list[Chunk]) -> str:
    return "".join(f"data: {json.dumps(one)}\n\n" for one in chunks)


def reply_id(opener: str) -> str:
    """Return the id of the assistant's message that follows a message of the user."""
    return f"{opener}.reply" if opener else "greeting"


# -- what a client posts -------------------------------------------------------------------------------------------


def _posted(given: ChatRequest) -> Posted:
    """Return a request in the terms of no protocol.

    Raises:
        HttpProblem: it asks to make a reply again.
    """
    if given.trigger != "submit-message":
        detail = f"trigger {given.trigger!r}: the journal is the history, and a reply is not made again: fork the run"
        raise HttpProblem(409, "trigger-refused", detail)
    answers = [PostedAnswer(one.id, one.payload, one.cancelled) for one in given.answers]
    if given.messages and given.messages[-1].role == "assistant":
        answers += _approvals(given.messages[-1].parts)
    return Posted(given.id, [found for one in given.messages for found in _messages(one)], answers)


def _approvals(parts: list[dict[str, Any]]) -> Iterator[PostedAnswer]:
    """Yield the answers that a client put into parts of tools."""
    for part in parts:
        approval = part.get("approval")
        if part.get("state") == "approval-responded" and isinstance(approval, dict):
            payload = {"approved": approval.get("approved")}
            if approval.get("reason"):
                payload["reason"] = approval["reason"]
            yield PostedAnswer(str(approval.get("id")), payload)


def _messages(one: UiMessage) -> Iterator[PostedMessage]:
    """Yield the messages of the journal that a message of the client consists of."""
    if one.role != "assistant":
        texts = [part.get("text") for part in one.parts if part.get("type") == "text"]
        whole = len(texts) == len(one.parts) and all(isinstance(text, str) for text in texts)
        yield PostedMessage(one.id, one.role, "".join(map(str, texts)) if whole else None)
        return
    for part in one.parts:
        kind = str(part.get("type"))
        if kind.startswith("tool-") or kind == "dynamic-tool":
            yield from _tool_messages(part, str(part.get("toolName") or kind.removeprefix("tool-")))
        elif not kind.startswith(_UNSEEN):
            own = _mapping(_mapping(part.get("providerMetadata")).get(_OWN))
            role = "reasoning" if kind == "reasoning" else "assistant"
            yield PostedMessage(str(own.get("message", one.id)), role, str(part.get("text", "")))


def _tool_messages(part: Mapping[str, Any], tool: str) -> Iterator[PostedMessage]:
    call, state, output = str(part.get("toolCallId")), part.get("state"), part.get("output")
    yield PostedMessage("", "assistant", None, [(call, tool, part.get("input"))])
    if state == "output-available":
        text = output if isinstance(output, str) else json.dumps(output)
        yield PostedMessage(f"{call}.result", "tool", text, call=call)
    elif state in ("output-error", "output-denied"):
        yield PostedMessage(f"{call}.result", "tool", part.get("errorText"), call=call)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# -- what a client gets --------------------------------------------------------------------------------------------


class Encoder:
    """Encodes the parts of one turn.

    Args:
        taken: the request.
        opener: the id of the user's message that is answered.
    """

    def __init__(self, taken: Taken, opener: str) -> None:
        self._reading, self._opener = taken.reading, opener
        self._open: dict[str, str] = {}
        """Message -> `text` or `reasoning`."""
        self._step = ""
        """The reply whose step is open."""

    def chunks(self, part: c.Part) -> Iterator[Chunk]:
        """Yield the chunks of a part."""
        match part:
            case c.TextGrew(message, text, reasoning):
                yield from self._grown(message, text, reasoning)
            case c.TextEnded(message):
                yield from self._ended(message)
            case c.TextWithdrawn(message):
                yield from self._withdrawn(message)
            case c.ToolCalled(call, tool, args, message):
                yield from self._in_step(message or call)
                yield {"type": "tool-input-start", "toolCallId": call, "toolName": tool}
                yield {"type": "tool-input-available", "toolCallId": call, "toolName": tool, "input": dict(args)}
            case c.ToolEdited(call, tool, args):
                yield {"type": "tool-input-available", "toolCallId": call, "toolName": tool, "input": dict(args)}
            case c.ToolReturned(call, _, output, error, denied):
                if denied:
                    yield {"type": "tool-output-denied", "toolCallId": call}
                elif error:
                    yield {"type": "tool-output-error", "toolCallId": call, "errorText": part.text}
                else:
                    yield {"type": "tool-output-available", "toolCallId": call, "output": output}
            case c.QuestionClosed(question) if self._reading.conversation.call_of(question) is None:
                yield _question(question, is_open=False)
            case c.StateChanged(values):
                yield {"type": "data-state", "id": "state", "data": dict(values)}
            case c.TurnEnded():
                yield from self._finished(part)
            case _:
                pass

    def _in_step(self, message: str) -> Iterator[Chunk]:
        """Begin the step of a reply, with its reasoning and its calls."""
        reply = message.removesuffix(c.REASONING_END)
        if reply != self._step:
            if self._step:
                yield {"type": "finish-step"}
            self._step = reply
            yield {"type": "start-step"}

    def _grown(self, message: str, text: str, reasoning: bool) -> Iterator[Chunk]:
        kind = "reasoning" if reasoning else "text"
        if message not in self._open:
            yield from self._in_step(message)
            self._open[message] = kind
            yield {"type": f"{kind}-start", "id": message, "providerMetadata": {_OWN: {"message": message}}}
        if text:
            yield {"type": f"{kind}-delta", "id": message, "delta": text}

    def _ended(self, message: str) -> Iterator[Chunk]:
        kind = self._open.pop(message, "")
        if kind:
            yield {"type": f"{kind}-end", "id": message}

    def _withdrawn(self, message: str) -> Iterator[Chunk]:
        """Take a reply back: its step is emptied, unless it has been followed by another one."""
        reply = message.removesuffix(c.REASONING_END)
        yield from self._ended(message)
        if reply == self._step and all(one.removesuffix(c.REASONING_END) == reply for one in self._open):
            self._open.clear()
            yield {"type": "reset-step"}
        else:
            yield {"type": "data-withdrawn", "id": message, "data": {"message": message}}

    def _finished(self, end: c.TurnEnded) -> Iterator[Chunk]:
        for message in [*self._open]:
            yield from self._ended(message)
        reason = "stop"
        for question in () if end.awaits_message else end.questions:
            reason = "tool-calls"
            call = self._reading.conversation.call_of(question)
            if call is None:
                yield _question(question, is_open=True)
            else:
                request = {"type": "tool-approval-request", "approvalId": interrupt_id(question)}
                yield {**request, "toolCallId": call.part.call, "approvalDescriptor": described(question)}
        if self._step:
            yield {"type": "finish-step"}
        if end.status == "cancelled":
            yield {"type": "abort", "reason": "the run was cancelled"}
            return
        if end.status in ("failed", "exhausted", "interrupted"):
            yield {"type": "error", "errorText": end.error or f"the run has ended: {end.status}"}
            reason = "error"
        if end.output is not None and not isinstance(end.output, str):
            yield {"type": "data-output", "id": "output", "data": end.output}
        yield {"type": "finish", "finishReason": reason}


def _question(question: Question, *, is_open: bool) -> Chunk:
    """Return a question that is not about a call as a part of the message."""
    data = {"question": interrupt_id(question), "open": is_open, **described(question)}
    return {"type": "data-question", "id": question.id, "data": data}


def ui_messages(conversation: c.Conversation) -> Iterator[dict[str, Any]]:
    """Yield the messages of a conversation as a client has them."""
    reply: dict[str, Any] = {"id": reply_id(""), "role": "assistant", "parts": []}
    for message in conversation.messages.values():
        if message.role == "user" and not message.id.endswith(c.ANSWER):
            if reply["parts"]:
                yield reply
            yield _user_message(message)
            reply = {"id": reply_id(message.id), "role": "assistant", "parts": []}
        elif message.role in ("assistant", "reasoning"):
            reply["parts"] += _parts(conversation, message, reply["parts"])
    if conversation.at_rest and not (end := conversation.end()).awaits_message:
        forms = [one for one in end.questions if conversation.call_of(one) is None]
        reply["parts"] += [_question(one, is_open=True) for one in forms]
    if reply["parts"]:
        yield reply


def _user_message(message: c.Message) -> dict[str, Any]:
    return {"id": message.id, "role": "user", "parts": [{"type": "text", "text": message.text}]}


def _parts(conversation: c.Conversation, message: c.Message, before: list[Chunk]) -> Iterator[Chunk]:
    thought = message.role == "reasoning"
    follows = before and _mapping(before[-1].get("providerMetadata")).get(_OWN) == {
        "message": f"{message.id}{c.REASONING_END}"
    }
    if ((message.shown and message.text) or message.calls) and not follows:
        yield {"type": "step-start"}
    if message.shown and message.text:
        kind, meta = "reasoning" if thought else "text", {_OWN: {"message": message.id}}
        yield {"type": kind, "text": message.text, "state": "done", "providerMetadata": meta}
    for one in message.calls:
        yield _tool_part(conversation.calls[one.call])


def _tool_part(call: c.Call) -> Chunk:
    part: Chunk = {"type": f"tool-{call.part.tool}", "toolCallId": call.part.call, "input": dict(call.shown)}
    if call.question is not None:
        answer = {} if call.approved is None else {"approved": call.approved}
        part["approval"] = {"id": interrupt_id(call.question), **answer}
    returned = call.returned
    if returned is None:
        states = {None: "approval-requested", True: "approval-responded", False: "output-denied"}
        return {**part, "state": "input-available" if call.question is None else states[call.approved]}
    if returned.denied:
        return {**part, "state": "output-denied"}
    if returned.error:
        return {**part, "state": "output-error", "errorText": returned.text}
    return {**part, "state": "output-available", "output": returned.output}
