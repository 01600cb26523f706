"""Recorded runs as data, and what they had answered with another prompt."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, node, tool
from orchestrator.errors import InvalidInput, InvalidValue
from orchestrator.evaluation import Case, RecordedRuns, Row, counterfactual, evaluate
from orchestrator.models import ModelRequest, Reply
from orchestrator.nodes import Confirm
from tests.evaluation.graphs import Counted, direct
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


class Mail(BaseModel):
    """The state of a mail that is drafted, and then signed."""

    topic: str = ""
    draft: str = ""
    mail: str = ""


def mails(prompt: str = "Sign", first: str = "Draft") -> Graph:
    """Draft a mail, then sign it; only the prompts of the two calls can change."""

    @node
    async def draft(state: Mail, ctx: Context) -> dict[str, str]:
        return {"draft": (await ctx.model.complete(f"{first} {state.topic}")).text}

    @node
    async def sign(state: Mail, ctx: Context) -> dict[str, str]:
        return {"mail": (await ctx.model.complete(f"{prompt} {state.draft}")).text}

    return Graph(
        name="mails", state=Mail, input="topic", output="mail", nodes={"draft": draft, "sign": sign},
        edges="START -> draft -> sign -> END",
    )  # fmt: skip


class Odd(Counted):
    """Changes every third answer if it is asked politely."""

    async def respond(self, request: ModelRequest) -> Reply:
        reply = await super().respond(request)
        polite = "please" in request.messages[-1].content and int(reply.text[1:]) % 3 == 0
        return reply.model_copy(update={"text": f"Dear {reply.text}"}) if polite else reply


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


async def record(url: str, count: int) -> None:
    """Record runs, of which people kept the even ones and rejected the third; one has a right answer."""
    async with Executor(url, graphs=[mails()], model=Counted("then")) as executor:
        for at in range(count):
            await executor.start("mails", f"m{at}", run_id=f"run-{at}", labels={"team": "a" if at < 5 else "b"})
            if at % 2 == 0:
                await executor.notes.write(f"run-{at}", score=1.0, by="ann")
        await executor.notes.write("run-3", "too short", score=0.0, by="ann")
        await executor.notes.write("run-5", "m5!", score=0.2, name="expected", by="ann")


async def test_recorded_runs_are_rows_with_the_answers_that_people_kept(url: str) -> None:
    await record(url, 6)
    async with Executor(url, graphs=[mails()], model=Counted()) as executor:
        await executor.fork("run-0", at=1, run_id="fork")
        await executor.replay("run-1", replay_id="replay")
    runs = RecordedRuns("mails", url)
    rows = [one async for one in runs.entries() if isinstance(one, Row)]
    assert [(one.key, one.input, one.expected) for one in rows] == [
        ("run-5", "m5", "m5!"), ("run-4", "m4", "m4"), ("run-2", "m2", "m2"), ("run-1", "m1", "m1"),
        ("run-0", "m0", "m0"),
    ]  # fmt: skip
    assert "1 runs whose answers people rejected were left out" in runs.remarks[0]
    some = RecordedRuns("mails", url, labels={"team": "a"}, limit=2)
    assert [one.key async for one in some.entries() if isinstance(one, Row)] == ["run-4"]  # the other was rejected
    model = Counted(wrong="m2")
    found = await evaluate(RecordedRuns("mails", url), direct(), models=model, store=url)
    assert (found.name, found.variants[0].accuracy, len(model.requests)) == ("runs of mails", 0.6, 5)
    assert {one.row for one in found.wrong} == {"run-2", "run-5"}
    assert any("rejected" in line for line in found.notes())
    again = await evaluate(RecordedRuns("mails", url), direct(), models=model, store=url)
    assert (again.cases, again.taken) == (5, 5)  # runs of an evaluation are no data


async def test_a_changed_prompt_pays_only_for_what_changed_and_names_the_answers(url: str) -> None:
    count = sized(12, 100)
    await record(url, count)
    model = Odd("now")
    found = await counterfactual(RecordedRuns("mails", url), mails("Sign, please,"), model=model, budget=1000)
    changed = {f"run-{at}" for at in range(0, count, 3)}
    assert (found.runs, found.same, found.changed_count) == (count, count - len(changed), len(changed))
    assert {one.run_id for one in found.changed} == changed
    one = next(one for one in found.changed if one.run_id == "run-6")
    assert (one.before, one.after, one.people, one.status) == ("m6", "Dear m6", "kept", "completed")
    # Of the two calls of each run the first one came from its journal.
    assert len(model.requests) == count
    assert (found.paid.calls, found.paid.cost) == (count, float(count))
    assert (found.saved.calls, found.saved.cost) == (count, float(count))
    kept = {f"run-{at}" for at in range(0, count, 2)}
    assert (found.kept, found.kept_same) == (len(kept), len(kept - changed))
    assert (found.rejected, found.rejected_changed) == (2, 1)
    assert "run-6: 'm6' -> 'Dear m6'" in found.to_text()
    assert found.to_json()["changed_count"] == len(changed)
    again = await counterfactual(RecordedRuns("mails", url), mails("Sign, please,"), model=model)
    assert (len(model.requests), again.changed) == (count, found.changed)


async def test_another_model_is_asked_anew_and_a_repetition_says_that_it_paid_before(url: str) -> None:
    await record(url, 6)
    runs, polite = RecordedRuns("mails", url), mails("Sign, please,")
    names = set()
    for model in (Counted("plain"), Odd("odd"), Counted("named")):
        given = {"models": {"big": model}} if model.name == "named" else {"model": model}
        graph = polite.with_model("big") if model.name == "named" else polite
        found = await counterfactual(runs, graph, **given)  # type: ignore[arg-type]
        assert (len(model.requests) >= 6, found.changed_count > 0, found.taken) == (True, model.name == "odd", 0)
        assert "settled before" not in found.to_text()
        names.add(found.name)
        again = await counterfactual(runs, graph, **given)  # type: ignore[arg-type]
        assert (again.name, again.paid, again.taken) == (found.name, found.paid, 6)
        assert "6 of 6 replays were settled before" in again.to_text()
    assert len(names) == 3
    other = await counterfactual(runs, polite, model=Counted("plain"), models={"big": Counted("other")})
    assert other.taken == 0


async def test_an_unchanged_graph_pays_nothing_and_a_scorer_says_what_counts_as_the_same(url: str) -> None:
    await record(url, 6)
    same = await counterfactual(RecordedRuns("mails", url), mails(), model=None)
    assert (same.same, same.paid.calls, same.saved.calls, same.share_kept) == (6, 0, 12, 1.0)

    def ends(case: Case) -> bool:
        return case.text.endswith(str(case.row.expected))

    found = await counterfactual(RecordedRuns("mails", url), mails("Sign, please,"), model=Odd(), scorer=ends)
    assert (found.same, found.changed) == (6, ())


async def test_what_replays_cannot_use_is_said(url: str) -> None:
    await record(url, 6)
    runs = RecordedRuns("mails", url)
    for wrong in ({"concurrency": 0}, {"budget": -1.0}):
        with pytest.raises(InvalidValue, match="use "):
            await counterfactual(runs, mails(), model=Odd(), **wrong)
    with pytest.raises(InvalidInput, match="has no completed runs"):
        await counterfactual(RecordedRuns("mails", url, labels={"team": "z"}), mails(), model=Odd())

    def broken(case: Case) -> bool:
        raise ZeroDivisionError("oh")

    found = await counterfactual(runs, mails("Sign, please,"), model=Odd(), scorer=broken)
    assert found.failed_count == 2  # those with another answer
    assert all("scorer 'broken' failed at row" in one.why and "oh" in one.why for one in found.failed)


async def test_a_budget_stops_replays_in_time_and_a_larger_one_continues(url: str) -> None:
    await record(url, 6)
    model = Odd()
    found = await counterfactual(RecordedRuns("mails", url), mails("Sign, please,"), model=model, budget=3)
    assert (len(model.requests), found.stopped) == (3, "the budget of 3 is spent")
    await counterfactual(RecordedRuns("mails", url), mails("Sign, please,"), model=model, budget=3)
    assert len(model.requests) == 6
    with pytest.raises(InvalidValue, match="is unknown"):
        await counterfactual(RecordedRuns("mails", url), mails(), model=Counted(priced=False), budget=3)


async def test_what_replays_had_paid_before_a_budget_stopped_them_is_said(url: str) -> None:
    await record(url, 6)
    model, both = Counted(), mails("Sign, please,", "Draft, please,")
    for budget, requests in ((5, 5), (50, 12)):  # the first part ends within replays, after the first of two calls
        found = await counterfactual(RecordedRuns("mails", url), both, model=model, budget=budget)
        assert (len(model.requests), found.paid.cost) == (requests, float(requests))


async def test_a_list_is_the_one_answer_of_a_recorded_run(url: str) -> None:
    class Words(BaseModel):
        text: str
        words: list[str] = []

    @node
    def split(state: Words) -> dict[str, object]:
        return {"words": state.text.split()}

    graph = Graph(
        name="split", state=Words, input="text", output="words", nodes={"split": split}, edges="START -> split -> END"
    )
    async with Executor(url, graphs=[graph]) as executor:
        for text in ("a b", " "):
            await executor.start("split", text)
    for scorer in ("exact", "contains", "json"):
        kept = RecordedRuns("split", url, limit=1 if scorer == "contains" else None)
        found = await evaluate(kept, graph, scorers=scorer, store=url, name=scorer)
        assert (found.variants[0].accuracy, found.wrong) == (1.0, ()), scorer


async def test_a_call_that_cannot_be_undone_waits_for_a_person(url: str) -> None:
    sent: list[str] = []

    @tool(risk="write", effect="irreversible")
    def send(text: str) -> str:
        """Send."""
        sent.append(text)
        return "sent"

    def sending(prompt: str) -> Graph:
        @node
        async def write(state: Mail, ctx: Context) -> dict[str, object]:
            return {"draft": (await ctx.model.complete(f"{prompt} {state.topic}")).text}

        @node
        async def go(state: Mail, ctx: Context) -> dict[str, str]:
            return {"mail": str((await ctx.tool("send", text=f"{prompt}: {state.draft}")).output)}

        return Graph(
            name="sending", state=Mail, input="topic", output="mail",
            nodes={"write": write, "ask": Confirm(prompt="Send?"), "go": go},
            edges="START -> write -> ask\nask -> go : approved\nask -> END : denied\ngo -> END",
        )  # fmt: skip

    async with Executor(url, graphs=[sending("a")], model=Counted(), tools=[send]) as executor:
        await executor.start("sending", "m1", run_id="one", approve="dangerous")
        run = await executor.load("one")
        if run.status == "paused":
            from orchestrator import Approve

            await executor.answer("one", run.waiting[0].id, Approve())
    asked = len(sent)
    found = await counterfactual(RecordedRuns("sending", url), sending("b"), model=Counted(), tools=[send])
    assert (found.runs, found.same, len(sent)) == (1, 0, asked)
    assert found.failed[0].status == "paused"
