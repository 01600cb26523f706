"""A step whose kind asks a model, or a person, and that asked nothing looks like no other, wherever a run is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator import Approve, Deny, Executor, Graph, Run, tool
from orchestrator.executor import Overlay
from orchestrator.kernel.plan import Plan
from orchestrator.nodes import Ask, ChooseTool, Classify, Confirm, Execute
from orchestrator.render import to_dot, to_html, to_mermaid, to_svg, to_text
from orchestrator.render.build import draw
from orchestrator.render.moments import replay
from orchestrator.render.overlaid import asked_text
from orchestrator.render.terminal.run_report import step_line
from orchestrator.render.terminal.tree import left_behind
from orchestrator.testing import ScriptedModel
from orchestrator.views.reader import Reader
from orchestrator.views.run import explainer_of
from orchestrator.views.step_tree import StepTree
from orchestrator.views.timeline import timeline
from tests.render.counts import drawn_calls, journaled_calls

pytestmark = pytest.mark.anyio


class State(Execute.State, Confirm.State):
    question: str = ""
    reply: str = ""


@tool(risk="none")
def look(x: int) -> int:
    """Look."""
    return x


@tool(risk="write")
def put(x: int) -> int:
    """Put."""
    return x


EACH = Graph(
    name="each", state=State,
    nodes={"confirm": Confirm(tool="tool", args="args", from_risk="write"), "execute": Execute()},
    edges="START -> confirm\nconfirm -> execute : approved\nconfirm -> END : denied\nexecute -> END",
)  # fmt: skip
CHOICE = Graph(name="choice", state=State, nodes={"choose": ChooseTool()}, edges="START -> choose -> END")


async def ended(graph: Graph, given: dict[str, object], *tools: Any, answer: Any = None, **options: Any) -> Run:
    """The run of a graph, its questions answered."""
    async with Executor(tools=tools, model=ScriptedModel(["look"])) as executor:
        run = await executor.start(graph, given, **options)
        while run.waiting:
            run = await executor.answer(run.run_id, run.waiting[0].id, answer)
        run._repr_mimebundle_()  # its records are there after the executor is closed
        return run


def formats(run: Run) -> dict[str, str]:
    of = run.definition
    return {
        "svg": to_svg(of, run, engine="simple"), "dot": to_dot(of, run), "mermaid": to_mermaid(of, run),
        "text": to_text(of, run), "ascii": to_text(of, run, ascii=True),
    }  # fmt: skip


async def test_every_picture_tells_a_confirmation_that_passed_from_one_that_a_person_answered() -> None:
    passed = formats(await ended(EACH, {"tool": "look", "args": {"x": 1}}, look))
    asked = formats(await ended(EACH, {"tool": "put", "args": {"x": 1}}, put, answer=Approve()))
    for name in passed:
        assert "passed" in passed[name].partition("</style>")[2 if name == "svg" else 0], name
        assert "passed" not in asked[name].partition("</style>")[2 if name == "svg" else 0], name
    assert "» passed" in passed["text"]
    assert "> passed" in passed["ascii"]
    assert "✓" in asked["text"].partition("confirm")[2].splitlines()[0]
    assert 'class="node look-human visited passed' in passed["svg"]


@pytest.mark.parametrize("answer", [Approve(), Deny()])
async def test_who_was_asked_has_not_passed_whatever_the_answer(answer: Any) -> None:
    run = await ended(EACH, {"tool": "put", "args": {"x": 1}}, put, answer=answer)
    assert "confirm  asks from risk write  ✓" in to_text(run.definition, run)
    assert run.status == "completed"
    assert run.overlay().asked == {("", "confirm"): 1}
    assert run.overlay().unasked == {}


async def test_a_call_that_the_runs_policy_approves_has_passed() -> None:
    run = await ended(EACH, {"tool": "put", "args": {"x": 1}}, put, approve="write")
    assert "» passed" in to_text(run.definition, run)


async def test_a_question_whose_deadline_passed_was_asked() -> None:
    graph = Graph(
        name="g", state=State, nodes={"ask": Ask(prompt="?", deadline=0)},
        edges="START -> ask -> END\nask -> END : error",
    )  # fmt: skip
    async with Executor(idle="sleep") as executor:
        run = await executor.start(graph, {})
        if run.status == "paused":
            run = await executor.resume(run.run_id)
        assert run.status == "completed"
        assert run.overlay().asked == {("", "ask"): 1}
        assert "passed" not in to_text(graph, run)


async def test_a_model_that_need_not_be_asked_is_drawn_as_no_call() -> None:
    alone, among = await ended(CHOICE, {"question": "?"}, look), await ended(CHOICE, {"question": "?"}, look, put)
    assert "choose  chooses a tool  » no call" in to_text(CHOICE, alone)
    assert "no call" not in to_text(CHOICE, among)
    for run in (alone, among):
        assert drawn_calls(run) == journaled_calls(run)
    assert "no call" in to_mermaid(CHOICE, alone)
    assert 'data-slot="asked"' in to_svg(CHOICE, engine="simple")


async def test_corrections_in_one_step_are_said() -> None:
    graph = Graph(
        name="g", state=State, nodes={"sort": Classify(choices={"a": "x", "b": "y"})}, edges="START -> sort -> END"
    )  # fmt: skip
    async with Executor(model=ScriptedModel(["neither", "a"])) as executor:
        run = await executor.start(graph, {"question": "?"})
        assert "sort  chooses one of 2  ✓ 2 calls" in to_text(graph, run)
        assert drawn_calls(run) == journaled_calls(run) == {("", "sort"): 2}


async def test_a_failed_step_counts_its_call() -> None:
    async with Executor(model=ScriptedModel(["nope"]), tools=[look, put]) as executor:
        run = await executor.start(CHOICE, {"question": "?"})
        assert run.status == "failed"
        assert drawn_calls(run) == journaled_calls(run) == {("", "choose"): 1}
        assert "1 call" not in to_text(CHOICE, run)


async def test_the_tree_the_page_and_history_have_it() -> None:
    async with Executor(tools=[look]) as executor:
        run = await executor.start(EACH, {"tool": "look", "args": {"x": 1}})
        events = [event async for event in executor.events(run.run_id)]
        point, after = await executor.history(run.run_id)
        page = to_html(EACH, run)
    tree = StepTree()
    reader = Reader(Plan.of(EACH), tree)
    for event in events:
        reader.take(event)
    (line, *_) = left_behind(tree, tree.top.steps[0], tree.live_branches(), 0.0)
    assert line.text.startswith("» confirm → approved passed")
    assert (point.unasked, after.unasked) == ("passed", "")
    assert "confirm -> approved  [passed]" in step_line(point)
    assert point.to_json()["unasked"] == "passed"
    assert "unasked" not in after.to_json()
    assert '"unasked":"passed"' in page.replace(" ", "")


async def test_every_moment_is_drawn_as_the_run_at_that_record_is() -> None:
    async with Executor(tools=[look, put]) as executor:
        run = await executor.start(EACH, {"tool": "look", "args": {"x": 1}})
        replayed = replay(run.definition, run.records(), plan=run.plan)
        for seq in range(1, run.seq + 1):
            then = await executor.load(run.run_id, at=seq)
            marks = {mark.id: mark.mark for mark in draw(EACH, then).nodes if not mark.terminal}
            shown = replayed.at(seq)
            assert {name: tuple(sorted(mark.classes)) for name, mark in marks.items()} == {
                name: tuple(sorted(shown[name].classes)) if name in shown else () for name in marks
            }
            assert {name: mark.texts.get("asked") for name, mark in marks.items()} == {
                name: shown[name].texts.get("asked") if name in shown else None for name in marks
            }


async def test_a_run_is_drawn_so_without_its_code() -> None:
    run = await ended(EACH, {"tool": "look", "args": {"x": 1}}, look)
    stored = Graph.from_data(json.loads(json.dumps(EACH.data())))
    assert to_svg(stored, run.overlay(), engine="simple") == to_svg(EACH, run.overlay(), engine="simple")


@pytest.mark.parametrize(
    ("asks", "asked", "unasked", "drawn", "said"),
    [
        ("person", 0, 3, 3, "passed"), ("person", 1, 2, 3, "asked 1, passed 2"), ("person", 3, 0, 3, ""),
        ("person", 2, 0, 1, "asked 2"), ("model", 0, 1, 1, "no call"), ("model", 1, 2, 3, "1 call, 2 without"),
        ("model", 4, 0, 4, ""), ("model", 5, 0, 4, "5 calls"), ("model", 1, 0, 0, "1 call"),
        ("model", 20_000, 30_000, 50_000, "20k calls, 30k without"),
    ],
)  # fmt: skip
def test_words_are_said_where_the_count_does_not_say_it(
    asks: Any, asked: int, unasked: int, drawn: int, said: str
) -> None:
    assert asked_text(asks, asked, unasked, drawn) == said


def test_runs_of_which_this_is_not_known_are_drawn_as_before() -> None:
    text = to_text(EACH, Overlay(visits={("", "confirm"): 3}))
    assert "confirm  asks from risk write  ✓ ×3\n" in text


async def test_a_confirmation_that_passed_is_explained_by_its_rule() -> None:
    passed = await ended(EACH, {"tool": "look", "args": {"x": 1}}, look)
    asked = await ended(EACH, {"tool": "put", "args": {"x": 1}}, put, answer=Approve())
    for run, rule in ((passed, True), (asked, False)):
        rows = timeline(Plan.of(run.definition), run.records())
        row = next(row for row in rows.rows if row.node == "confirm")
        assert ("decided by its rule, without asking a person" in explainer_of(run, rows).why(row).went) is rule
