"""Names of steps: what a row did, and with what."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import Approve, Context, Executor, Graph, Update, node, tool
from orchestrator.kernel.plan import Plan
from orchestrator.models.messages import Reply, ToolCall
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from orchestrator.views.step_names import MapGroups, item_name, main_argument, step_name
from orchestrator.views.timeline import Timeline, timeline
from tests.render.html.shapes import SHAPES
from tests.render.test_why import Talk

pytestmark = pytest.mark.anyio

SECRET = "sk-abcdefghijklmnop1234567890"


@tool(risk="read", effect="read")
def search_web(query: str, limit: int = 5) -> str:
    """Search the web."""
    return f"{query}, {limit} times"


@tool(risk="write", effect="irreversible")
def send_mail(to: str, body: str) -> str:
    """Send a mail."""
    return f"{body} sent to {to}"


def asks(*calls: tuple[str, dict[str, Any]]) -> Reply:
    return Reply(text="So.", tool_calls=tuple(ToolCall(id=f"{name}{at}", name=name, arguments=args)
                                             for at, (name, args) in enumerate(calls)))  # fmt: skip


async def rows_of(graph: Graph[Any], given: object, model: ScriptedModel | None = None, **more: Any) -> Timeline:
    async with Executor(graphs=[graph], model=model, tools=[search_web, send_mail], **more) as ex:
        run = await ex.start(graph, given)
        if run.waiting:
            run = await ex.answer(run.run_id, run.waiting[0].id, Approve())
        return timeline(Plan.of(run.definition), run.records())


async def test_a_step_that_calls_a_tool_is_named_by_the_tool_and_its_main_argument() -> None:
    searches = asks(("search_web", {"limit": 3, "query": "weather Oslo"}), ("search_web", {"query": "rain"}))
    model = ScriptedModel([searches, asks(("send_mail", {"body": "It rains.", "to": "ann@example.com"})), "Done."])
    found = await rows_of(react(), "Weather?", model)
    names = [(step_name(row).what, step_name(row).about) for row in found.rows]
    assert ("think", "") in names
    assert ("act", "search_web 'weather Oslo'") in names
    assert names.count(("search_web", "'weather Oslo'")) == 1
    assert ("search_web", "rain") in names
    assert ("confirm", "send_mail 'It rains.'") in names
    call = next(step_name(row) for row in found.rows if step_name(row).what == "send_mail")
    assert (str(call), call.where) == ("send_mail 'It rains.'", "act › execute")


async def test_steps_of_a_map_are_named_by_their_items_and_know_which_item_they_are_in() -> None:
    found = await rows_of(SHAPES["k5"](), {"xs": [{"id": "page-091"}, {"id": "page-092"}]})
    names = [str(step_name(row)) for row in found.rows]
    assert names.count("w page-091") == names.count("w page-092") == 1
    assert names.count("k page-092") == 1
    assert names[-1] == "j"
    groups = MapGroups(found)
    assert [(group.each, group.target, group.count) for group in groups.groups] == [("xs", "w", 2)]
    places = {str(step_name(row)): groups.places.get(row.activation) for row in found.rows}
    assert places["w page-091"] == places["p page-091"] == places["k page-091"] == (0, 0)
    assert places["q page-092"] == (0, 1)
    assert places["j"] is None
    assert places["a"] is None


async def test_several_tools_of_one_step_are_counted() -> None:
    @node(tools=[search_web])
    async def works(state: Talk, ctx: Context[object]) -> Update:
        for word in ("a", "b"):
            await ctx.tool("search_web", query=word)
        return {}

    graph = Graph(name="works", state=Talk, nodes={"works": works}, edges="START -> works -> END")
    found = await rows_of(graph, {})
    assert [str(step_name(row)) for row in found.rows] == ["works search_web ×2"]


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("page-092", "page-092"), ("two words", "'two words'"), ({"n": 3, "title": "On rain"}, "'On rain'"),
        ({"name": "look", "arguments": {"query": "a b"}}, "look 'a b'"), ({"n": 3}, "3"), (7, "7"), (None, "null"),
        ([{"a": 1}, 2], "[{a: 1}, …]"), ({}, "{}"), ([], "[]"), ({"id": 0}, "0"),
    ],
)  # fmt: skip
def test_an_item_is_named_by_what_says_most(item: object, name: str) -> None:
    assert item_name(item) == name


def test_names_are_bounded_and_without_secrets_and_controls() -> None:
    assert main_argument({}) == ""
    assert main_argument({"token": SECRET, "query": f"find {SECRET}"}) == "'find [redacted]'"
    assert SECRET not in item_name({"password": SECRET})
    assert "hunter2" not in main_argument({"password": "hunter2hunter2"})
    assert "\u202e" not in item_name("a\u202eb\x1b[31m")
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    for value in ("x" * 10_000_000, {"text": "y " * 100_000}, deep, {"k" * 500: {"v" * 500: ["w" * 500]}}):
        assert len(item_name(value)) <= 80
        assert len(main_argument(value)) <= 80
