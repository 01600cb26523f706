"""Commands that hand runs over: `enqueue` and `worker`."""

from __future__ import annotations

import signal
import socket
import time
import urllib.error
import urllib.request

import anyio
import pytest

from orchestrator.stores import open_store
from orchestrator.stores.base import Lease
from tests.support.shell import Shell

APP = """
import anyio
from pydantic import BaseModel
from orchestrator import Graph, Update, node
from orchestrator.executor import App

class S(BaseModel):
    n: int = 0

@node
async def first(state: S) -> Update:
    print("first", flush=True)
    await anyio.sleep(0.5)
    return {"n": state.n + 1}

@node
async def second(state: S) -> Update:
    await anyio.sleep(3600)

graph = Graph(
    name="slow", state=S, input="n", nodes={"first": first, "second": second}, edges="START -> first -> second -> END"
)
app = App(graphs=[graph])
number = 7
"""


def test_a_worker_drives_what_was_enqueued_and_at_sigterm_gives_it_back_when_the_step_has_ended(shell: Shell) -> None:
    shell.place.joinpath("shop.py").write_text(APP)
    put = shell("enqueue", "shop:graph", "--input", '{"n": 1}', "--run-id", "r")
    assert (put.code, put.out) == (0, "r\n"), put.err
    assert shell("enqueue", "shop:graph", "--input", '{"n": 1}', "--run-id", "r").code == 0
    with shell.begin("worker", "--app", "shop:app", "--graph-slots", "slow=2", "--fair-by", "tenant") as worker:
        assert worker.first_line() == "first\n"
        worker.signal(signal.SIGTERM)
        done = worker.end()
    assert done.code == 0
    assert "SIGTERM: no more runs are started" in done.err
    assert "released" in done.err
    assert shell.journal("r") == ["run_started", "resumed", "step_done"]
    (row,) = shell("runs", "--json").json
    assert (row["status"], row["deaths"]) == ("interrupted", 0)


def test_what_a_worker_cannot_use_is_a_usage_error(shell: Shell) -> None:
    shell.place.joinpath("shop.py").write_text(APP)
    for words, said in (
        (("worker",), "--app"),
        (("worker", "--app", "shop"), "module:attr"),
        (("worker", "--app", "nosuch:app"), "nosuch"),
        (("worker", "--app", "shop:missing"), "missing"),
        (("worker", "--app", "shop:number"), "neither an App"),
        (("worker", "--app", "shop:app", "--graphs", "other"), "other"),
        (("worker", "--app", "shop:app", "--slots", "0"), "--slots"),
        (("worker", "--app", "shop:app", "--graph-slots", "slow"), "NAME=N"),
        (("worker", "--app", "shop:app", "--graph-slots", "slow=0"), "1 or more"),
        (("worker", "--app", "shop:app", "--graph-slots", "other=2"), "the worker has slow"),
        (("worker", "--app", "shop:app", "--fair-by", "a b"), "--fair-by a b"),
        (("enqueue", "nosuch", "x"), "nosuch"),
        (("enqueue", "trial:two", "roses", "--at", "tomorrow"), "--at tomorrow"),
    ):
        done = shell(*words)
        assert (done.code, said in done.err) == (2, True), (words, done.err)
    assert shell("runs", "--json").json == []


def give_up(shell: Shell, run_id: str, fault: str, times: int) -> None:
    """Give drives of a run up, as workers that lack something do."""

    async def work() -> None:
        store = open_store(f"sqlite:///{shell.place}/.orchestrator/runs.db")
        try:
            for number in range(times):
                lease = Lease(run_id, f"token {number}", "worker")
                assert await store.take_lease(lease, ttl=30.0)
                await store.drop_lease(run_id, lease.token, fault=fault)
        finally:
            await store.close()

    anyio.run(work)


FAULT = "GraphChanged: run 'r' is at a:\n  - node 'a' is gone\n  - password=hunter22"


@pytest.mark.full
@pytest.mark.parametrize("began", [False, True])
def test_a_run_that_was_given_up_too_often_says_so_and_is_resumed_by_hand(shell: Shell, began: bool) -> None:
    if began:  # it was answered, and waits for a worker
        assert shell("run", "tool_user", "What is 2+3?", "--run-id", "r").code == 3
        assert shell("approve", "r", "--no-resume").code == 0
    else:
        assert shell("enqueue", "tool_user", "What is 2+3?", "--run-id", "r").code == 0
    give_up(shell, "r", FAULT, 4)
    (row,) = shell("runs", "--json").json
    assert (row["status"], row["deaths"], row["retry_at"] is not None) == ("running", 4, True)
    assert "in a row" in shell("why", "r").out
    assert "it is taken up again, from 20" in shell("why", "r").out
    give_up(shell, "r", FAULT, 1)
    (row,) = shell("runs", "--json").json
    assert (row["status"], row["deaths"]) == ("interrupted", 5)
    assert row["fault"] == FAULT.replace("hunter22", "[redacted]")
    assert shell("runs", "--status", "running", "--json").json == []
    assert [one["run_id"] for one in shell("runs", "--status", "interrupted", "--json").json] == ["r"]
    listed = shell("runs").out
    assert "parked, given up 5 times: GraphChanged: run 'r' is at a: - node 'a' is gone" in listed
    assert "\\n" not in listed
    shown, data = shell("show", "r"), shell("show", "r", "--json").json
    assert "r  tool_user  interrupted" in shown.out
    assert "only `resume` continues it" in shown.out
    assert "fault  GraphChanged: run 'r' is at a:\n  |   - node 'a' is gone\n" in shown.out
    assert "hunter22" not in shown.out
    assert (data["status"], data["deaths"], data["retry_at"]) == ("interrupted", 5, None)
    assert "only `resume` continues it" in data["why"]
    assert shell("recover", "--json").json == []
    resumed = shell.typed(shown.out.splitlines()[-1].strip())
    assert resumed.code == (0 if began else 3), resumed.err
    (row,) = shell("runs", "--json").json
    assert (row["deaths"], row["fault"]) == (0, "")
    assert "given up" not in shell("show", "r").out


def test_an_enqueued_run_says_when_it_begins(shell: Shell) -> None:
    shell("enqueue", "tool_user", "What is 2+3?", "--run-id", "r", "--at", "2099-01-01T09:00")
    for words in (("show", "r"), ("why", "r"), ("runs",)):
        assert "to be taken up" in shell(*words).out
        assert "2099-01-01 09:00:00 UTC" in shell(*words).out
    assert "running: choose_tool" not in shell("why", "r").out
    assert "(queued)" in shell("why", "r").out
    assert shell("show", "r", "--json").json["due"] == shell("runs", "--json").json[0]["due"] == 4070941200.0
    assert shell.typed(shell("show", "r").out.splitlines()[-1].strip()).code == 3, "resume begins it now"
    assert "due" not in shell("show", "r", "--json").json


@pytest.mark.full
def test_a_worker_serves_probes_and_drains_and_a_second_signal_interrupts(shell: Shell) -> None:
    shell.place.joinpath("shop.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        refused = shell("worker", "--app", "shop:app", "--health", str(port))
        assert (refused.code, "use another address" in refused.err) == (2, True), refused.err
    assert shell("worker", "--app", "shop:app", "--health", "here").code == 2
    assert shell("enqueue", "shop:graph", "--input", '{"n": 1}', "--run-id", "r").code == 0
    with shell.begin("worker", "--app", "shop:app", "--grace", "3600", "--health", str(port)) as worker:
        assert worker.first_line() == "first\n"
        assert probe(port, "/healthz", 200) == "ok\n"
        assert probe(port, "/readyz", 200) == "ok\n"
        assert 'runs_driving{graph="slow"} 1.0' in probe(port, "/metrics", 200)
        until = time.monotonic() + 60
        while "step_done" not in shell.journal("r"):  # the second step hangs
            assert time.monotonic() < until
        worker.signal(signal.SIGTERM)
        assert "draining" in probe(port, "/readyz", 503)
        assert probe(port, "/healthz", 200) == "ok\n"
        worker.signal(signal.SIGTERM)
        done = worker.end()
    assert done.code == 0, done.err
    assert "released" in done.err
    assert shell("workers", "--json").json["workers"] == []


def probe(port: int, path: str, status: int) -> str:
    """Wait until a probe has this status."""
    until = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                found, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            found, text = error.code, error.read().decode()
        if found == status:
            return str(text)
        assert time.monotonic() < until, (found, text)
        time.sleep(0.05)
