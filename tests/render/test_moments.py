"""Real runs at any moment: the picture of then, and the last one with the marks of then, are the same."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal
from xml.etree import ElementTree as ET

import anyio
import pytest
from msgspec import structs
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Outcome, Retry, Run, Update, append, node
from orchestrator.graph.model import ITEM
from orchestrator.kernel.plan import Plan
from orchestrator.models import OfflineModel
from orchestrator.nodes import Confirm, Subgraph
from orchestrator.render import Replay, replay, to_mermaid, to_svg, to_text
from orchestrator.render.overlaid import CLASSES, STATUSES, Mark
from orchestrator.render.plans import MOST_PLANS
from orchestrator.strategies.rewoo import graph as rewoo
from orchestrator.tools import tools_from_ref
from orchestrator.views.overlay import Overlay, Planned, PlannedStep
from orchestrator.views.reader import Reader
from orchestrator.views.trace import Trace, overlay_of

pytestmark = pytest.mark.anyio

DYNAMIC = {*CLASSES, *STATUSES}


class Trip(BaseModel):
    places: list[str] = []
    notes: Annotated[list[str], append] = []
    place: str = ""
    logs: Annotated[list[list[str]], append] = []


@node
def visit(state: Trip) -> Update:
    return {"notes": f"saw {state.place}"}


@node
def rest(state: Trip) -> Update:
    return {}


def inner() -> Graph:
    return Graph(
        name="stop_over",
        state=Trip,
        nodes={"ask": Confirm(prompt="Go there?", show=("place",)), "visit": visit},
        edges="START -> ask\nask -> visit : approved\nask -> END : denied\nvisit -> END",
    )


def trip() -> Graph:
    stay = Subgraph(inner(), inputs={"place": ITEM}, outputs={"logs": "notes"})
    return Graph(
        name="trip",
        state=Trip,
        nodes={"pack": rest, "stay": stay, "home": rest.with_(join="all")},
        edges="START -> pack\npack -> stay : each places\nstay -> home -> END",
    )


async def solved(url: str) -> Run:
    async with Executor(store=url, model=OfflineModel(), tools=tools_from_ref("arithmetic")) as executor:
        return await executor.start(rewoo, "What is (3 + 4) * (2 + 2)?", run_id="solved")


def shown(svg: str) -> dict[str, Mark]:
    """What a run added to the parts of a picture, by ids; parts of plans that do not show count as missing."""
    found: dict[str, Mark] = {}
    for part in ET.fromstring(svg).iter():
        name = part.get("id")
        if name is None:
            continue
        classes = tuple(word for word in part.get("class", "").split() if word in DYNAMIC)
        texts = {
            slot: text
            for child in part
            for element in (child, *child)
            if (slot := element.get("data-slot")) and (text := (element.text or "").strip())
        }
        found[name] = Mark(classes, texts)
    return {name: mark for name, mark in found.items() if mark != Mark()}


def bare(marks: dict[str, Mark]) -> dict[str, Mark]:
    """The same as far as elements with a slot show it."""
    cleaned = {
        name: Mark(mark.classes, {slot: text for slot, text in mark.texts.items() if slot != "told"})
        for name, mark in marks.items()
    }
    return {name: mark for name, mark in cleaned.items() if mark != Mark()}


async def test_every_moment_of_a_run_is_the_picture_of_then(tmp_path: Any) -> None:
    run = await solved(f"sqlite:///{tmp_path}/runs.db")
    found = replay(run.definition, run.records())
    ids = set(shown(to_svg(run.definition, found.last)))
    for seq in (*range(1, run.seq, 3), run.seq):  # `test_replay` looks at all, without the SVG
        then = bare(found.at(seq))
        assert shown(to_svg(run.definition, run.at(seq))) == then
        assert {name for name, mark in then.items() if mark.classes} <= ids


async def test_steps_that_a_run_planned_begin_when_what_they_need_is_done(tmp_path: Any) -> None:
    run = await solved(f"sqlite:///{tmp_path}/runs.db")
    trace, seen = Trace(), []
    reader = Reader(Plan.of(run.definition), trace)
    for record in run.records():
        reader.read(record)
        if trace.plans:
            seen.append({step.id: step.state for step in trace.planned(0).steps})
    assert seen[0] == {"E1": "running", "E2": "running", "E3": "planned"}
    for now in seen:
        if now["E3"] != "planned":
            assert (now["E1"], now["E2"]) == ("visited", "visited")
    assert seen[-1] == dict.fromkeys(("E1", "E2", "E3"), "visited")
    assert "plan 1#58; 3 planned steps 3#47;3" in to_mermaid(run.definition, run)
    assert run.overlay().items == {("", "fill"): (3, 3)}


async def test_questions_inside_a_map_of_graphs_wait_at_every_level(tmp_path: Any) -> None:
    async with Executor(store=f"sqlite:///{tmp_path}/runs.db", graphs=[trip()]) as executor:
        run = await executor.start(trip(), {"places": ["Rome", "Oslo", "Bern"]}, run_id="r")
        assert run.status == "paused"
        overlay = run.overlay()
        assert overlay.waiting == {("", "stay"), ("stay", "ask")}
        assert overlay.items == {("", "stay"): (0, 3)}
        marks = shown(run.to_svg())
        assert marks["node-stay"] == Mark(("visited", "waiting", "current", "many"), {"count": "0/3"})
        assert marks["edge-pack--stay"].texts == {"times": "×3"}
        assert "approval: Go there?" in run.to_svg()
        first, *rest = run.waiting
        run = await executor.answer("r", first.id, Approve())
        assert run.overlay().items == {("", "stay"): (1, 3)}
        for question in rest:
            run = await executor.answer("r", question.id, Approve())
    assert run.status == "completed"
    assert run.overlay().items == {("", "stay"): (3, 3)}
    assert not run.overlay().told
    later = [
        structs.replace(record, **{name: getattr(record, name) + 1000.0 for name in _times(record)})
        if record.seq > run.at(run.seq).records()[_asked(run)].seq
        else record
        for record in run.records()
    ]
    assert max(overlay_of(run.plan, later).seconds.values()) < 500  # a thousand seconds passed in between


def _times(record: Any) -> list[str]:
    return [name for name in ("ts", "ended") if getattr(record, name, None)]


def _asked(run: Run) -> int:
    """NodeKey of the last question."""
    return max(place for place, record in enumerate(run.records()) if record.type == "asked")


async def test_a_run_whose_store_is_gone_shows_what_it_knows(tmp_path: Any) -> None:
    file = tmp_path / "runs.db"
    run = await solved(f"sqlite:///{file}")
    for part in tmp_path.iterdir():
        part.unlink()
    marks = shown(run.to_svg())
    assert marks["node-fill"].classes[0] == "visited"
    assert marks["node-fill"].texts["count"] == "×3"
    assert marks["run-status"].classes == ("completed",)
    assert not file.exists()


@node(retry=Retry(attempts=2, wait=0.0))
def shaky(state: Trip, ctx: Context) -> Update:
    raise ConnectionError("no way")


async def test_failures_show_where_they_were() -> None:
    graph = Graph(name="g", state=Trip, nodes={"a": rest, "b": shaky}, edges="START -> a -> b -> END")
    run = await graph.run({})
    assert run.status == "failed"
    overlay = run.overlay()
    assert overlay.failed == {("", "b")}
    assert overlay.told == {("", "b"): ("failed: ConnectionError: no way",)}
    assert "failed: ConnectionError: no way" in run.to_svg()
    handled = Graph(
        name="g", state=Trip, nodes={"b": shaky, "a": rest}, edges="START -> b -> END\nb -> a : error\na -> END"
    )
    assert not (await handled.run({})).overlay().failed


async def test_a_failure_inside_shows_at_every_level() -> None:
    deep = Graph(name="deep", state=Trip, nodes={"b": shaky}, edges="START -> b -> END")
    outer = Graph(name="outer", state=Trip, nodes={"sub": Subgraph(deep)}, edges="START -> sub -> END")
    assert (await outer.run({})).overlay().failed == {("sub", "b"), ("", "sub")}


async def test_a_subgraph_that_was_dropped_does_not_look_done(tmp_path: Any) -> None:
    broken = True

    @node
    def breaks(state: Trip) -> Update:
        if broken:
            raise ValueError("broken")
        return {}

    def marks_of(run: Run) -> dict[str, Mark]:
        found = shown(run.to_svg())
        assert bare(found) == bare(replay(run.definition, run.records()).at(run.seq))
        return found

    deep = Graph(
        name="deep",
        state=Trip,
        nodes={"first": rest, "ask": Confirm(prompt="Go there?")},
        edges="START -> first -> ask\nask -> END : approved\nask -> END : denied",
    )
    graph = Graph(
        name="outer",
        state=Trip,
        nodes={"sub": Subgraph(deep), "ask": Confirm(prompt="Break?"), "b": breaks},
        edges="START -> sub -> END\nSTART -> ask\nask -> b : approved\nask -> b : denied\nb -> END",
    )
    async with Executor(store=f"sqlite:///{tmp_path}/r.db", graphs=[graph]) as executor:
        run = await executor.start(graph, {}, run_id="r")
        assert marks_of(run)["node-sub"].classes == ("visited", "waiting", "current")
        (asked,) = (one for one in run.waiting if one.prompt.startswith("Break"))
        run = await executor.answer("r", asked.id, Approve())
        assert (run.status, run.overlay().failed) == ("failed", {("", "b")})
        marks = marks_of(run)
        assert "visited" in marks["node-sub.first"].classes
        assert "node-sub" not in marks
        broken = False
        run = await executor.resume("r", retry=True)
        assert marks_of(run)["node-sub"].classes == ("visited", "waiting", "current")


async def test_a_paused_run_shows_where_it_goes_on(tmp_path: Any) -> None:
    begun = anyio.Event()

    @node
    async def slow(state: Trip) -> Update:
        begun.set()
        await anyio.sleep(0.05)
        return {}

    graph = Graph(name="g", state=Trip, nodes={"a": slow, "b": rest}, edges="START -> a -> b -> END")
    async with Executor(store=f"sqlite:///{tmp_path}/r.db", graphs=[graph]) as executor:
        await executor.submit(graph, {}, run_id="r")
        with anyio.fail_after(30):
            await begun.wait()
            await executor.pause("r")
            run = await executor.wait("r")
    assert run.status == "paused"
    assert shown(run.to_svg())["node-b"] == Mark(("queued", "current"))


def test_an_interrupted_run_does_not_look_as_if_it_ran() -> None:
    run = Overlay(running={("", "pack")}, status="interrupted")
    assert shown(to_svg(trip(), run))["node-pack"] == Mark(("interrupted", "current"))


def test_closed_forms_and_prefixes() -> None:
    graph = trip()
    closed = to_svg(graph, closed={"stay"}, prefix="x-")
    assert 'id="x-node-stay"' in closed
    assert "closed" in closed.split('id="x-node-stay"')[1][:60]
    assert "node-stay.ask" not in closed
    assert to_svg(graph, closed=True) == to_svg(graph, closed=["stay"])
    assert to_svg(graph, closed=False) == to_svg(graph)


@node
def count(state: Trip) -> Outcome[Literal["more", "done"]]:
    return Outcome("more" if len(state.notes) < 400 else "done", notes="x")


async def test_a_long_run_costs_what_it_changed() -> None:
    edges = "START -> count\ncount -> count : more\ncount -> END : done"
    graph = Graph(name="g", state=Trip, nodes={"count": count}, edges=edges)
    run = await graph.run({})
    found: Replay = replay(run.definition, run.records())
    assert run.steps == 401
    told = json.dumps([moment.to_json() for moment in found.moments])
    assert len(told) / run.steps < 250


@pytest.mark.full
def test_plans_of_any_size_and_number() -> None:
    wide = [PlannedStep(f"s{number}", (), {"tool": "look"}) for number in range(300)]
    same = "x" * 200
    odd = [PlannedStep(same + "1"), PlannedStep(same + "2", (same + "1", "nobody")), PlannedStep(same + "2")]
    deep = [PlannedStep(str(number), (str(number - 1),) if number else ()) for number in range(200)]
    run = Overlay(
        planned=(Planned("", 1, wide), Planned("", 1, odd), Planned("", 1, deep), *[Planned("", 1, odd)] * 40)
    )
    svg = to_svg(trip(), run)
    names = [name for part in ET.fromstring(svg).iter() if (name := part.get("id"))]
    assert len(names) == len(set(names))
    assert {"plan-1.300", "plan-2.1--2", "plan-3.199--200", f"plan-{MOST_PLANS}"} <= set(names)
    assert f"plan-{MOST_PLANS + 1}" not in names
    assert "31 more plans are not drawn" in svg
    assert float(ET.fromstring(svg).get("width", "")) < 1000  # rows are broken
    assert "s299" in to_text(trip(), run)
