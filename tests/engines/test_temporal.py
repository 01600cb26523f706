"""The adapter of Temporal without a server: URLs, the event loop that it needs, and recorded histories of workflows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from orchestrator.engines import engine_at
from orchestrator.engines.temporal import RunWorkflow, TemporalAddress, TemporalEngine, address_of
from orchestrator.errors import EngineUnavailable, InvalidValue
from tests.support.ports import free_port

HISTORIES = Path(__file__).parent / "histories"
"""Of workflows that ran with this code or older versions of it; `python -m tests.engines.histories` records them."""


def test_a_url_says_where_the_server_is() -> None:
    assert address_of("temporal://") == TemporalAddress("127.0.0.1:7233", "default", "orchestrator", None)
    url = "temporal://temporal.internal:7000/shop?task_queue=agents&profile=prod"
    assert address_of(url) == TemporalAddress("temporal.internal:7000", "shop", "agents", "prod")
    assert address_of("temporal://[::1]").target == "[::1]:7233"
    assert isinstance(engine_at(url), TemporalEngine)


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("temporal://127.0.0.1/?queue=agents", "no parameter 'queue'"),
        ("temporal://me:secret@127.0.0.1", "no user or password"),
        ("temporal://127.0.0.1:99999", "a port below 65536"),
        ("temporal://127.0.0.1/shop/agents", "is not a namespace"),
    ],
)
def test_a_wrong_url_is_refused(url: str, fault: str) -> None:
    with pytest.raises(InvalidValue, match=fault) as refused:
        engine_at(url)
    assert "secret" not in str(refused.value)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_server_that_is_not_there_is_unavailable() -> None:
    engine = TemporalEngine(f"temporal://127.0.0.1:{free_port()}/shop")
    for ask in (engine.submit, engine.cancel, engine.status):
        with pytest.raises(EngineUnavailable, match=r"namespace shop: .*start it"):
            await ask("run")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_another_event_loop_than_asyncio_is_refused() -> None:
    with pytest.raises(RuntimeError, match="needs asyncio"):
        await TemporalEngine().submit("run")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.json")), ids=lambda path: path.stem)
async def test_recorded_histories_are_replayed(path: Path) -> None:
    """Workflows that began with an older version go on with this one: a change that they cannot follow fails here."""
    history = WorkflowHistory.from_json(f"run:{path.stem}", path.read_text())
    with ThreadPoolExecutor() as threads:
        await Replayer(workflows=[RunWorkflow], workflow_task_executor=threads).replay_workflow(history)


def test_histories_have_the_id_of_the_run_and_nothing_else_of_it() -> None:
    text = (HISTORIES / "errand-0.json").read_text()
    assert "errand-0" in text
    assert not {"pay", "ship", "look", "notes"}.intersection(text.replace('"', " ").split())
