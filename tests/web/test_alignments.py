"""Several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from orchestrator import Executor, Graph, Run
from orchestrator.kernel.records import Record
from orchestrator.testing import ScriptedModel
from orchestrator.views.diff import diff_of
from orchestrator.web.alignments import Alignment, align
from tests.executor.test_diff import writing


async def _aligned(*runs: tuple[Graph, Sequence[str], str]) -> Alignment:
    async with Executor() as executor:
        return align(await _runs(executor, *runs))


async def _runs(executor: Executor, *runs: tuple[Graph, Sequence[str], str]) -> list[tuple[Run[Any], Sequence[Record]]]:
    """Runs of graphs with these replies and topics."""
    found = []
    for graph, said, topic in runs:
        async with Executor(executor.store, graphs=[graph], model=ScriptedModel(said)) as own:
            run = await own.start(graph, topic)
            found.append(await _read(own, run.run_id))
    return found


async def _read(executor: Executor, run_id: str) -> tuple[Run[Any], Sequence[Record]]:
    return await executor.load(run_id), await executor.store.read(run_id)


@pytest.mark.anyio
async def test_runs_that_did_the_same_have_no_first_difference() -> None:
    found = await _aligned(*[(writing(), ["a", "b"], "tea")] * 3)
    assert [(row.kind, row.place) for row in found.rows] == [
        ("start", ("", "", 0)), ("step", ("", "draft", 1)), ("step", ("", "polish", 1)), ("end", ("", "", 0)),
    ]  # fmt: skip
    assert (found.first, found.differing) == (None, 0)
    assert [row.differences for row in found.rows] == [((), ())] * 4
    step = found.rows[1].steps[2]
    assert step is not None
    assert (step.number, step.status, step.outcome) == (1, "done", "done")


@pytest.mark.anyio
async def test_the_rows_say_what_a_diff_of_two_says_and_give_its_lines_where_they_are_asked_for() -> None:
    async with Executor() as executor:
        read = await _runs(
            executor, (writing(), ["a", "b"], "tea"), (writing("Tell me about", more="check"), ["c", "b"], "milk")
        )
    (one, records), (other, others) = read
    found, whole = align(read), diff_of(one, records, other, others)
    listed = [note for row in found.rows for notes in row.differences for note in notes]
    assert [(note.kind, note.what, note.seqs) for note in listed] == [
        (note.kind, note.what, note.seqs) for note in whole.differences
    ]
    assert not any(note.lines for note in listed), "no text is compared line by line before it is asked for"
    told = [note for row in found.rows for notes in found.texts(row) for note in notes]
    assert tuple(told) == whole.differences
    assert sum(bool(note.lines) for note in told) > 3
    assert found.first is found.rows[0]
    assert found.row("step", ("", "check", 1)) is found.rows[3]


@pytest.mark.anyio
async def test_each_run_differs_from_the_first_where_it_does_and_steps_of_others_stand_between() -> None:
    found = await _aligned(
        (writing(), ["a", "b"], "tea"), (writing(), ["a", "c"], "tea"), (writing(more="check"), ["a", "b"], "tea"),
        (writing(more="recheck"), ["a", "b"], "tea"),
    )  # fmt: skip
    by_node = {row.place[1] or row.kind: row for row in found.rows}
    assert list(by_node) == ["start", "draft", "polish", "check", "recheck", "end"]
    assert [len(notes) > 0 for notes in by_node["polish"].differences] == [True, False, False]
    assert [step is not None for step in by_node["check"].steps] == [False, False, True, False]
    assert [[note.what for note in notes] for notes in by_node["check"].differences] == [
        [], ["only the second run reached this step"], [],
    ]  # fmt: skip
    assert found.first is by_node["polish"]


@pytest.mark.anyio
async def test_a_fork_and_a_replay_are_compared_with_their_parent_at_once() -> None:
    graph = writing()
    async with Executor(graphs=[graph], model=ScriptedModel(["a", "b", "c", "b"])) as executor:
        run = await executor.start(graph, "tea")
        fork = await executor.fork(run.run_id, at=1, update={"topic": "milk"})
        assert (await executor.wait(fork.run_id)).status == "completed"
        replay = await executor.replay(run.run_id)
        found = align([await _read(executor, name) for name in (run.run_id, fork.run_id, replay.run.run_id)])
    assert replay.same
    assert [bool(row.differences[1]) for row in found.rows] == [False] * 4
    assert [[note.kind for note in row.differences[0]] for row in found.rows] == [
        ["state"], ["request", "update"], ["request"], [],
    ]  # fmt: skip
    assert found.first is found.rows[0]
