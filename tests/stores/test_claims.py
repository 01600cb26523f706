"""Processes that claim runs from one store, and are killed in the middle."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
from msgspec import structs

from orchestrator.kernel.records import Ended
from orchestrator.stores import open_store
from orchestrator.stores.requests import NewRun
from orchestrator.testing.store_conformance.helpers import new_run
from tests.support.programs import CODE, Piped
from tests.support.sizes import quick_on, sized
from tests.support.stores import kinds

pytestmark = pytest.mark.anyio

WORKER = """
import sys, anyio
from orchestrator.errors import RunConflict
from orchestrator.kernel.records import Ended, EventReceived
from orchestrator.stores import open_store
from orchestrator.stores.owner import Owner
from orchestrator.stores.requests import Append, ClaimRequest

async def main():
    store, owner = open_store(sys.argv[1]), Owner.here()
    print("ready", flush=True)
    idle = 0
    while idle < 40:
        taken = await store.claim(ClaimRequest(owner, graphs=["g"], limit=3, ttl=30.0))
        idle = 0 if taken else idle + 1
        for info, lease in taken:
            after = info.head
            if after == 1:
                begun = EventReceived(seq=2, ts=1.0, name="begun", data=owner.pid)
                after = await store.append(Append(info.run_id, [begun], after=1, lease=lease.token))
            end = Ended(seq=after + 1, ts=2.0, status="completed", output=owner.pid)
            await store.append(
                Append(info.run_id, [end], after=after, status="completed", lease=lease.token, release=True)
            )
        await anyio.sleep(0.02)
    await store.close()

anyio.run(main)
"""


def fight(url: str, kills: int) -> list[int]:
    """Let three workers claim runs, and kill one after the other; the exit codes of those that were left."""
    with ExitStack() as stack:

        def worker() -> Piped:
            process = stack.enter_context(closing(Piped([WORKER, url], module=CODE)))
            process.first_line()
            return process

        workers = [worker() for _ in range(3)]
        for _ in range(kills):
            time.sleep(0.15)
            workers.pop(0).signal(signal.SIGKILL)
            workers.append(worker())
        return [process.wait() for process in workers]


@kinds("sqlite", "postgresql")
@quick_on("asyncio")
async def test_runs_that_killed_processes_had_claimed_are_claimed_by_others_and_end_once(url: str) -> None:
    count = sized(60, 600)
    store = open_store(url)
    ids: list[str] = []
    for _ in range(count):
        info, records = new_run()
        info = replace(info, graph="g")
        await store.create(NewRun(info, [structs.replace(records[0], graph="g")]))
        ids.append(info.run_id)
    assert set(fight(url, sized(2, 10))) == {0}
    for run_id in ids:
        info, records = await store.info(run_id), await store.read(run_id)
        assert (info.status, info.lease, info.deaths) == ("completed", None, 0)
        assert [record.seq for record in records] == [1, 2, 3]
        assert sum(isinstance(record, Ended) for record in records) == 1
    assert await store.check() == []
    await store.close()
