"""A toolbox: tools in order, by name, called without anything being raised."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import Tool, Toolbox, ToolResult, tool
from orchestrator.errors import GraphUnknown, ToolError
from orchestrator.tools import ToolFailure

pytestmark = pytest.mark.anyio


@tool(group="math")
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(group="words")
def hello(name: str) -> str:
    """Greet."""
    return f"Hello {name}"


@tool
def fail(why: str) -> None:
    """Fail."""
    raise ToolError(why) if why != "bug" else KeyError("a bug")


@tool(ends=True)
def terminate(status: str) -> ToolResult:
    """End."""
    return ToolResult(output=f"ended: {status}", metadata={"status": status})


BOX = Toolbox(hello, add, fail, terminate)


def test_it_has_its_tools_in_the_order_given() -> None:
    assert list(BOX) == [hello, add, fail, terminate] == list(BOX.tools)
    assert isinstance(BOX.tools, tuple)
    assert BOX.tool_map == {"hello": hello, "add": add, "fail": fail, "terminate": terminate}
    assert (len(BOX), "add" in BOX, "sub" in BOX) == (4, True, False)
    assert (BOX.get("add"), BOX.get("sub")) == (add, None)
    assert BOX.to_params() == [one.to_param() for one in BOX]
    assert repr(BOX) == "Toolbox(hello, add, fail, terminate)"
    BOX.tool_map.clear()
    assert len(BOX) == 4


def test_parts_of_it() -> None:
    assert list(BOX.subset(["terminate", "hello"])) == [hello, terminate]
    assert list(BOX.in_group("math")) == [add]
    with pytest.raises(GraphUnknown, match="no tool 'sub' here; there are: hello, add, fail, terminate"):
        BOX.subset(["add", "sub"])
    assert list(Toolbox()) == []


def test_two_tools_of_one_name_and_what_is_no_tool() -> None:
    with pytest.raises(ValueError, match="two tools are named 'add': rename one with tool"):
        Toolbox(add, tool(hello, name="add"))
    with pytest.raises(TypeError, match="is no tool: decorate it with @tool, or subclass Tool"):
        Toolbox(3)  # type: ignore[arg-type]


def test_a_tool_is_added_once() -> None:
    box = Toolbox(add)
    assert box.add_tool(hello) is box
    with pytest.warns(UserWarning, match="tool 'add' is skipped: the toolbox has one of that name"):
        assert box.add_tool(tool(hello, name="add")) is box
    assert box.get("add") is add
    assert list(box.add_tools(fail, terminate)) == [add, hello, fail, terminate]
    with pytest.raises(TypeError, match="is no tool"):
        box.add_tool(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "given", "result"),
    [
        ("hello", {"name": "Ann"}, ToolResult(output="Hello Ann")),
        ("add", {"a": "1"}, ToolResult(output="2")),  # as text, as models read it
        ("nobody", {}, ToolFailure(error="Tool nobody is invalid")),
        ("fail", {"why": "no"}, ToolFailure(error="no")),
        ("terminate", {"status": "ok"}, ToolResult(output="ended: ok", metadata={"status": "ok"})),
    ],
)
async def test_execute_gives_a_result_whatever_happens(name: str, given: dict[str, Any], result: ToolResult) -> None:
    assert await BOX.execute(name=name, tool_input=given) == result


async def test_execute_raises_nothing() -> None:
    bug = await BOX.execute(name="fail", tool_input={"why": "bug"})
    assert (bug.error, bug.metadata) == ("Unexpected error executing tool fail: 'a bug'", {"exception": "KeyError"})
    assert isinstance(bug, ToolFailure)
    for given in ({}, None, {"a": "x"}, {"a": 1, "z": 1}):
        refused = await BOX.execute(name="add", tool_input=given)
        assert isinstance(refused, ToolFailure)
        assert "wrong arguments" in str(refused.error)


async def test_without_input_a_tool_gets_none() -> None:
    @tool
    def now() -> str:
        """Tell the time."""
        return "noon"

    assert (await Toolbox(now).execute(name="now")).output == "noon"
    assert (await Toolbox(now).execute(name="now", tool_input=None)).output == "noon"


async def test_name_and_input_are_given_by_name() -> None:
    with pytest.raises(TypeError, match="positional"):
        await BOX.execute("add", {"a": 1})  # type: ignore[misc]


def test_a_tool_ends_the_work_if_it_says_so() -> None:
    assert [one.name for one in BOX if one.ends] == ["terminate"]
    assert isinstance(terminate, Tool)
