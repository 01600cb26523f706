"""Kept runs of the strategies at every place go on.

Each makes no call whose result it has, and gives the answer that it would have given.
"""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator import Approve, Executor, Limits, Run
from orchestrator.kernel.records import EffectIntended, EffectSettled
from orchestrator.kernel.status import FINAL
from tests.data.kept_places import (
    ANSWER,
    LEFT_OUT,
    STORE,
    TOOL_USER,
    WAYS,
    Calls,
    opened,
    whole,
)
from tests.support.sizes import sized

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("impatient"),
    pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True),
]

RUNS = {
    "asking": "model_1 model_4 model_6 tool_2 unknown",
    "chat": """
        answered_1 approval_1 approval_3 before_3 before_6 cancelled exhausted failed model_1 model_4 tool_2 unknown
        waiting_1 waiting_2
    """,
    "function_call": "answered_1 approval_1 before_3 cancelled exhausted failed model_1 tool_2 unknown",
    "function_call_agent": """
        answered_1 approval_1 approval_3 before_3 cancelled exhausted failed model_1 model_4 model_6 tool_2 unknown
    """,
    "inside": """
        answered_1 approval_1 approval_3 before_3 cancelled exhausted failed model_1 model_2 model_7 tool_3 unknown
    """,
    "plan_and_solve": """
        answered_1 approval_1 approval_3 before_3 before_6 cancelled exhausted failed model_1 model_2 model_5 tool_3
        unknown
    """,
    "react": """
        answered_1 approval_1 approval_3 before_3 cancelled exhausted failed model_1 model_4 model_6 tool_2 unknown
    """,
    "rewoo": """
        answered_1 approval_1 approval_3 before_1 before_2 before_3 before_4 before_5 before_6 before_7 before_8
        before_9 before_10 before_12 before_13 before_14 cancelled denied_7 denied_8 denied_9 denied_10 denied_11
        denied_12 denied_13 denied_14 denied_15 exhausted failed model_1 model_5 tool_2 unknown
    """,
}
CORRECTED = {
    "chat-corrected": "model_1 model_2 model_5",
    "function_call-corrected": "model_1 model_2",
    "function_call_agent-corrected": "model_1 model_2 model_5",
    "plan_and_solve-corrected": "model_1 model_2 model_3",
    "react-corrected": "model_1 model_2 model_5",
    "react-twice": "model_1 model_2 model_3 model_6 model_7",
    "rewoo-corrected": "model_1 model_2 model_6",
}
GOING_ON = [
    *(f"{name}-plain-{place}" for name, places in RUNS.items() for place in places.split()),
    *(f"{way}-{place}" for way, places in CORRECTED.items() for place in places.split()),
]


@pytest.fixture(scope="module")
def unpacked() -> bytes:
    """The store's file."""
    return lzma.decompress(STORE.read_bytes())


@pytest.fixture
def store(unpacked: bytes, tmp_path: Path) -> str:
    """A copy of it."""
    (tmp_path / "runs.db").write_bytes(unpacked)
    return f"sqlite:///{tmp_path}/runs.db"


async def settled_calls(executor: Executor, run_id: str) -> int:
    """How many calls of models and of the arithmetic tools a run, and the runs that it called, have results of."""
    runs = [info.run_id for info in (await executor.runs(limit=1000)).runs if info.labels.get("parent") == run_id]
    found = 0
    for one in (run_id, *runs):
        records = await executor.store.read(one)
        settled = {record.key for record in records if isinstance(record, EffectSettled) and record.ok}
        keys = {
            record.key
            for record in records
            if isinstance(record, EffectIntended) and (record.kind == "model" or record.name in ("add", "multiply"))
        }
        found += len(keys & settled)
    return found


async def finished(executor: Executor, run_id: str) -> Run:
    """A run at its end; what it asks is approved, or made again, and a chat is over."""
    run = await executor.load(run_id)
    if run.status in FINAL:
        limits = Limits(steps=500) if run.status == "exhausted" else None
        run = await executor.resume(run_id, retry=True, limits=limits)
    elif not any(question.kind != "pause" for question in run.waiting):
        run = await executor.resume(run_id, wait=5, pause_before=())
    while run.waiting:
        question = next((one for one in run.waiting if one.kind != "pause"), None)
        if question is None:
            run = await executor.resume(run_id, pause_before=())
        else:
            kind = question.kind
            given = Approve() if kind == "approval" else "retry" if kind == "unknown_outcome" else "/bye"
            run = await executor.answer(run_id, question.id, given)
    return run


@pytest.mark.full
async def test_all_runs_load_fold_and_draw_without_code(store: str) -> None:
    async with Executor(store) as executor:
        listed = {info.run_id: info for info in (await executor.runs(limit=1000)).runs}
        kept = {f"{name}-{way}-completed" for name, ways in WAYS.items() for way in ways}
        assert {*GOING_ON, *kept} - {*LEFT_OUT} <= listed.keys()
        for run_id, info in list(listed.items())[:: sized(4, 1)]:
            run = await executor.load(run_id)
            assert run.status in FINAL or run.status in ("paused", "interrupted", "running")
            assert run.to_mermaid().startswith("flowchart"), info


def of_this_test(runs: Sequence[str]) -> Sequence[str]:
    """All runs in the full test; else some of each graph."""
    return runs[:: sized(18, 1)]


@pytest.mark.parametrize("run_id", of_this_test(GOING_ON))
async def test_a_run_goes_on_with_the_calls_it_has_to_the_answer_it_would_have_given(store: str, run_id: str) -> None:
    name, way, place = run_id.rsplit("-", 2)
    calls = Calls()
    async with opened(store, way, calls, irreversible=place == "unknown") as executor:
        before = await settled_calls(executor, run_id)
        run = await finished(executor, run_id)
        if run_id == "chat-plain-failed":  # an edge took the model's failure, and the node behind it raised that again
            assert "the model is broken" in str(run.error)
            return
        assert run.status == "completed", run.error
        expected = await executor.load(f"{name}-plain-completed")
    if place.startswith("denied"):
        assert "the user denied this call: no" in str(run.values["evidence"])
        assert before + len(calls.made) == 3
        return
    if place == "waiting_2":
        assert (run.output, calls.made) == ("42", [])
        return
    if name == "function_call":
        assert [one["content"] for one in run.output[2]] == [one["content"] for one in expected.output[2]]
    else:
        assert run.output == expected.output
    if name == "rewoo":
        assert run.values["evidence"] == expected.values["evidence"]
    assert before + len(calls.made) == await calls_of(name, way), (before, calls.made)
    assert name in ("function_call", "inside") or ANSWER in str(run.output)


TOOL_USER_RUNS = [
    *(f"model_{number}" for number in (1, 2, 4, 5, 6, 8, 9, 10, 12)), "tool_3", "tool_7", "tool_11",
    *(f"before_{number}" for number in range(2, 16)),
    "approval_1", "approval_3", "answered_1", "unknown", "cancelled", "exhausted", "failed",
]  # fmt: skip


@pytest.mark.parametrize("place", TOOL_USER_RUNS[:: sized(3, 1)])
async def test_runs_of_tool_user_before_its_corrections_go_on_at_every_place(tmp_path: Path, place: str) -> None:
    (tmp_path / "runs.db").write_bytes(lzma.decompress(TOOL_USER.read_bytes()))
    calls, run_id = Calls(), f"tool_user-plain-{place}"
    async with opened(f"sqlite:///{tmp_path}/runs.db", "plain", calls, irreversible=place == "unknown") as executor:
        before = await settled_calls(executor, run_id)
        run = await finished(executor, run_id)
    assert (run.status, float(str(run.output))) == ("completed", float(ANSWER)), run.error
    assert before + len(calls.made) == await calls_of("tool_user", "plain")


_CALLS: dict[tuple[str, str], int] = {}


async def calls_of(name: str, way: str) -> int:
    """How many calls a run of today makes from its beginning."""
    if (name, way) not in _CALLS:
        _CALLS[name, way] = len(await whole("memory://", name, way))
    return _CALLS[name, way]
