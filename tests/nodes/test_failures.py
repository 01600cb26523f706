"""A call that fails is seen: in its result, in the way that a run takes, and by a node that made it."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Outcome, Retry, Run, append, node, tool
from orchestrator.errors import EffectFailed, InvalidGraph, ToolError, ToolFailed
from orchestrator.kernel.records import failed_result
from orchestrator.models.messages import Message, Reply, ToolCall
from orchestrator.models.offline import _outcome as offline_outcome
from orchestrator.nodes import Execute, Subgraph
from orchestrator.nodes.conversation import result_message
from orchestrator.nodes.steps import step_of
from orchestrator.render.terminal.excerpts import update_text
from orchestrator.strategies.chat import chat
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.react import react
from orchestrator.strategies.rewoo import rewoo
from orchestrator.testing import ScriptedModel
from orchestrator.tools import ToolFailure, ToolResult
from tests.support.one_node import error_of, executing, run

pytestmark = pytest.mark.anyio


@tool(risk="none", effect="pure")
def broken(why: str = "out of order") -> str:
    """Raise."""
    raise ToolError(why)


@tool(risk="none", effect="pure")
def says_so() -> ToolResult:
    """Report an error, as a result of the tool's own."""
    return ToolResult(output="half of it", error="no paper")


@tool(risk="none", effect="pure")
def code_only() -> ToolResult:
    """Report no more than an exit code."""
    return ToolResult(output="usage: tool FILE", exit_code=2)


@tool(risk="none", effect="pure")
def lint(check: str, path: str = ".") -> str:
    """Have an argument called `check`."""
    if check == "nothing":
        raise ToolError("nothing to check")
    return f"{check} {path}"


@tool(risk="none", effect="pure")
def works() -> str:
    """Work."""
    return "fine"


TOOLS = (broken, says_so, code_only, lint, works)


class Log(BaseModel):
    tool: str = ""
    args: dict[str, Any] = {}
    result: ToolResult | None = None
    log: Annotated[list[str], append] = []


@node
def rescue(state: Log, ctx: Context[None]) -> dict[str, object]:
    error = ctx.error
    assert error is not None
    told = "" if state.result is None else f"; {state.result.error}"
    return {"log": f"{error.type}: {error.message} at {error.node}{told}"}


def around(execute: Execute, edge: str = "", **nodes: Any) -> Graph:
    edges = f"START -> execute -> END\n{edge}"
    return Graph(name="around", state=Log, nodes={"execute": execute, **nodes}, edges=edges)


async def start(graph: Graph, name: str, **options: Any) -> Run:
    async with Executor(tools=TOOLS, **options) as executor:
        return await executor.start(graph, {"tool": name})


# -- the result ----------------------------------------------------------------------------------------------------


def test_the_exit_code_follows_from_the_error() -> None:
    assert (ToolResult(error="no").exit_code, ToolResult(error="no").failed) == (1, True)
    assert (ToolResult(error="no", exit_code=0).exit_code, ToolResult(error="no", exit_code=7).exit_code) == (1, 7)
    assert (ToolResult(exit_code=2).failed, ToolResult(output=1).failed) == (True, False)
    assert (ToolFailure().exit_code, ToolFailure(exit_code=0).exit_code, ToolFailure(error="x").exit_code) == (1, 1, 1)
    assert ToolResult(output=1).model_copy(update={"error": "late"}).exit_code == 1
    assert ToolResult.model_validate_json('{"error": "of an older journal", "exit_code": 0}').exit_code == 1


def test_an_error_without_words_is_none_as_of_tools_that_give_their_empty_stderr() -> None:
    result = ToolResult(output="done", error="")
    assert (result.failed, result.error, result.exit_code) == (False, None, 0)
    assert ToolResult(error=" \n", exit_code=3).exit_code == 3


def test_a_call_that_failed_by_its_exit_code_is_an_error_wherever_it_is_read() -> None:
    for result, fault in (
        (ToolResult(output="order 17", exit_code=1), "order 17"),
        (ToolResult(output={"order": 17}, shown="see order 17", exit_code=1), "see order 17"),
        (ToolResult(output=" ", exit_code=3), "exit code 3"),
        (ToolResult(exit_code=2), "exit code 2"),
        (ToolFailure(), "exit code 1"),
        (ToolResult(output="half", error="no paper"), "no paper"),
    ):
        assert (result.fault, result.text, str(result)) == (fault, f"Error: {fault}", f"Error: {fault}")
        call = ToolCall(id="1", name="pay", arguments={})
        assert result_message(call, result).content == f"Error: {fault}"
        step = step_of("q", "pay", {}, result)
        assert step.failed
        assert (step.text == fault) is (result.shown == "" and result.output != " ")
        assert offline_outcome(result_message(call, result))[0] in (fault, f"Error: {fault}")
        assert failed_result(result.model_dump(mode="json")) is not None
        assert update_text({"result": result.model_dump(mode="json")}).startswith("result: failed: ")
    assert (ToolResult(output=1).fault, ToolResult(output=1).text) == ("", "1")


@tool(risk="none", effect="pure")
def silent() -> ToolResult:
    """Report an exit code without output."""
    return ToolResult(exit_code=3)


CALLS = Reply(tool_calls=tuple(ToolCall(id=name, name=name, arguments={}) for name in ("code_only", "silent")))
BRACKETS = ["Thought: a\nAction: code_only[]", "Thought: b\nAction: silent[]", "Thought: c\nAction: Finish[x]"]
PLAN = {"plan": ["Plan: a\n#E1 = code_only[]\nPlan: b\n#E2 = silent[]"], "solve": ["s"]}


@pytest.mark.parametrize(
    ("strategy", "replies"),
    [
        (function_call_agent, [CALLS, "ok"]),
        (chat, [CALLS, "ok"]),
        (partial(react, protocol="bracket"), BRACKETS),
        (rewoo, PLAN),
    ],
)
async def test_every_strategy_tells_the_model_of_a_failed_exit_code(strategy: Any, replies: Any) -> None:
    model = ScriptedModel(replies)
    await strategy(tools=[code_only, silent]).run("q", model=model)
    said = "\n".join(message.content for message in model.requests[-1].messages)
    assert "Error: usage: tool FILE" in said
    assert "Error: exit code 3" in said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError(), "TimeoutError"),
        (AssertionError(), "AssertionError"),
        (KeyError("city"), "KeyError: 'city'"),
        (IndexError(3), "IndexError: 3"),
        (ValueError("  "), "ValueError"),
        (ValueError("no such city"), "no such city"),
        (EffectFailed("", type="TimeoutError"), "TimeoutError"),
        (EffectFailed("'city'", type="KeyError"), "KeyError: 'city'"),
        (ExceptionGroup("two", [OSError(), KeyError("a")]), "two (2 sub-exceptions); OSError; KeyError: 'a'"),
    ],
)
async def test_an_error_that_says_too_little_has_its_type(error: Exception, said: str) -> None:
    @tool(risk="none", effect="pure")
    def fetch() -> None:
        """Fail."""
        raise error

    assert (await fetch.invoke({})).text == f"Error: Unexpected error executing tool fetch: {said}"
    assert fetch.failure(ToolError(" ")).text == "Error: ToolError"


# -- the way of the run --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [("broken", "out of order"), ("says_so", "no paper"), ("code_only", "exit code 2: usage: tool FILE")],
)
async def test_a_tool_that_fails_fails_the_run_where_nothing_is_said(name: str, words: str) -> None:
    kind, message = error_of(await start(around(Execute()), name))
    assert (kind, message) == ("ToolFailed", f"tool {name!r} failed: {words}")


async def test_an_edge_for_failed_takes_it_with_the_result_and_the_error() -> None:
    graph = around(Execute(), "execute -> rescue : failed\nrescue -> END", rescue=rescue)
    found = await start(graph, "says_so")
    assert (found.status, found.values["result"]["error"]) == ("completed", "no paper")
    assert found.values["log"] == ["ToolFailed: tool 'says_so' failed: no paper at execute; no paper"]
    assert (await start(graph, "works")).values["log"] == []
    observing = around(Execute(on_failure="observe"), "execute -> rescue : failed\nrescue -> END", rescue=rescue)
    assert len((await start(observing, "says_so")).values["log"]) == 1


async def test_an_edge_for_errors_takes_it_without_the_result() -> None:
    graph = around(Execute(), "execute -> rescue : error\nrescue -> END", rescue=rescue)
    found = await start(graph, "says_so")
    assert found.values["log"] == ["ToolFailed: tool 'says_so' failed: no paper at execute"]
    assert found.values["result"] is None


async def test_where_failures_are_observed_the_result_says_so() -> None:
    found = await start(around(Execute(on_failure="observe")), "broken")
    assert (found.status, found.values["result"]["exit_code"]) == ("completed", 1)


async def test_a_step_that_is_tried_again_takes_its_edge_when_no_try_is_left() -> None:
    made: list[int] = []

    @tool(risk="none", effect="pure")
    def flaky(least: int) -> str:
        """Fail at first."""
        made.append(1)
        if len(made) < least:
            raise ToolError("not yet")
        return "at last"

    again = Retry(attempts=2, wait=0.001, on=("ToolFailed",))
    graph = around(Execute(retry=again), "execute -> rescue : failed\nrescue -> END", rescue=rescue)
    for least, log in ((2, 0), (9, 1)):
        made.clear()
        async with Executor(tools=[flaky]) as executor:
            found = await executor.start(graph, {"tool": "flaky", "args": {"least": least}})
        assert (found.status, len(made), len(found.values["log"])) == ("completed", 2, log)


async def test_of_several_calls_the_first_one_in_order_says_what_failed_and_all_are_made() -> None:
    calls = [
        {"id": "1", "name": "works", "arguments": {}},
        {"id": "2", "name": "broken", "arguments": {}},
        {"id": "3", "name": "says_so", "arguments": {}},
    ]
    it = Execute(calls="pending", results="observations")
    found = await run(it, Execute.ListState, {"pending": calls}, tools=TOOLS)
    assert error_of(found) == ("ToolFailed", "tool 'broken' failed: out of order")
    assert found.usage.calls == 3


async def test_the_failure_of_a_tool_comes_out_of_a_subgraph_as_it_is() -> None:
    inner = around(Execute())
    outer = Graph(
        name="outer", state=Log,
        nodes={"inner": Subgraph(inner, inputs={"tool": "tool"}, outputs={"result": "result"})},
        edges="START -> inner -> END",
    )  # fmt: skip
    kind, message = error_of(await start(outer, "broken"))
    assert (kind, message) == ("ToolFailed", "tool 'broken' failed: out of order")


def test_only_nodes_that_call_tools_have_the_outcome_and_no_plain_edge_stands_for_it() -> None:
    with pytest.raises(InvalidGraph, match="'failed', and plain declares"):
        Graph(
            name="g", state=Log, nodes={"plain": node(effect="pure")(lambda: None), "x": Execute()},
            edges="START -> plain -> x -> END\nplain -> END : failed",
        )  # fmt: skip
    graph = around(Execute(), "execute -> rescue : failed\nrescue -> END", rescue=rescue)
    assert graph.nodes["execute"].outcomes == ("done", "finished")
    assert graph.topology.has_route("execute", "failed")
    assert not around(Execute()).topology.has_route("execute", "failed")
    again = Graph.from_data(graph.data(), resolve=False)
    assert again.structure == graph.structure
    (edge,) = [one for one in graph.edges if one.outcome == "failed"]
    assert "execute -> rescue : failed" in str(edge)


async def test_a_node_may_still_have_an_outcome_of_that_name() -> None:
    @node(outcomes=("ok", "failed"))
    def own() -> Outcome[Any]:
        return Outcome("failed", log="mine")

    graph = Graph(name="g", state=Log, nodes={"own": own}, edges="START -> own -> END")
    async with Executor() as executor:
        found = await executor.start(graph, {})
    assert (found.status, found.values["log"]) == ("completed", ["mine"])


# -- ctx.tool ------------------------------------------------------------------------------------------------------


def calling(*args: Any, **named: Any) -> Graph:
    @node
    async def call(ctx: Context[None]) -> dict[str, object]:
        try:
            return {"result": await ctx.tool(*args, **named)}
        except ToolFailed as error:
            return {"result": error.result, "log": f"{error.tool} raised {error}"}

    return Graph(name="calling", state=Log, nodes={"call": call}, edges="START -> call -> END")


async def told(*args: Any, **named: Any) -> Run:
    return await start(calling(*args, **named), "")


async def test_ctx_tool_gives_a_failed_result_and_raises_it_where_it_is_told_to_check() -> None:
    plain = await told("broken", why="jammed")
    assert (plain.values["result"]["error"], plain.values["log"]) == ("jammed", [])
    checked = await told("broken", why="jammed", check=True)
    assert checked.values["log"] == ["broken raised tool 'broken' failed: jammed"]
    assert checked.values["result"]["exit_code"] == 1
    assert (await told("works", check=True)).values["result"]["output"] == "fine"


async def test_an_argument_called_check_is_the_tools_own_and_a_mapping_makes_room_for_both() -> None:
    assert (await told("lint", check="all")).values["result"]["output"] == "all ."
    both = await told("lint", {"check": "nothing"}, check=True)
    assert both.values["log"] == ["lint raised tool 'lint' failed: nothing to check"]
    assert (await told("lint", {"check": "all"}, path="src")).values["result"]["output"] == "all src"
    kind, message = error_of(await told("lint", {"check": "all"}, path="a", check="b"))
    assert (kind, "'check' is given twice" in message) == ("TypeError", True)
    kind, message = error_of(await told("works", check="all"))
    assert (kind, "'check' is unknown" in message) == ("AgentError", True)


async def test_an_argument_that_a_model_gives_is_never_taken_for_ours() -> None:
    found = await run(Execute(), Execute.State, {"tool": "works", "args": {"check": True}}, tools=TOOLS)
    assert "'check' is unknown" in found.values["result"]["error"]


def test_what_is_raised_can_be_pickled_and_copied() -> None:
    error = ToolFailed("x", ToolResult(error="no" * 5_000))
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (type(again), str(again), again.tool, again.result) == (ToolFailed, str(error), "x", error.result)
    assert len(str(error)) < 2_100


# -- the journal ---------------------------------------------------------------------------------------------------


async def test_a_step_says_how_many_of_its_calls_failed() -> None:
    @node
    async def calls(ctx: Context[None]) -> None:
        await ctx.tool("broken")
        await ctx.tool("works")
        await ctx.tools.execute(name="says_so")

    graph = Graph(name="g", state=Log, nodes={"calls": calls}, edges="START -> calls -> END")
    async with Executor(tools=TOOLS) as executor:
        done = await executor.start(graph, {})
        (record,) = [one for one in await executor.store.read(done.run_id) if one.type == "step_done"]
        assert record.failed == 2
        unmade = await executor.start(around(Execute()), {"tool": "nobody"})
        (record,) = [one for one in await executor.store.read(unmade.run_id) if one.type == "step_done"]
        assert record.failed == 1
        fine = await executor.start(around(Execute()), {"tool": "works"})
        (record,) = [one for one in await executor.store.read(fine.run_id) if one.type == "step_done"]
        assert record.failed == 0


async def test_unreadable_arguments_count_as_a_failed_call() -> None:
    call = ToolCall(id="1", name="works", arguments=None, raw="{oops")
    async with executing(tools=TOOLS) as (executor, _):
        graph = Graph(
            name="g", state=Execute.ListState, nodes={"it": Execute(calls="pending", results="observations")},
            edges="START -> it -> END",
        )  # fmt: skip
        found = await executor.start(graph, {"pending": [call]})
        message = Message.model_validate(found.values["observations"][0])
        assert "not a JSON object" in message.content
        (record,) = [one for one in await executor.store.read(found.run_id) if one.type == "step_done"]
    assert record.failed == 1
