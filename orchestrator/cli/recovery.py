"""Going on with every run that nobody drives, each in its own code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from orchestrator.cli.error_texts import error_text
from orchestrator.cli.exits import UsageError
from orchestrator.cli.launch import Given, Launch, of_run
from orchestrator.cli.run_session import opened
from orchestrator.cli.storage import codec_of_environment
from orchestrator.errors import OrchestratorError

if TYPE_CHECKING:
    from orchestrator.executor import Run


async def recovered(url: str) -> tuple[list[Run], list[str]]:
    """The runs that were driven until they ended or paused, and why others could not be taken up."""
    from orchestrator.executor import Executor

    groups: dict[Launch, list[str]] = {}
    faults: list[str] = []
    runs: list[Run] = []
    async with Executor(store=url, codec=codec_of_environment()) as looking:
        for run_id in await looking.workers.recoverable():
            try:
                found = await looking.load(run_id)
                command = f"orchestrator resume {run_id}"
                launch = of_run(run_id, found.root_id, found.refs, url, Given(), command=command)
            except (UsageError, OrchestratorError) as error:
                faults.append(f"{run_id}: {error_text(error)}")
            else:
                groups.setdefault(launch, []).append(run_id)

    async def resume_runs(launch: Launch, names: list[str]) -> None:
        try:
            code = launch.load()
        except (UsageError, OrchestratorError) as error:
            faults.extend(f"{name}: {error_text(error)}" for name in names)
            return
        async with opened(url, code) as executor:
            driven = await executor.recover(only=names)
            left = set(names) - {run.run_id for run in driven}
            runs.extend(driven)
            # Of these the executor has said why, if nobody else was quicker.
            faults.extend(
                f"{name}: it could not be resumed" for name in await executor.workers.recoverable() if name in left
            )

    async with anyio.create_task_group() as tasks:
        for launch, names in groups.items():
            tasks.start_soon(resume_runs, launch, names)
    return runs, faults
