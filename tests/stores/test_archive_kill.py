"""A process that archives, restores or deletes runs is killed at every point: each run is whole, in one of both places.

A point is before or after each call that changes the store or the folder; inside of a call, the store's transaction
and the renaming of the file are what is whole or not at all.
"""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from orchestrator import Executor
from orchestrator.errors import RunUnknown
from orchestrator.stores.archive.store import ArchivedStore
from orchestrator.stores.base import Archivable
from tests.support.executors import chain, says
from tests.support.postgres import PostgresDatabase
from tests.support.programs import run as run_program

pytestmark = pytest.mark.anyio
GRAPH = chain(says("a"), says("b"))
_MOST = 60
"""Points at most: one more than there are ends the test."""

_PROGRAM = """
import os, signal, sys
from datetime import timedelta
from pathlib import Path

import anyio

from orchestrator import Executor
from orchestrator.stores import open_store
from orchestrator.stores.archive import FolderArchive

url, archive, what, left = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

def pass_point():
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

def watched(place, name, later=False):
    inner = getattr(place, name)
    async def waited(*args, **options):
        pass_point()
        found = await inner(*args, **options)
        pass_point()
        return found
    def called(*args, **options):
        pass_point()
        found = inner(*args, **options)
        pass_point()
        return found
    setattr(place, name, waited if later else called)

for place, name in ((os, "fsync"), (Path, "replace"), (FolderArchive, "put"), (FolderArchive, "get"),
                    (FolderArchive, "remove")):
    watched(place, name)

async def main():
    store = open_store(url, archive=archive)
    for name in ("note_object", "move_out", "move_back", "delete", "forget_objects"):
        watched(store.inner, name, later=True)
    async with Executor(store) as executor:
        if what == "archive":
            await executor.archive(older_than=timedelta(0))
        elif what == "restore":
            await executor.restore("r")
        else:
            await executor.delete("r")
    await store.close()
    os._exit(0)

anyio.run(main)
"""


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("what", ["archive", "restore", "delete"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_killed_at_every_point(what: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    if kind == "postgres":
        database: PostgresDatabase = request.getfixturevalue("postgres")
        url = database.url
    folder = tmp_path / "archive"
    killed = 0
    for point in range(1, _MOST):
        async with Executor(url, graphs=[GRAPH], archive=str(folder)) as executor:
            await executor.start(GRAPH, "x", run_id="r")
            records = await executor.store.read("r")
            if what != "archive":
                await executor.archive(older_than=timedelta(0))
        words = [_PROGRAM, url, folder, what, point]
        ended = await anyio.to_thread.run_sync(run_program, words)
        assert ended.code in (0, -signal.SIGKILL), ended.err
        killed += ended.code != 0
        async with Executor(url, graphs=[GRAPH], archive=str(folder), lease_ttl=1.0) as executor:
            store = executor.store
            assert isinstance(store, ArchivedStore)
            try:
                row = await store.info("r")
            except RunUnknown:
                assert what == "delete"
            else:
                if row.archived is None:
                    assert await store.inner.read("r") == records
                assert await store.read("r") == records
                assert (await executor.load("r")).status == "completed"
                # asked again, it is done
                if what == "archive":
                    await executor.archive(older_than=timedelta(0))
                    assert (await store.info("r")).archived is not None
                    assert len(objects(folder)) == 1
                elif what == "restore":
                    await executor.restore("r")
                    assert await store.inner.read("r") == records
                assert await store.read("r") == records
                assert (await executor.check()).ok
                await executor.delete("r")
            assert isinstance(store.inner, Archivable)
            noted = {one.name for one in await store.inner.left_objects()}
            assert {one.relative_to(folder).as_posix() for one in objects(folder)} <= noted  # nothing is forgotten
            assert not await store.delete("r")  # asked again: what is left is removed
            assert objects(folder) == []
            await store.inner.forget_objects(noted)
        if ended.code == 0:
            break
    assert killed >= {"archive": 10, "restore": 3, "delete": 4}[what], killed
    assert ended.code == 0


def objects(folder: Path) -> list[Path]:
    """All files that a process left in the archive, but those that were never finished."""
    return [one for one in folder.rglob("*.jsonl") if one.is_file()]
