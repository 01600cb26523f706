"""Functions that are called about runs once their records are durable."""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from orchestrator import Context, Executor, Run, Update, node
from orchestrator.stores import open_store
from orchestrator.stores.base import Store
from orchestrator.stores.requests import ClaimRequest
from orchestrator.stores.rows import NOTICE
from tests.executor.test_streams import Gate, asking, asks
from tests.support.executors import Log, chain, says
from tests.support.programs import run as run_program
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio


class Diary:
    """An observer that notes what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int]] = []
        self.runs: list[Run] = []

    async def __call__(self, run: Run, seq: int) -> None:
        assert run.seq == seq
        self.calls.append((run.run_id, run.status, seq))
        self.runs.append(run)


async def notices(store: Store, run_id: str = "r") -> int:
    """How many notices lie in the inbox of a run."""
    return len([one for one in await store.inbox([run_id]) if one.body.get("type") == NOTICE])


async def test_an_observer_is_called_when_records_are_durable_and_when_the_run_has_ended(store: Store) -> None:
    diary = Diary()
    async with Executor(store, observers=[diary]) as executor:
        run = await executor.start(chain(says("a"), says("b")), run_id="r")
    assert diary.calls[0][0] == "r"
    assert diary.calls[-1] == ("r", "completed", run.seq)
    seqs = [seq for _, _, seq in diary.calls]
    assert seqs == sorted(seqs)
    assert diary.runs[-1].output == ["a", "b"]
    assert len(diary.runs[-1].records()) == run.seq
    assert not await notices(store)


async def test_observers_see_runs_that_are_reopened_and_forked(store: Store) -> None:
    broken = True

    @node
    async def flaky(state: Log) -> Update:
        if broken:
            raise LookupError("broken")
        return {"log": "b"}

    diary = Diary()
    async with Executor(store, observers=[diary]) as executor:
        assert (await executor.start(chain(says("a"), flaky), run_id="r")).status == "failed"
        broken = False
        run = await executor.resume("r", retry=True)
        fork = await executor.fork("r", at=2)
    for one in (run, fork):
        assert (one.run_id, "completed", one.seq) in diary.calls
    assert len(diary.calls) == len(set(diary.calls))  # each once, where nothing broke off


async def test_what_an_observer_sees_is_in_the_store(store: Store) -> None:
    ahead: list[int] = []

    async def compare(run: Run, seq: int) -> None:
        if (await store.info(run.run_id)).head < seq:
            ahead.append(seq)

    async with Executor(store, observers=[compare]) as executor:
        await executor.start(chain(*[says(str(i), lambda: anyio.sleep(0.001)) for i in range(20)]), run_id="r")
    assert ahead == []


async def test_on_pause_is_called_when_a_run_waits_and_only_then(store: Store) -> None:
    diary = Diary()
    gate = Gate(is_open=True)
    async with Executor(store, on_pause=diary) as executor:
        run = await executor.start(asking(gate), run_id="r")  # type: ignore[arg-type]
        await executor.answer("r", run.waiting[0].id, "yes")
        await executor.start(chain(says("a")), run_id="s")
    assert diary.calls == [("r", "paused", run.seq)]
    assert [question.prompt for question in diary.runs[0].waiting] == ["first?"]
    assert not await notices(store)
    assert not await notices(store, "s")


async def test_a_run_that_was_interrupted_does_not_call_on_pause(store: Store) -> None:
    diary, gate = Diary(), Gate()
    graph = chain(node(gate.wait))
    async with Executor(store, on_pause=diary, graphs=[graph]) as executor:
        async with executor.stream(graph, run_id="r"):
            await gate.reached.wait()
            assert await notices(store)
        gate.open.set()
        await executor.resume("r")
    assert diary.calls == []
    assert not await notices(store)


async def test_sync_observers_run_in_a_thread_and_may_block(store: Store) -> None:
    threads: list[int] = []
    over = threading.Event()

    def blocks(run: Run, seq: int) -> None:
        threads.append(threading.get_ident())
        assert over.wait(60), "the run waits for its observer"

    try:
        async with Executor(store, observers=[blocks]) as executor:
            with anyio.fail_after(30):
                await executor.start(chain(says("a"), says("b")), run_id="r")
            over.set()
    finally:
        over.set()
    assert threads
    assert threading.get_ident() not in threads


async def test_an_observer_that_fails_is_logged_and_fails_no_run(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(run: Run, seq: int) -> None:
        raise LookupError("the hook is down")

    diary = Diary()
    with caplog.at_level(logging.ERROR, logger="orchestrator"):
        async with Executor(store, observers=[breaks, diary], on_pause=breaks) as executor:
            run = await executor.start(chain(node(asks)), run_id="r")
    assert run.status == "paused"
    assert diary.calls[-1] == ("r", "paused", run.seq)
    words = "observer test_an_observer_that_fails_is_logged_and_fails_no_run.<locals>.breaks failed at record"
    assert any(words in record.message and "the hook is down" in record.message for record in caplog.records)
    assert not await notices(store)  # it was called


async def test_an_observer_that_hangs_holds_up_neither_runs_nor_others_and_little_of_the_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executor.observers._CLOSING", 0.1)

    async def hangs(run: Run, seq: int) -> None:
        await anyio.sleep_forever()

    diary = Diary()
    async with Executor(store, observers=[hangs, diary]) as executor:
        with anyio.fail_after(60):
            for number in range(5):
                assert (await executor.start(chain(says("a")), run_id=f"r{number}")).status == "completed"
    assert {run_id for run_id, _, _ in diary.calls} == {f"r{number}" for number in range(5)}
    assert await notices(store, "r4") == 1  # it was not called: the next executor does it


async def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot observe runs: give functions"):
        Executor(observers=["https://example.org"])  # type: ignore[list-item]


# -- after a crash ---------------------------------------------------------------------------------------------------


@quick_on("asyncio")
@pytest.mark.parametrize("after", [True, False], ids=["a crash after the pause", "a crash in the call"])
async def test_a_pause_that_was_not_told_before_a_crash_is_told_by_the_next_executor(
    tmp_path: Path, after: bool
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    _die(url, "pause", "later" if after else "called")
    store = open_store(url)
    assert (await store.info("r")).status == "paused"
    assert await notices(store) == 1
    diary = Diary()
    async with Executor(store, graphs=[paused_graph], on_pause=diary) as executor:
        await executor.recover()
        await executor.recover()
    assert [(run_id, status) for run_id, status, _ in diary.calls] == [("r", "paused")]
    assert not await notices(store)
    await store.close()


@quick_on("asyncio")
async def test_an_end_that_was_not_told_before_a_crash_is_told_by_the_next_executor(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    _die(url, "end", "called")
    store = open_store(url)
    assert (await store.info("r")).status == "completed"
    diary = Diary()
    async with Executor(store, graphs=[ended_graph], observers=[diary]) as executor:
        await executor.recover()
        await executor.recover()
    assert [(run_id, status) for run_id, status, _ in diary.calls] == [("r", "completed")]
    assert not await notices(store)
    await store.close()


@quick_on("asyncio")
@pytest.mark.parametrize(("how", "status"), sized([("pause", "paused")], [("pause", "paused"), ("end", "completed")]))
async def test_a_worker_calls_observers_about_what_a_killed_process_did_not_tell(
    tmp_path: Path, how: str, status: str
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    diary, called = Diary(), anyio.Event()

    async def told(run: Run, seq: int) -> None:
        await diary(run, seq)
        called.set()

    options = {"on_pause": told} if how == "pause" else {"observers": [told]}
    async with (
        Executor(url, graphs=[paused_graph, ended_graph], **options) as executor,  # type: ignore[arg-type]
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(lambda: executor.work(poll=0.05))
        await anyio.to_thread.run_sync(_die, url, how, "called")
        with anyio.fail_after(30):
            await called.wait()
        tasks.cancel_scope.cancel()
    assert [(run_id, found) for run_id, found, _ in diary.calls] == [("r", status)]
    store = open_store(url)
    assert not await notices(store)
    await store.close()


async def test_a_slow_observer_does_not_make_workers_take_its_run_up(store: Store) -> None:
    began, goes_on, calls, claimed = anyio.Event(), anyio.Event(), list[str](), list[str]()
    claim = store.claim

    async def counted(request: ClaimRequest) -> object:
        taken = await claim(request)
        claimed.extend(info.run_id for info, _ in taken)
        return taken

    async def slow(run: Run, seq: int) -> None:
        calls.append(run.run_id)
        began.set()
        await goes_on.wait()

    store.claim = counted  # type: ignore[method-assign,assignment]
    graph = chain(says("a"), name="other")
    async with (
        Executor(store, graphs=[paused_graph, graph], on_pause=slow) as one,
        Executor(store, graphs=[paused_graph, graph], on_pause=slow) as other,
        anyio.create_task_group() as tasks,
    ):
        for executor in (one, other):
            tasks.start_soon(lambda executor=executor: executor.work(poll=0.01))  # type: ignore[misc]
        await one.enqueue(paused_graph, run_id="r")
        await began.wait()
        for number in range(5):
            await one.enqueue(graph, run_id=f"s{number}")
            assert (await one.wait(f"s{number}")).status == "completed"
        assert await notices(store) == 1
        goes_on.set()
        with anyio.fail_after(30):
            while await notices(store):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert claimed.count("r") == 1
    assert calls == ["r"]


async def test_of_several_executors_that_find_a_notice_one_calls_its_observers(store: Store) -> None:
    async with Executor(store) as executor:
        await executor.start(ended_graph, run_id="r")
    await store.post("r", {"type": NOTICE})
    diaries = [Diary() for _ in range(4)]
    async with AsyncExitStack() as stack:
        executors = [
            await stack.enter_async_context(Executor(store, graphs=[ended_graph], observers=[diary]))
            for diary in diaries
        ]
        async with anyio.create_task_group() as tasks:
            for executor in executors:
                tasks.start_soon(executor.recover)
    assert [call for diary in diaries for call in diary.calls] == [("r", "completed", 3)]
    assert not await notices(store)


async def test_an_executor_without_observers_leaves_notices_also_when_it_ends_the_run(store: Store) -> None:
    async with Executor(store, graphs=[paused_graph]) as executor:
        run = await executor.start(paused_graph, run_id="r")
        await store.post("r", {"type": NOTICE})  # as a process leaves it that is gone
        assert await executor.recover() == []
        await executor.answer("r", run.waiting[0].id, "word")
        assert await notices(store) == 1
    diary = Diary()
    async with Executor(store, graphs=[paused_graph], observers=[diary]) as executor:
        await executor.recover()
        await executor.recover()
    assert [(run_id, status) for run_id, status, _ in diary.calls] == [("r", "completed")]
    assert not await notices(store)


@quick_on("asyncio")
async def test_a_run_that_was_cancelled_while_it_waited_is_told_although_the_process_died(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    _die(url, "cancel", "called")
    diary = Diary()
    async with Executor(url, graphs=[paused_graph], observers=[diary]) as executor:
        await executor.recover()
    assert [(run_id, status) for run_id, status, _ in diary.calls] == [("r", "cancelled")]


@pytest.mark.parametrize("how", ["answer", "cancel"])
async def test_what_another_executor_does_to_a_run_is_told_by_the_one_that_is_awake_for_it(
    store: Store, how: str
) -> None:
    ended = anyio.Event()
    diary = Diary()

    async def told(run: Run, seq: int) -> None:
        await diary(run, seq)
        if run.status in ("completed", "cancelled"):
            ended.set()

    async with (
        Executor(store, graphs=[paused_graph], observers=[told]) as executor,
        Executor(store, graphs=[paused_graph], idle="sleep") as other,
    ):
        run = await executor.start(paused_graph, run_id="r")
        if how == "answer":
            run = await other.answer("r", run.waiting[0].id, "word")
        else:
            run = await other.cancel("r")
        with anyio.fail_after(30):
            await ended.wait()
    assert diary.calls[-1] == ("r", run.status, run.seq)
    assert [status for _, status, _ in diary.calls].count(run.status) == 1


async def test_no_notice_is_left_where_a_later_call_covers_an_earlier_drive(store: Store) -> None:
    began, goes_on, called = anyio.Event(), anyio.Event(), list[tuple[str, str]]()

    async def slow(run: Run, seq: int) -> None:
        called.append((run.run_id, run.status))
        if run.run_id == "s":
            began.set()
            await goes_on.wait()

    async with (
        Executor(store, graphs=[paused_graph], observers=[slow]) as executor,
        Executor(store, graphs=[paused_graph], idle="sleep") as other,
    ):
        await executor.start(ended_graph, run_id="s")
        await began.wait()
        await executor.start(paused_graph, run_id="r")
        await other.cancel("r")
        with anyio.fail_after(30):
            while not executor._host.observation._always[0]._covered:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            goes_on.set()
            while await notices(store) + await notices(store, "s"):  # noqa: ASYNC110
                await anyio.sleep(0.01)
    assert [one for one in called if one[0] == "r"] == [("r", "cancelled")]


def _die(url: str, how: str, when: str) -> None:
    """A process that is killed right when a run has paused or ended, or in the call of its observer."""
    code = f"import tests.executor.test_observers as t, anyio; anyio.run(t.dies, {url!r}, {how!r}, {when!r})"
    assert run_program([code], loads=[__name__]).code == -signal.SIGKILL


async def dies(url: str, how: str, when: str) -> None:
    """See `_die`."""

    async def told(run: Run, seq: int) -> None:
        if run.status == over:
            if when == "called":
                os.kill(os.getpid(), signal.SIGKILL)
            await anyio.sleep_forever()

    over = {"pause": "paused", "end": "completed", "cancel": "cancelled"}[how]
    graph = ended_graph if how == "end" else paused_graph
    observers = [] if how == "pause" else [told]
    async with Executor(url, on_pause=told if how == "pause" else None, observers=observers) as executor:
        await executor.start(graph, run_id="r")
        if how == "cancel":
            await executor.cancel("r")
        if when == "later":
            os.kill(os.getpid(), signal.SIGKILL)
        await anyio.sleep(10)


@node
async def wait_for_word(state: Log, ctx: Context) -> Update:
    """Ask."""
    return {"log": str(await ctx.ask("input", prompt="?"))}


paused_graph = chain(wait_for_word, name="paused_one")
ended_graph = chain(says("a"), name="ended_one")
