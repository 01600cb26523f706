"""Graphs of odd names and sizes: very long, very wide, very deep, maps inside subgraphs inside maps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, create_model

from orchestrator import Context, Executor, Graph, Limits, Outcome, append, node
from orchestrator.errors import InvalidGraph
from orchestrator.graph import format_edges, parse_edges
from orchestrator.nodes import ITEM, Ask, Subgraph
from tests.support.costs import in_proportion
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


class State(BaseModel):
    xs: list[Any] = []
    log: Annotated[list[Any], append] = []
    reply: str = ""


@node(effect="pure")
def say(ctx: Context) -> dict[str, Any]:
    return {"log": ctx.node}


ALL = say.with_(join="all")


def graph(edges: Any, *, name: str = "g", **nodes: Any) -> Graph:
    return Graph(name=name, state=State, nodes=nodes, edges=edges, output="log", limits=Limits(steps=None))


GOOD = [
    "a-b", "_", "a_", "a-", "A1", "aé日", "é", "日本", "हिन्दी", "ไทย", "עברית-1",
    "each", "done", "error", "start", "None", "true", "on", "no", "null", "item",
    "__class__", "x" * 500, "constructor", "node", "graph", "subgraph", "end",
]  # fmt: skip
BAD = [
    "", "--", "1", "-é", "€", "٣", "\u0301a", "a\u200cb",
    "START", "END", "STOP", "*", "a.b", "a b", "a/b", "a:b", "a->b", "a\nb", "a\u200bb",
    "a,b",
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD[:: sized(2, 1)])
async def test_a_name_that_the_arrow_text_can_say_works_everywhere(name: str, tmp_path: Path) -> None:
    @node(outcomes=(name if name not in ("each", "error", "end") else "ok", "other"), effect="pure")
    def choose(state: State) -> Outcome[str]:
        return Outcome(choose.outcomes[0])

    made = graph(
        [("START", "choose"), ("choose", name, choose.outcomes[0]), ("choose", "END", "other"), (name, "END")],
        **{name: say, "choose": choose},
    )
    assert parse_edges(format_edges(made.edges)) == made.edges
    assert Graph.from_data(made.data()).structure == made.structure
    for drawn in (made.to_svg(), made.to_dot(), made.to_text()):
        assert name[:8] in drawn
    assert made.to_mermaid()
    run = await made.run(store=f"sqlite:///{tmp_path}/runs.db")
    assert run.output == [name]
    plain = Graph(name="g", state=State, nodes={name: Ask(prompt="?")}, edges=[("START", name), (name, "END")])
    for file in ("g.yaml", "g.json"):
        plain.save(tmp_path / file)
        assert Graph.load(tmp_path / file) == plain


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_the_arrow_text_cannot_say_is_refused(name: str) -> None:
    with pytest.raises(InvalidGraph, match=r"is not a valid name: use letters|has a special meaning in edges"):
        graph([("START", name), (name, "END")], **{name: say})


def test_odd_fields_are_mapped_over() -> None:
    state = create_model("State", données=(list[int], [1, 2]), log=(Annotated[list[str], append], []))
    made = Graph(
        name="g", state=state, nodes={"p": say, "w": say}, output="log",
        edges="START -> p -> w : each données\nw -> END",
    )  # fmt: skip
    assert made.run_sync().output == ["p", "w", "w"]


# -- sizes ----------------------------------------------------------------------------------------------------------


MANY = sized(400, 2000)


@pytest.mark.full
def test_a_long_chain_in_one_statement(tmp_path: Path) -> None:
    names = [f"n{place}" for place in range(MANY)]
    made = graph(f"START -> {' -> '.join(names)} -> END", **dict.fromkeys(names, say))
    run = made.run_sync(store=f"sqlite:///{tmp_path}/runs.db")
    assert run.output == names
    assert Graph.from_data(made.data()).structure == made.structure
    assert len(made.to_dot()) > MANY


def test_a_wide_fork_in_one_statement() -> None:
    names = [f"n{place}" for place in range(MANY)]
    made = graph(f"START -> s -> {', '.join(names)} -> j -> END", s=say, j=ALL, **dict.fromkeys(names, say))
    assert made.run_sync().output == ["s", *names, "j"]


def ladder(rungs: int) -> Graph:
    """Forks and joins, one after the other."""
    edges = ["START -> f0"]
    nodes: dict[str, Any] = {}
    for rung in range(rungs):
        after = f"f{rung + 1}" if rung + 1 < rungs else "END"
        edges.append(f"f{rung} -> a{rung}, b{rung} -> j{rung} -> {after}")
        nodes |= {f"f{rung}": say, f"a{rung}": say, f"b{rung}": say, f"j{rung}": ALL}
    return graph("\n".join(edges), **nodes)


def test_many_forks_and_joins_in_a_row() -> None:
    in_proportion(ladder, 30, slack=7)  # squared would be 16; it was 64, four times as many nodes cubed
    rungs = sized(75, 300)
    run = ladder(rungs).run_sync()
    assert (run.status, run.steps) == ("completed", 4 * rungs)


async def test_forks_inside_forks() -> None:
    depth = sized(30, 60)
    edges, nodes = ["START -> f0"], {"x": say}
    for level in range(depth):
        edges.append(f"f{level} -> {f'f{level + 1}' if level + 1 < depth else 'x'}, b{level}")
        edges.append(f"{f'j{level + 1}' if level + 1 < depth else 'x'}, b{level} -> j{level}")
        nodes |= {f"f{level}": say, f"b{level}": say, f"j{level}": ALL}
    run = await graph("\n".join([*edges, "j0 -> END"]), **nodes).run()
    levels = range(depth)
    inner = [word for level in reversed(levels) for word in (f"b{level}", f"j{level}")]
    assert run.output == [*(f"f{level}" for level in levels), "x", *inner]


def nested(depth: int) -> Graph:
    made = graph("START -> ask -> END", ask=Ask(prompt="?"))
    for level in range(depth - 1):
        made = graph("START -> in -> END", name=f"g{level}", **{"in": Subgraph(made, outputs={"reply": "reply"})})
    return made


@pytest.mark.full
async def test_graphs_inside_each_other_are_50_deep_at_most(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    made = nested(50)
    made.save(tmp_path / "g.json")
    assert Graph.load(tmp_path / "g.json").content == made.content
    async with Executor(url, graphs=[made]) as ex:
        run = await ex.start(made)
        (question,) = run.waiting
        assert question.path == "/".join(["in"] * 49)
    async with Executor(url) as ex:
        assert "ask" in (await ex.load(run.run_id)).to_svg()
    async with Executor(url, graphs=[made]) as ex:
        run = await ex.answer(run.run_id, question.id, "deep")
        assert (run.status, run.values["reply"], run.steps) == ("completed", "deep", 50)
    with pytest.raises(InvalidGraph, match="50 deep, and the limit is 50"):
        nested(51)


# -- maps inside subgraphs inside maps ------------------------------------------------------------------------------


class Inner(BaseModel):
    word: str
    ys: list[int] = [1, 2]
    log: Annotated[list[Any], append] = []


@node(effect="pure")
def work(state: Inner, ctx: Context, item: int) -> dict[str, Any]:
    return {"log": [state.word, item, ctx.path, len(ctx.items)]}


def mapped(name: str, state: type[BaseModel], field: str, inside: Any) -> Graph:
    nodes = {"p": node(lambda: None), "w": inside, "j": node(lambda: None).with_(join="all")}
    return Graph(
        name=name, state=state, nodes=nodes, edges=f"START -> p -> w : each {field}\nw -> j -> END", output="log"
    )


async def test_a_map_inside_a_subgraph_inside_a_map_inside_a_subgraph_inside_a_map(tmp_path: Path) -> None:
    inner = mapped("inner", Inner, "ys", work)
    middle = mapped("middle", State, "xs", Subgraph(inner, inputs={"word": ITEM}, outputs={"log": "log"}))
    outer = mapped("outer", State, "xs", Subgraph(middle, inputs={"xs": ITEM}, outputs={"log": "log"}))
    url = f"sqlite:///{tmp_path}/runs.db"
    run = await outer.run({"xs": [["a", "b"], ["c"], []]}, store=url)
    assert run.status == "completed", run.error
    assert run.output == [
        [
            [["a", 1, "p.0/w/p.0/w/p.0", 1], ["a", 2, "p.0/w/p.0/w/p.1", 1]],
            [["b", 1, "p.0/w/p.1/w/p.0", 1], ["b", 2, "p.0/w/p.1/w/p.1", 1]],
        ],
        [[["c", 1, "p.1/w/p.0/w/p.0", 1], ["c", 2, "p.1/w/p.0/w/p.1", 1]]],
        [],
    ]
    async with Executor(url) as ex:
        assert (await ex.load(run.run_id)).values == run.values


@pytest.mark.parametrize(
    ("edges", "given", "found"),
    [
        ("START -> p -> w : each xs\nw -> j -> END", [], ["p", "j"]),
        ("START -> p -> w : each xs\nw -> END", [], ["p"]),
        ("START -> w : each xs\nw -> j -> END", [1, 2], ["w", "w", "j"]),
        ("START -> w : each xs\nw -> j -> END", [], ["j"]),
        ("START -> w -> END\nSTART -> END", [], ["w"]),
        ("START -> w -> STOP", [], ["w"]),
        ("START -> p -> w : each xs\nw -> j -> END", [None, {"needs": ["x"]}, [], 0], ["p", "w", "w", "w", "w", "j"]),
    ],
)
async def test_maps_at_the_edge(edges: str, given: list[Any], found: list[str]) -> None:
    nodes = {name: node for name, node in {"p": say, "w": say, "j": ALL}.items() if f"{name} " in f"{edges} "}
    assert (await graph(edges, **nodes).run({"xs": given})).output == found


async def test_graphs_of_one_name_in_one_executor_do_not_mix_up() -> None:
    first = graph("START -> a -> END", a=say)
    second = graph("START -> b -> ask -> c -> END", b=say, c=say, ask=Ask(prompt="?"))
    async with Executor() as ex:
        assert (await ex.start(first)).output == ["a"]
        run = await ex.start(second)
        assert (await ex.load(run.run_id)).status == "paused"
        run = await ex.answer(run.run_id, run.waiting[0].id, "x")
        assert (run.status, run.output) == ("completed", ["b", "c"])
