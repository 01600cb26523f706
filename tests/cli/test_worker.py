"""Commands that hand runs over: `enqueue` and `worker`."""

from __future__ import annotations

import signal

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
    with shell.begin("worker", "--app", "shop:app") as worker:
        assert worker.first_line() == "first\n"
        worker.signal(signal.SIGTERM)
        done = worker.end()
    assert done.code == 0
    assert "SIGTERM: no more runs are taken" in done.err
    assert "given back" in done.err
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
        (("worker", "--app", "shop:number"), "not an App"),
        (("worker", "--app", "shop:app", "--graphs", "other"), "other"),
        (("worker", "--app", "shop:app", "--slots", "0"), "--slots"),
        (("enqueue", "nosuch", "x"), "nosuch"),
        (("enqueue", "trial:two", "roses", "--at", "tomorrow"), "--at tomorrow"),
    ):
        done = shell(*words)
        assert (done.code, said in done.err) == (2, True), (words, done.err)
    assert shell("runs", "--json").json == []
