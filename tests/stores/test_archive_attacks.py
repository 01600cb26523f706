"""Archives that others have changed, servers that fail or lie, and rows that name what is not theirs."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from orchestrator import Executor
from orchestrator.errors import Archived, RunArchived, RunConflict, StoreCorrupt, StoreUnavailable
from orchestrator.stores import open_store
from orchestrator.stores.archive import new_name, open_archive
from orchestrator.stores.archive.store import ArchivedStore
from orchestrator.stores.base import Archivable
from tests.support.executors import chain, says
from tests.support.s3 import KEY, SECRET

pytestmark = pytest.mark.anyio
SECONDS = timedelta(0)
GRAPH = chain(says("a"), says("b"))
NAME = "2026/01/02/a"


async def archived_runs(folder: Path, *ids: str) -> dict[str, Archived]:
    """Runs of a file, in an archive beside it."""
    found = {}
    async with Executor(f"sqlite:///{folder}/runs.db", graphs=[GRAPH], archive=str(folder / "archive")) as executor:
        for run_id in ids:
            await executor.start(GRAPH, f"input of {run_id}", run_id=run_id)
        await executor.archive(older_than=SECONDS)
        for run_id in ids:
            archived = (await executor.store.info(run_id)).archived
            assert archived is not None
            found[run_id] = archived
    return found


def changed_row(folder: Path, query: str, *values: object) -> None:
    connection = sqlite3.connect(folder / "runs.db")
    with connection:
        connection.execute(query, values)
    connection.close()


def larger(file: Path, other: Path) -> None:
    with file.open("ab") as opened:
        opened.truncate(1 << 33)  # a sparse file, of which no more is read than the object had


def linked(file: Path, other: Path) -> None:
    file.rename(file.with_name("moved"))
    file.symlink_to(file.with_name("moved"))  # even to the right bytes: what it leads to can change


def piped(file: Path, other: Path) -> None:
    file.unlink()
    os.mkfifo(file)  # reading it would wait for ever


def endless(file: Path, other: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def emptied(file: Path, other: Path) -> None:
    file.unlink()
    file.mkdir()


def anothers(file: Path, other: Path) -> None:
    file.write_bytes(other.read_bytes())


@pytest.mark.skipif(os.name == "nt", reason="pipes and links of other systems")
@pytest.mark.parametrize(
    ("change", "kind", "why"),
    [
        (larger, StoreCorrupt, r"was changed \(it has more than \d+ bytes\)"),
        (anothers, StoreCorrupt, "was changed"),
        (linked, StoreUnavailable, "symbolic link"),
        (endless, StoreUnavailable, "symbolic link"),
        (piped, StoreUnavailable, "not a file"),
        (emptied, StoreUnavailable, "not a file"),
    ],
)
async def test_an_object_that_was_replaced_is_told_by_name(
    change: Callable[[Path, Path], None], kind: type[Exception], why: str, tmp_path: Path
) -> None:
    found = await archived_runs(tmp_path, "r", "other")
    folder = tmp_path / "archive"
    change(folder / found["r"].name, folder / found["other"].name)
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[GRAPH], archive=str(folder)) as executor:
        for call in (executor.load("r"), executor.restore("r"), executor.fork("r", at=2)):
            with anyio.fail_after(20):
                with pytest.raises(kind, match=f"object '{found['r'].name}' .*{why}"):
                    await call
        assert (await executor.load("other")).status == "completed"
        assert (await executor.store.info("r")).archived == found["r"]


async def test_a_row_that_names_the_object_of_another_run_does_not_show_that_run(tmp_path: Path) -> None:
    """Not even if the other run was read just now, and its records are kept."""
    await archived_runs(tmp_path, "r", "other")
    changed_row(
        tmp_path, "UPDATE runs SET archived = (SELECT archived FROM runs WHERE run_id = 'other') WHERE run_id = 'r'"
    )
    async with Executor(f"sqlite:///{tmp_path}/runs.db", archive=str(tmp_path / "archive")) as executor:
        assert (await executor.load("other")).status == "completed"
        for call in (executor.load("r"), executor.restore("r")):
            with pytest.raises(StoreCorrupt, match="it has the records of run 'other'"):
                await call
        with pytest.raises(StoreCorrupt, match="it has the records of run 'other'"):
            executor.store.read_now("r")


@pytest.mark.parametrize("name", ["../secret", "2026/01/02/../../../../secret", "/etc/passwd", "2026/01/02/a\0"])
async def test_a_row_whose_name_leads_out_of_the_archive_is_damaged(name: str, tmp_path: Path) -> None:
    await archived_runs(tmp_path, "r")
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    changed_row(tmp_path, "UPDATE runs SET archived = json_set(archived, '$.name', ?)", name)
    changed_row(tmp_path, "UPDATE archive_objects SET data = json_set(data, '$.name', ?), name = ?", name, name)
    url, archive = f"sqlite:///{tmp_path}/runs.db", str(tmp_path / "archive")
    async with Executor(url, graphs=[GRAPH], archive=archive) as executor:
        for call in (executor.load("r"), executor.restore("r"), executor.fork("r", at=2)):
            with pytest.raises(StoreCorrupt, match="names no object of an archive"):
                await call
        assert await executor.delete("r") == ["r"]
    assert secret.read_text() == "a secret"


async def test_a_noted_object_whose_name_leads_out_of_the_archive_is_not_written(tmp_path: Path) -> None:
    """An object that was noted with the same content is written again, but never outside of the archive."""
    await archived_runs(tmp_path, "r")
    url, archive, name = f"sqlite:///{tmp_path}/runs.db", str(tmp_path / "archive"), "../written"
    async with Executor(url, archive=archive) as executor:
        assert await executor.restore("r")
    changed_row(tmp_path, "UPDATE archive_objects SET data = json_set(data, '$.name', ?), name = ?", name, name)
    async with Executor(url, archive=archive) as executor:
        found = await executor.archive(older_than=SECONDS)
        assert "names no object of an archive" in found.skipped["r"]
        assert (await executor.load("r")).status == "completed"
    assert not (tmp_path / "written").exists()


async def test_a_run_of_the_same_id_is_not_replaced_by_the_one_before_it(tmp_path: Path) -> None:
    """The run is deleted, and its id is given again, while its object is about to be written."""
    store = open_store("memory://", archive=str(tmp_path / "archive"))
    assert isinstance(store, ArchivedStore)
    inner: Any = store.inner
    note = inner.note_object
    async with Executor(store, graphs=[GRAPH]) as executor:

        async def noted(run_id: str, one: Archived) -> Archived:
            inner.note_object = note
            await executor.delete("r")
            await executor.start(GRAPH, "second", run_id="r")
            found: Archived = await note(run_id, one)
            return found

        await executor.start(GRAPH, "first", run_id="r")
        inner.note_object = noted
        with pytest.raises(RunConflict, match="another run has its id"):
            await store.archive_run("r")
        assert (await executor.load("r")).state.model_dump()["question"] == "second"
        assert (await executor.archive(older_than=SECONDS)).runs == ["r"]
        assert (await executor.load("r")).state.model_dump()["question"] == "second"


async def test_the_password_of_an_archive_of_somebodys_own_is_not_shown(tmp_path: Path) -> None:
    name = new_name("r", 2, 1.0, gzip=False)
    for url in (f"ftp://user:{SECRET}@host/x", f"ftp://{SECRET}@host/x", f"ftp://user:{SECRET}@["):
        assert SECRET not in str(RunArchived("r", Archived(url, name, "0", 1, 1.0)))


# ------------------------------------------------------------------------------------------ servers


class Server(ThreadingHTTPServer):
    """A server that acts as it is told: 500, silence, other bytes, or wrong digests."""

    act = "ok"
    kept: dict[str, bytes]
    asked = 0
    silence = 1.0
    over: threading.Event


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it so
        """Nothing is logged."""

    def do_PUT(self) -> None:
        data = self._body()
        if self._fails():
            return
        if self._server.act != "forgets":
            self._server.kept[self._path()] = data
        self._answer(200, b"")

    def do_GET(self) -> None:
        if self._fails():
            return
        data = self._server.kept.get(self._path())
        if data is None:
            code = b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
            self._answer(404, code)
            return
        if self._server.act == "trickles":
            self._trickle()
            return
        if self._server.act == "other bytes":
            data = data.replace(b"input", b"inpux")
        lies = {"x-amz-checksum-sha256": "AAAA", "x-amz-checksum-crc32": "AAAA", "ETag": '"0"'}
        self._answer(200, data, lies if self._server.act == "wrong digests" else {})

    def do_DELETE(self) -> None:
        if not self._fails():
            self._server.kept.pop(self._path(), None)
            self._answer(204, b"")

    @property
    def _server(self) -> Server:
        return cast(Server, self.server)

    def _fails(self) -> bool:
        self._server.asked += 1
        if self._server.act == "fails":
            self._answer(500, b"<Error><Code>InternalError</Code><Message>broken</Message></Error>")
        elif self._server.act == "is silent":
            self._server.over.wait(self._server.silence)
            self.close_connection = True
        elif self._server.act == "is no S3 server":
            self._answer(200 if self.command == "PUT" else 403, b"<html>Welcome to nginx!</html>")
        else:
            return False
        return True

    def _trickle(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.close_connection = True
        for _ in range(100):
            try:
                self.wfile.write(b"{")
                self.wfile.flush()
            except OSError:
                return
            time.sleep(0.1)

    def _path(self) -> str:
        return self.path.partition("?")[0]

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return found

    def _answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    made = Server(("127.0.0.1", 0), Handler)
    made.kept, made.over = {}, threading.Event()
    made.daemon_threads = True
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.over.set()
        made.shutdown()
        made.server_close()


TRICKLES = pytest.param("trickles", marks=pytest.mark.full)
"""It takes as long as a bucket may take, several times."""


def url_of(server: Server, timeout: float = 0.4) -> str:
    place = f"127.0.0.1:{server.server_address[1]}"
    return f"s3://bucket/x?endpoint=http://{place}&region=eu-central-1&timeout={timeout}"


@pytest.mark.full
@pytest.mark.parametrize("act", ["fails", "is silent", TRICKLES, "forgets", "other bytes", "is no S3 server"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_bucket_that_fails_or_lies_loses_nothing(act: str, server: Server, tmp_path: Path) -> None:
    async with Executor(graphs=[GRAPH], archive=url_of(server)) as executor:
        store = executor.store
        assert isinstance(store, ArchivedStore)
        await executor.start(GRAPH, "input", run_id="r")
        records = await store.read("r")
        server.act = act
        with anyio.fail_after(60), pytest.raises(Exception) as told:  # noqa: PT011  its class is looked at below
            await executor.archive(older_than=SECONDS)
        assert type(told.value).__name__ in ("StoreUnavailable", "StoreError"), repr(told.value)
        assert SECRET not in str(told.value)
        assert (await store.info("r")).archived is None
        assert await store.inner.read("r") == records
        server.act = "ok"
        assert (await executor.archive(older_than=SECONDS)).runs == ["r"]
        (object_,) = server.kept
        assert isinstance(store.inner, Archivable)
        assert [one.name for one in await store.inner.objects("r")][-1] in object_


@pytest.mark.full
@pytest.mark.parametrize("act", ["fails", "is silent", TRICKLES, "other bytes", "is no S3 server"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_archived_run_outlives_a_bucket_that_fails_or_lies(act: str, server: Server, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[GRAPH], archive=url_of(server)) as executor:
        await executor.start(GRAPH, "input", run_id="r")
        await executor.archive(older_than=SECONDS)
        before = (await executor.store.info("r")).archived
    async with Executor(url, graphs=[GRAPH], archive=url_of(server)) as executor:
        server.act = act
        kind = StoreCorrupt if act == "other bytes" else Exception
        for call in (executor.load("r"), executor.restore("r")):
            with anyio.fail_after(60), pytest.raises(kind) as told:
                await call
            assert type(told.value).__name__ in ("StoreUnavailable", "StoreError", "StoreCorrupt"), repr(told.value)
        assert (await executor.store.info("r")).archived == before
        server.act = "ok"
        assert (await executor.load("r")).status == "completed"


async def test_what_a_server_says_of_its_digests_does_not_count(server: Server) -> None:
    """The row of the run has the digest: right bytes are right, whatever the server says of them."""
    server.act = "wrong digests"
    async with Executor(graphs=[GRAPH], archive=url_of(server)) as executor:
        await executor.start(GRAPH, "input", run_id="r")
        assert (await executor.archive(older_than=SECONDS)).runs == ["r"]
        assert (await executor.load("r")).status == "completed"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_whoever_stops_waiting_for_a_silent_bucket_goes_on_at_once(server: Server) -> None:
    async with Executor(graphs=[GRAPH], archive=url_of(server, timeout=300)) as executor:
        store = executor.store
        assert isinstance(store, ArchivedStore)
        await executor.start(GRAPH, "input", run_id="r")
        await executor.archive(older_than=SECONDS)
        store._kept._runs.clear()
        server.act, server.silence = "is silent", 300.0
        with anyio.fail_after(60), anyio.move_on_after(0.1) as scope:
            await executor.load("r")
        assert scope.cancelled_caught
        server.over.set()


def test_no_more_of_a_long_object_is_read_than_it_should_have(server: Server) -> None:
    archive = open_archive(url_of(server))
    server.kept["/bucket/x/2026/01/02/a"] = b"x" * 1_000_000
    assert archive.get(NAME, most=9) == b"x" * 10
