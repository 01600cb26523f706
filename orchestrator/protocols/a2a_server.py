"""A2A 1.0: a graph as an agent of other agents (https://a2a-protocol.org). JSON-RPC over HTTP.

    GET /.well-known/agent-card.json    what the agent is
    POST /                              SendMessage, SendStreamingMessage, GetTask, ListTasks, CancelTask,
                                        SubscribeToTask, and the four of push notifications

A task is a run, and its id is the run's; a context is a thread. Only types of the SDK are used: bodies and streams are
bounded as in the web API, which the SDK's server does not do.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, RootModel, StrictInt, StrictStr, ValidationError
from starlette.responses import JSONResponse

from orchestrator.errors import OrchestratorError, RunUnknown, StoreError, install_command
from orchestrator.executor.run_status import with_status
from orchestrator.executor.start import check_run_id
from orchestrator.kernel.status import FINAL
from orchestrator.protocols.a2a_tasks import STATES, Encoder, context_of, task_of
from orchestrator.protocols.a2a_tool import CARD
from orchestrator.protocols.door import Door, Offer
from orchestrator.protocols.incoming import (
    THREAD,
    PostedAnswer,
    PostedMessage,
    Taken,
    answer,
    interrupt_id,
    start,
    tell,
)
from orchestrator.tasks import away
from orchestrator.web.problems import HttpProblem, fault, problem_of

try:
    from a2a.types import a2a_pb2 as pb
    from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
except ImportError:
    raise ImportError(f"A2A needs other packages: {install_command('a2a')}") from None

if TYPE_CHECKING:
    from google.protobuf.message import Message as ProtoMessage
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from orchestrator.executor import Executor
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.protocols.a2a_push import A2aPush
    from orchestrator.stores.base import RunInfo
    from orchestrator.web.principals import Authorize

VERSION = "1.0"
_NOT_FOUND, _NOT_CANCELABLE, _NO_PUSH, _UNSUPPORTED, _CONTENT = -32001, -32002, -32003, -32004, -32005
_VERSION = -32009
_INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS, _INTERNAL = -32600, -32601, -32602, -32603
_NO_JSON = -32700
_CODES = {403: _INVALID_REQUEST, 404: _NOT_FOUND, 409: _INVALID_PARAMS, 422: _INVALID_PARAMS}
"""HTTP status of a problem -> the code of its JSON-RPC error."""
_PAGE, _LONGEST_PAGE = 50, 100
"""Tasks of a page, unless a client asks for another number, and the most for which it can ask."""


class RpcRequest(BaseModel, extra="ignore"):
    """A JSON-RPC request."""

    jsonrpc: Literal["2.0"]
    method: str
    id: StrictStr | StrictInt | None = None
    params: dict[str, Any] = {}


class Json(RootModel[Any]):
    """Any JSON: what is no request is refused in the form of JSON-RPC, too."""


class _Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def a2a_app(
    executor: Executor,
    graph: GraphDefinition | str,
    *,
    url: str,
    name: str = "",
    description: str = "",
    version: str = "1",
    authorize: Authorize | None = None,
    token: str | None = None,
    replies: Collection[str] | None = None,
    push: A2aPush | None = None,
    origins: Collection[str] = (),
) -> Starlette:
    """Make the ASGI application that offers a graph to agents that speak A2A.

    Who opens the executor, and whose requests are answered, is as with `agui_app`.

    Args:
        executor: the executor.
        graph: the graph, or the name of one of the executor's graphs. Its first input field gets the client's message.
        url: the address of the application for clients, with a slash at its end; it is in the agent card.
        name: the agent's name; empty: the graph's.
        description: what it does; empty: the graph's description.
        version: the agent's version.
        authorize: see `orchestrator.web.app`.
        token: a token that each request must bring as `Authorization: Bearer TOKEN`, 16 to 200 characters.
        replies: names of the nodes whose model replies are artifacts; None: all nodes.
        push: sends notifications, if clients may register for them.
        origins: origins of pages that may send requests and read the answers (CORS), such as
            `http://localhost:3000`. Default: only pages of this server. Cookies are not part of such requests.

    Returns:
        The application.

    Raises:
        ImportError: the extra `a2a` is not installed.
        ValueError: a node does not exist, the graph has no input, or the token or an origin is not usable.
    """
    offer = Offer.of(executor, graph, replies=replies, state=(), cancels=False)
    door = Door(executor, offer, authorize, token, origins)
    card = agent_card(offer.graph, url, name, description, version, push=push is not None, token=token is not None)
    server = _Server(door, push)

    async def show(request: Request) -> ASGIApp:
        return JSONResponse(MessageToDict(card))

    return door.app({("GET", CARD): show, ("POST", "/"): server.handle})


def agent_card(
    graph: GraphDefinition, url: str, name: str, description: str, version: str, *, push: bool, token: bool
) -> pb.AgentCard:
    """Return the card of a graph."""
    said = description or graph.description or f"The graph {graph.name}."
    skill = pb.AgentSkill(id=graph.name, name=name or graph.name, description=said, tags=[graph.name])
    card = pb.AgentCard(
        name=name or graph.name,
        description=said,
        version=version,
        supported_interfaces=[pb.AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=VERSION)],
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=push),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[skill],
    )
    if token:
        scheme = pb.SecurityScheme(http_auth_security_scheme=pb.HTTPAuthSecurityScheme(scheme="Bearer"))
        card.security_schemes["bearer"].CopyFrom(scheme)
        card.security_requirements.append(pb.SecurityRequirement(schemes={"bearer": pb.StringList()}))
    return card


# -- requests ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """A request whose parameters are valid."""

    request: Request
    id: str | int | None
    params: Any
    """A message of the SDK."""
    raw: Mapping[str, Any]
    """The same as it was posted: numbers of the SDK's messages are floats."""


class _Server:
    def __init__(self, door: Door, push: A2aPush | None) -> None:
        self._door, self._push = door, push
        self._methods: dict[str, tuple[type[ProtoMessage], Callable[[_Call], Awaitable[Any]]]] = {
            "SendMessage": (pb.SendMessageRequest, self._send),
            "SendStreamingMessage": (pb.SendMessageRequest, self._send_stream),
            "GetTask": (pb.GetTaskRequest, self._get),
            "ListTasks": (pb.ListTasksRequest, self._list),
            "CancelTask": (pb.CancelTaskRequest, self._cancel),
            "SubscribeToTask": (pb.SubscribeToTaskRequest, self._subscribe),
            "CreateTaskPushNotificationConfig": (pb.TaskPushNotificationConfig, self._add_push),
            "GetTaskPushNotificationConfig": (pb.GetTaskPushNotificationConfigRequest, self._get_push),
            "ListTaskPushNotificationConfigs": (pb.ListTaskPushNotificationConfigsRequest, self._list_push),
            "DeleteTaskPushNotificationConfig": (pb.DeleteTaskPushNotificationConfigRequest, self._delete_push),
        }

    async def handle(self, request: Request) -> ASGIApp:
        """Answer a request.

        Raises:
            HttpProblem: the message of HTTP is refused, such as one that is too long.
        """
        rpc_id = None
        try:
            posted = (await self._door.body(request, Json)).root
        except HttpProblem as problem:
            if problem.name != "invalid-json":
                raise
            return _refusal(None, {"code": _NO_JSON, "message": problem.document()["detail"]})
        try:
            rpc_id = _id_of(posted)
            found = await self._called(request, _request_of(posted))
        except _Refused as refused:
            error = {"code": refused.code, "message": str(refused)}
        except HttpProblem as problem:
            error = _error(problem)
        except OrchestratorError as failure:
            error = _error(problem_of(failure))
        except Exception:
            error = _error(fault())
        else:
            if callable(found):
                return cast("ASGIApp", found)
            return await away(lambda: _result(rpc_id, found))
        return _refusal(rpc_id, error)

    async def _called(self, request: Request, rpc: RpcRequest) -> Any:
        given = request.headers.get("a2a-version", "")
        if given.split(".")[:2] != VERSION.split("."):
            raise _Refused(_VERSION, f"A2A-Version {given[:20]!r}: this agent speaks {VERSION}")
        if rpc.method not in self._methods:
            raise _Refused(_NO_METHOD, f"there is no method {rpc.method[:100]!r}")
        kind, method = self._methods[rpc.method]
        try:
            params = ParseDict(rpc.params, kind(), ignore_unknown_fields=True)
        except (ParseError, ValueError, RecursionError) as error:
            raise _Refused(_INVALID_PARAMS, f"params: {str(error)[:500]}") from None
        return await method(_Call(request, rpc.id, params, rpc.params))

    async def _row(self, call: _Call, task: str, action: str) -> RunInfo:
        """Return the row of the run of a task.

        Raises:
            _Refused: there is no such task.
            HttpProblem: the client may not do this.
        """
        try:
            row = with_status(await self._door.executor.store.info(check_run_id(task)))
            if row.graph == self._door.offer.graph.name:
                await self._door.permit(call.request, action, row)
                return row
        except (RunUnknown, OrchestratorError):
            pass
        raise _Refused(_NOT_FOUND, f"there is no task {task[:200]!r}")

    # -- messages --------------------------------------------------------------------------------------------------

    async def _taken(self, call: _Call) -> Taken:
        """Start a task, or continue the one that a message names."""
        message = call.params.message
        if not message.message_id or not message.parts:
            raise _Refused(_INVALID_PARAMS, "message: give a messageId and at least one part")
        if message.role != pb.Role.ROLE_USER:
            raise _Refused(_INVALID_PARAMS, "message: its role must be ROLE_USER: the journal has what the agent said")
        _length(call.params.configuration)  # checked before anything is started
        text, answers = self._content(call)
        wanted = await self._wanted(call.params.configuration)
        said = PostedMessage(message.message_id, "user", text)
        if message.task_id:
            taken = await self._continued(call, said, answers)
        elif answers or not text.strip():
            raise _Refused(_INVALID_PARAMS, "message: a new task begins with a text")
        else:
            taken = await start(self._door, call.request, message.context_id, said, message.message_id, {})
        if wanted is not None:
            await self._registered(taken.run_id, wanted)
        return taken

    def _content(self, call: _Call) -> tuple[str, list[PostedAnswer]]:
        """Return the text of a message, and the answers in its data."""
        texts, answers = [], []
        for part, raw in zip(call.params.message.parts, call.raw["message"]["parts"], strict=True):
            match part.WhichOneof("content"):
                case "text":
                    texts.append(part.text)
                case "data" if isinstance(raw["data"], dict) and "question" in raw["data"]:
                    given = raw["data"]
                    answers.append(
                        PostedAnswer(str(given["question"]), given.get("payload"), bool(given.get("cancelled")))
                    )
                case "data":
                    raise _Refused(
                        _INVALID_PARAMS, 'message: data answers a question: {"question": ID, "payload": ...}'
                    )
                case _:
                    raise _Refused(_CONTENT, "message: only parts with text or data are taken")
        return "\n".join(texts), answers

    async def _continued(self, call: _Call, said: PostedMessage, answers: list[PostedAnswer]) -> Taken:
        door, message = self._door, call.params.message
        row = await self._row(call, message.task_id, "stream_events")
        if message.context_id and message.context_id != context_of(row):
            raise _Refused(_INVALID_PARAMS, f"task {row.run_id!r} belongs to another context")
        if row.status in FINAL:
            raise _Refused(_UNSUPPORTED, f"task {row.run_id!r} has ended ({row.status}): begin a new one")
        reading = door.reading(row.run_id)
        conversation = await reading.read()
        if answers:
            return await answer(door, call.request, row, reading, conversation, answers)
        end = conversation.end() if conversation.at_rest else None
        if end is not None and not end.awaits_message:
            if len(end.questions) != 1 or end.questions[0].kind != "input":
                detail = 'answer with data: {"question": ID, "payload": ...}, see the message of the status'
                raise _Refused(_INVALID_PARAMS, f"task {row.run_id!r} asks for more than a text: {detail}")
            given = PostedAnswer(interrupt_id(end.questions[0]), said.text)
            return await answer(door, call.request, row, reading, conversation, [given])
        return await tell(door, call.request, row, reading, conversation, said)

    async def _send(self, call: _Call) -> pb.SendMessageResponse:
        taken = await self._taken(call)
        if not call.params.configuration.return_immediately:
            door = self._door
            async with door.streams.waiting(call.request.receive, door.settings.wait):
                async for _ in taken.reading.turn(taken.least):
                    pass
        return pb.SendMessageResponse(task=await self._task(taken.run_id, _length(call.params.configuration)))

    async def _send_stream(self, call: _Call) -> ASGIApp:
        return await self._stream(call, await self._taken(call))

    async def _subscribe(self, call: _Call) -> ASGIApp:
        row = await self._row(call, call.params.id, "stream_events")
        if row.status in FINAL:
            raise _Refused(_UNSUPPORTED, f"task {row.run_id!r} has ended ({row.status}): get it")
        reading = self._door.reading(row.run_id)
        whole = await reading.read()
        head, turn = whole.run.head, whole.turn
        await reading.read(turn)
        return await self._stream(call, Taken(row.run_id, reading, head, whole, new=False))

    async def _stream(self, call: _Call, taken: Taken) -> ASGIApp:
        row = await self._door.executor.store.info(taken.run_id)
        first = task_of(row, taken.reading.conversation, 0)
        first.status.CopyFrom(pb.TaskStatus(state="TASK_STATE_WORKING"))
        encoder = Encoder(row.run_id, context_of(row))

        async def events() -> AsyncIterator[str]:
            yield _event(call.id, pb.StreamResponse(task=first))
            async for batch in taken.reading.turn(taken.least):
                for part in batch.parts:
                    for one in encoder.responses(part):
                        yield _event(call.id, one)

        return self._door.stream(call.request, taken.run_id, events())

    # -- tasks -----------------------------------------------------------------------------------------------------

    async def _task(self, run_id: str, length: int | None) -> pb.Task:
        row = with_status(await self._door.executor.store.info(run_id))
        conversation = await self._door.reading(run_id).read()
        return await away(lambda: task_of(row, conversation, length))

    async def _get(self, call: _Call) -> pb.Task:
        row = await self._row(call, call.params.id, "show_run")
        return await self._task(row.run_id, _length(call.params))

    async def _list(self, call: _Call) -> dict[str, Any]:
        params, door = call.params, self._door
        await door.permit(call.request, "list_runs", None)
        size, length = params.page_size if params.HasField("page_size") else _PAGE, _length(params)
        if not 1 <= size <= _LONGEST_PAGE:
            raise _Refused(_INVALID_PARAMS, f"pageSize: give 1 to {_LONGEST_PAGE}, not {size}")
        since = params.status_timestamp_after
        labels = {THREAD: params.context_id} if params.context_id else {}
        wanted = [status for status, state in STATES.items() if pb.TaskState.Value(state) == params.status]
        if params.status and not wanted:  # no run is in this state
            return {"tasks": [], "nextPageToken": "", "pageSize": size, "totalSize": 0}
        try:
            page = await door.executor.runs(
                graph=door.offer.graph.name,
                labels=labels,
                status=wanted or None,
                replays=False,
                since=since.ToMicroseconds() / 1e6 if params.HasField("status_timestamp_after") else None,
                after=params.page_token or None,
                limit=size,
            )
        except StoreError as error:
            if type(error) is not StoreError:
                raise
            raise _Refused(_INVALID_PARAMS, f"pageToken: {error}") from None
        tasks = []
        for row in page.runs:
            if not await self._may(call, "list_runs", row):
                continue
            if params.include_artifacts and await self._may(call, "show_run", row):
                tasks.append(await self._task(row.run_id, length))
            else:
                tasks.append(
                    pb.Task(id=row.run_id, context_id=context_of(row), status=pb.TaskStatus(state=STATES[row.status]))
                )
        listed = [MessageToDict(one) for one in tasks]  # the protocol wants the fields of a page also if they are empty
        return {"tasks": listed, "nextPageToken": page.cursor or "", "pageSize": size, "totalSize": len(listed)}

    async def _may(self, call: _Call, action: str, row: RunInfo) -> bool:
        try:
            await self._door.permit(call.request, action, row)
        except (HttpProblem, RunUnknown):
            return False
        return True

    async def _cancel(self, call: _Call) -> pb.Task:
        row = await self._row(call, call.params.id, "show_run")
        by = await self._door.permit(call.request, "cancel_run", row)
        if row.status in FINAL:
            raise _Refused(_NOT_CANCELABLE, f"task {row.run_id!r} has ended ({row.status})")
        await self._door.executor.cancel(row.run_id, by=by)
        return await self._task(row.run_id, None)

    # -- push notifications ----------------------------------------------------------------------------------------

    async def _wanted(self, configuration: Any) -> pb.TaskPushNotificationConfig | None:
        """Return the address that a message asks to notify, which is checked before anything is started."""
        if not configuration.HasField("task_push_notification_config"):
            return None
        config = configuration.task_push_notification_config
        await self._checked(config)
        return cast("pb.TaskPushNotificationConfig", config)

    async def _checked(self, config: Any) -> A2aPush:
        if self._push is None:
            raise _Refused(_NO_PUSH, "this agent sends no push notifications")
        try:
            await self._push.check(config)
        except ValueError as error:
            raise _Refused(_INVALID_PARAMS, str(error)) from None
        return self._push

    async def _registered(self, task: str, config: Any) -> pb.TaskPushNotificationConfig:
        push = await self._checked(config)
        found = push.add(task, config)
        run = await self._door.executor.load(task)
        await push.notify(run, run.seq)  # it may rest already, and its observers may have been called
        return found

    async def _pushes(self, call: _Call) -> A2aPush:
        await self._row(call, call.params.task_id, "stream_events")
        if self._push is None:
            raise _Refused(_NO_PUSH, "this agent sends no push notifications")
        return self._push

    async def _add_push(self, call: _Call) -> pb.TaskPushNotificationConfig:
        await self._pushes(call)
        return await self._registered(call.params.task_id, call.params)

    async def _get_push(self, call: _Call) -> pb.TaskPushNotificationConfig:
        found = (await self._pushes(call)).of(call.params.task_id).get(call.params.id)
        if found is None:
            raise _Refused(_NOT_FOUND, f"task {call.params.task_id!r} has no such configuration")
        return found

    async def _list_push(self, call: _Call) -> pb.ListTaskPushNotificationConfigsResponse:
        found = (await self._pushes(call)).of(call.params.task_id)
        return pb.ListTaskPushNotificationConfigsResponse(configs=[*found.values()])

    async def _delete_push(self, call: _Call) -> None:
        (await self._pushes(call)).drop(call.params.task_id, call.params.id)


def _id_of(posted: object) -> str | int | None:
    """Return the id of what was posted, None if it has no usable one."""
    found = posted.get("id") if isinstance(posted, dict) else None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


def _request_of(posted: object) -> RpcRequest:
    """Return what was posted as a request.

    Raises:
        _Refused: it is none.
    """
    if not isinstance(posted, dict):
        raise _Refused(_INVALID_REQUEST, "give one request, as an object")
    try:
        return RpcRequest.model_validate(posted)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        code = _INVALID_PARAMS if first["loc"][0] == "params" else _INVALID_REQUEST
        raise _Refused(code, f"{first['loc'][0]}: {first['msg']}") from None


def _refusal(rpc_id: str | int | None, error: Mapping[str, Any]) -> JSONResponse:
    return JSONResponse({"jsonrpc": "2.0", "id": rpc_id, "error": error})


def _result(rpc_id: str | int | None, found: Any) -> JSONResponse:
    result = found if found is None or isinstance(found, dict) else MessageToDict(found)
    return JSONResponse({"jsonrpc": "2.0", "id": rpc_id, "result": result})


def _error(problem: HttpProblem) -> dict[str, Any]:
    return {"code": _CODES.get(problem.status, _INTERNAL), "message": problem.document()["detail"]}


def _event(rpc_id: str | int | None, response: pb.StreamResponse) -> str:
    return f"data: {json.dumps({'jsonrpc': '2.0', 'id': rpc_id, 'result': MessageToDict(response)})}\n\n"


def _length(params: Any) -> int | None:
    """Return the maximum number of messages for which a client asks; None: all.

    Raises:
        _Refused: it is negative.
    """
    if not params.HasField("history_length"):
        return None
    if params.history_length < 0:
        raise _Refused(_INVALID_PARAMS, f"historyLength: give 0 or more, not {params.history_length}")
    return cast("int", params.history_length)
