"""Names: letters and digits of any script, in one form wherever they are written, and none that look alike."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Outcome, ToolResult, node, tool
from orchestrator.errors import GraphError, InvalidGraph
from orchestrator.graph import Migration
from orchestrator.graph.limits import Limits
from orchestrator.graph.names import is_name, plain_name
from orchestrator.nodes import Ask, Classify, Execute, Route, Subgraph
from orchestrator.testing import ScriptedModel
from orchestrator.tools.toolbox import handoff
from tests.web.api import api

SCRIPTS = ["größe", "Übersicht", "节点", "узел", "_节点", "दो-नाम", "ขั้นตอน", "خطوة", "צעד", "단계", "ステップ２"]
WIDE, PLAIN = "ＯＫ", "OK"
APART = unicodedata.normalize("NFD", "größe")


class State(BaseModel):
    question: str = "q"
    größe: list[int] = [1, 2]
    seen: str = ""
    tool: str = "pick"
    args: dict[str, Any] = {}
    result: ToolResult | None = None


@node
def say(state: State, ctx: Context) -> dict[str, str]:
    return {"seen": ctx.node}


def two(first: str, second: str, **more: Any) -> Graph[State]:
    edges = f"START -> {first} -> {second} -> END"
    return Graph(name="g", state=State, nodes={first: say, second: say}, edges=edges, **more)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_name_of_any_script_is_one_everywhere(name: str, tmp_path: Path) -> None:
    plain = plain_name(name)

    @node
    def choose(state: State) -> Outcome[Literal["done", "other"]]:
        return Outcome("done")

    made = Graph(
        name=name, state=State, nodes={name: choose, "w": node(lambda state: None)}, pools={name: 1},
        limits=Limits(visits={name: 2}),
        edges=f"START -> {name}\n{name} -> w : done each größe\n{name} -> END : other\nw -> END",
    )  # fmt: skip
    assert (made.name, [*made.nodes]) == (plain, [plain, "w"])
    assert Graph.from_data(json.loads(json.dumps(made.data()))).content == made.content
    assert made.run_sync(store=f"sqlite:///{tmp_path}/runs.db").status == "completed"


def test_names_are_in_one_form_however_they_are_written() -> None:
    @node
    def choose(state: State) -> Outcome[Literal["ＯＫ", "other"]]:
        return Outcome("ＯＫ")

    nodes: dict[str, Any] = {APART: choose, "w": say.with_(pool=WIDE)}
    edges = f"START -> größe\n{APART} -> w : OK\ngröße -> END : other\nw -> END"
    made = Graph(name=WIDE, state=State, nodes=nodes, edges=edges, pools={WIDE: 1}, limits=Limits(visits={APART: 1}))
    assert (made.name, [*made.nodes], [*made.pools], made.nodes["w"].pool) == (PLAIN, ["größe", "w"], [PLAIN], PLAIN)
    assert made.limits.visits == {"größe": 1}
    assert made.run_sync().status == "completed"
    assert [*made.replace({APART: choose}).nodes] == ["größe", "w"]
    assert [*made.insert_before("w", WIDE, say).nodes] == ["größe", "w", PLAIN]
    assert Migration(nodes={"a": APART}).nodes == {"a": "größe"}


@pytest.mark.anyio
async def test_outcomes_that_a_model_a_condition_or_a_tool_chooses_are_in_that_form() -> None:
    @tool(risk="none")
    def pick() -> ToolResult:
        """Pick."""
        return ToolResult(outcome=WIDE)

    nodes: dict[str, Any] = {
        "sort": Classify(choices={APART: "sizes", "خطأ": "mistakes"}),
        "route": Route(cases={WIDE: "question == 'q'"}, default="other"),
        "use": Execute(outcomes=(WIDE,)),
    }
    edges = """
        START -> sort
        sort -> route : größe
        sort -> END : خطأ
        route -> use : OK
        route -> END : other
        use -> END
    """
    made = Graph(name="g", state=State, nodes=nodes, edges=edges)
    assert made.nodes["sort"].outcomes == ("größe", "خطأ")
    run = await made.run(model=ScriptedModel(['{"choice": "größe"}']), tools=[pick])
    assert (run.status, run.values["result"]["outcome"]) == ("completed", WIDE)
    assert handoff(WIDE, "x").outcome == PLAIN
    inner = Subgraph(two("a", "b"), outcomes=("fertig", "done"))
    assert inner.outcomes == ("fertig", "done")


def test_two_names_of_one_form_are_refused() -> None:
    with pytest.raises(GraphError, match="two nodes are called 'OK': names are compared in the form NFKC; rename one"):
        two(WIDE, PLAIN)


ALIKE = [("score", "scоre", "CYRILLIC SMALL LETTER O"), ("ΑΒ", "AB", "LATIN CAPITAL LETTER A"), ("no", "nο", "GREEK")]


@pytest.mark.parametrize(("first", "second", "letter"), ALIKE)
def test_names_that_look_alike_are_a_problem(first: str, second: str, letter: str) -> None:
    with pytest.raises(InvalidGraph, match=rf"nodes '{first}' and '{second}' look alike, .*{letter}.*rename one"):
        two(first, second)
    with pytest.raises(InvalidGraph, match=r"pools .* look alike"):
        two("a", "b", pools={first: 1, second: 1})
    with pytest.raises(InvalidGraph, match=r"outcomes .* look alike"):
        Graph(
            name="g", state=State, nodes={"a": say.with_(declared=(first, second))},
            edges=f"START -> a\na -> END : {first}\na -> END : {second}",
        )  # fmt: skip
    with pytest.raises(InvalidGraph, match=r"nodes .* look alike"):  # of which one is in an edge only
        Graph(name="g", state=State, nodes={first: say}, edges=f"START -> {first} -> {second}\n{second} -> END")


def test_names_that_differ_otherwise_are_fine_and_stored_graphs_stay() -> None:
    two("a", "A")
    two("größe", "große")
    made = two("score", "other")
    data = json.loads(json.dumps(made.data()).replace("other", "scоre"))
    assert [*Graph.from_data(data).nodes] == ["score", "scоre"]
    for name in ("area_m²", "n₁"):  # which an earlier rule took
        assert [*Graph.from_data(json.loads(json.dumps(made.data()).replace("other", name))).nodes] == ["score", name]


@pytest.mark.parametrize(
    "text",
    ["", "-a", "1a", "a b", "a.b", "€", "a\u200cb", "\u0301a", "٣", "a\ufe0f", "a\u3164", "a\u034f", "a\U00016fe4"],
)
def test_what_is_no_name(text: str) -> None:
    assert not is_name(text)


def test_digests_of_names_in_ascii_stay() -> None:
    made = two("draft-1", "check_2", pools={"p": 1})
    assert (made.structure, made.content) == (Graph.from_data(made.data()).structure, made.content)
    assert made.edges == two("draft-1", "check_2").edges


@pytest.mark.anyio
async def test_a_run_in_such_a_graph_pauses_is_found_and_goes_on(tmp_path: Path) -> None:
    nodes: dict[str, Any] = {"узел": say, "दो-नाम": Ask(prompt="?", answer="seen")}
    made = Graph(name="größe", state=State, nodes=nodes, edges="START -> узел -> दो-नाम -> END")
    store = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store, graphs=[made]) as executor:
        run = await executor.start("größe", pause_before={"दो-नाम"})
        assert run.status == "paused"
    async with Executor(store, graphs=[made]) as executor:
        run = await executor.resume(run.run_id)
        [question] = run.waiting
        assert (question.node, run.status) == ("दो-नाम", "paused")
        for name in ("größe", APART):
            assert [one.run_id for one in (await executor.runs(graph=name)).runs] == [run.run_id]
        assert (await executor.runs(search="GROSSE")).runs
        run = await executor.answer(run.run_id, question.id, "x")
        assert (run.status, run.values["seen"]) == ("completed", "x")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "graphs"
    found.mkdir()
    return found


def test_addresses_and_files_of_the_server_take_such_names(folder: Path) -> None:
    text = "name: größe\nstate: {fields: {seen: {type: str, default: ''}}}\n"
    text += "nodes: {'दो-नाम': {kind: ask, prompt: '?', answer: seen}}\nedges: START -> दो-नाम -> END\n"
    with api(settings={"save_graphs": folder}) as server:
        assert server.post("graphs/save", 201, name="größe", text=text)["file"] == "größe.yaml"
        for name in ("größe", APART):
            assert server.get(f"graphs/{quote(name)}")["name"] == "größe"
        assert server.post("runs", 201, graph="größe", run_id="one", wait=True)["waiting"][0]["node"] == "दो-नाम"
        server.post("graphs/save", 422, name="../größe", text=text)
        server.post("graphs/save", 422, name="ä" * 51, text=text)
