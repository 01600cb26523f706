"""Forks of runs: what they contain, what they ask before calls that cannot be undone, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field

from orchestrator import Context, Executor, Graph, Limits, Outcome, Run, ToolCall, Update, append, node, tool
from orchestrator.errors import (
    GraphChanged,
    InvalidAnswer,
    InvalidMigration,
    InvalidUpdate,
    InvalidValue,
    QuestionUnknown,
    RunExists,
    RunUnknown,
    StaleAnswer,
    ToolsChanged,
)
from orchestrator.graph import Migration
from orchestrator.kernel.question import Approve, Deny, Question
from orchestrator.kernel.records import Asked, EffectIntended, EffectSettled, Record, Spent, StepDone, StepFailed
from orchestrator.kernel.status import Parent
from orchestrator.models import Reply
from orchestrator.nodes import Ask, Confirm, Execute
from orchestrator.render.terminal.tree import summary
from orchestrator.stores import Store
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from orchestrator.views.events import record_of
from orchestrator.views.history import points
from orchestrator.views.reader import read
from orchestrator.views.step_tree import StepTree
from tests.support.sizes import sized

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]


class Bill(BaseModel):
    amount: int = 1
    note: str = ""
    log: Annotated[list[str], append] = []


class Desk:
    """Tools, and what was really done by them."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.looked = 0
        self.fails = False

    def tools(self) -> list[Any]:
        @tool(effect="irreversible", risk="write")
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        @tool(effect="read", risk="read")
        async def look(what: str) -> str:
            """Look something up."""
            self.looked += 1
            if self.fails:
                raise ValueError("not there")
            return f"saw {what} {self.looked}"

        return [pay, look]


@node
async def first() -> Update:
    return {"log": "first"}


@node
async def pays(state: Bill, ctx: Context[Any]) -> Update:
    seen = await ctx.tool("look", what="account")
    paid = await ctx.tool("pay", amount=state.amount)
    return {"log": [f"{seen.output or seen.error}", f"{paid.output or paid.error}"][-1]}


@node
async def last() -> Update:
    return {"log": "last"}


BILL = Graph(
    name="bill", state=Bill, nodes={"first": first, "pays": pays, "last": last},
    edges="START -> first -> pays -> last -> END", output="log",
)  # fmt: skip


@node
async def left(state: Bill) -> Update:
    return {"log": f"left {state.note}"}


@node
async def right(state: Bill) -> Update:
    return {"log": f"right {state.note}"}


BRANCHES = Graph(
    name="branches", state=Bill,
    nodes={
        "first": first, "left": left, "right": right, "last": last.with_(join="all"),
        "ask": Ask(prompt="?", answer="note"),
    },
    edges="START -> ask -> first\nfirst -> left, right -> last -> END", output="log",
)  # fmt: skip


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def executor(store: Store, desk: Desk) -> AsyncIterator[Executor]:
    async with Executor(store, graphs=[BILL, BRANCHES], tools=desk.tools()) as found:
        yield found


async def seq_of(executor: Executor, run_id: str, kind: type[Any], **fields: Any) -> int:
    """The number of the first record of a type with these fields."""
    for record in await executor.store.read(run_id):
        if isinstance(record, kind) and all(getattr(record, name) == value for name, value in fields.items()):
            return record.seq
    raise AssertionError(f"no {kind.__name__} with {fields}")


def asked(run: Run) -> Question:
    (question,) = run.waiting
    return question


# -- what a fork contains and goes on from -----------------------------------------------------------------------------


async def test_a_fork_at_every_record_repeats_nothing_that_is_settled(executor: Executor, desk: Desk) -> None:
    parent = await executor.start(BILL, {}, run_id="r")
    records = await executor.store.read("r")
    for at in range(1, parent.seq):
        before, looked = list(desk.paid), desk.looked
        settled = [one.name for one in records[:at] if isinstance(one, EffectIntended) and _ends(records[:at], one.key)]
        fork = await executor.fork("r", at=at, run_id=f"f{at}")
        if fork.waiting:
            assert desk.paid == before
            question = asked(fork)
            assert question.payload["family"][0]["run"] == "r"  # type: ignore[index]
            assert question.payload["family"][0]["result"] == {"output": "paid 1"}  # type: ignore[index]
            assert "In run r it was called with the same arguments and returned" in question.prompt
            fork = await executor.answer(fork.run_id, question.id, Approve(), digest=question.digest)
        assert fork.output == parent.output
        assert (desk.paid == before) == ("pay" in settled)
        assert (desk.looked == looked) == ("look" in settled)
        assert (fork.parent.run_id, fork.parent.seq) == ("r", at)  # type: ignore[union-attr]
        assert fork.root_id == "r"
    found = await executor.forks.list("r")
    assert {info.run_id for info in found} == {f"f{at}" for at in range(1, parent.seq)}
    assert [info.run_id for info in parent.forks()] == [info.run_id for info in found]
    assert [info.parent for info in found] == [Parent("r", at, "fork") for at in range(parent.seq - 1, 0, -1)]


def _ends(records: list[Record], key: str) -> bool:
    return any(isinstance(one, EffectSettled) and one.key == key for one in records)


async def test_keys_of_calls_are_the_forks_own_and_keys_of_steps_its_roots(executor: Executor) -> None:
    await executor.start(BILL, {}, run_id="r")
    fork = await executor.fork("r", at=1)
    fork = await executor.answer(fork.run_id, asked(fork).id, Approve())
    again = await executor.fork(
        fork.run_id, at=await seq_of(executor, fork.run_id, EffectSettled, key_of="") if False else 1
    )
    again = await executor.answer(again.run_id, asked(again).id, Approve())
    journals = [await executor.store.read(name) for name in ("r", fork.run_id, again.run_id)]
    keys = [{one.key for one in journal if isinstance(one, EffectIntended)} for journal in journals]
    steps = [{one.activation for one in journal if isinstance(one, StepDone)} for journal in journals]
    assert len(set.union(*keys)) == 6
    assert steps[0] == steps[1] == steps[2]


async def test_usage_of_the_parent_is_inherited_and_counted_once(executor: Executor) -> None:
    parent = await executor.start(BILL, {}, run_id="r")
    at = await seq_of(executor, "r", StepDone, node="pays")
    fork = await executor.fork("r", at=at)
    assert (fork.inherited.steps, fork.inherited.calls) == (2, 2)
    assert (fork.usage.steps, fork.usage.calls, fork.steps) == (1, 0, 1)
    assert fork.machine.usage.steps == parent.usage.steps
    assert fork.to_json()["parent"] == {"run_id": "r", "seq": at, "relation": "fork"}
    tree = StepTree()
    read(fork.machine.plan, fork.records(), tree)
    assert summary(tree, 0.0, 100)[0].text.endswith("1 step · 2 steps inherited")
    assert (await executor.store.info(fork.run_id)).usage == fork.usage


async def test_inherited_usage_counts_against_limits(store: Store) -> None:
    graph = BILL.with_limits(Limits(steps=3))
    async with Executor(store, graphs=[graph], tools=Desk().tools()) as executor:
        await executor.start(graph, {}, run_id="r")
        fork = await executor.fork("r", at=await seq_of(executor, "r", StepDone, node="first"), update={"amount": 1})
        fork = await executor.answer(fork.run_id, asked(fork).id, Deny())
        assert fork.status == "completed"
        spent = await executor.fork("r", at=6, graph=graph.with_limits(Limits(steps=3)))
        assert spent.machine.usage.steps <= 3


async def test_a_fork_with_another_value_goes_on_from_it(executor: Executor, desk: Desk) -> None:
    await executor.start(BILL, {}, run_id="r")
    at = await seq_of(executor, "r", StepDone, node="first")
    fork = await executor.fork("r", at=at, update={"amount": 7, "log": ["set"]}, labels={"try": "2"})
    question = asked(fork)
    assert "with other arguments" in question.prompt
    assert question.payload["args"] == {"amount": 7}
    assert question.choices == ()
    fork = await executor.answer(fork.run_id, question.id, Approve())
    assert fork.output == ["set", "paid 7", "last"]
    assert fork.labels == {"try": "2"}
    assert desk.paid == [1, 7]
    assert (await executor.load("r")).output == ["first", "paid 1", "last"]


async def test_a_value_can_be_changed_though_the_step_paid_already(executor: Executor, desk: Desk) -> None:
    await executor.start(BILL, {}, run_id="r")
    at = (await seq_of(executor, "r", StepDone, node="pays")) - 1
    fork = await executor.fork("r", at=at, update={"amount": 5})
    assert "with other arguments" in asked(fork).prompt
    fork = await executor.answer(fork.run_id, asked(fork).id, Deny(reason="once is enough"))
    assert fork.output == ["first", "the user denied this call: once is enough", "last"]
    assert desk.paid == [1]


async def test_a_branch_is_edited_by_its_path(executor: Executor) -> None:
    await executor.start(BRANCHES, {}, run_id="r")
    run = await executor.answer("r", (await executor.load("r")).waiting[0].id, "x")
    assert run.output == ["first", "left x", "right x", "last"]
    at = await seq_of(executor, "r", StepDone, node="first")
    with pytest.raises(
        InvalidValue, match=r"name one, branch=\.\.\.; its branches: first\.0 \(left\), first\.1 \(right\)"
    ):
        await executor.fork("r", at=at, update={"note": "y"})
    with pytest.raises(InvalidValue, match=r"no branch 'left'.*first\.0 \(left\)"):
        await executor.fork("r", at=at, update={"note": "y"}, branch="left")
    with pytest.raises(InvalidValue, match="needs update="):
        await executor.fork("r", at=at, branch="first.0")
    fork = await executor.fork("r", at=at, update={"note": "y"}, branch="first.1")
    assert fork.output == ["first", "left x", "right y", "last"]


@pytest.mark.parametrize(
    ("update", "words"), [({"amuont": 2}, "no field 'amuont'"), ({"amount": "many"}, "field 'amount'")]
)
async def test_values_that_do_not_fit_are_refused(executor: Executor, update: dict[str, Any], words: str) -> None:
    await executor.start(BILL, {}, run_id="r")
    for other in (executor, Executor(executor.store)):  # also without the code of the graph
        with pytest.raises(InvalidUpdate, match=words):
            await other.fork("r", at=2, update=update, start=False)
    assert await executor.forks.list("r") == []


async def test_records_that_are_not_there_are_refused(executor: Executor) -> None:
    run = await executor.start(BILL, {}, run_id="r")
    for at, words in ((0, "has 1 to"), (99, "has 1 to"), (run.seq, "is the end"), (None, "name the record")):
        with pytest.raises(InvalidValue, match=words):
            await executor.fork("r", at=at)
    with pytest.raises(RunUnknown):
        await executor.fork("nothing")


async def test_a_fork_waits_to_be_resumed(executor: Executor, store: Store) -> None:
    await executor.start(BILL, {}, run_id="r")
    async with Executor(store) as looking:  # without code
        made = await looking.fork("r", at=2, start=False, run_id="f")
        assert (made.status, made.seq) == ("paused", 3)
        assert (await looking.load("f")).values["log"] == ["first"]
        assert [point.node for point in await looking.history("f")] == ["first"]
        assert "it is a fork of r, from record 2 on" in str((await looking.load("f")).why())
    run = await executor.resume("f")
    assert (await executor.answer("f", asked(run).id, "recorded")).output == ["first", "paid 1", "last"]


async def test_the_same_fork_twice_is_one_run_and_another_one_is_refused(executor: Executor, desk: Desk) -> None:
    await executor.start(BILL, {}, run_id="r")
    one = await executor.fork("r", at=2, run_id="f", update={"note": "a"})
    two = await executor.fork("r", at=2, run_id="f", update={"note": "a"})
    assert (one.run_id, two.status) == (two.run_id, "paused")
    for changes in ({"update": {"note": "b"}}, {"at": 3}, {"labels": {"a": "b"}}):
        with pytest.raises(RunExists, match="not this fork"):
            await executor.fork("r", **{"at": 2, "run_id": "f", "update": {"note": "a"}, **changes})  # type: ignore[arg-type]
    with pytest.raises(RunExists, match="is a fork"):
        await executor.start(BILL, {}, run_id="f")
    with pytest.raises(RunExists):
        await executor.fork("r", at=2, run_id="r")
    assert desk.paid == [1]


class Invoice(BaseModel):
    """A later version of the state: `amount` became `cents`, and `due` is new and has no default."""

    cents: int = 100
    note: str = ""
    due: str
    log: Annotated[list[str], append] = []


@node
async def settles(state: Invoice, ctx: Context[Any]) -> Update:
    return {"log": f"settled {state.cents} {state.due}"}


LATER = Graph(
    name="bill", state=Invoice, nodes={"first": first, "settles": settles, "last": last},
    edges="START -> first -> settles -> last -> END", output="log",
)  # fmt: skip
MOVE = Migration(nodes={"pays": "settles"}, state={"cents": "amount", "due": lambda old: f"soon {old['note']}"})


async def test_a_fork_moves_to_a_version_that_its_parent_does_not_fit(executor: Executor, store: Store) -> None:
    await executor.start(BILL, {"amount": 7}, run_id="r")
    fork = await executor.fork("r", at=2, graph=LATER, migrate=MOVE, update={"note": "now"}, run_id="f")
    assert (fork.status, fork.output) == ("completed", ["first", "settled 7 soon now", "last"])
    assert (
        await executor.fork("r", at=2, graph=LATER, migrate=MOVE, update={"note": "now"}, run_id="f")
    ).seq == fork.seq
    with pytest.raises(RunExists, match="not this fork"):
        await executor.fork("r", at=2, graph=LATER, migrate=replace(MOVE, drop=["note"]), run_id="f")
    async with Executor(store) as looking:  # without any code, also at every record before the end
        for seq in range(1, fork.seq + 1):
            await looking.load("f", at=seq)
        assert [point.node for point in await looking.history("f")] == ["first", "settles", "last"]
    async with Executor(store, graphs=[LATER]) as later:
        kept = await later.fork("r", at=2, migrate=MOVE, run_id="g", start=False)
        assert (kept.values["cents"], kept.status) == (7, "paused")
        assert (await later.resume("g", accept_changes=True)).output == ["first", "settled 7 soon ", "last"]
    assert (await executor.load("r")).values["amount"] == 7


async def test_a_fork_that_cannot_be_made_says_how_it_can_and_is_not_there(executor: Executor, store: Store) -> None:
    await executor.start(BILL, {"amount": 7}, run_id="r")
    for given, fault, said in (
        (
            {"graph": LATER},
            GraphChanged,
            r"fork\('r', at=2, graph='bill', migrate=Migration\(nodes=.*'pays': 'settles'",
        ),
        ({"graph": LATER, "migrate": Migration(nodes={"pays": "nosuch"})}, InvalidMigration, "no node 'nosuch'"),
        ({"graph": LATER, "migrate": replace(MOVE, state={"cents": "nosuch"})}, InvalidMigration, "no field 'nosuch'"),
        ({"graph": LATER, "migrate": MOVE, "update": {"due": "x"}}, InvalidUpdate, "no field 'due'"),
        ({"graph": BRANCHES, "migrate": MOVE}, InvalidValue, "not in 'branches'"),
    ):
        with pytest.raises(fault, match=said) as refused:
            await executor.fork("r", at=2, **given)  # type: ignore[arg-type]
        assert "resume" not in str(refused.value), "there is no run to resume"
    assert [info.run_id for info in (await executor.runs()).runs] == ["r"]
    with pytest.raises(GraphChanged) as refused:
        await executor.replay("r", LATER, at=2)
    assert "orchestrator" not in str(refused.value)


async def test_branches_of_a_fork_are_moved_with_their_values(executor: Executor) -> None:
    run = await executor.start(BRANCHES, {}, run_id="r")
    run = await executor.answer("r", asked(run).id, "old")
    at = await seq_of(executor, "r", StepDone, node="first")
    nodes = {"first": first, "one": left, "right": right, "last": last.with_(join="all"), "ask": BRANCHES.nodes["ask"]}
    edges = "START -> ask -> first\nfirst -> one, right -> last -> END"
    later = Graph(name="branches", state=Bill, nodes=nodes, edges=edges, output="log")
    fork = await executor.fork(
        "r", at=at, graph=later, migrate=Migration(nodes={"left": "one"}), update={"note": "new"}, branch="first.0"
    )
    assert fork.output == ["first", "left new", "right old", "last"]


async def test_a_fork_with_changed_tools_says_how_it_can_be_made(store: Store, desk: Desk) -> None:
    async with Executor(store, graphs=[BILL], tools=desk.tools()) as executor:
        await executor.start(BILL, {}, run_id="r")
    async with Executor(store, graphs=[BILL]) as executor:
        with pytest.raises(ToolsChanged, match=r"fork\('r', at=2, start=False\)"):
            await executor.fork("r", at=2)
        fork = await executor.fork("r", at=2, run_id="f", start=False)
        with pytest.raises(ToolsChanged, match=r"accept_changes=True"):
            await executor.resume(fork.run_id)


async def test_runs_that_ended_otherwise_go_on_in_a_fork(store: Store, desk: Desk) -> None:
    @node
    async def breaks(state: Bill) -> Update:
        if state.note != "mended":
            raise ValueError("broken")
        return {"log": "mended"}

    graph = Graph(
        name="breaks", state=Bill, nodes={"first": first, "breaks": breaks},
        edges="START -> first -> breaks -> END", output="log", limits=Limits(steps=5),
    )  # fmt: skip
    async with Executor(store, graphs=[graph, BRANCHES]) as executor:
        assert (await executor.start(graph, {}, run_id="failed")).status == "failed"
        failed = await seq_of(executor, "failed", StepFailed)
        for at in (None, failed - 1, failed, failed + 1):
            fork = await executor.fork("failed", at=at, update={"note": "mended"})
            assert fork.output == ["first", "mended"]
            assert fork.parent is not None
            assert fork.parent.seq == (at or failed)
        spent = await executor.start(graph, {}, run_id="spent", limits=Limits(steps=1))
        assert spent.status == "exhausted"
        assert (await executor.fork("spent")).status == "exhausted"
        await executor.start(BRANCHES, {}, run_id="cancelled")
        await executor.cancel("cancelled")
        fork = await executor.fork("cancelled")
        assert (await executor.answer(fork.run_id, asked(fork).id, "x")).output == [
            "first",
            "left x",
            "right x",
            "last",
        ]
        assert (await executor.fork("failed")).status == "failed"


async def test_a_paused_run_is_given_fresh_input_in_a_fork(executor: Executor) -> None:
    await executor.start(BRANCHES, {}, run_id="r")
    fork = await executor.fork("r", update={"log": ["before"]}, answers={(await executor.load("r")).waiting[0].id: "y"})
    assert fork.output == ["before", "first", "left y", "right y", "last"]
    assert (await executor.load("r")).status == "paused"
    with pytest.raises(QuestionUnknown):
        await executor.fork("r", answers={"nothing": 1})


async def test_an_answer_for_the_parent_does_not_fit_the_fork(executor: Executor) -> None:
    run = await executor.start(BRANCHES, {}, run_id="r")
    fork = await executor.fork("r")
    assert (asked(fork).id, asked(fork).digest != asked(run).digest) == (asked(run).id, True)
    with pytest.raises(StaleAnswer):
        await executor.answer(fork.run_id, asked(run).id, "x", digest=asked(run).digest)


async def test_a_running_run_is_forked_at_its_last_durable_record(store: Store) -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    @node
    async def waits() -> Update:
        begun.set()
        await go_on.wait()
        return {"log": "waited"}

    graph = Graph(name="waits", state=Bill, nodes={"first": first, "waits": waits},
                  edges="START -> first -> waits -> END", output="log")  # fmt: skip
    async with Executor(store, graphs=[graph]) as executor:
        await executor.submit(graph, {}, run_id="r")
        await begun.wait()
        made = await executor.fork("r", start=False, update={"log": ["other"]})
        go_on.set()
        assert (await executor.resume(made.run_id)).output == ["other", "waited"]
        assert (await executor.wait("r")).output == ["first", "waited"]


class Tasks(Bill):
    tasks: list[dict[str, Any]] = Field(default_factory=list)


@node
async def works(state: Tasks, item: dict[str, Any]) -> Update:
    return {"log": f"{item['id']} {state.note}"}


async def test_items_that_wait_for_others_are_not_edited_and_see_the_edits_of_those(store: Store) -> None:
    graph = Graph(
        name="items", state=Tasks, nodes={"first": first, "works": works, "last": last.with_(join="all")},
        edges="START -> first\nfirst -> works : each tasks\nworks -> last -> END", output="log",
    )  # fmt: skip
    tasks = [{"id": "1", "needs": ["2"]}, {"id": "2", "needs": []}]
    async with Executor(store, graphs=[graph]) as executor:
        await executor.start(graph, {"tasks": tasks}, run_id="r")
        with pytest.raises(InvalidValue, match="has not started"):
            await executor.fork("r", at=2, update={"note": "x"}, branch="first.0")
        fork = await executor.fork("r", at=2, update={"note": "x"}, branch="first.1")
        assert fork.output == ["first", "2 x", "1 x", "last"]


# -- results and answers that are replaced -----------------------------------------------------------------------------


async def test_a_result_is_replaced(executor: Executor, desk: Desk) -> None:
    await executor.start(BILL, {}, run_id="r")
    at = (await seq_of(executor, "r", StepDone, node="pays")) - 1
    for result in ("paid nothing", {"output": "paid nothing"}):
        fork = await executor.fork("r", at=at, result=result)
        assert fork.output == ["first", "paid nothing", "last"]
    with pytest.raises(InvalidValue, match="is step_done, not effect_settled"):
        await executor.fork("r", at=at + 1, result="x")
    assert desk.paid == [1]


async def test_the_reply_of_a_model_is_replaced(store: Store) -> None:
    @node
    async def says(ctx: Context[Any]) -> Update:
        return {"log": (await ctx.model.complete("hello")).text}

    graph = Graph(name="says", state=Bill, nodes={"says": says}, edges="START -> says -> END", output="log")
    async with Executor(store, graphs=[graph], model=ScriptedModel(["one"])) as executor:
        await executor.start(graph, {}, run_id="r")
        at = await seq_of(executor, "r", EffectSettled)
        assert (await executor.fork("r", at=at, result="two")).output == ["two"]
        with pytest.raises(InvalidValue, match="must be a string or a reply"):
            await executor.fork("r", at=at, result=3)


async def test_an_answer_is_replaced(executor: Executor) -> None:
    run = await executor.start(BRANCHES, {}, run_id="r")
    await executor.answer("r", asked(run).id, "x")
    at = (await seq_of(executor, "r", Asked)) + 1
    fork = await executor.fork("r", at=at, answer="z")
    assert fork.output == ["first", "left z", "right z", "last"]
    with pytest.raises(InvalidAnswer, match="replaces an answer"):
        await executor.fork("r", at=1, answer="z")
    with pytest.raises(InvalidAnswer, match="not both"):
        await executor.fork("r", at=at, answer="z", result="z")


# -- calls that cannot be undone ---------------------------------------------------------------------------------------


async def test_the_result_of_another_run_can_be_taken(executor: Executor, desk: Desk) -> None:
    await executor.start(BILL, {}, run_id="r")
    fork = await executor.fork("r", at=2)
    question = asked(fork)
    assert question.choices == ("recorded",)
    with pytest.raises(InvalidAnswer, match="takes Approve"):
        await executor.answer(fork.run_id, question.id, "something")
    with pytest.raises(InvalidAnswer, match="cannot be changed"):
        await executor.answer(fork.run_id, question.id, Approve(args={"amount": 3}))
    fork = await executor.answer(fork.run_id, question.id, "recorded")
    assert fork.output == ["first", "paid 1", "last"]
    assert desk.paid == [1]


async def test_a_fork_of_a_fork_that_asks_is_asked_once(executor: Executor, desk: Desk) -> None:
    await executor.start(BILL, {}, run_id="r")
    fork = await executor.fork("r", at=2)
    again = await executor.fork(fork.run_id)
    assert asked(again).id != asked(fork).id
    again = await executor.answer(again.run_id, asked(again).id, Approve())
    assert (again.status, desk.paid) == ("completed", [1, 1])


async def test_what_became_of_a_call_of_the_parent_is_no_question_of_the_fork(store: Store) -> None:
    begun, paid = anyio.Event(), list[int]()

    @tool(effect="irreversible", risk="none")
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        begun.set()
        if len(paid) == 1:
            await anyio.sleep_forever()
        return f"paid {amount}"

    desk = Desk()
    async with Executor(store, graphs=[BILL], tools=[pay, *desk.tools()[1:]]) as executor:
        await executor.submit(BILL, {}, run_id="r")
        await begun.wait()
    async with Executor(store, graphs=[BILL], tools=[pay, *desk.tools()[1:]]) as executor:
        parent = await executor.resume("r")
        assert asked(parent).kind == "unknown_outcome"
        fork = await executor.fork("r")
        assert "it was called with the same arguments and may have happened" in asked(fork).prompt
        assert asked(fork).choices == ()
        fork = await executor.answer(fork.run_id, asked(fork).id, Approve())
        assert fork.output == ["first", "paid 1", "last"]
        assert paid == [1, 1]


async def test_no_policy_answers_what_a_fork_asks(executor: Executor, desk: Desk) -> None:
    await executor.start(BILL, {}, run_id="r", approve="dangerous")
    fork = await executor.fork("r", at=2)
    assert fork.status == "paused"
    assert (await executor.resume(fork.run_id, approve="dangerous")).status == "paused"
    assert desk.paid == [1]


async def test_a_fork_of_a_deleted_run_asks_and_says_so(executor: Executor, desk: Desk) -> None:
    await executor.start(BILL, {}, run_id="r")
    fork = await executor.fork("r", at=2, start=False)
    await executor.delete("r")
    fork = await executor.resume(fork.run_id)
    assert "Run r, which it comes from, is deleted" in asked(fork).prompt
    assert asked(fork).payload["deleted"] == ["r"]  # type: ignore[index]
    assert fork.parent is not None
    assert fork.parent.run_id == "r"
    assert [info.run_id for info in await executor.forks.list("r")] == [fork.run_id]
    again = await executor.fork(fork.run_id, at=2)  # it does not contain that its parent is a fork, too
    assert asked(again).payload["deleted"] == ["r"]  # type: ignore[index]


async def test_a_call_that_no_relative_made_is_asked_about_too(executor: Executor, desk: Desk) -> None:
    desk.fails = False
    await executor.start(BRANCHES, {}, run_id="other")
    made = await executor.start(BILL, {}, run_id="r")
    fork = await executor.fork("r", at=1, update={"amount": 2})
    fork = await executor.answer(fork.run_id, asked(fork).id, Deny())
    assert made.status == fork.status == "completed"
    sibling = await executor.fork("r", at=1, update={"amount": 2})
    prompts = asked(sibling).prompt
    assert "In run r it was called with other arguments" in prompts
    assert desk.paid == [1]


class Call(Confirm.State, Execute.State):
    log: Annotated[list[str], append] = Field(default_factory=list)


@node
def tells(state: Call) -> Update:
    return {"log": str(state.result and (state.result.output or state.result.error))}


def confirmed(name: str = "pay") -> Graph:
    @node
    def choose() -> Update:
        return {"tool": name, "args": {"amount": 4} if name == "pay" else {"what": "safe"}}

    return Graph(
        name=f"confirmed {name}".replace(" ", "_"), state=Call,
        nodes={
            "choose": choose, "confirm": Confirm(tool="tool", args="args"), "execute": Execute(on_failure="observe"),
            "tells": tells,
        },
        edges="""
            START   -> choose -> confirm
            confirm -> execute : approved
            confirm -> tells   : denied
            execute -> tells -> END
        """,
        output="log",
    )  # fmt: skip


async def test_an_approval_counts_in_a_fork_only_if_its_call_was_made(store: Store, desk: Desk) -> None:
    for name in ("pay", "look"):
        graph = confirmed(name)
        async with Executor(store, graphs=[graph], tools=desk.tools()) as executor:
            run = await executor.start(graph, {}, run_id=name)
            run = await executor.answer(name, asked(run).id, Approve())
            assert run.status == "completed"
            for at in range(1, run.seq):
                fork = await executor.fork(name, at=at)
                made = at >= await seq_of(executor, name, EffectSettled)
                assert fork.status == ("completed" if made else "paused"), at
                while fork.waiting:
                    question = asked(fork)
                    assert question.kind == "approval"
                    fork = await executor.answer(fork.run_id, question.id, Approve(), digest=question.digest)
                assert fork.output == run.output or name == "look"


async def test_what_a_person_approved_in_the_fork_is_not_asked_twice_if_nobody_made_it(
    store: Store, desk: Desk
) -> None:
    graph = confirmed()
    async with Executor(store, graphs=[graph], tools=desk.tools()) as executor:
        run = await executor.start(graph, {}, run_id="r")
        await executor.cancel("r")
        fork = await executor.fork("r", at=2)
        fork = await executor.answer(fork.run_id, asked(fork).id, Approve())
        assert (fork.status, desk.paid) == ("completed", [4])
        second = await executor.fork("r", at=2)
        second = await executor.answer(second.run_id, asked(second).id, Approve())
        assert f"In run {fork.run_id} it was called" in asked(second).prompt
        assert run.status == "paused"


async def test_irreversible_effects_and_nodes_are_asked_about_as_tools_are(store: Store) -> None:
    done: list[str] = []

    @node
    async def effect(ctx: Context[Any]) -> Update:
        return {
            "log": await ctx.effect("send", lambda: done.append("effect") or "sent", returns=str, effect="irreversible")
        }

    @node(effect="irreversible")
    async def whole() -> Update:
        done.append("node")
        return {"log": "whole"}

    graph = Graph(name="sends", state=Bill, nodes={"effect": effect, "whole": whole},
                  edges="START -> effect -> whole -> END", output="log")  # fmt: skip
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, {}, run_id="r")
        assert done == ["effect", "node"]
        fork = await executor.fork("r", at=1)
        assert asked(fork).payload["tool"] == "send"
        fork = await executor.answer(fork.run_id, asked(fork).id, "recorded")
        assert asked(fork).payload["tool"] == "whole"
        fork = await executor.answer(fork.run_id, asked(fork).id, Approve())
        assert fork.output == run.output
        assert done == ["effect", "node", "node"]


# -- how it is seen ----------------------------------------------------------------------------------------------------


async def test_events_and_pages_of_a_fork_show_it_as_a_run_of_its_own(executor: Executor) -> None:
    await executor.start(BILL, {}, run_id="r")
    fork = await executor.fork("r", at=4)
    events = [event async for event in executor.events(fork.run_id)]
    assert {event.run_id for event in events} == {fork.run_id}
    assert [record_of(event) for event in events] == list(await executor.store.read(fork.run_id))
    assert "forked" in [event.type for event in events]
    styled = [event async for event in executor.events(fork.run_id, style="embedia")]
    assert {event.run_id for event in styled} == {fork.run_id}
    assert fork.run_id in fork.to_html()
    assert len(points(fork.machine.plan, fork.records())) == 1


class Count(BaseModel):
    n: int = 0


@node
def count(state: Count) -> Outcome[Literal["again", "enough"]]:
    return Outcome("again" if state.n < 4 else "enough", n=state.n + 1)


async def test_a_long_family_of_forks(store: Store) -> None:
    graph = Graph(name="counts", state=Count, nodes={"count": count},
                  edges="START -> count\ncount -> count : again\ncount -> END : enough", output="n")  # fmt: skip
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, {}, run_id="r0")
        for number in range(1, 5):
            run = await executor.fork(f"r{number - 1}", at=2 * number - 1, update={"n": 0}, run_id=f"r{number}")
            assert (run.output, run.root_id) == (5, "r0")
        assert [fork.parent for fork in run.machine.forks] == ["r0", "r1", "r2", "r3"]
        assert run.inherited.steps + run.steps == run.machine.steps


# -- runs of graphs that are tools -------------------------------------------------------------------------------------


def nested(paid: list[str]) -> tuple[Graph, list[Any]]:
    """A graph that calls another one as a tool, which looks something up, asks, pays twice, and says so."""

    @tool(effect="irreversible", risk="none")
    async def charge(what: str) -> str:
        """Charge."""
        paid.append(what)
        return f"charged {what}"

    @node
    async def charges(ctx: Context[Any]) -> Update:
        return {"log": str((await ctx.tool("charge", what="one")).output)}

    @node
    async def charges_more(ctx: Context[Any]) -> Update:
        return {"log": str((await ctx.tool("charge", what="two")).output)}

    inner = Graph(
        name="inner", state=Bill,
        nodes={"charges": charges, "ask": Ask(prompt="?", answer="note"), "more": charges_more},
        edges="START -> charges -> ask -> more -> END", input="note", output="log",
    )  # fmt: skip

    @node
    async def calls(ctx: Context[Any]) -> Update:
        return {"log": str((await ctx.tool("inner", note="n")).output)}

    outer = Graph(name="outer", state=Bill, nodes={"first": first, "calls": calls, "last": last},
                  edges="START -> first -> calls -> last -> END", output="log")  # fmt: skip
    return outer, [charge, inner.as_tool("inner", "x", risk="none")]


async def answered(executor: Executor, run: Run) -> tuple[Run, list[str]]:
    """Answer all that a run asks; the prompts of what it asked before calls."""
    prompts: list[str] = []
    while run.waiting:
        question = run.waiting[0]
        if question.kind == "approval":
            prompts.append(question.prompt)
        answer = Approve() if question.kind == "approval" else "yes"
        run = await executor.answer(run.run_id, question.id, answer, digest=question.digest)
    return run, prompts


async def test_a_run_inside_is_forked_where_its_parents_journal_left_it(store: Store) -> None:
    paid: list[str] = []
    outer, tools = nested(paid)
    async with Executor(store, graphs=[outer], tools=tools) as executor:
        parent, _ = await answered(executor, await executor.start(outer, {}, run_id="r"))
        assert parent.output == ["first", "['charged one', 'charged two']", "last"]
        assert paid == ["one", "two"]
        # The journal of the caller says how far the run inside is: where it begins a call that lasts, and behind it.
        _, charged, _, ended = [one.seq for one in await store.read("r") if isinstance(one, Spent)]
        for at, record in enumerate(await store.read("r"), 1):
            if at == parent.seq:
                break
            if at % sized(3, 1) and at not in (charged - 1, charged, ended - 1, ended):
                continue
            before = len(paid)
            fork, prompts = await answered(executor, await executor.fork("r", at=at, run_id=f"f{at}"))
            assert fork.output == parent.output, record
            made = paid[before:]
            assert len(prompts) == len(made)
            assert all("In run" in prompt and "it was called with the same arguments" in prompt for prompt in prompts)
            assert made == (["one", "two"] if at < charged else ["two"] if at < ended else []), record
            assert fork.usage.calls + fork.inherited.calls == fork.machine.usage.calls


# -- behind a spent limit ----------------------------------------------------------------------------------------------


async def test_a_fork_at_the_last_step_behind_a_limit_has_the_same_result_and_calls_nothing() -> None:
    desk = Desk()
    look = Reply(text="I look.", tool_calls=(ToolCall(id="1", name="look", arguments={"what": "it"}),))
    with ScriptedModel({"think": [look], "conclude": ["fin", "later"]}) as model:
        async with Executor(model=model, tools=desk.tools()) as executor:
            run = await executor.start(react(max_steps=1, last_answer=True), "What is it?")
            assert (run.status, run.output) == ("exhausted", "fin")
            end = len([event async for event in executor.events(run.run_id)])
            for last in (end - 2, end - 1):  # before and behind the node that reads the answer
                made = await executor.fork(run.run_id, at=last, start=False)
                assert made.state == (await executor.load(run.run_id, at=last)).state
                for fork in (await executor.resume(made.run_id), await executor.fork(run.run_id, at=last)):
                    assert (fork.status, fork.output, fork.usage.calls) == ("exhausted", "fin", 0)
                    assert (await executor.replay(fork.run_id)).run.output == "fin"
                assert (await executor.replay(run.run_id, at=last)).run.output == "fin"
            with pytest.raises(InvalidValue, match="is over at record"):
                await executor.fork(run.run_id, at=end - 1, update={"answer": "x"})
            assert (len(model.requests), desk.looked) == (2, 1)
            again = await executor.fork(run.run_id)  # at the end: from before the limit
            assert (again.status, again.output, len(model.requests)) == ("exhausted", "later", 3)
