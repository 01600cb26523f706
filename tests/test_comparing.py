"""One question put to several graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel

from orchestrator import Context, Graph, OfflineModel, append, compare, node, tool
from orchestrator.errors import GraphUnknown
from orchestrator.models import Reply
from orchestrator.strategies.tool_user import tool_user
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tools_from_ref

pytestmark = pytest.mark.anyio


class Talk(BaseModel):
    question: str
    words: Annotated[list[str], append] = []


@node
async def ask(state: Talk, ctx: Context) -> dict[str, str]:
    return {"words": (await ctx.model.complete(state.question)).text}


wide = Graph(
    name="wide", state=Talk, input="question", output="words",
    nodes={"a": ask, "b": ask, "c": ask, "join": ask.with_(join="all")},
    edges="START -> a, b, c -> join -> END",
)  # fmt: skip
"""Four calls in two rounds."""


@node
async def delegate(state: Talk, ctx: Context) -> dict[str, str]:
    return {"words": str((await ctx.tool("wide", question=state.question)).output)}


around = Graph(
    name="around", state=Talk, input="question", output="words", nodes={"d": delegate}, edges="START -> d -> END"
)


async def test_answers_calls_rounds_and_tokens_side_by_side(tmp_path: Path) -> None:
    found = await compare(
        "What is 20+(2*4)?", [tool_user(), wide, around], model=OfflineModel(), approve="dangerous",
        tools=[*tools_from_ref("arithmetic"), wide.as_tool("wide", "Asks four times.")],
        store=f"sqlite:///{tmp_path}/runs.db",
    )  # fmt: skip
    first, second, third = found.rows
    assert (first.answer, first.run.status, second.answer) == ("28", "completed", ["28"] * 4)
    assert (first.model_calls, first.tool_calls, first.rounds) == (6, 2, 6)
    assert (second.model_calls, second.tool_calls, second.rounds) == (4, 0, 2)
    assert (third.model_calls, third.tool_calls, third.rounds) == (4, 1, 2)  # with the run of the graph that it called
    assert third.usage.input_tokens == second.usage.input_tokens > 0
    head, *lines = found.to_text().splitlines()
    assert head.split() == ["graph", "status", "answer", "model", "calls", "rounds", "prompt", "completion", "tool",
                            "calls", "seconds"]  # fmt: skip
    assert [line.split()[0] for line in lines] == ["tool_user", "wide", "around"]
    files = found.save(tmp_path / "out")
    assert [file.name for file in files] == ["tool_user.svg", "wide.svg", "around.svg", "comparison.json"]
    assert all("<svg" in file.read_text() for file in files[:3])
    assert json.loads(files[3].read_text()) == found.to_json()
    html = found._repr_mimebundle_()["text/html"]
    assert html.count('src="data:image/svg+xml;base64,') == 3
    assert "<svg" not in html


async def test_a_run_that_comes_to_nothing_is_a_row_too(tmp_path: Path) -> None:
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    script = ScriptedModel({"choose_args": ['{"amount": 5}'], "a": [Reply(text="<b>")], "b": [ValueError("no b")],
                            "c": ["c"]})  # fmt: skip
    found = await compare("Pay 5", [tool_user(), wide, wide], model=script, tools=[pay])
    assert [row.run.status for row in found.rows] == ["paused", "failed", "failed"]
    assert "no b" in str(found.rows[1].answer)
    assert [file.name for file in found.save(tmp_path)][:3] == ["tool_user.svg", "wide.svg", "wide-2.svg"]
    assert "<b>" not in found._repr_mimebundle_()["text/html"].split("<figure>")[0]
    with pytest.raises(GraphUnknown):
        await compare("Pay 5", [tool_user()])


async def test_two_settings_of_one_strategy_are_compared(tmp_path: Path) -> None:
    found = await compare(
        "What is ((1+2)*3)+4?", [tool_user(max_steps=2), tool_user()], model=OfflineModel(), approve="none",
        tools=tools_from_ref("arithmetic"), store=f"sqlite:///{tmp_path}/runs.db",
    )  # fmt: skip
    assert [(row.graph, row.run.status, row.answer) for row in found.rows] == [
        ("tool_user", "exhausted", "9"),
        ("tool_user", "completed", "13"),
    ]
    assert [file.name for file in found.save(tmp_path)] == ["tool_user.svg", "tool_user-2.svg", "comparison.json"]
