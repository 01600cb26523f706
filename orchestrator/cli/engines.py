"""The engine of a command: what is submitted and cancelled there. Where it fails, a warning says so: no run is lost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orchestrator.cli.exits import UsageError
from orchestrator.cli.output import warn
from orchestrator.engines import engine_at
from orchestrator.errors import EngineUnavailable, InvalidValue

if TYPE_CHECKING:
    from orchestrator.engines import ServedEngine


def engine_of(given: str | None) -> ServedEngine | None:
    """The engine that `--engine` names, else `ORCHESTRATOR_ENGINE`; None: neither does.

    Raises:
        UsageError: it is no URL of an engine, or its extra is not installed.
    """
    url = given or os.environ.get("ORCHESTRATOR_ENGINE")
    if not url:
        return None

    try:
        return engine_at(url)
    except (InvalidValue, ImportError) as error:
        raise UsageError(f"--engine {url}: {error}") from None


def continuation(engine: ServedEngine | None, resume: str) -> str:
    """Tell how an answered run continues. `resume`: the command that continues it here."""
    return f"to continue:\n  {resume}" if engine is None else "a worker continues it"


async def submit(engine: ServedEngine | None, run_id: str, at: float | None = None) -> None:
    """Have a run delivered, if there is an engine. `at`: when, in Unix seconds; None: at once."""

    if engine is None:
        return
    try:
        await engine.submit(run_id, at=at)
    except EngineUnavailable as error:
        warn(f"{run_id} is in the store, and a worker will find it; it was not submitted: {error}")
    finally:
        await engine.aclose()


async def cancel(engine: ServedEngine | None, run_id: str) -> None:
    """Have a run not delivered any more, if there is an engine."""

    if engine is None:
        return
    try:
        await engine.cancel(run_id)
    except EngineUnavailable as error:
        warn(f"{run_id} is cancelled; its deliveries stay with the engine, and do nothing: {error}")
    finally:
        await engine.aclose()
