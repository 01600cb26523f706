"""Commands about a store that is not the file of a directory: it is named by its URL, once, in the environment."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.shell import Shell
from tests.support.stores import kinds

APP = """
from pydantic import BaseModel
from orchestrator import Context, Graph, Update, node
from orchestrator.executor import App

class S(BaseModel):
    n: int = 0

@node
async def ask(state: S, ctx: Context) -> Update:
    await ctx.ask("input", prompt="go on?")
    return {"n": state.n + 1}

graph = Graph(name="asks", state=S, input="n", output="n", nodes={"ask": ask}, edges="START -> ask -> END")
app = App(graphs=[graph])
"""


@kinds("postgresql")
def test_a_run_is_enqueued_driven_listed_answered_and_deleted_in_a_store_of_any_url(url: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, inside=True)
    shell.env["ORCHESTRATOR_STORE"] = url
    shell.place.joinpath("shop.py").write_text(APP)
    assert shell("enqueue", "shop:graph", "--input", '{"n": 1}', "--run-id", "r").code == 0
    with shell.begin("worker", "--app", "shop:app") as worker:
        waited = shell("show", "r", "--json").json
        while waited["status"] == "running":
            waited = shell("show", "r", "--json").json
        worker.signal(signal.SIGTERM)
        assert worker.end().code == 0
    assert waited["status"] == "paused"
    assert [row["run_id"] for row in shell("runs", "--json").json] == ["r"]
    assert "waiting for an answer" in shell("why", "r").out
    # What a database says is not imported unasked.
    words = ("--graph", "shop:graph", "--tools", "arithmetic", "--model", "offline")
    answered = shell("answer", "r", "yes", *words)
    assert answered.code == 0, answered.err
    assert shell("show", "r", "--json").json["output"] == 2
    assert shell("store", "check").code == 0
    assert shell("delete", "r").code == 0
    assert shell("runs", "--json").json == []
    assert not (tmp_path / ".orchestrator").exists()
