"""What ReWOO promises (S66 to S71): a blueprint, its calls in the order of their needs, the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Approve, Deny, Executor, Graph, Limits, OfflineModel, Run, Tool, tool
from orchestrator.models import Reply
from orchestrator.models.base import ModelRequest
from orchestrator.nodes import Solve, Subgraph
from orchestrator.nodes.planned_calls import NONE_LEFT
from orchestrator.nodes.plans.blueprint import MOST_CALLS
from orchestrator.strategies.rewoo import graph, rewoo
from orchestrator.testing import ScriptedModel, assert_crash_safe
from orchestrator.tools import tools_from_ref
from orchestrator.tools.builtin.ask_model import AskModel, ask_model
from tests.nodes.test_blueprint import HENNCHATA
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio

ARITHMETIC = tuple(tools_from_ref("arithmetic"))
QUESTION = "What is the name of the cognac house that makes the main ingredient in The Hennchata?"
PAGES = {"The Hennchata": "The Hennchata is a cocktail of Hennessy cognac and Mexican rice horchata agua fresca."}
LLM_WORKER = ask_model.with_(name="LLMWorker")


def look_up(title: str) -> str:
    return PAGES.get(title, f"Could not find [{title}]. Similar: {list(PAGES)}")


@tool(name="WikipediaWorker", risk="read", effect="read")
def wikipedia(input: str) -> str:  # noqa: A002  the seed's own name
    """Search pages about people, places, companies, events and other subjects."""
    return look_up(input)


@tool(risk="write")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(risk="none", effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def worker(request: ModelRequest) -> str:
    """The model behind LLMWorker."""
    asked = request.messages[-1].content
    if asked == f"What cognac is used in The Hennchata, based on {PAGES['The Hennchata']}":
        return "Hennessy cognac."
    assert asked.startswith("What is the name of the cognac house in Could not find [producer of"), asked
    return "The name of the cognac house is not specified."


async def run(
    replies: Any, *tools: Tool, definition: Graph = graph, store: str = "memory://", approve: str | None = None
) -> tuple[Run, Sequence[ModelRequest]]:
    with ScriptedModel(replies) as model:
        async with Executor(store, model=model, tools=tools) as executor:
            return await executor.start(definition, QUESTION, approve=approve), model.requests


def said(found: Run) -> dict[str, Any]:
    """What came of each step."""
    evidence: Mapping[str, Any] = found.values["evidence"]
    return {name: step["tool_output"] for name, step in evidence.items()}


# -- the published example -----------------------------------------------------------------------------------------


async def test_s66_to_s71_the_published_plan_runs_in_two_levels(store: str) -> None:
    under_way: set[str] = set()
    both = anyio.Event()

    @tool(name="WikipediaWorker", risk="read", effect="read")
    async def encyclopedia(input: str) -> str:  # noqa: A002
        """Search pages about people, places, companies, events and other subjects."""
        under_way.add(input)
        if len(under_way) == 2:
            both.set()
        await both.wait()  # E1 and E3 are looked up at the same time, or never
        return look_up(input)

    script: dict[str, Any] = {"plan": [HENNCHATA], "execute": worker, "solve": ["\nHennessy "]}
    events: list[tuple[str, str, str]] = []
    with anyio.fail_after(20), ScriptedModel(script) as model:
        async with Executor(store, model=model, tools=[encyclopedia, LLM_WORKER]) as executor:
            async with executor.stream(graph, QUESTION) as live:
                async for event in live:
                    if event.type in ("step_started", "step_done"):
                        events.append((event.type, str(event.data.get("path", "")), str(event.data["node"])))
            found = live.run
    assert (found.status, found.output) == ("completed", "Hennessy")

    calls = [(kind, int(path.removeprefix("read."))) for kind, path, node in events if node == "execute"]
    starts = [number for kind, number in calls if kind == "step_started"]
    assert (set(starts[:2]), set(starts[2:])) == ({0, 2}, {1, 3})  # [E1, E3], [E2, E4]
    assert {number for _, number in calls[:2]} == {0, 2}  # both had started before any was done
    for needed, user in ((0, 1), (2, 3)):
        assert calls.index(("step_done", needed)) < calls.index(("step_started", user))
    assert [node for _, _, node in events[:2]] == ["plan", "plan"]
    assert [node for _, _, node in events[-2:]] == ["solve", "solve"]

    assert said(found) == {
        "E1": PAGES["The Hennchata"],
        "E2": "Hennessy cognac.",
        "E3": "Could not find [producer of cognac used in The Hennchata]. Similar: ['The Hennchata']",
        "E4": "The name of the cognac house is not specified.",
    }
    assert len(model.requests) == 4  # planner, two workers that are models, solver
    log = model.requests[-1].messages[-1].content
    assert log.startswith("Plan: To find out the name of the cognac house")
    assert "\nEvidence:\nHennessy cognac.\nPlan: After identifying the cognac, I will" in log
    assert log.endswith(f"Task: {QUESTION}")


# -- what goes wrong -----------------------------------------------------------------------------------------------


async def test_s68_tools_that_are_not_there_or_fail_are_evidence_and_the_run_goes_on(store: str) -> None:
    @tool(risk="read")
    def broken(text: str) -> str:
        """Break."""
        raise ValueError(text)

    plan = "#E1 = Google[it]\n#E2 = broken[x]\n#E3 = add[#E1, 1]\n#E4 = add[1, 2]\n#E5 = LLMWorker[#E2?]"
    script = {"plan": [plan], "execute": lambda request: f"<{request.messages[-1].content}>", "solve": ["so"]}
    found, _ = await run(script, add, broken, LLM_WORKER, store=store)
    assert (found.status, found.output) == ("completed", "so")
    texts = said(found)
    assert texts["E1"] == "'Google' is not an available tool; choose one of: add, broken, LLMWorker"
    assert texts["E2"] == "Unexpected error executing tool broken: x"
    assert "'a' must be a whole number" in texts["E3"]
    assert texts["E4"] == 3
    assert texts["E5"] == "<Error: Unexpected error executing tool broken: x?>"


async def test_a_call_that_cannot_be_made_can_end_the_run() -> None:
    found, _ = await run(["#E1 = Google[it]"], add, definition=rewoo(on_error="raise"))
    assert found.error is not None
    assert (found.status, found.error.type, found.error.node) == ("failed", "AgentError", "fill")


async def test_a_plan_in_a_circle_is_shown_to_the_planner_once() -> None:
    circle = "#E1 = add[#E2, 1]\n#E2 = add[#E1, 1]"
    found, requests = await run([circle, "#E1 = add[1, 2]", "3"], add)
    assert (found.output, said(found)) == ("3", {"E1": 3})
    assert "#E1, #E2 depend on each other in a circle" in requests[1].messages[-1].content
    found, _ = await run([circle, circle], add)
    assert found.error is not None
    assert (found.status, found.error.type, found.error.node) == ("failed", "AgentError", "read")


async def test_whole_evidence_keeps_its_type_and_is_never_expanded_again() -> None:
    @tool(risk="none", effect="pure")
    def pick(index: int, items: list[int]) -> int:
        """Pick."""
        return items[index]

    @tool(risk="none", effect="pure")
    def items() -> list[int]:
        """Give some."""
        return [5, 6, 7]

    @tool(risk="none", effect="pure")
    def mention() -> str:
        """Mention another."""
        return "#E1, ] and #E10"

    @tool(risk="none", effect="pure")
    def echo(text: str) -> str:
        """Say it again."""
        return text

    plan = (
        "#E1 = items[]\n#E2 = pick[1, #E1]\n#E3 = mention[]\n#E4 = echo[<#E3>]\n#E10 = add[#E2, #E2]\n"
        '#E11 = pick[{"index": 0, "items": [#E10, #E2]}]\n#E12 = echo[#E1 #E10]'
    )
    found, _ = await run([plan, "done"], items, pick, mention, add, echo)
    texts = said(found)
    assert (texts["E2"], texts["E10"], texts["E11"]) == (6, 12, 12)
    assert (texts["E4"], texts["E12"]) == ("<#E1, ] and #E10>", "[5, 6, 7] 12")


# -- confirmation --------------------------------------------------------------------------------------------------

PAYING = "#E1 = pay[2]\n#E2 = add[1, 2]\n#E3 = pay[#E2]"


def test_every_way_to_a_call_passes_a_confirm() -> None:
    for definition in (graph, rewoo(on_denied="raise", last_answer=True)):
        proofs = definition.check(prove=True).proofs
        assert len(proofs) >= 2
        assert all(proof.holds for proof in proofs)


async def test_risky_calls_are_asked_about_each_for_itself_across_restarts(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    found, _ = await run([PAYING], pay, add, store=store)
    assert (found.status, said(found)) == ("paused", {})  # values are the trunk's while a fork is open
    waiting = sorted(found.waiting, key=lambda question: question.path)
    assert [question.payload["args"] for question in waiting] == [{"amount": 2}, {"amount": 3}]
    with ScriptedModel(["paid"]) as model:
        async with Executor(store, graphs=[graph], model=model, tools=[pay, add]) as executor:
            found = await executor.answer(found.run_id, waiting[1].id, Approve(args={"amount": 30}))
            assert found.status == "paused"
            found = await executor.answer(found.run_id, waiting[0].id, Deny(reason="too much"))
    assert (found.status, found.output) == ("completed", "paid")
    assert said(found) == {"E1": "the user denied this call: too much", "E2": 3, "E3": "paid 30"}
    assert "Error: the user denied this call: too much" in model.requests[0].messages[-1].content


async def test_without_confirmation_nothing_is_asked(store: str) -> None:
    definition = rewoo(confirm=None)
    assert "confirm" not in definition.nodes
    found, _ = await run([PAYING, "paid"], pay, add, definition=definition, store=store)
    assert (found.status, said(found)) == ("completed", {"E1": "paid 2", "E2": 3, "E3": "paid 3"})


async def test_a_denial_can_end_the_run() -> None:
    with ScriptedModel(["#E1 = pay[2]"]) as model:
        async with Executor(model=model, tools=[pay]) as executor:
            found = await executor.start(rewoo(on_denied="raise"), QUESTION)
            found = await executor.answer(found.run_id, found.waiting[0].id, Deny(reason="no"))
    assert found.error is not None
    assert (found.status, found.error.type) == ("failed", "UserDenied")


# -- limits and models ---------------------------------------------------------------------------------------------


async def test_it_makes_no_more_calls_than_it_may() -> None:
    plan = "#E1 = add[1, 1]\n#E2 = add[#E1, 1]\n#E3 = add[#E2, 1]"
    for definition in (rewoo(max_steps=2), rewoo(max_steps=2, last_answer=True)):
        found, requests = await run([plan, "at least 3"], add, definition=definition)
        assert (found.status, found.output) == ("completed", "at least 3")
        assert said(found) == {"E1": 2, "E2": 3, "E3": NONE_LEFT}
        assert requests[-1].messages[-1].content.count(f"Error: {NONE_LEFT}") == 1
    for options in ({"max_steps": 0}, {"max_seconds": 0}):
        with pytest.raises(ValueError, match="max_steps must be at least 1, and max_seconds more than 0"):
            rewoo(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [1, 2])
async def test_what_was_called_is_told_when_no_calls_are_left(store: str, most: int) -> None:
    called: list[int] = []

    @tool(name="pay", risk="write", effect="irreversible")
    async def paying_(amount: int) -> str:
        """Pay."""
        called.append(amount)
        await anyio.sleep(0.01 * amount)
        return f"paid {amount}"

    plan = "\n".join(f"#E{amount} = pay[{amount}]" for amount in range(1, 5))
    options = {"store": store, "definition": rewoo(max_steps=most, last_answer=True), "approve": "dangerous"}
    found, _ = await run([plan, "so"], paying_, **options)  # type: ignore[arg-type]
    assert sorted(called) == list(range(1, most + 1))
    assert said(found) == {f"E{n}": f"paid {n}" if n <= most else NONE_LEFT for n in range(1, 5)}


async def test_of_a_call_stopped_in_flight_nobody_says_that_it_was_not_made() -> None:
    @tool(name="pay", risk="none")
    async def slow(amount: int) -> str:
        """Pay."""
        await anyio.sleep(60)
        return ""

    definition = rewoo(max_seconds=0.3, last_answer=True)
    found, requests = await run(["#E1 = pay[1]", "perhaps"], slow, definition=definition)
    assert (found.status, found.output, said(found)) == ("exhausted", "perhaps", {})
    assert "Evidence:\nThere is no result: the work was stopped\n" in requests[-1].messages[-1].content


def test_its_steps_suffice_for_all_calls_that_it_may_make() -> None:
    for most in (1, 400):
        assert (rewoo(max_steps=most).limits.steps or 0) >= 4 * most + 2 * MOST_CALLS + 2


async def test_planner_solver_and_workers_can_be_different_models() -> None:
    scripts = {"big": ["#E1 = ask_model[Who?]"], "small": ["it was he"], "cheap": ["he"]}
    models = {name: ScriptedModel(script) for name, script in scripts.items()}
    async with Executor(models=models, tools=[AskModel(model="cheap", system="")]) as executor:
        found = await executor.start(rewoo(planner="big", solver="small"), QUESTION)
    assert (found.output, said(found)) == ("it was he", {"E1": "he"})
    for model in models.values():
        model.assert_done()
    assert [message.content for message in models["cheap"].requests[0].messages] == ["Who?"]


async def test_a_model_as_a_tool_that_does_not_answer_is_a_failed_call() -> None:
    script = {"plan": ["#E1 = ask_model[Who?]\n#E2 = lost[Who?]"], "solve": ["nobody knows"]}
    refusing = {**script, "execute": lambda request: Reply(text="no", finish="refusal")}
    found, _ = await run(refusing, ask_model, AskModel(model="gone").with_(name="lost"))
    assert said(found) == {"E1": "the model refused to answer (refusal)", "E2": "there is no model 'gone'"}
    assert (found.usage.calls, found.output) == (5, "nobody knows")  # three of models, two of tools


# -- as data, as a part, offline -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["yaml", "json"])
async def test_it_is_data_and_runs_the_same_from_a_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rewoo.{suffix}"
    for original in (
        graph,
        rewoo(confirm=None),
        rewoo(planner="p", confirm="read", on_denied="raise", max_seconds=5, last_answer=True),
    ):
        original.save(path)
        loaded = Graph.load(path)
        assert loaded == original
        assert (loaded.structure, loaded.content) == (original.structure, original.content)
        assert path.read_text().count("graphs.rewoo:") == 1  # the state
    graph.save(path)
    script = {"plan": [HENNCHATA], "execute": worker, "solve": ["Hennessy"]}
    found, _ = await run(script, wikipedia, LLM_WORKER, definition=Graph.load(path))
    assert (found.status, found.output) == ("completed", "Hennessy")


@pytest.mark.parametrize(
    ("question", "answer"),
    [("What is 20+(2*4)?", "28"), ("What is -(1+2)*(1+2)-(3-5)/4?", "-8.5"), ("What is 5?", "5")],
)
async def test_offline_it_really_calculates_whatever_the_prompts_say(store: str, question: str, answer: str) -> None:
    reworded = graph.replace(
        plan=graph.nodes["plan"].with_(system="Plan.", prompt="{tools}! {question}"),
        solve=Solve(join="all", system="", prompt="{steps}"),
    )
    async with Executor(store, model=OfflineModel(), tools=ARITHMETIC) as executor:
        for definition in (graph, reworded):
            found = await executor.start(definition, question, approve="none")
            assert (found.status, found.output) == ("completed", answer)


class Outer(BaseModel):
    question: str
    answer: str = ""


async def test_it_runs_inside_another_graph_and_as_a_tool(store: str) -> None:
    outer = Graph(
        name="outer",
        state=Outer,
        input="question",
        nodes={"inner": Subgraph(graph, inputs={"question": "question"}, outputs={"answer": "answer"})},
        edges="START -> inner -> END",
        output="answer",
        limits=Limits(steps=50),
    )
    async with Executor(store, model=OfflineModel(), tools=ARITHMETIC) as executor:
        assert (await executor.start(outer, "What is 20+(2*4)?")).output == "28"
    agent = graph.as_tool("agent", "Answers questions.")
    script = ["#E1 = agent[What is 1 + 2?]", "#E1 = add[1, 2]", "three", "it is three"]
    found, _ = await run(script, agent, add, store=store, approve="dangerous")
    assert (found.output, said(found)) == ("it is three", {"E1": "three"})


# -- crashes -------------------------------------------------------------------------------------------------------


def offline() -> dict[str, Any]:
    return {"model": OfflineModel(), "tools": ARITHMETIC}


def paying() -> dict[str, Any]:
    script: dict[str, Any] = {
        "plan": [PAYING + "\n#E4 = ask_model[#E1?]"],
        "execute": lambda request: "yes",
        "solve": ["paid"],
    }
    return {"model": ScriptedModel(script), "tools": [pay, add, ask_model]}


CRASHES = [(graph, offline), (graph, paying)]


@pytest.mark.full
@pytest.mark.parametrize(("definition", "setup"), CRASHES)
async def test_it_survives_crashes(definition: Graph, setup: Any) -> None:
    assert (
        await assert_crash_safe(definition, "What is 20+(2*4)?", setup=setup, most=sized(2, 4))
    ).status == "completed"


@pytest.mark.storm
@pytest.mark.parametrize(("definition", "setup"), CRASHES)
async def test_it_survives_crashes_at_every_write(definition: Graph, setup: Any) -> None:
    assert (await assert_crash_safe(definition, "What is 20+(2*4)?", setup=setup)).status == "completed"
