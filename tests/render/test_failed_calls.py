"""A step that ended though a call in it failed looks like neither a good step nor a failed one."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Run, ToolResult, node, tool
from orchestrator.cli.report import Plain
from orchestrator.errors import ToolError
from orchestrator.kernel.plan import Plan
from orchestrator.render import to_dot, to_html, to_mermaid, to_svg, to_text
from orchestrator.render.terminal.run_report import step_line
from orchestrator.render.terminal.tree import left_behind
from orchestrator.views.overlay import Overlay
from orchestrator.views.reader import Reader
from orchestrator.views.step_tree import StepTree

pytestmark = pytest.mark.anyio


class State(BaseModel):
    said: str = ""


@tool(risk="none", effect="pure")
def broken() -> str:
    """Break."""
    raise ToolError("out of order")


@tool(risk="none", effect="pure")
def works() -> str:
    """Work."""
    return "fine"


@tool(risk="none", effect="pure")
def coded() -> ToolResult:
    """Fail by the exit code alone."""
    return ToolResult(output="order 17", exit_code=2)


def graph(name: str, *, check: bool = False) -> Graph:
    @node
    async def call(ctx: Context[None]) -> dict[str, object]:
        return {"said": (await ctx.tool(name, {}, check=check)).text}

    return Graph(name="g", state=State, nodes={"call": call}, edges="START -> call -> END")


async def made(graph: Graph) -> tuple[Run, Overlay, list[Any]]:
    async with Executor(tools=[broken, works, coded]) as executor:
        found = await executor.start(graph, {})
        events = [event async for event in executor.events(found.run_id)]
        return found, found.overlay(), events


async def test_drawings_show_it_in_every_format_with_a_mark_and_words_of_its_own() -> None:
    drawn: dict[str, dict[str, str]] = {}
    for kind, of in {
        "good": graph("works"), "faulty": graph("broken"), "failed": graph("broken", check=True),
    }.items():  # fmt: skip
        _, overlay, _ = await made(of)
        drawn[kind] = {
            "svg": to_svg(of, overlay), "dot": to_dot(of, overlay), "mermaid": to_mermaid(of, overlay),
            "text": to_text(of, overlay), "ascii": to_text(of, overlay, ascii=True),
        }  # fmt: skip
    for style in ("svg", "dot", "mermaid", "text", "ascii"):
        assert len({drawn[kind][style] for kind in drawn}) == 3, style
    faulty = drawn["faulty"]
    assert "! call failed" in faulty["text"]
    assert "✓" not in faulty["text"]
    assert "! call failed" in faulty["ascii"]
    assert "a call failed" in faulty["dot"]
    assert "a call failed" in faulty["mermaid"]
    (line,) = [line for line in faulty["svg"].splitlines() if 'id="node-call"' in line]
    (shape,) = [part for part in line.split("<g ") if 'id="node-call"' in part]
    assert "faulty" in shape.partition(">")[0]
    assert "a call of a tool failed" in faulty["svg"]
    for kind in ("good", "failed"):
        assert "call failed" not in drawn[kind]["text"]


async def test_the_terminals_tree_its_lines_and_show_say_it() -> None:
    told: dict[str, tuple[str, str, str]] = {}
    for kind, of in {
        "good": graph("works"), "faulty": graph("broken"), "failed": graph("broken", check=True),
    }.items():  # fmt: skip
        async with Executor(tools=[broken, works]) as executor:
            found = await executor.start(of, {})
            events = [event async for event in executor.events(found.run_id)]
            (point,) = await executor.history(found.run_id)
        model, lines = StepTree(), list[str]()
        reader = Reader(Plan.of(of), model)
        writer = Plain(lines.append)
        for event in events:
            reader.take(event)
            writer.show(event)
        tree = "\n".join(line.text for line in left_behind(model, model.top.steps[0], model.live_branches(), 0.0))
        told[kind] = (tree, "\n".join(lines), step_line(point))
    good, faulty, failed = told["good"], told["faulty"], told["failed"]
    assert good[0].startswith("✓")
    assert faulty[0].startswith("! call")
    assert failed[0].startswith("✗ call")
    assert "1 call failed" in faulty[0]
    assert "✗ broken" in faulty[0]
    assert "out of order" in faulty[0]
    assert "broken() failed: out of order" in faulty[1]
    assert "call  [1 failed call]" in faulty[1]
    assert "call  [1 failed call]" in faulty[2]
    assert "failed" not in good[0] + good[1] + good[2]
    assert "[1 failed call]" not in failed[1] + failed[2]


async def test_the_page_and_the_notebook_have_it() -> None:
    of = graph("broken")
    found, _, _ = await made(of)
    assert '"failed":1' in to_html(of, found).replace(" ", "")
    bundle = found._repr_mimebundle_()
    assert "! call failed" in bundle["text/plain"]
    assert "faulty" in bundle["image/svg+xml"]


async def test_a_call_that_failed_by_its_exit_code_alone_is_shown_alike() -> None:
    of = graph("coded")
    found, overlay, events = await made(of)
    lines: list[str] = []
    writer = Plain(lines.append)
    for event in events:
        writer.show(event)
    said = "\n".join(lines)
    assert "coded() failed: exit code 2" in said
    assert "call  [1 failed call]" in said
    assert found.values["said"] == "Error: order 17"
    assert "! call failed" in to_text(of, overlay)
    page = to_html(of, found).replace(" ", "")
    assert '"failed":1' in page
    assert '"failed":true' in page


async def test_journals_that_do_not_say_it_are_drawn_without_it() -> None:
    """The field is an optional one of a record: in a journal without it no step had a failed call."""
    async with Executor(tools=[broken]) as executor:
        run = await executor.start(graph("broken"), {})
        first, *lines, last = [line async for line in executor.export([run.run_id])]
    told = [json.loads(line) for line in lines]
    assert [record.pop("failed") for record in told if "failed" in record] == [1]
    body = [first, *map(json.dumps, told)]
    digest = sha256("".join(f"{line}\n" for line in body).encode()).hexdigest()
    async with Executor() as executor:
        await executor.import_([*body, json.dumps({**json.loads(last), "sha256": digest})])
        found = await executor.load(run.run_id)
    assert run.overlay().faulty
    assert found.overlay().faulty == {}
    text = to_text(found.definition, found)
    assert found.graph in text
    assert "call failed" not in text
    assert "<svg" in to_svg(found.definition, found)
    assert "<html" in found.to_html()
