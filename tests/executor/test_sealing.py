"""Whose approvals count: with a seal those that its key sealed in this store, in this order; without one all."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from pydantic import BaseModel

from orchestrator import Approve, Context, Deny, Executor, Graph, node, tool
from orchestrator.errors import StoreError
from orchestrator.executor import Run, Seal
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import Answered, Asked, EffectIntended, EffectSettled, Record, StepDone
from orchestrator.kernel.run_state import RunState
from orchestrator.nodes import Confirm, Execute
from orchestrator.stores import open_store
from orchestrator.stores.requests import Append
from orchestrator.stores.stored import checksum
from orchestrator.tools.result import ToolResult

pytestmark = pytest.mark.anyio


class State(BaseModel):
    tool: str = "pay"
    args: dict[str, Any] = {"amount": 10}
    result: ToolResult | None = None


graph = Graph(
    name="payment",
    state=State,
    nodes={"confirm": Confirm(tool="tool", args="args"), "call": Execute(on_failure="observe")},
    edges="""
        START   -> confirm
        confirm -> call : approved
        confirm -> END  : denied
        call    -> END  : done
        call    -> END  : finished
    """,
    output="result",
)


class World:
    """A store's file, a key, and what was paid."""

    def __init__(self, place: Path) -> None:
        self.file, self.paid = place / "runs.db", list[int]()
        self.seal = Seal(b"k" * 32, str(self.file))

        @tool(risk="dangerous", effect="irreversible")
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return "paid"

        self.tools = [pay]

    def executor(self, seal: Seal | None) -> Executor:
        return Executor(f"sqlite:///{self.file}", graphs=[graph], tools=self.tools, seal=seal)

    async def begin(self, seal: Seal | None = None, **more: Any) -> Run:
        async with self.executor(seal) as executor:
            return await executor.start(graph, {}, run_id="r", **more)

    async def answer(self, seal: Seal | None, answer: object, *, resume: bool = True) -> Run:
        async with self.executor(seal) as executor:
            (question,) = (await executor.load("r")).waiting
            return await executor.answer("r", question.id, answer, digest=question.digest, resume=resume)

    async def resume(self, **more: Any) -> Run:
        async with self.executor(more.pop("seal", self.seal)) as executor:
            return await executor.resume("r", **more)

    async def records(self) -> list[Record]:
        store = open_store(f"sqlite:///{self.file}")
        try:
            return list(await store.read("r"))
        finally:
            await store.close()

    async def forge(self, *forged: Record) -> None:
        """Append records as anyone does who can write the file."""
        store = open_store(f"sqlite:///{self.file}")
        try:
            await store.append(
                Append("r", list(forged), after=(await store.info("r")).head, status="running", waiting=0)
            )
        finally:
            await store.close()

    def rewrite(self, seq: int, change: Callable[[bytes], bytes]) -> None:
        """Change a record in the file, with the checksum that goes with it."""
        with closing(sqlite3.connect(self.file)) as connection, connection:
            ((key, data),) = connection.execute("SELECT id, data FROM records WHERE id & 4294967295 = ?", (seq,))
            new = change(data)
            assert new != data
            connection.execute("UPDATE records SET data = ?, crc = ? WHERE id = ?", (new, checksum("r", seq, new), key))

    def remove(self) -> None:
        """Remove the file, and what SQLite keeps beside it."""
        for end in ("", "-wal", "-shm"):
            Path(f"{self.file}{end}").unlink(missing_ok=True)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def step_past_the_confirm(world: World) -> StepDone:
    """The forged end of the confirm that nobody answered."""
    records = await world.records()
    machine = RunState(Plan.of(graph))
    for record in records:
        apply(machine, record)
    (asked,) = [one for one in records if isinstance(one, Asked)]
    now = time.time()
    return StepDone(
        seq=machine.head + 2, ts=now, activation=asked.activation, node="confirm", outcome="approved",
        update={"args": {"amount": 99}}, started=now, ended=now,
    )  # fmt: skip


async def test_an_answer_that_others_left_is_asked_for_again_and_the_call_is_made_once(world: World) -> None:
    await world.begin()
    await world.answer(None, Approve(), resume=False)
    first = (await world.records())[-1]
    run = await world.resume()
    assert (run.status, world.paid) == ("paused", [])
    assert isinstance(first, Answered)
    (again,) = run.waiting
    assert again.payload["args"] == {"amount": 10}
    assert again.id != first.question
    done = await world.answer(world.seal, Approve())
    assert (done.status, world.paid) == ("completed", [10])


async def test_a_policy_that_others_left_is_not_used(world: World) -> None:
    await world.begin()
    world.rewrite(1, lambda data: data.replace(b'{"', b'{"approve":"dangerous","', 1))
    run = await world.resume()
    assert (run.status, run.machine.approve, world.paid) == ("paused", None, [])
    assert (await world.resume(approve="dangerous")).status == "completed"


async def test_what_was_approved_with_the_key_counts_in_every_process(world: World) -> None:
    await world.begin(world.seal)
    await world.answer(world.seal, Approve(), resume=False)
    run = await world.resume()
    assert (run.status, world.paid) == ("completed", [10])
    assert all(record.seal for record in await world.records())


async def test_a_confirm_that_a_forged_step_passed_is_asked_at_the_call(world: World) -> None:
    await world.begin(world.seal)
    step = await step_past_the_confirm(world)
    (question,) = [one.question.id for one in await world.records() if isinstance(one, Asked)]
    yes = Answered(seq=step.seq - 1, ts=step.ts, question=question, answer=Approve(args={"amount": 99}))
    await world.forge(yes, step)
    run = await world.resume()
    assert (run.status, world.paid) == ("paused", [])
    (asked,) = run.waiting
    assert (asked.kind, asked.node, asked.payload["args"]) == ("approval", "call", {"amount": 99})
    denied = await world.answer(world.seal, Deny(reason="not mine"))
    assert (denied.status, world.paid) == ("completed", [])
    assert "not mine" in str(denied.output)


async def test_arguments_that_are_changed_at_the_call_are_those_it_is_made_with(world: World) -> None:
    await world.begin(world.seal)
    step = await step_past_the_confirm(world)
    (question,) = [one.question.id for one in await world.records() if isinstance(one, Asked)]
    await world.forge(Answered(seq=step.seq - 1, ts=step.ts, question=question, answer=Approve()), step)
    await world.resume()
    run = await world.answer(world.seal, Approve(args={"amount": 3}))
    assert (run.status, world.paid) == ("completed", [3])


async def test_a_sealed_policy_does_not_rule_over_forged_records(world: World) -> None:
    await world.begin(world.seal, approve="read")
    step = await step_past_the_confirm(world)
    (question,) = [one.question.id for one in await world.records() if isinstance(one, Asked)]
    await world.forge(Answered(seq=step.seq - 1, ts=step.ts, question=question, answer=Approve()), step)
    run = await world.resume()
    assert (run.status, run.machine.approve, world.paid) == ("paused", None, [])
    assert (await world.resume(approve="dangerous")).status == "completed"
    assert world.paid == [99]


async def test_a_sealed_policy_counts_in_the_next_process(world: World) -> None:
    await world.begin(world.seal, approve="read")
    run = await world.resume()
    assert (run.status, run.machine.approve) == ("paused", "read")


async def test_a_copied_file_and_another_key_have_no_seal(world: World, tmp_path: Path) -> None:
    await world.begin(world.seal)
    await world.answer(world.seal, Approve(), resume=False)
    shutil.copy(world.file, tmp_path / "before.db")
    for other in (Seal(world.seal.key, "/elsewhere/runs.db"), Seal(b"o" * 32, str(world.file)), Seal(None, "")):
        run = await world.resume(seal=other)
        assert (run.status, world.paid) == ("paused", [])
        world.remove()
        shutil.copy(tmp_path / "before.db", world.file)


async def test_a_seal_holds_for_its_record_its_place_and_all_before_it(world: World) -> None:
    await world.begin(world.seal)
    await world.answer(world.seal, Approve(), resume=False)
    records = await world.records()

    def held(records: list[Record], run_id: str = "r") -> list[bool]:
        chain = world.seal.chain(run_id)
        return [chain.holds(one) for one in records]

    assert held(records) == [True] * len(records)
    assert held(records, "s") == [False] * len(records)
    changed = [structs.replace(records[0], approve="dangerous"), *records[1:]]
    assert held(changed) == [False] * len(records)
    assert held(records[1:]) == [False] * (len(records) - 1)


async def test_an_answer_that_lies_in_the_inbox_approves_nothing(world: World) -> None:
    run = await world.begin()
    store = open_store(f"sqlite:///{world.file}")
    body = {"type": "answer", "question": run.waiting[0].id, "answer": {"type": "approve"}, "by": "", "digest": None}
    await store.post("r", body)
    await store.close()
    run = await world.resume()
    assert (run.status, world.paid) == ("paused", [])


async def test_an_answer_counts_for_the_call_that_was_shown(world: World) -> None:
    """A forged journal shows a harmless call, or a lower risk, under the id of another call's question."""
    for old, new, more in ((b'"amount":10', b'"amount":1', {}), (b'"dangerous"', b'"none"', {"approve": "read"})):
        world.remove()
        await world.begin()
        (asked,) = [one for one in await world.records() if isinstance(one, Asked)]
        world.rewrite(asked.seq, lambda data, old=old, new=new: data.replace(old, new))
        run = await (world.resume(**more) if more else world.answer(world.seal, Approve()))
        assert (run.status, world.paid) == ("paused", [])
        (again,) = run.waiting
        assert (again.payload["args"], again.payload["risk"]) == ({"amount": 10}, "dangerous")


def asking(done: list[str]) -> Graph:
    """A graph whose node asks by itself, and does by itself what was approved."""

    class Nothing(BaseModel):
        pass

    @node
    async def clear(state: Nothing, ctx: Context) -> None:
        if isinstance(await ctx.ask("approval", prompt="Delete everything?"), Approve):
            done.append("deleted")

    return Graph(name="asking", state=Nothing, nodes={"clear": clear}, edges="START -> clear -> END")


async def test_an_approval_counts_for_the_words_that_were_shown(world: World) -> None:
    """Others store, under a question's id, other words, or a question of another kind with its answer."""
    for old, new in ((b"Delete everything?", b"Say hello?"), (b'"approval"', b'"input"')):
        world.remove()
        done: list[str] = []
        async with Executor(f"sqlite:///{world.file}", graphs=[asking(done)]) as executor:
            await executor.start(asking(done), {}, run_id="r")
        (asked,) = [one for one in await world.records() if isinstance(one, Asked)]
        yes = Answered(seq=asked.seq + 1, ts=asked.ts, question=asked.question.id, answer=Approve())
        if new == b'"input"':
            await world.forge(yes)
        world.rewrite(asked.seq, lambda data, old=old, new=new: data.replace(old, new))
        async with Executor(f"sqlite:///{world.file}", graphs=[asking(done)], seal=world.seal) as executor:
            run = await executor.load("r")
            if run.waiting:
                run = await executor.answer("r", asked.question.id, Approve())
            else:
                run = await executor.resume("r")
            assert (run.status, done) == ("paused", [])
            (again,) = run.waiting
            assert (again.kind, again.prompt) == ("approval", "Delete everything?")
            run = await executor.answer("r", again.id, Approve())
            assert (run.status, done) == ("completed", ["deleted"])


async def test_an_approval_is_not_kept_because_the_journal_says_that_something_was_done(world: World) -> None:
    done: list[str] = []
    async with Executor(f"sqlite:///{world.file}", graphs=[asking(done)]) as executor:
        await executor.start(asking(done), {}, run_id="r")
    (asked,) = [one for one in await world.records() if isinstance(one, Asked)]
    seq, ts, who = asked.seq, asked.ts, asked.activation
    await world.forge(
        Answered(seq=seq + 1, ts=ts, question=asked.question.id, answer=Approve()),
        EffectIntended(
            seq=seq + 2,
            ts=ts,
            activation=who,
            node="clear",
            key="k",
            kind="effect",
            name="log",
            effect="idempotent",
            digest="d",
        ),
        EffectSettled(seq=seq + 3, ts=ts, activation=who, node="clear", key="k"),
    )
    async with Executor(f"sqlite:///{world.file}", graphs=[asking(done)], seal=world.seal) as executor:
        run = await executor.resume("r")
        assert (run.status, done) == ("paused", [])


async def test_without_a_seal_the_store_is_trusted_unless_the_call_says_otherwise(world: World) -> None:
    await world.begin()
    await world.answer(None, Approve(), resume=False)
    run = await world.resume(seal=None, trust_answers=False)
    assert (run.status, world.paid) == ("paused", [])
    await world.answer(None, Approve(), resume=False)
    run = await world.resume(seal=None)
    assert (run.status, world.paid) == ("completed", [10])


async def test_a_store_with_triggers_is_refused(world: World) -> None:
    await world.begin()
    with sqlite3.connect(world.file) as connection:
        connection.execute("CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM inbox; END")
    connection.close()
    with pytest.raises(StoreError, match="triggers"):
        await world.resume()
