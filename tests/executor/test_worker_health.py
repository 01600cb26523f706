"""Probes and metrics of a worker."""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from prometheus_client.parser import text_string_to_metric_families

from orchestrator import Executor, OfflineModel, Update, node
from orchestrator.errors import StoreUnavailable
from orchestrator.executor import WorkerHealth, worker_health
from orchestrator.stores.base import Lease, RunInfo
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.stores.sqlite import SQLiteStore
from tests.executor.test_workers_of_runs import all_are
from tests.support.executors import Log, chain, hanging, says
from tests.support.programs import ROOT
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio

SOON = 30.0
HELLO = chain(says("hello"), name="hello")


def get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


async def asked(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    return await anyio.to_thread.run_sync(get, port, path, method)


async def until(port: int, path: str, status: int) -> str:
    """Wait until a probe has this status."""
    with anyio.fail_after(SOON):
        while (found := await asked(port, path))[0] != status:  # noqa: ASYNC110  a thread answers
            await anyio.sleep(0.02)
    return found[1]


def metrics(text: str) -> dict[tuple[str, str], float]:
    """Name and labels of each sample -> its value."""
    return {
        (one.name.removeprefix("orchestrator_worker_"), ",".join(one.labels.values())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


async def test_a_worker_is_alive_and_ready_while_it_works_and_neither_before_nor_after(tmp_path: Path) -> None:
    health = WorkerHealth()
    with health.serving() as port:
        assert await asked(port, "/healthz") == (503, "the worker has stopped\n")
        assert (await asked(port, "/readyz"))[0] == 503
        executor = Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[HELLO])
        async with executor, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: executor.work(health=health))
            assert await until(port, "/readyz", 200) == "ok\n"
            assert await asked(port, "/healthz") == (200, "ok\n")
            assert await asked(port, "/healthz", "HEAD") == (200, "")
            assert (await asked(port, "/healthz", "POST"))[0] == 405
            assert (await asked(port, "/"))[0] == 404
            tasks.cancel_scope.cancel()
        assert (await asked(port, "/healthz"))[0] == 503
    with pytest.raises(OSError, match="refused"):
        get(port, "/healthz")


async def test_a_worker_that_drains_is_alive_and_not_ready() -> None:
    slow, began = hanging()
    graph, health, stop = chain(slow, name="slow"), WorkerHealth(), anyio.Event()
    async with Executor(graphs=[graph]) as executor, anyio.create_task_group() as tasks:
        with health.serving() as port:
            await executor.enqueue(graph, run_id="r")
            tasks.start_soon(lambda: executor.work(health=health, stop=stop, grace=60.0))
            await began.wait()
            await until(port, "/readyz", 200)
            stop.set()
            assert "draining" in await until(port, "/readyz", 503)
            assert (await asked(port, "/healthz"))[0] == 200
            (one,) = await executor.workers.list()
            assert (one.state, one.runs) == ("draining", ("r",))
            tasks.cancel_scope.cancel()


async def test_a_store_that_fails_makes_a_worker_not_ready_and_it_stays_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails, parked = True, SQLiteStore.parked

    async def failing(self: SQLiteStore, *, limit: int = 100) -> list[RunInfo]:
        if fails:
            raise StoreUnavailable("password=hunter22: the disk is full")
        return await parked(self, limit=limit)

    monkeypatch.setattr(SQLiteStore, "parked", failing)
    health = WorkerHealth()
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[HELLO], lease_ttl=1.0) as executor:
        with health.serving() as port:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: executor.work(health=health))
                with anyio.fail_after(SOON):
                    while "fails" not in (told := (await asked(port, "/readyz"))[1]):  # noqa: ASYNC110  a thread answers
                        await anyio.sleep(0.01)
                assert told == "the store fails: StoreUnavailable\n"
                assert (await asked(port, "/healthz"))[0] == 200
                fails = False
                await until(port, "/readyz", 200)
                assert metrics((await asked(port, "/metrics"))[1])["store_errors_total", ""] >= 1
                tasks.cancel_scope.cancel()


async def test_a_worker_whose_event_loop_is_blocked_is_not_alive() -> None:
    found: list[tuple[int, str]] = []
    health = WorkerHealth()
    with health.serving() as port:

        @node
        async def blocks(state: Log) -> Update:
            """Block the event loop, and ask meanwhile."""
            time.sleep(0.5)  # noqa: ASYNC251  that it blocks is what is looked at
            found.append(get(port, "/healthz"))
            return {"log": "x"}

        graph = chain(blocks, name="g")
        async with Executor(graphs=[graph], lease_ttl=0.2) as executor, anyio.create_task_group() as tasks:
            await executor.enqueue(graph, run_id="r")
            tasks.start_soon(lambda: executor.work(health=health))
            with anyio.fail_after(SOON):
                while not found:  # noqa: ASYNC110  the node sets it
                    await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
    assert found[0][0] == 503
    assert "blocked" in found[0][1]


@quick_on("asyncio")
async def test_however_many_clients_are_silent_a_probe_is_answered_by_few_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_health._Handler, "timeout", 3600.0)  # silent clients are not given up meanwhile

    def answering() -> int:
        return sum("process_request_thread" in one.name for one in threading.enumerate())

    with WorkerHealth().serving() as port:
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(sized(20, 100))]
        try:
            for _ in range(sized(1, 3)):
                assert (await asked(port, "/healthz"))[0] == 503
                assert 0 < answering() <= 16
        finally:
            for one in clients:
                one.close()


async def test_clients_that_hang_up_leave_no_lines(capfd: pytest.CaptureFixture[str]) -> None:
    with WorkerHealth().serving() as port:
        for said in (b"", b"GET /heal", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # resets at its end
                client.sendall(said)
                await anyio.sleep(0.05)
        with anyio.fail_after(SOON):
            while any("process_request" in one.name for one in threading.enumerate()):  # noqa: ASYNC110  threads
                await anyio.sleep(0.02)
    assert capfd.readouterr() == ("", "")


async def test_metrics_count_what_the_worker_did(tmp_path: Path) -> None:
    @node
    async def fails(state: Log) -> Update:
        """Fail."""
        raise ValueError("no")

    bad, health = chain(fails, name="bad"), WorkerHealth()
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[HELLO, bad], model=OfflineModel()) as executor:
        await executor.enqueue(HELLO, run_id="parked")
        for number in range(MAX_DEATHS):
            assert await executor.store.take_lease(Lease("parked", f"t{number}", "far"), ttl=60.0)
            await executor.store.drop_lease("parked", f"t{number}", fault="no model")
        for number in range(3):
            await executor.enqueue(HELLO, run_id=f"r{number}")
        await executor.enqueue(bad, run_id="b")
        with health.serving() as port:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: executor.work(slots=7, health=health))
                await all_are(executor, "completed", 3)
                await all_are(executor, "failed", 1)
                await until(port, "/readyz", 200)
                found = await anyio.to_thread.run_sync(lambda: metrics(get(port, "/metrics")[1]))
                assert found["runs_taken_total", "hello"] == 3
                assert found["runs_taken_total", "bad"] == 1
                assert found["runs_ended_total", "hello,completed"] == 3
                assert found["runs_ended_total", "bad,failed"] == 1
                assert found["runs_driving", "hello"] == 0
                assert (found["slots", ""], found["ready", ""], found["runs_parked", ""]) == (7, 1, 1)
                assert found["claim_seconds_count", ""] >= 1
                assert found["claim_seconds_bucket", "+Inf"] == found["claim_seconds_count", ""]
                assert 0 <= found["heartbeat_age_seconds", ""] < 30
                alerts = (ROOT / "docs" / "operations.md").read_text()
                named = set(re.findall(r"orchestrator_worker_(\w+)", alerts))
                assert len(named) > 6
                assert named <= {name for name, _ in found}, "an alert names another metric"
                tasks.cancel_scope.cancel()
