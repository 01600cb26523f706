"""Joins that let other branches run, in an executor: answers that come later, crashes, files, versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel

from orchestrator import Approve, Executor, Graph, Outcome, add, append, node
from orchestrator.graph import Migration
from orchestrator.nodes import Confirm
from orchestrator.render import to_text
from orchestrator.testing import assert_crash_safe
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio


class Poll(BaseModel):
    places: list[int] = [1, 2, 3, 4, 5]
    quorum: int = 2
    votes: Annotated[list[int], append] = []
    count: Annotated[int, add] = 0
    result: str = ""


@node(effect="pure", outcomes=("quick", "asks"))
def look(state: Poll, item: int) -> Outcome[str]:
    """The first two answer at once; the others ask a person."""
    return Outcome("quick" if item <= 2 else "asks", count=1)


@node(effect="pure", join=2, rest="run")
def decide(state: Poll) -> dict[str, object]:
    return {"result": f"{len(state.votes)} of {state.count}"}


@node(effect="pure")
def tally(state: Poll, item: int) -> dict[str, object]:
    return {"votes": item}


def ballot(join: int | str = 2, last: str = "decide") -> Graph:
    """A map of five of which two decide."""
    return Graph(
        name="poll",
        state=Poll,
        nodes={"look": look, "ask": Confirm(prompt="Vote?"), "vote": tally, last: decide.with_(join=join)},
        edges=f"""
            START -> look : each places
            look -> vote : quick
            look -> ask  : asks
            ask -> vote  : approved
            ask -> END   : denied
            vote -> {last} -> END
        """,
        output="result",
    )


@pytest.mark.parametrize("join", [2, "quorum"])
async def test_two_of_five_decide_and_the_others_answer_later(tmp_path: Path, join: int | str) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    graph = ballot(join)
    async with Executor(url, graphs=[graph]) as executor:
        run = await executor.start(graph, run_id="r")
        assert (run.status, len(run.waiting)) == ("paused", 3)
        assert run.state.votes == [1, 2]
    for left in (2, 1, 0):
        async with Executor(url, graphs=[ballot(join)]) as executor:
            run = await executor.load("r")
            run = await executor.answer("r", run.waiting[0].id, Approve())
            assert len(run.waiting) == left
    assert (run.status, run.output) == ("completed", "2 of 2")
    assert (run.state.votes, run.state.count) == ([1, 2, 3, 4, 5], 5)
    async with Executor(url) as executor:
        run = await executor.load("r")
        seq = next(
            one.seq for one in await executor.store.read("r") if one.type == "step_done" and one.node == "decide"
        )
        assert "the first 2 to arrive were joined" in (why := run.why(seq).to_text())
        assert "; the others run on" in why


@quick_on("asyncio")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_no_crash_changes_it(store: str) -> None:
    report = await assert_crash_safe(ballot(), store=store, most=None if store == "memory" else 6)  # type: ignore[arg-type]
    assert report.stops >= 6


async def test_the_join_is_renamed_while_branches_are_under_way(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[ballot()]) as executor:
        run = await executor.start("poll", run_id="r")
    renamed = ballot(last="settle")
    async with Executor(url, graphs=[renamed]) as executor:
        run = await executor.resume("r", migrate=Migration(nodes={"decide": "settle"}))
        while run.waiting:
            run = await executor.answer("r", run.waiting[0].id, Approve())
    assert (run.status, run.output, run.state.votes) == ("completed", "2 of 2", [1, 2, 3, 4, 5])
    async with Executor(url) as executor:
        records = await executor.store.read("r")
    assert [one.node for one in records if one.type == "step_done" and one.node in ("decide", "settle")] == ["decide"]


def waiting_for(join: int | str, last: str = "decide") -> Graph:
    """The same graph with a join that drops the others, or waits for all."""
    graph = ballot(2, last)
    return graph.replace(**{last: graph.nodes[last].with_(join=join, rest="drop")})


@pytest.mark.parametrize(
    ("after", "migration"),
    [
        (ballot(last="settle"), Migration(joins={"decide": "settle"})),
        (waiting_for(2), Migration(joins={"decide": "decide"})),
        (waiting_for("all"), Migration(joins={"decide": "decide"})),
        (waiting_for("all", "settle"), Migration(nodes={"decide": "settle"}, joins={"decide": "settle"})),
    ],
    ids=["another name", "drop", "all", "all and another name"],
)
async def test_a_join_that_fired_does_not_fire_again_in_another_version(
    tmp_path: Path, after: Graph, migration: Migration
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[ballot()]) as executor:
        await executor.start("poll", run_id="r")
    async with Executor(url, graphs=[after]) as executor:
        run = await executor.resume("r", migrate=migration)
        while run.waiting:
            run = await executor.answer("r", run.waiting[0].id, Approve())
    assert (run.status, run.output, run.state.votes) == ("completed", "2 of 2", [1, 2, 3, 4, 5])


def test_it_is_data_and_drawn(tmp_path: Path) -> None:
    graph, path = ballot("quorum"), tmp_path / "poll.yaml"
    graph.save(path)
    again = Graph.load(path, trust=True)
    assert (again.structure, again.content) == (graph.structure, graph.content)
    assert again.nodes["decide"].rest == "run"
    assert graph.structure != graph.replace(decide=decide.with_(join="quorum", rest="drop")).structure
    assert "join quorum, rest runs" in to_text(graph)
