"""A process that is killed while it forks a run: the fork is there as a whole, or not at all."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from pathlib import Path

import anyio.to_thread
import pytest

from orchestrator import Executor
from orchestrator.errors import RunUnknown
from orchestrator.stores import open_store
from tests.executor.test_forking import BILL, Desk
from tests.support.programs import CODE, Piped
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio

FORKS = """
import sys

import anyio

from orchestrator import Executor

async def main():
    async with Executor(sys.argv[1]) as executor:
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(1000):
            name = f"f{number}"
            await executor.fork("r", at=4, update={"note": "x" * 2000}, run_id=name, start=False)
            print(name, flush=True)

anyio.run(main)
"""


def killed(url: str, seconds: float) -> list[str]:
    """Kill a process that forks a run, and give the names of the forks that it told of."""
    with closing(Piped([FORKS, url], module=CODE, stdin=None)) as process:
        assert process.line() == "ready\n"
        process.write("\n")
        time.sleep(seconds)
        process.signal(signal.SIGKILL)
        return process.read()[0].split()


@quick_on("asyncio")
async def test_a_fork_is_there_as_a_whole_or_not_at_all_when_its_process_is_killed(tmp_path: Path) -> None:
    url, desk = f"sqlite:///{tmp_path}/runs.db", Desk()
    async with Executor(url, graphs=[BILL], tools=desk.tools()) as executor:
        await executor.start(BILL, {}, run_id="r")
    for attempt in range(sized(3, 25)):
        told = await anyio.to_thread.run_sync(killed, url, 0.004 * (attempt + 1))
        store = open_store(url)
        try:
            parent = await store.read("r", upto=4)
            names = [f"f{number}" for number in range(len(told) + 1)]
            for name in names:
                try:
                    records = await store.read(name)
                except RunUnknown:
                    assert name not in told
                    continue
                assert list(records[:4]) == list(parent)
                assert [record.type for record in records[4:]] == ["forked"]
                assert (await store.info(name)).head == 5
            for name in names:
                try:
                    await store.delete(name)
                except RunUnknown:
                    continue
        finally:
            await store.close()
    async with Executor(url, graphs=[BILL], tools=desk.tools()) as executor:
        fork = await executor.fork("r", at=4, run_id="f0")
        assert fork.parent is not None
        assert fork.parent.run_id == "r"
    assert desk.paid == [1]
