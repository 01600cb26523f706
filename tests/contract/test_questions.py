"""The contract of questions and their answers."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, JsonValue, ValidationError

from orchestrator import (
    Approve,
    Context,
    Deny,
    Executor,
    Graph,
    Node,
    Question,
    Update,
    append,
    node,
    tool,
)
from orchestrator.errors import (
    InvalidAnswer,
    QuestionUnknown,
    RunEnded,
    RunUnknown,
    StaleAnswer,
)
from orchestrator.nodes import Ask, Confirm
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio


class State(BaseModel):
    question: str = ""
    items: list[int] = []
    log: Annotated[list[JsonValue], append] = []
    reply: str = ""


class Deps(BaseModel):
    """What nodes get."""

    db: str


@node
async def think(state: State, ctx: Context[Deps]) -> Update:
    await ctx.emit("thinking", {"about": state.question})
    reply = await ctx.model.complete(state.question)
    other = await ctx.models["cheap"].complete("short")
    return {"log": [reply.text, other.text, ctx.deps.db]}


research = Graph(
    name="research", state=State, input="question", output="log",
    nodes={"think": think, "ask": Ask(prompt="Is that all?")},
    edges="START -> think -> ask -> END",
)  # fmt: skip


def single(work: Any, edges: str = "START -> work -> END", name: str = "single", **nodes: Any) -> Graph:
    return Graph(name=name, state=State, input="question", nodes={"work": work, **nodes}, edges=edges, output="log")


def logs(word: JsonValue) -> Node:
    return node(effect="pure")(lambda state: {"log": word})


def models() -> dict[str, Any]:
    return {"m": ScriptedModel(lambda request: "long"), "m2": ScriptedModel(lambda request: "brief")}


async def awaited(code: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run a block with `await` at its top."""
    result = eval(compile(code, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if result is not None:
        await result
    return names


BLOCK = """
async with Executor(store="sqlite:///runs.db", graphs=[research], model=m, models={"cheap": m2}, tools=t, deps=Deps(db)) as ex:   # store defaults to memory://
    run = await ex.start(research, {"question": "..."}, run_id=None, labels={"user": "u1"})   # submit + wait: returns when it ends or pauses
    run_id = await ex.submit(research, {"question": "k"}, run_id="k")        # returns when durable; same id and input: the same run; other input: RunExists
    run = await ex.wait(run_id, timeout=None)
    async with ex.stream(research, {"question": "s"}) as live:           # events; then live.run; leaving early interrupts, never cancels
        async for event in live: seen.append(event)
    streamed = live.run
    seq = 1
    async for event in ex.events(run_id, after=seq, follow=False): told.append(event)
    q = run.waiting[0].id
    value = "yes"
    await ex.answer(run_id, q, value, by="ann", digest=None, resume=True)   # the holder goes on, else this executor
    waits = streamed.run_id
    run = await ex.resume(waits); await ex.recover()            # recover: go on with every interrupted, answered or overdue run
    run = await ex.load(run_id, at=None)                          # folds only, runs nothing, needs no code
    await ex.pause(waits); await ex.cancel(waits)               # from any process, seen within 1 s
    points = await ex.history(run_id); page = await ex.runs(status=None, graph="research", labels={"user": "u1"}, after=None, limit=50)
""".replace("Deps(db)", "Deps(db=db)")  # noqa: E501


async def test_the_block_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {
        "Executor": Executor, "research": research, "t": [], "Deps": Deps, "db": "a database", "seen": [], "told": [],
        **models(),
    }  # fmt: skip
    names = await awaited(BLOCK, names)
    assert names["run"].status == "completed"
    assert names["run"].output == [["long", "brief", "a database"]]
    assert names["run"].values["reply"] == "yes"
    assert names["streamed"].status == "paused"
    assert [event.type for event in names["seen"]] == [
        "run_started", "step_started", "emitted", "effect_intended", "effect_settled", "effect_intended",
        "effect_settled", "step_done", "step_started", "asked",
    ]  # fmt: skip
    assert [event.seq for event in names["told"]] == list(range(2, 2 + len(names["told"])))
    assert [(point.node, point.outcome) for point in names["points"]] == [("think", "done"), ("ask", "done")]
    assert [info.labels for info in names["page"].runs] == [{"user": "u1"}]
    assert (tmp_path / "runs.db").exists()


async def test_the_store_defaults_to_memory() -> None:
    async with Executor(graphs=[research]) as one, Executor(store="memory://", graphs=[research]) as two:
        run = await one.start(single(logs(1)))
        assert run.status == "completed"
        with pytest.raises(RunUnknown):
            await two.load(run.run_id)


def test_the_fields_of_a_question() -> None:
    from typing import get_args

    names = [info.alias or name for name, info in Question.model_fields.items()]
    assert names == ["id", "kind", "node", "path", "prompt", "payload", "choices", "schema", "digest", "deadline"]
    assert set(get_args(Question.model_fields["kind"].annotation)) == {
        "approval", "input", "unknown_outcome", "pause", "event", "limit",
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
