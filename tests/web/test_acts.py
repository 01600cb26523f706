"""What has the effect of an answer needs the right to answer and the digest of what was shown, and leaves a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator import Approve, Context, Deny, Executor, Graph, node, tool
from orchestrator.errors import StaleAnswer
from orchestrator.views.causes import Causes
from orchestrator.views.reader import read
from orchestrator.views.step_tree import StepTree
from orchestrator.views.timeline import Timeline
from tests.web.api import Api, Note, api, letter, payment, plan
from tests.web.test_outcomes import Bank


@node
async def call(state: Note, ctx: Context) -> dict[str, str]:
    """The call that was planned."""
    return {"parts": str((await ctx.tool("pay", **state.args)).output)}


spending = Graph(
    name="spending", state=Note, input="topic", output="parts", nodes={"plan": plan, "call": call},
    edges="START -> plan -> call -> END",
)  # fmt: skip
ANN, DEV = {"x-user": "ann"}, {"x-user": "dev"}


class Rules:
    """Developers do all but approve calls above risk `read`; what was asked is noted."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, str, bool]] = []

    def __call__(self, request: Any, action: str, run: Any) -> str | None:
        act, user = request.state.act, request.headers["x-user"]
        self.asked.append((user, action, act.tool, act.risk, act.redact))
        if user == "dev" and ((action == "answer_question" and act.question is not None) or not act.redact):
            return None
        return str(user)


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def server(rules: Rules) -> Iterator[Api]:
    with api(payment, letter, settings={"authorize": rules}) as found:
        yield found


def ask(server: Api, user: dict[str, str], path: str, status: int, **body: Any) -> Any:
    answer = server.client.post(f"/api/{path}", json=body, headers=user)
    assert answer.status_code == status, answer.text
    return answer.json()


def begun(server: Api, run_id: str) -> Any:
    run = ask(server, ANN, "runs", 201, graph="payment", input="shop", run_id=run_id, wait=True)
    (question,) = run["waiting"]
    return question


def records(server: Api, run_id: str) -> Any:
    return server.client.get(f"/api/runs/{run_id}/records", headers=ANN).json()["records"]


def denied(server: Api, run_id: str) -> tuple[int, Any]:
    question = begun(server, run_id)
    ask(server, ANN, f"runs/{run_id}/answer", 200, question=question["id"], digest=question["digest"], deny=True)
    server.portal.call(server.executor.wait, run_id, 60)
    return next(one["seq"] for one in records(server, run_id) if one["type"] == "answered"), question


@pytest.mark.full
def test_who_may_not_answer_does_not_fork_or_replay_with_an_answer(server: Api, rules: Rules) -> None:
    question = begun(server, "one")
    yes = {"approve": True, "digest": question["digest"]}
    ask(server, DEV, "runs/one/answer", 403, question=question["id"], **yes)
    assert ("dev", "answer_question", "pay", "write", True) in rules.asked
    ask(server, DEV, "runs/one/fork", 403, answers={question["id"]: yes}, run_id="f")
    at, question = denied(server, "two")
    yes = {"approve": True, "digest": question["digest"]}
    ask(server, DEV, "runs/two/fork", 403, at=at, answer=yes, run_id="f")
    ask(server, DEV, "runs/two/replay", 403, at=at, answer=yes, run_id="f")
    ask(server, DEV, "runs/two/replay", 403, answer=yes, run_id="f")
    assert server.client.get("/api/runs/f", headers=ANN).status_code == 404
    ask(server, DEV, "runs/two/fork", 201, at=at, run_id="g", by="dev")
    assert [one["by"] for one in records(server, "g") if one["type"] == "forked"] == ["dev"]


def test_an_answer_with_a_fork_needs_the_digest_of_what_was_shown(server: Api) -> None:
    question = begun(server, "one")
    other = {"approve": True, "digest": "another"}
    ask(server, ANN, "runs/one/fork", 422, answers={question["id"]: {"approve": True}}, run_id="f")
    ask(server, ANN, "runs/one/fork", 409, answers={question["id"]: other}, run_id="f")
    ask(server, ANN, "runs/one/fork/preview", 409, answers={question["id"]: other})
    at, _ = denied(server, "two")
    for path in ("runs/two/fork", "runs/two/replay"):
        ask(server, ANN, path, 422, at=at, answer={"approve": True}, run_id="f")
        ask(server, ANN, path, 409, at=at, answer=other, run_id="f")
    assert server.client.get("/api/runs/f", headers=ANN).status_code == 404


def test_a_fork_and_a_replay_name_who_answered(server: Api) -> None:
    question = begun(server, "one")
    yes = {"approve": True, "digest": question["digest"]}
    ask(server, ANN, "runs/one/fork", 403, answers={question["id"]: yes}, by="bob")
    ask(server, ANN, "runs/one/fork", 201, answers={question["id"]: yes}, run_id="f")
    assert [one["by"] for one in records(server, "f") if one["type"] in ("forked", "answered")] == ["ann", "ann"]
    at, question = denied(server, "two")
    yes = {"approve": True, "digest": question["digest"]}
    ask(server, ANN, "runs/two/replay", 201, at=at, answer=yes, run_id="r", live="always")
    assert [one["by"] for one in records(server, "r") if one["type"] == "forked"] == ["ann"]


def test_a_start_and_a_resume_name_who_asked_for_them(server: Api) -> None:
    begun(server, "one")
    ask(server, ANN, "runs/one/pause", 200)
    ask(server, DEV, "runs/one/resume", 200)
    assert [(one["type"], one.get("by", "")) for one in records(server, "one")] == [
        ("run_started", "ann"), ("step_done", ""), ("asked", ""), ("paused", "ann"), ("resumed", "dev")
    ]  # fmt: skip


def answer(server: Api, run_id: str, status: int, **said: Any) -> None:
    run = server.client.get(f"/api/runs/{run_id}", headers=ANN).json()
    (question,) = run["waiting"]
    ask(server, ANN, f"runs/{run_id}/answer", status, question=question["id"], digest=question["digest"], **said)


def test_the_tool_and_risk_of_a_call_that_a_replay_makes_are_asked_about(rules: Rules) -> None:
    with api(spending, settings={"authorize": rules}) as server:
        ask(server, ANN, "runs", 201, graph="spending", input="shop", run_id="one", wait=True)
        ask(server, ANN, "runs/one/replay", 201, at=1, update={"topic": "mallory"}, live="ask", run_id="again")
        answer(server, "again", 200, approve=True)
    assert rules.asked[-1] == ("ann", "answer_question", "pay", "write", True)


def test_the_risk_of_a_call_whose_outcome_is_unknown_is_asked_about(rules: Rules) -> None:
    with api(*Bank().graphs, settings={"authorize": rules}) as server:
        for name, risk in (("text", "dangerous"), ("work", "")):  # a node has no risk
            ask(server, ANN, "runs", 201, graph=name, input={}, run_id=name, wait=True)
            answer(server, name, 200, value="failed")
            assert rules.asked[-1] == ("ann", "answer_question", name, risk, True)


def test_secrets_in_an_export_are_asked_about(server: Api, rules: Rules) -> None:
    begun(server, "one")
    assert server.client.get("/api/runs/one/export?redact=false", headers=DEV).status_code == 403
    assert server.client.get("/api/runs/one/export", headers=DEV).status_code == 200
    assert server.client.get("/api/runs/one/export?redact=false", headers=ANN).status_code == 200
    assert ("ann", "export_run", "", "", False) in rules.asked


@tool(risk="dangerous", effect="irreversible")
def pay(amount: int, to: str) -> str:
    """Pay."""
    return "paid"


@pytest.mark.anyio
async def test_why_and_show_name_who_decided_what_is_in_force() -> None:
    async with Executor(tools=[pay]) as executor:
        run = await executor.start(payment, "shop", run_id="one")
        question = run.waiting[0]
        run = await executor.answer("one", question.id, Deny(reason="never"), by="ann")
        at = next(one.seq for one in await executor.store.read("one") if one.type == "answered")
        with pytest.raises(StaleAnswer):
            await executor.fork("one", at=at, answer=Approve(), by="bob", digests=["another"])
        fork = await executor.fork("one", at=at, answer=Approve(), by="bob", digests=[question.digest])
        assert (run.status, fork.values["parts"]) == ("completed", ["finished"])
        decided = [step for step in await executor.history(fork.run_id) if step.node == "confirm"]
        assert "bob: approved" in str(fork.why(decided[-1].seq).to_json())
        assert "ann" not in str(fork.why(decided[-1].seq).to_json())
        causes, tree = Causes(), StepTree()
        timeline = Timeline(causes)
        read(fork.machine.plan, await executor.store.read(fork.run_id), causes, timeline, tree)
        rows = [row for row in timeline.rows if row.node == "confirm"]
        assert [(one.by, one.answer) for row in rows for one in row.asked] == [("bob", Approve())]
        assert [step.by for step in tree.top.steps if step.node == "confirm"] == ["by bob"]
