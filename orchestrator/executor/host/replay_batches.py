"""Replays of many runs, which go on in the background of an executor, a few at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import anyio
from anyio.lowlevel import checkpoint

from orchestrator.errors import OrchestratorError
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.replays import Order, check_manner, replay

log = logging.getLogger("orchestrator")

ReplayState: TypeAlias = Literal["waiting", "running", "over", "failed", "stopped"]
"""waiting: it has not begun; running; over: it ended or paused; failed: the run cannot be replayed, or its replay was
given up; stopped: the batch was stopped before it was over, or its executor closed."""


@dataclass(slots=True)
class ReplayProgress:
    """One run of a batch."""

    run_id: str
    """The run that is replayed."""
    replay_id: str
    """The id of the replay, a run of its own once it has begun."""
    state: ReplayState = "waiting"
    error: OrchestratorError | None = None
    """Why the run cannot be replayed, or why its replay was given up."""


def begin(host: Host, runs: Mapping[str, str], order: Order, concurrency: int) -> ReplayBatch:
    """See `Executor.begin_replays`.

    Args:
        order: what each replay is, without its run and its id.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency={concurrency!r}: use 1 or more")
    check_manner(order.live, order.approve, order.at)
    batch = ReplayBatch(runs)
    host.background().start_soon(batch.drive, host, order, concurrency)
    return batch


class ReplayBatch:
    """Many runs that are replayed in the background.

    A run that cannot be replayed does not stop the others.

    Attributes:
        runs: Each run and how far it is, in their order.
    """

    def __init__(self, runs: Mapping[str, str]) -> None:
        self.runs = tuple(ReplayProgress(run_id, replay_id) for run_id, replay_id in runs.items())
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()

    @property
    def over(self) -> bool:
        """Whether no replay goes on, and none will begin."""
        return self._over.is_set()

    def stop(self) -> None:
        """Begin no further replay, and interrupt those that run. `Executor.resume` continues an interrupted one."""
        self._scope.cancel()

    async def wait(self) -> None:
        """Return when no replay goes on, and none will begin."""
        await self._over.wait()

    async def drive(self, host: Host, order: Order, concurrency: int) -> None:
        """Replay the runs, at most `concurrency` at the same time."""
        host.mark_task()
        left: Iterator[ReplayProgress] = iter(self.runs)

        async def work() -> None:
            await checkpoint()  # the executor may have been left before it began
            for one in left:  # shared: each worker takes the next one
                await _replay(host, replace(order, parent=one.run_id, run_id=one.replay_id), one)

        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    for _ in range(min(concurrency, len(self.runs))):
                        tasks.start_soon(work)
        finally:
            for one in self.runs:
                if one.state in ("waiting", "running"):
                    one.state = "stopped"
            self._over.set()


async def _replay(host: Host, order: Order, one: ReplayProgress) -> None:
    one.state = "running"
    try:
        await replay(host, order)
    except OrchestratorError as error:
        one.state, one.error = "failed", error
    except Exception as error:  # whatever it is, the other runs go on
        log.warning("run %s could not be replayed", order.parent, exc_info=error)
        one.state, one.error = "failed", OrchestratorError(f"{type(error).__name__}: {error}")
    else:
        one.state = "over"
