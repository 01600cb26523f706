"""`Work`: planned calls are made ready, and what comes of them is evidence."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from orchestrator import Approve, Deny, Graph, Run, merge, node, tool
from orchestrator.errors import ToolError
from orchestrator.nodes import Confirm, Execute, Plan, Step, Work
from orchestrator.nodes.planned_calls import NONE_LEFT
from tests.support.one_node import error_of, executing, of_one

pytestmark = pytest.mark.anyio


class Working(Work.State, Plan.BlueprintState):
    question: str = ""


@tool(risk="none", effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(risk="none", effect="pure")
def say(text: str) -> str:
    """Say it."""
    return text


@tool(risk="none", effect="pure")
def odd() -> str:
    """Give something odd."""
    return "1, 2] #E9"


@tool(risk="none")
def fail(why: str) -> None:
    """Fail."""
    raise ToolError(why) if why != "bug" else ValueError("a bug")


@node(effect="pure")
def begin() -> None:
    """Nothing."""


@node(effect="pure", join="all")
def end() -> None:
    """Nothing."""


def graph(work: Work, *, denied: str = "confirm -> work : denied", reason: str | None = "denial") -> Graph:
    return Graph(
        name="g",
        state=Working,
        nodes={
            "begin": begin,
            "work": work,
            "confirm": Confirm(tool="tool", args="args", reason=reason),
            "execute": Execute(on_failure="observe"),
            "end": end,
        },
        edges=f"""
            START -> begin
            begin -> work : each steps
            work -> confirm : call
            confirm -> execute : approved
            {denied}
            execute -> work
            work -> end : done
            end -> END
        """,
        output="evidence",
    )


def step(name: str, called: str, given: str, *needs: str) -> dict[str, Any]:
    return {"id": name, "needs": list(needs), "thought": f"T{name}", "tool": called, "input": given}


async def work(*steps: dict[str, Any], it: Work | None = None) -> Run:
    async with executing(tools=(add, say, odd, fail)) as (executor, _):
        return await executor.start(graph(it or Work(denial="denial")), {"steps": list(steps)}, approve="none")


async def test_calls_are_made_with_the_evidence_that_they_use() -> None:
    found = await work(
        step("E2", "add", "#E1, 4", "E1"), step("E1", "add", "1, 2"), step("E3", "say", "#E1 and #E2", "E1", "E2")
    )
    assert found.output == {
        "E1": {
            "question": "TE1",
            "tool_choice": "add",
            "tool_args": {"a": 1, "b": 2},
            "tool_exit_code": 0,
            "tool_output": 3,
        },
        "E2": {
            "question": "TE2",
            "tool_choice": "add",
            "tool_args": {"a": 3, "b": 4},
            "tool_exit_code": 0,
            "tool_output": 7,
        },
        "E3": {
            "question": "TE3",
            "tool_choice": "say",
            "tool_args": {"text": "3 and 7"},
            "tool_exit_code": 0,
            "tool_output": "3 and 7",
        },
    }
    assert (found.values["tool"], found.values["args"], found.values["result"]) == ("", {}, None)


@pytest.mark.parametrize(
    ("called", "given", "words"),
    [
        ("nobody", "x", "'nobody' is not an available tool; choose one of: add, say, odd, fail"),
        ("add", "1", "'b' is missing"),
        ("add", "1, x", "'b' must be a whole number"),
        ("add", "1, 2, 3", "'add' takes 2 inputs (a, b), and 3 are given"),
        ("fail", "no paper", "no paper"),
        ("fail", "bug", "Unexpected error executing tool fail: a bug"),
    ],
)
async def test_s68_what_goes_wrong_is_evidence_and_the_work_goes_on(called: str, given: str, words: str) -> None:
    found = await work(step("E1", called, given), step("E2", "say", "so: #E1", "E1"))
    assert found.status == "completed"
    first, second = found.values["evidence"]["E1"], found.values["evidence"]["E2"]
    assert (first["tool_exit_code"], words in first["tool_output"]) == (1, True)
    assert "work:" not in first["tool_output"]
    assert second["tool_output"] == f"so: Error: {first['tool_output']}"


@pytest.mark.parametrize(("called", "given"), [("nobody", "x"), ("add", "1")])
async def test_a_call_that_cannot_be_made_can_be_an_error(called: str, given: str) -> None:
    assert error_of(await work(step("E1", called, given), it=Work(on_error="raise")))[0] == "AgentError"


async def test_a_name_in_another_case_is_the_tools_if_there_is_one_only() -> None:
    @tool(name="ADD", risk="none", effect="pure")
    def shout(text: str) -> str:
        """Add loudly."""
        return text

    found = await work(step("E1", "Add", "1, 2"))
    assert (found.output["E1"]["tool_choice"], found.output["E1"]["tool_output"]) == ("add", 3)
    async with executing(tools=(add, shout)) as (executor, _):
        steps = [step("E1", "Add", "1, 2"), step("E2", "ADD", "x"), step("E3", "add", "1, 2")]
        found = await executor.start(graph(Work(denial="denial")), {"steps": steps}, approve="none")
    assert "'Add' is not an available tool" in found.output["E1"]["tool_output"]
    assert [found.output[name]["tool_output"] for name in ("E2", "E3")] == ["x", 3]


async def test_no_more_is_called_than_may_be_and_what_can_begin_first_is() -> None:
    steps = [
        step("E1", "say", "#E3", "E3"), step("E2", "", "text"), step("E3", "say", "a"), step("E4", "nobody", "x"),
        step("E5", "say", "b"),
    ]  # fmt: skip
    found = await work(*steps, it=Work(denial="denial", steps="steps", max_calls=2))
    outputs = {name: one["tool_output"] for name, one in found.output.items()}
    assert "is not an available tool" in outputs.pop("E4")
    assert outputs == {"E1": NONE_LEFT, "E2": "text", "E3": "a", "E5": "b"}
    for alone in ({"steps": "steps"}, {"max_calls": 2}):
        with pytest.raises(ValidationError, match="belong together"):
            Work(**alone)


async def test_a_step_that_calls_nothing_is_its_own_evidence() -> None:
    found = await work(step("E1", "", "42"), step("E2", "", "#E1", "E1"), step("E3", "add", "#E2, 1", "E2"))
    assert [found.output[name]["tool_output"] for name in ("E1", "E2", "E3")] == ["42", "42", 43]


async def test_evidence_is_never_read_as_a_plan() -> None:
    found = await work(step("E1", "odd", ""), step("E2", "say", "<#E1>", "E1"), step("E3", "add", "#E1", "E1"))
    assert found.output["E2"]["tool_output"] == "<1, 2] #E9>"
    assert "'b' is missing" in found.output["E3"]["tool_output"]


async def test_a_denied_call_is_evidence_and_an_edited_one_is_what_was_made(store: str) -> None:
    steps = [step("E1", "say", "one"), step("E2", "say", "two"), step("E3", "say", "#E1, #E2", "E1", "E2")]
    async with executing(tools=(say,), store=store) as (executor, _):
        found = await executor.start(graph(Work(denial="denial")), {"steps": steps})
        first, second = sorted(found.waiting, key=lambda question: question.path)
        assert [one.payload["args"] for one in (first, second)] == [{"text": "one"}, {"text": "two"}]
        found = await executor.answer(found.run_id, first.id, Deny(reason="not this"))
        found = await executor.answer(found.run_id, second.id, Approve(args={"text": "zwei"}))
        (last,) = found.waiting
        assert last.payload["args"] == {"text": "Error: the user denied this call: not this, zwei"}
        found = await executor.answer(found.run_id, last.id, Deny())
    assert (found.status, found.output["E2"]["tool_args"]) == ("completed", {"text": "zwei"})
    assert found.output["E1"]["tool_args"] == {"text": "one"}
    assert found.output["E3"]["tool_output"] == "the user denied this call"


async def test_a_branch_can_work_twice() -> None:
    class Twice(Working):
        checked: Annotated[dict[str, Step], merge] = Field(default_factory=dict)

    again = Graph(
        name="g",
        state=Twice,
        nodes={
            "begin": begin,
            "first": Work(),
            "call": Execute(on_failure="observe"),
            "second": Work(evidence="checked", denial="denial"),
            "confirm": Confirm(tool="tool", args="args", reason="denial"),
            "call_again": Execute(on_failure="observe"),
            "end": end,
        },
        edges="""
            START -> begin
            begin -> first : each steps
            first -> call : call
            call -> first
            first -> second : done
            second -> confirm : call
            confirm -> call_again : approved
            confirm -> second : denied
            call_again -> second
            second -> end : done
            end -> END
        """,
    )
    made: list[int] = []

    @tool(risk="none")
    def count(text: str) -> int:
        """Count the calls."""
        made.append(1)
        return len(made)

    async with executing(tools=(count,)) as (executor, _):
        given = {"steps": [step("E1", "count", "x")]}
        found = await executor.start(again, given, approve="none")
        assert [found.values[name]["E1"]["tool_output"] for name in ("evidence", "checked")] == [1, 2]
        found = await executor.start(again, given)
        found = await executor.answer(found.run_id, found.waiting[0].id, Deny(reason="twice"))
    assert found.values["evidence"]["E1"]["tool_output"] == 3
    assert found.values["checked"]["E1"]["tool_output"] == "the user denied this call: twice"


async def test_it_says_that_it_belongs_into_a_map() -> None:
    outside = Graph(
        name="g", state=Working, nodes={"work": Work()}, edges="START -> work\nwork -> END : done\nwork -> END : call"
    )
    async with executing(tools=(add,)) as (executor, _):
        kind, message = error_of(await executor.start(outside, {}))
    assert (kind, "reach it by an `each` edge from a Plan" in message) == ("StepError", True)


def test_its_fields_are_checked_when_the_graph_is_built() -> None:
    assert set(Work().ports()) == {"evidence", "tool", "args", "result"}
    of_one(Work(evidence="evidence"), Working).check()
