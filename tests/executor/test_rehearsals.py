"""What operators rehearse: a backup is restored, and a changed graph is deployed, while workers drive runs.

The figures of docs/operations.md come from here: `pytest --full -n 0 -s tests/executor/test_rehearsals.py`.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from orchestrator import Executor, Value
from orchestrator.cli.trust import journal_seal
from orchestrator.kernel.records import Resumed
from tests.executor import deploy_program, pay_program
from tests.support.postgres import PostgresServer
from tests.support.programs import Piped
from tests.support.sizes import sized

pytestmark = [pytest.mark.anyio, pytest.mark.full, pytest.mark.parametrize("anyio_backend", ["asyncio"])]
"""On one event loop: what works are processes."""

PATIENCE = 180.0


def worker(url: str, diary: Path, program: str, slots: int, **variables: str) -> Piped:
    """A worker process. A worker of a killed machine would leave its runs for a lease; here it is known to be gone."""
    begun = Piped(
        ("worker", "--app", f"{program}:app", "--slots", slots, "--store", url),
        env={**os.environ, "DIARY": str(diary), **variables},
    )
    begun.read_no_further(err=False)
    return begun


def made(diary: Path) -> Counter[str]:
    """The calls that arrived outside, and how often."""
    return Counter(diary.read_text().splitlines()) if diary.exists() else Counter()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition of files is true."""
    with anyio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110  other processes call
            await anyio.sleep(0.01)


class SqliteFile:
    """A store in a file, whose backup is a copy by SQLite's online backup."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = f"sqlite:///{folder}/runs.db"

    def back_up(self) -> int:
        """Back the store up while others write to it; return the bytes of the backup."""
        with (
            closing(sqlite3.connect(self._folder / "runs.db")) as source,
            closing(sqlite3.connect(self._folder / "backup.db")) as copy,
        ):
            source.backup(copy)
        return (self._folder / "backup.db").stat().st_size

    def restore(self) -> str:
        """Put the backup in the place of the store, where its seals are valid, and return the URL."""
        for name in ("runs.db-wal", "runs.db-shm"):
            (self._folder / name).unlink(missing_ok=True)
        (self._folder / "backup.db").rename(self._folder / "runs.db")
        return self.url


class Database:
    """A store in PostgreSQL, whose backup is a `pg_dump`."""

    def __init__(self, server: PostgresServer) -> None:
        self._server, self._name = server, f"rehearsal_{time.monotonic_ns()}"
        server.create_database(self._name)
        self.url = server.url(self._name)
        self._file = server.folder / f"{self._name}.dump"

    def back_up(self) -> int:
        """Back the store up while others write to it; return the bytes of the backup."""
        self._server.run("pg_dump", "--format=custom", f"--file={self._file}", self._server.conninfo(self._name))
        return self._file.stat().st_size

    def restore(self) -> str:
        """Return the URL of a new store from the backup."""
        name = f"{self._name}_restored"
        self._server.create_database(name, tables=False)
        self._server.run(
            "pg_restore", "--no-owner", "--exit-on-error", "-d", self._server.conninfo(name), str(self._file)
        )
        return self._server.url(name)


BILLS = sized(10, 100)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_restored_store_makes_no_call_again_without_asking(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # the key with which the command line seals a file
    store = Database(request.getfixturevalue("postgres_server")) if kind == "postgresql" else SqliteFile(tmp_path)
    diary = tmp_path / "diary"
    runs = [f"r{number}" for number in range(BILLS)]

    def workers(url: str, **variables: str) -> list[Piped]:
        return [worker(url, diary, "tests.executor.pay_program", 20, **variables) for _ in range(2)]

    seal = journal_seal(store.url, make=True)
    async with Executor(store.url, graphs=pay_program.app.graphs, seal=seal) as executor:
        for number, run_id in enumerate(runs):
            await executor.enqueue(pay_program.bills, number, run_id=run_id)
        begun = workers(store.url)
        try:
            await until(lambda: made(diary).total() >= BILLS)
            at = time.perf_counter()
            size = await anyio.to_thread.run_sync(store.back_up)
            took, had = time.perf_counter() - at, made(diary).total()
            await until(lambda: made(diary).total() >= had + BILLS)  # the backup is older than the world
        finally:
            for one in begun:  # the machines are lost, and the store with them
                one.close()
    lost, at = made(diary), time.perf_counter()
    url = await anyio.to_thread.run_sync(store.restore)
    took_back, answered, happened = time.perf_counter() - at, set[str](), 0
    async with Executor(url, graphs=pay_program.app.graphs, idle="sleep", seal=seal) as executor:
        begun = workers(url, ORCHESTRATOR_RESTORED_AT=datetime.now(UTC).isoformat())
        try:
            with anyio.fail_after(PATIENCE):
                while len((await executor.runs(status="completed", limit=1000)).runs) < BILLS:
                    for one in (await executor.questions(kinds=["unknown_outcome"])).questions:
                        if one.question.id in answered:
                            continue  # no worker has taken the answer yet
                        payment = f"{one.run_id} {(await executor.load(one.run_id)).state.paid}"
                        known = made(diary)[payment] > 0
                        said = {"choice": "happened", "result": "paid"} if known else "retry"
                        await executor.answer(one.run_id, one.question.id, Value(value=said), resume=False)
                        answered.add(one.question.id)
                        happened += known
                    await anyio.sleep(0.02)
        finally:
            for process in begun:
                process.close()
    payments = {f"{run_id} {number}": 1 for run_id in runs for number in range(pay_program.PAYMENTS)}
    assert made(diary) == payments, "each payment was made once"
    assert happened > 0, "the backup had everything"
    print(
        f"{kind}: {BILLS} runs, backup {size / 1024:.0f} KiB in {took:.2f} s after {had} payments, restored in "
        f"{took_back:.2f} s after {lost.total()}; {len(answered)} questions, of which {happened} had happened; "
        f"{len(payments)} payments, 0 doubled, 0 lost"
    )


ACCOUNTS = sized(40, 200)


async def test_a_changed_graph_is_deployed_worker_by_worker_under_load(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    diary, url = tmp_path / "diary", Database(postgres_server).url
    program, charges = "tests.executor.deploy_program", deploy_program.CHARGES
    begun: list[Piped] = []

    def start(version: str) -> Piped:
        begun.append(worker(url, diary, program, ACCOUNTS, VERSION=version))
        return begun[-1]

    async with Executor(url, graphs=[graph := deploy_program.accounts("a")], idle="sleep") as executor:
        for number in range(ACCOUNTS):
            await executor.enqueue(graph, number, run_id=f"r{number}")

        async def working(count: int) -> None:
            with anyio.fail_after(PATIENCE):
                while sum(one.state == "alive" and one.graphs != () for one in await executor.workers.list()) < count:  # noqa: ASYNC110
                    await anyio.sleep(0.02)

        old = [start("a"), start("a")]
        try:
            await until(lambda: made(diary).total() >= ACCOUNTS // 2)
            flying = sum(one.held for one in await executor.workers.list())
            at = time.perf_counter()
            for one in old:
                start("b")
                await working(3)
                one.signal(signal.SIGTERM)
                assert await anyio.to_thread.run_sync(one.wait) == 0
            took = time.perf_counter() - at
            with anyio.fail_after(PATIENCE):
                while len((await executor.runs(status="completed", limit=1000)).runs) < ACCOUNTS:  # noqa: ASYNC110  other processes drive them
                    await anyio.sleep(0.05)
        finally:
            for one in begun:
                one.close()
        versions: Counter[str] = Counter()
        for number in range(ACCOUNTS):
            run = await executor.load(f"r{number}")
            used = "".join(run.output)
            changed = [one for one in await executor.store.read(run.run_id) if isinstance(one, Resumed) and one.changes]
            assert used == "a" * used.count("a") + "b" * used.count("b"), "no run went back to the old version"
            assert len(changed) == int("b" in used), "the change of the graph is journaled once"
            versions["only a" if "b" not in used else "only b" if "a" not in used else "a, then b"] += 1
        assert (await executor.questions()).questions == ()
    assert made(diary) == {f"r{run} {number}": 1 for run in range(ACCOUNTS) for number in range(charges)}
    assert versions["a, then b"] > 0
    print(
        f"{ACCOUNTS} runs, {flying} in flight; both workers replaced in {took:.1f} s; {dict(versions)}; "
        f"{ACCOUNTS * charges} charges, 0 doubled, 0 lost, 0 questions"
    )
