"""Events that several processes send to a run whose holder is killed: each is taken once."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from orchestrator import Executor
from orchestrator.errors import RunEnded
from tests.executor.event_program import RUN, takes
from tests.support.programs import Piped
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio


@contextmanager
def program(*words: object) -> Iterator[Piped]:
    """One of the processes."""
    begun = Piped(words, module="tests.executor.event_program", loads=["tests.executor.event_program"])
    try:
        yield begun
    finally:
        begun.close()


def kill_holders(url: str, backend: str, seed: int) -> int:
    """Kill holders of the run at any moment, and begin others, until it has ended; how many were killed."""
    dice, killed = random.Random(seed), 0
    deadline = time.monotonic() + 200
    while True:
        with program("hold", url, backend) as holder:
            patience = time.monotonic() + dice.uniform(0.02, 0.5)
            while not holder.ended and time.monotonic() < patience:
                time.sleep(0.005)
            if holder.ended:
                assert holder.wait() == 0, holder.read()[1]
                return killed
            assert time.monotonic() < deadline, "the run does not come to its end"
            holder.signal(signal.SIGKILL)
            holder.wait()
            killed += 1


@quick_on("trio")
async def test_events_of_two_processes_are_taken_once_though_holders_are_killed(
    tmp_path: Path, anyio_backend_name: str
) -> None:
    url, many = f"sqlite:///{tmp_path}/runs.db", sized(16, 100)
    async with Executor(url, graphs=[takes()]) as executor:
        run = await executor.start("takes", many, run_id=RUN)
        assert run.status == "paused"
        with (
            program("send", url, anyio_backend_name, 0, many) as one,
            program("send", url, anyio_backend_name, many // 2, many) as other,
        ):
            killed = await anyio.to_thread.run_sync(kill_holders, url, anyio_backend_name, many)
            for sender in (one, other):
                out, err = await anyio.to_thread.run_sync(sender.read)
                assert out == "done\n", err
        run = await executor.load(RUN)
        assert run.status == "completed"
        assert killed > 0
        assert Counter(run.output) == Counter(range(many)), "each once"
        records = await executor.store.read(RUN)
        arrived = [record for record in records if record.type == "event_received"]
        assert Counter(record.id for record in arrived) == Counter(f"e{number}" for number in range(many))
        assert run.output == [record.data for record in arrived], "in the order in which they arrived"
        await executor.send(RUN, "tick", 0, id="e0")  # delivered again: it has been taken, the run's end or not
        with pytest.raises(RunEnded):
            await executor.send(RUN, "tick", 0, id="one more")
        assert await executor.store.read(RUN) == records


@quick_on("asyncio")
async def test_what_send_returned_for_is_in_the_journal_though_the_holder_is_killed_at_once(
    tmp_path: Path, anyio_backend_name: str
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    rounds = sized(4, 20)
    async with Executor(url) as executor, Executor(url, graphs=[takes()]) as starter:
        await starter.start("takes", 1000, run_id=RUN)
        for number in range(rounds):
            with program("hold", url, anyio_backend_name) as holder:
                for part in range(10):
                    await executor.send(RUN, "tick", part, id=f"{number}-{part}", resume=False)
                    if part == number % 10:
                        holder.signal(signal.SIGKILL)
                    assert f"{number}-{part}" in (await executor.load(RUN)).machine.events.ids
        run = await executor.load(RUN)
        assert run.machine.events.count == 10 * rounds
