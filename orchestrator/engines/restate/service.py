"""The service that Restate calls: one virtual object for each run, which drives it and sends itself the next timer.

Restate has one delivery of a run under way at a time; the others wait. What a delivery came to is journaled there, and
with it the next delivery is sent. The object keeps the time of the only timer that counts: one that was replaced by a
later delivery does nothing, so that a run with many answers and deadlines has one timer, not one for each of them.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TypedDict

from orchestrator.engines.base import Deliveries
from orchestrator.engines.restate.address import EXTRA, HANDLER, SERVICE
from orchestrator.executor import Executor

try:
    import restate
except ImportError as error:
    raise ImportError(EXTRA) from error

KEPT = timedelta(hours=1)
"""How long Restate remembers deliveries that have ended, for `Engine.status`."""
LONGEST = timedelta(hours=1)
"""How long a delivery may say nothing. Then Restate asks it to end, after as long again it cuts the connection and
delivers the run again, which waits for the drive."""
_RETRIES = restate.InvocationRetryPolicy(
    initial_interval=timedelta(milliseconds=100), exponentiation_factor=2.0, max_interval=timedelta(seconds=10),
    max_attempts=10_000, on_max_attempts="kill",
)  # fmt: skip
"""Of deliveries whose worker is gone. One that is given up loses nothing: workers look for such runs themselves."""


class _Outcome(TypedDict):
    """What Restate journals of a delivery."""

    status: str
    due: float | None
    tries: int
    wait: float
    """Seconds from the end of the delivery until it is due."""


def service(
    executor: Executor | Deliveries, *, name: str = SERVICE, longest: timedelta = LONGEST
) -> restate.VirtualObject:
    """Make the service through which Restate delivers runs to this process.

        app = restate.app([service(executor)])

    Serve the app over HTTP/2, for example with hypercorn, and register its URL with Restate. The SDK of Restate takes
    SIGTERM for itself where it runs in the main thread.

    Args:
        executor: an open executor with the graphs of the runs; or `Deliveries`, to bound how many are driven.
        name: the name of the service, as in the URL of the engine.
        longest: how long Restate waits for a delivery before it asks it to end, and after that before it cuts its
            connection. The run goes on regardless; the next delivery waits for it.

    Raises:
        ImportError: the extra `restate` is not installed.
    """
    deliveries = executor if isinstance(executor, Deliveries) else Deliveries(executor)
    found = restate.VirtualObject(
        name,
        inactivity_timeout=longest,
        abort_timeout=longest,
        journal_retention=KEPT,
        invocation_retry_policy=_RETRIES,
    )

    @found.handler(HANDLER)
    async def deliver(ctx: restate.ObjectContext, sent: dict[str, float]) -> str:
        """Drive the run. A timer brings its `due` and `tries`; a submitted run brings nothing."""
        run_id, due = ctx.key(), sent.get("due")
        pending = await ctx.get("due", type_hint=float)
        if due is not None and due != pending:
            return "replaced"

        async def drive() -> _Outcome:
            status, again, tries = await deliveries.deliver(run_id, int(sent.get("tries", 0)))
            wait = 0.0 if again is None else max(0.0, again - time.time())
            return {"status": status, "due": again, "tries": tries, "wait": wait}

        outcome = await ctx.run_typed("drive", drive)
        again = outcome["due"]
        if again is None:
            ctx.clear_all()
        elif due is not None or again != pending:
            ctx.set("due", again)
            timer = {"due": again, "tries": float(outcome["tries"])}
            ctx.object_send(deliver, run_id, timer, send_delay=timedelta(seconds=outcome["wait"]))
        return outcome["status"]

    return found
