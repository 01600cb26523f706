"""`Confirm`: a person says yes or no, to exactly what will run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, JsonValue, ValidationError

from orchestrator import Approve, Deny, Executor, Graph, Message, Question, Run, ToolCall, node, tool
from orchestrator.errors import InvalidAnswer, StaleAnswer
from orchestrator.nodes import Confirm, Execute
from orchestrator.tools import Risk
from tests.support.one_node import error_of, executing

pytestmark = pytest.mark.anyio

sent: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()


@tool(risk="write")
def send(text: str, times: int = 1) -> str:
    """Send a text."""
    sent.append(text * times)
    return text * times


class Draft(Execute.State):
    drafts: tuple[str, ...] = ("one",)
    why: str = ""
    way: str = ""
    counted: int = 0


def graph(confirm: Confirm, edges: str = "") -> Graph:
    ways = {name: node(lambda name=name: {"way": name}, effect="pure") for name in confirm.outcomes}
    lines = "\n".join(f"it -> {name} : {name}\n{name} -> END" for name in ways)
    return Graph(name="g", state=Draft, nodes={"it": confirm, **ways}, edges=edges or f"START -> it\n{lines}")


CALL = Confirm(tool="tool", args="args")
calling = Graph(
    name="calling",
    state=Draft,
    nodes={"it": CALL, "execute": Execute()},
    edges="START -> it\nit -> execute : approved\nit -> END : denied\nexecute -> END",
)
GIVEN: dict[str, Any] = {"tool": "send", "args": {"text": "x"}}


async def asked(executor: Executor, definition: Graph, given: dict[str, Any]) -> tuple[Run, Question]:
    run = await executor.start(definition, given)
    assert run.status == "paused", run.error
    (question,) = run.waiting
    return run, question


# -- anything ------------------------------------------------------------------------------------------------------


async def test_yes_and_no_take_their_ways_and_the_reason_is_written(store: str) -> None:
    confirm = Confirm(prompt="Publish {drafts}?", show=("drafts",), reason="why")
    async with executing(store=store) as (executor, _):
        for answer, way, why in [
            (Approve(), "approved", ""),
            (Deny(reason="dull"), "denied", "dull"),
            (Deny(), "denied", ""),
        ]:
            run, question = await asked(executor, graph(confirm), {})
            assert (question.kind, question.prompt, question.payload) == (
                "approval", "Publish ['one']?", {"shown": {"drafts": ["one"]}},
            )  # fmt: skip
            run = await executor.answer(run.run_id, question.id, answer, by="ann")
            assert (run.status, run.values["way"], run.values["why"]) == ("completed", way, why)


async def test_without_a_prompt_and_without_a_field_for_the_reason() -> None:
    async with executing() as (executor, _):
        run, question = await asked(executor, graph(Confirm()), {})
        assert (question.prompt, question.payload) == ("Go on?", {})
        run = await executor.answer(run.run_id, question.id, Deny(reason="dull"))
        assert (run.values["way"], run.values["why"]) == ("denied", "")


async def test_only_yes_or_no_is_taken_once() -> None:
    async with executing() as (executor, _):
        run, question = await asked(executor, graph(Confirm()), {})
        for wrong in ("yes", True, None, Approve(args={"a": 1})):
            with pytest.raises(InvalidAnswer):
                await executor.answer(run.run_id, question.id, wrong)
        with pytest.raises(StaleAnswer):
            await executor.answer(run.run_id, question.id, Approve(), digest="of something else")
        assert (await executor.load(run.run_id)).seq == run.seq
        await executor.answer(run.run_id, question.id, Approve(), digest=question.digest)
        with pytest.raises(StaleAnswer):
            await executor.answer(run.run_id, question.id, Deny())


async def test_a_denial_can_fail_the_step() -> None:
    async with executing() as (executor, _):
        for deny, message in [(Deny(), "Really? was denied"), (Deny(reason="no"), "Really? was denied: no")]:
            run, question = await asked(executor, graph(Confirm(prompt="Really?", on_denied="raise")), {})
            assert error_of(await executor.answer(run.run_id, question.id, deny)) == ("UserDenied", message)


async def test_nothing_before_it_runs_again_in_branches_too(store: str) -> None:
    """Two confirmations side by side; both are asked at once, and what came before each ran once."""
    ran: list[str] = []

    def work(name: str) -> Any:
        @node
        def prepare() -> None:
            ran.append(name)

        return prepare

    forked = Graph(
        name="forked",
        state=Draft,
        nodes={
            "a": work("a"), "b": work("b"), "ask_a": Confirm(prompt="a?"), "ask_b": Confirm(prompt="b?"),
            "both": node(lambda: None, join="all"),
        },
        edges="START -> a, b\na -> ask_a -> both\nb -> ask_b -> both -> END",
    )  # fmt: skip
    async with executing(store=store) as (executor, _):
        run = await executor.start(forked, {})
        questions = {question.prompt: question.id for question in run.waiting}
        assert set(questions) == {"a?", "b?"}
        run = await executor.answer(run.run_id, questions["b?"], Approve())
        assert [question.prompt for question in run.waiting] == ["a?"]
        run = await executor.answer(run.run_id, run.waiting[0].id, Deny())
    assert (run.status, sorted(ran)) == ("completed", ["a", "b"])


# -- tool calls ----------------------------------------------------------------------------------------------------


async def test_a_call_is_shown_as_it_will_run(store: str) -> None:
    async with executing(tools=(send,), store=store) as (executor, _):
        run, question = await asked(executor, calling, {"tool": "send", "args": {"text": "x", "times": "2"}})
        assert (question.kind, question.prompt, sent) == ("approval", "Call send?", [])
        name = question.payload.pop("call_id")
        assert question.payload == {
            "tool": "send", "args": {"text": "x", "times": 2}, "risk": "write", "effect": "irreversible",
        }  # fmt: skip
        assert isinstance(name, str)
        run = await executor.answer(run.run_id, question.id, Approve())
        assert (run.status, run.values["args"], sent) == ("completed", {"text": "x", "times": 2}, ["xx"])


async def test_a_denied_call_does_not_run(store: str) -> None:
    async with executing(tools=(send,), store=store) as (executor, _):
        run, question = await asked(executor, calling, GIVEN)
        run = await executor.answer(run.run_id, question.id, Deny())
    assert (run.status, run.values["result"], sent) == ("completed", None, [])


async def test_what_a_person_changes_is_checked_and_is_what_runs() -> None:
    async with executing(tools=(send,)) as (executor, _):
        run, question = await asked(executor, calling, GIVEN)
        for wrong in ({}, {"text": 1}, {"text": "y", "loud": True}):
            with pytest.raises(InvalidAnswer, match="wrong arguments"):
                await executor.answer(run.run_id, question.id, Approve(args=wrong))
        assert sent == []
        run = await executor.answer(run.run_id, question.id, Approve(args={"text": "y", "times": "3"}))
    assert (run.values["args"], sent) == ({"text": "y", "times": 3}, ["yyy"])


async def test_a_change_by_somebody_who_has_no_code_is_asked_again_if_it_does_not_fit(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store, tools=[send]) as executor:
        run, question = await asked(executor, calling, GIVEN)
    async with Executor(store) as executor:
        await executor.answer(run.run_id, question.id, Approve(args={"text": 5}), resume=False)
    async with Executor(store, graphs=[calling], tools=[send]) as executor:
        run = await executor.resume(run.run_id)
        (again,) = run.waiting
        assert "'text' must be a string" in again.prompt
        assert sent == []
        run = await executor.answer(run.run_id, again.id, Approve())
    assert (run.status, sent) == ("completed", ["x"])


async def test_the_digest_is_of_the_call_the_tool_and_the_place() -> None:
    digests: list[str] = []

    async def look(given: dict[str, Any], tools: Any = (send,), run_id: str | None = None) -> None:
        async with executing(tools=tools) as (executor, _):
            run = await executor.start(calling, given, run_id=run_id)
            digests.append(run.waiting[0].digest)

    @tool(name="send", risk="write")
    def other(text: str, times: float = 1) -> str:
        """Send a text."""
        return text

    await look(GIVEN, run_id="r")
    await look(GIVEN, run_id="r")
    assert digests[0] == digests[1]
    await look({"tool": "send", "args": {"text": "y"}}, run_id="r")
    await look(GIVEN, run_id="s")
    await look(GIVEN, (other,), run_id="r")
    assert len(set(digests)) == 4


async def test_a_call_that_does_not_fit_or_has_no_tool_fails_before_anybody_is_asked() -> None:
    async with executing(tools=(send,)) as (executor, _):
        kind, message = error_of(await executor.start(calling, {"tool": "send", "args": {}}))
        assert (kind, "'text' is missing" in message) == ("AgentError", True)
        kind, message = error_of(await executor.start(calling, {"tool": "burn", "args": {}}))
        assert (kind, message) == ("AgentError", "confirm: 'burn' is not an available tool; choose one of: send")


@pytest.mark.parametrize("risk", get_args(Risk))
@pytest.mark.parametrize("above", [None, *get_args(Risk)])
async def test_only_calls_of_a_higher_risk_are_asked_about(risk: Risk, above: Risk | None) -> None:
    order = get_args(Risk)
    definition = calling.replace(it=Confirm(tool="tool", args="args", above=above))
    async with executing(tools=(send.with_(risk=risk),)) as (executor, _):
        run = await executor.start(definition, {"tool": "send", "args": {"text": "x", "times": "2"}})
    needs = above is None or order.index(risk) > order.index(above)
    assert (run.status, sent) == (("paused", []) if needs else ("completed", ["xx"]))


@pytest.mark.parametrize("risk", get_args(Risk))
@pytest.mark.parametrize("first", get_args(Risk))
async def test_only_calls_from_a_risk_on_are_asked_about(risk: Risk, first: Risk) -> None:
    order = get_args(Risk)
    definition = calling.replace(it=Confirm(tool="tool", args="args", from_risk=first))
    async with executing(tools=(send.with_(risk=risk),)) as (executor, _):
        run = await executor.start(definition, {"tool": "send", "args": {"text": "x"}})
    assert run.status == ("paused" if order.index(risk) >= order.index(first) else "completed")


class OfModel(Confirm.State):
    call: ToolCall = ToolCall(id="call_7", name="send", arguments={"text": "x"})
    message: Message | None = None


async def test_a_denial_is_the_result_of_the_models_call() -> None:
    confirm = Confirm(tool="tool", args="args", call="call", message="message")
    definition = Graph(
        name="g", state=OfModel, nodes={"it": confirm}, edges="START -> it\nit -> END : approved\nit -> END : denied"
    )
    for answer, told in ((Deny(reason="too dear"), "Error: the user denied this call: too dear"), (Approve(), None)):
        async with executing(tools=(send,)) as (executor, _):
            run, question = await asked(executor, definition, {"tool": "send", "args": {"text": "x"}})
            assert question.payload["call_id"] == "call_7"
            run = await executor.answer(run.run_id, question.id, answer)
        message = run.values["message"]
        assert (None if message is None else message["content"]) == told
        if message is not None:
            assert (message["tool_call_id"], message["data"]["exit_code"]) == ("call_7", 1)


async def test_the_prompt_may_name_the_call() -> None:
    confirm = Confirm(tool="tool", args="args", prompt="{tool} with {args} for {drafts}?", show=("drafts",))
    async with executing(tools=(send,)) as (executor, _):
        _, question = await asked(executor, graph(confirm), GIVEN)
    assert question.prompt == "send with {'text': 'x'} for ['one']?"
    assert question.payload["shown"] == {"drafts": ["one"]}


async def test_a_denied_call_can_fail_the_step() -> None:
    confirm = Confirm(tool="tool", args="args", on_denied="raise")
    async with executing(tools=(send,)) as (executor, _):
        run, question = await asked(executor, graph(confirm), GIVEN)
        run = await executor.answer(run.run_id, question.id, Deny(reason="no"))
    assert error_of(run) == ("UserDenied", "send with {'text': 'x'} was denied: no")


# -- building ------------------------------------------------------------------------------------------------------


def test_outcomes_follow_from_what_becomes_of_a_denial() -> None:
    assert Confirm().outcomes == ("approved", "denied")
    assert Confirm(on_denied="raise").outcomes == ("approved",)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tool": "tool"}, "tool= and args= belong together"),
        ({"args": "args"}, "tool= and args= belong together"),
        ({"above": "read"}, "above= is about a tool's risk"),
        ({"above": "huge", "tool": "tool", "args": "args"}, "Input should be"),
        ({"on_denied": "ignore"}, "Input should be"),
        ({"from_risk": "read"}, "from_risk= is about a tool's risk"),
        ({"from_risk": "read", "above": "read", "tool": "tool", "args": "args"}, "use one of them"),
        ({"call": "call", "tool": "tool", "args": "args"}, "call= and message= belong together"),
        ({"call": "call", "message": "message"}, "name all of them"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Confirm(**options)


class Other(BaseModel):
    name: str = "send"
    given: dict[str, JsonValue] = {"text": "x"}


async def test_ports_can_be_renamed() -> None:
    definition = Graph(
        name="other",
        state=Other,
        nodes={"it": Confirm(tool="name", args="given", on_denied="raise")},
        edges="START -> it -> END",
    )
    async with executing(tools=(send,)) as (executor, _):
        run, question = await asked(executor, definition, {})
        run = await executor.answer(run.run_id, question.id, Approve(args={"text": "y"}))
    assert run.values["given"] == {"text": "y"}
