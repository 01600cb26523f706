"""The workflow of a run: it drives the run by an activity, sleeps until the run is due, and drives it again.

Its history has the run's id, statuses and waits; prompts and states are in the store. It is deterministic: all it does
is in this file and uses the clock and timers of Temporal. So it runs outside of the SDK's sandbox, which would import
this package anew for each workflow, within the 2 seconds after which the SDK takes a workflow for deadlocked.

Histories of older versions are replayed with the code of newer ones: a change of what is awaited needs
`workflow.patched`. `tests/engines/test_temporal.py` replays recorded histories.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from orchestrator.errors import install_command

try:
    from temporalio import workflow
    from temporalio.common import RetryPolicy
except ImportError as error:
    raise ImportError(f"Temporal needs the extra `temporal`: {install_command('temporal')}") from error

DRIVE = "orchestrator.drive"
"""The name of the activity."""
SILENCE = timedelta(seconds=4)
"""A worker that does not report for that long is taken for dead, and the run is delivered again. A worker that lives
keeps it: the run's lease decides."""
LONGEST = timedelta(days=30)
"""Time limit of a delivery. The next one waits for the drive."""
_RETRIES = RetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=10),
    maximum_attempts=0,
)
"""Retries of deliveries whose worker is gone. A run that cannot be driven is no failure of the activity: its outcome
says when to deliver the run again, so that an answer need not wait for the retry."""
_EVENTS = 1000
"""Events of a history after which the workflow continues in a new one. Workers that take it over replay it."""
_NOW = 0.001
"""Seconds that are not worth a timer."""


@dataclass(frozen=True)
class Outcome:
    """Result of a delivery."""

    status: str
    """The run's status."""
    wait: float | None = None
    """Seconds after which to deliver it again; None: when it is submitted again, or never."""
    tries: int = 0
    """See `Delivered.tries`."""


@workflow.defn(name="orchestrator.run", sandboxed=False)
class RunWorkflow:
    """Has a run delivered to workers for as long as it is submitted or due."""

    def __init__(self) -> None:
        self._at: float | None = None
        """Time of the next delivery by the workflow's clock; None: none."""
        self._cancelled = False

    @workflow.run
    async def run(self, run_id: str, wait: float | None = None, tries: int = 0) -> str:
        """Deliver the run until it has ended, or waits for something other than time.

        Args:
            run_id: the run's id.
            wait: seconds until the first delivery; None: a signal sets it.
            tries: see `Delivered.tries`.

        Returns:
            The run's status, as far as deliveries tell.
        """
        status = "queued"
        if wait is not None:
            self._ask(wait)
        while await self._is_time():
            self._at = None
            outcome = await workflow.execute_activity(
                DRIVE,
                args=[run_id, tries],
                result_type=Outcome,
                start_to_close_timeout=LONGEST,
                heartbeat_timeout=SILENCE,
                retry_policy=_RETRIES,
                cancellation_type=workflow.ActivityCancellationType.ABANDON,
            )
            status, tries = outcome.status, outcome.tries
            if outcome.wait is not None and not self._cancelled:
                self._ask(outcome.wait)
            if self._at is not None and _is_long():
                workflow.continue_as_new(args=[run_id, self._at - workflow.time(), tries])
        return "cancelled" if self._cancelled else status

    @workflow.signal
    def submit(self, wait: float) -> None:
        """Deliver the run after some seconds, or earlier if it is due earlier."""
        self._cancelled = False
        self._ask(wait)

    @workflow.signal
    def cancel(self) -> None:
        """Deliver the run no more. A delivery in progress continues."""
        self._cancelled, self._at = True, None

    def _ask(self, wait: float) -> None:
        at = workflow.time() + max(0.0, wait)
        self._at = at if self._at is None else min(self._at, at)

    async def _is_time(self) -> bool:
        """Wait until the run is to be delivered; False: it is not."""
        while self._at is not None and (left := self._at - workflow.time()) > _NOW:
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(partial(self._changed, self._at), timeout=left)
        return self._at is not None

    def _changed(self, at: float) -> bool:
        return self._at != at


def _is_long() -> bool:
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() >= _EVENTS
