"""`docs/versions.md`: every row of its table is what happens to a run under that change."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import create_model

from orchestrator import Approve, Context, Executor, Graph, Limits, Outcome, Update, add, append, node
from orchestrator.cli.fork_command import Migrating, migration_of
from orchestrator.errors import GraphChanged
from orchestrator.nodes import Ask, Confirm, Subgraph
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "versions.md"
FIELDS: dict[str, Any] = {
    "question": (str, ""), "log": (Annotated[list[str], append], []), "n": (int, 0), "note": (str, ""),
    "total": (int, 0),
}  # fmt: skip
EDGES = """
    START -> before -> ask
    ask -> after : approved
    ask -> END   : denied
    after -> last -> final -> END
"""
FORK = "START -> before -> a -> b, c; b -> ask; ask -> j : approved; ask -> END : denied; c -> j -> last -> END"


def state(*gone: str, **more: Any) -> Any:
    """The state with other fields."""
    return create_model("State", **{name: spec for name, spec in {**FIELDS, **more}.items() if name not in gone})


def says(word: str, **options: Any) -> Any:
    """A node that writes a word."""

    @node(effect="pure", **options)
    def write(state: Any) -> Update:
        return {"log": word}

    return write


@node(effect="pure")
def before(state: Any) -> Update:
    return {"log": "before", "n": 3}


@node(effect="pure")
def quiet(state: Any) -> Update:
    return {"log": "before"}


@node(effect="pure", outcomes=("done", "more"))
def decides(state: Any) -> Outcome[Literal["done", "more"]]:
    return Outcome("done")


@node(effect="irreversible")
def pay(state: Any, ctx: Context) -> Update:
    return {"log": "paid"}


def graph(edges: str = EDGES, *, of: Any = None, limits: Limits | None = None, places: int = 0, **nodes: Any) -> Graph:
    """The graph of the page; a node that is None is left out."""
    edges = edges.replace(";", "\n")
    named = {name for name in re.findall(r"[a-z]+", re.sub(r":\s*\w+( \w+)?", "", edges)) if name != "each"}
    known: dict[str, Any] = {"before": before, "ask": Confirm(prompt="Go on?")}
    found = {name: nodes.get(name, known.get(name, says(name))) for name in sorted(named)}
    if "j" in found and "j" not in nodes:
        found["j"] = says("j", join="all")
    return Graph(
        name="g", state=of or state(), input="question", nodes=found, edges=edges, output="log", limits=limits,
        pools={"p": places} if places else None,
    )  # fmt: skip


def nested(inner: Graph, name: str = "draft") -> Graph:
    """A graph with another one inside."""
    nodes = {name: Subgraph(inner, outputs={"n": "n"}), "last": says("last")}
    return Graph(
        name="g", state=state(), input="question", nodes=nodes, edges=f"START -> {name} -> last -> END", output="log"
    )


OLD, FORKED = graph(), graph(FORK)
NO_VALUE = graph(before=quiet)
TALKS = EDGES.replace("ask -> after : approved", "ask -> after").replace("ask -> END   : denied", "")
SURE = TALKS.replace("last -> final", "last -> sure; sure -> final : approved; sure -> END : denied; final")
PAYS = {"ask": Ask(prompt="What now?", answer="question"), "sure": Confirm(prompt="Pay?"), "final": pay}
LOOPS = EDGES.replace("last -> final -> END", "last; last -> after : more; last -> final -> END")
NO_LIMIT = {"last": decides, "limits": Limits(steps=None)}
LEADS_AWAY = EDGES.replace("last -> final -> END", "last -> END; after -> final : error; final -> END")
SKIPS = (
    EDGES.replace("after : approved", "last : approved").replace("after -> last", "last")
    + "last -> after : error; after -> END"
)
BRANCHES = EDGES.replace("last -> final -> END", "last -> x, y -> z -> END")
MEET = EDGES.replace("last -> final -> END", "last -> x, y; x -> u, v; y -> u, v; u -> END; v -> END")
JOINED = graph(MEET, u=says("u", join="all"), v=says("v", join="all"))
TURNED = JOINED.model_copy(update={"nodes": dict(reversed(JOINED.nodes.items()))})
CONFIRM = {"confirm": Confirm(prompt="Go on?")}
WAITS = FORK.replace("c -> j", "c -> k -> j")
Row = tuple[Graph, Graph]

ROWS: dict[str, Row] = {
    "the prompt of a node": (OLD, graph(ask=Confirm(prompt="Really?"))),
    "a field with a default is added to the state": (OLD, graph(of=state(more=(str, "x")))),
    "a field without a default is added to the state": (OLD, graph(of=state(more=(str, ...)))),
    "a field that holds its default is removed": (OLD, graph(of=state("note"))),
    "a field with a value is removed": (OLD, graph(of=state("n"), before=quiet)),
    "a field with a value gets another name": (OLD, graph(of=state("n", count=(int, 0)), before=quiet)),
    "a field that holds its default gets another type": (OLD, graph(of=state(note=(int, 7)))),
    "a field with a value gets another type, which the value fits": (OLD, graph(of=state(n=(float, 0.0)))),
    "a field with a value gets another type, which the value does not fit": (
        OLD, graph(of=state(n=(list[int], [])), before=quiet),
    ),
    "a field gets another reducer": (OLD, graph(of=state(total=(Annotated[int, add], 0)))),
    "a node behind the run is removed": (OLD, graph(EDGES.replace("before -> ", ""))),
    "a later node is added": (OLD, graph(EDGES.replace("last -> final", "last -> more -> final"))),
    "a later node is removed": (OLD, graph(EDGES.replace("last -> final", "last"))),
    "a later node gets another name": (OLD, graph(EDGES.replace("final", "finish"))),
    "a later edge leads elsewhere": (OLD, graph(LEADS_AWAY)),
    "an edge of the node that the run is at leads elsewhere": (OLD, graph(SKIPS)),
    "a later node has another outcome": (OLD, graph(EDGES, last=decides)),
    "later branches are in another order": (
        graph(BRANCHES, z=says("z", join="all")), graph(BRANCHES.replace("x, y", "y, x"), z=says("z", join="all")),
    ),
    "later joins are in another order": (JOINED, TURNED),
    "a later join waits for fewer branches": (
        graph(BRANCHES, z=says("z", join="all")), graph(BRANCHES, z=says("z", join=1)),
    ),
    "a later node names a pool": (
        graph(EDGES, places=1), graph(EDGES, places=1, final=says("final", pool="p")),
    ),
    "the pool of a later node gets more places": (
        graph(EDGES, places=1, final=says("final", pool="p")), graph(EDGES, places=2, final=says("final", pool="p")),
    ),
    "a later node gets a graph inside": (OLD, graph(final=Subgraph(graph("START -> x -> END")))),
    "the confirmation before a later node that acts is removed": (graph(SURE, **PAYS), graph(TALKS, **PAYS)),
    "a later cycle spends no limit any more": (
        graph(EDGES, **NO_LIMIT), graph(LOOPS, **NO_LIMIT),
    ),
    "the node that the run is at gets another name": (OLD, graph(EDGES.replace("ask", "confirm"), **CONFIRM)),
    "the node that the run is at is removed": (OLD, graph("START -> before -> after -> last -> final -> END")),
    "a join that branches wait for gets another name": (
        FORKED, graph(FORK.replace("j", "joined"), joined=says("joined", join="all")),
    ),
    "a join that branches wait for waits for fewer branches": (FORKED, graph(FORK, j=says("j", join=1))),
    "a join that branches wait for is removed": (FORKED, graph(FORK, j=says("j", join="each"))),
    "a later node inside a subgraph that the run is in is added": (
        nested(OLD), nested(graph(EDGES.replace("last -> final", "last -> more -> final"))),
    ),
    "the node inside a subgraph that the run is at gets another name": (
        nested(OLD), nested(graph(EDGES.replace("ask", "confirm"), **CONFIRM)),
    ),
    "the subgraph that the run is in gets another name": (nested(OLD), nested(OLD, "sketch")),
}  # fmt: skip
OUTPUT = ["before", "after", "last", "final"]


def rows() -> list[tuple[str, str, str]]:
    """The rows of the page."""
    table = PAGE.read_text().partition("## What may change")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (.+?) \| (\w+) \| (?:`(.*)`)? ?\|$", table, re.M)
    return [row for row in found if row[0] != "change"]


def test_the_rows_are_those_of_the_page() -> None:
    assert [name for name, _, _ in rows()] == list(ROWS)


def migration(options: str) -> tuple[dict[str, Any], list[str]]:
    """The arguments of `resume` that options stand for."""
    words = shlex.split(options)
    said: dict[str, Any] = {"rename": [], "drop": [], "set_": []}
    for option, value in zip(words, [*words[1:], ""], strict=False):
        if option in ("--rename", "--drop", "--set"):
            said[{"--rename": "rename", "--drop": "drop", "--set": "set_"}[option]].append(value)
    return {"migrate": migration_of(Migrating(**said)), "accept_changes": "--accept-changes" in words}, words


@pytest.mark.parametrize("name", [*ROWS][:: sized(3, 1)])
async def test_a_row_of_the_page_is_what_happens(name: str, tmp_path: Path) -> None:
    grade, options = next((grade, options) for one, grade, options in rows() if one == name)
    old, new = ROWS[name]
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[old]) as executor:
        assert (await executor.start(old, run_id="r")).status == "paused"
    async with Executor(url, graphs=[new]) as executor:
        before = await executor.load("r")
        if grade in ("decision", "migration"):
            with pytest.raises(GraphChanged) as refused:
                await executor.resume("r")
            assert f"\n  - {grade}: " in str(refused.value), str(refused.value)
            assert refused.value.options is not None, str(refused.value)
            assert shlex.join(refused.value.options) == shlex.join(shlex.split(options)), str(refused.value)
            assert (await executor.load("r")).seq == before.seq
            if grade == "migration":
                with pytest.raises(GraphChanged):
                    await executor.resume("r", accept_changes=True)
        arguments, _ = migration(options)
        run = await executor.resume("r", **arguments)
        while run.status == "paused":
            question = run.waiting[0]
            run = await executor.answer("r", question.id, Approve() if question.kind == "approval" else "go")
        assert run.status == "completed", run.error
        moves = [event.data for event in [e async for e in executor.events("r")] if event.type == "migrated"]
        assert [move.get("grade", "compatible") for move in moves] == ([] if grade == "none" else [grade])
        again = await executor.load("r")
        assert (again.values, again.output, again.definition.structure) == (run.values, run.output, new.structure)
        assert (await executor.load("r", at=before.seq)).definition.structure == old.structure
        assert len(await executor.history("r")) == run.steps
        assert run.overlay().visits
        assert run.at(before.seq).to_svg() == before.to_svg()
        assert str(run.why())
    async with Executor(url) as executor:  # without any code
        assert (await executor.load("r")).values == run.values


async def test_both_versions_beside_each_other_need_no_migration(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    _, new = ROWS["the node that the run is at gets another name"]
    async with Executor(url, graphs=[OLD]) as executor:
        question = (await executor.start(OLD, run_id="r")).waiting[0].id
    async with Executor(url, graphs=[new, OLD]) as executor:
        run = await executor.answer("r", question, Approve())
        assert (run.status, run.output) == ("completed", OUTPUT)
