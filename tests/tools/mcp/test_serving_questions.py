"""Questions of the runs of `orchestrator serve-mcp`, which the client shows to its user, in both generations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator import Approve, Executor
from orchestrator.cli.mcp_questions import form_of
from orchestrator.kernel.question import Question
from orchestrator.kernel.records import Answered
from tests.tools.mcp.serving import called, serving

if TYPE_CHECKING:
    from mcp import Client

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
ACCEPT: dict[str, Any] = {"action": "accept"}


@asynccontextmanager
async def asked(
    mode: Any, *said: dict[str, Any], store: str = "memory://", **options: Any
) -> AsyncIterator[tuple[Client, Executor, list[Any]]]:
    """A client whose user gives these answers, one after the other; and the forms that were shown."""
    from mcp import Client
    from mcp.types import ElicitResult

    shown: list[Any] = []
    answers = iter(said)

    async def show(ctx: Any, params: Any) -> Any:
        shown.append(params)
        return ElicitResult.model_validate(next(answers))

    async with (
        serving(store, **options) as (graphs, executor),
        Client(graphs.server(), mode=mode, elicitation_callback=show) as client,
    ):
        yield client, executor, shown


@ERAS
async def test_an_approval_is_a_form(mode: str) -> None:
    approve = {**ACCEPT, "content": {"decision": "approve"}}
    async with asked(mode, approve) as (client, executor, shown):
        text, document, failed = await called(client, "doing-now", question="ask")
        assert (text, failed, document["status"]) == ("did ask", False, "completed")
        (form,) = shown
        assert "approval at work" in form.message
        assert "Really?" in form.message
        assert form.requested_schema["properties"]["decision"]["enum"] == ["approve", "deny"]
        assert form.requested_schema["required"] == ["decision"]
        records = await executor.store.read(document["run_id"])
        (answer,) = [one for one in records if isinstance(one, Answered)]
        assert (answer.answer, answer.by[:18]) == (Approve(), "user of MCP client")


@ERAS
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ({**ACCEPT, "content": {"decision": "deny", "reason": "no"}}, "refused ask"),
        ({"action": "decline"}, "refused ask"),
    ],
)
async def test_it_can_be_refused(mode: str, said: dict[str, Any], answer: str) -> None:
    async with asked(mode, said) as (client, _, _):
        assert (await called(client, "doing-now", question="ask"))[0] == answer


@ERAS
async def test_a_form_that_is_closed_leaves_the_run_paused(mode: str) -> None:
    again = {**ACCEPT, "content": {"decision": "approve"}}
    async with asked(mode, {"action": "cancel"}, again) as (client, _, shown):
        text, document, failed = await called(client, "doing-now", question="ask")
        assert (failed, document["status"]) == (False, "paused")
        assert "approve" in document["waiting"][0]["command"]
        assert "Only a person may decide this" in text
        # Whoever asks for the result later asks the user again.
        assert (await called(client, "run_result", run_id=document["run_id"]))[0] == "did ask"
        assert len(shown) == 2


@ERAS
@pytest.mark.parametrize(
    ("question", "content", "answer"),
    [
        ("object", {"town": "Bonn", "nights": 2}, "got {'town': 'Bonn', 'nights': 2} for object"),
        ("object", {"town": "Bonn"}, "got {'town': 'Bonn'} for object"),
        ("number", {"answer": 3}, "got 3 for number"),
        ("list", {"answer": "[1, 2]"}, "got [1, 2] for list"),
    ],
)
async def test_an_input_is_a_form_by_its_schema(mode: str, question: str, content: object, answer: str) -> None:
    async with asked(mode, {**ACCEPT, "content": content}) as (client, _, _):
        assert (await called(client, "doing-now", question=question))[0] == answer


@ERAS
async def test_a_wrong_answer_is_asked_for_again_with_the_reason(mode: str) -> None:
    said = [{**ACCEPT, "content": one} for one in ({}, {"answer": 0}, {"answer": 7})]
    async with asked(mode, *said) as (client, _, shown):
        assert (await called(client, "doing-now", question="number"))[0] == "got 7 for number"
        missing, small = (one.message.partition("\n")[0] for one in shown[1:])
        assert missing == "Not accepted: the field 'answer' is missing"
        assert small.endswith("at least 1, not 0")


@ERAS
async def test_several_rounds_are_one_run(mode: str) -> None:
    said = [{**ACCEPT, "content": one} for one in ({"decision": "approve"}, {"answer": 4})]
    async with asked(mode, *said) as (client, executor, _):
        assert (await called(client, "doing-now", question="twice"))[0] == "got 4 for twice"
        assert len((await executor.runs()).runs) == 1


@ERAS
async def test_nothing_is_asked_with_no_ask_or_about_a_secret(mode: str) -> None:
    async with asked(mode, asks=False) as (client, _, shown):
        assert (await called(client, "doing-now", question="ask"))[1]["status"] == "paused"
        assert shown == []
    async with asked(mode) as (client, _, shown):
        for question in ("secret", "inner secret"):
            assert (await called(client, "doing-now", question=question))[1]["status"] == "paused"
        assert shown == []


async def test_a_round_goes_on_after_a_restart_and_only_once(tmp_path: Path) -> None:
    from mcp import Client
    from mcp.types import ElicitResult, InputRequiredResult

    store = f"sqlite:///{tmp_path / 'runs.db'}"

    async def never(ctx: Any, params: Any) -> Any:
        raise AssertionError

    async def raw(client: Client, **options: Any) -> Any:
        return await client.session.call_tool("doing-now", {"question": "ask"}, allow_input_required=True, **options)

    async with serving(store) as (graphs, _), Client(graphs.server(), elicitation_callback=never) as client:
        first = await raw(client)
        assert isinstance(first, InputRequiredResult)
        ((key, request),) = (first.input_requests or {}).items()
        assert request.method == "elicitation/create"
    async with serving(store) as (graphs, executor), Client(graphs.server(), elicitation_callback=never) as client:
        answers = {key: ElicitResult(action="accept", content={"decision": "approve"})}
        # Without an answer it is asked again; a state of another run, or of none, is refused.
        assert isinstance(await raw(client, request_state=first.request_state), InputRequiredResult)
        assert "no run 'x'" in (await raw(client, request_state="x", input_responses=answers)).content[0].text
        for _ in range(2):
            done = await raw(client, request_state=first.request_state, input_responses=answers)
            assert done.content[0].text == "did ask"
        assert len((await executor.runs()).runs) == 1


def test_only_the_exact_word_approves() -> None:
    question = Question(id="q", kind="approval", node="n", digest="d")
    form = form_of(question)
    assert form is not None
    for decision in (1, True, "Approve", "yes", ["approve"]):
        with pytest.raises(ValueError, match="'decision' is neither 'approve' nor 'deny'"):
            form.answer("accept", {"decision": decision})
    assert form.answer("accept", {"decision": "approve"}) == Approve()
    assert form.answer("other", {"decision": "approve"}) is None


def test_an_outcome_is_a_form() -> None:
    question = Question(id="q", kind="unknown_outcome", node="n", digest="d", payload={"tool": "pay"})
    form = form_of(question)
    assert form is not None
    assert form.fields["outcome"]["enum"] == ["happened", "failed", "retry"]
    with pytest.raises(ValueError, match="the outcome 'happened' needs the field 'result'"):
        form.answer("accept", {"outcome": "happened"})
    with pytest.raises(ValueError, match="'outcome' is none of happened, failed, retry"):
        form.answer("accept", {"outcome": "x"})
    happened: Any = form.answer("accept", {"outcome": "happened", "result": "[1]"})
    failed: Any = form.answer("accept", {"outcome": "failed"})
    assert (happened.value, failed.value) == ({"choice": "happened", "result": [1]}, "failed")
