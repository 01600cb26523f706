"""Kept runs that have ended are reopened: each kept run that failed, was cancelled or spent a limit, to its end."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from orchestrator import Limits, Run
from orchestrator.errors import RunEnded
from tests.data.kept_runs import ANSWER, CALLING, STORE, STRATEGIES, answer_to, opened
from tests.executor.test_kept_runs import OVER

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("impatient"),
    pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True),
]

ENDED = [run_id for run_id in OVER if not run_id.endswith("-completed")]


@pytest.fixture(scope="module")
def unpacked() -> bytes:
    """The store's file."""
    return lzma.decompress(STORE.read_bytes())


@pytest.mark.full
async def test_every_kept_run_that_ended_goes_on_and_comes_to_its_answer(unpacked: bytes, tmp_path: Path) -> None:
    (tmp_path / "runs.db").write_bytes(unpacked)
    async with opened(f"sqlite:///{tmp_path}/runs.db", "completed") as executor:
        for run_id in ENDED:
            name, _, status = run_id.rpartition("-")
            before: Run = await executor.load(run_id)
            with pytest.raises(RunEnded, match="--retry"):
                await executor.resume(run_id)
            limits = Limits(steps=200) if status == "exhausted" else None
            if status == "exhausted":
                with pytest.raises(RunEnded, match=r"steps=2 are spent \(2 used\)"):
                    await executor.resume(run_id, retry=True)
            run = await executor.resume(run_id, retry=True, limits=limits, approve="dangerous")
            while run.waiting:
                run = await executor.answer(run_id, run.waiting[0].id, answer_to(run.waiting[0].kind))
            if run_id == "chat-failed":  # an edge took the model's failure, and the node behind it raised that again
                assert str(run.error).split(";")[0] == str(before.error).split(";")[0]  # the advice may change
                continue
            assert run.status == "completed", (run_id, run.error)
            assert run.steps >= before.steps
            if name in STRATEGIES and name != "function_call":
                assert ANSWER in str(run.output), run_id
            done = [point.seq for point in await executor.history(run_id) if point.outcome is not None]
            assert len(done) == len(set(done))
            records = await executor.store.read(run_id)
            assert [record.type for record in records].count("ended") == 2
            assert run.to_mermaid().startswith("flowchart")


@pytest.mark.full
async def test_an_answer_that_a_cancelled_run_had_asked_for_is_stale(unpacked: bytes, tmp_path: Path) -> None:
    (tmp_path / "runs.db").write_bytes(unpacked)
    async with opened(f"sqlite:///{tmp_path}/runs.db", "completed") as executor:
        for name in CALLING:
            asked = [record for record in await executor.store.read(f"{name}-cancelled") if record.type == "asked"]
            run = await executor.resume(f"{name}-cancelled", retry=True)
            assert run.status == "paused"
            assert run.waiting[0].id not in {record.question.id for record in asked}
            assert run.waiting[0].digest not in {record.question.digest for record in asked}
