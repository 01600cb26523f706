"""A2A: the SDK's client and a graph, and agents as tools. What clients may not do, by requests to a real server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import httpx
import pytest
from a2a.client import ClientConfig, create_client
from a2a.client.client import Client
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from orchestrator import Approve, Context, Deny, Executor, Graph, Retry, node
from orchestrator.models import Reply, ToolCall
from orchestrator.nodes import Ask
from orchestrator.otel import OpenTelemetry
from orchestrator.protocols import A2aAgent, A2aPush, a2a_app
from orchestrator.protocols.conversation import FOR_PEOPLE
from orchestrator.strategies.chat import chat
from orchestrator.testing import ScriptedModel
from orchestrator.web.streams import OpenStreams
from tests.protocols.served import Held, Served, asks, mail, served
from tests.support.ports import free_port

Body = dict[str, Any]


class Order(BaseModel):
    topic: str = ""
    size: str = ""
    parts: list[str] = []


@node(effect="pure")
async def cut(state: Order) -> dict[str, object]:
    return {"parts": [state.size, state.topic]}


orders = Graph(
    name="orders", state=Order, input="topic", output="parts",
    nodes={"size": Ask(prompt="Which size?", answer="size", choices=("S", "L")), "cut": cut},
    edges="START -> size -> cut -> END",
)  # fmt: skip


@contextmanager
def agent(
    graph: Graph = mail, replies: Any = (), *, push: A2aPush | None = None, authorize: Any = None, **options: Any
) -> Iterator[Served]:
    """Serve a graph as an agent."""
    port = free_port()

    def make(executor: Executor) -> Starlette:
        return a2a_app(executor, graph, url=f"http://127.0.0.1:{port}/", push=push, authorize=authorize)

    if push is not None:
        options["observers"] = [push.notify]
    with served(make, replies, port=port, **options) as found:
        yield found


def rpc(server: Served, method: str, *, version: str = "1.0", **params: Any) -> Body:
    """The answer to a JSON-RPC request."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    found = server.client.post("/", json=body, headers={"A2A-Version": version})
    assert found.status_code == 200, found.text
    answer: Body = found.json()
    return answer


def said(text: str, id: str = "m1", **more: Any) -> Body:  # noqa: A002
    return {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}], **more}


def answering(task: Body, payload: Any, question: str = "", id: str = "m2") -> Body:  # noqa: A002
    """A message that answers what a task asks."""
    data = {"question": question or asked(task)["question"], "payload": payload}
    return {"messageId": id, "role": "ROLE_USER", "parts": [{"data": data}], "taskId": task["id"]}


def asked(task: Body) -> Body:
    """The question of a task."""
    found: Body = next(one["data"] for one in task["status"]["message"]["parts"] if "data" in one)
    return found


def begun(server: Served, text: str = "Mail Ann.", **more: Any) -> Body:
    found: Body = rpc(server, "SendMessage", message=said(text, **more))["result"]["task"]
    return found


# -- the client of the SDK -----------------------------------------------------------------------------------------


async def _client(url: str, *, streaming: bool) -> Client:
    async with httpx.AsyncClient() as plain:
        card = ParseDict((await plain.get(f"{url}/.well-known/agent-card.json")).json(), pb.AgentCard())
    assert [one.protocol_binding for one in card.supported_interfaces] == ["JSONRPC"]
    return await create_client(card, ClientConfig(streaming=streaming))


def _text(text: str, **more: Any) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(
        message=pb.Message(message_id="m1", role=pb.Role.ROLE_USER, parts=[pb.Part(text=text)], **more)
    )


async def _all(events: AsyncIterator[pb.StreamResponse]) -> list[pb.StreamResponse]:
    return [one async for one in events]


def test_the_client_of_the_sdk_answers_and_streams() -> None:
    with agent(replies=[asks("ann@example.org", "hi"), "Sent."]) as server:

        async def talk() -> tuple[list[pb.StreamResponse], list[pb.StreamResponse], pb.Task]:
            client = await _client(server.url, streaming=True)
            first = await _all(client.send_message(_text("Mail Ann.")))
            task = first[0].task
            question = next(part for part in first[-1].status_update.status.message.parts if part.HasField("data"))
            answer = {"question": MessageToDict(question.data)["question"], "payload": {"approved": True}}
            part = pb.Part()
            ParseDict(answer, part.data)
            message = pb.Message(message_id="m2", role=pb.Role.ROLE_USER, parts=[part], task_id=task.id)
            second = await _all(client.send_message(pb.SendMessageRequest(message=message)))
            done = await client.get_task(pb.GetTaskRequest(id=task.id))
            await client.close()
            return first, second, done

        first, second, task = anyio.run(talk)
    assert first[0].task.status.state == pb.TaskState.TASK_STATE_WORKING
    grown = [one.artifact_update for one in first if one.HasField("artifact_update")]
    assert "".join(part.text for one in grown for part in one.artifact.parts) == "I will send that."
    assert [one.append for one in grown[:2]] == [False, True]
    assert first[-1].status_update.status.state == pb.TaskState.TASK_STATE_INPUT_REQUIRED
    assert second[-1].status_update.status.state == pb.TaskState.TASK_STATE_INPUT_REQUIRED
    assert [part.text for part in second[-1].status_update.status.message.parts] == ["Sent."]
    assert [part.text for one in task.artifacts for part in one.parts] == ["I will send that.", "Sent."]
    assert [part.text for one in task.history for part in one.parts] == ["Mail Ann."]


def test_the_client_of_the_sdk_cancels() -> None:
    with agent(model=Held(["I talk slowly and say a lot of words."])) as server:

        async def talk() -> tuple[pb.Task, list[pb.StreamResponse]]:
            client = await _client(server.url, streaming=True)
            events = client.send_message(_text("Talk."))
            task = (await anext(events)).task
            while not (await anext(events)).HasField("artifact_update"):
                pass
            cancelled, rest = await client.cancel_task(pb.CancelTaskRequest(id=task.id)), await _all(events)
            await client.close()
            return cancelled, rest

        task, rest = anyio.run(talk)
    assert task.status.state == pb.TaskState.TASK_STATE_CANCELED
    assert rest[-1].status_update.status.state == pb.TaskState.TASK_STATE_CANCELED


# -- what a client may do ------------------------------------------------------------------------------------------


def test_a_task_asks_and_its_answer_is_bound_to_what_was_shown() -> None:
    with agent(replies=[asks("ann@example.org", "hi"), "Sent."]) as server:
        task = begun(server)
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        question = asked(task)
        assert (question["kind"], question["call"]["args"]) == ("approval", {"to": "ann@example.org", "text": "hi"})
        name = question["question"].partition(":")[0]
        for payload, of, why in (
            ({"approved": True}, f"{name}:{'0' * 32}", "show it again"),
            ({"approved": True}, "other:0", "does not ask"),
            ({"approved": "yes"}, "", "approved"),
        ):
            found = rpc(server, "SendMessage", message=answering(task, payload, of))
            assert found["error"]["code"] == -32602
            assert why in found["error"]["message"]
        words = rpc(server, "SendMessage", message=said("Yes, do it.", "m2", taskId=task["id"]))
        assert "more than a text" in words["error"]["message"]
        edited = {"approved": True, "editedArgs": {"to": "bob@example.org", "text": "edited"}}
        found = rpc(server, "SendMessage", message=answering(task, edited))["result"]["task"]
        assert found["status"]["message"]["parts"] == [{"text": "Sent."}]
        records: Any = server.portal.call(server.executor.store.read, task["id"])
        outputs = [one.result.get("output") for one in records if one.type == "effect_settled"]
        assert outputs[-2:] == ["sent 'edited' to bob@example.org", None]


def test_a_choice_is_answered_by_text_and_an_output_is_an_artifact() -> None:
    with agent(orders) as server:
        task = begun(server, "shirt", contextId="shop")
        assert asked(task)["choices"] == ["S", "L"]
        assert rpc(server, "SendMessage", message=said("XL", "m2", taskId=task["id"]))["error"]["code"] == -32602
        wrong = said("L", "m2", taskId=task["id"], contextId="other")
        assert "another context" in rpc(server, "SendMessage", message=wrong)["error"]["message"]
        done = rpc(server, "SendMessage", message=said("L", "m2", taskId=task["id"], contextId="shop"))["result"][
            "task"
        ]
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        assert done["artifacts"][-1]["parts"][0]["data"] == ["L", "shirt"]
        again = rpc(server, "SendMessage", message=said("S", "m3", taskId=task["id"]))
        assert again["error"]["code"] == -32004

        other = begun(server, "cap", contextId="shop", id="m9")
        assert other["id"] != task["id"]
        assert begun(server, "cap", contextId="shop", id="m9")["id"] == other["id"], "a message is taken once"
        listed = rpc(server, "ListTasks", contextId="shop")["result"]["tasks"]
        assert [one["id"] for one in listed] == [other["id"], task["id"]]
        waiting = rpc(server, "ListTasks", status="TASK_STATE_INPUT_REQUIRED")["result"]["tasks"]
        assert [one["id"] for one in waiting] == [other["id"]]
        assert rpc(server, "CancelTask", id=other["id"])["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        assert rpc(server, "CancelTask", id=other["id"])["error"]["code"] == -32002
        assert rpc(server, "SubscribeToTask", id=other["id"])["error"]["code"] == -32004
        assert rpc(server, "GetTask", id="none")["error"]["code"] == -32001


def test_requests_that_do_not_fit_are_refused_in_words() -> None:
    with agent() as server:
        for method, params, code in (
            ("Nothing", {}, -32601),
            ("SendMessage", {}, -32602),
            ("SendMessage", {"message": said("x", role="ROLE_AGENT")}, -32602),
            ("SendMessage", {"message": {**said("x"), "parts": [{"url": "http://127.0.0.1/a"}]}}, -32005),
            ("SendMessage", {"message": {**said("x"), "parts": [{"data": {"state": "set"}}]}}, -32602),
            ("SendMessage", {"message": said("x", taskId="none")}, -32001),
            ("SendMessage", {"message": 5}, -32602),
            ("SendMessage", {"message": {**said("x"), "parts": [{"data": json.loads("[" * 120 + "]" * 120)}]}}, -32602),
            ("ListTasks", {"pageToken": "none"}, -32602),
            ("CreateTaskPushNotificationConfig", {"taskId": "none", "url": "http://127.0.0.1/"}, -32001),
        ):
            found = rpc(server, method, **params)
            assert found["error"]["code"] == code, found
        assert rpc(server, "GetTask", version="", id="none")["error"]["code"] == -32009
        post = server.client.post
        server.refused(post("/", json={}, headers={"Host": "evil.example"}), 403, "host-refused")
        server.refused(post("/", json={}, headers={"Origin": "http://evil.example"}), 403, "origin-refused")
        server.refused(post("/", json=said("x" * (4 << 20))), 413, "body-too-long")


@pytest.mark.parametrize(
    ("body", "code", "id"),
    [
        ("{", -32700, None),
        ("[]", -32600, None),
        ("5", -32600, None),
        ('{"jsonrpc": "2.0", "id": 1}', -32600, 1),
        ('{"jsonrpc": "1.0", "id": "a", "method": "GetTask"}', -32600, "a"),
        ('{"jsonrpc": "2.0", "id": 1.5, "method": "GetTask", "params": {"id": "x"}}', -32600, None),
        ('{"jsonrpc": "2.0", "id": true, "method": "GetTask", "params": {"id": "x"}}', -32600, None),
        ('{"jsonrpc": "2.0", "id": 2, "method": "GetTask", "params": []}', -32602, 2),
    ],
)
def test_what_is_no_request_is_refused_as_json_rpc(body: str, code: int, id: Any) -> None:  # noqa: A002
    with agent() as server:
        headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
        found = server.client.post("/", content=body, headers=headers)
        assert (found.status_code, found.headers["content-type"]) == (200, "application/json")
        assert (found.json()["jsonrpc"], found.json()["id"], found.json()["error"]["code"]) == ("2.0", id, code)


def test_a_list_has_the_tasks_that_were_asked_for() -> None:
    with agent(orders) as server:
        old, new = begun(server, "shirt"), begun(server, "cap", id="m2")

        def listed(**params: Any) -> list[str]:
            return [one["id"] for one in rpc(server, "ListTasks", **params)["result"]["tasks"]]

        assert listed(pageSize=1) == [new["id"]]
        assert listed(pageSize=100) == [new["id"], old["id"]]
        changed = rpc(server, "SendMessage", message=said("L", "m3", taskId=old["id"]))["result"]["task"]
        assert listed(statusTimestampAfter=changed["status"]["timestamp"]) == [old["id"]]
        assert listed(statusTimestampAfter="2999-01-01T00:00:00Z") == []
        unfit: list[Body] = [{"pageSize": -5}, {"pageSize": 0}, {"pageSize": 101}, {"historyLength": -1}]
        for wrong in unfit:
            assert rpc(server, "ListTasks", **wrong)["error"]["code"] == -32602
        assert rpc(server, "GetTask", id=old["id"], historyLength=-1)["error"]["code"] == -32602
        negative = rpc(server, "SendMessage", message=said("hat", "m4"), configuration={"historyLength": -1})
        assert negative["error"]["code"] == -32602
        assert listed() == [new["id"], old["id"]], "nothing was started"


def test_tasks_of_other_users_are_not_there() -> None:
    def authorize(request: Request, action: str, run: Any) -> str | None:
        name = request.headers.get("x-user", "")
        return name if name and (run is None or run.labels.get("user", name) == name) else None

    with agent(orders, authorize=authorize) as server:
        server.client.headers["x-user"] = "ann"
        task = begun(server, "shirt")
        server.client.headers["x-user"] = "eve"
        assert rpc(server, "GetTask", id=task["id"])["error"]["code"] == -32001
        assert rpc(server, "CancelTask", id=task["id"])["error"]["code"] == -32001
        assert rpc(server, "SendMessage", message=said("L", "m2", taskId=task["id"]))["error"]["code"] == -32001
        assert rpc(server, "ListTasks")["result"]["tasks"] == []
        del server.client.headers["x-user"]
        assert rpc(server, "ListTasks")["error"]["code"] == -32600


def test_a_list_has_the_content_of_tasks_only_for_those_who_may_see_them() -> None:
    def authorize(request: Request, action: str, run: Any) -> str | None:
        name = request.headers.get("x-user", "")
        return None if name == "clerk" and action == "show_run" else name or None

    with agent(orders, authorize=authorize) as server:
        server.client.headers["x-user"] = "ann"
        task = begun(server, "shirt")
        (whole,) = rpc(server, "ListTasks", includeArtifacts=True)["result"]["tasks"]
        assert whole["history"][0]["parts"] == [{"text": "shirt"}]
        assert rpc(server, "ListTasks", status="TASK_STATE_REJECTED")["result"]["tasks"] == []
        server.client.headers["x-user"] = "clerk"
        (row,) = rpc(server, "ListTasks", includeArtifacts=True)["result"]["tasks"]
        assert row == {"id": task["id"], "contextId": task["id"], "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}


# -- push notifications --------------------------------------------------------------------------------------------


def _hooks(hook: Callable[[Request], Any]) -> Callable[[Executor], Starlette]:
    """An application that is notified at `/`, with anything behind it."""

    def make(executor: Executor) -> Starlette:
        app = Starlette(routes=[Route("/{name}", hook, methods=["POST"])])
        app.state.streams = OpenStreams(10)
        return app

    return make


def test_a_receiver_that_never_ends_its_answer_holds_nobody_up() -> None:
    posted: list[tuple[str, str]] = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000
            await anyio.sleep(0.05)

    async def hook(request: Request) -> StreamingResponse:
        body = await request.json()
        posted.append((request.path_params["name"], body["statusUpdate"]["status"]["state"]))
        return StreamingResponse(endless())

    push = A2aPush(["127.0.0.1"], private=["127.0.0.1"])
    with agent(orders, push=push) as server, served(_hooks(hook)) as receiver:
        task = begun(server, "shirt")
        for name in ("a", "b"):  # only the new address is told what the task waits for
            config = {"taskId": task["id"], "id": name, "url": f"{receiver.url}/{name}", "tenant": "x" * 100_000}
            assert "tenant" not in rpc(server, "CreateTaskPushNotificationConfig", **config)["result"]
        dropped = {"taskId": task["id"], "id": "c", "url": f"{receiver.url}/a"}
        rpc(server, "CreateTaskPushNotificationConfig", **dropped)
        rpc(server, "DeleteTaskPushNotificationConfig", taskId=task["id"], id="c")
        assert posted.pop() == ("a", "TASK_STATE_INPUT_REQUIRED")
        assert posted == [("a", "TASK_STATE_INPUT_REQUIRED"), ("b", "TASK_STATE_INPUT_REQUIRED")]
        rpc(server, "SendMessage", message=said("L", "m2", taskId=task["id"]))
        _wait_for(posted, 4)
    assert posted[2:] == [("a", "TASK_STATE_COMPLETED"), ("b", "TASK_STATE_COMPLETED")]


def test_notifications_go_only_to_allowed_addresses() -> None:
    with agent(orders, push=A2aPush(["hooks.example.org", "127.0.0.1", "169.254.169.254"])) as server:
        task = begun(server, "shirt")
        for url in (
            "http://127.0.0.1:9/hook",
            "http://169.254.169.254/latest/meta-data/",
            "http://2130706433/",
            "http://evil.example/",
            "http://hooks.example.org@127.0.0.1/",
            "ftp://hooks.example.org/",
        ):
            found = rpc(server, "CreateTaskPushNotificationConfig", taskId=task["id"], url=url)
            assert found["error"]["code"] == -32602, url
            assert "push notifications" in found["error"]["message"]
        config = {"taskPushNotificationConfig": {"url": "http://127.0.0.1:9/hook"}}
        found = rpc(server, "SendMessage", message=said("cap", "m2"), configuration=config)
        assert found["error"]["code"] == -32602


def test_a_pause_and_the_end_are_posted() -> None:
    posted: list[tuple[str, Body]] = []

    async def hook(request: Request) -> JSONResponse:
        posted.append((request.headers["x-a2a-notification-token"], await request.json()))
        return JSONResponse({})

    push = A2aPush(["127.0.0.1"], private=["127.0.0.1"])
    with served(_hooks(hook)) as receiver, agent(orders, push=push) as server:
        config = {"url": f"{receiver.url}/hook", "token": "t-1"}
        push_to = {"taskPushNotificationConfig": config}
        task = rpc(server, "SendMessage", message=said("shirt"), configuration=push_to)["result"]["task"]
        _wait_for(posted, 1)
        (listed,) = rpc(server, "ListTaskPushNotificationConfigs", taskId=task["id"])["result"]["configs"]
        assert listed["url"] == config["url"]
        rpc(server, "SendMessage", message=said("L", "m2", taskId=task["id"]))
        _wait_for(posted, 2)
    assert [(token, one["statusUpdate"]["status"]["state"]) for token, one in posted] == [
        ("t-1", "TASK_STATE_INPUT_REQUIRED"),
        ("t-1", "TASK_STATE_COMPLETED"),
    ]


def _wait_for(found: list[Any], number: int) -> None:
    async def wait() -> None:
        with anyio.fail_after(60):
            while len(found) < number:  # noqa: ASYNC110  another thread fills it
                await anyio.sleep(0.02)

    anyio.run(wait)


# -- agents as tools -----------------------------------------------------------------------------------------------


def _calls(message: str) -> Reply:
    return Reply(text="", tool_calls=(ToolCall(id="c1", name="shop", arguments={"message": message}),))


def test_what_an_agent_asks_is_a_question_of_the_run() -> None:
    with agent(orders) as shop:
        tool = A2aAgent(f"{shop.url}/", name="shop", description="Cuts shirts.", poll=0.02)
        model = ScriptedModel([_calls("shirt"), "It is cut."])
        graph = chat(tools=[tool])

        async def talk() -> tuple[Any, Any]:
            async with Executor(graphs=[graph], model=model) as executor:
                run = await executor.start(graph, "Get me a shirt.")
                asked = await executor.answer(run.run_id, run.waiting[0].id, Approve(), digest=run.waiting[0].digest)
                (question,) = asked.waiting
                with pytest.raises(Exception, match="XL"):
                    await executor.answer(run.run_id, question.id, "XL")
                return question, await executor.answer(run.run_id, question.id, "L")

        question, run = anyio.run(talk)
    assert "Agent 'shop' asks: Which size?" in question.prompt
    assert question.schema == {"type": "string", "enum": ["S", "L"]}
    assert run.status == "paused"
    assert '["L", "shirt"]' in json.dumps(model.requests[-1].messages[-1].model_dump(mode="json"))


class Cook(AgentExecutor):
    """An agent made with the SDK: it asks back once, and says its question as text only."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = context.current_task or new_task_from_user_message(context.message)
        if context.current_task is None:
            await event_queue.enqueue_event(task)
        update = TaskUpdater(event_queue, task.id, task.context_id)
        if context.current_task is None:
            await update.start_work()
            await update.requires_input(update.new_agent_message([pb.Part(text="With \u202esalt?")]))
        else:
            await update.add_artifact([pb.Part(text=f"Soup, salt: {context.get_user_input()}.")])
            await update.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, str(context.task_id), str(context.context_id)).cancel()


def test_a_run_sleeps_while_an_agent_works() -> None:
    held = Held(["I talk slowly and say a lot of words."])
    model = ScriptedModel([_calls("Talk."), "Done."])
    with agent(model=held) as shop:
        tool = A2aAgent(f"{shop.url}/", name="shop", description="Talks.", risk="read", poll=0.02, patience=0.01)
        graph = chat(tools=[tool])

        async def talk() -> tuple[Any, list[Any]]:
            async with Executor(graphs=[graph], model=model) as executor:
                run_id = await executor.submit(graph, "Let it talk.")
                async for event in executor.events(run_id, follow=True):
                    if event.type == "timer_set" or (event.type == "asked" and "timer" in str(event.data)):
                        shop.portal.start_task_soon(held.go.set)
                    if event.type == "asked" and "Agent 'shop' asks" in str(event.data):
                        break
                run = await executor.load(run_id)
                return run, await executor.store.read(run_id)

        run, records = anyio.run(talk)
    (question,) = run.waiting
    assert "I talk slowly and say a lot of words." in question.prompt
    assert any(one.type == "timer_fired" for one in records)


@pytest.mark.parametrize("answer", ["a little", None])
def test_an_agent_made_with_the_sdk_is_a_tool(answer: str | None) -> None:
    port = free_port()
    interface = pb.AgentInterface(
        url=f"http://127.0.0.1:{port}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
    )
    card = pb.AgentCard(
        name="cook", description="Cooks.", version="1", supported_interfaces=[interface],
        capabilities=pb.AgentCapabilities(streaming=True), default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[pb.AgentSkill(id="soup", name="soup", description="Soups of all kinds.", tags=["soup"])],
    )  # fmt: skip

    def make(executor: Executor) -> Starlette:
        handler = DefaultRequestHandler(Cook(), InMemoryTaskStore(), card)
        app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")])
        app.state.streams = OpenStreams(10)
        return app

    model = ScriptedModel([[ToolCall(id="c1", name="cook", arguments={"message": "Soup."})], "Done."])
    with served(make, port=port) as cook:

        async def talk() -> tuple[str, Any]:
            tool = await A2aAgent.found(cook.url, risk="read", poll=0.02)
            assert tool.description == "Cooks.\nSoups of all kinds."
            graph = chat(tools=[tool])
            async with Executor(graphs=[graph], model=model) as executor:
                run = await executor.start(graph, "Cook soup.")
                (question,) = run.waiting
                reply: Any = Deny(reason="no idea") if answer is None else answer
                return question.prompt, await executor.answer(run.run_id, question.id, reply)

        prompt, run = anyio.run(talk)
    assert prompt == "Agent 'cook' asks: With salt?"
    result = json.dumps(model.requests[-1].messages[-1].model_dump(mode="json"))
    assert ("Soup, salt: a little." if answer else "was not answered: no idea") in result
    assert run.status == "paused"


def test_an_agent_is_found_by_its_card_and_fails_in_words() -> None:
    with agent(orders) as shop:

        async def talk() -> None:
            tool = await A2aAgent.found(f"{shop.url}/", poll=0.02)
            assert (tool.name, tool.description) == ("orders", "The graph orders.")
            result = await tool.invoke({"message": "shirt"})
            assert "only a run can ask a person" in str(result.error)
            lost = A2aAgent("http://127.0.0.1:9/", name="lost", description="")
            assert str((await lost.invoke({"message": "x"})).error).startswith("agent 'lost' at http://127.0.0.1:9/")

        anyio.run(talk)


@pytest.mark.parametrize(
    ("card", "why"),
    [
        ({"name": "a", "supportedInterfaces": []}, "no JSON-RPC interface"),
        ({"name": "a", "supportedInterfaces": [{"url": "http://169.254.169.254/", "protocolBinding": "JSONRPC",
                                                "protocolVersion": "1.0"}]}, "another host"),
        ({"name": "a", "supportedInterfaces": [{"url": "http://a:b/", "protocolBinding": "JSONRPC",
                                                "protocolVersion": "1.0"}]}, "is not an address"),
        ([], "not the card"),
        ("x" * (9 << 20), "more than"),
    ],
)  # fmt: skip
def test_a_card_of_a_stranger_is_not_trusted(card: Any, why: str) -> None:
    async def show(request: Request) -> JSONResponse:
        return JSONResponse(card)

    def make(executor: Executor) -> Starlette:
        app = Starlette(routes=[Route("/.well-known/agent-card.json", show)])
        app.state.streams = OpenStreams(10)
        return app

    with served(make) as stranger:
        tool = A2aAgent(stranger.url, name="a", description="", headers={"Authorization": "Bearer secret"})
        assert why in str(anyio.run(lambda: tool.invoke({"message": "x"})).error)


@contextmanager
def stranger(result: Body, traced: list[str] | None = None) -> Iterator[tuple[str, list[Body]]]:
    """An agent that answers every request with the same result. Gives its address and the requests.

    Args:
        result: the result.
        traced: gets the traces that requests continue.
    """
    port, requests = free_port(), list[Body]()
    interface = {"url": f"http://127.0.0.1:{port}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}

    async def card(request: Request) -> JSONResponse:
        return JSONResponse({"name": "a", "supportedInterfaces": [interface]})

    async def answer(request: Request) -> JSONResponse:
        requests.append(await request.json())
        if traced is not None:
            traced.append(request.headers["traceparent"])
        found = result if requests[-1]["method"] == "SendMessage" else result["task"]
        text = json.dumps(found).replace("TOKEN", request.headers.get("authorization", ""))
        return JSONResponse({"jsonrpc": "2.0", "id": requests[-1]["id"], "result": json.loads(text)})

    def make(executor: Executor) -> Starlette:
        app = Starlette(routes=[Route("/.well-known/agent-card.json", card), Route("/", answer, methods=["POST"])])
        app.state.streams = OpenStreams(10)
        return app

    with served(make, port=port):
        yield interface["url"], requests


def _task(state: str, *parts: Body, id: str = "t") -> Body:  # noqa: A002
    status = {"state": f"TASK_STATE_{state}", "message": {"messageId": "m", "parts": [*parts]}}
    return {"task": {"id": id, "status": status}}


def _form(schema: Any, **more: Any) -> Body:
    return _task("INPUT_REQUIRED", {"data": {"question": "q", "prompt": "Well?", "schema": schema, **more}})


def _told(result: Body, **options: Any) -> tuple[str, list[str]]:
    """What a model reads of a call of a stranger, and the methods that were requested of it."""
    model = ScriptedModel([_calls("hi"), "Done."])
    with stranger(result) as (url, requests):
        tool = A2aAgent(url, name="shop", description="", risk="read", poll=0.02, patience=0.01, **options)
        graph = chat(tools=[tool])

        async def talk() -> None:
            async with Executor(graphs=[graph], model=model) as executor:
                await executor.start(graph, "Go.")

        anyio.run(talk)
    return model.requests[-1].messages[-1].content, [one["method"] for one in requests]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (_form({"type": "string", "enum": ["x" * 1000] * 200}), "asks for too much input"),
        (_form({"type": 5}), "asks in a form that cannot be used"),
        (_form({"type": "object", "properties": {"password": {"type": "string"}}}), "asks for 'password', a secret"),
        (_form({"anyOf": [{"type": "null"}, {"format": "password"}]}), "asks for 'a value', a secret"),
        (_task("AUTH_REQUIRED", {"text": "Sign in."}), "needs credentials, which a call cannot give"),
        (_task("DREAMING"), "is in the state 'TASK_STATE_DREAMING'"),
    ],
)
def test_a_task_that_cannot_go_on_is_cancelled_and_its_outcome_is_unknown(result: Body, why: str) -> None:
    told, methods = _told(result)
    assert f"agent 'shop' {why}" in told
    assert "its task was cancelled, so the outcome of the call is unknown" in told
    assert methods == ["SendMessage", "CancelTask"]


def test_a_call_whose_agent_needs_credentials_is_not_repeated_unless_a_person_says_so() -> None:
    @node(retry=Retry(attempts=2, wait=0, jitter=0, on=("Exception",)))
    async def ask(state: Order, ctx: Context) -> dict[str, object]:
        return {"topic": str((await ctx.tool("shop", check=True, message="hi")).output)}

    graph = Graph(name="asks", state=Order, nodes={"ask": ask}, edges="START -> ask -> END", output="topic")
    with stranger(_task("AUTH_REQUIRED")) as (url, requests):
        tool = A2aAgent(url, name="shop", description="", poll=0.02, patience=0.01)

        async def talk() -> Any:
            async with Executor(graphs=[graph], tools=[tool]) as executor:
                return await executor.start(graph, {})

        (question,) = anyio.run(talk).waiting
    assert question.kind == "unknown_outcome"
    assert "needs credentials" in question.payload["error"]
    assert [one["method"] for one in requests] == ["SendMessage", "CancelTask"]


@contextmanager
def scripted(*answers: Any) -> Iterator[tuple[str, list[str]]]:
    """An agent that answers each request with the next of these, and then with the last. Gives its address and the
    methods that were requested.

    Args:
        answers: parts of JSON-RPC responses; or an HTTP status or a body, which is none.
    """
    port, methods = free_port(), list[str]()
    interface = {"url": f"http://127.0.0.1:{port}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}

    async def card(request: Request) -> JSONResponse:
        return JSONResponse({"name": "a", "supportedInterfaces": [interface]})

    async def answer(request: Request) -> Response:
        found = answers[min(len(methods), len(answers) - 1)]
        methods.append((await request.json())["method"])
        if isinstance(found, dict):
            return JSONResponse({"jsonrpc": "2.0", "id": "1", **found})
        return Response(status_code=found) if isinstance(found, int) else Response(found)

    def make(executor: Executor) -> Starlette:
        app = Starlette(routes=[Route("/.well-known/agent-card.json", card), Route("/", answer, methods=["POST"])])
        app.state.streams = OpenStreams(10)
        return app

    with served(make, port=port):
        yield interface["url"], methods


@node(retry=Retry(attempts=2, wait=0, jitter=0, on=("Exception",)))
async def consult(state: Order, ctx: Context) -> dict[str, object]:
    return {"topic": str((await ctx.tool("shop", check=True, message="hi")).output)}


consults = Graph(
    name="consults", state=Order, nodes={"consult": consult}, edges="START -> consult -> END", output="topic"
)


def _consulted(url: str, **options: Any) -> Any:
    """A run of an irreversible call, when it has ended or a person is asked."""
    tool = A2aAgent(url, name="shop", description="", poll=0.001, **{"patience": 0.01, **options})

    async def talk() -> Any:
        async with Executor(graphs=[consults], tools=[tool]) as executor:
            run = await executor.start(consults, {})
            while run.status in ("running", "paused") and not any(one.kind in FOR_PEOPLE for one in run.waiting):
                await anyio.sleep(0.01)
                run = await executor.load(run.run_id)
            return run

    return anyio.run(talk)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (502, "HTTP 502"),
        ("<html>", "does not answer with JSON"),
        ("x" * (9 << 20), "sends more than"),
        ({"result": {}}, "answers with neither a reply nor the state of a task; its task could not be cancelled"),
        ({"result": {"kind": "task", "id": "t", "status": {"state": "working"}}}, "with neither a reply nor"),
        ({"result": {"task": {"id": "t"}}}, "with neither a reply nor the state of a task; its task was cancelled"),
    ],
)
def test_a_message_whose_answer_is_lost_may_have_arrived(answer: Any, why: str) -> None:
    with scripted(answer, {"result": {}}) as (url, _):
        (question,) = _consulted(url).waiting
    assert question.kind == "unknown_outcome"
    assert why in question.payload["error"]


@pytest.mark.parametrize("status", [404, 503, None])
def test_a_message_that_did_not_arrive_is_no_unknown_outcome(status: int | None) -> None:
    with scripted(status) as (url, _):
        run = _consulted(url if status else "http://127.0.0.1:9/")
    assert run.status == "failed"
    assert (f"HTTP {status}" if status else "http://127.0.0.1:9/") in str(run.error)


@pytest.mark.parametrize("patience", [0, 5])
@pytest.mark.parametrize("lost", [502, 503, "<html>"])
def test_a_task_outlives_requests_for_its_state_that_are_lost(lost: Any, patience: float) -> None:
    task = {"id": "t", "artifacts": [{"parts": [{"text": "Soup."}]}], "status": {"state": "TASK_STATE_COMPLETED"}}
    with scripted({"result": _task("WORKING")}, lost, lost, {"result": task}) as (url, methods):
        run = _consulted(url, patience=patience)
    assert run.output == "Soup."
    assert methods == ["SendMessage", "GetTask", "GetTask", "GetTask"]


def test_what_became_of_a_task_is_unknown_if_its_agent_forgets_it_or_stays_away() -> None:
    gone = {"error": {"code": -32001, "message": "no such task"}}
    with scripted({"result": _task("WORKING")}, gone) as (url, methods):
        (question,) = _consulted(url).waiting
    assert question.kind == "unknown_outcome"
    assert question.payload["error"] == "agent 'shop': no such task; so the outcome of the call is unknown"
    with scripted({"result": _task("WORKING")}, 503) as (url, methods):
        (question,) = _consulted(url).waiting
    assert "it is not known what became of the task" in question.payload["error"]
    assert methods == ["SendMessage", *["GetTask"] * 11]


def test_a_task_that_does_not_take_the_answers_is_cancelled() -> None:
    asks = {"result": _task("INPUT_REQUIRED", {"text": "Which?"})}
    with scripted(asks, {"error": {"code": -32602, "message": "too late"}}, {"result": {}}) as (url, methods):
        tool = A2aAgent(url, name="shop", description="")

        async def talk() -> Any:
            async with Executor(graphs=[consults], tools=[tool]) as executor:
                run = await executor.start(consults, {})
                return await executor.answer(run.run_id, run.waiting[0].id, "this")

        (question,) = anyio.run(talk).waiting
    assert question.kind == "unknown_outcome"
    assert "does not take the answers: agent 'shop': too late; its task was cancelled" in question.payload["error"]
    assert methods == ["SendMessage", "SendMessage", "CancelTask"]


def test_what_an_agent_says_is_bounded_and_has_none_of_the_headers() -> None:
    headers = {"Authorization": "Bearer a-token-of-mine-1234"}
    told, _ = _told(_task("COMPLETED", {"text": "you sent TOKEN"}), headers=headers)
    assert told == "you sent [redacted]"
    assert len(_told(_task("FAILED", {"text": "x" * 1_000_000}))[0]) < 10_000
    told, _ = _told(_task("INPUT_REQUIRED", id="t" * 100_000), effect="pure")
    assert "without a usable id" in told


@pytest.mark.parametrize("state", ["INPUT_REQUIRED", "WORKING"])
def test_the_end_of_a_run_cancels_its_task(state: str) -> None:
    model = ScriptedModel([_calls("hi")])
    with stranger(_task(state)) as (url, requests):
        tool = A2aAgent(url, name="shop", description="", risk="read", poll=30, patience=0.01)
        graph = chat(tools=[tool])

        async def talk() -> Any:
            async with Executor(graphs=[graph], model=model) as executor:
                run_id = await executor.submit(graph, "Go.")
                while (await executor.load(run_id)).status != "paused":  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                return await executor.cancel(run_id)

        assert anyio.run(talk).status == "cancelled"
    assert requests[-1]["method"] == "CancelTask"
    assert requests[-1]["params"] == {"id": "t"}


def test_the_end_of_a_run_cancels_a_task_that_has_just_begun() -> None:
    with stranger(_task("WORKING")) as (url, requests):
        graph = chat(tools=[A2aAgent(url, name="shop", description="", risk="read", poll=0.02, patience=60)])

        async def talk() -> Any:
            async with Executor(graphs=[graph], model=ScriptedModel([_calls("hi")])) as executor:
                run_id = await executor.submit(graph, "Go.")
                while len(requests) < 2:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                return await executor.cancel(run_id)

        assert anyio.run(talk).status == "cancelled"
    assert requests[-1]["method"] == "CancelTask"


def test_an_agent_continues_the_trace_of_the_run_that_calls_it() -> None:
    provider, spans = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    model = ScriptedModel([_calls("hi"), "Done."])
    headers: list[str] = []
    with stranger(_task("COMPLETED", {"text": "Soup."}), headers) as (url, _):
        graph = chat(tools=[A2aAgent(url, name="shop", description="", risk="read")])

        async def talk() -> None:
            tracing = OpenTelemetry(tracer_provider=provider)
            async with Executor(graphs=[graph], model=model, tracing=tracing) as executor:
                await executor.start(graph, "Go.")

        anyio.run(talk)
    (called,) = [one for one in spans.get_finished_spans() if one.name == "execute_tool shop"]
    assert called.context is not None
    (header,) = headers
    assert header.startswith(f"00-{called.context.trace_id:032x}-{called.context.span_id:016x}-")
