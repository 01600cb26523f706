"""The contract of questions and their answers."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from pydantic import JsonValue, ValidationError

from orchestrator import (
    Approve,
    Context,
    Deny,
    Executor,
    Graph,
    Question,
    Update,
    node,
    tool,
)
from orchestrator.errors import (
    InvalidAnswer,
    QuestionUnknown,
    RunEnded,
    StaleAnswer,
)
from orchestrator.nodes import Ask, Confirm
from tests.contract.sample import logs, single

pytestmark = pytest.mark.anyio


def test_the_fields_of_a_question() -> None:
    names = [info.alias or name for name, info in Question.model_fields.items()]
    assert names[:10] == ["id", "kind", "node", "path", "prompt", "payload", "choices", "schema", "digest", "deadline"]
    assert names[10:] == ["event", "match"]
    assert set(Question.model_json_schema()["properties"]["kind"]["enum"]) == {
        "approval", "input", "unknown_outcome", "pause", "event", "timer", "limit",
    }  # fmt: skip
    question = Question(id="1", kind="input", node="n", schema={"type": "string"})
    assert question.schema == {"type": "string"}
    assert question.model_dump()["schema"] == {"type": "string"}
    with pytest.raises(ValidationError, match="frozen"):
        question.node = "m"


@tool(risk="write", effect="idempotent")
def send(to: str) -> str:
    """Send something.

    Args:
        to: who gets it.
    """
    return f"sent to {to}"


class Call(Confirm.State):
    result: JsonValue = None


@node
async def call(state: Call, ctx: Context) -> Update:
    result = await ctx.tool(state.tool, **state.args)
    return {"result": result.output}


calls = Graph(
    name="calls", state=Call, nodes={"confirm": Confirm(tool="tool", args="args"), "call": call}, output="result",
    edges="START -> confirm\nconfirm -> call : approved\nconfirm -> END : denied\ncall -> END",
)  # fmt: skip
CALL = {"tool": "send", "args": {"to": "ann"}}


async def test_the_payload_of_an_approval() -> None:
    run = await calls.run(CALL, tools=[send])
    (question,) = run.waiting
    assert question.kind == "approval"
    assert set(question.payload) == {"tool", "args", "risk", "effect", "call_id"}
    assert {key: question.payload[key] for key in ("tool", "args", "risk", "effect")} == {
        **CALL, "risk": "write", "effect": "idempotent",
    }  # fmt: skip
    assert question.digest


async def test_an_input_with_choices_and_a_deadline() -> None:
    graph = single(Ask(prompt="Which?", choices=("a", "b"), deadline=60))
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        (question,) = run.waiting
        assert (question.kind, question.choices, question.prompt) == ("input", ("a", "b"), "Which?")
        assert question.deadline is not None
        with pytest.raises(InvalidAnswer, match="one of a, b"):
            await ex.answer(run.run_id, question.id, "c")
        run = await ex.answer(run.run_id, question.id, "b")
    assert (run.status, run.values["reply"]) == ("completed", "b")


async def test_a_pause_is_a_question() -> None:
    started = anyio.Event()

    @node
    async def work() -> Update:
        started.set()
        await anyio.sleep(0.05)
        return {"log": "landed"}

    graph = single(work, "START -> work -> b -> END", b=logs("b"))
    async with Executor(graphs=[graph]) as ex:
        run_id = await ex.submit(graph)
        await started.wait()
        run = await ex.pause(run_id)
        assert (run.status, run.values["log"]) == ("paused", ["landed"])
        assert [question.kind for question in run.waiting] == ["pause"]
        run = await ex.resume(run_id)
        assert (run.status, run.output) == ("completed", ["landed", "b"])


async def test_approve_deny_and_edited_arguments() -> None:
    async with Executor(graphs=[calls], tools=[send]) as ex:

        async def asked() -> tuple[str, Question]:
            run = await ex.start(calls, CALL)
            return run.run_id, run.waiting[0]

        run_id, question = await asked()
        assert (await ex.answer(run_id, question.id, Approve(), by="ann")).output == "sent to ann"
        answered = [event async for event in ex.events(run_id) if event.type == "answered"]
        assert [event.data["by"] for event in answered] == ["ann"]
        run_id, question = await asked()
        denied = await ex.answer(run_id, question.id, Deny(reason="no"))
        assert (denied.status, denied.output) == ("completed", None)
        run_id, question = await asked()
        edited = await ex.answer(run_id, question.id, Approve(args={"to": "bob"}))
        assert (edited.output, edited.values["args"]) == ("sent to bob", {"to": "bob"})
        run_id, question = await asked()
        for wrong in (Approve(args={"to": []}), Approve(args={"too": "x"}), Approve(args={}), "yes", True):
            with pytest.raises(InvalidAnswer):
                await ex.answer(run_id, question.id, wrong)
        with pytest.raises(StaleAnswer):
            await ex.answer(run_id, question.id, Approve(), digest="another")
        before = await ex.load(run_id)
        assert before.seq == 2  # nothing changed: run_started, asked
        assert (await ex.answer(run_id, question.id, Approve(), digest=question.digest)).status == "completed"
        for late in (Approve(), Deny()):
            with pytest.raises((StaleAnswer, RunEnded)):
                await ex.answer(run_id, question.id, late)
        run_id, question = await asked()
        with pytest.raises(QuestionUnknown):
            await ex.answer(run_id, "nothing", Approve())


async def test_an_approval_is_bound_to_run_path_tool_schema_args_and_question() -> None:
    @tool(name="send", risk="write", effect="idempotent")
    def other(to: str, copy: bool = False) -> str:
        """Send something."""
        return to

    digests = []
    for run_id, tools, args in (
        ("a", [send], {"to": "ann"}), ("b", [send], {"to": "ann"}), ("a", [send], {"to": "bob"}),
        ("a", [other], {"to": "ann"}),
    ):  # fmt: skip
        async with Executor(graphs=[calls], tools=tools) as ex:
            run = await ex.start(calls, {"tool": "send", "args": args}, run_id=run_id)
            digests.append(run.waiting[0].digest)
    assert len(set(digests)) == 4
    async with Executor(graphs=[calls], tools=[send]) as ex:  # and the same again
        run = await ex.start(calls, CALL, run_id="a")
        assert run.waiting[0].digest == digests[0]


async def test_content_changes_of_the_graph_do_not_void_an_approval(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[calls], tools=[send]) as ex:
        run = await ex.start(calls, CALL)
        question = run.waiting[0]
        await ex.answer(run.run_id, question.id, Approve(), resume=False)
    changed = calls.replace(call=call.with_(version="2"))
    async with Executor(url, graphs=[changed], tools=[send]) as ex:
        run = await ex.resume(run.run_id)
    assert (run.status, run.output) == ("completed", "sent to ann")
