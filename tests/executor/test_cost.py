"""What a step costs, counted and not timed, so the same everywhere: records, commits, statements, folds, bytes."""

from __future__ import annotations

import gc
import sqlite3
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Annotated, Any, Literal

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Limits, Outcome, append, node
from orchestrator.executor import heartbeat, journal, step_tasks, timers
from orchestrator.executor.drive import Drive
from orchestrator.executor.run_log import RunLog
from orchestrator.kernel import fold, records
from orchestrator.kernel.records import Record, encode
from orchestrator.kernel.run_state import Delta
from orchestrator.stores.rows import OpenQuestion, StoredRun
from orchestrator.stores.sqlite import SQLiteStore, connections
from orchestrator.stores.sqlite.connections import LogSpace
from orchestrator.stores.sqlite.files import PAGE_BYTES
from tests.benchmarks.subjects.ours import ASKING

pytestmark = pytest.mark.anyio

HOUR = 3600.0


class Grows(BaseModel):
    """A state that may grow by a kibibyte each time."""

    n: int = 0
    until: int = 0
    lines: Annotated[list[str], append] = []


def looping(effect: Literal["pure", "idempotent"], line: str = "") -> Graph:
    @node(effect=effect)
    async def work(state: Grows) -> Outcome[Literal["again", "enough"]]:
        return Outcome(
            "again" if state.n + 1 < state.until else "enough", n=state.n + 1, **({"lines": line} if line else {})
        )

    return Graph(
        name="looping", state=Grows, nodes={"work": work},
        edges="START -> work\nwork -> work : again\nwork -> END : enough", output="n", limits=Limits(steps=None),
    )  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """What a run cost."""

    records: int
    bytes: int
    statements: Counter[str]
    folds: int


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[str], list[int]]:
    """SQL statements by their first word, and how many records were folded.

    What an executor does every so many seconds is left out: how often it does depends on how busy the machine is.
    """
    monkeypatch.setattr(journal, "FLUSH_AFTER", HOUR)
    monkeypatch.setattr(journal, "SUMMARY_SECONDS", HOUR)
    monkeypatch.setattr(heartbeat, "POLL", HOUR)
    statements, folds = Counter[str](), [0]
    connect = sqlite3.connect

    def connected(*args: Any, **kw: Any) -> sqlite3.Connection:
        connection = connect(*args, **kw)
        connection.set_trace_callback(lambda sql: statements.update([sql.split(None, 1)[0].upper()]))
        return connection

    def begun() -> Delta:  # each fold of a record makes one
        folds[0] += 1
        return Delta()

    monkeypatch.setattr(sqlite3, "connect", connected)
    monkeypatch.setattr(fold, "Delta", begun)
    return statements, folds


async def cost_of(counts: tuple[Counter[str], list[int]], graph: Graph, steps: int, folder: Path) -> Cost:
    statements, folds = counts
    async with Executor(f"sqlite:///{folder}/{steps}.db", lease_ttl=HOUR) as executor:
        await executor.start(graph, {"until": 3})  # what is done once is done
        await anyio.sleep(0.1)
        statements.clear()
        folds[0] = 0
        run = await executor.start(graph, {"until": steps})
        spent, folded = Counter(statements), folds[0]
        records = await executor.store.read(run.run_id)
    return Cost(len(records), sum(len(encode(record)) for record in records), spent, folded)


async def per_step(counts: tuple[Counter[str], list[int]], graph: Graph, folder: Path) -> dict[str, float]:
    """What each of 40 further steps cost."""
    few, many = [await cost_of(counts, graph, steps, folder) for steps in (10, 50)]
    words = few.statements.keys() | many.statements.keys()
    return {
        "records": (many.records - few.records) / 40,
        "folds": (many.folds - few.folds) / 40,
        **{word: (many.statements[word] - few.statements[word]) / 40 for word in sorted(words)},
    }


async def test_a_durable_step_is_one_record_one_fold_one_commit(
    counts: tuple[Counter[str], list[int]], tmp_path: Path
) -> None:
    cost = await per_step(counts, looping("idempotent"), tmp_path)
    # Rounded: now and then one more is needed, such as to tidy up the log of the file.
    assert {word: round(count) for word, count in cost.items() if round(count)} == {
        "records": 1, "folds": 1, "BEGIN": 1, "COMMIT": 1, "INSERT": 1, "UPDATE": 1,
    }  # fmt: skip


async def test_a_durable_step_writes_two_pages_to_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogSpace, "make", lambda _: None)
    monkeypatch.setattr(journal, "SUMMARY_SECONDS", HOUR)
    monkeypatch.setattr(heartbeat, "POLL", HOUR)
    pages = []
    for steps in (10, 50):
        async with Executor(f"sqlite:///{tmp_path}/{steps}.db", lease_ttl=HOUR) as executor:
            await executor.start(looping("idempotent"), {"until": steps})
            pages.append((tmp_path / f"{steps}.db-wal").stat().st_size // (PAGE_BYTES + 24))
    # Its record, and the row of its run; now and then a new page, which some others lead to.
    assert 2 * 40 <= pages[1] - pages[0] <= 2 * 40 + 40 // 8 * 5


async def test_pure_steps_share_commits(counts: tuple[Counter[str], list[int]], tmp_path: Path) -> None:
    cost = await per_step(counts, looping("pure"), tmp_path)
    assert (cost["records"], cost["folds"]) == (1, 1)
    assert cost["COMMIT"] < 0.1  # now and then one, for what has waited long enough


async def test_what_is_stored_is_what_was_produced(tmp_path: Path) -> None:
    line = "x" * 1024
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        sizes = {}
        for steps in (50, 400):
            run = await executor.start(looping("pure", line), {"until": steps})
            sizes[steps] = sum(len(encode(record)) for record in await executor.store.read(run.run_id))
    a_step = (sizes[400] - sizes[50]) / 350
    assert 1024 < a_step < 1024 * 1.3
    stored = sum(part.stat().st_size for part in tmp_path.iterdir())
    assert stored < 450 * 1024 * 1.4 + (208 << 10)  # three records fill a page, and every table has a page


async def test_a_growing_history_makes_no_step_dearer(counts: tuple[Counter[str], list[int]], tmp_path: Path) -> None:
    cost = await per_step(counts, looping("idempotent", "x" * 1024), tmp_path)
    assert (cost["records"], cost["folds"], cost["COMMIT"]) == (1, 1, 1)


async def test_a_run_is_two_commits_and_no_reads_however_often_its_graph_was_stored(
    counts: tuple[Counter[str], list[int]], tmp_path: Path
) -> None:
    cost = await cost_of(counts, looping("pure"), 1, tmp_path)
    # Graph, row, summary, totals, first record and lease in one; steps, end, row, summary, totals by node, their sums,
    # and inbox in the other.
    assert cost.records == 3
    assert cost.statements == {"BEGIN": 2, "COMMIT": 2, "INSERT": 11, "UPDATE": 2, "DELETE": 3}


async def test_a_run_is_loaded_and_answered_without_a_thread_for_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row, its snapshot and the records behind it are read by the task that asks."""
    monkeypatch.setattr(connections, "QUICK", 60.0)  # this machine may be busy
    url, handed, run_sync = f"sqlite:///{tmp_path}/runs.db", [], anyio.to_thread.run_sync

    async def counted(action: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        handed.append(action)
        return await run_sync(action, *args, **kw)

    async with Executor(url, graphs=[ASKING]) as executor:
        await executor.start(ASKING, {"until": 100}, run_id="r")
    async with Executor(url, graphs=[ASKING]) as executor:
        monkeypatch.setattr(anyio.to_thread, "run_sync", counted)
        (question,) = (await executor.load("r")).waiting
        assert (await executor.answer("r", question.id, "yes")).output == 100
        assert handed == []


@pytest.mark.parametrize("steps", [30, 300])
async def test_each_record_that_a_load_reads_is_validated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    validated, validate = [0], records._record

    def counted(fields: object) -> Record:
        validated[0] += 1
        return validate(fields)

    class Plain(SQLiteStore):
        """Counts the records that are read, and has no snapshots that would shorten that."""

        records = 0

        async def load(self, run_id: str, *, after: int | None = None, upto: int | None = None) -> StoredRun:
            found = await super().load(run_id, after=after or 0, upto=upto)
            self.records += len(found.records)
            return found

    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        run = await executor.start(looping("pure"), {"until": steps}, run_id="r")
    store = Plain(f"{tmp_path}/runs.db")
    async with Executor(store) as executor:
        monkeypatch.setattr(records, "_record", counted)
        assert (await executor.load("r")).values == run.values
    assert validated[0] == store.records == steps + 2


@pytest.mark.parametrize("steps", [30, 300])
async def test_a_run_is_loaded_in_one_transaction(
    counts: tuple[Counter[str], list[int]], tmp_path: Path, steps: int
) -> None:
    statements, _ = counts
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        await executor.start(looping("pure"), {"until": steps}, run_id="r")
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[looping("pure")]) as executor:
        await executor.load("r")
        statements.clear()
        run = await executor.load("r")
    assert run.values["n"] == steps
    assert statements == {"BEGIN": 1, "SELECT": 4, "ROLLBACK": 1}  # row, snapshot, records, and whether there are more


async def test_a_step_more_that_has_to_be_durable_is_a_commit_more(
    counts: tuple[Counter[str], list[int]], tmp_path: Path
) -> None:
    cost = await cost_of(counts, looping("idempotent"), 10, tmp_path)
    assert (cost.records, cost.statements["COMMIT"]) == (12, 11)  # the last one carries the end, too


async def test_what_drove_a_run_is_freed_with_it_without_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driven: list[weakref.ref[object]] = []
    begin = Drive.__init__

    def noted(live: Drive, *args: Any, **kw: Any) -> None:
        begin(live, *args, **kw)
        driven.extend((weakref.ref(live), weakref.ref(live.log)))

    monkeypatch.setattr(Drive, "__init__", noted)
    monkeypatch.setattr(journal, "FLUSH_AFTER", HOUR)  # what is done every so many seconds is left out
    monkeypatch.setattr(heartbeat, "POLL", HOUR)
    gc.disable()
    try:
        for url in ("memory://", f"sqlite:///{tmp_path}/runs.db"):
            async with Executor(url, lease_ttl=HOUR) as executor:
                for graph in (looping("idempotent"), looping("pure")):
                    run = await executor.start(graph, {"until": 2})
                    assert run.status == "completed"
                assert len(driven) == 4
                with anyio.fail_after(60):  # the loop, and threads that wrote, let go of what has ended
                    while any(one() is not None for one in driven):  # noqa: ASYNC110
                        await anyio.sleep(0.01)
            driven.clear()
    finally:
        gc.enable()


async def test_what_is_kept_of_the_runs_that_a_process_watches_has_each_text_once(tmp_path: Path) -> None:
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[ASKING]) as executor:
        names = [(await executor.start(ASKING, {"until": 1})).run_id for _ in range(9)]
        found = await executor.store.heads(names)
    assert {id(name) for name in found} == {id(name) for name in names}
    assert len({id(status) for _, status in found.values()}) == 1


class Naps(BaseModel):
    """Items that all sleep until one moment."""

    until: float
    items: list[int] = []
    done: Annotated[list[int], append] = []


@node(effect="pure")
async def nap(state: Naps, item: int, ctx: Context) -> dict[str, int]:
    await ctx.sleep(until=state.until)
    return {"done": item}


async def test_each_of_many_timers_is_written_once_and_few_of_them_are_looked_through_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed, looks = Counter[str](), [0]
    make, look = journal.OpenQuestion, timers.next_due

    def row(name: str, *fields: Any) -> OpenQuestion:
        listed[name] += 1
        return make(name, *fields)

    def looked(log: RunLog) -> float | None:
        looks[0] += 1
        return look(log)

    monkeypatch.setattr(journal, "OpenQuestion", row)
    monkeypatch.setattr(journal, "MOST", 20)  # so that many writes follow each other
    monkeypatch.setattr(step_tasks, "MOST", 20)
    monkeypatch.setattr(timers, "next_due", looked)
    graph = Graph(
        name="naps", state=Naps, nodes={"nap": nap}, edges="START -> nap : each items\nnap -> END", output="done",
    )  # fmt: skip
    async with Executor() as executor:
        run = await executor.start(graph, {"until": time() + 1.0, "items": list(range(200))})
        assert sorted(run.output) == list(range(200))
    assert len(listed) == 200
    assert max(listed.values()) <= 2, "once in each drive of the run, which may have paused"
    assert looks[0] < 30 + 200 / 4


async def test_runs_at_the_same_time_share_commits(counts: tuple[Counter[str], list[int]], tmp_path: Path) -> None:
    statements, _ = counts
    graph = looping("pure")
    async with Executor(f"sqlite:///{tmp_path}/runs.db", lease_ttl=HOUR) as executor:
        await executor.start(graph, {"until": 3})
        await anyio.sleep(0.1)
        statements.clear()
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(executor.start, graph, {"until": 3})
        spent = Counter(statements)
        assert isinstance(executor.store, SQLiteStore)
        assert executor.store.statistics().writes == 2 * 51
    assert spent["COMMIT"] <= 50  # two each if none was shared; about ten are usual
    assert spent["INSERT"] == 50 * (1 + 1 + 1 + 1 + 1 + 3 + 1 + 1 + 1 + 1 + 1)
