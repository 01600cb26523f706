"""The commands about results of cached nodes, and what other commands say of them."""

from __future__ import annotations

import pytest

from tests.support.shell import Shell

GRAPH = """
from pydantic import BaseModel
from orchestrator import Graph, node

class State(BaseModel):
    question: str = ""
    answer: str = ""

@node(cache=3600)
async def look(state: State) -> dict[str, str]:
    return {"answer": f"about {state.question}"}

graph = Graph(name="looking", state=State, input="question", output="answer", nodes={"look": look},
              edges="START -> look -> END")
"""


@pytest.mark.full
def test_hits_are_shown_and_results_are_listed_and_removed(shell: Shell) -> None:
    (shell.place / "looking.py").write_text(GRAPH)
    assert shell("cache", "list").out == ""
    runs = [shell("run", "looking.py:graph", "tea", "--json").json for _ in range(2)]
    assert [run["output"] for run in runs] == ["about tea", "about tea"]
    first, second = (shell("show", run["run_id"]) for run in runs)
    assert "from cache" not in first.out
    assert "history  1 of 1 steps from cache" in second.out
    assert "look  [from cache]" in second.out
    shown = shell("show", runs[1]["run_id"], "--json").json
    assert [step.get("cached") for step in shown["history"]] == [True]
    page = shell.place / "run.html"
    assert shell("render", runs[1]["run_id"], "-o", str(page)).code == 0
    assert '"cached":true' in page.read_text().replace(" ", "")
    listed = shell("cache", "list")
    heading, row = listed.out.splitlines()
    assert heading.split() == ["GRAPH", "NODE", "KEY", "BYTES", "UNTIL"]
    assert row.startswith("looking  look  ")
    (kept,) = shell("cache", "list", "looking", "look", "--json").json
    assert (kept["graph"], kept["node"]) == ("looking", "look")
    assert shell("cache", "prune", "--json").json == {"removed": 0}
    assert "0 results removed" in shell("cache", "clear", "other").err
    assert "1 results removed" in shell("cache", "clear", "looking").err
    assert shell("cache", "prune", "--older-than", "1d").code == 0
    assert shell("cache", "prune", "--older-than", "x").code == 2
