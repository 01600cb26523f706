"""AG-UI 1.0: a graph as an agent of user interfaces such as CopilotKit (https://docs.ag-ui.com).

    POST /                 a `RunAgentInput`; gives a stream of events, until the run ends or waits for a person
    GET /?threadId=ID      the current turn of a thread, for readers that post nothing
    DELETE /?threadId=ID   cancel the run of a thread

A record's number is the id of its last event. A request with the header `Last-Event-ID` posts nothing: it reads on.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.errors import install_command
from orchestrator.protocols import conversation as c
from orchestrator.tasks import away
from orchestrator.values import utc

try:
    from ag_ui import core as ag
except ImportError:
    raise ImportError(f"AG-UI needs other packages: {install_command('agui')}") from None
from starlette.responses import JSONResponse

from orchestrator.protocols.door import Door, Offer
from orchestrator.protocols.incoming import (
    Posted,
    PostedAnswer,
    PostedMessage,
    Taken,
    described,
    find_thread,
    interrupt_id,
    take,
)
from orchestrator.web.problems import HttpProblem

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from orchestrator.executor import Executor
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.kernel.question import Question
    from orchestrator.protocols.turns import Reading
    from orchestrator.web.principals import Authorize

VERSION = "1.0"
"""The version of the protocol."""
_REASONS = {"input": "input_required"}
"""Kind of a question -> the reason of its interrupt; others are their own."""


def agui_app(
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
    """Make the ASGI application that offers a graph to AG-UI clients.

    Served alone, it opens the executor while the server runs, and continues the runs that an earlier process left. In
    another application, that one opens the executor. Without `authorize` or `token`, only requests whose host is this
    machine's loopback interface are answered.

    Args:
        executor: the executor; with `streams="always"`, replies are streamed from their first word.
        graph: the graph, or the name of one of the executor's graphs. Its first input field gets the user's message.
        authorize: see `orchestrator.web.app`. The name that it returns is journaled, and threads belong to it.
        token: a token that each request must bring as `Authorization: Bearer TOKEN`, 16 to 200 characters.
        replies: names of the nodes whose model replies are shown; None: all nodes.
        state: fields of the graph's state that clients see as `STATE_SNAPSHOT` and `STATE_DELTA`.
        cancel_on_disconnect: whether a run is cancelled if the client that started or answered it goes away while it
            runs; otherwise it continues, and the client can come back.
        origins: origins of pages that may send requests and read the answers (CORS), such as
            `http://localhost:3000`. Default: only pages of this server. Cookies are not part of such requests.

    Returns:
        The application.

    Raises:
        ImportError: the extra `agui` is not installed.
        ValueError: a node or field does not exist, the graph has no input, or the token or an origin is not usable.
    """
    offer = Offer.of(executor, graph, replies=replies, state=state, cancels=cancel_on_disconnect)
    door = Door(executor, offer, authorize, token, origins)

    async def run(request: Request) -> ASGIApp:
        given = await door.body(request, ag.RunAgentInput)
        posted = _posted(given, _seen(request))
        taken = await take(door, request, posted)
        own = posted.messages[-1].id if taken.new and posted.messages and not posted.answers else ""
        return _stream(door, request, taken, given.thread_id, given.run_id, own)

    async def read(request: Request) -> ASGIApp:
        thread = _thread(request)
        taken = await take(door, request, Posted(thread, seen=_seen(request)))
        return _stream(door, request, taken, thread, f"{taken.run_id}@{taken.reading.head}", "")

    async def cancel(request: Request) -> ASGIApp:
        thread = _thread(request)
        row = (await find_thread(door, request, thread)).newest
        if row is None:
            raise HttpProblem(404, "thread-unknown", "there is no such thread")
        by = await door.permit(request, "cancel_run", row)
        stopped = await executor.cancel(row.run_id, by=by)
        return JSONResponse({"threadId": thread, "status": stopped.status})

    return door.app({("POST", "/"): run, ("GET", "/"): read, ("DELETE", "/"): cancel})


def _thread(request: Request) -> str:
    return request.query_params.get("threadId", "")


def _seen(request: Request) -> int | None:
    """Return the last record that the client has read, if it reads on."""
    given = request.headers.get("last-event-id", "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 16 else None


def _stream(door: Door, request: Request, taken: Taken, thread: str, run: str, own: str) -> ASGIApp:
    async def events() -> AsyncIterator[str]:
        encoder = Encoder(thread, run, taken.reading, own)
        yield await away(lambda: _sse(encoder.begin(again=not taken.new), None))  # with the whole conversation
        async for batch in taken.reading.turn(taken.least):
            ends = any(isinstance(one, c.TurnEnded) for one in batch.parts)
            made = [event for part in batch.parts for event in encoder.events(part)]
            if made:
                yield _sse(made, taken.reading.head if ends else batch.seq)

    return door.stream(request, taken.run_id, events(), new=taken.new)


def _sse(events: list[ag.BaseEvent], seq: int | None) -> str:
    """Return events as text of the stream, with the number of their record at the last one."""
    texts = [f"data: {event.model_dump_json(by_alias=True)}\n\n" for event in events]
    if seq is not None:
        texts[-1] = f"id: {seq}\n{texts[-1]}"
    return "".join(texts)


# -- what a client posts -------------------------------------------------------------------------------------------


def _posted(given: ag.RunAgentInput, seen: int | None) -> Posted:
    """Return a request in the terms of no protocol.

    Raises:
        HttpProblem: the client brings tools or a state that is no object.
    """
    if given.tools:
        names = ", ".join(repr(one.name) for one in given.tools[:10])
        detail = f"tools: the tools are those of the graph, and a client cannot bring {names}: leave `tools` empty"
        raise HttpProblem(422, "tools-refused", detail)
    if not isinstance(given.state, Mapping | None):
        raise HttpProblem(422, "state-refused", "state: give an object, or leave it out")
    return Posted(
        given.thread_id,
        [_message(one) for one in given.messages if one.role != "activity"],
        [PostedAnswer(one.interrupt_id, one.payload, one.status == "cancelled") for one in given.resume or ()],
        given.state,
        seen,
    )


def _message(one: ag.Message) -> PostedMessage:
    calls = [
        (call.id, call.function.name, _json(call.function.arguments)) for call in getattr(one, "tool_calls", None) or ()
    ]
    content = getattr(one, "content", None)
    if isinstance(content, list):
        texts = [part.text for part in content if isinstance(part, ag.TextPart)]
        content = "".join(texts) if len(texts) == len(content) else None
    elif content is None and not calls:
        content = ""
    return PostedMessage(one.id, str(one.role), content, calls, getattr(one, "tool_call_id", ""))


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# -- what a client gets --------------------------------------------------------------------------------------------


class Encoder:
    """Encodes the parts of one turn.

    Args:
        thread: the client's name of the conversation.
        run: the client's name of the turn.
        reading: the run, read up to its beginning.
        own: the id of the message that this client posted and therefore has; empty: none.
    """

    def __init__(self, thread: str, run: str, reading: Reading, own: str) -> None:
        self._thread, self._run, self._reading, self._own = thread, run, reading, own
        conversation = reading.conversation
        self._messages = {one.id: _snapshot_of(one) for one in conversation.messages.values() if _is_shown(one)}
        """What the client has, so that a withdrawn reply can be taken back."""
        self._state: Mapping[str, Any] = conversation.state
        self._open: dict[str, bool] = {}
        """Message -> True if it is reasoning."""
        self._steps: list[str] = []

    def begin(self, *, again: bool) -> list[ag.BaseEvent]:
        """Return the first events.

        Args:
            again: whether the client comes back: it gets everything that was before, too.
        """
        started = ag.RunStartedEvent(thread_id=self._thread, run_id=self._run, protocol_version=VERSION)
        found: list[ag.BaseEvent] = [started]
        if again:
            found.append(self._snapshot())
        if self._state:
            found.append(ag.StateSnapshotEvent(snapshot=dict(self._state)))
        return found

    def events(self, part: c.Part) -> Iterator[ag.BaseEvent]:
        """Yield the events of a part."""
        match part:
            case c.UserSaid(message, text):
                yield from self._user_said(message, text)
            case c.TextGrew(message, text, reasoning):
                yield from self._grown(message, text, reasoning)
            case c.TextEnded(message):
                yield from self._ended(message)
            case c.TextWithdrawn(message):
                yield from self._ended(message)
                self._messages.pop(message, None)
                yield self._snapshot()
            case c.ToolCalled():
                yield from self._called(part)
            case c.ToolEdited(call, _, args):
                yield ag.CustomEvent(name="tool_call_edited", value={"toolCallId": call, "args": dict(args)})
            case c.ToolReturned(call, text, _, error):
                name = f"{call}.result"
                self._messages[name] = ag.ToolMessage(id=name, tool_call_id=call, content=text, error=error or None)
                metadata = {"error": error, "denied": part.denied} if error else None
                yield ag.ToolCallResultEvent(
                    message_id=name, tool_call_id=call, content=text, role="tool", metadata=metadata
                )
            case c.StepBegan(name):
                self._steps.append(name)
                yield ag.StepStartedEvent(step_name=name)
            case c.StepEnded(name) if name in self._steps:
                self._steps.remove(name)
                yield ag.StepFinishedEvent(step_name=name)
            case c.StateChanged(values):
                yield self._changed(values)
            case c.TurnEnded():
                for message in [*self._open]:
                    yield from self._ended(message)
                yield from (ag.StepFinishedEvent(step_name=name) for name in self._steps)
                yield self._finished(part)
            case _:
                pass

    def _user_said(self, message: str, text: str) -> Iterator[ag.BaseEvent]:
        self._messages[message] = ag.UserMessage(id=message, content=text)
        if message != self._own:
            yield ag.TextMessageStartEvent(message_id=message, role="user")
            yield ag.TextMessageContentEvent(message_id=message, delta=text)
            yield ag.TextMessageEndEvent(message_id=message)

    def _grown(self, message: str, text: str, reasoning: bool) -> Iterator[ag.BaseEvent]:
        if message not in self._open:
            self._open[message] = reasoning
            if reasoning:
                self._messages.setdefault(message, ag.ReasoningMessage(id=message, content=""))
                yield ag.ReasoningStartEvent(message_id=message)
                yield ag.ReasoningMessageStartEvent(message_id=message, role="reasoning")
            else:
                self._messages.setdefault(message, ag.AssistantMessage(id=message, content=""))
                yield ag.TextMessageStartEvent(message_id=message, role="assistant")
        if text:
            known: Any = self._messages[message]
            known.content = (known.content or "") + text
            grown = ag.ReasoningMessageContentEvent if reasoning else ag.TextMessageContentEvent
            yield grown(message_id=message, delta=text)

    def _ended(self, message: str) -> Iterator[ag.BaseEvent]:
        reasoning = self._open.pop(message, None)
        if reasoning:
            yield ag.ReasoningMessageEndEvent(message_id=message)
            yield ag.ReasoningEndEvent(message_id=message)
        elif reasoning is not None:
            yield ag.TextMessageEndEvent(message_id=message)

    def _called(self, part: c.ToolCalled) -> Iterator[ag.BaseEvent]:
        holder = part.message or part.call
        message: Any = self._messages.setdefault(holder, ag.AssistantMessage(id=holder))
        message.tool_calls = [*(message.tool_calls or ()), _tool_call(part)]
        yield ag.ToolCallStartEvent(
            tool_call_id=part.call, tool_call_name=part.tool, parent_message_id=part.message or None
        )
        yield ag.ToolCallArgsEvent(tool_call_id=part.call, delta=json.dumps(part.args))
        yield ag.ToolCallEndEvent(tool_call_id=part.call)

    def _snapshot(self) -> ag.BaseEvent:
        return ag.MessagesSnapshotEvent(messages=[*self._messages.values()])

    def _changed(self, values: Mapping[str, Any]) -> ag.BaseEvent:
        before, self._state = self._state, values
        if not before:
            return ag.StateSnapshotEvent(snapshot=dict(values))
        operations: list[Any] = [*patch(before, values)]
        return ag.StateDeltaEvent(delta=operations)

    def _finished(self, end: c.TurnEnded) -> ag.BaseEvent:
        if end.status in ("failed", "exhausted", "interrupted"):
            return ag.RunErrorEvent(message=end.error or f"the run has ended: {end.status}", code=end.status)
        outcome: ag.RunFinishedOutcome = ag.RunFinishedSuccessOutcome()
        if end.status == "cancelled":
            outcome = ag.RunFinishedCancelledOutcome()
        elif end.questions and not end.awaits_message:
            outcome = ag.RunFinishedInterruptOutcome(interrupts=[self._interrupt(one) for one in end.questions])
        return ag.RunFinishedEvent(thread_id=self._thread, run_id=self._run, outcome=outcome, result=end.output)

    def _interrupt(self, question: Question) -> ag.Interrupt:
        about = described(question)
        call = self._reading.conversation.call_of(question)
        approval = "tool_call" if "tool" in about["call"] else "confirmation"
        return ag.Interrupt(
            id=interrupt_id(question),
            reason=approval if question.kind == "approval" else _REASONS.get(question.kind, question.kind),
            message=question.prompt or None,
            tool_call_id=None if call is None else call.part.call,
            response_schema=about["schema"],
            expires_at=None if question.deadline is None else utc(question.deadline).isoformat(),
            metadata={
                "question": question.id,
                "digest": question.digest,
                **{name: about[name] for name in ("kind", "node", "choices", "call", "shown")},
            },
        )


def _is_shown(message: c.Message) -> bool:
    return message.role in ("user", "tool") or bool(message.calls) or (message.shown and bool(message.text))


def _snapshot_of(message: c.Message) -> ag.Message:
    if message.role == "user":
        return ag.UserMessage(id=message.id, content=message.text)
    if message.role == "tool":
        error = None if message.result is None else message.result.error
        return ag.ToolMessage(id=message.id, tool_call_id=message.call, content=message.text, error=error or None)
    if message.role == "reasoning":
        return ag.ReasoningMessage(id=message.id, content=message.text)
    calls = [_tool_call(call) for call in message.calls]
    return ag.AssistantMessage(id=message.id, content=message.text or None, tool_calls=calls or None)


def _tool_call(part: c.ToolCalled) -> ag.ToolCall:
    called = ag.FunctionCall(name=part.tool, arguments=json.dumps(part.args))
    return ag.ToolCall(id=part.call, type="function", function=called)


def patch(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the operations of a JSON Patch (RFC 6902) that turn one value into another.

    Args:
        before: plain JSON.
        after: plain JSON.
        path: the JSON Pointer of both.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() - after.keys()):
            yield {"op": "remove", "path": f"{path}/{_escaped(name)}"}
        for name, value in after.items():
            place = f"{path}/{_escaped(name)}"
            if name not in before:
                yield {"op": "add", "path": place, "value": value}
            else:
                yield from patch(before[name], value, place)
    elif isinstance(before, list) and isinstance(after, list) and after[: len(before)] == before:
        yield from ({"op": "add", "path": f"{path}/-", "value": one} for one in after[len(before) :])
    elif type(before) is not type(after) or before != after:
        yield {"op": "replace", "path": path, "value": after}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
