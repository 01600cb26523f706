"""A toolbox: tools in order, by name, called without anything being raised."""

from __future__ import annotations

from typing import Any, Self

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Retry, Tool, Toolbox, ToolResult, Update, node, tool
from orchestrator.errors import GraphUnknown, ToolError
from orchestrator.nodes import Execute
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
    with pytest.raises(TypeError, match="is not a tool: decorate it with @tool, or subclass Tool"):
        Toolbox(3)  # type: ignore[arg-type]


def test_a_tool_is_added_once() -> None:
    box = Toolbox(add)
    assert box.add_tool(hello) is box
    with pytest.warns(UserWarning, match="tool 'add' is skipped: the toolbox already has a tool with that name"):
        assert box.add_tool(tool(hello, name="add")) is box
    assert box.get("add") is add
    assert list(box.add_tools(fail, terminate)) == [add, hello, fail, terminate]
    with pytest.raises(TypeError, match="is not a tool"):
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
    assert (bug.error, bug.metadata) == (
        "Unexpected error executing tool fail: KeyError: 'a bug'",
        {"exception": "KeyError"},
    )
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


# -- toolboxes of toolboxes, and views ------------------------------------------------------------------------------


def names(box: Toolbox) -> list[str]:
    return [one.name for one in box]


def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


async def test_functions_methods_and_toolboxes_become_part_of_it() -> None:
    box = Toolbox(shout, Toolbox(add, hello), "abc".join)
    assert names(box) == ["shout", "add", "hello", "join"]
    assert (await box.execute(name="shout", tool_input={"text": "hi"})).output == "HI"
    assert (await box.execute(name="join", tool_input={"iterable": ["1", "2"]})).output == "1abc2"
    with pytest.raises(ValueError, match="two tools are named 'add'"):
        Toolbox(add, Toolbox(add))


def test_what_comes_into_a_part_of_it_later_is_there_too() -> None:
    inner = Toolbox(add)
    outer = Toolbox(inner, hello)
    view = outer.prefix("x_")
    inner.add_tool(fail)
    assert (names(outer), names(view)) == (["add", "fail", "hello"], ["x_add", "x_fail", "x_hello"])
    assert names(view.add_tool(shout)) == ["x_add", "x_fail", "x_hello", "shout"]
    assert "shout" not in outer
    inner.add_tool(tool(shout, "hello"))
    with pytest.raises(ValueError, match="two tools are named 'hello'"):
        names(outer)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (lambda box: box.include("terminate", "hello"), ["hello", "terminate"]),
        (lambda box: box.include("*l*", "add"), ["hello", "add", "fail"]),
        (lambda box: box.exclude("hello", "f*"), ["add", "terminate"]),
        (lambda box: box.subset(["add"]), ["add"]),
        (lambda box: box.prefix("my_"), ["my_hello", "my_add", "my_fail", "my_terminate"]),
        (lambda box: box.prefix("a.").include("a.add").prefix("b-"), ["b-a.add"]),
        (lambda box: box.in_group("math") | box.in_group("words"), ["add", "hello"]),
        (lambda box: box.in_group("math") + shout, ["add", "shout"]),
        (lambda box: box | box.prefix("again_").include("*add"), ["hello", "add", "fail", "terminate", "again_add"]),
        (lambda box: box.override("add", name="plus"), ["hello", "plus", "fail", "terminate"]),
        (lambda box: box.include(), []),
    ],
)
def test_views(view: Any, expected: list[str]) -> None:
    assert names(view(BOX)) == expected
    assert names(BOX) == ["hello", "add", "fail", "terminate"]


@pytest.mark.parametrize("view", [Toolbox.include, Toolbox.exclude, Toolbox.override])
@pytest.mark.parametrize("name", ["sub", "s*b", "Add"])
def test_a_name_that_fits_nothing_is_an_error(view: Any, name: str) -> None:
    with pytest.raises(GraphUnknown, match=r"no tool '.*' here; there are: hello, add, fail, terminate"):
        view(BOX, "add", name)


async def test_what_is_overridden_is_a_copy() -> None:
    box = BOX.override("add", "f*", risk="read", effect="idempotent", timeout=3, retry=Retry(attempts=2))
    changed = {one.name: (one.risk, one.effect, one.timeout, one.retry) for one in box}
    new = ("read", "idempotent", 3, Retry(attempts=2))
    old = ("dangerous", "irreversible", None, None)
    assert changed == {"hello": old, "add": new, "fail": new, "terminate": old}
    assert add.risk == "dangerous"
    assert box.get("hello") is hello
    assert box.get("add") is box.get("add")
    assert {one.risk for one in BOX.override(risk="none")} == {"none"}
    assert (await box.prefix("x_").execute(name="x_add", tool_input={"a": 1})).output == "2"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": 1}, "has no 'colour' to change"),
        ({"risk": "huge"}, "risk 'huge' is not one of"),
        ({"timeout": -1}, "timeout -1 is not a positive number"),
    ],
)
def test_what_no_tool_can_be_is_refused_at_once(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        Toolbox().override(**changes)
    with pytest.raises(TypeError, match="is not a name that a model can call: use ASCII letters"):
        BOX.prefix("größe")
    with pytest.raises(ValueError, match=r"two tools are named 'hello': rename one .* with prefix"):
        BOX | BOX


class Server(Toolbox):
    """Tools that are known once it is opened, as of a server."""

    def __init__(self) -> None:
        self.found: list[Tool] = []
        self.opened: list[str] = []
        super().__init__()

    def current(self) -> dict[str, Tool]:
        return {one.name: one for one in self.found}

    @property
    def ready(self) -> bool:
        return bool(self.found)

    @property
    def connections(self) -> tuple[Toolbox, ...]:
        return (self,)

    async def __aenter__(self) -> Self:
        self.opened.append("in")
        self.found = [add, hello]
        return self

    async def __aexit__(self, *error: object) -> None:
        self.opened.append("out")
        self.found = []


async def test_views_of_tools_that_are_known_later_are_checked_then() -> None:
    server = Server()
    box = server.include("add", "h*").prefix("s_").override("s_add", risk="read") | Toolbox(fail)
    assert (box.ready, names(box)) == (False, ["fail"])
    async with box:
        assert names(box) == ["s_add", "s_hello", "fail"]
        assert [one.risk for one in box] == ["read", "dangerous", "dangerous"]
        assert (await box.execute(name="s_add", tool_input={"a": 1})).output == "2"
    assert (server.opened, names(box)) == (["in", "out"], ["fail"])
    with pytest.raises(GraphUnknown, match="no tool 'sub' here; there are: add, hello"):
        async with server.exclude("sub"):
            pass
    assert server.opened == ["in", "out"] * 2


async def test_an_executor_opens_them_once_for_all_views() -> None:
    server = Server()
    graph = Graph(
        name="g", state=Execute.State, output="result", nodes={"x": Execute()},
        edges="START -> x -> END\nx -> END : finished",
    )  # fmt: skip
    async with Executor(tools=[server.include("add"), server.exclude("add").prefix("s_"), shout]) as executor:
        run = await executor.start(graph, {"tool": "s_hello", "args": {"name": "Ann"}})
        assert run.output is not None
        assert run.output["output"] == "Hello Ann"
        assert server.opened == ["in"]
    assert server.opened == ["in", "out"]


async def test_an_executor_whose_tools_cannot_be_opened_is_not_open() -> None:
    executor = Executor(tools=[Server().include("sub")])
    with pytest.raises(GraphUnknown, match="no tool 'sub' here; there are: add, hello"):
        await executor.__aenter__()


async def test_views_inside_of_a_run_are_journaled_as_all_calls_are() -> None:
    class S(BaseModel):
        said: str = ""

    @node
    async def call(state: S, ctx: Context) -> Update:
        box = (ctx.tools.include("a*") | shout).prefix("x_").override(risk="read")
        await box.execute(name="x_shout", tool_input={"text": "hi"})
        return {"said": (await box.execute(name="x_add", tool_input={"a": 1})).text}

    graph = Graph(name="g", state=S, nodes={"call": call}, edges="START -> call -> END", output="said")
    async with Executor(tools=BOX) as executor:
        run = await executor.start(graph)
        made = [event.data["name"] async for event in executor.events(run.run_id) if event.type == "effect_intended"]
    assert (run.output, made) == ("2", ["x_shout", "x_add"])
