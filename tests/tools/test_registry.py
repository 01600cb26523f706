"""Tools by group, by name and as they are: wherever tools are given, functions and toolboxes can be given, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator import Approve, Context, Deny, Executor, Graph, Registry, Tool, Toolbox, Update, node, tool
from orchestrator import add as add_to
from orchestrator.comparison import compare
from orchestrator.errors import GraphUnknown, NotSerialisable, UntrustedCode
from orchestrator.nodes import Confirm, Execute, Subgraph
from orchestrator.testing import ScriptedModel
from orchestrator.tools import toolbox_of

pytestmark = pytest.mark.anyio


def weather(city: str) -> str:
    """The weather now."""
    return f"sunny in {city}"


def forecast(city: str, days: int = 1) -> str:
    """The weather soon."""
    return f"rain in {city} in {days}"


def starred(*words: str) -> None: ...


@tool(risk="none", effect="pure")
def twice(a: int) -> int:
    """Double it."""
    return 2 * a


# -- a registry ---------------------------------------------------------------------------------------------------


async def test_functions_are_registered_in_a_group_under_their_own_or_another_name() -> None:
    registry = Registry()

    @registry.register("maths", risk="none", effect="pure")
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    another = registry.register("weather")(weather, "another_weather")
    registry.register("weather")(weather)
    assert registry.groups == ("maths", "weather")
    assert [(one.group, one.name) for one in registry] == [
        ("maths", "add"), ("weather", "another_weather"), ("weather", "weather"),
    ]  # fmt: skip
    assert (add.risk, add.effect, another.risk) == ("none", "pure", "dangerous")
    assert await add(a=2) == 3
    assert [one.name for one in registry.in_group("weather")] == ["another_weather", "weather"]
    assert registry.get("another_weather") is another
    assert ("add" in registry, "sub" in registry, len(registry)) == (True, False, 3)
    assert repr(registry) == "Registry(maths: add; weather: another_weather, weather)"


def test_a_name_is_taken_once_in_a_group_and_looked_up_by_both() -> None:
    registry = Registry()
    registry.register("one")(weather)
    registry.register("two")(forecast, "weather")
    with pytest.raises(ValueError, match=r"group 'one' has a tool 'weather' already: register this one under another"):
        registry.register("one")(forecast, "weather")
    assert registry.get("weather", "two").description == "The weather soon."
    with pytest.raises(
        GraphUnknown, match="several tools are named 'weather', in the groups one, two: choose one with group="
    ):
        registry.get("weather")
    with pytest.raises(GraphUnknown, match="no tool 'snow' is registered; there are: weather, weather"):
        registry.pick("snow")
    with pytest.raises(GraphUnknown, match="no tool 'snow' is registered in group 'one'; there are: weather"):
        registry.get("snow", "one")
    with pytest.raises(GraphUnknown, match="no group 'three' is registered; there are: one, two"):
        registry.in_group("three")


def test_the_group_cannot_be_forgotten_and_registries_do_not_share() -> None:
    with pytest.raises(TypeError, match="name the group first"):
        Registry().register(weather)  # type: ignore[arg-type]
    Registry().register("weather")(weather)
    assert len(Registry()) == 0


async def test_tools_are_picked_by_name_or_are_local_to_the_toolbox() -> None:
    registry = Registry()
    registry.register("weather")(weather)
    box = registry.pick("weather", forecast)
    assert [one.name for one in box] == ["weather", "forecast"]
    assert "forecast" not in registry
    with pytest.raises(ValueError, match="two tools are named 'weather'"):
        registry.pick("weather", weather)


# -- wherever tools are given ---------------------------------------------------------------------------------------


def test_whatever_may_stand_for_tools() -> None:
    registry = Registry()
    registry.register("weather")(forecast)
    things: list[Any] = [weather, twice, Toolbox(tool(twice, "thrice")), registry, ["arithmetic"], f"{__name__}:LOCAL"]
    names = [one.name for one in toolbox_of(things)]
    assert names[:4] == ["weather", "twice", "thrice", "forecast"]
    assert {"add", "divide"} <= set(names)
    assert names[-1] == "local"
    box = Toolbox(twice)
    assert toolbox_of(box) is box
    assert [one.name for one in toolbox_of(weather)] == ["weather"]
    assert list(toolbox_of(())) == []


LOCAL = [tool(name="local")(lambda: None)]


@pytest.mark.parametrize(
    ("things", "error", "words"),
    [
        ([weather, weather], ValueError, "two tools are named 'weather'"),
        (["nobody"], GraphUnknown, "tools 'nobody': it is neither a shipped group"),
        ([3], TypeError, "3 is not a tool: decorate it with @tool"),
        ([add_to], TypeError, "add is a reducer of state fields, not a tool"),
        ([Execute], TypeError, "is a class, not a tool: use one of its objects"),
        ([max], TypeError, "has no readable signature: wrap it in a function"),
        ([starred], TypeError, r"takes \*words: a model gives arguments by name"),
        (
            [Graph(name="g", state=Execute.State, nodes={"x": node(lambda: None)}, edges="START -> x -> END")],
            TypeError,
            r"use its \.as_tool",
        ),
    ],
)
def test_what_is_no_tool_is_refused_at_once(things: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Executor(tools=things)


class S(BaseModel):
    city: str = "Bonn"
    said: str = ""


@node
async def ask(state: S, ctx: Context) -> Update:
    found = [one.name for one in ctx.tools]
    return {"said": f"{found}: {(await ctx.tool(found[0], city=state.city)).output}"}


def graph_of(one: Any, name: str = "g") -> Graph:
    return Graph(name=name, state=S, nodes={"ask": one}, edges="START -> ask -> END", output="said")


async def test_functions_given_to_a_run_and_to_compare() -> None:
    assert (await graph_of(ask).run(tools=[weather])).output == "['weather']: sunny in Bonn"
    assert (await graph_of(ask).run(tools=weather)).output == "['weather']: sunny in Bonn"
    compared = await compare(
        "x", [graph_of(ask, "a").model_copy(update={"input": "city"})], tools=iter([weather]), model=ScriptedModel([])
    )
    assert [row.answer for row in compared.rows] == ["['weather']: sunny in x"]


async def test_a_nodes_own_tools_are_functions_tools_toolboxes_and_names() -> None:
    registry = Registry()
    registry.register("maths")(lambda a: a, "same")
    one = ask.with_(tools=[weather, "twice", Toolbox(forecast), registry])
    assert one.tools == ("weather", "twice", "forecast", "same")
    one = ask.with_(tools=(thing for thing in (weather, ["twice", Toolbox(forecast)])))
    assert one.tools == ("weather", "twice", "forecast")
    assert (await graph_of(one).run(tools=[twice])).output == "['weather', 'twice', 'forecast']: sunny in Bonn"
    with pytest.raises(GraphUnknown, match="node 'ask' uses tool 'twice', and tools= has none"):
        await graph_of(one).run()


async def test_what_is_a_nodes_own_is_nobody_elses() -> None:
    graph = Graph(
        name="g", state=S, nodes={"mine": ask.with_(tools=[weather]), "other": ask},
        edges="START -> mine -> other -> END", output="said",
    )  # fmt: skip
    run = await graph.run(tools=[tool(forecast, "weather_soon")])
    assert run.output == "['weather_soon']: rain in Bonn in 1"

    async with Executor(tools=[tool(forecast, "weather")]) as executor:  # its own comes before the executor's
        run = await executor.start(graph)
        history = await executor.history(run.run_id)
    assert [point.update for point in history if point.node] == [
        {"said": "['weather']: sunny in Bonn"}, {"said": "['weather']: rain in Bonn in 1"},
    ]  # fmt: skip


async def test_a_changed_node_keeps_its_own_tools() -> None:
    one = ask.with_(tools=[weather]).with_(timeout=5)
    assert one.tools == ("weather",)
    assert (await graph_of(one).run()).output == "['weather']: sunny in Bonn"
    assert one.with_(tools=None).toolset is None
    assert one.with_(tools=("twice",)).toolset == ("twice",)


async def test_a_subgraphs_own_tools_are_those_of_its_nodes() -> None:
    inner = graph_of(ask, "inner")
    outer = Graph(
        name="outer", state=S, nodes={"in": Subgraph(inner, outputs={"said": "said"}, tools=[weather])},
        edges="START -> in -> END", output="said",
    )  # fmt: skip
    assert (await outer.run()).output == "['weather']: sunny in Bonn"
    named = Subgraph(graph_of(ask.with_(tools=("weather",)), "inner"), outputs={"said": "said"}, tools=[weather])
    assert (await outer.replace(**{"in": named}).run()).output == "['weather']: sunny in Bonn"


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([weather, weather], "two tools are named 'weather'"),
        ([weather, "weather"], "two tools are named 'weather'"),
        ([3], "3 is not a tool"),
        ([starred], r"takes \*words"),
        ("weather", "tuple"),
    ],
)
def test_what_a_node_refuses(tools: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Execute(tools=tools)


class Call(Execute.State):
    """What is called."""


async def test_a_call_of_a_tool_of_a_subgraph_is_confirmed_by_its_own_schema() -> None:
    """The executor has another tool of that name, by which the edited arguments are not to be judged."""
    inner = Graph(
        name="inner", state=Call, edges="START -> confirm -> execute -> END\nconfirm -> END : denied",
        nodes={"confirm": Confirm(tool="tool", args="args"), "execute": Execute()},
        output="result",
    )  # fmt: skip
    outer = Graph(
        name="outer", state=Call, edges="START -> in -> END", output="result",
        nodes={"in": Subgraph(inner, inputs={"tool": "tool", "args": "args"}, outputs={"result": "result"},
                              tools=[weather])},
    )  # fmt: skip
    other = tool(lambda number: number, name="weather")
    async with Executor(tools=[other]) as executor:
        run = await executor.start(outer, {"tool": "weather", "args": {"city": "Bonn"}})
        run = await executor.answer(run.run_id, run.waiting[0].id, Approve(args={"city": "Rome"}))
        assert run.output is not None
        assert run.output["output"] == "sunny in Rome"
        run = await executor.start(outer, {"tool": "weather", "args": {"city": "Bonn"}})
        run = await executor.answer(run.run_id, run.waiting[0].id, Approve(args={"number": 1}))
        assert "'number' is unknown" in run.waiting[0].prompt
        run = await executor.answer(run.run_id, run.waiting[0].id, Deny())
        assert run.status == "completed"


def test_a_saved_graph_names_a_nodes_own_tools(tmp_path: Path) -> None:
    graph = Graph(
        name="saved",
        state=Call,
        nodes={"x": Execute(tools=[weather, twice, "add"])},
        edges="START -> x -> END\nx -> END : finished",
    )
    graph.save(tmp_path / "graph.yaml")
    assert f"{__name__}:weather" in (tmp_path / "graph.yaml").read_text()
    with pytest.raises(UntrustedCode, match="weather"):  # a plain function is not declared as a tool
        Graph.load(tmp_path / "graph.yaml")
    loaded = Graph.load(tmp_path / "graph.yaml", trust=__name__)
    assert loaded.content == graph.content
    toolset = loaded.nodes["x"].toolset
    assert toolset is not None
    assert toolset[1] is twice
    assert isinstance(toolset[0], Tool)
    assert (toolset[0].name, toolset[2]) == ("weather", "add")
    # Without its code it is drawn and told apart all the same.
    assert Graph.from_data(graph.data()).content == graph.content


@pytest.mark.parametrize("one", [lambda city: city, tool(twice, "thrice"), tool(weather, risk="none")])
def test_what_no_file_can_name_is_not_saved(one: Any, tmp_path: Path) -> None:
    named = tool(one, "local") if not isinstance(one, Tool) else one
    graph = Graph(
        name="g", state=Call, nodes={"x": Execute(tools=[named])}, edges="START -> x -> END\nx -> END : finished"
    )
    with pytest.raises(NotSerialisable, match="node 'x' has its own tool that a file cannot refer to"):
        graph.save(tmp_path / "graph.yaml")
    assert Graph.from_data(graph.data()).content == graph.content
    with pytest.raises(GraphUnknown, match="has no reference"):
        Graph.from_data(graph.data(), resolve=True)
