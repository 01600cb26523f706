"""`Confirm(calls=, results=)`: each call of a list is approved, changed or denied, before any of them is made."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import BaseModel

from orchestrator import Approve, Deny, Executor, Graph, Message, Question, Run, ToolCall, append, node, tool
from orchestrator.errors import GraphError, InvalidAnswer, StaleAnswer
from orchestrator.graph import Migration, Node
from orchestrator.kernel.plan import Plan
from orchestrator.nodes import Confirm, Decide, Execute, Respond
from orchestrator.testing import ScriptedModel, assert_crash_safe, assert_kill_safe
from orchestrator.views.step_names import step_name
from orchestrator.views.timeline import timeline
from tests.nodes.test_decide import weighed
from tests.support.kit import fork_processes
from tests.support.one_node import error_of, executing
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio

made: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


@tool(risk="write")
def send(to: str, text: str = "hello") -> str:
    """Send a text."""
    made.append(f"{to}: {text}")
    return f"sent to {to}"


@tool(risk="read", effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is there"


@tool(risk="dangerous")
def wipe(disk: str) -> str:
    """Delete everything."""
    made.append(f"wiped {disk}")
    return "gone"


class State(BaseModel):
    question: str
    messages: Annotated[list[Message], append] = []
    pending: list[ToolCall] = []
    answer: str = ""


EDGES = """
    START -> think
    think -> confirm : calls
    think -> END : answer
    confirm -> act : approved
    confirm -> think : denied
    act -> think
"""
TOOLS = (send, look, wipe)


def agent(edges: str = EDGES, nodes: Mapping[str, Node] | None = None, **options: Any) -> Graph:
    """An agent whose calls are confirmed by one node, with further nodes."""
    return Graph(
        name="agent",
        state=State,
        input="question",
        output="answer",
        nodes={
            "think": Respond(question="question"),
            "confirm": Confirm(calls="pending", results="messages", **options),
            "act": Execute(calls="pending", results="messages", on_failure="observe"),
            **(nodes or {}),
        },
        edges=edges,
    )


def call(number: int, name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=f"call_{number}", name=name, arguments=arguments)


ROUND = [call(1, "send", to="Ann"), call(2, "look", at="Bob"), call(3, "send", to="Carl"), call(4, "wipe", disk="c")]


def asked(run: Run) -> Question:
    """The only open question of a run."""
    (question,) = run.waiting
    return question


def about(run: Run) -> object:
    """The id of the call that a run asks about."""
    return asked(run).payload["call_id"]


async def answered(executor: Executor, run: Run, *answers: Approve | Deny) -> Run:
    """The run after answers to its questions, one after the other."""
    for one in answers:
        run = await executor.answer(run.run_id, asked(run).id, one, digest=asked(run).digest)
    return run


def told(run: Run) -> dict[str, str]:
    """The results of a run's calls, as its model receives them, by the ids of the calls."""
    results = [message for message in run.values["messages"] if message["role"] == "tool"]
    found = {message["tool_call_id"]: message["content"] for message in results}
    assert len(found) == len(results), "a call has one result"
    return found


async def test_each_call_is_approved_changed_or_denied_and_none_is_made_before(store: str) -> None:
    async with executing([ROUND, "done"], TOOLS, store) as (executor, model):
        run = await executor.start(agent(from_risk="write"), "go")
        assert (asked(run).prompt, asked(run).kind) == ("Call send?", "approval")
        assert asked(run).payload == {
            "tool": "send", "args": {"to": "Ann"}, "risk": "write", "effect": "irreversible",
            "call_id": "call_1",
        }  # fmt: skip
        run = await answered(executor, run, Approve())
        assert about(run) == "call_3", "reading needs no approval"
        run = await answered(executor, run, Approve(args={"to": "Carl", "text": "hi"}))
        assert (about(run), made) == ("call_4", []), "no call is made before all are decided"
        run = await answered(executor, run, Deny(reason="not that disk"))
        assert len(model.requests) == 2, "the step before the questions did not run again"
        rows = timeline(Plan.of(run.definition), run.records()).rows
        assert "confirm send Ann and 2 more" in [str(step_name(row)) for row in rows]
    assert (run.output, sorted(made)) == ("done", ["Ann: hello", "Carl: hi"])
    assert told(run) == {
        "call_1": "sent to Ann",
        "call_2": "Bob is there",
        "call_3": 'The user changed the arguments of this call: {"text":"hi","to":"Carl"}\nsent to Carl',
        "call_4": "Error: the user denied this call: not that disk",
    }


async def test_if_every_call_is_denied_the_model_is_told_and_nothing_is_made() -> None:
    calls = [call(1, "send", to="Ann"), call(2, "wipe", disk="c")]
    async with executing([calls, "as you wish"], TOOLS) as (executor, _):
        run = await executor.start(agent(), "go")
        run = await answered(executor, run, Deny(), Deny())
    assert (run.output, made, run.values["pending"]) == ("as you wish", [], [])
    assert set(told(run).values()) == {"Error: the user denied this call"}


async def test_calls_that_cannot_be_made_are_results_and_nobody_is_asked_about_them() -> None:
    bad = [
        call(1, "sned", to="Ann"),
        call(2, "send", too="Ann"),
        ToolCall(id="call_3", name="send", raw='{"to": '),
    ]
    async with executing([bad, [*bad, call(4, "send", to="Bob")], "done"], TOOLS) as (executor, _):
        run = await executor.start(agent(), "go")
        assert about(run) == "call_4"
        run = await answered(executor, run, Approve())
    assert (run.status, made) == ("completed", ["Bob: hello"])
    results = [message["content"] for message in run.values["messages"] if message["role"] == "tool"]
    assert ["not an available tool" in text for text in results] == [True, False, False, True, False, False, False]
    assert all(text.startswith("Error: ") for text in results[:6])


async def test_an_answer_is_for_one_call_as_it_was_shown() -> None:
    async with executing([ROUND], TOOLS) as (executor, _):
        run = await executor.start(agent(from_risk="write"), "go")
        first = asked(run)
        for wrong in ({"text": "hi"}, {"to": 1}, {"to": "Ann", "more": True}, {}):
            with pytest.raises(InvalidAnswer):
                await executor.answer(run.run_id, first.id, Approve(args=wrong))
        with pytest.raises(InvalidAnswer):
            await executor.answer(run.run_id, first.id, [{"name": "wipe", "arguments": {"disk": "c"}}])
        run = await answered(executor, run, Approve())
        with pytest.raises(StaleAnswer):  # it is answered once
            await executor.answer(run.run_id, first.id, Deny())
        with pytest.raises(StaleAnswer):  # the digest of another call
            await executor.answer(run.run_id, asked(run).id, Approve(), digest=first.digest)
        assert (about(run), made) == ("call_3", [])


async def test_equal_calls_have_questions_of_their_own() -> None:
    twice = [call(1, "send", to="Ann"), call(2, "send", to="Ann")]
    async with executing([twice, "done"], TOOLS) as (executor, _):
        run = await executor.start(agent(), "go")
        run = await answered(executor, run, Deny(reason="once is enough"), Approve())
    assert made == ["Ann: hello"]
    assert told(run) == {"call_1": "Error: the user denied this call: once is enough", "call_2": "sent to Ann"}


@pytest.mark.parametrize("seed", range(sized(10, 100)))
async def test_each_call_has_one_result_and_exactly_the_approved_ones_are_made(seed: int) -> None:
    chance = random.Random(seed)
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("send", {"to": "a"}), ("send", {"to": "b"}), ("wipe", {"disk": "c"}), ("look", {"at": "d"}),
        ("sned", {"to": "a"}),
    ]  # fmt: skip
    calls = [call(number, name, **args) for number, (name, args) in enumerate(chance.choices(kinds, k=6))]
    expected: list[str] = []
    async with executing([calls, "done"], TOOLS) as (executor, _):
        run = await executor.start(agent(from_risk="write"), "go")
        while run.waiting:
            payload: Any = asked(run).payload
            changed = {"to": "z"} if payload["tool"] == "send" else {"disk": "z"}
            args = chance.choice((payload["args"], changed, None))
            if args is not None:
                expected.append(f"{args['to']}: hello" if payload["tool"] == "send" else f"wiped {args['disk']}")
            run = await answered(executor, run, Deny() if args is None else Approve(args=args))
    assert run.status == "completed"
    assert told(run).keys() == {one.id for one in calls}
    assert sorted(made) == sorted(expected)


async def test_all_calls_can_be_shown_with_each_question() -> None:
    async with executing([ROUND], TOOLS) as (executor, _):
        run = await executor.start(agent(from_risk="write", show=("pending",), prompt="Call {tool} with {args}?"), "go")
    assert asked(run).prompt == "Call send with {'to': 'Ann'}?"
    shown: Any = asked(run).payload["shown"]
    assert [one["name"] for one in shown["pending"]] == ["send", "look", "send", "wipe"]


async def test_a_policy_answers_and_leaves_the_rest_to_a_person() -> None:
    async with executing([ROUND, "done"], TOOLS) as (executor, _):
        run = await executor.start(agent(), "go", approve="write")
        assert (about(run), made) == ("call_4", [])
        run = await answered(executor, run, Approve())
    assert sorted(made) == ["Ann: hello", "Carl: hello", "wiped c"]


async def test_a_denial_can_fail_the_step() -> None:
    calls = [call(1, "send", to="Ann"), call(2, "send", to="Bob")]
    definition = agent(EDGES.replace("confirm -> think : denied\n", ""), on_denied="raise")
    async with executing([calls], TOOLS) as (executor, _):
        run = await answered(executor, await executor.start(definition, "go"), Approve(), Deny(reason="no"))
    assert error_of(run) == ("UserDenied", "send with {'to': 'Bob'} was denied: no")
    assert made == []


async def test_a_model_reviews_each_call_and_a_person_decides_what_it_leaves() -> None:
    reviews = [weighed("no", 0.99), weighed("yes", 0.99), weighed("yes", 0.5)]
    async with executing([ROUND, *reviews, "done"], TOOLS) as (executor, _):
        run = await executor.start(agent(review=Decide(yes_no=True, threshold=0.9)), "go")
        assert about(run) == "call_3", "the model is not sure"
        assert "0.5" in str(asked(run).payload["model_review"])
        run = await answered(executor, run, Approve())
        assert about(run) == "call_4", "a person is always asked about a dangerous call"
        run = await answered(executor, run, Deny())
    assert made == ["Carl: hello"]
    assert told(run)["call_1"].startswith("Error: a model's review denied this call: no, by model")


# -- crashes, replays, forks, versions ---------------------------------------------------------------------------------


ANSWERS: dict[str, Approve | Deny] = {
    "call_1": Approve(),
    "call_3": Approve(args={"to": "Carl", "text": "hi"}),
    "call_4": Deny(reason="no"),
}


def _answer(question: Question) -> Approve | Deny | None:
    """The answer to a question about a call; None for other questions, which the kit answers."""
    return ANSWERS.get(str(question.payload.get("call_id")))


def _twice() -> ScriptedModel:
    return ScriptedModel(lambda request: ROUND if request.messages[-1].role == "user" else "done")


async def test_a_crash_at_any_write_makes_no_call_twice_and_none_without_approval() -> None:
    trials: list[list[str]] = []

    def setup() -> dict[str, object]:
        trials.append(made.copy())
        made.clear()
        return {"tools": TOOLS}

    report = await assert_crash_safe(
        agent(from_risk="write"), "go", setup=setup, answer=_answer, model=_twice(), stops=2
    )
    assert report.status == "completed"
    assert all(sorted(one) == ["Ann: hello", "Carl: hi"] for one in trials[1:])


def killed() -> Mapping[str, Any]:
    """The program of the test below; the file outlives its processes."""

    @tool(risk="write", effect="irreversible", name="send")
    def note(to: str) -> str:
        """Note a call."""
        with Path(os.environ["CONFIRMED_NOTES"]).open("a", encoding="utf-8") as file:
            file.write(f"{to}\n")
        return to

    calls = [call(1, "send", to="Ann"), call(2, "send", to="Bob"), call(3, "send", to="Carl")]
    model = ScriptedModel(lambda request: calls if request.messages[-1].role == "user" else "done")
    return {"graph": agent(), "input": "go", "model": model, "tools": [note]}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
def test_kill_9_between_answers_and_calls(anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFIRMED_NOTES", str(tmp_path / "notes"))
    fork_processes(monkeypatch, "tests.nodes.test_confirm_calls")
    report = assert_kill_safe("tests.nodes.test_confirm_calls:killed", runs=sized(2, 10), kills=4, seed=3)
    assert report.status == "completed"


async def _answered(executor: Executor) -> Run:
    run = await executor.start(agent(from_risk="write"), "go")
    while run.waiting:
        run = await answered(executor, run, ANSWERS[str(about(run))])
    return run


async def test_a_replay_takes_answers_and_results_from_the_journal() -> None:
    async with executing([ROUND, "done"], TOOLS) as (executor, _):
        run = await _answered(executor)
        before = list(made)
        again = (await executor.replay(run.run_id)).run
        assert (again.status, again.output, made) == ("completed", "done", before)
        assert told(again) == told(run)


async def test_a_fork_with_another_answer_asks_again_before_calls_that_its_parent_made() -> None:
    async with executing([ROUND, "done"], TOOLS) as (executor, _):
        run = await _answered(executor)
        before = sorted(made)
        last = [event.seq async for event in executor.events(run.run_id) if event.type == "answered"][-1]
        fork = await executor.fork(run.run_id, at=last, answer=Approve())
        assert fork.status == "paused", "the parent's approvals do not count for calls of the fork"
        assert sorted(made) == before
        assert {question.payload.get("tool") for question in fork.waiting} <= {"send", "wipe"}


async def test_a_run_that_waits_there_continues_with_another_version() -> None:
    async with executing([ROUND, "done"], TOOLS) as (executor, model):
        run = await answered(executor, await executor.start(agent(from_risk="write"), "go"), Approve())
        assert about(run) == "call_3"
        executor.add_graph(agent(from_risk="write", prompt="Really call {tool}?"))
        run = await executor.resume(run.run_id, migrate=Migration(accept=True))
        while run.waiting:
            run = await answered(executor, run, Approve())
        assert len(model.requests) == 2
    assert (run.status, sorted(made)) == ("completed", ["Ann: hello", "Carl: hello", "wiped c"])


async def test_a_run_that_waits_for_a_single_confirmation_moves_to_one_of_a_list() -> None:
    """The graph that asked once about all calls asks about each after its change, and nothing before runs again."""
    once = agent(nodes={"confirm": Confirm(show=("pending",))})
    async with executing([ROUND[:2], "done"], TOOLS) as (executor, model):
        run = await executor.start(once, "go")
        assert asked(run).prompt == "Go on?"
        executor.add_graph(agent(from_risk="write"))
        run = await executor.resume(run.run_id, migrate=Migration(accept=True))
        run = await answered(executor, run, Approve())  # the open question stays, and its answer approves no call
        assert (about(run), made) == ("call_1", [])
        run = await answered(executor, run, Deny())
        assert len(model.requests) == 2
    assert (run.status, made) == ("completed", [])


async def test_in_an_imported_journal_no_approval_counts() -> None:
    async with executing([ROUND], TOOLS) as (executor, _):
        run = await executor.start(agent(from_risk="write"), "go")
        run = await answered(executor, run, Approve(), Approve())
        lines = [line async for line in executor.export(run.run_id)]
    async with executing(["done"], TOOLS, graphs=[agent(from_risk="write")]) as (executor, _):
        await executor.import_(lines)
        run = await answered(executor, await executor.resume(run.run_id), Deny())
        assert (about(run), made) == ("call_1", [])
        run = await answered(executor, run, Deny())
        assert (about(run), made) == ("call_3", [])
        while run.waiting:
            run = await answered(executor, run, Deny())
    assert (run.status, made) == ("completed", [])


# -- the graph ---------------------------------------------------------------------------------------------------------


def proved(graph: Graph, tools: Any = TOOLS) -> list[tuple[str, str, str]]:
    """Verdict, reason and path of each claim about a confirmation."""
    found = graph.check(prove=True, tools=tools).proofs
    return [(one.verdict, one.reason, " -> ".join(map(str, one.witness))) for one in found if one.about == "confirmed"]


def test_proofs_recognize_it() -> None:
    lax = "confirm lets calls of risk write through without asking"
    assert proved(agent()) == [("proved", "", "")]
    assert proved(agent(from_risk="write")) == [("proved", "", "")]
    assert proved(agent(from_risk="dangerous")) == [("proved", lax, "")]
    assert "lets a model approve" in proved(agent(review=Decide(yes_no=True, threshold=0.9)))[0][1]
    past = agent(EDGES.replace("think -> confirm : calls", "think -> act : calls\n*    -> confirm : error"))
    assert proved(past)[0][0] == "refuted"


def test_it_is_inserted_into_a_graph_without_approval() -> None:
    edges = "START -> think\nthink -> act : calls\nthink -> END : answer\nact -> think"
    nodes = {name: one for name, one in agent().nodes.items() if name != "confirm"}
    bare = Graph(name="agent", state=State, input="question", output="answer", nodes=nodes, edges=edges)
    assert proved(bare)[0][0] == "refuted"
    inserted = bare.insert_before("act", "confirm", agent().nodes["confirm"], otherwise="think")
    assert proved(inserted) == [("proved", "", "")]


@node(writes={"pending"})
def swap(state: State) -> dict[str, object]:
    """Put other calls in the place of the approved ones."""
    return {"pending": [call(9, "wipe", disk="c")]}


def test_an_approval_is_for_this_list_once() -> None:
    swapped = agent(EDGES.replace("confirm -> act", "swap -> act\n confirm -> swap"), {"swap": swap})
    assert proved(swapped)[0][0] == "refuted"
    again = agent(EDGES.replace("act -> think", "act -> again -> think"), {"again": agent().nodes["act"]})
    assert [verdict for verdict, _, _ in proved(again)] == ["proved", "refuted"]


def test_its_yaml_form_is_the_same_graph(tmp_path: Path) -> None:
    definition = agent(from_risk="write")
    definition.save(tmp_path / "agent.yaml")
    saved = yaml.safe_load((tmp_path / "agent.yaml").read_text(encoding="utf-8"))
    assert {"kind": "confirm", "calls": "pending", "from_risk": "write"}.items() <= saved["nodes"]["confirm"].items()
    assert "tool" not in saved["nodes"]["confirm"]
    assert Graph.load(tmp_path / "agent.yaml").content == definition.content
    assert definition.nodes["confirm"].does == "asks from risk write"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"calls": "pending"}, "calls= and results= belong together"),
        ({"calls": "pending", "results": "messages", "tool": "tool", "args": "args"}, "tool= is for a single approval"),
        ({"calls": "pending", "results": "messages", "reason": "why"}, "reason= is for a single approval"),
        ({"from_risk": "write"}, "calls= and results="),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Confirm(**options)


class Merged(BaseModel):
    messages: Annotated[list[Message], append] = []
    pending: Annotated[list[ToolCall], append] = []
    seen: list[Message] = []


@pytest.mark.parametrize(
    ("results", "state", "words"),
    [("messages", Merged, "use a field without one"), ("seen", Merged, "give it a reducer")],
)
def test_fields_in_which_denied_calls_would_remain_or_results_be_lost(results: str, state: Any, words: str) -> None:
    nodes = {"confirm": Confirm(calls="pending", results=results)}
    with pytest.raises(GraphError, match=words):
        Graph(name="g", state=state, nodes=nodes, edges="START -> confirm -> END : approved\nconfirm -> END : denied")
