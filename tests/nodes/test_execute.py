"""`Execute`: calls are made, and every call has one result."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, JsonValue, ValidationError

from orchestrator import Graph, Message, Run, ToolCall, ToolResult, append, node, tool
from orchestrator.errors import InvalidGraph, ToolError
from orchestrator.nodes import Execute, Step
from tests.support.one_node import error_of, executing, of_one, run

pytestmark = pytest.mark.anyio


@tool(risk="none", effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def fail(why: str) -> None:
    """Fail."""
    raise ToolError(why) if why != "bug" else ValueError("a bug")


@tool(ends=True)
def finish(code: int = 0) -> ToolResult:
    """End."""
    return ToolResult(output="bye", exit_code=code, metadata={"m": 1})


TOOLS = (add, fail, finish)


def both_ways(it: Execute, state: type[BaseModel]) -> Graph:
    return Graph(name="g", state=state, nodes={"it": it}, edges="START -> it\nit -> END : done\nit -> END : finished")


async def outcome(it: Execute, state: type[BaseModel], given: dict[str, Any]) -> tuple[str, Run]:
    async with executing(tools=TOOLS) as (executor, _):
        found = await executor.start(both_ways(it, state), given)
        points = await executor.history(found.run_id)
    return points[-1].outcome, found


# -- one call ------------------------------------------------------------------------------------------------------


async def test_the_result_is_written() -> None:
    found = await run(Execute(), Execute.State, {"tool": "add", "args": {"a": 1, "b": "2"}}, tools=TOOLS)
    assert found.values["result"] == {"output": 3, "error": None, "exit_code": 0, "metadata": {}}
    assert found.state.result == ToolResult(output=3)


class OfModel(Execute.State):
    call: ToolCall = ToolCall(id="c", name="add", arguments={"a": "1", "b": 2})
    message: Message | None = None


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"a": 1, "b": 2}, "3"),
        ({"a": 1, "b": 5}, 'The user changed the arguments of this call: {"a":1,"b":5}\n6'),
    ],
)
async def test_a_models_call_gets_its_result_as_a_message(args: dict[str, Any], told: str) -> None:
    it = Execute(call="call", message="message", result=None)
    found = await run(it, OfModel, {"tool": "add", "args": args}, tools=TOOLS)
    message = Message.model_validate(found.values["message"])
    assert (message.role, message.tool_call_id, message.name, message.content) == ("tool", "c", "add", told)
    assert message.data == {"output": args["a"] + args["b"], "error": None, "exit_code": 0}
    assert found.values["result"] is None
    with pytest.raises(ValidationError, match="call= and message= belong together"):
        Execute(call="call")
    with pytest.raises(ValidationError, match="call= is for a single call"):
        Execute(call="call", message="message", calls="pending", results="observations")


class Steps(BaseModel):
    main: str = "Why?"
    later: str = ""
    which: str = "add"
    given: dict[str, JsonValue] = {"a": 1, "b": 2}
    past: Annotated[list[Step], append] = []
    last: ToolResult | None = None


@pytest.mark.parametrize("later", ["", "And then?"])
async def test_a_step_is_recorded(later: str) -> None:
    it = Execute(tool="which", args="given", steps="past", question="main", current="later", result="last")
    found = await run(it, Steps, {"later": later}, tools=TOOLS)
    assert found.values["past"] == [
        {
            "question": later or "Why?",
            "tool_choice": "add",
            "tool_args": {"a": 1, "b": 2},
            "tool_exit_code": 0,
            "tool_output": 3,
        }
    ]
    assert found.values["last"]["output"] == 3
    only = await run(it.with_(result=None), Steps, tools=TOOLS)
    assert (len(only.values["past"]), only.values["last"]) == (1, None)


@pytest.mark.parametrize(
    ("why", "error"), [("no paper", "no paper"), ("bug", "Unexpected error executing tool fail: a bug")]
)
async def test_what_a_tool_reports_is_a_result_where_failures_are_observed(why: str, error: str) -> None:
    for policy in ("observe", "raise"):
        it = Execute(
            steps="past",
            question="main",
            tool="which",
            args="given",
            result="last",
            on_error=policy,
            on_failure="observe",
        )
        found = await run(it, Steps, {"which": "fail", "given": {"why": why}}, tools=TOOLS)
        last, (step,) = found.values["last"], found.values["past"]
        assert (found.status, last["error"], last["exit_code"]) == ("completed", error, 1)
        assert (step["tool_output"], step["tool_exit_code"]) == (error, 1)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"tool": "nobody"}, "'nobody' is not an available tool; there are: add, fail, finish"),
        ({"tool": "add", "args": {"a": 1}}, "'b' is missing"),
        ({"tool": "add", "args": {"a": "x", "b": 1}}, "'a' must be a whole number"),
    ],
)
async def test_a_call_that_cannot_be_made_is_a_result_or_an_error(given: dict[str, Any], fault: str) -> None:
    found = await run(Execute(), Execute.State, given, tools=TOOLS)
    assert (found.status, found.values["result"]["exit_code"]) == ("completed", 1)
    assert fault in found.values["result"]["error"]
    kind, message = error_of(await run(Execute(on_error="raise"), Execute.State, given, tools=TOOLS))
    assert (kind, fault in message) == ("AgentError", True)


async def test_a_tool_that_ends_the_work_takes_its_own_way_unless_it_fails() -> None:
    it = Execute(on_failure="observe")
    assert (await outcome(it, Execute.State, {"tool": "finish"}))[0] == "finished"
    assert (await outcome(it, Execute.State, {"tool": "finish", "args": {"code": 2}}))[0] == "done"
    assert (await outcome(it, Execute.State, {"tool": "finish", "args": {"code": "x"}}))[0] == "done"
    assert (await outcome(it, Execute.State, {"tool": "add", "args": {"a": 1, "b": 1}}))[0] == "done"


# -- several calls -------------------------------------------------------------------------------------------------

LIST = Execute(calls="pending", results="observations", on_failure="observe")


def call(identity: str, name: str, arguments: dict[str, Any] | None, raw: str = "") -> dict[str, Any]:
    return {"id": identity, "name": name, "arguments": arguments, "raw": raw}


CALLS = [
    call("1", "add", {"a": 1, "b": 2}),
    call("2", "nobody", {}),
    call("3", "add", None, '{"a": 1'),
    call("4", "add", {"a": 1}),
    call("5", "fail", {"why": "no"}),
    call("6", "add", {"a": 3, "b": 4}),
]


async def test_every_call_has_one_result_in_the_order_of_the_calls() -> None:
    found = await run(LIST, Execute.ListState, {"pending": CALLS}, tools=TOOLS)
    messages = [Message.model_validate(one) for one in found.values["observations"]]
    assert [(m.role, m.tool_call_id, m.name) for m in messages] == [
        ("tool", "1", "add"), ("tool", "2", "nobody"), ("tool", "3", "add"), ("tool", "4", "add"),
        ("tool", "5", "fail"), ("tool", "6", "add"),
    ]  # fmt: skip
    texts = [message.content for message in messages]
    assert (texts[0], texts[4], texts[5]) == ("3", "Error: no", "7")
    assert "'nobody' is not an available tool" in texts[1]
    assert "are not a JSON object: '{\"a\": 1'" in texts[2]
    assert "'b' is missing" in texts[3]
    assert messages[0].data == {"output": 3, "error": None, "exit_code": 0}
    assert [(message.data or {})["exit_code"] for message in messages] == [0, 1, 1, 1, 1, 0]


async def test_calls_run_at_the_same_time_and_results_keep_the_order_of_the_calls() -> None:
    order: list[int] = []
    arrived: dict[int, anyio.Event] = {}

    @tool(risk="none")
    async def wait(n: int) -> int:
        """Land only after the call behind it landed."""
        arrived.setdefault(n, anyio.Event())
        if n < 3:
            await arrived.setdefault(n + 1, anyio.Event()).wait()
        order.append(n)
        arrived[n].set()
        return n

    calls = [call(str(n), "wait", {"n": n}) for n in (1, 2, 3)]
    with anyio.fail_after(10):
        found = await run(LIST, Execute.ListState, {"pending": calls}, tools=(wait,))
    assert order == [3, 2, 1]
    assert [one["content"] for one in found.values["observations"]] == ["1", "2", "3"]


async def test_a_call_that_fails_lets_the_others_land() -> None:
    landed: list[int] = []

    @tool(risk="none")
    async def late(n: int) -> int:
        """Land late."""
        await anyio.sleep(0.05)
        landed.append(n)
        return n

    calls = [call("1", "late", {"n": "x"}), call("2", "nobody", {}), call("3", "late", {"n": 1})]
    raising = Execute(calls="pending", results="observations", on_error="raise")
    kind, message = error_of(await run(raising, Execute.ListState, {"pending": calls}, tools=(late,)))
    assert (kind, "'n' must be a whole number" in message) == ("AgentError", True)  # the first in order
    assert landed == [1]


@pytest.mark.parametrize(
    ("calls", "way"),
    [
        ([], "done"),
        ([call("1", "add", {"a": 1, "b": 1})], "done"),
        ([call("1", "finish", {}), call("2", "add", {"a": 1, "b": 1})], "finished"),
        ([call("1", "finish", {"code": 1})], "done"),
    ],
)
async def test_one_call_that_ends_the_work_is_enough_and_all_are_made(calls: list[dict[str, Any]], way: str) -> None:
    taken, found = await outcome(LIST, Execute.ListState, {"pending": calls})
    assert (taken, len(found.values["observations"])) == (way, len(calls))


class Plain(BaseModel):
    todo: list[ToolCall] = []
    seen: list[Message] = []


async def test_a_field_without_a_reducer_holds_one_round_and_one_with_it_all_rounds() -> None:
    @node(effect="pure")
    def again() -> dict[str, object]:
        return {"todo": [call("2", "add", {"a": 5, "b": 5})]}

    @node(effect="pure")
    def once_more() -> dict[str, object]:
        return {"pending": [call("2", "add", {"a": 5, "b": 5})]}

    edges = "START -> first -> next -> second -> END"
    for state, it, more, field, texts in [
        (Plain, Execute(calls="todo", results="seen"), again, "seen", ["10"]),
        (Execute.ListState, LIST, once_more, "observations", ["3", "10"]),
    ]:
        graph = Graph(name="g", state=state, nodes={"first": it, "next": more, "second": it}, edges=edges)
        calls = [call("1", "add", {"a": 1, "b": 2})]
        async with executing(tools=TOOLS) as (executor, _):
            found = await executor.start(graph, {"todo" if state is Plain else "pending": calls})
        assert [one["content"] for one in found.values[field]] == texts


async def test_only_its_own_tools_can_be_called() -> None:
    it = Execute(tools=("add",))
    found = await run(it, Execute.State, {"tool": "fail", "args": {"why": "x"}}, tools=TOOLS)
    assert "'fail' is not an available tool; there are: add" in found.values["result"]["error"]


# -- building ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"calls": "pending"}, "calls= and results= belong together"),
        ({"results": "observations"}, "calls= and results= belong together"),
        ({"calls": "pending", "results": "observations", "tool": "which"}, "tool= is for a single call"),
        ({"steps": "step_history"}, "steps= records the question too: name its field, question="),
        ({"on_error": "ignore"}, "Input should be"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Execute(**options)


def test_only_the_ports_of_its_form_are_checked() -> None:
    assert set(LIST.ports()) == {"calls", "results"}
    assert set(Execute().ports()) == {"tool", "args", "result"}
    of_one(LIST, Execute.ListState)
    with pytest.raises(InvalidGraph, match="pending"):
        of_one(LIST, Execute.State)
