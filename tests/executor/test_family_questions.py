"""What a fork says about a call before it makes it: which run made the call, and what became of it there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestrator import Executor, Run
from orchestrator.kernel.question import Approve, Deny
from orchestrator.kernel.records import EffectIntended, EffectSettled
from orchestrator.stores import Store
from tests.executor.test_forking import BILL, Desk, asked, seq_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def executor(store: Store, desk: Desk) -> AsyncIterator[Executor]:
    async with Executor(store, graphs=[BILL], tools=desk.tools()) as found:
        yield found


def known(run: Run) -> list[tuple[Any, ...]]:
    """The calls that the question of a fork shows: run, record, status and result."""
    payload: Any = asked(run).payload
    return [(one["run"], one["seq"], one["status"], one.get("result")) for one in payload["family"]]


async def intent(executor: Executor, run_id: str) -> int:
    """The record with which the run's call began that cannot be undone."""
    return await seq_of(executor, run_id, EffectIntended, name="pay")


async def result(executor: Executor, run_id: str) -> int:
    records = await executor.store.read(run_id)
    key = next(one.key for one in records if isinstance(one, EffectIntended) and one.name == "pay")
    return next(one.seq for one in records if isinstance(one, EffectSettled) and one.key == key)


async def test_a_fork_of_a_fork_with_another_result_names_the_run_that_made_the_call(executor: Executor) -> None:
    await executor.start(BILL, {}, run_id="r")
    called, settled = await intent(executor, "r"), await result(executor, "r")
    fork = await executor.fork("r", at=settled, result="edited", run_id="f")
    assert fork.output == ["first", "edited", "last"]
    for parent in ("f", "r"):
        again = await executor.fork(parent, at=called - 1)
        assert known(again) == [("r", called, "returned", {"output": "paid 1"})]
        taken = await executor.answer(again.run_id, asked(again).id, "recorded")
        assert taken.output == ["first", "paid 1", "last"]


async def test_a_fork_taken_in_a_call_knows_from_its_parent_how_it_ended(executor: Executor, desk: Desk) -> None:
    await executor.start(BILL, {}, run_id="r")
    called = await intent(executor, "r")
    fork = await executor.fork("r", at=called, run_id="f")
    assert known(fork) == [("r", called, "returned", {"output": "paid 1"})]
    again = await executor.fork("f", at=called)
    assert known(again) == [("r", called, "returned", {"output": "paid 1"})]
    assert desk.paid == [1]


async def test_a_call_of_a_deleted_run_is_known_from_its_fork_by_its_name(executor: Executor) -> None:
    await executor.start(BILL, {}, run_id="r")
    called, settled = await intent(executor, "r"), await result(executor, "r")
    await executor.fork("r", at=settled, run_id="f")
    await executor.delete("r")
    again = await executor.fork("f", at=called - 1)
    assert known(again) == [("r", called, "returned", {"output": "paid 1"})]


async def test_a_result_that_was_taken_over_is_no_call(executor: Executor) -> None:
    await executor.start(BILL, {}, run_id="r")
    called = await intent(executor, "r")
    fork = await executor.fork("r", at=called - 1, run_id="f")
    await executor.answer("f", asked(fork).id, "recorded")
    assert (await executor.replay("r")).same
    assert (await executor.replay("f")).same
    again = await executor.fork("f", at=called - 1)
    assert known(again) == [("r", called, "returned", {"output": "paid 1"})]
    paid = await executor.answer(again.run_id, asked(again).id, Approve())
    more = await executor.fork("r", at=called - 1)
    own = await intent(executor, paid.run_id)
    assert {(one[0], one[1]) for one in known(more)} == {("r", called), (paid.run_id, own)}


async def test_a_call_that_a_replay_did_not_make_is_no_call(store: Store, desk: Desk) -> None:
    async with Executor(store, graphs=[BILL], tools=desk.tools()) as executor:
        await executor.start(BILL, {}, run_id="r")
        called = await intent(executor, "r")
        open_ = await executor.fork("r", at=called - 1, run_id="open")
        refused = await executor.replay("open", live="always")
        assert refused.status == "paused"
        await executor.answer(refused.run.run_id, asked(refused.run).id, Deny(reason="no"))
        other = await executor.replay("r", update={"amount": 2})
        assert (other.status, other.made) == ("diverged", 0)
        again = await executor.fork("open", at=called - 1)
        assert known(again) == known(open_) == [("r", called, "returned", {"output": "paid 1"})]
