"""PlanAndSolve: what it promises (S63 to S65), and how plans go wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import (
    Approve,
    Context,
    Deny,
    Executor,
    Graph,
    OfflineModel,
    OpenAIModel,
    Run,
    Tool,
    ToolCall,
    Update,
    node,
    tool,
)
from orchestrator.models import ModelRequest
from orchestrator.nodes import Advance, Plan, Subgraph
from orchestrator.strategies.plan_and_solve import SYSTEM, graph, plan_and_solve
from orchestrator.testing import ScriptedModel, assert_crash_safe
from tests.graphs.loopback import loopback
from tests.nodes.test_plan_steps import SEED
from tests.support.one_node import error_of
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio

QUESTION = "What is 20+(2*4)?"
PLAN = "Plan:\n1. Multiply 2 by 4.\n2. Add 20.\n<END_OF_PLAN>"


@tool(risk="none", effect="pure")
def multiply(a: int, b: int) -> int:
    """Multiply two integers and return the result integer.

    Args:
        a: multiplier
        b: multiplier
    """
    return a * b


@tool(risk="none", effect="pure")
def add(a: int, b: int) -> int:
    """Add two integers and return the result integer.

    Args:
        a: addend
        b: addend
    """
    return a + b


@tool(risk="write")
def store(number: int) -> str:
    """Store a number.

    Args:
        number: what to store.
    """
    return f"stored {number}"


TOOLS: tuple[Tool, ...] = (multiply, add)


def call(name: str, **arguments: Any) -> list[ToolCall]:
    return [ToolCall(id=f"{name}-1", name=name, arguments=arguments, raw=json.dumps(arguments))]


SOLVED = [call("multiply", a=2, b=4), "8", call("add", a=20, b=8), "The final answer is 28."]


async def solved(
    replies: Any, definition: Graph = graph, tools: tuple[Tool, ...] = TOOLS, kept: str = "memory://"
) -> tuple[Run, list[ModelRequest]]:
    with ScriptedModel(replies) as model:
        async with Executor(kept, model=model, tools=tools) as executor:
            run = await executor.start(definition, QUESTION)
    return run, model.requests


async def test_s64_each_step_is_worked_on_with_tools_and_the_last_result_is_the_answer() -> None:
    run, _ = await solved([PLAN, *SOLVED])
    assert (run.status, run.output) == ("completed", "The final answer is 28.")
    assert run.values["steps"] == ["Multiply 2 by 4.", "Add 20."]
    assert run.values["results"] == ["8", "The final answer is 28."]


async def test_s63_the_plan_of_the_seed_is_worked_through() -> None:
    said = ["It is 20 + (2 * 4).", *SOLVED, "The final answer is 28."]
    run, requests = await solved([SEED, *said])
    assert run.output == "The final answer is 28."
    assert len(run.values["results"]) == 4
    assert "The final answer is 28." in requests[-1].messages[-1].content
    assert "Given the above" not in json.dumps([request.data() for request in requests[1:]])


async def test_a_step_is_told_the_task_and_what_came_of_the_steps_before() -> None:
    _, requests = await solved([PLAN, "8", "28"])
    planner, first, second = requests
    assert planner.task == "plan"
    assert first.messages[0].content == SYSTEM
    assert first.messages[1].content == (
        f"Task: {QUESTION}\n\nDone so far:\nnothing\n\n"
        "Do only this step of the task now: Multiply 2 by 4.\nAnswer with its result."
    )
    assert second.messages[1].content == (
        f"Task: {QUESTION}\n\nDone so far:\n1. Multiply 2 by 4.\nResult: 8\n\n"
        "Do only this step of the task now: Add 20.\nAnswer with its result."
    )
    assert len(second.messages) == 2
    assert second.messages[1].data == {
        "question": "Add 20.",
        "task": QUESTION,
        "steps": [{"question": "Multiply 2 by 4.", "output": "8", "error": None}],
    }
    assert [len(request.tools) for request in requests] == [0, 2, 2]


async def test_s65_planner_and_solver_have_models_of_their_own() -> None:
    definition = plan_and_solve(planner="planner", solver="solver")
    with ScriptedModel([PLAN]) as planner, ScriptedModel(SOLVED) as solver, ScriptedModel([]) as other:
        async with Executor(model=other, models={"planner": planner, "solver": solver}, tools=TOOLS) as executor:
            run = await executor.start(definition, QUESTION)
    assert run.output == "The final answer is 28."
    assert (len(planner.requests), len(solver.requests)) == (1, 4)


async def test_s65_planner_and_solver_on_servers_of_their_own() -> None:
    with loopback([PLAN]) as first, loopback(["8", "28"]) as second:
        planner = OpenAIModel("big", base_url=first.url, api_key="test-key")
        solver = OpenAIModel("small", base_url=second.url, api_key="test-key")
        async with Executor(models={"planner": planner, "solver": solver}, tools=TOOLS) as executor:
            run = await executor.start(plan_and_solve(planner="planner", solver="solver"), QUESTION)
        await planner.aclose()
        await solver.aclose()
    assert (run.status, run.output) == ("completed", "28")
    assert [request["model"] for request in (*first.requests, *second.requests)] == ["big", "small", "small"]
    assert "tools" not in first.requests[0]
    assert [each["function"]["name"] for each in second.requests[1]["tools"]] == ["multiply", "add"]
    assert "steps" not in second.requests[1]["messages"][1]


@pytest.mark.parametrize("named", ["planner", "solver"])
async def test_s65_one_of_them_may_be_the_default_model(named: str) -> None:
    options: dict[str, Any] = {named: "other"}
    mine, rest = ([PLAN], SOLVED) if named == "planner" else (SOLVED, [PLAN])
    with ScriptedModel(mine) as other, ScriptedModel(rest) as default:
        async with Executor(model=default, models={"other": other}, tools=TOOLS) as executor:
            assert (await executor.start(plan_and_solve(**options), QUESTION)).output == "The final answer is 28."


async def test_a_plan_without_steps_is_shown_to_the_planner_once() -> None:
    run, requests = await solved(["Just add.", PLAN, *SOLVED])
    assert run.output == "The final answer is 28."
    assert "it has no steps" in requests[1].messages[-1].content
    run, _ = await solved(["Just add.", "Really."])
    kind, message = error_of(run)
    assert kind == "AgentError"
    assert "it has no steps" in message


async def test_a_plan_that_is_too_long_ends_the_run_with_the_last_result() -> None:
    long = "\n".join(f"{number}. Count to {number}" for number in range(1, 6))
    run, _ = await solved([long, "1", "2", "3"], plan_and_solve(max_steps=3))
    assert (run.status, run.output) == ("exhausted", "3")
    run, _ = await solved([long, *"12345"], plan_and_solve(max_steps=5))
    assert (run.status, run.output) == ("completed", "5")


def test_the_limit_of_steps_leaves_room_for_every_step_of_the_plan() -> None:
    for most in (1, 400):
        limits = plan_and_solve(max_steps=most).limits
        solver = plan_and_solve(max_steps=most).nodes["solve"].subgraph
        assert solver is not None
        assert limits.visits == {"solve": most}
        assert limits.steps == 4 + most * (2 + (solver.limits.steps or 0))


async def test_a_step_that_never_ends_fails_the_run() -> None:
    with ScriptedModel(lambda r: PLAN if r.task == "plan" else call("add", a=1, b=1)) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            run = await executor.start(plan_and_solve(max_rounds=2), QUESTION)
    assert error_of(run) == (
        "ValueError",
        "After retrying 2 times, the function call agent still failed to call successfully.",
    )


async def test_a_person_confirms_inside_of_a_step_and_the_plan_goes_on(tmp_path: Path) -> None:
    for answer, told in [(Approve(), "stored 8"), (Deny(reason="not now"), "not now")]:
        with ScriptedModel([PLAN, call("store", number=8), "8", "28"]) as model:
            async with Executor(f"sqlite:///{tmp_path}/runs.db", model=model, tools=[store]) as executor:
                run = await executor.start(graph, QUESTION)
                assert (run.status, len(model.requests)) == ("paused", 2)
                (question,) = run.waiting
                assert question.payload["args"] == {"number": 8}
                run = await executor.answer(run.run_id, question.id, answer)
        assert (run.status, run.output) == ("completed", "28")
        assert told in model.requests[2].messages[-1].content


async def test_a_solver_that_calls_tools_in_text() -> None:
    said = ['{"name": "multiply", "arguments": {"a": 2, "b": 4}}', "8", "28"]
    run, requests = await solved([PLAN, *said], plan_and_solve(protocol="json"))
    assert run.output == "28"
    assert not any(request.tools for request in requests)
    assert "8" in requests[2].messages[-1].content


@pytest.mark.parametrize("suffix", ["yaml", "json"])
async def test_offline_and_from_a_file_the_answer_is_the_same(suffix: str, tmp_path: Path) -> None:
    graph.save(tmp_path / f"graph.{suffix}")
    loaded = Graph.load(tmp_path / f"graph.{suffix}")
    assert loaded == graph
    assert "Do only this step of the task now" in (tmp_path / f"graph.{suffix}").read_text()
    async with Executor(model=OfflineModel(), tools=TOOLS) as executor:
        runs = [await executor.start(each, QUESTION) for each in (graph, loaded)]
    assert [run.output for run in runs] == ["28", "28"]
    assert runs[0].values == runs[1].values
    assert runs[0].values["results"] == ["8", "28"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [("What is 20+(2*4)? Calculate step by step.", "28"), ("What is 2*(3+4)+5*(1+1)?", "24"), ("What is 7?", "7")],
)
async def test_offline_every_tool_is_called_once(question: str, answer: str) -> None:
    async with Executor(model=OfflineModel(), tools=TOOLS) as executor:
        run = await executor.start(graph, question)
        records = await executor.store.read(run.run_id)
    assert (run.status, run.output) == ("completed", answer)
    calls = [record for record in records if record.type == "effect_intended" and record.kind == "tool"]
    assert len(calls) == sum(question.count(sign) for sign in "+*")


async def test_offline_with_reworded_prompts() -> None:
    plan = Plan(drafts="drafts", faults="faults", prompt="Bitte: {question}")
    reworded = graph.replace(plan=plan, advance=Advance(prompt="{done} {step} {question}"))
    async with Executor(model=OfflineModel(), tools=TOOLS) as executor:
        assert (await executor.start(reworded, QUESTION)).output == "28"


class Asking(BaseModel):
    ask: str
    told: str = ""


@node
async def ask(state: Asking, ctx: Context[object]) -> Update:
    return {"told": str((await ctx.tool("reckon", question=state.ask)).output)}


def around(inner: Any) -> Graph:
    edges = "START -> inner -> END"
    return Graph(name="around", state=Asking, input="ask", nodes={"inner": inner}, edges=edges, output="told")


async def test_inside_another_graph_and_as_a_tool() -> None:
    inside = Subgraph(graph, inputs={"question": "ask"}, outputs={"told": "answer"})
    reckon = graph.as_tool("reckon", "Answers questions of arithmetic.")
    for inner, tools in [(inside, TOOLS), (ask, (*TOOLS, reckon))]:
        with ScriptedModel([PLAN, *SOLVED]) as model:
            async with Executor(model=model, tools=tools) as executor:
                run = await executor.start(around(inner), QUESTION, approve="dangerous")
        assert run.output == "The final answer is 28."


@pytest.mark.full
@quick_on("trio")
async def test_it_survives_a_crash_at_any_write() -> None:
    replies = {PLAN.splitlines()[number][3:]: (calls, result) for number, calls, result in [
        (1, call("multiply", a=2, b=4), "8"), (2, call("store", number=28), "28"),
    ]}  # fmt: skip

    def said(request: ModelRequest) -> Any:
        if request.task == "plan":
            return PLAN
        asked = next(message for message in request.messages if message.role == "user")
        calls, result = replies[str((asked.data or {})["question"])]
        return result if request.messages[-1].role == "tool" else calls

    report = await assert_crash_safe(
        graph, QUESTION, model=ScriptedModel(said), tools=[*TOOLS, store], most=sized(2, 4)
    )
    assert report.status == "completed"


async def test_a_plan_of_nothing_cannot_be_worked_through() -> None:
    node = Advance()
    definition = Graph(
        name="one", state=Advance.State, nodes={"it": node}, edges="START -> it\nit -> END : step\nit -> END : done"
    )
    async with Executor() as executor:
        run = await executor.start(definition, {"question": "?"})
    assert error_of(run) == ("StepError", "advance: the plan in 'steps' has no steps")


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        plan_and_solve(max_steps=0)
    with pytest.raises(ValueError, match="max_steps and max_rounds must be at least 1"):
        plan_and_solve(max_rounds=0)
