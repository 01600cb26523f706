"""Why here? What each step says of what brought it about, what decided where it led, and what was not taken."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Limits, Outcome, Retry, Update, append, node, tool
from orchestrator.executor import Run
from orchestrator.kernel.plan import Plan
from orchestrator.nodes import Ask, Confirm, Subgraph
from orchestrator.views.explainer import StepExplanation
from orchestrator.views.run import explainer_of
from orchestrator.views.timeline import TimelineRow, timeline

pytestmark = pytest.mark.anyio


class Talk(BaseModel):
    question: str = ""
    parts: list[dict[str, Any]] = []
    log: Annotated[list[str], append] = []
    tool: str = "send"
    args: dict[str, Any] = {}
    denial: str = ""


def says(word: str) -> Any:
    @node(effect="pure")
    def say(state: Talk) -> Update:
        return {"log": word}

    return say


def gives(outcome: str, *outcomes: str) -> Any:
    @node(effect="pure", outcomes=outcomes)
    def give(state: Talk) -> Outcome[str]:
        return Outcome(outcome)

    return give


@node
def fails(state: Talk) -> None:
    raise ValueError("no\x1b[31m luck, password=hunter22")


def graph(edges: str, limits: Limits | None = None, **nodes: Any) -> Graph:
    return Graph(
        name="g",
        state=Talk,
        input=("question", "parts"),
        nodes=nodes,
        edges=edges,
        output="log",
        limits=limits or Limits(),
    )


async def ran(made: Graph, tmp_path: Path, parts: list[dict[str, Any]] | None = None, tools: Any = ()) -> Run:
    """The run, as a process that has no code finds it."""
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store=url, graphs=[made], tools=tools) as ex:
        await ex.start(made, {"question": "q", "parts": parts or []}, run_id="r")
    async with Executor(store=url) as ex:
        return await ex.load("r")


def told(run: Run) -> dict[str, StepExplanation]:
    """Every step's reasons, by path and node; of several the last."""
    rows = timeline(Plan.of(run.definition), run.records())
    explainer = explainer_of(run, rows)
    return {f"{row.path}/{row.node}".lstrip("/"): explainer.why(row) for row in rows.rows}


async def test_an_outcome_and_the_edges_that_were_not_taken(tmp_path: Path) -> None:
    made = graph(
        "START -> grade; grade -> again : retry; grade -> END; again -> END".replace("; ", "\n"),
        grade=gives("retry", "good", "retry"),
        again=says("again"),
    )
    run = await ran(made, tmp_path)
    grade, again = told(run)["grade"], told(run)["again"]
    assert grade.came == "its graph began: START -> grade"
    assert grade.went == "retry -> again; decided by the node itself"
    assert grade.not_taken == ("grade -> END (for any outcome without an edge of its own)",)
    assert again.came == f"grade returned retry (record {grade.seq}): grade -> again : retry"
    assert grade.line == f"{grade.went}; not taken: {grade.not_taken[0]}"
    assert run.why().why == "it reached END"
    assert run.why(again.seq).steps == (again,)


async def test_branches_and_the_join_that_they_meet_at(tmp_path: Path) -> None:
    made = graph(
        "START -> a\na -> b, c\nb, c -> j -> END", a=says("a"), b=says("b"), c=says("c"), j=says("j").with_(join="all")
    )
    found = told(await ran(made, tmp_path))
    assert found["a"].went == "done -> b, c; decided by the node itself"
    assert found["a.1/c"].came.endswith("a -> c, branch 2 of 2")
    last = max((found["a.0/b"], found["a.1/c"]), key=lambda one: one.seq or 0)
    assert found["j"].came.startswith("2 branches were joined: ")
    assert found["j"].came.endswith(f"{last.step} came last (record {last.seq})")


async def test_items_wait_for_what_they_need_and_empty_maps_lead_on(tmp_path: Path) -> None:
    edges = "START -> plan -> work : each parts\nwork -> j -> END"
    made = graph(edges, plan=says("p"), work=says("w"), j=says("j").with_(join="all"))
    found = told(await ran(made, tmp_path, [{"id": "x", "needs": ["y"]}, {"id": "y"}]))
    assert found["plan"].went.startswith("done -> work (2 items)")
    assert "item 2 of 2 in parts" in found["plan.1/work"].came
    first, then = found["plan.1/work"], found["plan.0/work"]
    assert then.came.endswith(
        f"item 1 of 2 in parts; started when the items that it needs were done: item 2 (record {first.seq})"
    )
    (tmp_path / "empty").mkdir()
    found = told(await ran(made, tmp_path / "empty"))
    assert found["plan"].went.startswith("done -> work (0 items)")
    assert found["j"].came == f"only plan could reach the join (record {found['plan'].seq})"


async def test_a_race_names_what_came_too_late(tmp_path: Path) -> None:
    made = graph(
        "START -> a\na -> b, c, d\nb, c -> j\nd -> e -> j\nj -> END",
        a=says("a"), b=says("b"), c=says("c"), d=says("d"), e=says("e"), j=says("j").with_(join=2),
    )  # fmt: skip
    run = await ran(made, tmp_path)
    found = told(run)
    assert found["j"].came.startswith("the first 2 to arrive were joined: ")
    assert "; too late: " in found["j"].came
    dropped = [one for one in found.values() if one.status == "dropped"]
    assert all(one.went.endswith("j had all the branches that it waits for") for one in dropped)


async def test_spent_limits_stop_and_failures(tmp_path: Path) -> None:
    loop = "START -> a -> a : again\na -> END : done"
    made = graph(f"{loop}\n* -> sorry : exhausted\nsorry -> END", Limits(steps=3), a=gives("again", "again", "done"),
                 sorry=says("s"))  # fmt: skip
    run = await ran(made, tmp_path)
    assert "the limit of steps was spent" in told(run)["sorry"].came
    assert "* -> sorry : exhausted" in told(run)["sorry"].came
    assert run.why().why.endswith("a limit had been spent")
    for name, made, expected in (
        ("bare", graph(loop, Limits(steps=3), a=gives("again", "again", "done")), "steps=3 are spent before 'a'"),
        ("stop", graph("START -> a\na -> b, c\nb -> STOP\nc -> END", a=says("a"), b=says("b"), c=says("c")), "to STOP"),
        ("fail", graph("START -> a -> b -> END", a=says("a"), b=fails), "b failed (record"),
    ):  # fmt: skip
        (tmp_path / name).mkdir()
        assert expected in (await ran(made, tmp_path / name)).why().why, name


async def test_attempts_and_what_a_stop_dropped(tmp_path: Path) -> None:
    attempts: list[int] = []

    @node(retry=Retry(attempts=3, wait=0.001, on=("ValueError",)))
    def shaky(state: Talk, ctx: Context[object]) -> Update:
        attempts.append(ctx.attempt)
        if len(attempts) < 3:
            raise ValueError(f"not yet {len(attempts)}")
        return {"log": "at last"}

    @node
    async def slow(state: Talk) -> None:
        await anyio.sleep(60)

    run = await ran(graph("START -> a\na -> b, c\nb -> STOP\nc -> END", a=says("a"), b=shaky, c=slow), tmp_path)
    found = told(run)["a.0/b"]
    assert found.went.startswith("done -> STOP; decided by the node itself; attempt 3, after ValueError: not yet 2")
    assert run.why().why.endswith("; dropped: a.1/c")
    retried = next(record.seq for record in run.records() if record.type == "step_retried")
    async with Executor(store=f"sqlite:///{tmp_path}/runs.db") as ex:
        then = await ex.load("r", at=retried)
    assert "; attempt 2, after ValueError: not yet 1 (record" in told(then)["a.0/b"].came


async def test_strangers_words_are_made_safe(tmp_path: Path) -> None:
    made = graph("START -> a\na -> b : error\na -> END\nb -> END", a=fails, b=says("b"))
    run = await ran(made, tmp_path)
    found = told(run)
    assert "a failed (error)" in found["b"].came
    assert "hunter22" not in str(found)
    assert "\x1b" not in str(found)
    assert "no luck" in found["a"].went
    (tmp_path / "last").mkdir()
    last = (await ran(graph("START -> a -> END", a=fails), tmp_path / "last")).why()
    assert "hunter22" not in last.to_text()
    assert last.steps[0].status == "failed"
    assert last.steps[0].went.endswith("no edge takes it, so its graph failed")


@tool(risk="write", effect="idempotent")
def send(to: str) -> str:
    """Send it."""
    return to


@node
async def use(state: Talk, ctx: Context) -> Update:
    return {"log": str((await ctx.tool("send", to="x")).output)}


async def test_what_decided_calls_answers_and_graphs_inside(tmp_path: Path) -> None:
    inner = graph("START -> use -> END", use=use)
    made = graph(
        "START -> prepare -> ask\nask -> inside : approved\nask -> END : denied\ninside -> END",
        prepare=says("p"),
        ask=Confirm(prompt="Go on?"),
        inside=Subgraph(inner, inputs={"question": "question"}),
    )
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store=url, graphs=[made], tools=[send]) as ex:
        run = await ex.start(made, {"question": "q"}, run_id="r")
        assert run.why().why == "it is waiting for an answer: approval at ask"
        assert [one.step for one in run.why().steps] == ["ask"]
        await ex.answer("r", run.waiting[0].id, Approve(), by="ann")
        run = await ex.load("r")
    found = told(run)
    assert found["ask"].went.startswith("approved -> inside; decided by ann: approved (record ")
    assert found["ask"].not_taken == ("ask -> END : denied",)
    assert found["inside/use"].went.startswith("done -> END; decided by tool send (record ")
    assert found["inside"].went.startswith("done -> END; decided by the graph inside it, which completed")
    rows: dict[str, TimelineRow] = {row.node: row for row in timeline(Plan.of(run.definition), run.records()).rows}
    assert rows["use"].parent == rows["inside"].number
    assert rows["use"].depth == 1
    ask = rows["ask"]
    assert ask.waits[0].why == "person"
    assert ask.asked[0].by == "ann"
    assert ask.working(0) < (ask.ended or 0) - ask.started
    assert sorted(explainer_of(run).reasons().steps) == sorted(row.seq or 0 for row in rows.values())


async def test_every_step_of_every_moment_has_its_reasons(tmp_path: Path) -> None:
    made = graph("START -> a\na -> b, c\nb, c -> j -> END", a=says("a"), b=says("b"), c=says("c"),
                 j=says("j").with_(join="all"))  # fmt: skip
    run = await ran(made, tmp_path)
    whole = explainer_of(run).reasons().steps
    for seq in range(1, run.seq + 1):
        then = run.at(seq)
        for ended, one in explainer_of(then).reasons().steps.items():
            assert one == whole[ended]
        assert then.why().why
        assert run.why(seq).steps or seq == 0
    for wrong in (0, run.seq + 1):
        with pytest.raises(ValueError, match=f"it has 1 to {run.seq}"):
            run.why(wrong)


async def test_a_step_that_waits_for_a_place_in_a_pool_says_for_which_and_who_holds_it(tmp_path: Path) -> None:
    made = Graph(
        name="g", state=Talk, input=("question", "parts"), output="log", pools={"desk": 1},
        nodes={"asks": Ask(prompt="Well?", answer="denial", pool="desk"), "b": says("b").with_(pool="desk"),
               "c": says("c").with_(pool="desk"), "d": says("d")},
        edges="START -> asks, b, c, d\nasks, b, c, d -> END",
    )  # fmt: skip
    run = await ran(made, tmp_path)
    assert run.status == "paused"
    found = run.why()
    waits = "waits for a place in pool desk (1 of 1 taken by START.0/asks since record 1)"
    assert found.why == f"it is waiting for an answer: input at asks; START.1/b {waits}, and 1 more waits"
    assert [(step.step, step.status, step.waits) for step in found.steps] == [
        ("START.0/asks", "waiting", ""),
        ("START.1/b", "queued", waits),
        ("START.2/c", "queued", waits.replace(")", "; 1 before it)")),
    ]
    assert found.steps[1].came.startswith("its graph began: START -> b")
    assert f"START.1/b  (queued)\n  came  {found.steps[1].came}\n  now   {waits}" in found.to_text()
    assert found.to_json()["steps"][1]["waits"] == waits  # type: ignore[index]
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[made]) as executor:
        run = await executor.answer(run.run_id, run.waiting[0].id, "ok")
    assert (run.status, [step.waits for step in run.why().steps]) == ("completed", [""])
