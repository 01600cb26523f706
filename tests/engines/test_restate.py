"""What is Restate's alone: its time-outs, its one timer for each run, and the signals that its SDK takes."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Context, Executor, Graph, Update, node
from orchestrator.engines import Deliveries
from orchestrator.engines.restate import RestateEngine, service
from orchestrator.engines.restate import engine as restate_engine
from orchestrator.engines.restate.worker import listen
from orchestrator.errors import EngineUnavailable, RunError
from tests.engines.crew import Server
from tests.engines.test_deliveries import Count, until
from tests.support.ports import free_port

pytestmark = [pytest.mark.anyio]


@asynccontextmanager
async def served(server: Server, executor: Executor, **how: Any) -> AsyncIterator[RestateEngine]:
    """The service of an executor, in this process."""
    engine, stop = RestateEngine(server.url), anyio.Event()
    async with anyio.create_task_group() as tasks:
        deliveries = Deliveries(executor)
        tasks.start_soon(listen, service(deliveries, **how), engine.address.listen, stop)
        with anyio.fail_after(30):
            while True:
                try:
                    await engine.register()
                    break
                except EngineUnavailable:
                    await anyio.sleep(0.1)
        yield engine
        await deliveries.drain(1)
        stop.set()
    await engine.aclose()


async def ended(executor: Executor, run_id: str) -> str:
    """The status of a run when it has ended."""
    with anyio.fail_after(60):
        while (status := (await executor.load(run_id)).status) in ("running", "paused", "interrupted"):  # noqa: ASYNC110
            await anyio.sleep(0.05)
    return status


async def deliveries_of(engine: RestateEngine, run_id: str) -> list[str]:
    """The statuses of all deliveries of a run that Restate knows."""
    return [status for _, status in await engine._invocations(run_id)]


@pytest.mark.peer
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_delivery_that_is_cut_off_does_not_end_a_long_step(restate_server: Server) -> None:
    began = 0

    @node
    async def long(state: Count) -> Update:
        nonlocal began
        began += 1
        await anyio.sleep(4)
        return {"n": 1}

    graph = Graph(name="long", state=Count, output="n", nodes={"long": long}, edges="START -> long -> END")
    async with (
        Executor(graphs=[graph], idle="sleep") as executor,
        served(restate_server, executor, longest=timedelta(seconds=0.5)) as engine,
    ):
        run_id = await executor.enqueue(graph, {})
        await engine.submit(run_id)
        assert await ended(executor, run_id) == "completed"
        assert began == 1


@pytest.mark.peer
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_run_with_many_answers_has_one_timer(restate_server: Server) -> None:
    @node
    async def ask(state: Count, ctx: Context[None]) -> Update:
        await ctx.ask("input", prompt=f"{state.n}?", deadline=3600.0)
        return {"n": state.n + 1}

    names = [f"ask{number}" for number in range(6)]
    graph = Graph(
        name="chat", state=Count, output="n", nodes=dict.fromkeys(names, ask),
        edges=f"START -> {' -> '.join(names)} -> END",
    )  # fmt: skip
    async with Executor(graphs=[graph], idle="sleep") as executor, served(restate_server, executor) as engine:
        run_id = await executor.enqueue(graph, {})
        await engine.submit(run_id)
        for number in range(5):
            with anyio.fail_after(30):
                while True:
                    open_ones = [one for one in (await executor.load(run_id)).waiting if one.prompt == f"{number}?"]
                    if open_ones:
                        break
                    await anyio.sleep(0.05)
            question = open_ones[0]
            with anyio.fail_after(30):
                while True:
                    try:
                        await executor.answer(run_id, question.id, "yes", resume=False)
                        break
                    except RunError:
                        await anyio.sleep(0.05)
            await engine.submit(run_id)
            await engine.submit(run_id)
        with anyio.fail_after(30):
            while "running" in await deliveries_of(engine, run_id):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        scheduled = (await deliveries_of(engine, run_id)).count("scheduled")
        assert 1 <= scheduled <= len(names), "one for each deadline, though each was found by two deliveries"
        await executor.cancel(run_id)
        await engine.cancel(run_id)
        await engine.submit(run_id)
        with anyio.fail_after(30):
            while {*await deliveries_of(engine, run_id)} != {"completed"}:  # noqa: ASYNC110
                await anyio.sleep(0.05)


@pytest.mark.peer
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_signals_are_left_to_the_process(restate_server: Server) -> None:
    async with Executor(graphs=[], idle="sleep") as executor:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async with served(restate_server, executor) as engine:
                await engine.submit("nosuch")
                with anyio.fail_after(30):
                    while await engine.status("nosuch") != "done":  # noqa: ASYNC110
                        await anyio.sleep(0.05)
                signal.raise_signal(signal.SIGTERM)
                async for number in signals:
                    assert number == signal.SIGTERM
                    break


async def test_an_engine_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    engine = RestateEngine(f"restate://127.0.0.1:{free_port()}?admin={free_port()}")
    for ask in (engine.submit, engine.cancel, engine.status):
        with pytest.raises(EngineUnavailable, match="does not answer"):
            await ask("r")
    await engine.aclose()


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_deliveries_need_asyncio() -> None:
    async with Executor(graphs=[], idle="sleep") as executor:
        with pytest.raises(RuntimeError, match="asyncio only"):
            await listen(service(executor), ("127.0.0.1", 0), anyio.Event())


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_port_that_is_taken_says_which() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with Executor(graphs=[], idle="sleep") as executor:
            with pytest.raises(EngineUnavailable, match="cannot be listened on"):
                await listen(service(executor), taken.getsockname(), anyio.Event())


class Admin(ThreadingHTTPServer):
    """The part of a Restate server's admin API that knows where the workers are."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _AdminHandler)
        self.known: list[str] = []
        """URIs that were registered, until the server loses its data."""
        self.down = False


class _AdminHandler(BaseHTTPRequestHandler):
    @property
    def admin(self) -> Admin:
        assert isinstance(self.server, Admin)
        return self.server

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/services/agents" and self.admin.known else 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.admin.down:
            self.admin.known.append(body["uri"])
        self._answer(201)

    def _answer(self, status: int) -> None:
        body = b"{}"
        self.send_response(503 if self.admin.down else status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the standard library
        """Write no line for each request."""


@pytest.fixture
def admin() -> Iterator[Admin]:
    with Admin() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_workers_register_again_when_the_server_has_lost_its_data(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restate_engine, "_LOOKS", 0.05)
    caplog.set_level("INFO", logger="orchestrator.worker")
    port, nowhere = free_port(), free_port()
    engine = RestateEngine(f"restate://127.0.0.1:{nowhere}?admin={admin.server_port}&listen={port}&service=agents")
    stop = anyio.Event()
    async with Executor(graphs=[], idle="sleep") as executor:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: engine.serve(Deliveries(executor), stop=stop))
                await until(lambda: admin.known == [f"http://127.0.0.1:{port}"])
                await anyio.sleep(0.3)
                assert len(admin.known) == 1, "the server knows them"
                admin.known.clear()
                await until(lambda: admin.known == [f"http://127.0.0.1:{port}"])
                assert "the workers are no longer registered with Restate; they are registered again" in caplog.text
                admin.down = True
                await until(lambda: "the workers registered with Restate cannot be listed" in caplog.text)
                admin.known.clear()
                admin.down = False
                await until(lambda: admin.known == [f"http://127.0.0.1:{port}"])
                stop.set()
    await engine.aclose()
