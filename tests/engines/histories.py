"""`python -m tests.engines.histories`: records histories of workflows, which `test_temporal.py` replays.

Needs TEMPORAL_SERVER. Record again, beside the old ones, what is new in the workflow; delete none that users may have.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import anyio
from temporalio.client import Client

from tests.engines.crew import Crew, crew
from tests.support import temporal

_FOLDER = Path(__file__).parent / "histories"


async def record(server: temporal.TemporalServer, folder: Path) -> None:
    """Have runs end, wait, be answered, be cancelled and outlive their worker, and keep their histories."""
    async with crew(folder, server, f"sqlite:///{folder}/runs.db") as found:
        ended, answered, cancelled, rested, killed = [
            await found.begin(graph, 3_600_000) for graph in ("errand", "asking", "asking", "resting", "slowly")
        ]
        gate = found.world.close("slow")
        for run_id in (answered, cancelled):
            await _until_asked(found, run_id)
        question = (await found.executor.load(answered)).waiting[0]
        await found.executor.answer(answered, question.id, "yes", resume=False)
        await found.engine.submit(answered)
        await found.executor.cancel(cancelled)
        await found.engine.cancel(cancelled)
        await found.until(lambda: found.world.count("slow") == 1, "it is in the step")
        found.driver().kill()
        await found.until(lambda: found.world.count("slow") == 2, "another worker repeats the step")
        gate.set()
        await found.ended()
        client = await Client.connect(server.url.removeprefix("temporal://"))
        for run_id in (ended, answered, cancelled, rested, killed):
            handle = client.get_workflow_handle(f"run:{run_id}")
            await handle.result()
            history = await handle.fetch_history()
            (_FOLDER / f"{run_id}.json").write_text(json.dumps(history.to_json_dict(), indent=1) + "\n")


async def _until_asked(found: Crew, run_id: str) -> None:
    while True:
        if (await found.executor.load(run_id)).waiting and await found.engine.status(run_id) == "queued":
            return
        await anyio.sleep(0.05)


def main() -> None:
    """Record them."""
    program, folder = temporal.command(), Path(tempfile.mkdtemp())
    assert program is not None, "no Temporal server: export TEMPORAL_SERVER=$(.ci/temporal DIR)"
    _FOLDER.mkdir(exist_ok=True)
    with temporal.running(program, folder / "server") as server:
        anyio.run(record, server, folder)


if __name__ == "__main__":
    main()
