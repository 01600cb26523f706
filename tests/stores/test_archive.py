"""Ended runs in an archive: read as if they were in the store, restored before they go on, damage told by name."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import stat
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Executor, Update
from orchestrator.errors import (
    InvalidValue,
    RunArchived,
    RunConflict,
    RunUnknown,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)
from orchestrator.kernel.records import encode
from orchestrator.stores import Store, open_store, with_archive
from orchestrator.stores.archive import Archive, new_name, open_archive
from orchestrator.stores.archive.store import ArchivedStore, records_of
from orchestrator.stores.codec import AESGCMCodec
from orchestrator.stores.copying import copy_store
from orchestrator.testing.store_conformance import STORE_CHECKS, StoreCheck
from tests.support.executors import chain, says, single
from tests.support.postgres import PostgresDatabase
from tests.support.s3 import SECRET, Bucket
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio
SECONDS = timedelta(0)
GRAPH = chain(says("a"), says("b"))
PLACES = [("memory", "folder"), ("sqlite", "folder"), ("sqlite", "bucket"), ("postgres", "folder?gzip=1")]


def place(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    """The URL of an archive."""
    if kind == "bucket":
        bucket: Bucket = request.getfixturevalue("bucket")
        return bucket.url
    return (folder / "archive").as_uri() + kind.removeprefix("folder")


def store_url(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    if kind == "postgres":
        database: PostgresDatabase = request.getfixturevalue("postgres")
        return database.url
    return "memory://" if kind == "memory" else f"sqlite:///{folder}/runs.db"


@pytest.fixture(params=PLACES, ids="-".join)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ArchivedStore]:
    """A store with an archive."""
    kind, where = request.param
    opened = open_store(store_url(request, kind, tmp_path), archive=place(request, where, tmp_path))
    assert isinstance(opened, ArchivedStore)
    yield opened
    await opened.close()


def the_object(folder: Path) -> Path:
    """The only object of an archive in a folder."""
    (found,) = (one for one in (folder / "archive").rglob("*.jsonl*") if one.is_file())
    return found


async def facts(executor: Executor, run_id: str) -> dict[str, Any]:
    """What people see of a run."""
    run = await executor.load(run_id)
    return {
        "status": run.status, "output": run.output, "state": run.state.model_dump(),
        "history": [(point.seq, point.node) for point in await executor.history(run_id)],
        "page": [point.seq for point in await executor.history(run_id, after=1, limit=1)],
        "drawing": run.to_svg(), "why": str(run.why()), "events": [one.seq async for one in executor.events(run_id)],
        "export": [line async for line in executor.export(run_id)],
        "earlier": (await executor.load(run_id, at=2)).status,
        "found": [info.run_id for info in (await executor.runs(q="umbrella")).runs],
        "stats": await executor.stats("graph"), "row": await executor.store.info(run_id),
        "listed": (await executor.runs(status="completed", search="umbrella")).runs,
        "now": [one.seq for one in executor.store.read_now(run_id, after=1, upto=3)],
        "part": [one.seq for one in await executor.store.read(run_id, after=1, limit=2)],
    }  # fmt: skip


async def test_an_archived_run_is_read_as_if_it_were_in_the_store(store: ArchivedStore) -> None:
    async with Executor(store, graphs=[GRAPH]) as executor:
        await executor.start(GRAPH, "an umbrella", run_id="r:1", labels={"team": "blue"})
        before = await facts(executor, "r:1")
        found = await executor.archive(older_than=SECONDS, dry_run=True)
        assert (found.runs, found.written) == (["r:1"], 0)
        found = await executor.archive(older_than=SECONDS)
        row = await executor.store.info("r:1")
        assert row.archived is not None
        assert (found.runs, found.skipped, found.written) == (["r:1"], {}, row.archived.size)
        with pytest.raises(RunArchived, match=r"'r:1'.*are in the archive .*Executor\(archive=...\)"):
            await store.inner.read("r:1")
        assert await facts(executor, "r:1") == before
        assert (await executor.archive(older_than=SECONDS)).runs == []
        assert (await executor.check()).ok
        data = store.archive.get(row.archived.name, most=1 << 20)
        assert data is not None
        assert hashlib.sha256(data).hexdigest() == row.archived.sha256
        assert await executor.restore("r:1")
        assert not await executor.restore("r:1")
        assert (await executor.store.info("r:1")).archived is None
        assert await facts(executor, "r:1") == before
        assert len(await store.inner.read("r:1")) == before["row"].head
        assert (await executor.archive(older_than=SECONDS)).runs == ["r:1"]
        assert (await executor.store.info("r:1")).archived == row.archived  # the object is used again


async def test_a_run_that_goes_on_is_restored_first(store: ArchivedStore) -> None:
    fails = {"left": 1}

    async def work() -> Update:
        if fails["left"]:
            fails["left"] -= 1
            raise RuntimeError("broken")
        return {"log": "done"}

    graph = single(work)
    async with Executor(store, graphs=[graph]) as executor:
        assert (await executor.start(graph, "x", run_id="r")).status == "failed"
        assert (await executor.archive(older_than=SECONDS)).runs == ["r"]
        first = (await store.info("r")).archived
        run = await executor.resume("r", retry=True)
        assert run.status == "completed"
        assert (await store.info("r")).archived is None
        assert [one.seq for one in await store.inner.read("r")] == [*range(1, run.seq + 1)]
        assert (await executor.archive(older_than=SECONDS)).runs == ["r"]
        second = (await store.info("r")).archived
        assert None not in (first, second)
        assert first != second
        assert (await executor.load("r")).output == run.output
        fork = await executor.fork("r", at=2, run_id="fork")
        assert fork.status == "completed"
        assert (await store.info("r")).archived is None
        assert sorted((await executor.archive(older_than=SECONDS)).runs) == ["fork", "r"]
        assert (await executor.load("fork")).output == fork.output
        assert [info.run_id for info in await executor.forks.list("r")] == ["fork"]
        assert (await executor.diff("r", "fork")) is not None


async def test_a_deleted_run_leaves_nothing_in_the_archive(store: ArchivedStore) -> None:
    async with Executor(store, graphs=[GRAPH]) as executor:
        await executor.start(GRAPH, "x", run_id="r")
        await executor.archive(older_than=SECONDS)
        archived = (await store.info("r")).archived
        assert archived is not None
        assert await executor.delete("r") == ["r"]
        assert store.archive.get(archived.name, most=9) is None
        with pytest.raises(RunUnknown):
            await executor.load("r")
        await executor.start(GRAPH, "x", run_id="r")  # the id is free again, also for another object
        await executor.archive(older_than=SECONDS)
        again = (await store.info("r")).archived
        assert again is not None
        assert again.name != archived.name
        assert (await executor.prune(older_than=SECONDS)).runs == ("r",)
        assert store.archive.get(again.name, most=9) is None


@pytest.mark.parametrize("coded", [False, True], ids=["clear", "coded"])
async def test_a_run_is_not_deleted_without_its_archive(store: ArchivedStore, coded: bool) -> None:
    """Neither an archived run nor a restored one, whose object is there, too."""
    async with Executor(store, graphs=[GRAPH]) as executor:
        for run_id in ("archived", "restored"):
            await executor.start(GRAPH, "x", run_id=run_id, labels={"parent": "another"})
        await executor.archive(older_than=SECONDS)
        await executor.restore("restored")
        await executor.start(GRAPH, "x", run_id="other")
        objects = [one for run_id in ("archived", "restored") for one in await store.inner.objects(run_id)]  # type: ignore[attr-defined]
    codec = AESGCMCodec({"k1": bytes(32)}) if coded else None
    async with Executor(store.inner, graphs=[GRAPH], codec=codec) as executor:
        for run_id in ("archived", "restored"):
            with pytest.raises(RunArchived, match="give that archive"):
                await executor.delete(run_id)
        dry = await executor.prune(older_than=SECONDS, dry_run=True)
        pruned = await executor.prune(older_than=SECONDS)
        assert dry.runs == pruned.runs == ("other",)
        assert dry.skipped == pruned.skipped
        assert {run_id: "give that archive" in why for run_id, why in pruned.skipped.items()} == {
            "archived": True, "restored": True,
        }  # fmt: skip
    assert [store.archive.get(one.name, most=1) is None for one in objects] == [False, False]
    async with Executor(store, graphs=[GRAPH]) as executor:
        assert sorted((await executor.prune(older_than=SECONDS)).runs) == ["archived", "restored"]
    assert [store.archive.get(one.name, most=1) for one in objects] == [None, None]


async def test_a_run_is_not_deleted_while_its_archive_cannot_be_reached(tmp_path: Path) -> None:
    folder, away = tmp_path / "archive", tmp_path / "away"
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[GRAPH], archive=str(folder)) as executor:
        await executor.start(GRAPH, "x", run_id="r")
        await executor.archive(older_than=SECONDS)
        await executor.start(GRAPH, "x", run_id="newer")
        folder.rename(away)
        for call in (executor.delete("r"), executor.load("r")):
            with pytest.raises(StoreUnavailable, match=r"no such folder .*nothing was lost"):
                await call
        pruned = await executor.prune(older_than=SECONDS)
        assert (pruned.runs, list(pruned.skipped)) == (("newer",), ["r"])
        with pytest.raises(StoreUnavailable, match="no such folder"):
            await executor.prune(older_than=SECONDS)
        away.rename(folder)
        assert (await executor.load("r")).status == "completed"
        assert await executor.delete("r") == ["r"]
    assert [one for one in folder.rglob("*.jsonl*") if one.is_file()] == []


async def test_a_deletion_says_that_its_object_could_not_be_removed(tmp_path: Path) -> None:
    """Found only when the run is deleted: then a later command removes the object."""
    folder = tmp_path / "archive"
    opened = open_store(f"sqlite:///{tmp_path}/runs.db", archive=str(folder))
    assert isinstance(opened, ArchivedStore)
    async with Executor(opened, graphs=[GRAPH]) as executor:
        await executor.start(GRAPH, "x", run_id="r")
        await executor.archive(older_than=SECONDS)
        file = the_object(tmp_path)
        working, opened.archive = opened.archive, Fixed(opened.archive)
        with pytest.raises(StoreUnavailable, match=r"run 'r' was deleted, but not its objects .*later `delete`"):
            await executor.delete("r")
        with pytest.raises(RunUnknown):
            await executor.load("r")
        a_day_passes(tmp_path)
        await executor.start(GRAPH, "x", run_id="next")
        assert await executor.delete("next") == ["next"]  # a sweep that fails is no failure of this deletion
        assert file.exists()
        opened.archive = working
        assert (await executor.prune(older_than=SECONDS)).runs == ()
        assert not file.exists()
    await opened.close()


class Fixed:
    """An archive that can be read only."""

    def __init__(self, inner: Archive) -> None:
        self.url, self.gzip = inner.url, inner.gzip
        self.get, self.put = inner.get, inner.put

    def remove(self, name: str) -> None:
        raise StoreUnavailable(f"object {name!r} cannot be changed")


def a_day_passes(folder: Path) -> None:
    """Let the objects in the file of a store have been noted long ago."""
    with closing(sqlite3.connect(folder / "runs.db")) as connection, connection:
        connection.execute("UPDATE archive_objects SET data = json_set(data, '$.at', 1000.0)")


@pytest.mark.parametrize("command", ["prune", "archive", "delete"])
async def test_an_object_that_was_left_is_removed_from_wherever_its_archive_is(
    command: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, folder, moved, other = f"sqlite:///{tmp_path}/runs.db", *(tmp_path / name for name in ("archive", "b", "c"))
    async with Executor(url, graphs=[GRAPH], archive=str(folder)) as executor:
        await executor.start(GRAPH, "x", run_id="r")
        await executor.archive(older_than=SECONDS)
        file = the_object(tmp_path).relative_to(folder)
        await executor.start(GRAPH, "x", run_id="next")
    other.mkdir()
    async with Executor(url, archive=str(other)) as executor:
        assert await executor.delete("r") == ["r"]
        assert f"its object {file} was not in the archive {other.as_uri()}" in caplog.text
        a_day_passes(tmp_path)
        await executor.prune(older_than=timedelta(days=1))  # it is not forgotten, as this archive does not have it
    folder.rename(moved)
    async with Executor(url, archive=str(moved)) as executor:
        if command == "delete":
            await executor.delete("next")
        elif command == "prune":
            assert (await executor.prune(older_than=timedelta(days=1))).runs == ()
        else:
            assert (await executor.archive(older_than=timedelta(days=1))).runs == []
    assert not (moved / file).exists()
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        assert connection.execute("SELECT count(*) FROM archive_objects").fetchone() == (0,)


async def test_only_the_runs_that_are_meant_are_archived(store: ArchivedStore) -> None:
    other = chain(says("c"), name="other")
    async with Executor(store, graphs=[GRAPH, other]) as executor:
        for number in range(4):
            await executor.start(GRAPH, "x", run_id=f"r{number}", labels={"n": str(number % 2)})
        await executor.start(other, "x", run_id="other")
        assert (await executor.archive(older_than=timedelta(days=1))).runs == []
        assert (await executor.archive(older_than=SECONDS, status="failed")).runs == []
        assert (await executor.archive(older_than=SECONDS, graph="other")).runs == ["other"]
        assert sorted((await executor.archive(labels={"n": "1"})).runs) == ["r1", "r3"]
        with pytest.raises(ValueError, match="only runs that have ended are archived"):
            await executor.archive(status="running")
        assert {info.run_id for info in (await executor.runs()).runs if info.archived} == {"other", "r1", "r3"}


@pytest.mark.full
async def test_two_who_archive_the_same_runs_and_one_who_reopens_them(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Whoever comes first, each run is whole, and ends as often as it went on."""
    fails: set[str] = set()

    async def work(state: Any) -> Update:
        if state.question not in fails:
            fails.add(state.question)
            raise RuntimeError("broken")
        return {"log": "done"}

    graph = single(work)
    url, archive = store_url(request, "sqlite", tmp_path), place(request, "folder", tmp_path)
    ids = [f"r{number}" for number in range(sized(12, 60))]
    async with (
        Executor(url, graphs=[graph], archive=archive) as one,
        Executor(url, graphs=[graph], archive=archive) as other,
        Executor(url, graphs=[graph], archive=archive) as third,
    ):
        for run_id in ids:
            await one.start(graph, run_id, run_id=run_id)

        async def reopen() -> None:
            for run_id in ids:
                assert (await third.resume(run_id, retry=True, wait=5.0)).status == "completed"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reopen)
            for _ in range(3):
                tasks.start_soon(lambda: one.archive(older_than=SECONDS))
                tasks.start_soon(lambda: other.archive(older_than=SECONDS))
        await one.archive(older_than=SECONDS)
        for run_id in ids:
            row = await one.store.info(run_id)
            assert row.archived is not None
            assert (await one.load(run_id)).status == row.status == "completed"
            assert len(await one.store.read(run_id)) == row.head
        assert (await one.check()).ok


async def test_what_is_missing_torn_or_changed_is_told_by_name(tmp_path: Path) -> None:
    url, archive = f"sqlite:///{tmp_path}/runs.db", (tmp_path / "archive").as_uri()
    async with Executor(url, graphs=[GRAPH], archive=archive) as executor:
        await executor.start(GRAPH, "x", run_id="r")
        await executor.archive(older_than=SECONDS)
    file = the_object(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    whole, name = file.read_bytes(), file.relative_to(tmp_path / "archive").as_posix()
    swapped = whole.replace(b'"x"', b'"y"')
    assert len(swapped) == len(whole) != whole.replace(b'"x"', b'"xx"')
    for data, why in ((whole[:-30], r"was changed \(it has"), (swapped, "was changed: its SHA-256"), (None, "missing")):
        if data is None:
            file.unlink()
        else:
            file.write_bytes(data)
        async with Executor(url, graphs=[GRAPH], archive=archive) as executor:
            for call in (executor.load("r"), executor.restore("r"), executor.fork("r", at=2)):
                with pytest.raises(StoreCorrupt, match=f"object '{name}' of the archive {archive} (is )?{why}"):
                    await call
            (finding,) = (await executor.check()).findings
            assert (finding.run_id, name in finding.what, finding.note) == ("r", True, False)
            assert "restore the archive from a copy" in finding.what
            assert "row" not in finding.what
            assert (await executor.store.info("r")).archived is not None
    file.write_bytes(whole)
    async with Executor(url, graphs=[GRAPH], archive=archive) as executor:
        assert (await executor.load("r")).status == "completed"
    file.unlink()
    async with Executor(url, archive=archive) as executor:
        assert await executor.delete("r") == ["r"]  # a damaged run can be deleted, too


async def test_a_store_without_its_archive_says_which_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, archive = f"sqlite:///{tmp_path}/runs.db", (tmp_path / "archive").as_uri()
    async with Executor(url, graphs=[GRAPH], archive=archive) as executor:
        await executor.start(GRAPH, "x", run_id="r")
        await executor.archive(older_than=SECONDS)
    async with Executor(url, graphs=[GRAPH]) as executor:
        with pytest.raises(RunArchived, match=f"archive {archive} .*ORCHESTRATOR_ARCHIVE"):
            await executor.load("r")
        with pytest.raises(StoreError, match="has no archive"):
            await executor.archive(older_than=SECONDS)
        with pytest.raises(StoreError, match="has no archive"):
            await executor.restore("r")
        checked = await executor.check()
        (finding,) = checked.findings
        assert finding.note
        assert "ORCHESTRATOR_ARCHIVE" in finding.what
        assert (checked.ok, checked.runs, checked.unread) == (False, 0, 1)
    moved = tmp_path / "elsewhere"
    (tmp_path / "archive").rename(moved)
    monkeypatch.setenv("ORCHESTRATOR_ARCHIVE", str(moved))
    async with Executor(url, graphs=[GRAPH]) as executor:
        assert (await executor.load("r")).status == "completed"


@pytest.mark.full
async def test_a_check_says_once_that_its_archive_cannot_be_reached(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    bucket: Bucket = request.getfixturevalue("bucket")
    folder = tmp_path / "archive"
    nowhere = bucket.url.replace(bucket.name, "no-such-bucket")
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[GRAPH], archive=str(folder)) as executor:
        for number in range(3):
            await executor.start(GRAPH, "x", run_id=f"r{number}")
        await executor.archive(older_than=SECONDS)
    folder.rename(tmp_path / "away")
    for archive, why in ((str(folder), "no such folder"), (nowhere, "'no-such-bucket' does not exist")):
        async with Executor(url, graphs=[GRAPH], archive=archive) as executor:
            checked = await executor.check()
            (finding,) = checked.findings
            assert finding.what.startswith("3 runs were not checked: archive ")
            assert why in finding.what
            assert (checked.ok, checked.runs, checked.unread) == (False, 0, 3)


async def test_encrypted_values_stay_encrypted(tmp_path: Path) -> None:
    url, codec = f"sqlite:///{tmp_path}/runs.db", AESGCMCodec({"k1": bytes(range(32))}, clear="refuse")
    async with Executor(url, graphs=[GRAPH], codec=codec, archive=str(tmp_path / "archive")) as executor:
        await executor.start(GRAPH, "a very private umbrella", run_id="r")
        before = await executor.store.read("r")
        await executor.archive(older_than=SECONDS)
        assert await executor.store.read("r") == before
        data = the_object(tmp_path).read_bytes()
        assert b"umbrella" not in data
        assert b'"cipher"' in data
        await executor.restore("r")
        assert await executor.store.read("r") == before


async def test_an_object_can_be_imported_if_nothing_else_is_left(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[GRAPH], archive=str(tmp_path / "archive")) as executor:
        run = await executor.start(GRAPH, "x", run_id="r")
        await executor.archive(older_than=SECONDS)
    lines = the_object(tmp_path).read_text().splitlines()
    assert [json.loads(line)["type"] for line in lines][:3] == ["export", "graph", "run"]
    async with Executor(graphs=[GRAPH]) as other:
        assert (await other.import_(lines)).runs == ("r",)
        assert (await other.load("r")).output == run.output


async def test_copies_of_stores_have_the_records(tmp_path: Path) -> None:
    source = open_store(f"sqlite:///{tmp_path}/runs.db", archive=str(tmp_path / "archive"))
    to = open_store("memory://")
    async with Executor(source, graphs=[GRAPH]) as executor:
        await executor.start(GRAPH, "x", run_id="r")
        await executor.archive(older_than=SECONDS)
    assert (await copy_store(source, to)).runs == ("r",)
    assert await to.read("r") == await source.read("r")
    assert (await copy_store(source, to)).skipped == ("r",)
    await source.close()


async def test_a_place_that_fails_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "archive").write_text("a file")
    async with Executor(graphs=[GRAPH], archive=str(tmp_path / "archive")) as executor:
        await executor.start(GRAPH, "x", run_id="r")
        with pytest.raises(StoreUnavailable, match=r"cannot be written: .*nothing was lost"):
            await executor.archive(older_than=SECONDS)
        assert (await executor.store.info("r")).archived is None
        assert (await executor.load("r")).status == "completed"
        (tmp_path / "archive").unlink()
        assert (await executor.archive(older_than=SECONDS)).runs == ["r"]
        assert (await executor.load("r")).status == "completed"


class Lossy:
    """A folder that keeps something else than it was given."""

    def __init__(self, inner: Archive) -> None:
        self._inner = inner
        self.url, self.gzip = inner.url, inner.gzip

    def put(self, name: str, data: bytes) -> None:
        self._inner.put(name, data[:-1])

    def get(self, name: str, *, most: int) -> bytes | None:
        return self._inner.get(name, most=most)

    def remove(self, name: str) -> None:
        self._inner.remove(name)


async def test_what_does_not_read_back_as_it_was_written_is_not_removed(tmp_path: Path) -> None:
    archive = Lossy(open_archive(str(tmp_path / "archive")))
    async with Executor(graphs=[GRAPH], archive=archive) as executor:
        await executor.start(GRAPH, "x", run_id="r")
        with pytest.raises(StoreUnavailable, match="is not what was written to it; the records of run 'r' stay"):
            await executor.archive(older_than=SECONDS)
        assert (await executor.store.info("r")).archived is None


async def test_a_run_that_is_not_ready_is_refused(tmp_path: Path) -> None:
    store = open_store("memory://", archive=str(tmp_path / "archive"))
    assert isinstance(store, ArchivedStore)
    async with Executor(store, graphs=[GRAPH]) as executor:
        run_id = await executor.enqueue(GRAPH, "x")
        with pytest.raises(RunConflict, match="has not ended"):
            await store.archive_run(run_id)
        with pytest.raises(RunUnknown):
            await store.archive_run("nosuch")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://x/y", "archive URL ftp"),
        ("s3://", "s3://BUCKET/PREFIX"),
        ("s3://bucket/x?nosuch=1", "no parameter 'nosuch'"),
        (f"s3://key:{SECRET}@bucket/x", "keys are not read from it"),
        (f"s3://bucket/x?endpoint=http://key:{SECRET}@127.0.0.1:9", "keys are not read from it"),
        (f"s3://bucket/x?password={SECRET}", "no parameter 'password'"),
        (f"file://key:{SECRET}@host/x", "write `file:///var/archive`"),
        (f"s3://key:{SECRET}@[", "archive URL cannot be read"),
        ("s3://bucket/x?timeout=0", "`timeout` must be more than 0 seconds"),
        ("s3://bucket/x?timeout=nan", "`timeout` must be more than 0 seconds"),
        ("file://host/x", "write `file:///var/archive`"),
    ],
)
def test_urls_that_cannot_be_used(url: str, why: str) -> None:
    with pytest.raises(StoreError, match=why) as told:
        open_archive(url)
    assert SECRET not in str(told.value)


def test_stores_that_cannot_be_archived(tmp_path: Path) -> None:
    coded = open_store("memory://", codec=AESGCMCodec({"k1": bytes(32)}))
    for store in (coded, open_store("memory://", archive=str(tmp_path))):
        with pytest.raises(InvalidValue, match=r"cannot be archived|has an archive already"):
            with_archive(store, str(tmp_path))


def test_names_of_objects_stay_inside_of_the_archive() -> None:
    from orchestrator.stores.archive import is_name

    for run_id in ("r", "../../etc/passwd", "a" * 500, "", ".", "ä/ö", "x\0y"):
        name = new_name(run_id, 12, 1_764_000_000.0, gzip=True)
        assert is_name(name)
        assert name.startswith("2025/11/24/")
    for name in ("../x", "/etc/passwd", "2025/11/24/../x", "2025/11/24/.x", "2025/11/24/a/b", "", "2025/11/24/a\n"):
        assert not is_name(name)


@quick_on("asyncio")
async def test_objects_are_what_they_say(tmp_path: Path) -> None:
    store = open_store("memory://", archive=str(tmp_path / "archive"))
    async with Executor(store, graphs=[GRAPH]) as executor:
        await executor.start(GRAPH, "x", run_id="r")
        await executor.archive(older_than=SECONDS)
        records = await store.read("r")
    data = the_object(tmp_path).read_bytes()
    assert [encode(one) for one in records_of("r", data)] == [encode(one) for one in records]
    cut = b"".join(data.splitlines(keepends=True)[:5])
    for bad, why in ((b"", "not JSON"), (b"[]", "not a JSON object"), (b'{"type":"end"}', "no run"), (cut, "records")):
        with pytest.raises(ValueError, match=why):
            records_of("r", bad)
    with pytest.raises(ValueError, match="records of run 'r'"):
        records_of("other", data)


def test_an_object_that_would_get_too_large_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of one letter is packed to a thousandth of its size."""
    most = 8 << 20
    monkeypatch.setattr("orchestrator.stores.archive.store.MAX_RECORD_BYTES", most)  # the real one takes a gigabyte
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(40)) + packer.flush()
    assert len(packed) < most // 100
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"it has more than 8,388,608 bytes when it is decompressed"):
            records_of("r", packed)
        assert tracemalloc.get_traced_memory()[1] < 2.2 * most
    finally:
        tracemalloc.stop()


def test_an_object_of_line_ends_takes_no_memory_for_each() -> None:
    data = b'{"type":"export"}\n' + b"\n" * (1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="not JSON"):
            records_of("r", data)
        assert tracemalloc.get_traced_memory()[1] < len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.full
async def test_the_bucket_says_what_is_wrong(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = open_archive(bucket.url.replace(bucket.name, "no-such-bucket"))
    with pytest.raises(StoreError, match="bucket 'no-such-bucket' does not exist"):
        nowhere.put("2026/01/02/a", b"x")
    unreachable = open_archive("s3://bucket/x?endpoint=http://127.0.0.1:9&region=eu-central-1")
    with pytest.raises(StoreUnavailable, match=r"cannot be read .*nothing was lost") as told:
        await anyio.to_thread.run_sync(partial(unreachable.get, "2026/01/02/a", most=9))
    assert SECRET not in str(told.value)
    archive = open_archive(bucket.url)
    assert archive.url == bucket.url
    archive.put("2026/01/02/a", b"x")
    assert bucket.keys() == ["some/runs/2026/01/02/a"]
    assert (archive.get("2026/01/02/a", most=9), archive.get("2026/01/02/b", most=9)) == (b"x", None)
    archive.remove("2026/01/02/a")
    archive.remove("2026/01/02/a")
    assert bucket.keys() == []
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(StoreError, match="environment has no keys"):
        open_archive(bucket.url).get("2026/01/02/a", most=9)


@pytest.fixture(params=sized(["sqlite"], ["memory", "sqlite", "postgres"]))
async def around(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store(store_url(request, request.param, tmp_path), archive=str(tmp_path / "archive"))
    yield opened
    await opened.close()


@pytest.mark.parametrize("check", STORE_CHECKS[:: sized(3, 1)], ids=lambda one: one.__name__)
async def test_a_store_with_an_archive_keeps_every_promise(check: StoreCheck, around: Store) -> None:
    await check(around)
