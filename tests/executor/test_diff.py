"""How two runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel

import orchestrator
from orchestrator import Approve, Context, Deny, Executor, Graph, Message, Outcome, Update, append, node, tool
from orchestrator.executor import RunDiff
from orchestrator.testing import ScriptedModel
from orchestrator.views.run_diff import Difference
from tests.support.sizes import quick_on, sized


class Essay(BaseModel):
    topic: str = ""
    text: str = ""
    notes: Annotated[list[str], append] = []


def writing(prompt: str = "Write about", name: str = "writing", more: str = "") -> Graph:
    """Two model calls, of which the second one has the reply to the first one in its request."""

    @node
    async def draft(state: Essay, ctx: Context) -> Update:
        reply = await ctx.model.complete([Message(role="user", content=f"{prompt} {state.topic}")])
        return {"text": reply.text}

    @node
    async def polish(state: Essay, ctx: Context) -> Update:
        reply = await ctx.model.complete([Message(role="user", content=f"Polish this:\n{state.text}")])
        return {"text": reply.text, "notes": "polished"}

    @node(effect="pure")
    async def check(state: Essay) -> None:
        return None

    nodes: dict[str, Any] = {"draft": draft, "polish": polish, **({more: check} if more else {})}
    return Graph(
        name=name, state=Essay, input="topic", output="text", nodes=nodes,
        edges=f"START -> {' -> '.join(nodes)} -> END",
    )  # fmt: skip


async def _compared(
    one: Graph, other: Graph, *replies: Sequence[str], topics: Sequence[str] = ("tea", "tea")
) -> RunDiff:
    async with Executor() as executor:
        runs = []
        for graph, said, topic in zip((one, other), replies, topics, strict=True):
            async with Executor(executor.store, graphs=[graph], model=ScriptedModel(said)) as own:
                runs.append((await own.start(graph, topic)).run_id)
        return await executor.diff(*runs)


@pytest.mark.anyio
async def test_two_runs_that_did_the_same_are_the_same() -> None:
    found = await _compared(writing(), writing(), ["a", "b"], ["a", "b"])
    assert found.same
    assert found.first is None
    assert found.differences == ()
    assert found.lines[-1] == "Both took the same steps, asked and got the same, and ended the same."
    assert found.to_json()["same"] is True


@pytest.mark.anyio
async def test_the_first_difference_comes_first_and_shows_where_the_prompts_differ() -> None:
    found = await _compared(writing(), writing("Tell me about"), ["a", "b"], ["c", "b"])
    assert not found.same
    first = found.first
    assert first is not None
    assert (first.kind, first.node, first.visit) == ("request", "draft", 1)
    assert "-Write about tea" in first.lines
    assert "+Tell me about tea" in first.lines
    assert [(one.kind, one.node) for one in found.differences] == [
        ("request", "draft"), ("update", "draft"), ("request", "polish"),
    ]  # fmt: skip
    assert any(
        line.startswith("First difference: draft: the request to model scripted differs") for line in found.lines
    )


@pytest.mark.anyio
async def test_another_reply_to_the_same_prompt_is_another_result() -> None:
    found = await _compared(writing(), writing(), ["a", "b"], ["a", "c"])
    assert [(one.kind, one.node) for one in found.differences] == [
        ("result", "polish"), ("update", "polish"), ("output", ""),
    ]  # fmt: skip
    assert found.differences[-1].what == "the outputs are b and c"


@pytest.mark.anyio
async def test_a_step_that_only_one_version_has_is_a_difference_and_the_others_are_still_compared() -> None:
    found = await _compared(writing(), writing(more="check"), ["a", "b"], ["a", "b"])
    assert [(one.kind, one.node, one.what) for one in found.differences] == [
        ("step", "check", "only the second run reached this step")
    ]
    assert not found.same_graph
    assert found.lines[3] == "The runs are of different versions of the graph."


@pytest.mark.anyio
async def test_other_inputs_are_the_first_difference() -> None:
    found = await _compared(writing(), writing(), ["a", "b"], ["a", "b"], topics=("tea", "coffee"))
    first = found.first
    assert first is not None
    assert (first.kind, first.node) == ("state", "")
    assert "they began with other values of topic" in first.what


@pytest.mark.anyio
async def test_runs_of_different_graphs_are_compared_by_the_names_of_their_nodes() -> None:
    found = await _compared(writing(), writing(name="other"), ["a", "b"], ["a", "b"])
    assert found.same
    assert [one.graph for one in found.figures] == ["writing", "other"]


@tool(effect="irreversible", risk="write")
async def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


@node(outcomes=("sent", "kept"))
async def ask_first(state: Essay, ctx: Context) -> Outcome[str]:
    answer = await ctx.ask(
        "approval", prompt="Send it?", payload={"tool": "send", "args": {"text": "x"}, "risk": "write"}
    )
    return Outcome("sent" if isinstance(answer, Approve) else "kept")


@node
async def deliver(state: Essay, ctx: Context) -> Update:
    return {"text": str((await ctx.tool("send", text="x")).output)}


asking = Graph(
    name="asking", state=Essay, input="topic", output="text", nodes={"ask_first": ask_first, "deliver": deliver},
    edges="START -> ask_first\nask_first -> deliver : sent\nask_first -> END : kept\ndeliver -> END",
)  # fmt: skip


@pytest.mark.anyio
async def test_answers_outcomes_and_calls_that_only_one_run_made_differ() -> None:
    async with Executor(graphs=[asking], tools=[send]) as executor:
        runs = []
        for given in (Approve(), Deny(reason="no")):
            run = await executor.start(asking, "tea")
            runs.append((await executor.answer(run.run_id, run.waiting[0].id, given)).run_id)
        found = await executor.diff(*runs)
        waiting = await executor.start(asking, "tea")
        unanswered = await executor.diff(runs[0], waiting.run_id)
    assert [(one.kind, one.node) for one in found.differences] == [
        ("answer", "ask_first"), ("outcome", "ask_first"), ("step", "deliver"), ("output", ""),
    ]  # fmt: skip
    assert [one.kind for one in unanswered.differences][:2] == ["answer", "outcome"]
    assert "none yet" in unanswered.differences[0].what


class Many(BaseModel):
    items: list[int] = []
    seen: Annotated[list[int], append] = []


@node(effect="pure")
async def spread(state: Many) -> None:
    return None


@node
async def look(state: Many, ctx: Context) -> Update:
    reply = await ctx.model.complete([Message(role="user", content=f"item {ctx.item}")])
    return {"seen": int(reply.text)}


@node(effect="pure")
async def gather(state: Many) -> None:
    return None


mapping = Graph(
    name="mapping", state=Many, nodes={"spread": spread, "look": look, "gather": gather.with_(join="all")},
    edges="START -> spread -> look : each items\nlook -> gather -> END", output="seen",
)  # fmt: skip


@quick_on("asyncio")
@pytest.mark.anyio
async def test_which_branch_was_faster_is_no_difference_and_one_of_many_is_named_by_its_branch() -> None:
    def answers(wrong: int) -> ScriptedModel:
        async def one(request: Any) -> str:
            import anyio

            number = int(request.messages[-1].content.split()[-1])
            await anyio.sleep(0.002 * ((number * 7 + wrong) % 5))
            return str(number if number != wrong else 99)

        return ScriptedModel(one)

    runs = []
    async with Executor() as executor:
        for wrong in (-1, -2, 3):
            async with Executor(executor.store, graphs=[mapping], model=answers(wrong)) as own:
                runs.append((await own.start(mapping, {"items": list(range(6))})).run_id)
        assert (await executor.diff(runs[0], runs[1])).same
        found = await executor.diff(runs[0], runs[2])
    assert [(one.kind, one.node) for one in found.differences] == [
        ("result", "look"),
        ("update", "look"),
        ("output", ""),
    ]
    assert found.differences[0].path == "spread.3"


@pytest.mark.full
@quick_on("trio")
@pytest.mark.anyio
async def test_a_diff_is_bounded_and_shows_no_secrets() -> None:
    secret = "sk-" + "a1B2" * 8
    text = "\n".join(f"line {number}" for number in range(5000))
    found = await _compared(writing(), writing(), [f"{text} {secret}", "b"], [f"other\n{text} {secret}X", "b" * 9999])
    shown = found.to_text()
    assert secret not in shown
    assert len(shown) < 60_000
    async with Executor() as executor:
        async with Executor(executor.store, graphs=[mapping], model=ScriptedModel(lambda request: "1")) as one:
            first = await one.start(mapping, {"items": list(range(sized(105, 150)))})
        async with Executor(executor.store, graphs=[mapping], model=ScriptedModel(lambda request: "2")) as other:
            second = await other.start(mapping, {"items": list(range(sized(105, 150)))})
        many = await executor.diff(first.run_id, second.run_id)
    assert len(many.differences) == 100
    assert many.more
    assert many.lines[-1] == "There are more differences."


@pytest.mark.anyio
async def test_the_public_function_compares_two_runs_and_the_page_shows_both() -> None:
    async with Executor(graphs=[writing()], model=ScriptedModel(["a", "b", "c", "d"])) as executor:
        one, other = await executor.start("writing", "tea"), await executor.start("writing", "tea")
        found = orchestrator.diff(one, other)
        page = found.to_html()
    assert isinstance(found.first, Difference)
    assert found.figures[0].run_id in page
    assert found.figures[1].run_id in page


@pytest.mark.anyio
async def test_which_branch_of_a_failed_run_was_faster_is_no_difference() -> None:
    runs = []
    async with Executor() as executor:
        for first, last in (("j1", "j2"), ("j2", "j1")):
            graph = failing_beside(first, last)
            runs.append(await executor.start(graph, {}))
    assert [(run.status, run.values["notes"]) for run in runs] == [("failed", ["j1"]), ("failed", ["j2"])]
    found = orchestrator.diff(*runs)
    assert found.same, found.to_text()


def failing_beside(first: str, last: str) -> Graph:
    """Two joins close one fork, one before the other; then what follows the one fails beside what follows the other."""
    joined, begun = anyio.Event(), anyio.Event()

    @node(join="all")
    async def join(state: Essay, ctx: Context) -> Update:
        if ctx.node == first:
            joined.set()
        else:
            await joined.wait()
        return {"notes": ctx.node}

    @node
    async def waits(state: Essay) -> None:
        begun.set()
        await anyio.sleep_forever()

    @node
    async def fails(state: Essay) -> None:
        await begun.wait()
        raise ValueError("no")

    @node(effect="pure")
    async def passes(state: Essay) -> None:
        return None

    return Graph(
        name="beside", state=Essay,
        nodes={**dict.fromkeys("sbcde", passes), "j1": join, "j2": join, "x": fails, "y": waits},
        edges="START -> s -> b, c, d, e\nb, c -> j1 -> x -> END\nd, e -> j2 -> y -> END",
    )  # fmt: skip
